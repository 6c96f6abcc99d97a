/* interp.c: the reference interpreter as a device. It takes whole programs, at any stage, and needs no compiler. */
#include "device/host.h"
#include "ir/eval.h"

static bool interp_execute(ki_device *d, const ki_program *p, void *const *in, void *const *out) {
    d->stats.launched++;
    return ki_eval(p, (const void *const *)in, out, NULL) == KI_OK;
}

static bool interp_wait(ki_device *d) {
    (void)d;
    return true;
}

const ki_device_class ki_device_interp = {
    .name = "INTERP",
    .doc = "the reference interpreter: plain scalar C, one operation after the other",
    .runs = true,
    .open = ki_host_open,
    .close = ki_host_close,
    .alloc = ki_host_alloc,
    .free = ki_host_free,
    .copy = ki_host_copy,
    .wait = interp_wait,
    .execute = interp_execute,
};
