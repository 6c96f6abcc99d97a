/* eval_util.h: a program from text, run by the interpreter on numbers; for the tests of eval. */
#ifndef EVAL_UTIL_H
#define EVAL_UTIL_H

#include "ir/agree.h"
#include "ir/eval.h"
#include "ir/scalar.h"
#include "../tap.h"

#include <math.h>
#include <string.h>

enum { MOST = 8, ROOM = 1 << 16 };
typedef struct lab {
    ki_env env;
    ki_ir ir;
    ki_program p;
    double in[MOST][ROOM / 8], out[MOST][ROOM / 8], bound[MOST][ROOM / 8];
    _Alignas(16) char raw_in[MOST][ROOM], raw_out[MOST][ROOM];
    bool bounds;
    uint64_t budget;
    int status;
} lab;

__attribute__((unused)) static int64_t port_size(const ki_port *p) {
    int64_t n = 1;
    for (unsigned k = 0; k < p->rank; k++) n *= p->dim[k];
    return n;
}

__attribute__((unused)) static bool lab_parse(lab *l, const char *text) {
    memset(&l->p, 0, sizeof l->p);
    if (!ki_env_open(&l->env) || !ki_ir_open(&l->ir, &l->env)) return false;
    if (ki_parse(&l->ir, "test", text, strlen(text), &l->p)) return true;
    printf("# %s\n", l->env.message.s);
    return false;
}
__attribute__((unused)) static void lab_close(lab *l) {
    ki_program_free(&l->p);
    ki_ir_close(&l->ir);
    ki_env_close(&l->env);
}

/* Runs l->p on l->in; fills l->out and, if asked, l->bound. */
__attribute__((unused)) static bool lab_run(lab *l) {
    const void *in[MOST];
    void *out[MOST];
    double *bound[MOST];
    for (size_t i = 0; i < l->p.nin; i++) {
        for (int64_t k = 0; k < port_size(&l->p.in[i]); k++)
            ki_storage_put(l->p.in[i].dtype, l->raw_in[i], k, ki_bits_from_f64(l->p.in[i].dtype, l->in[i][k]));
        in[i] = l->raw_in[i];
    }
    for (size_t i = 0; i < l->p.nout; i++) {
        memset(l->raw_out[i], 0x77, ROOM);
        out[i] = l->raw_out[i];
        bound[i] = l->bound[i];
    }
    ki_eval_opts o = {.budget = l->budget, .bound = l->bounds ? bound : NULL};
    l->status = ki_eval(&l->p, in, out, &o);
    for (size_t i = 0; i < l->p.nout; i++)
        for (int64_t k = 0; k < port_size(&l->p.out[i]); k++)
            l->out[i][k] = ki_f64_from_bits(l->p.out[i].dtype, ki_storage_get(l->p.out[i].dtype, l->raw_out[i], k));
    return l->status == KI_OK;
}

/* Input i becomes 0, 1, 2, ... times step, from start. */
__attribute__((unused)) static void lab_iota(lab *l, double start, double step) {
    for (int i = 0; i < MOST; i++)
        for (int k = 0; k < ROOM / 8; k++) l->in[i][k] = start + step * k;
}

__attribute__((unused)) static void lab_case(lab *l, const char *name, const char *text, const double *want, int n) {
    bool ok = lab_parse(l, text) && lab_run(l);
    if (!ok && l->env.message.s) printf("# %s\n", l->env.message.s);
    for (int k = 0; ok && k < n; k++) {
        double g = l->out[0][k], w = want[k];
        if ((isnan(g) && isnan(w)) || (g == w && signbit(g) == signbit(w))) continue;
        printf("# element %d is %.17g, want %.17g\n", k, g, w);
        ok = false;
    }
    CHECK(ok, "%s", name);
    lab_close(l);
}

/* The program fails, and says so with this text somewhere. */
__attribute__((unused)) static void lab_fails(lab *l, const char *name, const char *number, const char *text,
                                              const char *message) {
    bool ok =
        lab_parse(l, text) && !lab_run(l) && strstr(l->env.message.s, number) && strstr(l->env.message.s, message);
    if (!ok) printf("# status %d: %s\n", l->status, l->env.message.s ? l->env.message.s : "no message");
    CHECK(ok, "%s", name);
    lab_close(l);
}

/* Every allocation fails once, in turn: each time the run reports it and leaks nothing; at last it succeeds. */
__attribute__((unused)) static void lab_starved(lab *l, const char *name, const char *text) {
    bool ok = lab_parse(l, text);
    uint64_t n = 1;
    for (; ok; n++) {
        ki_alloc_fail(n, 0);
        bool done = lab_run(l);
        ki_alloc_fail(0, 0);
        if (done) break;
        ok = l->status == KI_NOMEM;
        if (!ok) printf("# allocation %llu: %s\n", (unsigned long long)n, l->env.message.s ? l->env.message.s : "?");
        ki_env_clear(&l->env);
    }
    CHECK(ok && n > 5, "%s: each of %llu allocations may fail", name, (unsigned long long)n - 1);
    lab_close(l);
}

#define CASE(l, name, text, ...)                                                                                       \
    do {                                                                                                               \
        static const double want_[] = __VA_ARGS__;                                                                     \
        lab_case(l, name, text, want_, (int)(sizeof want_ / sizeof *want_));                                           \
    } while (0)

#endif
