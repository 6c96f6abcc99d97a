/* lanes.h: what devectorisation knows of a kernel's lane axes. Private to 5_select. */
#ifndef KI_SELECT_LANES_H
#define KI_SELECT_LANES_H

#include "stages/5_select/select.h"

typedef struct ki_lane_chunk { /* a piece of a vector axis: one register, or one lane of the rest */
    uint32_t offset, len;
} ki_lane_chunk;

typedef struct ki_lanes {
    bool tiles;              /* there are some */
    unsigned rank;           /* lane axes */
    int64_t size[KI_MAX_RANK];
    uint32_t vectors;        /* axes that become registers; no value varies along two of them */
    uint32_t lanes[KI_MAX_RANK]; /* of a full register along such an axis */
    uint32_t most[KI_MAX_RANK];  /* lanes of a register of the widest value that varies along it */
    int64_t *coef;           /* node index * rank + axis: stride of an index along the axis */
    uint32_t *odd;           /* node index: axes along which an index is no multiple of the lane */
} ki_lanes;

/* Whether a node is storage (PARAM, BUFFER, or AFTER of one), not a value. */
bool ki_is_storage(kn_uop u);
/* A STACK of constants. */
bool ki_is_const_list(kn_uop u);
/* Whether a node holds lanes: a value with axes that is no list of constants, and no tile (tiles.c). */
bool ki_has_lanes(const ki_lanes *l, kn_uop u);
/* Lanes that add up side by side along an axis of so many: a register's of that dtype, whatever else the kernel computes. */
uint32_t ki_row_lanes(const ki_target *t, kn_uop row, int64_t n);
/* Registers that n lanes fill, `lanes` in a full one: full ones, then the rest by powers of two; and the c-th of them. */
uint32_t ki_lane_chunks_of(uint32_t n, uint32_t lanes);
ki_lane_chunk ki_lane_chunk_of(uint32_t n, uint32_t lanes, uint32_t c);
/* Registers along a vector axis: full ones, then the rest by powers of two; and the c-th of them. */
uint32_t ki_lane_chunks(const ki_lanes *l, unsigned axis);
ki_lane_chunk ki_lane_chunk_at(const ki_lanes *l, unsigned axis, uint32_t c);
/* The vector axis u varies along, -1 none. */
int ki_vector_axis(const ki_lanes *l, kn_uop u);
/* Fills l for the nodes (ascending ids, at: id -> index). l->coef and l->odd are the caller's to free. */
bool ki_find_lanes(ki_ir *ir, const ki_target *t, const kn_uop *node, uint32_t n, const uint32_t *at, ki_lanes *l);

#endif
