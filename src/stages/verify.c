/* verify.c: the checks between stages. The specs are rules (each stage's .spec.kr); what no rule about one node can say
 * stands here: the form of the root, and that a list of instructions is in an order that can run. */
#include "stages/verify.h"

#include "ir/agree.h"
#include "ir/eval.h"
#include "ir/scalar.h"
#include "rules/watch.h"
#include "stages/scope.h"
#include "stages/x86/x86.h"

#include <rules.h>

#include <math.h>
#include <string.h>

/* ---- form ---------------------------------------------------------------------------------------------------- */

/* A node is legal when one of the stage's specs accepts it. From select on, kernels, their lists and the calls have a
 * spec each. */
enum { MOST_SPECS = 4, MOST_LANES = 65536 };
static const ki_ruleset *const spec[KI_S_COUNT][MOST_SPECS] = {
    [KI_S_TENSOR] = {&ki_rules_spec_tensor},
    [KI_S_CALLIFY] = {&ki_rules_spec_callify},
    [KI_S_RANGEIFY] = {&ki_rules_spec_rangeify},
    [KI_S_OPTIMIZE] = {&ki_rules_spec_optimize},
    [KI_S_EXPAND] = {&ki_rules_spec_expand},
    [KI_S_SELECT] = {&ki_rules_spec_select, &ki_rules_spec_plan},
    [KI_S_LINEARIZE] = {&ki_rules_spec_select, &ki_rules_spec_plan, &ki_rules_spec_linearize},
    [KI_S_PLAN] = {&ki_rules_spec_select, &ki_rules_spec_plan, &ki_rules_spec_linearize},
    [KI_S_RENDER] = {&ki_rules_spec_select, &ki_rules_spec_plan, &ki_rules_spec_linearize, &ki_rules_spec_render},
};
/* What takes the place of spec_select where kernels are native. */
static const ki_ruleset *const native_spec[KI_S_COUNT][MOST_SPECS] = {
    [KI_S_SELECT] = {&ki_rules_spec_native, &ki_rules_spec_plan},
    [KI_S_LINEARIZE] = {&ki_rules_spec_native, &ki_rules_spec_plan, &ki_rules_spec_linearize},
    [KI_S_PLAN] = {&ki_rules_spec_native, &ki_rules_spec_plan, &ki_rules_spec_linearize},
    [KI_S_RENDER] = {&ki_rules_spec_native, &ki_rules_spec_plan, &ki_rules_spec_linearize, &ki_rules_spec_render},
};

static bool is_native(kn_uop kernel) {
    return (kernel->op == KN_SINK || kernel->op == KN_PROGRAM) && kernel->arg.kernel && kernel->arg.kernel->native;
}

/* A program's kernels are all native, or none is. */
static bool has_native(const ki_program *p) {
    bool native = false;
    for (uint32_t i = 0; p->stage >= KI_S_SELECT && p->root->op == KN_LINEAR && i < p->root->nsrc; i++) {
        kn_uop call = p->root->src[i];
        native |= call->op == KN_CALL && is_native(call->src[0]);
    }
    return native;
}

static bool bad_form(const ki_program *p, kn_uop u, const char *what) {
    return ki_fail(p->ir->env, KI_E_STAGE_FORM, ki_stage_names[p->stage], u ? ki_ops[u->op].name : "nothing",
                   u ? u->id : 0, what),
           false;
}

/* What stage 2 takes for granted: output i is element i of the root's TUPLE, or a buffer that it is assigned to. */
static bool outputs_are_in_order(const ki_program *p) {
    if (p->nout != p->root->src[0]->nsrc) return bad_form(p, p->root, "an output for each element of the TUPLE");
    for (size_t i = 0; i < p->nout; i++) {
        kn_uop u = p->out[i].node;
        bool is_element = u->op == KN_GETTUPLE && u->src[0] == p->root && u->arg.i == (int64_t)i;
        if (!is_element && u->op != KN_BUFFER)
            return bad_form(p, u, "outputs in the order of the TUPLE, each GETTUPLE(root) or what is assigned");
    }
    return true;
}

static bool root_is_right(const ki_program *p) {
    kn_uop r = p->root;
    if (!r) return bad_form(p, r, "a root");
    if (p->stage == KI_S_TENSOR) return r->op == KN_SINK || bad_form(p, r, "a SINK of the outputs as the root");
    if (p->stage == KI_S_CALLIFY)
        return r->op == KN_FUNCTION && r->src[0]->op == KN_TUPLE
                   ? outputs_are_in_order(p)
                   : bad_form(p, r, "FUNCTION(TUPLE(...), ...) as the root");
    if (r->op != KN_LINEAR) return bad_form(p, r, "a LINEAR of CALLs as the root");
    for (uint32_t i = 0; i < r->nsrc; i++) {
        kn_uop c = r->src[i], body = c->op == KN_CALL ? c->src[0] : NULL;
        if (!body) return bad_form(p, c, "a CALL");
        if (body->op == KN_LOAD) continue; /* a copy */
        if (p->stage == KI_S_RENDER && body->op != KN_PROGRAM) return bad_form(p, body, "a PROGRAM to call");
        if (p->stage != KI_S_RENDER && body->op != KN_SINK) return bad_form(p, body, "a kernel (SINK) to call");
        if (p->stage >= KI_S_OPTIMIZE && body->op == KN_SINK && !(body->arg.kernel && body->arg.kernel->optimized))
            return bad_form(p, body, "a kernel that is marked optimized=1");
        if (p->stage >= KI_S_LINEARIZE && (!body->nsrc || body->src[0]->op != KN_LINEAR))
            return bad_form(p, body, "a LINEAR of instructions in the kernel");
    }
    return true;
}

/* Instructions after their sources; loops closed in the order they were opened in; from plan on, the position as tag. */
static bool line_runs(const ki_program *p, kn_uop line, uint32_t *at) {
    kn_uop open[64];
    unsigned depth = 0;
    for (uint32_t i = 0; i < line->nsrc; i++) at[line->src[i]->id] = i + 1;
    for (uint32_t i = 0; i < line->nsrc; i++) {
        kn_uop u = line->src[i];
        if (p->stage >= KI_S_PLAN && u->tag != i) return bad_form(p, u, "its position in the list as its tag");
        for (uint32_t k = 0; k < u->nsrc; k++)
            if (at[u->src[k]->id] > i + 1) return bad_form(p, u, "its sources before it");
        if (u->op == KN_RANGE && depth < 64) open[depth++] = u;
        for (uint32_t k = u->nsrc; u->op == KN_END && k-- > 1;) {
            if (u->src[k]->op != KN_RANGE) continue;
            if (!depth || open[depth - 1] != u->src[k]) return bad_form(p, u, "the innermost open loop closed first");
            depth--;
        }
    }
    for (uint32_t i = 0; i < line->nsrc; i++) at[line->src[i]->id] = 0;
    return depth == 0 || bad_form(p, open[depth - 1], "an END for each loop");
}

static bool lines_run(const ki_program *p) {
    uint32_t *at = ki_calloc(p->ir->n + 1u, sizeof *at);
    bool ok = at || (ki_fail(p->ir->env, KI_E_NOMEM), false);
    for (uint32_t i = 0; ok && i < p->root->nsrc; i++) {
        kn_uop body = p->root->src[i]->src[0];
        if (body->op != KN_LOAD) ok = line_runs(p, body->src[0], at);
    }
    ki_free(at);
    return ok;
}

static unsigned specs_of(ki_stage s) {
    unsigned n = 0;
    while (n < MOST_SPECS && spec[s][n]) n++;
    return n;
}

const ki_ruleset *const *ki_stage_specs(ki_stage s, unsigned *n) {
    *n = specs_of(s);
    return spec[s];
}

bool ki_verify_kernel(ki_ir *ir, kn_uop kernel, ki_stage stage) {
    const ki_ruleset *const *of = is_native(kernel) ? native_spec[stage] : spec[stage];
    return ki_verify(ir, kernel, of, specs_of(stage), false, ki_watch_origins(ir), ki_stage_names[stage]);
}

void ki_watch_between(ki_env *env, ki_stage s, bool check) {
    const ki_ruleset *all[2 * MOST_SPECS + 2] = {&ki_rules_spec_between};
    unsigned n = 1;
    if (s >= KI_S_SELECT) all[n++] = &ki_rules_spec_native;
    for (ki_stage k = s ? s - 1 : s; k <= s; k++)
        for (unsigned j = 0; j < specs_of(k); j++) all[n++] = spec[k][j];
    ki_watch_stage(env, ki_stage_names[s], all, check ? n : 0);
}

bool ki_verify_stage(const ki_program *p) {
    return root_is_right(p) &&
           ki_verify(p->ir, p->root, has_native(p) ? native_spec[p->stage] : spec[p->stage], specs_of(p->stage), false,
                     ki_watch_origins(p->ir), ki_stage_names[p->stage]) &&
           (p->stage < KI_S_LINEARIZE || lines_run(p));
}

/* ---- texts --------------------------------------------------------------------------------------------------- */

/* The arguments of the root FUNCTION are memory, of what each PARAM takes. */
static bool arguments_fit(const ki_program *p) {
    kn_uop *order, root = p->root, bad = NULL;
    for (uint32_t k = 1; k < root->nsrc; k++)
        if (root->src[k]->op != KN_BUFFER || root->src[k]->arg.buffer->addrspace != KN_GLOBAL)
            return bad_form(p, root->src[k], "a GLOBAL BUFFER as an argument of the FUNCTION");
    int64_t n = ki_toposort(p->ir, root->src, 1, &order);
    for (int64_t i = 0; i < n && !bad; i++) {
        kn_uop u = order[i], a;
        if (u->op != KN_PARAM || ki_is_variable(u)) continue;
        uint32_t slot = (uint32_t)u->arg.param->slot;
        a = slot < root->nsrc - 1 ? root->src[slot + 1] : NULL;
        if (!a || a->dtype != u->dtype || ki_numel(a) != ki_numel(u)) bad = u;
    }
    if (n >= 0) ki_free(order);
    return n >= 0 &&
           (!bad || bad_form(p, bad, "the FUNCTION's argument at its slot, of its dtype and as many elements"));
}

/* A kernel is launched on as many threads as it counts; its lanes are few enough to be written out. */
static bool axes_fit(const ki_program *p, kn_uop kernel) {
    kn_uop *order;
    int64_t n = ki_toposort(p->ir, &kernel, 1, &order), threads = 1, lanes = 1;
    bool runs = true;
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = order[i];
        if (u->op == KN_SPECIAL || (u->op == KN_RANGE && u->arg.range.axis == KN_AX_THREAD)) threads = u->src[0]->hi.i;
        if (ki_is_lane(u) && u->src[0]->hi.i > lanes) lanes = u->src[0]->hi.i;
        runs &= u->op != KN_RANGE || u->src[0]->hi.i > 0;
    }
    if (n >= 0) ki_free(order);
    bool fit = !kernel->arg.kernel || kernel->arg.kernel->threads == threads;
    if (n >= 0 && !fit) return bad_form(p, kernel, "threads= the extent of its THREAD axis, 1 where there is none");
    if (n >= 0 && !runs) return bad_form(p, kernel, "ranges that may run at least once");
    return n >= 0 && (lanes <= MOST_LANES || bad_form(p, kernel, "UPCAST and UNROLL ranges of at most 65536 lanes"));
}

bool ki_verify_calls(const ki_program *p, const void *const *in) {
    if (p->stage < KI_S_RANGEIFY) return true;
    ki_env *env = p->ir->env;
    ki_mark mark = ki_ir_mark(p->ir);
    env->ins = ki_x86_understand;
    bool ok = ki_eval(p, in, NULL, &(ki_eval_opts){.dry = true}) == KI_OK;
    if (env->err == KI_E_EVAL_VARIABLE) ki_env_clear(env), ok = true;
    ki_ir_drop(p->ir, mark);
    return ok;
}

bool ki_verify_text(const ki_program *p) {
    bool ok = ki_verify_stage(p);
    for (uint32_t i = 0; ok && p->stage >= KI_S_RANGEIFY && i < p->root->nsrc; i++)
        ok = axes_fit(p, p->root->src[i]->src[0]);
    if (ok && p->stage == KI_S_CALLIFY) ok = arguments_fit(p);
    return ok && ki_verify_calls(p, NULL);
}

/* ---- meaning ------------------------------------------------------------------------------------------------- */

typedef struct side { /* arrays of one program's ports */
    void **in, **out;
    double **bound;
} side;

static int64_t numel(const ki_port *p) {
    int64_t n = 1;
    for (unsigned k = 0; k < p->rank; k++) n *= p->dim[k];
    return n;
}
static void *array(const ki_port *p) { return ki_calloc((size_t)numel(p) + 1, ki_itemsize(p->dtype)); }

/* Quarters in [-2, 2], integers 0 to 3, or the port's range; a variable inside its bounds. */
static void fill(const ki_port *p, void *a, uint64_t key) {
    const ki_param *v = ki_is_variable(p->node) && p->node->arg.param->bounded ? p->node->arg.param : NULL;
    for (int64_t i = 0; i < numel(p); i++) {
        uint64_t r = ki_hash2(key, (uint64_t)i);
        double u = (double)(r >> 11) * 0x1p-53, x = ki_is_float(p->dtype) ? floor(17 * u) / 4 - 2 : floor(4 * u);
        if (p->ranged) x = p->lo + u * (p->hi - p->lo);
        if (p->dtype == KN_BOOL) x = (double)(r & 1);
        uint64_t bits =
            ki_is_float(p->dtype) ? ki_bits_from_f64(p->dtype, x) : ki_bits_wrap(p->dtype, (int64_t)floor(x));
        if (v) bits = (uint64_t)(v->hi - v->lo < 1 << 20 ? v->hi : v->lo);
        ki_storage_put(p->dtype, a, i, bits);
    }
}

static void drop_side(side *s, size_t nin, size_t nout) {
    for (size_t i = 0; s->in && i < nin; i++) ki_free(s->in[i]);
    for (size_t i = 0; s->out && i < nout; i++) ki_free(s->out[i]);
    for (size_t i = 0; s->bound && i < nout; i++) ki_free(s->bound[i]);
    ki_free(s->in);
    ki_free(s->out);
    ki_free(s->bound);
}

static bool make_side(const ki_program *p, side *s) {
    *s = (side){ki_calloc(p->nin + 1, sizeof *s->in), ki_calloc(p->nout + 1, sizeof *s->out),
                ki_calloc(p->nout + 1, sizeof *s->bound)};
    bool ok = s->in && s->out && s->bound;
    for (size_t i = 0; ok && i < p->nin; i++) {
        if ((ok = (s->in[i] = array(&p->in[i])) != NULL)) fill(&p->in[i], s->in[i], i + 1);
    }
    for (size_t i = 0; ok && i < p->nout; i++)
        ok =
            (s->out[i] = array(&p->out[i])) && (s->bound[i] = ki_calloc((size_t)numel(&p->out[i]) + 1, sizeof(double)));
    return ok || (ki_fail(p->ir->env, KI_E_NOMEM), false);
}

/* Which input of `in` the i-th of `out` is: callify alone orders them anew. */
static size_t origin_of(const ki_program *in, const ki_program *out, size_t i) {
    if (in->stage != KI_S_TENSOR || out->stage == KI_S_TENSOR) return i;
    for (size_t k = 0; k < in->nin; k++)
        if (in->in[k].node == out->in[i].origin) return k;
    return in->nin;
}

static bool same_values(const ki_program *in, const ki_program *out, const side *a, const side *b) {
    for (size_t i = 0; i < in->nout; i++) {
        ki_agreement r;
        bool bounded = in->stage <= KI_S_CALLIFY;
        ki_agree(in->out[i].dtype, numel(&in->out[i]), b->out[i], a->out[i], bounded ? a->bound[i] : NULL, 0, &r);
        if (!r.wrong) continue;
        ki_fail(out->ir->env, KI_E_STAGE_VALUES, ki_stage_names[out->stage], in->out[i].name, (long long)r.first, r.got,
                r.want, r.bound);
        return false;
    }
    return true;
}

bool ki_verify_meaning(const ki_program *in, const ki_program *out) {
    side a = {0}, b = {0};
    ki_env *env = out->ir->env;
    const void **from = ki_calloc(out->nin + 1, sizeof *from);
    bool ok = make_side(in, &a) && make_side(out, &b) && from, known = in->nout == out->nout;
    for (size_t i = 0; ok && i < out->nin && known; i++) {
        size_t k = origin_of(in, out, i);
        known = k < in->nin;
        if (known) from[i] = a.in[k];
    }
    if (ok && known) {
        if (ki_eval(in, (const void *const *)a.in, a.out,
                    &(ki_eval_opts){.bound = in->stage <= KI_S_CALLIFY ? a.bound : NULL}) != KI_OK)
            ki_env_clear(env);
        else ok = ki_eval(out, from, b.out, NULL) == KI_OK && same_values(in, out, &a, &b);
    }
    ki_free(from);
    drop_side(&a, in->nin, in->nout);
    drop_side(&b, out->nin, out->nout);
    return ok;
}

bool ki_verify_run(const ki_program *p, const void *const *in, void *const *out) {
    enum { STEPS = 1 << 24 };
    int64_t most = STEPS;
    for (size_t i = 0; i < p->nin && most > 0; i++) most -= numel(&p->in[i]);
    for (size_t i = 0; i < p->nout && most > 0; i++) most -= numel(&p->out[i]);
    if (p->stage < KI_S_RANGEIFY || most <= 0) return true;
    ki_env *env = p->ir->env;
    env->ins = ki_x86_understand;
    if (ki_eval(p, in, out, &(ki_eval_opts){.budget = STEPS}) == KI_OK) return true;
    bool leads_out = env->err == KI_E_EVAL_BOUNDS || env->err == KI_E_EVAL_OVERFLOW;
    if (!leads_out) ki_env_clear(env); /* not known, or not yet */
    return !leads_out;
}
