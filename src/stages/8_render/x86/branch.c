/* branch.c: truths of index arithmetic, and gates that ask for them.
 *
 * A comparison that gates alone read, in its own loop, makes no value: it is made where it is asked, beside the jump. Nor do the two of
 * `0 <= x < c`, which are one without signs, whoever reads them. Whoever asks for a gate goes through ki_lskip_unless. */
#include "stages/8_render/x86/lower.h"

static ki_mop r64(ki_vreg r) { return ki_mreg(KI_XO_R64, r); }

static bool is_imm(kn_uop u) { return ki_is_const(u) && u->arg.i >= INT32_MIN && u->arg.i <= INT32_MAX; }

static const struct comparison {
    uint8_t op;
    uint16_t set, skip; /* set if true; jump if false */
} comparisons[] = {{KN_CMPLT, KI_X_SETL, KI_X_JGE}, {KN_CMPNE, KI_X_SETNE, KI_X_JE}, {KN_CMPGT, KI_X_SETG, KI_X_JLE},
                   {KN_CMPGE, KI_X_SETGE, KI_X_JL}, {KN_CMPLE, KI_X_SETLE, KI_X_JG}, {KN_CMPEQ, KI_X_SETE, KI_X_JNE}};
static const struct comparison below = {KN_AND, KI_X_SETB, KI_X_JAE}; /* without signs */

static const struct comparison *comparison_of(kn_uop u) {
    if (u->nsrc != 2 || u->src[1]->dtype != KN_IDX) return NULL;
    for (unsigned k = 0; k < sizeof comparisons / sizeof *comparisons; k++)
        if (comparisons[k].op == u->op) return &comparisons[k];
    return NULL;
}

/* x of `x < c and -x < 1`, which is `0 <= x < c`; NULL: u is no such. */
static kn_uop within(kn_uop u, kn_uop *c) {
    for (unsigned k = 0; u->op == KN_AND && k < 2; k++) {
        kn_uop a = u->src[k], b = u->src[1 - k];
        if (a->op != KN_CMPLT || b->op != KN_CMPLT || !ki_is_const_int(b->src[1], 1) || b->src[0]->op != KN_MUL)
            continue;
        kn_uop x = b->src[0]->src[0], by = b->src[0]->src[1];
        *c = a->src[1];
        if (x == a->src[0] && ki_is_const_int(by, -1) && x->dtype == KN_IDX && is_imm(*c) && (*c)->arg.i >= 0) return x;
    }
    return NULL;
}

/* ---- who asks ---------------------------------------------------------------------------------------------------- */

static kn_uop gate_of(kn_uop u) {
    if (u->op == KN_IF) return u->src[0];
    return (u->op == KN_LOAD || u->op == KN_STORE) && u->nsrc > 2 ? u->src[2] : NULL;
}

/* One reader less. */
static void unread(ki_lower *l, kn_uop u) {
    if (!ki_is_const(u)) ki_lv(l, u)->uses--;
}

/* The two comparisons of `0 <= x < c` are read no more, x once instead. */
static void join(ki_lower *l, kn_uop u, kn_uop x) {
    ki_lv(l, u)->within = 1;
    ki_lv(l, x)->uses++;
    for (unsigned k = 0; k < 2; k++) {
        kn_uop part = u->src[k], left = part->src[0];
        unread(l, part);
        if (ki_lv(l, part)->uses) continue;
        unread(l, left);
        unread(l, part->src[1]);
        if (left != x && !ki_lv(l, left)->uses) unread(l, x); /* -x */
    }
}

bool ki_lfind_branches(ki_lower *l) {
    uint32_t *asked = ki_calloc((size_t)l->n + 1, sizeof *asked);
    kn_uop c, x;
    if (!asked) return ki_fail(l->ir->env, KI_E_NOMEM), false;
    for (uint32_t i = l->n; i-- > 0;) {
        kn_uop u = l->inst[i], gate = gate_of(u);
        ki_lval *v = &l->val[i];
        if (gate && !ki_is_const(gate) && !ki_rank(gate)) asked[l->at[gate->id]]++;
        if (u->dtype != KN_BOOL || ki_rank(u) || !v->uses) continue;
        if ((x = within(u, &c))) join(l, u, x);
        if (v->outside || asked[i] != v->uses) continue;
        v->branch = v->within || comparison_of(u) || (u->op == KN_AND && v->uses == 1);
        for (unsigned k = 0; v->branch && u->op == KN_AND && !v->within && k < 2; k++)
            if (!ki_is_const(u->src[k]) && (!k || u->src[k]->op != KN_AND || within(u->src[k], &c)))
                asked[l->at[u->src[k]->id]]++;
    }
    ki_free(asked);
    return true;
}

/* ---- code -------------------------------------------------------------------------------------------------------- */

static const struct comparison *compare(ki_lower *l, kn_uop u) {
    kn_uop y = u->src[1], x = ki_lv(l, u)->within ? within(u, &y) : u->src[0];
    if (is_imm(y)) KI_LPUT(l, KI_X_CMP_EI, r64(ki_lgeneral(l, x)), ki_mimm(y->arg.i));
    else KI_LPUT(l, KI_X_CMP_GE, r64(ki_lgeneral(l, x)), r64(ki_lgeneral(l, y)));
    return u->op == KN_AND ? &below : comparison_of(u);
}

ki_vreg ki_lcomparison(ki_lower *l, kn_uop u) {
    if (!ki_lv(l, u)->within && !comparison_of(u)) return ki_lfail(l, u, "no such comparison of indices"), 0;
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, (ki_x86_id)compare(l, u)->set, ki_mreg(KI_XO_R8, r));
    KI_LPUT(l, KI_X_MOVZX_B, ki_mreg(KI_XO_R32, r), ki_mreg(KI_XO_R8, r));
    return r;
}

/* No conjunction of which a part is left to be asked for. */
static void skip_one(ki_lower *l, kn_uop gate, uint32_t past) {
    if (!ki_is_const(gate) && ki_lv(l, gate)->branch) {
        KI_LPUT(l, (ki_x86_id)compare(l, gate)->skip, ki_mlabel(past));
        return;
    }
    ki_mop g = ki_mreg(KI_XO_R32, ki_lgeneral(l, gate));
    KI_LPUT(l, KI_X_TEST_EG, g, g);
    KI_LPUT(l, KI_X_JE, ki_mlabel(past));
}

void ki_lskip_unless(ki_lower *l, kn_uop gate, uint32_t past) {
    for (; !ki_is_const(gate) && gate->op == KN_AND && ki_lv(l, gate)->branch && !ki_lv(l, gate)->within;
         gate = gate->src[0])
        skip_one(l, gate->src[1], past);
    skip_one(l, gate, past);
}
