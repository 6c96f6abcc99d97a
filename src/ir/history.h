/* history.h: by which rewrites a node came to be, for who wants to read it (`koine compile --target x86`).
 *
 * A step is one rewrite, or what a stage's own code made, with the step that made what it started from; steps belong to the env, so
 * that they outlive stores. A store knows the step of each node by id (ki_ir.why), and whoever copies a node, into the same store
 * over other sources or into another store, copies the step's number. Nobody who asks: no memory, and a test of one pointer
 * where a node is copied or a rule fires. Out of memory loses notes, never more. */
#ifndef KI_HISTORY_H
#define KI_HISTORY_H

#include "ir/uop.h"

typedef struct ki_step {
    const char *stage;               /* that ran */
    const char *set, *rule, *source; /* NULL: code, or, with `op`, the program itself */
    const char *op;                  /* of the program's node */
    uint32_t line, from;             /* from: the step before, 0 none */
} ki_step;

typedef struct ki_history {
    ki_step *step; /* step[0] unused */
    uint32_t n;
    size_t cap;
    const char *stage; /* now running */
} ki_history;

/* From now on. False: no memory (env says so). */
bool ki_history_open(ki_env *env);
void ki_history_close(ki_env *env);

/* The nodes there are are the program's. */
void ki_history_begin(ki_ir *ir);
/* A stage begins; it has ended, and what no rule of it made is its own. */
void ki_history_enter(ki_env *env, const char *stage);
void ki_history_leave(ki_ir *ir);
/* A rule fired on `before`: nodes since.. are new. */
void ki_history_rule(ki_ir *ir, const char *set, const char *rule, const char *source, uint32_t line, kn_uop before,
                     uint32_t since);
/* The nodes since.. stand for u, of the same store, which code took apart. */
void ki_history_made(ki_ir *ir, kn_uop u, uint32_t since);
static inline void ki_made_for(ki_ir *ir, kn_uop u, uint32_t since) {
    if (ir->env->history) ki_history_made(ir, u, since);
}
void ki_history_copy(ki_ir *to, kn_uop v, const ki_ir *from, kn_uop u);

/* v, of `to`, stands for u, of `from`. */
static inline kn_uop ki_like(ki_ir *to, kn_uop v, const ki_ir *from, kn_uop u) {
    if (to->env->history && v && v != u) ki_history_copy(to, v, from, u);
    return v;
}
static inline uint32_t ki_why(const ki_ir *ir, kn_uop u) { return u->id < ir->why_cap ? ir->why[u->id] : 0; }
/* Appends "x86_avx512.vaddps_f32 (x86.kr:40) < push.push_elementwise (push.kr:9) < add of the program", youngest first. */
void ki_history_put(ki_text *t, const ki_ir *ir, kn_uop u, unsigned most);

#endif
