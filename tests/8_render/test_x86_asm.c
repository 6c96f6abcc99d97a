/* test_x86_asm.c: instructions in a row: labels both ways, short and near jumps, the pool of constants, alignment; code that is
 * run; what the encoder and the assembler refuse; and that no page is ever writable and executable at once. */
#include "../tap.h"
#include "device/cpu/codemem.h"
#include "stages/8_render/x86/asm.h"
#include "x86_forms.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static ki_env env;
static const ki_x86_op none;
#define R64(n) ki_x86_reg(KI_XO_R64, n)
#define R32(n) ki_x86_reg(KI_XO_R32, n)
#define XMM(n) ki_x86_reg(KI_XO_X, n)
#define YMM(n) ki_x86_reg(KI_XO_Y, n)
#define ZMM(n) ki_x86_reg(KI_XO_Z, n)

typedef union entry { /* ISO C has no cast for this */
    void *p;
    int64_t (*f)(int64_t, int64_t);
    double (*d)(double);
} entry;

static entry load(ki_asm *a, ki_codemem *m) {
    entry e = {NULL};
    if (ki_asm_finish(a) && ki_codemem_make(&env, a->code, a->n, m)) e.p = m->code;
    return e;
}

/* sum of 1 .. n: a loop with a jump back and one forward; `pad` instructions make them short or near */
static void loop(int pad) {
    ki_asm a;
    ki_codemem m = {0};
    ki_asm_open(&a, &env, ki_cpu_features());
    uint32_t top = ki_asm_label(&a), end = ki_asm_label(&a);
    ki_asm_put(&a, KI_X_XOR_EG, R32(0), R32(0), none);
    ki_asm_align(&a, 32);
    bool aligned = a.n % 32 == 0;
    ki_asm_bind(&a, top);
    ki_asm_put(&a, KI_X_TEST_EG, R64(7), R64(7), none);
    ki_asm_put(&a, KI_X_JE, ki_x86_to(end), none, none);
    ki_asm_put(&a, KI_X_ADD_EG, R64(0), R64(7), none);
    for (int k = 0; k < pad; k++) ki_asm_put(&a, KI_X_MOV_EG, R64(1), R64(2), none);
    ki_asm_put(&a, KI_X_DEC, R64(7), none, none);
    size_t before = a.n;
    ki_asm_put(&a, KI_X_JMP, ki_x86_to(top), none, none);
    size_t jump = a.n - before;
    ki_asm_bind(&a, end);
    ki_asm_put(&a, KI_X_RET, none, none, none);
    entry e = load(&a, &m);
    CHECK(e.p && aligned && e.f(100, 0) == 5050 && e.f(0, 0) == 0, "a loop over %d more instructions runs", pad);
    CHECK(jump == (pad < 30 ? 2 : 5), "its jump back has %zu bytes", jump);
    ki_codemem_free(&m);
    ki_asm_close(&a);
}

static void pool(void) {
    ki_asm a;
    ki_codemem m = {0};
    ki_text list = {0};
    double c[3] = {2.5, 100, 2.5};
    ki_asm_open(&a, &env, ki_cpu_features());
    a.listing = &list;
    uint32_t label[3];
    for (int k = 0; k < 3; k++) {
        label[k] = ki_asm_const(&a, &c[k], 8);
        ki_x86_ins i = {
            .form = k % 2 ? KI_X_VADDSD : KI_X_VMULSD, .enc = KI_XE_SSE, .op = {XMM(0), ki_x86_at(label[k])}};
        ki_asm_ins(&a, &i);
    }
    uint8_t wide[64];
    for (int k = 0; k < 64; k++) wide[k] = (uint8_t)k;
    uint32_t w = ki_asm_const(&a, wide, 64);
    ki_asm_put(&a, KI_X_RET, none, none, none);
    entry e = load(&a, &m);
    CHECK(e.p && e.d(4) == (4 * 2.5 + 100) * 2.5, "constants are reached from rip");
    CHECK(label[0] == label[2] && label[0] != label[1], "equal constants stand there once");
    CHECK(e.p && a.label[w] % 64 == 0 && memcmp(m.code + a.label[w], wide, 64) == 0, "64 bytes are aligned to 64");
    CHECK(list.s && strstr(list.s, "    mulsd xmm0, QWORD PTR [rip+.L1]\n") && strstr(list.s, "    ret\n"),
          "the listing has each line");
    ki_text_free(&list);
    ki_codemem_free(&m);
    ki_asm_close(&a);
    for (unsigned n = 1; n < 64; n++) { /* every gap is filled with nops that run */
        ki_asm_open(&a, &env, ki_cpu_features());
        for (unsigned k = 0; k < n; k++) ki_asm_put(&a, KI_X_PUSH, R64(0), none, none);
        ki_asm_align(&a, 64);
        ki_asm_put(&a, KI_X_LEA, R64(KI_X_RSP), ki_x86_mem(KI_X_RSP, KI_X_NOREG, 1, (int32_t)n * 8), none);
        ki_asm_put(&a, KI_X_LEA, R64(0), ki_x86_mem(KI_X_RDI, KI_X_RSI, 4, 7), none);
        ki_asm_put(&a, KI_X_RET, none, none, none);
        e = load(&a, &m);
        bool ok = e.p && e.f(1000, 10) == 1047;
        ki_codemem_free(&m);
        ki_asm_close(&a);
        if (!ok) {
            CHECK(0, "nops over %u bytes", 64 - n);
            return;
        }
    }
    CHECK(1, "nops of every length up to 63 run");
}

/* ---- what is refused ------------------------------------------------------------------------------------------------ */

static void refused(void) {
    ki_x86_op m = ki_x86_mem(0, KI_X_NOREG, 1, 0), rsp = ki_x86_mem(0, KI_X_RSP, 1, 0), by3 = ki_x86_mem(0, 1, 3, 0),
              far = m, narrow = m, gather = m, b1 = m;
    far.v = INT64_C(1) << 31;
    narrow.size = 4;
    b1.bcast = 1;
    gather.index = 2, gather.ikind = KI_XO_Z;
    const struct {
        ki_x86_error want;
        ki_x86_ins i;
    } bad[] = {
        {KI_X86_BAD_FORM, {.form = KI_X_COUNT}},
        {KI_X86_BAD_COUNT, {.form = KI_X_VADDPS, .op = {XMM(0), XMM(1)}}},
        {KI_X86_BAD_COUNT, {.form = KI_X_RET, .op = {XMM(0)}}},
        {KI_X86_BAD_KIND, {.form = KI_X_VADDPS, .op = {XMM(0), YMM(1), XMM(2)}}},
        {KI_X86_BAD_KIND, {.form = KI_X_ADD_EG, .op = {R32(0), R64(1)}}},
        {KI_X86_BAD_KIND, {.form = KI_X_ADD_EG, .op = {R32(0), ki_x86_imm(1)}}},
        {KI_X86_BAD_KIND, {.form = KI_X_INC, .op = {m}}},
        {KI_X86_BAD_KIND, {.form = KI_X_VADDPS, .op = {YMM(0), YMM(1), narrow}}},
        {KI_X86_BAD_LENGTH, {.form = KI_X_VBROADCASTSD, .op = {XMM(0), XMM(1)}}},
        {KI_X86_BAD_LENGTH, {.form = KI_X_VADDPS, .enc = KI_XE_SSE, .op = {YMM(0), YMM(1)}}},
        {KI_X86_BAD_ENCODING, {.form = KI_X_VPADDD, .enc = 8, .op = {XMM(0), XMM(1), XMM(2)}}},
        {KI_X86_BAD_EVEX, {.form = KI_X_VPAND, .op = {XMM(0), XMM(1), XMM(16)}}},
        {KI_X86_BAD_EVEX, {.form = KI_X_VADDPS, .enc = KI_XE_VEX, .op = {ZMM(0), ZMM(1), ZMM(2)}}},
        {KI_X86_BAD_REG, {.form = KI_X_VADDPS, .op = {ZMM(0), ZMM(1), ZMM(32)}}},
        {KI_X86_BAD_REG, {.form = KI_X_ADD_EG, .op = {R32(16), R32(0)}}},
        {KI_X86_BAD_REG,
         {.form = KI_X_KANDW, .op = {ki_x86_reg(KI_XO_K, 8), ki_x86_reg(KI_XO_K, 0), ki_x86_reg(KI_XO_K, 0)}}},
        {KI_X86_BAD_REG, {.form = KI_X_SHL_CL, .op = {R32(0), ki_x86_reg(KI_XO_R8, 2)}}},
        {KI_X86_BAD_ADDRESS, {.form = KI_X_LEA, .op = {R64(0), rsp}}},
        {KI_X86_BAD_ADDRESS, {.form = KI_X_LEA, .op = {R64(0), by3}}},
        {KI_X86_BAD_ADDRESS, {.form = KI_X_LEA, .op = {R64(0), far}}},
        {KI_X86_BAD_ADDRESS, {.form = KI_X_VPGATHERDQ, .mask = 1, .op = {ZMM(0), gather}}},
        {KI_X86_BAD_ADDRESS, {.form = KI_X_TILELOADD, .op = {ki_x86_reg(KI_XO_T, 0), ki_x86_at(1)}}},
        {KI_X86_BAD_IMM, {.form = KI_X_ADD_EB, .op = {R32(0), ki_x86_imm(128)}}},
        {KI_X86_BAD_IMM, {.form = KI_X_ADD_EI, .op = {R64(0), ki_x86_imm(INT64_C(1) << 31)}}},
        {KI_X86_BAD_IMM, {.form = KI_X_SHL_I, .op = {R32(0), ki_x86_imm(-1)}}},
        {KI_X86_BAD_MASK, {.form = KI_X_VADDPS, .mask = 8, .op = {ZMM(0), ZMM(1), ZMM(2)}}},
        {KI_X86_BAD_MASK, {.form = KI_X_VPGATHERDD, .op = {ZMM(0), gather}}},
        {KI_X86_BAD_MASK, {.form = KI_X_VADDPS, .zero = 1, .op = {ZMM(0), ZMM(1), ZMM(2)}}},
        {KI_X86_BAD_MASK, {.form = KI_X_VMOVUPS_ST, .mask = 1, .zero = 1, .op = {m, ZMM(2)}}},
        {KI_X86_BAD_ROUND, {.form = KI_X_VADDPS, .round = KI_X_RZ, .op = {YMM(0), YMM(1), YMM(2)}}},
        {KI_X86_BAD_ROUND, {.form = KI_X_VADDPS, .round = KI_X_SAE, .op = {ZMM(0), ZMM(1), ZMM(2)}}},
        {KI_X86_BAD_ROUND, {.form = KI_X_VADDPS, .round = KI_X_RZ, .op = {ZMM(0), ZMM(1), m}}},
        {KI_X86_BAD_BCAST, {.form = KI_X_VPADDB, .op = {ZMM(0), ZMM(1), b1}}},
        {KI_X86_BAD_SAME, {.form = KI_X_VPGATHERDD, .mask = 1, .op = {ZMM(2), gather}}},
        {KI_X86_BAD_SAME,
         {.form = KI_X_TDPBSSD, .op = {ki_x86_reg(KI_XO_T, 1), ki_x86_reg(KI_XO_T, 1), ki_x86_reg(KI_XO_T, 2)}}},
        {KI_X86_BAD_LOCK, {.form = KI_X_ADD_EG, .lock = 1, .op = {R32(0), R32(1)}}},
        {KI_X86_BAD_LOCK, {.form = KI_X_MOV_EG, .lock = 1, .op = {m, R32(1)}}},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        ki_x86_bytes b;
        ki_x86_error e = ki_x86_encode(&bad[k].i, &b);
        CHECK(e == bad[k].want, "%zu is refused: %s", k, ki_x86_error_text(e));
    }
    ki_asm a;
    ki_asm_open(&a, &env, ki_cpu_features());
    ki_asm_ins(&a, &bad[5].i);
    ki_asm_put(&a, KI_X_RET, none, none, none);
    CHECK(a.failed && a.n == 0 && env.err == KI_E_X86_OPERAND && strstr(env.message.s, "add"),
          "the assembler says which: %s", env.message.s);
    ki_asm_close(&a);
    ki_env_clear(&env);
    ki_asm_open(&a, &env, ki_cpu_features());
    ki_asm_put(&a, KI_X_JMP, ki_x86_to(ki_asm_label(&a)), none, none);
    CHECK(!ki_asm_finish(&a) && env.err == KI_E_INTERNAL, "a label bound nowhere fails");
    ki_asm_close(&a);
    ki_env_clear(&env);
    ki_asm_open(&a, &env, ki_cpu_features());
    uint32_t l = ki_asm_label(&a);
    ki_asm_bind(&a, l);
    ki_asm_bind(&a, l);
    CHECK(a.failed && env.err == KI_E_INTERNAL, "a label bound twice fails");
    ki_asm_close(&a);
    ki_env_clear(&env);
}

/* The level forced down: SSE where it will do, and what the level lacks is refused by name. */
static void levels(void) {
    const struct {
        unsigned level;
        ki_x86_ins i;
        const char *text; /* NULL: refused */
    } at[] = {
        {0, {.form = KI_X_VADDPS, .op = {XMM(1), XMM(2)}}, "    addps xmm1, xmm2\n"},
        {1, {.form = KI_X_VADDPS, .op = {XMM(1), XMM(2), XMM(3)}}, "    vaddps xmm1, xmm2, xmm3\n"},
        {2, {.form = KI_X_VADDPS, .op = {ZMM(1), ZMM(2), ZMM(3)}}, "    vaddps zmm1, zmm2, zmm3\n"},
        {5, {.form = KI_X_TILEZERO, .op = {ki_x86_reg(KI_XO_T, 3)}}, "    tilezero tmm3\n"},
        {0, {.form = KI_X_VADDPS, .enc = KI_XE_VEX, .op = {XMM(1), XMM(2), XMM(3)}}, NULL},
        {0, {.form = KI_X_VPMULLD, .op = {XMM(1), XMM(2)}}, NULL},
        {0, {.form = KI_X_VFMADD231PS, .op = {XMM(1), XMM(2), XMM(3)}}, NULL},
        {0, {.form = KI_X_SHLX, .op = {R32(1), R32(2), R32(3)}}, NULL},
        {1, {.form = KI_X_VADDPS, .op = {ZMM(1), ZMM(2), ZMM(3)}}, NULL},
        {1, {.form = KI_X_VADDPS, .mask = 1, .op = {YMM(1), YMM(2), YMM(3)}}, NULL},
        {1, {.form = KI_X_VPABSQ, .op = {XMM(1), XMM(2)}}, NULL},
        {2, {.form = KI_X_VDPBF16PS, .op = {ZMM(1), ZMM(2), ZMM(3)}}, NULL},
        {3, {.form = KI_X_VDPBF16PS, .op = {ZMM(1), ZMM(2), ZMM(3)}}, "    vdpbf16ps zmm1, zmm2, zmm3\n"},
        {3, {.form = KI_X_TILEZERO, .op = {ki_x86_reg(KI_XO_T, 3)}}, NULL},
    };
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        ki_asm a;
        ki_text list = {0};
        ki_asm_open(&a, &env, ki_cpu_level_features(at[k].level));
        a.listing = &list;
        ki_asm_ins(&a, &at[k].i);
        bool ok =
            at[k].text ? !a.failed && list.s && strcmp(list.s, at[k].text) == 0 : a.failed && env.err == KI_E_X86_LEVEL;
        CHECK(ok, "%s: %s", ki_cpu_level_names[at[k].level], list.s ? list.s + 4 : env.message.s ? env.message.s : "?");
        ki_text_free(&list);
        ki_asm_close(&a);
        ki_env_clear(&env);
    }
}

/* Any operands at all: an error or at most 15 bytes, and never a read or write elsewhere (make check). */
static void garbage(void) {
    uint64_t x = 88172645463325252u;
    size_t good = 0, n = 400000;
    bool ok = true;
    for (size_t k = 0; k < n && ok; k++) {
        ki_x86_ins i = {0};
        ki_x86_bytes b;
        uint8_t *raw = (uint8_t *)&i;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        if (k % 2) /* anything */
            for (size_t j = 0; j < sizeof i; j++)
                raw[j] = (uint8_t)((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
        i.form = (uint16_t)(x >> 20) % (KI_X_COUNT + 1);
        if (k % 2 == 0 && i.form < KI_X_COUNT) { /* near the mark: right, but for a byte */
            x86_walk w = {.f = &ki_x86_forms[i.form], .enc = 1u << x % 3, .len = (unsigned)(x >> 8) % 3, .osize = 4};
            w.n = ki_x86_operands(w.f, w.enc, w.code);
            for (unsigned j = 0; j < w.n; j++) i.op[j] = x86_held(&w, j);
            i.enc = (uint8_t)(x >> 13 & 1 ? w.enc : 0);
            if (x >> 14 & 1) raw[2 + (x >> 40) % (sizeof i - 2)] = (uint8_t)(x >> 50);
        }
        ki_x86_error e = ki_x86_encode(&i, &b);
        if (!e) good++;
        ok = e ? strcmp(ki_x86_error_text(e), "unknown error") != 0 : b.n > 0 && b.n <= 15;
        if (k % 8 == 0) {
            ki_text t = {0};
            ki_x86_print(&i, &t);
            ok = ok && t.n > 0;
            ki_text_free(&t);
        }
    }
    CHECK(ok && good > n / 20, "%zu instructions of chance: %zu encoded, the others refused", n, good);
}

static void starved(void) {
    uint64_t n = 1;
    bool ok = true;
    for (;; n++) {
        ki_asm a;
        ki_alloc_fail(n, 0);
        ki_asm_open(&a, &env, ki_cpu_features());
        uint32_t end = ki_asm_label(&a);
        for (uint64_t k = 0; k < 200; k++) {
            uint32_t c = ki_asm_const(&a, &k, 8);
            ki_asm_put(&a, KI_X_MOV_GE, R64(0), ki_x86_at(c), none);
            ki_asm_put(&a, KI_X_JNE, ki_x86_to(end), none, none);
        }
        ki_asm_bind(&a, end);
        bool done = ki_asm_finish(&a);
        ki_alloc_fail(0, 0);
        ki_asm_close(&a);
        ok = ok && done == (env.err == KI_E_NONE) && (done || env.err == KI_E_NOMEM);
        ki_env_clear(&env);
        if (done || !ok || n > 1000) break;
    }
    CHECK(ok && n > 8, "each of %llu allocations may fail", (unsigned long long)n - 1);
}

/* ---- pages --------------------------------------------------------------------------------------------------------- */

/* Mappings writable and executable at once; *exec is set if p lies in one that is executable. */
static int both(const void *p, bool *exec, bool *write) {
    char line[512], perm[5];
    unsigned long from, to;
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    if (!f) return -1;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx %4s", &from, &to, perm) != 3) continue;
        n += perm[1] == 'w' && perm[2] == 'x';
        if ((unsigned long)p >= from && (unsigned long)p < to) *exec = perm[2] == 'x', *write = perm[1] == 'w';
    }
    fclose(f);
    return n;
}

static void pages(void) {
    ki_codemem m[20];
    uint8_t code[10000];
    bool exec = false, write = true;
    memset(code, 0xc3, sizeof code);
    bool ok = true;
    for (int k = 0; k < 20; k++) ok = ki_codemem_make(&env, code, (size_t)k * 500 + 1, &m[k]) && ok;
    CHECK(ok && both(m[7].code, &exec, &write) == 0, "no page is writable and executable at once");
    CHECK(exec && !write, "code is executable and not writable");
    for (int k = 0; k < 20; k++) ki_codemem_free(&m[k]);
    CHECK(!ki_codemem_make(&env, code, 0, &m[0]) && env.err == KI_E_EXEC_MEMORY && !m[0].code, "no code, no memory: %s",
          env.message.s);
    ki_env_clear(&env);
    struct rlimit was, tight = {1 << 20, RLIM_INFINITY};
    getrlimit(RLIMIT_AS, &was);
    tight.rlim_max = was.rlim_max;
    setrlimit(RLIMIT_AS, &tight);
    bool made = ki_codemem_make(&env, code, sizeof code, &m[0]);
    setrlimit(RLIMIT_AS, &was);
    CHECK(!made && env.err == KI_E_EXEC_MEMORY, "a memory limit is said by name");
    ki_env_clear(&env);
}

static void features(void) {
#ifdef KI_CPU_MOST
    uint64_t most = ki_cpu_level_core(KI_CPU_MOST);
#else
    uint64_t most = ~UINT64_C(0);
#endif
    uint64_t f = ki_cpu_features();
    CHECK(f == ki_cpu_features() && f >> KI_CPU_SSE2 & 1, "features stay the same");
    struct {
        const char *name;
        int feature, here;
    } is[] = {
        {"avx2", KI_CPU_AVX2, __builtin_cpu_supports("avx2")},
        {"fma", KI_CPU_FMA3, __builtin_cpu_supports("fma")},
        {"bmi2", KI_CPU_BMI2, __builtin_cpu_supports("bmi2")},
        {"avx512f", KI_CPU_AVX512F, __builtin_cpu_supports("avx512f")},
        {"avx512bw", KI_CPU_AVX512BW, __builtin_cpu_supports("avx512bw")},
        {"avx512vnni", KI_CPU_AVX512VNNI, __builtin_cpu_supports("avx512vnni")},
        {"popcnt", KI_CPU_POPCNT, __builtin_cpu_supports("popcnt")},
    };
    for (size_t k = 0; k < sizeof is / sizeof *is; k++)
        CHECK((f >> is[k].feature & 1) == (is[k].here && most >> is[k].feature & 1), "%s: as the compiler finds",
              is[k].name);
    CHECK(ki_cpu_tiles() == (f >> KI_CPU_AMXTILE & 1) && ki_cpu_tiles() == (f >> KI_CPU_AMXTILE & 1),
          "the kernel lends tiles where there are some");
    CHECK(!(ki_cpu_level_features(0) & KI_CPU_BIT(KI_CPU_AVX)) && ki_cpu_level_features(1) & KI_CPU_BIT(KI_CPU_FMA3) &&
              !(ki_cpu_level_features(2) & KI_CPU_BIT(KI_CPU_AMXTILE)),
          "levels hold what they say");
}

int main(void) {
    if (!ki_env_open(&env)) return 1;
    loop(0);
    loop(100);
    pool();
    refused();
    levels();
    garbage();
    starved();
    pages();
    features();
    ki_env_close(&env);
    return tap_done();
}
