/* test_bad_input.c: misuses of the C API and malformed rules. Each gives one message, with a number, the place of the
 * call and a remedy, and the context goes on. The misuses of the command are in test_bad_input.py. */
#include "rules/rules.h"
#include "tap.h"

#include <koine/koine.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static kn_ctx *k;

/* The first failure is of this call, says what, where and what to do. */
static void told(const char *name, int failed, const char *what) {
    const char *m = kn_message(k);
    int ok = failed && kn_error(k) != KN_OK && strstr(m, what) && strstr(m, "KN") && strstr(m, "hint: ");
    if (!ok) printf("# failed %d: %s\n", failed, m);
    CHECK(ok, "%s", name);
    kn_clear(k);
    float v = 0; /* the context is as good as new */
    if (kn_to_host(kn_full(k, KN_SHAPE(1), 3, KN_F32), &v, sizeof v) != KN_OK || v != 3)
        CHECK(0, "after %s: %s", name, kn_message(k));
    kn_clear(k);
}
#define BAD(name, tensor, what)                                                                                        \
    do {                                                                                                               \
        kn_tensor t_ = (tensor);                                                                                       \
        told(name, t_ &&kn_check(t_) != KN_OK, what);                                                                  \
    } while (0)
#define BAD_STATUS(name, status, what) told(name, (status) != KN_OK, what)

#define X      kn_ones(k, KN_SHAPE(3, 4), KN_F32)
#define Y      kn_ones(k, KN_SHAPE(5), KN_F32)
#define I      kn_ones(k, KN_SHAPE(3), KN_I32)
#define S(...) KN_SHAPE(__VA_ARGS__)

static void shapes(void) {
    BAD("add: shapes do not broadcast", kn_add(X, Y), "broadcast");
    BAD("where: shapes do not broadcast", kn_where(kn_gts(X, 0), Y, Y), "broadcast");
    BAD("matmul: inner sizes differ", kn_matmul(X, X), "matmul");
    BAD("dot of matrices", kn_dot(X, X), "dot");
    BAD("gemm of vectors", kn_gemm(Y, Y), "gemm");
    BAD("linear: features differ", kn_linear(X, kn_ones(k, S(2, 5), KN_F32), NULL), "linear");
    BAD("reshape to another size", kn_reshape(X, S(5, 5)), "reshape");
    BAD("reshape with two open sizes", kn_reshape(X, S(-1, -1)), "-1");
    BAD("reshape: what is left does not divide", kn_reshape(X, S(5, -1)), "reshape");
    BAD("reshape to a negative size", kn_reshape(X, S(-3, -4)), "reshape");
    BAD("expand of an axis that is not 1", kn_expand(X, S(3, 8)), "expand");
    BAD("expand to fewer axes", kn_expand(X, S(4)), "expand");
    BAD("permute with a repeated axis", kn_permute(X, S(0, 0)), "permute");
    BAD("permute of another length", kn_permute(X, S(0, 1, 2)), "permute");
    BAD("pad with too few amounts", kn_pad(X, S(1, 1), 0), "pad");
    BAD("pad by less than nothing", kn_pad(X, S(-1, 0, 0, 0), 0), "pad");
    BAD("shrink behind the end", kn_shrink(X, S(2, 0), S(2, 4)), "shrink");
    BAD("cat of shapes that differ elsewhere", kn_cat2(X, kn_ones(k, S(2, 5), KN_F32), 0), "cat");
    BAD("stack of different shapes", kn_stack((kn_tensor[]){X, Y}, 2, 0), "stack");
    BAD("cat of a NULL", kn_cat((kn_tensor[]){X, NULL}, 2, 0), "cat");
    BAD("unfold wider than the axis", kn_unfold(X, 1, 9, 1), "unfold");
    BAD("conv2d of two axes", kn_conv2d(X, X, NULL, 1, 0, 1, 1), "conv");
    BAD("conv2d: channels differ",
        kn_conv2d(kn_ones(k, S(1, 3, 8, 8), KN_F32), kn_ones(k, S(4, 2, 3, 3), KN_F32), NULL, 1, 0, 1, 1), "conv");
    BAD("conv2d: kernel larger than image",
        kn_conv2d(kn_ones(k, S(1, 1, 2, 2), KN_F32), kn_ones(k, S(1, 1, 5, 5), KN_F32), NULL, 1, 0, 1, 1), "conv");
    BAD("attention: feature sizes differ", kn_attention(X, kn_ones(k, S(3, 5), KN_F32), X, NULL, 0, 0), "attention");
    BAD("cross_entropy: labels of another shape", kn_cross_entropy(X, kn_ones(k, S(7), KN_I64)), "cross_entropy");
    BAD("diag of a matrix", kn_diag(X), "diag");
    BAD("more axes than there may be",
        kn_reshape(kn_int(k, 1), S(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)), "axes");
}

static void axes(void) {
    BAD("sum over an axis there is not", kn_sum_over(X, KN_AXES(2), 0), "axis");
    BAD("sum over an axis twice", kn_sum_over(X, KN_AXES(0, 0), 0), "twice");
    BAD("max over an axis before the first", kn_max_over(X, KN_AXES(-3), 0), "axis");
    BAD("softmax over an axis there is not", kn_softmax(X, 5), "axis");
    BAD("argmax over an axis there is not", kn_argmax(X, 2, 0), "axis");
    BAD("cumsum over an axis there is not", kn_cumsum(X, -4), "axis");
    BAD("transpose of an axis there is not", kn_transpose(X, 0, 2), "axis");
    BAD("flip of an axis there is not", kn_flip(X, KN_AXES(9)), "axis");
    BAD("select behind the end", kn_select(X, 0, 3), "select");
    BAD("slice by steps of 0", kn_slice(X, 0, 0, 3, 0), "step");
    BAD("mT of a vector", kn_mT(Y), "mT");
    BAD("flatten from the back to the front", kn_flatten(X, 1, 0), "flatten");
    BAD("unflatten to another size", kn_unflatten(X, 1, S(3, 3)), "elements");
    kn_tensor out[4];
    BAD_STATUS("split into sizes that do not add up", kn_split(X, 0, S(1, 1), out), "split");
    BAD_STATUS("chunks: none", kn_chunk(X, 0, 0, out), "chunk");
    BAD("layer norm over more axes than there are", kn_layer_norm(X, 3, NULL, NULL, 1e-5), "layer_norm");
}

static void dtypes(void) {
    BAD("bitwise and of floats", kn_bitwise_and(X, X), "bitwise_and");
    BAD("shift of a float", kn_shift_left(X, X), "shift_left");
    BAD("a float as an index", kn_gather(X, X), "gather");
    BAD("one_hot of floats", kn_one_hot(X, 4, KN_F32), "one_hot");
    BAD("mulacc of two dtypes", kn_mulacc(kn_gts(X, 0), kn_gts(X, 0), kn_gts(X, 0)), "mulacc");
    BAD("gradient with respect to integers", kn_grad1(kn_sum(X), I), "grad");
    BAD("threefry of i32", kn_threefry(I, I), "threefry");
    BAD("cast to no dtype", kn_cast(X, KN_VOID), "cast");
    BAD("cast to a number that is no dtype", kn_cast(X, (kn_dtype)99), "cast");
    BAD("bitcast that does not divide", kn_bitcast(kn_ones(k, S(3), KN_F32), KN_F64), "bitcast");
    BAD("random integers of float dtype", kn_randint(k, S(2), 0, 5, KN_F32, NULL), "randint");
    BAD("an empty range of random integers", kn_randint(k, S(2), 5, 5, KN_I32, NULL), "randint");
}

static void sizes(void) {
    BAD("a negative size", kn_zeros(k, S(-2), KN_F32), "size");
    BAD("an absurd size", kn_zeros(k, S(INT64_MAX, 2), KN_F32), "size");
    BAD("sizes whose product is absurd", kn_zeros(k, S(1 << 30, 1 << 30, 1 << 30), KN_F32), "");
    BAD("arange without end", kn_arange(k, 0, 1, 0, KN_F32), "arange");
    BAD("arange to infinity", kn_arange(k, 0, INFINITY, 1, KN_F32), "arange");
    BAD("host data that is NULL", kn_from_host(k, NULL, KN_F32, S(3)), "NULL");
    BAD("more values than memory",
        kn_contiguous(kn_adds(kn_rand(k, S(1)), 0)) ? kn_zeros(k, S(INT64_C(1) << 50), KN_F32) : NULL, "size");
    float v[2];
    BAD_STATUS("to_host with too little room", kn_to_host(X, v, sizeof v), "test_bad_input.c");
    BAD_STATUS("to_host with too much room", kn_to_host(kn_zeros(k, S(1), KN_F32), v, sizeof v), "KN5014: to_host");
    told("item of several", isnan(kn_item(X)), "KN5015: item");
    BAD("a buffer of an absurd size", kn_from_graph(k, kn_u_buffer(k, KN_F32, INT64_C(1) << 60, KN_IN_GLOBAL)),
        "KN1017");
}

static void lifetimes(void) {
    kn_scope_open(k);
    kn_tensor t = X;
    kn_scope_close(k);
    BAD("a tensor after its scope", kn_neg(t), "scope");
    told("realising a tensor after its scope", kn_realize(t) != KN_OK, "scope");
    BAD("NULL as an operand", kn_add(X, NULL), "NULL");
    BAD("assigning to a value", kn_assign(kn_neg(X), X), "assign");
    kn_tensor p = kn_param(X);
    BAD("assigning another shape", kn_assign(p, Y), "");
    kn_ctx *other = kn_open("NULL");
    BAD("operands of two contexts", kn_add(X, kn_ones(other, S(3, 4), KN_F32)), "context");
    kn_close(other);
    told("a device there is not", kn_realize(kn_copy_to(X, "TPU")) != KN_OK, "TPU");
    BAD("a device without a name", kn_copy_to(X, ""), "copy_to");
    BAD_STATUS("a setting there is not", kn_set(k, "KN_COLOUR", "red"), "KN_COLOUR");
    kn_tensor n = kn_variable(k, "n", 5, 2);
    BAD("a variable without values", n, "variable");
    n = kn_shrink(kn_ones(k, S(8), KN_F32), KN_LIST(0), S(kn_sym(kn_variable(k, "rows", 1, 8))));
    told("a variable that was never bound", kn_realize(n) != KN_OK, "KN5012: variable 'rows'");
    BAD_STATUS("a variable bound outside its bounds", kn_bind(k, "rows", 9) ? KN_OK : kn_realize(n), "KN5013");
    kn_bind(k, "rows", 3);
    told("the place of a value of symbolic shape", !kn_data(n), "KN5017");
    BAD("a missing file", kn_load_npy(k, "/nonexistent.npy"), "KN6001: cannot read /nonexistent.npy");
    BAD_STATUS("a folder that is not there", kn_save_npy(X, "/nonexistent/x.npy"), "nonexistent");
}

/* ---- graphs and kernels by hand ----------------------------------------------------------------------------------- */

static void graphs(void) {
    kn_uop x = kn_u_input(k, "x", KN_F32, S(4)), i = kn_u_range(k, kn_u_int(k, KN_IDX, 4), KN_LOOP_AXIS);
#define NODE(name, u, what) told(name, !(u), what)
    NODE("no such op", kn_u(k, "ad", x, x), "KN1165");
    NODE("an op without a source", kn_u(k, "add", x, NULL), "KN1002: add: source 1");
    NODE("reduce by another op", kn_u_reduce(k, x, "sub", KN_AXES(0)), "KN1014: reduce: op sub");
    NODE("reduce of an axis there is not", kn_u_reduce(k, x, "add", KN_AXES(3)), "KN1125: graph: axis 3");
    NODE("an order that is none", kn_u_axes(k, "permute", x, KN_AXES(1)), "KN1008: permute: (1)");
    NODE("a constant of no dtype", kn_u_int(k, KN_VOID, 1), "KN1150");
    NODE("a number that does not fit", kn_u_cast(k, x, (kn_dtype)77), "KN1150");
    kn_uop deep = x;
    for (int d = 0; d < 20 && deep; d++) deep = kn_u(k, "stack", deep);
    NODE("more axes than there may be", deep, "KN1022: stack");
    told("a kernel that is none", kn_kernel_check(k, x) != KN_OK, "KN1167");
    kn_uop out = kn_u_param(k, 0, KN_F32, 4), in = kn_u_param(k, 1, KN_F32, 4);
    kn_uop body = kn_u(k, "store", kn_u(k, "index", out, i), kn_u(k, "index", in, i));
    told("a loop that stays open", kn_kernel_check(k, kn_u_kernel(k, "open", body)) != KN_OK, "KN42");
    kn_uop good = kn_u_kernel(k, "copy", kn_u(k, "end", body, i));
    NODE("no such target", kn_kernel_source(k, good, "cobol"), "KN1168");
    float v[4] = {0};
    told("a kernel with a pointer too few", kn_kernel_run(k, good, (void *[]){v}, 1) != KN_OK, "KN1169");
}

/* ---- rules --------------------------------------------------------------------------------------------------- */

/* A right side in C that is of another dtype. */
static kn_uop to_f64(kn_match *m) { return kn_u_cast(kn_match_ctx(m), kn_match_node(m, 0), KN_F64); }

static void callbacks(void) {
    const kn_rule_callback table[] = {{"to_f64", to_f64, NULL}, {NULL, NULL, NULL}};
    const char *text = "ruleset s\na : -x:f32 => do(to_f64) @opaque(\"to test\")\n";
    told("rules: a callback there is not", !kn_rules_load(k, "bad.kr", text, NULL), "bad.kr:2:");
    told("rules: no text", !kn_rules_load(k, "bad.kr", NULL, NULL), "KN1109");
    kn_rules *r = kn_rules_load(k, "bad.kr", text, table);
    kn_uop u = kn_u(k, "neg", kn_u_input(k, "x", KN_F32, S(4)));
    told("rules: a callback that changes the dtype", !kn_rewrite(k, r, "s", u, KN_WALK, NULL), "KN3022: rule a");
    told("rules: a set there is not", !kn_rewrite(k, r, "t", u, KN_WALK, NULL), "'t'");
    told("rules: a driver there is not", !kn_rewrite(k, r, "s", u, (kn_rewrite_how)9, NULL), "KN1020");
    kn_rules_free(r);
}

static void rule(const char *name, const char *text, const char *what) {
    ki_env env;
    ki_rules r = {0};
    if (!ki_env_open(&env)) return;
    bool loaded = ki_rules_load(&env, "bad.kr", text, strlen(text), NULL, &r);
    const char *m = env.message.s ? env.message.s : "";
    int ok = !loaded && strstr(m, "bad.kr:") && strstr(m, "KN30") && strstr(m, what) && strstr(m, "hint: ");
    if (!ok) printf("# %s\n", loaded ? "it was taken" : m);
    CHECK(ok, "rules: %s", name);
    if (loaded) ki_rules_free(&r);
    ki_env_close(&env);
}

static void rules(void) {
    rule("no rule set", "a : x + 0 => x\n", "");
    rule("no such op", "ruleset s\na : plus(x, 0) => x\n", "plus");
    rule("too many operands", "ruleset s\na : neg(x, y) => x\n", "neg");
    rule("an unbound name", "ruleset s\na : x:int + 0 => y\n", "y");
    rule("a name twice", "ruleset s\na : x:int + 0 => x\na : x:int * 1 => x\n", "a");
    rule("a rule that never fires", "ruleset s\na : x:int + 0 => x\nb : y:int + 0 => y\n", "");
    rule("a right side that grows", "ruleset s\na : x:int + y => (x + y) + 0\n", "");
    rule("no such dtype", "ruleset s\na : x:f31 + 0 => x\n", "f31");
    rule("no arrow", "ruleset s\na : x:int + 0 x\n", "");
    rule("an open parenthesis", "ruleset s\na : (x:int + 0 => x\n", "");
    rule("no such predicate", "ruleset s\na : x:int + #c => x if tidy(c)\n", "tidy");
    rule("do without its reason", "ruleset s\na : x:int + #c => do(ki_f)\n", "");
    rule("no such attribute", "ruleset s\na : x:int + 0 => x @quickly\n", "quickly");
    rule("a constant of no evident dtype", "ruleset s\na : x < y => 1 < 2\n", "KN3009");
    rule("an unknown symbol", "ruleset s\nextern pred p(int) = ki_nowhere\na : x:int + #c => x if p(c)\n",
         "ki_nowhere");
}

int main(void) {
    k = kn_open("INTERP");
    if (!k) return 1;
    shapes();
    axes();
    dtypes();
    sizes();
    lifetimes();
    graphs();
    rules();
    callbacks();
    kn_close(k);
    return tap_done();
}
