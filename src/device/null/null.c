/* null.c: the device that runs nothing. Programs are lowered and rendered for it in full and then dropped, which is how
 * the compiler's own time is measured; its memory is real, so that copies have where to go. Clone this for a new device. */
#include "device/host.h"

static void null_entry(void *const *buf, const int64_t *var, int64_t thread) { (void)buf, (void)var, (void)thread; }

static bool null_compile(ki_device *d, const char *cflags, ki_kernel_text *k, size_t n) {
    (void)cflags;
    for (size_t i = 0; i < n; i++) k[i].entry = null_entry;
    d->stats.compiled += n;
    return true;
}

static bool null_submit(ki_device *d, const ki_launch *l, size_t n) {
    (void)l;
    d->stats.launched += n;
    return true;
}

static bool null_wait(ki_device *d) {
    (void)d;
    return true;
}

const ki_device_class ki_device_null = {
    .name = "NULL",
    .doc = "compiles, runs nothing; results are undefined",
    .runs = false,
    .open = ki_host_open,
    .close = ki_host_close,
    .alloc = ki_host_alloc,
    .free = ki_host_free,
    .copy = ki_host_copy,
    .compile = null_compile,
    .submit = null_submit,
    .wait = null_wait,
};
