/* pipeline.c: runs the stages of stages.def in order. One page; what each does is in its folder.
 *
 * A kernel stage is applied once to each different kernel: equal kernels are the same node. */
#include "stages/stages.h"

#include "ir/history.h"
#include "ir/parse.h"
#include "stages/3_optimize/optimize.h"
#include "stages/4_expand/expand.h"
#include "stages/5_select/select.h"
#include "stages/6_linearize/linearize.h"
#include "stages/7_plan/plan.h"
#include "stages/8_render/render.h"
#include "rules/watch.h"
#include "stages/verify.h"
#include "stages/x86/x86.h"

#include <string.h>

/* ---- entries: one line a stage ----------------------------------------------------------------------------- */

static kn_uop enter_optimize(ki_ir *ir, const ki_lower_opts *o, kn_uop k) {
    bool open = !k->arg.kernel || !(k->arg.kernel->nopt || k->arg.kernel->optimized);
    kn_uop found = open && o->choose ? o->choose(o->user, ir, o, k) : NULL;
    return found ? found : ki_optimize(ir, o->target, &o->machine, k);
}
static kn_uop enter_expand(ki_ir *ir, const ki_lower_opts *o, kn_uop k) { return ki_expand_kernel(ir, o->target, k); }
static kn_uop enter_select(ki_ir *ir, const ki_lower_opts *o, kn_uop k) { return ki_select(ir, o->target, k); }
static kn_uop enter_linearize(ki_ir *ir, const ki_lower_opts *o, kn_uop k) { return (void)o, ki_linearize(ir, k); }
static bool enter_rangeify(ki_program *p, const ki_lower_opts *o) { return ki_rangeify(p, o); }
static bool enter_plan(ki_program *p, const ki_lower_opts *o) {
    (void)o;
    size_t n = 0;
    kn_uop *keep = ki_calloc(p->nin + p->nout + 1, sizeof *keep);
    if (!keep) return ki_fail(p->ir->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < p->nin; i++) keep[n++] = p->in[i].node;
    for (size_t i = 0; i < p->nout; i++) keep[n++] = p->out[i].node;
    kn_uop root = ki_plan(p->ir, p->root, keep, n, p->filled, NULL);
    ki_free(keep);
    return root && (p->root = root, true);
}
static bool enter_render(ki_program *p, const ki_lower_opts *o) {
    kn_uop root = ki_render(p->ir, o->target, p->root);
    return root && (p->root = root, true);
}
/* callify makes the program; by the time the table runs it is done. */
static bool enter_callify(ki_program *p, const ki_lower_opts *o) { return (void)p, (void)o, true; }

typedef bool program_entry(ki_program *p, const ki_lower_opts *o);
typedef kn_uop kernel_entry(ki_ir *ir, const ki_lower_opts *o, kn_uop sink);
#define PROGRAM(name) .program = enter_##name
#define KERNEL(name)  .kernel = enter_##name
static const struct {
    const char *name;
    program_entry *program;
    kernel_entry *kernel;
} stages[KI_S_COUNT] = {
#define KI_STAGE(number, NAME, text, scope, doc) [KI_S_##NAME] = {.name = #text, scope(text)},
#include "stages/stages.def"
#undef KI_STAGE
};

/* ---- running them ------------------------------------------------------------------------------------------ */

/* What becomes of kernels once they are lowered. */
typedef enum end { END_HERE, END_NUMBERED, END_RENDERED } end;

/* A kernel is lowered in stores of its own, an empty one for each stage: what a pass costs is the kernel's size, not the
 * program's, and what a stage makes depends on the text of the kernel alone. Two stores take turns. */
typedef struct apart {
    ki_ir own[2], *ir, *to; /* from the one program's store to the other's */
    const ki_lower_opts *o;
    ki_stage from, last;
    end end;
    kn_uop *lowered, *by; /* by id: what became of a kernel, and of which call */
    uint8_t *filled;      /* END_RENDERED: as ki_plan_filled, of one call after the other */
    uint32_t *at;         /* by id of a kernel: where its first call's part of that is */
} apart;

static bool open_apart(apart *a, uint32_t args) {
    a->lowered = ki_calloc(a->ir->n, sizeof *a->lowered);
    a->by = ki_calloc(a->ir->n, sizeof *a->by);
    a->at = ki_calloc(a->ir->n, sizeof *a->at);
    a->filled = ki_calloc(args + 1, sizeof *a->filled);
    bool ok = a->lowered && a->by && a->at && a->filled;
    if (!ok) ki_fail(a->ir->env, KI_E_NOMEM);
    return ok && ki_ir_open(&a->own[0], a->ir->env) && ki_ir_open(&a->own[1], a->ir->env);
}
static void close_apart(apart *a) {
    for (unsigned k = 0; k < 2; k++) ki_ir_close(&a->own[k]);
    ki_free(a->lowered), ki_free(a->by), ki_free(a->at), ki_free(a->filled);
}

/* The call's kernel, from store `at` to the program's. Of what is rendered at once the list stays behind. */
static kn_uop leave_apart(apart *a, ki_ir *at, kn_uop call, kn_uop kernel, uint8_t *filled) {
    kn_uop out;
    switch (a->end) {
    case END_NUMBERED: return ki_plan_kernel(a->to, at, kernel);
    case END_RENDERED:
        ki_plan_filled(kernel, filled, call->nsrc);
        return ki_render_alone(a->to, at, a->o->target, kernel, a->ir, call);
    default: return ki_import(a->to, at, &kernel, 1, &out) ? out : NULL;
    }
}

static kn_uop lower_apart(apart *a, kn_uop call, uint8_t *filled) {
    ki_ir *at = a->ir;
    const ki_lower_opts *o = a->o;
    kn_uop kernel = call->src[0];
    for (ki_stage s = a->from; s <= a->last && kernel; s++) {
        bool stays = s == KI_S_LINEARIZE && s > a->from; /* the one stage to which ids mean nothing */
        ki_ir *next = stays ? at : at == &a->own[0] ? &a->own[1] : &a->own[0];
        bool ok = stays || (ki_ir_reset(next) && ki_import(next, at, &kernel, 1, &kernel));
        if (at->env->watch) ki_watch_between(at->env, s, o->verify >= 2);
        ki_history_enter(at->env, ki_stage_names[s]);
        kernel = ok ? stages[s].kernel(next, o, kernel) : NULL;
        if (at->env->history) ki_history_leave(next);
        /* Here the store still knows which rewrite made what. */
        if (kernel && at->env->watch && o->verify >= 1 && !ki_verify_kernel(next, kernel, s)) kernel = NULL;
        at = next;
    }
    return kernel ? leave_apart(a, at, call, kernel, filled) : NULL;
}

/* The call over the lowered kernel, in the other store. filled: its part of that; src: scratch. */
static kn_uop lower_call(apart *a, kn_uop call, uint8_t *filled, kn_uop *src) {
    kn_uop k = call->nsrc ? call->src[0] : NULL, made = NULL;
    if (call->op != KN_CALL || k->op != KN_SINK) {
        if (call->op == KN_CALL) ki_plan_filled(k, filled, call->nsrc);
        return ki_import(a->to, a->ir, &call, 1, &made) ? made : NULL;
    }
    kn_uop by = a->by[k->id];
    if (by && (a->end != END_RENDERED || ki_render_same(by, call))) {
        memcpy(filled, a->filled + a->at[k->id], call->nsrc);
    } else {
        a->by[k->id] = call;
        a->at[k->id] = (uint32_t)(filled - a->filled);
        a->lowered[k->id] = lower_apart(a, call, filled);
    }
    if (!(src[0] = a->lowered[k->id]) || !ki_import(a->to, a->ir, call->src + 1, call->nsrc - 1, src + 1)) return NULL;
    kn_arg arg = ki_import_arg(a->to, call);
    return ki_make(a->to, KN_CALL, (kn_dtype)call->dtype, src, call->nsrc, arg, call->tag);
}

/* Stages from..last, kernel stages all. The program moves to a new store as it goes: call by call, as collecting it would
 * (collect, below), which it saves. */
static bool run_kernels(ki_program *p, ki_stage from, ki_stage last, end end, const ki_lower_opts *o) {
    ki_ir *ir = p->ir, fresh = {0};
    apart a = {.ir = ir, .to = &fresh, .o = o, .from = from, .last = last, .end = end};
    uint32_t n = p->root->nsrc, most = 1, args = 0;
    for (uint32_t i = 0; i < n; i++) {
        args += p->root->src[i]->nsrc;
        if (p->root->src[i]->nsrc > most) most = p->root->src[i]->nsrc;
    }
    kn_uop *line = ki_calloc(n + 1, sizeof *line), *src = ki_calloc(most, sizeof *src), root = NULL;
    bool ok = line && src;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    ok = ok && open_apart(&a, args) && ki_ir_open(&fresh, ir->env);
    uint8_t *part = a.filled;
    for (uint32_t i = 0; i < n && ok; part += p->root->src[i++]->nsrc)
        ok = (line[i] = lower_call(&a, p->root->src[i], part, src)) != NULL;
    if (ok) ok = (root = ki_opn(&fresh, KN_LINEAR, line, n)) != NULL;
    for (size_t i = 0; i < p->nin + p->nout && ok; i++) {
        kn_uop *port = i < p->nin ? &p->in[i].node : &p->out[i - p->nin].node;
        ok = ki_import(&fresh, ir, port, 1, port);
    }
    if (ok) p->root = root, ki_ir_close(ir), *ir = fresh;
    else ki_ir_close(&fresh);
    if (ok && end == END_RENDERED) p->filled = a.filled, a.filled = NULL;
    close_apart(&a);
    ki_free(line);
    ki_free(src);
    return ok;
}

/* The program as it is, in another store. */
static bool adopt(const ki_program *in, ki_ir *ir, ki_program *out) {
    size_t n = 1 + in->nin + in->nout, k = 1;
    kn_uop *v = ki_calloc(n, sizeof *v);
    if (!v) return ki_fail(ir->env, KI_E_NOMEM), false;
    v[0] = in->root;
    for (size_t i = 0; i < in->nin; i++) v[k++] = in->in[i].node;
    for (size_t i = 0; i < in->nout; i++) v[k++] = in->out[i].node;
    bool ok = ki_import(ir, in->ir, v, n, v) && ki_program_clone_ports(out, in);
    if (ok) {
        out->ir = ir;
        out->stage = in->stage;
        out->root = v[0];
        for (size_t i = 0; i < in->nin; i++) out->in[i].node = v[1 + i];
        for (size_t i = 0; i < in->nout; i++) out->out[i].node = v[1 + in->nin + i];
    }
    ki_free(v);
    return ok;
}

/* The stages KN_DEBUG names, one bit each: rangeify,select. */
static bool debugged(ki_env *env, uint32_t *stages) {
    *stages = 0;
    for (const char *s = ki_setting(env, KI_VAR_DEBUG); *s; s += *s == ',') {
        size_t n = strcspn(s, ",");
        int k = 0;
        while (k < KI_S_COUNT && !ki_word_is(s, n, ki_stage_names[k])) k++;
        if (n && k == KI_S_COUNT) return ki_fail(env, KI_E_DEBUG_STAGE, (int)(n > 40 ? 40 : n), s), false;
        if (n) *stages |= UINT32_C(1) << k;
        s += n;
    }
    return true;
}

/* The text after a stage goes to the log. */
static void debug(const ki_program *p) {
    if (!p->ir->env->log) return;
    ki_text t = {0};
    if (ki_print(p, &t) && t.s) p->ir->env->log(p->ir->env->log_user, t.s);
    ki_text_free(&t);
}

/* A program with C text in it stays C: its kernels are all native, or none is. */
static bool has_text(const ki_program *p) {
    for (uint32_t i = 1; i < p->ir->n; i++)
        if (p->ir->node[i]->op == KN_CUSTOM) return true;
    return false;
}

/* Fresh numbers of RANGEs and BUFFERs go on from those in use: what a stage makes does not depend on what was there
 * before and is gone, so lowering in steps and at once give the same. */
static bool settle_numbers(ki_program *p) {
    kn_uop *order;
    int64_t n = ki_toposort(p->ir, &p->root, 1, &order);
    uint32_t range = 0, buffer = 0;
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = order[i];
        if (u->op == KN_RANGE && u->arg.range.id >= range) range = u->arg.range.id + 1;
        if (u->op == KN_BUFFER && u->arg.buffer->id >= buffer) buffer = u->arg.buffer->id + 1;
    }
    if (n >= 0) ki_free(order);
    for (size_t i = 0; i < p->nin + p->nout; i++) {
        kn_uop u = i < p->nin ? p->in[i].node : p->out[i - p->nin].node;
        if (u->op == KN_BUFFER && u->arg.buffer->id >= buffer) buffer = u->arg.buffer->id + 1;
    }
    p->ir->next_range = range;
    p->ir->next_buffer = buffer;
    return n >= 0;
}

bool ki_lower(const ki_program *in, ki_ir *ir, ki_stage to, const ki_lower_opts *opts, ki_program *out) {
    ki_lower_opts o = opts ? *opts : (ki_lower_opts){0};
    ir->env->ins = ki_x86_understand;
    if (!o.target) o.target = ki_target_host();
    if (!o.machine.threads) o.machine.threads = 1;
    int set = (int)ki_setting_number(ir->env, KI_VAR_VERIFY);
    if (set > o.verify) o.verify = set;
    *out = (ki_program){.ir = ir};
    uint32_t shown;
    if (!debugged(ir->env, &shown) || !ki_watch_open(ir->env, o.verify >= 2) || (o.verify >= 1 && !ki_verify_stage(in)))
        return false;
    if (ir->env->watch) ki_watch_between(ir->env, KI_S_CALLIFY, o.verify >= 2);
    if (in->stage == KI_S_TENSOR && shown & 1u << KI_S_TENSOR) debug(in);
    bool ok = in->stage == KI_S_TENSOR && to > KI_S_TENSOR ? ki_callify(in, ir, out) : adopt(in, ir, out);
    if (ok && ir->env->history) ki_history_begin(out->ir);
    if (ok && in->stage == KI_S_RENDER && to == KI_S_RENDER) ok = stages[to].program(out, &o); /* its machine code */
    /* Kernel stages in a row, unless somebody looks at the program in between. */
    bool watched = o.verify >= 1 || ir->env->watch || ki_setting(ir->env, KI_VAR_DEBUG)[0];
    for (ki_stage s = in->stage + 1; s <= to && ok; s++) {
        if (stages[s].kernel && o.target->native && has_text(out)) o.target = ki_target_named(o.target->name);
        bool alone = stages[s].kernel != NULL; /* kernels leave for stores of their own, and number for themselves */
        if (s > KI_S_CALLIFY && !alone && !(ok = settle_numbers(out))) break;
        ki_stage first = s;
        while (!watched && stages[s].kernel && s < to && stages[s + 1].kernel) s++;
        if (ir->env->watch && s > KI_S_CALLIFY) ki_watch_between(ir->env, s, o.verify >= 2);
        ki_history_enter(ir->env, ki_stage_names[s]);
        bool rendered = !watched && o.rough && o.target->native && to == KI_S_RENDER;
        if (s == KI_S_RENDER && out->filled) ok = true; /* each kernel once it was a list */
        else if (stages[s].program) ok = stages[s].program(out, &o);
        else
            ok = run_kernels(out, first, s, rendered ? END_RENDERED : !watched && s < to ? END_NUMBERED : END_HERE, &o);
        if (ok && ir->env->history) ki_history_leave(out->ir);
        if (ok && ir->env->watch && o.verify >= 1) out->stage = s, ok = ki_verify_stage(out); /* names the rewrite */
        /* What a stage leaves behind is forgotten, so that the next one starts from what its text says and no more: a
         * node it makes is a new one, ids and with them every order depend on the program alone. Kernel stages do so
         * by themselves. */
        bool leaves = !watched && s < to && (stages[s + 1].kernel || s + 1 == KI_S_RENDER); /* which makes texts only */
        if (s == KI_S_RENDER && o.rough) leaves = true;
        if (ok && !alone && !leaves) ok = ki_program_collect(out, NULL, 0);
        if (ok) out->stage = s;
        if (ok && shown & 1u << s) debug(out);
        if (ok && o.verify >= 1) ok = ki_verify_stage(out);
        if (ok && o.verify >= 3) ok = ki_verify_meaning(in, out);
    }
    ki_watch_stage(ir->env, "tensor", NULL, 0); /* what is rewritten next is the front end's (gradients) */
    if (!ok && ir->env->err == KI_E_NONE) ki_fail(ir->env, KI_E_INTERNAL, "a stage failed and did not say why");
    if (ok && ir->env->err == KI_E_NONE) return true;
    ki_program_free(out); /* what was made although something failed may lack it */
    return false;
}
