/* eval_impl.h: what the files of the interpreter share. Private to src/ir/eval*.c. */
#ifndef KI_EVAL_IMPL_H
#define KI_EVAL_IMPL_H

#include "ir/eval.h"
#include "ir/eval_apply.h"

/* ---- views: a movement op as a map of linear indices ---- */

/* Element with coordinates c of the result is element base + sum c[k] * stride[k] of the source, and outside lo..hi
 * (PAD) it is zero. Axes of size 1 are dropped and adjacent ones merged. */
typedef struct ki_view {
    unsigned rank;
    bool identity, padded;
    int64_t base;
    int64_t dim[KI_MAX_RANK], stride[KI_MAX_RANK], lo[KI_MAX_RANK], hi[KI_MAX_RANK];
} ki_view;
bool ki_is_view(kn_op op);
/* in, out: sizes of source and result; off: offsets of PAD and SHRINK, else unused. */
void ki_view_make(ki_view *v, kn_uop u, const int64_t *in, const int64_t *out, const int64_t *off);
/* Numpy broadcasting of `in` (same rank, sizes equal or 1) to `out`. */
void ki_view_broadcast(ki_view *v, unsigned rank, const int64_t *in, const int64_t *out);
/* to[i] = source index of result index from[i] (from NULL: start + i); 0 where padding, and then mask[i] = 0 else 1
 * (mask may be NULL when nothing is padded). to may be from. */
void ki_view_map(const ki_view *v, const int64_t *from, int64_t start, size_t n, int64_t *to, uint8_t *mask);

/* Each INS below the roots becomes its meaning (eval_ins.c). */
bool ki_ins_expand(ki_ir *ir, kn_uop *root, size_t n);

/* ---- arrays ---- */

typedef struct ki_arr {
    uint32_t refs;
    uint8_t dtype;
    bool borrowed; /* data is the caller's and is not written */
    int64_t n;
    void *data;
    double *err; /* NULL: all exact */
} ki_arr;
ki_arr *ki_arr_make(ki_env *env, kn_dtype t, int64_t n);
void ki_arr_drop(ki_arr *a); /* NULL is allowed */
/* n elements from storage to values and back; at NULL: from `start` on. */
void ki_arr_get(const ki_arr *a, const int64_t *at, int64_t start, size_t n, uint64_t *v);
void ki_arr_put(ki_arr *a, int64_t start, size_t n, const uint64_t *v, unsigned stride);
/* Bounds of elements start.. : err has one entry if stride is 0, NULL means exact. False: out of memory. */
bool ki_arr_put_err(ki_env *env, ki_arr *a, int64_t start, size_t n, const double *err, unsigned stride);

/* ---- evaluation of a tensor graph ---- */

enum { KI_T_LAZY = 1, KI_T_PURE = 2, KI_T_SCALAR = 4, KI_T_DUP = 8, KI_T_NEED = 16, KI_T_FULL = 32 };
typedef struct ki_patch { /* what a STORE writes: element at[i] of the base becomes val[i] */
    int64_t n, *at;
    ki_arr *val;
} ki_patch;
struct ki_tape;
typedef struct ki_tens {
    ki_ir *ir;
    ki_env *env;
    bool bounds;
    uint64_t steps, budget;
    kn_uop *order; /* ascending */
    int64_t count;
    uint32_t *pos; /* by id: 1 + place in order */
    ki_arr **arr;  /* by place, as the rest */
    ki_arr **full; /* AFTER: the whole buffer behind it; BUFFER, PARAM: its contents after all stores so far */
    ki_patch **patch;
    kn_uop *alias; /* PARAM slot of a function: its argument */
    uint32_t *uses;
    uint8_t *flags, *weight;
    uint64_t *scalar; /* value, if KI_T_SCALAR */
    struct ki_tape *tape;
} ki_tens;

/* Place of a node; it is in the order. */
static inline uint32_t ki_at(const ki_tens *t, kn_uop u) { return t->pos[u->id] - 1; }
/* Sizes under the values of the variables; returns their product. */
int64_t ki_tens_dims(const ki_tens *t, kn_uop u, int64_t *dim);
/* Source k is read for its elements (not as a shape). */
bool ki_data_source(kn_uop u, uint32_t k);
/* Value of a () integer made of constants and variables: offsets and sizes. False (recorded): it is something else. */
bool ki_tens_scalar(const ki_tens *t, kn_uop u, int64_t *v);
/* u's elements as an array, a reference of the caller's own. */
ki_arr *ki_tens_array(ki_tens *t, kn_uop u);
bool ki_step(ki_tens *t, uint64_t n); /* counts; false: over budget (recorded) */

/* eval_tape.c: elements of u (and of the lazy nodes below it) in chunks. */
struct ki_tape *ki_tape_new(void);
void ki_tape_free(struct ki_tape *p);
enum { KI_CHUNK = 1024 };
bool ki_tape_build(ki_tens *t, kn_uop u);
/* Values of elements at[0..n) (NULL: start + i) of the node last built. *stride 0: one value for all. *err may be NULL. */
bool ki_tape_run(ki_tens *t, const int64_t *at, int64_t start, size_t n, const uint64_t **v, const double **err,
                 unsigned *stride);
/* An array with u's elements, through the tape. */
ki_arr *ki_tape_array(ki_tens *t, kn_uop u);

/* eval_node.c: nodes that are more than a map of elements. NULL: failed. */
ki_arr *ki_node_reduce(ki_tens *t, kn_uop u);
ki_arr *ki_node_index(ki_tens *t, kn_uop u);
ki_arr *ki_node_stack(ki_tens *t, kn_uop u);
ki_arr *ki_node_slice(ki_tens *t, kn_uop u);
ki_arr *ki_node_bitcast(ki_tens *t, kn_uop u);
/* Linear source index of each result element [start, start + n) of an INDEX, bounds checked. */
bool ki_node_index_map(ki_tens *t, kn_uop u, const int64_t *from, int64_t start, size_t n, int64_t *to, double *err);

/* eval_assign.c: STORE and AFTER on buffers. */
bool ki_node_store(ki_tens *t, kn_uop u);
ki_arr *ki_node_after(ki_tens *t, kn_uop u);
kn_uop ki_base_of(const ki_tens *t, kn_uop u); /* the BUFFER or PARAM a view stands on, or NULL */
void ki_patch_free(ki_patch *p);

/* eval_tensor.c, eval_launch.c: programs by their root. */
int ki_eval_tensor(const ki_program *p, const void *const *in, void *const *out, const ki_eval_opts *o);
int ki_eval_launches(const ki_program *p, const void *const *in, void *const *out, const ki_eval_opts *o);

#endif
