/* stage.c: the OptOp STAGE: what the inner loops read of one operand, elements or words of them (dots.c), of a PARAM or of what an
 * earlier STAGE has copied, is copied to a LOCAL buffer first, in the order in which it will be read.
 *
 *   INDEX(P, f(outer, inner))  becomes  INDEX(AFTER(buf, copy), g(inner))
 *   copy = END(STORE(INDEX(AFTER(buf, outer...), g(inner')), INDEX(P, f(outer, inner'))), inner'...)
 * inner: the ranges of the index that stand inside the loop the OptOp names; inner' are fresh copies of them. g is
 * row-major over them: loops over panels of lanes first, then reduce loops, in the order in which they run, then loops, in order of id, then lanes, by falling stride in P;
 * top: reduce loops last, so that what one sum reads lies in a row. Of products of tiles loops come first, so that a panel is one piece; it
 * is filled row by row, with those beside it; words that lie along one of their lanes, far apart along the other, are copied a row at a time. */
#include "stages/3_optimize/dots.h"

#include <string.h>

#define FAIL(...)  (ki_fail(k->ir->env, __VA_ARGS__), NULL)
#define MOST_INNER 16
#define FAR        256 /* elements: rows that lie so far apart have nothing in common */

bool ki_is_written(const ki_nest *k, int32_t slot) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i], p = u->op == KN_STORE || u->op == KN_ATOMICADD ? ki_storage(u->src[0]) : NULL;
        if (p && p->op == KN_PARAM && p->arg.param->slot == slot) return true;
    }
    return false;
}

bool ki_mark_outer(const ki_nest *k, kn_uop axis, uint64_t *set) {
    const ki_scope *s = &k->scope;
    kn_uop c = axis ? ki_nest_closer(k, axis) : NULL;
    if (axis && c->op != KN_END) return false;
    for (kn_uop e = c; e; e = k->around[s->at[e->id]])
        for (uint32_t j = 1; j < e->nsrc; j++) {
            if (ki_is_lane(e->src[j])) continue;
            uint32_t q = ki_scope_rank(s, e->src[j]);
            set[q >> 6] |= UINT64_C(1) << (q & 63);
            if (e->src[j] == axis) break;
        }
    /* threads run the whole nest; a nest that another one's body needs stands in loops of that one */
    for (uint32_t q = 0; q < s->nrange; q++)
        if (s->range[q]->arg.range.axis == KN_AX_THREAD || (c && ki_scope_has(s, c, s->range[q])))
            set[q >> 6] |= UINT64_C(1) << (q & 63);
    return true;
}

/* How far apart two elements are whose positions along r are; where that depends on the rest of the position (a quotient, a
 * remainder), as far as the first two are. */
static int64_t distance(const ki_nest *k, kn_uop access, kn_uop r) {
    const ki_scope *s = &k->scope;
    kn_uop at[MOST_INNER];
    int64_t where[MOST_INNER] = {0};
    uint32_t n = 0, mine = 0;
    bool known, ok = true;
    int64_t d = ki_nest_stride(k, access, r, &known);
    kn_uop i = access->src[1];
    while (i->op == KN_WHERE) i = i->src[1]; /* the first two may be none that are read */
    for (uint32_t q = 0; !known && ok && q < s->nrange; q++) {
        if (!ki_scope_has(s, i, s->range[q])) continue;
        if (s->range[q] == r) mine = n;
        if ((ok = n < MOST_INNER)) at[n++] = s->range[q];
    }
    if (!known && ok) {
        int64_t from = ki_eval_index(k->ir, i, at, where, n, &ok);
        where[mine] = 1;
        int64_t to = ok ? ki_eval_index(k->ir, i, at, where, n, &ok) : 0;
        if (ok && !ki_sub_overflow(to, from, &d)) return d < 0 ? -d : d;
    }
    return d < 0 ? -d : d;
}

/* Is r the lane of a product of tiles' terms? */
static bool is_term(const ki_nest *k, kn_uop r) {
    kn_uop c = ki_nest_closer(k, r);
    return ki_is_lane(r) && c->op == KN_REDUCE && c->src[0]->op == KN_INS;
}

/* The side of a product of tiles that reads word u, 1 or 2; 0: none does. */
static int side_of(const ki_nest *k, kn_uop u) {
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop p = k->scope.node[i];
        if (p->op == KN_REDUCE && p->src[0]->op == KN_INS && is_term(k, p->src[1]))
            for (int side = 1; side < 3; side++)
                if (p->src[0]->src[side] == u) return side;
    }
    return 0;
}

/* Lanes by falling distance in the operand: what is contiguous there ends up contiguous here. But a tile has its terms along its rows, of the first
 * operand, or one a row, of the second. */
static void order_lanes(const ki_nest *k, kn_uop u, kn_uop *r, uint32_t n) {
    kn_uop access = ki_word_element(u);
    int side = side_of(k, u);
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j > 0 && ki_is_lane(r[j]) && ki_is_lane(r[j - 1]); j--) {
            bool term = side && is_term(k, r[j]), last = side && is_term(k, r[j - 1]);
            bool stays =
                term || last ? term != (side == 2) : distance(k, access, r[j - 1]) >= distance(k, access, r[j]);
            if (stays) break;
            kn_uop t = r[j];
            r[j] = r[j - 1];
            r[j - 1] = t;
        }
}

/* The loops of a REDUCE stand in it as they run. */
static void order_sums(const ki_nest *k, kn_uop *r, uint32_t n) {
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j > 0; j--) {
            kn_uop c = ki_nest_closer(k, r[j]);
            if (c->op != KN_REDUCE || ki_is_lane(r[j]) || c != ki_nest_closer(k, r[j - 1]) || ki_is_lane(r[j - 1]))
                break;
            if (ki_place_in(c, r[j - 1]) < ki_place_in(c, r[j])) break;
            kn_uop t = r[j];
            r[j] = r[j - 1];
            r[j - 1] = t;
        }
}

/* Does a loop go on where lanes of it end, of what is read everywhere? Then what these read, for all terms, is one panel. */
static bool is_of_panels(const ki_nest *k, kn_uop access, kn_uop r) {
    bool known[2];
    int64_t step = ki_nest_stride(k, access, r, known);
    for (uint32_t q = 0; known[0] && step && !ki_is_gated(access) && q < k->scope.nrange; q++) {
        kn_uop lane = k->scope.range[q];
        if (!ki_is_lane(lane) || !ki_scope_has(&k->scope, access, lane)) continue;
        if (ki_nest_stride(k, access, lane, known + 1) * ki_extent(lane) == step && known[1]) return true;
    }
    return false;
}

/* Does anything that a tile reads side by side, beside its terms, have lanes yet? */
static bool has_columns(const ki_nest *k, kn_uop access) {
    for (uint32_t q = 0; q < k->scope.nrange; q++) {
        kn_uop r = k->scope.range[q];
        if (ki_is_lane(r) && !is_term(k, r) && ki_scope_has(&k->scope, access, r)) return true;
    }
    return false;
}

/* In the order in which they come. */
enum { PARTS, PANELS, SUMS, LOOPS, TILED_SUMS, LANES, SUMS_IN_ROWS, KINDS };
static int kind(const ki_nest *k, kn_uop access, kn_uop r, bool top) {
    kn_uop c = ki_nest_closer(k, r);
    if (is_term(k, r) && side_of(k, ki_word_of(k, access)) == 2 && !has_columns(k, access)) return PANELS;
    if (ki_is_lane(r)) return LANES;
    if (c->op != KN_REDUCE && ki_nest_carries(k, c) && !ki_nest_independent(k, r)) return PARTS;
    if (c->op != KN_REDUCE) return is_of_panels(k, access, r) ? PANELS : LOOPS;
    return top ? SUMS_IN_ROWS : ki_is_tiled(c) ? TILED_SUMS : SUMS;
}

uint64_t *ki_find_copied(const ki_nest *k, const ki_opt *o, kn_uop *access) {
    kn_uop axis = o->axis < 0 ? NULL : ki_nest_range(k, (uint32_t)o->axis),
           root = axis ? ki_nest_closer(k, axis) : k->sink;
    if (axis && o->op == KI_OPT_STAGE && ki_is_tiled(root)) axis = NULL; /* its own reads, outside all loops */
    *access = ki_nest_read_inside(k, root, o->arg, axis);
    uint64_t *set = ki_calloc(k->scope.words, sizeof *set);
    if (!set) return FAIL(KI_E_NOMEM);
    /* a copy made before the loops would not see what they write */
    const char *why = ki_is_written(k, o->arg) ? "the kernel writes it"
                      : !*access
                          ? "the kernel must read it in one place, or in one that the innermost loop leaves where it is"
                      : !ki_mark_outer(k, axis, set) ? "the axis is no loop of the nest"
                                                     : NULL;
    if (why) return ki_free(set), FAIL(KI_E_OPT_STAGE, (int)o->arg, why);
    return set;
}

/* Is any of the memory that u reads, or that says where it reads, filled in loop r? A copy of u would fill it as well, in loops of its own. */
static bool filled_in(const ki_nest *k, kn_uop u, kn_uop r) {
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &u, 1, &node);
    bool found = n < 0;
    for (int64_t i = 0; i < n && !found; i++)
        found = ki_is_access(node[i]) && ki_scope_has(&k->scope, node[i]->src[0], r);
    if (n >= 0) ki_free(node);
    return found;
}

/* Of words that lie along one lane, and far apart along the only other one: the lane of rows, which are copied one by one, as they lie. NULL: it is
 * something else. */
static kn_uop lane_of_rows(const ki_nest *k, kn_uop u, const kn_uop *inner, uint32_t n) {
    kn_uop access = ki_word_element(u), rows = NULL, words = NULL;
    bool known;
    for (uint32_t q = 0; q < n && ki_word_of(k, access) != access; q++) {
        if (!ki_is_lane(inner[q])) continue;
        bool along = ki_reads_row(k, access, inner[q]);
        bool far = !along && ki_nest_stride(k, access, inner[q], &known) >= FAR && known;
        if ((along && words) || (far && rows) || along == far) return NULL;
        *(along ? &words : &rows) = inner[q];
    }
    return words ? rows : NULL;
}

/* Of words that a product of tiles has along its terms, and that lie along its rows: the lane of rows, which vectors go along; they are stored transposed.
 * NULL: it is something else. */
static kn_uop lane_of_columns(const ki_nest *k, kn_uop u, const kn_uop *inner, uint32_t n) {
    bool known, first = side_of(k, u) == 1;
    for (uint32_t q = 0; q < n && first; q++)
        if (ki_is_lane(inner[q]) && !is_term(k, inner[q]) && ki_extent(inner[q]) % KI_TILE_SIDE == 0 &&
            ki_nest_stride(k, ki_word_element(u), inner[q], &known) == 1 && known)
            return inner[q];
    return NULL;
}

kn_uop ki_copied(ki_nest *k, ki_opt *o, kn_uop u, uint64_t *set, const ki_frame *f) {
    ki_ir *ir = k->ir;
    const ki_scope *s = &k->scope;
    uint32_t n = 0, nout = 0, next = ki_nest_next_range(k);
    kn_uop inner[MOST_INNER], outer[64], loops[MOST_INNER + 2], part = NULL;
    int64_t size = 1;
    bool fits = true, filled = false; /* a buffer by what stands inside */
    for (int pass = 0; pass < KINDS; pass++)
        for (uint32_t q = 0; q < s->nrange; q++) {
            kn_uop r = s->range[q];
            if (!ki_scope_has(s, u, r)) continue;
            if (ki_in_set(set, q)) {
                if (pass == 0 && nout < 64) outer[nout++] = r;
            } else if (kind(k, ki_word_element(u), r, o->top) == pass) {
                int64_t e = ki_framed(f, r);
                filled |= filled_in(k, ki_word_element(u), r);
                fits = fits && n < MOST_INNER && e > 0 && size <= INT32_MAX / e;
                if (fits) inner[n++] = r, size *= e;
            }
        }
    ki_free(set);
    if (!fits || n == 0)
        return FAIL(KI_E_OPT_STAGE, (int)o->arg,
                    n ? "its size is not constant, or too large" : "nothing inside varies");
    if (filled) return FAIL(KI_E_OPT_STAGE, (int)o->arg, "the loops inside fill it");
    order_lanes(k, u, inner, n);
    order_sums(k, inner, n);
    if (!ki_nest_own_buffer(k, &o->id)) return NULL;
    kn_uop buf = ki_buffer_make(ir, (uint32_t)o->id, size, (kn_dtype)u->dtype, KN_LOCAL, 0);
    kn_uop to = ki_index(ir, 0), from = to;
    ki_swap swap[MOST_INNER];
    int64_t stride = size;
    kn_uop rows = lane_of_rows(k, u, inner, n), columns = lane_of_columns(k, u, inner, n);
    for (uint32_t q = 0; q < n; q++) {
        int64_t e = ki_framed(f, inner[q]);
        stride /= e;
        bool lane = ki_is_lane(inner[q]) && inner[q] != rows;
        kn_axis ax = lane ? (kn_axis)inner[q]->arg.range.axis : KN_AX_LOOP;
        if (lane && rows) ax = KN_AX_UPCAST; /* so that they are vectors along the axis of what is stored (4_expand) */
        bool parted =
            inner[q] == columns &&
            e > KI_TILE_SIDE; /* as long as the lanes of a tile's columns, whose axis is the vectors' (4_expand) */
        kn_uop y = ki_range_make(ir, next + q, ax, ki_index(ir, parted ? e / KI_TILE_SIDE : e));
        swap[q] = (ki_swap){inner[q], y, {y, NULL}};
        if (parted) {
            part = ki_range_make(ir, next + n, ax, ki_index(ir, KI_TILE_SIDE));
            y = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, y, part ? part->src[0] : NULL), part);
            swap[q].expr = y, swap[q].list[1] = part;
        }
        to = ki_op2(ir, KN_ADD, to, ki_op2(ir, KN_MUL, y, ki_index(ir, stride)));
        from = ki_op2(ir, KN_ADD, from, ki_op2(ir, KN_MUL, ki_framed_place(ir, f, inner[q]), ki_index(ir, stride)));
    }
    uint32_t put = 1;
    bool masked = false, tiled = false;
    for (uint32_t q = 0; q < n; q++) {
        masked |= ki_is_lane(inner[q]) && ki_is_gated_by(k, ki_word_element(u), inner[q]);
        tiled |= kind(k, ki_word_element(u), inner[q], o->top) == TILED_SUMS;
    }
    /* What a mask of lanes depends on stands outside, lanes inside; else as it will lie, of tiles as it is read. */
    for (int pass = -1; pass < 3; pass++)
        for (uint32_t q = 0; q < n; q++) {
            int turn = inner[q] == rows       ? -1
                       : ki_is_lane(inner[q]) ? 2
                       : masked               ? !ki_is_gated_by(k, ki_word_element(u), inner[q])
                                              : tiled && kind(k, ki_word_element(u), inner[q], o->top) <= LOOPS;
            if (turn == pass) loops[put++] = swap[q].list[0];
            if (turn == pass && swap[q].list[1]) loops[put++] = part;
        }
    kn_uop read = ki_framed_read(ir, f, ki_swap_ranges(k, u, swap, n), swap, n), base = ki_after(ir, buf, outer, nout);
    loops[0] = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, base, to), read);
    kn_uop copy = ki_opn(ir, KN_END, loops, put);
    kn_uop now = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf, copy), from);
    return now ? ki_substitute(ir, k->sink, &u, &now, 1) : NULL;
}

kn_uop ki_opt_stage(ki_nest *k, ki_opt *o) {
    kn_uop u;
    uint64_t *set = ki_find_copied(k, o, &u);
    return set ? ki_copied(k, o, u, set, NULL) : NULL;
}
