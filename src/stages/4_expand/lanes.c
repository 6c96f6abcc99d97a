/* lanes.c: values that differ from lane to lane but are known: iotas, masks, offsets.
 *
 * A constant over lanes is RESHAPE(STACK(consts), shape); only the axes along which it varies are kept. An
 * index is scalar base + constants, which is what *select* tells vectors, broadcasts and gathers apart by. */
#include "stages/4_expand/lanes.h"

#include "ir/scalar.h"
#include "stages/indexing.h"

#include <string.h>

#define MOST_LANES 4096

kn_uop ki_lane_squeeze(ki_ir *ir, kn_uop u) {
    if (!u || ki_rank(u) == 0 || ki_numel(u) != 1) return u;
    return ki_reshape(ir, u, NULL, 0);
}

static int64_t product(const int64_t *dim, unsigned n) {
    int64_t p = 1;
    for (unsigned k = 0; k < n; k++) p *= dim[k];
    return p;
}

/* Drops axis k of v if nothing varies along it. */
static void drop_axis(uint64_t *v, int64_t *dim, unsigned n, unsigned k) {
    int64_t inner = product(dim + k + 1, n - k - 1), outer = product(dim, k);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t j = 1; j < dim[k]; j++)
            if (memcmp(v + (o * dim[k] + j) * inner, v + o * dim[k] * inner, (size_t)inner * sizeof *v)) return;
    for (int64_t o = 0; o < outer; o++) memmove(v + o * inner, v + o * dim[k] * inner, (size_t)inner * sizeof *v);
    dim[k] = 1;
}

kn_uop ki_lane_consts(ki_ex *x, kn_dtype t, const uint64_t *value, const int64_t *dims) {
    int64_t dim[KI_MAX_RANK], n = product(dims, x->nlane);
    kn_uop *c = ki_malloc((size_t)n * sizeof *c), r = NULL;
    uint64_t *v = ki_malloc((size_t)n * sizeof *v);
    if (!c || !v) {
        ki_fail(x->ir->env, KI_E_NOMEM);
    } else {
        memcpy(v, value, (size_t)n * sizeof *v);
        memcpy(dim, dims, x->nlane * sizeof *dim);
        for (unsigned k = 0; k < x->nlane; k++)
            if (dim[k] > 1) drop_axis(v, dim, x->nlane, k);
        n = product(dim, x->nlane);
        for (int64_t i = 0; i < n; i++) c[i] = ki_const_bits(x->ir, t, v[i]);
        r = n == 1 ? c[0] : ki_reshape(x->ir, ki_opn(x->ir, KN_STACK, c, (uint32_t)n), dim, x->nlane);
    }
    ki_free(c);
    ki_free(v);
    return r;
}

bool ki_lane_is_const(kn_uop u) {
    if (u->op == KN_CONST) return true;
    if (u->op == KN_RESHAPE) u = u->src[0];
    if (u->op != KN_STACK || u->type->rank != 1) return false;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (u->src[k]->op != KN_CONST) return false;
    return true;
}

uint64_t ki_lane_elem(kn_uop u, const int64_t *at) {
    int64_t i = 0;
    if (u->op == KN_CONST) return u->arg.bits;
    for (unsigned k = 0; k < ki_rank(u); k++) i = i * ki_dim_n(u, k) + (ki_dim_n(u, k) > 1 ? at[k] : 0);
    return (u->op == KN_RESHAPE ? u->src[0] : u)->src[i]->arg.bits;
}

/* The next lane in row-major order; false after the last. */
static bool step(int64_t *at, const int64_t *dim, unsigned n) {
    for (unsigned k = n; k-- > 0;) {
        if (++at[k] < dim[k]) return true;
        at[k] = 0;
    }
    return false;
}

kn_uop ki_lane_fold(ki_ex *x, kn_op op, kn_dtype t, const kn_uop *src, uint32_t nsrc) {
    int64_t dim[KI_MAX_RANK], at[KI_MAX_RANK] = {0};
    kn_dtype in[3];
    uint64_t v[3];
    if (nsrc == 0 || nsrc > 3) return NULL;
    for (unsigned k = 0; k < x->nlane; k++) dim[k] = 1;
    for (uint32_t i = 0; i < nsrc; i++) {
        if (!src[i] || !ki_lane_is_const(src[i]) || (ki_rank(src[i]) && ki_rank(src[i]) != x->nlane)) return NULL;
        in[i] = (kn_dtype)src[i]->dtype;
        for (unsigned k = 0; k < ki_rank(src[i]); k++)
            if (ki_dim_n(src[i], k) > 1) dim[k] = ki_dim_n(src[i], k);
    }
    int64_t n = product(dim, x->nlane), i = 0;
    if (n > MOST_LANES) return NULL;
    uint64_t *out = ki_malloc((size_t)n * sizeof *out);
    bool ok = out != NULL;
    do {
        for (uint32_t k = 0; k < nsrc; k++) v[k] = ki_lane_elem(src[k], at);
        ok = ok && ki_scalar(op, t, in, v, &out[i++]);
    } while (ok && step(at, dim, x->nlane));
    kn_uop r = ok ? ki_lane_consts(x, t, out, dim) : NULL;
    ki_free(out);
    return r;
}

/* Lane RANGEs stand for themselves in forms; all other RANGEs may be rebuilt ones the scope does not know. */
static unsigned axis_of(const ki_ex *x, kn_uop u) {
    return ki_is_lane(u) ? x->axis[ki_scope_rank(&x->scope, u)] : KI_NO_LANE;
}

/* The lane constants of f: what its lane RANGEs and constant terms add up to; NULL if it has none. */
static kn_uop constants(ki_ex *x, const ki_affine *f) {
    int64_t dim[KI_MAX_RANK], at[KI_MAX_RANK] = {0};
    bool any = false;
    for (unsigned k = 0; k < x->nlane; k++) dim[k] = 1;
    for (uint32_t i = 0; i < f->n; i++) {
        kn_uop u = f->t[i].x;
        unsigned a = axis_of(x, u);
        if (a != KI_NO_LANE) {
            any = true;
            dim[a] = ki_extent(u);
        } else if (ki_rank(u) && ki_lane_is_const(u)) {
            any = true;
            for (unsigned k = 0; k < ki_rank(u); k++)
                if (ki_dim_n(u, k) > 1) dim[k] = ki_dim_n(u, k);
        }
    }
    if (!any) return NULL;
    int64_t n = product(dim, x->nlane), at_n = 0;
    uint64_t *v = ki_malloc((size_t)n * sizeof *v);
    if (!v) return ki_fail(x->ir->env, KI_E_NOMEM), NULL;
    do {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < f->n; i++) {
            kn_uop u = f->t[i].x;
            unsigned a = axis_of(x, u);
            if (a != KI_NO_LANE) sum += (uint64_t)f->t[i].c * (uint64_t)at[a];
            else if (ki_rank(u) && ki_lane_is_const(u)) sum += (uint64_t)f->t[i].c * ki_lane_elem(u, at);
        }
        v[at_n++] = sum;
    } while (step(at, dim, x->nlane));
    kn_uop r = ki_lane_consts(x, KN_IDX, v, dim);
    ki_free(v);
    return r;
}

/* f without its lane parts; *rest: the sum of its shaped terms that are not constant, or NULL. */
static const ki_affine *scalar_part(ki_ex *x, const ki_affine *f, kn_uop *rest, bool *ok) {
    ki_affine *s = ki_arena_alloc(&x->affines.arena, sizeof *s + f->n * sizeof *s->t);
    *rest = NULL;
    *ok = s != NULL;
    if (!s) return ki_fail(x->ir->env, KI_E_NOMEM), NULL;
    s->k = f->k;
    s->n = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        kn_uop u = f->t[i].x;
        if (axis_of(x, u) != KI_NO_LANE) continue;
        if (!ki_rank(u)) {
            s->t[s->n++] = f->t[i];
        } else if (!ki_lane_is_const(u)) {
            if (f->t[i].c != 1) u = ki_op2(x->ir, KN_MUL, u, ki_index(x->ir, f->t[i].c));
            *rest = *rest ? ki_index_add(x->ir, *rest, u) : u;
            *ok &= *rest != NULL;
        }
    }
    return s;
}

kn_uop ki_lane_steps(ki_ex *x, kn_uop r, const int64_t *coef, const int64_t *dim) {
    int64_t own[KI_MAX_RANK], most = 1;
    for (unsigned k = 0; k < x->nlane; k++) {
        own[k] = 1;
        if (dim[k] > most) most = dim[k];
    }
    uint64_t *v = ki_malloc((size_t)most * sizeof *v);
    bool ok = v || (ki_fail(x->ir->env, KI_E_NOMEM), false);
    for (unsigned k = 0; k < x->nlane && ok; own[k++] = 1) {
        if (dim[k] == 1 || !coef[k]) continue;
        own[k] = dim[k];
        for (int64_t i = 0; i < dim[k]; i++) v[i] = (uint64_t)coef[k] * (uint64_t)i;
        kn_uop list = ki_lane_consts(x, KN_IDX, v, own);
        ok = list && (r = r ? ki_index_add(x->ir, r, list) : list);
    }
    if (ok && !r) v[0] = 0, r = ki_lane_consts(x, KN_IDX, v, own);
    ki_free(v);
    return ok ? r : NULL;
}

/* What f steps by along each axis. False: it is more than that. */
static bool steps_of(const ki_ex *x, const ki_affine *f, int64_t *coef, int64_t *dim) {
    for (unsigned k = 0; k < x->nlane; k++) coef[k] = 0, dim[k] = 1;
    for (uint32_t i = 0; i < f->n; i++) {
        unsigned a = axis_of(x, f->t[i].x);
        if (a == KI_NO_LANE && ki_rank(f->t[i].x)) return false;
        if (a == KI_NO_LANE) continue;
        if (coef[a]) return false;
        coef[a] = f->t[i].c, dim[a] = ki_extent(f->t[i].x);
    }
    return true;
}

kn_uop ki_lane_index(ki_ex *x, const ki_affine *f) {
    int64_t coef[KI_MAX_RANK], dim[KI_MAX_RANK];
    kn_uop rest;
    bool ok;
    const ki_affine *s = scalar_part(x, f, &rest, &ok);
    if (!ok) return NULL;
    kn_uop r = ki_affine_node(&x->affines, s);
    if (r && !ki_is_const(r) && steps_of(x, f, coef, dim)) return ki_lane_steps(x, r, coef, dim);
    kn_uop lanes = constants(x, f);
    if (r && lanes) r = ki_index_add(x->ir, r, lanes);
    if (r && rest) r = ki_index_add(x->ir, r, rest);
    return r;
}

/* a < b: with f = a - b = lanes + s it is lanes < -s. */
kn_uop ki_lane_less(ki_ex *x, const ki_affine *a, const ki_affine *b) {
    const ki_affine *f = ki_affine_add(&x->affines, a, b, -1), *s, *neg;
    int64_t lo, hi;
    kn_uop rest;
    bool ok;
    if (!f) return NULL;
    if (ki_affine_bounds(f, &lo, &hi) && (hi < 0 || lo >= 0)) return ki_const_int(x->ir, KN_BOOL, hi < 0);
    kn_uop lanes = constants(x, f);
    if (!lanes) return NULL;
    s = scalar_part(x, f, &rest, &ok);
    if (!ok || rest) return NULL;
    ki_affine zero = {0};
    neg = ki_affine_add(&x->affines, &zero, s, -1);
    return neg ? ki_op2(x->ir, KN_CMPLT, lanes, ki_affine_node(&x->affines, neg)) : NULL;
}
