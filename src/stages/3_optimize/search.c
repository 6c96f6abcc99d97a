/* search.c: the rounds of a search. See search.h.
 *
 * It starts from the heuristics' list, from what they choose at other settings, and from nothing. A round measures the trials that
 * the model puts first, and the best that are known are gone on with: each is grown, which makes trials of all that can
 * follow from it, and the most promising of these are grown in turn, unmeasured, since of two steps the first alone often does not
 * pay. In the end the best few are measured anew, by turns with the heuristics', which is what decides. */
#include "stages/3_optimize/search.h"
#include "stages/3_optimize/nest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TRIALS = 1 << 14, MOST_ROUNDS = 12, A_ROUND = 6, ALL = 48, AHEAD = 2, FINALISTS = 4, KNOBS = 256 };
#define BETTER  0.98 /* of the heuristics' time, or they are kept */
#define GROWING 0.99 /* of the last round's best, or the round brought nothing */

/* ---- trials ------------------------------------------------------------------------------------------------ */

void ki_search_close(ki_search *s) {
    for (size_t i = 0; i < s->n; i++) ki_free(s->trial[i].opt);
    ki_free(s->trial);
    ki_free(s->known);
    s->known = NULL;
    if (s->scratch.env) ki_ir_close(&s->scratch);
    if (s->base.env) ki_ir_close(&s->base);
    s->trial = NULL;
    s->n = 0;
    s->scratch.env = s->base.env = NULL;
}

/* The kernel of a list in `scratch`, which is emptied first. NULL: it was refused. */
static kn_uop make(ki_search *s, const ki_opt *opt, uint32_t n) {
    kn_uop sink = NULL;
    if (!ki_ir_reset(&s->scratch) || !ki_import(&s->scratch, &s->base, &s->sink, 1, &sink)) return NULL;
    return ki_apply_opts(&s->scratch, sink, opt, n);
}

enum { WIDEST = 64 }; /* registers that one value may take: beyond, code grows and nothing gets faster */
#define MOST_LOCAL ((double)(1 << 20)) /* bytes of local memory, which lies on the stack */

static bool too_large(const ki_search *s, kn_uop kernel) {
    double lanes = 1, local = 0;
    unsigned axes = 0;
    kn_uop *node;
    int64_t n = ki_toposort((ki_ir *)&s->scratch, &kernel, 1, &node);
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = node[i];
        double own = u->op == KN_REDUCE ? (double)ki_itemsize((kn_dtype)u->dtype) : 1;
        axes += ki_is_lane(u);
        if (u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_LOCAL)
            local += (double)u->arg.buffer->size * (double)ki_itemsize((kn_dtype)u->dtype);
        if (u->op != KN_END && u->op != KN_REDUCE) continue;
        for (uint32_t j = 1; j < u->nsrc; j++)
            if (ki_is_lane(u->src[j])) own *= (double)ki_extent(u->src[j]);
        if (own > lanes) lanes = own;
    }
    if (n >= 0) ki_free(node);
    return n < 0 || axes > KI_MAX_RANK || lanes > (double)s->target->vector * WIDEST || local > MOST_LOCAL;
}

static bool same(ki_digest a, ki_digest b) { return a.a == b.a && a.b == b.b; }

static ki_trial *find(const ki_search *s, ki_digest key) {
    for (size_t i = 0; i < s->n; i++)
        if (same(s->trial[i].key, key)) return &s->trial[i];
    return NULL;
}

static unsigned most_threads(const ki_search *s) { return s->machine.threads ? s->machine.threads : 1; }

/* The trial of a list, an older one of the same kernel if there is one; NULL: there is none. What the heuristics choose, the first one, may be as large
 * as they let it be. */
static ki_trial *add(ki_search *s, const ki_opt *opt, uint32_t n) {
    if (s->n >= MOST_TRIALS) return NULL;
    kn_uop kernel = make(s, opt, n);
    bool ok = kernel && (!s->n || !too_large(s, kernel)) && kernel->arg.kernel->threads <= most_threads(s);
    ki_digest key = {0};
    if (ok) key = ki_graph_digest(&s->scratch, kernel->src, kernel->nsrc, &ok);
    ki_trial *t = ok ? find(s, key) : NULL;
    double cost = ok && !t ? ki_cost(&s->scratch, s->target, &s->machine, kernel) : 0;
    ok = ok && s->env->err == KI_E_NONE;
    ki_env_clear(s->env);
    if (!ok) s->refused++;
    if (!ok || t) return t;
    const ki_kernel *k = kernel->arg.kernel;
    ki_opt *own = ki_calloc(k->nopt + 1, sizeof *own);
    if (!own || !ki_array_grow(&s->trial, &s->cap, s->n + 1, sizeof *s->trial)) return ki_free(own), NULL;
    memcpy(own, k->opt, k->nopt * sizeof *own);
    s->trial[s->n] = (ki_trial){.opt = own, .nopt = k->nopt, .key = key, .cost = cost};
    return &s->trial[s->n++];
}

bool ki_search_open(ki_search *s, ki_env *env, kn_uop sink, ki_ir *from) {
    s->env = env;
    s->trial = NULL;
    s->n = s->cap = s->best = 0;
    s->known = NULL;
    s->nknown = s->known_cap = 0;
    s->rounds = s->measured = s->refused = s->fresh = 0;
    s->done = false;
    s->base = s->scratch = (ki_ir){0};
    if (!s->width) s->width = 1;
    s->machine.single = true; /* each part is measured in a process of its own */
    if (!ki_ir_open(&s->base, env) || !ki_ir_open(&s->scratch, env)) return false;
    if (!ki_import(&s->base, from, &sink, 1, &s->sink)) return false;
    if (!ki_ir_reset(&s->scratch) || !ki_import(&s->scratch, &s->base, &s->sink, 1, &sink)) return false;
    kn_uop first = ki_optimize(&s->scratch, s->target, &s->machine, sink);
    const ki_kernel *k = first ? first->arg.kernel : NULL;
    ki_opt *opt = k ? ki_calloc(k->nopt + 1, sizeof *opt) : NULL;
    if (!opt) return first ? (ki_fail(env, KI_E_NOMEM), false) : false;
    memcpy(opt, k->opt, k->nopt * sizeof *opt);
    bool ok = add(s, opt, k->nopt) != NULL;
    ki_free(opt);
    return ok || (ki_fail(env, KI_E_INTERNAL, "the heuristics' list does not apply"), false);
}

bool ki_search_know(ki_search *s, ki_digest key, double time) {
    if (!ki_array_grow(&s->known, &s->known_cap, s->nknown + 1, sizeof *s->known))
        return ki_fail(s->env, KI_E_NOMEM), false;
    s->known[s->nknown++] = (struct ki_known){key, time};
    return true;
}

/* ---- what can follow ----------------------------------------------------------------------------------------- */

static unsigned lanes(const ki_search *s, const ki_nest *k) {
    unsigned w = 1;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        unsigned b = (unsigned)ki_itemsize((kn_dtype)u->dtype);
        if (ki_weight(u) && u->dtype != KN_BOOL && b > w) w = b;
    }
    return s->target->vector / w;
}

static void grow(ki_search *s, size_t which) {
    ki_moves m = {.target = s->target, .machine = &s->machine, .ir = &s->scratch};
    m.opt = s->trial[which].opt, m.nopt = s->trial[which].nopt;
    s->trial[which].grown = true;
    kn_uop kernel = NULL;
    ki_nest k = {0};
    if (ki_ir_reset(&s->scratch) && ki_import(&s->scratch, &s->base, &s->sink, 1, &kernel))
        kernel = ki_flatten_sums(&s->scratch, kernel);
    for (uint32_t i = 0; i < m.nopt && kernel; i++) kernel = ki_apply_opt(&s->scratch, kernel, m.opt[i]);
    if (kernel && ki_nest_open(&k, &s->scratch, kernel)) {
        m.k = &k;
        m.lanes = lanes(s, &k);
        ki_moves_from(&m);
    }
    ki_nest_close(&k);
    ki_env_clear(s->env);
    for (size_t i = 0; i < m.n && !m.nomem; i++) {
        uint32_t from = i ? m.end[i - 1] : 0;
        add(s, m.out + from, m.end[i] - from);
    }
    ki_moves_free(&m);
}

/* What the heuristics choose at other settings; and nothing at all. */
static void seed(ki_search *s) {
    ki_knobs knobs[KNOBS];
    size_t n = ki_moves_knobs(&s->machine, knobs, KNOBS);
    for (size_t i = 0; i < n; i++) {
        kn_uop sink = NULL;
        if (!ki_ir_reset(&s->scratch) || !ki_import(&s->scratch, &s->base, &s->sink, 1, &sink)) return;
        sink = ki_flatten_sums(&s->scratch, sink);
        if (sink) sink = ki_opt_choose(&s->scratch, s->target, &s->machine, &knobs[i], sink);
        ki_env_clear(s->env);
        const ki_kernel *k = sink ? sink->arg.kernel : NULL;
        ki_opt *opt = k ? ki_calloc(k->nopt + 1, sizeof *opt) : NULL;
        if (!opt) continue;
        memcpy(opt, k->opt, k->nopt * sizeof *opt);
        add(s, opt, k->nopt);
        ki_free(opt);
    }
    add(s, NULL, 0);
}

/* ---- choosing ------------------------------------------------------------------------------------------------ */

typedef struct rank {
    double by;
    size_t at;
} rank;
static int by_rank(const void *a, const void *b) {
    const rank *x = a, *y = b;
    return x->by != y->by ? (x->by > y->by) - (x->by < y->by) : (x->at > y->at) - (x->at < y->at);
}

typedef enum which { UNMEASURED, MEASURED, MEASURED_UNGROWN, PROMISING_UNGROWN } which;

/* The first `most` of a kind in order: by time where they have one, else by the model. */
static size_t pick(const ki_search *s, which w, size_t *out, size_t most) {
    rank *r = ki_calloc(s->n + 1, sizeof *r);
    size_t n = 0;
    for (size_t i = 0; r && i < s->n; i++) {
        const ki_trial *t = &s->trial[i];
        bool has = t->time > 0, fine = has && t->time < (double)INFINITY;
        if (w == UNMEASURED ? has : w == MEASURED ? !fine : t->grown) continue;
        if (w == MEASURED_UNGROWN ? !fine : w == PROMISING_UNGROWN && has) continue;
        r[n++] = (rank){w == MEASURED || w == MEASURED_UNGROWN ? t->time : t->cost, i};
    }
    if (n) qsort(r, n, sizeof *r, by_rank);
    if (n > most) n = most;
    for (size_t i = 0; i < n; i++) out[i] = r[i].at;
    ki_free(r);
    return n;
}

static double least(const ki_search *s) {
    size_t at;
    return pick(s, MEASURED, &at, 1) ? s->trial[at].time : 0;
}

/* What is on record is not measured. */
static bool measure(ki_search *s, const size_t *at, size_t n, bool again) {
    ki_trial **t = ki_calloc(n + 1, sizeof *t);
    size_t ask = 0;
    if (!t) return ki_fail(s->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < n; i++) {
        ki_trial *x = &s->trial[at[i]];
        for (size_t k = 0; k < s->nknown && !again && !(x->time > 0); k++)
            if (same(s->known[k].key, x->key)) x->time = s->known[k].time;
        if (again || !(x->time > 0)) t[ask++] = x;
    }
    bool ok = !ask || s->measure(s->user, t, ask, least(s), again);
    for (size_t i = 0; i < ask; i++)
        if (!(t[i]->time > 0)) t[i]->time = ok ? (double)INFINITY : 0;
    if (ok && !again) s->measured += (unsigned)n, s->fresh += (unsigned)ask;
    ki_free(t);
    return ok;
}

/* The heuristics' first: what others may take depends on it, and whether there is anything to compare them with. */
static bool measure_round(ki_search *s) {
    size_t want = (size_t)A_ROUND * s->width, n = 0, *at = ki_calloc(want + 1, sizeof *at);
    if (!at) return ki_fail(s->env, KI_E_NOMEM), false;
    bool ok = (s->trial[0].time > 0 || measure(s, &n, 1, false)) && ki_search_compares(s);
    if (ok) n = pick(s, UNMEASURED, at, want);
    if (ok && n) ok = measure(s, at, n, false);
    ki_free(at);
    return ok;
}

/* Goes on with the best that are known, and a step or two further with what looks best of that. False: nothing new. */
static bool grow_round(ki_search *s) {
    size_t before = s->n, n, *at = ki_calloc(2 * (size_t)s->width + 1, sizeof *at);
    if (!at) return false;
    n = pick(s, MEASURED_UNGROWN, at, s->measure ? s->width : 0);
    for (size_t i = 0; i < n; i++) grow(s, at[i]);
    for (int k = 0; k < AHEAD; k++) {
        n = pick(s, PROMISING_UNGROWN, at, s->width);
        for (size_t i = 0; i < n; i++) grow(s, at[i]);
    }
    ki_free(at);
    return s->n > before;
}

/* ---- the whole --------------------------------------------------------------------------------------------- */

/* By turns with the heuristics' list, which stands unless something is clearly faster. */
static bool finals(ki_search *s) {
    size_t at[FINALISTS + 1], n = pick(s, MEASURED, at, FINALISTS), first = 0;
    while (first < n && at[first]) first++;
    if (first == n) at[n++] = 0;
    if (n > 1 && !(measure(s, at, n, true) && ki_search_compares(s))) return false;
    s->best = 0;
    for (size_t i = 0; i < n; i++) {
        const ki_trial *t = &s->trial[at[i]], *b = ki_search_best(s);
        if (t->time < b->time * (s->best ? 1 : BETTER)) s->best = at[i];
    }
    return true;
}

static bool by_model(ki_search *s) {
    for (; s->rounds < 3 && grow_round(s); s->rounds++) continue;
    pick(s, UNMEASURED, &s->best, 1);
    return true;
}

bool ki_search_run(ki_search *s) {
    unsigned idle = 0;
    bool ok = true;
    seed(s);
    if (!s->measure) return by_model(s);
    while (ok && s->rounds < MOST_ROUNDS && s->measured < ALL * s->width && idle < 2) {
        double before = least(s);
        ok = measure_round(s);
        s->rounds++;
        idle = before > 0 && least(s) > before * GROWING ? idle + 1 : 0;
        size_t best;
        if (pick(s, MEASURED, &best, 1)) s->best = best;
        if (s->note && ki_search_compares(s)) s->note(s->user, s); /* of a round that was given up, too */
        if (ok && !grow_round(s) && !pick(s, UNMEASURED, &best, 1)) break;
    }
    s->done = ok && finals(s);
    if (s->done && s->note) s->note(s->user, s);
    return s->done;
}
