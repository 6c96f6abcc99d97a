/* dispatch.c: from a node to the rules worth trying: by its op, then by the op of its first source, in file order. */
#include "rules/front.h"

#include <string.h>

static void op_add(ki_opset *s, unsigned op) { s->bits[op >> 6] |= UINT64_C(1) << (op & 63); }

static void pat_set(const ki_compiler *c, const ki_pat *p, ki_opset *s) {
    *s = c->opset.v[0];
    if (p->kind == KI_P_ANY) return;
    if (p->kind == KI_P_NODE && p->op == KI_OP_COUNT) {
        *s = c->opset.v[p->opset];
        return;
    }
    *s = (ki_opset){{0, 0}};
    if (p->kind == KI_P_NODE) {
        op_add(s, p->op);
        return;
    }
    op_add(s, KN_CONST);
    op_add(s, KN_EXPAND);
    op_add(s, KN_RESHAPE);
}

/* The pattern of the root's source k in a variant; NULL if any will do. */
static const ki_pat *source_pat(const ki_compiler *c, const ki_rule *r, uint32_t variant, unsigned src) {
    for (unsigned k = 1; k < r->npat; k++) {
        const ki_pat *p = &c->pat.v[r->pat + k];
        if (p->parent || p->flags & KI_PF_TAIL) continue;
        if ((p->swap == KI_NOREG ? p->src : p->src ^ (variant >> p->swap & 1)) == src) return p;
    }
    return NULL;
}

static uint16_t set_number(ki_compiler *c, const ki_opset *s) {
    for (uint32_t k = 0; k < c->opset.n; k++)
        if (memcmp(&c->opset.v[k], s, sizeof *s) == 0) return (uint16_t)k;
    return KI_PUSH(c, opset, *s) ? (uint16_t)(c->opset.n - 1) : UINT16_MAX;
}

typedef struct heads { /* per entry: what its root and first source may be */
    ki_opset root, src0;
    bool leaf, inner; /* may have no source; may have one */
} heads;

static bool add_entries(ki_compiler *c, heads *head, uint32_t cap) {
    uint8_t map[KI_MAX_REG];
    for (uint32_t i = 0; i < c->rule.n; i++) {
        ki_rule *r = &c->rule.v[i];
        for (uint32_t v = 0; v < 1u << r->nswap; v++) {
            bool dull = false; /* an earlier variant fires wherever this one would */
            for (uint32_t u = 0; u < v && !dull && !ki_rule_may_fail(c, r); u++)
                dull = ki_pattern_covers(c, r, u, r, v, map);
            if (dull) continue;
            if (c->entry.n == cap || c->entry.n == UINT16_MAX)
                return ki_compile_fail(c, KI_E_RULE_LIMIT, ki_rule_pos(c, r), "rules with their variants", UINT16_MAX);
            const ki_pat *root = &c->pat.v[r->pat], *s0 = source_pat(c, r, v, 0), *s1 = source_pat(c, r, v, 1);
            heads *h = &head[c->entry.n];
            ki_entry e = {(uint16_t)i, 0, root->dtypes, v & 255};
            pat_set(c, root, &h->root);
            h->src0 = c->opset.v[0];
            if (s0) pat_set(c, s0, &h->src0);
            h->leaf = root->kind != KI_P_NODE || root->nsrc == 0;
            h->inner = root->kind != KI_P_NODE || root->nsrc > 0 || root->flags & KI_PF_REST;
            if (s1) {
                ki_opset s;
                pat_set(c, s1, &s);
                e.src1 = set_number(c, &s);
            }
            if (e.src1 == UINT16_MAX || !KI_PUSH(c, entry, e)) return false;
        }
    }
    return true;
}

/* The bucket for root op and first source op0 (KI_OP_COUNT: none), shared with an equal one. */
static bool add_bucket(ki_compiler *c, const heads *head, unsigned op, unsigned op0) {
    uint32_t first = c->list.n;
    for (uint32_t k = 0; k < c->entry.n; k++) {
        const heads *h = &head[k];
        if (!ki_opset_has(&h->root, op)) continue;
        if (op0 == KI_OP_COUNT ? !h->leaf : !h->inner || !ki_opset_has(&h->src0, op0)) continue;
        if (c->list.n >= UINT16_MAX) return ki_compile_fail(c, KI_E_RULE_LIMIT, 0, "dispatch entries", UINT16_MAX);
        if (!KI_PUSH(c, list, (uint16_t)k)) return false;
    }
    uint32_t n = c->list.n - first;
    uint32_t b = n ? 1 : 0;
    for (; b && b < c->bucket.n; b++)
        if (c->bucket.v[b].n == n &&
            memcmp(c->list.v + c->bucket.v[b].first, c->list.v + first, n * sizeof *c->list.v) == 0)
            break;
    if (!n || b < c->bucket.n) c->list.n = first;
    else if (!KI_PUSH(c, bucket, (ki_bucket){(uint16_t)first, (uint16_t)n})) return false;
    return KI_PUSH(c, second, (uint16_t)b);
}

enum { ROW = KI_OP_COUNT + 1 };

/* The table just made, or an equal one before it, which takes its place. */
static uint16_t share_table(ki_compiler *c, unsigned made) {
    const uint16_t *row = c->second.v + (size_t)made * ROW;
    for (unsigned k = 1; k < made; k++)
        if (memcmp(c->second.v + (size_t)k * ROW, row, ROW * sizeof *row) == 0) {
            c->second.n -= ROW;
            return (uint16_t)k;
        }
    return (uint16_t)made;
}

/* Most columns are equal, ops that no rule asks for: one stands for them. */
static void share_columns(ki_compiler *c) {
    uint32_t tables = c->second.n / ROW;
    uint16_t *v = c->second.v;
    unsigned first[ROW], n = 0;
    for (unsigned op = 0; op < ROW; op++) {
        unsigned k = 0;
        for (uint32_t t = 0; k < n && t < tables;)
            if (v[t * ROW + op] != v[t * ROW + first[k]]) k++, t = 0;
            else t++;
        if (k == n) first[n++] = op;
        c->column[op] = (uint8_t)k;
    }
    for (uint32_t t = 0; t < tables; t++)
        for (unsigned k = 0; k < n; k++) v[t * n + k] = v[t * ROW + first[k]];
    for (unsigned op = 0; op < KI_OP_COUNT; op++) c->root[op] = (uint16_t)(c->root[op] * n);
    c->second.n = tables * n;
}

bool ki_compile_dispatch(ki_compiler *c) {
    uint32_t cap = 0;
    for (uint32_t i = 0; i < c->rule.n; i++) cap += 1u << c->rule.v[i].nswap;
    heads *head = ki_calloc(cap + 1, sizeof *head);
    if (!head) return ki_fail(c->r->env, KI_E_NOMEM), false;
    bool ok = KI_PUSH(c, bucket, (ki_bucket){0, 0}) && add_entries(c, head, cap);
    unsigned tables = 0;
    for (unsigned k = 0; ok && k <= KI_OP_COUNT; k++) ok = KI_PUSH(c, second, 0); /* table 0: no rules */
    for (unsigned op = 0; ok && op < KI_OP_COUNT; op++) {
        bool any = false;
        for (uint32_t k = 0; k < c->entry.n; k++) any |= ki_opset_has(&head[k].root, op);
        for (unsigned op0 = 0; ok && any && op0 <= KI_OP_COUNT; op0++) ok = add_bucket(c, head, op, op0);
        c->root[op] = ok && any ? share_table(c, tables + 1) : 0;
        if (c->root[op] > tables) tables++;
    }
    if (ok) share_columns(c);
    ki_free(head);
    return ok;
}
