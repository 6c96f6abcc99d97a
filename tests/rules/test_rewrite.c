/* Matching and the drivers, on rules loaded from text and on the built-in sets. */
#include "ir/program.h"
#include "rules/rules.h"
#include "tap.h"

#include <rules.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static ki_env env;
static ki_ir ir;

static void ok(bool good, const char *name) {
    CHECK(good, "%s", name);
    if (!good && env.err != KI_E_NONE) printf("# %s\n", env.message.s);
}

static kn_uop var(const char *name, kn_dtype t, int64_t lo, int64_t hi) {
    return ki_param_make(&ir, -1, t, KN_GLOBAL, 0, name, lo <= hi ? (int64_t[]){lo, hi} : NULL, NULL);
}
static kn_uop tensor(const char *name, kn_dtype t, int64_t a, int64_t b) {
    return ki_param_make(&ir, -1, t, KN_GLOBAL, 0, name, NULL, ki_shape_src(&ir, (int64_t[]){a, b}, 2));
}
static kn_uop num(kn_dtype t, int64_t v) { return ki_const_int(&ir, t, v); }

static kn_uop simplify(kn_uop u) { return ki_simplify_with(&ir, u, &ki_rules_symbolic, NULL); }

/* Rewrites u by the rules of a text. */
static kn_uop with(const char *text, kn_uop u, ki_driver driver) {
    ki_rules r;
    if (!ki_rules_load(&env, "test.kr", text, strlen(text), NULL, &r)) return NULL;
    const ki_ruleset *set = r.set;
    kn_uop v = ki_rewrite(&ir, u, &(ki_rewrite_opts){.sets = &set, .nsets = 1, .driver = driver});
    ki_rules_free(&r);
    return v;
}

static void scalars(void) {
    kn_uop x = var("x", KN_I32, 1, 0), i = var("i", KN_IDX, 0, 9), b = var("b", KN_U8, 1, 0);
    ok(simplify(ki_op2(&ir, KN_ADD, x, num(KN_I32, 0))) == x, "x + 0");
    ok(simplify(ki_op2(&ir, KN_ADD, num(KN_I32, 0), x)) == x, "0 + x: the commuted form of the same rule");
    ok(simplify(ki_op2(&ir, KN_MUL, x, num(KN_I32, 0))) == num(KN_I32, 0), "x * 0 has the dtype of x");
    ok(simplify(ki_op2(&ir, KN_ADD, num(KN_U8, 200), num(KN_U8, 100))) == num(KN_U8, 44), "u8 wraps in folding");
    kn_uop t = ki_op2(&ir, KN_ADD, ki_op2(&ir, KN_ADD, b, num(KN_U8, 200)), num(KN_U8, 100));
    ok(simplify(t) == ki_op2(&ir, KN_ADD, b, num(KN_U8, 44)), "(b + 200) + 100 = b + 44 in u8");
    ok(simplify(ki_op2(&ir, KN_MOD, i, num(KN_IDX, 10))) == i, "i % 10 = i below 10");
    ok(simplify(ki_op2(&ir, KN_IDIV, i, num(KN_IDX, 10))) == num(KN_IDX, 0), "i / 10 = 0");
    kn_uop div = ki_op2(&ir, KN_IDIV, i, num(KN_IDX, 3)), mod = ki_op2(&ir, KN_MOD, i, num(KN_IDX, 3));
    kn_uop join = ki_op2(&ir, KN_ADD, ki_op2(&ir, KN_MUL, div, num(KN_IDX, 3)), mod);
    ok(simplify(join) == i, "(i / 3) * 3 + i % 3 = i");
    ok(simplify(ki_op2(&ir, KN_ADD, mod, ki_op2(&ir, KN_MUL, num(KN_IDX, 3), div))) == i, "the same, commuted twice");
    ok(simplify(ki_op2(&ir, KN_CMPLT, i, num(KN_IDX, 10))) == num(KN_BOOL, 1), "i < 10 by bounds");
    kn_uop huge = ki_op2(&ir, KN_ADD, ki_op2(&ir, KN_ADD, i, num(KN_IDX, INT64_MAX - 20)), num(KN_IDX, 100));
    ok(simplify(huge) != NULL && env.err == KI_E_NONE, "index overflow is no match and no error");
    kn_uop where = ki_op3(&ir, KN_WHERE, num(KN_BOOL, 1), x, num(KN_I32, 3));
    ok(simplify(where) == x, "where(true, x, y)");
    ok(simplify(ki_cast(&ir, num(KN_I32, 300), KN_U8)) == num(KN_U8, 44), "cast folds");
}

/* What data says may be any i64: the least has no negation, the greatest no successor. */
static void ends_of_data(void) {
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod};
    kn_uop v[2] = {var("v", KN_I64, 1, 0), var("w", KN_I64, 1, 0)}, x[2];
    for (int k = 0; k < 2; k++) x[k] = ki_cast(&ir, v[k], KN_IDX);
    static const int64_t some[] = {INT64_MIN, INT64_MIN + 1, -6, 0, 4, 5, INT64_MAX - 1, INT64_MAX};
    kn_uop c[2] = {ki_op1(&ir, KN_NOT, ki_op2(&ir, KN_CMPLT, x[0], num(KN_IDX, 5))),
                   ki_op1(&ir, KN_NOT, ki_op2(&ir, KN_CMPLT, x[0], x[1]))};
    for (int k = 0; k < 2; k++) {
        kn_uop u = ki_rewrite(&ir, c[k], &(ki_rewrite_opts){.sets = sets, .nsets = 3});
        bool good = u != NULL, defined = true;
        for (int i = 0; i < 8 && good; i++)
            for (int j = 0; j < 8 && good; j++) {
                /* ki_eval_index knows no NOT: !a is a != true */
                kn_uop same = ki_op2(&ir, KN_CMPNE, u->op == KN_NOT ? u->src[0] : u, num(KN_BOOL, u->op == KN_NOT));
                int64_t got = ki_eval_index(&ir, same, v, (int64_t[]){some[i], some[j]}, 2, &defined);
                good = defined && got == !(some[i] < (k ? some[j] : 5));
            }
        ok(good, k ? "!(x < y) of any two i64" : "!(x < 5) of any i64");
    }
}

static void shapes(void) {
    kn_uop x = tensor("t", KN_I32, 2, 3);
    kn_uop one = ki_reshape(&ir, num(KN_I32, 0), (int64_t[]){1, 1}, 2),
           zero = ki_expand(&ir, one, (int64_t[]){2, 3}, 2);
    ok(simplify(ki_op2(&ir, KN_ADD, x, zero)) == x, "a literal meets a broadcast constant");
    kn_uop y = simplify(ki_op2(&ir, KN_SUB, x, x));
    ok(y == zero, "a constant result takes the root's shape");
    kn_uop w = ki_op3(&ir, KN_WHERE, num(KN_BOOL, 1), num(KN_I32, 5), x);
    y = simplify(w);
    ok(y && ki_same_shape(y, x), "a scalar result is broadcast");
}

static void args(void) {
    kn_uop a = tensor("a", KN_F32, 2, 3),
           p = ki_permute(&ir, ki_permute(&ir, a, (int64_t[]){1, 0}, 2), (int64_t[]){1, 0}, 2);
    static const char permutes[] = "ruleset r\nextern fn compose(ints, ints) ints = ki_compose_order\nextern pred "
                                   "straight(ints) = ki_is_identity\n"
                                   "join : permute(permute(x; p); q) => permute(x; [compose(p, q)])\n"
                                   "drop : permute(x; p) => x if straight(p)\n";
    ok(with(permutes, p, KI_FIXPOINT) == a, "args: bound, computed, tested");
    static const char rest[] =
        "ruleset r\n push : cast(stack(x...); t) => stack(cast(x; t)...) @ends(\"casts sink\")\n";
    kn_uop s[2] = {var("u", KN_I32, 1, 0), var("v", KN_I32, 1, 0)};
    kn_uop st = ki_cast(&ir, ki_opn(&ir, KN_STACK, s, 2), KN_F32);
    kn_uop want[2] = {ki_cast(&ir, s[0], KN_F32), ki_cast(&ir, s[1], KN_F32)};
    ok(with(rest, st, KI_FIXPOINT) == ki_opn(&ir, KN_STACK, want, 2), "a rest is mapped");
    static const char perm[] =
        "ruleset r\nextern fn unpermute(ints, nodes) node = ki_unpermute\n"
        "idx : index(permute(t; p), i...) => index(t, [unpermute(p, i)]...)\n @ends(\"indices sink\")";
    kn_uop i[3] = {ki_permute(&ir, a, (int64_t[]){1, 0}, 2), var("i", KN_IDX, 0, 1), var("j", KN_IDX, 0, 1)};
    kn_uop w[3] = {a, i[2], i[1]};
    ok(with(perm, ki_opn(&ir, KN_INDEX, i, 3), KI_FIXPOINT) == ki_opn(&ir, KN_INDEX, w, 3),
       "a rest handed to a function");
}

static void language(void) {
    kn_uop a = tensor("a", KN_F32, 2, 3), q = var("q", KN_BOOL, 1, 0);
    static const char red[] = "ruleset r\nr : reduce(-x; add, n) => -reduce(x; add, n) @ends(\"neg moves up\")\n"
                              "c : cast(cast(x:bool; i32); f32) => cast(x; f32)\n"
                              "n : where(n@(x < y), a:bool, b) => where(y < x, a, n) if lo(x) > 3 @ends(\"test\")\n"
                              "l : {alu1:op}(where(p, x, #c)) => where(p, {op}(x), [fold(op, c)]) @ends(\"ops sink\")\n"
                              "f : x:float / #c => x * [1.0 / c] if c != 0.0 @fp(arcp) @ends(\"x\")\n";
    kn_uop r = ki_reduce(&ir, ki_op1(&ir, KN_NEG, a), KN_ADD, 2);
    ok(with(red, r, KI_FIXPOINT) == ki_op1(&ir, KN_NEG, ki_reduce(&ir, a, KN_ADD, 2)),
       "reduce with a constant op and bound axes");
    static const char both[] = "ruleset r\nd : cast(cast(x:i32; index); t) => cast(x; t) if dtype(x) != index\n"
                               "o : contiguous(x) => x if op(x) == index\n"
                               "i : cast(cast(x:u8; i32); i64) => cast(cast(x; index); i64) @ends(\"t\")\n";
    kn_uop z = var("z", KN_I32, 1, 0), b = var("b", KN_U8, 1, 0), row = ki_op2(&ir, KN_INDEX, a, ki_index(&ir, 0));
    ok(with(both, ki_cast(&ir, ki_cast(&ir, z, KN_IDX), KN_F32), KI_FIXPOINT) == ki_cast(&ir, z, KN_F32),
       "index, the dtype");
    ok(with(both, ki_op1(&ir, KN_CONTIGUOUS, row), KI_FIXPOINT) == row, "index, the op");
    kn_uop wide = with(both, ki_cast(&ir, ki_cast(&ir, b, KN_I32), KN_I64), KI_FIXPOINT);
    ok(wide == ki_cast(&ir, ki_cast(&ir, b, KN_IDX), KN_I64), "a cast to index is built");
    static const char twice[] = "ruleset r\nt : reduce(reduce(x; op, m); op, n) => reduce(x; op, [m | n])\n";
    kn_uop sum = ki_reduce(&ir, ki_reduce(&ir, a, KN_ADD, 1), KN_ADD, 2),
           mixed = ki_reduce(&ir, ki_reduce(&ir, a, KN_MAX, 1), KN_ADD, 2);
    ok(with(twice, sum, KI_FIXPOINT) == ki_reduce(&ir, a, KN_ADD, 3), "an arg that must equal that of a source");
    ok(with(twice, mixed, KI_FIXPOINT) == mixed, "and does not");
    kn_uop c = ki_cast(&ir, ki_cast(&ir, q, KN_I32), KN_F32);
    ok(with(red, c, KI_FIXPOINT) == ki_cast(&ir, q, KN_F32), "casts by dtype");
    kn_uop d = ki_op2(&ir, KN_DIV, a, ki_const_float(&ir, KN_F32, 2));
    ok(with(red, d, KI_FIXPOINT) == d, "a rule with @fp does not fire unasked");
    kn_uop e = ki_op1(&ir, KN_NEG, ki_op3(&ir, KN_WHERE, q, var("f", KN_F32, 1, 0), ki_const_float(&ir, KN_F32, 2)));
    kn_uop v = with(red, e, KI_FIXPOINT);
    ok(v && v->op == KN_WHERE && v->src[2] == ki_const_float(&ir, KN_F32, -2), "an op bound by its class is rebuilt");
}

static kn_uop chain(uint32_t n) {
    kn_uop x = var("x", KN_I32, 1, 0), y = var("y", KN_I32, 1, 0), u = x;
    for (uint32_t k = 0; k < n; k++) u = ki_op2(&ir, k & 1 ? KN_MUL : KN_XOR, u, k & 1 ? y : x);
    return u;
}

static void loops(void) {
    kn_uop x = var("x", KN_I32, 1, 0), y = var("y", KN_I32, 1, 0);
    static const char loop[] =
        "ruleset r\n a : x:i32 + y => y - x @ends(\"no\")\n b : x:i32 - y => y + x @ends(\"no\")\n";
    ok(!with(loop, ki_op2(&ir, KN_ADD, x, y), KI_FIXPOINT) && env.err == KI_E_REWRITE_CYCLE, "a cycle is an error");
    printf("# %s\n", env.message.s);
    ki_env_clear(&env);
    static const char grow[] = "ruleset r\n a : -x:i32 => -(x + 1) @ends(\"no\")\n";
    ok(!with(grow, ki_op1(&ir, KN_NEG, x), KI_FIXPOINT) && env.err == KI_E_REWRITE_BUDGET,
       "endless growth is an error");
    printf("# %s\n", env.message.s);
    ki_env_clear(&env);
    static const char bad[] = "ruleset r\n a : x:i32 + y => cast(x; f32) @retype\n";
    ok(with(bad, ki_op1(&ir, KN_NEG, ki_op2(&ir, KN_ADD, x, y)), KI_FIXPOINT), "@retype may change the dtype");
    ki_env_clear(&env);
}

static void drivers(void) {
    kn_uop u = chain(200000);
    simplify(u);
    uint32_t before = ir.n;
    clock_t t0 = clock();
    kn_uop v = simplify(u), w = simplify(v);
    double s = (double)(clock() - t0) / CLOCKS_PER_SEC;
    printf("# %.1f million visits/s\n", 0.4 / s);
    ok(v && v == w && ir.n == before, "idempotent, and nothing is made when nothing changes");
    kn_uop x = var("x", KN_I32, 1, 0), y = var("y", KN_I32, 1, 0), n = ki_op1(&ir, KN_NEG, x);
    static const char once[] = "ruleset r\n a : -x:i32 => x + 1 @ends(\"no\")\n b : x:i32 + 1 => -x @ends(\"no\")\n";
    ok(with(once, n, KI_WALK) == ki_op2(&ir, KN_ADD, x, num(KN_I32, 1)), "walk applies one rule a node");
    static const char top[] =
        "ruleset r\n a : -(x:i32 + y) => x @ends(\"no\")\n b : x:i32 + y => y @ordered @ends(\"no\")\n";
    kn_uop sum = ki_op1(&ir, KN_NEG, ki_op2(&ir, KN_ADD, x, y));
    ok(with(top, sum, KI_TOPDOWN) == x, "topdown sees the node before its sources");
    ok(with(top, sum, KI_FIXPOINT) == ki_op1(&ir, KN_NEG, y), "fixpoint sees the sources first");
    ki_memo memo = {0};
    ki_stats stats = {0};
    const ki_ruleset *set = &ki_rules_symbolic;
    ki_rewrite_opts o = {.sets = &set, .nsets = 1, .memo = &memo, .stats = &stats};
    kn_uop a = ki_op2(&ir, KN_XOR, u, num(KN_I32, 3));
    ki_rewrite(&ir, u, &o);
    ki_rule_count *c = ki_stats_for(&stats, set);
    uint64_t attempts = 0, more = 0;
    for (uint32_t k = 0; k < set->nrule; k++) attempts += c[k].attempts;
    ki_rewrite(&ir, a, &o);
    for (uint32_t k = 0; k < set->nrule; k++) more += c[k].attempts;
    ok(attempts > 100000 && more - attempts < 20, "a memo makes the second call cost the new nodes");
    ki_memo_free(&memo);
    ki_stats_free(&stats);
}

/* Numbers, terms and names that are equal stand once in a set's tables, whatever rules ask for them; what differs in its bits stands
 * apart, and so does each term of a spec, whose place messages show. */
static void tables(void) {
    static const char text[] = "ruleset t\n"
                               "a : x:f32 + #c => x * 2.5 if c == 1.5 @ends(\"t\")\n"
                               "b : x:f32 - #c => x * 2.5 if c == 1.5 @ends(\"t\")\n"
                               "c : x:f32 * 0.0 => -0.0\n"
                               "d : x:i32 * 0 => 0\n"
                               "ruleset u\n"
                               "accept a : neg(x) if lo(x) > 3\n"
                               "accept b : exp(x) if lo(x) > 3\n";
    ki_rules r;
    if (!ki_rules_load(&env, "test.kr", text, strlen(text), NULL, &r)) {
        ok(false, "tables");
        return;
    }
    const ki_ruleset *t = &r.set[0], *u = &r.set[1];
    ok(t->rule[0].guard == t->rule[1].guard && t->rule[0].rhs == t->rule[1].rhs, "equal sides stand once");
    ok(t->rule[0].rname == t->rule[1].rname && t->rule[2].rname != t->rule[0].rname, "equal names stand once");
    ok(t->nnumber == 4, "2.5, 1.5, 0 and 0.0 by their bits, -0.0");
    ok(u->rule[0].guard != u->rule[1].guard && u->wording->term[u->rule[0].guard] < u->wording->term[u->rule[1].guard],
       "conditions of a spec have their own places");
    ok(strcmp(ki_name_text(t, &t->rule[1], 1), "c") == 0 && strcmp(ki_rule_name(t, &t->rule[3]), "d") == 0,
       "names as they are written");
    kn_uop x = var("x", KN_F32, 1, 0), z = ki_op2(&ir, KN_MUL, x, ki_const_float(&ir, KN_F32, 0.0));
    ok(ki_simplify_with(&ir, z, t, NULL) == ki_const_float(&ir, KN_F32, -0.0), "-0.0 is not 0.0");
    ki_rules_free(&r);
}

int main(void) {
    if (!ki_env_open(&env) || !ki_ir_open(&ir, &env)) return 1;
    scalars();
    ends_of_data();
    shapes();
    args();
    language();
    loops();
    drivers();
    tables();
    ki_ir_close(&ir);
    ki_env_close(&env);
    return tap_done();
}
