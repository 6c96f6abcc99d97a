/* cpuid.h: what this processor offers and the system lets a process use, and the levels that KN_CPU names.
 *
 * A feature counts when the processor has it and the operating system saves its registers (XCR0); the tiles of AMX need the
 * kernel's permission besides, which ki_cpu_tiles asks for. */
#ifndef KI_CPUID_H
#define KI_CPUID_H

#include <stdbool.h>
#include <stdint.h>

/* name, level that has it: 0 sse2, 1 avx2, 2 avx512, 3 dot, 4 fp16, 5 amx */
#define KI_CPU_FEATURES(X)                                                                                             \
    X(BASE, 0) X(SSE2, 0) X(SSE3, 1) X(SSSE3, 1) X(SSE41, 1) X(SSE42, 1) X(POPCNT, 1) X(LZCNT, 1) X(BMI1, 1) X(BMI2, 1) \
    X(AVX, 1) X(AVX2, 1) X(FMA3, 1) X(F16C, 1) X(AVXVNNI, 1)                                                           \
    X(AVX512F, 2) X(AVX512CD, 2) X(AVX512BW, 2) X(AVX512DQ, 2) X(AVX512VL, 2) X(AVX512VBMI, 2) X(AVX512VNNI, 3)        \
    X(AVX512VPOPCNT, 2) X(AVX512BF16, 3) X(AVX512FP16, 4)                                                              \
    X(AMXTILE, 5) X(AMXINT8, 5) X(AMXBF16, 5) X(AMXFP16, 5) X(AVXVNNIINT8, 5)
typedef enum ki_cpu_feature {
#define X(name, level) KI_CPU_##name,
    KI_CPU_FEATURES(X)
#undef X
        KI_CPU_COUNT
} ki_cpu_feature;
extern const char *const ki_cpu_feature_names[KI_CPU_COUNT];
#define KI_CPU_BIT(f) (UINT64_C(1) << (f))

/* One bit a feature. Asked once, then remembered; any thread. */
uint64_t ki_cpu_features(void);
/* Features up to a level, whatever the processor. */
uint64_t ki_cpu_level_features(unsigned level);

typedef enum ki_cpu_level {
    KI_CPU_SSE2_LEVEL,
    KI_CPU_AVX2_LEVEL,
    KI_CPU_AVX512_LEVEL,
    KI_CPU_DOT_LEVEL,
    KI_CPU_FP16_LEVEL,
    KI_CPU_AMX_LEVEL,
    KI_CPU_LEVELS
} ki_cpu_level;
extern const char *const ki_cpu_level_names[KI_CPU_LEVELS];
/* What a machine must have to be of a level: all that code for the level may use unasked. */
uint64_t ki_cpu_level_core(unsigned level);
/* The highest level whose core features are all there; amx if the kernel lets this process use tiles, which it is asked here. */
ki_cpu_level ki_cpu_host_level(void);

/* A number that differs where the processor's model does. */
uint64_t ki_cpu_model(void);

/* Bytes along memory that a core must have under way for all of memory's rate, which is that rate times its latency: of a family, as
 * measured. 0: as most, a few KiB. */
uint64_t ki_cpu_under_way(void);

/* Asks the kernel to let this process use tiles (arch_prctl); true if it may. Once a process; any thread. */
bool ki_cpu_tiles(void);

#endif
