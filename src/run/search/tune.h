/* tune.h: KN_BEAM=n: a kernel's OptOps are searched for, once, when a program with it is made ready; from then on they are found.
 *
 *   KN_BEAM=4 koine run model.kn              the first run searches, and says what it finds; the next one measures nothing
 *   kn_set(k, "KN_BEAM", "4");                the same for what a program's context makes ready from here on
 *   KN_BEAM=4 make bench                      the networks, each kernel searched for
 *
 * A search runs in a context of its own, on random data of the kernel's real sizes, each trial in a child (sample.h): whatever a
 * trial does, the caller's context sees a list of OptOps and no more, and applies it as it would any other list.
 * On disk (KN_CACHE, KEY.opt) stand every time measured, after each round, and in the end the list. The key holds the kernel
 * without its name, this build, the processor's model, features and caches, the level, threads and the settings that optimize looks at. A file
 * that is cut, damaged, another's or of another build is not used: the search is made again. A search that was stopped goes on: it
 * is the same search, which asks the file before the clock. Folders that cannot be written: it is made again by each process.
 * What cannot be measured (memory, a variable without bounds) is left to the heuristics. What could not be run (no process, no memory for
 * it, killed from outside) is not a measurement: that search is given up, and goes on when the kernel is next made ready. */
#ifndef KI_TUNE_H
#define KI_TUNE_H

#include "run/run.h"
#include "stages/3_optimize/search.h"

typedef struct ki_tuned { /* what was decided for a kernel */
    ki_digest key;
    bool found; /* false: the heuristics are to choose */
    bool lasts; /* false: in this process alone */
    ki_opt *opt;
    uint32_t nopt;
} ki_tuned;

/* Lowering for the CPU device asks for searches, if KN_BEAM does. */
void ki_tune(ki_run *r, ki_lower_opts *o);
void ki_tuned_free(ki_run *r);
/* A program that launches the kernel alone, as text: equal kernels have equal ones, whatever program they are of. */
bool ki_tune_text(ki_env *env, ki_ir *from, kn_uop sink, ki_text *t);
void ki_tune_caches(uint64_t cache[3]); /* bytes of the first, second and last; 0: not known */

/* record.c: a search on disk. */
typedef struct ki_record {
    unsigned width;  /* of the search that ended; 0: none did */
    ki_opt *opt;     /* what it found */
    uint32_t nopt;
    double seconds, heuristics; /* of a run */
    struct ki_record_time {
        ki_digest key;
        double time;
    } *time;
    size_t ntime, cap;
} ki_record;
/* False: it is no record; *r is empty then. */
bool ki_record_read(ki_record *r, const char *text, size_t n);
bool ki_record_write(const ki_search *s, const char *name, ki_text *out);
void ki_record_free(ki_record *r);

/* bench.c: one kernel's trials, compiled and sampled. text: a program of stage rangeify that launches it. NULL: it cannot be, *why says
 * why, in words. */
typedef struct ki_bench ki_bench;
ki_bench *ki_bench_open(const ki_env *like, const char *text, size_t n, const char **why);
void ki_bench_close(ki_bench *b);
ki_ir *ki_bench_kernel(ki_bench *b, kn_uop *sink);
bool ki_bench_measure(ki_bench *b, ki_trial *const *t, size_t n, double best, bool again); /* for ki_search */
/* What failed so far, as lines for the log; emptied. */
ki_text *ki_bench_said(ki_bench *b);

#endif
