/* scope.c: free RANGEs and levels of a kernel's nodes, in one sweep, sources first. See scope.h. */
#include "stages/scope.h"

#include <stdlib.h>
#include <string.h>

static int by_range_id(const void *a, const void *b) {
    uint32_t x = (*(const kn_uop *)a)->arg.range.id, y = (*(const kn_uop *)b)->arg.range.id;
    return x != y ? (x > y) - (x < y)
                  : ((*(const kn_uop *)a)->id > (*(const kn_uop *)b)->id) -
                        ((*(const kn_uop *)a)->id < (*(const kn_uop *)b)->id);
}

static bool number_ranges(ki_scope *s) {
    for (uint32_t i = 0; i < s->n; i++) s->nrange += s->node[i]->op == KN_RANGE;
    s->range = ki_calloc(s->nrange + 1, sizeof *s->range);
    s->rank = ki_calloc(s->n, sizeof *s->rank);
    s->words = s->nrange ? (s->nrange + 63) / 64 : 1;
    if (!s->range || !s->rank) return false;
    uint32_t k = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->node[i]->op == KN_RANGE) s->range[k++] = s->node[i];
    if (k) qsort(s->range, k, sizeof *s->range, by_range_id);
    for (k = 0; k < s->nrange; k++) s->rank[s->at[s->range[k]->id]] = k;
    return true;
}

static bool is_loop_reduce(kn_uop u) {
    if (u->op != KN_REDUCE) return false;
    for (uint32_t k = 1; k < u->nsrc; k++)
        if (ki_is_loop(u->src[k])) return true;
    return false;
}

static void visit(ki_scope *s, uint32_t i) {
    kn_uop u = s->node[i];
    uint64_t *set = s->free + (size_t)i * s->words;
    uint32_t level = 0;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        uint32_t j = s->at[u->src[k]->id];
        const uint64_t *from = s->free + (size_t)j * s->words;
        if (s->words == 1) *set |= *from;
        else
            for (uint32_t w = 0; w < s->words; w++) set[w] |= from[w];
        uint32_t l = s->level[j] + is_loop_reduce(u->src[k]);
        if (l > level) level = l;
    }
    if (u->op == KN_END || u->op == KN_REDUCE)
        for (uint32_t k = 1; k < u->nsrc; k++)
            if (u->src[k]->op == KN_RANGE) {
                uint32_t r = ki_scope_rank(s, u->src[k]);
                set[r >> 6] &= ~(UINT64_C(1) << (r & 63));
            }
    if (u->op == KN_RANGE) set[s->rank[i] >> 6] |= UINT64_C(1) << (s->rank[i] & 63);
    s->level[i] = level;
    if (level >= s->nlevel) s->nlevel = level + 1;
}

bool ki_scope_open(ki_scope *s, ki_ir *ir, kn_uop sink) {
    memset(s, 0, sizeof *s);
    s->ir = ir;
    int64_t n = ki_toposort(ir, &sink, 1, &s->node);
    if (n < 0) return false;
    s->n = (uint32_t)n;
    s->at = ki_calloc(ir->n, sizeof *s->at);
    if (s->at)
        for (uint32_t i = 0; i < s->n; i++) s->at[s->node[i]->id] = i;
    s->level = ki_calloc(s->n, sizeof *s->level);
    if (!s->at || !s->level || !number_ranges(s) || !(s->free = ki_calloc((size_t)s->n * s->words, sizeof *s->free)))
        return ki_fail(ir->env, KI_E_NOMEM), false;
    for (uint32_t i = 0; i < s->n; i++) visit(s, i);
    return true;
}

void ki_scope_close(ki_scope *s) {
    ki_free(s->node);
    ki_free(s->at);
    ki_free(s->range);
    ki_free(s->rank);
    ki_free(s->level);
    ki_free(s->free);
    memset(s, 0, sizeof *s);
}
