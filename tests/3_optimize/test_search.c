/* test_search.c: search on a clock of its own. Whatever it tries computes what the kernel computes (the machine of stage 4's
 * tests), it never ends worse than the heuristics, the same search twice is the same, one that was stopped goes on where it was,
 * a trial that failed is never chosen, and where the heuristics' list gives no time nothing is. */
#include "kernels.h"
#include "stages/3_optimize/search.h"
#include "stages/verify.h"

#include <math.h>

/* ---- a clock that a table could be: what a list takes is drawn from its content -------------------------------- */

typedef struct fake {
    unsigned calls, asked, again, stop; /* stop: give up after so many calls, half-way through one; 0: never */
    uint64_t salt;
    unsigned broken;    /* one in so many does not run; 0: none */
    bool twice;         /* something was asked for a second time that was known */
    bool first_breaks;  /* the heuristics' list does not run */
    bool breaks_again;  /* only when it is asked for again */
    unsigned noted;     /* times there were at the last note */
    bool noted_nothing; /* some note was of a search with no time of the heuristics' list */
    ki_digest first;    /* the heuristics' list */
} fake;

static bool is_first(const fake *f, const ki_trial *t) { return t->key.a == f->first.a && t->key.b == f->first.b; }

static double drawn(const fake *f, const ki_trial *t) {
    uint64_t h = ki_hash_bytes(f->salt, &t->key, sizeof t->key);
    if (f->first_breaks && is_first(f, t)) return (double)INFINITY;
    if (f->broken && !is_first(f, t) && h % f->broken == 0) return (double)INFINITY;
    return 1e-3 * (1 + (double)(h >> 40) / (1 << 24));
}
static bool fake_measure(void *user, ki_trial *const *t, size_t n, double best, bool again) {
    fake *f = user;
    (void)best;
    if (!f->calls) f->first = t[0]->key;
    bool stops = f->stop && f->calls >= f->stop;
    if (stops) n = again ? 0 : n / 2;
    f->calls++;
    for (size_t i = 0; i < n; i++) {
        if (!again && t[i]->time > 0) f->twice = true;
        t[i]->time = again && f->breaks_again && is_first(f, t[i]) ? (double)INFINITY : drawn(f, t[i]);
    }
    *(again ? &f->again : &f->asked) += (unsigned)n;
    return !stops;
}
static unsigned times_of(const ki_search *s) {
    unsigned n = 0;
    for (size_t i = 0; i < s->n; i++) n += s->trial[i].time > 0;
    return n;
}
static void fake_note(void *user, const ki_search *s) {
    fake *f = user;
    f->noted = times_of(s);
    f->noted_nothing |= !(s->trial[0].time > 0 && s->trial[0].time < (double)INFINITY);
}

static ki_search search_of(kn_uop sink, const char *target, unsigned threads, fake *f) {
    ki_search s = {
        .target = ki_target_native(target), .machine = {.threads = threads, .alone = 1, .stream = 1}, .width = 1};
    s.measure = f ? fake_measure : NULL;
    s.note = f ? fake_note : NULL;
    s.user = f;
    CHECK(ki_search_open(&s, &env, sink, &ir), "a search opens");
    return s;
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

/* Trials of every kernel, a sample of them run. */
static void all_agree(int w, const char *target, unsigned threads, unsigned sample) {
    kn_uop sink;
    begin(), fill();
    const char *name = build(w, &sink);
    bool ok = run(sink, want);
    fake f = {.salt = 7 + (unsigned)w};
    ki_search s = search_of(sink, target, threads, &f);
    ok = ok && ki_search_run(&s);
    unsigned ran = 0, wide = 0;
    for (size_t i = 0; i < s.n && ok; i++) {
        const ki_trial *t = &s.trial[i];
        if (i && rnd((unsigned)s.n / sample + 1)) continue;
        kn_uop o = ki_apply_opts(&ir, sink, t->opt, t->nopt);
        ok = o && t->cost > 0 && t->cost < (double)INFINITY && ki_verify_kernel(&ir, o, KI_S_OPTIMIZE);
        if (ok && agrees(o)) ran++;
        else if (ok && env.err == KI_E_LANE_AXES) wide++, ki_env_clear(&env);
        else ok = false;
        if (!ok && o) show(o);
    }
    CHECK(ok && ran > wide, "%s, %s, %u threads: %u of %zu trials run agree (%u refused)", name, target, threads, ran,
          s.n, s.refused);
    ki_search_close(&s);
    finish();
}

/* Some trial other than the heuristics' has the OptOp. */
static void proposes(int w, ki_optop op) {
    kn_uop sink;
    begin();
    const char *name = build(w, &sink);
    ki_search s = search_of(sink, "sse2", 1, &(fake){.salt = 5});
    bool ok = ki_search_run(&s), some = false;
    for (size_t i = 1; i < s.n && ok; i++)
        for (uint32_t k = 0; k < s.trial[i].nopt; k++) some |= s.trial[i].opt[k].op == op;
    CHECK(ok && some, "a search of %s tries OptOp %d", name, (int)op);
    ki_search_close(&s);
    finish();
}

static void never_worse(void) {
    bool ok = true, found = false;
    for (uint64_t salt = 1; salt <= 12 && ok; salt++) {
        kn_uop sink;
        begin();
        build((int)salt % KERNELS, &sink);
        fake f = {.salt = salt, .broken = salt % 3 ? 0 : 2};
        ki_search s = search_of(sink, "avx512", 1 + salt % 2, &f);
        ok = ki_search_run(&s) && s.done && !f.twice && s.measured == f.asked && s.fresh == f.asked && f.again > 0;
        const ki_trial *b = ki_search_best(&s);
        ok = ok && b->time < (double)INFINITY && b->time <= drawn(&f, &s.trial[0]);
        found |= s.best != 0;
        ki_search_close(&s);
        finish();
    }
    CHECK(ok && found, "what is found is never slower than the heuristics', nor measured twice");
}

/* The heuristics' list does not even run, at first or in the end: there is nothing to compare others with, and nothing is found. */
static void broken(void) {
    kn_uop sink;
    begin();
    build(1, &sink);
    fake f = {.salt = 3, .first_breaks = true};
    ki_search s = search_of(sink, "avx2", 1, &f);
    CHECK(!ki_search_run(&s) && !s.done && f.asked == 1 && !f.noted_nothing && !s.trial[0].grown,
          "where the heuristics' list does not run the search ends, and nothing is noted");
    ki_search_close(&s);
    f = (fake){.salt = 3, .breaks_again = true};
    s = search_of(sink, "avx2", 1, &f);
    CHECK(!ki_search_run(&s) && !s.done && f.again && f.noted == f.asked && !f.noted_nothing,
          "nor is anything found where it does not run again, and what was measured stays");
    ki_search_close(&s);
    f = (fake){.salt = 3, .broken = 1};
    s = search_of(sink, "avx2", 1, &f);
    CHECK(ki_search_run(&s) && s.best == 0, "where nothing else runs the heuristics' list stands");
    ki_search_close(&s);
    finish();
}

static bool same_trials(const ki_search *a, const ki_search *b) {
    bool ok = a->n == b->n && a->best == b->best;
    for (size_t i = 0; i < a->n && ok; i++) {
        const ki_trial *x = &a->trial[i], *y = &b->trial[i];
        ok = x->nopt == y->nopt && !memcmp(x->opt, y->opt, x->nopt * sizeof *x->opt) && x->time == y->time &&
             x->cost == y->cost;
    }
    return ok;
}

static void twice_the_same(void) {
    kn_uop sink;
    begin();
    build(0, &sink);
    fake f = {.salt = 5}, g = f;
    ki_search a = search_of(sink, "avx2", 2, &f), b = search_of(sink, "avx2", 2, &g);
    CHECK(ki_search_run(&a) && ki_search_run(&b) && same_trials(&a, &b), "the same times, the same search");
    ki_search_close(&a);
    ki_search_close(&b);
    finish();
}

/* Stopped after each number of calls there is, and gone on with in a search that knows what was measured. */
static void resumed(void) {
    kn_uop sink;
    begin();
    build(1, &sink);
    fake whole = {.salt = 9};
    ki_search s = search_of(sink, "avx512", 1, &whole);
    bool ok = ki_search_run(&s);
    for (unsigned stop = 1; stop < whole.calls && ok; stop++) {
        fake f = {.salt = 9, .stop = stop}, g = {.salt = 9};
        ki_search a = search_of(sink, "avx512", 1, &f), b = search_of(sink, "avx512", 1, &g);
        ok = !ki_search_run(&a) && !a.done && f.noted == f.asked && times_of(&a) == f.asked && !f.noted_nothing;
        for (size_t i = 0; i < a.n; i++)
            if (a.trial[i].time > 0) ok = ok && ki_search_know(&b, a.trial[i].key, a.trial[i].time);
        ok = ok && ki_search_run(&b) && b.done && !g.twice && f.asked + g.asked == whole.asked && same_trials(&b, &s);
        ki_search_close(&a);
        ki_search_close(&b);
    }
    ki_search_close(&s);
    CHECK(ok && whole.calls > 4, "a search stopped after any of %u calls goes on and measures nothing twice",
          whole.calls);
    finish();
}

static void by_the_model(void) {
    kn_uop sink;
    begin();
    build(1, &sink);
    ki_search s = search_of(sink, "avx512", 1, NULL);
    bool ok = ki_search_run(&s);
    CHECK(ok && ki_search_best(&s)->cost <= s.trial[0].cost && s.n > 50, "without a clock the model decides among %zu",
          s.n);
    ki_search_close(&s);
    finish();
}

/* What the heuristics choose may have more lanes, and keep more, than a search would try. */
static void opens_large(void) {
    begin();
    kn_uop large[] = {matmul_t(64, 1024, 1024), matmul(2048, 2048, 2048)};
    for (int i = 0; i < 2; i++) {
        ki_search s = search_of(large[i], "avx2", 1, NULL);
        CHECK(s.n == 1 && s.trial[0].nopt > 10 && s.trial[0].cost > 0, "it begins at a list of %u steps",
              s.n ? s.trial[0].nopt : 0);
        ki_search_close(&s);
    }
    finish();
}

int main(void) {
    opens_large();
    for (int w = 0; w < KERNELS; w++) {
        all_agree(w, "avx512", 1, 60);
        all_agree(w, w % 2 ? "sse2" : "avx2", 3, 30);
    }
    proposes(20, KI_OPT_SCAN);
    proposes(24, KI_OPT_LATE);
    proposes(33, KI_OPT_PIPELINE);
    never_worse();
    broken();
    twice_the_same();
    resumed();
    by_the_model();
    return tap_done();
}
