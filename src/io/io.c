/* io.c: the public calls on files. Formats are in files of their own; this one turns arrays into tensors and back. */
#define KN_NO_LOC
#include "io/array.h"
#include "tensor/context.h"

#include <koine/io.h>

#include <string.h>

kn_tensor kn_load_npy(kn_ctx *k, const char *path) {
    if (!k) return NULL;
    k->fn = "load_npy";
    ki_array a;
    if (!ki_given(k, k->fn, "path", path) || !ki_npy_read(&k->env, path, &a)) return ki_handle(k, NULL);
    kn_tensor t = kn_from_host(k, a.data, a.dtype, kn_ints_of(a.rank, a.dim));
    ki_array_free(&a);
    return t;
}

kn_status kn_save_npy(kn_tensor t, const char *path) {
    kn_ctx *k = kn_context(t);
    if (k && !ki_given(k, "save_npy", "path", path)) return (kn_status)ki_settle_failure(k);
    kn_status s = kn_realize(t);
    if (s) return s;
    ki_array a = {.dtype = kn_dtype_of(t), .rank = (unsigned)kn_rank(t), .numel = kn_numel(t)};
    for (unsigned i = 0; i < a.rank; i++) a.dim[i] = kn_size(t, (int)i);
    a.bytes = (size_t)a.numel * ki_itemsize(a.dtype);
    const void *data = a.bytes ? kn_data(t) : "";
    if (!data) return kn_error(k);
    memcpy(&a.data, &data, sizeof data); /* only read */
    ki_npy_write(&k->env, path, &a);
    return (kn_status)ki_settle_failure(k);
}
