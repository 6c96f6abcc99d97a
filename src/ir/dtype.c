/* dtype.c: facts and promotion of dtypes. See dtype.h. */
#include "ir/dtype.h"

#include <string.h>

const ki_dtype_info ki_dtypes[KI_DTYPE_COUNT] = {
#define KI_DTYPE(name, text, bits, kind, ctype, npy) [KN_##name] = {text, bits, KI_K_##kind, (bits) / 8, ctype, npy},
#include "ir/dtypes.def"
#undef KI_DTYPE
};

/* The lattice: what each dtype promotes to directly. The join of two is their least common upper bound. */
static const uint32_t above[KI_DTYPE_COUNT] = {
#define UP(t) (UINT32_C(1) << KN_##t)
    [KN_BOOL] = UP(U8) | UP(I8),
    [KN_U8] = UP(U16) | UP(I16),
    [KN_U16] = UP(U32) | UP(I32),
    [KN_U32] = UP(U64) | UP(I64),
    [KN_I8] = UP(I16),
    [KN_I16] = UP(I32),
    [KN_I32] = UP(I64),
    [KN_I64] = UP(F8E4M3) | UP(F8E5M2), /* any integer with a float gives that float */
    [KN_U64] = UP(F8E4M3) | UP(F8E5M2),
    [KN_F8E4M3] = UP(F16) | UP(BF16),
    [KN_F8E5M2] = UP(F16) | UP(BF16),
    [KN_F16] = UP(F32),
    [KN_BF16] = UP(F32),
    [KN_F32] = UP(F64),
#undef UP
};

static uint32_t closure(kn_dtype t) {
    uint32_t set = UINT32_C(1) << t, old;
    do {
        old = set;
        for (int k = 0; k < KI_DTYPE_COUNT; k++)
            if (set >> k & 1) set |= above[k];
    } while (set != old);
    return set;
}

kn_dtype ki_promote(kn_dtype a, kn_dtype b) {
    if (a == b) return a;
    if (a == KN_VOID || b == KN_VOID) return KN_VOID;
    if (a == KN_IDX) a = KN_I64;
    if (b == KN_IDX) b = KN_I64;
    /* The two 64-bit integers meet in f64, as in numpy. */
    if ((a == KN_U64 && ki_is_sint(b)) || (b == KN_U64 && ki_is_sint(a))) return KN_F64;
    uint32_t common = closure(a) & closure(b);
    for (int k = 0; k < KI_DTYPE_COUNT; k++)
        if ((common >> k & 1) && (closure((kn_dtype)k) & common) == common) return (kn_dtype)k;
    /* The two 8-bit floats have no least bound among the 16-bit ones. */
    return common >> KN_F16 & 1 ? KN_F16 : KN_VOID;
}

kn_dtype ki_dtype_named(const char *s, size_t n) {
    for (int t = 0; t < KI_DTYPE_COUNT; t++)
        if (strlen(ki_dtypes[t].name) == n && memcmp(ki_dtypes[t].name, s, n) == 0) return (kn_dtype)t;
    return KI_DTYPE_COUNT;
}

int64_t ki_int_min(kn_dtype t) {
    const ki_dtype_info *d = &ki_dtypes[t];
    if (d->kind == KI_K_INDEX) return INT64_MIN;
    if (d->kind != KI_K_INT) return 0;
    return d->bits == 64 ? INT64_MIN : -(INT64_C(1) << (d->bits - 1));
}

int64_t ki_int_max(kn_dtype t) {
    const ki_dtype_info *d = &ki_dtypes[t];
    if (d->kind == KI_K_BOOL) return 1;
    if (d->kind == KI_K_INDEX || d->bits == 64) return INT64_MAX;
    return d->kind == KI_K_INT ? (INT64_C(1) << (d->bits - 1)) - 1 : (INT64_C(1) << d->bits) - 1;
}
