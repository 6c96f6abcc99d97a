/* graph.c: functions over whole graphs: order, substitution, copies, digests, collection. Nothing here
 * recurses: ids are a topological order, and what a pass knows of a node stands in a side array. */
#include "ir/derive.h"
#include "ir/history.h"

#include "base/whole.h"

#include <stdlib.h>
#include <string.h>

/* ---- order -------------------------------------------------------------------------------------------------- */

/* Marks for a new walk, and a queue with room for every node: a walk puts each there once. */
static bool seen_room(ki_ir *ir) {
    if (ir->seen_cap < ir->n) {
        uint32_t *p = ki_realloc(ir->seen, ir->cap, sizeof *p);
        if (p) ir->seen = p;
        ki_free(ir->queue);
        ir->queue = ki_malloc(ir->cap * sizeof *ir->queue);
        if (!p || !ir->queue) return ir->seen_cap = 0, false;
        memset(p, 0, ir->cap * sizeof *p);
        ir->seen_cap = ir->cap;
    }
    if (++ir->epoch == 0) {
        memset(ir->seen, 0, ir->seen_cap * sizeof *ir->seen);
        ir->epoch = 1;
    }
    return true;
}

/* By id. A list gathered from its roots down and turned round is nearly in order and needs few moves; a long one is sorted a
 * byte at a time. */
static bool sort_by_id(kn_uop *v, size_t n, uint32_t first, uint32_t last) {
    if (n <= 48) {
        for (size_t i = 1; i < n; i++) {
            kn_uop t = v[i];
            size_t j = i;
            for (; j > 0 && v[j - 1]->id > t->id; j--) v[j] = v[j - 1];
            v[j] = t;
        }
        return true;
    }
    kn_uop *from = v, *to = ki_malloc(n * sizeof *to), *own = to;
    if (!to) return false;
    for (unsigned shift = 0; shift < 32 && (last - first) >> shift; shift += 8) {
        size_t at[257] = {0};
        for (size_t i = 0; i < n; i++) at[1 + ((from[i]->id - first) >> shift & 255)]++;
        for (unsigned b = 0; b < 256; b++) at[b + 1] += at[b];
        for (size_t i = 0; i < n; i++) to[at[(from[i]->id - first) >> shift & 255]++] = from[i];
        kn_uop *t = from;
        from = to;
        to = t;
    }
    if (from != v) memcpy(v, from, n * sizeof *v);
    ki_free(own);
    return true;
}

int64_t ki_toposort(ki_ir *ir, const kn_uop *root, size_t nroot, kn_uop **out) {
    return ki_toposort_above(ir, root, nroot, 0, out);
}

/* A walk down the ids, where nearly all of them are in the graph: as after a copy. */
static int64_t toposort_dense(ki_ir *ir, kn_uop root, kn_uop **out) {
    if (!seen_room(ir)) return ki_fail(ir->env, KI_E_NOMEM), -1;
    uint32_t now = ir->epoch, *seen = ir->seen;
    seen[root->id] = now;
    kn_uop *end = ir->queue + ir->seen_cap, *at = end; /* filled from behind: ascending */
    for (uint32_t id = root->id; id > 0; id--) {
        if (seen[id] != now) continue;
        kn_uop u = *--at = ir->node[id];
        for (uint32_t k = 0; k < u->nsrc; k++) seen[u->src[k]->id] = now;
    }
    uint32_t n = ir->reached = (uint32_t)(end - at);
    if (!(*out = ki_malloc(n * sizeof **out))) return ki_fail(ir->env, KI_E_NOMEM), -1;
    memcpy(*out, at, n * sizeof **out);
    return n;
}

int64_t ki_reach_above(ki_ir *ir, const kn_uop *root, size_t nroot, uint32_t floor, const kn_uop **out) {
    *out = NULL;
    if (!seen_room(ir)) return ki_fail(ir->env, KI_E_NOMEM), -1;
    uint32_t now = ir->epoch, *seen = ir->seen;
    kn_uop *queue = ir->queue;
    size_t n = 0;
    for (size_t i = 0; i < nroot; i++)
        if (root[i]->id > floor && seen[root[i]->id] != now) seen[root[i]->id] = now, queue[n++] = root[i];
    for (size_t at = 0; at < n; at++) {
        kn_uop u = queue[at];
        for (uint32_t k = 0; k < u->nsrc; k++) {
            uint32_t id = u->src[k]->id;
            if (id > floor && seen[id] != now) seen[id] = now, queue[n++] = u->src[k];
        }
    }
    *out = queue;
    return (int64_t)n;
}

int64_t ki_toposort_above(ki_ir *ir, const kn_uop *root, size_t nroot, uint32_t floor, kn_uop **out) {
    *out = NULL;
    if (nroot == 1 && !floor && root[0]->id / 4 < ir->reached) return toposort_dense(ir, root[0], out);
    const kn_uop *queue;
    int64_t count = ki_reach_above(ir, root, nroot, floor, &queue);
    if (count < 0) return -1;
    size_t n = (size_t)count;
    uint32_t now = ir->epoch, *seen = ir->seen, first = UINT32_MAX, last = 0;
    for (size_t i = 0; i < n; i++) {
        if (queue[i]->id < first) first = queue[i]->id;
        if (queue[i]->id > last) last = queue[i]->id;
    }
    kn_uop *v = ki_malloc(n * sizeof *v);
    if (!v) return ki_fail(ir->env, KI_E_NOMEM), -1;
    if (n && (last - first) / 16 <= n) { /* a sweep over the marks costs less than sorting */
        size_t to = 0;
        for (uint32_t id = first; id <= last; id++)
            if (seen[id] == now) v[to++] = ir->node[id];
    } else {
        for (size_t i = 0; i < n; i++) v[i] = queue[n - 1 - i];
        if (n && !sort_by_id(v, n, first, last)) return ki_free(v), ki_fail(ir->env, KI_E_NOMEM), -1;
    }
    if (!floor) ir->reached = (uint32_t)n;
    *out = v;
    return count;
}

/* A node whose sources are being visited, and the next of them. */
typedef struct frame {
    kn_uop u;
    uint32_t at;
} frame;

int64_t ki_postorder(ki_ir *ir, const kn_uop *root, size_t nroot, kn_uop **out) {
    frame *stack = NULL;
    size_t top = 0, cap = 0, n = 0;
    *out = NULL;
    bool ok = seen_room(ir);
    uint32_t now = ir->epoch, *seen = ir->seen;
    kn_uop *done = ir->queue;
    for (size_t i = 0; i < nroot && ok; i++) {
        kn_uop u = root[i];
        uint32_t at = 0;
        if (seen[u->id] == now) continue;
        seen[u->id] = now;
        for (;;) {
            if (at < u->nsrc) {
                kn_uop s = u->src[at++];
                if (seen[s->id] == now) continue;
                seen[s->id] = now;
                if (s->nsrc == 0) {
                    done[n++] = s;
                    continue;
                }
                if (top == cap && !(ok = ki_array_grow(&stack, &cap, top + 1, sizeof *stack))) break;
                stack[top++] = (frame){u, at};
                u = s, at = 0;
                continue;
            }
            done[n++] = u;
            if (!top) break;
            u = stack[--top].u, at = stack[top].at;
        }
    }
    ki_free(stack);
    if (!ok || !(*out = ki_malloc(n * sizeof **out))) return ki_fail(ir->env, KI_E_NOMEM), -1;
    if (n) memcpy(*out, done, n * sizeof **out);
    return (int64_t)n;
}

/* ---- rebuilding --------------------------------------------------------------------------------------------- */

/* Sources of u through the map, into buf (grown as needed); ids up to `floor` stand for themselves. */
static bool mapped_sources(ki_ir *ir, kn_uop u, const ki_map *map, uint32_t floor, kn_uop **buf, uint32_t *cap) {
    if (u->nsrc > *cap) {
        kn_uop *p = ki_realloc(*buf, u->nsrc, sizeof *p);
        if (!p) return ki_fail(ir->env, KI_E_NOMEM), false;
        *buf = p;
        *cap = u->nsrc;
    }
    for (uint32_t k = 0; k < u->nsrc; k++) (*buf)[k] = u->src[k]->id <= floor ? u->src[k] : ki_map_get(map, u->src[k]);
    return true;
}

static bool same_sources(kn_uop u, const kn_uop *src) {
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (u->src[k] != src[k]) return false;
    return true;
}

bool ki_substitute_all(ki_ir *ir, kn_uop *root, size_t nroot, const kn_uop *from, const kn_uop *to, size_t n) {
    kn_uop *order, *buf = NULL;
    uint32_t cap = 0, floor = UINT32_MAX;
    for (size_t i = 0; i < nroot; i++)
        if (!root[i]) return false;
    for (size_t i = 0; i < n; i++) {
        if (!from[i] || !to[i]) return ki_fail(ir->env, KI_E_NOMEM), false;
        if (from[i]->id <= floor) floor = from[i]->id - 1; /* what is older contains none of them */
    }
    if (n == 0) return true;
    int64_t count = ki_toposort_above(ir, root, nroot, floor, &order);
    if (count < 0) return false;
    ki_map *map = ki_map_take(ir);
    bool ok = map != NULL;
    for (size_t i = 0; i < n && ok; i++) ki_map_set(map, from[i], to[i]);
    for (int64_t i = 0; i < count && ok; i++) {
        kn_uop u = order[i], v = u;
        if (ki_map_get(map, u)) continue;
        ok = mapped_sources(ir, u, map, floor, &buf, &cap);
        if (ok && !same_sources(u, buf)) ok = (v = ki_with_src(ir, u, buf)) != NULL;
        ki_map_set(map, u, v);
    }
    for (size_t i = 0; i < nroot && ok; i++)
        if (root[i]->id > floor) root[i] = ki_map_get(map, root[i]);
    ki_free(order);
    ki_map_give(ir, map);
    ki_free(buf);
    return ok;
}

kn_uop ki_substitute(ki_ir *ir, kn_uop root, const kn_uop *from, const kn_uop *to, size_t n) {
    return ki_substitute_all(ir, &root, 1, from, to, n) ? root : NULL;
}

kn_arg ki_import_arg(ki_ir *to, kn_uop u) {
    kn_arg arg = u->arg;
    if (ki_arg_is_pointer((kn_op)u->op) && arg.p) arg.p = ki_intern_again(to, arg.p);
    return arg;
}

/* Types met, and what they are in the other store. */
enum { TYPES = 32 };
typedef struct types {
    const ki_type *from[TYPES], *to[TYPES];
} types;

/* Copying from one store into another, or into the same. */
typedef struct copier {
    ki_ir *to, *from;
    ki_map *map;
    kn_uop *buf;
    uint32_t cap;
    bool empty; /* `to` held nothing: what is different there is new */
    types met;
} copier;

static bool copier_open(copier *c, ki_ir *to, ki_ir *from, uint32_t nodes) {
    *c = (copier){.to = to, .from = from, .map = ki_map_take(from), .empty = to->n == 1};
    if (!c->map) return ki_fail(to->env, KI_E_NOMEM), false;
    return ki_ir_reserve(to, nodes, !c->empty);
}
static void copier_close(copier *c) {
    ki_map_give(c->from, c->map);
    ki_free(c->buf);
}

/* NULL: it has to be derived (symbols are nodes), or there is no memory. */
static const ki_type *copy_type(copier *c, const ki_type *type) {
    size_t k = ((uintptr_t)type >> 4) % TYPES;
    if (type->symbolic || c->to->env != c->from->env) return NULL;
    if (c->to == c->from) return type;
    if (c->met.from[k] != type) {
        c->met.to[k] = ki_intern_again(c->to, type);
        c->met.from[k] = c->met.to[k] ? type : NULL;
    }
    return c->met.to[k];
}

/* u over the copies of its sources; those that are none yet stand for nothing, and the maker says so. */
static kn_uop copy_as(copier *c, kn_uop u, kn_arg arg, uint32_t tag) {
    if (!mapped_sources(c->from, u, c->map, 0, &c->buf, &c->cap)) return NULL;
    const ki_type *type = copy_type(c, u->type);
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!c->buf[k]) type = NULL;
    kn_uop v = type ? ki_make_as(c->to, u, c->buf, arg, type, tag)
                    : ki_make(c->to, (kn_op)u->op, (kn_dtype)u->dtype, c->buf, u->nsrc, arg, tag);
    if (v) ki_map_set(c->map, u, v);
    return ki_like(c->to, v, c->from, u);
}
static kn_uop copy_node(copier *c, kn_uop u, uint32_t tag) {
    kn_arg arg = c->to == c->from ? u->arg : ki_import_arg(c->to, u);
    return u->arg.p && !arg.p ? NULL : copy_as(c, u, arg, tag);
}

/* The same where different nodes stay different and nothing else is there. */
static kn_uop copy_new(copier *c, kn_uop u, uint32_t tag) {
    const ki_type *type = copy_type(c, u->type);
    kn_arg arg = ki_import_arg(c->to, u);
    if (u->arg.p && !arg.p) return NULL;
    if (!type) return copy_as(c, u, arg, tag);
    kn_uop v = ki_make_new(c->to, u, c->map, arg, type, tag);
    if (v) ki_map_set(c->map, u, v);
    return ki_like(c->to, v, c->from, u);
}

static kn_uop copy_any(copier *c, kn_uop u, uint32_t tag) {
    return c->empty ? copy_new(c, u, tag) : copy_node(c, u, tag);
}

bool ki_import(ki_ir *to, ki_ir *from, const kn_uop *root, size_t n, kn_uop *out) {
    kn_uop *order;
    copier c;
    int64_t count = ki_postorder(from, root, n, &order);
    if (count < 0) return false;
    bool ok = copier_open(&c, to, from, (uint32_t)count);
    for (int64_t i = 0; i < count && ok; i++) ok = copy_any(&c, order[i], order[i]->tag) != NULL;
    for (size_t i = 0; i < n && ok; i++) out[i] = ki_map_get(c.map, root[i]);
    if (c.empty) to->reached = (uint32_t)count;
    ki_free(order);
    copier_close(&c);
    return ok;
}

kn_uop ki_import_numbered(ki_ir *to, ki_ir *from, kn_uop root) {
    kn_uop list = root->src[0], l = NULL, *made = ki_malloc(list->nsrc * sizeof *made);
    copier c;
    if (!made) return ki_fail(to->env, KI_E_NOMEM), NULL;
    bool ok = copier_open(&c, to, from, list->nsrc + 2), twice = false;
    for (uint32_t i = 0; i < list->nsrc && ok; i++) {
        twice |= ki_map_get(c.map, list->src[i]) != NULL;
        ok = (made[i] = copy_any(&c, list->src[i], i)) != NULL;
    }
    if (ok) l = c.empty && !twice ? copy_new(&c, list, 0) : ki_opn(to, KN_LINEAR, made, list->nsrc);
    if (l) ki_map_set(c.map, list, l);
    if (l) l = copy_any(&c, root, root->tag);
    if (c.empty) to->reached = to->n - 1;
    copier_close(&c);
    ki_free(made);
    return l;
}

kn_uop ki_import_renamed(ki_ir *to, ki_ir *from, const kn_uop *list, uint32_t n, ki_renamer *rename, void *user) {
    copier c;
    bool ok = copier_open(&c, to, from, n);
    kn_uop last = NULL;
    for (uint32_t i = 0; i < n && ok; i++) {
        kn_arg arg;
        uint32_t tag = list[i]->tag;
        ok = rename(user, to, list[i], &arg, &tag) && (last = copy_as(&c, list[i], arg, tag)) != NULL;
    }
    copier_close(&c);
    return ok ? last : NULL;
}

bool ki_ir_collect(ki_ir *ir, kn_uop *root, size_t nroot) {
    ki_ir fresh;
    if (!ki_ir_open(&fresh, ir->env)) return false;
    kn_uop *out = ki_calloc(nroot, sizeof *out);
    if (!out) ki_fail(ir->env, KI_E_NOMEM);
    bool ok = out && ki_import(&fresh, ir, root, nroot, out);
    if (!ok) {
        ki_free(out);
        ki_ir_close(&fresh);
        return false;
    }
    if (fresh.next_range < ir->next_range) fresh.next_range = ir->next_range;
    if (fresh.next_buffer < ir->next_buffer) fresh.next_buffer = ir->next_buffer;
    if (nroot) memcpy(root, out, nroot * sizeof *out);
    ki_free(out);
    ki_ir_close(ir);
    *ir = fresh;
    return true;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

ki_digest ki_graph_digest(ki_ir *ir, const kn_uop *root, size_t nroot, bool *ok) {
    kn_uop *order;
    ki_digest total = {UINT64_C(0x6b6f696e65), UINT64_C(0x75706f)};
    int64_t count = ki_toposort(ir, root, nroot, &order);
    ki_digest *d = count < 0 ? NULL : ki_calloc(ir->n, sizeof *d);
    *ok = d || (ki_fail(ir->env, KI_E_NOMEM), false);
    for (int64_t i = 0; i < count && d; i++) {
        kn_uop u = order[i];
        uint64_t head = (uint64_t)u->op << 40 | (uint64_t)u->dtype << 32 | u->nsrc, body;
        if (ki_arg_is_pointer((kn_op)u->op) && u->arg.p) body = ki_hash_bytes(3, u->arg.p, ki_payload_size(u->arg.p));
        else body = u->arg.bits;
        ki_digest h = {ki_hash2(ki_hash2(1, head), body), ki_hash2(ki_hash2(2, head), body)};
        for (uint32_t k = 0; k < u->nsrc; k++) {
            h.a = ki_hash2(h.a, d[u->src[k]->id].a);
            h.b = ki_hash2(h.b, d[u->src[k]->id].b);
        }
        d[u->id] = h;
    }
    for (size_t i = 0; i < nroot && d; i++) {
        total.a = ki_hash2(total.a, d[root[i]->id].a);
        total.b = ki_hash2(total.b, d[root[i]->id].b);
    }
    ki_free(order);
    ki_free(d);
    return total;
}

bool ki_index_step(kn_uop u, const int64_t *v, int64_t *out) {
    int64_t a = u->nsrc > 0 ? v[u->src[0]->id] : 0, b = u->nsrc > 1 ? v[u->src[1]->id] : 0;
    switch ((kn_op)u->op) {
    case KN_CONST: return *out = u->arg.i, !ki_is_float((kn_dtype)u->dtype);
    case KN_ADD: return !ki_add_overflow(a, b, out);
    case KN_SUB: return !ki_sub_overflow(a, b, out);
    case KN_MUL: return !ki_mul_overflow(a, b, out);
    case KN_NEG: return !ki_sub_overflow((int64_t)0, a, out);
    case KN_MAX: return *out = a > b ? a : b, true;
    case KN_IDIV: return *out = ki_floor_div(a, b), true;
    case KN_MOD: return *out = ki_floor_mod(a, b), true;
    case KN_CMPLT: return *out = a < b, true;
    case KN_CMPNE: return *out = a != b, true;
    case KN_AND: return *out = a & b, true;
    case KN_OR: return *out = a | b, true;
    case KN_XOR: return *out = a ^ b, true;
    case KN_WHERE: return *out = a ? b : v[u->src[2]->id], true;
    case KN_CAST: return *out = a, ki_is_int((kn_dtype)u->dtype);
    default: return false;
    }
}

int64_t ki_eval_index(ki_ir *ir, kn_uop u, const kn_uop *var, const int64_t *value, size_t n, bool *ok) {
    *ok = false;
    if (!u) return 0;
    if (u->op == KN_CONST) return *ok = true, u->arg.i;
    kn_uop *order;
    int64_t count = ki_toposort(ir, &u, 1, &order), result = 0;
    int64_t *v = count < 0 ? NULL : ki_calloc(ir->n, sizeof *v);
    *ok = v || (ki_fail(ir->env, KI_E_NOMEM), false);
    for (int64_t i = 0; i < count && *ok; i++) {
        size_t k = 0;
        while (k < n && var[k] != order[i]) k++;
        if (k < n) v[order[i]->id] = value[k];
        else if (order[i]->op != KN_STACK) *ok = ki_index_step(order[i], v, &v[order[i]->id]);
    }
    if (*ok) result = v[u->id];
    ki_free(order);
    ki_free(v);
    return result;
}
