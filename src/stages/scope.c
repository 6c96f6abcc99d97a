/* scope.c: free RANGEs and levels of a kernel's nodes, in one sweep, sources first. See scope.h. */
#include "stages/scope.h"

#include "base/gnu.h"

#include <stdlib.h>
#include <string.h>

static int by_range_id(const void *a, const void *b) {
    uint32_t x = (*(const kn_uop *)a)->arg.range.id, y = (*(const kn_uop *)b)->arg.range.id;
    return x != y ? (x > y) - (x < y)
                  : ((*(const kn_uop *)a)->id > (*(const kn_uop *)b)->id) -
                        ((*(const kn_uop *)a)->id < (*(const kn_uop *)b)->id);
}

#define SPARE 32 /* ids: SINKs that say more of the same kernel */

/* All tables in one block, cleared: a kernel's scope is opened anew after each OptOp. */
static bool make_room(ki_scope *s) {
    s->words = s->nrange ? (s->nrange + 63) / 64 : 1;
    s->ids = s->ir->n + SPARE;
    size_t sets = (size_t)s->n * s->words, numbers = (size_t)s->ids + 2 * (size_t)s->n;
    char *p = ki_calloc((sets + s->nrange + 1) * sizeof *s->free + numbers * sizeof *s->at + s->nrange, 1);
    s->free = (void *)p; /* whose block it is */
    if (!p) return false;
    s->range = (void *)(s->free + sets);
    s->at = (void *)(s->range + s->nrange + 1);
    s->rank = s->at + s->ids;
    s->level = s->rank + s->n;
    s->reduced = (void *)(s->level + s->n);
    return true;
}

static void number_nodes(ki_scope *s) {
    uint32_t k = 0, reduces = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        s->at[s->node[i]->id] = i;
        if (s->node[i]->op == KN_RANGE) s->range[k++] = s->node[i];
        reduces += s->node[i]->op == KN_REDUCE;
    }
    if (k > 1) qsort(s->range, k, sizeof *s->range, by_range_id);
    for (k = 0; k < s->nrange; k++) s->rank[s->at[s->range[k]->id]] = k;
    for (uint32_t i = 0; i < s->n && reduces; i++) {
        kn_uop u = s->node[i];
        if (u->op != KN_REDUCE) continue;
        reduces--;
        for (k = 1; k < u->nsrc; k++)
            if (u->src[k]->op == KN_RANGE && ki_is_loop(u->src[k])) s->reduced[ki_scope_rank(s, u->src[k])] = true;
    }
}

bool ki_scope_shares(const ki_scope *s, kn_uop end) {
    for (uint32_t k = 1; k < end->nsrc; k++)
        if (end->src[k]->op == KN_RANGE && s->reduced[ki_scope_rank(s, end->src[k])]) return true;
    return false;
}

static bool is_loop_reduce(kn_uop u) {
    for (uint32_t k = 1; k < u->nsrc; k++)
        if (ki_is_loop(u->src[k])) return true;
    return false;
}

/* few: no more ranges than a word has bits. */
static KI_INLINED void visit(ki_scope *s, uint32_t i, bool few) {
    kn_uop u = s->node[i];
    uint32_t words = few ? 1 : s->words, level = 0;
    uint64_t *set = s->free + (size_t)i * words, own = 0;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        kn_uop v = u->src[k];
        uint32_t j = s->at[v->id];
        const uint64_t *from = s->free + (size_t)j * words;
        if (few) own |= *from;
        else
            for (uint32_t w = 0; w < words; w++) set[w] |= from[w];
        bool ends = (v->op == KN_REDUCE && is_loop_reduce(v)) || (v->op == KN_END && ki_scope_shares(s, v));
        uint32_t l = s->level[j] + ends;
        if (l > level) level = l;
    }
    if (few) *set = own;
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
    for (uint32_t i = 0; i < s->n; i++) s->nrange += s->node[i]->op == KN_RANGE;
    if (!make_room(s)) return s->nrange = 0, ki_fail(ir->env, KI_E_NOMEM), false;
    number_nodes(s);
    if (s->words == 1)
        for (uint32_t i = 0; i < s->n; i++) visit(s, i, true);
    else
        for (uint32_t i = 0; i < s->n; i++) visit(s, i, false);
    return true;
}

bool ki_scope_renew(ki_scope *s, kn_uop sink) {
    kn_uop *last = &s->node[s->n - 1];
    bool same = sink->nsrc == (*last)->nsrc && sink->id < s->ids;
    for (uint32_t i = 0; same && i < sink->nsrc; i++) same = sink->src[i] == (*last)->src[i];
    if (same) *last = sink, s->at[sink->id] = s->n - 1;
    return same;
}

void ki_scope_close(ki_scope *s) {
    ki_free(s->node);
    ki_free(s->free);
    memset(s, 0, sizeof *s);
}
