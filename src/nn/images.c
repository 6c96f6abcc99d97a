/* images.c: the public calls on labelled images. */
#include "nn/data.h"
#include "device/cpu/cpu.h"
#include "run/run.h"
#include "tensor/context.h"

/* The threads of the context's device; NULL: it has none. Whatever is wrong with the device, who runs something on it is told. */
static ki_pool *threads_of(kn_ctx *k) {
    ki_run *r = ki_run_of(k);
    ki_device *d = r ? ki_run_device(r, k->device) : NULL;
    ki_env_clear(&k->env);
    return d ? ki_cpu_pool(d) : NULL;
}

kn_status kn_images_digits(kn_ctx *k, uint64_t seed, int64_t n, kn_images *out) {
    if (!k) return KN_BAD_ARGUMENT;
    if (!ki_given(k, "images_digits", "out", out)) return (kn_status)ki_settle_failure(k);
    *out = (kn_images){0};
    if (n < 0 || n > INT32_MAX) ki_fail(&k->env, KI_E_ARRAY_SIZE, (long long)n, 0u);
    else ki_images_digits(&k->env, threads_of(k), seed, n, out);
    return (kn_status)ki_settle_failure(k);
}

kn_status kn_images_mnist(kn_ctx *k, const char *dir, int test, kn_images *out) {
    if (!k) return KN_BAD_ARGUMENT;
    if (ki_given(k, "images_mnist", "dir", dir) && ki_given(k, "images_mnist", "out", out))
        ki_images_mnist(&k->env, dir, test != 0, out);
    return (kn_status)ki_settle_failure(k);
}

kn_status kn_images_npy(kn_ctx *k, const char *x, const char *y, kn_images *out) {
    if (!k) return KN_BAD_ARGUMENT;
    if (ki_given(k, "images_npy", "x", x) && ki_given(k, "images_npy", "y", y) && ki_given(k, "images_npy", "out", out))
        ki_images_npy(&k->env, x, y, out);
    return (kn_status)ki_settle_failure(k);
}

kn_status kn_images_hold_out(kn_ctx *k, kn_images *images, kn_images *held) {
    if (!k) return KN_BAD_ARGUMENT;
    if (ki_given(k, "images_hold_out", "images", images) && ki_given(k, "images_hold_out", "held", held)) {
        *held = (kn_images){0};
        ki_images_hold(&k->env, images, held);
    }
    return (kn_status)ki_settle_failure(k);
}

void kn_images_free(kn_images *images) {
    if (images) ki_images_free(images);
}
