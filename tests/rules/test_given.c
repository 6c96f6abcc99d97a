/* test_given.c: what follows from facts about sums of positions: bounds that hold wherever all facts do, found by trying every
 * position, and as tight as any one fact alone makes them. */
#include "rules/given.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "tap.h"

#include <string.h>

enum { TERMS = 4, CASES = 100000 };

static uint64_t state = 7;
static int roll(int lo, int hi) {
    state = ki_mix(state + UINT64_C(0x9e3779b97f4a7c15));
    return lo + (int)(state % (unsigned)(hi - lo + 1));
}

static struct kn_uop_s *position[TERMS]; /* number i has id i + 1 */

static void random_form(ki_linear *l, int n, int least, int most) {
    *l = (ki_linear){0};
    for (int i = 0; i < n; i++) {
        int c = roll(least, most);
        if (!c) continue;
        l->term[l->n] = position[i];
        l->coef[l->n++] = c;
    }
}

static int64_t value(const ki_linear *l, const int *v) {
    int64_t sum = l->k;
    for (unsigned k = 0; k < l->n; k++) sum += l->coef[k] * v[l->term[k]->id - 1];
    return sum;
}

/* Least and greatest value of l where all facts hold. False: they hold nowhere. */
static bool search(const ki_facts *f, const ki_linear *l, int n, int64_t *lo, int64_t *hi) {
    int v[TERMS];
    bool any = false;
    for (int i = 0; i < n; i++) v[i] = (int)position[i]->lo.i;
    for (int i = 0; i < n;) {
        bool holds = true;
        for (unsigned j = 0; j < f->n; j++) holds &= value(&f->form[j], v) <= f->hi[j];
        int64_t at = value(l, v);
        if (holds && (!any || at < *lo)) *lo = at;
        if (holds && (!any || at > *hi)) *hi = at;
        any |= holds;
        for (i = 0; i < n && ++v[i] > position[i]->hi.i; i++) v[i] = (int)position[i]->lo.i;
    }
    return any;
}

static void bounds_hold(void) {
    unsigned tried = 0, tightened = 0, wrong = 0;
    for (unsigned k = 0; k < CASES; k++) {
        int n = roll(1, TERMS);
        ki_facts f = {0};
        ki_linear l;
        for (int i = 0; i < n; i++) {
            position[i]->lo.i = roll(-3, 2);
            position[i]->hi.i = position[i]->lo.i + roll(0, 3);
        }
        for (unsigned want = (unsigned)roll(1, 4); f.n < want;) {
            random_form(&f.form[f.n], n, -2, 2);
            f.hi[f.n] = roll(-6, 9);
            if (!f.form[f.n].n) break;
            f.n++;
        }
        random_form(&l, n, -3, 3);
        if (roll(0, 2) == 0 && f.n) { /* a multiple of a fact */
            int times = roll(1, 3);
            l = f.form[0];
            for (unsigned i = 0; i < l.n; i++) l.coef[i] *= times;
        }
        l.k = roll(-5, 5);
        int64_t lo, hi, a, b, least, most;
        if (!l.n || !search(&f, &l, n, &least, &most)) continue;
        ki_linear_bounds(&l, &lo, &hi);
        a = lo, b = hi;
        ki_facts_tighten(&f, &l, &a, &b);
        tried++;
        tightened += a > lo || b < hi;
        wrong += a > least || b < most;
    }
    CHECK(!wrong, "%u of %u bounds leave a value out", wrong, tried);
    CHECK(tightened > tried / 16, "%u of %u are tighter for the facts", tightened, tried);
}

static void upper_is(int64_t want, const char *what, unsigned n, const int64_t fact[][4]) {
    ki_facts f = {.n = n};
    ki_linear l = {.n = 3, .term = {position[0], position[1], position[2]}, .coef = {1, 1, 1}};
    for (int i = 0; i < TERMS; i++) position[i]->lo.i = 0, position[i]->hi.i = 100;
    for (unsigned j = 0; j < n; j++) {
        f.hi[j] = fact[j][3];
        for (unsigned i = 0; i < 3; i++)
            if (fact[j][i]) f.form[j].term[f.form[j].n] = position[i], f.form[j].coef[f.form[j].n++] = fact[j][i];
    }
    int64_t lo, hi;
    ki_linear_bounds(&l, &lo, &hi);
    ki_facts_tighten(&f, &l, &lo, &hi);
    CHECK(hi == want, "%s: x + y + z <= %lld", what, (long long)hi);
}

int main(void) {
    for (unsigned i = 0; i < TERMS; i++) {
        if (!(position[i] = ki_calloc(1, sizeof **position))) return 1;
        position[i]->id = i + 1;
    }
    bounds_hold();
    upper_is(12, "a later fact on all terms", 2, (const int64_t[][4]){{1, 1, 0, 10}, {1, 1, 1, 12}});
    upper_is(110, "two terms and the third's own bound", 1, (const int64_t[][4]){{1, 1, 0, 10}});
    upper_is(105, "the tighter of two", 2, (const int64_t[][4]){{1, 1, 0, 10}, {1, 1, 0, 5}});
    upper_is(17, "a fact on two and one on the third", 2, (const int64_t[][4]){{1, 1, 0, 10}, {0, 0, 1, 7}});
    for (unsigned i = 0; i < TERMS; i++) ki_free(position[i]);
    return tap_done();
}
