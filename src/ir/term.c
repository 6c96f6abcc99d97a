/* term.c: a node as a short term, for a reader: see program.h. */
#include "ir/program.h"

#include "ir/scalar.h"

enum { SOURCES = 8 };

static void put_constant(ki_text *t, kn_uop u) {
    if (ki_is_float((kn_dtype)u->dtype)) ki_text_printf(t, "%.9g", ki_f64_from_bits((kn_dtype)u->dtype, u->arg.bits));
    else if (u->dtype == KN_BOOL) ki_text_put(t, u->arg.bits ? "true" : "false");
    else ki_text_printf(t, "%lld", (long long)u->arg.i);
}

/* recursion: `levels` deep. */
void ki_term_put(ki_text *t, kn_uop u, unsigned levels) {
    if (u->op == KN_CONST) {
        put_constant(t, u);
        return;
    }
    if (u->op == KN_RANGE) {
        ki_text_printf(t, "r%u", (unsigned)u->arg.range.id);
        return;
    }
    if (ki_is_variable(u) && u->arg.param->len) {
        ki_text_printf(t, "%.*s", (int)u->arg.param->len, u->arg.param->name);
        return;
    }
    if (!levels || (!u->nsrc && u->op != KN_INVALID)) {
        ki_text_printf(t, "%%%u", u->id);
        return;
    }
    ki_text_put(t, u->op == KN_INS ? u->arg.str->s : ki_ops[u->op].name);
    if (u->op == KN_CAST || u->op == KN_BITCAST) ki_text_printf(t, ".%s", ki_dtypes[u->dtype].name);
    if (u->op == KN_REDUCE) ki_text_printf(t, ".%s", ki_ops[u->arg.reduce.op].name);
    ki_text_put(t, "(");
    for (uint32_t k = 0; k < u->nsrc && k < SOURCES; k++) {
        if (k) ki_text_put(t, ", ");
        ki_term_put(t, u->src[k], levels - 1);
    }
    ki_text_put(t, u->nsrc > SOURCES ? ", ...)" : ")");
}
