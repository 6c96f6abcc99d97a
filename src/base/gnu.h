/* gnu.h: the one header through which GNU extensions enter. Everything else is C17. */
#ifndef KI_GNU_H
#define KI_GNU_H

#if defined(__GNUC__)
#include <malloc.h>
#define ki_malloc_room(p) malloc_usable_size(p) /* bytes that may be written at what malloc gave */
#define KI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define KI_NODISCARD __attribute__((warn_unused_result))
#define KI_KEPT __attribute__((used))
#define KI_NOINLINE __attribute__((noinline, used))
#define KI_OPAQUE() __asm__ volatile("" ::: "memory") /* an empty function that calls are not removed to */
#define KI_HOT __attribute__((hot))
#define KI_COLD __attribute__((cold)) /* what leads here is unlikely, and lies apart */
#define KI_INLINED inline __attribute__((always_inline))
#if defined(__x86_64__)
#define KI_AVX512 __attribute__((target("avx512f,avx512cd,avx512bw,avx512dq,avx512vl"))) /* asked of cpuid.h first */
#endif
#define KI_LIKELY(x) __builtin_expect(!!(x), 1)
#define KI_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define ki_add_overflow(a, b, r) __builtin_add_overflow(a, b, r)
#define ki_sub_overflow(a, b, r) __builtin_sub_overflow(a, b, r)
#define ki_mul_overflow(a, b, r) __builtin_mul_overflow(a, b, r)
#define ki_clz64(x) __builtin_clzll(x)
#define ki_ctz64(x) __builtin_ctzll(x)
__extension__ typedef __int128 ki_int128;
#else
#error "koine needs gcc or clang (GNU C17)"
#endif

#endif
