/* What the prover tells the solver of floats, held against the interpreter: each op and cast on edge values of each dtype
 * (NaN, both zeros, subnormals, halfway cases, the ends of integers, random bits). One query an op: some case of a list on
 * which the solver's circuit and the interpreter differ; there must be none. */
#include "rules/prove_smt.h"
#include "base/hash.h"
#include "ir/scalar.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 16384, CASES = 240, FEW = 48 /* of what makes large circuits */ };
static const uint8_t floats[] = {KN_F8E4M3, KN_F8E5M2, KN_F16, KN_BF16, KN_F32, KN_F64};
static const uint8_t words[] = {KN_BOOL, KN_U8, KN_U16, KN_U32, KN_U64, KN_I8, KN_I16, KN_I32, KN_I64};
enum { FLOATS = sizeof floats, WORDS = sizeof words };

static uint64_t state = 1;
static uint64_t roll(void) { return ki_mix(state += UINT64_C(0x9e3779b97f4a7c15)); }

/* ---- values ------------------------------------------------------------------------------------------------ */

typedef struct values {
    uint64_t v[MOST];
    unsigned n;
} values;
static values of[KI_DTYPE_COUNT];

static void add(kn_dtype t, uint64_t bits) {
    unsigned w = t == KN_BOOL ? 1 : ki_dtypes[t].bits;
    if (of[t].n < MOST) of[t].v[of[t].n++] = ki_extend(bits, w, ki_is_sint(t));
}
/* A number and what lies beside it, with either sign. */
static void around(kn_dtype t, double d) {
    uint64_t b = ki_bits_from_f64(t, d), sign = UINT64_C(1) << (ki_dtypes[t].bits - 1);
    for (int k = -1; k <= 1; k++) add(t, b + (uint64_t)k), add(t, (b + (uint64_t)k) ^ sign);
}

static void fill_float(kn_dtype t) {
    unsigned w = ki_dtypes[t].bits;
    if (w == 8)
        for (unsigned k = 0; k < 256; k++) add(t, k);
    for (int k = 0; k <= 64; k++) {
        around(t, ldexp(1, k));
        around(t, ldexp(1, -k));
        around(t, ldexp(1, k) - 0.5);
        around(t, k + 0.5);
    }
    for (int e = -1100; e < 1030; e += 7) around(t, ldexp(1, e));
    around(t, INFINITY); /* the greatest number, a NaN */
    around(t, 0);        /* the least, a NaN of all ones */
    add(t, ki_bits_from_f64(t, NAN));
    for (unsigned k = 0; k < FLOATS; k++) { /* halfway between two of a narrower dtype, and beside that */
        kn_dtype s = (kn_dtype)floats[k];
        for (unsigned j = 0; j < 60 && ki_dtypes[s].bits < w; j++) {
            uint64_t b = roll() & ((UINT64_C(1) << (ki_dtypes[s].bits - 1)) - 2);
            if (j < 4) b = j;
            double low = ki_f64_from_bits(s, b), high = ki_f64_from_bits(s, b + 1);
            if (isfinite(low)) around(t, isfinite(high) ? low + (high - low) / 2 : low * 1.03125);
        }
        around(t, ki_f64_from_bits(s, ki_bits_from_f64(s, INFINITY) - 1));
    }
    for (unsigned k = 0; k < 300; k++) add(t, roll());
    for (unsigned k = 0; k < 300; k++) { /* of like size, so that sums cancel */
        double d = 1 + (double)(roll() >> 12) * 0x1p-52;
        add(t, ki_bits_from_f64(t, ldexp(k & 1 ? -d : d, (int)(roll() % 12) - 6)));
    }
}

static void fill_word(kn_dtype t) {
    for (unsigned k = 0; k < 64; k++)
        for (int j = -1; j <= 1; j++) {
            uint64_t b = (UINT64_C(1) << k) + (uint64_t)j;
            add(t, b), add(t, 0 - b), add(t, b + (b >> 11)), add(t, b + (b >> 24));
            add(t, b + (b >> 25)), add(t, b + (b >> 53)), add(t, b + (b >> 54)), add(t, b + (b >> 8));
        }
    for (unsigned k = 0; k < 300; k++) add(t, roll() >> roll() % 64);
}

/* ---- queries ----------------------------------------------------------------------------------------------- */

static char asked[400][64];
static unsigned nasked;
static ki_text script;

static ki_smt_expr leaf(ki_smt *m, kn_dtype t, unsigned k) {
    static char *const name[] = {"x", "y", "z"};
    bool is_float = ki_is_float(t), is_bool = t == KN_BOOL;
    unsigned w = ki_dtypes[t].bits;
    if (is_bool) ki_text_printf(&m->decl, "(declare-const %s Bool)\n", name[k]);
    else ki_text_printf(&m->decl, "(declare-const %s (_ BitVec %u))\n", name[k], w);
    return (ki_smt_expr){.s = name[k],
                         .sort = is_float  ? KI_S_FLOAT
                                 : is_bool ? KI_S_BOOL
                                           : KI_S_WORD,
                         .width = w,
                         .is_signed = ki_is_sint(t),
                         .dtype = is_float ? t : KN_VOID};
}

static void value(kn_dtype t, uint64_t v) {
    unsigned w = ki_dtypes[t].bits;
    if (t == KN_BOOL) ki_text_put(&script, v ? "true" : "false");
    else ki_text_printf(&script, "(_ bv%llu %u)", (unsigned long long)ki_extend(v, w, false), w);
}

static bool is_nan(kn_dtype t, uint64_t v) { return ki_is_float(t) && isnan(ki_f64_from_bits(t, v)); }

/* Cases of op (or a cast) from n values of `from`; r is what the solver is told. */
static void query_op(ki_smt *m, const char *what, kn_op op, kn_dtype from, unsigned n, kn_dtype to, ki_smt_expr r) {
    kn_dtype in[3] = {from, from, from};
    bool large = op == KN_MUL || op == KN_DIV || op == KN_RECIP || op == KN_MULACC;
    unsigned count = large && (from == KN_F64 || from == KN_F8E4M3) ? FEW : CASES;
    if (!ki_smt_said(r)) {
        CHECK(false, "%s is said", what);
        return;
    }
    char *out = r.sort == KI_S_FLOAT ? ki_smt_bits(m, r) : r.s, *number = r.sort == KI_S_FLOAT ? ki_smt_fp(m, r) : NULL;
    ki_text_printf(&script, "(push)\n%s(assert (or\n", m->decl.s);
    for (unsigned k = 0; k < count; k++) {
        uint64_t v[3], want;
        for (unsigned j = 0; j < n; j++) v[j] = of[from].v[roll() % of[from].n];
        if (!ki_scalar(op, to, in, v, &want)) {
            CHECK(false, "%s has a value", what);
            return;
        }
        ki_text_put(&script, "(and");
        for (unsigned j = 0; j < n; j++) {
            ki_text_printf(&script, " (= %c ", "xyz"[j]);
            value(from, v[j]);
            ki_text_put(&script, ")");
        }
        if (is_nan(to, want)) {
            ki_text_printf(&script, " (not (fp.isNaN %s)))\n", number);
        } else {
            ki_text_printf(&script, " (distinct %s ", out);
            value(to, want);
            ki_text_put(&script, "))\n");
        }
    }
    ki_text_put(&script, "))\n" KI_SMT_CIRCUITS "\n(pop)\n");
    snprintf(asked[nasked++], sizeof *asked, "%s", what);
}

static void one_op(kn_op op, kn_dtype t) {
    ki_smt m = {0};
    ki_smt_expr v[3];
    char what[64];
    unsigned n = (unsigned)ki_ops[op].least;
    bool compare =
        op == KN_CMPLT || op == KN_CMPGT || op == KN_CMPLE || op == KN_CMPGE || op == KN_CMPEQ || op == KN_CMPNE;
    for (unsigned k = 0; k < n; k++) v[k] = leaf(&m, t, k);
    snprintf(what, sizeof what, "%s of %s", ki_ops[op].name, ki_dtypes[t].name);
    query_op(&m, what, op, t, n, compare ? KN_BOOL : t, ki_smt_on_floats(&m, op, v, n));
    ki_text_free(&m.decl);
    ki_arena_free(&m.arena);
}

static void one_cast(kn_dtype from, kn_dtype to) {
    ki_smt m = {0};
    char what[64];
    ki_smt_expr v = leaf(&m, from, 0), as = {.sort = to == KN_BOOL ? KI_S_BOOL : KI_S_WORD,
                                             .width = ki_dtypes[to].bits,
                                             .is_signed = ki_is_sint(to)};
    snprintf(what, sizeof what, "cast of %s to %s", ki_dtypes[from].name, ki_dtypes[to].name);
    query_op(&m, what, KN_CAST, from, 1, to,
             ki_is_float(to) ? ki_smt_to_float(&m, v, to) : ki_smt_from_float(&m, v, as));
    ki_text_free(&m.decl);
    ki_arena_free(&m.arena);
}

static void ask(void) {
    char path[] = "/tmp/koine-smt-float-XXXXXX", command[80], line[200];
    int fd = mkstemp(path);
    bool put = fd >= 0 && script.s && !script.oom && write(fd, script.s, script.n) == (ssize_t)script.n;
    if (fd >= 0) close(fd);
    snprintf(command, sizeof command, "z3 -smt2 %s", path);
    FILE *f = put ? popen(command, "r") : NULL;
    if (CHECK(f != NULL, "the solver runs")) {
        for (unsigned k = 0; k < nasked; k++) {
            line[0] = 0;
            if (fgets(line, sizeof line, f)) line[strcspn(line, "\n")] = 0;
            CHECK(strcmp(line, "unsat") == 0, "%s is what the interpreter says: %s", asked[k], line);
        }
        pclose(f);
    }
    unlink(path);
}

int main(void) {
    static const uint8_t ops[] = {KN_ADD, KN_SUB,   KN_MUL,   KN_DIV,   KN_SQRT,  KN_RECIP, KN_TRUNC, KN_MAX,
                                  KN_NEG, KN_CMPLT, KN_CMPGT, KN_CMPLE, KN_CMPGE, KN_CMPEQ, KN_CMPNE, KN_MULACC};
    for (unsigned k = 0; k < FLOATS; k++) fill_float((kn_dtype)floats[k]);
    for (unsigned k = 0; k < WORDS; k++) fill_word((kn_dtype)words[k]);
    if (system("z3 --version > /dev/null 2>&1") != 0) {
        CHECK(true, "floats by the solver # SKIP no z3 in PATH");
        return tap_done();
    }
    ki_text_put(&script, KI_SMT_PRELUDE);
    for (unsigned k = 0; k < FLOATS; k++) {
        kn_dtype t = (kn_dtype)floats[k];
        for (unsigned j = 0; j < sizeof ops; j++) one_op((kn_op)ops[j], t);
        for (unsigned j = 0; j < FLOATS; j++)
            if (j != k) one_cast(t, (kn_dtype)floats[j]);
        for (unsigned j = 0; j < WORDS; j++) one_cast(t, (kn_dtype)words[j]), one_cast((kn_dtype)words[j], t);
    }
    ask();
    ki_text_free(&script);
    return tap_done();
}
