/* eval_kernel.c: a kernel becomes a flat list of instructions with loops.
 *
 * A kernel that is still a graph (rangeify to select) is ordered here, by the scope rule alone: the free RANGEs of a node are
 * those of its sources less those an END or REDUCE closes; the node belongs to the innermost open loop among its free
 * RANGEs. The walk is depth-first from the SINK and keeps a tree of open regions; a node that does not depend on an open
 * loop is appended to a region further out, which is still in front of that loop, since a loop joins its parent's code
 * only when it closes. A kernel that is a LINEAR is taken in the order it has.
 *
 * Invariants: no recursion; a value found in a region that is not the one the node belongs to now is made again. */
#include "ir/eval_kernel.h"
#include "ir/scalar.h"

#include <string.h>

/* ---- free ranges ---------------------------------------------------------------------------------------------- */

static uint64_t *free_of(const ki_comp *c, uint32_t at) { return c->freeset + (size_t)at * c->words; }
static bool has(const uint64_t *set, uint32_t r) { return set[r >> 6] >> (r & 63) & 1; }

static bool closes(kn_uop u, uint32_t k) {
    return k > 0 && (u->op == KN_END || u->op == KN_REDUCE) && u->src[k]->op == KN_RANGE;
}

static bool find_ranges(ki_comp *c) {
    for (int64_t i = 0; i < c->count; i++)
        if (c->order[i]->op == KN_RANGE) c->rank[i] = c->nrange++;
    c->words = c->nrange / 64 + 1;
    if (!(c->freeset = ki_calloc((size_t)c->count * c->words, sizeof *c->freeset)))
        return ki_fail(c->env, KI_E_NOMEM), false;
    for (int64_t i = 0; i < c->count; i++) {
        kn_uop u = c->order[i];
        uint64_t *f = free_of(c, (uint32_t)i);
        for (uint32_t k = 0; k < u->nsrc; k++)
            for (uint32_t w = 0; w < c->words; w++) f[w] |= free_of(c, ki_place(c, u->src[k]))[w];
        for (uint32_t k = 1; k < u->nsrc; k++)
            if (closes(u, k)) {
                uint32_t r = c->rank[ki_place(c, u->src[k])];
                f[r >> 6] &= ~(UINT64_C(1) << (r & 63));
            }
        if (u->op == KN_RANGE) f[c->rank[i] >> 6] |= UINT64_C(1) << (c->rank[i] & 63);
    }
    return true;
}

/* ---- regions -------------------------------------------------------------------------------------------------- */

static ki_region *open_region(ki_comp *c, ki_region *parent, uint32_t range, uint32_t bound) {
    ki_region *r = ki_calloc(1, sizeof *r);
    if (!r) return ki_fail(c->env, KI_E_NOMEM), NULL;
    *r = (ki_region){.parent = parent, .uid = ++c->uids, .range = range, .counter = KI_NOSLOT, .bound = bound};
    if (parent) r->counter = ki_comp_slots(c, 1);
    return r;
}

static void free_region(ki_region *r) {
    ki_free(r->code.v);
    ki_free(r);
}

/* The loop *at is complete: its code joins the parent's, which *at becomes. */
static bool close_region(ki_comp *c, ki_region **at, kn_uop range) {
    ki_region *r = *at, *to = r->parent;
    ki_instr *i = ki_comp_emit(c, &to->code, range, KI_V_RANGE);
    if (!i) return false;
    i->dst = r->counter;
    i->a = r->bound;
    i->jump = (uint32_t)r->code.n + 2;
    for (size_t k = 0; k < r->code.n; k++) {
        if (!(i = ki_comp_emit(c, &to->code, range, KI_V_COPY))) return false;
        *i = r->code.v[k];
    }
    if (!(i = ki_comp_emit(c, &to->code, range, KI_V_END))) return false;
    i->dst = r->counter;
    i->a = r->bound;
    i->jump = (uint32_t)r->code.n;
    free_region(r);
    *at = to;
    return true;
}

/* The innermost open loop among u's free ranges; NULL (recorded) if one of them is not open. */
static ki_region *place_of(ki_comp *c, kn_uop u, ki_region *cur) {
    const uint64_t *f = free_of(c, ki_place(c, u));
    ki_region *best = NULL, *r = cur;
    uint32_t want = 0, got = 0;
    for (uint32_t w = 0; w < c->words; w++) want += (uint32_t)__builtin_popcountll(f[w]);
    for (; r->parent; r = r->parent)
        if (has(f, r->range)) {
            if (!best) best = r;
            got++;
        }
    if (got < want) {
        ki_comp_fail(c, u, "it depends on a RANGE that is not open here");
        return NULL;
    }
    return best ? best : r;
}

/* ---- the walk over a graph ------------------------------------------------------------------------------------ */

typedef struct frame {
    kn_uop u;
    ki_region *cur, *home, *in; /* where it is wanted, where it belongs, innermost loop opened for it */
    uint32_t next, flag;        /* flag: the slot that says a REDUCE saw an element */
    bool entered, asked, pin, addr;
} frame;
typedef struct stack {
    frame *v;
    size_t n, cap;
} stack;

static bool push(ki_comp *c, stack *s, frame f) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        frame *v = ki_realloc(s->v, cap, sizeof *v);
        if (!v) return ki_fail(c->env, KI_E_NOMEM), false;
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = f;
    return true;
}

static bool is_loop(kn_uop u) { return u->op == KN_END || (u->op == KN_REDUCE && u->nsrc > 1); }

/* Accumulator of a REDUCE over ranges, in front of its loops. */
static bool start_reduce(ki_comp *c, frame *f) {
    kn_uop u = f->u;
    uint32_t lanes = ki_lanes(u->src[0]), acc = ki_comp_slots(c, lanes);
    f->flag = ki_comp_slots(c, 1);
    if (acc == KI_NOSLOT || f->flag == KI_NOSLOT) return false;
    c->slot[ki_place(c, u)] = acc;
    ki_instr *i = ki_comp_emit(c, &f->home->code, u, KI_V_ACC0);
    if (!i) return false;
    i->dst = acc;
    i->b = f->flag;
    i->lanes = lanes;
    ki_comp_fold(i, u);
    return true;
}

static bool enter(ki_comp *c, frame *f, bool *done) {
    kn_uop u = f->u;
    uint32_t at = ki_place(c, u);
    bool leaf;
    *done = true;
    if (!(f->home = f->pin ? f->cur : place_of(c, u, f->cur))) return false;
    if (!f->addr && c->inst[at] == f->home->uid) return true;
    if (u->op == KN_RANGE) {
        c->slot[at] = f->home->counter;
        c->inst[at] = f->home->uid;
        return true;
    }
    if (!ki_comp_leaf(c, u, &leaf)) return false;
    if (leaf) {
        c->inst[at] = f->home->uid;
        return true;
    }
    f->entered = true;
    f->in = f->home;
    *done = false;
    return !is_loop(u) || u->op == KN_END || start_reduce(c, f);
}

/* All the sources of a loop are there: fold in the element, close. */
static bool leave_loop(ki_comp *c, frame *f) {
    kn_uop u = f->u;
    uint32_t at = ki_place(c, u);
    if (u->op == KN_REDUCE) {
        ki_instr *i = ki_comp_emit(c, &f->in->code, u, KI_V_ACC);
        if (!i) return false;
        i->dst = c->slot[at];
        i->a = c->slot[ki_place(c, u->src[0])];
        i->b = f->flag;
        i->lanes = ki_lanes(u->src[0]);
        ki_comp_fold(i, u);
        if (i->a == KI_NOSLOT) return ki_comp_fail(c, u->src[0], "used as a value, and it has none");
    }
    for (uint32_t k = u->nsrc; k-- > 1;)
        if (u->src[k]->op == KN_RANGE && !close_region(c, &f->in, u->src[k])) return false;
    if (u->op == KN_REDUCE) {
        ki_instr *i = ki_comp_emit(c, &f->home->code, u, KI_V_ACCEND);
        if (!i) return false;
        i->dst = c->slot[at];
        i->b = f->flag;
        i->lanes = ki_lanes(u->src[0]);
        ki_comp_fold(i, u);
        if (u->arg.reduce.axes && !ki_comp_node(c, &f->home->code, u)) return false;
    }
    c->inst[at] = f->home->uid;
    return true;
}

/* Next thing an END or REDUCE needs: each range's bound, then the loop opened, and last the body inside. */
static bool step_loop(ki_comp *c, stack *s, frame *f, bool *done) {
    kn_uop u = f->u;
    while (f->next + 1 < u->nsrc) {
        kn_uop r = u->src[f->next + 1];
        if (r->op != KN_RANGE) {
            if (u->op == KN_REDUCE) return ki_comp_fail(c, u, "a source after the first is no RANGE");
            f->next++; /* END of a SPECIAL */
            continue;
        }
        if (!f->asked) {
            f->asked = true;
            return push(c, s, (frame){.u = r->src[0], .cur = f->in});
        }
        if (c->slot[ki_place(c, r->src[0])] == KI_NOSLOT) return ki_comp_fail(c, r, "its bound is no value");
        ki_region *inner = open_region(c, f->in, c->rank[ki_place(c, r)], c->slot[ki_place(c, r->src[0])]);
        if (!inner) return false;
        f->in = inner;
        f->asked = false;
        f->next++;
    }
    if (!f->asked) {
        f->asked = true;
        return push(c, s,
                    (frame){.u = u->src[0],
                            .cur = f->in,
                            .pin = u->op == KN_END && (u->src[0]->op == KN_STORE || u->src[0]->op == KN_ATOMICADD ||
                                                       u->src[0]->op == KN_GROUP)});
    }
    *done = true;
    return leave_loop(c, f);
}

static bool step_node(ki_comp *c, stack *s, frame *f, bool *done) {
    kn_uop u = f->u;
    while (f->next < u->nsrc && !ki_data_source(u, f->next)) f->next++;
    if (f->next < u->nsrc) {
        uint32_t k = f->next++;
        kn_uop v = u->src[k];
        bool access = (u->op == KN_LOAD || u->op == KN_STORE || u->op == KN_ATOMICADD || u->op == KN_AFTER) && k == 0;
        bool effect = f->pin && u->op == KN_GROUP && (v->op == KN_STORE || v->op == KN_ATOMICADD || v->op == KN_GROUP);
        return push(c, s, (frame){.u = v, .cur = f->cur, .addr = access && ki_is_address(c, v), .pin = effect});
    }
    *done = true;
    if (f->addr) return true;
    if (!ki_comp_node(c, &f->home->code, u)) return false;
    c->inst[ki_place(c, u)] = f->home->uid;
    return true;
}

/* Makes u's value (or effect) and all it needs. On failure the regions opened are freed by the caller's list. */
static bool demand(ki_comp *c, ki_region *root, kn_uop u) {
    stack s = {0};
    bool ok = push(c, &s, (frame){.u = u, .cur = root});
    while (ok && s.n) {
        frame f = s.v[s.n - 1]; /* by value: a push may move the stack */
        size_t at = s.n - 1;
        bool done = false;
        if (!f.entered) {
            ok = enter(c, &f, &done);
        } else if (is_loop(f.u)) {
            ok = step_loop(c, &s, &f, &done);
        } else {
            ok = step_node(c, &s, &f, &done);
        }
        s.v[at] = f;
        if (ok && done) s.n--;
    }
    while (s.n) { /* a failure: loops that never closed */
        frame *f = &s.v[--s.n];
        while (f->entered && is_loop(f->u) && f->in && f->in != f->home) {
            ki_region *r = f->in;
            f->in = r->parent;
            free_region(r);
        }
    }
    ki_free(s.v);
    return ok;
}

/* ---- a LINEAR ------------------------------------------------------------------------------------------------- */

typedef struct open_loop {
    size_t at; /* its RANGE or IF */
    kn_uop u;
} open_loop;

static bool begin_block(ki_comp *c, ki_region *root, kn_uop u, open_loop *open, size_t *depth) {
    ki_instr *i = ki_comp_emit(c, &root->code, u, u->op == KN_IF ? KI_V_IF : KI_V_RANGE);
    if (!i) return false;
    i->a = c->slot[ki_place(c, u->src[0])];
    if (i->a == KI_NOSLOT) return ki_comp_fail(c, u->src[0], "used before its place in the list");
    if (u->op == KN_RANGE && (i->dst = c->slot[ki_place(c, u)] = ki_comp_slots(c, 1)) == KI_NOSLOT) return false;
    open[(*depth)++] = (open_loop){root->code.n - 1, u};
    return true;
}

static bool end_block(ki_comp *c, ki_region *root, kn_uop u, open_loop *open, size_t *depth) {
    uint32_t closed = 0;
    for (uint32_t k = 1; u->op == KN_END && k < u->nsrc; k++) closed += u->src[k]->op == KN_RANGE;
    if (u->op == KN_ENDIF) closed = 1;
    for (; closed; closed--) {
        if (!*depth) return ki_comp_fail(c, u, "no block is open");
        open_loop o = open[--*depth];
        if ((o.u->op == KN_IF) != (u->op == KN_ENDIF)) return ki_comp_fail(c, u, "closes a block of another kind");
        size_t body = root->code.n - o.at - 1;
        if (u->op == KN_END) {
            ki_instr *i = ki_comp_emit(c, &root->code, u, KI_V_END);
            if (!i) return false;
            i->dst = root->code.v[o.at].dst;
            i->a = root->code.v[o.at].a;
            i->jump = (uint32_t)body;
        }
        root->code.v[o.at].jump = (uint32_t)(body + (u->op == KN_END ? 2 : 1));
    }
    return true;
}

/* What stands outside the list: constants, shapes, buffers and what is made of them. */
static bool list_prologue(ki_comp *c, ki_region *root, const uint8_t *listed) {
    bool leaf;
    for (int64_t i = 0; i < c->count; i++) {
        kn_uop u = c->order[i];
        if (!ki_comp_leaf(c, u, &leaf)) return false;
        if (u->op == KN_SPECIAL) c->vm->prologue = (uint32_t)root->code.n; /* its bound stands before it */
        if (u->op == KN_SPECIAL && c->slot[ki_place(c, u->src[0])] == KI_NOSLOT)
            return ki_comp_fail(c, u, "its bound is not known when the kernel starts");
        bool pure =
            ki_is_elementwise((kn_op)u->op) || ki_is_view((kn_op)u->op) || u->op == KN_STACK || u->op == KN_AFTER;
        if (leaf || listed[i] || !pure || c->mem[i] != KI_NOSLOT) continue;
        bool ready = true;
        for (uint32_t k = 0; k < u->nsrc; k++)
            ready &= !ki_data_source(u, k) || c->slot[ki_place(c, u->src[k])] != KI_NOSLOT;
        if (ready && !ki_comp_node(c, &root->code, u)) return false;
    }
    return true;
}

static bool is_access(kn_uop u, uint32_t k) {
    return k == 0 && (u->op == KN_LOAD || u->op == KN_STORE || u->op == KN_ATOMICADD || u->op == KN_AFTER);
}

static bool compile_list(ki_comp *c, ki_region *root, kn_uop list) {
    uint8_t *listed = ki_calloc((size_t)c->count, 1), *value = ki_calloc((size_t)c->count, 1);
    open_loop *open = ki_malloc((size_t)(list->nsrc + 1) * sizeof *open);
    size_t depth = 0;
    bool ok = listed && value && open;
    if (!ok) ki_fail(c->env, KI_E_NOMEM);
    for (uint32_t k = 0; ok && k < list->nsrc; k++) listed[ki_place(c, list->src[k])] = 1;
    for (int64_t i = 0; ok && i < c->count; i++) /* addresses read as values */
        for (uint32_t k = 0; k < c->order[i]->nsrc; k++)
            if (ki_is_address(c, c->order[i]->src[k]) && !is_access(c->order[i], k) && c->order[i] != list)
                value[ki_place(c, c->order[i]->src[k])] = 1;
    ok = ok && list_prologue(c, root, listed);
    for (uint32_t k = 0; ok && k < list->nsrc; k++) {
        kn_uop u = list->src[k];
        bool leaf = u->op == KN_CONST || u->op == KN_PARAM || u->op == KN_BUFFER || u->op == KN_SPECIAL ||
                    u->op == KN_INVALID || (u->op == KN_STACK && c->slot[ki_place(c, u)] != KI_NOSLOT);
        if (leaf || (ki_is_address(c, u) && !value[ki_place(c, u)])) continue;
        if (u->op == KN_RANGE || u->op == KN_IF) ok = begin_block(c, root, u, open, &depth);
        else if (u->op == KN_END || u->op == KN_ENDIF) ok = end_block(c, root, u, open, &depth);
        else ok = ki_comp_node(c, &root->code, u);
    }
    if (ok && depth) ok = ki_comp_fail(c, open[depth - 1].u, "the block is never closed");
    ki_free(listed);
    ki_free(value);
    ki_free(open);
    return ok;
}

/* ---- the entry ------------------------------------------------------------------------------------------------ */

static bool prepare(ki_comp *c, kn_uop body) {
    c->count = ki_toposort(c->ir, &body, 1, &c->order);
    if (c->count < 0) return false;
    size_t n = (size_t)c->count;
    c->pos = ki_calloc(c->ir->n + 1, sizeof *c->pos);
    c->slot = ki_malloc(n * sizeof *c->slot);
    c->mem = ki_malloc(n * sizeof *c->mem);
    c->inst = ki_calloc(n, sizeof *c->inst);
    c->rank = ki_calloc(n, sizeof *c->rank);
    if (!c->pos || !c->slot || !c->mem || !c->inst || !c->rank) return ki_fail(c->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < n; i++) {
        c->pos[c->order[i]->id] = (uint32_t)i + 1;
        c->slot[i] = c->mem[i] = KI_NOSLOT;
    }
    for (size_t i = 0; i < n; i++)
        if (!ki_comp_memory(c, c->order[i])) return false;
    return true;
}

/* Bounds of hardware indices come first: they say how often the rest runs. */
static bool compile_specials(ki_comp *c, ki_region *root) {
    bool leaf;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->order[i]->op != KN_SPECIAL) continue;
        if (!demand(c, root, c->order[i]->src[0])) return false;
        if (c->slot[ki_place(c, c->order[i]->src[0])] == KI_NOSLOT)
            return ki_comp_fail(c, c->order[i], "its bound is no value");
        if (!ki_comp_leaf(c, c->order[i], &leaf)) return false;
        c->inst[i] = root->uid;
    }
    c->vm->prologue = (uint32_t)root->code.n;
    return true;
}

static bool compile(ki_comp *c, kn_uop body) {
    kn_uop list = body->op == KN_LINEAR ? body : body->nsrc && body->src[0]->op == KN_LINEAR ? body->src[0] : NULL;
    if (body->op != KN_SINK && body->op != KN_PROGRAM && body->op != KN_LINEAR)
        return ki_fail(c->env, KI_E_EVAL_OP, ki_ops[body->op].name, body->id, "kernel"), false;
    if (!prepare(c, list ? list : body)) return false;
    ki_region *root = open_region(c, NULL, 0, KI_NOSLOT);
    if (!root) return false;
    bool ok = find_ranges(c);
    if (ok && list) ok = compile_list(c, root, list);
    else if (ok) ok = compile_specials(c, root) && demand(c, root, body);
    c->vm->code = root->code.v;
    c->vm->n = root->code.n;
    root->code = (ki_code_list){0};
    free_region(root);
    return ok;
}

ki_vm *ki_vm_make(ki_ir *ir, kn_uop call) {
    ki_comp c = {.ir = ir, .env = ir->env, .vm = ki_calloc(1, sizeof *c.vm), .call = call->op == KN_CALL ? call : NULL};
    if (!c.vm) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    for (uint32_t k = 1; c.call && k < call->nsrc; k++) call->src[k]->type->rank ? c.vm->nargs++ : c.vm->ntrailing++;
    kn_uop body = c.call ? call->src[0] : call;
    bool ok = ki_ins_expand(ir, &body, 1) && compile(&c, body);
    ki_free(c.order);
    ki_free(c.pos);
    ki_free(c.slot);
    ki_free(c.mem);
    ki_free(c.inst);
    ki_free(c.rank);
    ki_free(c.freeset);
    if (ok) return c.vm;
    ki_vm_free(c.vm);
    return NULL;
}
