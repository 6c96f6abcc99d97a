/* lanes.h: what devectorisation knows of a kernel's lane axes. Private to 5_select. */
#ifndef KI_SELECT_LANES_H
#define KI_SELECT_LANES_H

#include "stages/5_select/select.h"

enum { KI_MAX_CHUNK = 256 };

typedef struct ki_chunk_of { /* a piece of the vector axis: one register */
    uint32_t offset, len;
} ki_lane_chunk;

typedef struct ki_lanes {
    unsigned rank;           /* lane axes */
    int64_t size[KI_MAX_RANK];
    int vector;              /* the axis that becomes registers, -1: none */
    uint32_t nchunk;
    ki_lane_chunk chunk[KI_MAX_CHUNK];
    int64_t *coef;           /* node index * rank + axis: stride of an index along the axis */
    uint32_t *odd;           /* node index: axes along which an index is no multiple of the lane */
} ki_lanes;

/* Whether a node is storage (PARAM, BUFFER, or AFTER of one), not a value. */
bool ki_is_storage(kn_uop u);
/* Whether a node holds lanes: a value with axes that is no list of constants. */
bool ki_has_lanes(kn_uop u);
/* Fills l for the nodes (ascending ids, at: id -> index). l->coef and l->odd are the caller's to free. */
bool ki_find_lanes(ki_ir *ir, const ki_target *t, const kn_uop *node, uint32_t n, const uint32_t *at, ki_lanes *l);

#endif
