/* rows.c: the OptOp ROWS: sums down columns go row by row, as memory lies; what each column has summed up so far is kept in a LOCAL
 * buffer. A loop that carries a sum, of each of its columns, goes around them likewise.
 *
 *   REDUCE(x(r, j), r)  becomes  INDEX(AFTER(buf, start, rest), j), K = h + n q the rows, n of them at a time, h of them first
 *   start = END(STORE(buf[j'], x(0, j') + x(1, j') + ... x(h - 1, j')), j')
 *   rest  = END(STORE(buf[j"], buf[j"] + x(h + n r, j") + ... x(h + n r + n - 1, j")), r, j"), r < q
 * Each column adds up one row after the other, as it did. Of a sum with other loops s a row is the sum over these, and the first one is
 * added to what adds nothing (of one row alone it is stored):
 *
 *   REDUCE(x(r, s, j), r, s)  becomes  INDEX(AFTER(buf, END(STORE(buf[j"], buf[j"] + REDUCE(x(r, s, j"), s)), r, j")), j)
 *
 * Or (top) the first row is stored and the last one, l, is added where the result goes, so that a sum of two rows is stored and read once; the
 * columns may be lanes, and what the nest stores side by side then lies so in the buffer, too:
 *
 *   REDUCE(x(r, s, j), r, s)  becomes  INDEX(AFTER(buf, start, rest), j) + REDUCE(x(l, s, j), s)
 *   start = END(STORE(buf[j'], REDUCE(x(0, s', j'), s')), j')
 *   rest  = END(STORE(buf[j"], buf[j"] + REDUCE(x(1 + r, s", j"), s")), r, j"), r < l - 1 */
#include "stages/3_optimize/dots.h"
#include "ir/scalar.h"
#include "stages/accumulate.h"
#include "stages/indexing.h"

#include <string.h>

#define FAIL(why) (ki_fail(k->ir->env, KI_E_OPT_ROWS, (int)o->axis, (int)o->arg, (why)), NULL)
enum { LEVELS = 5, MOST_ROWS = 1 << (LEVELS - 1), MOST_INNER = 8, MOST_SUMS = 4, MOST_STORES = 8, MOST_BLOCK = 24 };

/* The columns: loops inside, and how many of them there are. */
typedef struct columns {
    kn_uop range[MOST_INNER];
    uint32_t n;
    int64_t size;
} columns;

static bool add_column(columns *c, kn_uop r, bool lanes) {
    int64_t n = ki_extent(r);
    if (!ki_is_serial(r) && !(lanes && ki_is_lane(r))) return false;
    if (c->n == MOST_INNER || n < 1 || c->size > INT32_MAX / n) return false;
    c->size *= n;
    return c->range[c->n++] = r, true;
}

/* The number of a column whose loops stand at at[]. */
static kn_uop number(ki_ir *ir, const columns *c, const kn_uop *at) {
    kn_uop all = at[0];
    for (uint32_t i = 1; i < c->n; i++) all = ki_index_add(ir, ki_index_mul(ir, all, c->range[i]->src[0]), at[i]);
    return all;
}

/* Loops over them anew, and the number of their column. */
static kn_uop copy(ki_ir *ir, const columns *c, uint32_t first, kn_uop *to) {
    for (uint32_t i = 0; i < c->n; i++) {
        kn_uop r = c->range[i];
        kn_axis kind = ki_is_lane(r) ? (kn_axis)r->arg.range.axis : KN_AX_LOOP;
        to[i] = ki_range_make(ir, first + i, kind, r->src[0]);
    }
    return number(ir, c, to);
}

static kn_uop end_of(ki_ir *ir, kn_uop body, kn_uop r, const kn_uop *loops, uint32_t n) {
    kn_uop src[MOST_INNER + 2];
    uint32_t m = 0;
    src[m++] = body;
    if (r) src[m++] = r;
    memcpy(src + m, loops, n * sizeof *loops);
    return ki_opn(ir, KN_END, src, m + n);
}

/* ---- a sum --------------------------------------------------------------------------------------------------------- */

bool ki_reads_written(const ki_nest *k, kn_uop u) {
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &u, 1, &node);
    bool found = n < 0;
    for (int64_t i = 0; i < n && !found; i++) {
        kn_uop p = k->read[k->scope.at[node[i]->id]] ? ki_storage(node[i]) : NULL;
        found = p && p->op == KN_PARAM && ki_is_written(k, p->arg.param->slot);
    }
    if (n >= 0) ki_free(node);
    return found;
}

/* A sum over lanes alone: no loop. */
static bool sums_lanes(kn_uop u) {
    bool all = u && u->op == KN_REDUCE && u->nsrc > 1;
    for (uint32_t j = 1; all && j < u->nsrc; j++) all = ki_is_lane(u->src[j]);
    return all;
}

/* Does u need something else to loop, or to be carried, while one of these loops runs? `lanes`: what the columns are, and what is
 * summed up inside, may be lanes. */
static bool loops_inside(const ki_nest *k, kn_uop u, kn_uop r, const columns *c, bool lanes) {
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &u, 1, &node);
    bool found = n < 0;
    for (int64_t i = 0; i < n && !found; i++) {
        kn_uop v = node[i];
        bool closes = (v->op == KN_REDUCE && !(lanes && sums_lanes(v))) || v->op == KN_END || v->op == KN_AFTER;
        found = v->op == KN_RANGE && ki_is_lane(v) && !lanes;
        for (uint32_t q = 0; closes && q <= c->n; q++) found |= ki_scope_has(&k->scope, v, q < c->n ? c->range[q] : r);
    }
    if (n >= 0) ki_free(node);
    return found;
}

typedef struct walk { /* over rows first .. first + n of a sum */
    kn_uop r, row;    /* row: NULL, or a loop, of which each step is n rows */
    int64_t first, n;
    kn_uop loops[MOST_INNER];
    bool contract; /* a product and its sum are one step */
} walk;

/* What v, of the loop r, is in the m-th of w's rows. */
static kn_uop of_row(ki_ir *ir, kn_uop v, kn_uop r, const columns *c, const walk *w, int64_t m) {
    kn_uop from[MOST_INNER + 1], to[MOST_INNER + 1], row = ki_index(ir, w->first + m);
    memcpy(from + 1, c->range, c->n * sizeof *from);
    memcpy(to + 1, w->loops, c->n * sizeof *to);
    from[0] = r;
    to[0] = w->row ? ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, w->row, ki_index(ir, w->n)), row) : row;
    return to[0] ? ki_substitute(ir, v, from, to, c->n + 1) : NULL;
}

/* What acc, NULL: nothing, becomes by the rows of the sum x: one after the other; the largest of them two and two, so that none waits
 * for all before it. */
static kn_uop grown(ki_ir *ir, kn_uop x, const columns *c, const walk *w, kn_uop acc) {
    kn_op op = (kn_op)x->arg.reduce.op;
    kn_uop of[LEVELS] = {NULL}; /* of 2^i rows, or nothing */
    for (int64_t m = 0; m < w->n; m++) {
        kn_uop v = of_row(ir, x->src[0], w->r, c, w, m);
        uint32_t i = 0;
        for (; v && op == KN_MAX && of[i]; i++) v = ki_op2(ir, op, of[i], v), of[i] = NULL;
        if (!v) return NULL;
        if (op == KN_MAX) of[i] = v;
        else acc = acc ? ki_accumulate(ir, w->contract, op, acc, v) : v;
    }
    for (uint32_t i = 0; i < LEVELS; i++)
        if (of[i]) acc = acc ? ki_op2(ir, op, acc, of[i]) : of[i];
    return acc;
}

/* The columns of a sum over r: loops of end from j on and what else it knows, but not what stands around j. */
static bool find_columns(const ki_nest *k, kn_uop end, kn_uop j, kn_uop x, bool lanes, columns *c) {
    const ki_scope *s = &k->scope;
    uint32_t first = ki_place_in(end, j);
    *c = (columns){.size = 1};
    for (uint32_t i = first; i < end->nsrc; i++)
        if (ki_scope_has(s, x, end->src[i]) && !add_column(c, end->src[i], lanes)) return false;
    for (uint32_t q = 0; q < s->nrange; q++) { /* a sum inside another one is not looked at */
        kn_uop closer = ki_nest_closer(k, s->range[q]);
        if (ki_scope_has(s, x, s->range[q]) && (!closer || closer->op != KN_END)) return false;
    }
    return c->n > 0;
}

typedef struct sums { /* over one loop, of the same columns */
    kn_uop x[MOST_SUMS];
    uint32_t n;
    columns c;
    bool places; /* a maximum, and the first place of it (first.c) */
    ki_first first;
} sums;

/* A maximum takes along the loop that looks for its place, which varies along what it varies along. */
static void find_place(const ki_nest *k, sums *s) {
    for (uint32_t i = k->scope.at[s->x[0]->id] + 1; s->n == 1 && i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        s->places = u->op == KN_REDUCE && ki_find_first(k, u, &s->first) && s->first.most == s->x[0];
        if (s->places) s->x[s->n++] = u;
    }
}

/* Do two sums stand in the same loops, but for such as are around both? */
static bool stand_together(const ki_nest *k, kn_uop end, kn_uop a, kn_uop b) {
    const ki_scope *s = &k->scope;
    for (uint32_t q = 0; q < s->nrange; q++) {
        if (ki_scope_has(s, a, s->range[q]) == ki_scope_has(s, b, s->range[q])) continue;
        kn_uop closer = ki_nest_closer(k, s->range[q]), e = end;
        while (e && e != closer) e = k->around[s->at[e->id]];
        if (!e) return false;
    }
    return true;
}

/* The sums over r, by the loops of a nest from j on. NULL, or why that cannot be. */
static const char *find_sums(const ki_nest *k, kn_uop r, kn_uop j, sums *s) {
    kn_uop end = ki_nest_closer(k, j);
    s->n = 0, s->places = false;
    if (end->op != KN_END) return "the other is no loop of a nest";
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (u->op != KN_REDUCE || ki_place_in(u, r) == u->nsrc) continue;
        columns own;
        if (s->n == MOST_SUMS || u->nsrc != 2 || u->arg.reduce.axes || u->dtype == KN_IDX)
            return "it has other loops, or other sums";
        if (!find_columns(k, end, j, u, false, &own) || (s->n && memcmp(own.range, s->c.range, sizeof own.range) != 0))
            return "its columns are not loops of constant extent";
        if (loops_inside(k, u->src[0], r, &own, false)) return "there are loops or lanes inside";
        if (ki_reads_written(k, u)) return "it reads what the kernel writes";
        if (s->n && !stand_together(k, end, u, s->x[0])) return "another sum stands in loops of its own";
        s->x[s->n++] = u, s->c = own;
    }
    if (s->n == 1) find_place(k, s);
    return NULL;
}

/* What acc[], NULL: nothing, of each of the sums becomes by the rows of w. */
static bool grow(ki_ir *ir, const sums *s, const walk *w, kn_uop *acc) {
    const ki_first *p = &s->first;
    for (uint32_t i = 0; i < s->n && !s->places; i++)
        if (!(acc[i] = grown(ir, s->x[i], &s->c, w, acc[i]))) return false;
    for (int64_t m = 0; m < w->n && s->places; m++) {
        kn_uop x[2] = {p->most->src[0], p->place->src[0]->src[1]};
        for (uint32_t i = 0; i < 2; i++)
            if (!(x[i] = of_row(ir, x[i], i ? p->q : p->r, &s->c, w, m))) return false;
        if (acc[0] && !ki_first_step(ir, p, x[0], x[1], acc)) return false;
        if (!acc[0]) acc[0] = x[0], acc[1] = x[1];
    }
    return true;
}

static kn_uop sum_rows(ki_nest *k, ki_opt *o, kn_uop r, kn_uop j) {
    ki_ir *ir = k->ir;
    kn_uop to[MOST_SUMS] = {0}, acc[MOST_SUMS], put[MOST_SUMS], buf[MOST_SUMS], body;
    int64_t rows = ki_extent(r), n = o->id, h = n > 0 ? (rows - 1) % n + 1 : 0;
    uint32_t next = ki_nest_next_range(k), buffer = ki_nest_next_buffer(k);
    sums sum;
    const char *why = find_sums(k, r, j, &sum);
    const columns *c = &sum.c;
    if (n < 1 || n > MOST_ROWS || n >= rows) return FAIL("so many rows at a time there are not");
    if (why) return FAIL(why);
    walk first = {.r = r, .n = h, .contract = o->top}, rest = {.r = r, .first = h, .n = n, .contract = o->top};
    kn_uop at[2] = {copy(ir, c, next, first.loops), copy(ir, c, next + c->n, rest.loops)};
    if (!grow(ir, &sum, &first, to)) return NULL;
    for (uint32_t i = 0; i < sum.n; i++) {
        buf[i] = ki_buffer_make(ir, buffer + i, c->size, (kn_dtype)sum.x[i]->dtype, KN_LOCAL, 0);
        put[i] =
            ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, ki_nest_home(k, buf[i], sum.x[i], c->range, c->n), at[0]), to[i]);
    }
    body = sum.n > 1 ? ki_opn(ir, KN_GROUP, put, sum.n) : put[0];
    kn_uop done = end_of(ir, body, NULL, first.loops, c->n);
    rest.row = ki_range_make(ir, r->arg.range.id, KN_AX_LOOP, ki_index(ir, (rows - h) / n));
    for (uint32_t i = 0; i < sum.n; i++)
        acc[i] = to[i] = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, buf[i], done, rest.row), at[1]);
    if (!acc[0] || !grow(ir, &sum, &rest, to)) return NULL;
    for (uint32_t i = 0; i < sum.n; i++) put[i] = ki_op2(ir, KN_STORE, acc[i], to[i]);
    body = sum.n > 1 ? ki_opn(ir, KN_GROUP, put, sum.n) : put[0];
    done = end_of(ir, body, rest.row, rest.loops, c->n);
    for (uint32_t i = 0; i < sum.n; i++)
        to[i] = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf[i], done), number(ir, c, c->range));
    return done && to[0] ? ki_substitute(ir, k->sink, sum.x, to, sum.n) : NULL;
}

/* ---- a sum of several loops: one of them goes around the columns --------------------------------------------------- */

/* What is other where a block of a sum stands in loops of its own: r first, then the columns, then what is summed up inside. */
typedef struct block {
    kn_uop range[MOST_BLOCK];
    uint32_t n;
} block;

/* False: there is too much. */
static bool find_block(const ki_nest *k, kn_uop x, kn_uop r, const columns *c, block *b) {
    kn_uop *node;
    int64_t n = ki_toposort(k->ir, &x, 1, &node);
    bool ok = n >= 0;
    *b = (block){.range = {r}, .n = 1 + c->n};
    memcpy(b->range + 1, c->range, c->n * sizeof *c->range);
    for (int64_t i = 0; i < n && ok; i++)
        for (uint32_t j = 1; (node[i] == x || sums_lanes(node[i])) && ok && j < node[i]->nsrc; j++) {
            if (node[i]->src[j] == r) continue;
            ok = b->n < MOST_BLOCK;
            if (ok) b->range[b->n++] = node[i]->src[j];
        }
    if (n >= 0) ki_free(node);
    return ok;
}

/* The block of x in which r is `at`: in the columns `loops`, or, NULL, where x stands. */
static kn_uop block_of(ki_nest *k, kn_uop x, const block *b, kn_uop at, const columns *c, const kn_uop *loops,
                       uint32_t *next) {
    kn_uop src[KI_MAX_RANK + 1], to[MOST_BLOCK] = {at};
    uint32_t n = 0;
    for (uint32_t i = 1; loops && i < b->n; i++) {
        kn_uop r = b->range[i];
        to[i] = i <= c->n ? loops[i - 1] : ki_range_make(k->ir, (*next)++, (kn_axis)r->arg.range.axis, r->src[0]);
    }
    for (uint32_t i = 0; i < x->nsrc; i++)
        if (x->src[i] != b->range[0]) src[n++] = ki_substitute(k->ir, x->src[i], b->range, to, loops ? b->n : 1);
    return at ? ki_with_srcs(k->ir, x, src, n) : NULL;
}

/* The columns as they lie in the buffer: those along which the nest stores last. */
static void order_columns(const ki_nest *k, kn_uop end, columns *c) {
    kn_uop store = ki_nest_store(end);
    bool known;
    for (uint32_t i = 0; store && i + 1 < c->n; i++) {
        if (!ki_is_lane(c->range[i]) || ki_nest_stride(k, store->src[0], c->range[i], &known) != 1 || !known) continue;
        kn_uop last = c->range[i];
        memmove(c->range + i, c->range + i + 1, (c->n - i - 1) * sizeof *c->range);
        c->range[c->n - 1] = last;
        return;
    }
}

static kn_uop sum_blocks(ki_nest *k, kn_uop x, const block *b, const columns *c) {
    ki_ir *ir = k->ir;
    kn_op op = (kn_op)x->arg.reduce.op;
    kn_uop loops[MOST_INNER], r = b->range[0], last = ki_index(ir, ki_extent(r) - 1);
    uint32_t next = ki_nest_next_range(k) + c->n;
    kn_uop buf = ki_buffer_make(ir, ki_nest_next_buffer(k), c->size, (kn_dtype)x->dtype, KN_LOCAL, 0);
    kn_uop at = copy(ir, c, next - c->n, loops), to = ki_op2(ir, KN_INDEX, ki_nest_home(k, buf, x, c->range, c->n), at);
    kn_uop part = block_of(k, x, b, ki_index(ir, 0), c, loops, &next);
    kn_uop done = part ? end_of(ir, ki_op2(ir, KN_STORE, to, part), NULL, loops, c->n) : NULL;
    if (done && ki_extent(r) > 2) {
        kn_uop row = ki_range_make(ir, r->arg.range.id, KN_AX_LOOP, ki_index(ir, ki_extent(r) - 2));
        at = copy(ir, c, next, loops), next += c->n;
        to = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, buf, done, row), at);
        part = block_of(k, x, b, ki_op2(ir, KN_ADD, row, ki_index(ir, 1)), c, loops, &next);
        done = part ? end_of(ir, ki_op2(ir, KN_STORE, to, ki_op2(ir, op, to, part)), row, loops, c->n) : NULL;
    }
    kn_uop kept = done ? ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf, done), number(ir, c, c->range)) : NULL;
    part = kept ? block_of(k, x, b, last, c, NULL, &next) : NULL;
    kn_uop sum = part ? ki_op2(ir, op, kept, part) : NULL;
    return sum ? ki_substitute(ir, k->sink, &x, &sum, 1) : NULL;
}

static kn_uop sum_parts(ki_nest *k, ki_opt *o, kn_uop r, kn_uop j) {
    ki_ir *ir = k->ir;
    kn_uop x = ki_nest_closer(k, r), end = ki_nest_closer(k, j), loops[2][MOST_INNER], src[KI_MAX_RANK + 1];
    kn_op op = (kn_op)x->arg.reduce.op;
    uint32_t next = ki_nest_next_range(k), n = 1;
    columns c;
    if (o->id != 1 || x->arg.reduce.axes || x->dtype == KN_IDX || x->nsrc > KI_MAX_RANK)
        return FAIL("its sum has other loops: one step at a time, no lanes");
    if (end->op != KN_END) return FAIL("the other is no loop of a nest");
    if (!find_columns(k, end, j, x, o->top, &c)) return FAIL("its columns are not loops of constant extent");
    for (uint32_t i = 1; i < x->nsrc; i++)
        if (loops_inside(k, x->src[0], x->src[i], &c, o->top || ki_is_tiled(x)))
            return FAIL("there are loops or lanes inside");
    if (ki_reads_written(k, x)) return FAIL("it reads what the kernel writes");
    if (o->top && ki_extent(r) < 2) return FAIL("there is one block of it alone");
    if (o->top) {
        block b;
        order_columns(k, end, &c);
        if (!find_block(k, x, r, &c, &b)) return FAIL("there are too many loops inside");
        return sum_blocks(k, x, &b, &c);
    }
    kn_uop none = ki_const_bits(ir, (kn_dtype)x->dtype, ki_scalar_identity(op, (kn_dtype)x->dtype, true));
    kn_uop at[2] = {copy(ir, &c, next, loops[0]), copy(ir, &c, next + c.n, loops[1])};
    kn_uop buf = ki_buffer_make(ir, ki_nest_next_buffer(k), c.size, (kn_dtype)x->dtype, KN_LOCAL, 0);
    kn_uop home = ki_nest_home(k, buf, x, c.range, c.n),
           set = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, home, at[0]), none);
    bool one = ki_extent(r) == 1; /* step: it is what the sum is */
    kn_uop row = one ? NULL : ki_range_make(ir, r->arg.range.id, KN_AX_LOOP, r->src[0]);
    kn_uop kept = one ? home : ki_op3(ir, KN_AFTER, buf, end_of(ir, set, NULL, loops[0], c.n), row);
    kn_uop acc = ki_op2(ir, KN_INDEX, kept, at[1]);
    walk w = {.row = row, .n = 1};
    memcpy(w.loops, loops[1], sizeof w.loops);
    src[0] = of_row(ir, x->src[0], r, &c, &w, 0);
    for (uint32_t i = 1; i < x->nsrc; i++)
        if (x->src[i] != r) src[n++] = x->src[i];
    if (!acc || !src[0]) return NULL;
    kn_uop part = ki_with_srcs(ir, x, src, n);
    kn_uop all = one ? part : ki_op2(ir, op, acc, part);
    kn_uop done = end_of(ir, ki_op2(ir, KN_STORE, acc, all), row, loops[1], c.n);
    kn_uop sum = ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, buf, done), number(ir, &c, c.range));
    return sum ? ki_substitute(ir, k->sink, &x, &sum, 1) : NULL;
}

/* ---- a loop that carries a sum ------------------------------------------------------------------------------------- */

typedef struct carried {
    kn_uop after, start, old, store, got; /* AFTER(buf, start, r), its element, what is stored there, that read again */
} carried;

/* What loop r of end carries, if it is one value and nothing else loops or is kept there. */
static bool find_carried(const ki_nest *k, kn_uop end, kn_uop r, carried *c) {
    kn_uop *node, buf = NULL;
    int64_t n = ki_toposort(k->ir, &end, 1, &node);
    bool ok = n >= 0 && (end->src[0]->op != KN_GROUP || end->src[0]->nsrc <= MOST_STORES);
    *c = (carried){0};
    for (int64_t i = 0; i < n && ok; i++) {
        kn_uop u = node[i];
        ok = u->op != KN_REDUCE && u->op != KN_LOAD && (u->op != KN_END || u == end);
        if (u->op == KN_BUFFER) ok &= !buf && u->arg.buffer->addrspace == KN_REG && u->arg.buffer->size == 1, buf = u;
        if (u->op == KN_AFTER && u->nsrc == 3 && u->src[2] == r && u->src[1]->op == KN_STORE) {
            ok &= !c->after && u->src[0] == buf && u->src[1]->nsrc == 2;
            c->after = u, c->start = u->src[1];
        } else if (u->op == KN_INDEX && c->after && u->src[0] == c->after) {
            c->old = u;
        } else if (u->op == KN_STORE && c->old && u->src[0] == c->old) {
            ok &= !c->store && u->nsrc == 2;
            c->store = u;
        } else if (c->store && u->op == KN_INDEX && u->src[0]->op == KN_AFTER && u->src[0]->src[0] == buf) {
            ok &= u->src[0]->nsrc == 2 && u->src[0]->src[1] == c->store;
            c->got = u;
        }
    }
    if (n >= 0) ki_free(node);
    return ok && c->got && ki_storage(c->start->src[0]) == buf && !ki_reads_written(k, end);
}

/* r goes around the loops from j on, n steps of it at a time. */
static kn_uop carry_rows(ki_nest *k, ki_opt *o, kn_uop r, kn_uop j) {
    ki_ir *ir = k->ir;
    kn_uop end = ki_nest_closer(k, r), body = end->src[0], loops[MOST_INNER], src[MOST_ROWS * MOST_STORES + 1],
           list[KI_MAX_RANK + 2];
    uint32_t first = ki_place_in(end, j), last = ki_place_in(end, r), next = ki_nest_next_range(k), n = 0, put = 0;
    uint32_t stores = body->op == KN_GROUP ? body->nsrc : 1;
    int64_t rows = ki_extent(r);
    carried sum;
    columns c = {.size = 1};
    if (first >= last || last + 1 != end->nsrc || end->nsrc > KI_MAX_RANK + 2)
        return FAIL("it is not the innermost loop of a nest that the other stands in");
    if (o->id < 1 || o->id > MOST_ROWS || rows % o->id || o->top)
        return FAIL("so many rows at a time do not divide it");
    for (uint32_t q = first; q < last; q++)
        if (!add_column(&c, end->src[q], false)) return FAIL("its columns are not loops of constant extent");
    if (!find_carried(k, end, r, &sum))
        return FAIL("it carries no single value, or does more, or reads what it writes");
    kn_uop copied = copy(ir, &c, next, loops),
           buf = ki_buffer_make(ir, ki_nest_next_buffer(k), c.size, (kn_dtype)sum.old->dtype, KN_LOCAL, 0);
    kn_uop set = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, ki_nest_home(k, buf, sum.start, c.range, c.n), copied),
                        ki_substitute(ir, sum.start->src[1], c.range, loops, c.n));
    kn_uop start = end_of(ir, set, NULL, loops, c.n);
    kn_uop i = ki_range_make(ir, r->arg.range.id, (kn_axis)r->arg.range.axis, ki_index(ir, rows / o->id));
    kn_uop acc = ki_op2(ir, KN_INDEX, ki_op3(ir, KN_AFTER, buf, start, i), number(ir, &c, c.range));
    kn_uop from[3] = {r, sum.old, sum.got}, to[3] = {NULL, acc, NULL};
    for (int32_t m = 0; m < o->id; m++) {
        to[0] = ki_op2(ir, KN_ADD, ki_op2(ir, KN_MUL, i, ki_index(ir, o->id)), ki_index(ir, m));
        if (!to[0] || !to[1] || !(to[2] = ki_substitute(ir, sum.store->src[1], from, to, 2))) return NULL;
        for (uint32_t q = 0; q < stores; q++)
            src[put++] = ki_substitute(ir, body->op == KN_GROUP ? body->src[q] : body, from, to, 3);
        to[1] = to[2];
    }
    src[put++] = ki_op2(ir, KN_STORE, acc, to[1]);
    list[n++] = ki_opn(ir, KN_GROUP, src, put);
    for (uint32_t q = 1; q < first; q++) list[n++] = end->src[q];
    list[n++] = i;
    for (uint32_t q = first; q < last; q++) list[n++] = end->src[q];
    kn_uop now = ki_opn(ir, KN_END, list, n);
    return now ? ki_substitute(ir, k->sink, &end, &now, 1) : NULL;
}

kn_uop ki_opt_rows(ki_nest *k, ki_opt *o) {
    kn_uop r = ki_nest_range(k, (uint32_t)o->axis), j = ki_nest_range(k, (uint32_t)o->arg);
    if (!j || !ki_nest_closer(k, j) || j == r) return FAIL("there is no such other loop");
    if (!ki_is_serial(r)) return FAIL("it is no loop");
    kn_uop closer = ki_nest_closer(k, r);
    if (closer->op != KN_REDUCE) return carry_rows(k, o, r, j);
    return closer->nsrc > 2 ? sum_parts(k, o, r, j) : sum_rows(k, o, r, j);
}

/* ---- when it pays ------------------------------------------------------------------------------------------ */

#define LEAST (1 << 20) /* bytes of a matrix: what a second-level cache holds may be read in any order */
#define ROWS  (1 << 10) /* of such a matrix: shorter ones are as wide as a strip */
#define PAGES                                                                                                          \
    (1 << 13) /* bytes: shorter rows go one by one; of several at once none is long enough to be fetched ahead */
#define PART (1 << 16) /* where there are more, their columns are taken in parts */

bool ki_choice_rows(ki_choice *c, kn_uop r, kn_uop v, int64_t rows, bool contract) {
    ki_opt o = {.op = KI_OPT_ROWS,
                .top = contract,
                .axis = (int32_t)r->arg.range.id,
                .arg = (int32_t)v->arg.range.id,
                .id = (int32_t)rows};
    c->ok = c->ok && c->steps++ < KI_MOST_OPTS;
    return ki_choice_look(c, c->ok ? ki_nest_apply(&c->nest, o) : NULL), true;
}

/* How many bytes apart the rows of a large matrix lie which r counts, where v is the place within one; 0: nothing reads such a matrix. */
static int64_t rows_apart(const ki_choice *c, kn_uop r, kn_uop v) {
    const ki_nest *k = &c->nest;
    int64_t least = c->from && c->from < LEAST ? (int64_t)c->from : LEAST;
    bool known[2];
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop u = k->scope.node[i];
        if (!k->read[i] || ki_storage(u)->op != KN_PARAM || !ki_scope_has(&k->scope, u, r)) continue;
        int64_t apart = ki_nest_stride(k, u, r, known), unit = ki_nest_stride(k, u, v, known + 1);
        if (!known[0] || !known[1] || unit != 1) continue;
        apart = (apart < 0 ? -apart : apart) * (int64_t)ki_itemsize((kn_dtype)u->dtype);
        if (apart && apart >= least / ROWS && ki_extent(r) >= least / apart) return apart;
    }
    return 0;
}

bool ki_keeps_sums(const ki_choice *c, kn_uop e) {
    kn_uop body = e->src[0], last = body->op == KN_GROUP && body->nsrc ? body->src[body->nsrc - 1] : body;
    kn_uop b = last->op == KN_STORE ? ki_storage(last->src[0]) : NULL;
    bool local = b && b->op == KN_BUFFER && b->arg.buffer->addrspace == KN_LOCAL;
    return local && (last->src[1]->op == KN_REDUCE || ki_nest_carries(&c->nest, e));
}

/* At once, of so many bytes each, so many apart. Where much is to be under way, what lies along memory as it is gone through goes so as long as a
 * first cache has room for it beside the sums: a maximum's rows may be longer, as it does more with each vector. Argmax of many short rows of
 * whole lines takes eight there (4 KiB: 0.8 of the time one by one took, 0.55 where two threads have as much of each). */
static int64_t rows_at_once(const ki_choice *c, const sums *s, int64_t bytes, int64_t apart, int64_t rows,
                            unsigned weight) {
    bool lines = c->ahead && bytes % c->target->line == 0 && apart % c->target->line == 0;
    if (lines && s->places && bytes < PAGES && rows >= 16) return 8;
    int64_t most = !lines || s->n > 1 || s->places || bytes != apart ? PAGES - 1
                   : s->x[0]->arg.reduce.op == KN_MAX                ? 2 * PAGES
                                                                     : PAGES;
    return bytes <= most ? 1 : weight <= 10 ? 8 : weight <= 24 ? 4 : 2;
}

/* What the loop r inside v carries. */
static bool choose_carried(ki_choice *c, kn_uop e, kn_uop r, kn_uop v) {
    carried sum;
    bool inside = ki_place_in(e, v) + 1 == ki_place_in(e, r) && ki_nest_carries(&c->nest, e);
    if (!inside || !rows_apart(c, r, v) || !find_carried(&c->nest, e, r, &sum)) return false;
    int64_t bytes = ki_extent(v) * (int64_t)ki_itemsize((kn_dtype)sum.old->dtype);
    /* Each stores something too, and past the caches four with AVX2 took 2.5 times as long as two. */
    int64_t n = bytes < PAGES ? 1 : ki_is_narrow(c) ? 2 : 4;
    while (ki_extent(r) % n) n /= 2;
    return bytes <= KI_MOST_KEPT && ki_choice_rows(c, r, v, n, false);
}

/* Sums that stand outside v, the rows' length: down columns that another loop of the nest counts, which would go through the matrix once
 * for each. */
static bool choose_outer(ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    for (uint32_t i = 0; i < k->scope.at[e->id]; i++) {
        kn_uop x = k->scope.node[i], r = x->op == KN_REDUCE && x->nsrc == 2 ? x->src[1] : NULL;
        if (!r || ki_is_lane(r) || ki_scope_has(&k->scope, x, v)) continue;
        for (uint32_t q = 1; q < e->nsrc; q++) {
            kn_uop j = e->src[q];
            sums sum;
            if (j == v || !ki_is_serial(j) || ki_extent(j) < c->lanes || !ki_scope_has(&k->scope, x, j)) continue;
            int64_t apart = rows_apart(c, r, j);
            if (!apart || find_sums(k, r, j, &sum)) continue;
            int64_t bytes = ki_extent(j) * (int64_t)ki_itemsize((kn_dtype)x->dtype);
            int64_t n = rows_at_once(c, &sum, bytes, apart, ki_extent(r), ki_weight_in(k, r));
            if (ki_extent(r) < 2 * n) continue;
            if (sum.c.size * (int64_t)ki_itemsize((kn_dtype)x->dtype) > KI_MOST_KEPT) continue;
            return ki_choice_rows(c, r, j, n, ki_target_has(c->target, KN_MULACC));
        }
    }
    return false;
}

bool ki_choose_rows(ki_choice *c, kn_uop e, kn_uop v) {
    const ki_nest *k = &c->nest;
    if (v && choose_outer(c, e, v)) return true;
    if (!v || ki_extent(v) < c->lanes) return false;
    if (ki_last_loop(e) != v) return choose_carried(c, e, ki_last_loop(e), v);
    if (!ki_sums_columns(k, e, v)) return false;
    for (uint32_t i = 0; i < k->scope.n; i++) {
        kn_uop x = k->scope.node[i], r = x->op == KN_REDUCE && x->nsrc == 2 ? x->src[1] : NULL;
        sums sum;
        if (!r || x->id > e->id || ki_is_lane(r) || !ki_scope_has(&k->scope, x, v)) continue;
        int64_t apart = rows_apart(c, r, v);
        if (!apart || find_sums(k, r, v, &sum)) continue;
        int64_t item = (int64_t)ki_itemsize((kn_dtype)x->dtype), bytes = ki_extent(v) * item;
        int64_t n = rows_at_once(c, &sum, bytes, apart, ki_extent(r), ki_weight_in(k, r));
        if (ki_extent(r) < 2 * n) continue;
        if (bytes <= KI_MOST_KEPT) return ki_choice_rows(c, r, v, n, ki_target_has(c->target, KN_MULACC));
        if (ki_choice_even(c, v, PART / item)) return true;
        return ki_choice_do(c, KI_OPT_SPLIT, (kn_axis)v->arg.range.axis, false, v->arg.range.id, PART / item), true;
    }
    return false;
}
