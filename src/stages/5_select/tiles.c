/* tiles.c: sums of dot products over 16 words (3_optimize/dots.c) as products of tiles, for targets with AMX, before lanes are parted:
 *
 *   acc[m, n] = acc[m, n] + reduce(ins(none, a[m, k], b[k, n]); add, k)        m by 16, n and k 16 lanes
 *     =>  tile = ins(tile, words of 16 rows of a, words of b; "TDP...")        for each 16 by 16 of acc
 *
 * A tile is a value of (256,), which devec.c leaves whole. acc keeps its name and size, but has its elements tile by tile; what reads the
 * finished sum reads a LOCAL buffer that the tiles are stored to first. A sum of another form stays as it is; bytes of one sign, of which no
 * vector's products need be there, are made unsigned by signed ones.
 *
 * A sum of one product, which no loop adds up, is one that begins as nothing. What a loop has left over (dots.c) is added to the same tiles behind it.
 *
 * A block of a sum (3_optimize/rows.c) is added to what is kept of those before: its tiles begin as that, and are stored where it lay. */
#include "base/cpuid.h"
#include "stages/5_select/kept.h"
#include "stages/5_select/select.h"

#include <string.h>

enum { SIDE = 16, TILE = SIDE * SIDE, MOST = 64 }; /* sums: three of each nest that is in blocks */

/* turn: the factor of bytes of one sign that is x ^ 128 for VPDPBUSD, 128 more or less. */
static const struct product {
    const char *row, *tile;
    int turn;
} products[] = {
    {"VDPBF16PS", "TDPBF16PS", 0}, {"VPDPBUSD", "TDPBUSD", 0}, {"VPDPBSSD", "TDPBSSD", 1}, {"VPDPBUUD", "TDPBUUD", 2}};

static const struct product *product_of(kn_uop ins) {
    for (unsigned k = 0; ins->op == KN_INS && k < sizeof products / sizeof *products; k++)
        if (strcmp(ins->arg.str->s, products[k].row) == 0) return &products[k];
    return NULL;
}

typedef struct sum {
    kn_uop acc, update, mem, lanes; /* BUFFER; the STORE; where it is read; L of INDEX(acc, L) */
    kn_uop rest;                    /* the STORE of one product more, behind the loop, NULL none */
    kn_uop inside;                  /* AFTER(acc, loops around), NULL none */
    kn_uop put;             /* the only use of the sum, a STORE to rows of a LOCAL buffer; NULL: there is another */
    unsigned m, n, k, over; /* axes; over: of tiles along n, KI_MAX_RANK none */
    int64_t rows, columns;  /* tiles */
    const char *row;
} sum;

typedef struct tiles {
    ki_ir *ir;
    kn_uop *map; /* by id */
    sum sum[MOST];
    uint32_t n;
    kn_uop done; /* the last finished sum's STOREs to memory, and */
    const sum *of;
} tiles;

static kn_uop storage_of(kn_uop u) {
    while (u->op == KN_AFTER || u->op == KN_INDEX) u = u->src[0];
    return u;
}

/* A list of constants over axes. */
static bool is_list(kn_uop i) {
    if (i->op != KN_RESHAPE || i->src[0]->op != KN_STACK) return false;
    for (uint32_t k = 0; k < i->src[0]->nsrc; k++)
        if (!ki_is_const(i->src[0]->src[k])) return false;
    return true;
}

/* Whether index is a scalar base and such lists, one after the other; *add: constants of the base. */
static bool parted(kn_uop i, kn_uop *base, kn_uop *lanes, int64_t *add) {
    *base = NULL, *add = 0, *lanes = i;
    for (; i->op == KN_ADD && ki_rank(i); i = i->src[0])
        if (!is_list(i->src[1])) return false;
    if (ki_rank(i)) return is_list(i);
    for (*base = i; (*base)->op == KN_ADD && ki_is_const((*base)->src[1]); *base = (*base)->src[0])
        *add += (*base)->src[1]->arg.i;
    if (ki_is_const(*base)) *add += (*base)->arg.i, *base = NULL;
    return ki_rank(*lanes) != 0;
}

static int64_t element_of(kn_uop list, const int64_t *at) {
    int64_t i = 0;
    for (unsigned k = 0; k < ki_rank(list); k++) i = i * ki_dim_n(list, k) + (ki_dim_n(list, k) > 1 ? at[k] : 0);
    return list->src[0]->src[i]->arg.i;
}

/* What the lists add up to. */
static int64_t element(kn_uop lanes, const int64_t *at) {
    int64_t sum = 0;
    for (; lanes->op == KN_ADD && ki_rank(lanes); lanes = lanes->src[0]) sum += element_of(lanes->src[1], at);
    return ki_rank(lanes) ? sum + element_of(lanes, at) : sum;
}

/* The LOADs a word is put together of, the lowest first; their number, 0: it is something else. */
static uint32_t reads(kn_uop word, kn_uop *load) {
    kn_uop stack[8] = {word};
    uint32_t n = 0;
    for (uint32_t depth = 1; depth--;) {
        kn_uop u = stack[depth];
        if (u->op == KN_OR && depth < 6) {
            stack[depth++] = u->src[1]->op == KN_SHL ? u->src[1]->src[0] : u->src[1];
            stack[depth++] = u->src[0];
            continue;
        }
        while (u->op == KN_CAST || u->op == KN_BITCAST) u = u->src[0];
        if (u->op != KN_LOAD || u->nsrc != 1 || u->src[0]->op != KN_INDEX || n == 4) return 0;
        load[n++] = u;
    }
    unsigned bytes = (unsigned)ki_itemsize((kn_dtype)load[0]->dtype);
    return n * bytes == 4 ? n : 0;
}

/* The tile of words at `at`, along the axes outer (rows) and inner: the LOAD of its first element, the scalar base of its places
 * (NULL: 0), the places beside it. The elements of a word; 0: they do not lie in rows that are whole, one stride apart. */
static uint32_t words_at(kn_uop word, int64_t *at, unsigned outer, unsigned inner, kn_uop *first, kn_uop *from,
                         int64_t *place) {
    kn_uop load[4], base[4], lanes[4];
    int64_t add[4], top = at[outer];
    uint32_t n = reads(word, load);
    for (uint32_t k = 0; k < n; k++) {
        bool same = parted(load[k]->src[0]->src[1], &base[k], &lanes[k], &add[k]) && base[k] == base[0];
        if (!same || load[k]->src[0]->src[0] != load[0]->src[0]->src[0]) return 0;
    }
    for (uint32_t i = 0; i < TILE; i++)
        for (uint32_t k = 0; k < n; k++) {
            at[outer] = top + i / SIDE, at[inner] = i % SIDE;
            place[i * n + k] = element(lanes[k], at) + add[k];
        }
    at[outer] = top, at[inner] = 0;
    for (uint32_t i = 0; i < TILE * n; i++)
        if (place[i] != place[0] + i / (SIDE * n) * (place[SIDE * n] - place[0]) + i % (SIDE * n)) return 0;
    if (n) *first = load[0], *from = base[0];
    return n;
}

/* Of what a sum so far and a product add up to: the product's REDUCE, and the other. */
static kn_uop product_in(kn_uop v) { return v->src[v->src[1]->op == KN_REDUCE]; }
static kn_uop sum_in(kn_uop v) { return v->src[v->src[1]->op != KN_REDUCE]; }

/* ---- which sums ---------------------------------------------------------------------------------------------- */

static unsigned varies(kn_uop u) {
    unsigned axes = 0;
    for (unsigned k = 0; k < ki_rank(u); k++) axes |= (ki_dim_n(u, k) > 1) << k;
    return axes;
}

static unsigned axis_of(unsigned axes) { return axes ? (unsigned)ki_ctz64(axes) : KI_MAX_RANK; }

static bool matches(kn_uop st, sum *s) {
    kn_uop to = st->src[0], v = st->src[1], red = v->op == KN_ADD ? product_in(v) : NULL;
    *s = (sum){.update = st, .acc = storage_of(to), .over = KI_MAX_RANK};
    if (st->nsrc != 2 || !red || red->op != KN_REDUCE || red->nsrc != 1 || red->src[0]->op != KN_INS) return false;
    kn_uop ins = red->src[0], old = sum_in(v), base;
    int64_t add;
    if (old->op != KN_LOAD || old->src[0] != to || s->acc->op != KN_BUFFER || ins->nsrc != 3) return false;
    s->row = product_of(ins) ? product_of(ins)->tile : NULL;
    if (!s->row || to->op != KN_INDEX || !parted(to->src[1], &base, &s->lanes, &add) || base) return false;
    unsigned k = red->arg.reduce.axes, m = varies(ins->src[1]) & ~k, n = varies(ins->src[2]) & ~k;
    if (k & (k - 1) || !m || m & (m - 1) || !n || m & n) return false;
    s->k = axis_of(k), s->m = axis_of(m);
    s->rows = ki_dim_n(ins, s->m) / SIDE, s->columns = 1;
    for (unsigned a = 0; a < ki_rank(ins); a++) {
        if (!(n >> a & 1)) continue;
        if (ki_dim_n(ins, a) == SIDE && s->n == 0) s->n = a;
        else if (s->over == KI_MAX_RANK) s->over = a, s->columns = ki_dim_n(ins, a);
        else return false;
    }
    bool whole = ki_dim_n(ins, s->k) == SIDE && ki_dim_n(ins, s->n) == SIDE && ki_dim_n(ins, s->m) % SIDE == 0;
    return whole && s->rows * s->columns * TILE == s->acc->arg.buffer->size && s->rows * s->columns <= 4;
}

static sum *sum_of(tiles *t, kn_uop memory) {
    for (uint32_t k = 0; k < t->n; k++)
        if (storage_of(memory) == t->sum[k].acc) return &t->sum[k];
    return NULL;
}

/* ---- nodes --------------------------------------------------------------------------------------------------- */

/* The place in mem of the lane `at`: rows of tiles' rows. */
static int64_t place_in(const sum *s, const int64_t *at) {
    int64_t over = s->over < KI_MAX_RANK ? at[s->over] : 0;
    return (at[s->m] * s->columns + over) * SIDE + at[s->n];
}

/* The first lane of tile q, and that of its row and column. */
static void lane_of(const sum *s, int64_t q, uint32_t i, int64_t *at) {
    memset(at, 0, KI_MAX_RANK * sizeof *at);
    at[s->m] = q / s->columns * SIDE + i / SIDE, at[s->n] = i % SIDE;
    if (s->over < KI_MAX_RANK) at[s->over] = q % s->columns;
}

/* Where tile q of s lies in a LOCAL buffer that is indexed by `index`: its first place and what its rows are apart. False: not in rows. */
static bool rows_in(const sum *s, int64_t q, kn_uop index, kn_uop *base, int64_t *first, int64_t *apart) {
    int64_t at[KI_MAX_RANK], add, place;
    kn_uop lanes;
    if (!parted(index, base, &lanes, &add)) return false;
    for (uint32_t i = 0; i < TILE; i++) {
        lane_of(s, q, i, at);
        place = element(lanes, at) + add;
        if (i == 0) *first = place;
        if (i == SIDE) *apart = place - *first;
        if (i >= SIDE ? place != *first + i / SIDE * *apart + i % SIDE : place != *first + i) return false;
    }
    return true;
}

/* INDEX(memory, the places of tile q). */
static kn_uop tile_in(tiles *t, const sum *s, int64_t q, kn_uop memory, kn_uop index) {
    kn_uop place[TILE], base, list;
    int64_t first, apart;
    if (!rows_in(s, q, index, &base, &first, &apart)) return NULL;
    for (uint32_t i = 0; i < TILE; i++) place[i] = ki_index(t->ir, first + i / SIDE * apart + i % SIDE);
    list = ki_opn(t->ir, KN_STACK, place, TILE);
    return ki_op2(t->ir, KN_INDEX, memory, base ? ki_op2(t->ir, KN_ADD, t->map[base->id], list) : list);
}

static bool in_rows(const sum *s, kn_uop access) {
    kn_uop buf = storage_of(access), base;
    int64_t first, apart;
    bool local = buf->op == KN_BUFFER && buf->arg.buffer->addrspace == KN_LOCAL && access->op == KN_INDEX;
    for (int64_t q = 0; local && q < s->rows * s->columns; q++)
        if (!rows_in(s, q, access->src[1], &base, &first, &apart)) return false;
    return local;
}

static bool has_loop(const sum *s) {
    kn_uop to = s->update->src[0]->src[0];
    return to->op == KN_AFTER && to->src[to->nsrc - 1]->op == KN_RANGE;
}

/* Memory, read behind what acc is AFTER, where no loop reads it: further outside there are no registers for more tiles. */
static kn_uop behind(tiles *t, kn_uop memory, kn_uop acc) {
    return acc->op == KN_AFTER ? ki_after(t->ir, memory, acc->src + 1, acc->nsrc - 1) : memory;
}

/* A STORE to a sum's accumulators, tile by tile; without a value, a copy of the tiles to memory, places of it as `index`, NULL: one tile after the
 * other's rows. */
static kn_uop each_tile(tiles *t, const sum *s, kn_uop acc, kn_uop value, kn_uop memory, kn_uop index) {
    kn_uop part[4], place[TILE * 4], there[TILE], load, base,
        ins = value && value->op == KN_ADD ? product_in(value)->src[0] : NULL,
        from = value && value->op == KN_LOAD ? value->src[0] : NULL;
    int64_t at[KI_MAX_RANK], n = s->rows * s->columns, number[TILE * 4];
    for (int64_t q = 0; q < n; q++) {
        for (uint32_t i = 0; i < TILE; i++) {
            lane_of(s, q, i, at);
            place[i] = ki_index(t->ir, q * TILE + i);
            there[i] = ki_index(t->ir, place_in(s, at));
        }
        lane_of(s, q, 0, at);
        kn_uop to = ki_op2(t->ir, KN_INDEX, acc, ki_opn(t->ir, KN_STACK, place, TILE)), v = value;
        if (ins) {
            kn_uop src[3] = {ki_op1(t->ir, KN_LOAD, to)};
            for (int o = 1; o < 3; o++) {
                uint32_t parts =
                    words_at(ins->src[o], at, o == 1 ? s->m : s->k, o == 1 ? s->k : s->n, &load, &base, number);
                for (uint32_t i = 0; i < TILE * parts; i++) place[i] = ki_index(t->ir, number[i]);
                kn_uop list = ki_opn(t->ir, KN_STACK, place, TILE * parts), from = t->map[load->src[0]->src[0]->id];
                if (value != s->update->src[1] || !has_loop(s)) from = behind(t, from, acc);
                if (base) list = ki_op2(t->ir, KN_ADD, t->map[base->id], list);
                src[o] = ki_bitcast(t->ir, ki_op1(t->ir, KN_LOAD, ki_op2(t->ir, KN_INDEX, from, list)), KN_U32);
            }
            v = ki_str_op(t->ir, KN_INS, (kn_dtype)ins->dtype, s->row, strlen(s->row), src, 3);
        } else if (from) {
            v = ki_op1(t->ir, KN_LOAD, tile_in(t, s, q, t->map[from->src[0]->id], from->src[1]));
        } else if (!v) {
            v = ki_op1(t->ir, KN_LOAD, to);
            to = index ? tile_in(t, s, q, memory, index)
                       : ki_op2(t->ir, KN_INDEX, memory, ki_opn(t->ir, KN_STACK, there, TILE));
        }
        if (!(part[q] = ki_op2(t->ir, KN_STORE, to, v))) return NULL;
    }
    return ki_opn(t->ir, KN_GROUP, part, (uint32_t)n);
}

/* Is u what a product is added to? */
static bool is_old(const sum *s, kn_uop u) {
    return u == sum_in(s->update->src[1]) || (s->rest && u == sum_in(s->rest->src[1]));
}

/* Where a sum of one product begins: behind the one before it in the same loops, whose tiles are in memory by then. */
static kn_uop begin_behind(tiles *t, const sum *s, kn_uop acc) {
    uint32_t n = s->inside ? s->inside->nsrc : 1;
    bool same = t->done && !has_loop(s) && n == (t->of->inside ? t->of->inside->nsrc : 1);
    for (uint32_t k = 1; same && k < n; k++) same = s->inside->src[k] == t->of->inside->src[k];
    return same ? ki_after(t->ir, acc, &t->done, 1) : acc;
}

static kn_uop one(tiles *t, kn_uop u, kn_uop *src) {
    sum *s = u->op == KN_STORE || u->op == KN_LOAD ? sum_of(t, u->src[0]) : NULL;
    for (uint32_t k = 0; k < u->nsrc; k++) src[k] = t->map[u->src[k]->id];
    kn_uop total = u->op == KN_CAST && u->dtype == KN_BF16 && u->src[0]->op == KN_LOAD ? u->src[0] : NULL;
    /* The instruction flushes subnormal numbers, of which tiles make none. */
    if (total && total->dtype == KN_F32 && sum_of(t, total->src[0]))
        return ki_str_op(t->ir, KN_INS, KN_BF16, "VCVTNEPS2BF16", 13, src, 1);
    const struct product *p = product_of(u);
    if (p && p->turn) { /* of a sum that stays as it is; of others nobody asks for it */
        kn_uop turn = ki_const_int(t->ir, KN_U32, 0x80808080), none = ki_const_int(t->ir, KN_I32, 0);
        kn_uop first[] = {src[0], src[1], src[2]}, rest[] = {none, src[1], src[2]};
        first[p->turn] = ki_op2(t->ir, KN_XOR, src[p->turn], turn), rest[p->turn] = turn;
        return ki_op2(t->ir, KN_SUB, ki_str_op(t->ir, KN_INS, KN_I32, "VPDPBUSD", 8, first, 3),
                      ki_str_op(t->ir, KN_INS, KN_I32, "VPDPBUSD", 8, rest, 3));
    }
    kn_uop acc = s ? t->map[u->src[0]->src[0]->id] : NULL, place[4 * TILE];
    for (uint32_t k = 0; u->op == KN_STORE && !s && k < t->n; k++) {
        kn_uop last = t->sum[k].put == u ? u->src[1]->src[0] : NULL;
        if (last) return each_tile(t, &t->sum[k], t->map[last->src[0]->id], NULL, src[0]->src[0], u->src[0]->src[1]);
    }
    bool begins = s && u->op == KN_STORE && u != s->update && u != s->rest;
    if (s && u->op == KN_STORE) return each_tile(t, s, begins ? begin_behind(t, s, acc) : acc, u->src[1], NULL, NULL);
    if (!s || s->put || is_old(s, u)) return ki_with_src(t->ir, u, src);
    const ki_buffer *b = s->acc->arg.buffer;
    if (!s->mem) s->mem = ki_buffer_make(t->ir, t->ir->next_buffer, b->size, (kn_dtype)b->dtype, KN_LOCAL, 0);
    kn_uop mem = s->mem, l = s->lanes, done;
    for (uint32_t k = 1; s->inside && k < s->inside->nsrc; k++) src[k] = t->map[s->inside->src[k]->id];
    if (s->inside) mem = ki_after(t->ir, mem, src + 1, s->inside->nsrc - 1);
    if (!mem || !(done = each_tile(t, s, acc, NULL, mem, NULL))) return NULL;
    t->done = done, t->of = s;
    int64_t at[KI_MAX_RANK], dim[KI_MAX_RANK];
    for (int64_t i = 0, rest; i < b->size; i++) {
        rest = i;
        for (unsigned k = ki_rank(l); k-- > 0; rest /= dim[k]) dim[k] = ki_dim_n(l, k), at[k] = rest % dim[k];
        place[i] = ki_index(t->ir, place_in(s, at));
    }
    kn_uop all = ki_reshape(t->ir, ki_opn(t->ir, KN_STACK, place, (uint32_t)b->size), dim, ki_rank(l));
    return ki_op1(t->ir, KN_LOAD, ki_op2(t->ir, KN_INDEX, ki_op2(t->ir, KN_AFTER, s->mem, done), all));
}

/* All that is read of a and b lies as tiles do: tried before anything is changed. */
static bool can_read(const sum *s) {
    kn_uop ins = product_in(s->update->src[1])->src[0], load, base;
    int64_t at[KI_MAX_RANK] = {0}, place[TILE * 4];
    return words_at(ins->src[1], at, s->m, s->k, &load, &base, place) &&
           words_at(ins->src[2], at, s->k, s->n, &load, &base, place);
}

/* The only user of u; NULL: there are several. */
static kn_uop user_of(const kn_uop *order, int64_t n, kn_uop u) {
    kn_uop user = NULL;
    for (int64_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < order[i]->nsrc; k++) {
            if (order[i]->src[k] != u) continue;
            if (user) return NULL;
            user = order[i];
        }
    return user;
}

/* The finished sum, if it is read in one place. */
static kn_uop total_of(const kn_uop *order, int64_t n, const sum *s) {
    kn_uop total = NULL;
    for (int64_t i = 0; i < n; i++) {
        kn_uop u = order[i];
        if (u->op != KN_LOAD || storage_of(u->src[0]) != s->acc || is_old(s, u)) continue;
        if (total) return NULL;
        total = u;
    }
    return total;
}

/* A sum that is added to what a LOCAL buffer holds begins as that. */
static kn_uop begin_as_kept(ki_ir *ir, const kn_uop *order, int64_t n, const sum *s, kn_uop sink) {
    kn_uop total = total_of(order, n, s), add = total ? user_of(order, n, total) : NULL, kept = NULL, start = NULL;
    if (!add || add->op != KN_ADD) return sink;
    kept = add->src[add->src[0] == total];
    if (kept->op != KN_LOAD || kept->nsrc != 1 || !in_rows(s, kept->src[0]) || ki_rank(kept) != ki_rank(total))
        return sink;
    for (int64_t i = 0; i < n; i++)
        if (order[i]->op == KN_STORE && order[i] != s->update && storage_of(order[i]->src[0]) == s->acc)
            start = order[i];
    if (!start || start->nsrc != 2 || !ki_is_const(start->src[1])) return sink;
    sink = ki_substitute(ir, sink, &add, &total, 1);
    kn_uop as_kept = ki_op2(ir, KN_STORE, start->src[0], kept);
    return sink && as_kept ? ki_substitute(ir, sink, &start, &as_kept, 1) : NULL;
}

/* The product is added to what is at place, of acc: *st; the sum then. */
static kn_uop added(ki_ir *ir, kn_uop acc, kn_uop place, kn_uop product, kn_uop *st) {
    *st = ki_op2(ir, KN_STORE, place, ki_op2(ir, KN_ADD, ki_op1(ir, KN_LOAD, place), product));
    kn_uop at = place ? ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, acc, *st), place->src[1]) : NULL;
    return ki_op1(ir, KN_LOAD, at);
}

/* A finished sum to which one product is added, what a loop of whole ones has left over, is finished when that is added to the same tiles. */
static kn_uop add_rest(ki_ir *ir, const kn_uop *order, int64_t n, const sum *s, kn_uop sink) {
    kn_uop total = total_of(order, n, s), add = total ? user_of(order, n, total) : NULL;
    kn_uop red = add && add->op == KN_ADD ? add->src[add->src[0] == total] : NULL;
    if (!red || red->op != KN_REDUCE || s->rest) return sink;
    kn_uop st, now = added(ir, s->acc, total->src[0], red, &st);
    sum own;
    if (!now) return NULL;
    if (!matches(st, &own) || !can_read(&own) || own.row != s->row || own.lanes != s->lanes) return sink;
    if (own.m != s->m || own.n != s->n || own.k != s->k || own.over != s->over) return sink;
    return ki_substitute(ir, sink, &add, &now, 1);
}

/* A sum of one product has no loop and is kept nowhere: as one that has, of one iteration. */
static kn_uop give_sum(tiles *t, kn_uop u, kn_uop sink) {
    ki_ir *ir = t->ir;
    int64_t n = u->op == KN_REDUCE && product_of(u->src[0]) && ki_rank(u) ? ki_numel(u) : 0;
    for (uint32_t k = 0; k < t->n; k++)
        if (product_in(t->sum[k].update->src[1]) == u || (t->sum[k].rest && product_in(t->sum[k].rest->src[1]) == u))
            n = 0;
    if (n < TILE || n > 4 * TILE) return sink;
    ki_scope scope;
    if (!ki_scope_open(&scope, ir, sink)) return NULL;
    kn_uop acc = ki_buffer_make(ir, ir->next_buffer, n, (kn_dtype)u->dtype, KN_REG, 0), lanes;
    kn_uop inside = ki_keep_in(&scope, u, acc, NULL, &lanes);
    ki_scope_close(&scope);
    kn_uop start = ki_op2(ir, KN_STORE, ki_op2(ir, KN_INDEX, inside, lanes), u->src[0]->src[0]);
    kn_uop st, now = added(ir, acc, ki_op2(ir, KN_INDEX, ki_op2(ir, KN_AFTER, acc, start), lanes), u, &st);
    sum own;
    if (!now) return NULL;
    return matches(st, &own) && can_read(&own) ? ki_substitute(ir, sink, &u, &now, 1) : sink;
}

static void find_put(const kn_uop *order, int64_t n, sum *s) {
    kn_uop total = total_of(order, n, s), put = total ? user_of(order, n, total) : NULL;
    bool whole = put && put->op == KN_STORE && put->nsrc == 2 && put->src[1] == total;
    if (whole && in_rows(s, put->src[0])) s->put = put;
}

/* The kernel's sums that go by tiles, begun as what is kept where they are added to that; its nodes in order. NULL: env says why, and there are none. */
static kn_uop find_sums(tiles *t, kn_uop sink, kn_uop **order, int64_t *n) {
    for (bool again = true; again && sink;) {
        if ((*n = ki_toposort(t->ir, &sink, 1, order)) < 0) return NULL;
        t->n = 0;
        for (int64_t i = 0; i < *n && t->n < MOST; i++) {
            if ((*order)[i]->op != KN_STORE || !matches((*order)[i], &t->sum[t->n]) || !can_read(&t->sum[t->n]))
                continue;
            sum *before = sum_of(t, t->sum[t->n].acc);
            if (before) before->rest = (*order)[i];
            else t->n++;
        }
        kn_uop now = sink;
        for (uint32_t k = 0; k < t->n && now == sink; k++) now = begin_as_kept(t->ir, *order, *n, &t->sum[k], sink);
        for (uint32_t k = 0; k < t->n && now == sink; k++) now = add_rest(t->ir, *order, *n, &t->sum[k], sink);
        for (int64_t i = 0; i < *n && now == sink; i++) now = give_sum(t, (*order)[i], sink);
        again = now != sink;
        if (again) ki_free(*order);
        sink = now;
    }
    return sink;
}

kn_uop ki_tile_sums(ki_ir *ir, const ki_target *target, kn_uop sink) {
    kn_uop *order, *src = NULL;
    int64_t n = 0;
    if (!sink || target->level < KI_CPU_AMX_LEVEL) return sink;
    tiles t = {.ir = ir};
    if (!(sink = find_sums(&t, sink, &order, &n))) return NULL;
    t.map = ki_calloc((size_t)sink->id + 1, sizeof *t.map);
    uint32_t most = 4;
    for (int64_t i = 0; i < n; i++)
        if (order[i]->nsrc > most) most = order[i]->nsrc;
    bool ok = t.map && (src = ki_calloc(most, sizeof *src));
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    for (int64_t i = 0; i < n && ok; i++) t.map[order[i]->id] = order[i];
    for (uint32_t k = 0; k < t.n && ok; k++) {
        for (int64_t i = 0; i < n; i++) {
            kn_uop a = order[i]->op == KN_AFTER && order[i]->src[0] == t.sum[k].acc ? order[i] : NULL;
            if (a && a->nsrc > 1 && a->src[1]->op == KN_RANGE) t.sum[k].inside = a;
        }
        find_put(order, n, &t.sum[k]);
    }
    for (int64_t i = 0; i < n && ok; i++) ok = (t.map[order[i]->id] = one(&t, order[i], src)) != NULL;
    kn_uop out = ok ? t.map[sink->id] : NULL;
    ki_free(order), ki_free(src), ki_free(t.map);
    return out;
}
