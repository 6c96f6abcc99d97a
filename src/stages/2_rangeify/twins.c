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

static bool to_numbers(void *user, ki_ir *to, kn_uop u, kn_arg *arg, uint32_t *tag) {
    ki_twins *t = user;
    uint32_t id;
    if (*tag) {
        if (!ki_name_number(&t->firsts.seen.version, to->env, *tag, &id)) return false;
        *tag = id + 1;
    }
    if (u->op == KN_BUFFER)
        return ki_name_number(&t->firsts.seen.buffer, to->env, u->arg.buffer->id, &id) &&
               ki_buffer_called(to, u, id, arg);
    if (u->op == KN_RANGE) {
        *arg = u->arg;
        return ki_name_number(&t->range, to->env, u->arg.range.id, &arg->range.id);
    }
    *arg = ki_import_arg(to, u);
    return arg->p || !u->arg.p;
}

static bool to_names(void *user, ki_ir *to, kn_uop u, kn_arg *arg, uint32_t *tag) {
    ki_twins *t = user;
    if (*tag) *tag = t->firsts.seen.version.name[*tag - 1];
    if (u->op == KN_BUFFER) {
        uint32_t k = u->arg.buffer->id, n = t->firsts.seen.buffer.n;
        return ki_buffer_called(to, u, k < n ? t->firsts.seen.buffer.name[k] : t->firsts.fresh + k - n, arg);
    }
    *arg = ki_import_arg(to, u);
    return arg->p || !u->arg.p;
}

/* ---- one nest of each kind ------------------------------------------------------------------------------------- */

/* What l has for the buffer that is number k here. */
static ki_wish *wish_of(const ki_twins *t, const ki_layouts *l, uint32_t k) {
    return t->firsts.seen.buffer.name[k] < l->nbuffer ? &l->wish[t->firsts.seen.buffer.name[k]] : NULL;
}

/* Nests are told apart by themselves, and, once there are wishes, by those for what they touch. */
static kn_uop key_of(ki_twins *t, kn_uop nest, const ki_layouts *l) {
    if (l->step == KI_WISH) return nest;
    kn_uop *s = ki_malloc((2 * (size_t)t->firsts.seen.buffer.n + 2) * sizeof *s);
    if (!s) return nomem(t->ir.env), NULL;
    s[0] = nest;
    s[1] = ki_index(&t->ir, l->step);
    for (uint32_t k = 0; k < t->firsts.seen.buffer.n; k++) {
        const ki_wish *w = wish_of(t, l, k);
        bool any = w && w->extent > 0;
        s[2 * k + 2] = ki_index(&t->ir, any ? w->stride : 0);
        s[2 * k + 3] = ki_index(&t->ir, any ? w->extent : 0);
    }
    kn_uop key = ki_opn(&t->ir, KN_TUPLE, s, 2 * t->firsts.seen.buffer.n + 2);
    ki_free(s);
    return key;
}

/* A new twin: the nest `sink` of t->ir is finished at l's step. */
static bool add_twin(ki_twins *t, kn_uop key, kn_uop sink, const ki_layouts *l) {
    ki_env *env = t->ir.env;
    ki_layouts own = {.step = l->step, .nbuffer = t->firsts.seen.buffer.n, .panels = l->panels};
    kn_uop fill;
    if (!ki_array_grow(&t->twin, &t->twin_cap, (size_t)t->ntwin + 1, sizeof *t->twin)) return nomem(env);
    if (!(own.wish = ki_calloc(own.nbuffer + 1, sizeof *own.wish))) return nomem(env);
    for (uint32_t k = 0; k < own.nbuffer && l->step != KI_WISH; k++)
        if (wish_of(t, l, k)) own.wish[k] = (ki_wish){wish_of(t, l, k)->stride, wish_of(t, l, k)->extent, 0, 0, false};
    t->ir.next_buffer = t->firsts.seen.buffer.n; /* LOCAL ones go on from there */
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
    for (uint32_t k = 0; k < t->firsts.seen.buffer.n; k++) {
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

/* Beside its nodes, once there are wishes, those for what it touches. *first: NULL: the nest is large. */
static bool find_first(ki_twins *t, kn_uop sink, const ki_layouts *l, ki_first **first) {
    ki_written *s = &t->firsts.seen;
    bool whole, ok = ki_written_begin(s, &sink, 1, &whole);
    *first = NULL;
    if (!ok || !whole) return ok;
    ok = ki_written_put(s, l->step);
    for (uint32_t k = 0; ok && l->step != KI_WISH && k < s->buffer.n; k++) {
        const ki_wish *w = wish_of(t, l, k);
        bool any = w && w->extent > 0;
        ok = ki_written_put(s, any ? (uint64_t)w->stride : 0) && ki_written_put(s, any ? (uint64_t)w->extent : 0);
    }
    return ok && ki_firsts_find(&t->firsts, first);
}

kn_uop ki_twins_finish(ki_twins *t, ki_ir *ir, kn_uop sink, ki_layouts *l) {
    kn_uop *node, done = NULL, fill;
    ki_first *f;
    if (!find_first(t, sink, l, &f)) return NULL;
    if (!f) return ki_range_finish(ir, sink, false, l, &fill);
    if (f->done) {
        take_wishes(t, &t->twin[f->twin], l);
        return l->step == KI_TRY ? sink : ki_firsts_as(&t->firsts, f);
    }
    int64_t n = ki_postorder(ir, &sink, 1, &node);
    if (n < 0) return NULL;
    if (n > MOST_NODES) return ki_free(node), ki_range_finish(ir, sink, false, l, &fill);
    kn_uop nest = ki_import_renamed(&t->ir, ir, node, (uint32_t)n, to_numbers, t);
    ki_free(node);
    ki_names_forget(&t->range);
    const ki_twin *w = nest ? twin_of(t, nest, l) : NULL;
    if (w) take_wishes(t, w, l);
    t->firsts.fresh = ir->next_buffer;
    if (w && l->step == KI_TRY) {
        done = sink;
    } else if (w && (n = ki_postorder(&t->ir, &w->done, 1, &node)) >= 0) {
        done = ki_import_renamed(ir, &t->ir, node, (uint32_t)n, to_names, t);
        ki_free(node);
    }
    if (!done || !ki_firsts_note(&t->firsts, f, done)) return NULL;
    return f->twin = (uint32_t)(w - t->twin), done;
}

bool ki_twins_open(ki_twins *t, ki_forms *forms) {
    *t = (ki_twins){.firsts = {.seen = {.forms = forms}}};
    return ki_ir_open(&t->ir, forms->ir->env);
}

void ki_twins_close(ki_twins *t) {
    for (uint32_t k = 0; k < t->ntwin; k++) ki_free(t->twin[k].wish);
    ki_names_free(&t->range);
    ki_firsts_close(&t->firsts);
    ki_free(t->twin);
    ki_free(t->of);
    ki_ir_close(&t->ir);
    *t = (ki_twins){0};
}
