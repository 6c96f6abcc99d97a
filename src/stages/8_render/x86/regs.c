/* regs.c: registers by linear scan.
 *
 * One interval a virtual register, from its first write to its last read, through whole loops where it must (mir.h). In the order
 * intervals begin, each takes a register that no other holds, its hint's first. Where there is none, of all that compete the one
 * that costs least to keep in memory, for as long as it would hold a register, goes there, for all its life: its reads and writes
 * count as often as they are done, constants (which are loaded again from the pool) a quarter. Where what
 * went to memory must pass through a register, the scan is done again with as many set aside as the instruction needs, there and nowhere
 * else: a loop in which nothing is in memory has all of them. */
#include "stages/8_render/x86/mir.h"

#include <math.h>
#include <string.h>

/* In the order they are given away: those a callee need not save first. rax and rdx are the divider's and scratch. */
static const uint8_t general[] = {KI_X_RDI, KI_X_RSI, KI_X_RCX, 8, 9, 10, 11, KI_X_RBX, 12, 13, 14, 15};

/* Registers that may be set aside: of each class those of scratch, in order. rax and rdx always are. */
enum { ASIDE = 6, MOST_ASIDE = 3, TRIES = 8 };
static const uint8_t aside_of[KI_RC_COUNT] = {1, 3, 2, 0}, aside_from[KI_RC_COUNT] = {0, 1, 4, ASIDE};

typedef struct scan {
    ki_mir *m;
    uint8_t *need;  /* by instruction and class: how many it needs set aside; NULL: none does */
    uint32_t *next; /* by instruction and what may be set aside: the first one from there on that needs it */
    uint64_t avail[KI_RC_COUNT], free[KI_RC_COUNT];
    ki_vreg holder[KI_RC_COUNT][32];
    uint32_t until[KI_RC_COUNT][32]; /* the last position of what it holds */
    uint32_t ends[KI_RC_COUNT];      /* nothing that is held ends before */
    uint32_t *order;
} scan;

/* ---- intervals -------------------------------------------------------------------------------------------------- */

typedef struct walk {
    ki_mir *m;
    uint32_t at, next_loop, depth;
    uint32_t open[64]; /* loops around, outermost first */
    float weight, before[64];
} walk;

static void touch(walk *w, ki_vreg r, bool write, bool late) {
    if (!r || ki_is_physical(r)) return;
    ki_vinfo *v = &w->m->v[r];
    uint32_t pos = 2 * w->at + (write || late);
    if (v->first == UINT32_MAX) v->first = pos;
    for (uint32_t d = 0; d < w->depth; d++) { /* the outermost loop that began after it */
        const ki_mloop *l = &w->m->loop[w->open[d]];
        if (2 * l->begin <= v->first) continue;
        pos = 2 * l->end + 1;
        break;
    }
    if (pos > v->last) v->last = pos;
    v->weight += w->weight;
}

static void touch_ins(walk *w, const ki_mins *i) {
    bool late = i->flags & KI_MF_LATE;
    for (unsigned k = 0; k < 4; k++) {
        const ki_mop *o = &i->op[k];
        if (o->kind == KI_XO_MEM) {
            if (o->base == KI_MB_REG) touch(w, o->reg, false, late);
            touch(w, o->index, false, late);
        } else if (o->kind >= KI_XO_R8 && o->kind <= KI_XO_T) {
            bool writes = (k == 0 && i->flags & KI_MF_WRITES0) || (k == 2 && i->flags & KI_MF_WRITES2);
            if (!writes || (k == 0 && i->flags & KI_MF_READS0) || k == 2) touch(w, o->reg, false, late && k);
            if (writes) touch(w, o->reg, true, false);
        }
    }
    touch(w, i->mask, false, late);
}

static bool intervals(ki_mir *m) {
    walk w = {.m = m, .weight = 1};
    for (ki_vreg r = 1; r < m->nv; r++) m->v[r].first = UINT32_MAX, m->v[r].last = 0, m->v[r].weight = 0;
    for (w.at = 0; w.at < m->n; w.at++) {
        while (w.depth && m->loop[w.open[w.depth - 1]].end < w.at) w.weight = w.before[--w.depth];
        while (w.next_loop < m->nloop && m->loop[w.next_loop].begin == w.at) {
            if (w.depth == 64)
                return ki_fail(m->env, KI_E_RENDER_FORM, "range", "more than 64 loops in one another"), false;
            w.before[w.depth] = w.weight;
            w.weight *= fmaxf(1, m->loop[w.next_loop].trips);
            w.open[w.depth++] = w.next_loop++;
        }
        touch_ins(&w, &m->ins[w.at]);
    }
    return true;
}

/* Virtual registers by first position: positions are few, so they are counted. */
static bool sort(scan *s) {
    ki_mir *m = s->m;
    uint32_t *count = ki_calloc(2 * (size_t)m->n + 2, sizeof *count), total = 0;
    if (!count) return ki_fail(m->env, KI_E_NOMEM), false;
    for (ki_vreg r = 1; r < m->nv; r++)
        if (m->v[r].first != UINT32_MAX) count[m->v[r].first + 1]++;
    for (uint32_t p = 0; p < 2 * m->n + 1; p++) count[p + 1] += count[p];
    for (ki_vreg r = 1; r < m->nv; r++)
        if (m->v[r].first != UINT32_MAX) s->order[count[m->v[r].first]++] = r, total++;
    s->order[total] = 0;
    ki_free(count);
    return true;
}

/* ---- the scan --------------------------------------------------------------------------------------------------- */

static void expire(scan *s, unsigned c, uint32_t now) {
    if (now <= s->ends[c]) return;
    s->ends[c] = UINT32_MAX;
    for (uint64_t held = s->avail[c] & ~s->free[c]; held; held &= held - 1) {
        unsigned k = (unsigned)ki_ctz64(held);
        uint32_t last = s->until[c][k];
        if (last < now) s->free[c] |= UINT64_C(1) << k;
        else if (last < s->ends[c]) s->ends[c] = last;
    }
}

/* Those of class c that are set aside while v is held. */
static uint64_t kept_from(const scan *s, unsigned c, const ki_vinfo *v) {
    uint64_t kept = 0;
    for (unsigned k = 0; s->next && k < aside_of[c]; k++)
        if (s->next[(size_t)(v->first / 2) * ASIDE + aside_from[c] + k] <= v->last / 2)
            kept |= UINT64_C(1) << s->m->scratch[c][k];
    return kept;
}

static unsigned pick(uint64_t free, const scan *s, unsigned c, const ki_vinfo *v) {
    if (v->hint) {
        uint8_t k = ki_is_physical(v->hint) ? (uint8_t)(v->hint & 255) : s->m->v[v->hint].reg;
        if (k != KI_X_NOREG && free >> k & 1) return k;
    }
    if (c != KI_RC_G) return (unsigned)ki_ctz64(free);
    for (unsigned k = 0; k < sizeof general; k++)
        if (free >> general[k] & 1) return general[k];
    return KI_X_NOREG;
}

static float cost(const ki_vinfo *v) {
    if (v->last - v->first < 4 && !v->remat) return 1e30f; /* what spilling itself would make */
    return (v->remat ? 0.25f : v->frame ? 0.02f : 1.0f) * v->weight / (float)(v->last - v->first + 1);
}

static void to_memory(ki_mir *m, ki_vinfo *v) {
    v->reg = KI_X_NOREG;
    if (v->frame) return;
    m->spills++;
    if (v->cls == KI_RC_T) { /* tiles.c */
        if (!m->failed) ki_fail(m->env, KI_E_RENDER_FORM, "ins", "more tiles than there are registers");
        m->failed = true;
        return;
    }
    if (v->remat) return;
    static const uint8_t bytes[] = {[KI_XO_R64] = 8, [KI_XO_X] = 16, [KI_XO_Y] = 32, [KI_XO_Z] = 64, [KI_XO_K] = 8};
    unsigned n = bytes[v->kind] ? bytes[v->kind] : 8;
    v->slot = (int32_t)ki_mframe_take(m, n, n);
}

static void give(scan *s, ki_vreg r) {
    ki_mir *m = s->m;
    ki_vinfo *v = &m->v[r];
    unsigned c = v->cls;
    expire(s, c, v->first);
    uint64_t may = s->avail[c] & ~kept_from(s, c, v);
    if (!(s->free[c] & may)) {
        ki_vreg worst = r;
        float least = cost(v);
        for (uint64_t held = may; held; held &= held - 1) {
            ki_vreg h = s->holder[c][ki_ctz64(held)];
            float x = cost(&m->v[h]);
            if (x < least) worst = h, least = x;
        }
        if (worst == r) {
            to_memory(m, v);
            return;
        }
        s->free[c] |= UINT64_C(1) << m->v[worst].reg;
        to_memory(m, &m->v[worst]);
    }
    unsigned k = pick(s->free[c] & may, s, c, v);
    v->reg = (uint8_t)k;
    s->free[c] &= ~(UINT64_C(1) << k);
    s->holder[c][k] = r;
    s->until[c][k] = v->last;
    if (v->last < s->ends[c]) s->ends[c] = v->last;
    m->used[c] |= UINT64_C(1) << k;
}

static uint64_t bits(unsigned from, unsigned to) { return (UINT64_C(1) << to) - (UINT64_C(1) << from); }

/* Registers to give, and what is set aside of them. rax and rdx always are, last: a division holds both. */
static void offer(scan *s) {
    ki_mir *m = s->m;
    const uint8_t scratch[KI_RC_COUNT][MOST_ASIDE] = {
        {KI_X_RCX, KI_X_RAX, KI_X_RDX},
        {(uint8_t)(m->nvector - 1), (uint8_t)(m->nvector - 2), (uint8_t)(m->nvector - 3)},
        {7, 6, KI_X_NOREG},
        {KI_X_NOREG, KI_X_NOREG, KI_X_NOREG}};
    memcpy(m->scratch, scratch, sizeof scratch);
    s->avail[KI_RC_G] = 0;
    for (unsigned k = 0; k < sizeof general; k++) s->avail[KI_RC_G] |= UINT64_C(1) << general[k];
    s->avail[KI_RC_V] = bits(0, m->nvector);
    s->avail[KI_RC_K] = bits(1, 8);
    s->avail[KI_RC_T] = bits(0, 8);
}

static void scan_once(scan *s, uint64_t frame) {
    ki_mir *m = s->m;
    m->frame = frame;
    m->spills = 0;
    for (ki_vreg r = 1; r < m->nv; r++) m->v[r].reg = KI_X_NOREG, m->v[r].slot = -1;
    for (unsigned c = 0; c < KI_RC_COUNT; c++) m->used[c] = 0, s->ends[c] = UINT32_MAX;
    memcpy(s->free, s->avail, sizeof s->free);
    for (uint32_t k = 0; s->order[k]; k++) give(s, s->order[k]);
}

/* Everywhere what any instruction needs. */
static void need_alike(scan *s) {
    uint8_t most[KI_RC_COUNT] = {0};
    size_t n = (size_t)s->m->n * KI_RC_COUNT;
    for (size_t i = 0; i < n; i++)
        if (s->need[i] > most[i % KI_RC_COUNT]) most[i % KI_RC_COUNT] = s->need[i];
    for (size_t i = 0; i < n; i++) s->need[i] = most[i % KI_RC_COUNT];
}

/* What instructions need set aside for what is in memory now, beside what they needed before; everywhere what any needs, if `all`. True if
 * that was known. */
static bool needs_no_more(scan *s, bool all) {
    const ki_mir *m = s->m;
    unsigned need[KI_RC_COUNT];
    bool same = true;
    for (uint32_t i = 0; i < m->n; i++) {
        if (!ki_mneed(m, i, need)) continue;
        uint8_t *known = &s->need[(size_t)i * KI_RC_COUNT];
        for (unsigned c = 0; c < KI_RC_COUNT; c++)
            if (need[c] > known[c]) known[c] = (uint8_t)need[c], same = false;
    }
    if (all && !same) need_alike(s);
    return same;
}

static void find_next(scan *s) {
    uint32_t next[ASIDE];
    memset(next, 255, sizeof next);
    memcpy(s->next + (size_t)s->m->n * ASIDE, next, sizeof next);
    for (size_t i = s->m->n; i-- > 0;) {
        const uint8_t *need = s->need + i * KI_RC_COUNT;
        for (unsigned c = 0; c < KI_RC_COUNT; c++)
            for (unsigned k = 0; k < aside_of[c] && k < need[c]; k++) next[aside_from[c] + k] = (uint32_t)i;
        memcpy(s->next + i * ASIDE, next, sizeof next);
    }
}

/* Nearly every kernel is done after the first scan. */
static bool scan_again(scan *s, uint64_t frame) {
    ki_mir *m = s->m;
    size_t n = (size_t)m->n + 1;
    s->need = ki_calloc(n, KI_RC_COUNT);
    uint32_t *next = ki_calloc(n * ASIDE, sizeof *next);
    bool ok = (s->need && next) || (ki_fail(m->env, KI_E_NOMEM), false);
    for (unsigned tries = 0; ok && !m->failed && !needs_no_more(s, tries >= TRIES); tries++) {
        s->next = next;
        find_next(s);
        scan_once(s, frame);
    }
    ki_free(s->need);
    ki_free(next);
    return ok;
}

bool ki_mregs(ki_mir *m) {
    if (m->failed || !intervals(m)) return false;
    scan s = {.m = m, .order = ki_calloc((size_t)m->nv + 1, sizeof *s.order)};
    bool ok = s.order ? sort(&s) : (ki_fail(m->env, KI_E_NOMEM), false);
    uint64_t frame = m->frame;
    offer(&s);
    if (ok) scan_once(&s, frame);
    if (ok && m->spills && !m->failed) ok = scan_again(&s, frame);
    ki_free(s.order);
    return ok && !m->failed;
}
