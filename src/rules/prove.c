/* prove.c: a rule taken apart for the rungs, and the order in which they are asked. */
#include "rules/prove_impl.h"

#include <string.h>

const char *const ki_rung_names[] = {"unproved", "exhaustive", "smt", "execution", "refuted"};

/* ---- taking a rule apart ----------------------------------------------------------------------------------- */

/* Ops a pattern node may have, those that are computed elementwise. False: some are not. */
static bool computed_ops(const ki_ruleset *set, const ki_pat *p, uint8_t *op, uint8_t *n) {
    bool all = true;
    *n = 0;
    if (p->op != KI_OP_COUNT) {
        op[(*n)++] = p->op;
        return (ki_is_elementwise((kn_op)p->op) || p->op == KN_BITCAST || p->op == KN_INVALID) &&
               p->nsrc == ki_ops[p->op].least;
    }
    for (unsigned k = 0; k < KI_OP_COUNT; k++) {
        if (!ki_opset_has(&set->opset[p->opset], k)) continue;
        bool good = ki_is_elementwise((kn_op)k) && k != KN_CAST;
        all &= good;
        if (good && p->nsrc == ki_ops[k].least) op[(*n)++] = (uint8_t)k;
    }
    return all && *n;
}

static void take_pattern(ki_proof *p) {
    const ki_pat *pat = p->set->pat + p->rule->pat;
    const ki_written_pat *written = ki_written_pats(p->set, p->rule);
    for (unsigned r = 0; r < p->rule->npat; r++) {
        p->kind[r] = pat[r].kind;
        p->cls[r] = written[r].like;
        p->mask[r] = written[r].mask;
        p->leaf[r] = pat[r].kind == KI_P_ANY || pat[r].kind == KI_P_CONST;
        if (r && !(pat[r].flags & KI_PF_TAIL) && pat[r].src < 4) {
            p->kid[pat[r].parent][pat[r].src] = (uint8_t)r;
            p->nkid[pat[r].parent]++;
        }
        if (pat[r].kind != KI_P_NODE) continue;
        bool good = computed_ops(p->set, &pat[r], p->choice[r], &p->nchoice[r]) && !(pat[r].flags & KI_PF_REST);
        p->chosen[r] = good && pat[r].op == KI_OP_COUNT;
        p->leaf[r] = !good;
        p->real_dtypes |= pat[r].op == KN_CAST || pat[r].op == KN_BITCAST;
    }
}

/* Marks what the value of reg needs. */
static void mark_live(ki_proof *p, unsigned reg) {
    uint8_t same = p->set->pat[p->rule->pat + reg].same;
    if (same != KI_NOREG) {
        p->live[reg] = true;
        p->leaf[reg] = false; /* its value is the first one's */
        reg = same;
    }
    if (p->live[reg]) return;
    p->live[reg] = true;
    if (p->leaf[reg]) return;
    for (unsigned k = 0; k < p->nkid[reg]; k++) mark_live(p, p->kid[reg][k]);
}

/* Walks a right side or guard. False: something in it is no scalar arithmetic. */
static bool take_term(ki_proof *p, unsigned term, bool rhs) {
    const ki_term *t = &p->term[term];
    bool good = true;
    switch ((ki_tkind)t->kind) {
    case KI_T_NAME: {
        const ki_rname *n = &p->set->rname[p->rule->rname + t->x];
        if (n->kind == KI_N_NODE || n->kind == KI_N_CONST) mark_live(p, n->reg);
        if (n->kind == KI_N_ARG && n->field == KI_F_DTYPE) p->real_dtypes = true;
        else if (n->kind == KI_N_ARG || n->kind == KI_N_REST) good = !rhs;
        break;
    }
    case KI_T_ENUM: p->real_dtypes |= t->x == KI_V_DTYPE && t->which != KN_IDX && t->which != KN_BOOL; break;
    case KI_T_OP:
        p->real_dtypes |= t->op == KN_CAST || t->op == KN_BITCAST;
        good = ki_is_elementwise((kn_op)t->op) || t->op == KN_BITCAST || t->op == KN_INVALID;
        break;
    case KI_T_BUILTIN: {
        const ki_term *a = t->nkid ? &p->term[p->set->kid[t->kid]] : NULL;
        good = !rhs || (t->x != KI_B_shape && t->x != KI_B_at);
        if ((t->x != KI_B_lo && t->x != KI_B_hi && t->x != KI_B_bounded) || !a || a->kind != KI_T_NAME) break;
        const ki_rname *n = &p->set->rname[p->rule->rname + a->x];
        if (n->kind != KI_N_NODE && n->kind != KI_N_CONST) break;
        uint8_t same = p->set->pat[p->rule->pat + n->reg].same;
        unsigned reg = same == KI_NOREG ? n->reg : same;
        p->bounds[reg] = true;
        p->any_bounds |= p->kind[reg] != KI_P_CONST;
        p->rhs_bounds |= rhs && p->kind[reg] != KI_P_CONST;
        break;
    }
    case KI_T_REST:
    case KI_T_MAP: good = !rhs; break;
    default: break;
    }
    for (unsigned k = 0; k < (unsigned)t->nkid + t->narg; k++) good &= take_term(p, p->set->kid[t->kid + k], rhs);
    return good;
}

/* Reals: exact where every op is rational, else with a tolerance. */
static bool rational_op(unsigned op) {
    static const uint8_t ops[] = {KN_ADD,   KN_SUB,    KN_MUL,   KN_DIV,   KN_RECIP, KN_NEG,   KN_TRUNC,
                                  KN_MAX,   KN_MULACC, KN_WHERE, KN_CMPLT, KN_CMPGT, KN_CMPLE, KN_CMPGE,
                                  KN_CMPEQ, KN_CMPNE,  KN_AND,   KN_OR,    KN_XOR,   KN_NOT};
    return memchr(ops, (int)op, sizeof ops) != NULL;
}

static bool rational_term(const ki_proof *p, unsigned term) {
    const ki_term *t = &p->term[term];
    bool good = t->kind != KI_T_OP || rational_op(t->op) || t->flags & KI_TF_DIV;
    for (unsigned k = 0; k < t->nkid; k++) good &= rational_term(p, p->set->kid[t->kid + k]);
    return good;
}

/* Integer constants that mean the same at any width. */
static bool small_constants(const ki_proof *p, unsigned term) {
    const ki_term *t = &p->term[term];
    bool good = t->kind != KI_T_INT || (ki_term_int(p->set, t) >= -1 && ki_term_int(p->set, t) <= 2);
    for (unsigned k = 0; k < (unsigned)t->nkid + t->narg; k++)
        good = good && small_constants(p, p->set->kid[t->kid + k]);
    return good;
}

static uint32_t float_dtypes(void) {
    uint32_t set = 0;
    for (int t = 0; t < KI_DTYPE_COUNT; t++) set |= ki_is_float((kn_dtype)t) ? UINT32_C(1) << t : 0;
    return set;
}

static bool may_scale(const ki_proof *p) {
    uint32_t floats = float_dtypes();
    bool good = !p->guard || small_constants(p, p->guard);
    for (unsigned r = 0; r < p->rule->npat; r++) {
        good = good && (!p->live[r] || !(p->mask[r] & floats));
        if (p->kind[r] == KI_P_LIT) good = good && small_constants(p, p->set->pat[p->rule->pat + r].term);
    }
    return good && small_constants(p, p->rule->rhs);
}

/* ---- what needs no values ---------------------------------------------------------------------------------- */

/* Whether a term of the right side is the pattern's node reg over again. */
static bool same_side(const ki_proof *p, unsigned reg, unsigned term) {
    const ki_term *t = &p->term[term];
    const ki_pat *pat = &p->set->pat[p->rule->pat + reg];
    const uint16_t *kid = ki_term_kids(p->set, t);
    if (t->kind == KI_T_EXPR) return same_side(p, reg, kid[0]);
    if (t->kind == KI_T_NAME) {
        const ki_rname *n = &p->set->rname[p->rule->rname + t->x];
        unsigned a = pat->same == KI_NOREG ? reg : pat->same;
        return (n->kind == KI_N_NODE || n->kind == KI_N_CONST) && n->reg == a;
    }
    unsigned first = t->kind == KI_T_FOLD, op = t->op;
    if (pat->kind != KI_P_NODE || p->leaf[reg] || t->nkid - first != p->nkid[reg]) return false;
    if (t->kind != KI_T_OP && t->kind != KI_T_OPNAME && t->kind != KI_T_FOLD) return false;
    if (first || t->kind == KI_T_OPNAME) {
        const ki_term *o = first ? &p->term[kid[0]] : t;
        if (first && o->kind != KI_T_NAME) return false;
        const ki_rname *n = &p->set->rname[p->rule->rname + o->x];
        if (n->kind != KI_N_OP || n->reg != reg) return false;
    } else if (pat->op != op) {
        return false;
    }
    for (unsigned k = 0; k < p->nkid[reg]; k++)
        if (!same_side(p, p->kid[reg][k], kid[k + first])) return false;
    if (t->narg == 0) return pat->narg == 0 && op != KN_CAST && op != KN_BITCAST;
    const ki_term *arg = &p->term[kid[t->nkid]];
    if (t->narg == 1 && arg->kind == KI_T_ENUM && (op == KN_CAST || op == KN_BITCAST))
        return pat->narg == 0 && arg->x == KI_V_DTYPE && p->mask[reg] == UINT32_C(1) << arg->which;
    const ki_rname *n = &p->set->rname[p->rule->rname + arg->x];
    return t->narg == 1 && arg->kind == KI_T_NAME && n->kind == KI_N_ARG && n->reg == reg;
}

static void not_parametric(ki_proof *p, unsigned reg) { p->parametric[p->cls[reg]] = false; }

static bool passes_values(const ki_proof *p, unsigned term) {
    const ki_term *t = &p->term[term];
    if (t->kind == KI_T_NAME) return true;
    bool good = t->kind == KI_T_OP && t->op == KN_WHERE;
    for (unsigned k = 0; k < t->nkid && good; k++) good = passes_values(p, p->set->kid[t->kid + k]);
    return good;
}

/* Classes that only ever stand in the branches of a where. */
static void find_parametric(ki_proof *p) {
    const ki_pat *pat = p->set->pat + p->rule->pat;
    bool one = p->rule->kind == KI_R_REWRITE && p->rule->rhs, all = one && !p->guard && passes_values(p, p->rule->rhs);
    for (unsigned r = 0; r < p->rule->npat; r++) p->parametric[r] = all;
    for (unsigned r = 0; r < p->rule->npat; r++) {
        if (p->kind[r] == KI_P_LIT) not_parametric(p, r);
        if (p->kind[r] != KI_P_NODE || p->leaf[r]) continue;
        bool select = pat[r].op == KN_WHERE;
        for (unsigned k = 0; k < p->nkid[r]; k++)
            if (!select || k == 0) not_parametric(p, p->kid[r][k]);
        if (!select) not_parametric(p, r);
    }
}

/* A node whose bounds are asked and whose value is computed: its interval is any that contains the value, so it is
 * enumerated like a leaf's; the search handles leaves only, hence such a node becomes one. */
static void open_bounded_nodes(ki_proof *p) {
    for (unsigned r = 0; r < p->rule->npat; r++)
        if (p->bounds[r] && p->kind[r] == KI_P_NODE && !p->leaf[r]) p->leaf[r] = true, p->chosen[r] = false;
}

/* Whether a node taken as any value is tied to anything else, so that not every value need be one it can have. */
static void find_opaque(ki_proof *p) {
    const ki_pat *pat = p->set->pat + p->rule->pat;
    bool under[KI_MAX_REG] = {false};
    for (unsigned r = 0; r < p->rule->npat; r++) {
        unsigned up = pat[r].parent;
        under[r] = r && (under[up] || (p->kind[up] == KI_P_NODE && p->leaf[up]));
        if (!under[r]) continue;
        p->opaque |= p->live[r] || pat[r].same != KI_NOREG;
        for (unsigned k = 0; k < p->rule->npat; k++) p->opaque |= pat[k].same == r;
    }
}

void ki_proof_make(ki_proof *p, const ki_ruleset *set, const ki_rule *rule, const ki_term *term, uint16_t guard) {
    *p = (ki_proof){.set = set, .rule = rule, .term = term, .guard = guard};
    take_pattern(p);
    const ki_pat *root = &set->pat[rule->pat];
    bool good = rule->kind == KI_R_REWRITE && !rule->does && !(rule->flags & KI_RF_RETYPE) && rule->rhs;
    if (guard) take_term(p, guard, false);
    good = good && take_term(p, rule->rhs, true);
    bool elementwise = root->kind != KI_P_NODE || !p->leaf[0];
    if (root->kind == KI_P_NODE && root->op == KI_OP_COUNT) {
        elementwise = true;
        for (unsigned k = 0; k < KI_OP_COUNT; k++)
            if (ki_opset_has(&set->opset[root->opset], k)) elementwise &= ki_is_elementwise((kn_op)k);
    }
    open_bounded_nodes(p);
    mark_live(p, 0);
    find_opaque(p);
    find_parametric(p);
    p->same = good && same_side(p, 0, rule->rhs);
    p->arith = good && elementwise;
    bool step = root->kind == KI_P_NODE && root->op == KN_STAGE; /* of a derivation: no value by itself */
    p->scalar = good && !step && !(p->mask[0] == 1);
    p->scaled = p->scalar && p->real_dtypes && may_scale(p);
    if (rule->fp & (KI_FP_REASSOC | KI_FP_CONTRACT | KI_FP_ARCP | KI_FP_AFN)) {
        p->exact_reals = p->scalar && rational_term(p, rule->rhs);
        for (unsigned r = 0; r < rule->npat; r++)
            for (unsigned k = 0; k < p->nchoice[r] && !p->leaf[r]; k++) p->exact_reals &= rational_op(p->choice[r][k]);
        p->rough_reals = !p->exact_reals;
    }
}

/* ---- the rungs in order ------------------------------------------------------------------------------------ */

static void because(ki_verdict *v, const char *why) {
    ki_text_cut(&v->reason, 0);
    ki_text_put(&v->reason, why);
}

static bool by_values(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out) {
    uint64_t budget = o->budget ? o->budget : 2000000;
    bool sampled = false, vain[12] = {false}, any = false;
    if (!ki_prove_enumerate(p, budget, KI_PASS_SMALL, out, &sampled, vain)) return false;
    /* Where the rule never fired, its constants may need more room. */
    for (unsigned k = 0; k < 12; k++) any |= vain[k];
    if (out->rung != KI_REFUTED && any && !p->real_dtypes &&
        !ki_prove_enumerate(p, budget, KI_PASS_WIDE, out, &sampled, vain))
        return false;
    if (out->rung != KI_REFUTED && !ki_prove_enumerate(p, budget, KI_PASS_EDGES, out, &sampled, NULL)) return false;
    if (out->rung != KI_REFUTED && out->instances && !ki_prove_enumerate(p, budget, KI_PASS_ROOM, out, NULL, NULL))
        return false;
    if (out->rung == KI_REFUTED) {
        if (!p->opaque) return true;
        out->rung = KI_UNPROVED; /* its values may not be what those nodes can be */
        ki_text_put(&out->reason, " (with some nodes taken as any value)");
        return true;
    }
    if (out->instances && p->same && !p->opaque) {
        out->rung = KI_PROVED_EXHAUSTIVE;
        because(out, "both sides are the same expression");
    } else if (out->instances) out->rung = sampled || p->rough_reals ? KI_PROVED_EXECUTION : KI_PROVED_EXHAUSTIVE;
    else because(out, "the guard held on no instance that was tried");
    return true;
}

static bool has_floats(const ki_proof *p) {
    uint32_t floats = float_dtypes();
    bool any = false;
    for (unsigned r = 0; r < p->rule->npat; r++) any |= p->live[r] && p->mask[p->cls[r]] & floats;
    return any;
}

bool ki_prove_taken(ki_env *env, const ki_proof *p, const ki_prove_opts *o, ki_verdict *out) {
    *out = (ki_verdict){.arith = p->arith, .does = p->rule->does != 0};
    if (p->scalar && !by_values(p, o, out)) return ki_fail(env, KI_E_NOMEM), false;
    /* Casts of index and floats are hard for a solver. */
    bool done = out->rung == KI_PROVED_EXHAUSTIVE && (p->mutant || p->scaled || has_floats(p));
    if (out->rung != KI_REFUTED && o->z3 && !done) {
        ki_rung rung = ki_prove_smt(p, o, out);
        if (rung != KI_UNPROVED) out->rung = rung;
    }
    if (out->rung != KI_UNPROVED) return true;
    if (p->mutant && p->scalar && out->instances == 0 && !p->opaque && !out->blind) {
        out->rung = KI_PROVED_EXHAUSTIVE;
        because(out, "it never fires");
        return true;
    }
    if (!(p->mutant || p->rule->does ? ki_prove_apart : ki_prove_execute)(p, o, out))
        return ki_fail(env, KI_E_NOMEM), false;
    return true;
}

static bool has_ins(const ki_ruleset *set, unsigned term) {
    const ki_term *t = &set->term[term];
    bool found = t->kind == KI_T_OP && t->op == KN_INS;
    for (unsigned k = 0; k < t->nkid; k++) found |= has_ins(set, set->kid[t->kid + k]);
    return found;
}

bool ki_makes_ins(const ki_ruleset *set) {
    bool any = false;
    for (uint32_t k = 0; k < set->nrule; k++)
        any |= set->rule[k].kind == KI_R_REWRITE && set->rule[k].rhs && has_ins(set, set->rule[k].rhs);
    return any;
}

/* A rule that makes instructions, or is a step towards some, as what they mean. */
static bool prove_meant(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_prove_opts *o, ki_verdict *out) {
    ki_rules own;
    uint32_t at;
    ki_proof p;
    *out = (ki_verdict){0};
    if (!ki_proof_load(env, set, rule, NULL, o->meaning, &own, &at)) {
        bool room = env->err != KI_E_NOMEM;
        ki_text_printf(&out->reason, "its instructions are not understood: %s", env->message.s ? env->message.s : "");
        if (room) ki_env_clear(env);
        return room;
    }
    ki_proof_make(&p, own.set, &own.set->rule[at], own.set->term, own.set->rule[at].guard);
    p.fused = true;
    bool ok = ki_prove_taken(env, &p, o, out);
    ki_rules_free(&own);
    return ok;
}

bool ki_prove_rule(ki_env *env, const ki_ruleset *set, uint32_t rule, const ki_prove_opts *o, ki_verdict *out) {
    ki_proof p;
    const ki_rule *r = &set->rule[rule];
    bool meant = r->kind == KI_R_REWRITE && r->rhs && o->meaning;
    if (meant && has_ins(set, r->rhs)) return prove_meant(env, set, rule, o, out);
    ki_proof_make(&p, set, &set->rule[rule], set->term, set->rule[rule].guard);
    bool ok = ki_prove_taken(env, &p, o, out);
    bool proved = out->rung != KI_REFUTED && out->rung != KI_UNPROVED;
    if (!ok || proved || !meant || !strstr(ki_rule_text(set, r), "stage(") || !ki_makes_ins(set)) return ok;
    ki_verdict_free(out); /* a step towards instructions: as it stands its derivation could not be run to the end */
    return prove_meant(env, set, rule, o, out);
}

void ki_verdict_free(ki_verdict *v) {
    ki_text_free(&v->reason);
    *v = (ki_verdict){0};
}

void ki_verdict_json(const ki_ruleset *set, const ki_rule *r, const ki_verdict *v, ki_text *out) {
    ki_text_printf(out,
                   "{\"set\": \"%s\", \"rule\": \"%s\", \"arith\": %s, \"verdict\": \"%s\", \"do\": %s, \"instances\": "
                   "%llu, \"reason\": ",
                   set->name, ki_rule_name(set, r), v->arith ? "true" : "false", ki_rung_names[v->rung],
                   v->does ? "true" : "false", (unsigned long long)v->instances);
    ki_text_quoted(out, v->reason.s ? v->reason.s : "", v->reason.n);
    ki_text_put(out, "}\n");
}
