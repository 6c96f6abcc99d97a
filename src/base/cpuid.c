/* cpuid.c: see cpuid.h. */
#include "base/cpuid.h"

#include "base/gnu.h"
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

const char *const ki_cpu_feature_names[KI_CPU_COUNT] = {
#define X(name, level) #name,
    KI_CPU_FEATURES(X)
#undef X
};
const char *const ki_cpu_level_names[KI_CPU_LEVELS] = {"sse2", "avx2", "avx512", "dot", "fp16", "amx"};

static const uint8_t level_of[KI_CPU_COUNT] = {
#define X(name, level) level,
    KI_CPU_FEATURES(X)
#undef X
};

uint64_t ki_cpu_level_features(unsigned level) {
    uint64_t f = 0;
    for (unsigned k = 0; k < KI_CPU_COUNT; k++)
        if (level_of[k] <= level) f |= KI_CPU_BIT(k);
    return f;
}

#define HAS(f) KI_CPU_BIT(KI_CPU_##f)

#if defined(__x86_64__)

enum { LEAF1, LEAF7, LEAF7_1, LEAF80000001 };
enum { EAX, EBX, ECX, EDX };
enum { NO_STATE, AVX_STATE, AVX512_STATE, TILE_STATE };

static const struct {
    uint8_t feature, leaf, reg, bit, state;
} bits[] = {
    {KI_CPU_SSE3, LEAF1, ECX, 0, NO_STATE},
    {KI_CPU_SSSE3, LEAF1, ECX, 9, NO_STATE},
    {KI_CPU_SSE41, LEAF1, ECX, 19, NO_STATE},
    {KI_CPU_SSE42, LEAF1, ECX, 20, NO_STATE},
    {KI_CPU_POPCNT, LEAF1, ECX, 23, NO_STATE},
    {KI_CPU_LZCNT, LEAF80000001, ECX, 5, NO_STATE},
    {KI_CPU_BMI1, LEAF7, EBX, 3, NO_STATE},
    {KI_CPU_BMI2, LEAF7, EBX, 8, NO_STATE},
    {KI_CPU_AVX, LEAF1, ECX, 28, AVX_STATE},
    {KI_CPU_FMA3, LEAF1, ECX, 12, AVX_STATE},
    {KI_CPU_F16C, LEAF1, ECX, 29, AVX_STATE},
    {KI_CPU_AVX2, LEAF7, EBX, 5, AVX_STATE},
    {KI_CPU_AVXVNNI, LEAF7_1, EAX, 4, AVX_STATE},
    {KI_CPU_AVXVNNIINT8, LEAF7_1, EDX, 4, AVX_STATE},
    {KI_CPU_AVX512F, LEAF7, EBX, 16, AVX512_STATE},
    {KI_CPU_AVX512DQ, LEAF7, EBX, 17, AVX512_STATE},
    {KI_CPU_AVX512CD, LEAF7, EBX, 28, AVX512_STATE},
    {KI_CPU_AVX512BW, LEAF7, EBX, 30, AVX512_STATE},
    {KI_CPU_AVX512VL, LEAF7, EBX, 31, AVX512_STATE},
    {KI_CPU_AVX512VBMI, LEAF7, ECX, 1, AVX512_STATE},
    {KI_CPU_AVX512VNNI, LEAF7, ECX, 11, AVX512_STATE},
    {KI_CPU_AVX512VPOPCNT, LEAF7, ECX, 14, AVX512_STATE},
    {KI_CPU_AVX512FP16, LEAF7, EDX, 23, AVX512_STATE},
    {KI_CPU_AVX512BF16, LEAF7_1, EAX, 5, AVX512_STATE},
    {KI_CPU_AMXBF16, LEAF7, EDX, 22, TILE_STATE},
    {KI_CPU_AMXTILE, LEAF7, EDX, 24, TILE_STATE},
    {KI_CPU_AMXINT8, LEAF7, EDX, 25, TILE_STATE},
    {KI_CPU_AMXFP16, LEAF7_1, EAX, 21, TILE_STATE},
};

/* Register sets that the system saves, as a bit set of the states above. */
static unsigned saved_states(unsigned leaf1_ecx) {
    if (!(leaf1_ecx >> 27 & 1)) return 1u << NO_STATE; /* no XGETBV */
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    unsigned s = 1u << NO_STATE;
    if ((lo & 0x6) == 0x6) s |= 1u << AVX_STATE;
    if ((lo & 0xe6) == 0xe6) s |= 1u << AVX512_STATE;
    if ((lo & 0x60000) == 0x60000) s |= 1u << TILE_STATE;
    return s;
}

static uint64_t detect(void) {
    unsigned r[4][4] = {{0}};
    unsigned most = (unsigned)__get_cpuid_max(0, NULL);
    if (most >= 1) __cpuid(1, r[LEAF1][EAX], r[LEAF1][EBX], r[LEAF1][ECX], r[LEAF1][EDX]);
    if (most >= 7) {
        __cpuid_count(7, 0, r[LEAF7][EAX], r[LEAF7][EBX], r[LEAF7][ECX], r[LEAF7][EDX]);
        if (r[LEAF7][EAX] >= 1) __cpuid_count(7, 1, r[LEAF7_1][EAX], r[LEAF7_1][EBX], r[LEAF7_1][ECX], r[LEAF7_1][EDX]);
    }
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) >= 0x80000001u)
        __cpuid(0x80000001u, r[LEAF80000001][EAX], r[LEAF80000001][EBX], r[LEAF80000001][ECX], r[LEAF80000001][EDX]);
    unsigned saved = saved_states(r[LEAF1][ECX]);
    uint64_t f = HAS(BASE) | HAS(SSE2);
    for (size_t k = 0; k < sizeof bits / sizeof *bits; k++)
        if (saved >> bits[k].state & 1 && r[bits[k].leaf][bits[k].reg] >> bits[k].bit & 1)
            f |= KI_CPU_BIT(bits[k].feature);
    return f;
}

static const struct {
    char vendor[13];
    unsigned family;
    uint64_t under_way;
} families[] = {
    {"AuthenticAMD", 26, 16 << 10}, /* Zen 5 */
};

static uint64_t under_way(void) {
    unsigned r[4] = {0}, vendor[3];
    __cpuid(0, r[EAX], r[EBX], r[ECX], r[EDX]);
    vendor[0] = r[EBX], vendor[1] = r[EDX], vendor[2] = r[ECX];
    __cpuid(1, r[EAX], r[EBX], r[ECX], r[EDX]);
    unsigned family = r[EAX] >> 8 & 15;
    if (family == 15) family += r[EAX] >> 20 & 255;
    for (unsigned k = 0; k < sizeof families / sizeof *families; k++)
        if (families[k].family == family && !memcmp(families[k].vendor, vendor, sizeof vendor))
            return families[k].under_way;
    return 0;
}

uint64_t ki_cpu_under_way(void) {   /* asked once: where the processor is shared the question takes microseconds */
    static _Atomic(uint64_t) known; /* 1 + it */
    uint64_t n = atomic_load(&known);
    if (!n) atomic_store(&known, n = 1 + under_way());
    return n - 1;
}

uint64_t ki_cpu_model(void) {
    unsigned r[4] = {0};
    uint64_t h = 0;
    for (unsigned leaf = 0; leaf <= 1; leaf++) { /* who made it; which family, model and stepping */
        __cpuid(leaf, r[EAX], r[EBX], r[ECX], r[EDX]);
        if (leaf == 1) r[EBX] = r[ECX] = r[EDX] = 0; /* of this core, and what it has */
        h = ki_hash_bytes(h, r, sizeof r);
    }
    for (unsigned leaf = 0x80000002u; leaf <= 0x80000004u && leaf <= (unsigned)__get_cpuid_max(0x80000000u, NULL);
         leaf++) {
        __cpuid(leaf, r[EAX], r[EBX], r[ECX], r[EDX]);
        h = ki_hash_bytes(h, r, sizeof r);
    }
    return h;
}

bool ki_cpu_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    static atomic_int state; /* 0 not asked, 1 no, 2 yes */
    int s = atomic_load(&state);
    if (!s) {
        bool yes =
            ki_cpu_features() & HAS(AMXTILE) && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
        atomic_store(&state, s = yes ? 2 : 1);
    }
    return s == 2;
}

#else

static uint64_t detect(void) { return HAS(BASE); }
uint64_t ki_cpu_under_way(void) { return 0; }
uint64_t ki_cpu_model(void) { return 0; }
bool ki_cpu_tiles(void) { return false; }

#endif

uint64_t ki_cpu_level_core(unsigned level) {
    static const uint64_t core[KI_CPU_LEVELS] = {
        HAS(BASE) | HAS(SSE2),
        HAS(SSE3) | HAS(SSSE3) | HAS(SSE41) | HAS(SSE42) | HAS(POPCNT) | HAS(AVX) | HAS(AVX2) | HAS(FMA3) | HAS(BMI1) |
            HAS(BMI2) | HAS(LZCNT) | HAS(F16C),
        HAS(AVX512F) | HAS(AVX512BW) | HAS(AVX512DQ) | HAS(AVX512VL) | HAS(AVX512CD),
        HAS(AVX512VNNI) | HAS(AVX512BF16),
        HAS(AVX512FP16),
        HAS(AMXTILE) | HAS(AMXINT8) | HAS(AMXBF16),
    };
    uint64_t f = 0;
    for (unsigned k = 0; k <= level && k < KI_CPU_LEVELS; k++) f |= core[k];
    return f;
}

uint64_t ki_cpu_features(void) {
    static _Atomic uint64_t known;
    uint64_t f = atomic_load(&known);
    if (!f) {
        f = detect();
#ifdef KI_CPU_MOST /* tests: as the least processor of that level */
        f &= ki_cpu_level_core(KI_CPU_MOST);
#endif
        atomic_store(&known, f);
    }
    return f;
}

ki_cpu_level ki_cpu_host_level(void) {
    unsigned level = 0;
    uint64_t f = ki_cpu_features();
    while (level + 1 < KI_CPU_LEVELS && !(ki_cpu_level_core(level + 1) & ~f)) level++;
    if (level == KI_CPU_AMX_LEVEL && !ki_cpu_tiles()) level--;
    return (ki_cpu_level)level;
}
