/* plan.c: arenas by live range, and positions of instructions. See plan.h.
 *
 * One sweep over the calls: a BUFFER's bytes are taken at the first call that names it and given back after the last.
 * Sizes and order decide, so the same program gives the same offsets. A SLICE of a BUFFER by a constant names all of it, and
 * becomes a SLICE of the arena; in any other view a BUFFER stays where it is. */
#include "stages/7_plan/plan.h"

#include "stages/7_plan/offsets.h"

#include <string.h>

enum { ALIGN = 64 };

typedef struct plan {
    ki_ir *ir;
    kn_uop root;
    const kn_uop *call;
    uint32_t n;
    uint32_t top;           /* ids below this existed when the plan began */
    uint32_t *first, *last; /* by BUFFER id: call + 1; 0 = not an intermediate */
    uint32_t *block;        /* by BUFFER id */
    kn_uop *map;            /* by id: BUFFER -> SLICE, kernel -> numbered kernel */
    ki_offsets *pool;       /* by device */
    kn_uop *arena;          /* by device */
    unsigned ndevice;
    kn_uop *src;     /* scratch */
    uint8_t *filled; /* by argument of a call */
} plan;

static bool is_intermediate(const plan *p, kn_uop u) {
    if (u->op != KN_BUFFER || u->arg.buffer->addrspace != KN_GLOBAL || u->arg.buffer->size <= 0) return false;
    const char *device = u->arg.buffer->device ? p->ir->env->device[u->arg.buffer->device] : "";
    return strchr(device, ',') == NULL && ki_itemsize((kn_dtype)u->dtype) > 0;
}

static int64_t bytes_of(kn_uop u) {
    int64_t n = u->arg.buffer->size * (int64_t)ki_itemsize((kn_dtype)u->dtype);
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* The BUFFER that an argument is, or is a part of. */
static kn_uop buffer_of(kn_uop arg) {
    return arg->op == KN_SLICE && ki_is_const(arg->src[1]) && arg->src[0]->op == KN_BUFFER ? arg->src[0] : arg;
}

static kn_uop storage_root(kn_uop u) {
    while (u->op == KN_AFTER || u->op == KN_INDEX) u = u->src[0];
    return u;
}

void ki_plan_filled(kn_uop body, uint8_t *first, uint32_t n) {
    enum { TOUCHED = 2 };
    memset(first, 0, n);
    if (body->op == KN_LOAD && n > 1) first[1] = 1;
    if ((body->op != KN_SINK && body->op != KN_PROGRAM) || body->src[0]->op != KN_LINEAR) return;
    for (uint32_t i = 0; i < body->src[0]->nsrc; i++) {
        kn_uop u = body->src[0]->src[i];
        if (u->op != KN_STORE && u->op != KN_LOAD && u->op != KN_ATOMICADD) continue;
        kn_uop b = storage_root(u->src[0]);
        int64_t k = b->op == KN_PARAM ? (int64_t)b->arg.param->slot + 1 : 0;
        if (k > 0 && k < (int64_t)n && !first[k]) first[k] = u->op == KN_STORE ? TOUCHED | 1 : TOUCHED;
    }
    for (uint32_t k = 0; k < n; k++) first[k] &= 1;
}

static void live_ranges(plan *p, const kn_uop *keep, size_t nkeep, const uint8_t *known) {
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 1; k < p->call[i]->nsrc; k++) {
            kn_uop b = buffer_of(p->call[i]->src[k]);
            if (!is_intermediate(p, b)) continue;
            if (!p->first[b->id]) p->first[b->id] = i + 1;
            p->last[b->id] = i + 1;
        }
    for (size_t k = 0; k < nkeep; k++) {
        kn_uop b = keep[k];
        while (b && b->op != KN_BUFFER && b->nsrc) b = b->src[0]; /* a view of a BUFFER keeps the BUFFER */
        if (b && b->id < p->top) p->first[b->id] = 0;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (!known) ki_plan_filled(p->call[i]->src[0], p->filled, p->call[i]->nsrc);
        const uint8_t *fills = known ? known : p->filled;
        if (known) known += p->call[i]->nsrc;
        for (uint32_t k = 1; k < p->call[i]->nsrc; k++) {
            kn_uop b = buffer_of(p->call[i]->src[k]);
            bool view = b->op != KN_BUFFER && b->op != KN_PARAM;
            while (b->op != KN_BUFFER && b->nsrc) b = b->src[0];
            if (b->op == KN_BUFFER && view) p->first[b->id] = 0;
            else if (b->op == KN_BUFFER && p->first[b->id] == i + 1 && !fills[k]) p->first[b->id] = 0;
        }
    }
}

static bool assign(plan *p, ki_plan_sizes *sizes) {
    for (uint32_t i = 0; i < p->n; i++) {
        kn_uop call = p->call[i];
        for (uint32_t k = 1; k < call->nsrc; k++) {
            kn_uop b = buffer_of(call->src[k]);
            if (p->first[b->id] != i + 1 || p->block[b->id]) continue;
            unsigned device = b->arg.buffer->device;
            p->block[b->id] = ki_offsets_take(&p->pool[device], bytes_of(b));
            if (!p->block[b->id]) return ki_fail(p->ir->env, KI_E_NOMEM), false;
            sizes->separate += bytes_of(b);
        }
        for (uint32_t k = 1; k < call->nsrc; k++) {
            kn_uop b = buffer_of(call->src[k]);
            if (!p->first[b->id] || p->last[b->id] != i + 1 || !p->block[b->id]) continue;
            unsigned device = b->arg.buffer->device;
            /* The offset outlives the block: it is kept in `block` itself, plus one, in units of the alignment. */
            uint32_t block = p->block[b->id];
            p->last[b->id] = 0;
            p->block[b->id] = (uint32_t)(p->pool[device].block[block].offset / ALIGN) + 1;
            ki_offsets_give(&p->pool[device], block);
        }
    }
    for (unsigned d = 0; d < p->ndevice; d++) {
        if (!p->pool[d].size) continue;
        sizes->arena += p->pool[d].size;
        p->arena[d] = ki_buffer_make(p->ir, p->ir->next_buffer++, p->pool[d].size, KN_U8, KN_GLOBAL, d);
        if (!p->arena[d]) return false;
    }
    return true;
}

static bool is_numbered(kn_uop linear) {
    for (uint32_t i = 0; i < linear->nsrc; i++)
        if (linear->src[i]->tag != i) return false;
    return true;
}

kn_uop ki_plan_kernel(ki_ir *to, ki_ir *from, kn_uop sink) {
    kn_uop linear = sink->nsrc == 1 && sink->src[0]->op == KN_LINEAR ? sink->src[0] : NULL, s = NULL;
    if (linear && (to != from || !is_numbered(linear))) return ki_import_numbered(to, from, sink);
    return to == from ? sink : ki_import(to, from, &sink, 1, &s) ? s : NULL;
}

/* Calls of one kernel share the result. */
static kn_uop number_kernel(plan *p, kn_uop sink) {
    if (sink->op != KN_SINK) return sink;
    if (!p->map[sink->id]) p->map[sink->id] = ki_plan_kernel(p->ir, p->ir, sink);
    return p->map[sink->id];
}

static kn_uop place(plan *p, kn_uop arg) {
    kn_uop b = buffer_of(arg);
    if (b->op != KN_BUFFER || !p->first[b->id] || !p->block[b->id]) return arg;
    if (p->map[arg->id]) return p->map[arg->id];
    int64_t at = (int64_t)(p->block[b->id] - 1) * ALIGN, size = arg == b ? b->arg.buffer->size : arg->arg.i;
    if (arg != b) at += arg->src[1]->arg.i * (int64_t)ki_itemsize((kn_dtype)b->dtype);
    kn_uop src[2] = {p->arena[b->arg.buffer->device], ki_index(p->ir, at)};
    return p->map[arg->id] = ki_make(p->ir, KN_SLICE, (kn_dtype)b->dtype, src, 2, (kn_arg){.i = size}, 0);
}

static kn_uop rewrite(plan *p) {
    kn_uop *calls = ki_calloc(p->n, sizeof *calls), result = NULL;
    bool ok = calls != NULL;
    if (!ok) ki_fail(p->ir->env, KI_E_NOMEM);
    for (uint32_t i = 0; i < p->n && ok; i++) {
        kn_uop call = p->call[i];
        ok = (p->src[0] = number_kernel(p, call->src[0])) != NULL;
        for (uint32_t k = 1; k < call->nsrc && ok; k++) ok = (p->src[k] = place(p, call->src[k])) != NULL;
        if (ok) ok = (calls[i] = ki_with_src(p->ir, call, p->src)) != NULL;
    }
    if (ok) result = ki_with_src(p->ir, p->root, calls);
    ki_free(calls);
    return result;
}

static bool check_form(plan *p, uint32_t *most) {
    const char *why = p->root->op == KN_LINEAR ? NULL : "the root is no LINEAR";
    for (uint32_t i = 0; i < p->n && !why; i++) {
        if (p->call[i]->op != KN_CALL) why = "a step is no CALL";
        if (p->call[i]->nsrc > *most) *most = p->call[i]->nsrc;
    }
    if (why) ki_fail(p->ir->env, KI_E_PLAN_FORM, why);
    return !why;
}

kn_uop ki_plan(ki_ir *ir, kn_uop root, const kn_uop *keep, size_t nkeep, const uint8_t *filled, ki_plan_sizes *sizes) {
    if (!root) return NULL;
    ki_plan_sizes none = {0};
    plan p = {.ir = ir, .root = root, .call = root->src, .n = root->nsrc, .top = root->id + 1};
    uint32_t most = 1;
    if (!check_form(&p, &most)) return NULL;
    p.ndevice = ir->env->ndevice ? ir->env->ndevice : 1;
    p.first = ki_calloc(p.top, sizeof *p.first);
    p.last = ki_calloc(p.top, sizeof *p.last);
    p.block = ki_calloc(p.top, sizeof *p.block);
    p.map = ki_calloc(p.top, sizeof *p.map);
    p.pool = ki_calloc(p.ndevice, sizeof *p.pool);
    p.arena = ki_calloc(p.ndevice, sizeof *p.arena);
    p.src = ki_calloc(most, sizeof *p.src);
    p.filled = ki_calloc(most, sizeof *p.filled);
    kn_uop result = NULL;
    if (sizes) *sizes = none;
    if (p.first && p.last && p.block && p.map && p.pool && p.arena && p.src && p.filled) {
        live_ranges(&p, keep, nkeep, filled);
        if (assign(&p, sizes ? sizes : &none)) result = rewrite(&p);
    } else {
        ki_fail(ir->env, KI_E_NOMEM);
    }
    for (unsigned d = 0; p.pool && d < p.ndevice; d++) ki_offsets_close(&p.pool[d]);
    ki_free(p.first), ki_free(p.last), ki_free(p.block), ki_free(p.map), ki_free(p.pool), ki_free(p.arena),
        ki_free(p.src), ki_free(p.filled);
    return result;
}
