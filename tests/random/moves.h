/* moves.h: a kernel's OptOps as a search might try them: the heuristics' at some setting, or none, and a few moves from there. Which
 * ones depends on the kernel alone, so that lowering it twice gives the same. */
#ifndef MOVES_H
#define MOVES_H

#define ki_storage ki_storage_node /* context.h has another */
#include "stages/3_optimize/nest.h"
#undef ki_storage
#include "stages/3_optimize/search.h"
#include "stages/stages.h"

enum { WALK_STEPS = 3, WALK_TRIES = 6, WALK_OPTS = 256, WALK_KNOBS = 256 };

static uint64_t walk_next(uint64_t *seed) { return *seed = ki_hash2(*seed, 1); }

/* Few enough lanes for the interpreter, and for stage 4. */
static bool walk_small(kn_uop kernel, ki_ir *ir) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &kernel, 1, &node), axes = 0, lanes = 1;
    for (int64_t i = 0; i < n; i++) {
        if (!ki_is_lane(node[i])) continue;
        axes++;
        if (lanes < 1 << 20) lanes *= ki_extent(node[i]);
    }
    ki_free(node);
    return axes <= KI_MAX_RANK && lanes <= 4096;
}

static kn_uop walk_make(ki_ir *scratch, ki_ir *from, kn_uop sink, const ki_opt *opt, uint32_t n, bool ended) {
    if (!ki_ir_reset(scratch) || !ki_import(scratch, from, &sink, 1, &sink)) return NULL;
    if (ended) return ki_apply_opts(scratch, sink, opt, n);
    sink = ki_flatten_sums(scratch, sink);
    for (uint32_t i = 0; i < n && sink; i++) sink = ki_apply_opt(scratch, sink, opt[i]);
    return sink;
}

/* The list of a kernel that was made; 0 if it is too long. */
static uint32_t walk_take(kn_uop made, ki_opt *opt) {
    const ki_kernel *k = made ? made->arg.kernel : NULL;
    if (!k || k->nopt > WALK_OPTS) return 0;
    memcpy(opt, k->opt, k->nopt * sizeof *opt);
    return k->nopt;
}

static kn_uop random_walk(void *user, ki_ir *ir, const ki_lower_opts *o, kn_uop sink) {
    ki_ir scratch;
    ki_opt opt[WALK_OPTS];
    ki_knobs knobs[WALK_KNOBS];
    bool ok;
    ki_digest d = ki_graph_digest(ir, sink->src, sink->nsrc, &ok);
    uint64_t seed = d.a;
    uint32_t n = 0;
    (void)user;
    if (!ok || !ki_ir_open(&scratch, ir->env)) return NULL;
    size_t settings = ki_moves_knobs(&o->machine, knobs, WALK_KNOBS);
    if (walk_next(&seed) % 4) {
        kn_uop k = walk_make(&scratch, ir, sink, NULL, 0, false);
        const ki_knobs *at = &knobs[walk_next(&seed) % settings];
        n = walk_take(k ? ki_opt_choose(&scratch, o->target, &o->machine, at, k) : NULL, opt);
        ki_env_clear(ir->env);
    }
    for (int step = 0; step < WALK_STEPS; step++) {
        ki_nest k = {0};
        ki_moves m = {.target = o->target, .machine = &o->machine, .ir = &scratch, .k = &k, .opt = opt, .nopt = n};
        m.lanes = o->target->vector >> (2 + walk_next(&seed) % 2);
        kn_uop at = walk_make(&scratch, ir, sink, opt, n, false);
        if (at && ki_nest_open(&k, &scratch, at)) ki_moves_from(&m);
        ki_nest_close(&k);
        ki_env_clear(ir->env);
        for (int t = 0; t < WALK_TRIES && m.n; t++) {
            size_t which = walk_next(&seed) % m.n;
            uint32_t from = which ? m.end[which - 1] : 0;
            kn_uop made = walk_make(&scratch, ir, sink, m.out + from, m.end[which] - from, true);
            bool good = made && made->arg.kernel->nopt <= WALK_OPTS && walk_small(made, &scratch) &&
                        made->arg.kernel->threads <= o->machine.threads;
            if (good) n = walk_take(made, opt);
            ki_env_clear(ir->env);
            if (good) break;
        }
        ki_moves_free(&m);
    }
    kn_uop made = walk_make(&scratch, ir, sink, opt, n, true);
    bool small = made && walk_small(made, &scratch);
    ki_ir_close(&scratch);
    made = small ? ki_apply_opts(ir, sink, opt, n) : NULL;
    ki_env_clear(ir->env);
    return made;
}

#endif
