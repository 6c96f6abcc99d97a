/* accuracy.c: how far the functions that select writes as straight-line code lie from the true values. On demand
 * (`make accuracy`; docs/accuracy.md holds its results): f32 functions of one argument are tried on all 2^32 inputs
 * against libm in double, f64 and functions of two arguments on a dense sample against libm in long double.
 *
 *   accuracy [-j threads] [-s stride] [-t level] [FUNCTION[:f32|:f64]]...
 *
 * Each as machine code and as C, at every level that this processor has (-t: at one).
 *
 * An error is counted in units in the last place of the true value; an infinity stands for 2^128 (2^1024), so that
 * a result one step before or after overflow counts as such. A wrong NaN, sign of zero or infinity is an error of 1e9. */
#include "math_cases.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

enum { BLOCK = 1 << 14, TARGETS = 6 };

/* libm's functions on four doubles, where it has them, spare most of the time: what they are good for is to show that a
 * result is within 0.7 ulp; for any other the plain function is asked. */
typedef double four __attribute__((vector_size(32)));
typedef four wide_fn(four);

typedef struct worst {
    double ulp, x, y, want, got;
    uint64_t over; /* inputs with more than one ulp */
} worst;

typedef struct job {
    const function *f;
    kn_dtype t;
    wide_fn *wide;
    kernel_fn *kernel[TARGETS];
    unsigned ntarget;
    uint64_t stride, blocks;
    _Atomic uint64_t next;
    pthread_mutex_t lock;
    worst w[TARGETS];
} job;

static void note(worst *w, double u, double x, double y, double want, double got) {
    if (u > 1) w->over++;
    if (!(u <= w->ulp)) *w = (worst){u, x, y, want, got, w->over};
}

/* b: of other inputs. */
static void join(worst *w, const worst *b) {
    uint64_t over = w->over + b->over;
    if (!(b->ulp <= w->ulp)) *w = *b;
    w->over = over;
}

/* Whether an earlier target gave these very bits, and which: its errors are this one's. */
static bool seen_before(void *const *out, unsigned t, size_t bytes, unsigned *as) {
    for (*as = 0; *as < t; ++*as)
        if (memcmp(out[*as], out[t], bytes) == 0) return true;
    return false;
}

static wide_fn *find_wide(const char *name) {
    char symbol[32];
    void *lib = __builtin_cpu_supports("avx2") ? dlopen("libmvec.so.1", RTLD_NOW) : NULL;
    snprintf(symbol, sizeof symbol, "_ZGVdN4v_%s", name);
    return lib ? (wide_fn *)(uintptr_t)dlsym(lib, symbol) : NULL;
}

__attribute__((target("avx2"))) static void wide_f32(wide_fn *f, const float *x, double *want) {
    for (int k = 0; k < BLOCK; k += 4) {
        four v = f((four){(double)x[k], (double)x[k + 1], (double)x[k + 2], (double)x[k + 3]});
        memcpy(&want[k], &v, sizeof v);
    }
}

static void block_f32(job *j, uint64_t first, float *x, float *y, void *const *out, worst *w) {
    static _Thread_local double want[BLOCK];
    worst here[TARGETS] = {{0}};
    for (uint64_t k = 0; k < BLOCK; k++) {
        uint32_t b = (uint32_t)((first + k) * j->stride);
        if (j->f->binary) pair_f32(first + k, &x[k], &y[k]);
        else memcpy(&x[k], &b, 4);
        if (j->f->binary) want[k] = pow((double)x[k], (double)y[k]);
        else if (!j->wide) want[k] = j->f->f64((double)x[k]);
    }
    if (j->wide) wide_f32(j->wide, x, want);
    for (unsigned t = 0, as; t < j->ntarget; t++) {
        const float *got = out[t];
        j->kernel[t]((void *[]){out[t], x, y}, NULL, 0);
        if (seen_before(out, t, BLOCK * sizeof *got, &as)) here[t] = here[as];
        else
            for (int k = 0; k < BLOCK; k++) {
                double u = ulp_f32(got[k], want[k]);
                if (j->wide && !(u <= 0.7)) want[k] = j->f->f64((double)x[k]), u = ulp_f32(got[k], want[k]);
                note(&here[t], u, (double)x[k], (double)y[k], want[k], (double)got[k]);
            }
        join(&w[t], &here[t]);
    }
}

static void block_f64(job *j, uint64_t first, double *x, double *y, void *const *out, worst *w) {
    static _Thread_local long double want[BLOCK];
    worst here[TARGETS] = {{0}};
    for (uint64_t k = 0; k < BLOCK; k++) {
        sample_f64(j->f, (first + k) * j->stride, &x[k], &y[k]);
        want[k] = j->f->binary ? powl(x[k], y[k]) : j->f->f80(x[k]);
    }
    for (unsigned t = 0, as; t < j->ntarget; t++) {
        const double *got = out[t];
        j->kernel[t]((void *[]){out[t], x, y}, NULL, 0);
        if (seen_before(out, t, BLOCK * sizeof *got, &as)) here[t] = here[as];
        else
            for (int k = 0; k < BLOCK; k++)
                note(&here[t], ulp_f64(got[k], want[k]), x[k], y[k], (double)want[k], got[k]);
        join(&w[t], &here[t]);
    }
}

static void *work(void *arg) {
    job *j = arg;
    size_t bytes = BLOCK * (j->t == KN_F32 ? 4 : 8);
    void *x = aligned_alloc(64, bytes), *y = aligned_alloc(64, bytes), *out[TARGETS];
    worst w[TARGETS] = {{0}};
    for (unsigned t = 0; t < j->ntarget; t++) out[t] = aligned_alloc(64, bytes);
    memset(y, 0, bytes);
    for (uint64_t b; (b = atomic_fetch_add(&j->next, 1)) < j->blocks;)
        if (j->t == KN_F32) block_f32(j, b * BLOCK, x, y, out, w);
        else block_f64(j, b * BLOCK, x, y, out, w);
    pthread_mutex_lock(&j->lock);
    for (unsigned t = 0; t < j->ntarget; t++) join(&j->w[t], &w[t]), free(out[t]);
    pthread_mutex_unlock(&j->lock);
    free(x), free(y);
    return NULL;
}

static void measure(const function *f, kn_dtype t, const ki_target *const *targets, unsigned n, uint64_t stride,
                    int threads) {
    job j = {.f = f, .t = t, .ntarget = n, .stride = stride, .lock = PTHREAD_MUTEX_INITIALIZER};
    bool all = t == KN_F32 && !f->binary;
    if (all) j.wide = find_wide(ki_ops[f->op].name);
    j.blocks = ((all ? UINT64_C(1) << 32 : UINT64_C(1) << 27) / stride + BLOCK - 1) / BLOCK;
    for (unsigned k = 0; k < n; k++) {
        char name[32];
        snprintf(name, sizeof name, "k_%s_%u", targets[k]->name, k);
        j.kernel[k] =
            compile_function(targets[k], f->op, t, BLOCK, (int)targets[k]->vector / (t == KN_F32 ? 4 : 8), name);
        if (!j.kernel[k]) return;
    }
    pthread_t thread[64];
    for (int k = 0; k < threads; k++) pthread_create(&thread[k], NULL, work, &j);
    for (int k = 0; k < threads; k++) pthread_join(thread[k], NULL);
    for (unsigned k = 0; k < n; k++) {
        worst *w = &j.w[k];
        printf("%-6s %s %-3s %-7s %12llu inputs  worst %.3f ulp at %a", ki_ops[f->op].name, ki_dtypes[t].name,
               targets[k]->native ? "x86" : "c", targets[k]->name, (unsigned long long)(j.blocks * BLOCK), w->ulp,
               w->x);
        if (f->binary) printf(", %a", w->y);
        printf(" (%a, is %a)  over 1 ulp: %llu\n", w->got, w->want, (unsigned long long)w->over);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    static const char *const names[] = {"sse2", "avx2", "avx512"};
    const ki_target *targets[TARGETS];
    unsigned n = 0;
    int threads = (int)sysconf(_SC_NPROCESSORS_ONLN), opt;
    uint64_t stride = 1;
    const char *only = NULL;
    while ((opt = getopt(argc, argv, "j:s:t:")) != -1) {
        if (opt == 'j') threads = atoi(optarg);
        else if (opt == 's') stride = strtoull(optarg, NULL, 0);
        else if (opt == 't') only = optarg;
        else return 2;
    }
    if (threads < 1 || threads > 64 || !stride || !open_store()) return 2;
    for (int k = 0; k < 3; k++) {
        if (!only || strcmp(only, names[k]) == 0)
            targets[n++] = ki_target_native(names[k]), targets[n++] = ki_target_named(names[k]);
        if (strcmp(ki_target_host()->name, names[k]) == 0) break;
    }
    for (size_t k = 0; k < NFUNCTIONS; k++)
        for (int wide = 0; wide < 2; wide++) {
            kn_dtype t = wide ? KN_F64 : KN_F32;
            char full[32];
            bool wanted = optind == argc;
            snprintf(full, sizeof full, "%s:%s", ki_ops[functions[k].op].name, ki_dtypes[t].name);
            for (int a = optind; a < argc; a++)
                wanted |= strcmp(argv[a], full) == 0 || strcmp(argv[a], ki_ops[functions[k].op].name) == 0;
            if (wanted) measure(&functions[k], t, targets, n, stride, threads);
        }
    close_store();
    return 0;
}
