/* test_select.c: kernels in the form of stage expand through select, linearize, render, cc, and run. */
#include "../8_render/harness.h"
#include "rules/rules.h"
#include "stages/5_select/select.h"

#include "rules.h"

static const ki_target *target;

/* Lane iota of axis k among `rank` lane axes: RESHAPE(STACK(0..n-1), (1, .., n, .., 1)). */
static U lane(unsigned rank, unsigned k, int64_t n) {
    int64_t dim[8];
    for (unsigned j = 0; j < rank; j++) dim[j] = j == k ? n : 1;
    return ki_reshape(ir, iota((int)n, 0, 1), dim, rank);
}

static bool is_selected(U s) {
    const ki_ruleset *const spec[] = {&ki_rules_spec_select};
    bool ok = ki_verify(ir, s, spec, 1, true, NULL, "test");
    if (!ok && getenv("SHOW")) printf("# %s\n", env.message.s);
    ki_env_clear(&env);
    return ok;
}

static kernel_fn *compile(U k, const char *name) {
    U s = ki_select(ir, target, k);
    if (!s) {
        printf("# %s\n", env.message.s ? env.message.s : "?");
        ki_env_clear(&env);
        return NULL;
    }
    CHECK(is_selected(s), "%s on %s: the form of stage select", name, target->name);
    return build(target, "cc", s, name);
}

/* o[(r * n + l)] = a * 2 + b, one lane axis. */
static void test_elementwise(int n) {
    enum { M = 240 };
    U r = range(M / n), o = param(0, KN_F32, M), a = param(1, KN_F32, M), b = param(2, KN_F32, M), l = lane(1, 0, n);
    U i = add(mul(r, C(n)), l);
    U s = end1(store(o, i, add(mul(load(a, i), F(2)), load(b, i))), r);
    kernel_fn *f = compile(sink("k_ew", &s, 1), "k_ew");
    static float x[M], y[M], z[M];
    for (int k = 0; k < M; k++) x[k] = (float)k, y[k] = (float)(k % 3);
    if (f) f((void *[]){z, x, y}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < M && ok; k++) ok = z[k] == x[k] * 2 + y[k];
    CHECK(ok, "elementwise, %d lanes", n);
}

/* Accumulator over lane axes; `swap`: the vector axis is not the last. */
static void test_matmul(int ni, int nj, bool swap) {
    enum { K = 13, RI = 2, RJ = 3 };
    int N = RJ * nj, M = RI * ni;
    unsigned ai = swap ? 1 : 0, aj = swap ? 0 : 1;
    U o = param(0, KN_F32, (int64_t)M * N), a = param(1, KN_F32, (int64_t)M * K), b = param(2, KN_F32, (int64_t)K * N);
    U ri = ki_range_make(ir, ir->next_range++, KN_AX_THREAD, C(RI)), rj = range(RJ), k = range(K);
    U li = lane(2, ai, ni), lj = lane(2, aj, nj), acc = reg(KN_F32, (int64_t)ni * nj);
    U lanes = swap ? add(mul(lj, C(ni)), li) : add(mul(li, C(nj)), lj);
    U i = add(mul(ri, C(ni)), li), j = add(mul(rj, C(nj)), lj);
    U init = store(after2(acc, ri, rj), lanes, F(-0.0));
    U in = after2(acc, init, k);
    U prod = mul(load(a, add(mul(i, C(K)), k)), load(b, add(mul(k, C(N)), j)));
    U done = after1(acc, end1(store(in, lanes, add(load(in, lanes), prod)), k));
    U st = end2(store(o, add(mul(i, C(N)), j), load(done, lanes)), ri, rj);
    kernel_fn *f = compile(sink("k_mm", &st, 1), "k_mm");
    static float x[4096], y[4096], z[4096];
    for (int q = 0; q < M * K; q++) x[q] = (float)(q % 5 - 2);
    for (int q = 0; q < K * N; q++) y[q] = (float)(q % 7 - 3);
    for (int t = 0; t < RI && f; t++) f((void *[]){z, x, y}, NULL, t);
    int ok = f != NULL;
    for (int q = 0; q < M * N && ok; q++) {
        float want = 0;
        for (int p = 0; p < K; p++) want += x[q / N * K + p] * y[p * N + q % N];
        ok = z[q] == want;
    }
    CHECK(ok, "matmul %d x %d lanes%s, threads", ni, nj, swap ? ", vector axis first" : "");
}

/* Sum of rows, lanes along the reduced axis, joined after the loop. */
static void test_horizontal(int n, kn_op op) {
    enum { R = 4, K = 5 };
    U o = param(0, KN_F32, R), a = param(1, KN_F32, (int64_t)R * K * n), r = range(R), k = range(K), l = lane(1, 0, n),
      acc = reg(KN_F32, n);
    U x = load(a, add(add(mul(r, C((int64_t)K * n)), mul(k, C(n))), l));
    U init = store(after1(acc, r), l, F(op == KN_MAX ? -INFINITY : -0.0));
    U in = after2(acc, init, k);
    U done = after1(acc, end1(store(in, l, ki_op2(ir, op, load(in, l), x)), k));
    U v = ki_reduce(ir, load(done, l), op, 1);
    U st = end1(store(o, ki_reshape(ir, r, (int64_t[]){1}, 1), v), r);
    kernel_fn *f = compile(sink("k_hor", &st, 1), "k_hor");
    static float p[1024], z[R];
    for (int q = 0; q < R * K * n; q++) p[q] = (float)((q * 7) % 11 - 5);
    if (f) f((void *[]){z, p}, NULL, 0);
    int ok = f != NULL;
    for (int q = 0; q < R && ok; q++) {
        float want = op == KN_MAX ? -INFINITY : 0;
        for (int j = 0; j < K * n; j++) want = op == KN_MAX ? fmaxf(want, p[q * K * n + j]) : want + p[q * K * n + j];
        ok = z[q] == want;
    }
    CHECK(ok, "horizontal %s of %d lanes", ki_ops[op].name, n);
}

/* Masked tail, gather through i32 indices, broadcast along one axis, iota as a value, division by a power of two. */
static void test_mixed(void) {
    enum { N = 27, L = 8, A = 2 };
    U o = param(0, KN_F32, 64), a = param(1, KN_F32, N), ix = param(2, KN_I32, 64), g = param(3, KN_F32, 64),
      r = range(4);
    U la = lane(2, 0, A), lb = lane(2, 1, L), col = add(mul(r, C(L)), lb), i = add(mul(la, C(32)), col);
    U x = ki_op3(ir, KN_LOAD, at(a, col), F(-1), lt(col, C(N)));
    U y = load(g, ki_cast(ir, load(ix, i), KN_IDX));
    U q = ki_cast(ir, ki_op2(ir, KN_IDIV, i, C(4)), KN_F32), m = ki_cast(ir, ki_op2(ir, KN_MOD, i, C(3)), KN_F32);
    U st = end1(ki_op3(ir, KN_STORE, at(o, i), add(add(x, y), add(q, m)), lt(i, C(60))), r);
    kernel_fn *f = compile(sink("k_mix", &st, 1), "k_mix");
    float p[N], gg[64], z[64];
    int32_t idx[64];
    for (int k = 0; k < N; k++) p[k] = (float)k;
    for (int k = 0; k < 64; k++) gg[k] = (float)(k % 5), idx[k] = (k * 37) % 64, z[k] = -9;
    if (f) f((void *[]){z, p, idx, gg}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < 64 && ok; k++) {
        int c = k % 32;
        float want = (c < N ? p[c] : -1) + gg[idx[k]] + (float)(k / 4) + (float)(k % 3);
        ok = z[k] == (k < 60 ? want : -9);
    }
    CHECK(ok, "mask, gather, broadcast axis, iota as value, div and mod on %s", target->name);
}

/* A symbolic length over threads: thread t does min(q, n - t q) elements. */
static void test_symbolic(void) {
    enum { Q = 7, T = 4 };
    int64_t lohi[2] = {0, Q * T};
    U n = ki_param_make(ir, -1, KN_IDX, KN_GLOBAL, 0, "n", lohi, NULL),
      t = ki_range_make(ir, ir->next_range++, KN_AX_THREAD, C(T));
    U left = ki_op2(ir, KN_SUB, n, mul(t, C(Q))), some = ki_op3(ir, KN_WHERE, lt(left, C(Q)), left, C(Q));
    U r = ki_range_make(ir, ir->next_range++, KN_AX_LOOP, ki_op2(ir, KN_MAX, some, C(0))), i = add(mul(t, C(Q)), r);
    U st = end2(store(param(0, KN_F32, Q * T), i, add(load(param(1, KN_F32, Q * T), i), ki_cast(ir, n, KN_F32))), t, r);
    kernel_fn *f = compile(sink("k_sym", &st, 1), "k_sym");
    float x[Q * T], z[Q * T];
    for (int k = 0; k < Q * T; k++) x[k] = (float)k, z[k] = -1;
    int64_t var[1] = {17};
    for (int k = 0; k < T && f; k++) f((void *[]){z, x}, var, k);
    int ok = f != NULL;
    for (int k = 0; k < Q * T && ok; k++) ok = z[k] == (k < 17 ? (float)k + 17 : -1);
    CHECK(ok, "symbolic length over threads");
}

static void refuse(const char *number, U effect) {
    U k = ki_select(ir, target, sink("r", &effect, 1));
    CHECK(!k && env.message.s && strstr(env.message.s, number), "%s: %s", number,
          env.message.s ? env.message.s : "accepted");
    ki_env_clear(&env);
}

static void test_refused(void) {
    U o = param(0, KN_F32, 64), a = param(1, KN_F32, 64), r = range(4);
    U l2 = add(mul(lane(2, 0, 4), C(4)), lane(2, 1, 4)), l1 = lane(1, 0, 4);
    refuse("KN4222", ki_opn(ir, KN_GROUP, (U[]){store(o, l2, load(a, l2)), store(o, l1, load(a, l1))}, 2));
    kn_arg arg = {.bits = 0};
    arg.reduce.op = KN_ADD;
    refuse("KN4221", store(o, C(0), ki_make(ir, KN_REDUCE, KN_VOID, (U[]){load(a, r), r}, 2, arg, 0)));
    refuse("KN4221", store(o, l2, ki_flip(ir, load(a, l2), (int64_t[]){0}, 1)));
}

int main(void) {
    static const char *const names[] = {"sse2", "avx2", "avx512"};
    if (!open_store()) return 1;
    const char *host = ki_target_host()->name;
    for (int k = 0; k < 3; k++) {
        target = ki_target_named(names[k]);
        test_elementwise(8);
        test_elementwise(6);
        test_matmul(4, 16, false);
        test_mixed();
        if (strcmp(host, names[k]) == 0) break; /* wider ones do not run here */
    }
    U six = load(param(1, KN_F32, 6), iota(6, 0, 1)), bad = store(param(0, KN_F32, 6), iota(6, 0, 1), add(six, six));
    CHECK(!is_selected(sink("bad", &bad, 1)), "the spec refuses six lanes and index arithmetic");
    test_refused();
    test_symbolic();
    test_elementwise(3);
    test_elementwise(1);
    test_elementwise(60);
    test_matmul(2, 6, false);
    test_matmul(4, 16, true);
    test_horizontal(16, KN_ADD);
    test_horizontal(16, KN_MAX);
    test_horizontal(7, KN_ADD);
    test_horizontal(48, KN_ADD);
    close_store();
    return tap_done();
}
