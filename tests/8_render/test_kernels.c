/* test_kernels.c: kernels built by hand in the form of stage select, linearized, rendered, compiled and run. */
#include "harness.h"
#include "ir/scalar.h"

#include <sys/mman.h>

static const ki_target *target;
static const char *cc;

static kernel_fn *compile(U k, const char *name) { return build(target, cc, k, name); }

static void test_add(void) {
    enum { N = 37 };
    U r = range(N), o = param(0, KN_F32, N), a = param(1, KN_F32, N), b = param(2, KN_F32, N);
    U s = end1(store(o, r, add(load(a, r), load(b, r))), r);
    kernel_fn *f = compile(sink("k_add", &s, 1), "k_add");
    float x[N], y[N], z[N];
    for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = 0.5f * (float)i;
    int ok = f != NULL;
    if (f) f((void *[]){z, x, y}, NULL, 0);
    for (int i = 0; i < N && ok; i++) ok = z[i] == x[i] + y[i];
    CHECK(ok, "add");
}

/* Sum of n values of val(r) into a REG accumulator of one element, inside the loops `outer`. */
static U reduce(kn_op op, U val, U r, U outer, double start) {
    U acc = reg(KN_F32, 1), z = C(0);
    U in = outer ? after1(acc, outer) : acc;
    U init = store(in, z, F(start));
    U inner = after2(acc, init, r);
    U upd = store(inner, z, ki_op2(ir, op, load(inner, z), val));
    return load(after1(acc, end1(upd, r)), z);
}

static void test_sum(void) {
    enum { N = 100 };
    U r = range(N), o = param(0, KN_F32, 1), a = param(1, KN_F32, N);
    U s = store(o, C(0), reduce(KN_ADD, load(a, r), r, NULL, -0.0));
    kernel_fn *f = compile(sink("k_sum", &s, 1), "k_sum");
    float x[N], z = -1;
    for (int i = 0; i < N; i++) x[i] = (float)(i % 7);
    float want = 0;
    for (int i = 0; i < N; i++) want += x[i];
    if (f) f((void *[]){&z, x}, NULL, 0);
    CHECK(f && z == want, "sum over one loop: %g", (double)z);
}

/* Three sibling loops under a row. */
static void test_softmax(void) {
    enum { R = 5, N = 33 };
    U o = param(0, KN_F32, R * N), a = param(1, KN_F32, R * N), row = range(R), r1 = range(N), r2 = range(N),
      r3 = range(N);
    U base = mul(row, C(N));
    U m = reduce(KN_MAX, load(a, add(base, r1)), r1, row, -INFINITY);
    U e2 = ki_op1(ir, KN_EXP, ki_op2(ir, KN_SUB, load(a, add(base, r2)), m));
    U sum = reduce(KN_ADD, e2, r2, row, -0.0);
    U e3 = ki_op1(ir, KN_EXP, ki_op2(ir, KN_SUB, load(a, add(base, r3)), m));
    U s = end2(store(o, add(base, r3), ki_op2(ir, KN_DIV, e3, sum)), row, r3);
    kernel_fn *f = compile(sink("k_softmax", &s, 1), "k_softmax");
    float x[R * N], z[R * N];
    for (int i = 0; i < R * N; i++) x[i] = sinf((float)i) * 3;
    if (f) f((void *[]){z, x}, NULL, 0);
    int ok = f != NULL;
    for (int i = 0; i < R && ok; i++) {
        double mx = -1e30, t = 0;
        for (int j = 0; j < N; j++) mx = fmax(mx, x[i * N + j]);
        for (int j = 0; j < N; j++) t += exp(x[i * N + j] - mx);
        for (int j = 0; j < N; j++) ok = ok && fabs(z[i * N + j] - exp(x[i * N + j] - mx) / t) < 1e-6;
    }
    CHECK(ok, "softmax: three sibling loops in one row loop");
}

static void test_gates(void) {
    enum { N = 10 };
    U r = range(N + 4), o = param(0, KN_F32, N + 4), a = param(1, KN_F32, N), i = ki_op2(ir, KN_SUB, r, C(2));
    U in = mul(lt(C(1), r), lt(i, C(N)));
    U v = ki_op3(ir, KN_LOAD, at(a, i), F(7), in);
    U st = ki_op3(ir, KN_STORE, at(o, r), v, ki_op2(ir, KN_CMPNE, r, C(5)));
    U s = end1(st, r);
    kernel_fn *f = compile(sink("k_gate", &s, 1), "k_gate");
    float x[N], z[N + 4];
    for (int k = 0; k < N; k++) x[k] = (float)k;
    for (int k = 0; k < N + 4; k++) z[k] = -1;
    if (f) f((void *[]){z, x}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < N + 4 && ok; k++) ok = z[k] == (k == 5 ? -1 : k < 2 || k >= N + 2 ? 7 : x[k - 2]);
    CHECK(ok, "gated load with an alternative, gated store");
}

/* out[8i + l] = a[8i + l] < b ? a * 2 : other, n = 16 lanes. */
static void test_vector(int n) {
    enum { M = 256 };
    U r = range(M / n), o = param(0, KN_F32, M), a = param(1, KN_F32, M), b = param(2, KN_F32, M);
    U i = add(mul(r, C(n)), iota(n, 0, 1));
    U x = load(a, i), y = load(b, i);
    U v = ki_op3(ir, KN_WHERE, lt(x, y), ki_op3(ir, KN_MULACC, x, F(2), y),
                 ki_op2(ir, KN_MAX, ki_op1(ir, KN_SQRT, x), y));
    U s = end1(store(o, i, v), r);
    kernel_fn *f = compile(sink("k_vec", &s, 1), "k_vec");
    static float p[M], q[M], z[M];
    for (int k = 0; k < M; k++) p[k] = (float)(k % 11), q[k] = (float)(k % 7);
    if (f) f((void *[]){z, p, q}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < M && ok; k++) ok = z[k] == (p[k] < q[k] ? fmaf(p[k], 2, q[k]) : fmaxf(sqrtf(p[k]), q[k]));
    CHECK(ok, "%d lanes: load, compare, select, mulacc, max, store", n);
}

/* Masked tail, gather, stride, reversed and a lane-wise op. */
static void test_lanes(void) {
    enum { N = 29, L = 8 };
    U r = range(4), o = param(0, KN_F32, 32), a = param(1, KN_F32, N), ix = param(2, KN_I32, 32),
      g = param(3, KN_F32, 64);
    U i = add(mul(r, C(L)), iota(L, 0, 1)), gate = lt(i, C(N));
    U x = ki_op3(ir, KN_LOAD, at(a, i), F(-1), gate);
    U gathered = load(g, load(ix, i)), strided = load(g, add(mul(r, C(2)), iota(L, 3, 2)));
    U e = ki_op1(ir, KN_EXP2, strided);
    U s = end1(ki_op3(ir, KN_STORE, at(o, i), add(add(x, gathered), e), lt(i, C(30))), r);
    kernel_fn *f = compile(sink("k_lanes", &s, 1), "k_lanes");
    float p[N], q[64], z[32];
    int32_t idx[32];
    for (int k = 0; k < N; k++) p[k] = (float)k;
    for (int k = 0; k < 64; k++) q[k] = (float)(k % 5);
    for (int k = 0; k < 32; k++) idx[k] = (k * 37) % 64, z[k] = -9;
    if (f) f((void *[]){z, p, idx, q}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < 32 && ok; k++) {
        float want = (k < N ? p[k] : -1) + q[idx[k]] + exp2f(q[k / L * 2 + 3 + 2 * (k % L)]);
        ok = z[k] == (k < 30 ? want : -9);
    }
    CHECK(ok, "masked tail, gather, strided lanes, lane-wise exp2");
}

/* Where the gate is false each lane has a value of its own: with one instruction (step 1), and lane by lane. */
static void test_alternatives(int step) {
    enum { L = 8, M = 32 };
    U r = range(M / L), o = param(0, KN_F32, M), a = param(1, KN_F32, 2 * M), b = param(2, KN_F32, M);
    U i = add(mul(r, C(L)), iota(L, 0, 1)), other = load(b, i);
    U x = ki_op3(ir, KN_LOAD, at(a, add(mul(r, C(L * step)), iota(L, 0, step))), other, lt(other, F(4)));
    char name[16];
    snprintf(name, sizeof name, "k_alt%d", step);
    U s = end1(store(o, i, x), r);
    kernel_fn *f = compile(sink(name, &s, 1), name);
    float p[2 * M], q[M], z[M];
    for (int k = 0; k < 2 * M; k++) p[k] = (float)-k;
    for (int k = 0; k < M; k++) q[k] = (float)(k * 5 % 9), z[k] = -99;
    if (f) f((void *[]){z, p, q}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < M && ok; k++) ok = z[k] == (q[k] < 4 ? p[k * step] : q[k]);
    CHECK(ok, "step %d: lanes with alternatives of their own", step);
}

/* Lanes backwards, loaded and stored. */
static void test_reverse(kn_dtype t) {
    enum { L = 8 };
    U st[2], x = load(param(1, t, L), iota(L, L - 1, -1));
    st[0] = store(param(0, t, L), iota(L, 0, 1), x);
    st[1] = store(param(2, t, 2 * L), iota(L, 2 * L - 1, -1), add(x, x));
    kernel_fn *f = compile(sink("k_rev", st, 2), "k_rev");
    uint64_t a[L], o[L], p[2 * L];
    for (int k = 0; k < L; k++) ki_storage_put(t, a, k, ki_bits_from_f64(t, k));
    if (f) f((void *[]){o, a, p}, NULL, 0);
    int ok = f != NULL;
    for (int k = 0; k < L && ok; k++)
        ok = ki_storage_get(t, o, k) == ki_bits_from_f64(t, L - 1 - k) &&
             ki_storage_get(t, p, L + k) == ki_bits_from_f64(t, 2 * k);
    CHECK(ok, "%s lanes backwards", ki_dtypes[t].name);
}

/* Masked loads and stores of every width; what is masked off lies on a page that must not be touched. */
static void test_mask(kn_dtype t, int n) {
    int64_t size = (int64_t)ki_itemsize(t), page = sysconf(_SC_PAGESIZE);
    U r = range(2), i = add(mul(r, C(n)), iota(n, 0, 1)), gate = lt(i, C(2 * n - 3));
    U x = ki_op3(ir, KN_LOAD, at(param(1, t, 2 * n), i), ki_const_int(ir, t, 1), gate);
    U s = end1(ki_op3(ir, KN_STORE, at(param(0, t, 2 * n), i), add(x, x), gate), r);
    kernel_fn *f = compile(sink("k_mask", &s, 1), "k_mask");
    char *two[2];
    for (int k = 0; k < 2; k++) {
        two[k] = mmap(NULL, (size_t)(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(two[k] + page, (size_t)page, PROT_NONE);
    }
    void *buf[2] = {two[0] + page - (2 * n - 3) * size, two[1] + page - (2 * n - 3) * size};
    for (int k = 0; k < 2 * n - 3; k++)
        ki_storage_put(t, buf[1], k, ki_is_float(t) ? ki_bits_from_f64(t, k) : (uint64_t)k);
    int ok = f != NULL;
    if (f) f(buf, NULL, 0);
    for (int k = 0; k < 2 * n - 3 && ok; k++)
        ok = ki_storage_get(t, buf[0], k) == (ki_is_float(t) ? ki_bits_from_f64(t, 2 * k) : (uint64_t)(2 * k));
    CHECK(ok, "masked %s, %d lanes, at the end of a page", ki_dtypes[t].name, n);
    for (int k = 0; k < 2; k++) munmap(two[k], (size_t)(2 * page));
}

/* C[4][n] += A[4][k] * B[k][n], four accumulator vectors in registers. */
static void test_matmul(int n) {
    enum { K = 19 };
    U o = param(0, KN_F32, 4 * n), a = param(1, KN_F32, 4 * K), b = param(2, KN_F32, K * n), k = range(K),
      acc = reg(KN_F32, 4 * n);
    U init[4], upd[4], out[4];
    for (int i = 0; i < 4; i++) init[i] = store(acc, iota(n, i * n, 1), F(-0.0));
    U in = after2(acc, ki_opn(ir, KN_GROUP, init, 4), k);
    U row = load(b, add(mul(k, C(n)), iota(n, 0, 1)));
    for (int i = 0; i < 4; i++) {
        U lanes = iota(n, i * n, 1);
        upd[i] = store(in, lanes, ki_op3(ir, KN_MULACC, load(a, add(k, C(i * K))), row, load(in, lanes)));
    }
    U done = after1(acc, end1(ki_opn(ir, KN_GROUP, upd, 4), k));
    for (int i = 0; i < 4; i++) out[i] = store(o, iota(n, i * n, 1), load(done, iota(n, i * n, 1)));
    kernel_fn *f = compile(sink("k_mm", out, 4), "k_mm");
    float x[4 * K], y[K * 16], z[4 * 16];
    for (int i = 0; i < 4 * K; i++) x[i] = (float)(i % 5 - 2);
    for (int i = 0; i < K * n; i++) y[i] = (float)(i % 3 - 1);
    if (f) f((void *[]){z, x, y}, NULL, 0);
    int ok = f != NULL;
    for (int i = 0; i < 4 * n && ok; i++) {
        float t = 0;
        for (int q = 0; q < K; q++) t += x[i / n * K + q] * y[q * n + i % n];
        ok = z[i] == t;
    }
    CHECK(ok, "matmul tile of 4 x %d in registers", n);
}

/* Horizontal sum by halves, lanes taken out, a vector from scalars, bools in memory. */
static void test_shuffle(void) {
    U o = param(0, KN_F32, 8), a = param(1, KN_F32, 8), p = param(2, KN_BOOL, 8), q = param(3, KN_BOOL, 8);
    U v = load(a, iota(8, 0, 1));
    U h = add(at(v, iota(4, 0, 1)), at(v, iota(4, 4, 1)));
    h = add(at(h, iota(2, 0, 1)), at(h, iota(2, 2, 1)));
    U sum = add(at(h, C(0)), at(h, C(1)));
    U st[8], m = load(p, iota(8, 0, 1)), x[8];
    for (int k = 0; k < 8; k++) x[k] = k ? at(v, C(7 - k)) : sum;
    st[0] = store(o, iota(8, 0, 1), ki_op3(ir, KN_WHERE, m, ki_opn(ir, KN_STACK, x, 8), F(0)));
    st[1] = store(q, iota(8, 0, 1), ki_op2(ir, KN_AND, m, ki_op1(ir, KN_NOT, lt(v, F(4)))));
    kernel_fn *f = compile(sink("k_shuf", st, 2), "k_shuf");
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, z[8];
    uint8_t pb[8] = {1, 1, 0, 1, 1, 1, 1, 0}, qb[8];
    if (f) f((void *[]){z, in, pb, qb}, NULL, 0);
    int ok = f && z[0] == 36;
    for (int k = 1; k < 8 && ok; k++) ok = z[k] == (pb[k] ? in[7 - k] : 0);
    for (int k = 0; k < 8 && ok; k++) ok = qb[k] == (pb[k] && !(in[k] < 4));
    CHECK(ok, "halving sum, lane extraction, stack, bools in memory");
}

/* LOCAL buffer, small and large; a variable as bound; SPECIAL thread. */
static void test_local(int64_t size) {
    int64_t lohi[2] = {0, 64};
    U n = ki_param_make(ir, -1, KN_IDX, KN_GLOBAL, 0, "n", lohi, NULL);
    U t = ki_make(ir, KN_SPECIAL, KN_VOID, (U[]){C(4)}, 1, ki_str_op(ir, KN_SOURCE, KN_VOID, "thread", 6, NULL, 0)->arg,
                  0);
    U o = param(0, KN_F32, 256), a = param(1, KN_F32, 256),
      l = ki_buffer_make(ir, ir->next_buffer++, size, KN_F32, KN_LOCAL, 0);
    U r1 = ki_range_make(ir, ir->next_range++, KN_AX_LOOP, n), r2 = ki_range_make(ir, ir->next_range++, KN_AX_LOOP, n);
    U base = mul(t, C(64)), rev = ki_op2(ir, KN_SUB, ki_op2(ir, KN_SUB, n, C(1)), r2);
    U fill = end1(store(l, r1, load(a, add(base, r1))), r1);
    U s = end1(store(o, add(base, r2), load(after1(l, fill), rev)), r2);
    kernel_fn *f = compile(sink("k_local", &s, 1), "k_local");
    static float x[256], z[256];
    for (int k = 0; k < 256; k++) x[k] = (float)k, z[k] = -1;
    int64_t var[1] = {10};
    if (f) f((void *[]){z, x}, var, 2);
    int ok = f != NULL;
    for (int k = 0; k < 256 && ok; k++) ok = z[k] == (k >= 128 && k < 138 ? x[128 + 137 - k] : -1);
    CHECK(ok, "LOCAL buffer of %d elements, variable bound, thread", (int)size);
}

static void refuse(const char *number, U kernel) {
    ki_text t = {0};
    bool ok = ki_render_c(ir, target, kernel, &t);
    CHECK(!ok && env.message.s && strstr(env.message.s, number), "%s: %s", number,
          env.message.s ? env.message.s : "accepted");
    ki_env_clear(&env);
    ki_text_free(&t);
}

static void test_refused(void) {
    U o = param(0, KN_BOOL, 8), a = param(1, KN_U8, 8), six = iota(6, 0, 1), eight = iota(8, 0, 1);
    U graph = store(o, C(0), load(o, C(1)));
    refuse("KN4212", sink("r", &graph, 1)); /* no LINEAR */
    U odd = store(o, six, load(o, six));
    refuse("KN4212", ki_linearize(ir, sink("r", &odd, 1)));
    U bits = store(o, eight, ki_bitcast(ir, load(a, eight), KN_BOOL));
    refuse("KN4211", ki_linearize(ir, sink("r", &bits, 1)));
    U lid = ki_str_op(ir, KN_SPECIAL, KN_VOID, "lidx0", 5, (U[]){C(4)}, 1), gpu = store(o, lid, load(o, lid));
    refuse("KN4212", ki_linearize(ir, sink("r", &gpu, 1)));
}

static void all(void) {
    test_add();
    test_sum();
    test_softmax();
    test_gates();
    test_alternatives(1);
    test_alternatives(2);
    test_vector(4);
    test_vector(16);
    test_lanes();
    test_reverse(KN_F32), test_reverse(KN_F64), test_reverse(KN_F16), test_reverse(KN_F8E5M2);
    for (int n = 4; n <= 16; n *= 2)
        test_mask(KN_F32, n), test_mask(KN_F64, n / 2), test_mask(KN_I32, n), test_mask(KN_I64, n / 2),
            test_mask(KN_U16, n);
    test_matmul(8);
    test_matmul(16);
    test_shuffle();
    test_local(64);
    test_local(20000);
}

int main(void) {
    static const char *const compilers[] = {"gcc", "clang"};
    if (!open_store()) return 1;
    for (int k = 0; k < 2; k++) {
        cc = compilers[k];
        if (!have(cc)) continue;
        target = ki_target_host();
        all();
        target = ki_target_named("sse2");
        test_vector(16);
        test_lanes();
        test_matmul(8);
    }
    test_refused();
    close_store();
    return tap_done();
}
