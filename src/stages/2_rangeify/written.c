/* written.c: kernels of one store written out without the names of buffers and versions: what is written alike is alike but for
 * these. Only what names are in is written; the rest, most of a kernel, is nodes that kernels made alike share (places.c).
 *
 * Names are numbered in the order they are met, so number n of one kernel is number n of another that is written alike.
 *
 * The two operands of what commutes are met and written in the order of their forms, a hash of all but the names: nodes have theirs
 * by id, which says where in the program each was made (a first layer's x w is w x in the next). */
#include "stages/2_rangeify/rangeify.h"

#include "base/hash.h"
#include "ir/history.h"

#include <string.h>

/* Of a large kernel there will be no other, and it should not be held twice. */
enum { MOST_NODES = 4096 };

#define GROW(w, array, count, cap)                                                                                     \
    (ki_array_grow(&(array), &(cap), (size_t)(count) + 1, sizeof *(array)) || nomem((w)->ir->env))

static bool nomem(ki_env *env) { return ki_fail(env, KI_E_NOMEM), false; }

/* ---- names and numbers ----------------------------------------------------------------------------------------- */

bool ki_name_number(ki_naming *s, ki_env *env, uint32_t name, uint32_t *number) {
    if (name >= s->cap) {
        uint32_t cap = name < 1024 ? 2048 : 2 * name;
        uint32_t *p = ki_realloc(s->number, cap, sizeof *p);
        if (!p) return nomem(env);
        memset(p + s->cap, 0, (cap - s->cap) * sizeof *p);
        s->number = p;
        s->cap = cap;
    }
    if (!s->number[name]) {
        if (!ki_array_grow(&s->name, &s->name_cap, (size_t)s->n + 1, sizeof *s->name)) return nomem(env);
        s->name[s->n] = name;
        s->number[name] = ++s->n;
    }
    return *number = s->number[name] - 1, true;
}

void ki_names_forget(ki_naming *s) {
    for (uint32_t k = 0; k < s->n; k++) s->number[s->name[k]] = 0;
    s->n = 0;
}

void ki_names_free(ki_naming *s) {
    ki_free(s->number);
    ki_free(s->name);
    *s = (ki_naming){0};
}

/* ---- what names are in ----------------------------------------------------------------------------------------- */

enum { NAMED = 1, SWAPPED = 2 }; /* of a node: there are names in it; its operands are written the other way round */

/* Source k of u, which is NAMED, as it is written. */
static kn_uop source_at(const ki_forms *w, kn_uop u, uint32_t k) { return u->src[k ^ (w->named[u->id] >> 1)]; }

static uint32_t form_at(const ki_forms *w, kn_uop u) { return w->named[u->id] ? w->form[u->id] : u->id; }

/* u is NAMED: its form, and whether it is SWAPPED. What has no names in it is the same node in all kernels. */
static void find_form(ki_forms *w, kn_uop u) {
    uint64_t h = (uint64_t)u->op | (uint64_t)u->dtype << 8 | (uint64_t)(u->tag != 0) << 16 | (uint64_t)u->nsrc << 32;
    if (u->op == KN_BUFFER) {
        const ki_buffer *b = u->arg.buffer;
        h = ki_hash_step(ki_hash_step(h, (uint64_t)b->size), (uint64_t)b->addrspace << 32 | b->device);
    } else if (u->nsrc == 2 && ki_ops[u->op].flags & KI_COMM) {
        uint32_t a = form_at(w, u->src[0]), b = form_at(w, u->src[1]);
        if (a > b) w->named[u->id] |= SWAPPED;
        h = ki_hash_step(h, a > b ? (uint64_t)b << 32 | a : (uint64_t)a << 32 | b);
    } else { /* args are left out: these are written, and what is pointed to lies elsewhere in each run */
        for (uint32_t k = 0; k < u->nsrc; k++) h = ki_hash_step(h, form_at(w, u->src[k]));
    }
    w->form[u->id] = (uint32_t)(h >> 32);
}

/* Looks at the nodes that are new since the last time. */
static bool look(ki_forms *w) {
    ki_ir *ir = w->ir;
    if (ir->n > w->cap) {
        uint8_t *named = ki_realloc(w->named, ir->cap, sizeof *named);
        if (named) w->named = named;
        uint32_t *at = named ? ki_realloc(w->at, ir->cap, sizeof *at) : NULL;
        if (!at) return nomem(ir->env);
        w->at = at;
        uint32_t *form = ki_realloc(w->form, ir->cap, sizeof *form);
        if (!form) return nomem(ir->env);
        w->form = form;
        memset(at + w->cap, 0, (ir->cap - w->cap) * sizeof *at);
        w->cap = ir->cap;
        if (!w->known) w->named[w->known++] = 0;
    }
    for (; w->known < ir->n; w->known++) {
        kn_uop u = ir->node[w->known];
        bool named = u->op == KN_BUFFER || u->tag;
        for (uint32_t k = 0; k < u->nsrc && !named; k++) named = w->named[u->src[k]->id];
        w->named[w->known] = named ? NAMED : 0;
        if (named) find_form(w, u);
    }
    return true;
}

static bool walk(ki_forms *w, kn_uop sink) {
    size_t depth = 0;
    bool ok = GROW(w, w->stack, depth, w->stack_cap);
    if (ok) w->stack[depth++] = (ki_written_frame){sink, 0};
    while (ok && depth) {
        ki_written_frame *f = &w->stack[depth - 1];
        kn_uop u = f->u, s = NULL;
        while (f->next < u->nsrc && !s) {
            s = source_at(w, u, f->next++);
            if (!w->named[s->id] || w->at[s->id]) s = NULL;
        }
        if (s) {
            ok = depth < w->stack_cap || GROW(w, w->stack, depth, w->stack_cap);
            if (ok) w->stack[depth++] = (ki_written_frame){s, 0};
        } else {
            ok = w->n < w->node_cap || GROW(w, w->node, w->n, w->node_cap);
            if (ok) w->node[w->n++] = u, w->at[u->id] = w->n, depth--;
        }
    }
    return ok;
}

bool ki_written_walk(ki_forms *w, const kn_uop *sink, uint32_t n) {
    for (uint32_t k = 0; k < w->n; k++) w->at[w->node[k]->id] = 0;
    w->n = 0;
    bool ok = look(w);
    for (uint32_t k = 0; k < n && ok; k++) ok = walk(w, sink[k]);
    return ok;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

static bool room(ki_written *w, size_t words) {
    return w->nword + words <= w->word_cap || GROW(w->forms, w->word, w->nword + words, w->word_cap);
}

bool ki_written_put(ki_written *w, uint64_t word) {
    if (!room(w, 1)) return false;
    return w->word[w->nword++] = word, true;
}

/* A source, by its place here, or by id. */
static uint32_t source(const ki_forms *w, kn_uop s) {
    return w->named[s->id] ? UINT32_C(0x80000000) | w->at[s->id] : s->id;
}

static bool put_node(ki_written *w, kn_uop u) {
    uint32_t tag = 0, number;
    const ki_forms *f = w->forms;
    ki_env *env = f->ir->env;
    if (!room(w, 5 + (size_t)u->nsrc)) return false;
    uint64_t *to = w->word + w->nword;
    if (u->tag && (!ki_name_number(&w->version, env, u->tag, &tag) || ++tag == 0)) return false;
    *to++ = (uint64_t)u->op | (uint64_t)u->dtype << 8 | (uint64_t)(tag != 0) << 16 | (uint64_t)u->nsrc << 32;
    if (tag) *to++ = tag;
    if (u->op == KN_BUFFER) {
        const ki_buffer *b = u->arg.buffer;
        if (!ki_name_number(&w->buffer, env, b->id, &number) || !GROW(w->forms, w->called, number, w->called_cap))
            return false;
        w->called[number] = u;
        *to++ = number;
        *to++ = (uint64_t)b->size;
        *to++ = (uint64_t)b->addrspace << 32 | b->device;
    } else {
        *to++ = u->arg.bits;
    }
    for (uint32_t k = 0; k < u->nsrc; k += 2)
        *to++ =
            (uint64_t)source(f, source_at(f, u, k)) << 32 | (k + 1 < u->nsrc ? source(f, source_at(f, u, k + 1)) : 0);
    w->nword = (size_t)(to - w->word);
    return true;
}

bool ki_written_begin(ki_written *w, const kn_uop *sink, uint32_t n, bool *whole) {
    w->begun = w->nword;
    ki_names_forget(&w->buffer);
    ki_names_forget(&w->version);
    ki_forms *f = w->forms;
    bool ok = ki_written_walk(f, sink, n);
    *whole = f->n <= MOST_NODES;
    for (uint32_t k = 0; ok && *whole && k < f->n; k++) ok = put_node(w, f->node[k]);
    return ok;
}

/* ---- finding --------------------------------------------------------------------------------------------------- */

static bool is_written(const ki_written *w, const ki_written_kernel *e, size_t at, size_t n) {
    return e->n == n && memcmp(w->word + e->at, w->word + at, n * sizeof *w->word) == 0;
}

bool ki_written_find(ki_written *w, uint32_t *kernel, bool *known) {
    size_t at = w->begun, n = w->nword - at;
    uint32_t hash = (uint32_t)ki_hash_bytes(0, w->word + at, n * sizeof *w->word), probe = 0, k;
    while ((k = ki_slots_next(&w->slots, hash, &probe)) && !is_written(w, &w->kernel[k - 1], at, n)) {
    }
    if ((*known = k != 0)) return w->nword = at, *kernel = k - 1, true;
    k = w->slots.n;
    if (!GROW(w->forms, w->kernel, k, w->kernel_cap)) return false;
    if (!ki_slots_add(&w->slots, hash)) return nomem(w->forms->ir->env);
    w->kernel[k] = (ki_written_kernel){.at = at, .n = n};
    return *kernel = k, true;
}

void ki_forms_close(ki_forms *f) {
    ki_free(f->named);
    ki_free(f->at);
    ki_free(f->form);
    ki_free(f->node);
    ki_free(f->stack);
    *f = (ki_forms){0};
}

void ki_written_close(ki_written *w) {
    ki_names_free(&w->buffer);
    ki_names_free(&w->version);
    ki_free(w->called);
    ki_free(w->word);
    ki_free(w->kernel);
    ki_slots_free(&w->slots);
    *w = (ki_written){0};
}

/* ---- what they become ------------------------------------------------------------------------------------------ */

bool ki_firsts_find(ki_firsts *s, ki_first **first) {
    uint32_t kernel;
    bool known;
    if (!ki_written_find(&s->seen, &kernel, &known)) return false;
    if (!known && !GROW(s->seen.forms, s->first, kernel, s->first_cap)) return false;
    if (!known) s->first[s->nfirst++] = (ki_first){0};
    return *first = &s->first[kernel], true;
}

bool ki_firsts_note(ki_firsts *s, ki_first *f, kn_uop done) {
    const ki_naming *b = &s->seen.buffer, *v = &s->seen.version;
    *f = (ki_first){done, NULL, b->n, v->n, s->fresh, 0};
    if (!(f->name = ki_malloc(((size_t)b->n + v->n + 1) * sizeof *f->name))) return nomem(s->seen.forms->ir->env);
    for (uint32_t k = 0; k < b->n; k++) f->name[k] = b->name[k];
    for (uint32_t k = 0; k < v->n; k++) f->name[b->n + k] = v->name[k];
    return true;
}

/* What name `old` of the first is called in the kernel at hand; LOCAL buffers are anew. */
static uint32_t called(const ki_firsts *s, const ki_first *f, bool version, uint32_t old) {
    uint32_t from = version ? f->nbuffer : 0, n = version ? f->nversion : f->nbuffer, k = 0;
    while (k < n && f->name[from + k] != old) k++;
    if (k == n) return version ? old : old - f->fresh + s->fresh;
    return (version ? &s->seen.version : &s->seen.buffer)->name[k];
}

bool ki_buffer_called(ki_ir *to, kn_uop u, uint32_t id, kn_arg *arg) {
    ki_buffer b;
    memcpy(&b, u->arg.buffer, sizeof b);
    b.id = id;
    return (arg->p = ki_intern(to, &b, sizeof b)) != NULL;
}

kn_uop ki_firsts_as(ki_firsts *s, const ki_first *f) {
    ki_forms *w = s->seen.forms;
    ki_ir *ir = w->ir;
    kn_uop src[64], done = f->done;
    bool ok = ki_written_walk(w, &f->done, 1);
    ki_map *map = ok ? ki_map_take(ir) : NULL;
    ok = map != NULL;
    s->fresh = ir->next_buffer;
    for (uint32_t i = 0; ok && i < w->n; i++) {
        kn_uop u = w->node[i], *v = u->nsrc <= 64 ? src : ki_malloc(u->nsrc * sizeof *v);
        kn_arg arg = u->arg;
        if (!v) ok = nomem(ir->env);
        for (uint32_t k = 0; ok && k < u->nsrc; k++)
            if (!(v[k] = w->named[u->src[k]->id] ? ki_map_get(map, u->src[k]) : u->src[k])) ok = false;
        if (ok && u->op == KN_BUFFER) ok = ki_buffer_called(ir, u, called(s, f, false, u->arg.buffer->id), &arg);
        if (ok) done = ki_make_as(ir, u, v, arg, u->type, u->tag ? called(s, f, true, u->tag) : 0);
        ok = ok && (done = ki_like(ir, done, ir, u)) != NULL;
        if (ok) ki_map_set(map, u, done);
        if (v != src) ki_free(v);
    }
    ki_map_give(ir, map);
    return ok ? done : NULL;
}

void ki_firsts_close(ki_firsts *s) {
    for (uint32_t k = 0; k < s->nfirst; k++) ki_free(s->first[k].name);
    ki_free(s->first);
    ki_written_close(&s->seen);
    *s = (ki_firsts){0};
}
