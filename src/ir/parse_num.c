/* parse_num.c: numbers as text, both ways, exactly.
 *
 * What holds: ki_num_read(ki_num_put(bits)) == bits for every value of every dtype, NaN payloads, -0 and infinities
 * included; the locale plays no part (no decimal point is ever given to the C library: 1.25e3 is read as 125e1). */
#include "ir/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Mantissa bits, and the mantissa of the NaN that plain `nan` means. */
static void nan_facts(kn_dtype t, unsigned *bits, uint64_t *quiet) {
    switch (t) {
    case KN_F8E4M3: *bits = 3, *quiet = 7; return; /* its one NaN: all ones */
    case KN_F8E5M2: *bits = 2; break;
    case KN_F16: *bits = 10; break;
    case KN_BF16: *bits = 7; break;
    case KN_F32: *bits = 23; break;
    default: *bits = 52; break;
    }
    *quiet = UINT64_C(1) << (*bits - 1);
}

/* Digits times ten to the exp, as bits of the dtype. `digits` has room for an exponent behind its n. */
static uint64_t from_decimal(kn_dtype t, char *digits, size_t n, int exp) {
    snprintf(digits + n, 16, "e%d", exp);
    uint64_t bits;
    if (t == KN_F32) { /* directly: by way of double it would be rounded twice */
        float f = strtof(digits, NULL);
        uint32_t b;
        memcpy(&b, &f, sizeof b);
        return b;
    }
    double v = strtod(digits, NULL);
    if (t != KN_F64) return ki_bits_from_f64(t, v);
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

/* ---- printing ----------------------------------------------------------------------------------------------- */

/* |v| in the fewest digits that read back to `bits`; sets the exponent of the last digit. */
static size_t shortest(kn_dtype t, double v, uint64_t bits, char *digits, int *exp) {
    char text[40], trial[64];
    int lo = 1, hi = 17;
    while (lo < hi) { /* more digits are never further from v */
        int mid = (lo + hi) / 2;
        snprintf(text, sizeof text, "%.*e", mid - 1, v);
        size_t n = 0;
        for (const char *c = text; *c != 'e'; c++)
            if (*c >= '0' && *c <= '9') trial[n++] = *c;
        if (from_decimal(t, trial, n, atoi(strchr(text, 'e') + 1) - mid + 1) == bits) hi = mid;
        else lo = mid + 1;
    }
    snprintf(text, sizeof text, "%.*e", lo - 1, v);
    size_t n = 0;
    for (const char *c = text; *c != 'e'; c++)
        if (*c >= '0' && *c <= '9') digits[n++] = *c;
    *exp = atoi(strchr(text, 'e') + 1) - lo + 1;
    while (n > 1 && digits[n - 1] == '0') n--, ++*exp;
    return n;
}

static void put_zeros(ki_text *t, int n) {
    for (int i = 0; i < n; i++) ki_text_putc(t, '0');
}

static void put_finite(ki_text *t, kn_dtype dtype, double v, uint64_t bits) {
    char digits[64];
    int exp;
    if (v == floor(v) && v < 1e16) { /* whole numbers are given in full */
        ki_text_printf(t, "%lld.0", (long long)v);
        return;
    }
    size_t n = shortest(dtype, v, bits, digits, &exp);
    int point = (int)n + exp; /* digits before the point */
    if (point > 0 && point <= 16 && exp < 0) {
        ki_text_putn(t, digits, (size_t)point);
        ki_text_putc(t, '.');
        ki_text_putn(t, digits + point, n - (size_t)point);
    } else if (point <= 0 && point > -5) {
        ki_text_put(t, "0.");
        put_zeros(t, -point);
        ki_text_putn(t, digits, n);
    } else {
        ki_text_putn(t, digits, 1);
        if (n > 1) ki_text_putc(t, '.');
        ki_text_putn(t, digits + 1, n - 1);
        ki_text_printf(t, "e%d", point - 1);
    }
}

static void put_float(ki_text *t, kn_dtype dtype, uint64_t bits) {
    unsigned width = ki_dtypes[dtype].bits, mant;
    uint64_t quiet, sign = bits >> (width - 1) & 1;
    nan_facts(dtype, &mant, &quiet);
    double v = ki_f64_from_bits(dtype, bits);
    if (sign) ki_text_putc(t, '-');
    if (isnan(v)) {
        uint64_t payload = bits & ((UINT64_C(1) << mant) - 1);
        ki_text_put(t, "nan");
        if (payload != quiet) ki_text_printf(t, "(0x%llx)", (unsigned long long)payload);
    } else if (isinf(v)) {
        ki_text_put(t, "inf");
    } else {
        put_finite(t, dtype, fabs(v), bits & ~(UINT64_C(1) << (width - 1)));
    }
}

void ki_num_put(ki_text *t, kn_dtype dtype, uint64_t bits) {
    switch ((ki_kind)ki_dtypes[dtype].kind) {
    case KI_K_BOOL: ki_text_put(t, bits ? "true" : "false"); return;
    case KI_K_UINT: ki_text_printf(t, "%llu", (unsigned long long)bits); return;
    case KI_K_INT:
    case KI_K_INDEX: ki_text_printf(t, "%lld", (long long)(int64_t)bits); return;
    case KI_K_FLOAT: put_float(t, dtype, bits); return;
    case KI_K_VOID: ki_text_put(t, "void"); return;
    }
}

void ki_f64_put(ki_text *t, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    put_float(t, KN_F64, bits);
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decimal or 0x digits, all of them. */
static ki_num read_magnitude(const char *s, size_t n, uint64_t *v) {
    unsigned base = n > 2 && s[0] == '0' && (s[1] | 32) == 'x' ? 16 : 10;
    size_t i = base == 16 ? 2 : 0;
    if (i == n) return KI_NUM_BAD;
    *v = 0;
    bool over = false;
    for (; i < n; i++) {
        int d = hex_value(s[i]);
        if (d < 0 || d >= (int)base) return KI_NUM_BAD;
        over |= ki_mul_overflow(*v, (uint64_t)base, v) || ki_add_overflow(*v, (uint64_t)d, v);
    }
    return over ? KI_NUM_RANGE : KI_NUM_OK;
}

static ki_num read_int(kn_dtype t, const char *s, size_t n, uint64_t *bits) {
    bool neg = n && s[0] == '-';
    uint64_t v;
    ki_num st = read_magnitude(s + neg, n - neg, &v);
    if (st != KI_NUM_OK) return st;
    uint64_t top = t == KN_U64 ? UINT64_MAX : (uint64_t)ki_int_max(t);
    uint64_t bottom = (uint64_t)0 - (uint64_t)ki_int_min(t); /* its magnitude */
    if (v > (neg ? bottom : top)) return KI_NUM_RANGE;
    *bits = neg ? (uint64_t)0 - v : v;
    return KI_NUM_OK;
}

static ki_num read_nan(kn_dtype t, const char *s, size_t n, bool neg, uint64_t *bits) {
    unsigned mant;
    uint64_t payload;
    nan_facts(t, &mant, &payload);
    if (n) { /* (0x...) */
        if (n < 5 || s[0] != '(' || s[1] != '0' || s[n - 1] != ')') return KI_NUM_BAD;
        ki_num st = read_magnitude(s + 1, n - 2, &payload);
        if (st != KI_NUM_OK) return st;
    }
    if (payload >> mant) return KI_NUM_RANGE;
    unsigned width = ki_dtypes[t].bits;
    uint64_t exponent = ((UINT64_C(1) << (width - 1 - mant)) - 1) << mant;
    *bits = exponent | payload | (uint64_t)neg << (width - 1);
    return isnan(ki_f64_from_bits(t, *bits)) ? KI_NUM_OK : KI_NUM_RANGE;
}

/* Splits digits[.digits][e[+-]digits]; leading zeros go, so that the count is of what matters. */
enum { DIGITS_MAX = 1024 };
static ki_num split_decimal(const char *s, size_t n, char *digits, size_t *count, int *exp) {
    size_t i = 0, k = 0, seen = 0;
    int64_t scale = 0;
    bool point = false;
    for (; i < n && (is_digit(s[i]) || (s[i] == '.' && !point)); i++) {
        if (s[i] == '.') {
            point = true;
            continue;
        }
        seen++;
        scale -= point;
        if (k == 0 && s[i] == '0') continue;
        if (k == DIGITS_MAX) return KI_NUM_BAD;
        digits[k++] = s[i];
    }
    if (!seen || (point && s[i - 1] == '.')) return KI_NUM_BAD;
    if (i < n) {
        if ((s[i] | 32) != 'e') return KI_NUM_BAD;
        bool neg = ++i < n && s[i] == '-';
        if (i < n && (s[i] == '-' || s[i] == '+')) i++;
        int64_t e = 0;
        if (i == n) return KI_NUM_BAD;
        for (; i < n; i++) {
            if (!is_digit(s[i])) return KI_NUM_BAD;
            if (e < 1000000) e = e * 10 + (s[i] - '0');
        }
        scale += neg ? -e : e;
    }
    if (k == 0) digits[k++] = '0', scale = 0;
    *count = k;
    *exp = (int)(scale < -9999999 ? -9999999 : scale > 9999999 ? 9999999 : scale);
    return KI_NUM_OK;
}

static ki_num read_float(kn_dtype t, const char *s, size_t n, uint64_t *bits) {
    bool neg = n && s[0] == '-';
    uint64_t sign = (uint64_t)neg << (ki_dtypes[t].bits - 1);
    s += neg, n -= neg;
    if (n >= 3 && memcmp(s, "nan", 3) == 0) return read_nan(t, s + 3, n - 3, neg, bits);
    if (n == 3 && memcmp(s, "inf", 3) == 0) {
        *bits = ki_bits_from_f64(t, INFINITY);
        if (!isinf(ki_f64_from_bits(t, *bits))) return KI_NUM_RANGE; /* f8e4m3 has none */
        *bits |= sign;
        return KI_NUM_OK;
    }
    char digits[DIGITS_MAX + 24];
    size_t count;
    int exp;
    ki_num st = split_decimal(s, n, digits, &count, &exp);
    if (st != KI_NUM_OK) return st;
    *bits = from_decimal(t, digits, count, exp);
    if (!isfinite(ki_f64_from_bits(t, *bits))) return KI_NUM_RANGE;
    *bits |= sign;
    return KI_NUM_OK;
}

ki_num ki_num_read(kn_dtype dtype, const char *s, size_t n, uint64_t *bits) {
    switch ((ki_kind)ki_dtypes[dtype].kind) {
    case KI_K_BOOL:
        if (ki_word_is(s, n, "true") || ki_word_is(s, n, "false")) return *bits = n == 4, KI_NUM_OK;
        return read_int(dtype, s, n, bits);
    case KI_K_UINT:
    case KI_K_INT:
    case KI_K_INDEX: return read_int(dtype, s, n, bits);
    case KI_K_FLOAT: return read_float(dtype, s, n, bits);
    case KI_K_VOID: break;
    }
    return KI_NUM_BAD;
}

ki_num ki_f64_read(const char *s, size_t n, double *v) {
    uint64_t bits;
    ki_num st = read_float(KN_F64, s, n, &bits);
    if (st == KI_NUM_OK) memcpy(v, &bits, sizeof bits);
    return st;
}

ki_num ki_i64_read(const char *s, size_t n, int64_t *v) {
    uint64_t bits;
    ki_num st = read_int(KN_I64, s, n, &bits);
    if (st == KI_NUM_OK) *v = (int64_t)bits;
    return st;
}
