/* main.c: build/zoo/NAME: runs one model of the zoo: kernels, milliseconds a step, peak memory. ZOO is its name. */
#include "zoo/zoo.h"

#include <koine/device.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct options {
    int64_t batch, steps;
    bool small, json;
    const char *device, *save;
} options;

static int usage(void) {
    fprintf(stderr, "usage: %s [--batch N] [--steps N] [--device NAME] [--small] [--save FOLDER] [--json]\n", ZOO);
    return 2;
}

static bool read_options(int argc, char **argv, options *o) {
    *o = (options){.steps = 10};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(a, "--small") == 0) o->small = true;
        else if (strcmp(a, "--json") == 0) o->json = true;
        else if (!v) return false;
        else if (strcmp(a, "--batch") == 0) o->batch = atoll(v), i++;
        else if (strcmp(a, "--steps") == 0) o->steps = atoll(v), i++;
        else if (strcmp(a, "--device") == 0) o->device = v, i++;
        else if (strcmp(a, "--save") == 0) o->save = v, i++;
        else return false;
    }
    return o->batch >= 0 && o->steps > 0;
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

static kn_status step(zoo *z, const char *result) {
    kn_tensor *out = NULL;
    size_t n = 0;
    kn_scope_open(z->k);
    kn_tensor r = zoo_step(z, &out, &n);
    kn_status s = out ? kn_realize_at(NULL, 0, n, out) : kn_error(z->k) ? kn_error(z->k) : KN_NOMEM;
    if (!s && result) s = kn_save_npy(r, result);
    free(out);
    kn_scope_close(z->k);
    return s;
}

static kn_status run(zoo *z, const options *o, double *ms, uint64_t *kernels) {
    char result[4096] = "";
    kn_status s = KN_OK;
    if (o->save) {
        mkdir(o->save, 0777);
        snprintf(result, sizeof result, "%s/result.npy", o->save);
        s = save(z, o->save, "before");
    }
    if (!s) s = step(z, *result ? result : NULL); /* the first one compiles */
    if (!s && o->save) s = save(z, o->save, "after");
    uint64_t launched = kn_stats_of(z->k).kernels_launched;
    double *t = malloc((size_t)o->steps * sizeof *t);
    if (!t) return KN_NOMEM;
    for (int64_t i = 0; i < o->steps && !s; i++) {
        double begun = now();
        s = step(z, NULL);
        t[i] = 1e3 * (now() - begun);
    }
    *kernels = (kn_stats_of(z->k).kernels_launched - launched) / (uint64_t)o->steps;
    qsort(t, (size_t)o->steps, sizeof *t, by_value);
    *ms = t[o->steps / 2];
    free(t);
    return s;
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

static void report(const zoo *z, bool json, uint64_t kernels, double ms) {
    long long weights = 0;
    for (size_t i = 0; i < z->nheld; i++)
        if (z->held[i].kind == ZOO_WEIGHT) weights += kn_numel(z->held[i].t) * (long long)sizeof(float);
    long long batch = z->batch, n = (long long)kernels;
    if (json)
        printf("{\"program\": \"%s\", \"batch\": %lld, \"kernels\": %lld, \"ms\": %.3f, \"weight_bytes\": %lld, "
               "\"peak_mib\": %ld}\n",
               ZOO, batch, n, ms, weights, peak());
    else
        printf("%s, batch %lld: %lld kernels, %.3f ms a step, %lld MiB of weights, %ld MiB at most\n", ZOO, batch, n,
               ms, weights >> 20, peak());
}

/* What KN_DEBUG asks for. */
static void log_line(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "%s\n", text);
}

int main(int argc, char **argv) {
    options o;
    zoo z = {0};
    double ms = 0;
    uint64_t kernels = 0;
    if (!read_options(argc, argv, &o)) return usage();
    kn_ctx *k = kn_open(o.device);
    if (!k) return fputs("out of memory\n", stderr), 1;
    kn_set_log(k, log_line, NULL);
    kn_status s = zoo_open(&z, k, zoo_find(ZOO), o.batch, o.small);
    if (!s) s = run(&z, &o, &ms, &kernels);
    if (s) fprintf(stderr, "%s: %s\n", ZOO, kn_error(k) ? kn_message(k) : "out of memory");
    else report(&z, o.json, kernels, ms);
    zoo_close(&z);
    kn_close(k);
    return s != KN_OK;
}
