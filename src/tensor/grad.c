/* grad.c: the reverse sweep. Graph to graph, so gradients of gradients work; iterative: nodes in descending id order
 * have all their users behind them.
 *
 * pullback() says what the gradient of a node gives each source: one case an op, the algebra of the spec's primitives.
 * A contribution of another shape than its source (a () operand, an axis of 1 that broadcast) is summed to it in one
 * place, add_to. DETACH and integer or bool values end the sweep; an assigned place is a leaf. */
#include "tensor/build.h"

#include <math.h>
#include <string.h>

typedef struct sweep {
    kn_ctx *k;
    kn_uop *g;      /* by id: gradient so far */
    uint8_t *needs; /* by id: some wanted node is below */
} sweep;

/* ---- accumulation ------------------------------------------------------------------------------------------ */

/* g, of a shape that x broadcasts to, summed down to x's. */
static kn_uop summed_to(kn_ctx *k, kn_uop g, kn_uop x) {
    if (!g || ki_same_shape(g, x)) return g;
    uint32_t axes = 0;
    if (ki_rank(g) == ki_rank(x)) {
        for (unsigned i = 0; i < ki_rank(x); i++)
            if (ki_dim_n(x, i) == 1 && ki_dim_n(g, i) != 1) axes |= UINT32_C(1) << i;
        return ki_t_cast(k, ki_t_sum(k, g, axes), (kn_dtype)x->dtype);
    }
    if (ki_rank(g) == 0) { /* a () gradient of a shaped value: the same for all */
        ki_shape s = ki_shape_like(x);
        return ki_t_full(k, &s, g);
    }
    return ki_t_squeeze(k, ki_t_cast(k, ki_t_sum(k, g, all_axes(g)), (kn_dtype)x->dtype), all_axes(g));
}

static bool add_to(sweep *s, kn_uop x, kn_uop g) {
    if (!s->needs[x->id]) return true;
    g = summed_to(s->k, g, x);
    if (g && s->g[x->id]) g = ki_t_add(s->k, s->g[x->id], g);
    s->g[x->id] = g;
    return g != NULL;
}

/* ---- one op ------------------------------------------------------------------------------------------------ */

#define L(v)      ki_t_lit(k, u, v)
#define MUL(a, b) ki_t_mul(k, a, b)
#define TO(i, e)  (!s->needs[u->src[i]->id] || add_to(s, u->src[i], e))

static bool grad_max(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop a = u->src[0], b = u->src[1], half = ki_t_where(k, ki_t_eq(k, a, b), MUL(g, L(0.5)), L(0));
    return TO(0, ki_t_where(k, ki_t_gt(k, a, b), g, half)) && TO(1, ki_t_where(k, ki_t_gt(k, b, a), g, half));
}

static bool grad_pow(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop a = u->src[0], b = u->src[1], none = ki_t_eq(k, b, L(0));
    kn_uop da = ki_t_where(k, none, L(0), MUL(b, ki_t_binary(k, KN_POW, a, ki_t_sub(k, b, L(1)))));
    kn_uop db =
        ki_t_where(k, ki_t_eq(k, u, L(0)), L(0), MUL(u, ki_t_log(k, ki_t_where(k, ki_t_eq(k, u, L(0)), L(1), a))));
    return TO(0, MUL(g, da)) && TO(1, MUL(g, db));
}

/* The product of the others: the whole over the element, by itself where it is the only zero. */
static bool grad_prod(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop x = u->src[0], zero = ki_t_eq(k, x, L(0)), rest = ki_t_where(k, zero, L(1), x);
    uint32_t axes = u->arg.reduce.axes;
    kn_uop p = ki_t_reduce(k, rest, KN_MUL, axes);
    kn_uop zeros = ki_t_reduce(k, ki_t_cast(k, zero, (kn_dtype)u->dtype), KN_ADD, axes);
    kn_uop others = ki_t_where(k, zero, ki_t_where(k, ki_t_eq(k, zeros, L(1)), p, L(0)),
                               ki_t_where(k, ki_t_eq(k, zeros, L(0)), ki_t_div(k, p, rest), L(0)));
    return add_to(s, x, MUL(g, others));
}

static bool grad_reduce(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop x = u->src[0];
    ki_shape shape = ki_shape_like(x);
    if (u->arg.reduce.op == KN_ADD) return add_to(s, x, ki_t_expand_to(k, g, &shape));
    if (u->arg.reduce.op == KN_MUL) return grad_prod(s, u, g);
    kn_uop hit = ki_t_cast(k, ki_t_eq(k, x, ki_t_expand_to(k, u, &shape)), (kn_dtype)u->dtype); /* ties share */
    kn_uop n = ki_t_reduce(k, hit, KN_ADD, u->arg.reduce.axes);
    return add_to(s, x, MUL(hit, ki_t_div(k, g, n)));
}

static bool grad_expand(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop x = u->src[0];
    uint32_t axes = 0;
    for (unsigned i = 0; i < ki_rank(u); i++)
        if (ki_dim_n(x, i) == 1 && !x->type->dim[i].sym && (ki_dim_n(u, i) != 1 || u->type->dim[i].sym))
            axes |= UINT32_C(1) << i;
    return add_to(s, x, ki_t_sum(k, g, axes));
}

static bool grad_movement(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop x = u->src[0];
    ki_shape shape = u->nsrc ? ki_shape_like(x) : (ki_shape){0};
    switch ((kn_op)u->op) {
    case KN_RESHAPE: return add_to(s, x, ki_t_reshape_to(k, g, &shape));
    case KN_EXPAND: return grad_expand(s, u, g);
    case KN_FLIP: return add_to(s, x, ki_with_src(&k->ir, u, &g));
    case KN_PERMUTE: {
        int64_t back[KI_MAX_RANK];
        for (uint32_t i = 0; i < u->arg.ints->n; i++) back[u->arg.ints->v[i]] = i;
        return add_to(s, x, ki_permute(&k->ir, g, back, u->arg.ints->n));
    }
    case KN_PAD: return add_to(s, x, ki_op3(&k->ir, KN_SHRINK, g, u->src[1], ki_shape_of(&k->ir, x)));
    case KN_SHRINK: return add_to(s, x, ki_op3(&k->ir, KN_PAD, g, u->src[1], ki_shape_of(&k->ir, x)));
    case KN_STACK:
        for (uint32_t i = 0; i < u->nsrc; i++)
            if (!TO(i, ki_t_squeeze(k, ki_t_narrow(k, g, 0, i, 1), 1))) return false;
        return true;
    default: return FAIL(KI_E_NO_GRADIENT, ki_ops[u->op].name);
    }
}

static bool grad_function(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop x = u->src[0];
    switch ((kn_op)u->op) {
    case KN_NEG: return TO(0, ki_t_neg(k, g));
    case KN_RECIP: return TO(0, ki_t_neg(k, MUL(g, MUL(u, u))));
    case KN_EXP: return TO(0, MUL(g, u));
    case KN_EXP2: return TO(0, MUL(g, MUL(u, L(0.69314718055994530942))));
    case KN_LOG: return TO(0, ki_t_div(k, g, x));
    case KN_LOG2: return TO(0, ki_t_div(k, g, MUL(x, L(0.69314718055994530942))));
    case KN_SIN: return TO(0, MUL(g, ki_t_unary(k, KN_COS, x)));
    case KN_COS: return TO(0, ki_t_neg(k, MUL(g, ki_t_unary(k, KN_SIN, x))));
    case KN_TAN: return TO(0, MUL(g, ki_t_add(k, L(1), MUL(u, u))));
    case KN_TANH: return TO(0, MUL(g, ki_t_sub(k, L(1), MUL(u, u))));
    case KN_SQRT: return TO(0, ki_t_div(k, g, ki_t_add(k, u, u)));
    case KN_ERF: return TO(0, MUL(g, MUL(L(1.12837916709551257390), ki_t_unary(k, KN_EXP, ki_t_neg(k, MUL(x, x))))));
    case KN_CAST: return TO(0, ki_t_cast(k, g, (kn_dtype)x->dtype));
    default: return FAIL(KI_E_NO_GRADIENT, ki_ops[u->op].name);
    }
}

static bool pullback(sweep *s, kn_uop u, kn_uop g) {
    kn_ctx *k = s->k;
    kn_uop a = u->nsrc > 0 ? u->src[0] : NULL, b = u->nsrc > 1 ? u->src[1] : NULL;
    switch ((kn_op)u->op) {
    case KN_ADD: return TO(0, g) && TO(1, g);
    case KN_SUB: return TO(0, g) && TO(1, ki_t_neg(k, g));
    case KN_MUL: return TO(0, MUL(g, b)) && TO(1, MUL(g, a));
    case KN_DIV: return TO(0, ki_t_div(k, g, b)) && TO(1, ki_t_neg(k, ki_t_div(k, MUL(g, u), b)));
    case KN_MULACC: return TO(0, MUL(g, b)) && TO(1, MUL(g, a)) && TO(2, g);
    case KN_MAX: return grad_max(s, u, g);
    case KN_POW: return grad_pow(s, u, g);
    case KN_WHERE: return TO(1, ki_t_where(k, a, g, L(0))) && TO(2, ki_t_where(k, a, L(0), g));
    case KN_REDUCE:
        if (u->nsrc > 1) return FAIL(KI_E_NO_GRADIENT, "reduce over ranges");
        return grad_reduce(s, u, g);
    case KN_TRUNC: return true; /* flat */
    case KN_CONTIGUOUS: return TO(0, g);
    case KN_CONTIGUOUS_BACKWARD: return TO(0, ki_op1(&k->ir, KN_CONTIGUOUS, g));
    case KN_LOAD: {
        ki_load to;
        memset(&to, 0, sizeof to);
        to.device = a->type->device;
        const void *arg = ki_intern(&k->ir, &to, sizeof to);
        if (u->nsrc > 1) return FAIL(KI_E_NO_GRADIENT, "gated load");
        return arg && TO(0, a->type->device == u->type->device
                                ? g
                                : ki_make(&k->ir, KN_LOAD, KN_VOID, &g, 1, (kn_arg){.p = arg}, 0));
    }
    default:
        if (ki_ops[u->op].cls == KI_C_MOVEMENT) return grad_movement(s, u, g);
        return grad_function(s, u, g);
    }
}

/* ---- the sweep --------------------------------------------------------------------------------------------- */

static bool ends_here(kn_uop u) { return u->op == KN_DETACH || u->op == KN_AFTER || !ki_is_float((kn_dtype)u->dtype); }

static void find_needs(sweep *s, kn_uop *order, int64_t count, const kn_uop *wrt, size_t n) {
    for (size_t i = 0; i < n; i++) s->needs[wrt[i]->id] = 1;
    for (int64_t i = 0; i < count; i++) {
        kn_uop u = order[i];
        if (ends_here(u)) continue; /* unless wanted itself */
        for (uint32_t j = 0; j < u->nsrc && !s->needs[u->id]; j++)
            s->needs[u->id] = s->needs[u->src[j]->id] && ki_is_float((kn_dtype)u->src[j]->dtype);
    }
}

static bool run(sweep *s, kn_uop *order, int64_t count, kn_uop y, kn_uop dy) {
    s->g[y->id] = dy;
    for (int64_t i = count; i-- > 0;) {
        kn_uop u = order[i];
        if (!s->g[u->id] || !s->needs[u->id] || ends_here(u)) continue;
        bool below = false;
        for (uint32_t j = 0; j < u->nsrc; j++) below |= s->needs[u->src[j]->id];
        if (below && !pullback(s, u, s->g[u->id])) return false;
    }
    return true;
}

bool ki_grad(kn_ctx *k, kn_uop y, kn_uop dy, const kn_uop *wrt, size_t n, kn_uop *out) {
    kn_uop *root = ki_malloc((n + 2) * sizeof *root), *order = NULL;
    sweep s = {.k = k};
    bool ok = root || (ki_fail(&k->env, KI_E_NOMEM), false);
    int64_t count = 0;
    if (ok) {
        root[0] = y, root[1] = dy;
        memcpy(root + 2, wrt, n * sizeof *wrt);
        ok = ki_inline_functions(k, root, n + 2) && (count = ki_toposort(&k->ir, root, 1, &order)) >= 0;
    }
    if (ok) {
        s.g = ki_calloc(k->ir.n, sizeof *s.g);
        s.needs = ki_calloc(k->ir.n, 1);
        ok = (s.g && s.needs) || (ki_fail(&k->env, KI_E_NOMEM), false);
    }
    if (ok) {
        find_needs(&s, order, count, root + 2, n);
        ok = run(&s, order, count, root[0], root[1]);
    }
    for (size_t i = 0; i < n && ok; i++) {
        kn_uop x = root[i + 2];
        ki_shape shape = ki_shape_like(x);
        out[i] = s.g[x->id] ? s.g[x->id] : ki_t_full(k, &shape, ki_t_lit(k, x, 0));
        ok = out[i] != NULL;
    }
    ki_free(root);
    ki_free(order);
    ki_free(s.g);
    ki_free(s.needs);
    return ok;
}

/* ---- public ------------------------------------------------------------------------------------------------ */

static kn_status all_bad(kn_tensor bad, kn_tensor *out, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

static bool gradient(kn_ctx *k, kn_tensor y, kn_tensor dy, const kn_tensor *wrt, size_t n, kn_uop *u) {
    char a[128], b[128];
    if (!ki_is_float((kn_dtype)y->u->dtype)) return FAIL(KI_E_GRAD_DTYPE, "the loss", ki_dtypes[y->u->dtype].name);
    for (size_t i = 0; i < n; i++) {
        u[i] = wrt[i]->u;
        if (!ki_is_float((kn_dtype)u[i]->dtype))
            return FAIL(KI_E_GRAD_DTYPE, "a tensor to differentiate by", ki_dtypes[u[i]->dtype].name);
    }
    ki_shape s = ki_shape_like(y->u);
    kn_uop g = dy ? ki_t_cast(k, dy->u, (kn_dtype)y->u->dtype) : ki_t_full(k, &s, ki_t_lit(k, y->u, 1));
    if (dy && !ki_same_shape(dy->u, y->u))
        return FAIL(KI_E_GRAD_SHAPE, ki_shape_text(dy->u->type, a, sizeof a), ki_shape_text(y->u->type, b, sizeof b));
    return g && ki_grad(k, y->u, g, u, n, u);
}

kn_status kn_grad_from(kn_tensor y, kn_tensor dy, const kn_tensor *wrt, size_t n, kn_tensor *out) {
    kn_ctx *k, *k2;
    kn_tensor bad = ki_enter(&k2, "grad", wrt, n, 0);
    if (bad) return all_bad(bad, out, n);
    bad = ki_enter(&k, "grad", (const kn_tensor[]){y, dy}, 2, 2);
    if (bad || !k) return all_bad(bad, out, n);
    if (!y) return FAIL(KI_E_TENSOR_NULL, "grad", 0u), all_bad(ki_handle(k, NULL), out, n);
    kn_uop *u = ki_malloc((n + 1) * sizeof *u);
    bool ok = u && gradient(k, y, dy, wrt, n, u);
    if (!u) ki_fail(&k->env, KI_E_NOMEM);
    kn_status status = KN_OK;
    if (!ok) status = all_bad(ki_handle(k, NULL), out, n);
    for (size_t i = 0; i < n && ok; i++) out[i] = ki_handle(k, u[i]);
    ki_free(u);
    return status;
}
kn_status kn_grad(kn_tensor loss, const kn_tensor *wrt, size_t n, kn_tensor *out) {
    return kn_grad_from(loss, NULL, wrt, n, out);
}
kn_tensor kn_grad1(kn_tensor loss, kn_tensor wrt) {
    kn_tensor g = NULL;
    kn_grad(loss, &wrt, 1, &g);
    return g;
}
