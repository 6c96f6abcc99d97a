/* uop.c: the store of unique nodes: interning, marks, collection. See uop.h for what holds.
 *
 * Nodes live in an arena and never move. The directory `node` maps ids to nodes; the table `slot` maps hashes
 * to ids. Collection (graph.c) rebuilds the whole store from its roots. */
#include "ir/derive.h"

#include "base/gnu.h"

#include <stdio.h>
#include <string.h>

const ki_op_info ki_ops[KI_OP_COUNT] = {
#define MANY KI_MANY
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc)                                   \
    [KN_##name] = {text, KI_C_##class, KI_A_##arg, flags, least, most, doc},
#include "ir/ops.def"
#undef KI_OP
#undef MANY
};

const char *const ki_axis_names[KI_AX_COUNT] = {"GLOBAL", "LOCAL", "WARP",   "THREAD", "LOOP",
                                                "REDUCE", "GROUP", "UPCAST", "UNROLL"};
const char ki_axis_letters[KI_AX_COUNT] = {'g', 'l', 'w', 't', 'L', 'R', 'G', 'u', 'r'};

kn_op ki_op_named(const char *s, size_t n) {
    for (int op = 0; op < KI_OP_COUNT; op++)
        if (strlen(ki_ops[op].name) == n && memcmp(ki_ops[op].name, s, n) == 0) return (kn_op)op;
    return KI_OP_COUNT;
}

/* ---- interned payloads: a hidden length and hash stand before each ------------------------------------------ */

typedef struct payload {
    size_t n;
    uint32_t hash;
} payload;
#define PAYLOAD_HEAD 16

static const payload *payload_of(const void *p) { return (const payload *)((const char *)p - PAYLOAD_HEAD); }
size_t ki_payload_size(const void *p) { return payload_of(p)->n; }

static bool intern_grow(ki_ir *ir) {
    uint32_t cap = ir->intern_cap ? ir->intern_cap * 2 : 64;
    const void **table = ki_calloc(cap, sizeof *table);
    if (!table) return false;
    for (uint32_t i = 0; i < ir->intern_cap; i++) {
        if (!ir->intern[i]) continue;
        uint32_t k = payload_of(ir->intern[i])->hash & (cap - 1);
        while (table[k]) k = (k + 1) & (cap - 1);
        table[k] = ir->intern[i];
    }
    ki_free(ir->intern);
    ir->intern = table;
    ir->intern_cap = cap;
    return true;
}

static const void *intern_as(ki_ir *ir, const void *data, size_t n, uint32_t h) {
    if (ir->nintern * 2 >= ir->intern_cap && !intern_grow(ir)) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    uint32_t k = h & (ir->intern_cap - 1);
    for (; ir->intern[k]; k = (k + 1) & (ir->intern_cap - 1)) {
        const payload *head = payload_of(ir->intern[k]);
        if (head->hash == h && head->n == n && memcmp(ir->intern[k], data, n) == 0) return ir->intern[k];
    }
    char *p = ki_arena_alloc(&ir->arena, n + PAYLOAD_HEAD);
    if (!p) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    *(payload *)p = (payload){n, h};
    memcpy(p + PAYLOAD_HEAD, data, n);
    ir->intern[k] = p + PAYLOAD_HEAD;
    ir->nintern++;
    return p + PAYLOAD_HEAD;
}
const void *ki_intern(ki_ir *ir, const void *data, size_t n) { return intern_as(ir, data, n, ki_hash_place(data, n)); }
const void *ki_intern_again(ki_ir *ir, const void *p) {
    return intern_as(ir, p, payload_of(p)->n, payload_of(p)->hash);
}

const ki_type *ki_type_make(ki_ir *ir, unsigned rank, const ki_dim *dim, unsigned device, int axis) {
    _Alignas(16) char raw[sizeof(ki_type) + KI_MAX_RANK * sizeof *dim];
    ki_type *t = (ki_type *)raw;
    memset(t, 0, sizeof *t);
    t->rank = (uint16_t)rank;
    t->device = (uint16_t)device;
    t->axis = (int16_t)axis;
    int64_t numel = 1;
    bool zero = false;
    for (unsigned i = 0; i < rank; i++) {
        t->dim[i] = dim[i];
        if (dim[i].sym) t->symbolic = 1;
        if (dim[i].n < 0 || dim[i].n > INT64_C(1) << 47)
            return ki_fail(ir->env, KI_E_DIM_RANGE, "shape", (long long)dim[i].n), NULL;
        zero |= dim[i].n == 0;
    }
    for (unsigned i = 0; i < rank; i++)
        if (!zero && (ki_mul_overflow(numel, dim[i].n, &numel) || numel > INT64_C(1) << 62))
            return ki_fail(ir->env, KI_E_NUMEL_RANGE, (long long)dim[i].n, i), NULL;
    t->numel = zero ? 0 : numel;
    return ki_intern(ir, t, sizeof(ki_type) + rank * sizeof(ki_dim));
}

/* ---- the node table ----------------------------------------------------------------------------------------- */

static bool slots_rebuild(ki_ir *ir, uint32_t cap);

bool ki_ir_open(ki_ir *ir, ki_env *env) {
    *ir = (ki_ir){.env = env, .n = 1, .hashed = 1, .next_range = 0, .next_buffer = 0};
    if (!slots_rebuild(ir, 256)) return ki_fail(env, KI_E_NOMEM), false;
    ir->scalar = ki_type_make(ir, 0, NULL, 0, -1);
    if (!ir->scalar) ki_ir_close(ir);
    return ir->scalar != NULL;
}

void ki_ir_close(ki_ir *ir) {
    ki_arena_free(&ir->arena);
    ki_free(ir->node);
    ki_free(ir->slot);
    ki_free(ir->intern);
    ki_free(ir->seen);
    ki_free(ir->queue);
    ki_map_free(ir->spare);
    ki_free(ir->why);
    for (unsigned k = 0; k < 2; k++) ki_free(ir->spare_memo[k].visit);
    ki_ir *spare = ir->spare_store; /* which has none of its own */
    *ir = (ki_ir){0};
    if (spare) ki_ir_close(spare), ki_free(spare);
}

bool ki_ir_reset(ki_ir *ir) {
    /* The table shrinks with what fills it: clearing all of a large one would cost a small kernel more than it saves. */
    if (ir->nslot > 256 && ir->nslot > ir->n * 4) ir->nslot /= 2;
    memset(ir->slot, 0, ir->nslot * sizeof *ir->slot);
    if (ir->nintern) memset(ir->intern, 0, ir->intern_cap * sizeof *ir->intern);
    ir->n = ir->hashed = 1;
    ir->nintern = ir->next_range = ir->next_buffer = 0;
    ki_arena_clear(&ir->arena);
    if (ir->why) memset(ir->why, 0, ir->why_cap * sizeof *ir->why);
    ir->scalar = ki_type_make(ir, 0, NULL, 0, -1);
    return ir->scalar != NULL;
}

ki_ir *ki_ir_take(ki_ir *ir) {
    ki_ir *apart = ir->spare_store;
    ir->spare_store = NULL;
    if (apart) return apart;
    if (!(apart = ki_malloc(sizeof *apart))) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    return ki_ir_open(apart, ir->env) ? apart : (ki_free(apart), NULL);
}

void ki_ir_give(ki_ir *ir, ki_ir *apart) {
    if (!apart) return;
    if (!ir->spare_store && ki_ir_reset(apart)) ir->spare_store = apart;
    else ki_ir_close(apart), ki_free(apart);
}

/* Ops whose dtype is part of the key: that of all others follows from the rest of it. */
enum { BY_GIVEN, BY_SRC0, BY_SRC1, BY_SRC2, BY_BOOL, BY_VOID, BY_INDEX, BY_U8, BY_STACK, BY_TUPLE, BY_GETTUPLE };
static const struct key {
    uint8_t dtype; /* the bits of the dtype that are part of it: all or none */
    bool pointer;  /* the arg points to what is */
} keys[KI_OP_COUNT] = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc)                                   \
    [KN_##name] = {BY_##dtype == BY_GIVEN ? 255 : 0, KI_POINTERS >> KI_A_##arg & 1},
#include "ir/ops.def"
#undef KI_OP
};

static inline uint64_t hash_head(kn_op op, kn_dtype dtype, uint32_t nsrc, kn_arg arg, uint32_t tag) {
    uint64_t h = ki_hash_step((uint64_t)op << 40 | (uint64_t)(dtype & keys[op].dtype) << 32 | nsrc, tag);
    return ki_hash_step(h, keys[op].pointer && arg.p ? payload_of(arg.p)->hash : arg.bits);
}
static inline uint32_t node_hash(kn_op op, kn_dtype dtype, const kn_uop *src, uint32_t nsrc, kn_arg arg, uint32_t tag) {
    uint64_t h = hash_head(op, dtype, nsrc, arg, tag);
    for (uint32_t i = 0; i < nsrc; i++) h = ki_hash_step(h, src[i]->id);
    return (uint32_t)(h >> 32);
}

/* Where a node may be. In a small table, from its hash on. In one that outgrows the caches first in the line of eight
 * that the sum of its sources' ids names, so that what is made or looked up in turn lies side by side; where that is
 * full, from its hash on. */
enum { NEAR = 8, SMALL = 1 << 14, LARGE = 1 << 18 };
static inline uint32_t line_of(const kn_uop *src, uint32_t nsrc, uint32_t hash, uint32_t nslot) {
    uint32_t sum = 0;
    if (nslot <= SMALL || nsrc == 0) return hash;
    for (uint32_t i = 0; i < nsrc; i++) sum += src[i]->id;
    return sum * 2 & ~(uint32_t)(NEAR - 1);
}
static inline uint32_t nth_place(uint32_t line, uint32_t hash, uint32_t k, uint32_t nslot) {
    return ((k < NEAR ? line : hash) + k) & (nslot - 1);
}

static inline uint32_t hash_of(kn_uop u) {
    return node_hash((kn_op)u->op, (kn_dtype)u->dtype, u->src, u->nsrc, u->arg, u->tag);
}

static inline uint32_t in_slot(uint32_t id, uint32_t hash, uint32_t nslot) { return (hash & ~(nslot - 1)) | id; }

static void seat(uint32_t *slot, uint32_t nslot, kn_uop u) {
    uint32_t hash = hash_of(u), line = line_of(u->src, u->nsrc, hash, nslot), k = 0;
    while (slot[nth_place(line, hash, k, nslot)]) k++;
    slot[nth_place(line, hash, k, nslot)] = in_slot(u->id, hash, nslot);
}

/* In order of ids, as if all had been made with this size: the youngest leaves no hole (ki_ir_drop). */
static bool slots_rebuild(ki_ir *ir, uint32_t cap) {
    uint32_t *slot = ki_calloc(cap, sizeof *slot);
    if (!slot) return false;
    for (uint32_t id = 1; id < ir->n; id++) seat(slot, cap, ir->node[id]);
    ki_free(ir->slot);
    ir->slot = slot;
    ir->nslot = cap;
    ir->hashed = ir->n;
    return true;
}

static bool grow_nodes(ki_ir *ir, uint32_t least) {
    uint32_t cap = ir->cap ? ir->cap * 2 : 128;
    if (cap < least) cap = least;
    kn_uop *p = ki_realloc(ir->node, cap, sizeof *p);
    if (!p) return false;
    p[0] = NULL;
    ir->node = p;
    ir->cap = cap;
    return true;
}

static bool grow_slots(ki_ir *ir, uint32_t n) {
    uint32_t cap = ir->nslot;
    while (n * 2 >= cap) cap *= 2;
    if (cap != ir->nslot) return slots_rebuild(ir, cap);
    for (; ir->hashed < ir->n; ir->hashed++) seat(ir->slot, cap, ir->node[ir->hashed]);
    return true;
}

/* A table that is not large grows to the fourfold: it would soon be seated anew. */
static bool more_room(ki_ir *ir) {
    uint32_t n = ir->n * 2 >= ir->nslot && ir->nslot < LARGE ? ir->n * 2 : ir->n;
    return (ir->n < ir->cap || grow_nodes(ir, ir->n + 1)) && grow_slots(ir, n);
}
/* Every node is in a slot then. */
static inline bool room_for_one(ki_ir *ir) {
    return (ir->n < ir->cap && ir->n * 2 < ir->nslot && ir->hashed == ir->n) || more_room(ir);
}

bool ki_ir_reserve(ki_ir *ir, uint32_t more, bool sought) {
    uint32_t n = ir->n + more;
    if (n < ir->n || n > UINT32_MAX / 8) return true; /* room is made as it fills, or fails there */
    bool ok = (n <= ir->cap || grow_nodes(ir, n)) && (!sought || grow_slots(ir, n));
    return ok || (ki_fail(ir->env, KI_E_NOMEM), false);
}

static inline bool same_node(kn_uop u, kn_op op, kn_dtype dtype, const kn_uop *src, uint32_t nsrc, kn_arg arg,
                             uint32_t tag) {
    if (u->op != op || u->nsrc != nsrc || u->arg.bits != arg.bits || u->tag != tag) return false;
    if ((u->dtype ^ dtype) & keys[op].dtype) return false;
    for (uint32_t i = 0; i < nsrc; i++)
        if (u->src[i] != src[i]) return false;
    return true;
}

/* The node of this key and hash; NULL, and where it belongs, if there is none. */
static inline kn_uop find(const ki_ir *ir, uint32_t hash, kn_op op, kn_dtype dtype, const kn_uop *src, uint32_t nsrc,
                          kn_arg arg, uint32_t tag, uint32_t *slot) {
    uint32_t at, k = 0, line = line_of(src, nsrc, hash, ir->nslot), ids = ir->nslot - 1, v;
    for (; (v = ir->slot[at = nth_place(line, hash, k, ir->nslot)]) != 0; k++)
        if (((v ^ hash) & ~ids) == 0 && same_node(ir->node[v & ids], op, dtype, src, nsrc, arg, tag))
            return ir->node[v & ids];
    return *slot = at, NULL;
}

/* Nearly all have few sources. */
static inline void put_sources(kn_uop_s *u, const kn_uop *src, uint32_t nsrc) {
    kn_uop *to = (kn_uop *)u->src;
    if (nsrc > 3) {
        memcpy(to, src, nsrc * sizeof *to);
        return;
    }
    if (nsrc > 0) to[0] = src[0];
    if (nsrc > 1) to[1] = src[1];
    if (nsrc > 2) to[2] = src[2];
}

/* Fresh RANGEs and BUFFERs are numbered on from those there are. */
static inline void number_on(ki_ir *ir, kn_uop u) {
    if (u->op == KN_RANGE && u->arg.range.id >= ir->next_range) ir->next_range = u->arg.range.id + 1;
    if (u->op == KN_BUFFER && u->arg.buffer->id >= ir->next_buffer) ir->next_buffer = u->arg.buffer->id + 1;
}

static inline kn_uop insert(ki_ir *ir, const ki_draft *d, uint32_t hash, uint32_t slot, uint32_t tag) {
    kn_uop_s *u = ki_arena_alloc(&ir->arena, sizeof *u + d->nsrc * sizeof(kn_uop));
    if (!u) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    u->op = (uint8_t)d->op;
    u->dtype = (uint8_t)d->dtype;
    u->flags = d->flags;
    u->nsrc = d->nsrc;
    u->id = ir->n;
    u->tag = tag;
    u->arg = d->arg;
    u->type = d->type;
    u->lo = d->lo;
    u->hi = d->hi;
    put_sources(u, d->src, d->nsrc);
    ir->node[ir->n] = u;
    ir->slot[slot] = in_slot(ir->n++, hash, ir->nslot);
    ir->hashed = ir->n;
    number_on(ir, u);
    return u;
}

static kn_uop bad_arity(ki_env *env, const ki_op_info *op, uint32_t n) {
    char takes[64];
    const char *s = op->least == 1 && op->most == 1 ? "" : "s";
    if (op->least == op->most) snprintf(takes, sizeof takes, "%d source%s", op->least, s);
    else if (op->most > KI_MAX_RANK + 1) snprintf(takes, sizeof takes, "%d or more sources", op->least);
    else snprintf(takes, sizeof takes, "%d to %d sources", op->least, op->most);
    return ki_fail(env, KI_E_ARITY, op->name, takes, n), NULL;
}

static KI_COLD kn_uop no_source(ki_env *env, kn_op op, const kn_uop *src) {
    uint32_t i = 0;
    while (src[i]) i++;
    if (env->err == KI_E_NONE) ki_fail(env, KI_E_NULL_SOURCE, ki_ops[op].name, i);
    return NULL;
}

kn_uop ki_make(ki_ir *ir, kn_op op, kn_dtype dtype, const kn_uop *src, uint32_t nsrc, kn_arg arg, uint32_t tag) {
    uint64_t h = hash_head(op, dtype, nsrc, arg, tag);
    for (uint32_t i = 0; i < nsrc; i++) {
        if (!src[i]) return no_source(ir->env, op, src);
        h = ki_hash_step(h, src[i]->id);
    }
    uint32_t hash = (uint32_t)(h >> 32), slot;
    if (!room_for_one(ir)) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    kn_uop u = find(ir, hash, op, dtype, src, nsrc, arg, tag, &slot); /* what is there was well-formed */
    if (u) return u;
    ki_draft d = {.ir = ir, .op = op, .dtype = dtype, .src = src, .nsrc = nsrc, .arg = arg};
    const ki_op_info *info = &ki_ops[op];
    if ((int64_t)nsrc < info->least || (int64_t)nsrc > info->most) return bad_arity(ir->env, info, nsrc);
    if (!ki_derive_dtype(&d) || !ki_derive_type(&d)) return NULL;
    ki_derive_bounds(&d);
    return insert(ir, &d, hash, slot, tag);
}

kn_uop ki_make_as(ki_ir *ir, kn_uop like, const kn_uop *src, kn_arg arg, const ki_type *type, uint32_t tag) {
    kn_op op = (kn_op)like->op;
    kn_dtype dtype = (kn_dtype)like->dtype;
    uint32_t hash = node_hash(op, dtype, src, like->nsrc, arg, tag), slot;
    if (!room_for_one(ir)) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    kn_uop u = find(ir, hash, op, dtype, src, like->nsrc, arg, tag, &slot);
    if (u) return u;
    ki_draft d = {ir, op, dtype, src, like->nsrc, arg, type, like->flags, like->lo, like->hi};
    return insert(ir, &d, hash, slot, tag);
}

kn_uop ki_make_new(ki_ir *ir, kn_uop like, const ki_map *map, kn_arg arg, const ki_type *type, uint32_t tag) {
    kn_uop_s *u = ki_arena_alloc(&ir->arena, sizeof *u + like->nsrc * sizeof(kn_uop));
    if (!u || (ir->n >= ir->cap && !grow_nodes(ir, ir->n + 1))) return ki_fail(ir->env, KI_E_NOMEM), NULL;
    *u = *like;
    u->id = ir->n;
    u->tag = tag;
    u->arg = arg;
    u->type = type;
    for (uint32_t k = 0; k < like->nsrc; k++) ((kn_uop *)u->src)[k] = ki_map_get(map, like->src[k]);
    ir->node[ir->n++] = u;
    number_on(ir, u);
    return u;
}

/* ---- discarding --------------------------------------------------------------------------------------------- */

ki_mark ki_ir_mark(const ki_ir *ir) {
    return (ki_mark){ir->n, ir->next_range, ir->next_buffer, ki_arena_now(&ir->arena)};
}

/* True if p lies in a chunk younger than the mark, or in the part of the mark's chunk above it. */
static bool younger(const ki_ir *ir, const void *p, ki_arena_mark m) {
    const char *at = p;
    for (const ki_chunk *c = ir->arena.top; c; c = c->prev) {
        bool inside = at >= (const char *)c && at < (const char *)c + c->size;
        if (c == m.top) return inside && at >= (const char *)c + m.used;
        if (inside) return true;
    }
    return false;
}

static void intern_drop(ki_ir *ir, ki_arena_mark m) {
    const void **old = ir->intern;
    uint32_t cap = ir->intern_cap, keep = 0;
    for (uint32_t i = 0; i < cap; i++) {
        if (!old[i]) continue;
        if (younger(ir, old[i], m)) old[i] = NULL;
        else keep++;
    }
    /* Re-seat the survivors: clusters may have lost members. */
    for (uint32_t i = 0; i < cap; i++) {
        const void *p = old[i];
        if (!p) continue;
        old[i] = NULL;
        uint32_t k = payload_of(p)->hash & (cap - 1);
        while (old[k]) k = (k + 1) & (cap - 1);
        old[k] = p;
    }
    ir->nintern = keep;
}

void ki_ir_drop(ki_ir *ir, ki_mark m) {
    while (ir->n > m.n) {
        kn_uop u = ir->node[--ir->n];
        if (ir->n < ir->why_cap) ir->why[ir->n] = 0;
        if (ir->n >= ir->hashed) continue;
        ir->hashed = ir->n;
        uint32_t h = hash_of(u);
        uint32_t line = line_of(u->src, u->nsrc, h, ir->nslot), k = 0, at;
        while ((ir->slot[at = nth_place(line, h, k, ir->nslot)] & (ir->nslot - 1)) != ir->n) k++;
        ir->slot[at] = 0;
    }
    intern_drop(ir, m.arena);
    ki_arena_reset(&ir->arena, m.arena);
    ir->next_range = m.next_range;
    ir->next_buffer = m.next_buffer;
}
