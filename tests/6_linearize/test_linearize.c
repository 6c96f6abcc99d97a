/* test_linearize.c: placement in loops, order, size, and what is refused. */
#include "../8_render/harness.h"

#include <time.h>

/* Sources before users; RANGE opens, END closes the innermost; each node inside the loops it depends on, no deeper. */
static bool well_formed(U sink) {
    U list = sink->src[0], open[64];
    uint32_t top = 0;
    bool *seen = calloc(list->id + 1, 1);
    bool ok = list->op == KN_LINEAR;
    for (uint32_t i = 0; i < list->nsrc && ok; i++) {
        U u = list->src[i];
        for (uint32_t k = 0; k < u->nsrc && ok; k++) ok = seen[u->src[k]->id];
        ok = ok && !seen[u->id];
        seen[u->id] = true;
        if (u->op == KN_RANGE) open[top++] = u;
        for (uint32_t k = u->nsrc; u->op == KN_END && k-- > 1 && ok;) ok = top && open[--top] == u->src[k];
    }
    free(seen);
    return ok && top == 0;
}

static int place(U sink, U u) {
    for (uint32_t i = 0; i < sink->src[0]->nsrc; i++)
        if (sink->src[0]->src[i] == u) return (int)i;
    return -1;
}

/* Two loops under a row: what depends on the row alone stands outside both, what they share is done once. */
static void test_placement(void) {
    enum { N = 8 };
    U a = param(1, KN_F32, N * N), o = param(0, KN_F32, N * N), p = param(2, KN_F32, N), row = range(N), c = range(N),
      d = range(N);
    U base = mul(row, C(N)), scale = load(p, row), acc = reg(KN_F32, 1);
    U init = store(after1(acc, row), C(0), F(0)), in = after2(acc, init, c);
    U upd = store(in, C(0), add(load(in, C(0)), mul(load(a, add(base, c)), scale)));
    U total = load(after1(acc, end1(upd, c)), C(0));
    U out = end2(store(o, add(base, d), mul(total, scale)), row, d);
    U k = ki_linearize(ir, sink("k", &out, 1));
    CHECK(k && well_formed(k), "two loops in a row: well formed");
    if (!k) return;
    CHECK(place(k, scale) > place(k, row) && place(k, scale) < place(k, c) && place(k, base) < place(k, c),
          "what depends on the row stands before the loops in it");
    CHECK(place(k, total) > place(k, end1(upd, c)) && place(k, total) < place(k, d),
          "the sum is read between the loops");
    CHECK(place(k, init) > place(k, row) && place(k, init) < place(k, c), "the accumulator starts anew in every row");
    CHECK(ki_linearize(ir, k) == k, "a linear kernel stays");
}

/* Independent nests in source order; loads near their uses. */
static void test_order(void) {
    enum { N = 8 };
    U s[6], o = param(0, KN_F32, 64), a = param(1, KN_F32, 64), ld[6];
    for (int k = 0; k < 6; k++) {
        U r = range(N), i = add(mul(r, C(8)), C(k));
        ld[k] = load(a, i);
        s[k] = end1(store(o, i, add(ld[k], F(k))), r);
    }
    U k = ki_linearize(ir, sink("k", s, 6));
    int ok = k && well_formed(k);
    for (int j = 0; j + 1 < 6 && ok; j++)
        ok = place(k, s[j]) < place(k, s[j + 1]) && place(k, ld[j + 1]) > place(k, s[j]);
    CHECK(ok, "six nests one after the other");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A chain and a bush of n nodes: no recursion, and time in proportion. */
static double chain(int n) {
    U v = load(param(1, KN_F32, 4), C(0)), w = load(param(1, KN_F32, 4), C(1));
    for (int k = 0; k < n; k++) {
        U t = add(v, w);
        w = v, v = t;
    }
    U s = store(param(0, KN_F32, 4), C(0), v), k = sink("k", &s, 1);
    double start = now();
    U l = ki_linearize(ir, k);
    double took = now() - start;
    CHECK(l && well_formed(l), "a chain of %d", n);
    return took;
}

static void test_size(void) {
    double small = chain(50000), large = chain(400000);
    CHECK(large < 40 * small + 0.5, "eight times the nodes, %.1f times the time", large / small);
}

/* Each refusal by its number. */
static void refuse(const char *number, const U *s, uint32_t n) {
    U k = sink("bad", s, n), l = k ? ki_linearize(ir, k) : NULL;
    CHECK(!l && env.message.s && strstr(env.message.s, number), "%s: %s", number,
          env.message.s ? env.message.s : "accepted");
    ki_env_clear(&env);
}

static void test_refused(void) {
    U o = param(0, KN_F32, 64), a = param(1, KN_F32, 64), r = range(8), q = range(8);
    U open = store(o, r, load(a, r));
    refuse("KN4201", &open, 1);
    U crossed[2] = {end1(store(o, r, F(1)), r), end1(store(o, q, load(a, add(r, q))), q)};
    refuse("KN4201", &crossed[1], 1);
    U t = range(8), z = range(8), both = load(a, add(t, z));
    U apart[2] = {end1(ki_opn(ir, KN_GROUP, (U[]){store(o, t, F(1)), end1(store(o, z, both), z)}, 2), t),
                  end1(store(o, z, F(2)), z)};
    refuse("KN4203", apart, 2);
    U nested[2] = {end1(end1(store(o, add(t, z), F(1)), z), t), NULL};
    U w = range(8);
    nested[1] = end1(store(o, w, load(a, w)), w);
    U sound = ki_linearize(ir, sink("good", nested, 2));
    CHECK(sound && well_formed(sound), "nested and beside: accepted");
    U twice[2] = {end1(store(o, w, F(1)), w), end1(store(o, w, F(2)), w)};
    refuse("KN4203", twice, 2);
    U wrong = end1(store(o, C(0), F(1)), C(3));
    refuse("KN4204", &wrong, 1);
    /* i and j are siblings, and a value that uses both lies in neither. */
    U i = range(8), j = range(8), x = range(8);
    U first = end1(store(o, add(i, x), F(1)), i), second = end1(store(a, add(j, x), load(o, add(add(i, j), x))), j);
    U mixed = end1(ki_opn(ir, KN_GROUP, (U[]){first, second}, 2), x);
    refuse("KN4201", &mixed, 1);
}

int main(void) {
    if (!open_store()) return 1;
    test_placement();
    test_order();
    test_size();
    test_refused();
    close_store();
    return tap_done();
}
