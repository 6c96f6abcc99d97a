/* scope.h: which loops each node of a kernel stands in.
 *
 * The free RANGEs of a node are those of its sources, less the ones it closes (END all, REDUCE its own); a
 * RANGE is free in itself. They are bit sets over the kernel's RANGEs, which are numbered in order of their
 * ids. Works on a kernel SINK of any form from *rangeify* to *expand*.
 *
 * level: how many REDUCEs with ranges lie on the longest way from a node down to the leaves, or ENDs of loops that REDUCEs close too
 * (3_optimize/pipelined.c). Sorted by (level, place), all of these of one level are computed before anything of the next, so that those of
 * one level never need each other. */
#ifndef KI_SCOPE_H
#define KI_SCOPE_H

#include "ir/uop.h"

typedef struct ki_scope {
    ki_ir *ir;
    kn_uop *node; /* topological order */
    uint32_t n;
    uint32_t *at;  /* id -> place in node; 0 for others too, so ask only for nodes of the kernel */
    uint32_t ids;  /* ids it has room for */
    kn_uop *range; /* in order of range id */
    uint32_t nrange, words;
    uint32_t *rank;  /* place -> number of that RANGE */
    uint32_t *level; /* place */
    uint32_t nlevel;
    uint64_t *free; /* place * words */
    bool *reduced;  /* number of a RANGE -> is it a loop that a REDUCE closes? */
} ki_scope;

/* Does the END close a loop that a REDUCE closes too? */
bool ki_scope_shares(const ki_scope *s, kn_uop end);
/* False: out of memory (env says so). Close it in any case. */
bool ki_scope_open(ki_scope *s, ki_ir *ir, kn_uop sink);
void ki_scope_close(ki_scope *s);
/* True if `sink` has the same sources as the kernel's: it takes its place. Else (or where ids have no room) nothing is done. */
bool ki_scope_renew(ki_scope *s, kn_uop sink);

static inline uint32_t ki_scope_at(const ki_scope *s, kn_uop u) { return s->at[u->id]; }
static inline const uint64_t *ki_scope_free(const ki_scope *s, kn_uop u) {
    return s->free + (size_t)s->at[u->id] * s->words;
}
static inline uint32_t ki_scope_rank(const ki_scope *s, kn_uop range) { return s->rank[s->at[range->id]]; }
static inline bool ki_in_set(const uint64_t *set, uint32_t r) { return set[r >> 6] >> (r & 63) & 1; }
static inline bool ki_scope_has(const ki_scope *s, kn_uop u, kn_uop range) {
    return ki_in_set(ki_scope_free(s, u), ki_scope_rank(s, range));
}
/* Has u one value throughout the kernel? */
static inline bool ki_scope_fixed(const ki_scope *s, kn_uop u) {
    for (uint32_t q = 0; q < s->words; q++)
        if (ki_scope_free(s, u)[q]) return false;
    return true;
}
/* UPCAST and UNROLL ranges become lanes; all others are loops. */
static inline bool ki_is_lane(kn_uop range) {
    return range->op == KN_RANGE && (range->arg.range.axis == KN_AX_UPCAST || range->arg.range.axis == KN_AX_UNROLL);
}
/* A RANGE of extent 1 runs once: *expand* makes it the constant 0. */
static inline bool ki_is_unit(kn_uop range) {
    return range->op == KN_RANGE && ki_is_const_int(range->src[0], 1) && range->arg.range.axis != KN_AX_THREAD;
}
/* What END, REDUCE and AFTER list and *expand* keeps. */
static inline bool ki_is_loop(kn_uop u) { return !ki_is_lane(u) && !ki_is_unit(u); }
/* Extent of a RANGE, 0 when it is not constant. */
static inline int64_t ki_extent(kn_uop range) { return range->src[0]->op == KN_CONST ? range->src[0]->arg.i : 0; }

#endif
