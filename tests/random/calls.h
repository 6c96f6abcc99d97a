/* calls.h: random programs of public calls: whatever tensor.h has, on operands that mostly fit. A call that refuses its operands is
 * left out. Rows of unary.def and binary.def are drawn by themselves; what else the front end gets is a row here.
 *
 * What jumps (order, comparisons, rounding) is given exact operands, so that the interpreter need not exempt what comes of it. */
#ifndef CALLS_H
#define CALLS_H

#define KN_NO_LOC
#include "generate.h"
#include "tensor/context.h"

#include <koine/tensor.h>

enum { CALLED = 24, LARGE = 400 };

typedef struct caller {
    kn_ctx *k;
    gen g; /* dice, inputs and what is exact; its pool is not used */
    ki_program p;
    kn_tensor val[CALLED];
    bool used[CALLED];
    unsigned n;
} caller;

static kn_tensor hold(caller *c, kn_tensor t) {
    if (!t || kn_check(t) || kn_numel(t) > LARGE || c->n == CALLED) return kn_clear(c->k), (kn_tensor)NULL;
    c->used[c->n] = false;
    return c->val[c->n++] = t;
}
static kn_tensor fresh(caller *c, kn_dtype t, unsigned rank, const int64_t *dim) {
    kn_uop u = any_input(&c->g, t, dim, rank);
    kn_tensor v = u ? kn_from_graph(c->k, u) : NULL;
    return hold(c, v) ? v : NULL;
}
static kn_tensor fresh_any(caller *c) {
    int64_t dim[3], n = 1;
    unsigned rank = dice(&c->g, 10) ? 1 + dice(&c->g, 3) : 0;
    for (unsigned i = 0; i < rank; i++) {
        dim[i] = 1 + dice(&c->g, rank == 1 ? 17 : 6);
        if (dice(&c->g, 60) == 0) dim[i] = 0;
        n *= dim[i];
    }
    return fresh(c, any_dtype(&c->g), rank, dim);
}
/* Integers lo .. hi. */
static kn_tensor index_of(caller *c, unsigned rank, const int64_t *dim, int64_t lo, int64_t hi) {
    return kn_from_graph(c->k, input(&c->g, chance(&c->g, 60) ? KN_I32 : KN_I64, dim, rank, 'i', (double)lo, (double)hi));
}
static kn_tensor x_of(caller *c) {
    unsigned i = c->n ? dice(&c->g, c->n) : 0;
    if (!c->n || chance(&c->g, 15)) return fresh_any(c);
    return c->used[i] = true, c->val[i];
}
static kn_tensor exact(caller *c) {
    for (int i = 0; i < 4; i++) {
        kn_tensor t = x_of(c);
        if (t && !rough(&c->g, t->u)) return t;
    }
    return fresh_any(c);
}
static kn_tensor shaped(caller *c, unsigned rank, const int64_t *dim) { return fresh(c, any_dtype(&c->g), rank, dim); }
static kn_tensor real(caller *c, unsigned rank, const int64_t *dim) {
    static const kn_dtype t[] = {KN_F32, KN_F32, KN_F64, KN_F16, KN_BF16};
    return fresh(c, t[dice(&c->g, 5)], rank, dim);
}
#define SHAPED(...) sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__}
static int some_axis(caller *c, kn_tensor x) { return kn_rank(x) > 0 ? (int)dice(&c->g, (uint32_t)kn_rank(x)) - (int)dice(&c->g, 2) * kn_rank(x) : 0; }
static kn_ints some_axes(caller *c, kn_tensor x) {
    kn_ints a = {0, {0}};
    for (int i = 0; i < kn_rank(x); i++)
        if (chance(&c->g, 50)) a.v[a.n++] = i;
    return a;
}

/* ---- calls of one form ---- */

typedef kn_tensor of_one(kn_tensor), of_two(kn_tensor, kn_tensor), of_axis(kn_tensor, int), of_axis_and(kn_tensor, int, int), of_axes(kn_tensor, kn_ints, int);

static of_one *const unary[] = {
#define UNARY(name, ...) kn_##name,
#include "tensor/unary.def"
#undef UNARY
    kn_sum, kn_prod, kn_max, kn_min, kn_mean, kn_any, kn_all, kn_logsumexp, kn_count_nonzero, kn_norm, kn_nansum, kn_nanprod, kn_nanmax, kn_nanmin, kn_nanmean, kn_median, kn_nanmedian, kn_squeeze_all,
    kn_mT, kn_flipud, kn_fliplr, kn_contiguous, kn_detach, kn_zeros_like, kn_ones_like, kn_diag, kn_prefix_sum};
static of_two *const binary[] = {
#define BINARY(name, ...) kn_##name,
#include "tensor/binary.def"
#undef BINARY
    kn_matmul, kn_dot, kn_outer, kn_inner, kn_kron, kn_mse_loss, kn_l1_loss, kn_soft_margin_loss};
static of_axis *const along[] = {kn_cumsum, kn_cumprod, kn_cummax, kn_cummin, kn_cummax_indices, kn_cummin_indices, kn_logcumsumexp, kn_softmax, kn_log_softmax, kn_softmin, kn_squeeze, kn_unsqueeze, kn_glu};
static of_axis_and *const choosing[] = {kn_argmax, kn_argmin, kn_sort, kn_argsort};
static of_axes *const over[] = {kn_sum_over, kn_prod_over, kn_max_over, kn_min_over, kn_mean_over, kn_any_over, kn_all_over, kn_logsumexp_over, kn_count_nonzero_over, kn_norm_over, kn_nansum_over, kn_nanprod_over, kn_nanmax_over,
                            kn_nanmin_over, kn_nanmean_over, kn_median_over, kn_nanmedian_over};
#define PICK(table) table[dice(&c->g, sizeof(table) / sizeof *table)]

static kn_tensor call_unary(caller *c) { return PICK(unary)(chance(&c->g, 90) ? exact(c) : x_of(c)); }
static kn_tensor call_binary(caller *c) {
    kn_tensor a = chance(&c->g, 90) ? exact(c) : x_of(c), b = exact(c);
    if (a && b && chance(&c->g, 50) && !kn_check(a)) {
        kn_ints s = kn_shape(a);
        b = fresh(c, chance(&c->g, 70) ? kn_dtype_of(a) : any_dtype(&c->g), (unsigned)s.n, s.v);
    }
    return PICK(binary)(a, b);
}
static kn_tensor call_along(caller *c) {
    kn_tensor x = exact(c);
    return PICK(along)(x, some_axis(c, x));
}
static kn_tensor call_choosing(caller *c) {
    kn_tensor x = exact(c);
    return PICK(choosing)(x, some_axis(c, x), (int)dice(&c->g, 2));
}
static kn_tensor call_over(caller *c) {
    kn_tensor x = exact(c);
    return PICK(over)(x, some_axes(c, x), (int)dice(&c->g, 2));
}

/* ---- calls of their own form ---- */

static kn_tensor call_order(caller *c) {
    kn_tensor x = exact(c), other = NULL, y = NULL;
    int a = some_axis(c, x);
    int64_t n = 1 + dice(&c->g, 4);
    switch (dice(&c->g, 9)) {
    case 0: y = kn_topk(x, n, a, (int)dice(&c->g, 2), &other); break;
    case 1: y = kn_kthvalue(x, n, a, 0, &other); break;
    case 2: y = kn_mode(x, a, 1, &other); break;
    case 3: y = kn_quantile(x, dice(&c->g, 5) / 4.0, (kn_quantile_method)dice(&c->g, 5)); break;
    case 4: y = kn_unique(x, 1 + dice(&c->g, 20), NULL, &other, NULL, NULL); break;
    case 5: y = kn_nonzero(x, 1 + dice(&c->g, 12), &other); break;
    case 6: y = kn_masked_select(x, kn_gts(exact(c), 0), 1 + dice(&c->g, 12), &other); break;
    case 7: y = kn_searchsorted(kn_sort(shaped(c, SHAPED(9)), 0, 0), x, (int)dice(&c->g, 2)); break;
    default: y = kn_histogram(x, 1 + dice(&c->g, 6), -2, 3, NULL, &other);
    }
    if (other && chance(&c->g, 50)) hold(c, other);
    return y;
}
static kn_tensor call_index(caller *c) {
    static const char *const how[] = {"sum", "prod", "mean", "amax", "amin"};
    int64_t n = 2 + dice(&c->g, 6), w = 1 + dice(&c->g, 4), m = 1 + dice(&c->g, 7);
    kn_tensor x = shaped(c, SHAPED(n, w)), i = index_of(c, SHAPED(m), -1, n), v = x ? fresh(c, kn_dtype_of(x), SHAPED(m, w)) : NULL, at = index_of(c, SHAPED(m, w), -1, n - 1),
              j = index_of(c, SHAPED(m), 0, w - 1);
    switch (dice(&c->g, 9)) {
    case 0: return kn_gather(x, i);
    case 1: return kn_take(x, i, 0);
    case 2: return kn_take_along_axis(x, at, 0);
    case 3: return kn_scatter_add(x, i, v);
    case 4: return kn_put_along_axis(x, 0, at, v);
    case 5: return kn_scatter_reduce(x, 0, at, v, how[dice(&c->g, 5)], (int)dice(&c->g, 2));
    case 6: return kn_index(x, (kn_tensor[]){i, j}, 2);
    case 7: return kn_index_put(x, (kn_tensor[]){i, j}, 2, v ? kn_select(v, 1, 0) : NULL, (int)dice(&c->g, 2));
    default: return kn_bincount(i, n, NULL);
    }
}
static kn_tensor call_view(caller *c) {
    static const char *const modes[] = {"reflect", "replicate", "circular", "symmetric"};
    kn_tensor x = x_of(c);
    int a = some_axis(c, x), r = kn_rank(x);
    int64_t n = (int64_t)dice(&c->g, 3);
    kn_ints pads = {2 * r, {0}};
    for (int i = 0; i < 2 * r && r <= 4; i++) pads.v[i] = dice(&c->g, 3);
    switch (dice(&c->g, 14)) {
    case 0: return kn_pad_mode(x, pads, modes[dice(&c->g, 4)], 0);
    case 1: return kn_pad(x, pads, 1);
    case 2: return kn_roll(x, n - 1, a);
    case 3: return kn_rot90(x, (int)n + 1, -1, 0);
    case 4: return kn_diff(x, (int)n, a);
    case 5: return kn_tril(x, n - 1);
    case 6: return kn_triu(x, n - 1);
    case 7: return kn_diagonal(x, n - 1);
    case 8: return kn_unfold(x, a, 1 + n, 1 + dice(&c->g, 2));
    case 9: return kn_repeat(x, n + 1, a);
    case 10: return kn_slice(x, a, n, KN_TO_END, dice(&c->g, 2) ? 2 : -1);
    case 11: return kn_flip(x, some_axes(c, x));
    case 12: return kn_cat((kn_tensor[]){x, x, exact(c)}, 2 + dice(&c->g, 2), a);
    default: return kn_moveaxis(x, a, 0);
    }
}
static kn_tensor call_window(caller *c) {
    int64_t h = 3 + dice(&c->g, 4), w = 3 + dice(&c->g, 4), C = 2 * (1 + dice(&c->g, 2)), size = 1 + dice(&c->g, 3), step = 1 + dice(&c->g, 2);
    int64_t groups = 1 + dice(&c->g, 2);
    kn_tensor x = shaped(c, SHAPED(1, C, h, w)), f = x ? fresh(c, kn_dtype_of(x), SHAPED(2, C / groups, size, size)) : NULL, y = real(c, SHAPED(1, C, h)),
              b = y ? fresh(c, kn_dtype_of(y), SHAPED(C, 2, size)) : NULL;
    kn_ints s = KN_LIST(size), t = KN_LIST(step), none = KN_LIST(0), one = KN_LIST(1);
    switch (dice(&c->g, 9)) {
    case 0: return kn_conv2d(x, f, NULL, (int)step, (int)(size / 2), 1, (int)groups);
    case 1: return kn_conv(y, b ? kn_permute(b, KN_AXES(1, 0, 2)) : NULL, NULL, t, one, one, 1);
    case 2: return kn_conv_transpose(y, b, NULL, t, none, none, one, 1);
    case 3: return kn_max_pool(x, s, t, none, one, (int)dice(&c->g, 2));
    case 4: return kn_avg_pool(x, s, t, none, (int)dice(&c->g, 2), 0);
    case 5: return kn_adaptive_avg_pool(x, s);
    case 6: return kn_adaptive_max_pool(x, s);
    case 7: return kn_interpolate(y, KN_LIST(2 + size), (kn_interpolation)dice(&c->g, 4), 0);
    default: return kn_im2col(x, s, t, none, one);
    }
}
static kn_tensor call_product(caller *c) {
    int64_t n = 1 + dice(&c->g, 5), m = 1 + dice(&c->g, 5), d = 1 + dice(&c->g, 5);
    kn_tensor a = shaped(c, SHAPED(n, d)), b = a ? fresh(c, kn_dtype_of(a), SHAPED(d, m)) : NULL;
    switch (dice(&c->g, 8)) {
    case 0: return kn_einsum("ij,jk->ki", (kn_tensor[]){a, b}, 2);
    case 1: return kn_einsum("ij,jk,jk->i", (kn_tensor[]){a, b, b}, 3);
    case 2: return kn_tensordot(a, b, KN_AXES(1), KN_AXES(0));
    case 3: return kn_cdist(real(c, SHAPED(n, d)), real(c, SHAPED(m, d)), 2);
    case 4: return kn_vector_norm_over(a, (double[]){1, 2, INFINITY}[dice(&c->g, 3)], KN_AXES(1), 0);
    case 5: return kn_matmul(a, b);
    case 6: return kn_vecdot(a, kn_mT(b), -1);
    default: return kn_kron(a, b);
    }
}
static kn_tensor call_network(caller *c) {
    int64_t n = 1 + dice(&c->g, 4), m = 2 + dice(&c->g, 6);
    kn_tensor x = real(c, SHAPED(n, m)), y = x ? fresh(c, kn_dtype_of(x), SHAPED(n, m)) : NULL, q = real(c, SHAPED(n, 4)), labels = index_of(c, SHAPED(n), 0, m - 1);
    switch (dice(&c->g, 12)) {
    case 0: return kn_layer_norm(x, 1, NULL, NULL, 1e-2);
    case 1: return kn_rms_norm(x, 1, NULL, 1e-2);
    case 2: return kn_batch_norm_train(x, NULL, NULL, NULL, NULL, 0.1, 1e-2);
    case 3: return kn_cross_entropy(x, labels);
    case 4: return kn_huber_loss_as(x, y, 1, (kn_reduction)dice(&c->g, 4));
    case 5: return kn_bce_with_logits(x, y);
    case 6: return kn_attention(q, q, q, NULL, (int)dice(&c->g, 2), 0.1);
    case 7: return kn_cosine_similarity(x, y, 1, 1e-2);
    case 8: return kn_leaky_relu(x, 0.25);
    case 9: return kn_elu(x, 0.5);
    case 10: return kn_one_hot(labels, m, KN_F32);
    default: return kn_var_over(x, KN_AXES(1), 0, 0);
    }
}
static kn_tensor call_matrix(caller *c) {
    int64_t n = 1 + dice(&c->g, 3);
    kn_tensor x = fresh(c, chance(&c->g, 60) ? KN_F32 : KN_F64, SHAPED(n, n)), b = x ? fresh(c, kn_dtype_of(x), SHAPED(n, 2)) : NULL;
    kn_tensor far = x ? kn_add(x, kn_muls(kn_eye(c->k, n, n, kn_dtype_of(x)), 16)) : NULL; /* quarters of 4 at most: the diagonal rules */
    switch (dice(&c->g, 7)) {
    case 0: return kn_inv(far);
    case 1: return kn_det(far);
    case 2: return kn_solve(far, b);
    case 3: return kn_cholesky(kn_add(kn_muls(kn_eye(c->k, n, n, kn_dtype_of(x)), 64), kn_matmul(x, kn_mT(x))), (int)dice(&c->g, 2));
    case 4: return kn_solve_triangular(far, b, (int)dice(&c->g, 2), 0);
    case 5: return kn_matrix_power(x, 3);
    default: return kn_rfft(b, 0);
    }
}
static kn_tensor call_gradient(caller *c) {
    kn_tensor x = exact(c), y;
    if (!x || kn_dtype_of(x) < KN_F16) return NULL;
    y = PICK(unary)(x);
    if (y && !kn_check(y) && chance(&c->g, 40)) y = kn_mul(y, x);
    return kn_grad1(y, x);
}

static const struct {
    kn_tensor (*make)(caller *c);
    unsigned weight;
} calls[] = {{call_unary, 18},  {call_binary, 16}, {call_along, 8},   {call_choosing, 5}, {call_over, 8},   {call_order, 5},   {call_index, 8},
             {call_view, 10},   {call_window, 6},  {call_product, 6}, {call_network, 6},  {call_matrix, 3}, {call_gradient, 3}};

/* The program of a seed, in ir (open, empty): made in a context of its own, and read from its text. */
static bool generate_calls(ki_ir *ir, uint64_t seed, ki_program *p) {
    static const char *const kinds[] = {"q", "q", "qr", "qs"};
    kn_ctx *k = kn_open("NULL");
    caller *c = calloc(1, sizeof *c);
    ki_text text = {0};
    unsigned total = 0;
    bool ok = k && c;
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) total += calls[i].weight;
    if (ok) {
        c->k = k;
        c->p = (ki_program){.ir = &k->ir, .stage = KI_S_TENSOR};
        c->g = (gen){.ir = &k->ir, .p = &c->p, .state = ki_mix(seed ^ UINT64_C(0x63616c6c73))};
        c->g.kinds = kinds[dice(&c->g, 4)];
        for (int i = 0; i < 3; i++) c->g.palette[i] = liked_dtype(&c->g, 45, i);
        for (unsigned n = 0, want = 1 + dice(&c->g, 4), tries = 0; n < want && tries < 40; tries++) {
            uint32_t r = dice(&c->g, total);
            unsigned i = 0;
            while (r >= calls[i].weight) r -= calls[i++].weight;
            n += hold(c, calls[i].make(c)) != NULL;
        }
        kn_uop out[CALLED];
        unsigned n = 0;
        for (unsigned i = 0; i < c->n && n < 12; i++)
            if (!c->used[i] && c->val[i]->u->op != KN_PARAM && c->val[i]->u->dtype != KN_IDX) out[n++] = c->val[i]->u;
        if (!n && c->n) out[n++] = ki_op1(&k->ir, KN_CONTIGUOUS, c->val[c->n - 1]->u);
        for (unsigned i = 0; i < n && ok; i++) {
            char name[16];
            snprintf(name, sizeof name, "y%u", i);
            ok = ki_program_port(&c->p, true, name, strlen(name), out[i]);
        }
        ok = ok && n && (c->p.root = ki_opn(&k->ir, KN_SINK, out, n)) && ki_print(&c->p, &text) && ki_parse(ir, "calls", text.s, text.n, p);
    }
    ki_text_free(&text);
    if (c) ki_program_free(&c->p);
    free(c);
    kn_close(k);
    return ok;
}

#endif
