/* test_ops.c: every elementwise op on every dtype, one element and eight lanes wide, against ir/scalar.h, bit for bit
 * (functions of libm: to a few units in the last place). All kernels stand in one file: texts may be joined. */
#include "harness.h"
#include "ir/scalar.h"

enum { N = 256, MOST = 2000 };

typedef struct test_case {
    kn_op op;
    kn_dtype in[3], out;
    int lanes, n;
} test_case;
static test_case cases[MOST];
static int ncase;
static ki_text all;

static uint64_t rnd(void) {
    static uint64_t s = 88172645463325252u;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return s;
}

/* Values worth trying: limits, zeros, infinities, NaN, subnormals, halves, then random bits. */
static uint64_t value(kn_dtype t, int i, int which) {
    static const double f[] = {0.0,     -0.0,   1,        -1,         0.5,          -0.5,          1.5,
                               2.5,     -2.5,   INFINITY, -INFINITY,  NAN,          3e38,          -3e38,
                               65504,   65520,  65519,    448,        464,          465,           1e-45,
                               6e-8,    2.9e-8, 5.9e-5,   2147483647, 2147483648.0, -2147483648.0, 9.3e18,
                               -9.3e18, 1.9e19, 255.5,    256,        127.9,        -128.9,        1e300,
                               1e-320,  7,      3};
    static const int64_t n[] = {0,     1,         -1,        2,         -2,        3,   -3,   7,         -7,    8,
                                31,    32,        63,        64,        127,       128, -128, 255,       32767, -32768,
                                65535, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 100, -100, 1000000007};
    int k = which ? (int)(rnd() % 64) : i;
    if (t == KN_BOOL) return (uint64_t)(which ? rnd() & 1 : (uint64_t)i & 1);
    if (ki_is_float(t))
        return k < (int)(sizeof f / sizeof *f) ? ki_bits_from_f64(t, f[k])
               : i & 1                         ? ki_bits_from_f64(t, ((double)(rnd() % 20001) - 10000) / 64)
                                               : rnd() & (UINT64_MAX >> (64 - 8 * ki_itemsize(t)));
    return ki_bits_wrap(t, k < (int)(sizeof n / sizeof *n) ? n[k] : (int64_t)rnd());
}

static void add_case(kn_op op, kn_dtype out, const kn_dtype *in, int lanes) {
    U r = range(N / lanes), i = lanes > 1 ? add(mul(r, C(lanes)), iota(lanes, 0, 1)) : r, s[3];
    test_case *c = &cases[ncase];
    *c = (test_case){.op = op, .out = out, .lanes = lanes, .n = ki_ops[op].least};
    for (int k = 0; k < c->n; k++) {
        c->in[k] = in[k];
        s[k] = load(param(k + 1, in[k], N), i);
    }
    kn_uop v = ki_make(ir, op, out, s, (uint32_t)c->n, (kn_arg){0}, 0);
    char name[32];
    snprintf(name, sizeof name, "k%d", ncase);
    U st = v ? end1(store(param(0, out, N), i, v), r) : NULL;
    size_t start = all.n;
    bool ok = st && ki_render_c(ir, ki_target_host(), ki_linearize(ir, sink(name, &st, 1)), &all);
    if (ok) {
        ncase++;
        return;
    }
    CHECK(0, "%s of %s renders: %s", ki_ops[op].name, ki_dtypes[in[0]].name, env.message.s ? env.message.s : "?");
    ki_text_cut(&all, start);
    ki_env_clear(&env);
}

static bool takes(kn_op op, kn_dtype t) {
    uint16_t f = ki_ops[op].flags;
    if (op == KN_THREEFRY) return t == KN_U64;
    if (f & KI_FLOAT) return ki_is_float(t);
    if (f & KI_INT && ki_is_float(t)) return false;
    return !(f & KI_NUM && t == KN_BOOL);
}

static void add_all(int lanes) {
    for (int op = 0; op < KI_OP_COUNT; op++) {
        if (!ki_is_elementwise((kn_op)op)) continue;
        for (int t = KN_BOOL; t < KN_IDX; t++) {
            kn_dtype in[3] = {(kn_dtype)t, (kn_dtype)t, (kn_dtype)t}, out = (kn_dtype)t;
            if (op == KN_CAST) {
                for (int to = KN_BOOL; to < KN_IDX; to++)
                    if (to != t) add_case(KN_CAST, (kn_dtype)to, in, lanes);
                continue;
            }
            if (op == KN_WHERE) in[0] = KN_BOOL;
            else if (!takes((kn_op)op, (kn_dtype)t)) continue;
            if (op == KN_CMPLT || op == KN_CMPNE || (op >= KN_CMPGT && op <= KN_CMPEQ)) out = KN_BOOL;
            add_case((kn_op)op, out, in, lanes);
        }
    }
}

static bool is_libm(kn_op op) {
    switch (op) {
    case KN_EXP2:
    case KN_LOG2:
    case KN_SIN:
    case KN_EXP:
    case KN_LOG:
    case KN_COS:
    case KN_TAN:
    case KN_TANH:
    case KN_ERF:
    case KN_POW: return true;
    default: return false;
    }
}

static bool agree(const test_case *c, uint64_t got, uint64_t want) {
    if (got == want) return true;
    if (!ki_is_float(c->out)) return false;
    double a = ki_f64_from_bits(c->out, got), b = ki_f64_from_bits(c->out, want);
    if (isnan(a) && isnan(b)) return true;
    if (is_libm(c->op)) { /* within 4 units of the result's dtype */
        int64_t d = (int64_t)got - (int64_t)want;
        return (d < 0 ? -d : d) <= 4;
    }
    return false;
}

static int run_case(const test_case *c, kernel_fn *f) {
    static uint8_t mem[4][N * 8];
    void *buf[4] = {mem[0], mem[1], mem[2], mem[3]};
    for (int k = 0; k < c->n; k++)
        for (int i = 0; i < N; i++) ki_storage_put(c->in[k], mem[k + 1], i, value(c->in[k], i % 64, i >= 64 || k));
    f(buf, NULL, 0);
    for (int i = 0; i < N; i++) {
        uint64_t in[3], want, got = ki_storage_get(c->out, mem[0], i);
        for (int k = 0; k < c->n; k++) in[k] = ki_storage_get(c->in[k], mem[k + 1], i);
        if (!ki_scalar(c->op, c->out, c->in, in, &want) || agree(c, got, want)) continue;
        printf("# %s %s -> %s, %d lanes: (%#llx, %#llx, %#llx) gives %#llx, not %#llx\n", ki_ops[c->op].name,
               ki_dtypes[c->in[c->n - 1]].name, ki_dtypes[c->out].name, c->lanes, (unsigned long long)in[0],
               (unsigned long long)(c->n > 1 ? in[1] : 0), (unsigned long long)(c->n > 2 ? in[2] : 0),
               (unsigned long long)got, (unsigned long long)want);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    char c[64], so[64], cmd[512];
    const char *cc = argc > 1 ? argv[1] : "cc";
    if (!open_store()) return 1;
    add_all(1);
    add_all(8);
    snprintf(c, sizeof c, "/tmp/kn_ops_%d.c", (int)getpid());
    snprintf(so, sizeof so, "/tmp/kn_ops_%d.so", (int)getpid());
    FILE *f = fopen(c, "w");
    if (!f || all.oom) return 1;
    fwrite(all.s, 1, all.n, f);
    fclose(f);
    snprintf(cmd, sizeof cmd, "%s %s %s -O1 -fPIC -shared %s -o %s -lm", cc, KI_C_FLAGS, ki_target_host()->cflags, c,
             so);
    void *lib = system(cmd) == 0 ? dlopen(so, RTLD_NOW) : NULL;
    CHECK(lib != NULL, "%d kernels in one file compile", ncase);
    int good = 0;
    for (int k = 0; k < ncase && lib; k++) {
        char name[32];
        snprintf(name, sizeof name, "k%d", k);
        kernel_fn *fn = (kernel_fn *)(uintptr_t)dlsym(lib, name);
        if (fn) good += run_case(&cases[k], fn);
    }
    CHECK(good == ncase, "%d of %d ops and dtypes agree with their meaning", good, ncase);
    if (good == ncase) unlink(c);
    unlink(so);
    ki_text_free(&all);
    close_store();
    return tap_done();
}
