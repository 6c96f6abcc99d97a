/* program.h: a graph with named inputs and outputs, at some stage; what a .kn file holds.
 *
 *   stage         root                                            in ports      out ports
 *   tensor        SINK(outputs...)                                named PARAMs  the output values
 *   callify       FUNCTION(TUPLE(v...), a...)                     BUFFERs a     GETTUPLE(root, i), or the BUFFER an assign wrote
 *   rangeify ..   LINEAR(CALL(SINK, buffers, variables...)...)    BUFFERs       BUFFERs: a call's may be SLICEs, parts of them
 *   plan          the same, its intermediate BUFFERs SLICEs of arenas
 *   render        LINEAR(CALL(PROGRAM, ...)...)                   BUFFERs       BUFFERs
 * Variables (named scalar PARAMs with bounds) stay named PARAMs at every stage, and are in ports too. */
#ifndef KI_PROGRAM_H
#define KI_PROGRAM_H

#include "ir/uop.h"

/* What a text's first line names. ORDER: the pipeline's. */
typedef enum ki_stage {
    KI_S_TENSOR,
    KI_S_CALLIFY,
    KI_S_RANGEIFY,
    KI_S_OPTIMIZE,
    KI_S_EXPAND,
    KI_S_SELECT,
    KI_S_LINEARIZE,
    KI_S_PLAN,
    KI_S_RENDER,
    KI_S_COUNT
} ki_stage;
extern const char *const ki_stage_names[KI_S_COUNT];

typedef struct ki_port {
    char *name;
    kn_uop node;
    kn_dtype dtype;
    unsigned rank;
    int64_t dim[KI_MAX_RANK]; /* shape the user sees; the node of a later stage is flat */
    kn_uop origin;            /* in ports after callify: the PARAM or BUFFER of the tensor program, in its own store */
    bool ranged;              /* in ports: made-up values lie in [lo, hi] */
    double lo, hi;
} ki_port;

typedef struct ki_program {
    ki_ir *ir;
    ki_stage stage;
    kn_uop root;
    ki_port *in, *out;
    size_t nin, nout;
    uint8_t *filled; /* of kernels rendered without their lists, by argument of one call after the other: see plan.h */
} ki_program;

void ki_program_free(ki_program *p); /* ports; the store is the caller's */
bool ki_program_port(ki_program *p, bool output, const char *name, size_t len,
                     kn_uop node);                                   /* shape and dtype from node */
bool ki_program_clone_ports(ki_program *to, const ki_program *from); /* names, shapes, ranges; nodes too */
/* ki_ir_collect with the program's nodes and the n of `more` as roots, all updated. */
bool ki_program_collect(ki_program *p, kn_uop *more, size_t n);

/* Text. See docs/text.md. */
struct ki_text;
bool ki_print(const ki_program *p, ki_text *out);
/* Any one graph, for messages and tests: only node lines. */
bool ki_print_graph(ki_ir *ir, kn_uop root, ki_text *out);
/* OptOps as the text of a kernel has them: split 0 8 u #4, swap 0 1 */
void ki_opts_put(struct ki_text *t, const ki_opt *opt, uint32_t n);
/* A node as a short term, add(mul(r0, 4), %17), for messages: its sources `levels` deep, then by id; the first eight of each. */
void ki_term_put(struct ki_text *t, kn_uop u, unsigned levels);
/* Fills p (its ports are the caller's to free) with nodes made in ir. False: env says what and where. */
bool ki_parse(ki_ir *ir, const char *source, const char *text, size_t n, ki_program *p);

#endif
