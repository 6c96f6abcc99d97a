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

static bool run(U k, const U *b, ki_text *out) {
    U s = ki_select(ir, ki_target_host(), k), l = s ? ki_linearize(ir, s) : NULL;
    U src[4] = {l, b[0], b[1], b[2]};
    U call = l ? ki_opn(ir, KN_CALL, src, 4) : NULL, root = call ? ki_opn(ir, KN_LINEAR, &call, 1) : NULL;
    U p = root ? ki_plan(ir, root, b, 1, NULL, NULL) : NULL, r = p ? ki_render(ir, ki_target_host(), p) : NULL;
    if (r) ki_text_putn(out, r->src[0]->src[0]->src[1]->arg.str->s, 64);
    return r && !out->oom;
}

static bool list(U call, const ki_target *t, ki_text *out) {
    ki_x86_text code;
    bool ok = ki_render_x86(ir, t, call, &code, out);
    ki_x86_text_free(&code);
    return ok;
}

static void listings(U k, const U *b) {
    const ki_target *t = ki_target_native("avx2");
    U s = ki_select(ir, t, k), l = s ? ki_linearize(ir, s) : NULL;
    U src[4] = {l, b[0], b[1], b[2]}, call = l ? ki_opn(ir, KN_CALL, src, 4) : NULL;
    ki_text whole = {0};
    CHECK(call && list(call, t, &whole) && whole.n, "a kernel is listed");
    int cut = 0, good = 0;
    for (uint64_t n = 1; n < 20000 && good < 300; n++) {
        ki_text out = {0};
        ki_mark m = ki_ir_mark(ir);
        ki_alloc_fail(n, 0);
        bool ok = list(call, t, &out);
        ki_alloc_fail(0, 0);
        good = ok ? good + 1 : 0;
        cut += ok && (out.n != whole.n || memcmp(out.s, whole.s, out.n) != 0);
        ki_env_clear(&env);
        ki_text_free(&out);
        ki_ir_drop(ir, m);
    }
    CHECK(good && cut == 0, "no listing is cut short in silence (%d were)", cut);
    ki_text_free(&whole);
}

int main(void) {
    if (!open_store()) return 1;
    U b[3], k = kernel();
    for (int j = 0; j < 3; j++) b[j] = ki_buffer_make(ir, ir->next_buffer++, 64, KN_F32, KN_GLOBAL, 0);
    int failed = 0, silent = 0, good = 0; /* some failures are survived: only a long run of successes is the end */
    for (uint64_t n = 1; n < 20000 && good < 300; n++) {
        ki_text out = {0};
        ki_mark m = ki_ir_mark(ir);
        ki_alloc_fail(n, 0);
        bool ok = run(k, b, &out);
        ki_alloc_fail(0, 0);
        good = ok ? good + 1 : 0;
        if (!ok) {
            failed++;
            silent += env.err == KI_E_NONE && !out.oom;
            ki_env_clear(&env);
        }
        ki_text_free(&out);
        ki_ir_drop(ir, m);
    }
    CHECK(good && failed > 10, "with %d allocations to fail, all reported or survived", failed);
    CHECK(silent == 0, "none failed in silence (%d did)", silent);
    listings(k, b);
    close_store();
    return tap_done();
}
