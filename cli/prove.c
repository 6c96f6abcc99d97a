/* prove.c: `koine rules --prove` and `--mutate`: the prover over all rules, on all cores; printed in file order. */
#include "prove.h"

#include "base/thread.h"
#include "rules/prove.h"
#include "stages/x86/x86.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct task { /* one rule */
    const ki_ruleset *set;
    uint32_t rule;
    ki_verdict verdict;
    ki_text lines; /* mutants */
    int64_t fate[KI_M_FATES];
    bool failed, done;
} task;

typedef struct work {
    task *task;
    size_t n;
    atomic_size_t next;
    ki_prove_opts opts;
    bool mutate, json;
    unsigned every;
    pthread_mutex_t lock;
    pthread_cond_t finished;
} work;

/* A solver by the name in PATH, NULL if none is there. */
static const char *find_z3(void) {
    const char *path = getenv("PATH");
    for (char full[1024]; path && *path;) {
        size_t n = strcspn(path, ":");
        snprintf(full, sizeof full, "%.*s/z3", (int)n, path);
        if (access(full, X_OK) == 0) return "z3";
        path += n + (path[n] == ':');
    }
    return NULL;
}

/* ---- mutants ---- */

typedef struct mutant_to {
    task *t;
    bool json;
} mutant_to;

static void mutant(void *user, const ki_mutant_report *r) {
    const mutant_to *to = user;
    task *t = to->t;
    const ki_verdict *v = r->verdict;
    const char *name = ki_rule_name(t->set, &t->set->rule[t->rule]), *reason = v->reason.s ? v->reason.s : "";
    t->fate[r->fate]++;
    if (to->json) {
        char *mem = NULL;
        size_t size;
        FILE *f = open_memstream(&mem, &size);
        if (!f) return;
        cli_json(f, "s set, s rule, s change, s fate, s by, i instances, s reason, s text", t->set->name, name,
                 r->change, ki_fate_names[r->fate], ki_rung_names[v->rung], (int64_t)v->instances, reason, r->text);
        fclose(f);
        ki_text_put(&t->lines, mem);
        free(mem);
    } else {
        int n = (int)strcspn(reason, "\n");
        ki_text_printf(&t->lines, "  %-9s %s.%s: %s%s%.*s\n", ki_fate_names[r->fate], t->set->name, name, r->change,
                       n ? ": " : "", n, reason);
    }
}

/* ---- workers ---- */

static void *worker(void *arg) {
    work *w = arg;
    for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->n;) {
        task *t = &w->task[i];
        ki_env env;
        bool ok = ki_env_open(&env);
        ki_env_clear(&env); /* settings are not for proofs */
        if (ok && w->mutate)
            ok = ki_prove_mutants(&env, t->set, t->rule, &w->opts, w->every, (unsigned)i, mutant,
                                  &(mutant_to){t, w->json});
        else if (ok) ok = ki_prove_rule(&env, t->set, t->rule, &w->opts, &t->verdict);
        if (env.err) ki_text_printf(&t->lines, "%s\n", env.message.s);
        ki_env_close(&env);
        pthread_mutex_lock(&w->lock);
        t->failed = !ok;
        t->done = true;
        pthread_cond_broadcast(&w->finished);
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

static void print_verdict(const work *w, const task *t) {
    const ki_rule *r = &t->set->rule[t->rule];
    const ki_verdict *v = &t->verdict;
    if (w->json) {
        ki_text line = {0};
        ki_verdict_json(t->set, r, v, &line);
        printf("%s%s", line.s ? line.s : "", line.n && line.s[line.n - 1] == '\n' ? "" : "\n");
        ki_text_free(&line);
        return;
    }
    printf("%-10s %-12s %-24s %9llu instances%s%s\n", ki_rung_names[v->rung], t->set->name, ki_rule_name(t->set, r),
           (unsigned long long)v->instances, v->reason.n ? "  " : "", v->reason.n ? v->reason.s : "");
}

/* Prints each task when it and all before it are done. */
static void print_in_order(work *w) {
    for (size_t i = 0; i < w->n; i++) {
        task *t = &w->task[i];
        pthread_mutex_lock(&w->lock);
        while (!t->done) pthread_cond_wait(&w->finished, &w->lock);
        pthread_mutex_unlock(&w->lock);
        if (w->mutate) fputs(t->lines.s ? t->lines.s : "", stdout);
        else print_verdict(w, t);
        if (t->failed)
            fprintf(stderr, "koine rules: %s: %s\n", ki_rule_name(t->set, &t->set->rule[t->rule]),
                    t->lines.s ? t->lines.s : "failed");
        fflush(stdout);
    }
}

/* ---- sums ---- */

static int sum_proofs(const work *w) {
    int64_t by[KI_REFUTED + 1] = {0}, arith = 0, solid = 0, use_do = 0, failed = 0;
    for (size_t i = 0; i < w->n; i++) {
        const ki_verdict *v = &w->task[i].verdict;
        by[v->rung]++;
        arith += v->arith;
        solid += v->arith && (v->rung == KI_PROVED_SMT || v->rung == KI_PROVED_EXHAUSTIVE);
        use_do += v->does;
        failed += w->task[i].failed;
    }
    if (!w->json)
        printf("\n%zu rules: %lld smt, %lld exhaustive, %lld execution, %lld unproved, %lld refuted\n"
               "%lld of %lld arithmetic rules by smt or exhaustively (%.1f %%); %lld use do (%.1f %%)\n",
               w->n, (long long)by[KI_PROVED_SMT], (long long)by[KI_PROVED_EXHAUSTIVE],
               (long long)by[KI_PROVED_EXECUTION], (long long)by[KI_UNPROVED], (long long)by[KI_REFUTED],
               (long long)solid, (long long)arith, arith ? 100.0 * (double)solid / (double)arith : 100.0,
               (long long)use_do, w->n ? 100.0 * (double)use_do / (double)w->n : 0);
    return by[KI_REFUTED] || by[KI_UNPROVED] || failed ? CLI_FAILED : CLI_OK;
}

static int sum_mutants(const work *w) {
    int64_t all = 0, fate[KI_M_FATES] = {0}, failed = 0;
    for (size_t i = 0; i < w->n; i++) {
        for (int k = 0; k < KI_M_FATES; k++) fate[k] += w->task[i].fate[k], all += w->task[i].fate[k];
        failed += w->task[i].failed;
    }
    if (!w->json) {
        printf("\n%lld mutants:", (long long)all);
        for (int k = 0; k < KI_M_FATES; k++) printf("%s %lld %s", k ? "," : "", (long long)fate[k], ki_fate_names[k]);
        printf("\n");
    }
    return fate[KI_M_OPEN] || failed ? CLI_FAILED : CLI_OK;
}

/* ---- entries ---- */

static bool read_options(cli *c, work *w) {
    int64_t budget = 0, every = 1;
    if (!cli_int(c, "budget", 1, INT64_MAX, &budget) || !cli_int(c, "every", 1, 1 << 20, &every)) return false;
    w->every = (unsigned)every;
    w->opts.budget = (uint64_t)budget;
    w->opts.meaning = ki_x86_ins_meaning;
    w->opts.ins = ki_x86_understand;
    w->opts.z3 = cli_has(c, "no-z3") ? NULL : cli_str(c, "z3", find_z3());
    w->json = c->json;
    return true;
}

static bool list_tasks(work *w, const ki_ruleset *const *set, int n) {
    size_t total = 0;
    for (int s = 0; s < n; s++) total += set[s]->nrule;
    w->task = calloc(total + 1, sizeof *w->task);
    if (!w->task) return false;
    for (int s = 0; s < n; s++)
        for (uint32_t r = 0; r < set[s]->nrule; r++)
            if (set[s]->rule[r].kind != KI_R_ACCEPT) w->task[w->n++] = (task){.set = set[s], .rule = r};
    return true;
}

static void run_tasks(work *w) {
    pthread_t thread[64];
    unsigned want = ki_cpu_count(), n = 0;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->finished, NULL);
    while (n < want && n < 64 && pthread_create(&thread[n], NULL, worker, w) == 0) n++;
    if (n == 0) worker(w);
    print_in_order(w);
    for (unsigned i = 0; i < n; i++) pthread_join(thread[i], NULL);
    pthread_cond_destroy(&w->finished);
    pthread_mutex_destroy(&w->lock);
}

static void free_tasks(work *w) {
    for (size_t i = 0; i < w->n; i++) {
        ki_verdict_free(&w->task[i].verdict);
        ki_text_free(&w->task[i].lines);
    }
    free(w->task);
}

/* Derivations that several rules have a part in, run once. */
static bool derive(work *w, const ki_ruleset *const *set, int n, uint64_t **derived) {
    for (int s = 0; s < n && !w->mutate; s++) {
        bool steps = set[s]->root[KN_STAGE] != 0;
        if (!steps) continue;
        derived[s] = calloc(set[s]->nrule + 1, sizeof **derived);
        if (!derived[s] || !ki_prove_derive(set[s], &w->opts, derived[s])) return false;
    }
    w->opts.derived = derived;
    return true;
}

int cli_prove(cli *c, const ki_ruleset *const *set, int n, const ki_ruleset *const *peer, int npeer, bool mutate) {
    work w = {.mutate = mutate};
    if (!read_options(c, &w)) return CLI_USAGE;
    w.opts.peers = peer;
    w.opts.npeers = (unsigned)npeer;
    uint64_t **derived = calloc((size_t)npeer + 1, sizeof *derived);
    bool ok = derived && derive(&w, peer, npeer, derived) && list_tasks(&w, set, n);
    if (ok) run_tasks(&w);
    int rc = !ok ? cli_fail(c, "out of memory") : mutate ? sum_mutants(&w) : sum_proofs(&w);
    free_tasks(&w);
    for (int s = 0; s < npeer && derived; s++) free(derived[s]);
    free(derived);
    return rc;
}

int cli_prove_one(cli *c, const ki_ruleset *set, uint32_t rule) {
    work w = {.n = 1};
    task t = {.set = set, .rule = rule};
    w.task = &t;
    if (set->rule[rule].kind == KI_R_ACCEPT) return CLI_OK;
    if (!read_options(c, &w)) return CLI_USAGE;
    run_tasks(&w);
    int rc = t.failed || t.verdict.rung == KI_REFUTED || t.verdict.rung == KI_UNPROVED ? CLI_FAILED : CLI_OK;
    ki_verdict_free(&t.verdict);
    ki_text_free(&t.lines);
    return rc;
}
