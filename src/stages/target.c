/* target.c: the machines we write C for. See target.h. */
#include "stages/target.h"

#include "base/cpuid.h"

#include <string.h>

#define BIT(op)  (UINT64_C(1) << ((op)&63))
#define W(op, w) ((op) >> 6 == (w) ? BIT(op) : 0)
#define SET(w)                                                                                                         \
    (W(KN_NEG, w) | W(KN_SUB, w) | W(KN_DIV, w) | W(KN_CMPGT, w) | W(KN_CMPGE, w) | W(KN_CMPLE, w) | W(KN_CMPEQ, w) |  \
     W(KN_NOT, w) | W(KN_SQRT, w))
#define FMA(w) (SET(w) | W(KN_MULACC, w))

/* By level, sse2 first; a machine runs its own and those before it. */
static const ki_target targets[] = {
    {"sse2", "-march=x86-64", 16, 16, 64, false, true, true, {SET(0), SET(1)}},
    {"avx2", "-march=haswell", 32, 16, 64, true, true, true, {FMA(0), FMA(1)}},
    {"avx512", "-march=skylake-avx512 -mprefer-vector-width=512", 64, 32, 64, true, true, true, {FMA(0), FMA(1)}},
    {"amx", "-march=skylake-avx512 -mprefer-vector-width=512", 64, 32, 64, true, true, true, {FMA(0), FMA(1)}},
    {"generic", "", 16, 32, 64, false, true, false, {SET(0), SET(1)}},
};

const ki_target *ki_target_named(const char *name) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (strcmp(targets[i].name, name) == 0) return &targets[i];
    return NULL;
}

const ki_target *ki_target_host(void) {
#if defined(__x86_64__)
    return &targets[ki_cpu_host_level()];
#else
    return &targets[KI_CPU_LEVELS];
#endif
}

const ki_target *ki_target_chosen(ki_env *env, bool here) {
    const char *set = ki_setting(env, KI_VAR_CPU);
    const ki_target *host = ki_target_host(), *t = *set ? ki_target_named(set) : host;
    /* `generic` needs less than any other. */
    if (t && (!here || t <= host || t == &targets[KI_CPU_LEVELS])) return t;
    ki_text offers = {0};
    for (const ki_target *l = targets; l < targets + KI_CPU_LEVELS && (l <= host || !here); l++)
        ki_text_printf(&offers, "%s%s", l > targets ? ", " : "", l->name);
    ki_fail(env, KI_E_CPU_LEVEL, set, offers.s ? offers.s : host->name);
    ki_text_free(&offers);
    return NULL;
}
