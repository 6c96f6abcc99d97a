/* lanes.h: what the files of stage 4 share: the state of one kernel's expansion. Private to 4_expand. */
#ifndef KI_LANES_H
#define KI_LANES_H

#include "stages/4_expand/expand.h"
#include "stages/affine.h"
#include "stages/scope.h"

/* A running sum across lanes (prefix.c): reduce is, for each l, the sum of term over m up to l; from: what it alone is
 * added to, NULL: nothing. */
typedef struct ki_prefix {
    kn_uop reduce, term, m, l, from;
} ki_prefix;
#define KI_MOST_PREFIX 64

/* Arrays are by place in scope.node. */
typedef struct ki_ex {
    ki_ir *ir;
    const ki_target *target;
    ki_scope scope;
    ki_affines affines;
    kn_uop lane[KI_MAX_RANK]; /* the first RANGE of each lane axis; all of one axis have its extent or never
                                 meet */
    unsigned nlane;
    uint8_t *axis;               /* by range number: lane axis, KI_NO_LANE for loops */
    kn_uop *val, *ptr, *gate;    /* as a value (ki_ex_val); as an address (INDEX); validity of an index, NULL always valid */
    const ki_affine **form;      /* of val, where its dtype is index */
    uint32_t *home;              /* place of the BUFFER or PARAM that an address is in */
    uint32_t *own;               /* BUFFER of the kernel: lane axes it has a copy for */
    uint64_t *own_ranges;        /* the lane RANGEs of these axes */
    uint32_t *pending, npending; /* REDUCEs of the level being mapped, and ENDs that they go along with */
    ki_prefix *prefix;           /* the kernel's */
    uint32_t nprefix;
} ki_ex;
#define KI_NO_LANE 255

/* Extents of the axes in mask, 1 elsewhere. */
void ki_lane_dims(const ki_ex *x, const int64_t *extent, uint32_t mask, int64_t *dim);
/* Constants v[0 .. product of dim) of shape dim, with axes along which they do not vary dropped; a scalar if
 * none is left. */
kn_uop ki_lane_consts(ki_ex *x, kn_dtype t, const uint64_t *v, const int64_t *dim);
/* True if u is a constant at every lane; its element at the lane coordinates. */
bool ki_lane_is_const(kn_uop u);
uint64_t ki_lane_elem(kn_uop u, const int64_t *at);
/* u computed at every lane if it is elementwise over constants, else NULL. */
kn_uop ki_lane_fold(ki_ex *x, kn_op op, kn_dtype t, const kn_uop *src, uint32_t nsrc);
/* r (NULL: 0) and, of each lane, its numbers along the axes, each by its coefficient: a list an axis. */
kn_uop ki_lane_steps(ki_ex *x, kn_uop r, const int64_t *coef, const int64_t *dim);
/* f as base + lists of constants + the rest. */
kn_uop ki_lane_index(ki_ex *x, const ki_affine *f);
/* What a node has become; an index is written out here, when it is first read. */
static inline kn_uop ki_ex_val(ki_ex *x, kn_uop u) {
    uint32_t i = x->scope.at[u->id];
    if (!x->val[i] && x->form[i]) x->val[i] = ki_lane_index(x, x->form[i]);
    return x->val[i];
}
/* a < b as constants < scalar where the forms allow, or as a constant; NULL if nothing is gained. */
kn_uop ki_lane_less(ki_ex *x, const ki_affine *a, const ki_affine *b);
/* A value whose axes are all 1 as (). */
kn_uop ki_lane_squeeze(ki_ir *ir, kn_uop u);

/* v over the lane RANGEs (and axes) of the REDUCE u. */
kn_uop ki_reduce_lanes(ki_ex *x, kn_uop u, kn_uop v);
/* prefix.c: finds the running sums across lanes; such a sum's value; NULL: u is none, or env says why. */
bool ki_find_prefixes(ki_ex *x);
kn_uop ki_prefix_lanes(ki_ex *x, kn_uop u);
/* The running sum that u is added to, NULL: none; of all lanes of the BUFFER that u is in, u in every lane. */
const ki_prefix *ki_prefix_from(const ki_ex *x, kn_uop u);
kn_uop ki_prefix_spread(ki_ex *x, const ki_prefix *p, kn_uop all);
/* skip.c: a sum's value and its innermost loop, terms that are left out skipped. */
bool ki_skip_left_out(ki_ir *ir, kn_op op, kn_uop *value, kn_uop *loop);
/* Lowers what is pending, all of one level. */
bool ki_expand_reduces(ki_ex *x);
/* Do both close the same loops, in order, lanes aside? */
bool ki_same_loops(kn_uop a, kn_uop b);
/* The sink with RANGEs renamed such that every loop is closed in one place. */
kn_uop ki_unshare_loops(ki_ir *ir, kn_uop sink);

#endif
