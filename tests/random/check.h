/* check.h: what must hold of a program: every stage's output means what the tensor program means, survives being printed
 * and read, and goes on to the same text; and the CPU device computes it. */
#ifndef CHECK_H
#define CHECK_H

#include "data.h"
#include "moves.h"
#define ki_entry ki_rule_entry /* device.h has another */
#include "rules.h"
#undef ki_entry
#include "run/run.h"
#include "stages/stages.h"

#include <koine/koine.h>

typedef struct finding {
    char kind[32];  /* which check failed: shrinking keeps it */
    char why[1600]; /* and how */
} finding;

typedef struct tally {
    int64_t total, exempt; /* elements compared */
} tally;

static bool found(finding *f, const char *kind, const char *what, ki_env *env, const char *why) {
    snprintf(f->kind, sizeof f->kind, "%s%s%s", what, *what && *kind ? " " : "", kind);
    snprintf(f->why, sizeof f->why, "%s", why ? why : env->message.s ? env->message.s : "no message");
    ki_env_clear(env);
    return false;
}

/* ---- stages ------------------------------------------------------------------------------------------------- */

static bool values_agree(const ki_program *p, const ki_program *q, arrays *d, finding *f, tally *t) {
    const void *in[PORTS];
    const char *stage = ki_stage_names[q->stage];
    for (size_t i = 0; i < q->nin; i++) in[i] = input_named(p, d, q->in[i].name);
    if (q->nout != p->nout) return found(f, stage, "ports", q->ir->env, "outputs are missing");
    for (size_t i = 0; i < p->nout; i++) memset(d->got[i], 0xa5, port_size(&p->out[i]));
    if (ki_eval(q, in, d->got, &(ki_eval_opts){.budget = 400000000}) != KI_OK)
        return found(f, stage, "eval", q->ir->env, NULL);
    char why[400];
    return compare(p, d, why, sizeof why, &t->total, &t->exempt) || found(f, stage, "values", q->ir->env, why);
}

/* The first line in which two texts differ. */
static void first_difference(const char *a, const char *b, char *why, size_t n) {
    size_t line = 1, at = 0, i = 0;
    for (; a[i] && a[i] == b[i]; i++)
        if (a[i] == '\n') line++, at = i + 1;
    snprintf(why, n, "line %zu: %.*s | %.*s", line, (int)strcspn(a + at, "\n") > 150 ? 150 : (int)strcspn(a + at, "\n"),
             a + at, (int)strcspn(b + at, "\n") > 150 ? 150 : (int)strcspn(b + at, "\n"), b + at);
}

/* q printed, read into `ir` as r, printed again: the same. text holds what was printed; "" if it was not. */
static bool through_text(const ki_program *q, ki_ir *ir, ki_program *r, ki_text *text, finding *f) {
    const char *stage = ki_stage_names[q->stage];
    ki_env *env = ir->env;
    ki_text again = {0};
    char why[400];
    if (!ki_print(q, text)) return found(f, stage, "print", env, NULL);
    if (!ki_parse(ir, stage, text->s, text->n, r)) return found(f, stage, "parse", env, NULL);
    bool ok = ki_print(r, &again) || found(f, stage, "print", env, NULL);
    if (ok && strcmp(again.s, text->s) != 0) {
        first_difference(text->s, again.s, why, sizeof why);
        ok = found(f, stage, "reprint", env, why);
    }
    ki_text_free(&again);
    if (!ok) ki_program_free(r);
    return ok;
}

/* Before plan: the BUFFER that each argument is, or is a part of; 0: none. */
typedef struct held {
    uint32_t n, id[4096]; /* 1 + id, of one call's arguments after the other's */
} held;

static void note_held(const ki_program *q, held *h) {
    h->n = 0;
    for (uint32_t i = 0; i < q->root->nsrc; i++)
        for (uint32_t k = 1; k < q->root->src[i]->nsrc; k++, h->n++) {
            kn_uop u = q->root->src[i]->src[k];
            if (u->op == KN_SLICE) u = u->src[0];
            if (h->n < 4096) h->id[h->n] = u->op == KN_BUFFER ? u->arg.buffer->id + 1 : 0;
        }
}

/* After plan: buffers that share bytes of an arena are never in use by calls of the same time. */
static bool arenas_hold(const ki_program *q, const held *h, finding *f) {
    struct {
        kn_uop arena;
        uint32_t id, first, last;
        int64_t from, to; /* bytes */
    } use[256];
    uint32_t n = 0, at = 0;
    for (uint32_t i = 0; h->n <= 4096 && i < q->root->nsrc; i++)
        for (uint32_t k = 1; k < q->root->src[i]->nsrc; k++, at++) {
            kn_uop u = q->root->src[i]->src[k];
            uint32_t j = 0;
            /* A part of what stays where it was is no place in an arena: that is a BUFFER of its own, known before. */
            if (u->op != KN_SLICE || u->src[0]->arg.buffer->id + 1 == h->id[at]) continue;
            int64_t from = u->src[1]->arg.i, to = from + u->arg.i * (int64_t)ki_itemsize((kn_dtype)u->dtype);
            while (j < n && use[j].id != h->id[at]) j++;
            if (j == 256) return true;
            if (j == n) use[n].arena = u->src[0], use[n].id = h->id[at], use[n].first = i, use[n].from = from, use[n++].to = to;
            if (from < use[j].from) use[j].from = from;
            if (to > use[j].to) use[j].to = to;
            use[j].last = i;
        }
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = 0; b < a; b++) {
            bool bytes = use[a].from < use[b].to && use[b].from < use[a].to;
            if (use[a].arena != use[b].arena || !bytes || use[a].first > use[b].last || use[b].first > use[a].last) continue;
            return found(f, ki_stage_names[q->stage], "arena", q->ir->env, "two buffers in use at a time share memory");
        }
    return true;
}

/* Lowers stage by stage, each time through text, evaluating each; the last text must be that of lowering at once. */
static bool stages_agree(const ki_program *p, arrays *d, const ki_lower_opts *o, finding *f, tally *t) {
    ki_env *env = p->ir->env;
    ki_ir now, next, direct;
    ki_program q, r, s;
    ki_text text[KI_S_COUNT] = {0};
    char why[400];
    held h = {0};
    int last = o->target->native ? KI_S_PLAN : KI_S_RENDER; /* machine code is no text */
    if (!ki_ir_open(&now, env)) return found(f, "tensor", "memory", env, NULL);
    bool ok = through_text(p, &now, &q, &text[0], f);
    for (int to = KI_S_CALLIFY; to <= last && ok; to++) {
        const char *stage = ki_stage_names[to];
        if (!ki_ir_open(&next, env)) break;
        ok = ki_lower(&q, &next, (ki_stage)to, o, &r) || found(f, stage, "lower", env, NULL);
        ki_program_free(&q);
        ki_ir_close(&now);
        if (!ok) {
            now = next;
            break;
        }
        if (!ki_ir_open(&now, env)) break;
        ok = through_text(&r, &now, &q, &text[to], f);
        ki_program_free(&r);
        ki_ir_close(&next);
        if (ok && to == KI_S_LINEARIZE) note_held(&q, &h);
        ok = ok && (to != KI_S_PLAN || arenas_hold(&q, &h, f)) && values_agree(p, &q, d, f, t);
    }
    for (int to = last; to <= last && ok; to++) {
        ki_text whole = {0};
        if (!ki_ir_open(&direct, env)) break;
        ok = (ki_lower(p, &direct, (ki_stage)to, o, &s) || found(f, ki_stage_names[to], "lower whole", env, NULL)) &&
             (ki_print(&s, &whole) || found(f, ki_stage_names[to], "print whole", env, NULL));
        if (ok && strcmp(whole.s, text[to].s) != 0) {
            first_difference(whole.s, text[to].s, why, sizeof why);
            ok = found(f, ki_stage_names[to], "stepwise text", env, why);
        }
        ki_program_free(&s);
        ki_ir_close(&direct);
        ki_text_free(&whole);
    }
    for (int k = 0; k < KI_S_COUNT; k++) ki_text_free(&text[k]);
    ki_program_free(&q);
    ki_ir_close(&now);
    return ok;
}

/* ---- properties --------------------------------------------------------------------------------------------- */

/* Simplifying twice is simplifying once, and makes no node. */
static bool simplify_settles(const ki_program *p, finding *f) {
    static const ki_ruleset *const sets[] = {&ki_rules_symbolic, &ki_rules_bool, &ki_rules_divmod, &ki_rules_float};
    ki_rewrite_opts o = {.sets = sets, .nsets = 4};
    ki_ir ir;
    if (!ki_ir_open(&ir, p->ir->env)) return false;
    kn_uop root = p->root, once = NULL, twice = NULL;
    bool ok = ki_import(&ir, p->ir, &root, 1, &root) && (once = ki_rewrite(&ir, root, &o)) != NULL;
    uint32_t n = ir.n;
    ok = ok && (twice = ki_rewrite(&ir, once, &o)) != NULL;
    if (!ok) found(f, "", "simplify", ir.env, NULL);
    else if (once != twice) ok = found(f, "", "idempotence", ir.env, "simplifying again changes the program");
    else if (ir.n != n) ok = found(f, "", "idempotence", ir.env, "simplifying again makes nodes");
    ki_ir_close(&ir);
    return ok;
}

/* Lowered for machine code: one level a program, or all of them and nothing else. */
static bool all_native;

/* Products of bf16 or bytes are what the levels past AVX-512 are for; from fp16 on f16 is computed as it is. */
static bool multiplies_narrow(kn_uop u) {
    return u->op == KN_CAST && ki_dtypes[u->dtype].bits == 32 && ki_dtypes[u->src[0]->dtype].bits <= 16 && u->src[0]->dtype != KN_BOOL;
}
static bool computes_half(kn_uop u) { return u->dtype == KN_F16 && ki_is_elementwise((kn_op)u->op); }

static bool any_node(const ki_program *p, bool (*is)(kn_uop)) {
    kn_uop *order;
    int64_t n = ki_toposort(p->ir, &p->root, 1, &order);
    bool any = false;
    for (int64_t i = 0; i < n && !any; i++) any = is(order[i]);
    if (n >= 0) ki_free(order);
    return any;
}

static bool native_agrees(const ki_program *p, arrays *d, finding *f, tally *t) {
    static const char *const levels[] = {"avx512", "avx2", "sse2", "fp16", "dot", "amx"};
    unsigned only = any_node(p, multiplies_narrow) ? 4 + p->ir->n % 2 : p->ir->n % (any_node(p, computes_half) ? 6 : 4);
    bool ok = true;
    for (unsigned k = 0; k < sizeof levels / sizeof *levels && ok; k++) {
        if (!all_native && only != k) continue;
        ki_lower_opts o = {.target = ki_target_native(levels[k]), .machine.threads = 2, .machine.stream = 1, .verify = 1};
        o.machine.ahead = p->ir->n % 3 ? 0 : 1 << 14;
        ok = stages_agree(p, d, &o, f, t);
    }
    return ok;
}

/* The loops as a search tries them. */
static bool moves_agree(const ki_program *p, arrays *d, finding *f, tally *t) {
    ki_lower_opts o = {.target = ki_target_named("avx2"), .machine.threads = 3, .machine.stream = 1, .machine.alone = 1, .choose = random_walk};
    if (p->ir->n % 2) o.target = ki_target_native(p->ir->n % 4 == 1 ? "avx512" : "sse2");
    return stages_agree(p, d, &o, f, t);
}

static bool check_stages(const ki_program *p, arrays *d, finding *f, tally *t) {
    if (all_native) return native_agrees(p, d, f, t);
    ki_lower_opts o = {.target = ki_target_host(), .machine.threads = 2, .machine.stream = 1, .verify = 1};
    /* What is only done for large kernels, done for small ones; short vectors, no fused multiply-add. */
    ki_lower_opts eager = {.target = ki_target_named("sse2"), .machine.threads = 3, .verify = 1, .machine.stream = 1, .machine.alone = 1};
    return stages_agree(p, d, &o, f, t) && stages_agree(p, d, &eager, f, t) && native_agrees(p, d, f, t) &&
           moves_agree(p, d, f, t) && simplify_settles(p, f);
}

/* ---- the CPU device ----------------------------------------------------------------------------------------- */

static bool run_on_cpu(kn_ctx *k, ki_exec *e, const ki_program *p, arrays *d, finding *f, tally *t) {
    void *in[PORTS];
    char why[400];
    for (size_t i = 0; i < p->nin; i++) { /* an assignment writes its input */
        in[i] = array_new(port_size(&p->in[i]));
        memcpy(in[i], d->in[i], port_size(&p->in[i]));
    }
    for (size_t i = 0; i < p->nout; i++) memset(d->got[i], 0xa5, port_size(&p->out[i]));
    bool ok = ki_run_prepared(k, e, p, in, d->got) || found(f, "CPU", "run", &k->env, NULL);
    ok = ok && (compare(p, d, why, sizeof why, &t->total, &t->exempt) || found(f, "CPU", "values", &k->env, why));
    for (size_t i = 0; i < p->nin; i++) {
        if (ok && !guard_whole(in[i], port_size(&p->in[i])))
            ok = found(f, "CPU", "guard", &k->env, "an input was written behind its end");
        free(in[i]);
    }
    return ok;
}

static bool check_cpu(kn_ctx *k, const ki_program *p, arrays *d, finding *f, tally *t) {
    ki_exec *e = NULL;
    if (!ki_prepare(k, "CPU", &p, 1, &e)) return found(f, "CPU", "compile", &k->env, NULL);
    bool ok = run_on_cpu(k, e, p, d, f, t);
    ki_exec_free(e);
    return ok;
}

/* Bit for bit; a NaN is a NaN. */
static bool same_values(const ki_port *q, const void *a, const void *b) {
    size_t size = ki_itemsize(q->dtype);
    if (memcmp(a, b, port_size(q)) == 0) return true;
    for (int64_t i = 0; i < port_numel(q); i++) {
        uint64_t x = 0, y = 0;
        memcpy(&x, (const char *)a + (size_t)i * size, size);
        memcpy(&y, (const char *)b + (size_t)i * size, size);
        bool nan = ki_is_float(q->dtype) && isnan(ki_f64_from_bits(q->dtype, x)) && isnan(ki_f64_from_bits(q->dtype, y));
        if (x != y && !nan) return false;
    }
    return true;
}

/* What run_on_cpu just left in d->got comes out again where every kernel that can be is shared out, by any number of threads. */
static bool threads_agree(kn_ctx *k, const ki_program *p, arrays *d, finding *f) {
    static const char *const counts[] = {"2", "5"};
    void *first[PORTS];
    tally none = {0};
    bool ok = true;
    for (size_t i = 0; i < p->nout; i++) {
        first[i] = array_new(port_size(&p->out[i]));
        memcpy(first[i], d->got[i], port_size(&p->out[i]));
    }
    kn_set(k, "KN_ALONE", "1");
    for (unsigned c = 0; c < 2 && ok; c++) {
        kn_set(k, "KN_THREADS", counts[c]);
        ok = check_cpu(k, p, d, f, &none);
        for (size_t i = 0; i < p->nout && ok; i++)
            if (!same_values(&p->out[i], first[i], d->got[i]))
                ok = found(f, "CPU", "threads", &k->env, "another number of threads gives other bits");
    }
    kn_set(k, "KN_ALONE", "");
    kn_set(k, "KN_THREADS", "");
    for (size_t i = 0; i < p->nout; i++) free(first[i]);
    return ok;
}

#endif
