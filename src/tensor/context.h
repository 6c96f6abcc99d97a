/* context.h: what a kn_ctx and a kn_tensor are made of.
 *
 * A tensor is a handle on a UOp of the context's store. Realised data is a GLOBAL BUFFER node (usually under a RESHAPE);
 * its bytes are the storage with the BUFFER's id. Roots of collection are the live tensors and captured programs. */
#ifndef KI_CONTEXT_H
#define KI_CONTEXT_H

#include "ir/uop.h"

struct ki_device;
typedef struct ki_storage { /* by BUFFER id; data NULL: not allocated yet, or freed */
    void *data;
    size_t bytes;
    struct ki_device *device;
    void (*release)(void *owner); /* host memory the user owns, NULL: the device frees */
    void *owner;
} ki_storage;

struct kn_tensor_s {
    struct kn_ctx *k;
    kn_uop u;           /* NULL: an error tensor */
    uint32_t scope;     /* depth of the owning scope, 0 = the context itself (kept) */
    ki_err err;         /* error tensors: the failure, its text in message */
    char *message;
    ki_loc loc;         /* the call that made it */
    struct kn_tensor_s *prev, *next; /* all live tensors of the context, youngest first */
};

struct kn_ctx {
    ki_env env;
    ki_ir ir;
    struct kn_tensor_s *tensors;
    uint32_t depth; /* open scopes */
    ki_storage *storage;
    uint32_t nstorage;
    uint64_t rng_seed, rng_counter;
    void *run;                          /* run layer: devices, caches; made on first use */
    void (*run_close)(struct kn_ctx *k);
};

#endif
