/* device.h: a device is one table of functions. The run layer knows devices only through it.
 *
 * A device takes programs in one of two ways: compiled kernels (`compile`, then `submit`), or a whole program at any
 * stage (`execute`). Device memory is opaque to all but `copy`. One thread uses a device at a time.
 * To add a device: clone null/, add a row to the table in device.c. */
#ifndef KI_DEVICE_H
#define KI_DEVICE_H

#include "base/env.h"

typedef struct ki_device ki_device;
struct ki_program;

/* A compiled kernel, as the renderer wrote it: buf[k] is the buffer of slot k, var the variables, thread < threads. */
typedef void ki_entry(void *const *buf, const int64_t *var, int64_t thread);

typedef struct ki_kernel_text { /* one kernel to compile */
    const char *name;           /* the function that text defines */
    const char *text;
    size_t n;
    bool machine;    /* it is machine code already */
    bool kept;       /* which was found on disk */
    ki_entry *entry; /* out */
} ki_kernel_text;

typedef struct ki_launch {
    ki_entry *entry;
    void *const *buf;
    const int64_t *var;
    uint32_t threads;
    bool copy; /* instead: `bytes` from buf[1] to buf[0] */
    size_t bytes;
} ki_launch;

typedef enum ki_copy { KI_COPY_IN, KI_COPY_OUT, KI_COPY_WITHIN } ki_copy; /* host to device, back, on the device */

typedef struct ki_device_class {
    const char *name, *doc;
    bool runs; /* false: what it computes is undefined (NULL) */
    bool (*open)(ki_device *d);
    void (*close)(ki_device *d);
    void *(*alloc)(ki_device *d, size_t bytes); /* 64-byte aligned, contents undefined */
    void (*free)(ki_device *d, void *p, size_t bytes);
    bool (*copy)(ki_device *d, ki_copy dir, void *to, const void *from, size_t bytes);
    /* Machine code for all of them, or false. cflags: what the target asks of the compiler. */
    bool (*compile)(ki_device *d, const char *cflags, ki_kernel_text *k, size_t n);
    bool (*submit)(ki_device *d, const ki_launch *l, size_t n); /* in order */
    bool (*wait)(ki_device *d);
    /* Instead of compile and submit: in[k] and out[k] are host memory, one per port of p. */
    bool (*execute)(ki_device *d, const struct ki_program *p, void *const *in, void *const *out);
} ki_device_class;

typedef struct ki_device_stats {
    uint64_t launched;          /* kernels run */
    uint64_t compiled, cached;  /* kernels: by the compiler; found on disk */
    uint64_t compiler_runs;     /* processes */
    double compile_seconds;     /* in and around the compiler */
    size_t bytes, peak, pooled; /* allocated by the user of the device, its maximum, and free blocks kept */
    uint64_t fresh;             /* blocks taken from the system, the others were kept ones */
} ki_device_stats;

struct ki_device {
    const ki_device_class *is;
    ki_env *env;
    unsigned id, unit; /* env's device id; k of "NAME:k" */
    void *state;
    struct ki_blocks *blocks; /* host.h; NULL if the device has its own memory */
    ki_device_stats stats;
};

extern const ki_device_class ki_device_cpu, ki_device_null, ki_device_interp;

/* Every class, NULL-terminated. */
extern const ki_device_class *const ki_device_classes[];

/* The class of "CPU", "cpu:0", ...; NULL, with the failure recorded, if there is none. *unit: the number, 0 if none. */
const ki_device_class *ki_device_parse(ki_env *env, const char *name, unsigned *unit);
/* "NAME" or "NAME:k" as everything else spells it, interned. 0: failed. */
unsigned ki_device_intern(ki_env *env, const char *name);
ki_device *ki_device_open(ki_env *env, unsigned id);
void ki_device_close(ki_device *d);

#endif
