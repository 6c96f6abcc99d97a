/* test_native_ops.c: which ops on data have instructions. Every elementwise op of every dtype, at every level, on one lane and on
 * eight: the rules of lack_x86.kr and select_x86.kr together must leave nothing but instructions, and the interpreter, which takes
 * each for what it means, must give what it gives for the op. */
#include "../8_render/harness.h"
#include "ir/eval.h"
#include "ir/scalar.h"
#include "stages/5_select/select.h"
#include "stages/x86/x86.h"

enum { N = 2048 };

static _Alignas(64) char in[3][N * 8], out[2][N * 8];
static uint64_t seed = 1;
enum { LEVELS = 4 };
static unsigned covered[KI_CPU_LEVELS], all[KI_CPU_LEVELS], wrong[KI_CPU_LEVELS];
/* Cases with instructions; as many may come as there are, none may go. */
static const unsigned least = 990;

static uint64_t rnd(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed * UINT64_C(0x2545f4914f6cdd1d);
}

static void fill(kn_dtype t, char *a) {
    static const double some[] = {0.0, -0.0, 1,    -1,    2.5,      -2.5,      127.5, 255.5,
                                  3e9, -3e9, 1e19, -1e19, INFINITY, -INFINITY, NAN,   1e-3};
    for (int k = 0; k < N; k++) {
        unsigned w = ki_dtypes[t].bits;
        uint64_t v = rnd() >> rnd() % 64;
        if (rnd() & 1) v = 0 - v;
        if (ki_is_float(t) && rnd() & 1) v = ki_bits_from_f64(t, rnd() & 1 ? some[rnd() % 16] : (double)(int64_t)v);
        v &= w == 64 ? ~UINT64_C(0) : (UINT64_C(1) << w) - 1;
        ki_storage_put(t, a, k, t == KN_BOOL ? v & 1 : v);
    }
}

/* The kernel of u(load 1, load 2, ...), `lanes` at a time; cast: to that dtype. */
static U kernel(kn_op op, kn_dtype t, kn_dtype to, int n, int lanes) {
    U r = range(N / lanes), i = lanes > 1 ? add(mul(r, C(lanes)), iota(lanes, 0, 1)) : r, src[3];
    for (int k = 0; k < n; k++) {
        kn_dtype s = op == KN_WHERE && k == 0 ? KN_BOOL : t;
        src[k] = load(param(k + 1, s, N), i);
    }
    U v = op == KN_CAST ? ki_cast(ir, src[0], to) : ki_opn(ir, op, src, (uint32_t)n);
    U st = v ? end1(store(param(0, (kn_dtype)v->dtype, N), i, v), r) : NULL;
    return st ? sink("k", &st, 1) : NULL;
}

static bool run(U k, kn_dtype t, kn_op op, int n, kn_dtype result, char *to) {
    void *buf[4] = {to, in[0], in[1], in[2]};
    int64_t bytes[4] = {N * (int64_t)ki_dtypes[result].bytes};
    for (int s = 0; s < n; s++) bytes[s + 1] = N * (int64_t)ki_dtypes[op == KN_WHERE && s == 0 ? KN_BOOL : t].bytes;
    ki_vm *vm = k ? ki_vm_make(ir, k) : NULL;
    bool ok = vm && ki_vm_run(vm, &env, buf, bytes, NULL, NULL) == KI_OK;
    if (vm) ki_vm_free(vm);
    if (!ok) printf("# %s\n", env.message.s ? env.message.s : "?");
    ki_env_clear(&env);
    return ok;
}

static bool agree(kn_dtype t) {
    for (int k = 0; k < N; k++) {
        uint64_t a = ki_storage_get(t, out[0], k), b = ki_storage_get(t, out[1], k);
        double x = ki_is_float(t) ? ki_f64_from_bits(t, a) : 0, y = ki_is_float(t) ? ki_f64_from_bits(t, b) : 0;
        if (a == b || (x != x && y != y)) continue;
        printf("# element %d: %#llx, want %#llx\n", k, (unsigned long long)b, (unsigned long long)a);
        return false;
    }
    return true;
}

static void try(const ki_target *native, const ki_target *c, kn_op op, kn_dtype t, kn_dtype to) {
    static const int lanes[] = {8, 1};
    int n = ki_ops[op].least;
    for (int k = 0; k < 2; k++) {
        char what[96];
        snprintf(what, sizeof what, "%s of %s%s%s, lanes %d, %s", ki_ops[op].name, ki_dtypes[t].name,
                 op == KN_CAST ? " to " : "", op == KN_CAST ? ki_dtypes[to].name : "", lanes[k], native->name);
        ki_mark mark = ki_ir_mark(ir);
        U source = kernel(op, t, to, n, lanes[k]);
        if (!source) {
            ki_env_clear(&env);
            continue;
        }
        kn_dtype result = op == KN_CAST               ? to
                          : ki_ops[op].cls == KN_VOID ? t
                                                      : (kn_dtype)source->src[0]->src[0]->src[1]->dtype;
        U plain = ki_select(ir, c, source), chosen = ki_select(ir, native, source);
        all[native->level]++;
        if (!chosen) {
            printf("# %s: %s\n", what, env.message.s);
            ki_env_clear(&env);
        } else {
            covered[native->level]++;
            for (int s = 0; s < n; s++) fill(op == KN_WHERE && s == 0 ? KN_BOOL : t, in[s]);
            bool ok = run(plain, t, op, n, result, out[0]) && run(chosen, t, op, n, result, out[1]) && agree(result);
            if (!ok) wrong[native->level]++, printf("# %s\n", what);
        }
        ki_ir_drop(ir, mark);
    }
}

static bool is_function(kn_op op) {
    return op == KN_EXP || op == KN_EXP2 || op == KN_LOG || op == KN_LOG2 || op == KN_SIN || op == KN_COS ||
           op == KN_TAN || op == KN_TANH || op == KN_ERF || op == KN_POW;
}

/* What has no instruction is named. */
static void refused(void) {
    U r = range(N), x = load(param(1, KN_F32, N), r);
    U text = x ? ki_str_op(ir, KN_CUSTOM, KN_F32, "-({0})", 6, &x, 1) : NULL;
    U st = text ? end1(store(param(0, KN_F32, N), r, text), r) : NULL;
    CHECK(st && !ki_select(ir, ki_target_native("sse2"), sink("k", &st, 1)) && env.err == KI_E_SELECT_NATIVE &&
              strstr(env.message.s, "custom") && strstr(env.message.s, "sse2"),
          "C text has no instruction");
    ki_env_clear(&env);
}

int main(void) {
    static const char *const names[LEVELS] = {"sse2", "avx2", "avx512", "fp16"}; /* dot: as avx512; amx: as fp16 */
    if (!open_store()) return 1;
    env.ins = ki_x86_understand;
    for (int l = 0; l < LEVELS; l++) {
        const ki_target *native = ki_target_native(names[l]), *c = ki_target_named(names[l]);
        for (unsigned t = KN_BOOL; t < KN_IDX; t++)
            for (unsigned op = 0; op < KI_OP_COUNT; op++) {
                const ki_op_info *f = &ki_ops[op];
                if (!ki_is_elementwise((kn_op)op) || is_function((kn_op)op)) continue;
                bool fits = !(f->flags & KI_FLOAT && !ki_is_float((kn_dtype)t)) &&
                            !(f->flags & KI_INT && ki_is_float((kn_dtype)t)) && !(f->flags & KI_NUM && t == KN_BOOL) &&
                            (op != KN_THREEFRY || t == KN_U64);
                for (unsigned to = KN_BOOL; to < KN_IDX && fits; to++)
                    if (op == KN_CAST ? to != t : to == t) try(native, c, (kn_op)op, (kn_dtype)t, (kn_dtype)to);
            }
        unsigned at = native->level;
        CHECK(!wrong[at], "%s: what instructions mean is what the op means", names[l]);
        CHECK(covered[at] >= least, "%s: %u of %u have instructions", names[l], covered[at], all[at]);
    }
    refused();
    close_store();
    return tap_done();
}
