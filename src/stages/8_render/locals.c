/* locals.c: see locals.h. */
#include "stages/8_render/locals.h"

#include <string.h>

enum { SPLIT_MOST = 2048 };

/* STACK of constants in arithmetic progression. */
static bool progression(kn_uop u, int64_t *start, int64_t *stride) {
    if (u->op != KN_STACK || u->nsrc == 0) return false;
    int64_t first = u->src[0]->arg.i, step = u->nsrc > 1 ? u->src[1]->arg.i - first : 0, at = first;
    for (uint32_t k = 0; k < u->nsrc; k++, at += step)
        if (!ki_is_const(u->src[k]) || u->src[k]->arg.i != at) return false;
    *start = first, *stride = step;
    return true;
}

const char *ki_address_of(kn_uop index, ki_address *a) {
    *a = (ki_address){0};
    while (index->op == KN_AFTER) index = index->src[0];
    if (index->op != KN_INDEX || index->nsrc != 2) return "an address is INDEX(buffer, one index)";
    kn_uop i = index->src[1];
    a->buf = index->src[0];
    while (a->buf->op == KN_AFTER) a->buf = a->buf->src[0];
    if (a->buf->op != KN_PARAM && a->buf->op != KN_BUFFER) return "no buffer";
    a->lanes = i->type->rank ? (unsigned)i->type->dim[0].n : 1;
    a->base = i;
    a->affine = true;
    if (ki_rank(i) == 0) {
        if (ki_is_const(i)) a->base = NULL, a->start = i->arg.i;
        return NULL;
    }
    if (progression(i, &a->start, &a->stride)) return a->base = NULL, NULL;
    if (i->op == KN_ADD)
        for (int k = 0; k < 2; k++) {
            kn_uop b = i->src[k], v = i->src[1 - k];
            if (ki_rank(b) || !progression(v, &a->start, &a->stride)) continue;
            a->base = b;
            if (ki_is_const(b)) a->base = NULL, a->start += b->arg.i;
            return NULL;
        }
    a->affine = false;
    return NULL;
}

bool ki_is_memory(kn_uop u) {
    while (u->op == KN_AFTER || u->op == KN_INDEX) u = u->src[0];
    return (u->op == KN_PARAM && ki_rank(u)) || u->op == KN_BUFFER;
}

uint32_t ki_variable_place(kn_uop kernel, kn_uop variable, uint32_t seen) {
    uint32_t place = 0;
    for (uint32_t k = 1; kernel->op == KN_CALL && k < kernel->nsrc; k++) {
        kn_uop v = kernel->src[k];
        if (v->op != KN_PARAM || v->arg.param->slot >= 0) continue;
        if (v->arg.param == variable->arg.param) return place;
        place++;
    }
    return seen;
}

static void note_access(ki_local *r, const ki_address *a, bool masked) {
    if (!r->split) return;
    int64_t size = r->buf->arg.buffer->size;
    bool ok = !masked && a->affine && !a->base && (a->lanes == 1 || a->stride == 1) && a->start >= 0 &&
              a->start + a->lanes <= size;
    for (unsigned k = 0; ok && k < a->lanes; k++) {
        uint16_t *s = &r->start[a->start + k];
        ok = *s == 0 || *s == a->start + 1;
        *s = (uint16_t)(a->start + 1);
    }
    if (ok) ok = r->lanes[a->start] == 0 || r->lanes[a->start] == a->lanes;
    if (ok) r->lanes[a->start] = (uint8_t)a->lanes;
    else r->split = false;
}

static bool may_split(kn_uop u) { return u->arg.buffer->addrspace == KN_REG && u->arg.buffer->size <= SPLIT_MOST; }

static bool list_locals(ki_locals *s, ki_env *env, const kn_uop *inst, uint32_t n, uint32_t top) {
    size_t elements = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (inst[i]->op != KN_BUFFER) continue;
        count++;
        if (may_split(inst[i])) elements += (size_t)inst[i]->arg.buffer->size;
    }
    s->local = ki_calloc(count + 1, sizeof *s->local);
    s->place = ki_calloc((size_t)top + 1, sizeof *s->place);
    s->address = ki_malloc(((size_t)n + 1) * sizeof *s->address);
    uint16_t *start = s->mem = ki_calloc(elements + 1, sizeof *start + 1);
    if (!s->local || !s->place || !s->address || !s->mem) return ki_fail(env, KI_E_NOMEM), false;
    uint8_t *lanes = (uint8_t *)(start + elements);
    for (uint32_t i = 0; i < n; i++) {
        kn_uop u = inst[i];
        if (u->op != KN_BUFFER) continue;
        s->local[s->n] = (ki_local){.buf = u, .split = may_split(u), .start = start, .lanes = lanes};
        s->place[u->id] = ++s->n;
        if (may_split(u)) start += u->arg.buffer->size, lanes += u->arg.buffer->size;
    }
    return true;
}

/* The first long one begins with a page, so that what stands beside it in rows of the inputs does so in each run: softmax took 1.13 to 1.26 of its
 * time in one start of eight, where the kept row stood up to 256 bytes further on in its page. The others as they follow, which lie at other places in theirs:
 * attention, all of whose arrays began with pages, took 1.045. */
static void align_arrays(ki_locals *s) {
    bool paged = false;
    for (uint32_t k = 0; k < s->n; k++) {
        ki_local *b = &s->local[k];
        uint64_t bytes = (uint64_t)b->buf->arg.buffer->size * ki_itemsize((kn_dtype)b->buf->dtype);
        bool page = !b->split && !paged && bytes >= KI_PAGED;
        b->align = page ? KI_PAGE : 64;
        paged |= page;
    }
}

bool ki_locals_open(ki_locals *s, ki_env *env, const kn_uop *inst, uint32_t n, uint32_t top) {
    *s = (ki_locals){0};
    if (!list_locals(s, env, inst, n, top)) return false;
    for (uint32_t i = 0; i < n; i++) {
        kn_uop u = inst[i], b;
        if (u->op != KN_LOAD && u->op != KN_STORE && u->op != KN_ATOMICADD) continue;
        const char *why = ki_address_of(u->src[0], &s->address[i]);
        if (why) return ki_fail(env, KI_E_RENDER_FORM, ki_ops[u->op].name, why), false;
        bool masked = u->op != KN_ATOMICADD && u->nsrc > 2 && ki_rank(u->src[2]);
        if ((b = s->address[i].buf)->op == KN_BUFFER)
            note_access(&s->local[s->place[b->id] - 1], &s->address[i], masked);
        else if (u->op != KN_LOAD && b->arg.param->slot >= 0 && b->arg.param->slot < 4096)
            s->written[b->arg.param->slot >> 6] |= UINT64_C(1) << (b->arg.param->slot & 63);
    }
    align_arrays(s);
    return true;
}

void ki_locals_close(ki_locals *s) {
    ki_free(s->local);
    ki_free(s->place);
    ki_free(s->address);
    ki_free(s->mem);
    *s = (ki_locals){0};
}
