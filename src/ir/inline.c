/* inline.c: FUNCTIONs replaced by what they compute. A body's PARAM slots are its own: those of FUNCTIONs inside it stay. */
#include "ir/uop.h"

#include <string.h>

typedef struct sources {
    kn_uop *v;
    uint32_t cap;
} sources;

/* Sources of u through the map, into s. */
static bool map_sources(ki_ir *ir, kn_uop u, const ki_map *map, sources *s) {
    if (u->nsrc > s->cap) {
        kn_uop *p = ki_realloc(s->v, u->nsrc, sizeof *p);
        if (!p) return ki_fail(ir->env, KI_E_NOMEM), false;
        s->v = p;
        s->cap = u->nsrc;
    }
    for (uint32_t k = 0; k < u->nsrc; k++) s->v[k] = ki_map_get(map, u->src[k]);
    return true;
}

/* The nodes of a body in topological order, those of FUNCTIONs in it left out. */
static int64_t own_nodes(ki_ir *ir, kn_uop body, kn_uop **out) {
    int64_t count = ki_toposort(ir, &body, 1, out), n = count;
    ki_map *mine = count < 0 ? NULL : ki_map_take(ir);
    if (count < 0) return -1;
    if (!mine) return ki_free(*out), -1;
    ki_map_set(mine, body, body);
    for (int64_t i = count; i-- > 0;) { /* to the end of the list, users first */
        kn_uop u = (*out)[i];
        if (!ki_map_get(mine, u)) continue;
        for (uint32_t k = u->op == KN_FUNCTION; k < u->nsrc; k++) ki_map_set(mine, u->src[k], u->src[k]);
        (*out)[--n] = u;
    }
    memmove(*out, *out + n, (size_t)(count - n) * sizeof **out);
    ki_map_give(ir, mine);
    return count - n;
}

kn_uop ki_applied(ki_ir *ir, kn_uop body, const kn_uop *args, uint32_t n) {
    kn_uop *order, v = NULL;
    sources s = {0};
    int64_t count = own_nodes(ir, body, &order);
    ki_map *map = count < 0 ? NULL : ki_map_take(ir);
    for (int64_t i = 0; i < count && map && (v || !i); i++) {
        kn_uop u = order[i];
        if (u->op == KN_PARAM && u->arg.param->slot >= 0 && (uint32_t)u->arg.param->slot < n) {
            v = args[u->arg.param->slot];
        } else {
            v = map_sources(ir, u, map, &s) ? u : NULL;
            if (v && u->op == KN_FUNCTION) s.v[0] = u->src[0];
            v = v ? ki_with_src(ir, u, s.v) : NULL;
        }
        if (v) ki_map_set(map, u, v);
    }
    if (map) ki_map_give(ir, map);
    if (count >= 0) ki_free(order);
    ki_free(s.v);
    return v;
}

bool ki_computed_again(kn_uop function) {
    kn_uop t = function->src[0];
    return t->op == KN_TUPLE && t->nsrc && t->src[0]->op == KN_REMAT && t->src[0]->nsrc == 1;
}

/* Inner ones come first: they have smaller ids. */
bool ki_inline_functions(ki_ir *ir, kn_uop *root, size_t n, bool all) {
    kn_uop *order;
    int64_t count = ki_toposort(ir, root, n, &order);
    if (count < 0) return false;
    bool any = false;
    for (int64_t i = 0; i < count; i++) any |= order[i]->op == KN_FUNCTION && (all || !ki_computed_again(order[i]));
    ki_map *map = any ? ki_map_take(ir) : NULL;
    bool ok = !any || map;
    sources s = {0};
    for (int64_t i = 0; i < count && any && ok; i++) {
        kn_uop u = order[i], v = NULL;
        if (!(ok = map_sources(ir, u, map, &s))) break;
        if (u->op == KN_FUNCTION && (all || !ki_computed_again(u))) v = ki_applied(ir, s.v[0], s.v + 1, u->nsrc - 1);
        else if (u->op == KN_GETTUPLE && s.v[0]->op == KN_TUPLE) v = s.v[0]->src[u->arg.i];
        else v = ki_with_src(ir, u, s.v);
        if (!(ok = v != NULL)) break;
        ki_map_set(map, u, v->op == KN_REMAT && v->nsrc == 1 && u->op == KN_GETTUPLE ? v->src[0] : v);
    }
    for (size_t i = 0; i < n && any && ok; i++) root[i] = ki_map_get(map, root[i]);
    if (map) ki_map_give(ir, map);
    ki_free(s.v);
    ki_free(order);
    return ok;
}
