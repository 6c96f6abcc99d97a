/* data.c: labelled images from the digit generator, from MNIST's files, from npy files. See data.h. */
#include "nn/data.h"

#include "nn/digits.h"
#include "nn/idx.h"
#include "io/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void ki_images_free(ki_images *im) {
    ki_free(im->x);
    ki_free(im->y);
    *im = (ki_images){0};
}

static bool make(ki_env *env, ki_images *im, int64_t n, int64_t c, int64_t h, int64_t w) {
    *im = (ki_images){.n = n, .channels = c, .height = h, .width = w};
    int64_t numel = 0;
    if (!ki_mul_overflow(n, c, &numel) && !ki_mul_overflow(numel, h, &numel) && !ki_mul_overflow(numel, w, &numel)) {
        im->x = ki_realloc(NULL, (size_t)numel, sizeof *im->x);
        im->y = ki_realloc(NULL, (size_t)n, sizeof *im->y);
    }
    if (im->x && im->y) return true;
    ki_images_free(im);
    return ki_fail(env, KI_E_NOMEM), false;
}

enum { TOGETHER = 16 }; /* digits of a task */

typedef struct drawing {
    uint64_t seed;
    ki_images *to;
} drawing;

static void draw_some(void *arg, int64_t task) {
    const drawing *d = arg;
    int64_t end = (task + 1) * TOGETHER < d->to->n ? (task + 1) * TOGETHER : d->to->n;
    for (int64_t i = task * TOGETHER; i < end; i++)
        d->to->y[i] = ki_digit_draw(d->seed, (uint64_t)i, d->to->x + i * KI_DIGIT * KI_DIGIT);
}

bool ki_images_digits(ki_env *env, ki_pool *pool, uint64_t seed, int64_t n, ki_images *out) {
    if (!make(env, out, n, 1, KI_DIGIT, KI_DIGIT)) return false;
    out->classes = 10;
    ki_pool_run(pool, (n + TOGETHER - 1) / TOGETHER, draw_some, &(drawing){seed, out});
    return true;
}

/* Element i as a double, any dtype. */
static double element(const ki_array *a, int64_t i) {
    size_t item = ki_itemsize(a->dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)a->data + (size_t)i * item, item); /* little-endian hosts only, like npy */
    if (ki_is_float(a->dtype)) return ki_f64_from_bits(a->dtype, bits);
    if (ki_is_sint(a->dtype) && item < 8 && (bits >> (8 * item - 1) & 1)) bits |= ~UINT64_C(0) << (8 * item);
    return a->dtype == KN_U64 ? (double)bits : (double)(int64_t)bits;
}

/* Labels into im->y; classes is set to the largest + 1, or checked when it is set already. */
static bool labels(ki_env *env, const char *name, const ki_array *y, ki_images *im) {
    int64_t most = im->classes ? im->classes - 1 : 9999;
    int top = 0;
    for (int64_t i = 0; i < im->n; i++) {
        double v = element(y, i);
        if (!(v >= 0 && v <= (double)most))
            return ki_fail(env, KI_E_LABEL_RANGE, name, (long long)v, (long long)i, (long long)most), false;
        im->y[i] = (int32_t)v;
        if (im->y[i] > top) top = im->y[i];
    }
    if (!im->classes) im->classes = top + 1;
    return true;
}

/* ---- MNIST ---- */

/* dir/stem, under the names by which the files are handed around. */
static bool find(ki_env *env, const char *dir, const char *stem, ki_text *path) {
    static const char *const ends[] = {"", ".gz"};
    for (int dot = 0; dot < 2; dot++)
        for (int e = 0; e < 2; e++) {
            ki_text_cut(path, 0);
            ki_text_printf(path, "%s/%s%s", dir, stem, ends[e]);
            if (path->oom) return ki_fail(env, KI_E_NOMEM), false;
            char *idx = strstr(path->s + strlen(dir), "-idx");
            if (dot && idx) *idx = '.'; /* train-images.idx3-ubyte */
            if (access(path->s, F_OK) == 0) return true;
        }
    return ki_fail(env, KI_E_MNIST_FILE, dir, stem), false;
}

static bool idx_pair(ki_env *env, const char *xpath, const char *ypath, ki_array *x, ki_array *y, ki_images *out) {
    if (!ki_idx_read(env, xpath, x)) return false;
    if (x->rank != 3 || x->dtype != KN_U8)
        return ki_fail(env, KI_E_IDX_KIND, xpath, x->rank == 1 ? "labels" : "other data", "images: u8 of three axes"),
               false;
    if (!ki_idx_read(env, ypath, y)) return false;
    if (y->rank != 1 || y->dtype != KN_U8)
        return ki_fail(env, KI_E_IDX_KIND, ypath, y->rank == 3 ? "images" : "other data", "labels: u8 of one axis"),
               false;
    if (x->dim[0] != y->dim[0])
        return ki_fail(env, KI_E_IDX_COUNT, xpath, (long long)x->dim[0], ypath, (long long)y->dim[0]), false;
    if (!make(env, out, x->dim[0], 1, x->dim[1], x->dim[2])) return false;
    out->classes = 10;
    for (int64_t i = 0; i < x->numel; i++) out->x[i] = (float)((const uint8_t *)x->data)[i] / 255.0f;
    return labels(env, ypath, y, out);
}

bool ki_images_mnist(ki_env *env, const char *dir, bool test, ki_images *out) {
    ki_text xp = {0}, yp = {0};
    ki_array x = {0}, y = {0};
    *out = (ki_images){0};
    bool ok = find(env, dir, test ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte", &xp) &&
              find(env, dir, test ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte", &yp) &&
              idx_pair(env, xp.s, yp.s, &x, &y, out);
    if (!ok) ki_images_free(out);
    ki_array_free(&x);
    ki_array_free(&y);
    ki_text_free(&xp);
    ki_text_free(&yp);
    return ok;
}

/* ---- npy ---- */

static const char *shape_text(const ki_array *a, char *buf, size_t n) {
    size_t at = (size_t)snprintf(buf, n, "(");
    for (unsigned k = 0; k < a->rank && at < n; k++)
        at += (size_t)snprintf(buf + at, n - at, k ? ", %lld" : "%lld", (long long)a->dim[k]);
    if (at < n) snprintf(buf + at, n - at, a->rank == 1 ? ",)" : ")");
    return buf;
}

static bool npy_pair(ki_env *env, const char *xpath, const char *ypath, ki_array *x, ki_array *y, ki_images *out) {
    char shape[200];
    if (!ki_npy_read(env, xpath, x) || !ki_npy_read(env, ypath, y)) return false;
    int64_t n = x->rank ? x->dim[0] : 0, c = 1, h = 0, w = 0;
    if (x->rank == 2) h = w = (int64_t)lround(sqrt((double)x->dim[1]));
    if (x->rank == 3) h = x->dim[1], w = x->dim[2];
    if (x->rank == 4) c = x->dim[1], h = x->dim[2], w = x->dim[3];
    if (x->rank < 2 || x->rank > 4 || (x->rank == 2 && h * w != x->dim[1]) || c < 1 || h < 1 || w < 1)
        return ki_fail(env, KI_E_DATA_SHAPE, xpath, shape_text(x, shape, sizeof shape)), false;
    if (y->rank != 1 || y->dim[0] != n || ki_is_float(y->dtype))
        return ki_fail(env, KI_E_LABEL_SHAPE, ypath, ki_dtypes[y->dtype].name, shape_text(y, shape, sizeof shape),
                       (long long)n),
               false;
    if (!make(env, out, n, c, h, w)) return false;
    for (int64_t i = 0; i < x->numel; i++) out->x[i] = (float)element(x, i);
    return labels(env, ypath, y, out);
}

bool ki_images_npy(ki_env *env, const char *xpath, const char *ypath, ki_images *out) {
    ki_array x = {0}, y = {0};
    *out = (ki_images){0};
    bool ok = npy_pair(env, xpath, ypath, &x, &y, out);
    if (ok && out->n < 10) {
        ki_fail(env, KI_E_DATA_FEW, xpath, (long long)out->n, 10);
        ok = false;
    }
    if (!ok) ki_images_free(out);
    ki_array_free(&x);
    ki_array_free(&y);
    return ok;
}

bool ki_images_hold(ki_env *env, ki_images *im, ki_images *held) {
    if (!make(env, held, im->n / 5, im->channels, im->height, im->width)) return false;
    held->classes = im->classes;
    size_t each = (size_t)(im->channels * im->height * im->width);
    int64_t kept = 0, out = 0;
    for (int64_t i = 0; i < im->n; i++) {
        bool hold = i % 5 == 4;
        float *to = hold ? held->x + (size_t)out * each : im->x + (size_t)kept * each;
        memmove(to, im->x + (size_t)i * each, each * sizeof *to);
        if (hold) held->y[out++] = im->y[i];
        else im->y[kept++] = im->y[i];
    }
    im->n = kept;
    return true;
}
