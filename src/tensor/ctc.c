/* ctc.c: the loss of connectionist temporal classification (Graves et al., 2006): all ways in which a sequence of labels, with
 * blanks between, can be spread over the steps of a longer one are added up, one step after the other.
 *
 * Labels l1 .. lS are the row (blank, l1, blank, l2, .., lS, blank) of L = 2 S + 1 places. a[i] is the logarithm of the probability of
 * all ways that stand at place i; a step stays, goes on by one, or by two where that skips a blank between different labels.
 * What is impossible is LOWEST and not -inf, so that no gradient is a difference of infinities. */
#include "tensor/build.h"

#include <math.h>

#define L(v)   ki_t_lit(k, x, v)
#define LOWEST (-1e30)

/* (N, S) to (N, 2 S + 1). */
static kn_uop with_blanks(kn_ctx *k, kn_uop labels, int64_t n, int64_t s, int blank) {
    int64_t before[3] = {0, 0, 1}, none[3] = {0}, end[2] = {0, 1}, start[2] = {0};
    kn_uop b = ki_t_lit(k, labels, blank);
    kn_uop pairs = ki_t_pad_with(k, RESHAPE(labels, n, s, 1), before, none, b);
    return ki_t_pad_with(k, RESHAPE(pairs, n, 2 * s), start, end, b);
}

/* a[i - by], LOWEST in front. */
static kn_uop moved(kn_ctx *k, kn_uop a, int64_t by, int64_t places) {
    int64_t before[2] = {0, by}, none[2] = {0};
    if (!a || by >= places) return a ? ki_t_add(k, ki_t_mul(k, a, ki_t_lit(k, a, 0)), ki_t_lit(k, a, LOWEST)) : NULL;
    return ki_t_pad_with(k, ki_t_narrow(k, a, 1, 0, places - by), before, none, ki_t_lit(k, a, LOWEST));
}

/* log(exp x + exp y + exp z) */
static kn_uop log_add(kn_ctx *k, kn_uop x, kn_uop y, kn_uop z) {
    kn_uop m = ki_t_max(k, x, ki_t_max(k, y, z));
    if (!m) return NULL;
    m = ki_op1(&k->ir, KN_DETACH, m);
    kn_uop sum = ki_t_add(k, ki_t_exp(k, ki_t_sub(k, x, m)), ki_t_exp(k, ki_t_sub(k, y, m)));
    return ki_t_add(k, m, ki_t_log(k, ki_t_add(k, sum, ki_t_exp(k, ki_t_sub(k, z, m)))));
}

/* x (T, N, C): -log p of each of N sequences. */
static kn_uop ctc(kn_ctx *k, kn_uop x, kn_uop labels, kn_uop steps, kn_uop lengths, int blank) {
    int64_t t = ki_dim_n(x, 0), n = ki_dim_n(x, 1), c = ki_dim_n(x, 2), s = ki_dim_n(labels, 1), places = 2 * s + 1;
    kn_dtype d = ki_index_dtype(KN_I32, c + places);
    kn_uop row = with_blanks(k, ki_t_cast(k, labels, d), n, s, blank), i = RESHAPE(ki_t_iota(k, places, d), 1, places);
    if (!row) return NULL;
    /* p[t][n][i]: the probability of place i's label at step t */
    kn_uop hit = ki_t_eq(k, RESHAPE(ki_t_iota(k, c, d), 1, 1, 1, c), RESHAPE(row, 1, n, places, 1));
    kn_uop p = ki_t_squeeze(k, ki_t_reduce(k, ki_t_where(k, hit, RESHAPE(x, t, n, 1, c), L(-0.0)), KN_ADD, 8), 8);
    kn_uop lowest = L(LOWEST), older = s ? ki_t_narrow(k, row, 1, 0, places - 2) : row;
    int64_t before[2] = {0, 2}, none[2] = {0};
    kn_uop other = s ? ki_t_pad_with(k, older, before, none, ki_t_const(k, d, blank)) : row;
    kn_uop skips = ki_t_binary(k, KN_AND, ki_t_ne(k, row, ki_t_const(k, d, blank)), ki_t_ne(k, row, other));
    steps = RESHAPE(ki_t_cast(k, steps, KN_I64), n, 1);
    lengths = RESHAPE(ki_t_cast(k, lengths, d), n, 1);
    kn_uop a = NULL;
    for (int64_t at = 0; at < t; at++) {
        kn_uop now = RESHAPE(ki_t_narrow(k, p, 0, at, 1), n, places);
        if (!at) {
            a = ki_t_where(k, ki_t_lt(k, i, ki_t_const(k, d, 2)), now, lowest);
            continue;
        }
        kn_uop two = ki_t_where(k, skips, moved(k, a, 2, places), lowest);
        kn_uop next = ki_t_add(k, log_add(k, a, moved(k, a, 1, places), two), now);
        a = ki_t_where(k, ki_t_gt(k, steps, ki_t_const(k, KN_I64, (double)at)), next, a);
    }
    kn_uop last = ki_t_mul(k, lengths, ki_t_const(k, d, 2)), gap = ki_t_sub(k, last, i);
    kn_uop ends = ki_t_binary(k, KN_OR, ki_t_eq(k, gap, ki_t_const(k, d, 0)), ki_t_eq(k, gap, ki_t_const(k, d, 1)));
    return ki_t_neg(k, ki_t_squeeze(k, ki_t_logsumexp(k, ki_t_where(k, ends, a, lowest), 2), 2));
}

static bool is_row(kn_ctx *k, kn_uop u, int64_t n, const char *what) {
    char s[128];
    if (ki_rank(u) == 1 && ki_dim_n(u, 0) == n && !ki_is_float((kn_dtype)u->dtype) && u->dtype != KN_BOOL) return true;
    return FAIL(KI_E_CTC_LENGTHS, what, ki_dtypes[u->dtype].name, ki_shape_text(u->type, s, sizeof s), (long long)n);
}

kn_tensor kn_ctc_loss(kn_tensor log_p, kn_tensor labels, kn_tensor steps, kn_tensor lengths, int blank,
                      int zero_infinity, kn_reduction how) {
    ENTER("ctc_loss", log_p, labels, steps, lengths);
    char a[128], b[128];
    kn_uop x = ki_t_float(k, log_p->u), l = labels->u;
    if (!x || !ki_shape_known(k, x) || !ki_shape_known(k, l)) return ki_handle(k, NULL);
    if (ki_rank(x) != 3 || ki_rank(l) != 2 || ki_dim_n(l, 0) != ki_dim_n(x, 1) || ki_dim_n(x, 0) < 1)
        return FAIL(KI_E_CTC_SHAPES, ki_shape_text(x->type, a, sizeof a), ki_shape_text(l->type, b, sizeof b)),
               ki_handle(k, NULL);
    if (ki_is_float((kn_dtype)l->dtype) || l->dtype == KN_BOOL)
        return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[l->dtype].name, "integer labels"), ki_handle(k, NULL);
    if (blank < 0 || blank >= ki_dim_n(x, 2))
        return FAIL(KI_E_CTC_BLANK, blank, (long long)ki_dim_n(x, 2)), ki_handle(k, NULL);
    if (!is_row(k, steps->u, ki_dim_n(x, 1), "the numbers of steps") ||
        !is_row(k, lengths->u, ki_dim_n(x, 1), "the numbers of labels"))
        return ki_handle(k, NULL);
    kn_uop each = ctc(k, x, l, steps->u, lengths->u, blank);
    if (!each) return ki_handle(k, NULL);
    kn_uop never = ki_t_gt(k, each, L(-LOWEST / 2));
    each = ki_t_where(k, never, L(zero_infinity ? 0 : (double)INFINITY), each);
    if (how == KN_LOSS_MEAN) each = ki_t_div(k, each, ki_t_max(k, ki_t_cast(k, lengths->u, (kn_dtype)x->dtype), L(1)));
    return ki_handle(k, ki_t_gathered(k, each, how));
}
