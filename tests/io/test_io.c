/* Files: gzip, npy and IDX. Whatever the bytes are, a parser gives an array or one message, never a crash: every cut
 * and every changed byte of good files is tried. */
#include "../tap.h"
#include "gz_samples.h"

#include "io/array.h"
#include "io/file.h"
#include "io/inflate.h"
#include "nn/data.h"
#include "nn/idx.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ki_env env;

static uint8_t sample(unsigned i) { return (uint8_t)((i * i / 7 + i % 13) & 63); }

static bool unpacks(const uint8_t *p, size_t n, size_t want) {
    uint8_t *out = NULL;
    size_t nout = 0;
    bool ok = ki_gunzip(&env, "t", p, n, 0, &out, &nout) && nout == want;
    for (unsigned i = 0; ok && i < want; i++) ok = out[i] == sample(i);
    if (nout) ki_free(out);
    return ok;
}

static bool has(const char *s) { return env.err != KI_E_NONE && strstr(env.message.s, s) != NULL; }

/* Every prefix, and every byte changed in three ways: fails with a message, or gives something; nothing else. */
static void damage(const char *name, const uint8_t *p, size_t n, bool (*parse)(const uint8_t *p, size_t n)) {
    uint8_t *q = malloc(n);
    bool cut = true, told = true;
    for (size_t i = 0; i < n; i++) {
        ki_env_clear(&env);
        memcpy(q, p, i);
        uint8_t *exact = malloc(i ? i : 1); /* so that a sanitizer sees a read past the end */
        memcpy(exact, q, i);
        cut &= !parse(exact, i);
        told &= env.err != KI_E_NONE;
        free(exact);
    }
    memcpy(q, p, n);
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            ki_env_clear(&env);
            q[i] = (uint8_t)(k == 0 ? p[i] ^ 1 : k == 1 ? p[i] ^ 0x80 : ~p[i]);
            if (!parse(q, n)) told &= env.err != KI_E_NONE;
            q[i] = p[i];
        }
    free(q);
    CHECK(cut, "%s: every cut is refused", name);
    CHECK(told, "%s: every refusal has a message", name);
    ki_env_clear(&env);
}

static bool parse_gz(const uint8_t *p, size_t n) {
    uint8_t *out;
    size_t nout;
    if (!ki_gunzip(&env, "t.gz", p, n, 1 << 20, &out, &nout)) return false;
    ki_free(out);
    return true;
}
static bool parse_npy(const uint8_t *p, size_t n) {
    ki_array a;
    bool ok = ki_npy_parse(&env, "t.npy", p, n, &a);
    ki_array_free(&a);
    return ok;
}
static bool parse_idx(const uint8_t *p, size_t n) {
    ki_array a;
    bool ok = ki_idx_parse(&env, "t.idx", p, n, &a);
    ki_array_free(&a);
    return ok;
}

static void test_gzip(void) {
    CHECK(unpacks(gz_dynamic, sizeof gz_dynamic, 1500), "dynamic codes");
    CHECK(unpacks(gz_fixed, sizeof gz_fixed, 200), "fixed codes");
    CHECK(unpacks(gz_stored, sizeof gz_stored, 100), "stored block");
    uint8_t *out;
    size_t n;
    CHECK(ki_gunzip(&env, "t", gz_named, sizeof gz_named, 0, &out, &n) && n == 300 && out[299] == 'a',
          "header with a name");
    ki_free(out);
    uint8_t two[sizeof gz_fixed + sizeof gz_named];
    memcpy(two, gz_fixed, sizeof gz_fixed);
    memcpy(two + sizeof gz_fixed, gz_named, sizeof gz_named);
    CHECK(ki_gunzip(&env, "t", two, sizeof two, 0, &out, &n) && n == 500, "two members");
    ki_free(out);
    CHECK(!ki_gunzip(&env, "t", gz_named, sizeof gz_named, 299, &out, &n) && has("more than is allowed"),
          "limit on the result");
    ki_env_clear(&env);
    memcpy(two, gz_fixed, sizeof gz_fixed);
    two[sizeof gz_fixed - 7] ^= 1;
    CHECK(!parse_gz(two, sizeof gz_fixed) && has("checksum"), "a wrong checksum is told");
    damage("gzip, dynamic", gz_dynamic, sizeof gz_dynamic, parse_gz);
    damage("gzip, fixed", gz_fixed, sizeof gz_fixed, parse_gz);
    damage("gzip, stored", gz_stored, sizeof gz_stored, parse_gz);
}

static size_t npy(uint8_t *p, const char *dict, const void *data, size_t n) {
    size_t len = strlen(dict);
    memcpy(p, "\x93NUMPY\1\0", 8);
    p[8] = (uint8_t)len;
    p[9] = (uint8_t)(len >> 8);
    memcpy(p + 10, dict, len);
    memcpy(p + 10 + len, data, n);
    return 10 + len + n;
}

static void npy_fails(const char *dict, size_t n, const char *why) {
    uint8_t p[512], zero[64] = {0};
    size_t len = npy(p, dict, zero, n);
    ki_env_clear(&env);
    CHECK(!parse_npy(p, len) && has(why), "npy: %s", dict);
    ki_env_clear(&env);
}

static void test_npy(void) {
    uint8_t p[512];
    const uint16_t be[6] = {0x0100, 0x0200, 0x0300, 0x0400, 0x0500, 0x0600};
    ki_array a;
    size_t n = npy(p, "{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }\n", be, 12);
    CHECK(ki_npy_parse(&env, "t", p, n, &a) && a.dtype == KN_I16 && a.rank == 2, "big-endian, column-major");
    const int16_t want[6] = {1, 3, 5, 2, 4, 6};
    CHECK(memcmp(a.data, want, 12) == 0, "big-endian, column-major: values");
    ki_array_free(&a);
    n = npy(p, "{\"shape\": (), 'fortran_order':False,'descr':'<f8'}", be, 8);
    CHECK(ki_npy_parse(&env, "t", p, n, &a) && a.rank == 0 && a.numel == 1, "scalar, keys in another order");
    ki_array_free(&a);
    n = npy(p, "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 0, 99999999999), }", be, 0);
    CHECK(ki_npy_parse(&env, "t", p, n, &a) && a.numel == 0 && a.bytes == 0, "no elements");
    ki_array_free(&a);
    n = npy(p, "{'descr': '<V2', 'fortran_order': False, 'shape': (6,), }", be, 12);
    CHECK(ki_npy_parse(&env, "t", p, n, &a) && a.dtype == KN_BF16, "bf16 as ml_dtypes saves it");
    ki_array_free(&a);
    n = npy(p, "{'descr': [('f8e5m2', '|u1')], 'fortran_order': False, 'shape': (6,), }", be, 6);
    CHECK(ki_npy_parse(&env, "t", p, n, &a) && a.dtype == KN_F8E5M2, "f8e5m2 by its field's name");
    ki_array_free(&a);
    npy_fails("{'descr': '<c8', 'fortran_order': False, 'shape': (), }", 8, "dtype 'c8'");
    npy_fails("{'descr': 'O', 'fortran_order': False, 'shape': (), }", 8, "dtype 'O'");
    npy_fails("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 4, "cut short");
    npy_fails("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 16, "are there");
    npy_fails("{'descr': '<f4', 'fortran_order': False, }", 4, "all three");
    npy_fails("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 16), }", 4,
              "larger than any memory");
    npy_fails("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4, "2^63");
    npy_fails("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }", 4, "cut short");
    npy_fails("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (), }", 4, "True or False");
    npy_fails("{'descr': '<f4', 'descr': '<f4', 'fortran_order': True, 'shape': (), }", 4, "each key once");
    npy_fails("{'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1), 'descr': '<f4', 'fortran_order': True}", 4, "rank 17");
    npy_fails("{'descr': [('a', '<f4'), ('b', '<f4')], 'fortran_order': False, 'shape': (), }", 8, "one field");
    CHECK(!parse_npy((const uint8_t *)"PK\3\4 not an array", 18) && has("not an npy file"), "an archive is no array");
    n = npy(p, "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }", be, 12);
    damage("npy", p, n, parse_npy);
}

static void test_round_trip(void) {
    char path[] = "/tmp/koine-io-XXXXXX";
    ki_array none;
    int fd = mkstemp(path);
    close(fd);
    for (int t = KN_BOOL; t < KI_DTYPE_COUNT; t++) {
        if (t == KN_IDX) continue;
        ki_array a, b = {0};
        int64_t dim[3] = {2, 1, 5};
        bool ok = ki_array_make(&env, &a, (kn_dtype)t, 3, dim);
        for (size_t i = 0; i < a.bytes; i++) ((uint8_t *)a.data)[i] = t == KN_BOOL ? i & 1 : (uint8_t)(i * 37 + 11);
        ok = ok && ki_npy_write(&env, path, &a) && ki_npy_read(&env, path, &b);
        ok = ok && b.dtype == a.dtype && b.rank == 3 && b.dim[2] == 5 && memcmp(a.data, b.data, a.bytes) == 0;
        CHECK(ok, "npy: %s there and back", ki_dtypes[t].name);
        ki_array_free(&a);
        ki_array_free(&b);
    }
    unlink(path);
    CHECK(!ki_npy_read(&env, "/nonexistent/x.npy", &none) && has("cannot read /nonexistent/x.npy"),
          "a missing file is named");
    ki_env_clear(&env);
    CHECK(!ki_npy_read(&env, "/tmp", &none) && has("directory"), "a folder is no file");
    ki_env_clear(&env);
    int64_t huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
    CHECK(!ki_array_make(&env, &none, KN_F32, 2, huge) && has("larger than any memory"), "absurd sizes are refused");
    ki_env_clear(&env);
}

static void test_idx(void) {
    const uint8_t good[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4};
    ki_array a;
    CHECK(ki_idx_parse(&env, "t", good, sizeof good, &a) && a.rank == 3 && ((uint8_t *)a.data)[3] == 4, "idx: images");
    ki_array_free(&a);
    const uint8_t wide[] = {0, 0, 0x0c, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xfe};
    CHECK(ki_idx_parse(&env, "t", wide, sizeof wide, &a) && ((int32_t *)a.data)[0] == 256 &&
              ((int32_t *)a.data)[1] == -2,
          "idx: big-endian integers are turned");
    ki_array_free(&a);
    CHECK(!parse_idx(good, 19) && has("cut short: 20 bytes are announced, 19 are there"), "idx: cut short");
    ki_env_clear(&env);
    CHECK(!parse_idx((const uint8_t *)"\0\0\10\1\0\0\0\1ab", 10) && has("9 bytes are announced, 10"), "idx: too long");
    ki_env_clear(&env);
    CHECK(!parse_idx((const uint8_t *)"<html>", 6) && has("not an IDX file"), "idx: another file");
    ki_env_clear(&env);
    const uint8_t vast[] = {0,   0,   14,  4,   255, 255, 255, 255, 255, 255,
                            255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    CHECK(!parse_idx(vast, sizeof vast) && has("larger than any memory"), "idx: absurd sizes");
    damage("idx", good, sizeof good, parse_idx);
}

static bool put(const char *dir, const char *name, const void *p, size_t n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return ki_file_write(&env, path, p, n);
}

static void mnist_fails(const char *dir, const char *why) {
    ki_images im;
    ki_env_clear(&env);
    CHECK(!ki_images_mnist(&env, dir, false, &im) && has(why), "mnist: %s", why);
    ki_env_clear(&env);
}

static void test_mnist(void) {
    char dir[] = "/tmp/koine-mnist-XXXXXX";
    if (!mkdtemp(dir)) return;
    const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 255, 51, 102};
    const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 9}, three[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 9, 1};
    const uint8_t wrong[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 12};
    const char *x = "train-images-idx3-ubyte", *y = "train-labels-idx1-ubyte";
    mnist_fails(dir, "no train-images-idx3-ubyte");
    put(dir, x, images, sizeof images);
    mnist_fails(dir, "no train-labels-idx1-ubyte");
    put(dir, y, images, sizeof images);
    mnist_fails(dir, "holds images, expected labels");
    put(dir, y, three, sizeof three);
    mnist_fails(dir, "has 2 images");
    put(dir, y, wrong, sizeof wrong);
    mnist_fails(dir, "label 12 at position 1");
    put(dir, y, labels, sizeof labels);
    ki_images im;
    bool ok = ki_images_mnist(&env, dir, false, &im);
    CHECK(ok && im.n == 2 && im.x[1] == 1.0f && im.y[1] == 9, "mnist: a good pair");
    ki_images_free(&im);
    put(dir, x, labels, sizeof labels);
    mnist_fails(dir, "holds labels, expected images");
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    if (system(cmd) != 0) puts("# the folder stays");
}

static void test_hold(void) {
    ki_images im, held;
    bool ok = ki_images_digits(&env, NULL, 3, 23, &im);
    float fourth = im.x[4 * 784 + 300];
    int32_t label = im.y[22];
    ok = ok && ki_images_hold(&env, &im, &held);
    CHECK(ok && im.n == 19 && held.n == 4 && held.x[300] == fourth && im.y[18] == label,
          "every fifth image is held out");
    ki_images_free(&im);
    ki_images_free(&held);
}

static void test_digits(void) {
    ki_pool *pool = ki_pool_open(3);
    bool same = pool != NULL;
    for (int64_t n = 1; n <= 64 && same; n += n < 18 ? 1 : 23) {
        ki_images alone, shared;
        same = ki_images_digits(&env, NULL, 7, n, &alone) && ki_images_digits(&env, pool, 7, n, &shared) &&
               memcmp(alone.x, shared.x, (size_t)n * 784 * sizeof *alone.x) == 0 &&
               memcmp(alone.y, shared.y, (size_t)n * sizeof *alone.y) == 0;
        ki_images_free(&alone);
        ki_images_free(&shared);
    }
    CHECK(same, "digits are the same, whoever draws them");
    ki_pool_close(pool);
}

int main(void) {
    if (!ki_env_open(&env)) return 1;
    test_gzip();
    test_npy();
    test_round_trip();
    test_idx();
    test_mnist();
    test_hold();
    test_digits();
    ki_env_close(&env);
    return tap_done();
}
