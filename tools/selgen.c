/* selgen: the table of instructions read backwards. selgen OUT.kr writes a rule for each packed row whose meaning is one op
 * of the dialect: `vaddps_f32 : x:f32 + y => ins(x, y; "VADDPS", f32)`, in one rule set a level of x86-64, with the rows the
 * level has in the encoding it uses (SSE, VEX, EVEX) and no lower one already. Where two rows serve, the one of lower latency is taken, then the
 * first of the table; bits of integers do not go through the rows for floats (andps). Run by the build; krc reads it. */
#include "stages/x86/x86.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512, SETS = 4 };
static struct {
    char left[96], rule[256];
    unsigned lat;
} rules[MOST];
static unsigned nrules;

/* Those that have rows the level before them has not: dot products and tiles are no one op (3_optimize/dots.c). */
static const uint8_t levels[SETS] = {KI_CPU_SSE2_LEVEL, KI_CPU_AVX2_LEVEL, KI_CPU_AVX512_LEVEL, KI_CPU_FP16_LEVEL},
                     encs[SETS] = {KI_XE_SSE, KI_XE_VEX, KI_XE_EVEX, KI_XE_EVEX};

static const uint8_t ints[] = {KN_I8, KN_U8, KN_I16, KN_U16, KN_I32, KN_U32, KN_I64, KN_U64};
enum { INTS = sizeof ints };

static void put(const ki_x86_form *f, const char *left, const char *sources, kn_dtype to, const char *suffix,
                const char *guard) {
    unsigned k = 0;
    while (k < nrules && strcmp(rules[k].left, left) != 0) k++;
    if (k == MOST || (k < nrules && rules[k].lat <= f->lat)) return;
    char name[64];
    bool infix = strchr(left, ' ') && !strchr(left, '(');
    snprintf(name, sizeof name, "%s_%s", f->id, suffix);
    for (char *s = name; *s; s++)
        if (*s >= 'A' && *s <= 'Z') *s = (char)(*s + 32);
    snprintf(rules[k].left, sizeof rules[k].left, "%s", left);
    bool sign = to == KN_BOOL && ki_x86_codes[f->op[0]].size != 'k'; /* truth as the sign of a lane */
    snprintf(rules[k].rule, sizeof rules[k].rule,
             "%-16s : %s => ins(%s; \"%s\", %s)%s%s @ends(\"one instruction\")%s\n", name, left, sources, f->id,
             ki_dtypes[sign ? ki_x86_dtype(f, 0) : to].name, sign ? " < 0" : "", guard, infix ? " @ordered" : "");
    rules[k].lat = f->lat;
    if (k == nrules) nrules++;
}

/* Packed, without a mask among its operands, at every length of the level; an immediate may be the last operand. */
static bool serves(const ki_x86_form *f, unsigned set) {
    static const uint8_t longest[SETS] = {0, 1, 2, 2};
    unsigned lens = (1u << (longest[set] + 1)) - 1;
    if (!(f->enc & encs[set]) || (f->lens & lens) != lens || f->attr & (KI_XA_READS | KI_XA_FLAGS)) return false;
    for (unsigned len = 0; len <= longest[set]; len++)
        if (ki_x86_needs(f, encs[set], len) & ~ki_cpu_level_core(levels[set])) return false;
    for (unsigned k = 0; k < 4 && f->op[k]; k++) {
        const ki_x86_code_info *c = &ki_x86_codes[f->op[k]];
        if (c->place == KI_XP_IMM && (k == 3 || !f->op[k + 1])) continue;
        if (c->place == KI_XP_MEM || c->place == KI_XP_VSIB) return false;
        if (!strchr("xhne", c->size) && !(k == 0 && c->size == 'k')) return false;
    }
    return *f->meaning;
}

static bool is(const char *a, const char *b) { return strcmp(a, b) == 0; }
static bool starts(const char *a, const char *b) { return strncmp(a, b, strlen(b)) == 0; }
static unsigned bits(kn_dtype t) { return ki_dtypes[t].bits; }

/* Which dtypes of the width of t an op takes in a row of dtype t. */
typedef enum which { EXACT, ANY_SIGN, TO_32, ANY_WIDTH } which;
static bool takes(which w, kn_dtype t, kn_dtype d) {
    if (w == EXACT || ki_is_float(t) || ki_is_float(d)) return d == t;
    return bits(d) == bits(t) || w == ANY_WIDTH || (w == TO_32 && bits(d) < 64);
}

/* x op y for all dtypes the row serves. */
static void infix(const ki_x86_form *f, const char *op, which w, const char *sources, bool compares,
                  const char *guard) {
    kn_dtype t = ki_x86_dtype(f, compares ? 1 : 0);
    static const char *const words[][2] = {{"<", "lt"},  {"<=", "le"}, {">", "gt"},
                                           {">=", "ge"}, {"!=", "ne"}, {"==", "eq"}};
    const char *word = "";
    for (unsigned k = 0; k < 6; k++)
        if (is(op, words[k][0])) word = words[k][1];
    for (unsigned k = 0; k <= INTS; k++) {
        kn_dtype d = k == INTS ? t : (kn_dtype)ints[k];
        char left[96], suffix[32];
        if (!takes(w, t, d) || (k == INTS && ki_is_int(t))) continue;
        snprintf(left, sizeof left, "x:%s %s %s", ki_dtypes[d].name, op, strchr(guard, 'c') ? "#c" : "y");
        snprintf(suffix, sizeof suffix, "%s%s%s", word, *word ? "_" : "", ki_dtypes[d].name);
        put(f, left, sources, compares ? KN_BOOL : d, suffix, guard);
    }
}

/* a op b, whatever the order of latencies: bits of integers stay in rows for integers. */
static void two(const ki_x86_form *f, const char *op) {
    bool logic = strchr("&|^", *op) && !op[1], signless = strchr("+-*", *op) || is(op, "==");
    const char *end = f->name + strlen(f->name) - 2;
    if (logic && (is(end, "ps") || is(end, "pd"))) return;
    infix(f, op,
          logic      ? (!(f->enc & KI_XE_EVEX)           ? ANY_WIDTH
                        : bits(ki_x86_dtype(f, 0)) == 64 ? ANY_SIGN
                                                         : TO_32)
          : signless ? ANY_SIGN
                     : EXACT,
          "x, y", ki_x86_dtype(f, 0) == KN_BOOL, "");
}

/* Rows whose immediate says what they compare. */
static void compare(const ki_x86_form *f) {
    static const char *const floats[][2] = {{"==", "x, y, 0:i32"}, {"<", "x, y, 1:i32"}, {"<=", "x, y, 2:i32"},
                                            {"!=", "x, y, 4:i32"}, {">", "y, x, 1:i32"}, {">=", "y, x, 2:i32"}};
    static const char *const words[][2] = {{"==", "x, y, 0:i32"}, {"<", "x, y, 1:i32"},  {"<=", "x, y, 2:i32"},
                                           {"!=", "x, y, 4:i32"}, {">=", "x, y, 5:i32"}, {">", "x, y, 6:i32"}};
    const char *m = f->meaning;
    if (starts(m, "-cast(a == b; ")) infix(f, "==", ANY_SIGN, "x, y", true, "");
    if (starts(m, "-cast(a > b; ")) {
        infix(f, ">", EXACT, "x, y", true, "");
        infix(f, "<", EXACT, "y, x", true, " if !zero(y)"); /* x < 0 says itself */
    }
    if (starts(m, "-cast(")) m += strlen("-cast(");
    bool real = starts(m, "where(i == 0, a == b, where(i == 1, a < b");
    if (!real && !starts(m, "where(i & 7 == 0, a == b, where(i & 7 == 1, a < b")) return;
    for (unsigned k = 0; k < 6; k++)
        infix(f, real ? floats[k][0] : words[k][0], EXACT, real ? floats[k][1] : words[k][1], true, "");
}

/* Shifts: counts beyond the width give zeros or the sign in rows and dialect alike. */
static void shift(const ki_x86_form *f) {
    const char *m = f->meaning;
    char guard[32];
    snprintf(guard, sizeof guard, " if 0 <= c && c < %u", bits(ki_x86_dtype(f, 0)));
    if (starts(m, "a << cast(i & 255;")) infix(f, "<<", ANY_SIGN, "x, [cast(c; i32)]:i32", false, guard);
    if (starts(m, "a >> cast(i & 255;") || is(m, "a >> (i & 255)"))
        infix(f, ">>", EXACT, "x, [cast(c; i32)]:i32", false, guard);
    const char *end = strchr(m, ')');
    if (starts(m, "where(b > ") && strstr(m, ", 0, a << b)") && end && !end[1])
        infix(f, "<<", ANY_SIGN, "x, y", false, "");
    if (starts(m, "where(b > ") && strstr(m, ", 0, a >> b)") && end && !end[1])
        infix(f, ">>", EXACT, "x, y", false, "");
    if (starts(m, "where((b < 0) | (b > ") && strstr(m, "), a >> ")) infix(f, ">>", EXACT, "x, y", false, "");
}

/* A sign chooses. */
static void blend_sign(const ki_x86_form *f) {
    kn_dtype t = ki_x86_dtype(f, 0), sign = ki_x86_dtype(f, 3);
    char left[96];
    for (unsigned k = 0; k <= INTS; k++) {
        kn_dtype d = k < INTS ? (kn_dtype)ints[k] : t;
        if (bits(d) != bits(t) || (k == INTS && ki_is_int(t))) continue;
        snprintf(left, sizeof left, "where(m:%s < 0, x:%s, y)", ki_dtypes[sign].name, ki_dtypes[d].name);
        put(f, left, "y, x, m", d, ki_dtypes[d].name, "");
    }
}

/* A mask chooses. Small floats are words here. */
static void blend(const ki_x86_form *f) {
    static const uint8_t small[] = {KN_F16, KN_BF16, KN_F8E4M3, KN_F8E5M2};
    kn_dtype t = ki_x86_dtype(f, 0);
    char left[96];
    for (unsigned k = 0; k < INTS + sizeof small + 1; k++) {
        kn_dtype d = k < INTS ? (kn_dtype)ints[k] : k < INTS + sizeof small ? (kn_dtype)small[k - INTS] : t;
        if (bits(d) != bits(t) || (ki_is_float(t) && d != t) || (k == INTS + sizeof small && ki_is_int(t))) continue;
        snprintf(left, sizeof left, "where(k, x:%s, y)", ki_dtypes[d].name);
        put(f, left, "y, x, k", d, ki_dtypes[d].name, "");
    }
}

/* cast(a; to): widths are extended as the source's sign says, cut off whatever the signs. */
static void cast(const ki_x86_form *f) {
    kn_dtype to = ki_x86_dtype(f, 0), from = ki_x86_dtype(f, 1);
    bool whole = ki_is_int(to) && ki_is_int(from), cut = whole && bits(to) < bits(from);
    char left[96], suffix[32];
    if (from == KN_BOOL || to == KN_BOOL) return;
    for (unsigned j = 0; j < INTS + 1u; j++)
        for (unsigned k = 0; k < INTS + 1u; k++) {
            kn_dtype a = j == INTS ? from : (kn_dtype)ints[j], b = k == INTS ? to : (kn_dtype)ints[k];
            if ((j == INTS) == ki_is_int(from) || (k == INTS) == ki_is_int(to)) continue;
            if (bits(a) != bits(from) || bits(b) != bits(to) || (!cut && a != from) || (!whole && b != to)) continue;
            snprintf(left, sizeof left, "cast(x:%s; %s)", ki_dtypes[a].name, ki_dtypes[b].name);
            snprintf(suffix, sizeof suffix, "%s_%s", ki_dtypes[a].name, ki_dtypes[b].name);
            put(f, left, "x", b, suffix, "");
        }
}

static void row(const ki_x86_form *f) {
    static const char *const ops[] = {"+", "-", "*", "/", "&", "|", "^", "==", ">"};
    const char *m = f->meaning;
    kn_dtype t = ki_x86_dtype(f, 0);
    char text[32], left[96];
    shift(f);
    compare(f);
    for (unsigned k = 0; k < 4 && f->op[k]; k++)
        if (ki_x86_codes[f->op[k]].place == KI_XP_IMM) return; /* no other op has one */
    if (is(m, "where(k, b, a)")) blend(f);
    if (is(m, "where(c < 0, b, a)")) blend_sign(f);
    for (unsigned k = 0; k < sizeof ops / sizeof *ops; k++) {
        snprintf(text, sizeof text, "a %s b", ops[k]);
        if (is(m, text)) two(f, ops[k]);
    }
    snprintf(text, sizeof text, "cast(a; %s)", ki_dtypes[t].name);
    if (is(m, text)) cast(f);
    if (is(m, "sqrt(a)"))
        snprintf(left, sizeof left, "sqrt(x:%s)", ki_dtypes[t].name), put(f, left, "x", t, ki_dtypes[t].name, "");
    if (is(m, "mulacc(a, b, d)"))
        snprintf(left, sizeof left, "mulacc(x:%s, y, z)", ki_dtypes[t].name),
            put(f, left, "z, x, y", t, ki_dtypes[t].name, "");
    if (is(m, "where(a > b, a, b)") && ki_is_int(t))
        snprintf(left, sizeof left, "max(x:%s, y)", ki_dtypes[t].name), put(f, left, "x, y", t, ki_dtypes[t].name, "");
}

/* Whether a lower level's set has the rule: sets of higher levels are asked before it. Else it has it from now on. */
static char *written[SETS * MOST];
static unsigned nwritten;
static bool known(const char *rule) {
    for (unsigned k = 0; k < nwritten; k++)
        if (strcmp(written[k], rule) == 0) return true;
    written[nwritten] = strdup(rule);
    nwritten += written[nwritten] != NULL;
    return false;
}

int main(int argc, char **argv) {
    if (argc != 2) return fputs("usage: selgen OUT.kr\n", stderr), 2;
    FILE *out = fopen(argv[1], "w");
    if (!out) return fprintf(stderr, "selgen: %s: %s\n", argv[1], strerror(errno)), 1;
    fputs("# Made by selgen from the table of instructions (src/stages/x86): ops that are one instruction.\n", out);
    for (unsigned set = 0; set < SETS; set++) {
        nrules = 0;
        for (unsigned k = 0; k < KI_X_COUNT; k++)
            if (serves(&ki_x86_forms[k], set)) row(&ki_x86_forms[k]);
        if (nrules == MOST) return fputs("selgen: too many rules\n", stderr), 1;
        fprintf(out, "\nruleset x86_%s : pure\n%s", ki_cpu_level_names[levels[set]],
                set ? "" : "extern pred zero(node) = ki_is_zero\n");
        for (unsigned k = 0; k < nrules; k++)
            if (!known(rules[k].rule) || (strchr(rules[k].left, '#') && (!set || encs[set] != encs[set - 1])))
                fputs(rules[k].rule, out); /* #c before what takes any, which an encoding has in its first set */
    }
    for (unsigned k = 0; k < nwritten; k++) free(written[k]);
    return fclose(out) != 0;
}
