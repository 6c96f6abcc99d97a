/* flatten.c: a sum of sums is one sum: REDUCE(add, where(p, REDUCE(add, x, s), 0), r) is REDUCE(add, where(p, x, 0), r, s).
 *
 * Nested loops with an accumulator each are what padding leaves of a convolution's gradient; one loop nest has one
 * accumulator, which may be a register tile. Only a REDUCE with one user is opened, and only if it varies along all of the
 * outer loops: else it would be done again for each. `+ 0.0`, which turns -0 to +0, moves outside. Not an OptOp: every form of the kernel starts here. */
#include "stages/3_optimize/nest.h"

#include <string.h>

#define MOST_RANGES 32

typedef struct opened { /* what is inside a REDUCE's value */
    kn_uop inner;       /* the REDUCE */
    kn_uop when[8];     /* conditions around it */
    uint32_t nwhen;
    bool plus_zero;
    bool signless; /* nobody sees the sign of a zero: what is left out adds -0.0, which changes no running sum */
} opened;

static bool is_zero(kn_uop u) { return u->op == KN_CONST && (u->arg.bits == 0); }

static bool adds_zero(kn_uop u) {
    return u->op == KN_ADD && ki_is_float((kn_dtype)u->dtype) && is_zero(u->src[1]) && u->src[0] != u->src[1];
}

static bool leaves_out(kn_uop u, const opened *o) {
    return u->op == KN_WHERE && (is_zero(u->src[2]) || (o->signless && ki_is_minus_zero(u->src[2])));
}

static bool varies_in_all(const ki_scope *s, kn_uop inner, kn_uop outer) {
    for (uint32_t j = 1; j < outer->nsrc; j++)
        if (!ki_scope_has(s, inner, outer->src[j])) return false;
    return true;
}

/* Follows where(p, ., 0) and . + 0 down to a sum that only this chain uses. */
static bool open_value(kn_uop u, const uint32_t *users, const ki_scope *s, bool signless, opened *o) {
    *o = (opened){.signless = signless};
    for (; users[s->at[u->id]] == 1; u = u->op == KN_WHERE ? u->src[1] : u->src[0]) {
        if (u->op == KN_REDUCE && u->arg.reduce.op == KN_ADD && u->nsrc > 1 && !u->arg.reduce.axes)
            return (o->inner = u) != NULL;
        if (leaves_out(u, o) && o->nwhen < 8) o->when[o->nwhen++] = u->src[0];
        else if (adds_zero(u)) o->plus_zero = true;
        else return false;
    }
    return false;
}

/* Whether the conjunction p says everything that q says. */
static bool implies(kn_uop p, kn_uop q) {
    kn_uop stack[64], parts[64];
    uint32_t n = 0, m = 0;
    stack[n++] = p;
    while (n && m < 64) {
        kn_uop u = stack[--n];
        if (u->op == KN_AND && n + 2 <= 64) stack[n++] = u->src[0], stack[n++] = u->src[1];
        else parts[m++] = u;
    }
    stack[0] = q;
    for (n = 1; n;) {
        kn_uop u = stack[--n];
        bool found = false;
        for (uint32_t i = 0; i < m && !found; i++) found = parts[i] == u;
        if (found) continue;
        if (u->op != KN_AND || n + 2 > 64) return false;
        stack[n++] = u->src[0], stack[n++] = u->src[1];
    }
    return true;
}

/* where(p, x, 0), with what x is under already. */
static kn_uop under(ki_ir *ir, kn_uop p, kn_uop x, const opened *o) {
    kn_dtype t = (kn_dtype)x->dtype;
    bool minus = o->signless && ki_is_float(t);
    kn_uop zero = minus ? ki_const_bits(ir, t, ki_bits_from_f64(t, -0.0)) : ki_const_int(ir, t, 0);
    if (!leaves_out(x, o)) return ki_op3(ir, KN_WHERE, p, x, zero);
    if (implies(x->src[0], p)) return x;
    return ki_op3(ir, KN_WHERE, ki_op2(ir, KN_AND, x->src[0], p), x->src[1], zero);
}

/* Loops that the value's condition depends on go outside the others, so that it is decided once for all of these. */
static bool condition_first(ki_ir *ir, kn_uop *src, uint32_t n) {
    kn_uop sorted[MOST_RANGES + 1], *node;
    uint32_t m = 1;
    if (src[0]->op != KN_WHERE) return true;
    int64_t count = ki_toposort(ir, &src[0]->src[0], 1, &node);
    for (int pass = 0; pass < 2 && count >= 0; pass++)
        for (uint32_t i = 1; i < n; i++) {
            bool in = false;
            for (int64_t j = 0; j < count && !in; j++) in = node[j] == src[i];
            if (in == !pass) sorted[m++] = src[i];
        }
    ki_free(node);
    if (count >= 0) memcpy(src + 1, sorted + 1, (n - 1) * sizeof *src);
    return count >= 0;
}

static kn_uop join(ki_ir *ir, kn_uop u, const opened *o) {
    kn_uop src[MOST_RANGES + 1];
    uint32_t n = 1;
    if (u->nsrc + o->inner->nsrc > MOST_RANGES) return u;
    src[0] = o->inner->src[0];
    for (uint32_t i = 0; i < o->nwhen && src[0]; i++) src[0] = under(ir, o->when[i], src[0], o);
    for (uint32_t i = 1; i < u->nsrc; i++) src[n++] = u->src[i];
    for (uint32_t i = 1; i < o->inner->nsrc; i++) src[n++] = o->inner->src[i];
    if (src[0] && !condition_first(ir, src, n)) return NULL;
    kn_uop sum = ki_with_srcs(ir, u, src, n);
    return o->plus_zero && !o->signless && sum ? ki_op2(ir, KN_ADD, sum, ki_const_int(ir, (kn_dtype)u->dtype, 0)) : sum;
}

kn_uop ki_flatten_sums(ki_ir *ir, kn_uop sink) {
    for (bool again = true; again && sink;) {
        ki_scope s;
        uint32_t *users = NULL, *signless = NULL; /* of users, those that add +0.0 */
        again = false;
        bool ok = ki_scope_open(&s, ir, sink) && (users = ki_calloc(s.n, sizeof *users)) &&
                  (signless = ki_calloc(s.n, sizeof *signless));
        for (uint32_t i = 0; ok && i < s.n; i++)
            for (uint32_t j = 0; j < s.node[i]->nsrc; j++) {
                uint32_t at = s.at[s.node[i]->src[j]->id];
                users[at]++;
                signless[at] += j == 0 && adds_zero(s.node[i]);
            }
        for (uint32_t i = s.n; ok && i-- > 0 && !again;) {
            kn_uop u = s.node[i], joined;
            opened o;
            if (u->op != KN_REDUCE || u->arg.reduce.op != KN_ADD || u->nsrc < 2 || u->arg.reduce.axes) continue;
            if (!open_value(u->src[0], users, &s, users[i] && signless[i] == users[i], &o) ||
                !varies_in_all(&s, o.inner, u) || (joined = join(ir, u, &o)) == u)
                continue;
            again = true;
            sink = joined ? ki_substitute(ir, sink, &u, &joined, 1) : NULL;
        }
        ki_free(users);
        ki_free(signless);
        ki_scope_close(&s);
        if (!ok) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    }
    return sink;
}
