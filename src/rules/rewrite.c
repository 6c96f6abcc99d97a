/* rewrite.c: the drivers. Iterative: a stack of ids, and per id a visit record: the next source to look at, the node
 * it became (`link`, not yet final), its final form. Where all is new to the memo, fixpoint sweeps and needs no stack.
 *
 *   fixpoint  sources first; a node that changed is visited again until no rule fires
 *   topdown   rules on the node first, until none fires; then its sources
 *   walk      sources first; one rule at most on each rebuilt node; results are not visited */
#include "rules/drive.h"
#include "rules/watch.h"

#include "ir/history.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

enum { RECENT = 6 };
/* In a visit's `at`, above the source counter. */
#define BUSY  UINT32_C(0x80000000) /* on the stack */
#define TRIED UINT32_C(0x40000000) /* topdown: rules were tried on the node itself */
#define AT(v) ((v)->at & ~(BUSY | TRIED))

typedef struct rewriter {
    ki_ir *ir;
    const ki_rewrite_opts *o;
    ki_memo *memo;
    ki_match m;
    ki_rule_count *count[8];
    uint32_t *stack, nstack, cap;
    kn_uop *src; /* scratch for rebuilt sources */
    uint32_t src_cap;
    uint64_t fired, limit;
    const char *recent[RECENT];
    const uint8_t *rules; /* by op: the sets that have rules for it, a bit each; NULL: nobody has looked */
} rewriter;

static bool nomem(rewriter *w) { return ki_fail(w->ir->env, KI_E_NOMEM), false; }

/* ---- applying rules at one node ---------------------------------------------------------------------------- */

static bool spent(rewriter *w, ki_err err, uint64_t number) {
    char names[512] = "";
    for (unsigned k = 0; k < RECENT; k++) {
        const char *name = w->recent[(w->fired + k) % RECENT];
        if (name) snprintf(names + strlen(names), sizeof names - strlen(names), "%s%.60s", *names ? ", " : "", name);
    }
    if (err == KI_E_REWRITE_CYCLE) ki_fail(w->ir->env, err, (unsigned)number, names);
    else ki_fail(w->ir->env, err, (unsigned long long)number, names);
    return false;
}

static bool fire(rewriter *w, const ki_ruleset *set, const ki_rule *r, kn_uop u, kn_uop v, uint32_t since) {
    w->recent[w->fired % RECENT] = ki_rule_name(set, r);
    if (++w->fired > w->limit) return spent(w, KI_E_REWRITE_BUDGET, w->limit);
    if (w->o->origins) ki_origins_note(w->o->origins, w->ir, set, r, u, since);
    if (w->ir->env->history) ki_history_rule(w->ir, set->name, ki_rule_name(set, r), set->source, r->line, u, since);
    if (w->o->trace) w->o->trace(w->o->trace_user, set, r, u, v);
    return !w->ir->env->watch || ki_watch_rewrite(w->ir, set, r, u, v, since);
}

static bool apply_sets(rewriter *w, kn_uop u, unsigned sets, kn_uop *out) {
    ki_env *env = w->ir->env;
    *out = u;
    for (unsigned left = sets; left; left &= left - 1) {
        unsigned k = (unsigned)ki_ctz64(left);
        const ki_ruleset *s = w->o->sets[k];
        if (!s->root[u->op]) continue;
        const ki_bucket *b = ki_dispatch(s, u);
        const uint16_t *list = s->list + b->first;
        for (unsigned i = 0; i < b->n; i++) {
            const ki_entry *e = &s->entry[list[i]];
            const ki_rule *r = &s->rule[e->rule];
            if (!ki_entry_fits(s, e, u) || r->kind != KI_R_REWRITE || r->fp & ~w->o->fp) continue;
            if (w->count[k]) w->count[k][e->rule].attempts++;
            if (!ki_match_rule(&w->m, s, e->rule, e->variant, u)) continue;
            uint32_t since = w->ir->n;
            kn_uop v = ki_match_build(&w->m);
            if (!v && env->err != KI_E_NONE) return false;
            if (!v || v == u) continue;
            if (w->count[k]) w->count[k][e->rule].hits++;
            *out = v;
            return fire(w, s, r, u, v, since);
        }
    }
    return true;
}

/* *out: what the first rule that fires makes of u, u itself if none does. */
static inline bool apply(rewriter *w, kn_uop u, kn_uop *out) {
    unsigned sets = w->rules ? w->rules[u->op] : (1u << w->o->nsets) - 1;
    return sets ? apply_sets(w, u, sets, out) : (*out = u, true);
}

/* ---- visits ------------------------------------------------------------------------------------------------ */

static ki_visit *visit(rewriter *w, uint32_t id) {
    ki_visit *v = &w->memo->visit[id];
    if (v->stamp == w->memo->epoch) return v;
    bool stays = id <= w->o->floor || (w->o->stays && w->o->stays(w->o->of, w->ir->node[id]));
    *v = (ki_visit){.stamp = w->memo->epoch, .form = stays ? id : 0};
    return v;
}

static bool push(rewriter *w, uint32_t id) {
    if (w->nstack == w->cap) {
        uint32_t cap = w->cap ? w->cap * 2 : 256;
        uint32_t *s = ki_realloc(w->stack, cap, sizeof *s);
        if (!s) return nomem(w);
        w->stack = s;
        w->cap = cap;
    }
    if (!ki_memo_room(w->memo, w->ir->n)) return nomem(w);
    ki_visit *v = visit(w, id);
    if (v->at & BUSY) return spent(w, KI_E_REWRITE_CYCLE, id);
    v->at |= BUSY;
    w->stack[w->nstack++] = id;
    return true;
}

static void settle(rewriter *w, uint32_t id, uint32_t form) {
    ki_visit *v = visit(w, id);
    v->form = form;
    v->at &= ~BUSY;
    w->nstack--;
}

static bool body(const rewriter *w, kn_uop u, uint32_t k) {
    return w->o->closed && k == 0 && (u->op == KN_FUNCTION || u->op == KN_CALL);
}

static kn_uop remade(rewriter *w, kn_uop u) {
    if (u->nsrc > w->src_cap) {
        kn_uop *s = ki_realloc(w->src, u->nsrc, sizeof *s);
        if (!s) return nomem(w), NULL;
        w->src = s;
        w->src_cap = u->nsrc;
    }
    for (uint32_t k = 0; k < u->nsrc; k++)
        w->src[k] = body(w, u, k) ? u->src[k] : w->ir->node[w->memo->visit[u->src[k]->id].form];
    return ki_with_srcs(w->ir, u, w->src, u->nsrc);
}

/* u over the final forms of its sources; u itself if they are its sources. */
static inline kn_uop rebuild(rewriter *w, kn_uop u) {
    const ki_visit *visits = w->memo->visit;
    uint32_t k = body(w, u, 0);
    while (k < u->nsrc && visits[u->src[k]->id].form == u->src[k]->id) k++;
    return k >= u->nsrc ? u : remade(w, u);
}

/* Pushes the next source without a form. 1 pushed, 0 all have one, -1 failed. */
static int next_source(rewriter *w, kn_uop u) {
    ki_visit *v = visit(w, u->id);
    uint32_t k = AT(v), flags = v->at & (BUSY | TRIED);
    for (; k < u->nsrc; k++) {
        if (body(w, u, k) || visit(w, u->src[k]->id)->form) continue;
        visit(w, u->id)->at = k | flags;
        return push(w, u->src[k]->id) ? 1 : -1;
    }
    visit(w, u->id)->at = k | flags;
    return 0;
}

/* ---- drivers: one step on the top of the stack ------------------------------------------------------------- */

static bool link_to(rewriter *w, kn_uop u, kn_uop v) {
    if (!ki_memo_room(w->memo, w->ir->n)) return nomem(w);
    visit(w, u->id)->link = v->id;
    return true;
}

/* Follows a link. 1 handled, 0 no link, -1 failed. */
static int follow(rewriter *w, kn_uop u) {
    uint32_t to = visit(w, u->id)->link;
    if (!to) return 0;
    uint32_t form = visit(w, to)->form;
    if (form) settle(w, u->id, form);
    else if (!push(w, to)) return -1;
    return 1;
}

/* x, which a rule made, to its end, if that takes no stack: what it is made of is final, and so is that of what it becomes.
 * 1: *form is its final form; 0: it is visited like any other; -1 failed. */
static int finish(rewriter *w, kn_uop x, uint32_t *form) {
    for (;;) {
        const ki_visit *met = visit(w, x->id);
        if (met->form) return *form = met->form, 1;
        if (met->link || met->at) return 0;
        for (uint32_t k = 0; k < x->nsrc; k++)
            if (body(w, x, k) || visit(w, x->src[k]->id)->form != x->src[k]->id) return 0;
        kn_uop y;
        if (!apply(w, x, &y)) return -1;
        if (y == x) return *form = visit(w, x->id)->form = x->id, 1;
        if (!link_to(w, x, y)) return -1;
        x = y;
    }
}

static bool fixpoint_step(rewriter *w, kn_uop u) {
    int done = follow(w, u);
    if (done == 0) done = next_source(w, u);
    if (done) return done > 0;
    kn_uop v = rebuild(w, u), x;
    if (!v || !ki_memo_room(w->memo, w->ir->n)) return v ? nomem(w) : false;
    if (v != u && (visit(w, v->id)->form || visit(w, v->id)->link || visit(w, v->id)->at)) return link_to(w, u, v);
    /* Its sources are final, so v need not be visited. */
    if (!apply(w, v, &x)) return false;
    uint32_t form = v->id;
    if (x != v) {
        if (!link_to(w, v, x)) return false;
        int ended = finish(w, x, &form);
        if (ended <= 0) return ended == 0 && (v == u || link_to(w, u, x));
    }
    visit(w, v->id)->form = form;
    settle(w, u->id, form);
    return true;
}

static bool topdown_step(rewriter *w, kn_uop u) {
    int done = follow(w, u);
    if (done) return done > 0;
    if (!(visit(w, u->id)->at & TRIED)) {
        kn_uop v;
        visit(w, u->id)->at |= TRIED;
        if (!apply(w, u, &v)) return false;
        if (v != u) return link_to(w, u, v);
    }
    done = next_source(w, u);
    if (done) return done > 0;
    kn_uop v = rebuild(w, u);
    if (!v || !ki_memo_room(w->memo, w->ir->n)) return v ? nomem(w) : false;
    settle(w, u->id, v->id);
    return true;
}

static bool walk_step(rewriter *w, kn_uop u) {
    int done = next_source(w, u);
    if (done) return done > 0;
    kn_uop v = rebuild(w, u), x;
    if (!v || !apply(w, v, &x)) return false;
    if (!ki_memo_room(w->memo, w->ir->n)) return nomem(w);
    settle(w, u->id, x->id);
    return true;
}

/* ---- entry ------------------------------------------------------------------------------------------------- */

static bool keeps_forms(const ki_rewrite_opts *o) {
    for (unsigned k = 0; k < o->nsets; k++)
        if (!o->sets[k]->pure) return false;
    return o->driver == KI_FIXPOINT && o->memo && !o->stays;
}

/* Forms of another call hold only for the same rules and options, after a call that did not fail. */
static void open_memo(rewriter *w) {
    uint64_t key = ki_hash2(w->o->fp, ki_hash2(w->o->closed, w->o->floor));
    for (unsigned k = 0; k < w->o->nsets; k++) key = ki_hash2(key, (uint64_t)(uintptr_t)w->o->sets[k]);
    if (!keeps_forms(w->o) || w->memo->key != key || w->memo->epoch == 0) ki_memo_clear(w->memo);
    w->memo->key = keeps_forms(w->o) ? key : 0;
}

/* Until the stack is empty. */
static bool climb(rewriter *w) {
    bool ok = true;
    while (ok && w->nstack) {
        kn_uop u = w->ir->node[w->stack[w->nstack - 1]];
        switch (w->o->driver) {
        case KI_FIXPOINT: ok = fixpoint_step(w, u); break;
        case KI_TOPDOWN: ok = topdown_step(w, u); break;
        case KI_WALK: ok = walk_step(w, u); break;
        }
    }
    return ok;
}

/* The first of n nodes that a rule fires on, *x what it becomes; all before it are final then. n: there is none; -1 failed. */
static int64_t first_change(rewriter *w, const kn_uop *node, int64_t n, kn_uop *x) {
    for (int64_t i = 0; i < n; i++) {
        if (!apply(w, node[i], x)) return -1;
        if (*x == node[i]) continue;
        for (int64_t k = 0; k < i; k++) visit(w, node[k]->id)->form = node[k]->id;
        return i;
    }
    return n;
}

/* v, u over the final forms of its sources, is x by a rule, or final. */
static bool became(rewriter *w, kn_uop u, kn_uop v, kn_uop x) {
    uint32_t form = v->id;
    int ended = 1;
    if (x != v && !link_to(w, v, x)) return false;
    if (x != v) ended = finish(w, x, &form);
    if (ended > 0) return visit(w, v->id)->form = visit(w, u->id)->form = form, true;
    return ended == 0 && (v == u || link_to(w, u, x)) && push(w, u->id) && climb(w);
}

/* fixpoint over what is there already, sources first: only what rules make takes the stack. */
static bool sweep(rewriter *w, kn_uop root) {
    kn_uop *node, x;
    int64_t n = ki_toposort(w->ir, &root, 1, &node), i = 0;
    bool ok = n >= 0 && (i = first_change(w, node, n, &x)) >= 0;
    if (ok && i == n) visit(w, root->id)->form = root->id;
    else if (ok) ok = became(w, node[i], node[i], x);
    while (ok && ++i < n) {
        kn_uop u = node[i], v;
        ki_visit *own = visit(w, u->id);
        if (own->form) continue;
        if ((v = rebuild(w, u)) == u && !own->link && !w->rules[u->op]) { /* as most are */
            own->form = u->id;
            continue;
        }
        if (!v || !ki_memo_room(w->memo, w->ir->n)) {
            ok = v ? nomem(w) : false;
            break;
        }
        const ki_visit *met = visit(w, v->id);
        if (v == u ? met->link : met->form || met->link) /* made of another node before */
            ok = (v == u || link_to(w, u, v)) && push(w, u->id) && climb(w);
        else if ((ok = apply(w, v, &x)) && x == v) visit(w, v->id)->form = visit(w, u->id)->form = v->id;
        else ok = ok && became(w, u, v, x);
    }
    if (n >= 0) ki_free(node);
    return ok;
}

static kn_uop run(rewriter *w, kn_uop root) {
    open_memo(w);
    if (!ki_memo_room(w->memo, w->ir->n)) return nomem(w), NULL;
    if (visit(w, root->id)->form) return w->ir->node[visit(w, root->id)->form];
    bool sweeps = w->o->driver == KI_FIXPOINT && !w->o->memo && !w->o->floor && !w->o->stays && !w->o->closed;
    bool ok = sweeps ? sweep(w, root) : push(w, root->id) && climb(w);
    if (ok) return w->ir->node[w->memo->visit[root->id].form];
    w->memo->key = 0;
    return NULL;
}

/* Which sets have rules for an op. Set by set: a compiler makes vectors of it. */
static void find_rules(const ki_rewrite_opts *o, uint8_t *rules) {
    memset(rules, 0, KI_OP_COUNT);
    for (unsigned k = 0; k < o->nsets; k++) {
        const uint16_t *root = o->sets[k]->root;
        uint8_t bit = (uint8_t)(1u << k);
        for (unsigned op = 0; op < KI_OP_COUNT; op++) rules[op] |= root[op] ? bit : 0;
    }
}

/* No rule's root is like any node up to the root's id: nothing to do. Nodes that the root does not reach make the answer
 * false at worst. */
static bool nothing_fits(const ki_ir *ir, kn_uop root, const ki_rewrite_opts *o, const uint8_t *rules) {
    for (uint32_t id = 1; id <= root->id; id++) {
        kn_uop u = ir->node[id];
        for (unsigned left = rules[u->op]; left; left &= left - 1) {
            const ki_ruleset *s = o->sets[ki_ctz64(left)];
            const ki_bucket *b = ki_dispatch(s, u);
            for (unsigned i = 0; i < b->n; i++) {
                const ki_entry *e = &s->entry[s->list[b->first + i]];
                if (ki_entry_fits(s, e, u) && s->rule[e->rule].kind == KI_R_REWRITE) return false;
            }
        }
    }
    return true;
}

static ki_memo *spare(ki_ir *ir, bool used) {
    for (unsigned k = 0; k < 2; k++)
        if ((ir->spare_memo[k].visit != NULL) == used) return &ir->spare_memo[k];
    return NULL;
}

static ki_memo take_memo(ki_ir *ir) {
    ki_memo *s = spare(ir, true), m = {0};
    if (s) m = *s, *s = (ki_memo){0};
    return m;
}

static void give_memo(ki_ir *ir, ki_memo *m) {
    ki_memo *s = m->visit ? spare(ir, false) : NULL;
    if (s) *s = *m;
    else ki_memo_free(m);
}

kn_uop ki_rewrite(ki_ir *ir, kn_uop root, const ki_rewrite_opts *opts) {
    if (!root || ir->env->err != KI_E_NONE) return NULL;
    uint8_t rules[KI_OP_COUNT];
    bool known = !opts->memo && !opts->floor && opts->nsets <= 8;
    if (known) find_rules(opts, rules);
    if (known && nothing_fits(ir, root, opts, rules)) return root;
    ki_memo own = {0};
    if (!opts->memo) own = take_memo(ir);
    rewriter w = {.ir = ir, .o = opts, .memo = opts->memo ? opts->memo : &own, .rules = known ? rules : NULL};
    w.m.ir = ir;
    w.m.user = opts->user;
    w.limit = opts->budget ? opts->budget : 10000 + 64 * (uint64_t)ir->n;
    for (unsigned k = 0; k < opts->nsets && k < 8 && opts->stats; k++)
        w.count[k] = ki_stats_for(opts->stats, opts->sets[k]);
    kn_uop out = opts->nsets > 8 ? (ki_fail(ir->env, KI_E_RULE_LIMIT, "rule sets", 8), NULL) : run(&w, root);
    ki_free(w.stack);
    ki_free(w.src);
    if (!opts->memo) give_memo(ir, &own);
    return out;
}

kn_uop ki_simplify_with(ki_ir *ir, kn_uop root, const ki_ruleset *set, ki_memo *memo) {
    return ki_rewrite(ir, root, &(ki_rewrite_opts){.sets = &set, .nsets = 1, .memo = memo});
}

kn_uop ki_rewrite_one(ki_ir *ir, kn_uop root, const ki_rewrite_opts *opts, const ki_rule **fired) {
    if (!root || ir->env->err != KI_E_NONE) return NULL;
    rewriter w = {.ir = ir, .o = opts, .limit = UINT64_MAX};
    w.m.ir = ir;
    w.m.user = opts->user;
    kn_uop v;
    if (!apply(&w, root, &v) || v == root) return NULL;
    if (fired) *fired = w.m.rule;
    return v;
}

/* ---- gradients --------------------------------------------------------------------------------------------- */

static bool grad_outputs(ki_match *m, kn_uop *out) {
    const ki_rule *r = m->rule;
    const ki_pat *p = &m->set->pat[r->pat];
    for (unsigned k = 0; k < r->ngrad; k++) {
        unsigned term = m->set->kid[r->rhs + k], at = k;
        const ki_term *t = &m->set->term[term];
        for (unsigned j = 1; j < r->npat; j++) /* a commuted root swaps its two results */
            if (p[j].parent == 0 && p[j].swap != KI_NOREG && p[j].src == k) at = k ^ (m->variant >> p[j].swap & 1);
        if (t->kind == KI_T_NOTHING) continue;
        if (t->kind == KI_T_MAP) {
            uint32_t n = ki_match_val(m, t->x).n;
            for (m->at = 0; m->at < n; m->at++) {
                m->mapped = 1;
                out[at + m->at] = ki_build_term(m, m->set->kid[t->kid]);
                if (!out[at + m->at]) return false;
            }
            m->mapped = 0;
            continue;
        }
        out[at] = ki_build_term(m, (uint16_t)term);
        if (!out[at]) return false;
    }
    return true;
}

static bool saw_gradients(ki_match *m, uint32_t since) {
    for (uint32_t k = 0; m->ir->env->watch && k < m->root->nsrc; k++)
        if (m->out[k] && !ki_watch_rewrite(m->ir, m->set, m->rule, m->root, m->out[k], since)) return false;
    return true;
}

int ki_grad_apply(ki_match *m, const ki_ruleset *set, uint32_t rule, uint32_t variant, kn_uop root) {
    if (set->rule[rule].kind != KI_R_GRAD || !ki_match_rule(m, set, rule, variant, root)) return 0;
    memset(m->out, 0, root->nsrc * sizeof *m->out);
    uint32_t since = m->ir->n;
    if (m->rule->does ? set->does[m->rule->does].fn(m) != NULL : grad_outputs(m, m->out))
        return saw_gradients(m, since) ? 1 : -1;
    if (m->ir->env->err == KI_E_NONE) return 0;
    ki_fail_note(m->ir->env, "while applying grad %s (%s:%u)", ki_rule_name(set, m->rule), set->source,
                 (unsigned)m->rule->line);
    return -1;
}

int ki_grad_rules(ki_ir *ir, const ki_ruleset *set, kn_uop root, kn_uop g, kn_uop *out, void *user) {
    if (!root || !g || ir->env->err != KI_E_NONE) return -1;
    ki_match m = {.ir = ir, .user = user, .grad = g, .out = out};
    const ki_bucket *b = ki_dispatch(set, root);
    for (unsigned i = 0; i < b->n; i++) {
        const ki_entry *e = &set->entry[set->list[b->first + i]];
        int r = ki_entry_fits(set, e, root) ? ki_grad_apply(&m, set, e->rule, e->variant, root) : 0;
        if (r) return r;
    }
    return 0;
}
