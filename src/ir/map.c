/* map.c: maps from nodes to nodes that need no clearing: an entry counts if its stamp is the map's own. See uop.h. */
#include "ir/uop.h"

#include <string.h>

void ki_map_free(ki_map *m) {
    if (!m) return;
    ki_free(m->to);
    ki_free(m->set);
    ki_free(m);
}

ki_map *ki_map_take(ki_ir *ir) {
    ki_map *m = ir->spare ? ir->spare : ki_calloc(1, sizeof *m);
    ir->spare = NULL;
    if (m && m->cap < ir->n) { /* what it held is no longer needed: no copying */
        ki_free(m->to);
        ki_free(m->set);
        *m = (ki_map){ki_malloc(ir->cap * sizeof *m->to), ki_calloc(ir->cap, sizeof *m->set), ir->cap, 0};
        if (!m->to || !m->set) ki_map_free(m), m = NULL;
    }
    if (!m) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    if (++m->now == 0) {
        memset(m->set, 0, m->cap * sizeof *m->set);
        m->now = 1;
    }
    return m;
}

void ki_map_give(ki_ir *ir, ki_map *m) {
    if (!m) return;
    if (ir->spare) ki_map_free(m);
    else ir->spare = m;
}
