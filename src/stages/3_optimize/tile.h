/* tile.h: what the files of register tiles know of each other: tile.c (which operands and loops), tile_size.c (how large), pack.c (what is packed),
 * tiled.c (its steps). Private to 3_optimize. */
#ifndef KI_TILE_H
#define KI_TILE_H

#include "stages/3_optimize/dots.h"

#define KI_MOST_PACKED (1 << 20) /* bytes: a panel should stay in a core's second-level cache */
#define KI_MOST_ROWS   (1 << 19) /* bytes of a block of rows that is packed, beside a panel */
#define KI_FEW_ROWS    4         /* of a tile: with fewer, a panel's vectors take longer to come than to multiply */
#define KI_FEW_USES    8         /* of a panel: fewer are not worth packing it */
#define KI_MANY_ROWS   32        /* times a tile's, beside which the nest of what is left takes little */
#define KI_MANY_TERMS  256       /* of a sum: beside them a store of lanes one by one is nothing */
#define KI_MOST_ALSO   4
/* Of an extent, as many as are done twice: a nest for what is left takes no longer than a twentieth; of rows that are kept and filled with sums of
 * products (filled.c) two nests would share no packed keys. */
#define KI_LEAST_LAPPED 20
#define KI_LEAST_KEPT   8

/* By its index or, a row the kernel keeps, by what stands in it. */
static inline bool ki_uses(const ki_nest *k, kn_uop access, kn_uop r) { return ki_scope_has(&k->scope, access, r); }

/* tile.c: other sums of products that the tile's loops are around: they share its lanes; any: those too whose vectors would go along their own loops, and
 * the tile's do not. Their number in also[]. */
uint32_t ki_other_sums(const ki_choice *c, kn_uop end, const ki_tile *t, bool any, ki_tile also[KI_MOST_ALSO]);

/* tile_size.c: nv, mu, mw, cut, parts: many products for each load, few left over. */
void ki_size_tile(const ki_choice *c, kn_uop end, ki_tile *t);
/* KI_LEAST_KEPT or KI_LEAST_LAPPED: which one holds of the tile's loop r? */
int64_t ki_least_lapped(const ki_nest *k, const ki_tile *t, kn_uop r);
/* Are whole vectors left of n columns that are read in place, in tiles `step` wide? Beside a long sum the nest they go in takes no time. */
bool ki_leaves_vectors(const ki_choice *c, const ki_tile *t, int64_t n, int64_t step);

/* pack.c: may the sum's operand a be packed in panels of n lanes? u: for each of which all of that loop goes by, NULL: it is packed otherwise. */
bool ki_may_pack(const ki_nest *k, kn_uop end, kn_uop sum, kn_uop a, int64_t n, kn_uop u);
/* Is the streamed operand no plain row along v? Then it must be packed. */
bool ki_is_hard(const ki_nest *k, const ki_tile *t);
bool ki_worth_packing(const ki_choice *c, kn_uop end, const ki_tile *t);
/* How often the panel is read once it is packed: iterations of the loops it does not vary in, for all threads, so that none adds up otherwise. */
int64_t ki_panel_uses(const ki_nest *k, kn_uop end, const ki_tile *t);
/* Do a panel's rows start at whole cache lines and stay in the second-level cache together? Then nothing is gained by packing. */
bool ki_fits_in_place(const ki_choice *c, kn_uop sum, kn_uop a, kn_uop v);
/* Is a window better packed than read under masks? */
bool ki_packs_gated(const ki_choice *c, kn_uop end, kn_uop sum, kn_uop a, kn_uop u);
/* Are all panels packed before any is read, so that the other operand goes by once? */
bool ki_is_packed_whole(const ki_choice *c, kn_uop end, const ki_tile *t);
/* Are several panels packed side by side, and do a few rows go through all of them? */
bool ki_goes_by_blocks(const ki_choice *c, const ki_tile *t);
/* strips.c: steps of a part of the tile's sum, if its rows are too long to stay in a second-level cache beside panels: it goes in parts then. 0: it does not. */
int64_t ki_part_of_tiles(const ki_choice *c, const ki_tile *t);
/* Does the nest read rows that its loops fill, other than sums that it carries, and, *again, what access reads in another place? */
bool ki_keeps_rows(const ki_nest *k, kn_uop end, kn_uop access, bool *again);

#endif
