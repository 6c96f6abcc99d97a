/* rank.c: see rank.h. Lists are made as search makes them, by the model alone; some of them, spread evenly over what the model
 * says, are measured. Goodman and Kruskal's gamma says how well the two orders agree (1: wholly, 0: not at all); what the model puts first is held against the
 * best of all that were measured, since a search measures no more than that. */
#include "rank.h"

#include "device/cpu/cpu.h"
#include "run/search/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE = 40, FIRST = 6 };

typedef struct point {
    double cost, time;
} point;
static int trial_by_cost(const void *a, const void *b) {
    double x = (*(ki_trial *const *)a)->cost, y = (*(ki_trial *const *)b)->cost;
    return (x > y) - (x < y);
}

/* Of the pairs that both tell apart, those in the same order less those in the other, as a part of all. */
static double agreement(const point *p, size_t n) {
    double same = 0, other = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            double d = (p[i].cost - p[j].cost) * (p[i].time - p[j].time);
            same += d > 0, other += d < 0;
        }
    return same + other > 0 ? (same - other) / (same + other) : 1;
}

static void print(cli *c, const char *program, const char *kernel, const ki_search *s, ki_trial *const *t, size_t n) {
    point p[SAMPLE];
    size_t m = 0;
    double first = (double)INFINITY, best = first;
    for (size_t i = 0; i < n; i++) {
        if (!(t[i]->time < (double)INFINITY)) continue;
        p[m++] = (point){.cost = t[i]->cost, .time = t[i]->time};
        if (t[i]->time < best) best = t[i]->time;
        if (m <= FIRST && t[i]->time < first) first = t[i]->time;
    }
    double r = agreement(p, m);
    if (c->json)
        cli_json(stdout, "s program, s kernel, i lists, i measured, d correlation, d first, d heuristics", program,
                 kernel, (int64_t)s->n, (int64_t)m, r, first / best, s->trial[0].time / best);
    else
        printf("%-12s %-28s %5zu lists, %2zu measured: rank correlation %5.2f; best of the model's first %d %.2f of "
               "the best, "
               "heuristics %.2f\n",
               program, kernel, s->n, m, r, FIRST, first / best, s->trial[0].time / best);
    fflush(stdout);
}

/* Of all lists that the model does not rule out, so many, spread evenly over its order; the heuristics' among them. */
static size_t choose(const ki_search *s, ki_trial **out) {
    ki_trial **t = calloc(s->n + 1, sizeof *t);
    size_t n = 0, m = 0;
    if (!t) return 0;
    for (size_t i = 0; i < s->n; i++) t[n++] = &s->trial[i];
    qsort(t, n, sizeof *t, trial_by_cost);
    while (n > 1 && t[n - 1]->cost > 30 * t[0]->cost) n--;
    for (size_t i = 0; i < FIRST && i < n; i++) out[m++] = t[i];
    for (size_t i = FIRST; i < n && m + 1 < SAMPLE; i += 1 + (n - FIRST) / (SAMPLE - FIRST)) out[m++] = t[i];
    bool there = false;
    for (size_t i = 0; i < m; i++) there |= out[i] == &s->trial[0];
    if (!there && m < SAMPLE) out[m++] = &s->trial[0];
    free(t);
    return m;
}

static int rank(cli *c, const char *program, ki_env *env, ki_ir *ir, kn_uop kernel) {
    ki_text text = {0};
    const char *why = "out of memory";
    ki_bench *b = ki_tune_text(env, ir, kernel, &text) ? ki_bench_open(env, text.s, text.n, &why) : NULL;
    ki_text_free(&text);
    if (!b) return cli_fail(c, "%s: %s", ki_kernel_name(kernel->arg.kernel), why);
    kn_uop sink;
    ki_ir *own = ki_bench_kernel(b, &sink);
    ki_search s = {.target = ki_target_chosen(env, true), .machine = ki_cpu_machine(env), .width = 2};
    ki_tune_caches(s.machine.cache);
    ki_trial *t[SAMPLE], *first = NULL;
    bool ok = s.target && ki_search_open(&s, own->env, sink, own) && ki_search_run(&s);
    if (ok) {
        size_t n = choose(&s, t);
        first = &s.trial[0];
        ok = ki_bench_measure(b, &first, 1, 0, false) && ki_search_compares(&s) && ki_bench_measure(b, t, n, 0, false);
        if (ok) print(c, program, ki_kernel_name(kernel->arg.kernel), &s, t, n);
        ki_text *said = ki_bench_said(b);
        if (said->n) fprintf(stderr, "%s", said->s);
    }
    ki_search_close(&s);
    ki_bench_close(b);
    return ok ? CLI_OK : cli_fail(c, "%s: it cannot be searched for", ki_kernel_name(kernel->arg.kernel));
}

int rank_kernels(cli *c, const char *program, ki_env *env, const ki_program *p) {
    int rc = CLI_OK;
    for (uint32_t i = 0; i < p->root->nsrc; i++) {
        kn_uop k = p->root->src[i]->src[0];
        bool again = k->op != KN_SINK;
        for (uint32_t j = 0; j < i && !again; j++) again = p->root->src[j]->src[0] == k;
        if (!again && rank(c, program, env, p->ir, k)) rc = CLI_FAILED;
    }
    return rc;
}
