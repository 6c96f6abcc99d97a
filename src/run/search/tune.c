/* tune.c: see tune.h. */
#include "run/search/tune.h"

#include "base/thread.h"
#include "run/kept.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static const char SUFFIX[] = ".opt";

/* ---- which kernel it is ------------------------------------------------------------------------------------------ */

/* The kernel under a name that all have: its own depends on its neighbours. */
static kn_uop nameless(ki_ir *ir, kn_uop sink) {
    union {
        ki_kernel k;
        char bytes[sizeof(ki_kernel) + 2];
    } info = {.k = {.len = 1, .threads = 1}};
    info.bytes[sizeof(ki_kernel)] = 'k';
    kn_arg arg = {.p = ki_intern(ir, &info, sizeof info.bytes)};
    return arg.p ? ki_make(ir, KN_SINK, KN_VOID, sink->src, sink->nsrc, arg, 0) : NULL;
}

bool ki_tune_text(ki_env *env, ki_ir *from, kn_uop sink, ki_text *t) {
    ki_ir ir;
    ki_program p = {0};
    if (!ki_ir_open(&ir, env)) return false;
    bool ok = ki_import(&ir, from, &sink, 1, &sink) && (sink = nameless(&ir, sink)) &&
              ki_kernel_program(&ir, sink, &p) && ki_print(&p, t) && !t->oom;
    ki_program_free(&p);
    ki_ir_close(&ir);
    return ok;
}

void ki_tune_caches(uint64_t cache[3]) {
    long first = sysconf(_SC_LEVEL1_DCACHE_SIZE), second = sysconf(_SC_LEVEL2_CACHE_SIZE);
    cache[0] = first > 0 ? (uint64_t)first : 0;
    cache[1] = second > 0 ? (uint64_t)second : 0;
    cache[2] = ki_cache_bytes();
}

static ki_digest key_of(const ki_text *t, const ki_lower_opts *o) {
    ki_digest key = ki_digest_bytes(t->s, t->n);
    (void)ki_machine_key(o, true, &key);
    return key;
}

/* ---- what is remembered ------------------------------------------------------------------------------------------ */

static ki_tuned *find(ki_run *r, ki_digest key) {
    for (size_t i = 0; i < r->ntuned; i++)
        if (r->tuned[i].key.a == key.a && r->tuned[i].key.b == key.b) return &r->tuned[i];
    return NULL;
}

static ki_tuned *remember(ki_run *r, ki_digest key, bool found, bool lasts, const ki_opt *opt, uint32_t n) {
    ki_opt *own = ki_calloc(n + 1, sizeof *own);
    if (!own || !ki_array_grow(&r->tuned, &r->tuned_cap, r->ntuned + 1, sizeof *r->tuned)) return ki_free(own), NULL;
    if (n) memcpy(own, opt, n * sizeof *own);
    r->tuned[r->ntuned] = (ki_tuned){key, found, lasts, own, n};
    return &r->tuned[r->ntuned++];
}

void ki_tuned_free(ki_run *r) {
    for (size_t i = 0; i < r->ntuned; i++) ki_free(r->tuned[i].opt);
    ki_free(r->tuned);
    r->tuned = NULL;
    r->ntuned = r->tuned_cap = 0;
}

/* ---- searching ------------------------------------------------------------------------------------------------------- */

typedef struct hunt {
    ki_run *r;
    ki_bench *bench;
    ki_digest key;
    const char *name;
    double begun, told;
} hunt;

static void time_put(ki_text *t, double s) {
    if (s < 1e-3) ki_text_printf(t, "%.2f us", 1e6 * s);
    else ki_text_printf(t, "%.3f ms", 1e3 * s);
}

static void tell_failures(hunt *h) {
    ki_text *said = ki_bench_said(h->bench);
    if (said->n) ki_log(&h->r->k->env, "search %s: lists that failed and are not used:\n%s", h->name, said->s);
    ki_text_cut(said, 0);
}

/* What is known goes to disk; what failed, and now and then how far it is, to the log. */
static void note(void *user, const ki_search *s) {
    hunt *h = user;
    ki_text t = {0};
    if (ki_record_write(s, h->name, &t)) ki_code_cache_write(&h->r->cache, h->key, SUFFIX, t.s, t.n);
    ki_text_cut(&t, 0);
    tell_failures(h);
    if (s->done || ki_now() - h->told > 1) {
        ki_text_printf(&t, "search %s: ", h->name);
        time_put(&t, s->trial[0].time);
        ki_text_put(&t, s->done ? " -> " : " by heuristics, so far ");
        time_put(&t, ki_search_best(s)->time);
        ki_text_printf(&t, " (%.2f times as fast); %u of %zu lists measured%s, %.1f s\n",
                       s->trial[0].time / ki_search_best(s)->time, s->measured, s->n,
                       s->fresh < s->measured ? ", some before" : "", ki_now() - h->begun);
        if (!t.oom) ki_log(&h->r->k->env, "%s", t.s);
        h->told = ki_now();
    }
    ki_text_free(&t);
}

static bool measure(void *user, ki_trial *const *t, size_t n, double best, bool again) {
    return ki_bench_measure(((hunt *)user)->bench, t, n, best, again);
}

/* It did not end. The next process may fare better, so nothing that lasts says that there is nothing to find. */
static ki_tuned *give_up(hunt *h, const ki_search *s) {
    bool ran = s->trial[0].time < (double)INFINITY;
    tell_failures(h);
    ki_log(&h->r->k->env, "search %s: given up, %s; the heuristics' list is used\n", h->name,
           ran ? "a run could not be made, or was ended from outside"
               : "the heuristics' list gives no time to compare others with");
    return ran ? NULL : remember(h->r, h->key, false, false, NULL, 0);
}

/* The search, from what is on record. */
static ki_tuned *hunt_for(hunt *h, const ki_lower_opts *o, const ki_text *text, const ki_record *known, unsigned width,
                          const uint64_t *cache) {
    const char *why;
    ki_run *r = h->r;
    kn_uop sink;
    ki_tuned *t = NULL;
    h->bench = ki_bench_open(&r->k->env, text->s, text->n, &why);
    if (!h->bench) {
        ki_log(&r->k->env, "search %s: not searched for, %s\n", h->name, why);
        return remember(r, h->key, false, true, NULL, 0);
    }
    ki_ir *ir = ki_bench_kernel(h->bench, &sink);
    ki_search s = {
        .target = o->target, .machine = o->machine, .width = width, .measure = measure, .note = note, .user = h};
    memcpy(s.machine.cache, cache, sizeof s.machine.cache);
    bool ok = ki_search_open(&s, ir->env, sink, ir);
    for (size_t i = 0; i < known->ntime && ok; i++) ok = ki_search_know(&s, known->time[i].key, known->time[i].time);
    r->searched++;
    const ki_trial *b = ok && ki_search_run(&s) ? ki_search_best(&s) : NULL;
    if (b) t = remember(r, h->key, true, true, b->opt, b->nopt);
    else if (ok) t = give_up(h, &s);
    r->measured += s.fresh;
    ki_search_close(&s);
    ki_bench_close(h->bench);
    return t;
}

static ki_tuned *look_up(ki_run *r, ki_ir *ir, const ki_lower_opts *o, kn_uop sink) {
    ki_text text = {0};
    ki_record record = {0};
    uint64_t cache[3];
    ki_tuned *t = NULL;
    unsigned width = (unsigned)ki_setting_number(&r->k->env, KI_VAR_BEAM);
    ki_tune_caches(cache);
    if (!ki_tune_text(&r->k->env, ir, sink, &text)) return ki_text_free(&text), NULL;
    hunt h = {.r = r, .key = key_of(&text, o), .name = ki_kernel_name(sink->arg.kernel), .begun = ki_now()};
    h.told = h.begun;
    if (!(t = find(r, h.key)) && (r->cache.temp || ki_code_cache_open(&r->k->env, &r->cache))) {
        size_t n;
        char *s = ki_code_cache_read(&r->cache, h.key, SUFFIX, &n);
        if (s) ki_record_read(&record, s, n);
        ki_free(s);
        if (record.width >= width && width) t = remember(r, h.key, true, true, record.opt, record.nopt);
        else t = hunt_for(&h, o, &text, &record, width, cache);
    }
    ki_record_free(&record);
    ki_text_free(&text);
    return t;
}

/* ki_lower_opts.choose. Whatever fails here, the heuristics are there. */
static kn_uop choose(void *user, ki_ir *ir, const ki_lower_opts *o, kn_uop sink) {
    ki_run *r = user;
    if (ir->env->err != KI_E_NONE) return NULL;
    ki_tuned *t = look_up(r, ir, o, sink);
    kn_uop made = t && t->found ? ki_apply_opts(ir, sink, t->opt, t->nopt) : NULL;
    if (!t || !t->lasts || (t->found && !made)) r->unsettled++;
    ki_env_clear(ir->env);
    return made;
}

void ki_tune(ki_run *r, ki_lower_opts *o) {
    if (!ki_setting_number(&r->k->env, KI_VAR_BEAM)) return;
    o->choose = choose;
    o->user = r;
}
