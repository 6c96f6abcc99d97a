/* test_lack.c: what the instructions of x86-64 lack (lack_x86.kr). For every elementwise op, every dtype and every level: after the
 * rules no op is left but those the head of lack_x86.kr lists, and the value is the interpreter's, bit for bit: all inputs of 8
 * bits and pairs of them, all of 16, and a sample of the rest that is dense where rules can go wrong (edges of every
 * width, powers of two and their neighbours, multiples of a divisor and theirs, values half way between two of a narrower
 * float). */
#include "../tap.h"
#include "base/cpuid.h"
#include "ir/eval.h"
#include "ir/scalar.h"
#include "stages/5_select/select.h"
#include "stages/x86/x86.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 65536, SOME = 16384 }; /* values of a case: all, or where there are too many, some */

static ki_env env;
static ki_ir ir_, *ir = &ir_;
static unsigned level;
static int count = N;
static uint64_t seed = 1;

static uint64_t rnd(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- what may be left ---------------------------------------------------------------------------------------- */

static bool among(kn_dtype t, uint32_t mask) { return mask >> t & 1; }
#define D(t)   (1u << KN_##t)
#define I8s    (D(I8) | D(U8))
#define I16s   (D(I16) | D(U16))
#define I32s   (D(I32) | D(U32))
#define I64s   (D(I64) | D(U64))
#define SIGNED (D(I8) | D(I16) | D(I32) | D(I64))
#define INTS   (I8s | I16s | I32s | I64s)
#define REAL   (D(F32) | D(F64))

static bool cast_left(kn_dtype to, kn_dtype from) {
    if (among(to, INTS) && among(from, INTS)) return ki_dtypes[to].bits != ki_dtypes[from].bits;
    if (among(to, REAL) && among(from, REAL | D(I32))) return true;
    if (among(to, REAL) && among(from, D(U32) | I64s)) return level >= 2;
    return level >= 1 && ((to == KN_F16 && from == KN_F32) || (to == KN_F32 && from == KN_F16));
}

static bool shift_left(kn_uop u) {
    kn_dtype t = (kn_dtype)u->dtype;
    if (ki_is_const(u->src[1]))
        return among(t, I16s | I32s | D(U64)) || (t == KN_I64 && (u->op == KN_SHL || level >= 2));
    return level >= 1 && (among(t, I32s | D(U64)) || (t == KN_I64 && (u->op == KN_SHL || level >= 2)) ||
                          (among(t, I16s) && level >= 2));
}

static bool compare_left(kn_uop u) {
    kn_dtype t = (kn_dtype)u->src[0]->dtype;
    bool zero = ki_is_const(u->src[1]) && u->src[1]->arg.bits == 0;
    if (among(t, REAL)) return true;
    if (!among(t, INTS)) return false;
    if (level >= 2) return true;
    if (u->op == KN_CMPEQ) return level >= 1 || !among(t, I64s);
    if (u->op != KN_CMPLT && u->op != KN_CMPGT) return false;
    return among(t, SIGNED) && (t != KN_I64 || level >= 1 || (u->op == KN_CMPLT && zero));
}

static bool left(kn_uop u) {
    kn_dtype t = (kn_dtype)u->dtype;
    switch ((kn_op)u->op) {
    case KN_ADD:
    case KN_SUB: return among(t, INTS | REAL);
    case KN_MUL: return among(t, REAL | I16s | (level >= 1 ? I32s : 0) | (level >= 2 ? I64s : 0));
    case KN_DIV:
    case KN_SQRT: return among(t, REAL);
    case KN_MULACC: return among(t, REAL) && level >= 1;
    case KN_AND:
    case KN_OR:
    case KN_XOR: return among(t, INTS | D(BOOL));
    case KN_NOT: return t == KN_BOOL;
    case KN_SHL:
    case KN_SHR: return shift_left(u);
    case KN_MAX: return among(t, level >= 2 ? INTS : level >= 1 ? I8s | I16s | I32s : D(U8) | D(I16));
    case KN_CMPLT:
    case KN_CMPGT:
    case KN_CMPLE:
    case KN_CMPGE:
    case KN_CMPEQ:
    case KN_CMPNE: return compare_left(u);
    case KN_WHERE: return among(t, INTS | REAL);
    case KN_CAST: return cast_left(t, (kn_dtype)u->src[0]->dtype);
    case KN_BITCAST: return ki_dtypes[t].bits == ki_dtypes[u->src[0]->dtype].bits;
    case KN_CONST:
    case KN_PARAM:
    case KN_STACK:
    case KN_INS: return true;
    default: return false;
    }
}

/* ---- values -------------------------------------------------------------------------------------------------- */

static uint64_t random_int(void) {
    unsigned w = (unsigned)(rnd() % 65);
    uint64_t v = w == 64 ? rnd() : rnd() & ((UINT64_C(1) << w) - 1);
    switch (rnd() % 7) {
    case 6: { /* next to half way between two floats of 24, 11 or 8 bits */
        unsigned bits = (unsigned[]){24, 11, 8}[rnd() % 3], shift = 1 + (unsigned)(rnd() % (64 - bits));
        v = ((rnd() | UINT64_C(1) << 63) >> (64 - bits) << shift) + (UINT64_C(1) << (shift - 1)) + rnd() % 3 - 1;
        return rnd() & 1 ? v : 0 - v;
    }
    case 0: return 0 - v;
    case 1: return (UINT64_C(1) << (w & 63)) + rnd() % 5 - 2;
    case 2: return 0 - ((UINT64_C(1) << (w & 63)) + rnd() % 5 - 2);
    case 3: return rnd() % 9 - 4;
    default: return v;
    }
}

static uint64_t random_float(kn_dtype t) {
    static const kn_dtype narrow[] = {KN_F32, KN_F16, KN_BF16, KN_F8E4M3, KN_F8E5M2};
    uint64_t b = rnd();
    switch (rnd() % 8) {
    case 0: return b & ((UINT64_C(1) << (ki_dtypes[t].bits - 1)) - 1);
    case 1: /* next to an integer, or half way */
    case 2: return ki_bits_from_f64(t, (double)(int64_t)random_int() + ((double)(rnd() % 5) - 2) * 0.25);
    case 3: return ki_bits_from_f64(t, ki_f64_from_bits(KN_I64, random_int()));
    case 4: return ki_bits_from_f64(t, ki_f64_from_bits(KN_U64, random_int())) + rnd() % 3 - 1;
    case 5:
    case 6: { /* between two of a narrower float */
        kn_dtype n = narrow[rnd() % 5];
        uint64_t m = rnd() & ((UINT64_C(1) << (ki_dtypes[n].bits - 1)) - 2);
        double v = (ki_f64_from_bits(n, m) + ki_f64_from_bits(n, m + 1)) / 2;
        return ki_bits_from_f64(t, rnd() & 1 ? -v : v) + rnd() % 3 - 1;
    }
    default: return b;
    }
}

static void fill(kn_dtype t, char *a, int which, const char *other, int sources) {
    for (int k = 0; k < count; k++) {
        unsigned w = ki_dtypes[t].bits;
        uint64_t v = ki_is_float(t) ? random_float(t) : random_int();
        if (t == KN_BOOL) v = (uint64_t)k >> which & 1;
        else if (w == 8 && sources <= 2) v = (uint64_t)k >> 8 * which;
        else if (w == 16 && sources == 1) v = (uint64_t)k;
        else if (ki_is_float(t) && k < 64)
            v = ki_bits_from_f64(t, ((double[]){0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0.5})[k >> 3 * which & 7]);
        else if (which == 1 && !ki_is_float(t) && k % 3 == 0 &&
                 rnd() % 8) { /* the other is a multiple of it, or next to one */
            uint64_t o = ki_storage_get(t, other, k);
            v = o;
            if (v && rnd() % 4) v = o / (1 + rnd() % 1000) + rnd() % 3 - 1;
        } else if (which == 1 && rnd() % 16 == 0) v = ki_storage_get(t, other, k) + rnd() % 3 - 1;
        if (t != KN_BOOL) v &= w == 64 ? ~UINT64_C(0) : (UINT64_C(1) << w) - 1;
        ki_storage_put(t, a, k, v);
    }
}

/* ---- one op -------------------------------------------------------------------------------------------------- */

static const char *found;

static void look(kn_uop u) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &u, 1, &node);
    static char text[128];
    for (int64_t k = 0; k < n && !found; k++)
        if (node[k]->dtype != KN_IDX && !left(node[k])) {
            kn_dtype from = node[k]->nsrc ? (kn_dtype)node[k]->src[0]->dtype : KN_VOID;
            snprintf(text, sizeof text, "%s of %s to %s is left", ki_ops[node[k]->op].name, ki_dtypes[from].name,
                     ki_dtypes[node[k]->dtype].name);
            found = text;
        }
    ki_free(node);
}

static uint64_t tried, cases, wrong;

static bool agree(kn_dtype t, uint64_t a, uint64_t b) {
    if (a == b) return true;
    if (!ki_is_float(t)) return false;
    double x = ki_f64_from_bits(t, a), y = ki_f64_from_bits(t, b);
    return x != x && y != y;
}

static _Alignas(64) char in[3][N * 8], out[2][N * 8];

/* As ki_x86_understand, of more lanes than a register has: no row used here looks at its neighbours. */
static kn_uop understand(ki_ir *store, kn_uop u) {
    const ki_x86_form *f = ki_x86_row(u->arg.str->s);
    kn_uop src[8];
    for (uint32_t k = 0; k < u->nsrc && f; k++) { /* words by their bits, as the row has them */
        bool other = ki_is_uint((kn_dtype)u->src[k]->dtype) && ki_dtypes[u->src[k]->dtype].bits >= 32;
        src[k] = other ? ki_bitcast(store, u->src[k], ki_x86_dtype(f, 1)) : u->src[k];
    }
    kn_uop v = f ? ki_x86_meaning(store, f, src, u->nsrc, 64) : NULL;
    return v && v->dtype != u->dtype ? ki_bitcast(store, v, (kn_dtype)u->dtype) : v;
}

/* u over the parameters in src, and what the rules make of it. */
static void same(const char *name, kn_uop u, const kn_uop *src, int n) {
    kn_uop v = ki_lack(ir, level, u);
    found = v ? NULL : env.message.s;
    if (v) look(v);
    cases++;
    if (found) wrong++, printf("# %s on %s: %s\n", name, ki_cpu_level_names[level], found);
    if (!v) {
        ki_env_clear(&env);
        return;
    }
    kn_uop both[] = {u, v}, root = ki_opn(ir, KN_SINK, both, 2);
    ki_program p = {.ir = ir, .stage = KI_S_TENSOR, .root = root};
    const void *arrays[3] = {in[0], in[1], in[2]};
    void *results[2] = {out[0], out[1]};
    bool ok = ki_program_port(&p, true, "u", 1, u) && ki_program_port(&p, true, "v", 1, v);
    for (int k = 0; k < n; k++) {
        fill((kn_dtype)src[k]->dtype, in[k], k, in[0], n);
        ok = ok && ki_program_port(&p, false, (char[]){(char)('a' + k), 0}, 1, src[k]);
    }
    p.root = root;
    ok = ok && ki_eval(&p, arrays, results, NULL) == KI_OK;
    if (!ok) printf("# %s\n", env.message.s ? env.message.s : "?");
    ki_env_clear(&env);
    int bad = -1;
    kn_dtype t = (kn_dtype)u->dtype;
    for (int k = 0; k < count && ok && bad < 0; k++)
        if (!agree(t, ki_storage_get(t, out[0], k), ki_storage_get(t, out[1], k))) bad = k;
    if (bad >= 0)
        for (int k = 0; k < n; k++)
            printf("# %c = %#llx (%.17g)\n", 'a' + k,
                   (unsigned long long)ki_storage_get((kn_dtype)src[k]->dtype, in[k], bad),
                   ki_f64_from_bits((kn_dtype)src[k]->dtype, ki_storage_get((kn_dtype)src[k]->dtype, in[k], bad)));
    if (!ok || bad >= 0)
        wrong++, printf("# %s on %s: %#llx, want %#llx\n", name, ki_cpu_level_names[level],
                        (unsigned long long)(bad < 0 ? 0 : ki_storage_get(t, out[1], bad)),
                        (unsigned long long)(bad < 0 ? 0 : ki_storage_get(t, out[0], bad)));
    tried += (uint64_t)count;
    ki_program_free(&p);
}

static kn_uop source(int k, kn_dtype t) {
    int64_t n = count;
    return ki_param_make(ir, -1, t, KN_GLOBAL, 0, (char[]){(char)('a' + k), 0}, NULL, ki_shape_src(ir, &n, 1));
}

/* Functions are decompose's; what libm would do is not here. */
static bool is_function(kn_op op) {
    return op == KN_EXP || op == KN_EXP2 || op == KN_LOG || op == KN_LOG2 || op == KN_SIN || op == KN_COS ||
           op == KN_TAN || op == KN_TANH || op == KN_ERF || op == KN_POW || op == KN_THREEFRY;
}

static void every_op(kn_dtype t) {
    for (unsigned op = 0; op < KI_OP_COUNT; op++) {
        const ki_op_info *f = &ki_ops[op];
        if (!ki_is_elementwise((kn_op)op) || op == KN_CAST || is_function((kn_op)op)) continue;
        if ((f->flags & KI_FLOAT && !ki_is_float(t)) || (f->flags & KI_INT && ki_is_float(t)) ||
            (f->flags & KI_NUM && t == KN_BOOL))
            continue;
        kn_uop src[3];
        char name[64];
        count = ki_dtypes[t].bits == 8 && f->least <= 2 ? N : ki_dtypes[t].bits == 16 && f->least == 1 ? N : SOME;
        for (int k = 0; k < f->least; k++) src[k] = source(k, op == KN_WHERE && k == 0 ? KN_BOOL : t);
        snprintf(name, sizeof name, "%s of %s", f->name, ki_dtypes[t].name);
        ki_mark mark = ki_ir_mark(ir);
        same(name, ki_opn(ir, (kn_op)op, src, f->least), src, f->least);
        ki_ir_drop(ir, mark);
    }
}

static void every_constant(kn_dtype t) {
    static const kn_op ops[] = {KN_IDIV, KN_MOD, KN_SHL, KN_SHR, KN_MUL, KN_CMPLT, KN_CMPGT, KN_CMPEQ, KN_MAX};
    static const int64_t value[] = {0,  1,   -1,  2,   3,     7,     8,       10,         31,        63,       -3,
                                    -8, 100, 127, 641, 32767, 65535, 1000003, 2147483647, INT64_MAX, INT64_MIN};
    count = ki_dtypes[t].bits == 16 ? N : SOME;
    kn_uop a = source(0, t);
    for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++) {
        for (unsigned k = 0; k < sizeof value / sizeof *value; k++) {
            char name[64];
            ki_mark mark = ki_ir_mark(ir);
            kn_uop c = ki_const_bits(ir, t, ki_bits_wrap(t, value[k]));
            snprintf(name, sizeof name, "%s of %s by %lld", ki_ops[ops[i]].name, ki_dtypes[t].name,
                     (long long)value[k]);
            same(name, ki_op2(ir, ops[i], a, c), &a, 1);
            ki_ir_drop(ir, mark);
        }
    }
}

static void every_cast(kn_dtype from) {
    count = ki_dtypes[from].bits == 8 ? SOME : N;
    kn_uop a = source(0, from);
    for (unsigned to = KN_BOOL; to < KN_IDX; to++) {
        char name[64];
        if (to == from) continue;
        ki_mark mark = ki_ir_mark(ir);
        snprintf(name, sizeof name, "cast of %s to %s", ki_dtypes[from].name, ki_dtypes[to].name);
        same(name, ki_cast(ir, a, (kn_dtype)to), &a, 1);
        ki_ir_drop(ir, mark);
    }
}

static void none_wrong(const char *what, kn_dtype t) {
    CHECK(!wrong && cases, "%s of %s on %s: %llu cases, %llu values", what, ki_dtypes[t].name,
          ki_cpu_level_names[level], (unsigned long long)cases, (unsigned long long)tried);
    cases = tried = wrong = 0;
}

int main(void) {
    if (!ki_env_open(&env) || !ki_ir_open(ir, &env)) return 1;
    env.ins = understand;
    for (level = 0; level < 3; level++)
        for (unsigned t = KN_BOOL; t < KN_IDX; t++) {
            every_op((kn_dtype)t);
            none_wrong("ops", (kn_dtype)t);
            every_cast((kn_dtype)t);
            none_wrong("casts", (kn_dtype)t);
            if (!among((kn_dtype)t, INTS)) continue;
            every_constant((kn_dtype)t);
            none_wrong("ops with constants", (kn_dtype)t);
        }
    ki_ir_close(ir);
    ki_env_close(&env);
    return tap_done();
}
