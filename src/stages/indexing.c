/* indexing.c: arithmetic on elements of index tuples. See indexing.h. */
#include "stages/indexing.h"

bool ki_depends(ki_ir *ir, kn_uop x, kn_uop r) {
    if (x->id < r->id) return false;
    kn_uop *order;
    int64_t n = ki_toposort_above(ir, &x, 1, r->id - 1, &order);
    bool found = false;
    for (int64_t i = 0; i < n; i++) found |= order[i] == r;
    ki_free(order);
    return found;
}

ki_element ki_element_of(kn_uop u) {
    if (u && u->op == KN_WHERE && u->src[2]->op == KN_INVALID) return (ki_element){u->src[1], u->src[0]};
    return (ki_element){u, NULL};
}

kn_uop ki_element_uop(ki_ir *ir, ki_element e) {
    if (!e.valid || !e.x || ki_is_const_int(e.valid, 1)) return e.x;
    return ki_op3(ir, KN_WHERE, e.valid, e.x, ki_op0(ir, KN_INVALID));
}

kn_uop ki_and(ki_ir *ir, kn_uop a, kn_uop b) {
    if (!a || a == b) return b;
    if (!b) return a;
    return ki_op2(ir, KN_AND, a, b);
}

kn_uop ki_element_if(ki_ir *ir, kn_uop c, kn_uop index) {
    ki_element e = ki_element_of(index);
    return ki_element_uop(ir, (ki_element){e.x, ki_and(ir, e.valid, c)});
}

kn_uop ki_index_add(ki_ir *ir, kn_uop a, kn_uop b) {
    int64_t v;
    if (!a || !b) return NULL;
    if (ki_is_const_int(a, 0)) return b;
    if (ki_is_const_int(b, 0)) return a;
    if (ki_is_const(a) && ki_is_const(b) && !ki_add_overflow(a->arg.i, b->arg.i, &v)) return ki_index(ir, v);
    return ki_op2(ir, KN_ADD, a, b);
}

kn_uop ki_index_mul(ki_ir *ir, kn_uop a, kn_uop b) {
    int64_t v;
    if (!a || !b) return NULL;
    if (ki_is_const_int(a, 1)) return b;
    if (ki_is_const_int(b, 1)) return a;
    if (ki_is_const_int(a, 0)) return a;
    if (ki_is_const_int(b, 0)) return b;
    if (ki_is_const(a) && ki_is_const(b) && !ki_mul_overflow(a->arg.i, b->arg.i, &v)) return ki_index(ir, v);
    return ki_op2(ir, KN_MUL, a, b);
}

kn_uop ki_index_extreme(ki_ir *ir, kn_uop a, kn_uop b, int sign) {
    kn_uop by = ki_index(ir, sign);
    if (!a || !b) return a ? a : b;
    return ki_index_mul(ir, ki_op2(ir, KN_MAX, ki_index_mul(ir, a, by), ki_index_mul(ir, b, by)), by);
}

kn_uop ki_dim_uop(ki_ir *ir, ki_dim d) { return d.sym ? d.sym : ki_index(ir, d.n); }

/* Position in axes [from, to) of a shape. Σ i·stride, outermost first, rather than Horner's nested form: so the simplifier writes
 * sums, and finds this one done. */
static ki_element linear(ki_ir *ir, const ki_type *shape, const kn_uop *i, unsigned from, unsigned to) {
    ki_element e = {ki_index(ir, 0), NULL};
    kn_uop stride[KI_MAX_RANK], next = ki_index(ir, 1);
    for (unsigned k = to; k-- > from;) {
        e.valid = ki_and(ir, e.valid, ki_element_of(i[k]).valid);
        stride[k] = next;
        if (k > from) next = ki_index_mul(ir, next, ki_dim_uop(ir, shape->dim[k]));
    }
    for (unsigned k = from; k < to; k++)
        e.x = ki_index_add(ir, e.x, ki_index_mul(ir, ki_element_of(i[k]).x, stride[k]));
    return e;
}

ki_element ki_linear_index(ki_ir *ir, const ki_type *shape, const kn_uop *i) {
    return linear(ir, shape, i, 0, shape->rank);
}

/* Splits a position into axes [from, to) of a shape, last axis fastest. */
static bool split(ki_ir *ir, ki_element e, const ki_type *shape, unsigned from, unsigned to, kn_uop *out) {
    kn_uop rest = e.x;
    for (unsigned k = to; k-- > from;) {
        kn_uop n = ki_dim_uop(ir, shape->dim[k]);
        bool last = true; /* no axis above k has more than one element */
        for (unsigned j = from; j < k; j++) last &= ki_is_one(shape->dim[j]);
        kn_uop x = ki_is_one(shape->dim[k]) ? ki_index(ir, 0) : last ? rest : ki_op2(ir, KN_MOD, rest, n);
        if (!ki_is_one(shape->dim[k]) && !last) rest = ki_op2(ir, KN_IDIV, rest, n);
        out[k] = ki_element_uop(ir, (ki_element){x, e.valid});
        if (!out[k]) return false;
    }
    return true;
}

bool ki_reshape_index(ki_ir *ir, const ki_type *from, const kn_uop *i, const ki_type *to, kn_uop *out) {
    /* Walk both shapes from the left in the smallest groups of axes with equal products; a group of one axis
     * on each side needs no arithmetic. */
    unsigned a = 0, b = 0;
    while (a < from->rank || b < to->rank) {
        if (a < from->rank && ki_is_one(from->dim[a]) && !(b < to->rank && ki_is_one(to->dim[b]))) {
            a++;
            continue;
        }
        if (b < to->rank && ki_is_one(to->dim[b]) && !(a < from->rank && ki_is_one(from->dim[a]))) {
            out[b++] = ki_index(ir, 0);
            continue;
        }
        if (a < from->rank && b < to->rank && ki_same_dim(from->dim[a], to->dim[b])) {
            out[b++] = i[a++];
            continue;
        }
        unsigned a0 = a, b0 = b;
        int64_t pa = 1, pb = 1;
        bool symbolic = false;
        do {
            if ((pa <= pb || b >= to->rank) && a < from->rank)
                symbolic |= from->dim[a].sym != NULL, pa *= from->dim[a++].n;
            else if (b < to->rank) symbolic |= to->dim[b].sym != NULL, pb *= to->dim[b++].n;
            else break;
        } while (pa != pb || symbolic);
        if (!split(ir, linear(ir, from, i, a0, a), to, b0, b, out)) return false;
    }
    return true;
}
