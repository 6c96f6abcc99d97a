/* prove_enum.c: the exhaustive rung. For each choice of domains (one a dtype class) and of ops (where a class of ops
 * stands), all values of all leaves; for values whose sides differ, all intervals and open outcomes the guard may see. */
#include "rules/prove_impl.h"

#include "ir/scalar.h"

#include <math.h>
#include <string.h>

enum { MAX_OPTIONS = 24, MOST_EDGES = 16, MOST_POINTS = 24, DRAWS = 1 << 18, WORD_DRAWS = 1 << 12 };

typedef struct search {
    ki_theorem t;
    const ki_proof *p;
    uint64_t budget; /* evaluations a choice; 8-bit floats get nine times as many, enough for three of them */
    ki_domain option[KI_MAX_REG][MAX_OPTIONS]; /* by first register of the class */
    unsigned noption[KI_MAX_REG];
    unsigned leaf[KI_MAX_REG], nleaf;
    uint64_t fired; /* under the present choice */
    bool sampled, wide, room, edges;
    int64_t edge[MOST_EDGES]; /* where a guard's truth may change, and the least numbers; edges: all values are these */
    unsigned nedge;
    double point[MOST_POINTS]; /* numbers of the right side and the guard, beside which values are drawn */
    unsigned npoint;
    bool asked[12], heard[12], again[12]; /* by kind of domain: tried, fired; of an earlier pass: tried in vain */
    ki_verdict *out;
} search;

/* ---- what the domains may be ------------------------------------------------------------------------------- */

static void add(search *s, unsigned reg, ki_domain d) {
    if (s->noption[reg] < MAX_OPTIONS) s->option[reg][s->noption[reg]++] = d;
}

static ki_domain word(unsigned width, bool is_signed, kn_dtype t) {
    return (ki_domain){.kind = KI_D_WORD, .width = (uint8_t)width, .is_signed = is_signed, .dtype = (uint8_t)t};
}
static ki_domain floats(kn_dtype t, int reach) {
    return (ki_domain){
        .kind = KI_D_FLOAT, .width = ki_dtypes[t].bits, .dtype = (uint8_t)t, .reach = reach, .sampled = reach < 256};
}

/* The rule has one value: all of 16 bits can be tried. */
static bool single_leaf(const search *s) {
    unsigned n = 0;
    for (unsigned r = 0; r < s->p->rule->npat; r++) n += s->p->live[r] && s->p->leaf[r];
    return n == 1;
}

/* The small stand-ins for what a class admits. */
static void small_options(search *s, unsigned reg, uint32_t mask) {
    bool uints = false, sints = false, reals = false;
    kn_dtype u = KN_U8, i = KN_I8;
    for (int t = KI_DTYPE_COUNT - 1; t > 0; t--) {
        if (!(mask >> t & 1)) continue;
        if (ki_is_uint((kn_dtype)t)) uints = true, u = (kn_dtype)t;
        if (ki_is_sint((kn_dtype)t)) sints = true, i = (kn_dtype)t;
        reals |= ki_is_float((kn_dtype)t);
    }
    if (mask >> KN_BOOL & 1) add(s, reg, (ki_domain){.kind = KI_D_BOOL, .width = 1, .dtype = KN_BOOL});
    if (uints) add(s, reg, word(s->wide ? 8 : 4, false, u));
    if (sints) add(s, reg, word(s->wide ? 8 : 4, true, i));
    if (mask >> KN_IDX & 1)
        add(s, reg,
            (ki_domain){.kind = KI_D_INDEX,
                        .width = 64,
                        .is_signed = 1,
                        .dtype = KN_IDX,
                        .reach = s->wide ? 30 : 6,
                        .sampled = s->wide});
    if (!reals) return;
    if (s->p->exact_reals) {
        add(s, reg, (ki_domain){.kind = KI_D_RATIO, .dtype = KN_F64, .reach = 9});
    } else if (s->p->rough_reals) {
        add(s, reg, (ki_domain){.kind = KI_D_REAL, .dtype = KN_F64, .reach = 12, .sampled = true});
    } else if (s->wide) {
        for (int t = 1; t < KI_DTYPE_COUNT; t++)
            if (mask >> t & 1 && ki_is_float((kn_dtype)t)) add(s, reg, floats((kn_dtype)t, 60));
    } else {
        add(s, reg, floats(KN_F8E5M2, 256));
        add(s, reg, floats(KN_F8E4M3, 256));
    }
}

/* The dtypes themselves, where a rule converts or asks for the dtype. */
static void real_options(search *s, unsigned reg, uint32_t mask) {
    bool alone = single_leaf(s) && !s->p->rough_reals;
    for (int t = 1; t < KI_DTYPE_COUNT; t++) {
        if (!(mask >> t & 1)) continue;
        const ki_dtype_info *d = &ki_dtypes[t];
        if (t == KN_BOOL) add(s, reg, (ki_domain){.kind = KI_D_BOOL, .width = 1, .dtype = KN_BOOL});
        else if (t == KN_IDX)
            add(s, reg,
                (ki_domain){
                    .kind = KI_D_INDEX, .width = 64, .is_signed = 1, .dtype = KN_IDX, .reach = 30, .sampled = true});
        else if (ki_is_float((kn_dtype)t))
            add(s, reg, floats((kn_dtype)t, d->bits == 8 ? 256 : d->bits == 16 && alone ? 65536 : 60));
        else {
            ki_domain w = word(d->bits, ki_is_sint((kn_dtype)t), (kn_dtype)t);
            if (d->bits > (alone ? 16 : 8)) w.sampled = true, w.reach = 60;
            add(s, reg, w);
        }
    }
}

static void scaled_options(search *s, unsigned reg, uint32_t mask) {
    for (int t = 1; t < KI_DTYPE_COUNT; t++) {
        if (!(mask >> t & 1)) continue;
        if (t == KN_BOOL) add(s, reg, (ki_domain){.kind = KI_D_BOOL, .width = 1, .dtype = KN_BOOL});
        else if (t == KN_IDX)
            add(s, reg, (ki_domain){.kind = KI_D_INDEX, .width = 64, .is_signed = 1, .dtype = KN_IDX, .reach = 20});
        else if (!ki_is_float((kn_dtype)t)) add(s, reg, ki_scaled_word((kn_dtype)t));
    }
}

static void room_options(search *s, unsigned reg, uint32_t mask) {
    for (int t = 1; t < KI_DTYPE_COUNT; t++) {
        if (!(mask >> t & 1) || ki_is_float((kn_dtype)t)) continue;
        if (t == KN_BOOL) add(s, reg, (ki_domain){.kind = KI_D_BOOL, .width = 1, .dtype = KN_BOOL});
        else if (t == KN_IDX)
            add(s, reg,
                (ki_domain){.kind = KI_D_INDEX,
                            .width = 64,
                            .is_signed = 1,
                            .dtype = KN_IDX,
                            .reach = KI_FAR_INDICES,
                            .sampled = true,
                            .room = true});
        else {
            ki_domain w = word(ki_dtypes[t].bits, ki_is_sint((kn_dtype)t), (kn_dtype)t);
            w.sampled = true, w.reach = 29;
            add(s, reg, w);
        }
    }
}

/* ---- edges ------------------------------------------------------------------------------------------------- */

static void add_edge(search *s, int64_t v) {
    for (unsigned k = 0; k < s->nedge; k++)
        if (s->edge[k] == v) return;
    if (s->nedge < MOST_EDGES) s->edge[s->nedge++] = v;
}

/* recursion: as deep as a guard. */
static void guard_edges(search *s, unsigned term) {
    const ki_term *t = &s->p->term[term];
    int64_t i = t->kind == KI_T_INT ? ki_term_int(s->p->set, t) : 0;
    bool far = (i > 2 || i < -2) && i > INT64_MIN && i < INT64_MAX;
    for (int d = -1; d <= 1 && far; d++) add_edge(s, i + d);
    for (unsigned k = 0; k < (unsigned)t->nkid + t->narg; k++) guard_edges(s, s->p->set->kid[t->kid + k]);
}

/* Numbers for words of real width: few enough that every interval of them can be tried. */
static void find_edges(search *s) {
    if (!s->p->guard || !s->p->any_bounds || !s->p->real_dtypes) return;
    guard_edges(s, s->p->guard);
    if (s->nedge) add_edge(s, 0), add_edge(s, 1), add_edge(s, -1), add_edge(s, 3);
}

/* recursion: as deep as a right side or a guard. */
static void find_points(search *s, unsigned term) {
    const ki_term *t = &s->p->term[term];
    double f = t->kind == KI_T_INT     ? (double)ki_term_int(s->p->set, t)
               : t->kind == KI_T_FLOAT ? ki_term_real(s->p->set, t)
                                       : NAN;
    bool known = isnan(f);
    for (unsigned k = 0; k < s->npoint; k++) known |= s->point[k] == f;
    if (!known && s->npoint < MOST_POINTS) s->point[s->npoint++] = f;
    for (unsigned k = 0; k < (unsigned)t->nkid + t->narg; k++) find_points(s, s->p->set->kid[t->kid + k]);
}

static bool all_words(const search *s) {
    for (unsigned k = 0; k < s->nleaf; k++)
        if (s->t.dom[s->leaf[k]].kind != KI_D_WORD || !s->t.dom[s->leaf[k]].sampled) return false;
    return s->nleaf > 0 && s->nleaf <= 2;
}

/* The k-th edge as a value of the domain. False: it holds no such number. */
static bool edge_value(const search *s, const ki_domain *d, uint32_t k, ki_pval *v) {
    int64_t e = s->edge[k];
    *v = (ki_pval){.kind = KI_PV_TYPED, .d = *d, .bits = ki_bits_wrap((kn_dtype)d->dtype, e)};
    if (d->is_signed || d->width == 64) return d->is_signed ? (int64_t)v->bits == e : e >= 0;
    return e >= 0 && v->bits == (uint64_t)e;
}

/* ---- sizes ------------------------------------------------------------------------------------------------- */

static double choices(const search *s) {
    double n = 1;
    for (unsigned k = 0; k < s->nleaf; k++) {
        double size = ki_domain_size(&s->t.dom[s->leaf[k]]);
        n *= size;
        if (s->t.bounds[s->leaf[k]] && s->p->kind[s->leaf[k]] != KI_P_CONST) n *= size > 32 ? 64 : size * size / 12 + 1;
    }
    return n;
}

static bool smaller(ki_domain *d) {
    switch ((ki_dkind)d->kind) {
    case KI_D_WORD:
        if (d->sampled) return d->reach > 5 ? d->reach = d->reach * 2 / 3, true : false;
        if (d->width > 8) return false;
        if (d->width == 8) d->width = 4;
        else if (d->width > 2) d->width--;
        else return false;
        return true;
    case KI_D_INDEX: return d->reach > (d->sampled ? 6 : 2) ? d->reach -= d->sampled ? d->reach / 3 : 1, true : false;
    case KI_D_FLOAT:
        d->sampled = true;
        return d->reach > 8 ? d->reach = d->reach >= 256 ? 60 : d->reach * 2 / 3, true : false;
    case KI_D_RATIO: return d->reach > 4 ? d->reach--, true : false;
    case KI_D_REAL: return d->reach > 4 ? d->reach--, true : false;
    case KI_D_BOOL: break;
    }
    return false;
}

/* Smaller domains until the work fits, the largest first; all registers of a class shrink together. */
static void fit(search *s) {
    double most = (double)s->budget;
    for (unsigned r = 0; r < s->p->rule->npat; r++) {
        ki_domain *d = &s->t.dom[r];
        if (s->p->parametric[s->p->cls[r]] && d->kind == KI_D_FLOAT) d->reach = 8, d->sampled = false;
        if (s->p->parametric[s->p->cls[r]] && d->kind == KI_D_WORD) d->width = 3;
    }
    for (unsigned k = 0; k < s->nleaf; k++)
        if (s->t.dom[s->leaf[k]].kind == KI_D_FLOAT && s->t.dom[s->leaf[k]].dtype == KN_F8E5M2)
            most = 9 * (double)s->budget;
    while (choices(s) > most) {
        unsigned worst = 0;
        uint32_t size = 0;
        for (unsigned k = 0; k < s->nleaf; k++) {
            uint32_t n = ki_domain_size(&s->t.dom[s->leaf[k]]);
            ki_domain d = s->t.dom[s->leaf[k]];
            if (n > size && smaller(&d)) size = n, worst = s->leaf[k];
        }
        if (!size) return;
        ki_domain d = s->t.dom[worst];
        smaller(&d);
        for (unsigned r = 0; r < s->p->rule->npat; r++)
            if (s->t.dom[r].kind == d.kind && s->t.dom[r].dtype == d.dtype) s->t.dom[r] = d;
    }
}

/* ---- one assignment of values ------------------------------------------------------------------------------ */

static void describe(search *s, const ki_pval *left, const ki_pval *right) {
    ki_text *o = &s->out->reason;
    ki_text_cut(o, 0);
    const ki_theorem *t = &s->t;
    for (unsigned k = 0; k < s->nleaf; k++) {
        unsigned r = s->leaf[k];
        const char *name = "_";
        for (unsigned n = 0; n < t->rule->nname; n++) {
            const ki_rname *x = &t->set->rname[t->rule->rname + n];
            if ((x->kind == KI_N_NODE || x->kind == KI_N_CONST) && x->reg == r) name = ki_name_text(t->set, t->rule, n);
        }
        ki_text_printf(o, "%s%s = ", k ? ", " : "", name);
        ki_pval_print(&t->value[r], o);
        if (t->bounds[r] && t->lo[r].kind != KI_PV_NONE) {
            ki_text_put(o, " in [");
            ki_pval_print(&t->lo[r], o);
            ki_text_put(o, ", ");
            ki_pval_print(&t->hi[r], o);
            ki_text_put(o, "]");
        }
    }
    for (unsigned r = 0; r < t->rule->npat; r++)
        if (s->p->chosen[r]) ki_text_printf(o, ", op %s", ki_ops[t->op[r]].name);
    ki_text_put(o, ": left ");
    ki_pval_print(left, o);
    ki_text_put(o, ", right ");
    ki_pval_print(right, o);
    const ki_domain *d = &t->dom[s->nleaf ? s->leaf[0] : 0];
    static const char *const kinds[] = {"bool", "", "index", "", "exact reals", "reals"};
    if (d->kind == KI_D_WORD) ki_text_printf(o, " (%s%u)", d->is_signed ? "i" : "u", d->width);
    else if (d->kind == KI_D_FLOAT) ki_text_printf(o, " (%s)", ki_dtypes[d->dtype].name);
    else ki_text_printf(o, " (%s)", kinds[d->kind]);
}

/* One evaluation under one set of intervals and outcomes. 1 fired and equal, 0 did not fire, -1 refuted. */
static int check(search *s, const ki_pval *left) {
    ki_theorem *t = &s->t;
    t->nchance = 0;
    if (ki_theorem_guard(t) != 1) return 0;
    t->saw_nan = t->saw_inf = false;
    t->scale = 0;
    ki_pval again = ki_theorem_left(t, 0);
    (void)again;
    t->overflowed = false;
    ki_pval right = ki_theorem_right(t);
    if (s->room && t->overflowed && right.kind == KI_PV_NONE) {
        describe(s, left, &right);
        ki_text_put(&s->out->reason, ": the right side leaves the 64 bits of index");
        return -1;
    }
    if (s->room) return right.kind != KI_PV_NONE;
    if (right.kind == KI_PV_NONE) return s->out->blind = true, 0;
    if (t->rule->fp & KI_FP_NNAN && t->saw_nan) return 0;
    if (t->rule->fp & KI_FP_NINF && t->saw_inf) return 0;
    if (ki_theorem_equal(t, left, &right)) return 1;
    describe(s, left, &right);
    return -1;
}

/* All outcomes of what is left open. */
static int outcomes(search *s, const ki_pval *left) {
    int best = 0;
    for (uint32_t c = 0;; c++) {
        s->t.chance = c;
        int r = check(s, left);
        if (r < 0) return -1;
        if (r > best) best = r;
        uint32_t n = s->t.nchance < 10 ? s->t.nchance : 10;
        if (c + 1 >= UINT32_C(1) << n) return best;
    }
}

static bool is_nan_value(const ki_pval *v) {
    return v->kind == KI_PV_TYPED && v->d.kind == KI_D_FLOAT && !ki_pval_less(v, v) &&
           ki_f64_from_bits((kn_dtype)v->d.dtype, v->bits) != ki_f64_from_bits((kn_dtype)v->d.dtype, v->bits);
}

/* Endpoints tried for an interval of a float or sampled domain: few. */
static uint32_t endpoints(const ki_domain *d, ki_pval *v, uint32_t cap) {
    static const double some[] = {-1e9, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 1e9};
    uint32_t n = 0, size = ki_domain_size(d);
    if (d->kind == KI_D_FLOAT) {
        for (; n < 10 && n < cap; n++) {
            ki_domain e = *d;
            v[n] = (ki_pval){.kind = KI_PV_TYPED, .d = e, .bits = ki_bits_from_f64((kn_dtype)d->dtype, some[n])};
        }
        return n;
    }
    uint32_t step = size > cap ? size / cap + 1 : 1;
    for (uint32_t k = 0; k < size && n < cap; k += step) v[n++] = ki_domain_value(d, k);
    return n;
}

static int intervals(search *s, unsigned k, const ki_pval *left);

/* Every interval of endpoints that contains the value of leaf k, and none at all. */
static int leaf_intervals(search *s, unsigned k, const ki_pval *left) {
    unsigned r = s->leaf[k];
    ki_pval v = s->t.value[r], end[33];
    uint32_t n = s->edges ? 0 : endpoints(&s->t.dom[r], end, 32);
    for (unsigned e = 0; s->edges && e < s->nedge; e++) n += edge_value(s, &s->t.dom[r], e, &end[n]);
    end[n++] = v;
    s->t.lo[r].kind = s->t.hi[r].kind = KI_PV_NONE;
    int best = intervals(s, k + 1, left);
    if (best < 0 || is_nan_value(&v)) return best;
    for (uint32_t a = 0; a < n; a++) {
        if (ki_pval_less(&v, &end[a]) || is_nan_value(&end[a])) continue;
        for (uint32_t b = 0; b < n; b++) {
            if (ki_pval_less(&end[b], &v) || is_nan_value(&end[b])) continue;
            s->t.lo[r] = end[a];
            s->t.hi[r] = end[b];
            int q = intervals(s, k + 1, left);
            if (q < 0) return q;
            if (q > best) best = q;
        }
    }
    return best;
}

static int intervals(search *s, unsigned k, const ki_pval *left) {
    while (k < s->nleaf && (!s->t.bounds[s->leaf[k]] || s->p->kind[s->leaf[k]] == KI_P_CONST)) k++;
    return k < s->nleaf ? leaf_intervals(s, k, left) : outcomes(s, left);
}

/* The narrowest and the widest intervals: enough to count where both sides agree whatever the bounds. */
static int extremes(search *s, const ki_pval *left) {
    int best = 0;
    for (unsigned wide = 0; wide < 2 && best == 0; wide++) {
        for (unsigned k = 0; k < s->nleaf; k++) {
            unsigned r = s->leaf[k];
            s->t.lo[r] = s->t.hi[r] = s->t.value[r];
            if (!wide) continue;
            uint32_t n = ki_domain_size(&s->t.dom[r]);
            for (uint32_t j = 0; j < n && n <= 32; j++) {
                ki_pval v = ki_domain_value(&s->t.dom[r], j);
                if (ki_pval_less(&v, &s->t.lo[r])) s->t.lo[r] = v;
                if (ki_pval_less(&s->t.hi[r], &v)) s->t.hi[r] = v;
            }
        }
        int q = outcomes(s, left);
        if (q < 0) return q;
        if (q > best) best = q;
    }
    return best;
}

static bool one_value(search *s) {
    ki_theorem *t = &s->t;
    for (unsigned k = 0; k < s->nleaf; k++) t->lo[s->leaf[k]].kind = t->hi[s->leaf[k]].kind = KI_PV_NONE;
    t->chance = t->nchance = 0;
    ki_pval left = ki_theorem_left(t, 0);
    if (left.kind == KI_PV_NONE || t->unsupported) return true;
    bool any = s->p->any_bounds, same = false;
    if (s->room) return extremes(s, &left) >= 0;
    if (any && !s->p->rhs_bounds) {
        ki_pval right = ki_theorem_right(t);
        same = right.kind != KI_PV_NONE && t->nchance == 0 && ki_theorem_equal(t, &left, &right);
    }
    int r = !any ? outcomes(s, &left) : same ? extremes(s, &left) : intervals(s, 0, &left);
    s->fired += r > 0;
    return r >= 0;
}

static bool all_edges(search *s) {
    uint32_t total = 1;
    for (unsigned k = 0; k < s->nleaf; k++) total *= s->nedge;
    for (uint32_t i = 0; i < total; i++) {
        bool there = true;
        for (unsigned k = 0, at = i; k < s->nleaf; k++, at /= s->nedge)
            there = edge_value(s, &s->t.dom[s->leaf[k]], at % s->nedge, &s->t.value[s->leaf[k]]) && there;
        if (there && !one_value(s)) return false;
        if (s->t.unsupported) return true;
    }
    return true;
}

static bool all_values(search *s) {
    uint32_t at[KI_MAX_REG] = {0}, size[KI_MAX_REG];
    for (unsigned k = 0; k < s->nleaf; k++) {
        size[k] = ki_domain_size(&s->t.dom[s->leaf[k]]);
        if (s->t.dom[s->leaf[k]].room && s->p->kind[s->leaf[k]] == KI_P_CONST) size[k] = KI_FAR_CONSTANTS;
        s->t.value[s->leaf[k]] = ki_domain_value(&s->t.dom[s->leaf[k]], 0);
    }
    for (;;) {
        if (!one_value(s)) return false;
        if (s->t.unsupported) return true;
        unsigned k = 0;
        for (; k < s->nleaf; k++) {
            if (++at[k] == size[k]) at[k] = 0;
            s->t.value[s->leaf[k]] = ki_domain_value(&s->t.dom[s->leaf[k]], at[k]);
            if (at[k]) break;
        }
        if (k == s->nleaf) return true;
    }
}

/* A float from 1/8 to 8, where functions neither overflow nor vanish, with any bits below the point. */
static ki_pval draw_float(const ki_domain *d, uint64_t random) {
    double x = ldexp(1 + (double)(random >> 12) * 0x1p-52, (int)(random % 6) - 3);
    return (ki_pval){
        .kind = KI_PV_TYPED, .d = *d, .bits = ki_bits_from_f64((kn_dtype)d->dtype, random >> 8 & 1 ? -x : x)};
}

/* One of the rule's numbers or what stands beside it; beside infinity are the largest and NaNs whose last bits alone say so. */
static ki_pval draw_beside(const search *s, const ki_domain *d, uint64_t random) {
    kn_dtype t = (kn_dtype)d->dtype;
    double f = s->point[random % s->npoint];
    bool word = d->kind == KI_D_WORD;
    uint64_t sign = !word && random >> 20 & 1 ? UINT64_C(1) << (ki_dtypes[t].bits - 1) : 0,
             bits = word ? ki_bits_wrap(t, fabs(f) < 0x1p63 ? (int64_t)f : INT64_MIN) : ki_bits_from_f64(t, f),
             step = (random >> 32) % 7 - 3;
    return (ki_pval){
        .kind = KI_PV_TYPED, .d = *d, .bits = ki_extend((bits + step) ^ sign, ki_dtypes[t].bits, d->is_signed)};
}

static ki_pval draw(const search *s, unsigned reg, uint64_t random) {
    const ki_domain *d = &s->t.dom[reg];
    bool constant = s->p->kind[reg] == KI_P_CONST, open = (d->kind == KI_D_FLOAT && !constant) || d->kind == KI_D_WORD;
    if (open && d->sampled && random >> 60 < 4) return draw_beside(s, d, random);
    return d->kind == KI_D_FLOAT && !constant ? draw_float(d, random)
                                              : ki_domain_value(d, (uint32_t)(random % ki_domain_size(d)));
}

/* Beyond the listed values: what rounds twice is seen once in thousands, and at no round number. */
static bool some_draws(search *s) {
    uint64_t most = s->budget < DRAWS ? s->budget : DRAWS, state = 0;
    bool draws = s->p->real_dtypes && !s->p->any_bounds && s->fired;
    bool floats = false, words = false;
    for (unsigned k = 0; k < s->nleaf; k++) {
        const ki_domain *d = &s->t.dom[s->leaf[k]];
        floats |= d->kind == KI_D_FLOAT && d->sampled;
        words |= d->kind == KI_D_WORD && d->sampled;
    }
    if (!floats && most > WORD_DRAWS) most = WORD_DRAWS;
    for (uint64_t i = 0; draws && (floats || words) && i < most && !s->t.unsupported; i++) {
        for (unsigned k = 0; k < s->nleaf; k++)
            s->t.value[s->leaf[k]] = draw(s, s->leaf[k], ki_mix(state += UINT64_C(0x9e3779b97f4a7c15)));
        if (!one_value(s)) return false;
    }
    return true;
}

/* ---- choices ----------------------------------------------------------------------------------------------- */

static bool op_allows(unsigned op, const ki_domain *d) {
    const ki_op_info *f = &ki_ops[op];
    bool real = d->kind >= KI_D_FLOAT;
    if (op == KN_THREEFRY || (f->flags & KI_FLOAT && !real) || (f->flags & KI_INT && real)) return false;
    return !(f->flags & KI_NUM && d->kind == KI_D_BOOL);
}

static bool same_domain(const ki_domain *a, const ki_domain *b) {
    return a->kind == b->kind && a->dtype == b->dtype && a->width == b->width && a->reach == b->reach;
}

/* Computed nodes: the result's domain is what the op gives. */
static bool consistent(const search *s) {
    const ki_theorem *t = &s->t;
    for (unsigned r = 0; r < s->p->rule->npat; r++) {
        if (!s->p->live[r] || t->leaf[r] || s->p->kind[r] != KI_P_NODE || !t->nkid[r]) continue;
        const ki_pat *p = &t->set->pat[t->rule->pat + r];
        unsigned op = p->op == KI_OP_COUNT ? t->op[r] : p->op;
        if (op == KN_CAST || op == KN_BITCAST) continue;
        const ki_domain *d = &t->dom[t->kid[r][op == KN_WHERE]];
        if (!op_allows(op, d)) return false;
        bool compare =
            op == KN_CMPLT || op == KN_CMPNE || op == KN_CMPGT || op == KN_CMPGE || op == KN_CMPLE || op == KN_CMPEQ;
        if (compare ? t->dom[r].kind != KI_D_BOOL : !same_domain(&t->dom[r], d)) return false;
    }
    return true;
}

static bool one_choice(search *s) {
    if (!consistent(s)) return true;
    unsigned what = s->t.dom[s->nleaf ? s->leaf[0] : 0].kind * 2u + s->t.dom[s->nleaf ? s->leaf[0] : 0].is_signed;
    if (s->wide && !s->again[what]) return true;
    if (s->edges && !all_words(s)) return true;
    if (!s->edges) fit(s);
    s->t.unsupported = false;
    s->fired = 0;
    bool good = s->edges ? all_edges(s) : all_values(s) && some_draws(s);
    s->out->instances += s->fired;
    s->out->blind |= s->t.unsupported;
    s->heard[what] |= s->fired != 0;
    s->asked[what] = true;
    if (s->fired)
        for (unsigned k = 0; k < s->nleaf; k++) {
            const ki_domain *d = &s->t.dom[s->leaf[k]];
            bool second = d->kind == KI_D_FLOAT && d->dtype == KN_F8E4M3 && !s->p->real_dtypes; /* e5m2 was complete */
            s->sampled |= d->sampled && !second;
        }
    return good;
}

/* Odometers over the domain of each class and the op of each class node. */
static bool all_choices(search *s) {
    unsigned digit[KI_MAX_REG * 2] = {0}, n = s->p->rule->npat;
    for (;;) {
        for (unsigned r = 0; r < n; r++) {
            unsigned c = s->p->cls[r];
            if (s->noption[c]) s->t.dom[r] = s->option[c][digit[c]];
            s->t.op[r] = s->p->chosen[r] ? s->p->choice[r][digit[n + r]] : 0;
        }
        if (!one_choice(s)) return false;
        unsigned k = 0;
        for (; k < 2 * n; k++) {
            unsigned limit = k < n ? s->noption[k] : s->p->chosen[k - n] ? s->p->nchoice[k - n] : 0;
            if (limit < 2) continue;
            if (++digit[k] < limit) break;
            digit[k] = 0;
        }
        if (k == 2 * n) return true;
    }
}

/* Runs the rung. sampled: not all values were tried. vain: in, the kinds of domain to try (wide pass); out, those on
 * which the rule never fired. */
bool ki_prove_enumerate(const ki_proof *p, uint64_t budget, ki_pass pass, ki_verdict *out, bool *sampled, bool *vain) {
    search *s = ki_calloc(1, sizeof *s);
    if (!s) return false;
    s->p = p;
    s->budget = budget;
    s->wide = pass == KI_PASS_WIDE;
    s->room = pass == KI_PASS_ROOM;
    s->edges = pass == KI_PASS_EDGES;
    s->out = out;
    if (s->wide) memcpy(s->again, vain, sizeof s->again);
    s->t.set = p->set;
    s->t.rule = p->rule;
    s->t.term = p->term;
    s->t.guard = p->guard;
    s->t.scaled = p->scaled && !s->room;
    memcpy(s->t.leaf, p->leaf, sizeof s->t.leaf);
    memcpy(s->t.bounds, p->bounds, sizeof s->t.bounds);
    memcpy(s->t.nkid, p->nkid, sizeof s->t.nkid);
    memcpy(s->t.kid, p->kid, sizeof s->t.kid);
    for (unsigned r = 0; r < p->rule->npat; r++) {
        if (p->live[r] && p->leaf[r]) s->leaf[s->nleaf++] = r;
        unsigned c = p->cls[r];
        if (!p->live[r] || s->noption[c]) continue;
        if (s->room) room_options(s, c, p->mask[c]);
        else if (p->scaled) scaled_options(s, c, p->mask[c]);
        else if (p->real_dtypes) real_options(s, c, p->mask[c]);
        else small_options(s, c, p->mask[c]);
    }
    if (s->edges) find_edges(s);
    s->point[s->npoint++] = INFINITY;
    if (p->guard) find_points(s, p->guard);
    if (p->rule->rhs) find_points(s, p->rule->rhs);
    uint64_t instances = out->instances;
    bool good = (s->edges && !s->nedge) || all_choices(s);
    if (s->room) out->instances = instances; /* no value was compared */
    if (sampled) *sampled |= s->sampled;
    for (unsigned k = 0; vain && k < 12; k++) vain[k] = s->asked[k] && !s->heard[k];
    if (!good) out->rung = KI_REFUTED;
    ki_free(s);
    return true;
}
