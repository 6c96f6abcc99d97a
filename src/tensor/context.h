/* context.h: what a kn_ctx and a kn_tensor are made of, and the contract between the front end and the run layer.
 *
 * A tensor is a handle on a UOp of the context's store. Realised data is a GLOBAL BUFFER node (usually under a RESHAPE);
 * its bytes are the storage with the BUFFER's id. Roots of collection are the live tensors; captured steps hold storage, not nodes.
 *
 * What always holds:
 *  - between public calls env is clean: a failure recorded in env while a call runs moves, when the call ends, into the
 *    error tensor it returns and into k->first (the first failure since kn_clear);
 *  - handles never move; a dead one keeps its place and is reused only after KI_QUARANTINE younger deaths, so that use
 *    after the end is noticed;
 *  - storage[i] belongs to the BUFFER with id i; ids are reused once no node has them (ki_collect). */
#ifndef KI_CONTEXT_H
#define KI_CONTEXT_H

#include "ir/program.h"
#include "ir/uop.h"

#include <koine/base.h>

#define KI_QUARANTINE   16384
#define KI_BYTES_A_NODE 8192 /* to write so much takes several times as long as to collect one node */
#define KI_SCOPES     32

struct ki_device;
typedef struct ki_storage { /* by BUFFER id; data NULL: not allocated yet, or freed */
    void *data;
    size_t bytes;
    struct ki_device *device;     /* NULL: host memory (of ki_data_alloc unless borrowed) */
    void (*release)(void *owner); /* memory the user owns: called when no longer needed; NULL: nothing to call */
    void *owner;
    uint64_t drawn;  /* the state of a random stream: how many numbers are drawn of it; 0: none */
    uint64_t marked; /* births of the context when ki_overwritten last heard of it: only younger tensors can be stale */
    uint32_t held;   /* captured steps that have it */
    bool used, borrowed;
} ki_storage;

enum { KI_STRONG, KI_WEAK_INT, KI_WEAK_FLOAT };
enum { KI_LIVE, KI_DEAD, KI_STALE };
struct kn_tensor_s {
    struct kn_ctx *k;
    kn_uop u;                        /* NULL: an error tensor */
    kn_uop past;                     /* realised: the graph it was computed from, for gradients; else NULL */
    struct kn_tensor_s *prev, *next; /* all live tensors of the context, youngest first; next alone: the dead */
    struct kn_tensor_s *view_prev, *view_next; /* live views of one base, or those that are no views (assign.c) */
    uint64_t born;                   /* k->births at birth: the list is in descending order of it */
    uint32_t scope;                  /* depth of the owning scope, 0 = the context itself (kept) */
    uint8_t weak;                    /* a literal: lit.i or lit.f is its exact value */
    uint8_t dead; /* KI_DEAD: its scope has ended; KI_STALE: what it reads has been overwritten */
    uint8_t cut;    /* realised, and what it was computed from has been overwritten: no gradient reaches through */
    int16_t status; /* error tensors */
    union {
        int64_t i;
        double f;
    } lit;
    char *message; /* error tensors */
    ki_loc loc;    /* the call that made it */
};

/* What a function of nodes made of them before (recall.c). */
typedef enum ki_derivation { KI_TRACED, KI_GRADIENT } ki_derivation;
typedef struct ki_recalled {
    kn_uop *node; /* the key's, then the value's; NULL: none */
    size_t nkey, nvalue, part;
    ki_derivation what;
    uint64_t collections; /* of the context, when it was made */
} ki_recalled;
enum { KI_RECALLED = 64 };

/* The last function traced so deep inside others (function.c): what was born while it ran, and how many of these are alive. */
typedef struct ki_trace {
    uint64_t first, last;
    uint32_t alive;
} ki_trace;
enum { KI_TRACES = 4 };

struct kn_ctx {
    ki_env env;
    ki_ir ir;
    unsigned device; /* id of the context's device in env */
    struct kn_tensor_s *tensors;
    struct kn_tensor_s **view; /* by id of a base: the last of its views to be born; up to nview */
    uint32_t nview;
    bool settled; /* no tensor shows what is still to be assigned */
    struct kn_tensor_s *open; /* live tensors that are no views: still to be computed */
    struct kn_tensor_s *dead_first, *dead_last; /* quarantine, oldest first */
    uint32_t ndead;
    void **slab; /* handles, in blocks */
    uint32_t nslab;
    uint32_t depth;              /* open scopes */
    uint64_t births;             /* handles made so far */
    uint64_t opened[KI_SCOPES]; /* births when scope i was opened; deeper scopes are searched whole */
    ki_storage *storage;
    uint32_t nstorage, storage_free; /* storage_free: hint, no free id below it */
    size_t live_bytes, collected_bytes; /* held by storage not borrowed, now (whoever allocates adds) and at the last
                                         * collection */
    size_t new_bytes;                   /* taken since then */
    uint32_t collected_nodes;
    uint64_t collections; /* so far: a node is where it was as long as there was none */
    ki_recalled *recalled; /* KI_RECALLED of them; NULL: none yet */
    ki_trace trace[KI_TRACES];
    uint32_t tracing; /* functions now being traced, one inside the other */
    kn_uop *sym; /* variables used as dimensions (kn_sym) */
    uint32_t nsym;
    uint64_t rng_seed, rng_counter;
    const char *fn;                           /* public function now running, for messages */
    const struct kn_tensor_s *operand[2];     /* its first operands */
    int first_status;                         /* the first failure since kn_clear, */
    ki_text first;                            /* its text, */
    struct kn_tensor_s *first_tensor;   /* and the error tensor that has it, while it has no place yet */
    struct kn_tensor_s nomem;                 /* what a call returns when there is no memory for a handle */
    void *run;                                /* run layer: devices, caches; made on first use */
    void (*run_close)(struct kn_ctx *k);
    void (*run_free)(struct kn_ctx *k, ki_storage *s); /* frees s->data on s->device */
};

/* ---- for every public call (handle.c) ---------------------------------------------------------------------- */

/* A failure left in env becomes k->first and is cleared; call it at the start and the end of a public call that
 * returns a status. Returns the status of what it found. */
int ki_settle_failure(kn_ctx *k);
/* The handle of a value, or of env's failure when u is NULL. Never NULL. */
kn_tensor ki_handle(kn_ctx *k, kn_uop u);
/* True if t may be used; else its failure is env's. fn: name of the public function, for the message. */
bool ki_usable(kn_tensor t, const char *fn);
/* True if a pointer was given; else the failure that it was not is env's. what: the parameter, as the header names it. */
bool ki_given(kn_ctx *k, const char *fn, const char *what, const void *p);
/* The status of a call on tensors that was given nowhere to put its results. */
kn_status ki_no_out(const char *fn, const kn_tensor *t, size_t n);

void ki_handles_close(kn_ctx *k);

/* ---- for the run layer (realize.c) ------------------------------------------------------------------------- */

/* What a realize must compute. `root` holds distinct nodes: the assignments AFTER(BUFFER or AFTER.., STORE(view, value))
 * that the wanted values read, in ascending order, then the wanted values that are no realised BUFFER views yet.
 * `program`, once asked for, is the same at stage tensor: SINK(root...), no in ports (BUFFERs stand for themselves), out
 * ports "0", "1", .... */
typedef struct ki_plan {
    kn_uop *root;
    size_t n;
    size_t nassign; /* the first nassign roots are assignments: they write ki_assigned_buffer(root) */
    kn_uop function; /* all roots are results of this one, whose arguments are buffers; NULL: it is not so */
    ki_program program;
    struct ki_changes *changes; /* what tensors are to become, once it is known; NULL: not yet */
} ki_plan;
/* False: env has the failure of the first bad tensor. An empty plan (n 0) means that all is realised already. */
bool ki_plan_open(kn_ctx *k, const kn_tensor *t, size_t n, ki_plan *plan);
bool ki_plan_program(kn_ctx *k, ki_plan *plan); /* makes plan->program, of a plan that is not empty */
/* Before it runs, so that nothing can fail once something is overwritten: value[i] is what root[i] is to become, a view (RESHAPE)
 * of a new BUFFER made by ki_buffer_new; for an assignment the run layer passes NULL. Nothing can be seen of it yet. */
bool ki_plan_prepare(kn_ctx *k, ki_plan *plan, const kn_uop *value);
/* When it has run, and no tensor has come or gone meanwhile: every live tensor that read root[i] now reads value[i]; tensors that
 * still need the old value of an assigned BUFFER become error tensors. */
void ki_plan_done(kn_ctx *k, const ki_plan *plan);
void ki_plan_close(ki_plan *plan);
/* The buffers with these ids hold something else now, which no assign has told: tensors still to be computed from them are stale, and
 * no gradient reaches through. */
bool ki_overwritten(kn_ctx *k, const uint32_t *buffer, size_t n);

/* ---- storage (storage.c) ----------------------------------------------------------------------------------- */

/* A BUFFER on `device` with storage of its own, data not allocated. NULL: env has the failure. */
kn_uop ki_buffer_new(kn_ctx *k, int64_t numel, kn_dtype t, unsigned device);
static inline ki_storage *ki_storage_of(kn_ctx *k, kn_uop buffer) { return &k->storage[buffer->arg.buffer->id]; }
/* Allocates host memory for s, contents undefined. */
bool ki_storage_host(kn_ctx *k, ki_storage *s, size_t bytes);
/* The BUFFER or assignment (AFTER) a value is a view of, through movement ops alone; the BUFFER an AFTER writes. */
kn_uop ki_view_base(kn_uop u);
/* Live tensors that are views of a base are linked, and so are those of none: room for bases up to an id (false: env has the failure);
 * one whose node is new, for which there is room; one whose node goes; none, before all nodes are replaced, and all anew. */
bool ki_views_room(kn_ctx *k, uint32_t id);
void ki_views_add(kn_ctx *k, struct kn_tensor_s *t);
void ki_views_drop(kn_ctx *k, struct kn_tensor_s *t);
void ki_views_none(kn_ctx *k);
void ki_views_again(kn_ctx *k);
kn_uop ki_assigned_buffer(kn_uop after);
/* The BUFFER a value is a plain row-major view of (BUFFER, or RESHAPEs of one), else NULL. */
kn_uop ki_buffer_under(kn_uop u);
/* Collects nodes and storage no live tensor needs. Called at safe points: kn_scope_close, and by kn_realize. */
void ki_collect(kn_ctx *k);
void ki_maybe_collect(kn_ctx *k, bool died); /* died: tensors may have, just now */
void ki_storage_close(kn_ctx *k);

#endif
