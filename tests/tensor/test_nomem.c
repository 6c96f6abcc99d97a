/* Memory that runs out at any allocation of a front-end program: an error or an answer, never a crash or a leak. */
#include <koine/koine.h>

#include "base/alloc.h"

#include "../tap.h"

static void twice(void *user, const kn_tensor *in, kn_tensor *out) {
    (void)user;
    out[0] = kn_add(in[0], in[0]);
}

/* True when nothing failed. Nothing is run. */
static int program(void) {
    int good = 1;
    kn_ctx *k = kn_open("NULL");
    if (!k) return 0;
    kn_scope_open(k);
    kn_tensor x = kn_from_host(k, (float[]){1, 2, 3, 4, 5, 6}, KN_F32, KN_SHAPE(2, 3));
    kn_tensor w = kn_param(kn_randn(k, KN_SHAPE(3, 4))), f = NULL;
    kn_tensor h = kn_layer_norm(kn_relu(kn_matmul(x, w)), 1, NULL, NULL, 1e-5);
    kn_tensor i = kn_from_host(k, (int32_t[]){0, 3}, KN_I32, KN_SHAPE(2));
    kn_function(k, twice, NULL, (kn_tensor[]){h}, 1, &f, 1);
    kn_tensor loss = kn_add(kn_cross_entropy(kn_cumsum(f, 1), i), kn_mean(kn_take(h, i, 1)));
    kn_tensor g = kn_grad1(loss, w), bad = kn_add(kn_zeros(k, KN_SHAPE(2), KN_F32), kn_zeros(k, KN_SHAPE(3), KN_F32));
    kn_assign(w, kn_sub(w, kn_muls(g, 0.1)));
    kn_keep(kn_cat((kn_tensor[]){x, x}, 2, 0));
    good = !kn_check(loss) && !kn_check(g) && !kn_check(w) && kn_check(bad) == KN_BAD_ARGUMENT && kn_why(bad)[0];
    char *text = kn_uop_text(k, kn_graph(loss));
    good = good && text;
    kn_free(text);
    kn_scope_close(k);
    kn_close(k);
    return good;
}

int main(void) {
    CHECK(program(), "the program is right when there is memory");
    for (int onwards = 0; onwards < 2; onwards++) {
        uint64_t n = 0, failed = 0;
        int good = 0;
        do {
            ki_alloc_fail(++n, onwards);
            good = program();
            ki_alloc_fail(0, 0);
            failed += !good;
        } while (!(good && onwards) && n < 200);
        printf("# %llu allocations, %llu of them noticed\n", (unsigned long long)n, (unsigned long long)failed);
        CHECK(failed > 0, "failing %s: survived",
              onwards ? "all allocations from the n-th on" : "only the n-th allocation");
    }
    CHECK(program(), "and it is right again afterwards");
    return tap_done();
}
