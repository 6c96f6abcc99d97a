/* shape.c: shapes, axes and broadcasting. Sizes may be symbolic (ki_dim.sym); what needs numbers asks ki_shape_known. */
#include "tensor/build.h"

#include <string.h>

ki_shape ki_shape_like(kn_uop u) {
    ki_shape s = {.n = ki_rank(u)};
    memcpy(s.d, u->type->dim, s.n * sizeof *s.d);
    return s;
}

bool ki_shape_same(const ki_shape *a, const ki_shape *b) {
    if (a->n != b->n) return false;
    for (unsigned i = 0; i < a->n; i++)
        if (a->d[i].n != b->d[i].n || a->d[i].sym != b->d[i].sym) return false;
    return true;
}

/* Dimensions made by kn_sym are numbers far below any size: SYM_BASE - index of the variable. */
#define SYM_BASE (INT64_MIN / 2)
static bool is_sym(kn_ctx *k, int64_t n) { return n <= SYM_BASE && SYM_BASE - n < (int64_t)k->nsym; }

int64_t kn_sym(kn_tensor t) {
    if (!t || !t->u) return -1;
    kn_ctx *k = t->k;
    ki_settle_failure(k);
    if (t->u->dtype != KN_IDX || ki_rank(t->u)) {
        ki_fail(&k->env, KI_E_SYM_DTYPE, ki_dtypes[t->u->dtype].name);
        return ki_settle_failure(k), -1;
    }
    for (uint32_t i = 0; i < k->nsym; i++)
        if (k->sym[i] == t->u) return SYM_BASE - i;
    kn_uop *p = ki_realloc(k->sym, k->nsym + 1u, sizeof *p);
    if (!p) return ki_fail(&k->env, KI_E_NOMEM), ki_settle_failure(k), -1;
    k->sym = p;
    k->sym[k->nsym] = t->u;
    return SYM_BASE - k->nsym++;
}

bool ki_shape_read(kn_ctx *k, kn_ints list, ki_shape *out) {
    if (list.n < 0 || list.n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    out->n = (unsigned)list.n;
    for (unsigned i = 0; i < out->n; i++) {
        int64_t n = list.v[i];
        if (is_sym(k, n)) {
            kn_uop sym = k->sym[SYM_BASE - n];
            out->d[i] = (ki_dim){sym->hi.i, sym};
        } else if (n < 0 || n > INT64_C(1) << 47) {
            return FAIL(KI_E_SIZE_RANGE, k->fn, (long long)n, i);
        } else {
            out->d[i] = (ki_dim){n, NULL};
        }
    }
    return true;
}

bool ki_shape_known(kn_ctx *k, kn_uop u) {
    if (!u) return false;
    char s[128];
    return !u->type->symbolic || FAIL(KI_E_SYMBOLIC_SHAPE, k->fn, ki_shape_text(u->type, s, sizeof s));
}

int ki_axis(kn_ctx *k, int64_t axis, unsigned rank) {
    if (axis >= -(int64_t)rank && axis < (int64_t)rank) return (int)(axis < 0 ? axis + rank : axis);
    ki_fail(&k->env, KI_E_AXIS_RANGE, k->fn, (long long)axis, rank);
    return -1;
}

bool ki_axes(kn_ctx *k, kn_ints axes, unsigned rank, uint32_t *bits) {
    *bits = 0;
    if (axes.n < 0 || axes.n > KN_MAX_LIST) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    for (int64_t i = 0; i < axes.n; i++) {
        int a = ki_axis(k, axes.v[i], rank);
        if (a < 0) return false;
        if (*bits >> a & 1) return FAIL(KI_E_AXIS_TWICE, k->fn, a);
        *bits |= UINT32_C(1) << a;
    }
    return true;
}

/* ---- reshape, expand, broadcast ---------------------------------------------------------------------------- */

/* A reshape of a reshape stays two nodes: the inner one may be what a gradient is asked for. */
kn_uop ki_t_reshape_to(kn_ctx *k, kn_uop x, const ki_shape *s) {
    if (!x) return NULL;
    ki_shape own = ki_shape_like(x);
    if (ki_shape_same(&own, s)) return x;
    return ki_op2(&k->ir, KN_RESHAPE, x, ki_stack_dims(&k->ir, s->d, s->n));
}

kn_uop ki_t_reshape(kn_ctx *k, kn_uop x, unsigned n, const int64_t *dim) {
    ki_shape s = {.n = n};
    if (n > KI_MAX_RANK) return FAIL(KI_E_RANK_TOO_LARGE, k->fn, KI_MAX_RANK);
    for (unsigned i = 0; i < n; i++) s.d[i] = (ki_dim){dim[i], NULL};
    return ki_t_reshape_to(k, x, &s);
}

kn_uop ki_t_expand_to(kn_ctx *k, kn_uop x, const ki_shape *s) {
    if (!x) return NULL;
    ki_shape own = ki_shape_like(x);
    if (ki_shape_same(&own, s)) return x;
    return ki_op2(&k->ir, KN_EXPAND, x, ki_stack_dims(&k->ir, s->d, s->n));
}

/* x's shape with ones in front, to n axes. */
static kn_uop lead(kn_ctx *k, kn_uop x, unsigned n) {
    ki_shape s = {.n = n};
    unsigned more = n - ki_rank(x);
    for (unsigned i = 0; i < n; i++) s.d[i] = i < more ? (ki_dim){1, NULL} : x->type->dim[i - more];
    return ki_t_reshape_to(k, x, &s);
}

static kn_uop cannot_broadcast(kn_ctx *k, kn_uop a, kn_uop b, unsigned from_end) {
    char sa[128], sb[128];
    ki_fail(&k->env, KI_E_BROADCAST, k->fn, ki_shape_text(a->type, sa, sizeof sa),
            ki_shape_text(b->type, sb, sizeof sb));
    ki_fail_note(&k->env, "axis -%u: %lld vs %lld", from_end, (long long)ki_dim_n(a, ki_rank(a) - from_end),
                 (long long)ki_dim_n(b, ki_rank(b) - from_end));
    const struct kn_tensor_s *l = k->operand[0], *r = k->operand[1];
    if (l && r && l->loc.file && r->loc.file)
        ki_fail_note(&k->env, "left operand from %s:%d, right from %s:%d", l->loc.file, l->loc.line, r->loc.file,
                     r->loc.line);
    return NULL;
}

kn_uop ki_t_broadcast_to(kn_ctx *k, kn_uop x, const ki_shape *s) {
    if (!x) return NULL;
    char a[128], b[128];
    bool fits = ki_rank(x) <= s->n;
    for (unsigned i = 1; fits && i <= ki_rank(x); i++) {
        ki_dim d = x->type->dim[ki_rank(x) - i];
        fits = ki_is_one(d) || ki_same_dim(d, s->d[s->n - i]);
    }
    if (!fits) {
        const ki_type *t = ki_type_make(&k->ir, s->n, s->d, 0, -1);
        return t ? FAIL(KI_E_BROADCAST_TO, k->fn, ki_shape_text(x->type, a, sizeof a), ki_shape_text(t, b, sizeof b))
                 : NULL;
    }
    return ki_t_expand_to(k, lead(k, x, s->n), s);
}

bool ki_broadcast(kn_ctx *k, kn_uop *a, kn_uop *b) {
    if (!*a || !*b) return false;
    unsigned ra = ki_rank(*a), rb = ki_rank(*b);
    if (ra == 0 || rb == 0 || ki_same_shape(*a, *b)) return true;
    ki_shape s = {.n = ra > rb ? ra : rb};
    for (unsigned i = 1; i <= s.n; i++) {
        ki_dim da = i <= ra ? (*a)->type->dim[ra - i] : (ki_dim){1, NULL},
               db = i <= rb ? (*b)->type->dim[rb - i] : (ki_dim){1, NULL};
        if (!ki_same_dim(da, db) && !ki_is_one(da) && !ki_is_one(db)) return cannot_broadcast(k, *a, *b, i);
        s.d[s.n - i] = ki_is_one(da) ? db : da;
    }
    *a = ki_t_expand_to(k, lead(k, *a, s.n), &s);
    *b = ki_t_expand_to(k, lead(k, *b, s.n), &s);
    return *a && *b;
}
