/* text_util.h: a context for tests of the text form, and the round trip that all of them rest on. */
#ifndef TEXT_UTIL_H
#define TEXT_UTIL_H

#include "ir/program.h"
#include "../tap.h"

#include <string.h>

typedef struct lab {
    ki_env env;
    ki_ir ir;
} lab;

__attribute__((unused)) static void lab_open(lab *l) {
    if (!ki_env_open(&l->env) || !ki_ir_open(&l->ir, &l->env)) printf("Bail out! no memory\n");
}
__attribute__((unused)) static void lab_close(lab *l) {
    ki_ir_close(&l->ir);
    ki_env_close(&l->env);
}

/* Prints p, reads that into a fresh store, prints again. True when the texts are equal and the graphs have one
 * digest; else says what went wrong. */
__attribute__((unused)) static int round_trip(const ki_program *p, const char *what) {
    ki_text a = {0}, b = {0};
    ki_ir ir;
    ki_program q = {0};
    ki_env *env = p->ir->env;
    int ok = ki_print(p, &a) && ki_ir_open(&ir, env);
    if (!ok) return printf("# %s: not printed: %s\n", what, env->message.s), 0;
    ok = ki_parse(&ir, what, a.s, a.n, &q);
    if (!ok) printf("# %s: %s\n# of:\n%s\n", what, env->message.s, a.s);
    if (ok) {
        bool fine = true, fine2 = true;
        ki_digest x = ki_graph_digest(p->ir, &p->root, 1, &fine), y = ki_graph_digest(&ir, &q.root, 1, &fine2);
        ok = ki_print(&q, &b) && fine && fine2 && x.a == y.a && x.b == y.b;
        if (!ok) printf("# %s: digests differ\n%s\n", what, a.s);
        if (ok && (a.n != b.n || memcmp(a.s, b.s, a.n) != 0)) ok = 0, printf("# %s: texts differ\n%s\n%s\n", what, a.s, b.s);
        ok = ok && q.nin == p->nin && q.nout == p->nout && q.stage == p->stage;
    }
    ki_env_clear(env);
    ki_program_free(&q);
    ki_ir_close(&ir);
    ki_text_free(&a);
    ki_text_free(&b);
    return ok;
}

#endif
