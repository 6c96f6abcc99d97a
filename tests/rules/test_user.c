/* A user's own rules through the public interface: text, callbacks, failures. */
#include <koine/koine.h>
#include <koine/rules.h>

#include "../tap.h"
#include <string.h>

static int even(void *user, const int64_t *arg, unsigned n, int64_t *result) {
    (void)n, (void)result;
    ++*(int *)user;
    return arg[0] % 2 == 0;
}
static int half(void *user, const int64_t *arg, unsigned n, int64_t *result) {
    (void)user, (void)n;
    *result = arg[0] / 2;
    return 1;
}
/* neg(x) => 0 - x, by hand */
static kn_uop unneg(kn_match *m) {
    kn_ctx *k = kn_match_ctx(m);
    kn_uop x = kn_match_node(m, 0);
    ++*(int *)kn_match_user(m);
    return kn_uop_src(kn_match_root(m), 0) == x ? kn_u(k, "sub", kn_u_int(k, kn_uop_dtype(x), 0), x) : NULL;
}

static const char text[] =
    "extern pred even(int) = user_even\n"
    "extern fn half(int) int = user_half\n"
    "ruleset halves\n"
    "halve : x:i32 * #c => (x * [half(c)]) << 1  if even(c) && c > 1 @ends(\"the factor shrinks\")\n"
    "ruleset negs\n"
    "unneg : -x:i32 => do(user_unneg) @opaque(\"to test callbacks\")\n";

int main(void) {
    const kn_rule_callback table[] = {
        {"user_even", NULL, even}, {"user_half", NULL, half}, {"user_unneg", unneg, NULL}, {NULL, NULL, NULL}};
    kn_ctx *k = kn_open("NULL");
    int calls = 0;
    kn_uop x = kn_u_cast(k, kn_u_variable(k, "x", 0, 9), KN_I32);
    kn_rules *r = kn_rules_load(k, "user.kr", text, table);
    CHECK(r, "rules load with callbacks: %s", kn_message(k));
    kn_uop six = kn_u(k, "mul", x, kn_u_int(k, KN_I32, 6)), neg = kn_u(k, "neg", x);
    kn_uop v = kn_rewrite(k, r, "halves", six, KN_FIXPOINT, &calls);
    CHECK(v == kn_u(k, "shl", kn_u(k, "mul", x, kn_u_int(k, KN_I32, 3)), kn_u_int(k, KN_I32, 1)) && calls >= 2,
          "predicates and functions of integers are called");
    CHECK(kn_rewrite(k, r, "negs", six, KN_FIXPOINT, &calls) == six, "another set leaves it alone");
    v = kn_rewrite(k, r, "negs", neg, KN_WALK, &calls);
    CHECK(v == kn_u(k, "sub", kn_u_int(k, KN_I32, 0), x), "a right side in C");
    CHECK(!kn_rewrite(k, r, "nope", neg, KN_WALK, &calls) && strstr(kn_message(k), "unknown rule set 'nope'"),
          "an unknown set");
    kn_clear(k);
    CHECK(!kn_rewrite(k, NULL, NULL, neg, KN_WALK, NULL) && !kn_rewrite(k, r, NULL, NULL, KN_WALK, NULL),
          "NULL in, NULL out");
    CHECK(!kn_rules_load(k, "user.kr", text, NULL) && strstr(kn_message(k), "no host function 'user_even'"),
          "a missing callback");
    kn_clear(k);
    CHECK(!kn_rules_load(k, "bad.kr", "ruleset r\n a : x:int + => x", NULL) && strstr(kn_message(k), "bad.kr:2:14"),
          "a syntax error has its place");
    printf("# %s\n", kn_message(k));
    kn_rules_free(r);
    kn_rules_free(NULL);
    kn_close(k);
    return tap_done();
}
