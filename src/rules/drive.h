/* drive.h: what the drivers share. Private to src/rules. */
#ifndef KI_DRIVE_H
#define KI_DRIVE_H

#include "rules/rules.h"

#include "base/hash.h"

bool ki_memo_grow(ki_memo *m, uint32_t n);
static inline bool ki_memo_room(ki_memo *m, uint32_t n) { return n <= m->cap || ki_memo_grow(m, n); }
void ki_origins_note(ki_origins *o, const ki_ir *ir, const ki_ruleset *set, const ki_rule *rule, kn_uop before, uint32_t since);
static inline uint32_t ki_origin_print(kn_uop u) {
    uint64_t h = ki_hash2(u->arg.bits, (uint64_t)u->op << 32 | u->nsrc);
    for (uint32_t k = 0; k < u->nsrc && k < 3; k++) h = ki_hash2(h, u->src[k]->id);
    return (uint32_t)h;
}
/* As ki_verify, of the nodes since.. that v is made of. */
bool ki_verify_made(ki_ir *ir, kn_uop v, uint32_t since, const ki_ruleset *const *spec, unsigned nspec,
                    const ki_origins *origins, const char *where);

/* One gradient rule in one variant; m->grad and m->out are set. 1 fired, 0 not, -1 failed. */
int ki_grad_apply(ki_match *m, const ki_ruleset *set, uint32_t rule, uint32_t variant, kn_uop root);

/* Entries worth trying on u, in order. */
static inline const ki_bucket *ki_dispatch(const ki_ruleset *s, kn_uop u) {
    return &s->bucket[s->second[s->root[u->op] + s->column[u->nsrc ? u->src[0]->op : KI_OP_COUNT]]];
}
static inline bool ki_entry_fits(const ki_ruleset *s, const ki_entry *e, kn_uop u) {
    if (e->dtypes && !(e->dtypes >> u->dtype & 1)) return false;
    return !e->src1 || u->nsrc < 2 || ki_opset_has(&s->opset[e->src1], u->src[1]->op);
}

#endif
