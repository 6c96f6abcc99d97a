/* test_oom.c: stages 5 to 8 with the n-th allocation failing, for every n until none fails: an error each time, and
 * the store still usable; a listing is whole, or there is none. */
#include "harness.h"
#include "stages/5_select/select.h"
#include "stages/7_plan/plan.h"
#include "stages/8_render/x86/native.h"

static U kernel(void) {
    enum { N = 64, L = 16 };
    U r = range(N / L), k = range(5), i = add(mul(r, C(L)), iota(L, 0, 1)), acc = reg(KN_F32, L);
    U init = store(after1(acc, r), iota(L, 0, 1), F(0)), in = after2(acc, init, k);
    U x = ki_op3(ir, KN_LOAD, at(param(1, KN_F32, N), i), F(0), lt(i, C(60)));
    U upd = store(in, iota(L, 0, 1), add(load(in, iota(L, 0, 1)), ki_op1(ir, KN_EXP, x)));
    U done = load(after1(acc, end1(upd, k)), iota(L, 0, 1));
    U s[2] = {end1(store(param(0, KN_F32, N), i, done), r), store(param(2, KN_F32, 1), C(0), F(1))};
    return sink("k_oom", s, 2);
}

static U linear(const ki_target *t, U k) {
    U s = ki_select(ir, t, k);
    return s ? ki_linearize(ir, s) : NULL;
}
static U call_of(U l, const U *b) { return l ? ki_opn(ir, KN_CALL, (U[]){l, b[0], b[1], b[2]}, 4) : NULL; }

/* What is done under failing allocations, to a kernel and its buffers. */
typedef struct job {
    bool (*fn)(const struct job *j, ki_text *out);
    const ki_target *t;
    U k;
    const U *b;
} job;

static bool run(const job *j, ki_text *out) {
    U call = call_of(linear(j->t, j->k), j->b), root = call ? ki_opn(ir, KN_LINEAR, &call, 1) : NULL;
    U p = root ? ki_plan(ir, root, j->b, 1, NULL, NULL) : NULL, r = p ? ki_render(ir, j->t, p) : NULL;
    const ki_bytes *code = r ? r->src[0]->src[0]->src[1]->arg.str : NULL;
    if (r) ki_text_putn(out, code->s, code->n);
    return r && !out->oom;
}

static bool list(const job *j, ki_text *out) {
    ki_x86_text code;
    bool ok = ki_render_x86(ir, j->t, j->k, &code, out);
    ki_x86_text_free(&code);
    return ok;
}

typedef struct seen {
    int good, failed, silent, cut; /* good: in a row, at the end; cut: not what it is without failures */
} seen;

static seen sweep(const job *j) {
    seen s = {0};
    ki_text whole = {0};
    CHECK(j->fn(j, &whole) && whole.n, "nothing fails while memory lasts");
    for (uint64_t n = 1; n < 20000 && s.good < 300;
         n++) { /* some failures are survived: only a long run of successes is the end */
        ki_text out = {0};
        ki_mark m = ki_ir_mark(ir);
        ki_alloc_fail(n, 0);
        bool ok = j->fn(j, &out);
        ki_alloc_fail(0, 0);
        s.good = ok ? s.good + 1 : 0;
        s.failed += !ok;
        s.silent += !ok && env.err == KI_E_NONE && !out.oom;
        s.cut += ok && (out.n != whole.n || memcmp(out.s, whole.s, out.n) != 0);
        ki_env_clear(&env);
        ki_text_free(&out);
        ki_ir_drop(ir, m);
    }
    ki_text_free(&whole);
    return s;
}

int main(void) {
    if (!open_store()) return 1;
    U b[3], k = kernel();
    for (int j = 0; j < 3; j++) b[j] = ki_buffer_make(ir, ir->next_buffer++, 64, KN_F32, KN_GLOBAL, 0);
    const ki_target *avx2 = ki_target_native("avx2"), *to[] = {ki_target_host(), avx2};
    for (int j = 0; j < 2; j++) {
        seen s = sweep(&(job){run, to[j], k, b});
        CHECK(s.good && s.failed > 10, "%s: with %d allocations to fail, all reported or survived",
              j ? "machine code" : "C", s.failed);
        CHECK(s.silent == 0 && s.cut == 0, "none failed in silence (%d did, %d made something else)", s.silent, s.cut);
    }
    seen s = sweep(&(job){list, avx2, call_of(linear(avx2, k), b), b});
    CHECK(s.good && s.cut == 0, "no listing is cut short in silence (%d were)", s.cut);
    close_store();
    return tap_done();
}
