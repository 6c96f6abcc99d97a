/* The pool of host memory: blocks come back, the one freed last first; what is kept stays within its bound; large ones go
 * back to the system. Counts, not times. */
#include "device/host.h"
#include "run/run.h"
#include "../tap.h"

#include <koine/koine.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, SLACK = 64 };

static ki_env env;

static ki_device *open_device(void) {
    ki_env_clear(&env);
    return ki_device_open(&env, ki_device_intern(&env, "CPU"));
}

static size_t resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void comes_back(ki_device *d) {
    static const size_t size[] = {0, 1, 64, 65, 4096, 100000, 3 * MIB, 4 * MIB, 4 * MIB + 1, 64 * MIB};
    bool aligned = true, same = true, near = true;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        char *p = ki_host_alloc(d, size[i]);
        aligned = aligned && p && (uintptr_t)p % 64 == 0;
        if (p && size[i]) p[0] = p[size[i] - 1] = 1;
        ki_host_free(d, p, size[i]);
        uint64_t fresh = d->stats.fresh;
        char *q = ki_host_alloc(d, size[i]);
        same = same && q == p && d->stats.fresh == fresh;
        ki_host_free(d, q, size[i]);
        q = ki_host_alloc(d, size[i] - size[i] / 32); /* of the same class, or the one below */
        near = near && q;
        ki_host_free(d, q, size[i] - size[i] / 32);
    }
    CHECK(aligned, "blocks of every size stand at 64 bytes");
    CHECK(same, "what was freed is given out again");
    CHECK(near && d->stats.bytes == 0, "a little less fits too, and nothing is in use any more");
    void *p = ki_host_alloc(d, MIB), *q = ki_host_alloc(d, MIB);
    ki_host_free(d, p, MIB);
    ki_host_free(d, q, MIB);
    CHECK(ki_host_alloc(d, MIB) == q && ki_host_alloc(d, MIB) == p, "the one freed last first");
    ki_host_free(d, p, MIB);
    ki_host_free(d, q, MIB);
}

/* What nobody wrote to has no memory, freed and given out again neither (a device that computes nothing frees whole networks so). */
static void untouched(ki_device *d) {
    size_t before = resident();
    for (int turn = 0; turn < 2; turn++) {
        void *p[8];
        for (int i = 0; i < 8; i++) p[i] = ki_host_alloc(d, 6 * MIB);
        for (int i = 0; i < 8; i++) ki_host_free(d, p[i], 6 * MIB);
    }
    size_t more = resident() - before;
    CHECK(more < MIB || more > SIZE_MAX / 2, "freeing 8 blocks of 6 MiB touched %zu KiB of them", more >> 10);
}

/* A loop of steps like a training loop's takes its blocks from the system once. */
static void steady(ki_device *d) {
    enum { N = 40 };
    void *p[N];
    uint64_t fresh = 0;
    for (int step = 0; step < 2000; step++) {
        if (step == 2) fresh = d->stats.fresh;
        for (size_t i = 0; i < N; i++) p[i] = ki_host_alloc(d, (i * i + 1) * 1000);
        for (size_t i = 0; i < N; i++) ki_host_free(d, p[i * 7 % N], (i * 7 % N * (i * 7 % N) + 1) * 1000);
    }
    CHECK(d->stats.fresh == fresh, "2000 steps of %d blocks: %d from the system after the second", N,
          (int)(d->stats.fresh - fresh));
}

static size_t most(size_t peak) { return peak + (peak / 2 > SLACK * (size_t)MIB ? peak / 2 : SLACK * (size_t)MIB); }

/* Sizes that never come twice: nothing fits, and what is kept must go. */
static void varying(ki_device *d) {
    size_t before = resident(), top = 0, use = 0, high = 0;
    bool bound = true;
    enum { N = 3 };
    void *p[N] = {0};
    size_t size[N] = {0};
    for (int i = 0; i < 400; i++) {
        int k = i % N;
        ki_host_free(d, p[k], size[k]);
        use -= size[k];
        size[k] = (size_t)(8 + i * 37 % 120) * MIB + (size_t)i * 4096;
        p[k] = ki_host_alloc(d, size[k]);
        if (p[k]) memset(p[k], 1, i < 60 ? size[k] : 4096);
        high = resident() > high ? resident() : high;
        use += size[k];
        top = use > top ? use : top;
        bound = bound && p[k] && d->stats.bytes + d->stats.pooled <= most(d->stats.peak);
    }
    CHECK(bound, "in use and kept: never more than half again of the peak (%d MiB)", (int)(d->stats.peak / MIB));
    CHECK(high < before + most(top + top / 8) + 16 * MIB, "and no more is resident (%d MiB)",
          (int)((high - before) / MIB));
    for (int k = 0; k < N; k++) ki_host_free(d, p[k], size[k]);
    CHECK(d->stats.bytes == 0, "all given back");
    /* a quieter time: the peak fades */
    for (int i = 0; i < 256 * 60; i++) ki_host_free(d, ki_host_alloc(d, 4096), 4096);
    CHECK(d->stats.pooled <= (SLACK + 1) * (size_t)MIB, "what a busier time left goes (%d MiB)",
          (int)(d->stats.pooled / MIB));
}

static void gives_back(void) {
    ki_device *d = open_device();
    size_t before = resident();
    void *p[6];
    for (int i = 0; i < 6; i++) memset(p[i] = ki_host_alloc(d, 32 * MIB), 1, 32 * MIB);
    size_t held = resident();
    for (int i = 0; i < 6; i++) ki_host_free(d, p[i], 32 * MIB);
    CHECK(d->stats.pooled == 6 * 32 * MIB, "a peak's worth is kept");
    ki_device_close(d);
    CHECK(held >= before + 190 * (size_t)MIB && resident() <= before + 4 * MIB, "closing gives it back to the system");
    d = open_device();
    /* more than addresses there are: a system that promises any memory gave 32 TiB */
    CHECK(!ki_host_alloc(d, (size_t)1 << 48) && env.err == KI_E_DEVICE_MEMORY, "too much is an error");
    ki_env_clear(&env);
    p[0] = ki_host_alloc(d, 4096);
    ki_alloc_fail(1, 1);
    ki_host_free(d, p[0], 4096);
    ki_alloc_fail(0, 0);
    CHECK(!d->stats.pooled && !d->stats.bytes, "with no room to list a block it goes back to the system");
    ki_host_free(d, ki_host_alloc(d, 8192), 8192); /* kept, of another size */
    ki_alloc_fail(1, 0);
    CHECK((p[0] = ki_host_alloc(d, 4096)) && env.err == KI_E_NONE, "one refusal: what is kept is given back first");
    ki_host_free(d, p[0], 4096);
    ki_alloc_fail(1, 1);
    void *none = ki_host_alloc(d, 8 * MIB);
    ki_alloc_fail(0, 0);
    CHECK(!none && env.err == KI_E_DEVICE_MEMORY && d->stats.bytes == 0, "two: an error, and nothing in use");
    ki_device_close(d);
}

/* A step whose output is a new tensor fills the block that the last step's filled. */
static void steps(void) {
    kn_ctx *k = kn_open("CPU");
    uint64_t fresh = 0;
    float *x = calloc(2 * MIB, sizeof *x);
    kn_tensor t = kn_borrow_host(k, x, KN_F32, KN_SHAPE(2 * MIB), NULL, NULL);
    ki_device *d = NULL;
    for (int i = 0; i < 20; i++) {
        kn_scope_open(k);
        kn_tensor y = kn_adds(t, i);
        if (kn_realize(y)) break;
        kn_scope_close(k);
        d = ki_run_device(k->run, k->device);
        if (i == 0) fresh = d->stats.fresh;
    }
    CHECK(d && d->stats.fresh == fresh && d->stats.bytes < 9 * (size_t)MIB, "20 steps, one output block %s",
          kn_message(k));
    kn_close(k);
    free(x);
}

int main(void) {
    ki_env_open(&env);
    ki_device *d = open_device();
    untouched(d);
    comes_back(d);
    steady(d);
    varying(d);
    ki_device_close(d);
    gives_back();
    steps();
    ki_env_close(&env);
    return tap_done();
}
