/* match.c: one rule against one node. No allocation; the first thing that does not fit ends the attempt. */
#include "rules/match.h"

#include <math.h>
#include <string.h>

int64_t ki_arg_field(kn_uop u, ki_field f) {
    switch (f) {
    case KI_F_WHOLE:
    case KI_F_INT:
    case KI_F_INTS:
    case KI_F_STR:
    case KI_F_KERNEL: return u->arg.i;
    case KI_F_REDUCE_OP: return u->arg.reduce.op;
    case KI_F_REDUCE_AXES: return u->arg.reduce.axes;
    case KI_F_RANGE_ID: return u->arg.range.id;
    case KI_F_RANGE_AXIS: return u->arg.range.axis;
    case KI_F_DTYPE: return u->dtype;
    case KI_F_SLOT: return u->arg.param->slot;
    case KI_F_SPACE:
        if (u->op == KN_PARAM) return u->arg.param->addrspace;
        if (u->op == KN_BUFFER) return u->arg.buffer->addrspace;
        return u->arg.load ? u->arg.load->addrspace : -1;
    case KI_F_DEVICE:
        if (u->op == KN_PARAM) return u->arg.param->device;
        if (u->op == KN_BUFFER) return u->arg.buffer->device;
        return u->arg.load ? u->arg.load->device : 0;
    case KI_F_BUFFER_ID: return u->arg.buffer->id;
    case KI_F_BUFFER_SIZE: return u->arg.buffer->size;
    case KI_F_COUNT: break;
    }
    return 0;
}

/* A literal meets a constant of any dtype that has its value; reals meet floats by their bits in that dtype. */
static bool literal_is(const ki_ruleset *set, const ki_term *t, kn_uop k) {
    kn_dtype d = (kn_dtype)k->dtype;
    ki_number x = set->number[t->at];
    if (t->kind == KI_T_BOOL) return d == KN_BOOL && k->arg.i == x.i;
    if (t->kind == KI_T_FLOAT) {
        if (!ki_is_float(d)) return false;
        double v = ki_f64_from_bits(d, k->arg.bits);
        if (isnan(x.f)) return isnan(v);
        if (isinf(x.f)) return v == x.f;
        return k->arg.bits == ki_bits_from_f64(d, x.f);
    }
    if (!ki_is_float(d)) return k->arg.i == x.i && (x.i >= 0 || !ki_is_uint(d));
    return k->arg.bits == ki_bits_from_f64(d, (double)x.i) && ki_f64_from_bits(d, k->arg.bits) == (double)x.i;
}

/* Conditions on the arg of register reg: those against earlier registers, or (late) those against later ones. */
static bool args_fit(const ki_match *m, const ki_ruleset *set, const ki_pat *p, kn_uop u, unsigned reg, bool late) {
    for (unsigned k = 0; k < p->narg; k++) {
        const ki_argcond *c = &set->cond[p->arg + k];
        if ((c->like != KI_NOREG && c->like >= reg) != late) continue;
        if (c->none) {
            if (u->arg.bits) return false;
            continue;
        }
        if (c->text) {
            if (!u->arg.str || strcmp(u->arg.str->s, set->letters + c->at) != 0) return false;
            continue;
        }
        int64_t want;
        if (c->like == KI_NOREG) {
            want = set->number[c->at].i;
        } else {
            kn_uop v = m->reg[c->like];
            if (c->field == KI_F_WHOLE && (v->op != u->op || v->dtype != u->dtype)) return false;
            want = ki_arg_field(v, (ki_field)c->like_field);
        }
        if (ki_arg_field(u, (ki_field)c->field) != want) return false;
    }
    return true;
}

static bool rest_fits(const ki_match *m, const ki_ruleset *set, const ki_rule *r, const ki_rest *s) {
    kn_uop u = m->reg[s->reg];
    uint32_t n = u->nsrc - s->from - s->tail;
    const kn_uop *v = u->src + s->from;
    if (s->same != KI_NOREG) {
        const ki_rest *w = &set->rest[r->rest + s->same];
        kn_uop o = m->reg[w->reg];
        if (o->nsrc - w->from - w->tail != n) return false;
        for (uint32_t k = 0; k < n; k++)
            if (o->src[w->from + k] != v[k]) return false;
    }
    if (s->dtypes)
        for (uint32_t k = 0; k < n; k++)
            if (!(s->dtypes >> v[k]->dtype & 1)) return false;
    if (s->konst)
        for (uint32_t k = 0; k < n; k++)
            if (!ki_peel_const(v[k])) return false;
    return true;
}

KI_HOT bool ki_match_rule(ki_match *m, const ki_ruleset *set, uint32_t rule, uint32_t variant, kn_uop root) {
    const ki_rule *r = &set->rule[rule];
    const ki_pat *p = &set->pat[r->pat];
    for (unsigned k = 0; k < r->npat; k++, p++) {
        kn_uop u = root;
        m->depth = (uint16_t)k;
        if (k) {
            kn_uop parent = m->reg[p->parent];
            uint32_t at = p->src;
            if (p->flags & KI_PF_TAIL) at = parent->nsrc - at;
            else if (p->swap != KI_NOREG) at ^= variant >> p->swap & 1;
            u = parent->src[at];
        }
        switch (p->kind) {
        case KI_P_ANY: break;
        case KI_P_NODE:
            if (p->op != KI_OP_COUNT ? u->op != p->op : !ki_opset_has(&set->opset[p->opset], u->op)) return false;
            if (p->flags & KI_PF_REST ? u->nsrc < p->nsrc : u->nsrc != p->nsrc) return false;
            if (p->narg && !args_fit(m, set, p, u, k, false)) return false;
            break;
        case KI_P_CONST:
        case KI_P_LIT:
            u = ki_peel_const(u);
            if (!u || (p->kind == KI_P_LIT && !literal_is(set, &set->term[p->term], u))) return false;
            break;
        }
        if (p->dtypes && !(p->dtypes >> u->dtype & 1)) return false;
        if (p->same != KI_NOREG && m->reg[p->same] != u) return false;
        m->reg[k] = u;
    }
    m->depth = r->npat;
    m->root = root;
    m->set = set;
    m->rule = r;
    m->variant = variant;
    m->mapped = 0;
    p = &set->pat[r->pat];
    for (unsigned k = 0; k < r->npat && r->flags & KI_RF_LATE; k++)
        if (p[k].narg && !args_fit(m, set, &p[k], m->reg[k], k, true)) return false;
    for (unsigned k = 0; k < r->nrest; k++)
        if (!rest_fits(m, set, r, &set->rest[r->rest + k])) return false;
    if (r->guard && ki_guard(m, r->guard) != 1) return false;
    m->depth++;
    return true;
}

ki_val ki_match_val(const ki_match *m, unsigned name) {
    const ki_rname *n = &m->set->rname[m->rule->rname + name];
    ki_val v = {.kind = KI_V_NONE};
    if (name >= m->rule->nname) return v;
    switch ((ki_nkind)n->kind) {
    case KI_N_NODE: v.kind = KI_V_NODE, v.node = m->reg[n->reg]; break;
    case KI_N_CONST: v.kind = KI_V_SCALAR, v.dtype = m->reg[n->reg]->dtype, v.bits = m->reg[n->reg]->arg.bits; break;
    case KI_N_REST: {
        const ki_rest *s = &m->set->rest[m->rule->rest + n->reg];
        kn_uop u = m->reg[s->reg];
        v.kind = KI_V_NODES, v.n = u->nsrc - s->from - s->tail, v.nodes = u->src + s->from;
        break;
    }
    case KI_N_OP: v.kind = KI_V_OP, v.i = m->reg[n->reg]->op; break;
    case KI_N_GRAD: v.kind = KI_V_NODE, v.node = m->grad; break;
    case KI_N_ARG: {
        static const uint8_t kind[KI_F_COUNT] = {
            [KI_F_WHOLE] = KI_V_WHOLE,     [KI_F_INT] = KI_V_INT,         [KI_F_INTS] = KI_V_INTS,
            [KI_F_REDUCE_OP] = KI_V_OP,    [KI_F_REDUCE_AXES] = KI_V_INT, [KI_F_RANGE_ID] = KI_V_INT,
            [KI_F_RANGE_AXIS] = KI_V_AXIS, [KI_F_DTYPE] = KI_V_DTYPE,     [KI_F_SLOT] = KI_V_INT,
            [KI_F_SPACE] = KI_V_SPACE,     [KI_F_DEVICE] = KI_V_DEVICE,   [KI_F_BUFFER_ID] = KI_V_INT,
            [KI_F_BUFFER_SIZE] = KI_V_INT, [KI_F_STR] = KI_V_STR,         [KI_F_KERNEL] = KI_V_WHOLE,
        };
        kn_uop u = m->reg[n->reg];
        v.kind = kind[n->field];
        if (v.kind == KI_V_WHOLE) v.arg = u->arg, v.dtype = u->dtype, v.op = u->op;
        else if (v.kind == KI_V_INTS) v.ints = u->arg.ints;
        else if (v.kind == KI_V_STR) v.str = u->arg.str;
        else v.i = ki_arg_field(u, (ki_field)n->field);
        break;
    }
    }
    return v;
}

kn_uop ki_match_node(const ki_match *m, unsigned name) {
    const ki_rname *n = &m->set->rname[m->rule->rname + name];
    if (name >= m->rule->nname) return NULL;
    if (n->kind == KI_N_GRAD) return m->grad;
    return n->kind == KI_N_NODE || n->kind == KI_N_CONST ? m->reg[n->reg] : NULL;
}

const kn_uop *ki_match_rest(const ki_match *m, unsigned name, uint32_t *n) {
    ki_val v = ki_match_val(m, name);
    *n = v.kind == KI_V_NODES ? v.n : 0;
    return v.kind == KI_V_NODES ? v.nodes : NULL;
}
