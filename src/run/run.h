/* run.h: the run layer of a context: its devices, the programs it has compiled, what it has measured.
 *
 * An exec is a program made ready for one device. It is found again by the digest of the callified program, which knows
 * nothing of names or addresses, so a training step that is built anew each time costs its graph, one digest and a
 * replay. Everything here hangs on kn_ctx.run and goes with the context. */
#ifndef KI_RUN_H
#define KI_RUN_H

#include "device/cpu/cache.h"
#include "run/schedule.h"
#include "stages/stages.h"
#include "tensor/context.h"

#include <koine/device.h>
#include <koine/tensor.h>

typedef struct ki_exec_port {
    size_t bytes;
    int32_t alias;    /* out: the in port whose memory it is (an assignment), -1: none */
    int32_t twin;     /* out: an earlier out port with the same memory, -1: none */
    int32_t variable; /* in: number of the variable, -1: a buffer */
    int32_t origin;   /* in: which in port of the program that was given, -1: none */
} ki_exec_port;

typedef struct ki_exec {
    ki_digest key;
    ki_device *device;
    ki_schedule *schedule; /* devices that launch kernels */
    bool kept;             /* it was found on disk */
    ki_ir ir;              /* devices that execute programs: the store of `program` */
    ki_program program;
    ki_exec_port *in, *out;
    size_t nin, nout;
    ki_sched_var *var; /* name and bounds of each variable */
    uint32_t nvar;
    uint64_t used; /* tick of the last use */
    uint32_t pins; /* captured steps that are its, */
    bool left;     /* and which the last of them frees */
} ki_exec;

typedef struct ki_binding {
    char *name;
    int64_t value;
} ki_binding;

typedef struct ki_again { /* a plan that was realised; one of the same key is the same program (again.c) */
    uint64_t *key;
    size_t nkey;
    kn_uop *origin;   /* what each port in of exec stands for, NULL: nothing that is stored; */
    uint32_t *source; /* or the argument of the plan's function that is there, 0: none */
    uint64_t collections; /* of k->ir before: later, the nodes are others */
    ki_digest settings;
    ki_exec *exec; /* NULL: none */
} ki_again;
enum { KI_AGAIN = 4 };

typedef struct ki_run {
    kn_ctx *k;
    ki_device **device; /* by env's device id */
    unsigned ndevice;
    void *scratch; /* memory of intermediate values, shared by all programs, which run one after the other */
    size_t scratch_bytes;
    ki_device *scratch_device;
    ki_exec **exec; /* open addressing by key */
    size_t nexec, exec_cap;
    ki_again again[KI_AGAIN];
    unsigned next_again;
    kn_captured *captured; /* steps to be run again (capture.c) */
    uint64_t tick;
    ki_code_cache cache; /* of programs; opened by the first that wants it */
    ki_binding *binding;
    size_t nbinding;
    struct ki_tuned *tuned; /* kernels that were searched for (search/tune.h) */
    size_t ntuned, tuned_cap;
    uint64_t unsettled; /* kernels whose search was not ended */
    int64_t *value; /* of the variables of the program now running */
    size_t value_cap;
    uint64_t programs, replays, searched, measured;
    double lower_seconds, run_seconds;
} ki_run;

/* NULL: env has the failure. */
ki_run *ki_run_of(kn_ctx *k);
ki_device *ki_run_device(ki_run *r, unsigned id);
double ki_now(void);

/* Makes n programs (any stage) ready, their kernels compiled together. False: env says why, and out is all NULL. */
bool ki_exec_make(ki_run *r, ki_device *d, const ki_program *const *p, size_t n, ki_exec **out);
void ki_exec_free(ki_exec *e);
/* in[i], out[i]: memory by port of e (in: those of variables are not read, an out with an alias neither); var: values of
 * e->var. */
bool ki_exec_run(ki_run *r, ki_exec *e, void *const *in, void *const *out, const int64_t *var);
/* What of the settings an exec depends on. */
ki_digest ki_exec_settings(ki_run *r, const ki_device *d);
/* The exec of a callified program: out of the cache, or made and put there. */
ki_exec *ki_exec_find(ki_run *r, ki_device *d, ki_digest settings, const ki_program *p);

/* again.c: what makes a plan the same program again; NULL: no memory. The entry of such a key, NULL: none; one more, NULL: no memory;
 * all dropped, as execs are. What port in i stands for in a plan of that key. */
uint64_t *ki_again_key(ki_run *r, const ki_plan *plan, size_t *n);
const ki_again *ki_again_find(const ki_run *r, const uint64_t *key, size_t n, ki_digest settings);
const ki_again *ki_again_note(ki_run *r, const uint64_t *key, size_t n, ki_digest settings, ki_exec *e,
                              const ki_plan *plan, const ki_program *p);
kn_uop ki_again_origin(const ki_again *a, const ki_plan *plan, size_t i);
void ki_again_forget(ki_run *r);

/* What kn_realize does; failures stay in env. place, if not NULL: where the value of the last tensor of symbolic shape
 * lies until the next collection, NULL if there was none to compute. kept, if not NULL: the step, captured. */
bool ki_realize(kn_ctx *k, const kn_tensor *t, size_t n, kn_uop *place, kn_captured **kept);
/* The context of the first that is not NULL; NULL: all are. */
kn_ctx *ki_context_of(const kn_tensor *t, size_t n);
/* Values of e's variables into r->value; false: one has none, or one outside its bounds. */
bool ki_bind_variables(ki_run *r, const ki_exec *e);
/* An output that turned out to be an input's memory (a program may pass one through) is copied to its own place. */
bool ki_copy_passed_through(const ki_exec *e, void *const *in, void *const *out);

/* capture.c: a step of e, to be run again, with its memory by port (the step's from now on, unless this fails), and the buffers that
 * are there (NULL: an assignment's result, a variable). */
kn_captured *ki_captured_new(ki_run *r, ki_exec *e, void **in, void **out, const kn_uop *in_buffer,
                             const kn_uop *out_buffer);
void ki_captured_close(kn_captured *c);
/* Whether a variable's bounds have the value; false: env says so. */
bool ki_variable_holds(ki_env *env, const char *name, int64_t lo, int64_t hi, int64_t value);
/* The value kn_bind gave a variable; false: none, or one outside its bounds, and env says so. */
bool ki_variable_now(kn_ctx *k, const char *name, int64_t lo, int64_t hi, int64_t *value);

/* A program of stage rangeify that launches one kernel, a SINK of ir: a port in and out for each PARAM slot, in order,
 * and one in for each variable. The ports are the caller's to free, in any case. */
bool ki_kernel_program(ki_ir *ir, kn_uop sink, ki_program *p);

/* Runs a program of any stage: in[i] and out[i] are host memory of the size of p's ports. */
bool ki_run_program(kn_ctx *k, const ki_program *p, const char *device, void *const *in, void *const *out);
/* The same for several programs whose kernels are compiled together: prepare, then run any of them any number of times. */
bool ki_prepare(kn_ctx *k, const char *device, const ki_program *const *p, size_t n, ki_exec **out);
bool ki_run_prepared(kn_ctx *k, ki_exec *e, const ki_program *p, void *const *in, void *const *out);

#endif
