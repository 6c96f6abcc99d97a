/* lanes.c: which lane axes become vector registers, and how they are cut.
 *
 * An axis is worth as much as the memory accesses it makes contiguous, less those it would turn into gathers. Axes are
 * taken by worth; one along which some value varies together with an axis taken before stays unrolled, so that each value
 * has one vector axis at most (the loops of a softmax have one each). The stride of every index along every axis is
 * found in one ascending sweep. */
#include "stages/5_select/lanes.h"
#include "stages/5_select/select.h"

#include "base/cpuid.h"

#include "stages/scope.h"

#define MOST_TRIPS (INT64_C(1) << 40)
#define FULL       16 /* lanes of 32 bits */

bool ki_is_storage(kn_uop u) {
    while (u->op == KN_AFTER) u = u->src[0];
    return u->op == KN_PARAM || u->op == KN_BUFFER;
}

static bool is_tile(kn_uop u) {
    return ki_rank(u) == 1 &&
           (u->dtype == KN_IDX ? ki_numel(u) >= 256 : ki_numel(u) * (int64_t)ki_itemsize((kn_dtype)u->dtype) == 1024);
}

bool ki_has_lanes(const ki_lanes *l, kn_uop u) {
    if (l->tiles && is_tile(u)) return false;
    return ki_rank(u) > 0 && u->dtype != KN_VOID && !ki_is_storage(u) && u->op != KN_STACK;
}

bool ki_is_const_list(kn_uop u) {
    if (u->op != KN_STACK || !u->nsrc) return false;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (!ki_is_const(u->src[k])) return false;
    return true;
}

/* Constants of data may be any: differences wrap, as those of what they are computed with do. */
static int64_t less(int64_t a, int64_t b) { return (int64_t)((uint64_t)a - (uint64_t)b); }

/* Whether a list of constants, row-major over u's axes, grows evenly along axis k. */
static bool even_along(kn_uop u, const kn_uop *c, unsigned k, int64_t *step) {
    int64_t inner = 1, n = ki_dim_n(u, k), total = ki_numel(u);
    for (unsigned j = k + 1; j < ki_rank(u); j++) inner *= ki_dim_n(u, j);
    *step = less(c[inner]->arg.i, c[0]->arg.i);
    for (int64_t i = 0; i + inner < total; i++) {
        if (i / inner % n == n - 1) continue;
        if (less(c[i + inner]->arg.i, c[i]->arg.i) != *step) return false;
    }
    return true;
}

static void list_stride(kn_uop u, kn_uop list, int64_t *coef, uint32_t *odd) {
    bool known = ki_is_const_list(list) && ki_numel(u) == (int64_t)list->nsrc;
    for (unsigned k = 0; k < ki_rank(u); k++) {
        if (ki_dim_n(u, k) == 1) continue;
        if (!known || !even_along(u, list->src, k, &coef[k])) coef[k] = 0, *odd |= 1u << k;
    }
}

static void all_odd(kn_uop u, uint32_t *odd) {
    for (unsigned k = 0; k < ki_rank(u); k++)
        if (ki_dim_n(u, k) > 1) *odd |= 1u << k;
}

static void strides(const ki_lanes *l, const uint32_t *at, kn_uop u, int64_t *coef, uint32_t *odd) {
    if (!ki_rank(u) || !ki_is_int((kn_dtype)u->dtype)) return;
    uint32_t a = u->nsrc > 0 ? at[u->src[0]->id] : 0, b = u->nsrc > 1 ? at[u->src[1]->id] : 0;
    const int64_t *ca = l->coef + (size_t)a * l->rank, *cb = l->coef + (size_t)b * l->rank;
    switch ((kn_op)u->op) {
    case KN_STACK: list_stride(u, u, coef, odd); return;
    case KN_RESHAPE:
        if (u->src[0]->op == KN_STACK) list_stride(u, u->src[0], coef, odd);
        else all_odd(u, odd);
        return;
    case KN_CAST:
    case KN_AFTER:
        if (!ki_is_int((kn_dtype)u->src[0]->dtype)) break;
        for (unsigned k = 0; k < l->rank; k++) coef[k] = ca[k];
        *odd = l->odd[a];
        return;
    case KN_ADD:
    case KN_SUB:
        for (unsigned k = 0; k < l->rank; k++)
            coef[k] = u->op == KN_ADD ? (int64_t)((uint64_t)ca[k] + (uint64_t)cb[k]) : less(ca[k], cb[k]);
        *odd = l->odd[a] | l->odd[b];
        return;
    case KN_MUL: {
        kn_uop c = ki_is_const(u->src[1]) ? u->src[1] : ki_is_const(u->src[0]) ? u->src[0] : NULL;
        if (!c) break;
        const int64_t *x = c == u->src[1] ? ca : cb;
        for (unsigned k = 0; k < l->rank; k++) coef[k] = (int64_t)((uint64_t)x[k] * (uint64_t)c->arg.i);
        *odd = l->odd[c == u->src[1] ? a : b];
        return;
    }
    default: break;
    }
    all_odd(u, odd);
}

/* Lanes a few elements apart are read as rows and permuted (8_render/x86/strided.c); narrow ones as far apart as a word is long are
 * part of words (words.c). */
static bool reads_apart(const ki_target *t, kn_uop access, int64_t step) {
    unsigned bytes = (unsigned)ki_itemsize((kn_dtype)access->dtype);
    bool permutes = t->native && t->level >= KI_CPU_AVX512_LEVEL;
    if (t->native && t->level == KI_CPU_AVX2_LEVEL && access->op == KN_LOAD && bytes == 4 && step == 2) return true;
    if (t->native && t->level >= KI_CPU_DOT_LEVEL && access->op == KN_LOAD && bytes < 4 && step * bytes == 4)
        return true;
    return permutes && access->op == KN_LOAD && step > 1 && step <= 4 && (bytes == 4 || bytes == 8);
}

/* What an access is worth if axis k is the vector: contiguous good, gather bad. */
static int64_t worth(const ki_lanes *l, const ki_target *t, const uint32_t *at, kn_uop access, unsigned k) {
    if (access->op == KN_INS) { /* dot products, which fill registers */
        int64_t n = ki_rank(access) > k ? ki_dim_n(access, k) : 1;
        return n < FULL ? n / 2 : FULL / 2;
    }
    kn_uop index = access->src[0];
    while (index->op == KN_AFTER) index = index->src[0];
    if (index->op != KN_INDEX || index->nsrc != 2 || !ki_is_storage(index->src[0])) return 0;
    kn_uop buf = index->src[0], i = index->src[1];
    while (buf->op == KN_AFTER) buf = buf->src[0];
    if (buf->op == KN_BUFFER && buf->arg.buffer->addrspace == KN_REG) return 0;
    if (ki_rank(i) <= k || ki_dim_n(i, k) == 1) return 0;
    uint32_t n = at[i->id];
    bool odd = l->odd[n] >> k & 1;
    int64_t step = l->coef[(size_t)n * l->rank + k];
    if (!odd && (step == 1 || step == -1)) return access->op == KN_STORE ? 3 : 2;
    return !odd && reads_apart(t, access, step) ? 1 : -3;
}

/* around[r]: the loops that stand around loop r, r among them. A value of i and k runs in the loop j between them too, so
 * its own free RANGEs do not tell how often it runs. Outer ENDs have the greater ids, so descending they come first. */
static uint64_t *loops_around(const ki_scope *s) {
    uint64_t *around = ki_calloc((size_t)s->nrange * s->words + 1, sizeof *around);
    for (uint32_t i = s->n; around && i-- > 0;) {
        kn_uop u = s->node[i];
        if (u->op != KN_END) continue;
        const uint64_t *open = ki_scope_free(s, u);
        for (uint32_t k = 1; k < u->nsrc; k++) {
            if (u->src[k]->op != KN_RANGE) continue;
            uint32_t r = ki_scope_rank(s, u->src[k]);
            uint64_t *a = around + (size_t)r * s->words;
            const uint64_t *before = k > 1 && u->src[k - 1]->op == KN_RANGE
                                         ? around + (size_t)ki_scope_rank(s, u->src[k - 1]) * s->words
                                         : open;
            for (uint32_t w = 0; w < s->words; w++) a[w] |= before[w];
            for (uint32_t q = 0; q < s->nrange && k == 1; q++)
                for (uint32_t w = 0; w < s->words && ki_in_set(open, q); w++) a[w] |= around[(size_t)q * s->words + w];
            a[r >> 6] |= UINT64_C(1) << (r & 63);
        }
    }
    return around;
}

/* How often a node runs: the trips of the loops it stands in. What an access is worth counts that many times. */
static int64_t trips(const ki_scope *s, const uint64_t *around, kn_uop u) {
    const uint64_t *open = ki_scope_free(s, u);
    int64_t n = 1;
    for (uint32_t r = 0; r < s->nrange; r++) {
        bool in = ki_in_set(open, r);
        for (uint32_t q = 0; q < s->nrange && !in; q++)
            in = ki_in_set(open, q) && ki_in_set(around + (size_t)q * s->words, r);
        if (!in) continue;
        int64_t extent = s->range[r]->hi.i < INT32_MAX ? s->range[r]->hi.i + 1 : INT32_MAX;
        if (extent > MOST_TRIPS / n) return MOST_TRIPS;
        n *= extent > 0 ? extent : 1;
    }
    return n;
}

static unsigned lane_bytes(const ki_target *t, kn_uop u) {
    return u->dtype == KN_BOOL || u->dtype == KN_IDX || u->dtype == KN_VOID ? 1 : ki_lane_bytes(t, u);
}

static bool fits_word(kn_uop u) { return u->lo.i >= INT32_MIN && u->hi.i <= INT32_MAX; }

/* Bytes a lane of machine code needs on the way: of what is compared; of an index that i32 does not hold, or that is divided by what is
 * no power of two where f32 is too short for it; of 8-bit products that a reduce will make. address: an index that is a base and
 * so much a lane, which nobody makes a register of. */
static unsigned native_bytes(const ki_target *t, kn_uop u, bool address) {
    bool product = u->op == KN_MUL || (u->op == KN_REDUCE && u->arg.reduce.op == KN_MUL);
    bool word = ki_is_int((kn_dtype)u->dtype) && ki_itemsize((kn_dtype)u->dtype) >= 4; /* 32 bits, made of 64 */
    if (product && word && t->level == KI_CPU_SSE2_LEVEL) return 8;
    if (u->op == KN_REDUCE && ki_itemsize((kn_dtype)u->dtype) == 1) return 2;
    bool reads = false, fits = u->dtype != KN_IDX || fits_word(u);
    if (address) return 1;
    unsigned own = lane_bytes(t, u);
    for (uint32_t k = 0; k < u->nsrc && ki_is_elementwise((kn_op)u->op); k++) {
        unsigned its = lane_bytes(t, u->src[k]); /* a list that is compared, say: it has no lanes of its own to tell */
        if (its > own) own = its;
        if (u->src[k]->dtype != KN_IDX || u->src[k]->op == KN_INVALID) continue;
        reads = true;
        fits = fits && fits_word(u->src[k]);
    }
    if (u->dtype != KN_IDX && !reads) return own;
    if ((u->op == KN_IDIV || u->op == KN_MOD) && fits) {
        kn_uop c = u->src[1];
        fits = ki_is_const(c) && c->arg.i > 0 && !(c->arg.i & (c->arg.i - 1)) && u->src[0]->lo.i >= 0;
        fits |= ki_divides_near(u);
    }
    unsigned least = fits ? 4 : 8;
    return own > least ? own : least;
}

static uint32_t at_most(uint32_t lanes, int64_t n) {
    while (lanes > n) lanes /= 2;
    return lanes;
}

uint32_t ki_row_lanes(const ki_target *t, kn_uop row, int64_t n) {
    uint32_t lanes = t->vector / lane_bytes(t, row);
    return at_most(lanes < 2 ? 2 : lanes, n);
}

uint32_t ki_lane_chunks_of(uint32_t n, uint32_t lanes) {
    uint32_t rest = n % lanes, count = n / lanes;
    for (; rest; rest &= rest - 1) count++;
    return count;
}

ki_lane_chunk ki_lane_chunk_of(uint32_t n, uint32_t lanes, uint32_t c) {
    uint32_t full = n / lanes, rest = n % lanes;
    if (c < full) return (ki_lane_chunk){c * lanes, lanes};
    uint32_t at = full * lanes, len = 0;
    for (c -= full;; c--) {
        len = UINT32_C(1) << (31 - __builtin_clz(rest));
        if (c == 0) return (ki_lane_chunk){at, len};
        at += len;
        rest -= len;
    }
}

uint32_t ki_lane_chunks(const ki_lanes *l, unsigned axis) {
    return ki_lane_chunks_of((uint32_t)l->size[axis], l->lanes[axis]);
}
ki_lane_chunk ki_lane_chunk_at(const ki_lanes *l, unsigned axis, uint32_t c) {
    return ki_lane_chunk_of((uint32_t)l->size[axis], l->lanes[axis], c);
}

int ki_vector_axis(const ki_lanes *l, kn_uop u) {
    if (!l->vectors || ki_rank(u) != l->rank) return -1;
    for (unsigned k = 0; k < l->rank; k++)
        if (l->vectors >> k & 1 && ki_dim_n(u, k) > 1) return (int)k;
    return -1;
}

/* Of what n lanes save, one by one, the part that the registers they fill leave. */
static int64_t saved(const ki_lanes *l, unsigned k, int64_t score) {
    int64_t n = l->size[k];
    return score / n * (n - ki_lane_chunks_of((uint32_t)n, at_most(l->most[k], n)));
}

/* Axes by worth, the last of equals first, each unless it meets one taken before. meet[k]: axes that k meets in a value. */
static void take_axes(ki_lanes *l, int64_t *score, const uint32_t *meet) {
    for (unsigned turn = 0; turn < l->rank; turn++) {
        int best = -1;
        for (unsigned k = 0; k < l->rank; k++)
            if (l->size[k] >= 2 && score[k] >= 0 && (best < 0 || score[k] >= score[best])) best = (int)k;
        if (best < 0) return;
        score[best] = -1;
        if (meet[best] & l->vectors) continue;
        l->vectors |= UINT32_C(1) << best;
        l->lanes[best] = at_most(l->most[best], l->size[best]);
    }
}

static unsigned bytes_of(const ki_lanes *l, const ki_target *t, const kn_uop *node, uint32_t i) {
    kn_uop u = node[i], lanes = u->op == KN_REDUCE ? u->src[0] : u; /* which it combines by halves */
    if (!ki_has_lanes(l, u) || ki_numel(lanes) <= 1) return 1;
    return t->native ? native_bytes(t, u, u->dtype == KN_IDX && !l->odd[i]) : lane_bytes(t, u);
}

/* Lanes of u, or of what it combines, are so wide along the axes it varies along; of an index that is a base and so much a lane along one
 * (the column of a row that is looked up) nobody makes a register of those. odd: the others. */
static void note_bytes(const ki_lanes *l, kn_uop u, unsigned bytes, uint32_t odd, unsigned *wide) {
    kn_uop lanes = u->op == KN_REDUCE ? u->src[0] : u;
    for (unsigned k = 0; k < l->rank && ki_rank(lanes) == l->rank; k++) {
        bool address = u->dtype == KN_IDX && !(odd >> k & 1);
        if (ki_dim_n(lanes, k) > 1 && bytes > wide[k] && !address) wide[k] = bytes;
    }
}

/* Axes that meet in u; one that two ranges of different extent share stays unrolled. */
static void note_axes(const ki_lanes *l, kn_uop u, int64_t *score, uint32_t *meet) {
    uint32_t along = 0;
    for (unsigned k = 0; k < l->rank; k++) {
        if (ki_dim_n(u, k) == 1) continue;
        along |= 1u << k;
        if (ki_dim_n(u, k) != l->size[k]) score[k] = INT64_MIN / 2;
    }
    for (uint32_t left = along; left; left &= left - 1) meet[ki_ctz64(left)] |= along & ~(left & -left);
}

bool ki_find_lanes(ki_ir *ir, const ki_target *t, const kn_uop *node, uint32_t n, const uint32_t *at, ki_lanes *l) {
    *l = (ki_lanes){0};
    unsigned wide[KI_MAX_RANK] = {0};
    for (uint32_t i = 0; i < n && t->level >= KI_CPU_AMX_LEVEL; i++)
        l->tiles |= node[i]->op == KN_INS && ki_numel(node[i]) == 256;
    for (uint32_t i = 0; i < n; i++)
        if (ki_rank(node[i]) > l->rank && ki_has_lanes(l, node[i])) l->rank = ki_rank(node[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (!ki_has_lanes(l, node[i])) continue;
        if (ki_rank(node[i]) != l->rank)
            return ki_fail(ir->env, KI_E_SELECT_LANES, ki_ops[node[i]->op].name, ki_rank(node[i]), l->rank), false;
        kn_uop lanes = node[i]->op == KN_REDUCE ? node[i]->src[0] : node[i]; /* a list, maybe */
        for (unsigned k = 0; k < l->rank && ki_rank(lanes) == l->rank; k++)
            if (ki_dim_n(lanes, k) > l->size[k]) l->size[k] = ki_dim_n(lanes, k);
    }
    if (!l->rank) return true;
    l->coef = ki_calloc((size_t)n * l->rank, sizeof *l->coef);
    l->odd = ki_calloc(n, sizeof *l->odd);
    if (!l->coef || !l->odd) return ki_fail(ir->env, KI_E_NOMEM), false;
    int64_t score[KI_MAX_RANK] = {0};
    uint32_t meet[KI_MAX_RANK] = {0};
    ki_scope scope;
    uint64_t *around = NULL;
    if (!ki_scope_open(&scope, ir, node[n - 1])) return ki_scope_close(&scope), false;
    if (!(around = loops_around(&scope))) return ki_scope_close(&scope), ki_fail(ir->env, KI_E_NOMEM), false;
    const uint64_t *open =
        NULL; /* where the last access stood, and how often it runs: the next one mostly stands there too */
    int64_t times = 0;
    for (uint32_t i = 0; i < n; i++) {
        kn_uop u = node[i];
        bool lanes = ki_has_lanes(l, u);
        if (ki_rank(u) == l->rank) strides(l, at, u, l->coef + (size_t)i * l->rank, &l->odd[i]);
        if (lanes) note_axes(l, u, score, meet);
        if (lanes) note_bytes(l, u, bytes_of(l, t, node, i), l->odd[i], wide);
        if (u->op != KN_LOAD && u->op != KN_STORE && !(u->op == KN_INS && lanes)) continue;
        const uint64_t *now = ki_scope_free(&scope, u);
        if (!open || memcmp(open, now, scope.words * sizeof *now) != 0) times = trips(&scope, around, u);
        open = now;
        for (unsigned k = 0; k < l->rank; k++) score[k] += times * worth(l, t, at, u, k);
    }
    ki_scope_close(&scope);
    ki_free(around);
    for (unsigned k = 0; k < l->rank; k++) {
        l->most[k] = wide[k] && t->vector / wide[k] >= 2 ? t->vector / wide[k] : 2;
        if (l->size[k] >= 2 && score[k] > 0) score[k] = saved(l, k, score[k]);
    }
    take_axes(l, score, meet);
    return true;
}
