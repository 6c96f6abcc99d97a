/* The C surface of the front end: places in messages, scopes, ends of life, functions, memory. Nothing is run here. */
#include <koine/koine.h>

#include "../tap.h"

#include <stdio.h>
#include <string.h>

static int has(const char *text, const char *part) {
    if (strstr(text, part)) return 1;
    printf("# '%s' lacks '%s'\n", text, part);
    return 0;
}

static void places(kn_ctx *k) {
    kn_tensor a = kn_zeros(k, KN_SHAPE(32, 10), KN_F32), b = kn_ones(k, KN_SHAPE(32, 1, 12), KN_F32);
    int line = __LINE__ + 1;
    kn_tensor c = kn_add(kn_mul(a, a), b);
    char want[512];
    snprintf(want, sizeof want, "test_api.c:%d: KN1203: cannot broadcast add: shapes (32, 10) and (32, 1, 12)", line);
    CHECK(kn_check(c) == KN_BAD_ARGUMENT && has(kn_why(c), want), "a failure names op, shapes and the caller's line");
    CHECK(has(kn_why(c), "axis -1: 10 vs 12") && has(kn_why(c), "hint: "), "it gives the axis and a remedy");
    snprintf(want, sizeof want, "left operand from %s:%d", __FILE__, line);
    CHECK(has(kn_why(c), want), "and where the operands come from");
    kn_tensor d = kn_exp(kn_sum(c));
    CHECK(strcmp(kn_why(d), kn_why(c)) == 0, "errors ride through later calls unchanged");
    CHECK(strcmp(kn_message(k), kn_why(c)) == 0 && kn_error(k) == KN_BAD_ARGUMENT, "the context keeps the first");
    line = __LINE__ + 1;
    kn_tensor bits = kn_bitcast(a, KN_F16), square = kn_square(kn_exp(bits)), slope = kn_grad1(square, a);
    snprintf(want, sizeof want, "KN1172: grad: op bitcast, of the call at %s:%d, has no gradient", __FILE__, line);
    CHECK(has(kn_why(slope), want), "what has no gradient is named by the call that made it");
    kn_tensor e = kn_reshape(a, KN_SHAPE(7, -1));
    CHECK(has(kn_why(e), "KN1131") && strcmp(kn_message(k), kn_why(c)) == 0, "a second failure has its own message");
    kn_clear(k);
    CHECK(kn_error(k) == KN_OK && *kn_message(k) == 0, "kn_clear forgets");
    CHECK(kn_check(a) == KN_OK && *kn_why(a) == 0, "good tensors have nothing to say");
    kn_tensor n = (kn_sqrt)(kn_permute(a, KN_AXES(0, 0)));
    CHECK(has(kn_why(n), "KN1126: permute: axis 0 is named twice"), "a function called without its macro works");
    kn_clear(k);
}

static void scopes(kn_ctx *k) {
    kn_tensor outer = kn_ones(k, KN_SHAPE(3), KN_F32), kept, up, dead;
    kn_scope_open(k);
    kn_scope_open(k);
    kept = kn_keep(kn_adds(outer, 1));
    up = kn_hand_up(kn_adds(outer, 2));
    dead = kn_adds(outer, 3);
    kn_scope_close(k);
    CHECK(kn_check(kept) == KN_OK && kn_check(up) == KN_OK, "kept and handed-up tensors outlive their scope");
    kn_tensor bad = kn_neg(dead);
    CHECK(has(kn_why(bad), "KN1101") && has(kn_why(bad), "test_api.c"), "use after the end says where it was made");
    kn_scope_close(k);
    CHECK(kn_check(up) != KN_OK, "a handed-up tensor ends with the scope it was handed to");
    CHECK(kn_check(kept) == KN_OK && kn_check(outer) == KN_OK, "the rest lives");
    kn_drop(kept);
    CHECK(kn_check(kept) != KN_OK, "kn_drop ends a tensor");
    kn_drop(kept);
    kn_drop(NULL);
    kn_scope_close(k); /* none open: nothing happens */
    CHECK(kn_check(outer) == KN_OK, "closing no scope does nothing");
    CHECK(kn_neg(NULL) == NULL && kn_check(NULL) == KN_BAD_ARGUMENT && *kn_why(NULL), "NULL gives NULL, and says so");
    CHECK(has(kn_why(kn_add(outer, NULL)), "KN1103: add: operand 1 is NULL"),
          "NULL beside a tensor is an error tensor");
    kn_clear(k);
}

/* Readers, of values, of a symbolic shape, of an error and of nothing. */
static void readers(kn_ctx *k) {
    kn_tensor a = kn_ones(k, KN_SHAPE(3, 4), KN_F16), s = kn_scalar(k, 2), bad = kn_reshape(a, KN_SHAPE(5));
    kn_tensor n =
        kn_shrink(kn_ones(k, KN_SHAPE(8, 2), KN_I8), KN_LIST(0, 0), KN_SHAPE(kn_sym(kn_variable(k, "rows", 1, 8)), 2));
    CHECK(kn_context(a) == k && kn_context(s) == k && kn_context(bad) == k && kn_context(NULL) == NULL, "kn_context");
    CHECK(kn_dtype_of(a) == KN_F16 && kn_dtype_of(n) == KN_I8 && kn_dtype_of(bad) == KN_VOID &&
              kn_dtype_of(NULL) == KN_VOID,
          "kn_dtype_of");
    CHECK(kn_rank(a) == 2 && kn_rank(s) == 0 && kn_rank(bad) == -1 && kn_rank(NULL) == -1, "kn_rank");
    CHECK(kn_size(a, 1) == 4 && kn_size(a, -2) == 3 && kn_size(a, 2) == -1 && kn_size(n, 0) == 8 &&
              kn_size(bad, 0) == -1,
          "kn_size");
    CHECK(kn_numel(a) == 12 && kn_numel(s) == 1 && kn_numel(n) == 16 && kn_numel(bad) == -1, "kn_numel");
    CHECK(kn_shape(a).n == 2 && kn_shape(a).v[1] == 4 && kn_shape(s).n == 0 && kn_shape(n).v[0] == 8, "kn_shape");
    CHECK(kn_graph(a) && kn_graph(s) && !kn_graph(bad) && !kn_graph(NULL), "kn_graph");
    CHECK(kn_check(n) == KN_OK && *kn_why(n) == 0 && *kn_why(bad) && *kn_why(NULL), "kn_why");
    kn_clear(k);
    kn_scope_open(k);
    kn_tensor up = kn_hand_up(kn_neg(a)), kept = kn_keep(kn_neg(s));
    CHECK(kn_hand_up(up) == up && kn_keep(kept) == kept, "both return their tensor");
    kn_scope_close(k);
    CHECK(kn_check(up) == KN_OK && kn_check(kept) == KN_OK, "which outlives the scope");
    CHECK(!kn_keep(NULL) && !kn_hand_up(NULL), "of NULL they are NULL");
    kn_drop(kept);
    kn_drop(up);
    CHECK(kn_check(kept) != KN_OK && kn_check(up) != KN_OK, "until dropped");
    kn_clear(k);
}

static void flat(kn_ctx *k) {
    uint32_t most = 0;
    kn_tensor w = kn_ones(k, KN_SHAPE(64), KN_F32);
    for (int step = 0; step < 3000; step++) {
        kn_scope_open(k);
        kn_tensor x = kn_from_host(k, (float[]){(float)step}, KN_F32, KN_SHAPE(1)), y = kn_mul(w, x);
        for (int i = 0; i < 20; i++) y = kn_adds(y, step * 1e-3 + i);
        uint32_t id = kn_uop_id(kn_graph(y));
        if (id > most) most = id;
        kn_scope_close(k);
    }
    printf("# largest id %u\n", most);
    CHECK(most < 40000, "a loop's nodes are reclaimed");
    kn_scope_open(k);
    for (int i = 0; i < 70000; i++) kn_drop(kn_neg(w));
    kn_scope_close(k);
    CHECK(kn_check(w) == KN_OK, "handles are reused");
}

static void square_plus(void *user, const kn_tensor *in, kn_tensor *out) {
    out[0] = kn_add(kn_square(in[0]), in[1]);
    out[1] = kn_mul(in[0], *(kn_tensor *)user);
}
static void nothing(void *user, const kn_tensor *in, kn_tensor *out) { (void)user, (void)in, (void)out; }

static void functions(kn_ctx *k) {
    kn_tensor a = kn_from_host(k, (float[]){1, 2}, KN_F32, KN_SHAPE(2)),
              b = kn_from_host(k, (float[]){3, 4}, KN_F32, KN_SHAPE(2));
    kn_tensor captured = kn_from_host(k, (float[]){5, 6}, KN_F32, KN_SHAPE(2)), in[] = {a, b}, out[2];
    CHECK(kn_function(k, square_plus, &captured, in, 2, out, 2) == KN_OK, "a function traces");
    kn_uop f = kn_uop_src(kn_graph(out[0]), 0);
    CHECK(strcmp(kn_uop_op(kn_graph(out[1])), "gettuple") == 0 && strcmp(kn_uop_op(f), "function") == 0,
          "into gettuple of one function");
    CHECK(kn_uop_nsrc(f) == 4 && f == kn_uop_src(kn_graph(out[1]), 0),
          "two inputs and what it captured are its arguments");
    char *text = kn_uop_text(k, kn_uop_src(f, 0));
    CHECK(text && !strstr(text, "buffer"), "the body holds parameters only");
    kn_free(text);
    kn_tensor same[] = {a, a}, again[2];
    kn_function(k, square_plus, &captured, same, 2, again, 2);
    CHECK(kn_uop_nsrc(kn_uop_src(kn_graph(again[0]), 0)) == 3, "equal inputs are one argument");
    kn_tensor g = kn_grad1(kn_sum(out[0]), a);
    CHECK(kn_check(g) == KN_OK && kn_rank(g) == 1, "gradients go through a function");
    CHECK(kn_function(k, nothing, NULL, in, 2, out, 1) == KN_BAD_ARGUMENT && has(kn_why(out[0]), "KN1162"),
          "an output left unset is an error");
    kn_clear(k);
}

static void released(void *owner) { ++*(int *)owner; }

static void host_memory(kn_ctx *k) {
    int count = 0;
    float data[4] = {1, 2, 3, 4};
    kn_scope_open(k);
    kn_tensor t = kn_borrow_host(k, data, KN_F32, KN_SHAPE(2, 2), released, &count);
    CHECK(kn_check(t) == KN_OK && kn_size(t, -1) == 2 && kn_numel(t) == 4 && kn_dtype_of(t) == KN_F32,
          "borrowed memory is a tensor");
    CHECK(kn_check(kn_borrow_host(k, (char *)data + 1, KN_F32, KN_SHAPE(2), released, &count)) != KN_OK && !count,
          "unaligned memory is refused, and stays the caller's");
    CHECK(has(kn_message(k), "KN1110"), "with the alignment it needs");
    CHECK(kn_check(kn_from_host(k, NULL, KN_F32, KN_SHAPE(2))) != KN_OK, "no data is refused");
    CHECK(kn_check(kn_from_host(k, NULL, KN_F32, KN_SHAPE(0))) == KN_OK, "but for nothing");
    kn_scope_close(k);
    kn_clear(k);
    kn_ctx *own = kn_open(NULL);
    kn_borrow_host(own, data, KN_F32, KN_SHAPE(4), released, &count);
    int before = count;
    kn_close(own);
    CHECK(count == before + 1, "a closed context releases what it borrowed");
}

static void shapes(kn_ctx *k) {
    kn_tensor x = kn_zeros(k, KN_SHAPE(2, 3, 4), KN_F32), n = kn_variable(k, "n", 1, 10);
    kn_ints s = kn_shape(x);
    CHECK(s.n == 3 && s.v[1] == 3 && kn_size(x, 3) == -1 && kn_rank(x) == 3, "shapes can be read");
    kn_tensor y = kn_shrink(kn_zeros(k, KN_SHAPE(10, 3), KN_F32), KN_LIST(0, 0), KN_SHAPE(kn_sym(n), 3));
    CHECK(kn_check(y) == KN_OK && kn_size(y, 0) == 10 && kn_uop_sym(kn_graph(y), 0) == kn_graph(n),
          "a variable can be a dimension");
    CHECK(kn_check(kn_softmax(kn_adds(kn_mul(y, y), 1), 0)) == KN_OK, "elementwise functions and reductions keep it");
    CHECK(has(kn_why(kn_tile(y, KN_SHAPE(2, 1))), "KN1122"), "what needs a number says so");
    int64_t long_list[40] = {0};
    CHECK(has(kn_why(kn_reshape(x, kn_ints_of(40, long_list))), "KN1120"), "lists too long are refused");
    kn_ctx *other = kn_open(NULL);
    CHECK(has(kn_why(kn_add(x, kn_zeros(other, KN_SHAPE(), KN_F32))), "KN1104"), "contexts do not mix");
    kn_close(other);
    kn_clear(k);
}

static void graphs(kn_ctx *k) {
    kn_uop i = kn_u_range(k, kn_u_int(k, KN_IDX, 16), KN_LOOP_AXIS), p = kn_u_param(k, 0, KN_I32, 16);
    int64_t lo, hi;
    CHECK(i && kn_uop_bounds_int(i, &lo, &hi) && lo == 0 && hi == 15, "a range knows its bounds");
    kn_uop e = kn_u(k, "index", p, i), s = kn_u(k, "add", e, kn_u_int(k, KN_I32, 3));
    CHECK(s && s == kn_u(k, "add", e, kn_u_int(k, KN_I32, 3)), "equal nodes are one node");
    CHECK(kn_uop_const_int(kn_uop_src(s, 1), &lo) && lo == 3 && kn_uop_nsrc(s) == 2 && kn_uop_dtype(s) == KN_I32,
          "nodes can be read");
    CHECK(!kn_u(k, "ad", e, e) && has(kn_message(k), "KN1165: no op is named ad"), "an unknown op is refused by name");
    kn_clear(k);
    CHECK(!kn_u(k, "add", e, kn_u_float(k, KN_F32, 1)) && has(kn_message(k), "i32") && has(kn_message(k), "f32"),
          "ill-formed nodes are refused");
    CHECK(!kn_u(k, "neg", kn_u(k, "add", e, kn_u_float(k, KN_F32, 1))), "NULL in, NULL out");
    kn_clear(k);
    CHECK(!kn_u(k, "reduce", e) && has(kn_message(k), "KN1166"), "an op with an arg has its own constructor");
    kn_clear(k);
    CHECK(kn_kernel_check(k, e) && has(kn_message(k), "KN1167"), "a value is no kernel");
    kn_clear(k);
    kn_uop kernel = kn_u_kernel(k, "three", kn_u(k, "end", kn_u(k, "store", e, kn_u_int(k, KN_I32, 3)), i));
    CHECK(!kn_kernel_source(k, kernel, "ptx9") && has(kn_message(k), "KN1168"), "an unknown target is named");
    kn_clear(k);
    CHECK(kn_kernel_run(k, kernel, NULL, 0) && has(kn_message(k), "KN1169"), "a missing buffer is counted");
    kn_clear(k);
    char *c = kn_kernel_source(k, kernel, "c");
    CHECK(c && has(c, "void three("), "a kernel renders");
    kn_free(c);
    kn_uop m = kn_u_reduce(k, kn_u_input(k, "x", KN_F32, KN_SHAPE(2, 3)), "max", KN_AXES(-1));
    CHECK(kn_uop_rank(m) == 2 && kn_uop_dim(m, 1) == 1, "a reduction keeps its axis");
    char *text = kn_uop_text(k, m);
    CHECK(text && has(text, "reduce"), "a graph prints");
    kn_free(text);
}

int main(void) {
    kn_ctx *k = kn_open(NULL);
    if (!k) return 1;
    places(k);
    readers(k);
    scopes(k);
    flat(k);
    functions(k);
    host_memory(k);
    shapes(k);
    graphs(k);
    kn_close(k);
    kn_close(NULL);
    return tap_done();
}
