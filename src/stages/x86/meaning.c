/* meaning.c: what a row means, as a rule whose left side names the operands: tuple(d, a, b, c, i, k, j) => meaning, with those
 * names only that the form has. The text is made from the row and read by the front end of the rules language, so a
 * meaning is checked (dtypes, names, arity) like any rule; it is compiled when asked for, which only the interpreter of INS
 * and the tests do. */
#include "rules/rules.h"
#include "stages/x86/x86.h"

#include <stdatomic.h>
#include <string.h>

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

/* Bit by bit: the row knows no width of lanes. Masks are such lanes of bool too. */
static bool bitwise(const ki_x86_form *f) {
    const char *m = f->meaning;
    return *m && (m[strspn(m, "abd&|^!() ")] == 0 || strncmp(f->id, "VPTERNLOG", 9) == 0) && strpbrk(m, "&|^!");
}
static bool on_masks(const ki_x86_form *f) { return ki_x86_codes[f->op[0]].size == 'k'; }

/* Lanes are chosen, not computed: any dtype of their width. */
static bool moves(const ki_x86_form *f) {
    return strcmp(f->meaning, "where(k, b, a)") == 0 || strcmp(f->meaning, "where(c < 0, b, a)") == 0;
}

/* The lanes a row has where an instruction's are of dtype t: KI_DTYPE_COUNT, its own. */
static kn_dtype lanes_for(const ki_x86_form *f, kn_dtype t) {
    static const uint8_t words[] = {KN_U8, KN_U16, KN_U32, KN_U64};
    if (moves(f) && t != KI_DTYPE_COUNT && ki_dtypes[t].bits == ki_dtypes[ki_x86_dtype(f, 0)].bits && t != KN_BOOL)
        return t;
    if (!bitwise(f) || t == KI_DTYPE_COUNT || t == KN_VOID || t == KN_IDX) return KI_DTYPE_COUNT;
    if (t == KN_BOOL || on_masks(f)) return t == KN_BOOL && on_masks(f) ? KN_BOOL : KI_DTYPE_COUNT;
    for (unsigned k = 0; k < 4; k++)
        if (ki_dtypes[words[k]].bits == ki_dtypes[t].bits) return (kn_dtype)words[k];
    return KI_DTYPE_COUNT;
}

/* dtype of a source by its name ('r': of the result). */
static kn_dtype dtype_in(const ki_x86_form *f, char name, kn_dtype lanes) {
    if (name == 'i' || name == 'j') return KN_I32;
    if (name == 'k') return KN_BOOL;
    if (name == 'c' && moves(f)) return ki_x86_dtype(f, 3); /* its sign chooses */
    if (lanes != KI_DTYPE_COUNT) return lanes;
    return ki_x86_dtype(f, name == 'd' || name == 'r' ? 0 : name - 'a' + 1u);
}

static bool meaning_text(const ki_x86_form *f, kn_dtype lanes, ki_text *out) {
    char name[9];
    if (!*f->meaning) return false;
    unsigned n = ki_x86_sources(f, name);
    if (mentions(f->meaning, 'j')) name[n++] = 'j';
    ki_text_put(out, "meaning : tuple(");
    for (unsigned k = 0; k < n; k++)
        ki_text_printf(out, "%s%c:%s", k ? ", " : "", name[k], ki_dtypes[dtype_in(f, name[k], lanes)].name);
    ki_text_printf(out, ") => %s @retype @ends(\"an instruction is replaced by what it means\")\n", f->meaning);
    return true;
}

bool ki_x86_meaning_text(const ki_x86_form *f, ki_text *out) { return meaning_text(f, KI_DTYPE_COUNT, out); }

bool ki_x86_ins_meaning(const char *row, kn_dtype lanes, ki_text *out, kn_dtype *result) {
    const ki_x86_form *f = ki_x86_row(row);
    if (!f) return false;
    lanes = lanes_for(f, lanes);
    *result = dtype_in(f, 'r', lanes);
    return meaning_text(f, lanes, out);
}

/* ---- rules kept: a meaning is compiled once in a process ---------------------------------------------------------- */

enum { KINDS = 1 + KI_DTYPE_COUNT };
static _Atomic(const ki_rules *) kept[KI_X_COUNT][KINDS];

static const ki_rules *rules_of(ki_env *env, const ki_x86_form *f, kn_dtype lanes) {
    _Atomic(const ki_rules *) *place = &kept[f - ki_x86_forms][lanes == KI_DTYPE_COUNT ? 0 : lanes + 1];
    const ki_rules *known = atomic_load(place);
    if (known) return known;
    ki_text text = {0};
    ki_rules *made = ki_calloc(1, sizeof *made);
    ki_text_put(&text, "ruleset x86\n");
    bool has = meaning_text(f, lanes, &text), ok = made && !text.oom;
    if (!ok) ki_fail(env, KI_E_NOMEM);
    ok = ok && has && ki_rules_load(env, f->name, text.s, text.n, NULL, made);
    ki_text_free(&text);
    if (ok && atomic_compare_exchange_strong(place, &known, made)) return made;
    if (made) ki_rules_free(made); /* no rules, or another thread was faster */
    ki_free(made);
    return ok ? known : NULL;
}

static kn_uop lane_numbers(ki_ir *ir, unsigned lanes) {
    kn_uop number[64];
    if (lanes == 1) return ki_const_int(ir, KN_I32, 0);
    for (unsigned k = 0; k < lanes && k < 64; k++) number[k] = ki_const_int(ir, KN_I32, k);
    return ki_opn(ir, KN_STACK, number, lanes < 64 ? lanes : 64);
}

/* mask: NULL, or the lanes that change; the others keep the old value, src[0], those of a mask are 0. */
static kn_uop meaning(ki_ir *ir, const ki_x86_form *f, kn_dtype dtype, const kn_uop *src, unsigned nsrc, kn_uop mask,
                      unsigned lanes) {
    kn_uop all[8];
    if (nsrc > 7) return NULL;
    const ki_rules *rules = rules_of(ir->env, f, dtype);
    if (!rules) return NULL;
    memcpy(all, src, nsrc * sizeof *src);
    if (mentions(f->meaning, 'j')) all[nsrc++] = lane_numbers(ir, lanes);
    kn_uop root = ki_opn(ir, KN_TUPLE, all, nsrc);
    const ki_ruleset *set = &rules->set[0];
    kn_uop v = root ? ki_rewrite_one(ir, root, &(ki_rewrite_opts){.sets = &set, .nsets = 1, .fp = ~0u}, NULL) : NULL;
    if (v && mask && on_masks(f)) return ki_op2(ir, KN_AND, mask, v);
    return v && mask ? ki_op3(ir, KN_WHERE, mask, v, src[0]) : v;
}

kn_uop ki_x86_meaning(ki_ir *ir, const ki_x86_form *f, const kn_uop *src, unsigned nsrc, unsigned lanes) {
    return meaning(ir, f, KI_DTYPE_COUNT, src, nsrc, NULL, lanes);
}

static kn_uop refuse(ki_ir *ir, const char *name, const char *why) {
    return ki_fail(ir->env, KI_E_X86_INS, name, why), NULL;
}

/* u read with dtype t of its width: registers know none. NULL: it has another width. side: of a tile's lanes, (256,) of 32 bits, what
 * its meaning has, (16, 16), or of narrower t (16, 16, n); -1: back from there. */
static kn_uop bits_as(ki_ir *ir, kn_uop u, kn_dtype t, int64_t side) {
    int64_t all = 256, dim[3] = {side, side, side ? 4 / (int64_t)ki_itemsize(t) : 0};
    if (side < 0) return ki_reshape(ir, u, &all, 1);
    if (side && ki_rank(u) == 1) return ki_reshape(ir, ki_bitcast(ir, u, t), dim, dim[2] > 1 ? 3 : 2);
    if (u->dtype == t) return u;
    if (u->dtype == KN_BOOL || t == KN_BOOL || u->dtype == KN_IDX || ki_dtypes[u->dtype].bits != ki_dtypes[t].bits)
        return NULL;
    return ki_bitcast(ir, u, t);
}

kn_uop ki_x86_understand(ki_ir *ir, kn_uop u) {
    const char *name = u->arg.str ? u->arg.str->s : "";
    const ki_x86_form *f = ki_x86_row(name);
    char sources[9];
    kn_uop src[8];
    if (!f) return refuse(ir, name, "there is no such row");
    if (!*f->meaning) return refuse(ir, name, "it has no meaning");
    unsigned n = ki_x86_sources(f, sources);
    bool masked = u->nsrc == n + 1 && (sources[0] == 'd' || on_masks(f)) && f->attr & KI_XA_MASK;
    if (n + masked != u->nsrc) return refuse(ir, name, "it has another number of sources");
    if (masked && u->src[n]->dtype != KN_BOOL) return refuse(ir, name, "a source has another dtype");
    kn_dtype lanes = lanes_for(f, (kn_dtype)u->dtype);
    bool tile = f->port == KI_XR_TILE;
    for (unsigned k = 0; k < n; k++)
        if (!(src[k] = bits_as(ir, u->src[k], dtype_in(f, sources[k], lanes), tile ? 16 : 0)))
            return ir->env->err ? NULL : refuse(ir, name, "a source has another dtype");
    bool numbered =
        mentions(f->meaning, 'j') && ki_numel(u) > 64; /* lane by lane it may have more, until select parts them */
    if (numbered && !tile) return refuse(ir, name, "no register has so many lanes");
    kn_uop v = meaning(ir, f, lanes, src, n, masked ? u->src[n] : NULL, (unsigned)ki_numel(u));
    if (!v) return ir->env->err ? NULL : refuse(ir, name, "its meaning does not fit the sources");
    if (!(v = bits_as(ir, v, (kn_dtype)u->dtype, tile && ki_rank(u) == 1 ? -1 : 0)))
        return ir->env->err ? NULL : refuse(ir, name, "its result has another dtype");
    return ki_same_shape(u, v) ? v : refuse(ir, name, "its result has another shape");
}
