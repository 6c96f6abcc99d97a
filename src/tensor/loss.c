/* loss.c: losses, in their textbook stable forms. One value for each element, row or sequence, then their mean or sum. */
#include "tensor/build.h"

#include <math.h>

#define L(v) ki_t_lit(k, x, v)

static kn_uop over_all(kn_ctx *k, kn_uop x, kn_uop (*f)(kn_ctx *, kn_uop, uint32_t)) {
    return x ? ki_t_squeeze(k, f(k, x, all_axes(x)), all_axes(x)) : NULL;
}

kn_uop ki_t_gathered(kn_ctx *k, kn_uop x, kn_reduction how) {
    if (!x || how == KN_LOSS_EACH) return x;
    if (how == KN_LOSS_MEAN) return over_all(k, x, ki_t_mean);
    kn_uop sum = over_all(k, x, ki_t_sum);
    if (how == KN_LOSS_SUM || !sum) return sum;
    if (how != KN_LOSS_BATCH) return FAIL(KI_E_REDUCTION, k->fn, (int)how);
    if (!ki_rank(x)) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0u);
    return ki_shape_known(k, x) ? ki_t_div(k, sum, L((double)ki_dim_n(x, 0))) : NULL;
}

/* ---- of scores for classes --------------------------------------------------------------------------------- */

/* Classes are axis 1 of (N, C, ..), 0 of (C,). */
static unsigned class_axis(kn_uop x) { return ki_rank(x) > 1; }

static bool labels_fit(kn_ctx *k, kn_uop x, kn_uop labels) {
    char a[128], b[128];
    unsigned rank = ki_rank(x), axis = class_axis(x);
    bool fits = rank >= 1 && ki_rank(labels) + 1 == rank;
    for (unsigned i = 0, j = 0; fits && i < rank; i++)
        if (i != axis) fits = ki_dim_n(labels, j) == ki_dim_n(x, i), j++;
    if (!fits)
        return FAIL(KI_E_SCORE_SHAPE, k->fn, ki_shape_text(x->type, a, sizeof a),
                    ki_shape_text(labels->type, b, sizeof b));
    if (ki_is_float((kn_dtype)labels->dtype) || labels->dtype == KN_BOOL)
        return FAIL(KI_E_FN_DTYPE, k->fn, ki_dtypes[labels->dtype].name, "integer labels");
    return true;
}

/* A weight for each class, (C,) or NULL, along x's axis of classes, in dtype t. */
static kn_uop class_weights(kn_ctx *k, kn_uop x, kn_tensor weight, kn_dtype t) {
    char a[128], b[128];
    if (!weight) return ki_t_const(k, t, 1);
    if (ki_rank(weight->u) != 1 || ki_dim_n(weight->u, 0) != ki_dim_n(x, class_axis(x)))
        return FAIL(KI_E_CLASS_WEIGHT, k->fn, ki_shape_text(weight->u->type, a, sizeof a),
                    ki_shape_text(x->type, b, sizeof b));
    ki_shape s = {.n = ki_rank(x)};
    for (unsigned i = 0; i < s.n; i++) s.d[i].n = i == class_axis(x) ? ki_dim_n(weight->u, 0) : 1;
    return ki_t_cast(k, ki_t_reshape_to(k, weight->u, &s), t);
}

typedef struct scoring {
    kn_tensor weight; /* of classes, or NULL */
    int64_t ignore;   /* a label that counts nothing; KN_LOSS_IGNORE_NONE */
    double smoothing; /* this much of a label is spread over all classes */
} scoring;

/* Sum along the classes, which go. */
static kn_uop over_classes(kn_ctx *k, kn_uop v, kn_uop x) {
    uint32_t bit = UINT32_C(1) << class_axis(x);
    return v ? ki_t_squeeze(k, ki_t_reduce(k, v, KN_ADD, bit), bit) : NULL;
}

/* log p of classes, (N, C, ..), as x less what is taken off all of a row, (N, 1, ..), in turn: x itself, or log_softmax's parts (reduce.c), in dtype t. */
typedef struct classes {
    kn_uop x, off[2];
    kn_dtype t;
} classes;

/* v, x or what was picked of it, less that. */
static kn_uop less(kn_ctx *k, const classes *p, kn_uop v) {
    for (unsigned i = 0; i < 2; i++)
        if (p->off[i]) v = ki_t_sub(k, v, p->off[i]);
    return ki_t_cast(k, v, p->t);
}

/* A label's class is picked by a masked sum, before anything is taken off: one value of a row alone is left to do. A label that is none has 0. A mean
 * is by the weights of what counts. */
static kn_uop of_labels(kn_ctx *k, const classes *p, kn_uop labels, const scoring *o, kn_reduction how) {
    if (!p->x || !labels_fit(k, p->x, labels)) return NULL;
    unsigned axis = class_axis(p->x);
    uint32_t bit = UINT32_C(1) << axis;
    int64_t n = ki_dim_n(p->x, axis);
    bool plain = !o->weight && o->ignore == KN_LOSS_IGNORE_NONE;
    kn_dtype t = ki_index_dtype((kn_dtype)labels->dtype, n);
    kn_uop own = ki_t_cast(k, labels, t), place = ki_t_iota_axis(k, p->x, axis, t);
    kn_uop hit = ki_t_eq(k, place, ki_t_unsqueeze(k, own, axis)), none = ki_t_lit(k, p->x, -0.0);
    kn_uop picked = ki_t_reduce(k, ki_t_where(k, hit, p->x, none), KN_ADD, bit);
    kn_uop x = picked ? ki_t_squeeze(k, less(k, p, picked), bit) : NULL, counts = NULL;
    kn_uop w = class_weights(k, p->x, o->weight, p->t), mine = ki_t_const(k, p->t, 1);
    if (!w || !x) return NULL;
    if (p->off[0]) {
        kn_uop from = ki_t_ge(k, own, ki_t_const(k, t, 0)), to = ki_t_le(k, own, ki_t_const(k, t, (double)n - 1));
        x = ki_t_where(k, ki_t_binary(k, KN_AND, from, to), x, L(-0.0));
    }
    if (o->weight) mine = over_classes(k, ki_t_where(k, hit, w, L(-0.0)), p->x), x = ki_t_mul(k, x, mine);
    if (o->smoothing != 0) {
        kn_uop all = over_classes(k, ki_t_mul(k, less(k, p, p->x), w), p->x);
        x = ki_t_add(k, ki_t_mul(k, L(1 - o->smoothing), x), ki_t_mul(k, L(o->smoothing / (double)n), all));
    }
    if (!plain) {
        kn_uop in = ki_t_ne(k, ki_t_cast(k, labels, KN_I64), ki_t_const(k, KN_I64, (double)o->ignore));
        counts = o->ignore == KN_LOSS_IGNORE_NONE ? mine : ki_t_where(k, in, mine, L(0));
        if (o->ignore != KN_LOSS_IGNORE_NONE) x = ki_t_where(k, in, x, L(0));
    }
    if (how == KN_LOSS_MEAN && !plain)
        return ki_t_neg(k, ki_t_div(k, over_all(k, x, ki_t_sum), over_all(k, counts, ki_t_sum)));
    return ki_t_neg(k, ki_t_gathered(k, x, how));
}

/* The same where p says how probable each class is. */
static kn_uop of_probabilities(kn_ctx *k, kn_uop x, kn_uop p, const scoring *o, kn_reduction how) {
    kn_uop w = x ? class_weights(k, x, o->weight, (kn_dtype)x->dtype) : NULL;
    if (!w) return NULL;
    double c = (double)ki_dim_n(x, class_axis(x));
    p = ki_t_cast(k, p, (kn_dtype)x->dtype);
    if (o->smoothing != 0) p = ki_t_add(k, ki_t_mul(k, p, L(1 - o->smoothing)), L(o->smoothing / c));
    kn_uop each = ki_t_mul(k, x, p);
    if (o->weight) each = ki_t_mul(k, each, w);
    return ki_t_neg(k, ki_t_gathered(k, over_classes(k, each, x), how));
}

static const scoring plain_scores = {.ignore = KN_LOSS_IGNORE_NONE};

/* It is x already. */
static classes given(kn_ctx *k, kn_uop x) {
    x = ki_t_float(k, x);
    return (classes){.x = x, .t = x ? (kn_dtype)x->dtype : KN_F32};
}
kn_tensor kn_nll_loss(kn_tensor log_p, kn_tensor labels) {
    ENTER("nll_loss", log_p, labels);
    const classes p = given(k, log_p->u);
    return ki_handle(k, of_labels(k, &p, labels->u, &plain_scores, KN_LOSS_MEAN));
}
kn_tensor kn_nll_loss_as(kn_tensor log_p, kn_tensor labels, kn_tensor weight, int64_t ignore, kn_reduction how) {
    ENTER_("nll_loss", 4, log_p, labels, weight);
    const classes p = given(k, log_p->u);
    const scoring o = {weight, ignore, 0};
    return ki_handle(k, of_labels(k, &p, labels->u, &o, how));
}

static kn_uop cross_entropy(kn_ctx *k, kn_uop logits, kn_uop target, const scoring *o, kn_reduction how) {
    if (!ki_rank(logits)) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0u);
    classes p = {.t = ki_fraction((kn_dtype)logits->dtype)};
    p.x = ki_t_log_total(k, logits, class_axis(logits), p.off);
    ki_shape a = ki_shape_like(logits), b = ki_shape_like(target);
    bool each = ki_is_float((kn_dtype)target->dtype) && ki_shape_same(&a, &b);
    return each ? of_probabilities(k, less(k, &p, p.x), target, o, how) : of_labels(k, &p, target, o, how);
}
kn_tensor kn_cross_entropy(kn_tensor logits, kn_tensor target) {
    ENTER("cross_entropy", logits, target);
    return ki_handle(k, cross_entropy(k, logits->u, target->u, &plain_scores, KN_LOSS_MEAN));
}
kn_tensor kn_cross_entropy_as(kn_tensor logits, kn_tensor target, kn_tensor weight, int64_t ignore, double smoothing,
                              kn_reduction how) {
    ENTER_("cross_entropy", 4, logits, target, weight);
    const scoring o = {weight, ignore, smoothing};
    if (!(smoothing >= 0 && smoothing <= 1)) return FAIL(KI_E_SMOOTHING, smoothing), ki_handle(k, NULL);
    return ki_handle(k, cross_entropy(k, logits->u, target->u, &o, how));
}

/* ---- of pairs of elements ---------------------------------------------------------------------------------- */

/* p and q as floats of one shape and dtype. */
static bool pair(kn_ctx *k, kn_tensor p, kn_tensor q, kn_uop *x, kn_uop *y) {
    ki_meet(k, p, q, x, y);
    *x = ki_t_float(k, *x), *y = ki_t_float(k, *y);
    return *x && *y && ki_broadcast(k, x, y);
}

/* A loss of x and y, the mean of it, and as one asks for it. */
#define PAIR_LOSS(name, ...)                                                                                           \
    kn_tensor kn_##name##_as(kn_tensor p, kn_tensor q, kn_reduction how) {                                             \
        ENTER(#name, p, q);                                                                                            \
        kn_uop x, y;                                                                                                   \
        return ki_handle(k, pair(k, p, q, &x, &y) ? ki_t_gathered(k, __VA_ARGS__, how) : NULL);                        \
    }                                                                                                                  \
    kn_tensor kn_##name(kn_tensor p, kn_tensor q) { return kn_##name##_as(p, q, KN_LOSS_MEAN); }

PAIR_LOSS(mse_loss, ki_t_square(k, ki_t_sub(k, x, y)))
PAIR_LOSS(l1_loss, ki_t_abs(k, ki_t_sub(k, x, y)))
PAIR_LOSS(bce_loss, ki_t_neg(k, ki_t_add(k, ki_t_mul(k, y, ki_t_max(k, ki_t_log(k, x), L(-100))),
                                         ki_t_mul(k, ki_t_sub(k, L(1), y),
                                                  ki_t_max(k, ki_t_log(k, ki_t_sub(k, L(1), x)), L(-100))))))
PAIR_LOSS(soft_margin_loss, ki_t_softplus(k, ki_t_neg(k, ki_t_mul(k, x, y))))

/* (1 - y) x + (1 + (positive - 1) y) softplus(-x): without a weight of the positive ones softplus(x) - x y. */
static kn_uop bce_logits(kn_ctx *k, kn_uop x, kn_uop y, kn_tensor weight, kn_tensor positive) {
    kn_uop each = ki_t_sub(k, ki_t_softplus(k, x), ki_t_mul(k, x, y));
    if (positive) {
        kn_uop more = ki_t_mul(k, ki_t_sub(k, ki_t_cast(k, positive->u, (kn_dtype)x->dtype), L(1)), y);
        each = ki_t_add(k, ki_t_mul(k, ki_t_sub(k, L(1), y), x),
                        ki_t_mul(k, ki_t_add(k, more, L(1)), ki_t_softplus(k, ki_t_neg(k, x))));
    }
    return weight ? ki_t_mul(k, each, ki_t_cast(k, weight->u, (kn_dtype)x->dtype)) : each;
}
kn_tensor kn_bce_with_logits_as(kn_tensor logits, kn_tensor target, kn_tensor weight, kn_tensor positive,
                                kn_reduction how) {
    ENTER_("bce_with_logits", 12, logits, target, weight, positive);
    kn_uop x, y;
    bool ok = pair(k, logits, target, &x, &y);
    return ki_handle(k, ok ? ki_t_gathered(k, bce_logits(k, x, y, weight, positive), how) : NULL);
}
kn_tensor kn_bce_with_logits(kn_tensor logits, kn_tensor target) {
    return kn_bce_with_logits_as(logits, target, NULL, NULL, KN_LOSS_MEAN);
}

/* Squares near 0, straight from `turn` on, times 1 or 1 / turn. */
static kn_tensor rounded_l1(kn_tensor p, kn_tensor q, double turn, bool unit_slope, kn_reduction how, const char *fn) {
    ENTER(fn, p, q);
    kn_uop x, y;
    if (!(turn > 0 || (unit_slope && turn == 0))) return FAIL(KI_E_TURN, fn, turn), ki_handle(k, NULL);
    if (!pair(k, p, q, &x, &y)) return ki_handle(k, NULL);
    kn_uop d = ki_t_sub(k, x, y), size = ki_t_abs(k, d);
    if (turn == 0) return ki_handle(k, ki_t_gathered(k, size, how));
    kn_uop small = ki_t_mul(k, L(unit_slope ? 0.5 / turn : 0.5), ki_t_mul(k, d, d)),
           large = ki_t_sub(k, size, L(0.5 * turn));
    if (!unit_slope) large = ki_t_mul(k, L(turn), large);
    return ki_handle(k, ki_t_gathered(k, ki_t_where(k, ki_t_lt(k, size, L(turn)), small, large), how));
}
kn_tensor kn_huber_loss(kn_tensor x, kn_tensor target, double delta) {
    return rounded_l1(x, target, delta, false, KN_LOSS_MEAN, "huber_loss");
}
kn_tensor kn_huber_loss_as(kn_tensor x, kn_tensor target, double delta, kn_reduction how) {
    return rounded_l1(x, target, delta, false, how, "huber_loss");
}
kn_tensor kn_smooth_l1_loss(kn_tensor x, kn_tensor target, double beta, kn_reduction how) {
    return rounded_l1(x, target, beta, true, how, "smooth_l1_loss");
}

kn_tensor kn_kl_div(kn_tensor log_p, kn_tensor target, int log_target, kn_reduction how) {
    ENTER("kl_div", log_p, target);
    kn_uop x, y;
    if (!pair(k, log_p, target, &x, &y)) return ki_handle(k, NULL);
    kn_uop none = ki_t_eq(k, y, L(0)), known = log_target ? y : ki_t_log(k, ki_t_where(k, none, L(1), y));
    kn_uop each = ki_t_mul(k, log_target ? ki_t_exp(k, y) : y, ki_t_sub(k, known, x));
    return ki_handle(k, ki_t_gathered(k, log_target ? each : ki_t_where(k, none, L(0), each), how));
}
kn_tensor kn_poisson_nll_loss(kn_tensor p, kn_tensor target, int log_input, double eps, kn_reduction how) {
    ENTER("poisson_nll_loss", p, target);
    kn_uop x, y;
    if (!pair(k, p, target, &x, &y)) return ki_handle(k, NULL);
    kn_uop each = log_input ? ki_t_sub(k, ki_t_exp(k, x), ki_t_mul(k, y, x))
                            : ki_t_sub(k, x, ki_t_mul(k, y, ki_t_log(k, ki_t_add(k, x, L(eps)))));
    return ki_handle(k, ki_t_gathered(k, each, how));
}
kn_tensor kn_gaussian_nll_loss(kn_tensor p, kn_tensor target, kn_tensor var, double eps, kn_reduction how) {
    ENTER("gaussian_nll_loss", p, target, var);
    kn_uop x, y;
    if (!pair(k, p, target, &x, &y)) return ki_handle(k, NULL);
    kn_uop v = ki_t_max(k, ki_t_cast(k, var->u, (kn_dtype)x->dtype), L(eps));
    kn_uop each = ki_t_mul(k, L(0.5), ki_t_add(k, ki_t_log(k, v), ki_t_div(k, ki_t_square(k, ki_t_sub(k, x, y)), v)));
    return ki_handle(k, ki_t_gathered(k, each, how));
}
kn_tensor kn_hinge_embedding_loss(kn_tensor p, kn_tensor target, double margin, kn_reduction how) {
    ENTER("hinge_embedding_loss", p, target);
    kn_uop x, y;
    if (!pair(k, p, target, &x, &y)) return ki_handle(k, NULL);
    kn_uop apart = ki_t_relu(k, ki_t_sub(k, L(margin), x));
    return ki_handle(k, ki_t_gathered(k, ki_t_where(k, ki_t_gt(k, y, L(0)), x, apart), how));
}

/* ---- of vectors -------------------------------------------------------------------------------------------- */

kn_tensor kn_margin_ranking_loss(kn_tensor p, kn_tensor q, kn_tensor target, double margin, kn_reduction how) {
    ENTER("margin_ranking_loss", p, q, target);
    kn_uop x, y;
    if (!pair(k, p, q, &x, &y)) return ki_handle(k, NULL);
    kn_uop ahead = ki_t_mul(k, ki_t_cast(k, target->u, (kn_dtype)x->dtype), ki_t_sub(k, x, y));
    return ki_handle(k, ki_t_gathered(k, ki_t_relu(k, ki_t_sub(k, L(margin), ahead)), how));
}
kn_tensor kn_cosine_embedding_loss(kn_tensor p, kn_tensor q, kn_tensor target, double margin, kn_reduction how) {
    kn_tensor t = kn_cosine_similarity(p, q, -1, 1e-8);
    ENTER("cosine_embedding_loss", t, target);
    kn_uop x, y;
    if (!pair(k, t, target, &x, &y)) return ki_handle(k, NULL);
    kn_uop apart = ki_t_relu(k, ki_t_sub(k, x, L(margin)));
    return ki_handle(k, ki_t_gathered(k, ki_t_where(k, ki_t_gt(k, y, L(0)), ki_t_sub(k, L(1), x), apart), how));
}

/* Euclidean distance along the last axis; 1e-6 on each difference keeps its gradient finite where they are equal. */
static kn_uop distance(kn_ctx *k, kn_uop x, kn_uop y) {
    if (!x || !y || !ki_broadcast(k, &x, &y)) return NULL;
    if (!ki_rank(x)) return FAIL(KI_E_RANK_WANTED, k->fn, 1, 0u);
    uint32_t last = UINT32_C(1) << (ki_rank(x) - 1);
    kn_uop d = ki_t_add(k, ki_t_sub(k, x, y), L(1e-6));
    return ki_t_squeeze(k, ki_t_vector_norm(k, d, 2, last), last);
}
kn_tensor kn_triplet_margin_loss(kn_tensor anchor, kn_tensor near, kn_tensor far, double margin, kn_reduction how) {
    ENTER("triplet_margin_loss", anchor, near, far);
    kn_uop x = ki_t_float(k, anchor->u), d = distance(k, x, ki_t_float(k, near->u));
    d = ki_t_sub(k, d, distance(k, x, ki_t_float(k, far->u)));
    return ki_handle(k, d ? ki_t_gathered(k, ki_t_relu(k, ki_t_add(k, d, L(margin))), how) : NULL);
}
