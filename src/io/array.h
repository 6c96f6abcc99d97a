/* array.h: a host array, and the npy file that holds one.
 *
 * numpy has no name for three of koine's dtypes. They are written as numpy's own ml_dtypes writes them where that says
 * which one it is, and read back from both forms:
 *
 *     bf16    '<V2'                        np.load(f).view(ml_dtypes.bfloat16)
 *     f8e4m3  '|V1' ('<V1')                np.load(f).view(ml_dtypes.float8_e4m3fn)
 *     f8e5m2  [('f8e5m2', '|u1')], '<f1'   np.load(f).view(ml_dtypes.float8_e5m2)
 *
 * index is written as i64. Big-endian and Fortran-order files are read (and turned), never written. */
#ifndef KI_ARRAY_H
#define KI_ARRAY_H

#include "base/env.h"
#include "ir/dtype.h"

#define KI_ARRAY_RANK 16

typedef struct ki_array {
    kn_dtype dtype;
    unsigned rank;
    int64_t dim[KI_ARRAY_RANK];
    int64_t numel;
    size_t bytes;
    void *data; /* row-major, ki_malloc'ed unless the maker says otherwise */
} ki_array;

/* Cleared memory for a shape. The sizes are checked: absurd ones fail with a message. */
bool ki_array_make(ki_env *env, ki_array *a, kn_dtype dtype, unsigned rank, const int64_t *dim);
void ki_array_free(ki_array *a);

bool ki_npy_parse(ki_env *env, const char *name, const uint8_t *p, size_t n, ki_array *out);
bool ki_npy_read(ki_env *env, const char *path, ki_array *out);
bool ki_npy_write(ki_env *env, const char *path, const ki_array *a);

#endif
