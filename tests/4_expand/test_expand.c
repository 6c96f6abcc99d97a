/* test_expand.c: kernels built by hand, expanded, and run on the machine of machine.h against plain C loops.
 */
#include "build.h"
#include "machine.h"
#include "ir/program.h"
#include "stages/3_optimize/optimize.h"
#include "stages/4_expand/expand.h"
#include "../tap.h"

#include <math.h>

/* Nodes of an op in a graph. */
static int count_op(kn_uop root, kn_op op) {
    kn_uop *v;
    int64_t n = ki_toposort(&ir, &root, 1, &v);
    int c = 0;
    for (int64_t i = 0; i < n; i++) c += v[i]->op == op;
    ki_free(v);
    return c;
}
static void show(kn_uop root) {
    ki_text t = {0};
    if (!getenv("SHOW") || !root) return;
    ki_print_graph(&ir, root, &t);
    fprintf(stderr, "%s\n", t.s);
    ki_text_free(&t);
}

static kn_uop expand_checked(kn_uop sink, const char *name) {
    show(sink);
    kn_uop e = sink ? ki_expand_kernel(&ir, NULL, sink) : NULL;
    show(e);
    if (!e) printf("# %s\n", env.message.s ? env.message.s : "?");
    CHECK(e, "%s: expands", name);
    if (!e) return NULL;
    kn_uop *v;
    int64_t n = ki_toposort(&ir, &e, 1, &v);
    bool clean = true;
    for (int64_t i = 0; i < n; i++) {
        clean &= v[i]->op != KN_INVALID;
        if (v[i]->op == KN_RANGE) clean &= v[i]->arg.range.axis != KN_AX_UPCAST && v[i]->arg.range.axis != KN_AX_UNROLL;
        if (v[i]->op == KN_REDUCE) clean &= v[i]->nsrc == 1;
    }
    ki_free(v);
    CHECK(clean, "%s: no lane ranges, no invalid, no reduce over ranges", name);
    return e;
}

static float fa[4096], fb[4096], fo[4096], fw[4096];
static void fill(void) {
    uint32_t s = 12345;
    for (int i = 0; i < 4096; i++) {
        s = s * 1664525 + 1013904223;
        fa[i] = (float)((int)(s >> 24) - 128);
        s = s * 1664525 + 1013904223;
        fb[i] = (float)((int)(s >> 24) - 128);
        fo[i] = fw[i] = -77;
    }
}
static int same(int n) {
    for (int i = 0; i < n; i++)
        if (fo[i] != fw[i]) return printf("# element %d: %g, expected %g\n", i, (double)fo[i], (double)fw[i]), 0;
    return 1;
}

static void elementwise(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 8), u = rng(KN_AX_UPCAST, 4), x = add(mul(i, I(4)), u);
    kn_uop s =
        sink1(end(store(param(0, KN_F32, 32), x, add(at(param(1, KN_F32, 32), x), at(param(2, KN_F32, 32), x))), i, u));
    kn_uop e = expand_checked(s, "elementwise");
    for (int k = 0; k < 32; k++) fw[k] = fa[k] + fb[k];
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32), MEM(fb, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(40), "elementwise: values");
    finish();
}

/* out[i] = sum_k a[i, k]; k split in loop 8 and unroll 4, i in loop 5 and upcast 2 */
static void row_sum(kn_op op) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 5), iu = rng(KN_AX_UPCAST, 2), k = rng(KN_AX_REDUCE, 8), ku = rng(KN_AX_UNROLL, 4);
    kn_uop row = add(mul(i, I(2)), iu), col = add(mul(k, I(4)), ku);
    kn_uop v = at(param(1, KN_F32, 320), add(mul(row, I(32)), col));
    kn_uop e =
        expand_checked(sink1(end(store(param(0, KN_F32, 10), row, reduce(op, v, k, ku)), i, iu)), ki_ops[op].name);
    for (int r = 0; r < 10; r++) {
        fw[r] = fa[r * 32];
        for (int c = 1; c < 32; c++) fw[r] = op == KN_ADD ? fw[r] + fa[r * 32 + c] : fmaxf(fw[r], fa[r * 32 + c]);
    }
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(12), "row %s: values", ki_ops[op].name);
    CHECK(e && count_op(e, KN_BUFFER) == 1 && count_op(e, KN_END) == 2, "row %s: one accumulator, two loops",
          ki_ops[op].name);
    finish();
}

/* matmul 6 x 8 x 10, register tile 3 x 4 */
static void matmul(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 2), iu = rng(KN_AX_UPCAST, 3), j = rng(KN_AX_LOOP, 2), ju = rng(KN_AX_UPCAST, 4);
    kn_uop k = rng(KN_AX_REDUCE, 10), r = add(mul(i, I(3)), iu), c = add(mul(j, I(4)), ju);
    kn_uop v = mul(at(param(1, KN_F32, 60), add(mul(r, I(10)), k)), at(param(2, KN_F32, 80), add(mul(k, I(8)), c)));
    kn_uop body = store(param(0, KN_F32, 48), add(mul(r, I(8)), c), reduce(KN_ADD, v, k, NULL));
    kn_uop e = expand_checked(sink1(ki_opn(&ir, KN_END, (kn_uop[]){body, i, j, iu, ju}, 5)), "matmul");
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 8; b++) {
            fw[a * 8 + b] = 0;
            for (int t = 0; t < 10; t++) fw[a * 8 + b] += fa[a * 10 + t] * fb[t * 8 + b];
        }
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32), MEM(fb, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(50), "matmul: values");
    finish();
}

/* out[i] = sum over k and c of a[i, k, c] b[k, c], the loop over c written out: one loop, terms in the order they had */
static void written_out(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_UPCAST, 4), k = rng(KN_AX_REDUCE, 8), c = rng(KN_AX_REDUCE, 3), t = add(mul(k, I(3)), c);
    kn_uop v = mul(at(param(1, KN_F32, 96), add(mul(i, I(24)), t)), at(param(2, KN_F32, 24), t));
    kn_uop s = sink1(end(store(param(0, KN_F32, 4), i, reduce(KN_ADD, v, k, c)), i, NULL));
    s = ki_apply_opt(&ir, s, (ki_opt){.op = KI_OPT_TERMS, .axis = (int32_t)c->arg.range.id, .id = -1});
    kn_uop e = s ? expand_checked(s, "written out") : NULL;
    for (int a = 0; a < 4; a++) {
        fw[a] = 0;
        for (int b = 0; b < 24; b++) fw[a] += fa[a * 24 + b] * fb[b];
    }
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32), MEM(fb, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(6), "written out: values");
    CHECK(e && count_op(e, KN_RANGE) == 1 && count_op(e, KN_MUL) >= 3, "written out: a loop, and three products in it");
    finish();
}

/* padded copy: out[x] = a[x - 3] where 3 <= x < 20, else 0, over 28 with upcast 4 */
static void gates(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 7), u = rng(KN_AX_UPCAST, 4), x = add(mul(i, I(4)), u);
    kn_uop valid = ki_op2(&ir, KN_AND, lt(I(2), x), lt(x, I(20)));
    kn_uop v = at(param(1, KN_F32, 17), where(valid, add(x, I(-3)), invalid()));
    kn_uop e =
        expand_checked(sink1(end(store(param(0, KN_F32, 26), where(lt(x, I(26)), x, invalid()), v), i, u)), "gates");
    for (int k = 0; k < 26; k++) fw[k] = k >= 3 && k < 20 ? fa[k - 3] : 0;
    mach_mem m[] = {{(unsigned char *)fo, 26, KN_F32}, {(unsigned char *)fa, 17, KN_F32}};
    CHECK(e && mach_run(&ir, e, m) && same(30), "gates: values");
    finish();
}

/* softmax-like: max, then sum of (a - max), then out = (a - max) + sum; all over one shared range object */
static void shared_range(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 3), k = rng(KN_AX_REDUCE, 8);
    kn_uop v = at(param(1, KN_F32, 24), add(mul(i, I(8)), k));
    kn_uop mx = reduce(KN_MAX, v, k, NULL), d = ki_op2(&ir, KN_SUB, v, mx), sum = reduce(KN_ADD, d, k, NULL);
    kn_uop e = expand_checked(sink1(end(store(param(0, KN_F32, 24), add(mul(i, I(8)), k), add(d, sum)), i, k)),
                              "shared range");
    for (int r = 0; r < 3; r++) {
        float m = fa[r * 8], t = 0;
        for (int c = 0; c < 8; c++) m = fmaxf(m, fa[r * 8 + c]);
        for (int c = 0; c < 8; c++) t += fa[r * 8 + c] - m;
        for (int c = 0; c < 8; c++) fw[r * 8 + c] = fa[r * 8 + c] - m + t;
    }
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(26), "shared range: values");
    finish();
}

/* two independent sums over one loop share its END */
static void merged(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 3), k = rng(KN_AX_REDUCE, 8);
    kn_uop v = at(param(1, KN_F32, 24), add(mul(i, I(8)), k));
    kn_uop a = reduce(KN_ADD, v, k, NULL), b = reduce(KN_ADD, mul(v, v), k, NULL);
    kn_uop e = expand_checked(sink1(end(store(param(0, KN_F32, 3), i, add(mul(a, a), b)), i, NULL)), "merged");
    for (int r = 0; r < 3; r++) {
        float s = 0, q = 0;
        for (int c = 0; c < 8; c++) s += fa[r * 8 + c], q += fa[r * 8 + c] * fa[r * 8 + c];
        fw[r] = s * s + q;
    }
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(5), "merged: values");
    CHECK(e && count_op(e, KN_END) == 2 && count_op(e, KN_LOAD) == 5, "merged: two accumulators, one loop");
    finish();
}

/* a reduce over lanes along which the value does not vary counts it; a sum over lanes only needs no loop */
static void lane_only(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 4), ku = rng(KN_AX_UNROLL, 3), kv = rng(KN_AX_UNROLL, 2);
    kn_uop v = at(param(1, KN_F32, 12), add(mul(i, I(3)), ku));
    kn_uop e =
        expand_checked(sink1(end(store(param(0, KN_F32, 4), i, reduce(KN_ADD, v, ku, kv)), i, NULL)), "lanes only");
    for (int r = 0; r < 4; r++) fw[r] = 2 * (fa[r * 3] + fa[r * 3 + 1] + fa[r * 3 + 2]);
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(6), "lanes only: values");
    CHECK(e && count_op(e, KN_BUFFER) == 0, "lanes only: no accumulator");
    finish();
}

/* running sum along i for each of 2 x 4 columns: a REG carried over a serial loop, which must get a copy a
 * lane */
static void scan(void) {
    begin(), fill();
    kn_uop c = rng(KN_AX_LOOP, 2), u = rng(KN_AX_UPCAST, 4), i = rng(KN_AX_LOOP, 5), col = add(mul(c, I(4)), u);
    kn_uop x = add(mul(i, I(8)), col), z = I(0), acc = ki_buffer_make(&ir, 0, 1, KN_F32, KN_REG, 0);
    kn_uop init = store(ki_opn(&ir, KN_AFTER, (kn_uop[]){acc, c, u}, 3), z, ki_const_float(&ir, KN_F32, 0));
    kn_uop acc1 = ki_opn(&ir, KN_AFTER, (kn_uop[]){acc, init, i}, 3);
    kn_uop now = add(ki_op1(&ir, KN_LOAD, at(acc1, z)), at(param(1, KN_F32, 40), x));
    kn_uop upd = ki_op2(&ir, KN_STORE, at(acc1, z), now);
    kn_uop out = ki_op2(&ir, KN_STORE, at(param(0, KN_F32, 40), x),
                        ki_op1(&ir, KN_LOAD, at(ki_op2(&ir, KN_AFTER, acc, upd), z)));
    kn_uop e = expand_checked(sink1(ki_opn(&ir, KN_END, (kn_uop[]){out, c, u, i}, 4)), "scan");
    for (int k = 0; k < 8; k++)
        for (int r = 0; r < 5; r++) fw[r * 8 + k] = fa[r * 8 + k] + (r ? fw[r * 8 - 8 + k] : 0);
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(42), "scan: values");
    finish();
}

/* reshape (4, 6) -> (3, 8) of a transposed read: quotients and remainders of lanes */
static void divmod(void) {
    for (int width = 1; width <= 8; width *= 2) {
        begin(), fill();
        kn_uop i = rng(KN_AX_LOOP, 24 / width), u = rng(KN_AX_UPCAST, width), x = add(mul(i, I(width)), u);
        kn_uop r = ki_op2(&ir, KN_IDIV, x, I(6)), c = ki_op2(&ir, KN_MOD, x, I(6));
        kn_uop v = at(param(1, KN_F32, 24), add(mul(c, I(4)), r));
        kn_uop w = at(param(2, KN_F32, 6), ki_op2(&ir, KN_IDIV, x, I(4)));
        kn_uop e = expand_checked(sink1(end(store(param(0, KN_F32, 24), x, add(v, w)), i, u)), "quotients");
        for (int k = 0; k < 24; k++) fw[k] = fa[k % 6 * 4 + k / 6] + fb[k / 4];
        mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32), MEM(fb, KN_F32)};
        CHECK(e && mach_run(&ir, e, m) && same(26), "quotients, %d lanes: values", width);
        finish();
    }
}

/* empty and singular: a reduce of extent 0 is +0; one lane is no lane */
static void edges(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 2), k = rng(KN_AX_REDUCE, 0), u = rng(KN_AX_UPCAST, 1);
    kn_uop v = at(param(1, KN_F32, 8), add(add(i, k), u));
    kn_uop e =
        expand_checked(sink1(end(store(param(0, KN_F32, 2), add(i, u), reduce(KN_ADD, v, k, NULL)), i, u)), "empty");
    fw[0] = fw[1] = 0;
    mach_mem m[] = {MEM(fo, KN_F32), MEM(fa, KN_F32)};
    CHECK(e && mach_run(&ir, e, m) && same(3) && !signbit(fo[0]), "empty: values");
    finish();

    begin();
    kn_uop n = ki_param_make(&ir, -1, KN_IDX, KN_GLOBAL, 0, "n", (int64_t[]){1, 9}, NULL), b = rng(KN_AX_LOOP, 3);
    kn_uop s = ki_range_make(&ir, next_id++, KN_AX_UPCAST, n);
    CHECK(!ki_expand_kernel(
              &ir, NULL,
              sink1(end(store(param(0, KN_F32, 30), add(mul(b, I(9)), s), ki_const_float(&ir, KN_F32, 1)), b, s))) &&
              env.err == KI_E_LANE_EXTENT,
          "a symbolic lane range is refused");
    finish();

    begin();
    kn_uop idx = I(0), src[32];
    uint32_t c = 0;
    for (int q = 0; q < 20; q++) {
        src[++c] = rng(KN_AX_UPCAST, 2);
        idx = add(mul(idx, I(2)), src[c]);
    }
    src[0] = store(param(0, KN_F32, 1 << 20), idx, ki_const_float(&ir, KN_F32, 1));
    CHECK(!ki_expand_kernel(&ir, NULL, sink1(ki_opn(&ir, KN_END, src, c + 1))) && env.err == KI_E_LANE_AXES,
          "too many lane axes are refused");
    finish();

    /* many lane ranges that never meet share axes */
    begin(), fill();
    kn_uop part[20];
    for (int q = 0; q < 20; q++) {
        kn_uop r = rng(KN_AX_UPCAST, 2 + q % 3), p = param(0, KN_F32, 100), y = add(r, I(q * 4));
        part[q] = end(store(p, y, at(param(1, KN_F32, 100), y)), r, NULL);
        for (int t = 0; t < 2 + q % 3; t++) fw[q * 4 + t] = fa[q * 4 + t];
    }
    e = expand_checked(ki_opn(&ir, KN_SINK, part, 20), "many nests");
    CHECK(e && mach_run(&ir, e, m) && same(100), "many nests: values");
    finish();
}

int main(void) {
    elementwise();
    row_sum(KN_ADD);
    row_sum(KN_MAX);
    matmul();
    written_out();
    gates();
    shared_range();
    merged();
    lane_only();
    scan();
    divmod();
    edges();
    return tap_done();
}
