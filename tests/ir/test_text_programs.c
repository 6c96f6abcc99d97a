/* Whole programs: ports, roots, order of nodes, sharing; a million nodes; every allocation failing once. */
#include "text_util.h"

#include <stdlib.h>

static int parses(lab *l, const char *text, ki_program *p) {
    bool ok = ki_parse(&l->ir, "t.kn", text, strlen(text), p);
    if (!ok) printf("# %s\n", l->env.message.s ? l->env.message.s : "?");
    return ok;
}

/* Reads, prints, and compares with what is wanted (NULL: the text itself). */
static int gives(const char *text, const char *want) {
    lab l;
    ki_program p;
    ki_text t = {0};
    lab_open(&l);
    int ok = parses(&l, text, &p) && ki_print(&p, &t);
    if (ok && strcmp(t.s, want ? want : text) != 0) ok = 0, printf("# got\n%s# wanted\n%s", t.s, want ? want : text);
    ok = ok && round_trip(&p, "program");
    ki_text_free(&t);
    ki_program_free(&p);
    lab_close(&l);
    return ok;
}

static const char softmax[] = "koine 1 tensor\n"
                              "%1 = param \"x\" slot=0                   : f32 [32, 64]   in [-4, 4]\n"
                              "%2 = reduce max %1 axes=(1)             : f32 [32, 1]\n"
                              "%3 = expand %2 (32, 64)                 : f32 [32, 64]\n"
                              "%4 = sub %1 %3                          : f32 [32, 64]\n"
                              "%5 = exp %4                             : f32 [32, 64]\n"
                              "%6 = reduce add %5 axes=(1)             : f32 [32, 1]\n"
                              "%7 = expand %6 (32, 64)                 : f32 [32, 64]\n"
                              "%8 = div %5 %7                          : f32 [32, 64]\n"
                              "out \"y\" = %8\n";

static void test_ports(void) {
    CHECK(gives(softmax, NULL), "a tensor program: implied in ports and root");
    CHECK(gives("koine 1 tensor\n%x = param \"x\" : f32 [4]\n%y = param \"y\" : f32 [4]\nin \"y\" = %y\nin \"x\" = %x "
                "in [0, 0.5]\n"
                "%z = add %x %y\nout \"z\" = %z\nout \"x\" = %x\n",
                "koine 1 tensor\n%1 = param \"x\"                          : f32 [4]\n%2 = param \"y\"                 "
                "         : f32 [4]\n"
                "%3 = add %1 %2                          : f32 [4]\nin \"y\" = %2\nin \"x\" = %1   in [0, 0.5]\n"
                "out \"z\" = %3\nout \"x\" = %1\n"),
          "ports in another order than the params are written");
    CHECK(gives("koine 1 tensor\n%x = param \"x\" : f32 [4]\nin none\nout \"z\" = %x\n",
                "koine 1 tensor\n%1 = param \"x\"                          : f32 [4]\nin none\nout \"z\" = %1\n"),
          "named params that are no ports");
    CHECK(gives("koine 1 tensor\n%x = param \"x\" : f32\n%s = sink %x\n%t = sink %s\nroot %t\nout \"z\" = %x\n",
                "koine 1 tensor\n%1 = param \"x\"                          : f32\n%2 = sink %1\n%3 = sink %2\nroot "
                "%3\nout \"z\" = %1\n"),
          "a root that the outputs do not imply");
    CHECK(gives("koine 1 tensor\n%x = param \"x\" : f32\nroot %x\n",
                "koine 1 tensor\n%1 = param \"x\"                          : f32\nroot %1\n"),
          "a root that is no sink, no outputs");
    CHECK(gives("koine 1 callify\n%b = buffer 0 GLOBAL size=4 : f32\n%p = param slot=0 : f32 [4]\n%e = exp %p\n%t = "
                "tuple %e\n"
                "%f = function %t %b\n%g = gettuple %f at=0\nroot %f\nin \"x\" = %b : f32 [2, 2]\nout \"y\" = %g : f32 "
                "[2, 2]\n",
                "koine 1 callify\n%1 = param slot=0                       : f32 [4]\n"
                "%2 = exp %1                             : f32 [4]\n%3 = tuple %2\n"
                "%4 = buffer 0 GLOBAL size=4             : f32 [4]\n%5 = function %3 %4\n"
                "%6 = gettuple %5 at=0                   : f32 [4]\n"
                "in \"x\" = %4                             : f32 [2, 2]\nroot %5\n"
                "out \"y\" = %6                            : f32 [2, 2]\n"),
          "ports above the root, with the user's shape");
    CHECK(
        gives(
            "koine 1 callify\n%1 = param slot=0                       : f32 [4]\n"
            "%2 = param slot=1                       : f32 [4]\n"
            "%3 = add %1 %2                          : f32 [4]\n%4 = tuple %3\n"
            "%5 = buffer 0 GLOBAL size=4             : f32 [4]\n%6 = buffer 1 GLOBAL size=4             : f32 [4]\n"
            "%7 = function %4..%6\n%8 = gettuple %7 at=0                   : f32 [4]\n"
            "in \"\" = %5                              : f32 [4]\nin \"\" = %6                              : f32 [4]\n"
            "root %7\nout \"\" = %8                             : f32 [4]\n",
            NULL),
        "what the library's own tensors give: ports without names");
}

static void test_inline(void) {
    CHECK(gives("koine 1 tensor\n%x = param \"x\" : f32 [4]\n%c = const 2 : f32\n%y = mul %x %c\n%z = add %y %c\nout "
                "\"z\" = %z\n",
                "koine 1 tensor\n%1 = param \"x\"                          : f32 [4]\n%2 = mul %1 2.0                  "
                "       : f32 [4]\n"
                "%3 = add %2 2.0                         : f32 [4]\nout \"z\" = %3\n"),
          "constants stand inline");
    CHECK(gives("koine 1 tensor\n%1 = const 2.0                          : f32\n%2 = mul %1 %1                         "
                " : f32\n"
                "out \"z\" = %2\nout \"c\" = %1\n",
                NULL),
          "a constant that is a port has a line, and is used by its name");
    CHECK(gives("koine 1 tensor\n%1 = param \"n\" bounds=[1, 8]            : index\n%2 = param \"x\" (%1, 4)           "
                "       : f32 [<=8, 4]\n"
                "%3 = reshape %2 (4, %1)                 : f32 [4, <=8]\nout \"z\" = %3\n",
                NULL),
          "symbolic shapes stand inline");
    CHECK(
        gives("koine 1 select\n%1 = param slot=0                       : f32 [64]\n%2 = range 0 LOOP 8                 "
              "    : index\n"
              "%3 = stack %2 3                         : index [2]\n%4 = index %1 %3                        : f32 [2]\n"
              "%5 = index %1 (0, 1)                    : f32 [2]\n%6 = add %4 %5                          : f32 "
              "[2]\nroot %6\n",
              NULL),
        "a vector of expressions has a line, one of constants has not");
    CHECK(gives("koine 1 select\n%1 = add 1:i32 2                        : i32\n%2 = stack 1.0:f16 2.0 nan(0x1)        "
                " : f16 [3]\n"
                "%3 = where true %1 -5                   : i32\n%4 = where false 1:u8 2                 : u8\n%5 = "
                "tuple %1..%4 true 7:i64\nroot %5\n",
                NULL),
          "suffixes where the dtype is not evident");
}

static void test_shared_text(void) {
    lab l;
    ki_program p;
    lab_open(&l);
    int ok = parses(&l, softmax, &p);
    uint32_t n = l.ir.n;
    ki_program q;
    CHECK(ok && parses(&l, softmax, &q) && q.root == p.root && l.ir.n == n, "the same text twice makes no new node");
    ki_program_free(&q);
    ki_program c = {.ir = &l.ir};
    CHECK(ki_program_clone_ports(&c, &p) && c.nin == 1 && c.nout == 1 && strcmp(c.in[0].name, "x") == 0 &&
              c.in[0].ranged && c.in[0].lo == -4,
          "ports are cloned");
    ki_program_free(&c);
    ki_text t = {0};
    CHECK(ki_print_graph(&l.ir, p.out[0].node, &t) && strncmp(t.s, "%1 = param \"x\"", 14) == 0 &&
              !strstr(t.s, "koine"),
          "a graph alone is its node lines");
    ki_text_free(&t);
    ki_env_clear(&l.env);
    ki_fail(&l.env, KI_E_INTERNAL, "earlier");
    ki_program bad;
    CHECK(!ki_parse(&l.ir, "t", "koine 1 tensor\n%x = foo\n", 24, &bad) && l.env.err == KI_E_INTERNAL && l.env.more,
          "an earlier failure is kept");
    ki_env_clear(&l.env);
    ki_program_free(&p);
    lab_close(&l);
}

/* A port that the root does not need is the last to be visited, and the eldest. */
static void test_port_apart(void) {
    lab l;
    lab_open(&l);
    kn_uop x = ki_param_make(&l.ir, -1, KN_F32, KN_GLOBAL, 0, "x", NULL, NULL), u = ki_const_float(&l.ir, KN_F32, 2);
    for (int i = 0; i < 100; i++) u = ki_op1(&l.ir, KN_NEG, u);
    ki_program p = {.ir = &l.ir, .stage = KI_S_TENSOR, .root = ki_op1(&l.ir, KN_SINK, u)};
    bool ok = p.root && ki_program_port(&p, false, "x", 1, x) && ki_program_port(&p, true, "y", 1, u);
    CHECK(ok && round_trip(&p, "apart"), "an input apart from the root");
    ki_program_free(&p);
    lab_close(&l);
}

/* A chain as deep as it is long, then a list with as many sources. */
static void test_million(void) {
    enum { N = 1000000 };
    lab l;
    lab_open(&l);
    kn_uop u = ki_param_make(&l.ir, -1, KN_I32, KN_GLOBAL, 0, "x", NULL, NULL);
    kn_uop *v = malloc((N + 1) * sizeof *v);
    for (int i = 0; i < N; i++)
        v[i] = u = ki_op2(&l.ir, i & 1 ? KN_XOR : KN_ADD, u, ki_const_int(&l.ir, KN_I32, i & 1023));
    ki_program p = {.ir = &l.ir, .stage = KI_S_LINEARIZE, .root = u};
    CHECK(u && round_trip(&p, "chain"), "a chain of %d nodes", N);
    v[N] = v[0];
    p.root = ki_opn(&l.ir, KN_LINEAR, v, N + 1);
    ki_text t = {0};
    ki_program q = {0};
    ki_ir ir;
    ki_ir_open(&ir, &l.env);
    bool ok = p.root && ki_print(&p, &t) && ki_parse(&ir, "list", t.s, t.n, &q) && q.root->nsrc == N + 1;
    CHECK(ok && strstr(t.s, "= linear %2..%1000001 %2\n"), "a list of %d sources is written as runs", N);
    for (int i = 0; i < N / 2; i++) { /* and one that no run describes */
        kn_uop w = v[i];
        v[i] = v[N - 1 - i];
        v[N - 1 - i] = w;
    }
    p.root = ki_opn(&l.ir, KN_LINEAR, v, N + 1);
    ki_text_cut(&t, 0);
    ki_program_free(&q);
    ki_ir_close(&ir);
    ki_ir_open(&ir, &l.env);
    ok = p.root && ki_print(&p, &t) && ki_parse(&ir, "list", t.s, t.n, &q) && q.root->nsrc == N + 1 &&
         q.root->src[0]->id > q.root->src[1]->id;
    CHECK(ok, "a list of %d sources in falling order", N);
    ki_program_free(&q);
    ki_ir_close(&ir);
    ki_text_free(&t);
    free(v);
    lab_close(&l);
}

/* Many runs in one text: the printer stops using them where the reader would refuse, and all is still read. */
static void test_run_limit(void) {
    enum { N = 100000, LISTS = 50 };
    lab l;
    lab_open(&l);
    kn_uop u = ki_param_make(&l.ir, -1, KN_I32, KN_GLOBAL, 0, "x", NULL, NULL), *v = malloc(N * sizeof *v), list[LISTS];
    for (int i = 0; i < N; i++) v[i] = u = ki_op1(&l.ir, KN_NEG, u);
    for (int i = 0; i < LISTS; i++) list[i] = ki_opn(&l.ir, KN_LINEAR, v, (uint32_t)(N - i));
    ki_program p = {.ir = &l.ir, .stage = KI_S_PLAN, .root = ki_opn(&l.ir, KN_LINEAR, list, LISTS)};
    ki_text t = {0};
    ki_program q = {0};
    ki_ir ir;
    ki_ir_open(&ir, &l.env);
    bool ok = p.root && ki_print(&p, &t) && ki_parse(&ir, "runs", t.s, t.n, &q);
    CHECK(ok && q.root->nsrc == LISTS && q.root->src[0]->nsrc == N - LISTS + 1 + LISTS - 1,
          "more operands than runs may stand for");
    ki_program_free(&q);
    ki_ir_close(&ir);
    ki_text_free(&t);
    free(v);
    lab_close(&l);
}

static void test_out_of_memory(void) {
    lab l;
    ki_program p;
    ki_text first = {0};
    lab_open(&l);
    int ok = parses(&l, softmax, &p) && ki_print(&p, &first), failed = 0;
    for (uint64_t n = 1; n < 400 && ok; n++) {
        for (int onwards = 0; onwards < 2; onwards++) {
            ki_ir ir;
            ki_program q = {0};
            ki_text t = {0};
            ki_env_clear(&l.env);
            ki_alloc_fail(n, onwards);
            bool done = ki_ir_open(&ir, &l.env);
            bool opened = done;
            done = done && ki_parse(&ir, "t", softmax, sizeof softmax - 1, &q) && ki_print(&q, &t);
            ki_alloc_fail(0, 0);
            if (!done) failed++, ok = ok && l.env.err == KI_E_NOMEM;
            if (!done && l.env.err != KI_E_NOMEM)
                printf("# allocation %d: error %d: %s\n", (int)n, l.env.err, l.env.message.s ? l.env.message.s : "");
            if (done) ok = ok && t.n == first.n;
            ki_text_free(&t);
            ki_program_free(&q);
            if (opened) ki_ir_close(&ir);
        }
    }
    CHECK(ok && failed > 10, "each allocation may fail (%d did)", failed);
    ki_env_clear(&l.env);
    ki_text_free(&first);
    ki_program_free(&p);
    lab_close(&l);
}

int main(void) {
    test_ports();
    test_inline();
    test_shared_text();
    test_port_apart();
    test_million();
    test_run_limit();
    test_out_of_memory();
    return tap_done();
}
