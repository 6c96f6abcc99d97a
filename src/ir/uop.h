/* uop.h: the node, the store that makes it unique, and everything that is derived from it.
 *
 * What always holds:
 *  - a node is immutable; two nodes of one store with equal (op, dtype, src, arg, tag) are the same pointer;
 *  - every source has a smaller id than its user: ids are a topological order, and a pass keeps its data in arrays
 *    indexed by id, sweeping ascending (sources first) or descending (users first); there is no recursion;
 *  - a node that would be ill-formed is not made: the maker records the failure in env and returns NULL, and a maker
 *    given a NULL source returns NULL, so a chain of makers is checked once at its end;
 *  - the hash is of content and source ids, never of addresses.
 * Whoever edits this: the struct is 48 bytes so that a binary op is one cache line; the op table (ops.def) is the one
 * place where an op's facts stand. */
#ifndef KI_UOP_H
#define KI_UOP_H

#include "base/env.h"
#include "base/hash.h"
#include "ir/dtype.h"

typedef enum kn_op {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc) KN_##name,
#include "ir/ops.def"
#undef KI_OP
    KI_OP_COUNT
} kn_op;

enum { KI_COMM = 1, KI_ASSOC = 2, KI_IDEM = 4, KI_EFFECT = 8, KI_FLOAT = 16, KI_INT = 32, KI_NUM = 64, KI_DECOMP = 128 };
typedef enum ki_class {
    KI_C_SOURCE, KI_C_MOVEMENT, KI_C_REDUCE, KI_C_CALL, KI_C_LOAD, KI_C_STORE, KI_C_ORDER,
    KI_C_UNARY, KI_C_BINARY, KI_C_TERNARY, KI_C_MARKER, KI_C_CODEGEN, KI_C_INTERNAL
} ki_class;
typedef enum ki_argkind {
    KI_A_NONE, KI_A_INT, KI_A_CONST, KI_A_INTS, KI_A_REDUCE, KI_A_RANGE, KI_A_PARAM, KI_A_BUFFER, KI_A_LOAD,
    KI_A_STORE, KI_A_KERNEL, KI_A_STR, KI_A_BYTES
} ki_argkind;
#define KI_MANY 0x7fffffff

typedef struct ki_op_info {
    const char *name;
    uint8_t cls, arg;
    uint16_t flags;
    int least, most;
    const char *doc;
} ki_op_info;
extern const ki_op_info ki_ops[KI_OP_COUNT];

static inline bool ki_is_elementwise(kn_op op) {
    return ki_ops[op].cls >= KI_C_UNARY && ki_ops[op].cls <= KI_C_TERNARY;
}
/* By text name; KI_OP_COUNT if unknown. */
kn_op ki_op_named(const char *s, size_t n);

/* ---- args -------------------------------------------------------------------------------------------------- */

typedef enum kn_addrspace { KN_GLOBAL, KN_LOCAL, KN_REG } kn_addrspace;
typedef enum kn_axis {
    KN_AX_GLOBAL, KN_AX_LOCAL, KN_AX_WARP, KN_AX_THREAD, KN_AX_LOOP, KN_AX_REDUCE, KN_AX_GROUP, KN_AX_UPCAST, KN_AX_UNROLL,
    KI_AX_COUNT
} kn_axis;
extern const char *const ki_axis_names[KI_AX_COUNT]; /* "GLOBAL", ... */
extern const char ki_axis_letters[KI_AX_COUNT];      /* g l w t L R G u r */

/* Payloads are flat (no pointers), interned in the store, compared by content. */
typedef struct ki_ints {
    uint32_t n;
    uint32_t pad;
    int64_t v[];
} ki_ints;
typedef struct ki_bytes { /* STR, BYTES: n bytes, then a NUL not counted */
    uint64_t n;
    char s[];
} ki_bytes;
typedef struct ki_param {
    int32_t slot;    /* -1: a variable or a named input that has no slot yet */
    uint16_t device; /* env's device id */
    uint8_t dtype, addrspace;
    uint8_t bounded; /* lo, hi state the range of values (in the dtype's own representation as int64 or double bits) */
    uint8_t pad[3];
    uint32_t len; /* name */
    int64_t lo, hi;
    char name[]; /* NUL-terminated */
} ki_param;
typedef struct ki_buffer {
    uint32_t id;
    uint16_t device;
    uint8_t dtype, addrspace;
    int64_t size; /* elements */
} ki_buffer;
typedef struct ki_load { /* NULL arg: an ordinary load */
    uint16_t device;
    uint8_t addrspace;
    uint8_t pad[5];
} ki_load;
typedef struct ki_opt { /* one OptOp of the specification */
    uint8_t op;        /* ki_optop */
    uint8_t target;    /* kn_axis, for SPLIT */
    uint8_t top;       /* SPLIT: (k, n/k) instead of (n/k, k) */
    uint8_t pad;
    int32_t axis;      /* RANGE id */
    int32_t arg;       /* factor, multiple, other axis, ... */
    int32_t id;        /* SPLIT, STAGE: id of the new RANGE or BUFFER */
} ki_opt;
#define KI_MOST_LED 32 /* PREFETCH: up to here iterations, no bytes */
typedef enum ki_optop { KI_OPT_SPLIT, KI_OPT_PADTO, KI_OPT_SWAP, KI_OPT_NOLOCALS, KI_OPT_TC, KI_OPT_STAGE, KI_OPT_CUT, KI_OPT_STREAM, KI_OPT_JOIN, KI_OPT_PREFETCH, KI_OPT_SCAN, KI_OPT_ROWS, KI_OPT_LATE, KI_OPT_FIRST, KI_OPT_DEAL, KI_OPT_FRAME, KI_OPT_TERMS, KI_OPT_PIPELINE, KI_OPT_ROTATE, KI_OPT_COUNT } ki_optop;
typedef struct ki_kernel { /* SINK, PROGRAM; NULL arg: not a kernel */
    uint32_t len;  /* name */
    uint32_t nopt;
    uint32_t threads; /* extent of the THREAD axis, 1 if none */
    uint32_t optimized; /* 1 once optimize has run */
    uint32_t native;    /* 1 + ki_cpu_level once select has made machine instructions of that level of it */
    ki_opt opt[]; /* then the name, NUL-terminated */
} ki_kernel;
static inline const char *ki_kernel_name(const ki_kernel *k) { return k ? (const char *)&k->opt[k->nopt] : ""; }

typedef union kn_arg {
    int64_t i;     /* INT; CONST: integers sign- or zero-extended, bool 0 or 1, floats their own bits zero-extended */
    uint64_t bits;
    const void *p;
    const ki_ints *ints;
    const ki_bytes *str;
    const ki_param *param;
    const ki_buffer *buffer;
    const ki_load *load;
    const ki_kernel *kernel;
    struct {
        uint8_t op; /* kn_op: ADD, MUL, MAX */
        uint8_t pad[3];
        uint32_t axes; /* bit k: axis k */
    } reduce;
    struct {
        uint32_t id;
        uint8_t axis; /* kn_axis */
        uint8_t pad[3];
    } range;
} kn_arg;

/* ---- the node ---------------------------------------------------------------------------------------------- */

#define KI_MAX_RANK 16
typedef struct kn_uop_s kn_uop_s;
typedef const kn_uop_s *kn_uop;

typedef struct ki_dim {
    int64_t n;  /* size; for a symbolic dimension its upper bound */
    kn_uop sym; /* NULL when constant */
} ki_dim;
typedef struct ki_type { /* interned: equal types are the same pointer */
    uint16_t rank, device;
    int16_t axis;      /* sharded axis, -1 none */
    uint8_t symbolic;  /* some dimension is */
    uint8_t pad;
    int64_t numel;     /* product of n */
    ki_dim dim[];
} ki_type;

typedef union ki_bound {
    int64_t i; /* integers, bool; for index and u64 INT64_MIN/INT64_MAX mean unbounded */
    double f;  /* floats */
} ki_bound;
enum { KI_BOUNDED = 1 }; /* node flag: lo and hi hold, and (float) the value is not NaN */

struct kn_uop_s {
    uint8_t op, dtype;
    uint16_t flags;
    uint32_t nsrc;
    uint32_t id, tag;
    kn_arg arg;
    const ki_type *type;
    ki_bound lo, hi; /* valid if flags & KI_BOUNDED; every integer and bool node has them */
    kn_uop src[];
};

/* What rewriting knows of each node (rules.h). A store keeps one that is not in use, so that a rewrite need not clear as much
 * memory as the store has nodes. */
typedef struct ki_visit { /* valid where stamp is the memo's epoch; ids, 0 none */
    uint32_t stamp, form, link, at;
} ki_visit;
typedef struct ki_memo {
    ki_visit *visit; /* by id */
    uint32_t cap, epoch;
    uint64_t key; /* what the forms are for */
} ki_memo;

/* ---- the store --------------------------------------------------------------------------------------------- */

typedef struct ki_ir {
    ki_env *env;
    ki_arena arena;
    kn_uop *node; /* by id; node[0] unused */
    uint32_t n, cap;
    uint32_t *slot;         /* open addressing: an id, which is less than nslot, below as much of the hash as there is room for; 0: free */
    uint32_t nslot, hashed; /* nodes from id `hashed` on are in no slot yet: nobody has looked for one since */
    const void **intern; /* payloads and types, open addressing */
    uint32_t nintern, intern_cap;
    uint32_t next_range, next_buffer; /* fresh ids */
    uint32_t *seen, seen_cap, epoch;  /* scratch of ki_toposort */
    kn_uop *queue;                    /* as many as seen */
    uint32_t reached;                 /* by the last walk from roots */
    struct ki_map *spare;             /* for the next ki_map_take */
    ki_memo spare_memo[2];            /* for rewrites that have none of their own; one may run within another */
    struct ki_ir *spare_store;        /* for the next ki_ir_take */
    const ki_type *scalar;            /* shape (), no device */
    uint32_t *why, why_cap;           /* by id: the step that made it (history.h); none unless somebody asks */
} ki_ir;

bool ki_ir_open(ki_ir *ir, ki_env *env);
void ki_ir_close(ki_ir *ir);
/* Empties an open store, as if opened anew; its memory serves what comes next. */
bool ki_ir_reset(ki_ir *ir);
/* An empty store for work apart from this one's. Given back, its memory serves the next. NULL: out of memory, env says so. */
ki_ir *ki_ir_take(ki_ir *ir);
void ki_ir_give(ki_ir *ir, ki_ir *apart);
/* Room for so many more nodes at once; whether they will be looked for. */
bool ki_ir_reserve(ki_ir *ir, uint32_t more, bool sought);

/* The maker of every node. dtype is read only where the op's dtype rule is GIVEN. NULL: failed, env says why. */
KI_NODISCARD kn_uop ki_make(ki_ir *ir, kn_op op, kn_dtype dtype, const kn_uop *src, uint32_t nsrc, kn_arg arg, uint32_t tag);

/* The copy of `like`, a node of this store or of another of the same env, over the copies of its sources, arg and type: what
 * is derived from equal sources is equal and not derived again. */
KI_NODISCARD kn_uop ki_make_as(ki_ir *ir, kn_uop like, const kn_uop *src, kn_arg arg, const ki_type *type, uint32_t tag);

/* The same, in a store known not to hold it: not looked for, over what `map` has for each source. */
struct ki_map;
KI_NODISCARD kn_uop ki_make_new(ki_ir *ir, kn_uop like, const struct ki_map *map, kn_arg arg, const ki_type *type, uint32_t tag);

/* Interned payload of n bytes. NULL when out of memory. */
const void *ki_intern(ki_ir *ir, const void *data, size_t n);
const ki_type *ki_type_make(ki_ir *ir, unsigned rank, const ki_dim *dim, unsigned device, int axis);

/* Bracket: all nodes, payloads and types made since the mark are discarded. */
typedef struct ki_mark {
    uint32_t n, next_range, next_buffer;
    ki_arena_mark arena;
} ki_mark;
ki_mark ki_ir_mark(const ki_ir *ir);
void ki_ir_drop(ki_ir *ir, ki_mark m);
/* Keeps what the roots reach, renumbers ids densely in order, frees the rest. The store is rebuilt: root[i] is replaced
 * by its new pointer, every other pointer into the store is invalid afterwards. On failure nothing has changed. */
bool ki_ir_collect(ki_ir *ir, kn_uop *root, size_t nroot);

/* ---- makers for the common cases (all NULL in, NULL out) --------------------------------------------------- */

kn_uop ki_op0(ki_ir *ir, kn_op op);
kn_uop ki_op1(ki_ir *ir, kn_op op, kn_uop a);
kn_uop ki_op2(ki_ir *ir, kn_op op, kn_uop a, kn_uop b);
kn_uop ki_op3(ki_ir *ir, kn_op op, kn_uop a, kn_uop b, kn_uop c);
kn_uop ki_opn(ki_ir *ir, kn_op op, const kn_uop *src, uint32_t nsrc);
/* Memory as of after these n, and after what it is AFTER already; n 0: itself. */
kn_uop ki_after(ki_ir *ir, kn_uop memory, const kn_uop *dep, uint32_t n);
/* The same node with other sources (the same pointer if they are equal). */
kn_uop ki_with_src(ki_ir *ir, kn_uop u, const kn_uop *src);
kn_uop ki_with_srcs(ki_ir *ir, kn_uop u, const kn_uop *src, uint32_t nsrc);
kn_uop ki_with_arg(ki_ir *ir, kn_uop u, kn_arg arg);
kn_uop ki_with_tag(ki_ir *ir, kn_uop u, uint32_t tag);

kn_uop ki_const_bits(ki_ir *ir, kn_dtype t, uint64_t bits);
/* Integers wrap to the dtype; floats round to nearest even. */
kn_uop ki_const_int(ki_ir *ir, kn_dtype t, int64_t v);
kn_uop ki_const_float(ki_ir *ir, kn_dtype t, double v);
kn_uop ki_index(ki_ir *ir, int64_t v); /* constant of dtype index */
kn_uop ki_cast(ki_ir *ir, kn_uop a, kn_dtype t); /* a itself if it has the dtype */
kn_uop ki_bitcast(ki_ir *ir, kn_uop a, kn_dtype t);
kn_uop ki_param_make(ki_ir *ir, int slot, kn_dtype t, kn_addrspace as, unsigned device, const char *name, const int64_t *lohi, kn_uop shape);
kn_uop ki_buffer_make(ki_ir *ir, uint32_t id, int64_t size, kn_dtype t, kn_addrspace as, unsigned device);
kn_uop ki_range_make(ki_ir *ir, uint32_t id, kn_axis axis, kn_uop bound);
kn_uop ki_shape_src(ki_ir *ir, const int64_t *dim, unsigned rank);    /* STACK of index constants */
kn_uop ki_shape_of(ki_ir *ir, kn_uop u);                              /* u's shape as such a STACK */
kn_uop ki_stack_dims(ki_ir *ir, const ki_dim *dim, unsigned rank);
kn_uop ki_reshape(ki_ir *ir, kn_uop a, const int64_t *dim, unsigned rank);
kn_uop ki_expand(ki_ir *ir, kn_uop a, const int64_t *dim, unsigned rank);
kn_uop ki_permute(ki_ir *ir, kn_uop a, const int64_t *order, unsigned rank);
kn_uop ki_flip(ki_ir *ir, kn_uop a, const int64_t *axes, unsigned n);
kn_uop ki_pad(ki_ir *ir, kn_uop a, const int64_t *offset, const int64_t *dim);
kn_uop ki_shrink(ki_ir *ir, kn_uop a, const int64_t *offset, const int64_t *dim);
kn_uop ki_reduce(ki_ir *ir, kn_uop a, kn_op op, uint32_t axes);
/* Text as an arg, interned. */
const ki_bytes *ki_text_arg(ki_ir *ir, const char *s, size_t n);
kn_uop ki_str_op(ki_ir *ir, kn_op op, kn_dtype t, const char *s, size_t n, const kn_uop *src, uint32_t nsrc);

/* ---- readers ----------------------------------------------------------------------------------------------- */

static inline unsigned ki_rank(kn_uop u) { return u->type->rank; }
static inline bool ki_same_dim(ki_dim a, ki_dim b) { return a.n == b.n && a.sym == b.sym; }
static inline bool ki_is_one(ki_dim d) { return d.n == 1 && !d.sym; }
static inline int64_t ki_dim_n(kn_uop u, unsigned k) { return u->type->dim[k].n; }
static inline int64_t ki_numel(kn_uop u) { return u->type->numel; }
/* Bytes of all its elements; INT64_MAX: more than that. */
static inline int64_t ki_nbytes(kn_uop u) {
    int64_t n;
    return ki_mul_overflow(ki_numel(u), (int64_t)ki_itemsize((kn_dtype)u->dtype), &n) ? INT64_MAX : n;
}
static inline bool ki_is_const(kn_uop u) { return u->op == KN_CONST; }
/* Outside kernels a PARAM without a shape is a variable: a named scalar, which stays itself at every stage. */
static inline bool ki_is_variable(kn_uop u) { return u->op == KN_PARAM && u->nsrc == 0; }
static inline bool ki_is_const_int(kn_uop u, int64_t v) {
    return u->op == KN_CONST && !ki_is_float((kn_dtype)u->dtype) && u->arg.i == v;
}
static inline bool ki_same_shape(kn_uop a, kn_uop b) {
    if (a->type == b->type) return true;
    if (a->type->rank != b->type->rank) return false;
    for (unsigned k = 0; k < a->type->rank; k++)
        if (!ki_same_dim(a->type->dim[k], b->type->dim[k])) return false;
    return true;
}
/* Constant value as a double (any dtype) or as an integer. */
double ki_const_f64(kn_uop u);
/* Bits of a value of a dtype, as CONST stores them, and back. */
uint64_t ki_bits_from_f64(kn_dtype t, double v);
double ki_f64_from_bits(kn_dtype t, uint64_t bits);
bool ki_is_minus_zero(kn_uop u); /* the constant that added to anything changes nothing */
bool ki_changes_nothing(kn_op op, kn_uop u); /* that, of a sum, or minus infinity, or the least integer, of a maximum */
uint64_t ki_bits_wrap(kn_dtype t, int64_t v); /* integer to dtype, two's complement, as CONST stores it */

/* "f32 (4096, 4096)"-like pieces into a static-free buffer of the caller. */
const char *ki_shape_text(const ki_type *t, char *buf, size_t n);

/* ---- graph functions --------------------------------------------------------------------------------------- */

/* Nodes reachable from the roots in ascending id order. *out is ki_malloc'ed; returns the count, -1 out of memory. */
int64_t ki_toposort(ki_ir *ir, const kn_uop *root, size_t nroot, kn_uop **out);
/* Where u stands in such an order; it is in it. */
static inline size_t ki_place_of(const kn_uop *order, size_t n, kn_uop u) {
    size_t lo = 0;
    while (n > 1) {
        size_t half = n / 2;
        if (order[lo + half]->id <= u->id) lo += half, n -= half;
        else n = half;
    }
    return lo;
}
/* The same, but not entering nodes with ids up to `floor`: cost is the size of the part above. */
int64_t ki_toposort_above(ki_ir *ir, const kn_uop *root, size_t nroot, uint32_t floor, kn_uop **out);
/* The same nodes in no order; nothing to free: the next walk over the store takes the list's place. */
int64_t ki_reach_above(ki_ir *ir, const kn_uop *root, size_t nroot, uint32_t floor, const kn_uop **out);
/* The same nodes in depth-first post-order from the roots: an order that depends on the graph alone, not on ids. */
int64_t ki_postorder(ki_ir *ir, const kn_uop *root, size_t nroot, kn_uop **out);
/* What a pass makes of each node. Empty when taken; given back, its memory serves the next one (clearing as much memory as
 * the store has nodes would cost a small pass more than all it does). */
typedef struct ki_map {
    kn_uop *to;
    uint32_t *set, cap, now; /* to[id] counts where set[id] == now */
} ki_map;
/* inline.c: roots with FUNCTIONs replaced by what they compute; !all: but those computed again. */
bool ki_inline_functions(ki_ir *ir, kn_uop *root, size_t n, bool all);
/* A FUNCTION's body, a TUPLE, of n arguments. */
kn_uop ki_applied(ki_ir *ir, kn_uop body, const kn_uop *args, uint32_t n);
/* Are a FUNCTION's results alone REMATs? Then they are computed again on the way back. */
bool ki_computed_again(kn_uop function);

ki_map *ki_map_take(ki_ir *ir); /* for the ids the store has now. NULL: out of memory, env says so */
void ki_map_give(ki_ir *ir, ki_map *m);
void ki_map_free(ki_map *m);
static inline kn_uop ki_map_get(const ki_map *m, kn_uop u) { return m->set[u->id] == m->now ? m->to[u->id] : NULL; }
static inline void ki_map_set(ki_map *m, kn_uop u, kn_uop to) { m->set[u->id] = m->now, m->to[u->id] = to; }
/* root with each from[i] replaced by to[i] (simultaneously; a replacement is not searched again). */
kn_uop ki_substitute(ki_ir *ir, kn_uop root, const kn_uop *from, const kn_uop *to, size_t n);
/* The same for several roots at once, in place. False: out of memory or an ill-formed result. */
bool ki_substitute_all(ki_ir *ir, kn_uop *root, size_t nroot, const kn_uop *from, const kn_uop *to, size_t n);
/* 128 bits of the graph's content: equal graphs of any two stores have equal digests. *ok false: out of memory, env says so. */
ki_digest ki_graph_digest(ki_ir *ir, const kn_uop *root, size_t nroot, bool *ok);
/* u's arg, its payload interned in another store; .p is NULL if that failed. */
kn_arg ki_import_arg(ki_ir *to, kn_uop u);
/* Copies of the roots in another store, in id order. */
bool ki_import(ki_ir *to, ki_ir *from, const kn_uop *root, size_t n, kn_uop *out);
/* The copy of root, whose source is a list of nodes, sources before users: each with its place as tag. `to` may be `from`. */
kn_uop ki_import_numbered(ki_ir *to, ki_ir *from, kn_uop root);
/* The copy of the last of a list of nodes, sources before users, each with the arg (its payload in `to`) and the tag that
 * `rename` gives it: names other than the node's own. */
typedef bool ki_renamer(void *user, ki_ir *to, kn_uop u, kn_arg *arg, uint32_t *tag);
kn_uop ki_import_renamed(ki_ir *to, ki_ir *from, const kn_uop *list, uint32_t n, ki_renamer *rename, void *user);
/* Value of a symbolic index expression (constants, variables and integer arithmetic) when var[i] = value[i]. */
int64_t ki_eval_index(ki_ir *ir, kn_uop u, const kn_uop *var, const int64_t *value, size_t n, bool *ok);
/* One step of it, v by id; false for an op that is no integer arithmetic, or on overflow. */
bool ki_index_step(kn_uop u, const int64_t *v, int64_t *out);

#endif
