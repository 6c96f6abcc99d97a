/* meaning.c: what a row means, as a rule whose left side names the operands: tuple(d, a, b, c, i, k, j) => meaning, with those
 * names only that the form has. The text is made from the row and read by the front end of the rules language, so a
 * meaning is checked (dtypes, names, arity) like any rule; it is compiled when asked for, which only the interpreter of INS
 * and the tests do. */
#include "rules/rules.h"
#include "stages/x86/x86.h"

#include <string.h>
#include <strings.h>

kn_dtype ki_x86_dtype(const ki_x86_form *f, unsigned k) {
    const char *s = f->types;
    size_t n = strcspn(s, " ");
    for (; k && s[n]; k--) s += n + 1, n = strcspn(s, " ");
    return ki_dtype_named(s, n);
}

/* The meaning mentions the one-letter name. */
static bool mentions(const char *s, char name) {
    for (const char *p = s; (p = strchr(p, name)); p++) {
        bool left = p == s || !strchr("abcdefghijklmnopqrstuvwxyz_0123456789", p[-1]);
        if (left && !strchr("abcdefghijklmnopqrstuvwxyz_0123456789", p[1] ? p[1] : ' ')) return true;
    }
    return false;
}

unsigned ki_x86_sources(const ki_x86_form *f, char name[8]) {
    unsigned n = 0, operand = f->attr & KI_XA_FLAGS ? 2 : 0;
    if (f->attr & KI_XA_RW) name[n++] = 'd';
    if (f->attr & KI_XA_FLAGS) {
        name[n++] = 'a';
        name[n++] = 'b';
    }
    for (unsigned k = f->attr & KI_XA_READS ? 0 : 1; k < 4 && f->op[k]; k++)
        if (ki_x86_codes[f->op[k]].place != KI_XP_IMM) name[n++] = (char)('a' + operand++);
    for (unsigned k = 0; k < 4 && f->op[k]; k++)
        if (ki_x86_codes[f->op[k]].place == KI_XP_IMM) name[n++] = 'i';
    if (mentions(f->meaning, 'k')) name[n++] = 'k';
    name[n] = 0;
    return n;
}

bool ki_x86_meaning_text(const ki_x86_form *f, ki_text *out) {
    char name[8];
    if (!*f->meaning) return false;
    unsigned n = ki_x86_sources(f, name);
    ki_text_put(out, "meaning : tuple(");
    for (unsigned k = 0; k < n; k++) {
        const char *type = name[k] == 'k'   ? "bool"
                           : name[k] == 'i' ? "i32"
                                            : ki_dtypes[ki_x86_dtype(f, name[k] == 'd' ? 0 : name[k] - 'a' + 1u)].name;
        ki_text_printf(out, "%s%c:%s", k ? ", " : "", name[k], type);
    }
    if (mentions(f->meaning, 'j')) ki_text_printf(out, "%sj:i32", n ? ", " : "");
    ki_text_printf(out, ") => %s @retype @ends(\"an instruction is replaced by what it means\")\n", f->meaning);
    return true;
}

static kn_uop lane_numbers(ki_ir *ir, unsigned lanes) {
    kn_uop number[64];
    if (lanes == 1) return ki_const_int(ir, KN_I32, 0);
    for (unsigned k = 0; k < lanes && k < 64; k++) number[k] = ki_const_int(ir, KN_I32, k);
    return ki_opn(ir, KN_STACK, number, lanes < 64 ? lanes : 64);
}

kn_uop ki_x86_meaning(ki_ir *ir, const ki_x86_form *f, const kn_uop *src, unsigned nsrc, unsigned lanes) {
    ki_text text = {0};
    ki_rules rules = {0};
    kn_uop all[8], out = NULL;
    if (nsrc > 7) return NULL;
    memcpy(all, src, nsrc * sizeof *src);
    if (mentions(f->meaning, 'j')) all[nsrc++] = lane_numbers(ir, lanes);
    ki_text_put(&text, "ruleset x86\n");
    bool has = ki_x86_meaning_text(f, &text);
    if (text.oom) ki_fail(ir->env, KI_E_NOMEM);
    else if (has && ki_rules_load(ir->env, f->name, text.s, text.n, NULL, &rules)) {
        kn_uop root = ki_opn(ir, KN_TUPLE, all, nsrc);
        const ki_ruleset *set = &rules.set[0];
        if (root) out = ki_rewrite_one(ir, root, &(ki_rewrite_opts){.sets = &set, .nsets = 1, .fp = ~0u}, NULL);
    }
    ki_rules_free(&rules);
    ki_text_free(&text);
    return out;
}

static kn_uop refuse(ki_ir *ir, const char *name, const char *why) {
    return ki_fail(ir->env, KI_E_X86_INS, name, why), NULL;
}

kn_uop ki_x86_understand(ki_ir *ir, kn_uop u) {
    const char *name = u->arg.str ? u->arg.str->s : "";
    const ki_x86_form *f = NULL;
    char sources[8];
    for (unsigned k = 0; k < KI_X_COUNT && !f; k++) /* interpreting is slow anyway */
        if (strcasecmp(ki_x86_forms[k].id, name) == 0) f = &ki_x86_forms[k];
    if (!f) return refuse(ir, name, "there is no such row");
    if (!*f->meaning) return refuse(ir, name, "it has no meaning");
    if (ki_x86_sources(f, sources) != u->nsrc) return refuse(ir, name, "it has another number of sources");
    for (unsigned k = 0; k < u->nsrc; k++) {
        char c = sources[k];
        kn_dtype want = c == 'i' ? KN_I32 : c == 'k' ? KN_BOOL : ki_x86_dtype(f, c == 'd' ? 0 : c - 'a' + 1u);
        if (u->src[k]->dtype != want) return refuse(ir, name, "a source has another dtype");
    }
    if (ki_numel(u) > 64) return refuse(ir, name, "no register has so many lanes");
    kn_uop v = ki_x86_meaning(ir, f, u->src, u->nsrc, (unsigned)ki_numel(u));
    if (!v) return ir->env->err ? NULL : refuse(ir, name, "its meaning does not fit the sources");
    if (v->dtype != u->dtype) return refuse(ir, name, "its result has another dtype");
    return ki_same_shape(u, v) ? v : refuse(ir, name, "its result has another shape");
}
