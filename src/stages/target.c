/* target.c: the machines we write for. See target.h. */
#include "stages/target.h"

#include "base/cpuid.h"

#include <string.h>

#define BIT(op)  (UINT64_C(1) << ((op)&63))
#define W(op, w) ((op) >> 6 == (w) ? BIT(op) : 0)
#define SET(w)                                                                                                         \
    (W(KN_NEG, w) | W(KN_SUB, w) | W(KN_DIV, w) | W(KN_CMPGT, w) | W(KN_CMPGE, w) | W(KN_CMPLE, w) | W(KN_CMPEQ, w) |  \
     W(KN_NOT, w) | W(KN_SQRT, w))
#define FMA(w) (SET(w) | W(KN_MULACC, w))

/* AVX-512 without FP16 stays at one: processors that do two are not told from those that do one by their features. All that have
 * FP16 do two. */
#define TWICE(level) ((level) == KI_CPU_AVX2_LEVEL || (level) >= KI_CPU_FP16_LEVEL)
/* On a Zen 4 parts of a row side by side are no gain. */
#define STREAMS(level) ((level) >= KI_CPU_FP16_LEVEL ? 4 : 1)

#define C_TARGET(name, level, flags, vector, n, fma, stream, set)                                                      \
    {                                                                                                                  \
        name, flags, false, level, vector, n, 64, fma, true, false, stream, TWICE(level), 1, { set(0), set(1) }        \
    }
#define NATIVE(name, level, flags, vector, n, fma, set)                                                                \
    {                                                                                                                  \
        name, flags, true, level, vector, n, 64, fma, false, level >= KI_CPU_FP16_LEVEL, true, TWICE(level),           \
            STREAMS(level), {                                                                                          \
            set(0), set(1)                                                                                             \
        }                                                                                                              \
    }

#define MARCH_SSE2   "-march=x86-64"
#define MARCH_AVX2   "-march=haswell"
#define MARCH_AVX512 "-march=skylake-avx512 -mprefer-vector-width=512"

/* By level, sse2 first; a machine runs its own and those before it. Then what any machine has, then the levels again. */
static const ki_target targets[] = {
    C_TARGET("sse2", KI_CPU_SSE2_LEVEL, MARCH_SSE2, 16, 16, false, true, SET),
    C_TARGET("avx2", KI_CPU_AVX2_LEVEL, MARCH_AVX2, 32, 16, true, true, FMA),
    C_TARGET("avx512", KI_CPU_AVX512_LEVEL, MARCH_AVX512, 64, 32, true, true, FMA),
    C_TARGET("dot", KI_CPU_DOT_LEVEL, MARCH_AVX512, 64, 32, true, true, FMA),
    C_TARGET("fp16", KI_CPU_FP16_LEVEL, MARCH_AVX512, 64, 32, true, true, FMA),
    C_TARGET("amx", KI_CPU_AMX_LEVEL, MARCH_AVX512, 64, 32, true, true, FMA),
    C_TARGET("generic", KI_CPU_SSE2_LEVEL, "", 16, 32, false, false, SET),
    NATIVE("sse2", KI_CPU_SSE2_LEVEL, MARCH_SSE2, 16, 16, false, SET),
    NATIVE("avx2", KI_CPU_AVX2_LEVEL, MARCH_AVX2, 32, 16, true, FMA),
    NATIVE("avx512", KI_CPU_AVX512_LEVEL, MARCH_AVX512, 64, 32, true, FMA),
    NATIVE("dot", KI_CPU_DOT_LEVEL, MARCH_AVX512, 64, 32, true, FMA),
    NATIVE("fp16", KI_CPU_FP16_LEVEL, MARCH_AVX512, 64, 32, true, FMA),
    NATIVE("amx", KI_CPU_AMX_LEVEL, MARCH_AVX512, 64, 32, true, FMA),
};
enum { GENERIC = KI_CPU_LEVELS, FIRST_NATIVE };

const ki_target *ki_target_named(const char *name) {
    for (size_t i = 0; i < FIRST_NATIVE; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}

const ki_target *ki_target_native(const char *name) {
    for (size_t i = FIRST_NATIVE; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}

const ki_target *ki_target_host(void) {
#if defined(__x86_64__)
    return &targets[ki_cpu_host_level()];
#else
    return &targets[GENERIC];
#endif
}

bool ki_target_takes_panels(const ki_target *t) { return t->native && t->level >= KI_CPU_AVX512_LEVEL; }

/* `here`: code of it runs on this machine. */
static bool runs(const ki_target *t, bool here) {
    const ki_target *host = ki_target_host();
    if (!here || t == &targets[GENERIC]) return true; /* it needs less than any other */
    return host != &targets[GENERIC] && t->level <= host->level;
}

const ki_target *ki_target_chosen(ki_env *env, bool here) {
    const char *set = ki_setting(env, KI_VAR_CPU), *code = ki_setting(env, KI_VAR_CODE);
    bool native = *code ? strcmp(code, "x86") == 0 : ki_target_host() != &targets[GENERIC];
    const char *name = *set ? set : ki_target_host()->name;
    const ki_target *t = native ? ki_target_native(name) : ki_target_named(name);
    if (t && runs(t, here)) return t;
    ki_text offers = {0};
    for (const ki_target *l = targets; l < &targets[GENERIC]; l++)
        if (runs(l, here)) ki_text_printf(&offers, "%s%s", l > targets ? ", " : "", l->name);
    ki_fail(env, KI_E_CPU_LEVEL, name, offers.s ? offers.s : ki_target_host()->name);
    ki_text_free(&offers);
    return NULL;
}
