/* moves.c: what search tries next: a table of generators. Each looks at a kernel, and at the list that made it, and puts down
 * lists that are worth a try: the list and an OptOp or two, or the list with one thing changed. A generator need not know
 * what is legal (ki_apply_opts does), only what could pay; the numbers it tries are few and stand with it. */
#include "stages/3_optimize/choose.h"
#include "stages/3_optimize/search.h"

#include <string.h>

/* ---- putting lists down ------------------------------------------------------------------------------------ */

static void put(ki_moves *m, const ki_opt *opt, size_t n) {
    if (m->nomem || !ki_array_grow(&m->out, &m->outcap, m->nout + n, sizeof *m->out)) m->nomem = true;
    else if (n) memcpy(m->out + m->nout, opt, n * sizeof *opt), m->nout += n;
}
static void end_list(ki_moves *m) {
    if (m->nomem || !ki_array_grow(&m->end, &m->cap, m->n + 1, sizeof *m->end)) m->nomem = true;
    else m->end[m->n++] = (uint32_t)m->nout;
}
/* The list, and then these. */
static void append(ki_moves *m, const ki_opt *more, size_t n) {
    put(m, m->opt, m->nopt);
    put(m, more, n);
    end_list(m);
}
/* The list with opt[at] another one, or without it. */
static void edit(ki_moves *m, uint32_t at, const ki_opt *instead) {
    put(m, m->opt, at);
    if (instead) put(m, instead, 1);
    put(m, m->opt + at + 1, m->nopt - at - 1);
    end_list(m);
}

static ki_opt split(kn_uop r, kn_axis to, bool top, int64_t f) {
    return (ki_opt){.op = KI_OPT_SPLIT,
                    .target = (uint8_t)to,
                    .top = top,
                    .axis = (int32_t)r->arg.range.id,
                    .arg = (int32_t)f,
                    .id = -1};
}
static ki_opt simple(ki_optop op, int64_t axis, int64_t arg) {
    return (ki_opt){.op = (uint8_t)op, .axis = (int32_t)axis, .arg = (int32_t)arg, .id = -1};
}

/* ---- what there is to move --------------------------------------------------------------------------------- */

/* The q-th loop that is no lane and no thread; NULL: this one is not. */
static kn_uop loop_at(const ki_moves *m, uint32_t q) {
    kn_uop r = m->k->scope.range[q];
    return ki_is_serial(r) && ki_nest_closer(m->k, r) && ki_extent(r) >= 2 ? r : NULL;
}
static bool of_reduce(const ki_moves *m, kn_uop r) { return ki_nest_closer(m->k, r)->op == KN_REDUCE; }
#define EACH_LOOP(m, r)                                                                                                \
    for (uint32_t q_ = 0; q_ < (m)->k->scope.nrange; q_++)                                                             \
        if ((r = loop_at(m, q_)))

/* Each loop of a sum, or of none: whole vectors of it up to `most`, or a few. */
static void lanes(ki_moves *m, bool sum, kn_axis to, int64_t most, const int *few, size_t n) {
    kn_uop r;
    EACH_LOOP(m, r) {
        if (of_reduce(m, r) != sum) continue;
        for (int64_t v = 1; v <= most; v *= 2) {
            ki_opt o = split(r, to, false, v * m->lanes);
            if (ki_extent(r) % o.arg == 0) append(m, &o, 1);
        }
        for (size_t i = 0; i < n; i++) {
            ki_opt o = split(r, to, false, few[i]);
            if (ki_extent(r) % few[i] == 0 && few[i] < (int)m->lanes) append(m, &o, 1);
        }
    }
}
/* Lanes of a vector, several vectors, or a few lanes for a register tile. */
static void upcast(ki_moves *m) { lanes(m, false, KN_AX_UPCAST, 4, (const int[]){2, 3, 4, 6, 8}, 5); }
/* Vectors along a sum, or several accumulators. */
static void unroll(ki_moves *m) { lanes(m, true, KN_AX_UNROLL, 8, (const int[]){2, 4}, 2); }

/* The remainder of a vector taken off, or made up. */
static void even(ki_moves *m) {
    kn_uop r;
    EACH_LOOP(m, r) {
        int64_t n = ki_extent(r), l = m->lanes;
        if (n % l == 0 || n < l / 2) continue;
        ki_opt pad[2] = {simple(KI_OPT_PADTO, r->arg.range.id, l),
                         split(r, of_reduce(m, r) ? KN_AX_UNROLL : KN_AX_UPCAST, false, l)};
        append(m, pad, 2);
        if (n < 2 * l || of_reduce(m, r)) continue;
        ki_opt cut[2] = {simple(KI_OPT_CUT, r->arg.range.id, n - n % l), pad[1]};
        append(m, cut, 2);
    }
}

/* A register tile in two directions at once: neither half pays alone. */
static void tile(ki_moves *m) {
    static const struct {
        int rows, vectors;
    } size[] = {{4, 2}, {6, 2}, {8, 2}, {4, 4}, {6, 4}, {8, 3}, {12, 2}, {8, 1}, {12, 1}, {2, 4}, {3, 8}};
    kn_uop u, v;
    EACH_LOOP(m, u) {
        if (of_reduce(m, u)) continue;
        for (uint32_t p = 0; p < m->k->scope.nrange; p++) {
            v = loop_at(m, p);
            if (!v || v == u || of_reduce(m, v)) continue;
            for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
                ki_opt o[2] = {split(u, KN_AX_UPCAST, false, size[i].rows),
                               split(v, KN_AX_UPCAST, false, (int64_t)size[i].vectors * m->lanes)};
                if (ki_extent(u) % o[0].arg == 0 && ki_extent(v) % o[1].arg == 0) append(m, o, 2);
            }
        }
    }
}

/* Two loops that stand beside each other. */
static void swap(ki_moves *m) {
    kn_uop r;
    EACH_LOOP(m, r) {
        kn_uop c = ki_nest_closer(m->k, r);
        for (uint32_t j = 1; j + 1 < c->nsrc; j++) {
            kn_uop next = c->src[j + 1];
            if (c->src[j] != r || !ki_is_serial(next)) continue;
            ki_opt o = simple(KI_OPT_SWAP, r->arg.range.id, next->arg.range.id);
            append(m, &o, 1);
        }
    }
}

/* A loop and the next inside it as one. */
static void join(ki_moves *m) {
    kn_uop r;
    EACH_LOOP(m, r) {
        kn_uop c = ki_nest_closer(m->k, r), next = NULL;
        for (uint32_t j = 1; j + 1 < c->nsrc; j++)
            if (c->src[j] == r) next = c->src[j + 1];
        if (!next || ki_is_lane(next)) continue;
        ki_opt o = simple(KI_OPT_JOIN, r->arg.range.id, next->arg.range.id);
        append(m, &o, 1);
    }
}

/* A loop in blocks, the blocks outermost: what the inner loops touch fits a cache. */
static void block(ki_moves *m) {
    kn_uop r;
    EACH_LOOP(m, r) {
        kn_uop c = ki_nest_closer(m->k, r);
        for (int64_t f = 4; f <= 512; f *= 2) {
            ki_opt o[2] = {split(r, (kn_axis)r->arg.range.axis, false, f), {0}};
            if (ki_extent(r) % f || ki_extent(r) == f) continue;
            size_t n = 1;
            for (uint32_t j = 1; j < c->nsrc && n == 1; j++) { /* the rest keeps r's id and goes to the front */
                kn_uop first = c->src[j];
                if (first == r) break;
                if (ki_is_serial(first)) o[n++] = simple(KI_OPT_SWAP, first->arg.range.id, r->arg.range.id);
            }
            append(m, o, n);
        }
    }
}

/* An operand packed before a loop, or before all; dealt out; framed. */
static void stage(ki_moves *m) {
    const ki_scope *s = &m->k->scope;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop p = s->node[i], r;
        if (p->op != KN_PARAM || p->arg.param->slot < 0 || ki_rank(p) != 1) continue;
        ki_opt o = simple(KI_OPT_DEAL, -1, p->arg.param->slot);
        append(m, &o, 1);
        o.op = KI_OPT_FRAME;
        append(m, &o, 1);
        o.top = true;
        append(m, &o, 1);
        o.top = false;
        o.op = KI_OPT_STAGE;
        append(m, &o, 1);
        EACH_LOOP(m, r) {
            o.axis = (int32_t)r->arg.range.id;
            if (!of_reduce(m, r)) append(m, &o, 1);
        }
    }
}

/* What is summed up down columns, row by row. */
static void rows(ki_moves *m) {
    kn_uop r, j;
    EACH_LOOP(m, r)
    for (uint32_t p = 0; p < m->k->scope.nrange; p++) {
        j = loop_at(m, p);
        if (!j || j == r || of_reduce(m, j) || (!of_reduce(m, r) && ki_nest_independent(m->k, r))) continue;
        ki_opt o = simple(KI_OPT_ROWS, r->arg.range.id, j->arg.range.id);
        o.top = of_reduce(m, r) && ki_target_has(m->target, KN_MULACC);
        for (o.id = 1; o.id <= 8; o.id *= 2) append(m, &o, 1);
    }
}

/* What a maximum is and where, side by side. */
static void first(ki_moves *m) {
    kn_uop r;
    EACH_LOOP(m, r) {
        ki_opt o = simple(KI_OPT_FIRST, r->arg.range.id, 4);
        for (; of_reduce(m, r) && o.arg <= 128 && o.arg < ki_extent(r); o.arg *= 2) append(m, &o, 1);
    }
}

/* Running sums, so many elements side by side. */
static void scan(ki_moves *m) {
    kn_uop r;
    EACH_LOOP(m, r) {
        ki_opt o = simple(KI_OPT_SCAN, r->arg.range.id, 4);
        if (of_reduce(m, r) || ki_nest_independent(m->k, r)) continue;
        for (; o.arg <= 64 && o.arg < ki_extent(r); o.arg *= 2)
            if (ki_extent(r) % o.arg == 0) append(m, &o, 1);
    }
}

/* A row's result, stored while the next one is kept. */
static void late(ki_moves *m) {
    const ki_scope *s = &m->k->scope;
    bool kept = false;
    kn_uop r;
    for (uint32_t i = 0; i < s->n; i++)
        kept |= s->node[i]->op == KN_BUFFER && s->node[i]->arg.buffer->addrspace == KN_LOCAL;
    EACH_LOOP(m, r) {
        ki_opt o = simple(KI_OPT_LATE, r->arg.range.id, 0);
        if (kept && !of_reduce(m, r) && ki_extent(r) > 1) append(m, &o, 1);
    }
}

/* A row's maximum, found along with a sum of the row before: behind the threads, before the two loops are changed. */
static void pipeline(ki_moves *m) {
    uint32_t sums = 0, at = 0;
    kn_uop r;
    for (uint32_t i = 0; i < m->k->scope.n; i++) sums += m->k->scope.node[i]->op == KN_REDUCE;
    for (uint32_t i = 0; i < m->nopt; i++) {
        if (m->opt[i].op == KI_OPT_PIPELINE) return;
        if (m->opt[i].op == KI_OPT_SPLIT && m->opt[i].target == KN_AX_THREAD) at = i + 1;
    }
    EACH_LOOP(m, r) {
        ki_opt o = simple(KI_OPT_PIPELINE, r->arg.range.id, 0);
        if (sums < 2 || of_reduce(m, r) || !ki_nest_independent(m->k, r)) continue;
        put(m, m->opt, at);
        put(m, &o, 1);
        put(m, m->opt + at, m->nopt - at);
        end_list(m);
    }
}

static void thread(ki_moves *m) {
    kn_uop r;
    unsigned all = m->machine->threads;
    for (uint32_t q = 0; q < m->k->scope.nrange; q++)
        if (m->k->scope.range[q]->arg.range.axis == KN_AX_THREAD) return;
    EACH_LOOP(m, r) {
        if (of_reduce(m, r) || ki_nest_closer(m->k, r)->src[1] != r) continue;
        for (unsigned t = all; t > 1; t /= 2) {
            ki_opt o = split(r, KN_AX_THREAD, true, t);
            append(m, &o, 1);
        }
    }
}

/* Of outputs as large as the heuristics' (stream.c): that a smaller one stays in a cache for whoever reads it next, a kernel measured alone
 * does not show. */
static void stream(ki_moves *m) {
    const ki_scope *s = &m->k->scope;
    uint64_t least = m->machine->stream;
    for (uint32_t i = 0; i < s->n && m->target->stream && least; i++) {
        kn_uop u = s->node[i], p = u->op == KN_STORE && ki_is_access(u->src[0]) ? ki_storage(u->src[0]) : NULL;
        if (!p || p->op != KN_PARAM || u->arg.i == 1 || p->arg.param->slot < 0) continue;
        if ((uint64_t)ki_numel(p) * (uint64_t)ki_itemsize((kn_dtype)p->dtype) < least) continue;
        ki_opt o = simple(KI_OPT_STREAM, p->arg.param->slot, 0);
        append(m, &o, 1);
    }
}

/* ---- changes of the list ----------------------------------------------------------------------------------- */

static void factor(ki_moves *m) {
    for (uint32_t i = 0; i < m->nopt; i++) {
        ki_opt o = m->opt[i];
        const int64_t f = o.arg, other[] = {f * 2, f / 2, f + 1, f - 1, f + 2, f - 2};
        if (o.op != KI_OPT_SPLIT) continue;
        for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
            if (other[k] < 2 || other[k] > 4096 || (k >= 2 && f > 12)) continue;
            o.arg = (int32_t)other[k];
            edit(m, i, &o);
        }
    }
}
static void without(ki_moves *m) {
    for (uint32_t i = 0; i < m->nopt; i++) edit(m, i, NULL);
}
static void exchange(ki_moves *m) {
    for (uint32_t i = 0; i + 1 < m->nopt; i++) {
        put(m, m->opt, i);
        put(m, (ki_opt[]){m->opt[i + 1], m->opt[i]}, 2);
        put(m, m->opt + i + 2, m->nopt - i - 2);
        end_list(m);
    }
}
static void stage_elsewhere(ki_moves *m) {
    kn_uop r;
    for (uint32_t i = 0; i < m->nopt; i++) {
        ki_opt o = m->opt[i];
        if (o.op != KI_OPT_STAGE) continue;
        EACH_LOOP(m, r) {
            o.axis = (int32_t)r->arg.range.id;
            if (!of_reduce(m, r) && o.axis != m->opt[i].axis) edit(m, i, &o);
        }
        o.axis = -1;
        if (m->opt[i].axis >= 0) edit(m, i, &o);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static void (*const generators[])(ki_moves *m) = {
    upcast, even,     unroll, tile,   swap,   join,    block,    stage,           rows, first, scan,
    late,   pipeline, thread, stream, factor, without, exchange, stage_elsewhere,
};
enum { LONG_LIST = 40 }; /* of a kernel with so many decisions only those there are are changed */

void ki_moves_from(ki_moves *m) {
    size_t n = sizeof generators / sizeof *generators;
    for (size_t i = m->nopt > LONG_LIST ? n - 4 : 0; i < n; i++) generators[i](m);
}

void ki_moves_free(ki_moves *m) {
    ki_free(m->out);
    ki_free(m->end);
    m->out = NULL;
    m->end = NULL;
}

size_t ki_moves_knobs(const ki_machine *machine, ki_knobs *out, size_t room) {
    static const uint8_t rows[] = {1, 2, 3, 4, 5, 6, 8, 10, 12};
    size_t n = 0;
#define ADD(...)                                                                                                       \
    do {                                                                                                               \
        if (n < room) out[n++] = (ki_knobs){__VA_ARGS__};                                                              \
    } while (0)
    for (uint8_t pack = 1; pack <= 2; pack++) ADD(.pack = pack);
    for (uint8_t nv = 1; nv <= 6; nv++)
        for (size_t i = 0; i < sizeof rows; i++)
            if (rows[i] * nv >= 3 && rows[i] * nv <= 30)
                for (uint8_t pack = 0; pack <= 2; pack++) ADD(.mu = rows[i], .nv = nv, .pack = pack);
    for (uint8_t unroll = 1; unroll <= 16; unroll *= 2) {
        ADD(.unroll = unroll);
        ADD(.unroll = unroll, .narrow = 1);
        ADD(.unroll = unroll, .plain = 1);
    }
    ADD(.narrow = 1);
    ADD(.narrow = 2);
    ADD(.plain = 1);
    ADD(.stream = 1);
    for (unsigned t = machine->threads / 2; t >= 1; t /= 2) ADD(.threads = t);
#undef ADD
    return n;
}
