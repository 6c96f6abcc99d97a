/* lower.c: the walk over a LINEAR: what is known before (who reads what), then one item after the other. See lower.h. */
#include "stages/8_render/x86/lower.h"

#include "stages/8_render/x86/native.h"

#include "stages/target.h"

#include <string.h>

/* ---- who reads what ---------------------------------------------------------------------------------------------- */

typedef struct reader {
    ki_lower *l;
    kn_uop user;
    bool all; /* a () is wanted in all lanes */
} reader;

static void read(reader *r, kn_uop s, bool all) {
    if (ki_is_const(s) || s->op == KN_BUFFER || s->op == KN_PARAM) {
        if (s->op != KN_PARAM) return;
    }
    ki_lower *l = r->l;
    ki_lval *v = ki_lv(l, s);
    uint32_t at = l->at[r->user->id];
    v->uses++;
    if (at > v->last) v->last = at;
    if (v->block != l->val[at].block) v->outside = 1;
    if (all && !ki_rank(s)) v->wide = 1, v->nwide++;
}

/* A list of indices is read one by one. */
static void read_list(reader *r, kn_uop s) {
    kn_uop plus, list = s->dtype == KN_IDX ? ki_llist(s, &plus) : NULL;
    if (!list) {
        read(r, s, true);
        return;
    }
    for (uint32_t k = 0; k < list->nsrc; k++) read(r, list->src[k], false);
    if (plus) read(r, plus, false);
}

static void read_address(reader *r, const ki_address *a) {
    if (a->affine) {
        int64_t start = 0;
        kn_uop base = ki_lpeel(a->base, &start);
        if (base) read(r, base, false);
    } else {
        read_list(r, a->base);
    }
}

/* Whether u's operands are wanted in all lanes. */
static bool is_wide(kn_uop u) {
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (ki_rank(u->src[k])) return true;
    return ki_rank(u) > 0;
}

static bool read_sources(ki_lower *l, kn_uop u) {
    reader r = {.l = l, .user = u};
    uint32_t from = 0, to = u->nsrc;
    bool all = u->op == KN_INS && is_wide(u);
    if (ki_lv(l, u)->induction) {
        const ki_linduction *x = &l->induction[ki_lv(l, u)->induction - 1];
        for (unsigned k = 0; k < x->n; k++) read(&r, x->fixed[k], false);
        return true;
    }
    switch ((kn_op)u->op) {
    case KN_LOAD:
    case KN_STORE:
    case KN_ATOMICADD:
        read_address(&r, ki_lplace(l, u));
        all = u->src[0]->type->rank > 0;
        from = 1;
        break;
    case KN_INDEX:
        if (ki_is_memory(u)) return true;
        to = 1;
        if (ki_lentry(u)) read(&r, ki_lentry(u), false);
        break;
    case KN_AFTER:
        if (ki_is_memory(u)) return true;
        to = 1;
        break;
    case KN_RANGE:
    case KN_IF: to = 1; break;
    case KN_END:
    case KN_ENDIF:
    case KN_SPECIAL:
    case KN_PARAM:
    case KN_BUFFER:
    case KN_GROUP:
    case KN_BARRIER:
    case KN_NOOP: return true;
    default: break;
    }
    for (uint32_t k = from; k < to; k++) read(&r, u->src[k], all);
    return true;
}

static bool is_effect(kn_uop u) { return ki_ops[u->op].flags & KI_EFFECT || u->op == KN_RANGE || u->op == KN_PARAM; }

/* Loops around each item, and how many stores, loops and branches came before it. */
static bool find_blocks(ki_lower *l) {
    uint32_t open[64], top = 0, next = 0, epoch = 0;
    open[0] = next++;
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->inst[i];
        l->at[u->id] = i;
        if (u->op == KN_END || u->op == KN_ENDIF) {
            uint32_t close = u->op == KN_END ? u->nsrc - 1 : 1;
            if (close > top) return ki_lfail(l, u, "closes more loops than are open");
            top -= close;
        }
        l->val[i].block = open[top];
        if (u->op == KN_STORE || u->op == KN_ATOMICADD || u->op == KN_RANGE || u->op == KN_END || u->op == KN_IF ||
            u->op == KN_ENDIF)
            epoch++;
        l->epoch[i] = epoch;
        if (u->op == KN_RANGE || u->op == KN_IF) {
            if (top == 63) return ki_lfail(l, u, "more than 63 loops in one another");
            open[++top] = next++;
        }
    }
    return !top || ki_lfail(l, l->kernel, "a loop is not closed");
}

static bool find_uses(ki_lower *l) {
    for (uint32_t i = l->n; i-- > 0;)
        if ((is_effect(l->inst[i]) || l->val[i].uses) && !read_sources(l, l->inst[i])) return false;
    return true;
}

/* LOADs that may wait for their one user, and those that go to a general register. */
static void find_deferred(ki_lower *l) {
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->inst[i];
        if (u->op == KN_CAST && u->dtype == KN_IDX && u->src[0]->op == KN_LOAD && ki_lv(l, u->src[0])->uses == 1 &&
            u->src[0]->nsrc == 1 && !ki_rank(u->src[0]))
            ki_lv(l, u->src[0])->general = ki_is_int((kn_dtype)u->src[0]->dtype);
        kn_uop word = l->val[i].uses ? ki_lword(u) : NULL;
        if (word && ki_lv(l, u->src[0])->uses != 1) word = NULL;
        if ((u->op != KN_INS && !word) || l->m.sse || !l->val[i].uses) continue;
        for (uint32_t k = 0; k < (word ? 1 : u->nsrc); k++) {
            kn_uop s = word ? word : u->src[k];
            if (s->op != KN_LOAD || s->nsrc != 1 || s->dtype == KN_BOOL || ki_lis_tile(s)) continue;
            ki_lval *v = ki_lv(l, s);
            const ki_address *a = ki_lplace(l, s);
            if (v->uses != 1 || v->outside || l->epoch[l->at[s->id]] != l->epoch[i]) continue;
            bool slice = a->buf->op == KN_BUFFER && ki_local_of(&l->local, a->buf)->split;
            v->deferred = !slice && a->affine && (a->lanes == 1 || a->stride == 1);
        }
    }
}

#define PAST 3 /* lines that a loop asks for where it stores past the caches, for one elsewhere */

/* How much time an asking loop has, counted in lines: memory is busy with what it stores past the caches. */
static uint16_t share_of(const ki_lower *l, uint32_t axis) {
    int64_t depth = 0; /* loops that are open, from this one on */
    for (uint32_t i = 0; i < l->n; i++) {
        kn_uop u = l->inst[i];
        if (u->op == KN_RANGE && (depth || u->arg.range.id == axis)) depth++;
        if (u->op == KN_END && depth) depth = depth < u->nsrc ? 0 : depth - (u->nsrc - 1);
        if (depth && u->op == KN_STORE && u->arg.i) return PAST;
    }
    return 1;
}

/* Is the row behind this one read too (3_optimize/pipelined.c)? Then it alone is asked for: it is an access to what stands in an AFTER. */
static bool is_ahead(kn_uop u) { return u->src[0]->op == KN_INDEX && u->src[0]->src[0]->op == KN_AFTER; }
static bool reads_ahead(const ki_lower *l, const ki_kernel *info, int32_t slot) {
    bool is = false;
    for (uint32_t k = 0; k < info->nopt; k++) is |= info->opt[k].op == KI_OPT_PIPELINE;
    for (uint32_t i = 0; is && i < l->n; i++)
        if (l->inst[i]->op == KN_LOAD && is_ahead(l->inst[i]) && ki_lmoves_vector(l, l->inst[i], slot)) return true;
    return false;
}

/* Do both ask for the same lines? */
static bool is_same(const ki_opt *o, const ki_opt *p) {
    return p->op == o->op && p->id == o->id && p->arg == o->arg && p->top == o->top;
}

/* Has the loop been given the same before? */
static bool is_repeated(const ki_kernel *info, uint32_t k) {
    uint32_t i = 0;
    while (i < k && !(is_same(&info->opt[i], &info->opt[k]) && info->opt[i].axis == info->opt[k].axis)) i++;
    return i < k;
}

/* The OptOps PREFETCH: the LOADs and STOREs of whole vectors, the squares, and the LOADs of tiles, that stand in the loop, in none inside it. What several loops ask for is shared
 * out by lines; what a loop asks for several times is not. */
static void find_ahead(ki_lower *l, const ki_kernel *info) {
    for (uint32_t k = 0; info && k < info->nopt; k++) {
        const ki_opt *o = &info->opt[k];
        uint16_t part = 0, parts = 0, share = 0;
        uint8_t often = 0;
        if (o->op != KI_OPT_PREFETCH || is_repeated(info, k)) continue;
        if (o->arg <= KI_MOST_LED) {
            ki_lfind_led(l, o);
            continue;
        }
        for (uint32_t i = 0; i < info->nopt; i++) {
            const ki_opt *p = &info->opt[i];
            if (!is_same(o, p)) continue;
            often += p->axis == o->axis;
            if (is_repeated(info, i)) continue;
            uint16_t n = share_of(l, (uint32_t)p->axis);
            part += i < k ? n : 0, parts += n;
            if (i == k) share = n;
        }
        int64_t depth = 0;
        bool next = reads_ahead(l, info, o->id);
        for (uint32_t i = 0; i < l->n; i++) {
            kn_uop u = l->inst[i];
            if (u->op == KN_RANGE && (depth || u->arg.range.id == (uint32_t)o->axis)) depth++;
            if (u->op == KN_END && depth) depth = depth < u->nsrc ? 0 : depth - (u->nsrc - 1);
            kn_uop from = l->val[i].square && u->op == KN_LOAD ? l->local.address[i].buf : NULL;
            kn_uop rows = u->op == KN_LOAD && ki_lis_tile(u) ? l->local.address[i].buf : NULL;
            bool square = from && from->op == KN_PARAM && ki_lslot(from) == o->id;
            bool tile = rows && rows->op == KN_PARAM && ki_lslot(rows) == o->id;
            if (depth != 1 || (!square && !tile && !ki_lmoves_vector(l, u, o->id)) || (next && !is_ahead(u))) continue;
            l->val[i].ahead = o->arg, l->val[i].second = o->top, l->val[i].often = often;
            l->val[i].part = part, l->val[i].parts = parts, l->val[i].share = share;
        }
    }
}

/* Of a LOAD or a STORE of a slice, else NULL. */
static const ki_address *slice_access(const ki_lower *l, uint32_t item) {
    kn_uop u = l->inst[item];
    const ki_address *a = u->op == KN_LOAD || u->op == KN_STORE ? &l->local.address[item] : NULL;
    return a && a->buf->op == KN_BUFFER && ki_local_of(&l->local, a->buf)->split ? a : NULL;
}

static bool find_accesses(ki_lower *l) {
    if (!(l->sliced = ki_calloc((size_t)l->n + 1, sizeof *l->sliced))) return ki_fail(l->ir->env, KI_E_NOMEM), false;
    for (uint32_t i = 0; i < l->n; i++)
        if (slice_access(l, i)) l->sliced[l->nsliced++] = i;
    return true;
}

/* Slices: LOADs that need no copy, and values that are written to the slice where they are made. */
static bool find_slices(ki_lower *l) {
    typedef struct past {
        uint32_t load, store, live; /* 1 + item of the last one; last use of those read without a copy */
    } past;
    size_t n = 0;
    for (uint32_t k = 0; k < l->local.n; k++)
        if (l->local.local[k].split) n += (size_t)l->local.local[k].buf->arg.buffer->size;
    if (!n) return true;
    if (!find_accesses(l)) return false;
    past *p = ki_calloc(n, sizeof *p);
    uint32_t *next = ki_calloc(n, sizeof *next); /* 1 + the next STORE, backwards */
    size_t *first = ki_calloc((size_t)l->local.n + 1, sizeof *first);
    bool ok = p && next && first;
    if (!ok) ki_fail(l->ir->env, KI_E_NOMEM);
    for (uint32_t k = 0, at = 0; ok && k < l->local.n; k++) {
        first[k] = at;
        if (l->local.local[k].split) at += (uint32_t)l->local.local[k].buf->arg.buffer->size;
    }
    for (int pass = 0; pass < 2 && ok; pass++) /* backwards: LOADs; forwards: STOREs */
        for (uint32_t j = 0; j < l->nsliced; j++) {
            uint32_t i = l->sliced[pass ? j : l->nsliced - 1 - j];
            kn_uop u = l->inst[i];
            const ki_address *a = &l->local.address[i];
            size_t c = first[l->local.place[a->buf->id] - 1] + (size_t)a->start;
            ki_lval *v = &l->val[i];
            if (!pass) {
                if (u->op == KN_STORE) next[c] = i + 1;
                else v->alias = !next[c] || (!v->outside && v->last < next[c]);
            } else if (u->op == KN_LOAD) {
                p[c].load = i + 1;
                if (v->alias && v->last + 1 > p[c].live) p[c].live = v->last + 1;
            } else {
                kn_uop s = u->src[1];
                bool loaded = s->op == KN_LOAD && ki_lis_tile(s) && !slice_access(l, l->at[s->id]);
                ki_lval *x = s->op == KN_INS || loaded ? ki_lv(l, s) : NULL;
                uint32_t made = x ? l->at[s->id] : 0;
                if (x && x->uses == 1 && !x->outside && u->nsrc == 2 && s->dtype != KN_BOOL &&
                    ki_llanes(s) == a->lanes && p[c].load <= made && p[c].store <= made && p[c].live <= made + 1)
                    x->slice = i + 1;
                p[c].store = i + 1;
            }
        }
    ki_free(p), ki_free(next), ki_free(first);
    return ok;
}

/* ---- control ----------------------------------------------------------------------------------------------------- */

static ki_mop r64(ki_vreg r) { return ki_mreg(KI_XO_R64, r); }

/* A slice that is written no more, and read only behind a later loop: it is parked in another register behind the END of its own.
 * That one may go to memory while the other loop has its register. */
static bool find_parked(ki_lower *l) {
    if (!l->nsliced) return true;
    uint32_t *end = ki_calloc((size_t)l->n + 1, sizeof *end), *loops = ki_calloc((size_t)l->n + 1, sizeof *loops);
    uint32_t *store = ki_calloc((size_t)l->nslice + 1, sizeof *store); /* 1 + the last one, by slice */
    l->park = ki_calloc((size_t)l->nslice + 1, sizeof *l->park);
    bool ok = (end && loops && store && l->park) || (ki_fail(l->ir->env, KI_E_NOMEM), false);
    for (uint32_t i = l->n; ok && i-- > 0;) end[i] = l->inst[i]->op == KN_END ? i : i + 1 < l->n ? end[i + 1] : l->n;
    for (uint32_t i = 0; ok && i < l->n; i++) loops[i] = (i ? loops[i - 1] : 0) + (l->inst[i]->op == KN_RANGE);
    for (uint32_t j = 0; ok && j < l->nsliced; j++) {
        uint32_t i = l->sliced[j];
        const ki_address *a = &l->local.address[i];
        size_t c = (size_t)(&l->slices[l->local.place[a->buf->id] - 1][a->start] - l->slice_mem);
        if (l->inst[i]->op == KN_STORE) store[c] = i + 1, l->park[c] = 0;
        else if (store[c] && end[store[c]] < i && loops[i] > loops[end[store[c]]])
            l->park[c] = end[store[c]] + 1, l->val[end[store[c]]].parks = 1;
    }
    ki_free(end), ki_free(loops), ki_free(store);
    return ok;
}

static void park(ki_lower *l) {
    for (uint32_t c = 0; c < l->nslice; c++)
        if (l->park[c] == l->now + 1 && l->slice_mem[c])
            l->slice_mem[c] = ki_lmove(l, KI_RC_V, (ki_x86_kind)l->m.v[l->slice_mem[c]].kind, l->slice_mem[c]);
}

static const ki_kernel *info_of(const ki_lower *l) {
    return (l->kernel->op == KN_CALL ? l->kernel->src[0] : l->kernel)->arg.kernel;
}

#define SOME_TRIPS 8 /* of a loop whose bound only running tells */

static bool asks_bytes(const ki_opt *o, kn_uop loop) {
    return o->op == KI_OPT_PREFETCH && (uint32_t)o->axis == loop->arg.range.id && o->arg > KI_MOST_LED;
}

static void open_loop(ki_lower *l, kn_uop u) {
    struct ki_lloop *p = &l->loop[l->depth++];
    kn_uop bound = u->src[0];
    ki_lval *v = ki_lv(l, u);
    *p = (struct ki_lloop){
        .range = u, .head = ki_asm_label(l->a), .bound = bound, .counter = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64)};
    ki_vreg n = ki_is_const(bound) ? 0 : ki_lgeneral(l, bound);
    v->reg = p->counter;
    v->gpr = 1;
    const ki_kernel *info = info_of(l);
    bool sum = info && u->arg.range.axis == KN_AX_REDUCE;
    for (uint32_t k = 0; sum && k < info->nopt; k++)
        if (asks_bytes(&info->opt[k], u)) ki_lask_lines(l, u, &info->opt[k]), ki_lask_terms(l, u, &info->opt[k]);
    KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, p->counter), ki_mimm(0));
    if (bound->lo.i < 1) { /* it may run no time */
        p->done = ki_asm_label(l->a);
        if (n) KI_LPUT(l, KI_X_TEST_EG, r64(n), r64(n));
        KI_LPUT(l, n ? KI_X_JLE : KI_X_JMP, ki_mlabel(p->done));
    }
    ki_lopen_inductions(l);
    p->registers = l->m.nv;
    p->number = ki_mloop_open(&l->m, ki_is_const(bound) ? (float)bound->arg.i : SOME_TRIPS);
    ki_mop head = ki_mlabel(p->head);
    head.v = 32; /* aligned */
    KI_LPUT(l, KI_M_LABEL, head);
    for (uint32_t k = 0; sum && k < info->nopt; k++) {
        const ki_opt *o = &info->opt[k];
        if (!asks_bytes(o, u)) continue;
        if (o->top) ki_lask_copied(l, o);
        else ki_lask_rows(l, p->counter, ki_is_const(bound) ? bound->arg.i : 0, o->id, o->arg);
    }
}

static void close_loop(ki_lower *l) {
    struct ki_lloop *p = &l->loop[--l->depth];
    uint32_t copies = ki_lunroll_loop(l, p);
    ki_lclose_inductions(l, p->range, copies);
    if (copies > 1) KI_LPUT(l, KI_X_ADD_EI, r64(p->counter), ki_mimm(copies));
    else KI_LPUT(l, KI_X_INC, r64(p->counter));
    if (ki_is_const(p->bound) && p->bound->arg.i <= INT32_MAX)
        KI_LPUT(l, KI_X_CMP_EI, r64(p->counter), ki_mimm(p->bound->arg.i - p->bound->arg.i % copies));
    else KI_LPUT(l, KI_X_CMP_GE, r64(p->counter), r64(ki_lgeneral(l, p->bound)));
    KI_LPUT(l, KI_X_JL, ki_mlabel(p->head));
    if (!l->m.failed) l->m.loop[p->number].end = l->m.n - 1;
    if (copies > 1) ki_lunroll_rest(l, p, copies);
    if (p->done) KI_LPUT(l, KI_M_LABEL, ki_mlabel(p->done));
}

static void open_if(ki_lower *l, kn_uop u) {
    struct ki_lloop *p = &l->loop[l->depth++];
    *p = (struct ki_lloop){.done = ki_asm_label(l->a)};
    ki_lskip_unless(l, u->src[0], p->done);
}

/* ---- values from outside ----------------------------------------------------------------------------------------- */

static void argument(ki_lower *l, ki_vreg r, unsigned number) {
    static const uint8_t where[] = {KI_X_RDI, KI_X_RSI, KI_X_RDX};
    l->m.before = true;
    KI_LPUT(l, KI_M_ARG, r64(r), ki_mimm(number));
    l->m.before = false;
    if (r && number < 2) l->m.v[r].hint = KI_PHYSICAL(where[number]);
}

/* seen: how many variables stand before it in the list. */
static void variable(ki_lower *l, kn_uop u, uint32_t seen) {
    if (!l->val[l->now].uses) return;
    ki_lval *v = ki_lv(l, u);
    kn_dtype t = (kn_dtype)u->dtype;
    ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    int64_t place = ki_variable_place(l->kernel, u, seen);
    ki_mop at = {.kind = KI_XO_MEM, .reg = l->var, .scale = 1, .size = 8, .v = 8 * place};
    l->m.before = true;
    KI_LPUT(l, KI_X_MOV_GE, r64(g), at);
    if (t == KN_IDX || t == KN_BOOL) {
        v->reg = g, v->gpr = 1;
    } else {
        v->reg = ki_lfrom_general(l, g, ki_les(u));
    }
    if (v->wide && !v->gpr) v->all = ki_lall(l, v->reg, ki_les(u));
    l->m.before = false;
}

static void special(ki_lower *l, kn_uop u) {
    const ki_bytes *name = u->arg.str;
    ki_lval *v = ki_lv(l, u);
    if (!name || strcmp(name->s, "thread") != 0) {
        ki_lfail(l, u, "the host has only \"thread\"");
        return;
    }
    v->reg = l->thread;
    v->gpr = 1;
}

/* The same bits, or the same value. */
static void same(ki_lower *l, kn_uop u) {
    ki_lval *v = ki_lv(l, u);
    kn_uop s = u->src[0];
    if (u->dtype == KN_IDX || (u->dtype == KN_BOOL && !ki_rank(u) && !ki_is_const(s) && ki_lv(l, s)->gpr)) {
        v->reg = ki_lgeneral(l, s), v->gpr = 1;
    } else if (ki_lis_tile(u)) {
        v->reg = ki_lv(l, s)->reg;
    } else if (u->dtype == KN_BOOL) {
        v->reg = ki_lmask(l, s, ki_llanes(u));
    } else if (s->op != KN_LOAD || !ki_lv(l, s)->deferred) { /* else it is read where its lane is picked */
        v->reg = ki_lmove(l, KI_RC_V, ki_lkind(ki_llanes(u) * ki_les(u)), ki_lvector(l, s, false));
        if (v->wide && !ki_rank(u)) v->all = ki_lall(l, v->reg, ki_les(u));
    }
}

static void missing(ki_lower *l, kn_uop u) {
    ki_fail(l->ir->env, KI_E_RENDER_OP, ki_ops[u->op].name, ki_dtypes[u->dtype].name, ki_rank(u) ? "vector" : "()");
    l->m.failed = true;
}

/* Below AVX-512: bytes of 0 and 1 as truths and back are the same bytes; integers change their width. */
static void cast(ki_lower *l, kn_uop u) {
    kn_uop s = u->src[0];
    ki_lval *v = ki_lv(l, u);
    if (u->dtype == KN_BOOL || s->dtype == KN_BOOL) {
        v->reg = ki_lbytes(l, s, ki_llanes(u));
        if (v->wide && !ki_rank(u)) v->all = ki_lall(l, v->reg, 1);
    } else if (ki_is_int((kn_dtype)u->dtype) && ki_is_int((kn_dtype)s->dtype)) {
        ki_lresize(l, u);
    } else {
        missing(l, u);
    }
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void lower_value(ki_lower *l, kn_uop u) {
    if (!l->val[l->now].uses || ki_is_const(u) || l->val[l->now].induction) return;
    if (ki_lindex(l, u)) {
        if (l->val[l->now].leads) ki_lask_next(l, u);
        return;
    }
    switch ((kn_op)u->op) {
    case KN_LOAD:
        if (!l->val[l->now].deferred) ki_lload(l, u);
        break;
    case KN_INS: ki_lins(l, u); break;
    case KN_STACK: ki_lstack(l, u); break;
    case KN_BITCAST: same(l, u); break;
    case KN_CMPLT:
        if (ki_lsign(u)) l->val[l->now].reg = ki_lvector(l, ki_lsign(u), ki_rank(u) > 0);
        else missing(l, u);
        break;
    case KN_CAST: cast(l, u); break;
    case KN_SPECIAL: special(l, u); break;
    case KN_INDEX:
        if (ki_lword(u) && ki_lv(l, ki_lword(u))->deferred) ki_lload_word(l, u, ki_lword(u));
        else if (ki_lentry(u)) ki_llook_up(l, u);
        else if (!ki_is_memory(u)) ki_lpick(l, u);
        break;
    case KN_AFTER:
        if (!ki_is_memory(u) && u->dtype != KN_VOID) same(l, u);
        break;
    default:
        if (u->dtype == KN_IDX && ki_rank(u)) break; /* an address's tail */
        missing(l, u);
    }
}

static void lower_item(ki_lower *l, kn_uop u) {
    switch ((kn_op)u->op) {
    case KN_PARAM:
        if (u->arg.param->slot < 0) variable(l, u, l->variables++);
        break;
    case KN_BUFFER:
    case KN_GROUP:
    case KN_NOOP:
    case KN_BARRIER: break;
    case KN_RANGE: open_loop(l, u); break;
    case KN_END:
        for (uint32_t k = 1; k < u->nsrc; k++) close_loop(l);
        if (l->val[l->now].parks) park(l);
        break;
    case KN_IF: open_if(l, u); break;
    case KN_ENDIF: KI_LPUT(l, KI_M_LABEL, ki_mlabel(l->loop[--l->depth].done)); break;
    case KN_STORE: ki_lstore(l, u); break;
    case KN_ATOMICADD: ki_latomic(l, u); break;
    default: lower_value(l, u);
    }
}

static bool lower(ki_lower *l) {
    uint32_t top = 0;
    for (uint32_t i = 0; i < l->n; i++)
        if (l->inst[i]->id > top) top = l->inst[i]->id;
    l->at = ki_calloc((size_t)top + 1, sizeof *l->at);
    l->val = ki_calloc((size_t)l->n + 1, sizeof *l->val);
    l->epoch = ki_calloc((size_t)l->n + 1, sizeof *l->epoch);
    if (!l->at || !l->val || !l->epoch) return ki_fail(l->ir->env, KI_E_NOMEM), false;
    if (!ki_locals_open(&l->local, l->ir->env, l->inst, l->n, top) || !ki_lplan_memory(l) || !find_blocks(l) ||
        !ki_lfind_inductions(l) || !find_uses(l) || !ki_lfind_branches(l) || !find_slices(l) || !find_parked(l))
        return false;
    find_deferred(l);
    if (!ki_lfind_squares(l)) return false;
    find_ahead(l, info_of(l));
    l->buf = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    l->var = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    l->thread = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    /* In this order: each is where it belongs before what is left may take the others' registers. */
    argument(l, l->buf, 0);
    argument(l, l->var, 1);
    argument(l, l->thread, 2);
    for (l->now = 0; l->now < l->n && !l->m.failed; l->now++) lower_item(l, l->inst[l->now]);
    return !l->m.failed && ki_mir_join(&l->m);
}

static void close(ki_lower *l) {
    ki_mir_close(&l->m);
    ki_locals_close(&l->local);
    ki_free(l->at), ki_free(l->val), ki_free(l->epoch), ki_free(l->pointer), ki_free(l->slices), ki_free(l->slice_mem);
    ki_free(l->park), ki_free(l->sliced), ki_free(l->induction);
    ki_free(l->unroll.body), ki_free(l->unroll.own), ki_free(l->unroll.seen);
    ki_free(l->konst);
}

bool ki_render_x86(ki_ir *ir, const ki_target *t, kn_uop kernel, ki_x86_text *out, ki_text *listing) {
    kn_uop body = kernel->op == KN_CALL ? kernel->src[0] : kernel;
    *out = (ki_x86_text){0};
    if ((body->op != KN_SINK && body->op != KN_PROGRAM) || body->nsrc < 1 || body->src[0]->op != KN_LINEAR)
        return ki_fail(ir->env, KI_E_RENDER_FORM, ki_ops[body->op].name, "SINK(LINEAR(...)) was expected"), false;
    if (!t->native)
        return ki_fail(
                   ir->env, KI_E_RENDER_FORM, ki_kernel_name(body->arg.kernel),
                   "it was selected for C: it has C text in it (custom), or select did not know that x86 is wanted"),
               false;
    ki_asm a;
    ki_lower l = {.ir = ir, .a = &a, .kernel = kernel, .inst = body->src[0]->src, .n = body->src[0]->nsrc};
    ki_mir_open(&l.m, ir->env, t, l.n / 2);
    ki_asm_open(&a, ir->env, l.m.features);
    a.listing = listing;
    l.m.item = l.inst;
    l.m.ir = ir;
    bool ok = lower(&l) && ki_mregs(&l.m) && ki_memit(&l.m, &a);
    if (ok && listing && (listing->oom || a.note.oom)) ok = (ki_fail(ir->env, KI_E_NOMEM), false);
    if (ok) *out = (ki_x86_text){a.code, a.n, l.m.spills, a.counts}, a.code = NULL;
    close(&l);
    ki_asm_close(&a);
    return ok;
}

void ki_x86_text_free(ki_x86_text *c) {
    ki_free(c->bytes);
    *c = (ki_x86_text){0};
}
