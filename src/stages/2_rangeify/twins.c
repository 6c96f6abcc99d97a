/* twins.c: nests that are alike up to the names of buffers, versions and ranges (each layer of a network has the same ones)
 * are finished once. A nest is copied to a store of its own with numbers in place of names: twins are the same node there.
 * What it became is copied back, under the names of the one at hand.
 *
 * Finishing may look at names only to tell things apart. What else it looks at is in the node: size, dtype, device. Ranges
 * keep their numbers: they are a kernel's own. */
#include "stages/2_rangeify/rangeify.h"

#include <string.h>

/* Of a large nest there will be no other, and it should not be held twice. */
enum { MOST_NODES = 4096 };

static bool nomem(ki_env *env) { return ki_fail(env, KI_E_NOMEM), false; }

/* ---- names and numbers ----------------------------------------------------------------------------------------- */

static bool number_of(ki_naming *s, ki_env *env, uint32_t name, uint32_t *number) {
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

static void forget(ki_naming *s) {
    for (uint32_t k = 0; k < s->n; k++) s->number[s->name[k]] = 0;
    s->n = 0;
}

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
        if (!number_of(&t->version, to->env, *tag, &id)) return false;
        *tag = id + 1;
    }
    if (u->op == KN_BUFFER)
        return number_of(&t->buffer, to->env, u->arg.buffer->id, &id) && buffer_called(to, u, id, arg);
    if (u->op == KN_RANGE) {
        *arg = u->arg;
        return number_of(&t->range, to->env, u->arg.range.id, &arg->range.id);
    }
    *arg = ki_import_arg(to, u);
    return arg->p || !u->arg.p;
}

static bool to_names(void *user, ki_ir *to, kn_uop u, kn_arg *arg, uint32_t *tag) {
    ki_twins *t = user;
    if (*tag) *tag = t->version.name[*tag - 1];
    if (u->op == KN_BUFFER) {
        uint32_t k = u->arg.buffer->id, n = t->buffer.n;
        return buffer_called(to, u, k < n ? t->buffer.name[k] : t->fresh + k - n, arg);
    }
    *arg = ki_import_arg(to, u);
    return arg->p || !u->arg.p;
}

static void forget_names(ki_twins *t) {
    forget(&t->buffer);
    forget(&t->version);
    forget(&t->range);
}

/* ---- one nest of each kind ------------------------------------------------------------------------------------- */

/* What l has for the buffer that is number k here. */
static ki_wish *wish_of(const ki_twins *t, const ki_layouts *l, uint32_t k) {
    return t->buffer.name[k] < l->nbuffer ? &l->wish[t->buffer.name[k]] : NULL;
}

/* Nests are told apart by themselves, and, once there are wishes, by those for what they touch. */
static kn_uop key_of(ki_twins *t, kn_uop nest, const ki_layouts *l) {
    if (l->step == KI_WISH) return nest;
    kn_uop *s = ki_malloc((2 * (size_t)t->buffer.n + 2) * sizeof *s);
    if (!s) return nomem(t->ir.env), NULL;
    s[0] = nest;
    s[1] = ki_index(&t->ir, l->step);
    for (uint32_t k = 0; k < t->buffer.n; k++) {
        const ki_wish *w = wish_of(t, l, k);
        bool any = w && w->extent > 0;
        s[2 * k + 2] = ki_index(&t->ir, any ? w->stride : 0);
        s[2 * k + 3] = ki_index(&t->ir, any ? w->extent : 0);
    }
    kn_uop key = ki_opn(&t->ir, KN_TUPLE, s, 2 * t->buffer.n + 2);
    ki_free(s);
    return key;
}

/* A new twin: the nest `sink` of t->ir is finished at l's step. */
static bool add_twin(ki_twins *t, kn_uop key, kn_uop sink, const ki_layouts *l) {
    ki_env *env = t->ir.env;
    ki_layouts own = {.step = l->step, .nbuffer = t->buffer.n};
    kn_uop fill;
    if (!ki_array_grow(&t->twin, &t->twin_cap, (size_t)t->ntwin + 1, sizeof *t->twin)) return nomem(env);
    if (!(own.wish = ki_calloc(own.nbuffer + 1, sizeof *own.wish))) return nomem(env);
    for (uint32_t k = 0; k < own.nbuffer && l->step != KI_WISH; k++)
        if (wish_of(t, l, k)) own.wish[k] = *wish_of(t, l, k), own.wish[k].gain = 0;
    t->ir.next_buffer = t->buffer.n; /* LOCAL ones go on from there */
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
    for (uint32_t k = 0; k < t->buffer.n; k++) {
        ki_wish *x = wish_of(t, l, k);
        if (!x) continue;
        if (l->step == KI_WISH && x->extent >= 0 && w->wish[k].extent > 0) *x = w->wish[k];
        if (l->step == KI_TRY && x->extent > 0 && !w->wish[k].extent) x->extent = 0;
        if (l->step == KI_TRY) x->gain += w->wish[k].gain;
    }
}

kn_uop ki_twins_finish(ki_twins *t, ki_ir *ir, kn_uop sink, ki_layouts *l) {
    kn_uop *node, done = NULL, fill;
    int64_t n = ki_postorder(ir, &sink, 1, &node);
    if (n < 0) return NULL;
    if (n > MOST_NODES) return ki_free(node), ki_range_finish(ir, sink, false, l, &fill);
    kn_uop nest = ki_import_renamed(&t->ir, ir, node, (uint32_t)n, to_numbers, t);
    ki_free(node);
    const ki_twin *w = nest ? twin_of(t, nest, l) : NULL;
    if (w) take_wishes(t, w, l);
    if (w && l->step == KI_TRY) {
        done = sink;
    } else if (w && (n = ki_postorder(&t->ir, &w->done, 1, &node)) >= 0) {
        t->fresh = ir->next_buffer;
        done = ki_import_renamed(ir, &t->ir, node, (uint32_t)n, to_names, t);
        ki_free(node);
    }
    forget_names(t);
    return done;
}

bool ki_twins_open(ki_twins *t, ki_env *env) {
    *t = (ki_twins){0};
    return ki_ir_open(&t->ir, env);
}

void ki_twins_close(ki_twins *t) {
    ki_naming *all[] = {&t->buffer, &t->version, &t->range};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) ki_free(all[k]->number), ki_free(all[k]->name);
    for (uint32_t k = 0; k < t->ntwin; k++) ki_free(t->twin[k].wish);
    ki_free(t->twin);
    ki_free(t->of);
    ki_ir_close(&t->ir);
    *t = (ki_twins){0};
}
