/* eval_tape.c: elements of a node and of the lazy nodes below it, a chunk at a time. The tree of lazy nodes becomes a
 * flat tape of steps: index maps on the way down, values on the way up. A step's registers hold KI_CHUNK elements.
 *
 * Invariants: index register NONE means consecutive from the chunk's start, ZERO means element 0 for all (scalars: their
 * value has stride 0 and is computed once a chunk). The tape is at most STEPS long: the planner bounds the weight of
 * what is lazy (eval_tensor.c). */
#include "ir/eval_impl.h"
#include "ir/scalar.h"

#include <string.h>

enum { STEPS = 160, NONE = 0, ZERO = 1, FIRST = 2 };
typedef enum kind { MAP, LEAF, APPLY, MASK, SCALAR } kind;
typedef struct step {
    uint8_t kind, stride;
    uint16_t idx, out; /* index register in; register out (MAP: index, else value) */
    uint16_t src[3];
    bool has_err;
    const ki_view *view;
    const ki_arr *leaf;
    uint64_t value;
    ki_apply ap;
} step;
typedef struct frame {
    kn_uop u;
    uint16_t idx, child; /* index register of u; of its source when u is a view */
    uint8_t next;
    uint16_t val[3];
} frame;
typedef struct ki_tape {
    step s[STEPS];
    ki_view view[STEPS];
    uint8_t *mask[STEPS + FIRST]; /* by index register */
    int64_t *idx[STEPS + FIRST];
    uint64_t *val[STEPS];
    double *err[STEPS];
    frame stack[STEPS];
    unsigned n, nview, nidx, nval;
    bool single[STEPS + FIRST]; /* index register: one index for all elements */
    uint8_t stride[STEPS];      /* of a value register */
    uint16_t result;
} ki_tape;

ki_tape *ki_tape_new(void) { return ki_calloc(1, sizeof(ki_tape)); }
void ki_tape_free(ki_tape *p) {
    if (!p) return;
    for (unsigned i = 0; i < STEPS + FIRST; i++) {
        ki_free(p->mask[i]);
        ki_free(p->idx[i]);
    }
    for (unsigned i = 0; i < STEPS; i++) {
        ki_free(p->val[i]);
        ki_free(p->err[i]);
    }
    ki_free(p);
}

/* ---- arrays -------------------------------------------------------------------------------------------------- */

ki_arr *ki_arr_make(ki_env *env, kn_dtype t, int64_t n) {
    ki_arr *a = ki_calloc(1, sizeof *a);
    void *data = a ? ki_calloc((size_t)(n > 0 ? n : 1), ki_itemsize(t)) : NULL;
    if (!data) {
        ki_free(a);
        ki_fail(env, KI_E_NOMEM);
        return NULL;
    }
    *a = (ki_arr){.refs = 1, .dtype = (uint8_t)t, .n = n, .data = data};
    return a;
}
void ki_arr_drop(ki_arr *a) {
    if (!a || --a->refs) return;
    if (!a->borrowed) ki_free(a->data);
    ki_free(a->err);
    ki_free(a);
}

#define GET(type, conv)                                                                                                \
    {                                                                                                                  \
        const type *p = a->data;                                                                                       \
        if (at)                                                                                                        \
            for (size_t i = 0; i < n; i++) v[i] = (uint64_t)conv p[at[i]];                                             \
        else                                                                                                           \
            for (size_t i = 0; i < n; i++) v[i] = (uint64_t)conv p[start + (int64_t)i];                                \
        break;                                                                                                         \
    }
void ki_arr_get(const ki_arr *a, const int64_t *at, int64_t start, size_t n, uint64_t *v) {
    kn_dtype t = (kn_dtype)a->dtype;
    bool sign = ki_is_sint(t);
    switch (ki_dtypes[t].bytes) {
    case 1:
        if (t == KN_BOOL) GET(uint8_t, !!)
        if (sign) GET(int8_t, (int64_t))
        GET(uint8_t, )
    case 2:
        if (sign) GET(int16_t, (int64_t))
        GET(uint16_t, )
    case 4:
        if (sign) GET(int32_t, (int64_t))
        GET(uint32_t, )
    default: GET(uint64_t, )
    }
}
#define PUT(type)                                                                                                      \
    {                                                                                                                  \
        type *p = (type *)a->data + start;                                                                             \
        for (size_t i = 0; i < n; i++) p[i] = (type)v[i * stride];                                                     \
        break;                                                                                                         \
    }
void ki_arr_put(ki_arr *a, int64_t start, size_t n, const uint64_t *v, unsigned stride) {
    switch (ki_dtypes[a->dtype].bytes) {
    case 1: PUT(uint8_t)
    case 2: PUT(uint16_t)
    case 4: PUT(uint32_t)
    default: PUT(uint64_t)
    }
}
bool ki_arr_put_err(ki_env *env, ki_arr *a, int64_t start, size_t n, const double *err, unsigned stride) {
    bool any = a->err != NULL;
    for (size_t i = 0; err && !any && i < (stride ? n : 1); i++) any = err[i] != 0;
    if (!any) return true;
    if (!a->err && !(a->err = ki_calloc((size_t)a->n, sizeof *a->err))) return ki_fail(env, KI_E_NOMEM), false;
    for (size_t i = 0; i < n; i++) a->err[start + (int64_t)i] = err ? err[i * stride] : 0;
    return true;
}

/* ---- building ------------------------------------------------------------------------------------------------ */

static step *add(ki_tape *p, kind k, uint16_t idx) {
    if (p->n == STEPS) return NULL;
    step *s = &p->s[p->n++];
    memset(s, 0, sizeof *s);
    s->kind = (uint8_t)k;
    s->idx = idx;
    s->stride = !p->single[idx];
    if (k != MAP) {
        s->out = (uint16_t)p->nval++;
        p->stride[s->out] = s->stride;
    }
    return s;
}

/* Registers are made when first used and kept for the next tapes. */
static bool room(ki_tens *t, ki_tape *p, step *s) {
    bool ok = true;
    unsigned r = s->out;
    if (s->kind == MAP) {
        ok = (p->idx[r] || (p->idx[r] = ki_malloc(KI_CHUNK * sizeof **p->idx))) &&
             (p->mask[r] || (p->mask[r] = ki_malloc(KI_CHUNK)));
    } else {
        ok = p->val[r] || (p->val[r] = ki_malloc(KI_CHUNK * sizeof **p->val));
        if (t->bounds) ok = ok && (p->err[r] || (p->err[r] = ki_malloc(KI_CHUNK * sizeof **p->err)));
    }
    return ok || (ki_fail(t->env, KI_E_NOMEM), false);
}

/* A new index register through a view; the same one through an identity. */
static bool add_map(ki_tens *t, ki_tape *p, const ki_view *v, uint16_t idx, uint16_t *out) {
    *out = idx;
    if (v->identity) return true;
    step *s = add(p, MAP, idx);
    if (!s) return ki_fail(t->env, KI_E_INTERNAL, "interpreter: tape too long"), false;
    p->view[p->nview] = *v;
    s->view = &p->view[p->nview++];
    s->out = (uint16_t)(FIRST + p->nidx++);
    p->single[s->out] = p->single[idx];
    *out = s->out;
    return room(t, p, s);
}

static bool leaf_value(ki_tens *t, ki_tape *p, kn_uop u, uint16_t idx, uint16_t *val) {
    uint32_t at = ki_at(t, u);
    bool scalar = t->flags[at] & KI_T_SCALAR;
    step *s = add(p, scalar ? SCALAR : LEAF, scalar ? ZERO : idx);
    if (!s) return ki_fail(t->env, KI_E_INTERNAL, "interpreter: tape too long"), false;
    if (scalar) s->value = t->scalar[at];
    else s->leaf = t->arr[at];
    *val = s->out;
    return room(t, p, s);
}

/* Index register with which source k of an elementwise u is read. */
static bool operand_index(ki_tens *t, ki_tape *p, frame *f, unsigned k, uint16_t *idx) {
    int64_t mine[KI_MAX_RANK], its[KI_MAX_RANK];
    kn_uop s = f->u->src[k];
    if (s->type == f->u->type && !s->type->symbolic) {
        *idx = f->idx;
        return true;
    }
    if (ki_tens_dims(t, s, its) == 1) {
        *idx = ZERO;
        return true;
    }
    ki_view v;
    ki_tens_dims(t, f->u, mine);
    ki_view_broadcast(&v, s->type->rank, its, mine);
    return add_map(t, p, &v, f->idx, idx);
}

static bool apply_value(ki_tens *t, ki_tape *p, frame *f) {
    kn_uop u = f->u;
    kn_dtype in[3];
    step *s = add(p, APPLY, f->idx);
    if (!s) return ki_fail(t->env, KI_E_INTERNAL, "interpreter: tape too long"), false;
    s->stride = 0;
    for (uint32_t k = 0; k < u->nsrc && k < 3; k++) in[k] = (kn_dtype)u->src[k]->dtype;
    if (!ki_apply_init(&s->ap, (kn_op)u->op, (kn_dtype)u->dtype, in, u->nsrc)) {
        ki_fail(t->env, KI_E_EVAL_OP, ki_ops[u->op].name, u->id, "tensor");
        return false;
    }
    for (uint32_t k = 0; k < u->nsrc; k++) {
        s->src[k] = f->val[k];
        s->ap.stride[k] = p->stride[f->val[k]];
        if (s->ap.stride[k]) s->stride = 1;
    }
    p->stride[s->out] = s->stride;
    s->value = u->id;
    return room(t, p, s);
}

static bool mask_value(ki_tens *t, ki_tape *p, frame *f) {
    step *s = add(p, MASK, f->child);
    if (!s) return ki_fail(t->env, KI_E_INTERNAL, "interpreter: tape too long"), false;
    s->src[0] = f->val[0];
    s->ap.stride[0] = p->stride[f->val[0]];
    return room(t, p, s);
}

/* First visit of a view: its index map. An empty source makes everything padding; *empty says so. */
static bool enter_view(ki_tens *t, ki_tape *p, frame *f, bool *empty) {
    int64_t in[KI_MAX_RANK], out[KI_MAX_RANK], off[KI_MAX_RANK] = {0};
    kn_uop u = f->u;
    int64_t n = ki_tens_dims(t, u->src[0], in);
    *empty = n == 0;
    ki_tens_dims(t, u, out);
    if (u->op == KN_PAD || u->op == KN_SHRINK) {
        for (unsigned k = 0; k < u->type->rank; k++) {
            if (!ki_tens_scalar(t, u->src[1]->src[k], &off[k])) return false;
            int64_t small = u->op == KN_PAD ? in[k] : out[k], big = u->op == KN_PAD ? out[k] : in[k];
            if (off[k] < 0 || small > big || off[k] > big - small) {
                ki_fail(t->env, KI_E_PAD_RANGE, ki_ops[u->op].name, (int)k, (long long)off[k], (long long)out[k],
                        (long long)in[k]);
                return false;
            }
        }
    }
    if (n == 1 && u->op != KN_PAD) {
        f->child = ZERO;
        return true;
    }
    ki_view v;
    ki_view_make(&v, u, in, out, off);
    return *empty || add_map(t, p, &v, f->idx, &f->child);
}

static bool zero_value(ki_tens *t, ki_tape *p, uint16_t *val) {
    step *s = add(p, SCALAR, ZERO);
    if (!s) return ki_fail(t->env, KI_E_INTERNAL, "interpreter: tape too long"), false;
    *val = s->out;
    return room(t, p, s);
}

/* One move of the walk. done: the top frame has its value. */
static bool advance(ki_tens *t, ki_tape *p, unsigned depth, bool *done, uint16_t *val) {
    frame *f = &p->stack[depth - 1], child = {0};
    kn_uop u = f->u;
    *done = false;
    bool view = ki_is_view((kn_op)u->op), empty = false;
    if (f->next < (view ? 1 : u->nsrc)) {
        child.u = u->src[f->next++];
        if (view) {
            if (!enter_view(t, p, f, &empty)) return false;
            child.idx = f->child;
        } else if (!operand_index(t, p, f, f->next - 1u, &child.idx)) {
            return false;
        }
        if (empty) {
            *done = true;
            return zero_value(t, p, val);
        }
        if (depth == STEPS) return ki_fail(t->env, KI_E_INTERNAL, "interpreter: tape too long"), false;
        p->stack[depth] = child;
        return true;
    }
    *done = true;
    if (!view) {
        if (!apply_value(t, p, f)) return false;
        *val = p->s[p->n - 1].out;
    } else if (f->child >= FIRST && f->child != f->idx && u->op == KN_PAD) {
        if (!mask_value(t, p, f)) return false;
        *val = p->s[p->n - 1].out;
    } else {
        *val = f->val[0];
    }
    return true;
}

bool ki_tape_build(ki_tens *t, kn_uop root) {
    ki_tape *p = t->tape;
    p->n = p->nview = p->nidx = p->nval = 0;
    p->single[NONE] = false;
    p->single[ZERO] = true;
    unsigned depth = 1;
    uint16_t val = 0;
    p->stack[0] = (frame){.u = root, .idx = NONE};
    while (depth) {
        frame *f = &p->stack[depth - 1];
        uint32_t at = ki_at(t, f->u);
        bool done = false, leaf = (t->flags[at] & KI_T_SCALAR) || t->arr[at];
        unsigned before = f->next;
        if (leaf) {
            if (!leaf_value(t, p, f->u, f->idx, &val)) return false;
            done = true;
        } else if (!advance(t, p, depth, &done, &val)) {
            return false;
        }
        if (!done) {
            depth += p->stack[depth - 1].next != before;
            continue;
        }
        depth--;
        if (depth)
            p->stack[depth - 1].val[ki_is_view((kn_op)p->stack[depth - 1].u->op) ? 0 : p->stack[depth - 1].next - 1] =
                val;
    }
    p->result = val;
    return true;
}

/* ---- running ------------------------------------------------------------------------------------------------- */

static void run_leaf(const ki_tens *t, ki_tape *p, step *s, const int64_t *at, int64_t start, size_t n) {
    const int64_t zero = 0;
    if (s->idx == ZERO) at = &zero;
    if (!s->stride) n = 1;
    ki_arr_get(s->leaf, at, start, n, p->val[s->out]);
    s->has_err = t->bounds && s->leaf->err;
    if (!s->has_err) return;
    for (size_t i = 0; i < n; i++) p->err[s->out][i] = s->leaf->err[at ? at[i] : start + (int64_t)i];
}

static bool run_apply(ki_tens *t, ki_tape *p, step *s, size_t n, const bool *has_err) {
    const uint64_t *src[3] = {0};
    const double *err[3] = {0};
    for (unsigned k = 0; k < s->ap.nsrc; k++) {
        src[k] = p->val[s->src[k]];
        if (has_err[s->src[k]]) err[k] = p->err[s->src[k]];
    }
    if (!s->stride) n = 1;
    if (!ki_apply_run(&s->ap, n, src, p->val[s->out])) {
        ki_fail(t->env, KI_E_EVAL_OVERFLOW, ki_ops[s->ap.op].name, (unsigned)s->value);
        return false;
    }
    s->has_err = t->bounds;
    if (t->bounds) ki_bound_run(&s->ap, n, src, err, p->val[s->out], p->err[s->out]);
    return true;
}

static void run_mask(ki_tape *p, step *s, size_t n, bool src_err) {
    const uint8_t *mask = p->mask[s->idx];
    const uint64_t *v = p->val[s->src[0]];
    unsigned stride = s->ap.stride[0];
    if (!s->stride) n = 1;
    for (size_t i = 0; i < n; i++) p->val[s->out][i] = mask[i] ? v[i * stride] : 0;
    s->has_err = src_err;
    if (src_err)
        for (size_t i = 0; i < n; i++) p->err[s->out][i] = mask[i] ? p->err[s->src[0]][i * stride] : 0;
}

bool ki_tape_run(ki_tens *t, const int64_t *at, int64_t start, size_t n, const uint64_t **v, const double **err,
                 unsigned *stride) {
    static const int64_t zero[1] = {0};
    ki_tape *p = t->tape;
    bool has_err[STEPS];
    if (!ki_step(t, n * p->n)) return false;
    *stride = 0;
    for (unsigned i = 0; i < p->n; i++) {
        step *s = &p->s[i];
        const int64_t *idx = s->idx == NONE ? at : s->idx == ZERO ? zero : p->idx[s->idx];
        switch ((kind)s->kind) {
        case MAP: ki_view_map(s->view, idx, start, s->stride ? n : 1, p->idx[s->out], p->mask[s->out]); continue;
        case LEAF: run_leaf(t, p, s, idx, start, n); break;
        case SCALAR:
            p->val[s->out][0] = s->value;
            s->has_err = false;
            break;
        case APPLY:
            if (!run_apply(t, p, s, n, has_err)) return false;
            break;
        case MASK: run_mask(p, s, n, has_err[s->src[0]]); break;
        }
        has_err[s->out] = s->has_err;
        if (s->out == p->result) *stride = s->stride;
    }
    *v = p->val[p->result];
    *err = has_err[p->result] ? p->err[p->result] : NULL;
    return true;
}

ki_arr *ki_tape_array(ki_tens *t, kn_uop u) {
    int64_t dim[KI_MAX_RANK], n = ki_tens_dims(t, u, dim);
    ki_arr *a = ki_arr_make(t->env, (kn_dtype)u->dtype, n);
    bool ok = a && (n == 0 || ki_tape_build(t, u));
    for (int64_t at = 0; ok && at < n; at += KI_CHUNK) {
        size_t m = n - at < KI_CHUNK ? (size_t)(n - at) : KI_CHUNK;
        const uint64_t *v;
        const double *err;
        unsigned stride;
        ok = ki_tape_run(t, NULL, at, m, &v, &err, &stride);
        if (!ok) break;
        ki_arr_put(a, at, m, v, stride);
        if (t->bounds) ok = ki_arr_put_err(t->env, a, at, m, err, stride);
    }
    if (ok) return a;
    ki_arr_drop(a);
    return NULL;
}
