/* base.h: contexts, statuses, dtypes, devices: what every other header needs. C99 and C++ clean.
 *
 * The library never prints, aborts or exits. A context is used by one thread at a time and shares nothing mutable
 * with other contexts. Kernels keep up to 4 MiB on a stack: where the calling thread's has less room they run in a thread
 * made for it. After fork() the child may use and close the contexts that its one thread was not in the middle of. */
#ifndef KN_BASE_H
#define KN_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) && defined(KN_BUILD)
#define KN_API __attribute__((visibility("default")))
#else
#define KN_API
#endif

#define KN_VERSION_MAJOR 0
#define KN_VERSION_MINOR 1
#define KN_VERSION_PATCH 0

typedef struct kn_ctx kn_ctx;
typedef struct kn_tensor_s *kn_tensor;

typedef enum kn_status {
    KN_OK = 0,
    KN_BAD_ARGUMENT = -1, /* shape, dtype, axis */
    KN_PARSE = -2,       /* malformed text */
    KN_IO = -3,          /* a file could not be read or written */
    KN_NOMEM = -4,       /* host or device memory */
    KN_UNSUPPORTED = -5, /* right, but not available here */
    KN_INTERNAL = -6,    /* a defect of koine */
    KN_DEVICE = -7,      /* a device failed */
    KN_VERIFY_FAILED = -8
} kn_status;

/* Names of values as in src/ir/dtypes.def; the numbers are part of the ABI. */
typedef enum kn_dtype {
    KN_VOID, KN_BOOL,
    KN_U8, KN_U16, KN_U32, KN_U64,
    KN_I8, KN_I16, KN_I32, KN_I64,
    KN_F8E4M3, KN_F8E5M2, KN_F16, KN_BF16, KN_F32, KN_F64,
    KN_IDX, /* `index`: a mathematical integer, for sizes and positions */
    KN_DTYPE_COUNT
} kn_dtype;
KN_API const char *kn_dtype_name(kn_dtype t); /* "f32", ... */
KN_API size_t kn_dtype_size(kn_dtype t);      /* bytes of an element */

/* Opens a context. device: "CPU", "INTERP", "NULL", ...; NULL takes KN_DEVICE, else CPU. NULL when out of memory.
 * A setting in the environment that is none counts as its default, and kn_error(k) says so. */
KN_API kn_ctx *kn_open(const char *device);
/* Frees the context and everything in it. NULL is allowed. */
KN_API void kn_close(kn_ctx *k);

/* Status and text of the first failure since the last kn_clear; KN_OK and "" if none. Of no context (NULL) KN_NOMEM, and every call
 * given it does nothing and returns NULL, 0 or KN_BAD_ARGUMENT. */
KN_API kn_status kn_error(const kn_ctx *k);
KN_API const char *kn_message(const kn_ctx *k);
KN_API void kn_clear(kn_ctx *k);

/* What the library has to say goes here; default: nowhere. */
KN_API void kn_set_log(kn_ctx *k, void (*log)(void *user, const char *text), void *user);
/* Memory koine handed to the caller (texts). */
KN_API void kn_free(void *p);
/* Settings by the name of their environment variable ("KN_DEBUG", ...); value NULL restores the default. */
KN_API kn_status kn_set(kn_ctx *k, const char *name, const char *value);
KN_API const char *kn_get(const kn_ctx *k, const char *name);

KN_API const char *kn_version(void);

#ifdef __cplusplus
}
#endif
#endif
