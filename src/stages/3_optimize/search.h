/* search.h: OptOps by search. A list of OptOps is a trial; the model says in microseconds what its kernel should cost, and the
 * few that it puts first are measured by whoever asked (run/search), in a place where they can do no harm.
 *
 *   By the model alone:
 *       ki_search s = {.target = t, .machine = m, .width = 2};
 *       if (ki_search_open(&s, env, sink) && ki_search_run(&s)) use(ki_search_best(&s));
 *       ki_search_close(&s);
 *   With measurements, and a note of what is known after each round:
 *       s.measure = run_them; s.note = write_down; s.user = me;
 *   Going on where another process was stopped: the same search over again, which does not measure what is on record
 *       for each trial on record: ki_search_know(&s, key, seconds); ki_search_run(&s);
 *
 * Trial 0 is the heuristics' list: it is measured as all others are, and what is found is taken only if it is faster, so a search
 * never ends worse; where it gives no time there is nothing to compare others with, and the search is given up. Two lists that make the same kernel are one trial. What is tried, and in which order, depends on the kernel,
 * the target, the machine and the times alone. Nothing here fails for a trial's sake: what is refused is not a trial. */
#ifndef KI_SEARCH_H
#define KI_SEARCH_H

#include "stages/3_optimize/optimize.h"

#include <math.h>

typedef struct ki_trial {
    ki_opt *opt;
    uint32_t nopt;
    bool grown;      /* what can follow from it is among the trials */
    ki_digest key;   /* of the kernel */
    double cost;     /* cycles, by the model */
    double time;     /* seconds; 0: not measured, INFINITY: it did not run, or not right */
} ki_trial;

typedef struct ki_search {
    const ki_target *target;
    ki_machine machine;
    unsigned width; /* 1 and up: how many trials are gone on with, and by how much more is measured */
    /* Sets t[k]->time of each; again: it is known, but not well enough to decide. best: the least so far, 0: none. False: it
     * is no use to go on; those that could not be measured are left as they were. NULL: the model decides. */
    bool (*measure)(void *user, ki_trial *const *t, size_t n, double best, bool again);
    void (*note)(void *user, const struct ki_search *s);
    void *user;
    /* the rest is the search's own */
    ki_env *env;
    ki_ir base, scratch; /* the kernel; where lists are tried */
    kn_uop sink;         /* in base */
    ki_trial *trial;
    size_t n, cap;
    size_t best;  /* when it is done */
    unsigned rounds, measured, refused, fresh; /* fresh: measured and not on record */
    bool done;
    struct ki_known {
        ki_digest key;
        double time;
    } *known; /* on record */
    size_t nknown, known_cap;
} ki_search;

/* Reads .target, .machine and .width; trial 0 is there then. False: env says why. Close it in any case. */
bool ki_search_open(ki_search *s, ki_env *env, kn_uop sink, ki_ir *from);
void ki_search_close(ki_search *s);
/* What a trial took when it was measured. */
bool ki_search_know(ki_search *s, ki_digest key, double time);
/* False: measure gave up, trial 0 gave no time, or out of memory; best is the best that is known. */
bool ki_search_run(ki_search *s);
/* Trial 0 has a time. */
static inline bool ki_search_compares(const ki_search *s) { return s->trial[0].time > 0 && s->trial[0].time < (double)INFINITY; }
static inline const ki_trial *ki_search_best(const ki_search *s) { return &s->trial[s->best]; }

/* ---- parts ------------------------------------------------------------------------------------------------- */

/* cost.c: cycles that an optimized kernel takes, by a model of ports, registers, caches and threads. */
double ki_cost(ki_ir *ir, const ki_target *t, const ki_machine *m, kn_uop kernel);

/* moves.c: lists that are worth a try, one after the other. */
typedef struct ki_moves {
    const ki_target *target;
    const ki_machine *machine;
    ki_ir *ir; /* of k */
    const struct ki_nest *k;
    const ki_opt *opt; /* what made k */
    uint32_t nopt;
    unsigned lanes;
    ki_opt *out; /* all lists, end to end */
    uint32_t *end;
    size_t nout, outcap, n, cap;
    bool nomem;
} ki_moves;
/* What can follow from the list; n in m->n, list i is out[i ? end[i - 1] : 0 .. end[i]). */
void ki_moves_from(ki_moves *m);
void ki_moves_free(ki_moves *m);
/* Settings of the heuristics that are worth a try; 0 ends them. */
struct ki_knobs;
size_t ki_moves_knobs(const ki_machine *m, struct ki_knobs *out, size_t most);

#endif
