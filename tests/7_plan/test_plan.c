/* test_plan.c: arenas: nothing live at one time overlaps, ports and views stay, offsets are aligned and repeatable. */
#include "../8_render/harness.h"
#include "stages/7_plan/plan.h"
#include "stages/7_plan/offsets.h"

static U global(kn_dtype t, int64_t n) { return ki_buffer_make(ir, ir->next_buffer++, n, t, KN_GLOBAL, 0); }

/* CALL of: slot 0 [i] = slot 1 [i] + 1, over n elements. */
static U step(U to, U from, int64_t n) {
    U r = range(n), o = param(0, KN_F32, n), a = param(1, KN_F32, n);
    U s = end1(store(o, r, add(load(a, r), F(1))), r);
    return ki_op3(ir, KN_CALL, ki_linearize(ir, sink("k", &s, 1)), to, from);
}

static int64_t offset_of(U u) { return u->op == KN_SLICE ? u->src[1]->arg.i : -1; }

static void test_chain(void) {
    enum { N = 10 };
    U b[N + 1], c[N], keep[2];
    for (int k = 0; k <= N; k++) b[k] = global(KN_F32, 100 + 10 * (k % 3));
    for (int k = 0; k < N; k++) c[k] = step(b[k + 1], b[k], 100);
    keep[0] = b[0], keep[1] = b[N];
    ki_plan_sizes sizes;
    U root = ki_opn(ir, KN_LINEAR, c, N), p = ki_plan(ir, root, keep, 2, NULL, &sizes);
    CHECK(p != NULL, "a chain of ten calls is planned");
    if (!p) return;
    int moved = 1, apart = 1, aligned = 1, tagged = 1;
    for (int k = 0; k < N; k++) {
        U to = p->src[k]->src[1], from = p->src[k]->src[2];
        moved =
            moved && (k == N - 1 ? to == b[N] : to->op == KN_SLICE) && (k == 0 ? from == b[0] : from->op == KN_SLICE);
        if (to->op == KN_SLICE) aligned = aligned && offset_of(to) % 64 == 0 && to->dtype == KN_F32;
        if (to->op == KN_SLICE && from->op == KN_SLICE) {
            int64_t x = offset_of(to), y = offset_of(from);
            apart = apart && (x + ki_numel(to) * 4 <= y || y + ki_numel(from) * 4 <= x);
        }
        U linear = p->src[k]->src[0]->src[0];
        for (uint32_t i = 0; i < linear->nsrc; i++) tagged = tagged && linear->src[i]->tag == i;
    }
    CHECK(moved, "ports stay, what lies between is a slice");
    CHECK(apart, "a call's input and output do not overlap");
    CHECK(aligned, "64-byte aligned, dtype kept");
    CHECK(tagged, "instructions hold their positions");
    CHECK(sizes.arena <= 3 * 512 && sizes.separate >= 9 * 400, "three blocks serve nine buffers: %d of %d bytes",
          (int)sizes.arena, (int)sizes.separate);
    U again = ki_plan(ir, root, keep, 2, NULL, NULL);
    int same = again != NULL;
    for (int k = 0; k < N && same; k++) same = offset_of(again->src[k]->src[1]) == offset_of(p->src[k]->src[1]);
    CHECK(same, "the same offsets again");
}

static void test_kept(void) {
    U a = global(KN_F32, 64), b = global(KN_F32, 64), w = global(KN_F32, 64), c[2];
    c[0] = step(b, w, 64); /* w is read before anything wrote it */
    c[1] = step(a, b, 64);
    U p = ki_plan(ir, ki_opn(ir, KN_LINEAR, c, 2), &a, 1, NULL, NULL);
    CHECK(p && p->src[0]->src[2] == w && p->src[0]->src[1]->op == KN_SLICE && p->src[1]->src[1] == a,
          "data that was there before stays");
}

/* A part of a BUFFER lies within it, wherever that is; it is in use as long as any part is. */
static void test_parts(void) {
    U in = global(KN_F32, 64), b = global(KN_F32, 64), d = global(KN_F32, 64), out = global(KN_F32, 64),
      keep[2] = {in, out}, c[4], part[2];
    for (int k = 0; k < 2; k++) {
        U src[2] = {b, ki_index(ir, 32 * k)};
        part[k] = ki_make(ir, KN_SLICE, KN_F32, src, 2, (kn_arg){.i = 32}, 0);
        c[k] = step(part[k], in, 32);
    }
    c[2] = step(d, part[1], 32);
    c[3] = step(out, part[0], 32);
    U p = ki_plan(ir, ki_opn(ir, KN_LINEAR, c, 4), keep, 2, NULL, NULL);
    CHECK(p != NULL, "parts of a BUFFER are planned");
    if (!p) return;
    U a = p->src[0]->src[1], e = p->src[1]->src[1], f = p->src[2]->src[1];
    CHECK(a->op == KN_SLICE && e->op == KN_SLICE && a->src[0] == e->src[0] && a->src[0]->dtype == KN_U8 &&
              offset_of(e) == offset_of(a) + 128 && ki_numel(a) == 32,
          "they lie where it lies, at their places");
    CHECK(p->src[2]->src[2] == e && p->src[3]->src[2] == a, "who reads one reads what was written");
    CHECK(f->op == KN_SLICE && (offset_of(f) >= offset_of(a) + 256 || offset_of(f) + 256 <= offset_of(a)),
          "no other is there meanwhile");
}

static void test_pool(void) {
    ki_offsets p = {0};
    uint32_t held[64] = {0}, seed = 1;
    int64_t size[64];
    int ok = 1;
    for (int step = 0; step < 4000 && ok; step++) {
        seed = seed * 1103515245u + 12345u;
        unsigned k = seed >> 16 & 63;
        if (held[k]) {
            ki_offsets_give(&p, held[k]);
            held[k] = 0;
            continue;
        }
        size[k] = 64 * (1 + (int64_t)(seed >> 8 & 31));
        held[k] = ki_offsets_take(&p, size[k]);
        int64_t at = p.block[held[k]].offset;
        ok = held[k] && at + size[k] <= p.size;
        for (unsigned j = 0; j < 64 && ok; j++) {
            if (j == k || !held[j]) continue;
            int64_t o = p.block[held[j]].offset;
            ok = o + size[j] <= at || at + size[k] <= o;
        }
    }
    CHECK(ok, "pool: random blocks never overlap");
    for (int k = 0; k < 64; k++)
        if (held[k]) ki_offsets_give(&p, held[k]);
    CHECK(p.block[p.last].offset == 0 && p.block[p.last].size == p.size, "pool: all given back is one block");
    ki_offsets_close(&p);
}

static void test_refused(void) {
    U a = global(KN_F32, 4), bad[2] = {sink("r", NULL, 0), ki_opn(ir, KN_LINEAR, &a, 1)};
    for (int k = 0; k < 2; k++) {
        CHECK(!ki_plan(ir, bad[k], NULL, 0, NULL, NULL) && strstr(env.message.s, "KN4231"), "%s", env.message.s);
        ki_env_clear(&env);
    }
}

int main(void) {
    if (!open_store()) return 1;
    test_chain();
    test_kept();
    test_parts();
    test_pool();
    test_refused();
    close_store();
    return tap_done();
}
