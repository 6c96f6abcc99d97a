/* text.h: a program as text, parsed into a store of its own. */
#ifndef TEST_TEXT_H
#define TEST_TEXT_H

#include "ir/program.h"

#include <string.h>

typedef struct text {
    ki_ir ir;
    ki_program p;
} text;

static inline bool text_parse(text *t, ki_env *env, const char *s) {
    return ki_ir_open(&t->ir, env) && ki_parse(&t->ir, "test", s, strlen(s), &t->p);
}
static inline void text_drop(text *t) {
    ki_program_free(&t->p);
    ki_ir_close(&t->ir);
}

#endif
