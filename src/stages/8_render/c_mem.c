/* c_mem.c: loads, stores, and where REG and LOCAL BUFFERs live (locals.h).
 *
 * A slice of a split BUFFER is one variable, which the C compiler keeps in registers. A vector access of stride 1 goes
 * through the unaligned, may_alias vector type; other strides and gathers are built lane by lane. */
#include "stages/8_render/c_gen.h"

#include <string.h>

bool ki_caddress(ki_cgen *g, kn_uop index, ki_address *a) {
    const char *why = ki_address_of(index, a);
    return !why || (ki_cfail(g, index, why), false);
}

/* ---- local storage ------------------------------------------------------------------------------------------ */

static const char *buffer_name(ki_cgen *g, kn_uop buf) {
    if (buf->op == KN_PARAM) return ki_cfmt(g, "p%d", buf->arg.param->slot);
    return ki_cfmt(g, "%s%u", buf->arg.buffer->addrspace == KN_REG ? "a" : "l", g->st.place[buf->id] - 1);
}

/* A stack this size is safe in any thread; more lives in thread-local storage. */
enum { STACK_MOST = 32768 };

static void declare_split(ki_cgen *g, const ki_local *r) {
    kn_dtype t = (kn_dtype)r->buf->dtype;
    ki_celem e = t == KN_BOOL ? KI_U8 : ki_cvalue_elem(t);
    int64_t size = r->buf->arg.buffer->size;
    for (int pass = 1; pass <= 128; pass *= 2) { /* one declaration for each lane count */
        ki_text line = {0};
        unsigned n = 0;
        for (int64_t k = 0; k < size; k++)
            if (r->lanes[k] == pass)
                ki_text_printf(&line, "%s%s_%lld", n++ ? ", " : "", buffer_name(g, r->buf), (long long)k);
        if (n) ki_cline(g, "%s %s;", ki_ctype(g, e, (unsigned)pass), ki_cwritten(g, &line));
    }
}

void ki_cdeclare_storage(ki_cgen *g) {
    for (uint32_t k = 0; k < g->st.n; k++) {
        const ki_local *r = &g->st.local[k];
        ki_celem e = ki_cmemory_elem((kn_dtype)r->buf->dtype);
        int64_t size = r->buf->arg.buffer->size;
        if (r->buf->arg.buffer->addrspace == KN_GLOBAL) ki_cfail(g, r->buf, "a GLOBAL buffer is a PARAM here");
        if (r->split) {
            declare_split(g, r);
            continue;
        }
        const char *name = buffer_name(g, r->buf);
        if (size * ki_celem_bytes[e] <= STACK_MOST) {
            ki_cline(g, "_Alignas(%u) %s %s[%lld];", (unsigned)r->align, ki_celem_name[e], name, (long long)size);
        } else {
            ki_cline(g, "static _Thread_local _Alignas(%u) %s %s_[%lld];", (unsigned)r->align, ki_celem_name[e], name,
                     (long long)size);
            ki_cline(g, "%s *const %s = %s_;", ki_celem_name[e], name, name);
        }
    }
}

/* ---- access ------------------------------------------------------------------------------------------------- */

/* base + start + k, short. */
static const char *offset(ki_cgen *g, const ki_address *a, int64_t k) {
    long long c = (long long)(a->start + k);
    if (!a->base) return ki_cfmt(g, "%lld", c);
    const char *s = ki_cscalar(g, a->base);
    if (!s) return "0";
    if (!c) return ki_cbare(g, s);
    return c ? ki_cfmt(g, c < 0 ? "%s - %lld" : "%s + %lld", s, c < 0 ? -c : c) : s;
}

/* Where a vector begins, as a sum of the array and the offset: what binds less than a sum stands apart. */
static const char *pointer(ki_cgen *g, const ki_address *a) {
    kn_op op = a->base && a->base->nsrc > 1 && !a->start ? (kn_op)a->base->op : KN_ADD;
    bool less = op != KN_ADD && op != KN_SUB && op != KN_MUL && op != KN_IDIV && op != KN_MOD;
    return ki_cfmt(g, less ? "%s + (%s)" : "%s + %s", buffer_name(g, a->buf), offset(g, a, 0));
}

/* Index of lane k as text. */
static const char *lane_offset(ki_cgen *g, const ki_address *a, kn_uop index, unsigned k) {
    if (a->affine) return offset(g, a, a->stride * (int64_t)k);
    while (index->op == KN_AFTER) index = index->src[0];
    kn_uop i = index->src[1];
    if (i->op == KN_STACK && ki_rank(i->src[k]) == 0) return ki_cscalar(g, i->src[k]);
    return ki_cfmt(g, "%s[%u]", ki_cv(g, i)->s, k);
}

/* Memory form to value form and back; `lanes` 1 is the scalar. */
static const char *from_memory(ki_cgen *g, kn_dtype t, unsigned lanes, const char *s, uint8_t *w) {
    if (t == KN_BOOL) {
        if (lanes == 1) return ki_cfmt(g, "(%s != 0)", s);
        *w = 1;
        return ki_cfmt(g, "(%s)(%s != 0)", ki_ctype(g, KI_I8, lanes), s);
    }
    if (!ki_csmall(t)) return s;
    const char *name = ki_dtypes[t].name;
    if (lanes == 1) return ki_cneed(g, KI_H_SMALL, KI_U8, 1), ki_cfmt(g, "kn_%s_get(%s)", name, s);
    if (t != KN_F16 && t != KN_BF16) return NULL;
    ki_cneed(g, t == KN_F16 ? KI_H_F16 : KI_H_BF16, KI_F32, lanes);
    return ki_cfmt(g, "f32x%u_%sget(%s)", lanes, name, s);
}

static const char *to_memory(ki_cgen *g, kn_uop v, kn_dtype t, unsigned lanes) {
    if (t == KN_BOOL && lanes > 1)
        return ki_cfmt(g, "(%s)(%s & 1)", ki_ctype(g, KI_U8, lanes), ki_cmask(g, v, lanes, 1));
    const char *s = ki_cvector(g, v, lanes), *name = ki_dtypes[t].name;
    if (!s || !ki_csmall(t)) return s;
    if (lanes == 1) return ki_cneed(g, KI_H_SMALL, KI_U8, 1), ki_cfmt(g, "kn_%s_put(%s)", name, s);
    if (t != KN_F16 && t != KN_BF16) return NULL;
    ki_cneed(g, t == KN_F16 ? KI_H_F16 : KI_H_BF16, KI_F32, lanes);
    return ki_cfmt(g, "f32x%u_%sput(%s)", lanes, name, s);
}

/* A slice of a split REG BUFFER: the variable's name, or NULL. */
static const char *slot_name(ki_cgen *g, const ki_address *a) {
    if (a->buf->op != KN_BUFFER || !ki_local_of(&g->st, a->buf)->split) return NULL;
    return ki_cfmt(g, "%s_%lld", buffer_name(g, a->buf), (long long)a->start);
}

static const char *memory_at(ki_cgen *g, const ki_address *a) {
    if (a->lanes == 1) return ki_cfmt(g, "%s[%s]", buffer_name(g, a->buf), offset(g, a, 0));
    const char *t = ki_ctype(g, ki_cmemory_elem((kn_dtype)a->buf->dtype), a->lanes);
    return ki_cfmt(g, "*(%su *)(%s)", t, pointer(g, a));
}

static const char *value_type(ki_cgen *g, kn_dtype t, unsigned lanes, uint8_t w) {
    return ki_ctype(g, t == KN_BOOL && lanes > 1 ? ki_cmask_elem(w) : ki_cvalue_elem(t), lanes);
}

/* Declares u's variable with an initial value. */
static const char *declare(ki_cgen *g, kn_uop u, uint8_t w, const char *init) {
    const char *name = ki_cfmt(g, "v%u", g->nvar++);
    ki_cval *v = ki_cv(g, u);
    v->s = name;
    v->w = w;
    unsigned n = ki_lanes(u);
    if (init) ki_cline(g, "%s %s = %s;", value_type(g, (kn_dtype)u->dtype, n, w), name, init);
    else ki_cline(g, "%s %s;", value_type(g, (kn_dtype)u->dtype, n, w), name);
    return name;
}

static const char *alt_of(ki_cgen *g, kn_uop u, unsigned lanes, uint8_t w) {
    if (u->nsrc > 1)
        return u->dtype == KN_BOOL && lanes > 1 ? ki_cmask(g, u->src[1], lanes, w) : ki_cvector(g, u->src[1], lanes);
    return lanes > 1 ? ki_cfmt(g, "(%s){0}", value_type(g, (kn_dtype)u->dtype, lanes, w)) : "0";
}

/* What every lane repeats becomes a variable first. */
static void name_parts(ki_cgen *g, kn_uop u, const ki_address *a, kn_uop gate) {
    kn_uop i = u->src[0];
    while (i->op == KN_AFTER) i = i->src[0];
    i = i->src[1];
    if (a->affine && a->base) ki_clane_name(g, a->base);
    if (!a->affine && ki_cv(g, i)->s) ki_clane_name(g, i);
    if (gate && !ki_rank(gate)) ki_clane_name(g, gate);
}

/* What lane k holds where the gate is false. */
static const char *lane_alt(ki_cgen *g, kn_uop u, unsigned k) {
    kn_uop alt = u->nsrc > 1 ? u->src[1] : NULL;
    if (!alt) return "0";
    if (ki_rank(alt)) return ki_cfmt(g, "%s[%u]", ki_clane_name(g, alt), k);
    const char *s = ki_cscalar(g, alt);
    return alt->dtype == KN_BOOL ? ki_cfmt(g, "-%s", s) : s;
}

/* Lane by lane: gathers, strides, masks without an instruction, 8-bit floats. One initializer, which compilers build from
 * halves; lanes set one after the other would wait for each other. */
static void load_lanes(ki_cgen *g, kn_uop u, const ki_address *a) {
    unsigned n = a->lanes;
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    kn_dtype t = (kn_dtype)u->dtype;
    uint8_t w = t == KN_BOOL ? 1 : 0, unused;
    const char *buf = buffer_name(g, a->buf);
    name_parts(g, u, a, gate);
    if (u->nsrc > 1 && ki_rank(u->src[1])) ki_clane_name(g, u->src[1]);
    const char *m = gate && ki_rank(gate) ? ki_clane_name(g, gate) : NULL;
    ki_text list = {0};
    for (unsigned k = 0; k < n; k++) {
        const char *s = from_memory(g, t, 1, ki_cfmt(g, "%s[%s]", buf, lane_offset(g, a, u->src[0], k)), &unused);
        if (t == KN_BOOL) s = ki_cfmt(g, "-%s", s);
        if (m) s = ki_cfmt(g, "%s[%u] ? %s : %s", m, k, s, lane_alt(g, u, k));
        else if (gate) s = ki_cfmt(g, "%s ? %s : %s", ki_cscalar(g, gate), s, lane_alt(g, u, k));
        ki_text_printf(&list, k ? ", %s" : "%s", s);
    }
    declare(g, u, w, ki_cfmt(g, "(%s){%s}", value_type(g, t, n, w), ki_cwritten(g, &list)));
}

/* The lanes of a vector variable in reverse. */
static const char *reversed(ki_cgen *g, const char *v, unsigned n) {
    ki_text t = {0};
    ki_text_printf(&t, "__builtin_shufflevector(%s, %s", v, v);
    for (unsigned k = n; k-- > 0;) ki_text_printf(&t, ", %u", k);
    ki_text_putc(&t, ')');
    return ki_cwritten(g, &t);
}

/* Stride -1 as stride 1: the address of the last lane. */
static bool backwards(const ki_address *a, ki_address *forward) {
    if (!a->affine || a->stride != -1 || a->lanes < 2) return false;
    *forward = *a;
    forward->start -= a->lanes - 1;
    forward->stride = 1;
    return true;
}

void ki_cload(ki_cgen *g, kn_uop u) {
    ki_address a;
    kn_dtype t = (kn_dtype)u->dtype;
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    uint8_t w = 0;
    if (!ki_caddress(g, u->src[0], &a)) return;
    const char *slot = slot_name(g, &a);
    if (slot) {
        if (t == KN_BOOL) slot = from_memory(g, t, a.lanes, slot, &w);
        declare(g, u, w, slot);
        return;
    }
    bool wide = a.affine && a.stride == 1;
    bool masked = gate && ki_rank(gate);
    ki_celem e = ki_cmemory_elem(t);
    if (a.lanes == 1 && !masked) {
        const char *s = from_memory(g, t, 1, memory_at(g, &a), &w);
        declare(g, u, 0, gate ? ki_cfmt(g, "%s ? %s : %s", ki_cscalar(g, gate), s, alt_of(g, u, 1, 0)) : s);
        return;
    }
    if (wide && masked && t != KN_BOOL && !ki_csmall(t) && ki_celem_bytes[e] >= 4) {
        ki_cneed(g, KI_H_MLOAD, e, a.lanes);
        ki_cneed(g, KI_H_SEL, e, a.lanes);
        const char *m = ki_cmask(g, gate, a.lanes, ki_celem_bytes[e]);
        ki_ctype(g, ki_cmask_elem(ki_celem_bytes[e]), a.lanes);
        declare(
            g, u, 0,
            ki_cfmt(g, "%s_mload(%s, %s, %s)", ki_ctype(g, e, a.lanes), pointer(g, &a), m, alt_of(g, u, a.lanes, 0)));
        return;
    }
    ki_address f;
    const char *s = wide && !masked ? from_memory(g, t, a.lanes, memory_at(g, &a), &w) : NULL;
    if (!gate && t != KN_BOOL && backwards(&a, &f) && (s = from_memory(g, t, a.lanes, memory_at(g, &f), &w))) {
        const char *v = ki_cfmt(g, "v%u", g->nvar++);
        ki_cline(g, "%s %s = %s;", value_type(g, t, a.lanes, w), v, s);
        s = ki_cfmt(g, "(%s)%s", value_type(g, t, a.lanes, w), reversed(g, v, a.lanes));
    }
    if (!s) {
        load_lanes(g, u, &a);
        return;
    }
    if (gate) /* the cast: a vector in memory has a type of its own */
        s = ki_cfmt(g, "%s ? (%s)%s : %s", ki_cscalar(g, gate), value_type(g, t, a.lanes, w), s,
                    alt_of(g, u, a.lanes, w));
    declare(g, u, w, s);
}

static void store_lanes(ki_cgen *g, kn_uop u, const ki_address *a) {
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL, v = u->src[1];
    kn_dtype t = (kn_dtype)v->dtype;
    const char *buf = buffer_name(g, a->buf), *m = gate && ki_rank(gate) ? ki_clane_name(g, gate) : NULL;
    const char *s = ki_rank(v) ? ki_clane_name(g, v) : ki_cscalar(g, v);
    name_parts(g, u, a, gate);
    for (unsigned k = 0; k < a->lanes && s; k++) {
        const char *x = ki_rank(v) ? ki_cfmt(g, t == KN_BOOL ? "(%s[%u] & 1)" : "%s[%u]", s, k) : s;
        if (ki_csmall(t)) ki_cneed(g, KI_H_SMALL, KI_U8, 1), x = ki_cfmt(g, "kn_%s_put(%s)", ki_dtypes[t].name, x);
        const char *at = lane_offset(g, a, u->src[0], k);
        if (m) ki_cline(g, "if (%s[%u]) %s[%s] = %s;", m, k, buf, at, x);
        else if (gate) ki_cline(g, "if (%s) %s[%s] = %s;", ki_cscalar(g, gate), buf, at, x);
        else ki_cline(g, "%s[%s] = %s;", buf, at, x);
    }
}

/* Whether the store, wide and of stride 1, is one that the machine can send past the caches. */
static bool streams(const ki_cgen *g, kn_uop u, const ki_address *a) {
    unsigned bytes = a->lanes * ki_celem_bytes[ki_cmemory_elem((kn_dtype)u->src[1]->dtype)];
    return u->arg.i && u->nsrc == 2 && a->buf->op == KN_PARAM && g->t && g->t->stream && bytes >= 16 &&
           bytes <= g->t->vector;
}

static void stream(ki_cgen *g, const ki_address *a, ki_celem e, const char *v) {
    ki_cneed(g, KI_H_STREAM, e, a->lanes);
    g->streams = true;
    ki_cline(g, "%s_stream(%s, %s);", ki_ctype(g, e, a->lanes), pointer(g, a), v);
}

void ki_cstore(ki_cgen *g, kn_uop u) {
    ki_address a;
    kn_uop v = u->src[1], gate = u->nsrc > 2 ? u->src[2] : NULL;
    kn_dtype t = (kn_dtype)v->dtype;
    if (!ki_caddress(g, u->src[0], &a)) return;
    const char *slot = slot_name(g, &a), *test = "";
    bool wide = a.lanes == 1 || (a.affine && a.stride == 1), masked = gate && ki_rank(gate);
    if (gate && !masked) test = ki_cfmt(g, "if (%s) ", ki_cscalar(g, gate));
    if (slot && !masked) {
        const char *s = t == KN_BOOL ? to_memory(g, v, t, a.lanes) : ki_cvector(g, v, a.lanes);
        if (s) ki_cline(g, "%s%s = %s;", test, slot, ki_cbare(g, s));
        return;
    }
    if (slot) {
        ki_cfail(g, u, "a masked store to a register");
        return;
    }
    ki_celem e = ki_cmemory_elem(t);
    if (wide && masked && t != KN_BOOL && !ki_csmall(t) && ki_celem_bytes[e] >= 4) {
        ki_cneed(g, KI_H_MLOAD, e, a.lanes);
        ki_cneed(g, KI_H_SEL, e, a.lanes);
        ki_ctype(g, ki_cmask_elem(ki_celem_bytes[e]), a.lanes);
        const char *m = ki_cmask(g, gate, a.lanes, ki_celem_bytes[e]), *s = ki_cvector(g, v, a.lanes);
        if (s) ki_cline(g, "%s_mstore(%s, %s, %s);", ki_ctype(g, e, a.lanes), pointer(g, &a), m, s);
        return;
    }
    const char *s = wide && !masked ? to_memory(g, v, t, a.lanes) : NULL;
    ki_address f;
    if (s && streams(g, u, &a)) stream(g, &a, e, ki_cbare(g, s));
    else if (s) ki_cline(g, "%s%s = %s;", test, memory_at(g, &a), ki_cbare(g, s));
    else if (!gate && t != KN_BOOL && !ki_csmall(t) && ki_rank(v) && backwards(&a, &f))
        ki_cline(g, "%s = (%s)%s;", memory_at(g, &f), ki_ctype(g, e, a.lanes),
                 reversed(g, ki_clane_name(g, v), a.lanes));
    else store_lanes(g, u, &a);
}
