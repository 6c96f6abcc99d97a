/* index.c: index arithmetic in general registers, and what passes between these and vectors. */
#include "stages/8_render/x86/lower.h"

static ki_mop r64(ki_vreg r) { return ki_mreg(KI_XO_R64, r); }
static ki_vreg fresh(ki_lower *l) { return ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64); }
static ki_vreg copy(ki_lower *l, kn_uop u) {
    return ki_is_const(u) ? ki_lgeneral(l, u) : ki_lmove(l, KI_RC_G, KI_XO_R64, ki_lgeneral(l, u));
}
static bool is_imm(kn_uop u) { return ki_is_const(u) && u->arg.i >= INT32_MIN && u->arg.i <= INT32_MAX; }

static ki_vreg lea(ki_lower *l, ki_vreg base, ki_vreg index, unsigned scale, int64_t v) {
    ki_vreg r = fresh(l);
    KI_LPUT(l, KI_X_LEA, r64(r),
            (ki_mop){.kind = KI_XO_MEM, .reg = base, .index = index, .scale = (uint8_t)scale, .v = v});
    return r;
}

/* x op y in a register of its own: forms with a register and with an immediate. */
static ki_vreg two(ki_lower *l, ki_x86_id reg, ki_x86_id imm, kn_uop x, kn_uop y) {
    ki_vreg r = copy(l, x);
    if (is_imm(y)) KI_LPUT(l, imm, r64(r), ki_mimm(y->arg.i));
    else KI_LPUT(l, reg, r64(r), r64(ki_lgeneral(l, y)));
    return r;
}

static ki_vreg add(ki_lower *l, kn_uop x, kn_uop y) {
    if (is_imm(x)) {
        kn_uop t = x;
        x = y, y = t;
    }
    if (is_imm(y)) return lea(l, ki_lgeneral(l, x), 0, 1, y->arg.i);
    return lea(l, ki_lgeneral(l, x), ki_lgeneral(l, y), 1, 0);
}

static ki_vreg multiply(ki_lower *l, kn_uop x, kn_uop y) {
    if (ki_is_const(x)) {
        kn_uop t = x;
        x = y, y = t;
    }
    int64_t c = ki_is_const(y) ? y->arg.i : 0;
    if (c == 2 || c == 4 || c == 8) return lea(l, 0, ki_lgeneral(l, x), (unsigned)c, 0);
    if (c > 0 && (c & (c - 1)) == 0) {
        ki_vreg r = copy(l, x);
        KI_LPUT(l, KI_X_SHL_I, r64(r), ki_mimm(ki_ctz64((uint64_t)c)));
        return r;
    }
    if (c && is_imm(y)) {
        ki_vreg r = fresh(l);
        KI_LPUT(l, KI_X_IMUL_I, r64(r), r64(ki_lgeneral(l, x)), ki_mimm(c));
        return r;
    }
    ki_vreg r = copy(l, x);
    KI_LPUT(l, KI_X_IMUL, r64(r), r64(ki_lgeneral(l, y)));
    return r;
}

/* x / c for 0 <= x < 2^31, 0 < c < 2^31 by a product (Granlund and Montgomery 1994): m = floor(2^(31+s) / c) + 1, s = ceil(log2 c). */
static ki_vreg divide_small(ki_lower *l, kn_uop x, int64_t c) {
    unsigned s = 0;
    while ((INT64_C(1) << s) < c) s++;
    uint64_t m = (UINT64_C(1) << (31 + s)) / (uint64_t)c + 1;
    ki_vreg r = fresh(l);
    if (m <= INT32_MAX) {
        KI_LPUT(l, KI_X_IMUL_I, r64(r), r64(ki_lgeneral(l, x)), ki_mimm((int64_t)m));
    } else {
        KI_LPUT(l, KI_X_MOVABS, r64(r), ki_mimm((int64_t)m));
        KI_LPUT(l, KI_X_IMUL, r64(r), r64(ki_lgeneral(l, x)));
    }
    KI_LPUT(l, KI_X_SHR_I, r64(r), ki_mimm(31 + s));
    return r;
}

/* Floor quotient or remainder by the divider; by zero 0, and INT_MIN / -1 does not trap. */
static ki_vreg divide(ki_lower *l, kn_uop x, kn_uop y, bool remainder) {
    ki_mop rax = r64(KI_PHYSICAL(KI_X_RAX)), rdx = r64(KI_PHYSICAL(KI_X_RDX));
    uint32_t zero = ki_asm_label(l->a), normal = ki_asm_label(l->a), done = ki_asm_label(l->a);
    ki_vreg a = ki_lgeneral(l, x), b = ki_lgeneral(l, y), r = fresh(l), t = fresh(l);
    KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, r), ki_mimm(0));
    KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, t), ki_mimm(0));
    KI_LPUT(l, KI_X_TEST_EG, r64(b), r64(b));
    KI_LPUT(l, KI_X_JE, ki_mlabel(zero));
    KI_LPUT(l, KI_X_CMP_EB, r64(b), ki_mimm(-1));
    KI_LPUT(l, KI_X_JNE, ki_mlabel(normal));
    if (!remainder) {
        KI_LPUT(l, KI_X_SUB_GE, r64(r), r64(a)); /* 0 - a wraps */
    }
    KI_LPUT(l, KI_X_JMP, ki_mlabel(done));
    KI_LPUT(l, KI_M_LABEL, ki_mlabel(normal));
    KI_LPUT(l, KI_M_MOVE, rax, r64(a));
    KI_LPUT(l, KI_X_CQO, (ki_mop){0});
    KI_LPUT(l, KI_X_IDIV, r64(b));
    /* Toward zero, so far: where a remainder is left whose sign is not the divisor's, one less. */
    KI_LPUT(l, KI_M_MOVE, r64(r), remainder ? rdx : rax);
    KI_LPUT(l, KI_X_TEST_EG, rdx, rdx);
    KI_LPUT(l, KI_X_JE, ki_mlabel(done));
    KI_LPUT(l, KI_M_MOVE, r64(t), r64(b));
    KI_LPUT(l, KI_X_XOR_GE, r64(t), rdx);
    KI_LPUT(l, KI_X_JNS, ki_mlabel(done));
    if (remainder) KI_LPUT(l, KI_X_ADD_GE, r64(r), r64(b));
    else KI_LPUT(l, KI_X_DEC, r64(r));
    KI_LPUT(l, KI_M_LABEL, ki_mlabel(done));
    KI_LPUT(l, KI_M_LABEL, ki_mlabel(zero));
    return r;
}

static ki_vreg quotient(ki_lower *l, kn_uop u) {
    kn_uop x = u->src[0], y = u->src[1];
    int64_t c = ki_is_const(y) ? y->arg.i : 0;
    bool mod = u->op == KN_MOD;
    if (c > 0 && (c & (c - 1)) == 0) { /* the arithmetic shift floors */
        ki_vreg r = copy(l, x);
        if (!mod) KI_LPUT(l, KI_X_SAR_I, r64(r), ki_mimm(ki_ctz64((uint64_t)c)));
        else if (c - 1 <= INT32_MAX) KI_LPUT(l, KI_X_AND_EI, r64(r), ki_mimm(c - 1));
        else return divide(l, x, y, true);
        return r;
    }
    if (c <= 0 || c > INT32_MAX || x->lo.i < 0 || x->hi.i > INT32_MAX) return divide(l, x, y, mod);
    ki_vreg q = divide_small(l, x, c);
    if (!mod) return q;
    ki_vreg t = fresh(l), r = copy(l, x);
    KI_LPUT(l, KI_X_IMUL_I, r64(t), r64(q), ki_mimm(c));
    KI_LPUT(l, KI_X_SUB_GE, r64(r), r64(t));
    return r;
}

static ki_vreg choose(ki_lower *l, kn_uop u) {
    ki_vreg c = ki_lgeneral(l, u->src[0]), a = ki_lgeneral(l, u->src[1]), r = copy(l, u->src[2]);
    KI_LPUT(l, KI_X_TEST_EG, ki_mreg(KI_XO_R32, c), ki_mreg(KI_XO_R32, c));
    KI_LPUT(l, KI_X_CMOVNE, r64(r), r64(a));
    return r;
}

static ki_vreg greatest(ki_lower *l, kn_uop u) {
    ki_vreg b = ki_lgeneral(l, u->src[1]), r = copy(l, u->src[0]);
    KI_LPUT(l, KI_X_CMP_GE, r64(r), r64(b));
    KI_LPUT(l, KI_X_CMOVL, r64(r), r64(b));
    return r;
}

/* Shifts by a constant; others do not occur in addresses. */
static ki_vreg shift(ki_lower *l, kn_uop u) {
    if (!ki_is_const(u->src[1])) return ki_lfail(l, u, "an index is shifted by a constant only"), 0;
    int64_t n = u->src[1]->arg.i;
    ki_vreg r = copy(l, u->src[0]);
    if (u->op == KN_SHL && (n < 0 || n > 63)) KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, r), ki_mimm(0));
    else KI_LPUT(l, u->op == KN_SHL ? KI_X_SHL_I : KI_X_SAR_I, r64(r), ki_mimm(n < 0 || n > 63 ? 63 : n));
    return r;
}

/* ---- bool -------------------------------------------------------------------------------------------------------- */

static ki_vreg flip(ki_lower *l, ki_vreg r) {
    KI_LPUT(l, KI_X_XOR_EB, ki_mreg(KI_XO_R32, r), ki_mimm(1));
    return r;
}

static ki_vreg logic(ki_lower *l, kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_AND:
    case KN_MUL: return two(l, KI_X_AND_GE, KI_X_AND_EI, u->src[0], u->src[1]);
    case KN_OR:
    case KN_ADD:
    case KN_MAX: return two(l, KI_X_OR_GE, KI_X_OR_EI, u->src[0], u->src[1]);
    case KN_XOR:
    case KN_CMPNE: return two(l, KI_X_XOR_GE, KI_X_XOR_EI, u->src[0], u->src[1]);
    case KN_CMPEQ: return flip(l, two(l, KI_X_XOR_GE, KI_X_XOR_EI, u->src[0], u->src[1]));
    case KN_NOT: return flip(l, copy(l, u->src[0]));
    case KN_CMPLT: { /* !a & b */
        ki_vreg r = flip(l, copy(l, u->src[0]));
        KI_LPUT(l, KI_X_AND_GE, r64(r), r64(ki_lgeneral(l, u->src[1])));
        return r;
    }
    case KN_WHERE: return choose(l, u);
    default: return ki_lfail(l, u, "no such op on a bool of index arithmetic"), 0;
    }
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */

static ki_vreg to_general(ki_lower *l, kn_uop s) {
    ki_lval *v = ki_lv(l, s);
    if (ki_is_const(s) || v->gpr) return ki_lgeneral(l, s);
    kn_dtype t = (kn_dtype)s->dtype;
    unsigned es = ki_les(s);
    bool sign = ki_is_sint(t);
    if (t == KN_BOOL) return ki_lgeneral(l, s);
    if (!ki_is_int(t)) return ki_lfail(l, s, "an index is made of integers only"), 0;
    ki_vreg x = ki_lvector(l, s, false), r = fresh(l);
    if (es == 8) {
        KI_LPUT(l, KI_X_VMOVQ_GST, r64(r), ki_mreg(KI_XO_X, x));
        return r;
    }
    KI_LPUT(l, KI_X_VMOVD_ST, ki_mreg(KI_XO_R32, r), ki_mreg(KI_XO_X, x));
    if (es == 4 && sign) KI_LPUT(l, KI_X_MOVSXD, r64(r), ki_mreg(KI_XO_R32, r));
    if (es == 2) KI_LPUT(l, sign ? KI_X_MOVSX_W : KI_X_MOVZX_W, r64(r), ki_mreg(KI_XO_R16, r));
    if (es == 1) KI_LPUT(l, sign ? KI_X_MOVSX_B : KI_X_MOVZX_B, r64(r), ki_mreg(KI_XO_R8, r));
    return r;
}

static ki_vreg index_op(ki_lower *l, kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_ADD: return add(l, u->src[0], u->src[1]);
    case KN_SUB: return two(l, KI_X_SUB_GE, KI_X_SUB_EI, u->src[0], u->src[1]);
    case KN_MUL: return multiply(l, u->src[0], u->src[1]);
    case KN_IDIV:
    case KN_MOD: return quotient(l, u);
    case KN_MAX: return greatest(l, u);
    case KN_AND: return two(l, KI_X_AND_GE, KI_X_AND_EI, u->src[0], u->src[1]);
    case KN_OR: return two(l, KI_X_OR_GE, KI_X_OR_EI, u->src[0], u->src[1]);
    case KN_XOR: return two(l, KI_X_XOR_GE, KI_X_XOR_EI, u->src[0], u->src[1]);
    case KN_SHL:
    case KN_SHR: return shift(l, u);
    case KN_NEG: {
        ki_vreg r = copy(l, u->src[0]);
        KI_LPUT(l, KI_X_NEG, r64(r));
        return r;
    }
    case KN_MULACC: {
        ki_vreg p = multiply(l, u->src[0], u->src[1]);
        return lea(l, p, ki_lgeneral(l, u->src[2]), 1, 0);
    }
    case KN_WHERE: return choose(l, u);
    case KN_CAST: return to_general(l, u->src[0]);
    default: return ki_lfail(l, u, "no such op on an index"), 0;
    }
}

bool ki_lindex(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    if (v->branch) return true;
    bool compares = ki_rank(u) == 0 && u->dtype == KN_BOOL && u->nsrc && ki_is_elementwise((kn_op)u->op);
    if (u->dtype == KN_IDX && !ki_rank(u) && ki_is_elementwise((kn_op)u->op)) {
        v->reg = index_op(l, u);
    } else if (u->op == KN_CAST && u->src[0]->dtype == KN_IDX && u->dtype != KN_BOOL &&
               !ki_is_float((kn_dtype)u->dtype)) {
        v->reg = ki_lfrom_general(l, ki_lgeneral(l, u->src[0]), ki_les(u));
        if (v->wide) v->all = ki_lall(l, v->reg, ki_les(u));
        return true;
    } else if (compares && u->src[u->nsrc - 1]->dtype == KN_IDX && u->op != KN_CAST) {
        v->reg = ki_lcomparison(l, u);
    } else if (compares && u->src[0]->dtype == KN_BOOL) {
        v->reg = v->within ? ki_lcomparison(l, u) : logic(l, u);
    } else {
        return false;
    }
    return v->gpr = 1, true;
}
