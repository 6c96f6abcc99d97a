/* twins.c: nests that are alike up to the names of buffers, versions and ranges (each layer of a network has the same ones)
 * are finished once. Those that are written alike (written.c) become what the first of them did, under other names. The first is copied
 * to a store of its own with numbers in place of names, of ranges too: twins are the same node there. What it became is
 * copied back.
 *
 * Finishing may look at names only to tell things apart. What else it looks at is in the node: size, dtype, device. Ranges
 * keep their numbers: they are a kernel's own. */
#include "stages/2_rangeify/rangeify.h"

#include "ir/history.h"

#include <string.h>

/* Of a large nest there will be no other, and it should not be held twice. */
enum { MOST_NODES = 4096 };

static bool nomem(ki_env *env) { return ki_fail(env, KI_E_NOMEM), false; }

/* ---- names and numbers ----------------------------------------------------------------------------------------- */

static bool buffer_called(ki_ir *to, kn_uop u, uint32_t id, kn_arg *arg) {
    ki_buffer b;
    memcpy(&b, u->arg.buffer, sizeof b);
    b.id = id;
    return (arg->p = ki_intern(to, &b, sizeof b)) != NULL;
}

static bool to_numbers(void *user, ki_ir *to, kn_uop u, kn_arg *arg, uint32_t *tag) {
    ki_twins *t = user;
    uint32_t id;
    if (*tag) {
        if (!ki_name_number(&t->seen.version, to->env, *tag, &id)) return false;
        *tag = id + 1;
    }
    if (u->op == KN_BUFFER)
        return ki_name_number(&t->seen.buffer, to->env, u->arg.buffer->id, &id) && buffer_called(to, u, id, arg);
    if (u->op == KN_RANGE) {
        *arg = u->arg;
        return ki_name_number(&t->range, to->env, u->arg.range.id, &arg->range.id);
    }
    *arg = ki_import_arg(to, u);
    return arg->p || !u->arg.p;
}

static bool to_names(void *user, ki_ir *to, kn_uop u, kn_arg *arg, uint32_t *tag) {
    ki_twins *t = user;
    if (*tag) *tag = t->seen.version.name[*tag - 1];
    if (u->op == KN_BUFFER) {
        uint32_t k = u->arg.buffer->id, n = t->seen.buffer.n;
        return buffer_called(to, u, k < n ? t->seen.buffer.name[k] : t->fresh + k - n, arg);
    }
    *arg = ki_import_arg(to, u);
    return arg->p || !u->arg.p;
}

/* ---- one nest of each kind ------------------------------------------------------------------------------------- */

/* What l has for the buffer that is number k here. */
static ki_wish *wish_of(const ki_twins *t, const ki_layouts *l, uint32_t k) {
    return t->seen.buffer.name[k] < l->nbuffer ? &l->wish[t->seen.buffer.name[k]] : NULL;
}

/* Nests are told apart by themselves, and, once there are wishes, by those for what they touch. */
static kn_uop key_of(ki_twins *t, kn_uop nest, const ki_layouts *l) {
    if (l->step == KI_WISH) return nest;
    kn_uop *s = ki_malloc((2 * (size_t)t->seen.buffer.n + 2) * sizeof *s);
    if (!s) return nomem(t->ir.env), NULL;
    s[0] = nest;
    s[1] = ki_index(&t->ir, l->step);
    for (uint32_t k = 0; k < t->seen.buffer.n; k++) {
        const ki_wish *w = wish_of(t, l, k);
        bool any = w && w->extent > 0;
        s[2 * k + 2] = ki_index(&t->ir, any ? w->stride : 0);
        s[2 * k + 3] = ki_index(&t->ir, any ? w->extent : 0);
    }
    kn_uop key = ki_opn(&t->ir, KN_TUPLE, s, 2 * t->seen.buffer.n + 2);
    ki_free(s);
    return key;
}

/* A new twin: the nest `sink` of t->ir is finished at l's step. */
static bool add_twin(ki_twins *t, kn_uop key, kn_uop sink, const ki_layouts *l) {
    ki_env *env = t->ir.env;
    ki_layouts own = {.step = l->step, .nbuffer = t->seen.buffer.n, .panels = l->panels};
    kn_uop fill;
    if (!ki_array_grow(&t->twin, &t->twin_cap, (size_t)t->ntwin + 1, sizeof *t->twin)) return nomem(env);
    if (!(own.wish = ki_calloc(own.nbuffer + 1, sizeof *own.wish))) return nomem(env);
    for (uint32_t k = 0; k < own.nbuffer && l->step != KI_WISH; k++)
        if (wish_of(t, l, k)) own.wish[k] = (ki_wish){wish_of(t, l, k)->stride, wish_of(t, l, k)->extent, 0, 0, false};
    t->ir.next_buffer = t->seen.buffer.n; /* LOCAL ones go on from there */
    kn_uop done = ki_range_finish(&t->ir, sink, false, &own, &fill);
    if (!done) return ki_free(own.wish), false;
    t->twin[t->ntwin] = (ki_twin){done, own.wish};
    t->of[key->id] = ++t->ntwin;
    return true;
}

static const ki_twin *twin_of(ki_twins *t, kn_uop sink, const ki_layouts *l) {
    kn_uop key = key_of(t, sink, l);
    if (!key) return NULL;
    if (key->id >= t->of_cap) {
        uint32_t cap = 2 * t->ir.n;
        uint32_t *p = ki_realloc(t->of, cap, sizeof *p);
        if (!p) return nomem(t->ir.env), NULL;
        memset(p + t->of_cap, 0, (cap - t->of_cap) * sizeof *p);
        t->of = p;
        t->of_cap = cap;
    }
    if (!t->of[key->id] && !add_twin(t, key, sink, l)) return NULL;
    return &t->twin[t->of[key->id] - 1];
}

/* The wishes that a twin made, or took back. */
static void take_wishes(const ki_twins *t, const ki_twin *w, ki_layouts *l) {
    for (uint32_t k = 0; k < t->seen.buffer.n; k++) {
        ki_wish *x = wish_of(t, l, k);
        if (!x) continue;
        if (l->step == KI_WISH && x->extent >= 0 && w->wish[k].extent > 0) *x = w->wish[k];
        if (l->step == KI_TRY && x->extent > 0 && !w->wish[k].extent) x->extent = 0;
        if (l->step != KI_TRY) continue;
        x->gain += w->wish[k].gain;
        x->spared += w->wish[k].spared;
        x->other |= w->wish[k].other;
    }
}

/* ---- nests written alike --------------------------------------------------------------------------------------- */

/* Beside its nodes, once there are wishes, those for what it touches. *first: of its kind, no done: it has become nothing yet; NULL:
 * the nest is large. */
static bool find_first(ki_twins *t, kn_uop sink, const ki_layouts *l, ki_first **first) {
    ki_written *s = &t->seen;
    uint32_t kernel;
    bool whole, known, ok = ki_written_begin(s, sink, &whole);
    *first = NULL;
    if (!ok || !whole) return ok;
    ok = ki_written_put(s, l->step);
    for (uint32_t k = 0; ok && l->step != KI_WISH && k < s->buffer.n; k++) {
        const ki_wish *w = wish_of(t, l, k);
        bool any = w && w->extent > 0;
        ok = ki_written_put(s, any ? (uint64_t)w->stride : 0) && ki_written_put(s, any ? (uint64_t)w->extent : 0);
    }
    if (!ok || !ki_written_find(s, &kernel, &known)) return false;
    if (!known && !ki_array_grow(&t->first, &t->first_cap, (size_t)kernel + 1, sizeof *t->first))
        return nomem(t->ir.env);
    if (!known) t->first[t->nfirst++] = (ki_first){0};
    return *first = &t->first[kernel], true;
}

/* The nest at hand is the first of its kind. */
static bool note_first(ki_twins *t, ki_first *f, const ki_twin *w, kn_uop done) {
    const ki_naming *b = &t->seen.buffer, *v = &t->seen.version;
    *f = (ki_first){(uint32_t)(w - t->twin), done, NULL, b->n, v->n, t->fresh};
    if (!(f->name = ki_malloc(((size_t)b->n + v->n + 1) * sizeof *f->name))) return nomem(t->ir.env);
    for (uint32_t k = 0; k < b->n; k++) f->name[k] = b->name[k];
    for (uint32_t k = 0; k < v->n; k++) f->name[b->n + k] = v->name[k];
    return true;
}

/* What name `old` of the first is called in the nest at hand; LOCAL buffers are anew. */
static uint32_t called(const ki_twins *t, const ki_first *f, bool version, uint32_t old) {
    uint32_t from = version ? f->nbuffer : 0, n = version ? f->nversion : f->nbuffer, k = 0;
    while (k < n && f->name[from + k] != old) k++;
    if (k == n) return version ? old : old - f->fresh + t->fresh;
    return (version ? &t->seen.version : &t->seen.buffer)->name[k];
}

/* What the first became, under the names of the nest at hand. */
static kn_uop as_first(ki_twins *t, ki_ir *ir, const ki_first *f) {
    ki_written *s = &t->seen;
    kn_uop src[64], done = f->done;
    bool ok = ki_written_walk(s, f->done);
    ki_map *map = ok ? ki_map_take(ir) : NULL;
    ok = map != NULL;
    t->fresh = ir->next_buffer;
    for (uint32_t i = 0; ok && i < s->n; i++) {
        kn_uop u = s->node[i], *v = u->nsrc <= 64 ? src : ki_malloc(u->nsrc * sizeof *v);
        kn_arg arg = u->arg;
        if (!v) ok = nomem(ir->env);
        for (uint32_t k = 0; ok && k < u->nsrc; k++)
            if (!(v[k] = s->named[u->src[k]->id] ? ki_map_get(map, u->src[k]) : u->src[k])) ok = false;
        if (ok && u->op == KN_BUFFER) ok = buffer_called(ir, u, called(t, f, false, u->arg.buffer->id), &arg);
        if (ok) done = ki_make_as(ir, u, v, arg, u->type, u->tag ? called(t, f, true, u->tag) : 0);
        ok = ok && (done = ki_like(ir, done, ir, u)) != NULL;
        if (ok) ki_map_set(map, u, done);
        if (v != src) ki_free(v);
    }
    ki_map_give(ir, map);
    return ok ? done : NULL;
}

kn_uop ki_twins_finish(ki_twins *t, ki_ir *ir, kn_uop sink, ki_layouts *l) {
    kn_uop *node, done = NULL, fill;
    ki_first *f;
    if (!find_first(t, sink, l, &f)) return NULL;
    if (!f) return ki_range_finish(ir, sink, false, l, &fill);
    if (f->done) {
        take_wishes(t, &t->twin[f->twin], l);
        return l->step == KI_TRY ? sink : as_first(t, ir, f);
    }
    int64_t n = ki_postorder(ir, &sink, 1, &node);
    if (n < 0) return NULL;
    if (n > MOST_NODES) return ki_free(node), ki_range_finish(ir, sink, false, l, &fill);
    kn_uop nest = ki_import_renamed(&t->ir, ir, node, (uint32_t)n, to_numbers, t);
    ki_free(node);
    ki_names_forget(&t->range);
    const ki_twin *w = nest ? twin_of(t, nest, l) : NULL;
    if (w) take_wishes(t, w, l);
    t->fresh = ir->next_buffer;
    if (w && l->step == KI_TRY) {
        done = sink;
    } else if (w && (n = ki_postorder(&t->ir, &w->done, 1, &node)) >= 0) {
        done = ki_import_renamed(ir, &t->ir, node, (uint32_t)n, to_names, t);
        ki_free(node);
    }
    return done && note_first(t, f, w, done) ? done : NULL;
}

bool ki_twins_open(ki_twins *t, ki_ir *ir) {
    *t = (ki_twins){.seen = {.ir = ir}};
    return ki_ir_open(&t->ir, ir->env);
}

void ki_twins_close(ki_twins *t) {
    for (uint32_t k = 0; k < t->nfirst; k++) ki_free(t->first[k].name);
    for (uint32_t k = 0; k < t->ntwin; k++) ki_free(t->twin[k].wish);
    ki_names_free(&t->range);
    ki_written_close(&t->seen);
    ki_free(t->first);
    ki_free(t->twin);
    ki_free(t->of);
    ki_ir_close(&t->ir);
    *t = (ki_twins){0};
}
