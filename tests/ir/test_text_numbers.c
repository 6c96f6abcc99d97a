/* Every value of the small floats, and many of the large, survives as text; the text is short; bad numbers are refused. */
#include "text_util.h"

#include "base/hash.h"
#include "ir/parse.h"

#include <locale.h>
#include <math.h>

static int survives(kn_dtype t, uint64_t bits) {
    ki_text s = {0};
    uint64_t back = ~bits;
    ki_num_put(&s, t, bits);
    ki_num st = ki_num_read(t, s.s, s.n, &back);
    int ok = st == KI_NUM_OK && back == bits && s.n < 30;
    if (!ok)
        printf("# %s 0x%llx: '%s' gives %d 0x%llx\n", ki_dtypes[t].name, (unsigned long long)bits, s.s, st,
               (unsigned long long)back);
    ki_text_free(&s);
    return ok;
}

static int prints(kn_dtype t, double v, const char *want) {
    ki_text s = {0};
    ki_num_put(&s, t, ki_bits_from_f64(t, v));
    int ok = strcmp(s.s, want) == 0;
    if (!ok) printf("# %s %.17g: '%s', not '%s'\n", ki_dtypes[t].name, v, s.s, want);
    ki_text_free(&s);
    return ok;
}

static void test_all_small(void) {
    static const kn_dtype t[] = {KN_F8E4M3, KN_F8E5M2, KN_F16, KN_BF16, KN_U8, KN_U16};
    for (unsigned k = 0; k < sizeof t / sizeof *t; k++) {
        int ok = 1;
        for (uint64_t b = 0; b >> ki_dtypes[t[k]].bits == 0; b++) ok &= survives(t[k], b);
        CHECK(ok, "every %s", ki_dtypes[t[k]].name);
    }
    int ok = 1;
    for (int v = -128; v < 128; v++) ok &= survives(KN_I8, (uint64_t)(int64_t)v);
    CHECK(ok && survives(KN_BOOL, 0) && survives(KN_BOOL, 1), "every i8 and bool");
}

static void test_large(void) {
    int f32 = 1, f64 = 1;
    for (uint64_t i = 0; i < 20000; i++) {
        uint64_t r = ki_mix(i);
        f32 &= survives(KN_F32, r >> 32);
        f64 &= survives(KN_F64, r);
        f32 &= survives(KN_F32, (r >> 32 & 0x807fffff) | (i & 1 ? 0x7f800000 : 0)); /* subnormals, NaNs */
        f64 &= survives(KN_F64, (r & UINT64_C(0x800fffffffffffff)) | (i & 1 ? UINT64_C(0x7ff0000000000000) : 0));
    }
    CHECK(f32, "f32: values, subnormals, NaN payloads");
    CHECK(f64, "f64: values, subnormals, NaN payloads");
    int64_t edge[] = {0, 1, -1, INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN};
    int ok = survives(KN_U64, UINT64_MAX) && survives(KN_U32, UINT32_MAX);
    for (unsigned k = 0; k < sizeof edge / sizeof *edge; k++)
        ok = ok && survives(KN_I64, (uint64_t)edge[k]) && survives(KN_IDX, (uint64_t)edge[k]) &&
             survives(KN_I32, ki_bits_wrap(KN_I32, edge[k]));
    CHECK(ok, "integers at their ends");
}

static void test_short(void) {
    CHECK(prints(KN_F32, 0.1, "0.1") && prints(KN_F64, 0.1, "0.1") && prints(KN_F16, 0.1, "0.1"),
          "0.1 is 0.1 in every dtype");
    CHECK(prints(KN_F32, 2, "2.0") && prints(KN_F32, -0.0, "-0.0") && prints(KN_F64, 1e15, "1000000000000000.0"),
          "whole numbers have a point");
    CHECK(prints(KN_F32, 1e30, "1e30") && prints(KN_F64, 1.5e-30, "1.5e-30") && prints(KN_F64, 0.001, "0.001"),
          "exponents where they are shorter");
    CHECK(prints(KN_F32, INFINITY, "inf") && prints(KN_BF16, -INFINITY, "-inf") && prints(KN_F32, NAN, "nan"), "words");
    CHECK(prints(KN_F64, 3.141592653589793, "3.141592653589793") && prints(KN_F32, 3.14159274f, "3.1415927"),
          "pi in the digits it needs");
}

static void test_refused(void) {
    static const struct {
        kn_dtype t;
        const char *s;
        ki_num want;
    } v[] = {
        {KN_I8, "128", KI_NUM_RANGE},
        {KN_I8, "-128", KI_NUM_OK},
        {KN_I8, "-129", KI_NUM_RANGE},
        {KN_U8, "-1", KI_NUM_RANGE},
        {KN_U8, "0xff", KI_NUM_OK},
        {KN_U8, "0x", KI_NUM_BAD},
        {KN_U64, "18446744073709551615", KI_NUM_OK},
        {KN_U64, "18446744073709551616", KI_NUM_RANGE},
        {KN_IDX, "-9223372036854775808", KI_NUM_OK},
        {KN_IDX, "9223372036854775808", KI_NUM_RANGE},
        {KN_I32, "1.0", KI_NUM_BAD},
        {KN_I32, "", KI_NUM_BAD},
        {KN_I32, "-", KI_NUM_BAD},
        {KN_F32, "1", KI_NUM_OK},
        {KN_F32, "1.", KI_NUM_BAD},
        {KN_F32, ".5", KI_NUM_OK},
        {KN_F32, "1e", KI_NUM_BAD},
        {KN_F32, "1e+", KI_NUM_BAD},
        {KN_F32, "1e39", KI_NUM_RANGE},
        {KN_F64, "1e309", KI_NUM_RANGE},
        {KN_F64, "1e99999999999", KI_NUM_RANGE},
        {KN_F64, "1e-99999999999", KI_NUM_OK},
        {KN_F64, "0e99999999999", KI_NUM_OK},
        {KN_F16, "65520", KI_NUM_RANGE},
        {KN_F8E4M3, "inf", KI_NUM_RANGE},
        {KN_F8E4M3, "1000", KI_NUM_RANGE},
        {KN_F8E5M2, "inf", KI_NUM_OK},
        {KN_F32, "nan(0x0)", KI_NUM_RANGE},
        {KN_F32, "nan(0x800000)", KI_NUM_RANGE},
        {KN_F32, "nan()", KI_NUM_BAD},
        {KN_F32, "nan(1)", KI_NUM_BAD},
        {KN_F32, "infinity", KI_NUM_BAD},
        {KN_F32, "0x1p3", KI_NUM_BAD},
        {KN_F32, "1_000", KI_NUM_BAD},
        {KN_BOOL, "true", KI_NUM_OK},
        {KN_BOOL, "2", KI_NUM_RANGE},
        {KN_BOOL, "yes", KI_NUM_BAD},
        {KN_VOID, "1", KI_NUM_BAD},
    };
    int ok = 1;
    for (unsigned k = 0; k < sizeof v / sizeof *v; k++) {
        uint64_t bits;
        ki_num st = ki_num_read(v[k].t, v[k].s, strlen(v[k].s), &bits);
        if (st != v[k].want) ok = 0, printf("# %s '%s' gives %d\n", ki_dtypes[v[k].t].name, v[k].s, st);
    }
    CHECK(ok, "numbers that are none, and numbers out of range");
    uint64_t a = 0, b = 0;
    ki_num_read(KN_F32, "16777217", 8, &a); /* between two f32: ties to even, once */
    ki_num_read(KN_F32, "16777216", 8, &b);
    CHECK(a == b, "f32 rounds to nearest even");
    ki_num_read(KN_F32, "1.00000017881393432617187499", 28, &a);
    ki_num_read(KN_F32, "1.00000011920928955078125", 25, &b);
    CHECK(a == b, "f32 is rounded once, not by way of double");
}

static void test_locale(void) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    const char *got = NULL;
    for (int k = 0; k < 4 && !got; k++) got = setlocale(LC_NUMERIC, names[k]);
    CHECK(prints(KN_F64, 0.1, "0.1") && survives(KN_F64, UINT64_C(0x3fb999999999999a)),
          "a locale with a decimal comma (%s)", got ? "set" : "none here");
    setlocale(LC_NUMERIC, "C");
}

int main(void) {
    test_all_small();
    test_large();
    test_short();
    test_refused();
    test_locale();
    return tap_done();
}
