/* probe.c: what the machine can do: the ceilings of `make bench`. Loaded as a shared library, compiled for the machine it runs on.
 * A rate is the work of all threads over the time from when they began together to when the last one ended. Each thread has a processor of its
 * own, if there are as many: new threads that share one for some milliseconds would measure half of the machine. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#ifdef __AMX_TILE__
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum { MOST = 64 }; /* threads */
/* Kinds, in the order of KINDS in ceilings.py. */
enum kind { FMA, DOT_BF16, DOT_I8, AMX_BF16, AMX_I8, READ, COPY, TRIAD };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- arithmetic in registers: operations done -------------------------------------------------------------------- */

enum { ACCUMULATORS = 12, TURNS = 1 << 21 };
static volatile float sink;

#ifdef __AVX512F__
enum { LANES = 16 };
typedef __m512 lanes;
#define SET    _mm512_set1_ps
#define MULACC _mm512_fmadd_ps
#define FIRST  _mm512_cvtss_f32
#else
enum { LANES = 8 };
typedef __m256 lanes;
#define SET    _mm256_set1_ps
#define MULACC _mm256_fmadd_ps
#define FIRST  _mm256_cvtss_f32
#endif

static double fma_peak(void) {
    lanes a[ACCUMULATORS], m = SET(0.999f), c = SET(0.001f);
    for (int k = 0; k < ACCUMULATORS; k++) a[k] = SET((float)k);
    for (int i = 0; i < TURNS; i++)
        for (int k = 0; k < ACCUMULATORS; k++) a[k] = MULACC(a[k], m, c);
    for (int k = 0; k < ACCUMULATORS; k++) sink += FIRST(a[k]);
    return 2.0 * LANES * ACCUMULATORS * TURNS;
}

static double dot_bf16_peak(void) {
#ifdef __AVX512BF16__
    __m512 a[ACCUMULATORS];
    __m512i bits = _mm512_set1_epi16(0x3c01); /* small */
    __m512bh x = (__m512bh)bits;
    for (int k = 0; k < ACCUMULATORS; k++) a[k] = _mm512_set1_ps((float)k);
    for (int i = 0; i < TURNS; i++)
        for (int k = 0; k < ACCUMULATORS; k++) a[k] = _mm512_dpbf16_ps(a[k], x, x);
    for (int k = 0; k < ACCUMULATORS; k++) sink += _mm512_cvtss_f32(a[k]);
    return 2.0 * 32 * ACCUMULATORS * TURNS;
#else
    return 0;
#endif
}

static double dot_i8_peak(void) {
#ifdef __AVX512VNNI__
    __m512i a[ACCUMULATORS], x = _mm512_set1_epi8(3);
    for (int k = 0; k < ACCUMULATORS; k++) a[k] = _mm512_set1_epi32(k);
    for (int i = 0; i < TURNS; i++)
        for (int k = 0; k < ACCUMULATORS; k++) a[k] = _mm512_dpbusd_epi32(a[k], x, x);
    for (int k = 0; k < ACCUMULATORS; k++) sink += (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(a[k]));
    return 2.0 * 64 * ACCUMULATORS * TURNS;
#else
    return 0;
#endif
}

#if defined __AMX_TILE__ && defined __AMX_BF16__ && defined __AMX_INT8__
#define EACH(a, b, c, d)                                                                                               \
    do {                                                                                                               \
        a;                                                                                                             \
        b;                                                                                                             \
        c;                                                                                                             \
        d;                                                                                                             \
    } while (0) /* gcc's are statements */
enum { TILE_PERMISSION = 0x1023, TILE_DATA = 18, TILES = 8, TILE_TURNS = 1 << 17 };
typedef struct tile_config {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tile_config;

/* Four accumulators, two tiles on either side, random enough: tiles of zeros run faster. */
static double tile_peak(enum kind kind) {
    static int8_t data[2][1024];
    if (syscall(SYS_arch_prctl, TILE_PERMISSION, TILE_DATA)) return 0;
    tile_config c = {.palette = 1};
    for (int t = 0; t < TILES; t++) c.bytes[t] = 64, c.rows[t] = 16;
    for (int i = 0; i < 1024; i++)
        data[0][i] = (int8_t)(i % 2 ? 0x3c : i * 37), data[1][i] = (int8_t)(i % 2 ? 0x3b : i * 91);
    _tile_loadconfig(&c);
    EACH(_tile_zero(0), _tile_zero(1), _tile_zero(2), _tile_zero(3));
    EACH(_tile_loadd(4, data[0], 64), _tile_loadd(5, data[1], 64), _tile_loadd(6, data[1], 64),
         _tile_loadd(7, data[0], 64));
    if (kind == AMX_BF16)
        for (int i = 0; i < TILE_TURNS; i++)
            EACH(_tile_dpbf16ps(0, 4, 6), _tile_dpbf16ps(1, 4, 7), _tile_dpbf16ps(2, 5, 6), _tile_dpbf16ps(3, 5, 7));
    else
        for (int i = 0; i < TILE_TURNS; i++)
            EACH(_tile_dpbssd(0, 4, 6), _tile_dpbssd(1, 4, 7), _tile_dpbssd(2, 5, 6), _tile_dpbssd(3, 5, 7));
    _tile_release();
    return 4.0 * TILE_TURNS * 2 * 16 * 16 * (kind == AMX_BF16 ? 32 : 64);
}
#else
static double tile_peak(enum kind kind) {
    (void)kind;
    return 0;
}
#endif

/* ---- memory: bytes moved. Each thread has its part of three arrays of 128 MiB, or of one as large as is asked for --- */

enum { FLOATS = 32 << 20 };
static float *array[3];

/* How a thread goes through its part. Which is fastest the processor decides: one that fetches ahead by itself may do so for several places at once,
 * better than for one. */
typedef struct way {
    size_t parts,
        ahead; /* places beside each other, far apart; bytes from there on that are asked for, 0: nothing is */
} way;
static const way ways[] = {{1, 0}, {1, 4096}, {2, 0}, {4, 0}};
enum { WAYS = sizeof ways / sizeof *ways, BLOCK = 32 };

static double read_all(const float *a, size_t n, way w) {
    __m256 s[BLOCK / 8] = {_mm256_setzero_ps()};
    size_t part = n / w.parts / BLOCK * BLOCK;
    for (size_t i = 0; i < part; i += BLOCK)
        for (size_t p = 0; p < w.parts; p++)
            for (size_t k = 0; k < BLOCK; k += 8) {
                const float *at = a + p * part + i + k;
                if (w.ahead && k % 16 == 0) _mm_prefetch((const char *)at + w.ahead, _MM_HINT_T1);
                s[k / 8] = _mm256_add_ps(s[k / 8], _mm256_load_ps(at));
            }
    for (int k = 0; k < BLOCK / 8; k++) sink += _mm256_cvtss_f32(s[k]);
    return (double)(part * w.parts) * sizeof(float);
}

static double memory_rate(enum kind kind, size_t from, size_t n, way w) {
    size_t part = n / w.parts / BLOCK * BLOCK;
    float *a = array[0] + from, *b = array[1] + from, *c = array[2] + from;
    __m256 three = _mm256_set1_ps(3);
    for (size_t i = 0; i < part; i += BLOCK)
        for (size_t p = 0; p < w.parts; p++)
            for (size_t j = p * part + i; j < p * part + i + BLOCK; j += 8)
                if (kind == COPY) _mm256_stream_ps(b + j, _mm256_load_ps(a + j));
                else _mm256_stream_ps(c + j, _mm256_fmadd_ps(three, _mm256_load_ps(a + j), _mm256_load_ps(b + j)));
    _mm_sfence();
    return (double)(part * w.parts) * sizeof(float) * (kind == COPY ? 2 : 3);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct share {
    enum kind kind;
    const float *read;
    size_t from, n;
    way way;
    int number; /* of the thread */
    pthread_barrier_t *gate;
    double work, begun, ended;
} share;

/* The number-th of the processors that we may use. */
static void settle(int number) {
    cpu_set_t may, mine;
    if (sched_getaffinity(0, sizeof may, &may) || !CPU_COUNT(&may)) return;
    number %= CPU_COUNT(&may);
    for (int c = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &may) && !number--) {
            CPU_ZERO(&mine);
            CPU_SET(c, &mine);
            sched_setaffinity(0, sizeof mine, &mine);
            return;
        }
}

static void *work(void *user) {
    share *s = user;
    settle(s->number);
    pthread_barrier_wait(s->gate);
    s->begun = now();
    switch (s->kind) {
    case FMA: s->work = fma_peak(); break;
    case DOT_BF16: s->work = dot_bf16_peak(); break;
    case DOT_I8: s->work = dot_i8_peak(); break;
    case AMX_BF16:
    case AMX_I8: s->work = tile_peak(s->kind); break;
    case READ: s->work = read_all(s->read + s->from, s->n, s->way); break;
    default: s->work = memory_rate(s->kind, s->from, s->n, s->way);
    }
    s->ended = now();
    return NULL;
}

static int open_arrays(void) {
    for (int i = 0; i < 3; i++) {
        if (!array[i]) array[i] = aligned_alloc(1 << 21, sizeof(float) * FLOATS);
        if (!array[i]) return 0;
        for (size_t j = 0; j < FLOATS; j++) array[i][j] = (float)(i + 1);
    }
    return 1;
}

/* Of FLOATS a thread's part, or of n that are read. Operations or bytes a second; 0 where the processor has none of it; -1: out of memory or
 * threads. */
static double rate(enum kind kind, int threads, const float *read, size_t n, way w) {
    pthread_t id[MOST];
    share s[MOST];
    pthread_barrier_t gate;
    pthread_barrier_init(&gate, NULL, (unsigned)threads);
    size_t part = n / (size_t)threads / 64 * 64;
    for (int i = 0; i < threads; i++) {
        s[i] = (share){kind, read, part * (size_t)i, part, w, i, &gate, 0, 0, 0};
        if (pthread_create(&id[i], NULL, work, &s[i])) return -1;
    }
    double done = 0, begun = 0, ended = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(id[i], NULL);
        done += s[i].work;
        if (!i || s[i].begun < begun) begun = s[i].begun;
        if (!i || s[i].ended > ended) ended = s[i].ended;
    }
    pthread_barrier_destroy(&gate);
    return done / (ended - begun);
}

/* Memory's rate by the way that is best now; nobody asks for what is copied. */
static double best_rate(enum kind kind, int threads, const float *read, size_t n) {
    double best = -1;
    for (int i = 0; i < WAYS; i++) {
        double r = kind != READ && ways[i].ahead ? -1 : rate(kind, threads, read, n, ways[i]);
        if (r > best) best = r;
    }
    return best;
}

double probe_rate(int kind, int threads) {
    if (threads < 1 || threads > MOST || (kind >= READ && !array[2] && !open_arrays())) return -1;
    return kind >= READ ? best_rate((enum kind)kind, threads, array[0], FLOATS)
                        : rate((enum kind)kind, threads, NULL, FLOATS, ways[0]);
}

/* The best rate of `times` at which so many bytes are read, which a last cache that holds the arrays above may not hold; -1: out of memory. */
double probe_read(double bytes, int threads, int times) {
    static float *a; /* kept: it is asked for again, by turns with what it is compared with */
    static size_t kept;
    size_t n = (size_t)bytes / sizeof(float) / 64 * 64;
    double best = -1;
    if (threads < 1 || threads > MOST || !n) return best;
    if (n != kept) {
        free(a);
        a = aligned_alloc(1 << 21, (n * sizeof *a + (1 << 21) - 1) >> 21 << 21);
        kept = a ? n : 0;
        for (size_t i = 0; i < kept; i++) a[i] = 1;
    }
    for (int i = 0; a && i < times; i++) {
        double r = best_rate(READ, threads, a, n);
        if (r > best) best = r;
    }
    return best;
}
