/* induction.c: induction variables: an index that goes on evenly with the innermost loop is a register that is added to at the loop's end, not
 * made anew from the loop's counter in each iteration (strength reduction; Allen, Cocke, Kennedy 1981).
 *
 * Only where that saves instructions: one addition, and the counter stays. What holds: such a value stands in the loop itself, in no
 * branch of it, and what it is made of, but the counter and constants, stands before the loop; who reads it finds it as any other. */
#include "stages/8_render/x86/lower.h"

#define MOST_NODES 16 /* of an index */
#define MOST_EACH  4  /* of a loop: each has a register throughout it */
#define MOST_STEP  (1 << 24)
#define WORTH      2 /* instructions that it takes otherwise; where the loop is written out (unroll.c) one, in each copy */

typedef struct term {
    kn_uop u;
    int64_t times;
} term;

/* Instructions that index.c makes of a product by c. */
static unsigned weight_of(int64_t c) {
    bool lea = c == 2 || c == 4 || c == 8;
    return lea || c <= 0 || c & (c - 1) ? 1 : 2;
}

/* Is x, an item in the loop that begins at item `head`, such a sum? */
static bool is_even(const ki_lower *l, kn_uop x, uint32_t head, ki_linduction *to) {
    term left[MOST_NODES] = {{x, 1}};
    unsigned n = 1, weight = 0;
    uint32_t within = l->val[l->at[x->id]].block;
    *to = (ki_linduction){.value = x, .head = head};
    while (n) {
        term t = left[--n];
        kn_uop u = t.u;
        int64_t by = 0;
        if (ki_is_const(u)) return false; /* it stands outermost, and is a displacement */
        if (u == l->inst[head]) {
            if (ki_add_overflow(to->step, t.times, &to->step)) return false;
            continue;
        }
        if (l->at[u->id] < head) {
            bool scale = t.times == 1 || t.times == 2 || t.times == 4 || t.times == 8;
            if (!scale || to->n == KI_MOST_FIXED) return false;
            to->fixed[to->n] = u, to->scale[to->n++] = (uint8_t)t.times;
            continue;
        }
        if (l->val[l->at[u->id]].block != within || n + 2 > MOST_NODES) return false;
        switch ((kn_op)u->op) {
        case KN_ADD:
            left[n++] = (term){u->src[0], t.times}, left[n++] = (term){u->src[1], t.times};
            weight++;
            break;
        case KN_MUL:
            if (!ki_is_const(u->src[1]) || ki_mul_overflow(t.times, u->src[1]->arg.i, &by)) return false;
            left[n++] = (term){u->src[0], by};
            weight += weight_of(u->src[1]->arg.i);
            break;
        default: return false;
        }
    }
    unsigned worth = ki_lmay_unroll(l, l->inst[head]) ? 1 : WORTH;
    return weight >= worth && to->step && to->step >= -MOST_STEP && to->step <= MOST_STEP;
}

static bool keep(ki_lower *l, const ki_linduction *x) {
    if (!ki_array_grow(&l->induction, &l->induction_cap, (size_t)l->ninduction + 1, sizeof *x))
        return ki_fail(l->ir->env, KI_E_NOMEM), false;
    l->induction[l->ninduction++] = *x;
    return true;
}

/* What addresses in the loop from item `head` to its END are made of. */
static bool find_in(ki_lower *l, uint32_t head, uint32_t end) {
    uint32_t first = l->ninduction;
    for (uint32_t i = head + 1; i < end && l->ninduction - first < MOST_EACH; i++) {
        kn_uop u = l->inst[i];
        if (u->op != KN_LOAD && u->op != KN_STORE && u->op != KN_ATOMICADD) continue;
        const ki_address *a = &l->local.address[i];
        int64_t start = 0;
        kn_uop base = a->affine ? ki_lpeel(a->base, &start) : NULL;
        if (!base || l->at[base->id] <= head || ki_lv(l, base)->induction) continue;
        ki_linduction x;
        if (l->val[l->at[base->id]].block != l->val[head + 1].block || !is_even(l, base, head, &x)) continue;
        if (!keep(l, &x)) return false;
        ki_lv(l, base)->induction = l->ninduction;
    }
    return true;
}

bool ki_lfind_inductions(ki_lower *l) {
    uint32_t head = UINT32_MAX; /* of the loop that was opened last, if none was closed since */
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->inst[i]->op == KN_RANGE) head = i;
        if (l->inst[i]->op != KN_END) continue;
        if (head != UINT32_MAX && !find_in(l, head, i)) return false;
        head = UINT32_MAX;
    }
    return true;
}

static ki_mop r64(ki_vreg r) { return ki_mreg(KI_XO_R64, r); }

void ki_lopen_inductions(ki_lower *l) {
    for (; l->opened < l->ninduction && l->induction[l->opened].head == l->now; l->opened++) {
        ki_linduction *x = &l->induction[l->opened];
        if (!ki_lv(l, x->value)->uses) continue;
        ki_vreg r = x->reg = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        ki_mop sum = {.kind = KI_XO_MEM, .scale = 1};
        for (unsigned k = 0; k < x->n; k++) {
            ki_vreg s = ki_lgeneral(l, x->fixed[k]);
            if (!sum.reg && x->scale[k] == 1) {
                sum.reg = s;
                continue;
            }
            if (sum.index) {
                KI_LPUT(l, KI_X_LEA, r64(r), sum);
                sum = (ki_mop){.kind = KI_XO_MEM, .reg = r};
            }
            sum.index = s, sum.scale = x->scale[k];
        }
        if (x->n == 1 && sum.reg) KI_LPUT(l, KI_M_MOVE, r64(r), r64(sum.reg));
        else if (x->n) KI_LPUT(l, KI_X_LEA, r64(r), sum);
        else KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, r), ki_mimm(0));
        ki_lv(l, x->value)->reg = r, ki_lv(l, x->value)->gpr = 1;
    }
}

void ki_lclose_inductions(ki_lower *l, kn_uop range, int64_t times) {
    for (uint32_t k = l->opened; k-- > 0 && l->inst[l->induction[k].head] == range;)
        if (l->induction[k].reg)
            KI_LPUT(l, KI_X_ADD_EI, r64(l->induction[k].reg), ki_mimm(l->induction[k].step * times));
}
