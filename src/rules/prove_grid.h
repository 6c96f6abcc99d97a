/* prove_grid.h: small graphs evaluated over all values of their RANGEs at once. Private to the prover. */
#ifndef KI_PROVE_GRID_H
#define KI_PROVE_GRID_H

#include "rules/rules.h"

enum { KI_GRID_RANGES = 8, KI_GRID_MOST = 1 << 16, KI_GRID_POINTS = 48 };

/* Small numbers on which sums are exact; floats of all magnitudes, those beside the graph's constants among them; distinct reals between 0.2 and 1.8; few numbers, many
 * equal and many zero (a parameter named d... holds one number throughout); of parameters a, b, c what steps written out round or compare wrongly. */
typedef enum ki_data { KI_DATA_SMALL, KI_DATA_WILD, KI_DATA_SMOOTH, KI_DATA_TIES, KI_DATA_HARD } ki_data;
/* Elements are bits as CONST stores them. A node's array is [grid position][element]. */
typedef struct ki_grid {
    ki_ir *ir;
    kn_uop range[KI_GRID_RANGES];
    uint32_t extent[KI_GRID_RANGES], stride[KI_GRID_RANGES], nrange, size;
    uint64_t seed; /* of the data in parameters */
    ki_data data;  /* what parameters hold */
    bool split;    /* mulacc of floats is two roundings */
    kn_uop point[KI_GRID_POINTS]; /* constants, beside which wild data lie */
    uint32_t npoint;
    kn_uop power;  /* a root x^y of parameters: y is chosen by x */
    uint64_t **bits; /* by id */
    uint8_t **bad;   /* by id: KI_GRID_ flags an element */
    uint32_t n;
    const char *why; /* what it cannot evaluate */
} ki_grid;
enum { KI_GRID_POISON = 1, KI_GRID_OUTSIDE = 2 }; /* must not be used; read outside a buffer */

/* Evaluates both roots on one grid. False: out of memory, or an op it does not know (why). */
bool ki_grid_eval(ki_grid *g, ki_ir *ir, const kn_uop *root, unsigned nroot, uint64_t seed, ki_data data);
/* The same where mulacc of floats is two roundings. */
bool ki_grid_eval_split(ki_grid *g, ki_ir *ir, const kn_uop *root, unsigned nroot, uint64_t seed, ki_data data);
void ki_grid_free(ki_grid *g);
/* Compares two roots of one dtype and shape element by element. False: they differ; *where is the element. Elements
 * of a that have no value are passed over. tolerance: relative, for floats; 0, the same bits or both NaN. signless: -0.0 and 0.0 are equal. */
bool ki_grid_equal(const ki_grid *g, kn_uop a, kn_uop b, double tolerance, bool signless, size_t *where);

#endif
