/* main.c: build/zoo/NAME: runs one model of the zoo: kernels, milliseconds a step, peak memory. ZOO is its name. */
#include "zoo/zoo.h"

#include <koine/device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct options {
    int64_t batch, steps, position, decode;
    bool small, json, turns;
    const char *device, *save;
} options;

typedef struct figures {
    uint64_t kernels;  /* a step */
    uint64_t compiled; /* programs, after the first step */
    double ms;         /* a step, median */
} figures;

static int usage(void) {
    fprintf(stderr,
            "usage: %s [--batch N] [--steps N] [--device NAME] [--small] [--save FOLDER] [--json]\n"
            "a decode step: [--position N]; [--decode N]: N positions from 0 on, each with the likeliest token of the "
            "last\n"
            "--turns: each line of standard input says how many steps are next, and is answered with what they took\n",
            ZOO);
    return 2;
}

static bool read_options(int argc, char **argv, options *o) {
    *o = (options){.steps = 10, .position = -1};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(a, "--small") == 0) o->small = true;
        else if (strcmp(a, "--json") == 0) o->json = true;
        else if (strcmp(a, "--turns") == 0) o->turns = o->json = true;
        else if (!v) return false;
        else if (strcmp(a, "--batch") == 0) o->batch = atoll(v), i++;
        else if (strcmp(a, "--steps") == 0) o->steps = atoll(v), i++;
        else if (strcmp(a, "--position") == 0) o->position = atoll(v), i++;
        else if (strcmp(a, "--decode") == 0) o->decode = atoll(v), i++;
        else if (strcmp(a, "--device") == 0) o->device = v, i++;
        else if (strcmp(a, "--save") == 0) o->save = v, i++;
        else return false;
    }
    return o->batch >= 0 && o->steps > 0 && o->decode >= 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* FOLDER/WHEN.NAME.npy of all that the model holds. */
static kn_status save(const zoo *z, const char *folder, const char *when) {
    char path[4096];
    kn_status s = KN_OK;
    for (size_t i = 0; i < z->nheld && !s; i++) {
        snprintf(path, sizeof path, "%s/%s.%s.npy", folder, when, z->held[i].name);
        s = kn_save_npy(z->held[i].t, path);
    }
    return s;
}

/* The first step, which compiles; its result belongs to the scope that is open. NULL: see kn_message. */
static kn_captured *capture(zoo *z, kn_tensor *result) {
    kn_tensor *out = NULL;
    size_t n = 0;
    kn_scope_open(z->k);
    *result = zoo_step(z, &out, &n);
    kn_captured *step = out ? kn_capture_at(NULL, 0, n, out) : NULL;
    if (step) kn_hand_up(*result);
    free(out);
    kn_scope_close(z->k);
    return step;
}

static kn_status failure(const zoo *z) { return kn_error(z->k) ? kn_error(z->k) : KN_NOMEM; }

static kn_status save_result(kn_tensor r, const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    return kn_save_npy(r, path);
}

static kn_tensor input_of(const zoo *z) {
    for (size_t j = 0; j < z->nheld; j++)
        if (z->held[j].kind == ZOO_INPUT) return z->held[j].t;
    return NULL;
}

/* Positions 0 to n - 1 of a sequence of random tokens: FOLDER/tokens.npy, and what comes of them FOLDER/logits.npy. The first position is
 * what compiles. */
static kn_status decode(zoo *z, const options *o, double *t, figures *f) {
    kn_tensor r, all = NULL;
    kn_captured *step = capture(z, &r);
    kn_status s = step ? KN_OK : failure(z);
    int64_t vocab = s ? 1 : kn_numel(r), n = o->decode;
    float *row = calloc((size_t)(n * vocab), sizeof *row);
    const int32_t *token = s ? NULL : kn_data(all = kn_randint(z->k, KN_SHAPE(n), 0, vocab, KN_I32, NULL));
    if (!s && (!token || !row)) s = kn_error(z->k) ? kn_error(z->k) : KN_NOMEM;
    for (int64_t i = 0; i < n && !s; i++) {
        double begun = now();
        s = kn_bind(z->k, "position", i);
        if (!s) s = kn_write(input_of(z), token + i, sizeof *token);
        if (!s) s = kn_replay(step);
        if (!s) s = kn_to_host(r, row + i * vocab, (size_t)vocab * sizeof *row);
        t[i] = 1e3 * (now() - begun);
        if (i == 0) f->compiled = kn_stats_of(z->k).programs;
    }
    f->compiled = kn_stats_of(z->k).programs - f->compiled;
    if (!s && o->save) s = save_result(all, o->save, "tokens");
    if (!s && o->save) s = save_result(kn_from_host(z->k, row, KN_F32, KN_SHAPE(n, vocab)), o->save, "logits");
    free(row);
    return s;
}

/* t[0..n): what n steps took. */
static kn_status timed(zoo *z, kn_captured *step, int64_t n, double *t, figures *f) {
    kn_status s = KN_OK;
    kn_stats first = kn_stats_of(z->k);
    for (int64_t i = 0; i < n && !s; i++) {
        double begun = now();
        s = kn_replay(step);
        t[i] = 1e3 * (now() - begun);
    }
    f->kernels = (kn_stats_of(z->k).kernels_launched - first.kernels_launched) / (uint64_t)n;
    f->compiled = kn_stats_of(z->k).programs - first.programs;
    return s;
}

static kn_status steps(zoo *z, const options *o, double *t, figures *f) {
    kn_tensor r;
    kn_captured *step = capture(z, &r);
    kn_status s = step ? KN_OK : failure(z);
    if (!s && o->save) s = save_result(r, o->save, "result");
    if (!s && o->save) s = save(z, o->save, "after");
    return s ? s : timed(z, step, o->steps, t, f);
}

/* MiB resident at most. Not getrusage's, which a child has from its parent. */
static long peak(void) {
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %ld", &kib);
    if (f) fclose(f);
    return kib >> 10;
}

static void report(const zoo *z, bool json, const figures *f) {
    long long weights = 0;
    for (size_t i = 0; i < z->nheld; i++)
        if (z->held[i].kind == ZOO_WEIGHT) weights += kn_numel(z->held[i].t) * (long long)sizeof(float);
    long long batch = z->batch, n = (long long)f->kernels;
    if (json)
        printf("{\"program\": \"%s\", \"batch\": %lld, \"kernels\": %lld, \"ms\": %.3f, \"weight_bytes\": %lld, "
               "\"peak_mib\": %ld, \"compiled_later\": %d}\n",
               ZOO, batch, n, f->ms, weights, peak(), (int)f->compiled);
    else
        printf("%s, batch %lld: %lld kernels, %.3f ms a step, %lld MiB of weights, %ld MiB at most\n", ZOO, batch, n,
               f->ms, weights >> 20, peak());
}

static double median(double *t, int64_t n) {
    qsort(t, (size_t)n, sizeof *t, by_value);
    return (t[n / 2] + t[(n - 1) / 2]) / 2;
}

static kn_status turns(zoo *z) {
    kn_tensor r;
    char line[64];
    kn_captured *step = capture(z, &r);
    kn_status s = step ? KN_OK : failure(z);
    while (!s && fgets(line, sizeof line, stdin)) {
        figures f;
        int64_t n = atoll(line) > 0 ? atoll(line) : 1;
        double *t = calloc((size_t)n, sizeof *t);
        if (!t) return KN_NOMEM;
        s = timed(z, step, n, t, &f);
        f.ms = median(t, n);
        free(t);
        if (!s) report(z, true, &f), fflush(stdout);
    }
    return s;
}

static kn_status run(zoo *z, const options *o, figures *f) {
    kn_status s = KN_OK;
    int64_t n = o->decode ? o->decode : o->steps;
    if (o->decode && (!z->context || o->decode > z->context || z->batch != 1))
        return fprintf(stderr, "%s: --decode wants a decode step of batch 1, and has %d positions\n", ZOO,
                       (int)z->context),
               KN_BAD_ARGUMENT;
    double *t = malloc((size_t)n * sizeof *t);
    if (!t) return KN_NOMEM;
    if (o->save) {
        mkdir(o->save, 0777);
        s = save(z, o->save, "before");
    }
    if (!s) s = (o->decode ? decode : steps)(z, o, t, f);
    f->ms = median(t, n);
    free(t);
    return s;
}

/* What KN_DEBUG asks for. */
static void log_line(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "%s\n", text);
}

int main(int argc, char **argv) {
    options o;
    zoo z = {0};
    figures f = {0};
    if (!read_options(argc, argv, &o)) return usage();
    kn_ctx *k = kn_open(o.device);
    if (!k) return fputs("out of memory\n", stderr), 1;
    kn_set_log(k, log_line, NULL);
    kn_status s = zoo_open(&z, k, zoo_find(ZOO), o.batch, o.small);
    if (!s && o.position >= 0) s = kn_bind(k, "position", o.position);
    if (!s) s = o.turns ? turns(&z) : run(&z, &o, &f);
    if (s) fprintf(stderr, "%s: %s\n", ZOO, kn_error(k) ? kn_message(k) : "out of memory");
    else if (!o.turns) report(&z, o.json, &f);
    zoo_close(&z);
    kn_close(k);
    return s != KN_OK;
}
