/* deal.c: the OptOp DEAL: what the inner loops read of a PARAM in steps, as a convolution with strides reads its image, is copied to a
 * LOCAL buffer as it lies, but dealt out: of each digit of an address that a loop goes along in steps of k, and a sum by single ones,
 * every k-th value lies together.
 *
 *   x[c, 2 y + ky - 1, 2 x + kx - 1]  becomes  buf[c, (ky + 1) % 2, (kx + 1) % 2, y + (ky + 1) / 2 - 1, x + (kx + 1) / 2 - 1]
 * under the condition it had: what was in steps is contiguous, and rows follow each other as those of a convolution without strides do. */
#include "stages/3_optimize/nest.h"
#include "stages/indexing.h"

#include "rules/rules.h"

#include <rules.h>

#define FAIL(...)   (ki_fail(k->ir->env, __VA_ARGS__), NULL)
#define MOST_DIGITS (2 * KI_MOST_DEALT)

static bool is_summed(const ki_nest *k, kn_uop r) { return ki_nest_closer(k, r)->op == KN_REDUCE; }

/* The digit that the loop t goes along in steps, and windows that overlap, if there is one. */
static bool is_stepped(const ki_nest *k, const ki_affine *f, ki_affine_term t, int64_t *unit) {
    *unit = 0;
    for (uint32_t i = 0; i < f->n && ki_is_serial(t.x) && !is_summed(k, t.x); i++) {
        int64_t c = f->t[i].c;
        bool overlaps = is_summed(k, f->t[i].x) && c * ki_extent(f->t[i].x) > t.c;
        if (overlaps && c < t.c && t.c % c == 0 && t.c / c <= KI_MOST_STEP && c > *unit) *unit = c;
    }
    return *unit > 0;
}

/* The least coefficient above c: where the next digit begins. */
static int64_t digit_above(const ki_affine *f, int64_t c, int64_t all) {
    for (uint32_t i = 0; i < f->n; i++)
        if (f->t[i].c > c && f->t[i].c < all) all = f->t[i].c;
    return all;
}

bool ki_find_deal(const ki_nest *k, kn_uop access, const uint64_t *outer, ki_deal *d) {
    const ki_affine *f = ki_nest_form(k, access);
    int64_t unit, below = 1;
    *d = (ki_deal){.blocks = 1};
    for (uint32_t i = 0; f && i < f->n; i++)
        if (f->t[i].x->op != KN_RANGE || f->t[i].c < 1 || !ki_extent(f->t[i].x)) return false;
    for (uint32_t i = 0; f && i < f->n; i++) {
        if (!is_stepped(k, f, f->t[i], &unit)) continue;
        if (d->n == KI_MOST_DEALT) return false;
        uint32_t at = d->n++;
        for (; at > 0 && d->unit[at - 1] > unit; at--) d->unit[at] = d->unit[at - 1], d->step[at] = d->step[at - 1];
        d->unit[at] = unit, d->step[at] = f->t[i].c / unit;
    }
    for (uint32_t i = 0; i < d->n; below = d->next[i++]) {
        d->next[i] = digit_above(f, d->unit[i] * d->step[i], ki_numel(ki_storage(access)));
        if (d->unit[i] < below || d->unit[i] % below || d->next[i] % (d->unit[i] * d->step[i])) return false;
    }
    for (uint32_t i = 0; d->n && i < f->n; i++) {
        int64_t c = f->t[i].c;
        if (c < below) continue;
        if (c % below) return false;
        if (!ki_in_set(outer, ki_scope_rank(&k->scope, f->t[i].x))) d->blocks += c / below * (ki_extent(f->t[i].x) - 1);
    }
    return d->n > 0 && d->blocks <= INT32_MAX / below;
}

/* A digit of an address: so many values, so far apart in memory, and of its constant what it adds: `less` steps taken off again, so that the
 * rest of it is not negative. step 1: it is not dealt out. */
typedef struct digit {
    int64_t size, unit, step, rest, less;
} digit;

static digit next_digit(int64_t unit, int64_t size, int64_t step, int64_t *constant) {
    int64_t c = *constant % size;
    if (c * 2 > size) c -= size;
    if (c * 2 < -size) c += size;
    *constant = (*constant - c) / size;
    int64_t less = c < 0 ? (step - 1 - c) / step : 0;
    return (digit){size, unit, step, c + less * step, less};
}

/* The digits below a block, innermost first. Their number; 0: something counts parts of them. */
static uint32_t digits_of(const ki_affine *f, const ki_deal *d, digit *g) {
    uint32_t n = 0;
    int64_t constant = f->k, below = 1;
    for (uint32_t i = 0; i < d->n; below = d->next[i++]) {
        if (d->unit[i] > below) g[n++] = next_digit(below, d->unit[i] / below, 1, &constant);
        g[n++] = next_digit(d->unit[i], d->next[i] / d->unit[i], d->step[i], &constant);
    }
    for (uint32_t i = 0; i < f->n; i++)
        for (uint32_t q = 0; q < n; q++)
            if (f->t[i].c >= g[q].unit && f->t[i].c / g[q].unit < g[q].size && f->t[i].c % g[q].unit) return 0;
    return constant ? 0 : n;
}

/* Where an access is in the dimensions: what is left of each digit, at[i], and what it was dealt out by, by[i]. The result is 0 where each
 * digit is one. */
static kn_uop places_of(ki_ir *ir, const ki_affine *f, const digit *g, uint32_t n, kn_uop *at, kn_uop *by) {
    kn_uop over = ki_index(ir, 0);
    for (uint32_t i = 0; i < n; i++) {
        kn_uop whole = ki_index(ir, -g[i].less), part = ki_index(ir, g[i].rest), step = ki_index(ir, g[i].step);
        for (uint32_t q = 0; q < f->n; q++) {
            int64_t c = f->t[q].c / g[i].unit;
            if (c == 0 || c >= g[i].size) continue;
            if (c % g[i].step) part = ki_joined(ir, f->t[q].x, c, part);
            else whole = ki_joined(ir, f->t[q].x, c / g[i].step, whole);
        }
        kn_uop all = ki_joined(ir, whole, g[i].step, part);
        over = ki_op2(ir, KN_ADD, over, ki_op2(ir, KN_IDIV, all, ki_index(ir, g[i].size)));
        at[i] = ki_op2(ir, KN_ADD, whole, ki_op2(ir, KN_IDIV, part, step));
        by[i] = ki_op2(ir, KN_MOD, part, step);
    }
    return over;
}

/* Is x 0 under a condition (NULL: none)? */
static bool is_zero(ki_ir *ir, kn_uop x, kn_uop valid) {
    static const ki_ruleset *const sets[] = {&ki_rules_gates, &ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod};
    ki_rewrite_opts o = {.sets = sets, .nsets = sizeof sets / sizeof *sets, .driver = KI_FIXPOINT};
    kn_uop u = x ? ki_element_uop(ir, (ki_element){x, valid}) : NULL;
    u = u ? ki_rewrite(ir, u, &o) : NULL;
    return u && ki_is_const_int(ki_element_of(u).x, 0);
}

kn_uop ki_opt_deal(ki_nest *k, ki_opt *o) {
    ki_ir *ir = k->ir;
    uint32_t n = 0, next = ki_nest_next_range(k), nout = 1, nloop = 1;
    kn_uop outer[64], loops[2 * MOST_DIGITS + 2], at[MOST_DIGITS], by[MOST_DIGITS], u;
    uint64_t *set = ki_find_copied(k, o, &u);
    bool plain = set && ki_is_access(u); /* not a word */
    kn_uop b = plain ? ki_storage(u) : NULL, valid = plain ? ki_element_of(u->src[1]).valid : NULL;
    const ki_affine *f = plain ? ki_nest_form(k, u) : NULL;
    digit g[MOST_DIGITS];
    ki_deal d;
    if (!set) return NULL;
    const char *why = !plain                         ? "it is read by words"
                      : b->op != KN_PARAM            ? "it is no PARAM"
                      : !ki_find_deal(k, u, set, &d) ? "no loop goes along it in steps"
                      : !(n = digits_of(f, &d, g)) || !is_zero(ir, places_of(ir, f, g, n, at, by), valid)
                          ? "it is read across the digits of its positions"
                          : NULL;
    if (why) return ki_free(set), FAIL(KI_E_OPT_STAGE, (int)o->arg, why);
    int64_t block = d.next[d.n - 1], dealt = 1, stride = 1;
    for (uint32_t q = 0; q < k->scope.nrange && nout < 64; q++)
        if (ki_in_set(set, q) && ki_scope_has(&k->scope, u, k->scope.range[q])) outer[nout++] = k->scope.range[q];
    kn_uop blocks = loops[nloop++] = ki_range_make(ir, next++, KN_AX_LOOP, ki_index(ir, d.blocks));
    kn_uop from = ki_joined(ir, blocks, block, ki_index(ir, 0)), to = from, place = ki_index(ir, 0);
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->t[i].c < block) continue;
        if (ki_in_set(set, ki_scope_rank(&k->scope, f->t[i].x))) from = ki_joined(ir, f->t[i].x, f->t[i].c, from);
        else place = ki_joined(ir, f->t[i].x, f->t[i].c, place);
    }
    ki_free(set);
    for (uint32_t i = 0; i < n; i++) dealt *= g[i].step;
    /* The copy reads memory in order: what it deals out by runs around the innermost dimension alone. */
    for (uint32_t i = n; i-- > 0;) {
        loops[nloop + (i ? n - 1 - i : 2 * n - 1)] =
            ki_range_make(ir, next++, KN_AX_LOOP, ki_index(ir, g[i].size / g[i].step));
        loops[nloop + 2 * n - 2 - i] = ki_range_make(ir, next++, KN_AX_LOOP, ki_index(ir, g[i].step));
    }
    for (uint32_t i = 0, by_dealt = 1; i < n; i++) {
        kn_uop r = loops[nloop + (i ? n - 1 - i : 2 * n - 1)], q = loops[nloop + 2 * n - 2 - i];
        int64_t apart = block / dealt * by_dealt; /* all of one kind lie together */
        to = ki_joined(ir, q, apart, ki_joined(ir, r, stride, to));
        from = ki_joined(ir, q, g[i].unit, ki_joined(ir, r, g[i].unit * g[i].step, from));
        place = ki_joined(ir, by[i], apart, ki_joined(ir, at[i], stride, place));
        stride *= g[i].size / g[i].step;
        by_dealt *= (uint32_t)g[i].step;
    }
    if (!ki_nest_own_buffer(k, &o->id)) return NULL;
    kn_uop buf = outer[0] = ki_buffer_make(ir, (uint32_t)o->id, block * d.blocks, (kn_dtype)u->dtype, KN_LOCAL, 0);
    kn_uop base = nout > 1 ? ki_opn(ir, KN_AFTER, outer, nout) : buf;
    loops[0] = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, base, to), ki_op2(ir, KN_INDEX, b, from));
    kn_uop copy = ki_op2(ir, KN_AFTER, buf, ki_opn(ir, KN_END, loops, nloop + 2 * n));
    kn_uop now = ki_op2(ir, KN_INDEX, copy, ki_element_uop(ir, (ki_element){place, valid}));
    return now ? ki_substitute(ir, k->sink, &u, &now, 1) : NULL;
}
