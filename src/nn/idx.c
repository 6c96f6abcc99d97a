/* idx.c: IDX files: 0 0 type rank, then big-endian sizes, then big-endian data. See idx.h.
 * The file must hold exactly what its sizes announce: a cut or mislabelled file is named, not half read. */
#include "nn/idx.h"

#include "io/file.h"

#include <string.h>

static kn_dtype idx_type(uint8_t code) {
    switch (code) {
    case 0x08: return KN_U8;
    case 0x09: return KN_I8;
    case 0x0b: return KN_I16;
    case 0x0c: return KN_I32;
    case 0x0d: return KN_F32;
    case 0x0e: return KN_F64;
    default: return KN_VOID;
    }
}

bool ki_idx_parse(ki_env *env, const char *name, const uint8_t *p, size_t n, ki_array *out) {
    *out = (ki_array){0};
    uint8_t head[4] = {0};
    memcpy(head, p, n < 4 ? n : 4);
    kn_dtype t = idx_type(head[2]);
    unsigned rank = head[3];
    if (n < 4 || head[0] || head[1] || t == KN_VOID || rank == 0)
        return ki_fail(env, KI_E_IDX_MAGIC, name, head[0], head[1], head[2], head[3]), false;
    if (rank > KI_ARRAY_RANK) return ki_fail(env, KI_E_ARRAY_RANK, rank, KI_ARRAY_RANK), false;
    size_t at = 4 + 4 * (size_t)rank, item = ki_itemsize(t);
    unsigned long long want = item, there = n;
    if (n < at) return ki_fail(env, KI_E_IDX_SHORT, name, (unsigned long long)at, there), false;
    int64_t dim[KI_ARRAY_RANK];
    for (unsigned k = 0; k < rank; k++) {
        const uint8_t *d = p + 4 + 4 * (size_t)k;
        dim[k] = (int64_t)d[0] << 24 | (int64_t)d[1] << 16 | (int64_t)d[2] << 8 | d[3];
        if (ki_mul_overflow(want, (unsigned long long)dim[k], &want) || want > UINT64_C(1) << 47)
            return ki_fail(env, KI_E_ARRAY_SIZE, (long long)dim[k], k), false;
    }
    want += at;
    if (want > there) return ki_fail(env, KI_E_IDX_SHORT, name, want, there), false;
    if (want < there) return ki_fail(env, KI_E_IDX_LONG, name, want, there), false;
    if (!ki_array_make(env, out, t, rank, dim)) return false;
    uint8_t *to = out->data;
    for (size_t i = 0; i < out->bytes; i++) to[i] = p[at + (i / item) * item + (item - 1 - i % item)];
    return true;
}

bool ki_idx_read(ki_env *env, const char *path, ki_array *out) {
    uint8_t *p;
    size_t n;
    *out = (ki_array){0};
    if (!ki_file_read_gz(env, path, &p, &n)) return false;
    bool ok = ki_idx_parse(env, path, p, n, out);
    ki_free(p);
    return ok;
}
