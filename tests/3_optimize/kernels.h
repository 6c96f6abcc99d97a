/* kernels.h: kernels built by hand, run before and after what stage 3 does to them. */
#ifndef KERNELS_H
#define KERNELS_H

#include "../4_expand/build.h"
#include "../4_expand/machine.h"
#include "../tap.h"
#include "base/alloc.h"
#include "ir/program.h"
#include "stages/3_optimize/optimize.h"
#include "stages/4_expand/expand.h"

enum { MOST = 1 << 14 };
static float in1[MOST], in2[MOST], got[MOST], want[MOST];

static uint32_t seed = 1;
static uint32_t rnd(uint32_t n) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % n;
}
static void fill(void) {
    for (int i = 0; i < MOST; i++) {
        in1[i] = (float)((int)rnd(15) - 7);
        in2[i] = (float)((int)rnd(15) - 7);
        got[i] = want[i] = -77;
    }
}

/* ---- kernels ------------------------------------------------------------------------------------------------- */

static kn_uop matmul(int m, int k, int n) {
    kn_uop i = rng(KN_AX_LOOP, m), j = rng(KN_AX_LOOP, n), r = rng(KN_AX_REDUCE, k);
    kn_uop v =
        mul(at(param(1, KN_F32, m * k), add(mul(i, I(k)), r)), at(param(2, KN_F32, k * n), add(mul(r, I(n)), j)));
    return sink1(end(store(param(0, KN_F32, m * n), add(mul(i, I(n)), j), reduce(KN_ADD, v, r, NULL)), i, j));
}
static kn_uop matmul_t(int m, int k, int n) {
    kn_uop i = rng(KN_AX_LOOP, m), j = rng(KN_AX_LOOP, n), r = rng(KN_AX_REDUCE, k);
    kn_uop v =
        mul(at(param(1, KN_F32, m * k), add(mul(i, I(k)), r)), at(param(2, KN_F32, k * n), add(mul(j, I(k)), r)));
    return sink1(end(store(param(0, KN_F32, m * n), add(mul(i, I(n)), j), reduce(KN_ADD, v, r, NULL)), i, j));
}
/* max, then sum of differences, then the output: three loops under a row */
static kn_uop rows(int m, int n) {
    kn_uop i = rng(KN_AX_LOOP, m), a = rng(KN_AX_REDUCE, n), b = rng(KN_AX_REDUCE, n), c = rng(KN_AX_LOOP, n),
           p = param(1, KN_F32, m * n);
    kn_uop base = mul(i, I(n)), mx = reduce(KN_MAX, at(p, add(base, a)), a, NULL);
    kn_uop sum = reduce(KN_ADD, ki_op2(&ir, KN_SUB, at(p, add(base, b)), mx), b, NULL);
    return sink1(end(
        store(param(0, KN_F32, m * n), add(base, c), add(ki_op2(&ir, KN_SUB, at(p, add(base, c)), mx), sum)), i, c));
}
/* a row that is kept, `work` additions an element, summed up, and stored with its sum; below: what is kept is less the row's maximum, which is added to
 * each result if `beside` */
static kn_uop kept_row(int m, int n, int work, bool below, bool beside) {
    kn_uop i = rng(KN_AX_LOOP, m), j = rng(KN_AX_LOOP, n), b = rng(KN_AX_REDUCE, n), c = rng(KN_AX_LOOP, n),
           base = mul(i, I(n)), p = param(1, KN_F32, m * n);
    kn_uop a = below ? rng(KN_AX_REDUCE, n) : NULL, mx = below ? reduce(KN_MAX, at(p, add(base, a)), a, NULL) : NULL;
    kn_uop buf = ki_buffer_make(&ir, 0, n, KN_F32, KN_LOCAL, 0), x = at(p, add(base, j)), v = x;
    if (below) v = ki_op2(&ir, KN_SUB, x, mx);
    for (int w = 0; w < work; w++) v = add(v, x);
    kn_uop fill = end(ki_op2(&ir, KN_STORE, at(ki_op2(&ir, KN_AFTER, buf, i), j), v), j, NULL),
           full = ki_op2(&ir, KN_AFTER, buf, fill);
    kn_uop sum = reduce(KN_ADD, at(full, b), b, NULL);
    if (beside) sum = add(sum, mx);
    return sink1(end(store(param(0, KN_F32, m * n), add(base, c), add(add(at(full, c), at(full, c)), sum)), i, c));
}
static kn_uop kept(int m, int n, int work) { return kept_row(m, n, work, false, false); }
static kn_uop kept_below(int m, int n, int work) { return kept_row(m, n, work, true, false); }
/* a row's maximum, and the sum of `work` additions to what each element is below it */
static kn_uop below_max(int m, int n, int work) {
    kn_uop i = rng(KN_AX_LOOP, m), a = rng(KN_AX_REDUCE, n), b = rng(KN_AX_REDUCE, n), p = param(1, KN_F32, m * n);
    kn_uop mx = reduce(KN_MAX, at(p, add(mul(i, I(n)), a)), a, NULL), x = at(p, add(mul(i, I(n)), b)),
           v = ki_op2(&ir, KN_SUB, x, mx);
    for (int w = 0; w < work; w++) v = add(v, x);
    return sink1(end(store(param(0, KN_F32, m), i, add(reduce(KN_ADD, v, b, NULL), mx)), i, NULL));
}
static kn_uop columns(int m, int n) {
    kn_uop j = rng(KN_AX_LOOP, n), r = rng(KN_AX_REDUCE, m);
    return sink1(
        end(store(param(0, KN_F32, n), j, reduce(KN_ADD, at(param(1, KN_F32, m * n), add(mul(r, I(n)), j)), r, NULL)),
            j, NULL));
}
static kn_uop whole(int n) {
    kn_uop r = rng(KN_AX_REDUCE, n);
    return sink1(store(param(0, KN_F32, 1), I(0), reduce(KN_ADD, at(param(1, KN_F32, n), r), r, NULL)));
}
static kn_uop transpose(int m, int n) {
    kn_uop i = rng(KN_AX_LOOP, n), j = rng(KN_AX_LOOP, m);
    return sink1(end(
        store(param(0, KN_F32, m * n), add(mul(i, I(m)), j), at(param(1, KN_F32, m * n), add(mul(j, I(n)), i))), i, j));
}
/* out[x] = a[x - 3] + b[x] inside, b[x] outside */
static kn_uop padded(int n) {
    kn_uop x = rng(KN_AX_LOOP, n), valid = ki_op2(&ir, KN_AND, lt(I(2), x), lt(x, I(n - 4)));
    kn_uop v = at(param(1, KN_F32, n - 7), where(valid, add(x, I(-3)), invalid()));
    return sink1(end(store(param(0, KN_F32, n), x, add(v, at(param(2, KN_F32, n), x))), x, NULL));
}
/* n channels in, c out, of h x w, 3 x 3 with a border of zeros, every step-th position */
static kn_uop convolve(int n, int c, int h, int w, int step) {
    int oh = (h - 1) / step + 1, ow = (w - 1) / step + 1;
    kn_uop o = rng(KN_AX_LOOP, c), y = rng(KN_AX_LOOP, oh), x = rng(KN_AX_LOOP, ow), i = rng(KN_AX_REDUCE, n),
           a = rng(KN_AX_REDUCE, 3), b = rng(KN_AX_REDUCE, 3);
    kn_uop iy = add(add(mul(y, I(step)), a), I(-1)), ix = add(add(mul(x, I(step)), b), I(-1));
    kn_uop valid = ki_op2(&ir, KN_AND, ki_op2(&ir, KN_AND, lt(I(-1), iy), lt(iy, I(h))),
                          ki_op2(&ir, KN_AND, lt(I(-1), ix), lt(ix, I(w))));
    kn_uop place = add(mul(i, I(h * w)), add(mul(iy, I(w)), ix));
    kn_uop v = at(param(1, KN_F32, n * h * w), where(valid, place, invalid()));
    kn_uop k = at(param(2, KN_F32, c * n * 9), add(mul(add(mul(o, I(n)), i), I(9)), add(mul(a, I(3)), b)));
    kn_uop out = add(mul(o, I(oh * ow)), add(mul(y, I(ow)), x));
    kn_arg sums = {.reduce = {.op = KN_ADD}};
    kn_uop sum = ki_make(&ir, KN_REDUCE, KN_VOID, (kn_uop[]){mul(v, k), i, a, b}, 4, sums, 0);
    return sink1(ki_opn(&ir, KN_END, (kn_uop[]){store(param(0, KN_F32, c * oh * ow), out, sum), o, y, x}, 4));
}
/* two values beside each other, each a row of heads with a matrix of their own: out[t, n] = sum of p[n / d, t, s] x[s, n], the sums of the
 * first half and of the second apart */
static kn_uop values(int rows, int heads, int d, int len) {
    int half = heads * d;
    kn_uop t = rng(KN_AX_LOOP, rows), n = rng(KN_AX_LOOP, 2 * half), head = ki_op2(&ir, KN_IDIV, n, I(d)),
           zero = ki_const_float(&ir, KN_F32, 0);
    kn_uop part[2] = {lt(n, I(half)), lt(mul(n, I(-1)), I(1 - half))}, all = NULL;
    for (int i = 0; i < 2; i++) {
        kn_uop s = rng(KN_AX_REDUCE, len);
        kn_uop p = add(mul(head, I(rows * len)), add(mul(t, I(len)), s)), x = add(mul(s, I(2 * half)), n);
        kn_uop v = mul(at(param(1, KN_F32, 2 * heads * rows * len), where(part[i], p, invalid())),
                       at(param(2, KN_F32, len * 2 * half), where(part[i], x, invalid())));
        kn_uop sum = where(part[i], reduce(KN_ADD, v, s, NULL), zero);
        all = all ? add(all, sum) : sum;
    }
    return sink1(end(store(param(0, KN_F32, rows * 2 * half), add(mul(t, I(2 * half)), n), all), t, n));
}
/* running sums down the columns of n rows */
static kn_uop scan(int n, int cols) {
    kn_uop c = rng(KN_AX_LOOP, cols), i = rng(KN_AX_LOOP, n), x = add(mul(i, I(cols)), c), z = I(0),
           acc = ki_buffer_make(&ir, 0, 1, KN_F32, KN_REG, 0);
    kn_uop init = store(ki_op2(&ir, KN_AFTER, acc, c), z, ki_const_float(&ir, KN_F32, 0)),
           acc1 = ki_op3(&ir, KN_AFTER, acc, init, i);
    kn_uop upd = store(acc1, z, add(ki_op1(&ir, KN_LOAD, at(acc1, z)), at(param(1, KN_F32, n * cols), x)));
    kn_uop out = store(param(0, KN_F32, n * cols), x, ki_op1(&ir, KN_LOAD, at(ki_op2(&ir, KN_AFTER, acc, upd), z)));
    return sink1(end(out, c, i));
}
/* cumsum along rows: as rangeify makes it, no LOAD in it yet */
static kn_uop running(int rows, int n) {
    kn_uop i = rng(KN_AX_LOOP, rows), j = rng(KN_AX_LOOP, n), x = add(mul(i, I(n)), j), z = I(0),
           acc = ki_buffer_make(&ir, 0, 1, KN_F32, KN_REG, 0);
    kn_uop init = store(ki_op2(&ir, KN_AFTER, acc, i), z, ki_const_float(&ir, KN_F32, -0.0)),
           old = at(ki_op3(&ir, KN_AFTER, acc, init, j), z);
    kn_uop upd = ki_op2(&ir, KN_STORE, old, add(old, at(param(1, KN_F32, rows * n), x)));
    return sink1(end(store(param(0, KN_F32, rows * n), x, at(ki_op2(&ir, KN_AFTER, acc, upd), z)), i, j));
}
/* cumsum down columns, likewise */
static kn_uop running_down(int n, int cols) {
    kn_uop j = rng(KN_AX_LOOP, cols), i = rng(KN_AX_LOOP, n), x = add(mul(i, I(cols)), j), z = I(0),
           acc = ki_buffer_make(&ir, 0, 1, KN_F32, KN_REG, 0);
    kn_uop init = store(ki_op2(&ir, KN_AFTER, acc, j), z, ki_const_float(&ir, KN_F32, -0.0)),
           old = at(ki_op3(&ir, KN_AFTER, acc, init, i), z);
    kn_uop upd = ki_op2(&ir, KN_STORE, old, add(old, at(param(1, KN_F32, n * cols), x)));
    return sink1(end(store(param(0, KN_F32, n * cols), x, at(ki_op2(&ir, KN_AFTER, acc, upd), z)), j, i));
}
/* where the largest of n, or the least, is: n less the first such place, as argmax has it; seen: and what it is */
static kn_uop places(int many, int apart, int n, int step, bool least, bool seen) {
    kn_uop j = rng(KN_AX_LOOP, many), a = rng(KN_AX_REDUCE, n), b = rng(KN_AX_REDUCE, n), p = param(1, KN_F32, MOST),
           row = mul(j, I(apart)), y = at(p, add(row, mul(a, I(step)))), x = at(p, add(row, mul(b, I(step))));
    kn_uop m = reduce(KN_MAX, least ? ki_op1(&ir, KN_NEG, y) : y, a, NULL), most = least ? ki_op1(&ir, KN_NEG, m) : m;
    kn_uop hit = ki_op2(&ir, KN_OR, ki_op2(&ir, KN_CMPEQ, x, most), ki_op2(&ir, KN_CMPNE, x, x));
    kn_uop left = ki_op2(&ir, KN_SUB, ki_const_int(&ir, KN_I32, n), ki_cast(&ir, b, KN_I32));
    kn_uop at = ki_cast(&ir, reduce(KN_MAX, where(hit, left, ki_const_int(&ir, KN_I32, 0)), b, NULL), KN_F32);
    kn_uop out = param(0, KN_F32, 2 * many), put = store(out, j, at);
    if (seen) put = ki_op2(&ir, KN_GROUP, put, store(out, add(j, I(many)), most));
    return sink1(end(put, j, NULL));
}
static kn_uop largest(int n, int cols) { return places(cols, 1, n, cols, false, false); }
/* less its column's sum, and stored across: a channel's mean, where channels lie innermost */
static kn_uop centred(int m, int n) {
    kn_uop j = rng(KN_AX_LOOP, n), i = rng(KN_AX_LOOP, m), r = rng(KN_AX_REDUCE, m), p = param(1, KN_F32, m * n);
    kn_uop sum = reduce(KN_ADD, at(p, add(mul(r, I(n)), j)), r, NULL), v = at(p, add(mul(i, I(n)), j));
    return sink1(end(store(param(0, KN_F32, m * n), add(mul(j, I(m)), i), ki_op2(&ir, KN_SUB, v, sum)), j, i));
}
/* less its row's sum, which is stored before the row is */
static kn_uop stored_before(int m, int n) {
    kn_uop i = rng(KN_AX_LOOP, m), j = rng(KN_AX_LOOP, n), r = rng(KN_AX_REDUCE, n), p = param(1, KN_F32, m * n);
    kn_uop out = param(0, KN_F32, m * n + m), sum = reduce(KN_ADD, at(p, add(mul(i, I(n)), r)), r, NULL);
    kn_uop after = ki_op2(&ir, KN_AFTER, out, store(out, add(i, I(m * n)), sum)), at_j = add(mul(i, I(n)), j);
    return sink1(end(store(after, at_j, ki_op2(&ir, KN_SUB, at(p, at_j), sum)), i, j));
}
/* of n pairs of images, d x d elements each, o and c of them: the sums of products of any two, shifted by 0, 1, 2 in a border of one
 * where window is 3: what a filter's gradient is */
static kn_uop filters(int n, int o, int c, int d, int window) {
    kn_uop i = rng(KN_AX_LOOP, o), j = rng(KN_AX_LOOP, c), a = rng(KN_AX_LOOP, window), b = rng(KN_AX_LOOP, window),
           r = rng(KN_AX_REDUCE, n), y = rng(KN_AX_REDUCE, d), x = rng(KN_AX_REDUCE, d);
    kn_uop iy = add(add(y, a), I(-(window / 2))), ix = add(add(x, b), I(-(window / 2)));
    kn_uop valid = ki_op2(&ir, KN_AND, ki_op2(&ir, KN_AND, lt(I(-1), iy), lt(iy, I(d))),
                          ki_op2(&ir, KN_AND, lt(I(-1), ix), lt(ix, I(d))));
    kn_uop image = mul(add(mul(r, I(c)), j), I(d * d)), from = add(image, add(mul(iy, I(d)), ix));
    kn_uop v = at(param(1, KN_F32, n * c * d * d), window > 1 ? where(valid, from, invalid()) : from);
    kn_uop w = at(param(2, KN_F32, n * o * d * d), add(mul(add(mul(r, I(o)), i), I(d * d)), add(mul(y, I(d)), x)));
    kn_uop out = add(mul(add(mul(i, I(c)), j), I(window * window)), add(mul(a, I(window)), b));
    kn_arg sums = {.reduce = {.op = KN_ADD}};
    kn_uop sum = ki_make(&ir, KN_REDUCE, KN_VOID, (kn_uop[]){mul(v, w), r, y, x}, 4, sums, 0);
    kn_uop to = store(param(0, KN_F32, o * c * window * window), out, sum);
    return sink1(ki_opn(&ir, KN_END, (kn_uop[]){to, i, j, a, b}, 5));
}
/* c images of d x d, of o images half as wide and high: 3 x 3 positions of each count where both are even, what the gradient of a
 * convolution with stride 2 is */
static kn_uop strided(int o, int c, int d) {
    kn_uop j = rng(KN_AX_LOOP, c), y = rng(KN_AX_LOOP, d), x = rng(KN_AX_LOOP, d), i = rng(KN_AX_REDUCE, o),
           a = rng(KN_AX_REDUCE, 3), b = rng(KN_AX_REDUCE, 3), none = ki_const_float(&ir, KN_F32, -0.0);
    kn_uop sy = add(y, a), sx = add(x, b), two = I(2), half = I(d / 2), oy = ki_op2(&ir, KN_IDIV, sy, two),
           ox = ki_op2(&ir, KN_IDIV, sx, two);
    kn_uop even = ki_op2(&ir, KN_AND, lt(ki_op2(&ir, KN_MOD, sy, two), I(1)), lt(ki_op2(&ir, KN_MOD, sx, two), I(1)));
    kn_uop valid = ki_op2(&ir, KN_AND, even, ki_op2(&ir, KN_AND, lt(oy, half), lt(ox, half)));
    kn_uop place = add(mul(i, I(d * d / 4)), add(mul(oy, half), ox));
    kn_uop v = at(param(1, KN_F32, o * d * d / 4), where(valid, place, invalid()));
    kn_uop w = at(param(2, KN_F32, o * c * 9), add(mul(add(mul(i, I(c)), j), I(9)), add(mul(a, I(3)), b)));
    kn_arg sums = {.reduce = {.op = KN_ADD}};
    kn_uop sum = ki_make(&ir, KN_REDUCE, KN_VOID, (kn_uop[]){where(valid, mul(v, w), none), i, a, b}, 4, sums, 0);
    kn_uop out = add(mul(j, I(d * d)), add(mul(y, I(d)), x));
    return sink1(ki_opn(&ir, KN_END, (kn_uop[]){store(param(0, KN_F32, c * d * d), out, sum), j, y, x}, 4));
}
/* a product whose one side is two values, one below the other: rows up to `at`, and those from there on */
static kn_uop joined_sides(int m, int k, int n, int at_row) {
    kn_uop i = rng(KN_AX_LOOP, m), j = rng(KN_AX_LOOP, n), r = rng(KN_AX_REDUCE, k), first = lt(r, I(at_row)),
           second = lt(mul(r, I(-1)), I(1 - at_row));
    kn_uop a = at(param(1, KN_F32, MOST), where(first, add(mul(r, I(n)), j), invalid())),
           b = at(param(2, KN_F32, MOST), where(second, add(mul(add(r, I(-at_row)), I(n)), j), invalid()));
    kn_uop w = at(param(1, KN_F32, MOST), add(I(MOST / 2), add(mul(i, I(k)), r)));
    return sink1(
        end(store(param(0, KN_F32, m * n), add(mul(i, I(n)), j), reduce(KN_ADD, mul(w, where(first, a, b)), r, NULL)),
            i, j));
}
/* two outputs of different size in one kernel */
static kn_uop two(int n, int m) {
    kn_uop i = rng(KN_AX_LOOP, n), j = rng(KN_AX_LOOP, m);
    kn_uop a = end(store(param(0, KN_F32, n + m), i, at(param(1, KN_F32, n), i)), i, NULL);
    kn_uop b = end(
        store(param(0, KN_F32, n + m), add(j, I(n)), mul(at(param(2, KN_F32, m), j), ki_const_float(&ir, KN_F32, 2))),
        j, NULL);
    return ki_op2(&ir, KN_SINK, a, b);
}
enum { KERNELS = 35 };
static const char *build(int which, kn_uop *sink) {
    switch (which) {
    case 0: return *sink = matmul(20, 12, 34), "matmul 20 12 34";
    case 1: return *sink = matmul(64, 40, 128), "matmul 64 40 128";
    case 2: return *sink = matmul(7, 5, 10), "matmul 7 5 10";
    case 3: return *sink = matmul_t(13, 70, 9), "matmul transposed";
    case 4: return *sink = rows(6, 50), "rows 6 50";
    case 5: return *sink = rows(3, 150), "rows 3 150";
    case 6: return *sink = columns(30, 70), "columns";
    case 7: return *sink = columns(9, 600), "columns, wide";
    case 8: return *sink = whole(1003), "whole";
    case 9: return *sink = transpose(37, 50), "transpose";
    case 10: return *sink = padded(301), "padded";
    case 11: return *sink = convolve(1, 20, 9, 21, 1), "convolution";
    case 12: return *sink = scan(11, 24), "scan";
    case 13: return *sink = two(90, 33), "two nests";
    case 14: return *sink = matmul(5, 300, 1), "matrix times vector";
    case 15: return *sink = columns(9, 127), "columns, a vector's remainder short";
    case 17: return *sink = convolve(16, 4, 6, 7, 1), "convolution, rows joined";
    case 19: return *sink = values(6, 2, 16, 10), "values beside each other";
    case 18: return *sink = convolve(9, 8, 10, 10, 2), "convolution, staged and joined";
    case 20: return *sink = running(5, 64), "running sums along rows";
    case 16: return *sink = columns(9, 130), "columns, an element too many";
    case 21: return *sink = running_down(24, 70), "running sums down columns";
    case 22: return *sink = largest(21, 40), "places of the largest";
    case 25: return *sink = places(5, 133, 133, 1, true, true), "places of the least in rows, and what it is";
    case 23: return *sink = matmul(1, 37, 96), "vector times matrix, short";
    case 24: return *sink = kept(34, 64, 16), "rows that are kept";
    case 27: return *sink = filters(2, 20, 16, 16, 1), "products of images";
    case 28: return *sink = filters(3, 16, 16, 10, 3), "products of shifted images";
    case 30: return *sink = centred(70, 40), "less a column's sum, stored across";
    case 31: return *sink = stored_before(19, 70), "less a row's sum, stored before";
    case 29: return *sink = strided(12, 9, 18), "every second position";
    case 32: return *sink = joined_sides(20, 30, 48, 13), "a product of two values, one below the other";
    case 33: return *sink = below_max(33, 70, 16), "a row below its maximum";
    case 34: return *sink = kept_below(34, 64, 16), "rows that are kept, below their maxima";
    default: return *sink = matmul(1, 100, 90), "vector times matrix";
    }
}

/* ---- running ------------------------------------------------------------------------------------------------- */

static bool run(kn_uop sink, float *out) {
    mach_mem m[] = {{(unsigned char *)out, MOST, KN_F32}, MEM(in1, KN_F32), MEM(in2, KN_F32)};
    for (int i = 0; i < MOST; i++) out[i] = -77;
    kn_uop e = sink ? ki_expand_kernel(&ir, NULL, sink) : NULL;
    if (!e) return printf("# %s\n", env.message.s ? env.message.s : "?"), false;
    return mach_run(&ir, e, m);
}
static bool agrees(kn_uop sink) {
    if (!run(sink, got)) return false;
    for (int i = 0; i < MOST; i++)
        if (got[i] != want[i])
            return printf("# element %d: %g, expected %g\n", i, (double)got[i], (double)want[i]), false;
    return true;
}
static void show(kn_uop root) {
    ki_text t = {0};
    ki_print_graph(&ir, root, &t);
    for (char *s = strtok(t.s, "\n"); s; s = strtok(NULL, "\n")) printf("# %s\n", s);
    ki_text_free(&t);
}

#endif
