/* cpu.c: the CPU device: machine code, or C text compiled by the system's compiler, run on a thread pool in host memory. */
#include "device/cpu/cpu.h"

#include "base/cpuid.h"
#include "base/thread.h"
#include "device/cpu/code.h"
#include "device/cpu/native.h"
#include "device/host.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OWN = 32 << 20 }; /* bytes: of a last cache of hundreds of MiB most is other cores', and far away */

typedef struct cpu {
    ki_code code;
    ki_native native;
    ki_pool *pool; /* made by who asks for it first */
} cpu;

unsigned ki_cpu_threads(ki_env *env) {
    unsigned set = (unsigned)ki_setting_number(env, KI_VAR_THREADS);
    return set ? set : ki_cpu_count();
}

/* With what it is made from an output of half of the last cache fills it. */
static uint64_t stream_from(ki_env *env) {
    uint64_t half = ki_cache_bytes() / 2;
    if (*ki_setting(env, KI_VAR_STREAM)) return ki_setting_number(env, KI_VAR_STREAM);
    return half < MOST_OWN ? half : MOST_OWN;
}

ki_machine ki_cpu_machine(ki_env *env) {
    bool said = *ki_setting(env, KI_VAR_AHEAD) != 0;
    return (ki_machine){.threads = ki_cpu_threads(env),
                        .stream = stream_from(env),
                        .ahead = said ? ki_setting_number(env, KI_VAR_AHEAD) : ki_cpu_under_way(),
                        .alone = ki_setting_number(env, KI_VAR_ALONE)};
}

static bool cpu_open(ki_device *d) {
    if (!(d->state = ki_calloc(1, sizeof(cpu)))) return ki_fail(d->env, KI_E_NOMEM), false;
    return ki_host_open(d);
}

static void cpu_close(ki_device *d) {
    cpu *c = d->state;
    if (c) {
        ki_pool_close(c->pool);
        ki_code_close(&c->code);
        ki_native_close(&c->native);
    }
    ki_free(c);
    d->state = NULL;
    ki_host_close(d);
}

static bool cpu_compile(ki_device *d, const char *cflags, ki_kernel_text *k, size_t n) {
    cpu *c = d->state;
    bool ok = true;
    for (size_t run; n && ok; k += run, n -= run) { /* of one kind */
        for (run = 1; run < n && k[run].machine == k->machine;) run++;
        if (k->machine) ok = ki_native_load(&c->native, d, k, run);
        else ok = ki_code_compile(&c->code, d, ki_cpu_count(), cflags, k, run);
    }
    return ok;
}

static void run_thread(void *arg, int64_t thread) {
    const ki_launch *l = arg;
    l->entry(l->buf, l->var, thread);
}

ki_pool *ki_cpu_pool(ki_device *d) {
    cpu *c = d->is == &ki_device_cpu ? d->state : NULL;
    if (c && ki_pool_is_left(c->pool)) ki_pool_close(c->pool), c->pool = NULL;
    if (c && !c->pool) c->pool = ki_pool_open(ki_cpu_threads(d->env));
    return c ? c->pool : NULL;
}

typedef struct launches {
    ki_device *d;
    const ki_launch *l;
    size_t n;
} launches;
static void run_all(void *arg, int64_t i) {
    const launches *all = (const launches *)arg + i;
    for (const ki_launch *l = all->l, *end = l + all->n; l < end; l++) {
        if (l->copy) {
            memmove(l->buf[0], l->buf[1], l->bytes);
        } else if (l->threads <= 1) {
            l->entry(l->buf, l->var, 0);
        } else {
            ki_pool_run(ki_cpu_pool(all->d), l->threads, run_thread, (void *)l);
        }
    }
}

static bool cpu_submit(ki_device *d, const ki_launch *l, size_t n) {
    launches all = {d, l, n};
    if (!ki_with_stack(run_all, &all)) return ki_fail(d->env, KI_E_NOMEM), false;
    d->stats.launched += n;
    return true;
}

static bool cpu_wait(ki_device *d) {
    (void)d;
    return true;
}

const ki_device_class ki_device_cpu = {
    .name = "CPU",
    .doc = "machine code of x86-64, or C through the system's compiler; a thread pool",
    .runs = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = ki_host_alloc,
    .free = ki_host_free,
    .copy = ki_host_copy,
    .compile = cpu_compile,
    .submit = cpu_submit,
    .wait = cpu_wait,
};
