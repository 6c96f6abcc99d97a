/* probe.c: what the machine can do, for the floors of bench/speed.py: read, copy, and multiply-add as fast as it goes.
 * Loaded as a shared library; each function is one thread's share, compiled for the machine it runs on. */
#include <immintrin.h>
#include <stddef.h>

/* Sums n floats, n a multiple of 64. */
float probe_read(const float *x, size_t n) {
    __m256 s[8] = {0};
    for (size_t i = 0; i < n; i += 64)
        for (int k = 0; k < 8; k++) s[k] = _mm256_add_ps(s[k], _mm256_loadu_ps(x + i + 8 * k));
    for (int k = 1; k < 8; k++) s[0] = _mm256_add_ps(s[0], s[k]);
    return _mm256_cvtss_f32(s[0]);
}

/* Copies n floats past the caches; y is aligned to 32 bytes. */
void probe_copy(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i += 8) _mm256_stream_ps(y + i, _mm256_loadu_ps(x + i));
    _mm_sfence();
}

#ifdef __AVX512F__
enum { LANES = 16, ACCUMULATORS = 12 };
typedef __m512 lanes;
#define SET   _mm512_set1_ps
#define FMA   _mm512_fmadd_ps
#define FIRST _mm512_cvtss_f32
#else
enum { LANES = 8, ACCUMULATORS = 12 };
typedef __m256 lanes;
#define SET   _mm256_set1_ps
#define FMA   _mm256_fmadd_ps
#define FIRST _mm256_cvtss_f32
#endif

/* Does at least `flops` operations in registers; returns how many, *sink keeps them alive. */
double probe_fma(double flops, float *sink) {
    lanes a[ACCUMULATORS], m = SET(0.999f), c = SET(0.001f);
    for (int k = 0; k < ACCUMULATORS; k++) a[k] = SET((float)k);
    size_t n = (size_t)(flops / (2.0 * LANES * ACCUMULATORS)) + 1;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < ACCUMULATORS; k++) a[k] = FMA(a[k], m, c);
    *sink = 0;
    for (int k = 0; k < ACCUMULATORS; k++) *sink += FIRST(a[k]);
    return 2.0 * LANES * ACCUMULATORS * (double)n;
}
