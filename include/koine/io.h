/* io.h: files, and labelled images to train on. C99 and C++ clean.
 *
 * npy holds any tensor: kn_load_npy(k, "x.npy"), kn_save_npy(y, "y.npy"). numpy lacks three dtypes; np.load(f) followed
 * by .view(ml_dtypes.bfloat16), .view(ml_dtypes.float8_e4m3fn) or .view(ml_dtypes.float8_e5m2) gives them back. */
#ifndef KN_IO_H
#define KN_IO_H

#include <koine/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* numpy's array file, plain or gzip, little- or big-endian, row- or column-major. */
KN_API kn_tensor kn_load_npy(kn_ctx *k, const char *path);
/* Realises t and writes it; the file appears whole or not at all. */
KN_API kn_status kn_save_npy(kn_tensor t, const char *path);

/* Labelled images in host memory. All zero before a call that fills it and after kn_images_free. */
typedef struct kn_images {
    int64_t n, channels, height, width;
    int classes; /* labels are 0 to classes - 1 */
    float *x;    /* (n, channels, height, width), row-major */
    int32_t *y;  /* (n,) */
} kn_images;

/* n handwritten-style digits, 28 x 28, ink in [0, 1]. Image i depends on seed and i alone. */
KN_API kn_status kn_images_digits(kn_ctx *k, uint64_t seed, int64_t n, kn_images *out);
/* MNIST's training (test 0) or test (test 1) files in a folder, plain or .gz; ink in [0, 1]. */
KN_API kn_status kn_images_mnist(kn_ctx *k, const char *dir, int test, kn_images *out);
/* x: npy, (n, h, w), (n, c, h, w), or (n, h * w) of square images; y: npy, integers (n,). Values as they stand. */
KN_API kn_status kn_images_npy(kn_ctx *k, const char *x, const char *y, kn_images *out);
/* Moves every fifth image (4, 9, 14, ...) into `held`: the same split each time. */
KN_API kn_status kn_images_hold_out(kn_ctx *k, kn_images *images, kn_images *held);
KN_API void kn_images_free(kn_images *images);

#ifdef __cplusplus
}
#endif

#ifndef KN_NO_LOC
#define kn_load_npy(...) KN_HERE_((kn_load_npy)(__VA_ARGS__))
#define kn_save_npy(...) KN_STATUS_HERE_((kn_save_npy)(__VA_ARGS__))
#endif
#endif
