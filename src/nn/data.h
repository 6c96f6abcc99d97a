/* data.h: labelled images in host memory, wherever they come from. */
#ifndef KI_DATA_H
#define KI_DATA_H

#include "base/thread.h"
#include "io/array.h"
#include "ir/uop.h"

#include <koine/io.h>

typedef kn_images ki_images;

void ki_images_free(ki_images *im);
/* n digits of the set `seed`, drawn by the pool (NULL: by the caller alone), the same ones whatever it is. */
bool ki_images_digits(ki_env *env, ki_pool *pool, uint64_t seed, int64_t n, ki_images *out);
/* The training (test = false) or test pair of a folder with the four MNIST files, plain or .gz. */
bool ki_images_mnist(ki_env *env, const char *dir, bool test, ki_images *out);
/* X.npy: numbers, (n, h, w), (n, c, h, w), or (n, h * w) of square images; y.npy: integers (n,). */
bool ki_images_npy(ki_env *env, const char *x, const char *y, ki_images *out);
/* Moves every fifth image (4, 9, 14, ...) into `held`: the same split on every run. */
bool ki_images_hold(ki_env *env, ki_images *im, ki_images *held);

#endif
