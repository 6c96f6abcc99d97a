/* test_optimize.c: OptOps, alone, in random sequences and as the heuristics choose them, leave a kernel's results as they
 * are (the machine of stage 4's tests runs both forms); illegal ones are refused with their own message. */
#include "kernels.h"
#include "stages/3_optimize/nest.h"

#include <math.h>

static ki_opt opt(ki_optop op, int axis, int arg, kn_axis target, bool top) {
    return (ki_opt){.op = (uint8_t)op, .axis = axis, .arg = arg, .target = (uint8_t)target, .top = top, .id = -1};
}

/* Is an OptOp in an optimized kernel's list? */
static bool has(kn_uop o, ki_optop op) {
    bool is = false;
    for (uint32_t i = 0; o && i < o->arg.kernel->nopt; i++) is |= o->arg.kernel->opt[i].op == op;
    return is;
}
static bool chooses(ki_optop op, const ki_target *t, kn_uop sink, ki_machine m) {
    return has(ki_optimize(&ir, t, &m, sink), op);
}

/* ---- tests --------------------------------------------------------------------------------------------------- */

static void heuristics(void) {
    static const char *const target[] = {"sse2", "avx2", "avx512"};
    for (int w = 0; w < KERNELS; w++) {
        bool ok = true, replayed = true, chosen = true;
        const char *name = "";
        for (int t = 0; t < 3; t++)
            for (unsigned threads = 1, n = 0; threads <= 7; threads += 1 + n % 2, n++) {
                kn_uop sink;
                begin(), fill();
                name = build(w, &sink);
                if (!run(sink, want)) ok = false;
                ki_machine m = {.threads = threads, .alone = n % 2, .stream = n % 3 == 1};
                chosen &= ki_opt_choose(&ir, ki_target_named(target[t]), &m, NULL, ki_flatten_sums(&ir, sink)) != NULL;
                kn_uop o = ki_optimize(&ir, ki_target_named(target[t]), &m, sink);
                if (!agrees(o)) ok = (o ? show(o) : (void)0, false);
                /* the list, applied again to the plain kernel, gives the same node */
                const ki_kernel *k = o ? o->arg.kernel : NULL;
                replayed &= k && ki_apply_opts(&ir, sink, k->opt, k->nopt) == o;
                finish();
            }
        CHECK(ok, "heuristics: %s", name);
        CHECK(chosen, "heuristics: %s: no step is refused", name);
        CHECK(replayed, "heuristics: %s: the list of OptOps replays", name);
    }
}

static kn_uop square(int m, int n) { return matmul(m, m, n); }
static kn_uop square_t(int m, int n) { return matmul_t(m, m, n); }

/* A step that is refused leaves the whole kernel as it was, right and a hundred times slower. */
static void no_step_is_refused(void) {
    static const char *const target[] = {"sse2", "avx2", "avx512"}, *const name[] = {"matmul", "matmul_t", "rows",
                                                                                     "columns", "transpose"};
    kn_uop (*const make[])(int, int) = {square, square_t, rows, columns, transpose};
    for (int kind = 0; kind < 5; kind++) {
        int refused = 0;
        for (int n = 1; n <= 520; n += n < 140 ? 1 : 17)
            for (int t = 0; t < 3; t++)
                for (unsigned threads = 1; threads <= 5; threads += 1 + threads / 3) {
                    begin();
                    ki_machine m = {.threads = threads, .alone = 1};
                    kn_uop sink = ki_flatten_sums(&ir, make[kind](n, n));
                    if (!ki_opt_choose(&ir, ki_target_named(target[t]), &m, NULL, sink) && refused++ < 5)
                        printf("# %s %d, %u threads, %s: %s\n", name[kind], n, threads, target[t], env.message.s);
                    finish();
                }
        CHECK(!refused, "no step of the heuristics is refused: %s of any size (%d are)", name[kind], refused);
    }
}

/* Random OptOps; most are refused, and must leave no trace but the message. */
static void random_ops(int w, int runs) {
    bool ok = true;
    const char *name = "";
    int applied = 0;
    for (int n = 0; n < runs && ok; n++) {
        kn_uop sink;
        begin(), fill();
        name = build(w, &sink);
        ok = run(sink, want);
        static const ki_optop first[] = {KI_OPT_LATE, KI_OPT_PIPELINE}; /* seldom drawn one after the other */
        for (unsigned s = 0; s < 2 && n % 2; s++) {
            kn_uop next = ki_apply_opt(&ir, sink, opt(first[s], 0, 0, 0, false));
            if (next) sink = next, applied++;
            else ki_env_clear(&env);
        }
        for (int s = 0; s < 12 && ok; s++) {
            static const int factor[] = {2, 3, 4, 5, 7, 8, 10};
            ki_opt o = opt((ki_optop)rnd(KI_OPT_COUNT), (int)rnd(8), factor[rnd(7)], (kn_axis)rnd(KI_AX_COUNT), rnd(2));
            if (o.op == KI_OPT_SWAP || o.op == KI_OPT_JOIN) o.arg = (int)rnd(8);
            if (o.op == KI_OPT_STAGE || o.op == KI_OPT_DEAL || o.op == KI_OPT_FRAME)
                o.arg = 1 + (int)rnd(2), o.axis = (int)rnd(5) - 1;
            if (o.op == KI_OPT_NOLOCALS && rnd(4)) continue;
            if (o.op == KI_OPT_PREFETCH) o.arg *= rnd(4) ? 32 : 1, o.id = (int)rnd(3);
            if (o.op == KI_OPT_ROWS) o.arg = (int)rnd(8), o.id = 1 + (int)rnd(9);
            if (o.op == KI_OPT_LATE || o.op == KI_OPT_PIPELINE) o.axis = (int)rnd(3);
            if (o.op == KI_OPT_ROTATE) o.id = (int)rnd(8);
            kn_uop next = ki_apply_opt(&ir, sink, o);
            if (!next) {
                ok = env.err != KI_E_NONE && env.err != KI_E_INTERNAL && env.err != KI_E_NOMEM &&
                     env.err >= KI_E_OPT_AXIS;
                if (!ok) printf("# refused with: %s\n", env.message.s);
                ki_env_clear(&env);
                continue;
            }
            applied++;
            sink = next;
        }
        /* as many lanes as that may be too many, which expand says */
        kn_uop all = ki_apply_opts(&ir, sink, NULL, 0);
        ok = ok && (agrees(all) || env.err == KI_E_LANE_AXES);
        if (!ok) show(all ? all : sink);
        finish();
    }
    CHECK(ok, "random OptOps: %s (%d applied)", name, applied);
}

#define REFUSED(sink, o, e, name)                                                                                      \
    do {                                                                                                               \
        kn_uop r_ = ki_apply_opt(&ir, sink, o);                                                                        \
        CHECK(!r_ && env.err == KI_E_##e, "refused: %s", name);                                                        \
        ki_env_clear(&env);                                                                                            \
    } while (0)

/* A THREAD that does not divide: the last part is shorter, what is computed the same. */
static void uneven(void) {
    for (int t = 2; t <= 13; t++) {
        begin(), fill();
        kn_uop m = matmul(13, 6, 10), s;
        bool ok = run(m, want);
        int q = (13 + t - 1) / t, busy = (13 + q - 1) / q;
        s = ki_apply_opt(&ir, m, opt(KI_OPT_SPLIT, 0, t, KN_AX_THREAD, true));
        CHECK(ok && (busy == t) == (s != NULL), "13 rows for %d threads: %s", t, s ? "dealt" : "refused");
        if (s) s = ki_apply_opts(&ir, s, NULL, 0);
        if (s) CHECK(agrees(s) && s->arg.kernel->threads == (uint32_t)t, "and computed right");
        ki_env_clear(&env);
        finish();
    }
}

/* Lanes that do not divide: the last ones begin earlier, and do again what others do. */
static void lapped(void) {
    for (int f = 2; f <= 12; f++)
        for (int g = 2; g <= 9; g++) {
            begin(), fill();
            kn_uop m = matmul(13, 6, 10), s;
            bool ok = run(m, want);
            s = ki_apply_opt(&ir, m, opt(KI_OPT_SPLIT, 0, f, KN_AX_UPCAST, false));
            s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 1, g, KN_AX_UPCAST, false));
            if (s && f % 2 == 0) s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 3, 2, KN_AX_UPCAST, false));
            if (s && g % 3 == 0) s = ki_apply_opt(&ir, s, opt(KI_OPT_SWAP, 0, 1, 0, false));
            if (s && f % 3 == 0) s = ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, 1, 1 + g % 2, 0, false));
            if (!s) printf("# %s\n", env.message.s ? env.message.s : "?");
            CHECK(ok && s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "13 rows by %d, 10 columns by %d", f, g);
            finish();
        }
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 13), o = rng(KN_AX_LOOP, 3), out = param(0, KN_F32, 40);
    kn_uop at_i = add(mul(o, I(13)), i), s;
    s = sink1(end(store(out, at_i, mul(at(out, at_i), at(out, at_i))), o, i));
    CHECK(ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, 13, KN_AX_UPCAST, false)), "what is written in place, in lanes");
    REFUSED(s, opt(KI_OPT_SPLIT, 0, 4, KN_AX_UPCAST, false), OPT_DIVIDE, "twice what is written in place");
    s = sink1(end(store(out, at_i, mul(at(param(1, KN_F32, 40), at_i), at(param(1, KN_F32, 40), at_i))), o, i));
    REFUSED(s, opt(KI_OPT_SPLIT, 0, 14, KN_AX_UPCAST, false), OPT_DIVIDE, "14 of 13");
    REFUSED(s, opt(KI_OPT_SPLIT, 0, 4, KN_AX_LOOP, false), OPT_DIVIDE, "loops of 4 of 13");
    bool ok = run(s, want);
    s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, 4, KN_AX_UPCAST, false));
    CHECK(ok && s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "rows of 13 by 4: each ends where the next begins");
    s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UPCAST, false));
    CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "and two of the three rows at once");
    finish();
}

/* out[i] = the sum of eight times in1[i], in lanes of two kinds that what is added varies along neither of. */
static void repeated(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 6), r = rng(KN_AX_REDUCE, 8), v = reduce(KN_ADD, at(param(1, KN_F32, 6), i), r, NULL);
    kn_uop s = sink1(end(store(param(0, KN_F32, 6), i, v), i, NULL));
    bool ok = run(s, want);
    s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false));
    for (int n = 0; n < 2; n++) s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UNROLL, false));
    CHECK(ok && want[0] == 8 * in1[0] && s && agrees(ki_apply_opts(&ir, s, NULL, 0)),
          "a sum of what does not vary, in lanes");
    finish();
}

/* out[o][idx[d]][t] += a[o][d][t], idx inside [0, 5) by its gate or, without its lower half, below 5. */
static void added_places(bool both) {
    begin();
    kn_uop o = rng(KN_AX_LOOP, 6), d = rng(KN_AX_LOOP, 8), t = rng(KN_AX_LOOP, 4), s;
    kn_uop row = ki_cast(&ir, at(param(2, KN_I64, 8), d), KN_IDX), valid = lt(row, I(5));
    if (both) valid = ki_op2(&ir, KN_AND, valid, lt(mul(row, I(-1)), I(1)));
    kn_uop place = where(valid, add(add(mul(o, I(20)), mul(row, I(4))), t), invalid());
    kn_uop from = add(add(mul(o, I(32)), mul(d, I(4))), t), out = param(0, KN_F32, 120);
    kn_uop grown = store(out, place, add(at(out, place), at(param(1, KN_F32, 192), from)));
    s = sink1(ki_opn(&ir, KN_END, (kn_uop[]){grown, o, d, t}, 4));
    REFUSED(s, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UPCAST, false), OPT_SPLIT, "lanes of what is added to places");
    REFUSED(s, opt(KI_OPT_SPLIT, 1, 2, KN_AX_THREAD, true), OPT_SPLIT, "threads of what is added to places");
    REFUSED(s, opt(KI_OPT_SWAP, 0, 1, 0, false), OPT_SWAP, "the order of what is added to places");
    REFUSED(s, opt(KI_OPT_CUT, 1, 3, 0, false), OPT_CUT_KIND, "what is added to places cut");
    REFUSED(s, opt(KI_OPT_STAGE, 0, 0, 0, false), OPT_STAGE, "a copy of what is added to");
    ki_opt led = opt(KI_OPT_PREFETCH, 1, 1, 0, false);
    led.id = 0;
    CHECK(ki_apply_opt(&ir, s, led), "places that the loop's numbers lead to, asked for an iteration before");
    led.arg = KI_MOST_LED + 1;
    REFUSED(s, led, OPT_PREFETCH, "no distance, and too many iterations");
    led.arg = 1, led.top = true;
    REFUSED(s, led, OPT_PREFETCH, "places asked for, but not into the first cache");
    led.top = false, led.axis = 2;
    REFUSED(s, led, OPT_PREFETCH, "places that a loop's numbers do not lead to");
    CHECK(ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, 0, 1, 0, false)), "a copy of what is only read");
    kn_uop lanes = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 2, 4, KN_AX_UPCAST, false));
    CHECK(both == (lanes != NULL), "lanes behind the places, if these stay inside their row");
    kn_uop threads = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, 3, KN_AX_THREAD, true));
    CHECK(both == (threads != NULL), "threads before the places, if these stay inside their row");
    finish();
}

/* out[t] = a[idx[d]][t]: of a loop of one iteration no later number leads anywhere. */
static void looked_up_once(void) {
    for (int n = 1; n <= 2; n++) {
        begin();
        kn_uop d = rng(KN_AX_LOOP, n), t = rng(KN_AX_LOOP, 4), row = ki_cast(&ir, at(param(2, KN_I32, 8), d), KN_IDX);
        kn_uop x = at(param(1, KN_F32, 192), add(mul(row, I(4)), t)), out = param(0, KN_F32, 8);
        kn_uop s = sink1(ki_opn(&ir, KN_END, (kn_uop[]){store(out, add(mul(d, I(4)), t), x), d, t}, 3));
        ki_opt led = opt(KI_OPT_PREFETCH, 0, 1, 0, false);
        led.id = 1;
        if (n == 1) REFUSED(s, led, OPT_PREFETCH, "places of the next iteration where there is one alone");
        else CHECK(ki_apply_opt(&ir, s, led), "and where there are two");
        finish();
    }
}

/* out[i][j] = sum over d of p[i][d] p[4 + j][d], as scores of queries and keys that lie in one matrix: what i, the innermost loop, leaves where it is. */
static void one_of_two_reads(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 4), j = rng(KN_AX_LOOP, 6), d = rng(KN_AX_REDUCE, 8), p = param(1, KN_F32, 80);
    kn_uop product = mul(at(p, add(mul(i, I(8)), d)), at(p, add(add(mul(j, I(8)), d), I(32))));
    kn_uop put = store(param(0, KN_F32, 24), add(mul(i, I(6)), j), reduce(KN_ADD, product, d, NULL));
    kn_uop s = sink1(ki_opn(&ir, KN_END, (kn_uop[]){put, j, i}, 3));
    bool ok = run(s, want);
    REFUSED(s, opt(KI_OPT_STAGE, 0, 1, 0, false), OPT_STAGE, "a copy of one of two reads in the innermost loop");
    REFUSED(s, opt(KI_OPT_STAGE, -1, 1, 0, false), OPT_STAGE, "a copy of two reads outside all loops");
    kn_uop one = ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, 1, 1, 0, false));
    CHECK(ok && one && agrees(one), "a copy of what the innermost loop leaves where it is");
    uint32_t copies = 0;
    kn_uop *node;
    int64_t n = ki_toposort(&ir, &one, 1, &node);
    for (int64_t q = 0; q < n; q++) copies += node[q]->op == KN_BUFFER && ki_numel(node[q]) == 8;
    if (n >= 0) ki_free(node);
    CHECK(copies == 1, "a row of it, not four");
    finish();
    begin(), fill();
    i = rng(KN_AX_LOOP, 4), j = rng(KN_AX_LOOP, 6), d = rng(KN_AX_REDUCE, 8), p = param(1, KN_F32, 80);
    product = mul(mul(at(p, add(mul(i, I(8)), d)), at(p, add(mul(j, I(8)), d))), at(p, add(d, I(72))));
    put = store(param(0, KN_F32, 24), add(mul(i, I(6)), j), reduce(KN_ADD, product, d, NULL));
    s = sink1(ki_opn(&ir, KN_END, (kn_uop[]){put, j, i}, 3));
    REFUSED(s, opt(KI_OPT_STAGE, 1, 1, 0, false), OPT_STAGE, "two reads that the innermost loop leaves where they are");
    finish();
}

/* out[i][c] = a[row[c]], a row of places that each i keeps: a copy of a made before i would fill the row as well. */
static void kept_places(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 4), j = rng(KN_AX_LOOP, 8), c = rng(KN_AX_LOOP, 8), base = mul(i, I(8));
    kn_uop buf = ki_buffer_make(&ir, 0, 8, KN_F32, KN_LOCAL, 0), x = at(param(1, KN_F32, 32), add(base, j));
    kn_uop full = ki_op2(&ir, KN_AFTER, buf,
                         end(ki_op2(&ir, KN_STORE, at(ki_op2(&ir, KN_AFTER, buf, i), j), mul(x, x)), j, NULL));
    kn_uop place = ki_cast(&ir, at(full, c), KN_IDX), s;
    s = sink1(end(store(param(0, KN_F32, 32), add(base, c), at(param(2, KN_F32, 50), place)), i, c));
    bool ok = run(s, want);
    REFUSED(s, opt(KI_OPT_STAGE, -1, 2, 0, false), OPT_STAGE, "a copy from places that a loop it takes along keeps");
    kn_uop inside = ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, 0, 2, 0, false));
    CHECK(ok && inside && agrees(inside), "a copy from places, made where they are kept");
    ki_opt o = opt(KI_OPT_STAGE, 0, 2, 0, false);
    o.id = 0;
    REFUSED(s, o, OPT_ID, "a copy in a buffer that is there");
    finish();
}

static void refusals(void) {
    begin();
    kn_uop m = matmul(8, 6, 10), s, t;
    REFUSED(m, opt(KI_OPT_SPLIT, 9, 2, KN_AX_UPCAST, false), OPT_AXIS, "no such range");
    REFUSED(m, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, true), OPT_SPLIT, "UPCAST outer");
    REFUSED(m, opt(KI_OPT_SPLIT, 0, 2, KN_AX_THREAD, false), OPT_SPLIT, "THREAD inner");
    REFUSED(m, opt(KI_OPT_SPLIT, 2, 2, KN_AX_THREAD, true), OPT_SPLIT, "THREAD of a reduce");
    REFUSED(m, opt(KI_OPT_SPLIT, 2, 2, KN_AX_UPCAST, false), OPT_SPLIT, "UPCAST of a reduce");
    REFUSED(m, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UNROLL, false), OPT_SPLIT, "UNROLL of a loop");
    REFUSED(m, opt(KI_OPT_SPLIT, 0, 2, KN_AX_WARP, false), OPT_SPLIT, "WARP is TC's");
    REFUSED(m, opt(KI_OPT_SPLIT, 2, 4, KN_AX_UNROLL, false), OPT_DIVIDE, "4 of a sum's 6");
    REFUSED(m, opt(KI_OPT_SPLIT, 0, 0, KN_AX_UPCAST, false), OPT_DIVIDE, "factor 0");
    REFUSED(m, opt(KI_OPT_SPLIT, 0, 5, KN_AX_THREAD, true), OPT_DIVIDE,
            "2 of 8 for each of 5 threads leave none for the last");
    REFUSED(m, opt(KI_OPT_PADTO, 0, 0, 0, false), OPT_DIVIDE, "multiple of 0");
    REFUSED(m, opt(KI_OPT_SWAP, 0, 2, 0, false), OPT_SWAP, "a loop and a reduce");
    REFUSED(m, opt(KI_OPT_SWAP, 0, 7, 0, false), OPT_AXIS, "swap with nothing");
    REFUSED(m, opt(KI_OPT_JOIN, 0, 2, 0, false), OPT_JOIN, "a loop and a reduce joined");
    REFUSED(m, opt(KI_OPT_JOIN, 0, 0, 0, false), OPT_JOIN, "a loop joined with itself");
    REFUSED(m, opt(KI_OPT_JOIN, 0, 7, 0, false), OPT_JOIN, "joined with nothing");
    REFUSED(m, opt(KI_OPT_CUT, 0, 8, 0, false), OPT_CUT, "a part is empty");
    REFUSED(m, opt(KI_OPT_TC, 0, 0, 0, false), OPT_TC, "tensor core");
    REFUSED(m, opt(KI_OPT_STAGE, 1, 3, 0, false), OPT_STAGE, "no such operand");
    REFUSED(m, opt(KI_OPT_STAGE, 2, 1, 0, false), OPT_STAGE, "staged at a reduce");
    REFUSED(m, opt(KI_OPT_STREAM, 1, 0, 0, false), OPT_STREAM, "an input streamed");
    REFUSED(m, opt(KI_OPT_STREAM, 7, 0, 0, false), OPT_STREAM, "no such output");
    CHECK(ki_apply_opt(&ir, m, opt(KI_OPT_STREAM, 0, 0, 0, false)), "the output may be streamed");
    ki_opt o = opt(KI_OPT_PREFETCH, 2, 4096, 0, false);
    o.id = 0;
    CHECK(ki_apply_opt(&ir, m, o), "a sum's loop may ask ahead for where the sum goes");
    o.id = 1, o.arg = 63;
    REFUSED(m, o, OPT_PREFETCH, "less than a line ahead");
    o.arg = 1;
    REFUSED(m, o, OPT_PREFETCH, "an iteration ahead of what no number leads to");
    o.arg = (1 << 24) + 1;
    REFUSED(m, o, OPT_PREFETCH, "further than any cache holds");
    o.arg = 4096, o.axis = 7;
    REFUSED(m, o, OPT_AXIS, "no such loop asks ahead");
    o.axis = 1, o.id = 1;
    REFUSED(m, o, OPT_PREFETCH, "a loop that the operand does not vary in");
    o.id = 0;
    CHECK(ki_apply_opt(&ir, m, o), "an output is asked for ahead");
    o.axis = 2, o.id = 1;
    CHECK((t = ki_apply_opt(&ir, m, o)) != NULL, "an operand is asked for ahead");
    CHECK(ki_apply_opt(&ir, t, o), "and once more");
    o.arg = 8192;
    REFUSED(t, o, OPT_PREFETCH, "at two distances");
    o.arg = 4096;
    o.axis = 1, o.id = 0;
    CHECK(ki_apply_opt(&ir, t, o), "and another one by another loop");
    o = opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false);
    o.id = 1;
    REFUSED(m, o, OPT_ID, "an id that is taken");
    t = ki_apply_opt(&ir, m, opt(KI_OPT_SPLIT, 0, 2, KN_AX_THREAD, true));
    REFUSED(t, opt(KI_OPT_SPLIT, 1, 5, KN_AX_THREAD, true), OPT_THREAD, "two THREAD axes");
    REFUSED(t, opt(KI_OPT_CUT, 3, 1, 0, false), OPT_CUT_KIND, "a THREAD axis is cut");
    REFUSED(t, opt(KI_OPT_JOIN, 3, 0, 0, false), OPT_JOIN, "a THREAD axis joined");
    s = ki_apply_opt(&ir, m, opt(KI_OPT_STAGE, -1, 2, 0, false)); /* the copy's loops are 3 and 4 */
    REFUSED(s, opt(KI_OPT_SPLIT, 3, 2, KN_AX_THREAD, true), OPT_THREAD, "threads of a loop that fills local memory");
    s = ki_apply_opt(&ir, m, opt(KI_OPT_SPLIT, 0, 2, KN_AX_THREAD, true));
    REFUSED(s, opt(KI_OPT_SWAP, 1, 3, 0, false), OPT_SWAP, "threads put inside");
    s = ki_apply_opt(&ir, m, opt(KI_OPT_NOLOCALS, 0, 0, 0, false));
    REFUSED(s, opt(KI_OPT_SPLIT, 0, 2, KN_AX_LOCAL, false), OPT_NOLOCALS, "LOCAL after NOLOCALS");
    REFUSED(s, opt(KI_OPT_STAGE, 1, 1, 0, false), OPT_NOLOCALS, "STAGE after NOLOCALS");
    finish();

    begin();
    kn_uop c = scan(6, 4);
    REFUSED(c, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UPCAST, false), OPT_SPLIT, "lanes of a carried loop");
    REFUSED(c, opt(KI_OPT_SPLIT, 1, 2, KN_AX_THREAD, true), OPT_SPLIT, "threads of a carried loop");
    REFUSED(c, opt(KI_OPT_SWAP, 0, 1, 0, false), OPT_SWAP, "a carried loop swapped");
    REFUSED(c, opt(KI_OPT_JOIN, 1, 0, 0, false), OPT_JOIN,
            "a carried loop joined with the one around it, the other way round");
    REFUSED(c, opt(KI_OPT_JOIN, 0, 1, 0, false), OPT_JOIN, "a carried loop joined with the one around it");
    REFUSED(c, opt(KI_OPT_CUT, 1, 2, 0, false), OPT_CUT_KIND, "a carried loop cut");
    REFUSED(c, opt(KI_OPT_PADTO, 1, 4, 0, false), OPT_PADTO, "a carried loop padded");
    CHECK(ki_apply_opt(&ir, c, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false)),
          "the loop around a carried one may be upcast");
    finish();

    begin();
    c = running(3, 24);
    REFUSED(c, opt(KI_OPT_SCAN, 0, 4, 0, false), OPT_SCAN, "a loop that carries nothing");
    REFUSED(c, opt(KI_OPT_SCAN, 1, 5, 0, false), OPT_SCAN, "5 of 24 at a time");
    REFUSED(c, opt(KI_OPT_SCAN, 1, 1, 0, false), OPT_SCAN, "one at a time");
    REFUSED(c, opt(KI_OPT_SCAN, 1, 72, 0, false), OPT_SCAN, "more than there are");
    CHECK((t = ki_apply_opt(&ir, c, opt(KI_OPT_SCAN, 1, 8, 0, false))) != NULL, "8 of 24 at a time");
    if (t) REFUSED(t, opt(KI_OPT_SWAP, 0, 2, 0, false), OPT_SWAP, "the loop around a carried one put inside it");
    REFUSED(t, opt(KI_OPT_SCAN, 1, 3, 0, false), OPT_SCAN, "once more");
    finish();

    begin(); /* a scatter: out[idx[i]] = a[i] */
    kn_uop i = rng(KN_AX_LOOP, 8), idx = ki_cast(&ir, at(param(2, KN_I32, 8), i), KN_IDX);
    kn_uop sc = sink1(end(store(param(0, KN_F32, 8), idx, at(param(1, KN_F32, 8), i)), i, NULL));
    REFUSED(sc, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false), OPT_SPLIT, "lanes of a scatter");
    finish();

    looked_up_once();
    for (int both = 0; both < 2; both++) added_places(both);

    begin(); /* out[i + 1] = out[i] */
    i = rng(KN_AX_LOOP, 8);
    sc = sink1(end(store(param(0, KN_F32, 9), add(i, I(1)), at(param(0, KN_F32, 9), i)), i, NULL));
    REFUSED(sc, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false), OPT_SPLIT, "lanes of a recurrence");
    finish();

    begin();
    kn_uop n = ki_param_make(&ir, -1, KN_IDX, KN_GLOBAL, 0, "n", (int64_t[]){1, 9}, NULL),
           y = ki_range_make(&ir, next_id++, KN_AX_LOOP, n);
    sc = sink1(end(store(param(0, KN_F32, 9), y, at(param(1, KN_F32, 9), y)), y, NULL));
    REFUSED(sc, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false), OPT_SYMBOLIC, "an extent known at launch alone");
    REFUSED(sc, opt(KI_OPT_PADTO, 0, 8, 0, false), OPT_SYMBOLIC, "padded to less than its bound");
    REFUSED(sc, opt(KI_OPT_CUT, 0, 9, 0, false), OPT_CUT, "no whole block of it");
    CHECK((t = ki_apply_opt(&ir, sc, opt(KI_OPT_CUT, 0, 4, 0, false))) != NULL, "whole blocks and a rest");
    REFUSED(t, opt(KI_OPT_SPLIT, 0, 8, KN_AX_UPCAST, false), OPT_SYMBOLIC, "larger than the blocks");
    REFUSED(t, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UPCAST, false), OPT_SYMBOLIC, "the rest");
    CHECK((t = ki_apply_opt(&ir, t, opt(KI_OPT_SPLIT, 0, 4, KN_AX_UPCAST, false))) != NULL, "blocks are vectors");
    CHECK(t && ki_apply_opt(&ir, t, opt(KI_OPT_PADTO, 1, 4, 0, false)), "the rest is padded to one");
    CHECK(ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 2}, sc), "few of them stay as they are");
    finish();
}

/* The form of single steps. */
static void forms(void) {
    begin(), fill();
    kn_uop sink = matmul(12, 9, 16), s = sink;
    run(sink, want);
    static const ki_opt steps[] = {{KI_OPT_SPLIT, KN_AX_THREAD, 1, 0, 0, 2, -1},
                                   {KI_OPT_CUT, 0, 0, 0, 2, 6, -1},
                                   {KI_OPT_PADTO, 0, 0, 0, 1, 5, -1},
                                   {KI_OPT_SPLIT, KN_AX_UPCAST, 0, 0, 1, 5, -1},
                                   {KI_OPT_SPLIT, KN_AX_UNROLL, 0, 0, 2, 3, -1},
                                   {KI_OPT_SWAP, 0, 0, 0, 0, 1, -1}};
    static const char *const name[] = {"SPLIT to THREAD", "CUT of a reduce", "PADTO",
                                       "SPLIT to UPCAST", "SPLIT to UNROLL", "SWAP"};
    for (int i = 0; i < 6 && s; i++) {
        s = ki_apply_opt(&ir, s, steps[i]);
        CHECK(s && agrees(s), "%s keeps the values", name[i]);
        if (!s) printf("# %s\n", env.message.s);
    }
    if (s)
        CHECK(s->arg.kernel->nopt == 6 && s->arg.kernel->opt[0].id == 3,
              "the list names what was done, and the ids taken");
    kn_uop f = s ? ki_apply_opts(&ir, s, NULL, 0) : NULL;
    if (f) CHECK(f->arg.kernel->threads == 2 && f->arg.kernel->optimized, "threads are counted");
    finish();

    begin(), fill();
    sink = matmul(12, 9, 16);
    run(sink, want);
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 1, 4, KN_AX_UPCAST, false));
    for (int axis = -1; axis < 5;
         axis++) { /* outside all loops, in the row's loop, in the column's; the same, sums in rows */
        kn_uop t = ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, axis < 2 ? axis : axis - 3, 2, 0, axis >= 2));
        CHECK(t && agrees(t), "STAGE keeps the values, axis %d", axis);
        t = t ? ki_apply_opt(&ir, t, opt(KI_OPT_CUT, 0, 5, 0, false)) : NULL;
        CHECK(t && agrees(t), "CUT around a staged buffer keeps the values, axis %d", axis);
    }
    finish();
}

/* A product whose columns lie in heads of 16: where two of them are 8 apart their distance depends on the rest of the position,
 * but what is contiguous is staged contiguous. */
static void staged_in_heads(void) {
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, 4), j = rng(KN_AX_LOOP, 48), r = rng(KN_AX_REDUCE, 8);
    kn_uop in_head = ki_op2(&ir, KN_MOD, j, I(16)), head = mul(ki_op2(&ir, KN_IDIV, j, I(16)), I(128));
    kn_uop v = mul(at(param(1, KN_F32, 32), add(mul(i, I(8)), r)),
                   at(param(2, KN_F32, 384), add(add(mul(r, I(16)), in_head), head)));
    kn_uop sink = sink1(end(store(param(0, KN_F32, 192), add(mul(i, I(48)), j), reduce(KN_ADD, v, r, NULL)), i, j));
    run(sink, want);
    kn_uop s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 1, 8, KN_AX_UPCAST, false));
    s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 1, 3, KN_AX_UPCAST, false));
    s = ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, -1, 2, 0, false));
    CHECK(s && agrees(s), "columns in heads, staged, keep their values");
    ki_nest k;
    int64_t step = 0;
    bool open = s && ki_nest_open(&k, &ir, s), known = false;
    for (uint32_t n = 0; open && n < k.scope.n; n++) {
        kn_uop u = k.scope.node[n], b = u->op == KN_STORE ? ki_storage(u->src[0]) : NULL;
        for (uint32_t q = 0; b && b->op == KN_BUFFER && q < k.scope.nrange; q++)
            if (ki_is_lane(k.scope.range[q]) && ki_extent(k.scope.range[q]) == 8 &&
                ki_scope_has(&k.scope, u->src[0]->src[1], k.scope.range[q]))
                step = ki_nest_stride(&k, u->src[0], k.scope.range[q], &known);
    }
    if (s) ki_nest_close(&k);
    CHECK(known && step == 1, "8 neighbours of a head are staged as neighbours (%d apart)", (int)step);
    finish();
}

/* out[i, j] = 0.5 out[i, j] + sum of a[i, r] b[r, j]: cut, each part reads what the other writes, and is independent of it. */
static void update_in_parts(void) {
    int m = 41, n = 64, d = 8;
    begin(), fill();
    kn_uop i = rng(KN_AX_LOOP, m), j = rng(KN_AX_LOOP, n), r = rng(KN_AX_REDUCE, d), x = add(mul(i, I(n)), j);
    kn_uop v =
        mul(at(param(1, KN_F32, m * d), add(mul(i, I(d)), r)), at(param(2, KN_F32, d * n), add(mul(r, I(n)), j)));
    kn_uop out = param(0, KN_F32, m * n), old = mul(at(out, x), ki_const_float(&ir, KN_F32, 0.5));
    kn_uop sink = sink1(end(store(out, x, add(old, reduce(KN_ADD, v, r, NULL))), i, j));
    run(sink, want);
    kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, sink);
    bool cut = false, lanes = false;
    for (uint32_t k = 0; o && k < o->arg.kernel->nopt; k++) {
        cut |= o->arg.kernel->opt[k].op == KI_OPT_CUT;
        lanes |= cut && o->arg.kernel->opt[k].op == KI_OPT_SPLIT && o->arg.kernel->opt[k].target == KN_AX_UPCAST;
    }
    CHECK(cut && lanes, "an update in place is cut, and its parts have vectors");
    CHECK(o && agrees(o), "and is the same");
    finish();
}

/* Values beside each other are nests of their own, heads loops, so that each is a product with a tile. */
static void values_apart(void) {
    kn_uop sink;
    unsigned cuts = 0, heads = 0, lanes = 0;
    begin();
    build(19, &sink);
    kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, sink);
    for (uint32_t i = 0; o && i < o->arg.kernel->nopt; i++) {
        ki_opt p = o->arg.kernel->opt[i];
        cuts += p.op == KI_OPT_CUT;
        heads += p.op == KI_OPT_SPLIT && p.target == KN_AX_LOOP && p.arg == 16;
        lanes += p.op == KI_OPT_SPLIT && p.target == KN_AX_UPCAST;
    }
    CHECK(o && o->nsrc == 2 && cuts == 1 && heads == 2 && lanes >= 4, "values beside each other: two nests with tiles");
    kn_uop *node;
    int64_t n = o ? ki_toposort(&ir, &o, 1, &node) : 0;
    unsigned left = 0;
    for (int64_t i = 0; i < n; i++) left += node[i]->op == KN_IDIV || node[i]->op == KN_CMPLT;
    CHECK(n > 0 && !left, "and nothing is compared or divided any more (%u)", left);
    if (n > 0) ki_free(node);
    finish();
}

/* A sum over what is one value up to a place and another one from there on is two sums, which share the tile. */
static void values_below(void) {
    kn_uop sink, *node;
    unsigned cuts = 0, left = 0, sums = 0;
    begin();
    build(32, &sink);
    kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, sink);
    for (uint32_t i = 0; o && i < o->arg.kernel->nopt; i++)
        cuts += o->arg.kernel->opt[i].op == KI_OPT_CUT && o->arg.kernel->opt[i].arg == 13;
    int64_t n = o ? ki_toposort(&ir, &o, 1, &node) : 0;
    for (int64_t i = 0; i < n; i++) {
        left += node[i]->op == KN_CMPLT || (node[i]->op == KN_WHERE && node[i]->dtype != KN_IDX);
        sums += node[i]->op == KN_REDUCE;
    }
    CHECK(cuts == 1 && sums >= 2 && !left, "values below each other: a sum each (%u), and none is chosen (%u)", sums,
          left);
    if (n > 0) ki_free(node);
    finish();
}

/* A sum over more values than any kernel's loops should be cut for is a sum like others: it goes by vectors, and soon. */
static void many_values_below(void) {
    enum { PARTS = 1100, COLUMNS = 8 };
    begin();
    kn_uop j = rng(KN_AX_LOOP, COLUMNS), r = rng(KN_AX_REDUCE, PARTS), in = param(1, KN_F32, PARTS * COLUMNS),
           factor = param(2, KN_F32, PARTS), *node;
    kn_uop x = at(in, add(mul(r, I(COLUMNS)), j)), v = x;
    for (int i = 1; i < PARTS; i++) v = where(lt(r, I(i)), v, mul(x, at(factor, I(i))));
    kn_uop sink = sink1(end(store(param(0, KN_F32, COLUMNS), j, reduce(KN_ADD, v, r, NULL)), j, NULL));
    kn_uop o = ki_optimize(&ir, ki_target_named("avx2"), &(ki_machine){.threads = 1}, sink);
    int64_t n = o ? ki_toposort(&ir, &o, 1, &node) : 0, sums = 0, lanes = 0;
    for (int64_t i = 0; i < n; i++) {
        sums += node[i]->op == KN_REDUCE;
        lanes += node[i]->op == KN_RANGE && ki_is_lane(node[i]);
    }
    CHECK(sums > 1 && sums < 100 && lanes == 1, "%d values below each other: %lld sums, and lanes (%lld)", PARTS,
          (long long)sums, (long long)lanes);
    if (n > 0) ki_free(node);
    finish();
}

/* A copy under conditions runs as it lies, but that what masks of lanes depend on stands outside. */
static void copied(void) {
    for (int lanes = 0; lanes < 2; lanes++) {
        begin(), fill();
        kn_uop sink = convolve(5, 3, 10, 14, 2), copy = NULL;
        run(sink, want);
        kn_uop s = lanes ? ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 2, 7, KN_AX_UPCAST, false)) : sink;
        s = s ? ki_apply_opt(&ir, s, opt(KI_OPT_STAGE, -1, 1, 0, false)) : NULL;
        CHECK(s && agrees(s), "STAGE keeps the values");
        ki_nest k;
        bool open = s && ki_nest_open(&k, &ir, s);
        for (uint32_t i = 0; open && i < k.scope.n; i++) {
            kn_uop u = k.scope.node[i], to = u->op == KN_END ? u->src[0] : NULL;
            if (to && to->op == KN_STORE && ki_storage(to->src[0])->op == KN_BUFFER) copy = u;
        }
        CHECK(copy && ki_extent(copy->src[1]) == (lanes ? 3 : 5), "its outermost loop is over %s",
              lanes ? "the window" : "channels");
        if (open) ki_nest_close(&k);
        finish();
    }
}

/* The image of a convolution of p's sizes, copied by the OptOp: the values stay, then and where its positions are one loop, along which the copy is
 * contiguous. The number of its places; *gated: is it read under a condition? 0: not so. */
static int64_t copied_as_one_row(ki_optop op, const char *which, int axis, const int *p, bool *gated) {
    begin(), fill();
    kn_uop sink = convolve(p[0], p[1], p[2], p[3], p[4]);
    run(sink, want);
    kn_uop s = ki_apply_opt(&ir, sink, opt(op, axis, 1, 0, false));
    CHECK(s && agrees(s), "%s keeps the values, axis %d, step %d", which, axis, p[4]);
    kn_uop j = s ? ki_apply_opt(&ir, s, opt(KI_OPT_JOIN, 1, 2, 0, false)) : NULL;
    CHECK(j && agrees(j), "and so does JOIN then");
    ki_nest k;
    bool open = j && ki_nest_open(&k, &ir, j), known;
    uint32_t count = 0;
    kn_uop u = open ? ki_nest_read_of(&k, k.sink, -1 - s->arg.kernel->opt[0].id, &count) : NULL;
    CHECK(u && count == 1 && ki_nest_stride(&k, u, ki_nest_range(&k, 1), &known) == 1 && known,
          "its positions are one row");
    int64_t places = u ? ki_numel(ki_storage(u)) : 0;
    *gated = u && ki_is_gated(u);
    if (open) ki_nest_close(&k);
    if (s) REFUSED(s, opt(op, axis, -1 - s->arg.kernel->opt[0].id, 0, false), OPT_STAGE, "copied twice");
    finish();
    return places;
}

/* An image whose every step-th row and column lie together is read as without steps. */
static void dealt(void) {
    static const int shape[][5] = {{2, 3, 10, 14, 2}, {5, 4, 12, 8, 2}, {1, 3, 8, 6, 2}};
    bool gated;
    for (int axis = -1; axis < 1; axis++)
        for (int i = 0; i < 3; i++) copied_as_one_row(KI_OPT_DEAL, "DEAL", axis, shape[i], &gated);
    begin();
    REFUSED(convolve(2, 3, 10, 14, 1), opt(KI_OPT_DEAL, -1, 1, 0, false), OPT_STAGE, "nothing in steps");
    REFUSED(convolve(2, 3, 9, 14, 2), opt(KI_OPT_DEAL, -1, 1, 0, false), OPT_STAGE, "rows that steps do not divide");
    REFUSED(convolve(2, 3, 9, 12, 3), opt(KI_OPT_DEAL, -1, 1, 0, false), OPT_STAGE, "windows that do not overlap");
    finish();
    begin();
    kn_uop sink = convolve(2, 3, 10, 14, 2);
    REFUSED(sink, opt(KI_OPT_DEAL, -1, 2, 0, false), OPT_STAGE, "filters dealt out");
    REFUSED(sink, opt(KI_OPT_DEAL, -1, 0, 0, false), OPT_STAGE, "an output dealt out");
    REFUSED(sink, opt(KI_OPT_DEAL, 3, 1, 0, false), OPT_STAGE, "dealt out in a loop of a sum");
    REFUSED(sink, opt(KI_OPT_DEAL, 9, 1, 0, false), OPT_AXIS, "dealt out in no loop");
    finish();
}

/* An image whose border is copied too is read without conditions, and as one row. */
static void framed(void) {
    static const int shape[][5] = {{2, 3, 10, 14, 1}, {5, 4, 12, 8, 2}, {3, 2, 9, 11, 2}, {1, 3, 13, 5, 1}};
    bool gated;
    for (int axis = -1; axis < 1; axis++)
        for (int i = 0; i < 4; i++) {
            const int *p = shape[i];
            int64_t rows = (p[2] - 1) / p[4] + 1 + 2 / p[4], columns = (p[3] - 1) / p[4] + 1;
            int64_t places = copied_as_one_row(KI_OPT_FRAME, "FRAME", axis, p, &gated);
            CHECK(places == p[0] * p[4] * rows * 3 * columns && !gated,
                  "a row is there once for each step, and all of it may be read");
        }
    begin();
    kn_uop sink = convolve(2, 3, 9, 12, 3);
    REFUSED(sink, opt(KI_OPT_FRAME, -1, 1, 0, false), OPT_STAGE, "windows that do not overlap");
    REFUSED(sink, opt(KI_OPT_FRAME, -1, 2, 0, false), OPT_STAGE, "filters framed");
    REFUSED(sink, opt(KI_OPT_FRAME, -1, 0, 0, false), OPT_STAGE, "an output framed");
    finish();
    begin();
    sink = convolve(2, 3, 10, 14, 1);
    REFUSED(sink, opt(KI_OPT_FRAME, 3, 1, 0, false), OPT_STAGE, "framed in a loop of a sum");
    REFUSED(sink, opt(KI_OPT_FRAME, 1, 1, 0, false), OPT_STAGE, "framed inside the loop over rows");
    REFUSED(sink, opt(KI_OPT_FRAME, 9, 1, 0, false), OPT_AXIS, "framed in no loop");
    finish();
    begin(),
        fill(); /* out[i] = the sum over r of kept[i], kept[6 z + y] = a[20 z + 2 (y + r)]: a copy inside z is of one r */
    kn_uop i = rng(KN_AX_LOOP, 12), r = rng(KN_AX_REDUCE, 3), z = rng(KN_AX_LOOP, 2), y = rng(KN_AX_LOOP, 6);
    kn_uop x = at(param(1, KN_F32, 64), add(mul(z, I(20)), add(mul(y, I(2)), mul(r, I(2)))));
    kn_uop kept = ki_buffer_make(&ir, 0, 12, KN_F32, KN_LOCAL, 0), home = ki_op3(&ir, KN_AFTER, kept, i, r);
    kn_uop fills = end(ki_op2(&ir, KN_STORE, at(home, add(mul(z, I(6)), y)), x), z, y);
    kn_uop sum = reduce(KN_ADD, at(ki_op2(&ir, KN_AFTER, kept, fills), i), r, NULL);
    sink = sink1(end(store(param(0, KN_F32, 12), i, sum), i, NULL));
    CHECK(run(sink, want), "what is kept is kept anew for each term");
    REFUSED(sink, opt(KI_OPT_FRAME, (int)z->arg.range.id, 1, 0, false), OPT_STAGE,
            "windows of a sum that stands around the copy");
    finish();
}

/* Rows of which one iteration is left do not count with channels that lie as far apart. */
static void framed_not(void) {
    begin(), fill();
    kn_uop sink = convolve(16, 4, 6, 7, 1), s;
    run(sink, want);
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 1, 6, KN_AX_UPCAST, false));
    if (s) REFUSED(s, opt(KI_OPT_FRAME, -1, 1, 0, false), OPT_STAGE, "six rows that are lanes");
    kn_uop all = s ? ki_apply_opt(&ir, s, opt(KI_OPT_FRAME, -1, 1, 0, true)) : NULL;
    CHECK(all && agrees(all), "columns are framed beside them");
    finish();
    begin(), fill(); /* the rows' padding is a condition on one of the two loops alone, under the condition on both */
    s = run(sink = filters(3, 16, 16, 10, 3), want) ? sink : NULL;
    s = s ? ki_apply_opt(&ir, s, opt(KI_OPT_PADTO, 6, 3, 0, false)) : NULL;
    s = s ? ki_apply_opt(&ir, s, opt(KI_OPT_PADTO, 4, 4, 0, false)) : NULL;
    all = s ? ki_apply_opt(&ir, s, opt(KI_OPT_FRAME, 0, 1, 0, true)) : NULL;
    CHECK(all && agrees(all), "padded windows");
    finish();
}

/* With top rows are whole, each place is there once, and nothing is read under a condition. */
static void framed_whole(void) {
    static const int shape[][5] = {{2, 3, 10, 14, 1}, {5, 4, 12, 8, 2}, {3, 2, 9, 11, 2}, {1, 3, 13, 5, 1}};
    for (int axis = -1; axis < 1; axis++)
        for (int i = 0; i < 4; i++) {
            const int *p = shape[i];
            int64_t rows = (p[2] - 1) / p[4] * p[4] + 3, columns = (p[3] - 1) / p[4] * p[4] + 3;
            begin(), fill();
            kn_uop sink = convolve(p[0], p[1], p[2], p[3], p[4]);
            run(sink, want);
            kn_uop s = ki_apply_opt(&ir, sink, opt(KI_OPT_FRAME, axis, 1, 0, true));
            CHECK(s && agrees(s), "FRAME of single elements too keeps the values, axis %d, step %d", axis, p[4]);
            ki_nest k;
            bool open = s && ki_nest_open(&k, &ir, s), known;
            uint32_t count = 0;
            kn_uop u = open ? ki_nest_read_of(&k, k.sink, -1 - s->arg.kernel->opt[0].id, &count) : NULL;
            CHECK(u && count == 1 && ki_nest_stride(&k, u, ki_nest_range(&k, 2), &known) == p[4] && known,
                  "its positions are a step apart");
            CHECK(u && ki_numel(ki_storage(u)) == p[0] * rows * columns && !ki_is_gated(u),
                  "a place is there once, and all of them may be read");
            if (open) ki_nest_close(&k);
            finish();
        }
}

/* Terms that are written out: no node changes; what the op refuses. */
static ki_opt terms(int axis) { return opt(KI_OPT_TERMS, axis, 0, 0, false); }
static void written_out(void) {
    begin(), fill();
    kn_uop sink = convolve(5, 4, 12, 8, 1), s;
    run(sink, want);
    s = ki_apply_opt(&ir, sink, terms(5));
    CHECK(s && s->src[0] == sink->src[0] && agrees(s), "TERMS changes no node");
    if (s) REFUSED(s, terms(5), OPT_TERMS, "written out twice");
    REFUSED(sink, terms(4), OPT_TERMS, "not the innermost");
    REFUSED(sink, terms(2), OPT_TERMS, "no loop of a sum");
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 5, 3, KN_AX_UNROLL, false));
    if (s) REFUSED(s, terms(5), OPT_TERMS, "one iteration is left");
    finish(), begin();
    REFUSED(matmul(7, 5, 8), terms(2), OPT_TERMS, "the only loop");
    finish(), begin();
    s = ki_apply_opt(&ir, matmul(7, 36, 8), opt(KI_OPT_SPLIT, 2, 12, KN_AX_REDUCE, false));
    if (s) REFUSED(s, terms((int)s->arg.kernel->opt[0].id), OPT_TERMS, "twelve terms");
    finish();
}

/* Two loops as one: a row where memory counts both, the quotient and the remainder elsewhere. */
static void joined(void) {
    for (int order = 0; order < 2; order++) {
        begin(), fill();
        kn_uop sink = convolve(2, 3, 5, 7, 1), s;
        run(sink, want);
        s = ki_apply_opt(&ir, sink, opt(KI_OPT_JOIN, 1, 2, 0, false));
        CHECK(s && agrees(s), "JOIN of y and x keeps the values");
        ki_nest k;
        bool open = s && ki_nest_open(&k, &ir, s), plain = open;
        for (uint32_t i = 0; open && i < k.scope.n; i++) {
            kn_uop u = k.scope.node[i];
            bool known;
            if (!ki_is_access(u) || !ki_scope_has(&k.scope, u, ki_nest_range(&k, 1))) continue;
            plain &= ki_nest_stride(&k, u, ki_nest_range(&k, 1), &known) == 1 && known;
        }
        CHECK(plain, "input and output are rows of the joined loop");
        if (open) ki_nest_close(&k);
        s = ki_apply_opt(&ir, sink, order ? opt(KI_OPT_JOIN, 4, 5, 0, false) : opt(KI_OPT_JOIN, 3, 4, 0, false));
        CHECK(s && agrees(s), "JOIN of two loops of a sum keeps the values, pair %d", order);
        s = s ? ki_apply_opt(&ir, s, order ? opt(KI_OPT_JOIN, 3, 4, 0, false) : opt(KI_OPT_JOIN, 3, 5, 0, false))
              : NULL;
        CHECK(s && agrees(s), "and of all three");
        REFUSED(sink, opt(KI_OPT_JOIN, 3, 5, 0, false), OPT_JOIN,
                "a loop of the sum stands between: its order would change");
        finish();
    }
    begin(), fill();
    kn_uop y = rng(KN_AX_LOOP, 6), x = rng(KN_AX_LOOP, 4), row = add(mul(y, I(4)), x);
    kn_uop third = ki_op2(&ir, KN_IDIV, add(y, mul(x, I(2))), I(3));
    kn_uop sink = sink1(ki_opn(
        &ir, KN_END, (kn_uop[]){store(param(0, KN_F32, 24), row, at(param(1, KN_F32, 28), add(row, third))), y, x}, 3));
    run(sink, want);
    kn_uop both = ki_apply_opt(&ir, sink, opt(KI_OPT_JOIN, 0, 1, 0, false));
    CHECK(both && agrees(both), "JOIN of what counts both loops, and beside that a quotient of both");
    finish();
    /* what the heuristics make of them */
    for (int w = 17; w < 19; w++) {
        kn_uop sink;
        bool joins = false, stages = false;
        begin();
        build(w, &sink);
        kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, sink);
        for (uint32_t i = 0; o && i < o->arg.kernel->nopt; i++) {
            joins |= o->arg.kernel->opt[i].op == KI_OPT_JOIN;
            stages |= o->arg.kernel->opt[i].op == KI_OPT_STAGE;
        }
        if (!joins || stages != (w == 18)) show(o);
        CHECK(joins && stages == (w == 18), "rows that end within a vector are joined, %s",
              w == 18 ? "once staged" : "in place");
        finish();
    }
}

/* The same bits, whatever the number of threads: values that round, kernels large enough to be shared out. */
static void threads_do_not_matter(void) {
    static float first[MOST]; /* fill() clears the others */
    static const int shape[][3] = {{61, 90, 70}, {48, 110, 131}, {6, 120, 130}, {31, 130, 97}, {9, 120, 130}};
    for (int w = 0; w < 16; w++) {
        bool ok = true;
        uint32_t most = 1;
        const int *d = shape[w % 5];
        for (unsigned threads = 1; threads <= 5; threads++) {
            seed = 7;
            begin(), fill();
            for (int i = 0; i < MOST; i++) in1[i] = in1[i] * 0.37f + 0.011f, in2[i] = in2[i] / 3;
            kn_uop sink = w < 5     ? matmul(d[0], d[1], d[2])
                          : w < 10  ? matmul_t(d[0], d[1], d[2])
                          : w == 10 ? convolve(1, 40, 12, 21, 1)
                          : w == 11 ? convolve(16, 24, 12, 13, 1)
                          : w == 13 ? filters(6, 20, 32, 9, 1)
                          : w == 14 ? filters(3, 16, 16, 10, 3)
                          : w == 15 ? strided(24, 16, 20)
                                    : rows(150, 109);
            kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = threads}, sink);
            if (o && o->arg.kernel->threads > most) most = o->arg.kernel->threads;
            ok = ok && run(o, threads == 1 ? first : got) && (threads == 1 || memcmp(got, first, sizeof got) == 0);
            finish();
        }
        CHECK(ok && most > 1, "the same bits on 1 to 5 threads, kernel %d (up to %u)", w, most);
    }
}

/* Sums down columns that go row by row are the same sums, to the bit: whole blocks of rows, a remainder first, all at once. */
static ki_opt by_rows(int axis, int other, int n, bool contract) {
    ki_opt o = opt(KI_OPT_ROWS, axis, other, 0, contract);
    o.id = n;
    return o;
}

static int nests_of(kn_uop sink) {
    kn_uop *node;
    int64_t n = ki_toposort(&ir, &sink, 1, &node);
    int ends = 0;
    for (int64_t i = 0; i < n; i++) ends += node[i]->op == KN_END;
    if (n > 0) ki_free(node);
    return ends;
}

/* Products that both operands lie along, part by part; where every second position counts, each phase is a nest without remainders. */
static void parts_and_phases(void) {
    for (int w = 27; w < 30; w++) {
        kn_uop sink, *node;
        const char *name;
        bool parts = false, cuts = false, remainders = false;
        begin();
        name = build(w, &sink);
        kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, sink);
        for (uint32_t i = 0; o && i < o->arg.kernel->nopt; i++) {
            parts |= o->arg.kernel->opt[i].op == KI_OPT_ROWS;
            cuts |= o->arg.kernel->opt[i].op == KI_OPT_CUT;
        }
        int64_t n = o ? ki_toposort(&ir, &o, 1, &node) : 0;
        for (int64_t i = 0; i < n; i++) remainders |= node[i]->op == KN_MOD;
        if (n > 0) ki_free(node);
        bool well = w == 29 ? cuts && !remainders : parts;
        if (!well) show(o);
        CHECK(well, "%s: %s", name, w == 29 ? "phases" : "part by part");
        finish();
    }
    begin(), fill();
    kn_uop mean = centred(70, 40), by;
    run(mean, want);
    by = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1, .stream = 1}, mean);
    CHECK(has(by, KI_OPT_ROWS) && agrees(by),
          "sums down columns that stand outside what is stored in a row go by rows");
    finish();
    for (int w = 0; w < 2; w++) { /* one of a sum's loops around loops of its nest */
        begin(), fill();
        kn_uop sink = filters(3, 5, 6, 4, w ? 3 : 1), s;
        run(sink, want);
        s = ki_apply_opt(&ir, sink, by_rows(4, 1, 1, false));
        CHECK(s && agrees(s), "ROWS of one of several loops keeps the values, window %d", w ? 3 : 1);
        s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 4, 3, KN_AX_REDUCE, false));
        s = ki_apply_opt(&ir, s, by_rows(4, 1, 1, false));
        CHECK(s && agrees(s) && nests_of(s) == 2, "all of the sum is kept, and nothing before it, window %d",
              w ? 3 : 1);
        for (int lanes = 0; lanes < 2; lanes++) { /* the first part stored, the last one added where the result goes */
            kn_uop first = lanes ? ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 1, 5, KN_AX_UPCAST, false)) : sink;
            s = ki_apply_opt(&ir, first, by_rows(4, 1, 1, true));
            CHECK(s && agrees(s) && nests_of(s) == 3, "ROWS in blocks keeps the values, window %d, lanes %d", w ? 3 : 1,
                  lanes);
            s = ki_apply_opt(&ir, first, opt(KI_OPT_SPLIT, 4, 3, KN_AX_REDUCE, false));
            REFUSED(s, by_rows(4, 1, 1, true), OPT_ROWS, "one block alone");
        }
        REFUSED(sink, by_rows(4, 1, 2, false), OPT_ROWS, "of several loops one step at a time");
        REFUSED(sink, by_rows(4, 5, 1, false), OPT_ROWS, "the other is a loop of the sum");
        finish();
    }
}
static void rows_in_turn(void) {
    static const struct {
        const char *name;
        int kernel, axis, other, inner;
    } kind[] = {{"columns", 6, 1, 0, 1},
                {"matrix product, its columns", 2, 2, 1, 1},
                {"matrix product, whole", 2, 2, 0, 2},
                {"running sums", 21, 1, 0, 1},
                {"the largest, and then its place", 22, 1, 0, 1}};
    for (size_t w = 0; w < sizeof kind / sizeof *kind; w++)
        for (int n = 1; n <= 8; n++) {
            kn_uop sink;
            begin(), fill();
            for (int i = 0; i < MOST; i++) in1[i] = in1[i] * 0.37f + 0.011f, in2[i] = in2[i] / 3;
            build(kind[w].kernel, &sink);
            bool fits = kind[w].kernel == 21 ? 24 % n == 0 : kind[w].kernel != 2 || n < 5;
            kn_uop s = run(sink, want) ? ki_apply_opt(&ir, sink, by_rows(kind[w].axis, kind[w].other, n, false)) : NULL;
            if (s && kind[w].kernel == 22) REFUSED(s, by_rows(2, 0, n, false), OPT_AXIS, "the place went along");
            if (!fits) {
                CHECK(!s && env.err == KI_E_OPT_ROWS, "%s: %d rows at a time are refused", kind[w].name, n);
            } else {
                CHECK(s && run(s, got) && memcmp(got, want, sizeof got) == 0, "%s: %d rows at a time", kind[w].name, n);
                CHECK(ki_same_orders(&ir, sink, s), "%s: the sums are in the same order", kind[w].name);
                /* vectors of it, which stand inside */
                kn_uop o = s ? ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, s) : NULL;
                CHECK(o && run(o, got) && memcmp(got, want, sizeof got) == 0, "%s, and then chosen", kind[w].name);
            }
            ki_env_clear(&env);
            finish();
        }
}

/* What two nests read, of which threads share one, is there for all of them. */
static void rows_of_two_nests(void) {
    begin(), fill();
    kn_uop sink = columns(9, 127), s;
    run(sink, want);
    s = ki_apply_opt(&ir, sink, by_rows(1, 0, 2, false));
    s = ki_apply_opt(&ir, s, opt(KI_OPT_CUT, 0, 112, 0, false));
    s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, 3, KN_AX_THREAD, true));
    s = s ? ki_apply_opts(&ir, s, NULL, 0) : NULL;
    CHECK(s && agrees(s), "sums that are kept for a nest of threads and for one without");
    finish();
}

static void rows_refused(void) {
    begin(), fill();
    kn_uop sink = matmul(7, 5, 10), s = ki_apply_opt(&ir, sink, by_rows(2, 1, 2, true));
    CHECK(s && ki_same_orders(&ir, sink, s), "products added in one step are in the same order");
    kn_uop other = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 2, 5, KN_AX_UNROLL, false));
    CHECK(s && other && !ki_same_orders(&ir, other, s), "and not in that of lanes");
    finish();

    begin();
    sink = columns(30, 70);
    REFUSED(sink, by_rows(1, 0, 0, false), OPT_ROWS, "no rows at a time");
    REFUSED(sink, by_rows(1, 0, 17, false), OPT_ROWS, "more rows at a time than a body should have");
    REFUSED(sink, by_rows(0, 1, 4, false), OPT_ROWS, "a loop of columns that carries nothing");
    REFUSED(sink, by_rows(1, 1, 4, false), OPT_ROWS, "rows around themselves");
    REFUSED(sink, by_rows(1, 9, 4, false), OPT_ROWS, "columns there are not");
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false));
    REFUSED(s, by_rows(1, 0, 4, false), OPT_ROWS, "columns that are lanes already");
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UNROLL, false));
    REFUSED(s, by_rows(1, 0, 4, false), OPT_ROWS, "a sum with lanes of its own");
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_NOLOCALS, 0, 0, 0, false));
    REFUSED(s, by_rows(1, 0, 4, false), OPT_NOLOCALS, "ROWS after NOLOCALS");
    finish();

    begin(); /* out[j] = the sum of out[6 r + j + 6] */
    kn_uop j = rng(KN_AX_LOOP, 6), r = rng(KN_AX_REDUCE, 5), out = param(0, KN_F32, 36);
    sink = sink1(end(store(out, j, reduce(KN_ADD, at(out, add(add(mul(r, I(6)), j), I(6))), r, NULL)), j, NULL));
    REFUSED(sink, by_rows(1, 0, 4, false), OPT_ROWS, "a sum over what the kernel writes");
    finish();

    begin();
    REFUSED(rows(6, 50), by_rows(1, 2, 4, false), OPT_ROWS, "columns of a sum that are a sum's loop");
    finish();

    begin(); /* out[j] = the sum of a[r][j] + kept[1], kept[q] the sum of b[r][q] + a[r][j] */
    kn_uop q = rng(KN_AX_LOOP, 2), kept = ki_buffer_make(&ir, 0, 2, KN_F32, KN_LOCAL, 0);
    j = rng(KN_AX_LOOP, 6), r = rng(KN_AX_REDUCE, 5);
    kn_uop a = at(param(1, KN_F32, 30), add(mul(r, I(6)), j)), b = at(param(2, KN_F32, 10), add(mul(r, I(2)), q));
    kn_uop home = ki_op2(&ir, KN_AFTER, kept, j),
           fills = end(ki_op2(&ir, KN_STORE, at(home, q), reduce(KN_ADD, add(a, b), r, NULL)), q, NULL);
    kn_uop both = add(reduce(KN_ADD, a, r, NULL), at(ki_op2(&ir, KN_AFTER, kept, fills), I(1)));
    sink = sink1(end(store(param(0, KN_F32, 6), j, both), j, NULL));
    REFUSED(sink, by_rows((int)r->arg.range.id, (int)j->arg.range.id, 2, false), OPT_ROWS,
            "sums of which one stands in a loop of its own");
    finish();

    begin();
    REFUSED(largest(21, 40), by_rows(2, 0, 4, false), OPT_ROWS, "a sum that needs another, which would be done again");
    finish();

    begin();
    sink = scan(6, 4);
    REFUSED(sink, by_rows(1, 0, 1, false), OPT_ROWS, "a loop that loads what it carries");
    finish();

    begin();
    sink = running_down(6, 4);
    REFUSED(sink, by_rows(0, 1, 1, false), OPT_ROWS, "the loop around one that carries");
    REFUSED(sink, by_rows(1, 0, 4, false), OPT_ROWS, "four of six rows");
    REFUSED(sink, by_rows(1, 0, 2, true), OPT_ROWS, "products of a running sum in one step");
    finish();
}

/* ---- the largest and its place ---- */

enum { HARD = 6 };
/* Values whose largest is hard to place: few ones, signs of zero, infinities, NaN in some rows. */
static void fill_hard(int kind) {
    static const float odd[] = {0.0f, -0.0f, -INFINITY, INFINITY, NAN};
    for (int i = 0; i < MOST; i++) {
        in1[i] = kind == 1 ? (float)(i % 401) : kind == 2 ? -(float)(i % 401) : (float)((int)rnd(3) - 1);
        if (kind == 3) in1[i] = odd[rnd(2)];
        if (kind == 4) in1[i] = rnd(200) ? -INFINITY : odd[rnd(5)];
        if (kind == 5 && !rnd(60)) in1[i] = NAN;
    }
}

static bool same_bits(kn_uop o) {
    for (int i = 0; i < MOST; i++) got[i] = -77;
    return o && run(o, got) && memcmp(got, want, sizeof got) == 0;
}

/* In one pass it is what two passes say, to the bit, however many lanes there are and wherever they overlap. */
static void first_places(void) {
    static const struct {
        const char *name;
        int many, apart, n, step;
        bool least, seen;
    } kind[] = {{"rows", 3, 70, 70, 1, false, false},
                {"rows, the least", 3, 70, 70, 1, true, false},
                {"rows, and what it is", 3, 70, 70, 1, false, true},
                {"the least, and what it is", 2, 33, 33, 1, true, true},
                {"columns", 37, 1, 20, 37, false, false},
                {"columns, and what it is", 37, 1, 20, 37, true, true}};
    for (size_t w = 0; w < sizeof kind / sizeof *kind; w++)
        for (int hard = 0; hard < HARD; hard++) {
            bool lanes = true, rows = true, then = true;
            for (int n = 2; n < kind[w].n && n <= 40; n++) {
                begin(), fill(), fill_hard(hard);
                kn_uop sink = places(kind[w].many, kind[w].apart, kind[w].n, kind[w].step, kind[w].least, kind[w].seen);
                lanes &= run(sink, want) && same_bits(ki_apply_opt(&ir, sink, opt(KI_OPT_FIRST, 2, n, 0, false)));
                kn_uop s = n <= 16 ? ki_apply_opt(&ir, sink, by_rows(1, 0, n, false)) : sink;
                rows &= same_bits(s);
                s = s ? ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, s) : NULL;
                then &= same_bits(s);
                finish();
            }
            CHECK(lanes, "the first place in lanes: %s, values %d", kind[w].name, hard);
            CHECK(rows && then, "the first place by rows: %s, values %d", kind[w].name, hard);
        }
}

static void first_refused(void) {
    begin(), fill();
    kn_uop sink = places(4, 50, 50, 1, false, false), s;
    REFUSED(sink, opt(KI_OPT_FIRST, 2, 1, 0, false), OPT_FIRST, "one lane");
    REFUSED(sink, opt(KI_OPT_FIRST, 2, 50, 0, false), OPT_FIRST, "as many lanes as there are elements");
    REFUSED(sink, opt(KI_OPT_FIRST, 1, 8, 0, false), OPT_FIRST, "the loop of the maximum");
    REFUSED(sink, opt(KI_OPT_FIRST, 0, 2, 0, false), OPT_FIRST, "a loop that looks for nothing");
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_SPLIT, 1, 2, KN_AX_UNROLL, false));
    REFUSED(s, opt(KI_OPT_FIRST, 2, 8, 0, false), OPT_FIRST, "a maximum with lanes of its own");
    s = ki_apply_opt(&ir, sink, opt(KI_OPT_PADTO, 2, 8, 0, false));
    REFUSED(s, opt(KI_OPT_FIRST, 2, 8, 0, false), OPT_FIRST, "loops of different length");
    finish(), begin();
    s = ki_apply_opt(&ir, places(5, 133, 133, 1, true, true), opt(KI_OPT_FIRST, 2, 7, 0, false));
    REFUSED(s, opt(KI_OPT_PADTO, 4, 5, 0, false), OPT_PADTO, "more lanes than there are registers");
    finish();

    /* the last place and not the first; of another row; without a word on NaN; numbers that wrap around */
    for (int w = 0; w < 5; w++) {
        begin();
        kn_uop j = rng(KN_AX_LOOP, 4), a = rng(KN_AX_REDUCE, 50), b = rng(KN_AX_REDUCE, 50), p = param(1, KN_F32, 300);
        kn_uop m = reduce(KN_MAX, at(p, add(mul(j, I(50)), a)), a, NULL),
               x = at(p, add(mul(j, I(50)), w == 1 ? add(b, I(1)) : b)), hit = ki_op2(&ir, KN_CMPEQ, x, m);
        if (w != 2) hit = ki_op2(&ir, KN_OR, hit, ki_op2(&ir, KN_CMPNE, x, x));
        kn_dtype t = w == 3 ? KN_I8 : KN_I32;
        kn_uop place = ki_cast(&ir, w == 3 ? mul(b, I(5)) : b, t);
        if (w) place = ki_op2(&ir, KN_SUB, ki_const_int(&ir, t, w == 4 ? 40 : 50), place);
        kn_uop at = reduce(KN_MAX, where(hit, place, ki_const_int(&ir, t, 0)), b, NULL);
        sink = sink1(end(store(param(0, t, 4), j, at), j, NULL));
        static const char *const name[] = {"the last place", "a place elsewhere", "no word on NaN", "places that wrap",
                                           "places below what stands for none"};
        REFUSED(sink, opt(KI_OPT_FIRST, 2, 8, 0, false), OPT_FIRST, name[w]);
        finish();
    }
}

/* Rows are looked through once: by lanes if they are long enough. */
static void first_chosen(void) {
    for (int n = 10; n <= 270; n += 65) {
        begin(), fill(), fill_hard(5);
        kn_uop sink = places(5, n, n, 1, false, false), o = NULL;
        bool ok = run(sink, want), by;
        o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, sink);
        by = has(o, KI_OPT_FIRST);
        CHECK(ok && same_bits(o) && by == (n > 64), "the place in a row of %d is found in %s", n,
              by ? "one pass" : "two");
        finish();
    }
}

/* What is large goes by rows, whatever the number of threads: where some have no columns of a constant number the sums are strips', which
 * add up alike. */
static void rows_chosen(void) {
    static float first[MOST];
    bool same = true, chosen = true;
    for (unsigned threads = 1; threads <= 4; threads++) {
        seed = 7;
        begin(), fill();
        for (int i = 0; i < MOST; i++) in1[i] = in1[i] * 0.37f + 0.011f;
        ki_machine m = {.threads = threads, .alone = 1, .stream = 1};
        kn_uop o = ki_optimize(&ir, ki_target_named("avx2"), &m, columns(29, 512));
        chosen &= has(o, KI_OPT_ROWS);
        same &= run(o, threads == 1 ? first : got) && (threads == 1 || memcmp(got, first, sizeof got) == 0);
        CHECK(o && o->arg.kernel->threads == threads, "%u threads share the columns (%u)", threads,
              o ? o->arg.kernel->threads : 0);
        finish();
    }
    CHECK(chosen && same, "sums go by rows, and are the same bits on 1 to 4 threads");
    begin();
    kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1}, columns(29, 512));
    CHECK(o && o->arg.kernel->opt[0].op != KI_OPT_ROWS, "what a cache holds is read in strips");
    kn_uop j = rng(KN_AX_LOOP, 64), r = rng(KN_AX_REDUCE, 9);
    kn_uop same_row = reduce(KN_ADD, at(param(1, KN_F32, 64), j), r, NULL),
           sink = sink1(end(store(param(0, KN_F32, 64), j, same_row), j, NULL));
    CHECK(ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 1, .stream = 1}, sink),
          "rows that are one and the same are no matrix");
    finish();
}

/* A row's result is stored while the next row is worked on. */
static ki_opt late(int axis) { return opt(KI_OPT_LATE, axis, 0, 0, false); }
static bool stores_late(kn_uop sink, ki_machine m) { return chooses(KI_OPT_LATE, ki_target_named("avx512"), sink, m); }
static void later(void) {
    for (int m = 2; m <= 33; m += m < 4 ? 1 : 29)
        for (unsigned threads = 1; threads <= 3; threads++) {
            begin(), fill();
            kn_uop sink = kept(m * (int)threads, 70, 3), s = run(sink, want) ? sink : NULL;
            ki_opt split = opt(KI_OPT_SPLIT, 0, (int)threads, KN_AX_THREAD, true);
            if (threads > 1) s = ki_apply_opt(&ir, s, split);
            s = s ? ki_apply_opt(&ir, s, late(0)) : NULL;
            CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "a row later: %d rows on each of %u threads", m,
                  threads);
            REFUSED(s, late(0), OPT_LATE, "two rows later");
            s = s ? ki_apply_opt(&ir, s, opt(KI_OPT_CUT, 1, 64, 0, false)) : NULL;
            CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "and its loop cut");
            finish();
        }
    const ki_opt once[] = {late(0), opt(KI_OPT_CUT, 2, 2, 0, false), opt(KI_OPT_PADTO, 5, 4, 0, false),
                           opt(KI_OPT_CUT, 5, 7, 0, false)};
    const ki_opt parts[] = {late(0), opt(KI_OPT_SPLIT, 4, 8, KN_AX_UPCAST, false), opt(KI_OPT_SWAP, 5, 4, 0, false),
                            opt(KI_OPT_CUT, 4, 4, 0, false)};
    begin(), fill();
    kn_uop sink = kept(3, 64, 0), s = run(sink, want) ? ki_apply_opts(&ir, sink, once, 4) : NULL;
    CHECK(s && agrees(s), "a row is kept once, though what a cut leaves over of its sum decides a condition");
    s = ki_apply_opts(&ir, sink, parts, 4);
    CHECK(s && agrees(s), "what a lane stands before is cut whole");
    finish();
    begin();
    REFUSED(kept(1, 64, 3), late(0), OPT_LATE, "there is no other row");
    finish(), begin();
    REFUSED(kept(8, 64, 3), late(1), OPT_LATE, "the loop of a row");
    finish();
    begin();
    REFUSED(ki_apply_opt(&ir, kept(8, 64, 3), opt(KI_OPT_PADTO, 0, 5, 0, false)), late(0), OPT_LATE,
            "rows that are none");
    finish(), begin();
    REFUSED(rows(6, 50), late(0), OPT_LATE, "no row is kept");
    finish(), begin();
    REFUSED(matmul(7, 5, 10), late(0), OPT_LATE, "a sum for each of a row");
    finish(), begin();
    REFUSED(ki_apply_opt(&ir, kept(8, 64, 3), opt(KI_OPT_SPLIT, 1, 8, KN_AX_UPCAST, false)), late(0), OPT_LATE,
            "loops that are not alike any more");
    finish(), begin();
    CHECK(stores_late(kept(64, 64, 16), (ki_machine){.threads = 1, .stream = 1}),
          "a row later, where its work is heavy");
    CHECK(stores_late(kept(64, 64, 16), (ki_machine){.threads = 2, .alone = 1, .stream = 1}), "so on two threads");
    CHECK(!stores_late(kept(64, 64, 3), (ki_machine){.threads = 1, .stream = 1}), "but not where it is light");
    CHECK(!stores_late(kept(64, 64, 16), (ki_machine){.threads = 1, .stream = 1 << 20}), "nor what a cache holds");
    CHECK(!stores_late(kept(8, 64, 16), (ki_machine){.threads = 1, .stream = 1}), "nor a few rows");
    CHECK(!stores_late(kept(64, 72, 16), (ki_machine){.threads = 1, .stream = 1}), "nor rows that end within a vector");
    finish();
}

/* A row's maximum is found while a sum of the row before is. */
static ki_opt pipeline(int axis) { return opt(KI_OPT_PIPELINE, axis, 0, 0, false); }
/* of rows that LATE stores */
static kn_uop along(kn_uop sink) {
    kn_uop s = sink ? ki_apply_opt(&ir, sink, late(0)) : NULL;
    return s ? ki_apply_opt(&ir, s, pipeline(0)) : NULL;
}
static bool pipelines_at(const char *level, kn_uop sink, ki_machine m) {
    return chooses(KI_OPT_PIPELINE, ki_target_native(level), sink, m);
}
static bool pipelines(kn_uop sink, ki_machine m) { return pipelines_at("avx512", sink, m); }
/* ENDs of loops of sums, after stage 4. */
static int sum_loops(kn_uop sink) {
    kn_uop e = sink ? ki_expand_kernel(&ir, NULL, sink) : NULL, *node;
    int64_t n = e ? ki_toposort(&ir, &e, 1, &node) : 0;
    int found = 0;
    for (int64_t i = 0; i < n; i++)
        found += node[i]->op == KN_END && node[i]->src[node[i]->nsrc - 1]->arg.range.axis == KN_AX_REDUCE;
    if (e && n >= 0) ki_free(node);
    return found;
}
static void pipelining(void) {
    const ki_opt cut = opt(KI_OPT_CUT, 2, 64, 0, false), vector = opt(KI_OPT_SPLIT, 2, 16, KN_AX_UNROLL, false);
    for (int m = 2; m <= 33; m += m < 4 ? 1 : 29)
        for (unsigned threads = 1; threads <= 3; threads++) {
            begin(), fill();
            kn_uop sink = below_max(m * (int)threads, 70, 3), s = run(sink, want) ? sink : NULL;
            if (threads > 1) s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, (int)threads, KN_AX_THREAD, true));
            s = s ? ki_apply_opt(&ir, s, pipeline(0)) : NULL;
            CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "the next row's maximum: %d rows on each of %u threads",
                  m, threads);
            CHECK(sum_loops(s) == 2, "the first row's, and the next one's along with the sum: %d loops", sum_loops(s));
            REFUSED(s, pipeline(0), OPT_PIPELINE, "two rows ahead");
            s = s ? ki_apply_opt(&ir, s, cut) : NULL;
            s = s ? ki_apply_opt(&ir, s, vector) : NULL;
            CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)) && sum_loops(s) == 3, "both are cut, and vectors, alike");
            finish();
        }
    for (int m = 2; m <= 33; m += m < 4 ? 1 : 29)
        for (unsigned threads = 1; threads <= 3; threads++) {
            begin(), fill();
            kn_uop sink = kept_below(m * (int)threads, 64, 3), s = run(sink, want) ? sink : NULL;
            if (threads > 1) s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 0, (int)threads, KN_AX_THREAD, true));
            s = along(s);
            CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "along with what is kept: %d rows on each of %u threads",
                  m, threads);
            CHECK(sum_loops(s) == 2, "the first row's maximum, and the sum: %d loops", sum_loops(s));
            REFUSED(s, pipeline(0), OPT_PIPELINE, "two rows ahead");
            REFUSED(s, opt(KI_OPT_CUT, 1, 16, 0, false), OPT_CUT_KIND, "one of two that go along with each other cut");
            s = s ? ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 1, 16, KN_AX_UPCAST, false)) : NULL;
            CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)) && sum_loops(s) == 2, "and vectors of both");
            finish();
        }
    begin();
    REFUSED(ki_apply_opt(&ir, kept_row(8, 64, 3, true, true), late(0)), pipeline(0), OPT_PIPELINE,
            "results need the maximum too");
    finish(), begin();
    REFUSED(ki_apply_opt(&ir, kept(8, 64, 3), late(0)), pipeline(0), OPT_PIPELINE, "no maximum");
    finish(), begin();
    REFUSED(ki_apply_opt(&ir, ki_apply_opt(&ir, kept_below(8, 64, 3), late(0)),
                         opt(KI_OPT_SPLIT, 1, 8, KN_AX_UPCAST, false)),
            pipeline(0), OPT_PIPELINE, "loops that are not alike");
    finish(), begin();
    const ki_machine past = {.threads = 1, .stream = 1}, much = {.threads = 1, .stream = 1, .ahead = 16384};
    CHECK(pipelines_at("fp16", kept_below(64, 128, 16), much), "where it is stored later");
    CHECK(!pipelines_at("fp16", kept_below(64, 128, 16), past), "and much is to be under way");
    CHECK(pipelines(kept_below(64, 128, 16), past), "or no hardware fetches streams");
    CHECK(!pipelines_at("avx2", kept_below(64, 128, 16), past), "for wide vectors");
    finish();
    begin();
    REFUSED(below_max(1, 64, 3), pipeline(0), OPT_PIPELINE, "there is no other row");
    finish(), begin();
    REFUSED(below_max(8, 64, 3), pipeline(1), OPT_PIPELINE, "the loop of a sum");
    finish(), begin();
    REFUSED(rows(6, 50), pipeline(0), OPT_PIPELINE, "a loop behind the sums");
    finish(), begin();
    REFUSED(matmul(7, 5, 10), pipeline(1), OPT_PIPELINE, "one sum");
    finish(), begin();
    REFUSED(kept(8, 64, 3), pipeline(0), OPT_PIPELINE, "a row that is kept");
    finish(), begin();
    REFUSED(ki_apply_opt(&ir, below_max(8, 64, 3), opt(KI_OPT_SPLIT, 1, 8, KN_AX_UNROLL, false)), pipeline(0),
            OPT_PIPELINE, "lanes, which the two would have to have alike");
    finish(), begin();
    CHECK(pipelines(below_max(64, 128, 16), (ki_machine){.threads = 1, .stream = 1}), "ahead, where a sum is heavy");
    CHECK(pipelines(below_max(64, 128, 16), (ki_machine){.threads = 2, .alone = 1, .stream = 1}), "so on two threads");
    CHECK(!pipelines(below_max(64, 128, 3), (ki_machine){.threads = 1, .stream = 1}), "but not where it is light");
    CHECK(!pipelines(below_max(8, 128, 16), (ki_machine){.threads = 1, .stream = 1}), "nor a few rows");
    CHECK(!pipelines(below_max(64, 64, 16), (ki_machine){.threads = 1, .stream = 1}), "nor short ones");
    CHECK(!pipelines(below_max(64, 128, 16), (ki_machine){.threads = 1}), "nor where nothing goes past the caches");
    finish();
}

/* Each lane begins further on, and ends with what it has left out. */
static ki_opt rotate(int axis, int by, uint32_t lane) {
    ki_opt o = opt(KI_OPT_ROTATE, axis, by, 0, false);
    o.id = (int32_t)lane;
    return o;
}
static bool rotates(kn_uop sink, ki_machine m) { return chooses(KI_OPT_ROTATE, ki_target_native("avx512"), sink, m); }
static void rotating(void) {
    ki_opt lanes = {.op = KI_OPT_SPLIT, .axis = 1, .arg = 3, .target = KN_AX_UPCAST, .id = 9};
    for (int by = 1; by < 50; by += by < 3 ? 1 : 23)
        for (lanes.arg = 2; lanes.arg <= 24; lanes.arg += lanes.arg < 4 ? 1 : 20)
            for (unsigned threads = 1; threads <= 2; threads++) {
                begin(), fill();
                kn_uop sink = transpose(48, 50), s = run(sink, want) ? ki_apply_opt(&ir, sink, lanes) : NULL;
                if (threads > 1) s = ki_apply_opt(&ir, s, opt(KI_OPT_SPLIT, 1, 2, KN_AX_THREAD, true));
                s = s ? ki_apply_opt(&ir, s, rotate(0, by, 9)) : NULL;
                CHECK(s && agrees(ki_apply_opts(&ir, s, NULL, 0)), "%d further on for each of %d lanes, %u threads", by,
                      (int)lanes.arg, threads);
                kn_uop more = ki_apply_opt(&ir, s, rotate(0, 7, 9));
                CHECK(!more || agrees(ki_apply_opts(&ir, more, NULL, 0)), "and further");
                ki_env_clear(&env);
                finish();
            }
    lanes.arg = 3;
    begin();
    kn_uop s = ki_apply_opt(&ir, transpose(48, 50), lanes);
    REFUSED(s, rotate(0, 0, 9), OPT_ROTATE, "by nothing");
    REFUSED(s, rotate(0, 50, 9), OPT_ROTATE, "by the whole loop");
    REFUSED(s, rotate(0, 1, 1), OPT_ROTATE, "a loop for the lane");
    REFUSED(s, rotate(0, 1, 77), OPT_ROTATE, "for a lane that there is not");
    finish(), begin();
    s = ki_apply_opt(&ir, matmul(6, 5, 10), opt(KI_OPT_SPLIT, 1, 2, KN_AX_UPCAST, false));
    REFUSED(s, rotate(2, 1, 3), OPT_ROTATE, "the loop of a sum");
    REFUSED(s, rotate(0, 1, 3), OPT_ROTATE, "a loop in which another one is");
    finish(), begin();
    s = ki_apply_opt(&ir, running(6, 50), opt(KI_OPT_SPLIT, 0, 2, KN_AX_UPCAST, false));
    REFUSED(s, rotate(1, 1, 2), OPT_ROTATE, "a loop that carries something");
    finish(), begin();
    const ki_machine ahead = {.threads = 1, .stream = 1, .ahead = 16384};
    CHECK(rotates(transpose(128, 2048), ahead), "squares side by side");
    CHECK(rotates(transpose(128, 2048), (ki_machine){.threads = 1, .stream = 1}), "where stores are in the way too");
    CHECK(!rotates(transpose(128, 2048), (ki_machine){.threads = 1, .stream = 1 << 24}), "past the caches");
    CHECK(!chooses(KI_OPT_ROTATE, ki_target_native("fp16"), transpose(128, 2048),
                   (ki_machine){.threads = 1, .stream = 1}),
          "nowhere else");
    CHECK(!rotates(transpose(128, 2056), ahead), "not of rows that are no whole lines apart");
    CHECK(!rotates(transpose(128, 512), ahead), "nor of short ones");
    finish();
}

/* Every allocation fails once: the stages say so, and lose nothing (the sanitizer's word). */
static void no_memory(int w) {
    bool ok = true, done = false;
    const char *name = "";
    int n = 0;
    while (ok && !done && ++n < 20000) {
        kn_uop sink;
        begin();
        name = build(w, &sink);
        ki_alloc_fail((uint64_t)n, 0);
        kn_uop o = ki_optimize(&ir, ki_target_named("avx512"), &(ki_machine){.threads = 2, .stream = 1}, sink),
               e = o ? ki_expand_kernel(&ir, NULL, o) : NULL;
        ki_alloc_fail(0, 0);
        done = e && env.err == KI_E_NONE;
        ok = done || env.err == KI_E_NOMEM;
        if (!ok) printf("# allocation %d: %s\n", n, env.message.s ? env.message.s : "no message");
        finish();
    }
    CHECK(ok && done, "every allocation may fail: %s", name);
}

int main(void) {
    static const int kinds[] = {0, 4, 9, 11, 13, 17, 21, 22, 24};
    for (int i = 0; i < 9; i++) no_memory(kinds[i]);
    threads_do_not_matter();
    rows_in_turn();
    rows_refused();
    rows_of_two_nests();
    rows_chosen();
    parts_and_phases();
    later();
    pipelining();
    rotating();
    first_places();
    first_refused();
    first_chosen();
    forms();
    staged_in_heads();
    joined();
    copied();
    dealt();
    framed();
    framed_not();
    framed_whole();
    written_out();
    values_apart();
    values_below();
    many_values_below();
    update_in_parts();
    uneven();
    lapped();
    kept_places();
    one_of_two_reads();
    refusals();
    repeated();
    heuristics();
    no_step_is_refused();
    for (int w = 0; w < KERNELS; w++) random_ops(w, 40);
    return tap_done();
}
