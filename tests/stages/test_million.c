/* test_million.c: a chain of a million elementwise nodes goes all the way: built through the front end, printed, parsed,
 * verified, simplified, lowered through rangeify, interpreted; in a process of its own with an ordinary stack, under
 * 1 GiB. What it costs is linear: the memory of ten times the nodes is asserted, the time is printed. */
#include "../tap.h"
#include "ir/eval.h"
#include "rules/rules.h"
#include "stages/stages.h"
#include "stages/verify.h"
#include "tensor/context.h"

#include <koine/koine.h>
#include <rules.h>

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BUILT, PRINTED, PARSED, VERIFIED, SIMPLIFIED, LOWERED, INTERPRETED, STEPS };
static const char *const names[STEPS] = {
    "built", "printed", "parsed", "verified", "simplified", "lowered through rangeify", "interpreted"};
typedef struct result { /* shared with the child */
    bool done[STEPS];
    double seconds;
    long kib; /* the most it held */
} result;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What node i is: x + 1 and x / 2 by turns, or x + x and x · x. Floats: nothing folds. */
static float next(int i, bool twice, float x) { return !twice ? (i & 1 ? x * 0.5f : x + 1) : (i & 1 ? x * x : x + x); }

/* Parses, verifies and simplifies the text in a store of its own. */
static void read_back(kn_ctx *k, const ki_text *text, result *r) {
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod, &ki_rules_float};
    ki_rewrite_opts o = {.sets = sets, .nsets = 4, .driver = KI_FIXPOINT};
    ki_ir ir;
    ki_program p = {0};
    ki_text again = {0};
    if (!ki_ir_open(&ir, &k->env)) return;
    if (ki_parse(&ir, "million", text->s, text->n, &p) && ki_print(&p, &again))
        r->done[PARSED] = again.n == text->n && memcmp(again.s, text->s, text->n) == 0;
    ki_text_free(&again);
    r->done[VERIFIED] = r->done[PARSED] && ki_verify_stage(&p);
    r->done[SIMPLIFIED] = r->done[VERIFIED] && ki_rewrite(&ir, p.root, &o) != NULL;
    ki_program_free(&p);
    ki_ir_close(&ir);
}

static void lower(kn_ctx *k, const ki_program *in, int n, bool twice, result *r) {
    ki_ir ir;
    ki_program out = {0};
    ki_lower_opts o = {.verify = 1};
    float x[4] = {0, 0.25, 0.5, 1}, y[4];
    const void *from[1] = {x};
    void *to[1] = {y};
    if (!ki_ir_open(&ir, &k->env)) return;
    r->done[LOWERED] = ki_lower(in, &ir, KI_S_RANGEIFY, &o, &out) && out.root->nsrc == 1;
    bool same = r->done[LOWERED] && ki_eval(&out, from, to, NULL) == KI_OK;
    for (int j = 0; j < 4 && same; j++) {
        float v = x[j];
        for (int i = 0; i < n; i++) v = next(i, twice, v);
        same = v == y[j];
    }
    r->done[INTERPRETED] = same;
    ki_program_free(&out);
    ki_ir_close(&ir);
}

static void steps(int n, bool twice, result *r) {
    double begun = now();
    kn_ctx *k = kn_open("INTERP");
    kn_scope_open(k);
    kn_tensor x = kn_input(k, "x", KN_F32, KN_SHAPE(4)), half = kn_scalar(k, 0.5), one = kn_scalar(k, 1);
    for (int i = 0; i < n; i++) x = i & 1 ? kn_mul(x, twice ? x : half) : kn_add(x, twice ? x : one);
    ki_plan plan;
    ki_text text = {0};
    r->done[BUILT] = ki_plan_open(k, &x, 1, &plan) && ki_plan_program(k, &plan) && (int)k->ir.n >= n;
    r->done[PRINTED] = r->done[BUILT] && ki_print(&plan.program, &text);
    if (r->done[PRINTED]) read_back(k, &text, r);
    ki_text_free(&text);
    if (r->done[BUILT]) lower(k, &plan.program, n, twice, r);
    if (k->env.err != KI_E_NONE) printf("# %s\n", k->env.message.s);
    ki_plan_close(&plan);
    kn_scope_close(k);
    kn_close(k);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    r->kib = u.ru_maxrss;
    r->seconds = now() - begun;
}

/* In a child: what it holds is this alone. */
static result measure(int n, bool twice) {
    result *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), out = {0};
    if (r == MAP_FAILED) return out;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit stack = {8 << 20, 8 << 20}, space = {RLIM_INFINITY, RLIM_INFINITY};
        if (!SANITIZED)
            space.rlim_cur = space.rlim_max = (rlim_t)3 << 30; /* a machine is not brought down by a failure */
        if (setrlimit(RLIMIT_STACK, &stack) == 0 && setrlimit(RLIMIT_AS, &space) == 0) steps(n, twice, r);
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0) out = *r;
    munmap(r, sizeof *r);
    return out;
}

int main(void) {
    const int n = SANITIZED ? 50000 : 1000000;
    for (int twice = 0; twice < 2; twice++) {
        const char *what = twice ? "x = f(x, x)" : "a chain";
        result small = measure(n / 10, twice), large = measure(n, twice);
        for (int s = 0; s < STEPS; s++) CHECK(large.done[s], "%s of %d nodes is %s", what, n, names[s]);
        printf("# %s: %.2f s for %d nodes, %.1f times that of a tenth; %ld MiB, of a tenth %ld\n", what, large.seconds,
               n, large.seconds / small.seconds, large.kib / 1024, small.kib / 1024);
        if (SANITIZED) continue;
        CHECK(large.kib > 0 && large.kib < 1 << 20, "%s of %d nodes takes less than 1 GiB", what, n);
        CHECK(large.kib < 12 * small.kib, "%s of %d nodes takes less than 12 times the memory of a tenth", what, n);
    }
    return tap_done();
}
