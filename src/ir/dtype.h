/* dtype.h: dtypes, their facts, their promotion. All made from dtypes.def. */
#ifndef KI_DTYPE_H
#define KI_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* KN_IDX is `index`; KN_INDEX is the op. */
#include <koine/base.h>
#define KI_DTYPE_COUNT KN_DTYPE_COUNT
enum { /* rows of dtypes.def stand in the order of the public enum */
#define KI_DTYPE(name, text, bits, kind, ctype, npy) KI_ROW_##name,
#include "ir/dtypes.def"
#undef KI_DTYPE
    KI_ROW_COUNT
};
#define KI_DTYPE(name, text, bits, kind, ctype, npy) _Static_assert((int)KI_ROW_##name == (int)KN_##name, #name);
#include "ir/dtypes.def"
#undef KI_DTYPE
_Static_assert((int)KI_ROW_COUNT == (int)KN_DTYPE_COUNT, "a dtype lacks its row");

typedef enum ki_kind { KI_K_VOID, KI_K_BOOL, KI_K_UINT, KI_K_INT, KI_K_FLOAT, KI_K_INDEX } ki_kind;

typedef struct ki_dtype_info {
    const char *name;
    uint8_t bits, kind, bytes;
    const char *ctype, *npy;
} ki_dtype_info;
extern const ki_dtype_info ki_dtypes[KI_DTYPE_COUNT];

static inline bool ki_is_float(kn_dtype t) { return ki_dtypes[t].kind == KI_K_FLOAT; }
static inline bool ki_is_uint(kn_dtype t) { return ki_dtypes[t].kind == KI_K_UINT; }
static inline bool ki_is_sint(kn_dtype t) { return ki_dtypes[t].kind == KI_K_INT; }
/* i*, u* and index; not bool. */
static inline bool ki_is_int(kn_dtype t) {
    return ki_dtypes[t].kind == KI_K_INT || ki_dtypes[t].kind == KI_K_UINT || ki_dtypes[t].kind == KI_K_INDEX;
}
static inline size_t ki_itemsize(kn_dtype t) { return ki_dtypes[t].bytes; }

/* Least dtype that holds both (array API and JAX lattice; u64 with a signed integer gives f64, as numpy).
 * VOID if there is none. `index` promotes as i64. */
kn_dtype ki_promote(kn_dtype a, kn_dtype b);
/* By text name; KI_DTYPE_COUNT if unknown. */
kn_dtype ki_dtype_named(const char *s, size_t n);
/* Range of an integer dtype. index and u64 above INT64_MAX: INT64_MIN and INT64_MAX stand for infinity. */
int64_t ki_int_min(kn_dtype t);
int64_t ki_int_max(kn_dtype t);

#endif
