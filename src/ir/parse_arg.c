/* parse_arg.c: the arg of a node line: what stands before the operands, the key=value behind them, and the eight
 * bytes made of both. The layout of each payload is that of uop.h; keys an op does not know are refused. */
#include "base/cpuid.h"
#include "ir/parse.h"

#include <stdio.h>
#include <string.h>

typedef enum key {
    K_TAG,
    K_SLOT,
    K_SPACE,
    K_BOUNDS,
    K_SIZE,
    K_TO,
    K_DEVICE,
    K_ORDER,
    K_AXES,
    K_AT,
    K_NAME,
    K_THREADS,
    K_OPTIMIZED,
    K_OPTS,
    K_STREAM,
    K_NATIVE,
    K_COUNT
} key;
static const char *const key_names[K_COUNT] = {
    "tag",  "slot", "space", "bounds",  "size",      "to",   "device", "order",
    "axes", "at",   "name",  "threads", "optimized", "opts", "stream", "native",
};
#define BIT(k) (1u << (k))

/* Keys an op may have. */
static unsigned keys_of(kn_op op) {
    switch (op) {
    case KN_SLICE: return BIT(K_TAG) | BIT(K_SIZE);
    case KN_GETTUPLE: return BIT(K_TAG) | BIT(K_AT);
    case KN_STAGE: return BIT(K_TAG) | BIT(K_TO);
    case KN_PERMUTE: return BIT(K_TAG) | BIT(K_ORDER);
    default: break;
    }
    switch ((ki_argkind)ki_ops[op].arg) {
    case KI_A_INT: return BIT(K_TAG) | BIT(K_AT);
    case KI_A_INTS:
    case KI_A_REDUCE: return BIT(K_TAG) | BIT(K_AXES);
    case KI_A_PARAM: return BIT(K_TAG) | BIT(K_SLOT) | BIT(K_SPACE) | BIT(K_BOUNDS);
    case KI_A_BUFFER: return BIT(K_TAG) | BIT(K_SIZE);
    case KI_A_LOAD: return BIT(K_TAG) | BIT(K_TO) | BIT(K_DEVICE);
    case KI_A_STORE: return BIT(K_TAG) | BIT(K_STREAM);
    case KI_A_KERNEL: return BIT(K_TAG) | BIT(K_NAME) | BIT(K_THREADS) | BIT(K_OPTIMIZED) | BIT(K_OPTS) | BIT(K_NATIVE);
    default: return BIT(K_TAG);
    }
}

void ki_args_free(ki_args *a) {
    ki_text_free(&a->str);
    ki_free(a->opt);
    a->opt = NULL;
}

/* ---- before the operands ------------------------------------------------------------------------------------ */

static bool keep_string(ki_reader *r, ki_args *a) {
    if (!ki_read_string(r)) return false;
    ki_text_cut(&a->str, 0);
    ki_text_putn(&a->str, r->str.s, r->str.n);
    a->has_str = true;
    return a->str.oom ? ki_read_nomem(r) : true;
}

/* Fresh ids go on from the largest one read: leave them room. OptOps name ids in 32 bits with sign. */
static bool read_id(ki_reader *r, const char *what, uint32_t *id) {
    int64_t v;
    if (!ki_read_i64(r, 0, INT32_MAX, what, &v)) return false;
    *id = (uint32_t)v;
    return true;
}

static bool read_reduce_op(ki_reader *r, ki_args *a) {
    static const char *const ops[] = {"add", "mul", "max"};
    static const kn_op codes[] = {KN_ADD, KN_MUL, KN_MAX};
    unsigned k;
    if (!ki_read_choice(r, KI_E_TEXT_REDUCE, ops, 3, &k)) return false;
    a->reduce_op = codes[k];
    return true;
}

bool ki_read_head(ki_reader *r, ki_args *a) {
    a->threads = 1;
    switch ((ki_argkind)ki_ops[a->op].arg) {
    case KI_A_REDUCE: return read_reduce_op(r, a);
    case KI_A_RANGE:
        return read_id(r, "the range's number", &a->id) &&
               ki_read_choice(r, KI_E_TEXT_AXIS, ki_axis_names, KI_AX_COUNT, &a->axis_type);
    case KI_A_BUFFER:
        return read_id(r, "the buffer's number", &a->id) &&
               ki_read_choice(r, KI_E_TEXT_SPACE, ki_space_names, 3, &a->space);
    case KI_A_PARAM: a->number = -1; return !ki_string_next(r) || keep_string(r, a);
    case KI_A_STR:
    case KI_A_BYTES: return !ki_string_next(r) || keep_string(r, a);
    default: return true;
    }
}

/* ---- key=value ---------------------------------------------------------------------------------------------- */

/* [lo, hi], kept as text until the dtype is known. */
static bool read_bounds(ki_reader *r, ki_args *a) {
    if (!ki_expect_char(r, '[', "before the bounds")) return false;
    for (int i = 0; i < 2; i++) {
        ki_skip(r);
        size_t len = ki_literal_len(r);
        if (!len) return ki_read_wanted(r, "a bound");
        a->bounds_at[i] = r->at;
        a->bounds_end[i] = r->at += len;
        if (i == 0 && !ki_expect_char(r, ',', "between the bounds")) return false;
    }
    return ki_expect_char(r, ']', "after the bounds");
}

static bool read_i32(ki_reader *r, const char *what, int32_t *v) {
    int64_t w;
    if (!ki_read_i64(r, INT32_MIN, INT32_MAX, what, &w)) return false;
    *v = (int32_t)w;
    return true;
}

/* A letter for an axis type, `top`, and #id, in this order, each optional. */
static bool read_opt_tail(ki_reader *r, ki_opt *o) {
    const char *s;
    ki_skip(r);
    size_t at = r->at, n = ki_word(r, &s);
    if (n == 1) {
        int k = 0;
        while (k < KI_AX_COUNT && ki_axis_letters[k] != *s) k++;
        if (k == KI_AX_COUNT) return KI_READ_FAIL(r, KI_E_TEXT_LETTER, at, *s);
        o->target = (uint8_t)k;
        ki_skip(r);
        at = r->at, n = ki_word(r, &s);
    }
    if (n && !ki_word_is(s, n, "top")) return r->at = at, ki_read_wanted(r, "',' or ']' in the list of OptOps");
    o->top = n > 0;
    return !ki_accept(r, '#') || read_i32(r, "the new id", &o->id);
}

static bool read_opt(ki_reader *r, ki_args *a) {
    unsigned kind;
    ki_opt o;
    memset(&o, 0, sizeof o);
    if (!ki_read_choice(r, KI_E_TEXT_OPTOP, ki_optop_names, KI_OPT_COUNT, &kind)) return false;
    o.op = (uint8_t)kind;
    ki_skip(r);
    if (ki_literal_len(r)) {
        if (!read_i32(r, "the axis", &o.axis)) return false;
        ki_skip(r);
        if (ki_literal_len(r) && !read_i32(r, "the argument", &o.arg)) return false;
    }
    if (!read_opt_tail(r, &o)) return false;
    if (a->nopt == a->opt_cap) {
        uint32_t cap = a->opt_cap ? a->opt_cap * 2 : 8;
        ki_opt *p = ki_realloc(a->opt, cap, sizeof *p);
        if (!p) return ki_read_nomem(r);
        a->opt = p;
        a->opt_cap = cap;
    }
    a->opt[a->nopt++] = o;
    return true;
}

static bool read_opts(ki_reader *r, ki_args *a) {
    if (!ki_expect_char(r, '[', "before the OptOps")) return false;
    if (ki_accept(r, ']')) return true;
    do {
        if (!read_opt(r, a)) return false;
    } while (ki_accept(r, ','));
    return ki_expect_char(r, ']', "after the OptOps");
}

static bool read_u32(ki_reader *r, const char *what, uint32_t *v) {
    int64_t w;
    if (!ki_read_i64(r, 0, UINT32_MAX, what, &w)) return false;
    *v = (uint32_t)w;
    return true;
}

static bool read_device_key(ki_reader *r, ki_args *a) {
    ki_skip(r);
    return ki_read_device(r, &a->device);
}

static bool read_value(ki_reader *r, ki_args *a, key k) {
    switch (k) {
    case K_TAG: return read_u32(r, "a tag", &a->tag);
    case K_SLOT: return ki_read_i64(r, -1, INT32_MAX, "a slot", &a->number);
    case K_SIZE: return ki_read_i64(r, 0, INT64_C(1) << 47, "a size", &a->number);
    case K_AT: return ki_read_i64(r, INT64_MIN, INT64_MAX, "a number", &a->number);
    case K_SPACE:
    case K_TO: return ki_read_choice(r, KI_E_TEXT_SPACE, ki_space_names, 3, &a->space);
    case K_DEVICE: return read_device_key(r, a);
    case K_BOUNDS: return read_bounds(r, a);
    case K_ORDER:
    case K_AXES: return ki_read_ints(r, a->ints, KI_MAX_RANK, &a->nints);
    case K_NAME: return keep_string(r, a);
    case K_THREADS: return read_u32(r, "a number of threads", &a->threads);
    case K_OPTIMIZED: return read_u32(r, "0 or 1", &a->optimized);
    case K_NATIVE:
        if (!ki_read_choice(r, KI_E_TEXT_LEVEL, ki_cpu_level_names, KI_CPU_LEVELS, &a->native)) return false;
        a->native++;
        return true;
    case K_OPTS: return read_opts(r, a);
    case K_STREAM: return ki_read_i64(r, 0, 1, "0 or 1", &a->number);
    case K_COUNT: break;
    }
    return false;
}

static bool unknown_key(ki_reader *r, ki_args *a, size_t at, const char *s, size_t n) {
    char all[160];
    size_t k = 0;
    for (int i = 0; i < K_COUNT; i++)
        if (keys_of(a->op) & BIT(i)) k += (size_t)snprintf(all + k, sizeof all - k, "%s%s", k ? " " : "", key_names[i]);
    return KI_READ_FAIL(r, KI_E_TEXT_KEY, at, ki_ops[a->op].name, (int)(n > 40 ? 40 : n), s, all);
}

bool ki_read_keys(ki_reader *r, ki_args *a) {
    for (;;) {
        const char *s;
        ki_skip(r);
        size_t at = r->at, n = ki_word(r, &s);
        if (!n) return true;
        ki_skip(r);
        if (ki_peek(r) != '=') return r->at = at, true; /* `in`, or what does not belong here */
        int k = 0;
        while (k < K_COUNT && !ki_word_is(s, n, key_names[k])) k++;
        if (k == K_COUNT || !(keys_of(a->op) & BIT(k))) return unknown_key(r, a, at, s, n);
        if (a->seen & BIT(k)) return KI_READ_FAIL(r, KI_E_TEXT_KEY_TWICE, at, key_names[k]);
        a->seen |= BIT(k);
        r->at++;
        if (!read_value(r, a, (key)k)) return false;
    }
}

/* ---- the eight bytes ---------------------------------------------------------------------------------------- */

static bool need(ki_reader *r, ki_args *a, key k) {
    if (a->seen & BIT(k)) return true;
    return KI_READ_FAIL(r, KI_E_TEXT_KEY_MISSING, a->op_at, ki_ops[a->op].name, key_names[k]);
}

static bool interned(ki_reader *r, const void *data, size_t n, kn_arg *out) {
    return (out->p = ki_intern(r->ir, data, n)) != NULL;
}

static bool build_string(ki_reader *r, ki_args *a, kn_arg *out) {
    if (!a->has_str) return KI_READ_FAIL(r, KI_E_TEXT_KEY_MISSING, a->op_at, ki_ops[a->op].name, "\"...\"");
    ki_bytes *b = ki_calloc(1, sizeof *b + a->str.n + 1);
    if (!b) return ki_read_nomem(r);
    b->n = a->str.n;
    memcpy(b->s, a->str.s, a->str.n);
    bool ok = interned(r, b, sizeof *b + a->str.n + 1, out);
    ki_free(b);
    return ok;
}

static bool build_bounds(ki_reader *r, ki_args *a, kn_dtype dtype) {
    for (int i = 0; i < 2; i++) {
        const char *s = r->text + a->bounds_at[i];
        size_t n = a->bounds_end[i] - a->bounds_at[i];
        double v = 0;
        ki_num st = ki_is_float(dtype) ? ki_f64_read(s, n, &v) : ki_i64_read(s, n, &a->lohi[i]);
        if (ki_is_float(dtype)) memcpy(&a->lohi[i], &v, sizeof v);
        if (st != KI_NUM_OK)
            return KI_READ_FAIL(r, KI_E_TEXT_NUMBER, a->bounds_at[i], (int)(n > 40 ? 40 : n), s, "a bound");
    }
    double lo, hi;
    memcpy(&lo, &a->lohi[0], sizeof lo);
    memcpy(&hi, &a->lohi[1], sizeof hi);
    if (ki_is_float(dtype) ? !(lo <= hi) : a->lohi[0] > a->lohi[1])
        return KI_READ_FAIL(r, KI_E_TEXT_EMPTY_RANGE, a->bounds_at[0], "bounds");
    return true;
}

static bool build_param(ki_reader *r, ki_args *a, kn_dtype dtype, unsigned device, kn_arg *out) {
    enum { NAME_MAX = 255 };
    _Alignas(16) char raw[sizeof(ki_param) + NAME_MAX + 1] = {0};
    ki_param *p = (ki_param *)raw;
    if (a->str.n > NAME_MAX) return KI_READ_FAIL(r, KI_E_TEXT_LIMIT, a->op_at, "bytes in a name", (long long)NAME_MAX);
    if (a->str.n && memchr(a->str.s, 0, a->str.n)) return KI_READ_FAIL(r, KI_E_TEXT_NUL, a->op_at, "a name");
    p->slot = (int32_t)a->number;
    p->device = (uint16_t)device;
    p->dtype = (uint8_t)dtype;
    p->addrspace = (uint8_t)a->space;
    if (a->seen & BIT(K_BOUNDS)) {
        if (!build_bounds(r, a, dtype)) return false;
        p->bounded = 1, p->lo = a->lohi[0], p->hi = a->lohi[1];
    }
    p->len = (uint32_t)a->str.n;
    if (a->str.n) memcpy(p->name, a->str.s, a->str.n);
    return interned(r, raw, sizeof(ki_param) + a->str.n + 1, out);
}

static bool build_buffer(ki_reader *r, ki_args *a, kn_dtype dtype, unsigned device, kn_arg *out) {
    ki_buffer b;
    if (!need(r, a, K_SIZE)) return false;
    memset(&b, 0, sizeof b);
    b.id = a->id, b.device = (uint16_t)device, b.dtype = (uint8_t)dtype, b.addrspace = (uint8_t)a->space;
    b.size = a->number;
    return interned(r, &b, sizeof b, out);
}

static bool build_load(ki_reader *r, ki_args *a, kn_arg *out) {
    ki_load l;
    if (!(a->seen & (BIT(K_TO) | BIT(K_DEVICE)))) return out->bits = 0, true;
    if (!need(r, a, K_TO)) return false;
    memset(&l, 0, sizeof l);
    l.device = (uint16_t)a->device, l.addrspace = (uint8_t)a->space;
    return interned(r, &l, sizeof l, out);
}

static bool build_kernel(ki_reader *r, ki_args *a, kn_arg *out) {
    if (!(a->seen & (BIT(K_NAME) | BIT(K_THREADS) | BIT(K_OPTIMIZED) | BIT(K_OPTS) | BIT(K_NATIVE))))
        return out->bits = 0, true;
    if (!need(r, a, K_NAME)) return false;
    if (a->str.n && memchr(a->str.s, 0, a->str.n)) return KI_READ_FAIL(r, KI_E_TEXT_NUL, a->op_at, "a name");
    size_t opts = a->nopt * sizeof(ki_opt), n = sizeof(ki_kernel) + opts + a->str.n + 1;
    ki_kernel *k = ki_calloc(1, n);
    if (!k) return ki_read_nomem(r);
    k->len = (uint32_t)a->str.n, k->nopt = a->nopt, k->threads = a->threads, k->optimized = a->optimized;
    k->native = a->native;
    if (opts) memcpy(k->opt, a->opt, opts);
    memcpy((char *)k + sizeof *k + opts, a->str.s, a->str.n);
    bool ok = interned(r, k, n, out);
    ki_free(k);
    return ok;
}

static bool build_ints(ki_reader *r, ki_args *a, kn_arg *out) {
    _Alignas(16) char raw[sizeof(ki_ints) + KI_MAX_RANK * sizeof(int64_t)] = {0};
    ki_ints *p = (ki_ints *)raw;
    if (!(a->seen & (BIT(K_ORDER) | BIT(K_AXES)))) return out->bits = 0, true;
    p->n = a->nints;
    for (unsigned i = 0; i < a->nints; i++) p->v[i] = a->ints[i];
    return interned(r, raw, sizeof(ki_ints) + a->nints * sizeof(int64_t), out);
}

static bool build_reduce(ki_reader *r, ki_args *a, kn_arg *out) {
    out->reduce.op = (uint8_t)a->reduce_op;
    for (unsigned i = 0; i < a->nints; i++) {
        if (a->ints[i] < 0 || a->ints[i] > 31)
            return KI_READ_FAIL(r, KI_E_TEXT_AXIS_NO, a->op_at, (long long)a->ints[i]);
        out->reduce.axes |= UINT32_C(1) << a->ints[i];
    }
    return true;
}

bool ki_build_arg(ki_reader *r, ki_args *a, kn_dtype dtype, unsigned device, kn_arg *out) {
    *out = (kn_arg){.bits = 0};
    switch ((ki_argkind)ki_ops[a->op].arg) {
    case KI_A_NONE:
    case KI_A_CONST: return true;
    case KI_A_INT:
        if (a->op == KN_STAGE) return out->i = a->space, need(r, a, K_TO);
        out->i = a->number;
        return need(r, a, a->op == KN_SLICE ? K_SIZE : K_AT);
    case KI_A_INTS: return build_ints(r, a, out);
    case KI_A_REDUCE: return build_reduce(r, a, out);
    case KI_A_RANGE: return out->range.id = a->id, out->range.axis = (uint8_t)a->axis_type, true;
    case KI_A_PARAM: return build_param(r, a, dtype, device, out);
    case KI_A_BUFFER: return build_buffer(r, a, dtype, device, out);
    case KI_A_LOAD: return build_load(r, a, out);
    case KI_A_STORE: return out->i = a->number, true;
    case KI_A_KERNEL: return build_kernel(r, a, out);
    case KI_A_STR:
    case KI_A_BYTES: return build_string(r, a, out);
    }
    return false;
}
