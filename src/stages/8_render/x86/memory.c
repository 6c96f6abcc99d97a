/* memory.c: addresses, loads and stores: whole vectors, masked, gathered, lane by lane; where PARAMs and local arrays are. */
#include "stages/8_render/x86/lower.h"

#include "stages/target.h"

#include <string.h>

/* ---- where things are -------------------------------------------------------------------------------------------- */

bool ki_lplan_memory(ki_lower *l) {
    size_t elements = 0;
    for (uint32_t k = 0; k < l->local.n; k++)
        if (l->local.local[k].split) elements += (size_t)l->local.local[k].buf->arg.buffer->size;
    l->nslice = (uint32_t)elements;
    l->slices = ki_calloc((size_t)l->local.n + 1, sizeof *l->slices + sizeof *l->home + sizeof *l->array);
    ki_vreg *at = l->slice_mem = ki_calloc(elements + 1, sizeof *at);
    l->pointer = ki_calloc((size_t)l->n + 1, sizeof *l->pointer);
    if (!l->slices || !at || !l->pointer) return ki_fail(l->ir->env, KI_E_NOMEM), false;
    l->home = (uint64_t *)(l->slices + l->local.n + 1);
    l->array = (ki_vreg *)(l->home + l->local.n + 1);
    for (uint32_t k = 0; k < l->local.n; k++) {
        const ki_local *b = &l->local.local[k];
        if (b->buf->arg.buffer->addrspace == KN_GLOBAL) return ki_lfail(l, b->buf, "a GLOBAL buffer is a PARAM here");
        size_t size = (size_t)b->buf->arg.buffer->size;
        l->slices[k] = at;
        if (b->split) at += size;
        else l->home[k] = ki_mframe_take(&l->m, size * ki_les(b->buf), b->align);
    }
    return true;
}

ki_vreg ki_lslice(ki_lower *l, const ki_address *a) {
    if (a->buf->op != KN_BUFFER || !ki_local_of(&l->local, a->buf)->split) return 0;
    ki_vreg *r = &l->slices[l->local.place[a->buf->id] - 1][a->start];
    if (a->lanes * ki_les(a->buf) > 64) return ki_ltile_slice(l, r);
    if (!*r) *r = ki_vreg_new(&l->m, KI_RC_V, ki_lkind(a->lanes * ki_les(a->buf)));
    return *r;
}

static ki_vreg pointer_of(ki_lower *l, kn_uop param) {
    ki_vreg *r = &l->pointer[l->at[param->id]];
    if (*r) return *r;
    *r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    l->m.before = true;
    ki_mop slot = {.kind = KI_XO_MEM, .reg = l->buf, .scale = 1, .size = 8, .v = 8 * (int64_t)param->arg.param->slot};
    KI_LPUT(l, KI_X_MOV_GE, ki_mreg(KI_XO_R64, *r), slot);
    l->m.before = false;
    return *r;
}

/* Where an array of the frame begins: from the stack pointer itself, and so far, a tile's loads took a fiftieth longer. */
static ki_vreg array_of(ki_lower *l, kn_uop buf) {
    uint32_t k = l->local.place[buf->id] - 1;
    ki_vreg *r = &l->array[k];
    if (*r || l->home[k] > UINT32_MAX) return *r;
    *r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    l->m.before = true;
    KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, *r), ki_mframe(l->home[k], 0));
    l->m.before = false;
    l->m.v[*r].frame = 1, l->m.v[*r].label = (uint32_t)l->home[k];
    return *r;
}

ki_mop ki_lbase(ki_lower *l, kn_uop buf) {
    if (buf->op == KN_PARAM) return (ki_mop){.kind = KI_XO_MEM, .scale = 1, .reg = pointer_of(l, buf)};
    return ki_mframe(l->home[l->local.place[buf->id] - 1], 0);
}

/* What is added to an index is a displacement. */
kn_uop ki_lpeel(kn_uop base, int64_t *start) {
    while (base && base->op == KN_ADD && (ki_is_const(base->src[0]) || ki_is_const(base->src[1]))) {
        unsigned c = ki_is_const(base->src[0]) ? 0 : 1;
        *start += base->src[c]->arg.i;
        base = base->src[1 - c];
    }
    if (base && ki_is_const(base)) *start += base->arg.i, base = NULL;
    return base;
}

kn_uop ki_llist(kn_uop index, kn_uop *plus) {
    *plus = NULL;
    if (index->op == KN_ADD)
        for (unsigned k = 0; k < 2; k++)
            if (!ki_rank(index->src[k]) && index->src[1 - k]->op == KN_STACK)
                return *plus = index->src[k], index->src[1 - k];
    return index->op == KN_STACK ? index : NULL;
}

ki_mop ki_laddress(ki_lower *l, const ki_address *a, int64_t lane) {
    unsigned es = ki_les(a->buf);
    ki_mop o = ki_lbase(l, a->buf);
    int64_t start = a->start + lane * a->stride;
    kn_uop base = ki_lpeel(a->base, &start);
    if (base) o.index = ki_lgeneral(l, base), o.scale = (uint8_t)es;
    ki_vreg array = base && a->buf->op == KN_BUFFER ? array_of(l, a->buf) : 0;
    if (array) o = (ki_mop){.kind = KI_XO_MEM, .scale = o.scale, .reg = array, .index = o.index};
    int64_t v = o.v + start * (int64_t)es;
    if (v >= INT32_MIN && v <= INT32_MAX) return o.v = v, o;
    ki_vreg far = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, KI_X_MOVABS, ki_mreg(KI_XO_R64, far), ki_mimm(v));
    if (o.index) {
        ki_vreg sum = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, sum),
                (ki_mop){.kind = KI_XO_MEM, .reg = far, .index = o.index, .scale = (uint8_t)es});
        far = sum;
    }
    o.index = far, o.scale = 1, o.v = 0;
    return o;
}

bool ki_lmoves_vector(const ki_lower *l, kn_uop u, int32_t slot) {
    if (u->op != KN_LOAD && u->op != KN_STORE) return false;
    const ki_address *a = ki_lplace(l, u);
    return ki_lslot(a->buf) == slot && (a->buf->op == KN_PARAM || u->op == KN_STORE) && a->affine && a->stride == 1;
}

/* Of a loop that asks in each iteration (ki_lask_terms): for what lies ahead of this element, in the rows whose turn it is. */
static void ask_terms(ki_lower *l, const ki_lval *v, ki_mop o) {
    const struct ki_lloop *p = &l->loop[l->depth - 1];
    if (!p->far || !o.index) return;
    o.reg = p->far;
    for (int64_t k = 0; k < p->rows; k++) {
        ki_mop to = o;
        if ((to.v += v->ahead + k * p->apart) > INT32_MAX) return;
        KI_LPUT(l, v->second ? KI_X_PREFETCHT1 : KI_X_PREFETCHT0, ki_lsized(to, 0));
    }
}

/* Is it the first of a line's bytes that stand there? */
static bool begins_line(const ki_lower *l, ki_mop o, int64_t bytes) {
    int64_t line = l->m.target->line;
    return (o.v % line + line) % line < bytes;
}

/* Where a number leads to some iterations later (ki_lask_next). */
static void ask_next(ki_lower *l, kn_uop u, const ki_address *a, ki_mop o) {
    const ki_lval *v = ki_lv(l, u);
    ki_vreg next = v->led ? l->val[v->led - 1].all : 0;
    if (!next || (a->lanes > 1 && !begins_line(l, o, (int64_t)a->lanes * ki_les(a->buf)))) return;
    o.reg = next;
    KI_LPUT(l, KI_X_PREFETCHT0, ki_lsized(o, 0));
}

/* The OptOp PREFETCH: once a line. */
static void ask_ahead(ki_lower *l, kn_uop u, const ki_address *a, ki_mop o) {
    const ki_lval *v = ki_lv(l, u);
    ask_next(l, u, a, o);
    if (v->terms) {
        ask_terms(l, v, o);
        return;
    }
    int64_t ahead = v->ahead, line = l->m.target->line, bytes = (int64_t)a->lanes * ki_les(a->buf);
    int64_t within = (o.v % line + line) % line, nth = (o.v - within) / line;
    if (!ahead || !begins_line(l, o, bytes) || o.v + ahead > INT32_MAX) return;
    int64_t of = (nth % v->parts + v->parts) % v->parts;
    if (of < v->part || of >= v->part + v->share) return;
    o.v += ahead;
    for (unsigned k = 0; k < v->often; k++)
        KI_LPUT(l, u->op == KN_STORE ? KI_X_PREFETCHW : v->second ? KI_X_PREFETCHT1 : KI_X_PREFETCHT0, ki_lsized(o, 0));
}

ki_mop ki_ldeferred(ki_lower *l, kn_uop load) {
    const ki_address *a = ki_lplace(l, load);
    ki_lv(l, load)->deferred = 0;
    ki_mop o = ki_laddress(l, a, 0);
    ask_ahead(l, load, a, o);
    return o;
}

/* ---- whole vectors and single elements ------------------------------------------------------------------------- */

/* bytes (a power of two up to 64) from memory to a register. */
void ki_lget(ki_lower *l, ki_vreg r, unsigned bytes, ki_mop o) {
    ki_mop x = ki_mreg(ki_lkind(bytes), r);
    if (bytes >= 16) KI_LPUT(l, KI_X_VMOVUPS, x, o);
    else if (bytes == 8) KI_LPUT(l, KI_X_VMOVQ, x, ki_lsized(o, 8));
    else if (bytes == 4) KI_LPUT(l, KI_X_VMOVD, x, ki_lsized(o, 4));
    else {
        ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        KI_LPUT(l, bytes == 2 ? KI_X_MOVZX_W : KI_X_MOVZX_B, ki_mreg(KI_XO_R32, g), ki_lsized(o, bytes));
        KI_LPUT(l, KI_X_VMOVD, x, ki_mreg(KI_XO_R32, g));
    }
}

/* Stores that were put past the caches last, by one test, and with nothing behind them, if o is aligned just where they are; else 0. */
static uint32_t past_before(const ki_lower *l, unsigned bytes, ki_mop o) {
    const ki_mir *m = &l->m;
    uint32_t n = 0;
    while (n + 2 < m->n && m->ins[m->n - 2 - n].form == KI_X_VMOVUPS_ST) n++;
    if (!n || m->before || m->n < 2 * n + 3) return 0;
    const ki_mins *done = &m->ins[m->n - 1], *other = done - n - 1, *past = other - 2;
    const ki_mop *to = &past->op[0];
    bool is = done->form == KI_M_LABEL && other->form == KI_M_LABEL && other[-1].form == KI_X_JMP &&
              other[-1].op[0].label == done->op[0].label && past->form == KI_X_VMOVNTPS;
    bool same = is && to->kind == o.kind && to->base == o.base && to->reg == o.reg && to->index == o.index &&
                to->scale == o.scale && to->label == o.label;
    return same && (to->v - o.v) % bytes == 0 ? n : 0;
}

/* Past the caches where the address is aligned, which it nearly always is. The stores of a square share one test. */
static void put_past(ki_lower *l, ki_mop x, unsigned bytes, ki_mop o) {
    uint32_t n = past_before(l, bytes, o), end = l->m.n;
    if (n) {
        KI_LPUT(l, KI_X_VMOVNTPS, o, x);
        KI_LPUT(l, KI_X_VMOVUPS_ST, o, x);
        if (l->m.failed) return;
        ki_mins *to = &l->m.ins[end - 3 - n], past = to[n + 3], plain = to[n + 4], done = to[n + 2];
        memmove(to + 1, to, (n + 2) * sizeof *to); /* the jump, the label, and what is stored there */
        to[0] = past, to[n + 3] = plain, to[n + 4] = done;
        return;
    }
    uint32_t other = ki_asm_label(l->a), done = ki_asm_label(l->a);
    ki_vreg p = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, p), o);
    KI_LPUT(l, KI_X_TEST8_EI, ki_mreg(KI_XO_R8, p), ki_mimm(bytes - 1));
    KI_LPUT(l, KI_X_JNE, ki_mlabel(other));
    KI_LPUT(l, KI_X_VMOVNTPS, o, x);
    KI_LPUT(l, KI_X_JMP, ki_mlabel(done));
    KI_LPUT(l, KI_M_LABEL, ki_mlabel(other));
    KI_LPUT(l, KI_X_VMOVUPS_ST, o, x);
    KI_LPUT(l, KI_M_LABEL, ki_mlabel(done));
}

void ki_lput(ki_lower *l, ki_vreg r, unsigned bytes, ki_mop o, bool stream) {
    ki_mop x = ki_mreg(ki_lkind(bytes), r);
    if (stream) put_past(l, x, bytes, o);
    else if (bytes >= 16) KI_LPUT(l, KI_X_VMOVUPS_ST, o, x);
    else if (bytes == 8) KI_LPUT(l, KI_X_VMOVQ_ST, ki_lsized(o, 8), x);
    else if (bytes == 4) KI_LPUT(l, KI_X_VMOVD_ST, ki_lsized(o, 4), x);
    else {
        ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        KI_LPUT(l, KI_X_VMOVD_ST, ki_mreg(KI_XO_R32, g), x);
        KI_LPUT(l, bytes == 2 ? KI_X_MOV_EG : KI_X_MOV8_EG, ki_lsized(o, bytes),
                ki_mreg(bytes == 2 ? KI_XO_R16 : KI_XO_R8, g));
    }
}

/* Bytes of 0 and not 0 to a mask. */
static ki_vreg mask_of_bytes(ki_lower *l, ki_vreg x, unsigned lanes) {
    ki_vreg k = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K);
    ki_mop o = ki_mreg(ki_lkind(lanes), x);
    KI_LPUT(l, KI_X_VPTESTMB, ki_mreg(KI_XO_K, k), o, o);
    return k;
}

/* ---- gates ------------------------------------------------------------------------------------------------------- */

static uint32_t skip_unless(ki_lower *l, kn_uop gate) {
    uint32_t past = ki_asm_label(l->a);
    ki_lskip_unless(l, gate, past);
    return past;
}
static void here(ki_lower *l, uint32_t label) { KI_LPUT(l, KI_M_LABEL, ki_mlabel(label)); }

static bool has(const ki_lower *l, ki_cpu_feature f) { return l->m.features >> f & 1; }

/* ---- lane by lane, through the frame ---------------------------------------------------------------------------- */

/* Where lane k's gate can be asked: a word of the frame, a bit a lane; NULL gate: none. */
static ki_vreg gate_bits(ki_lower *l, kn_uop gate, unsigned lanes) {
    if (!gate || !ki_rank(gate)) return 0;
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    if (!ki_lsign(gate)) {
        KI_LPUT(l, KI_X_KMOVQ_TO, ki_mreg(KI_XO_R64, r), ki_mreg(KI_XO_K, ki_lmask(l, gate, lanes)));
    } else {
        unsigned es = ki_les(ki_lsign(gate));
        ki_vreg x = ki_lv(l, gate)->reg;
        ki_mop v = ki_mreg(ki_lkind(lanes * es), x);
        if (es == 2) { /* the sign to both bytes' top, then every other bit: signed saturation keeps it */
            ki_vreg t = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X), high = x;
            if (lanes > 8) {
                high = ki_vreg_new(&l->m, KI_RC_V, KI_XO_X);
                KI_LPUT(l, KI_X_VEXTRACTF128, ki_mreg(KI_XO_X, high), ki_mreg(KI_XO_Y, x), ki_mimm(1));
            }
            if (l->m.sse) {
                t = ki_lmove(l, KI_RC_V, KI_XO_X, x);
                KI_LPUT(l, KI_X_VPACKSSWB, ki_mreg(KI_XO_X, t), ki_mreg(KI_XO_X, t))->flags |= KI_MF_READS0;
            } else {
                KI_LPUT(l, KI_X_VPACKSSWB, ki_mreg(KI_XO_X, t), ki_mreg(KI_XO_X, x), ki_mreg(KI_XO_X, high));
            }
            v = ki_mreg(KI_XO_X, t);
        }
        KI_LPUT(l, es == 8 ? KI_X_VMOVMSKPD : es == 4 ? KI_X_VMOVMSKPS : KI_X_VPMOVMSKB, ki_mreg(KI_XO_R32, r), v);
    }
    return r;
}

static uint32_t skip_unless_bit(ki_lower *l, ki_vreg bits, unsigned k) {
    uint32_t past = ki_asm_label(l->a);
    if (k < 31) {
        KI_LPUT(l, KI_X_TEST_EI, ki_mreg(KI_XO_R32, bits), ki_mimm(INT64_C(1) << k));
    } else {
        ki_vreg t = ki_lmove(l, KI_RC_G, KI_XO_R64, bits);
        KI_LPUT(l, KI_X_SHR_I, ki_mreg(KI_XO_R64, t), ki_mimm(k));
        KI_LPUT(l, KI_X_TEST_EI, ki_mreg(KI_XO_R32, t), ki_mimm(1));
    }
    KI_LPUT(l, KI_X_JE, ki_mlabel(past));
    return past;
}

static void element(ki_lower *l, ki_mop to, ki_mop from, unsigned es) {
    static const uint8_t kind[9] = {[1] = KI_XO_R8, [2] = KI_XO_R16, [4] = KI_XO_R32, [8] = KI_XO_R64};
    ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    if (es <= 2) KI_LPUT(l, es == 2 ? KI_X_MOVZX_W : KI_X_MOVZX_B, ki_mreg(KI_XO_R32, g), ki_lsized(from, es));
    else KI_LPUT(l, KI_X_MOV_GE, ki_mreg((ki_x86_kind)kind[es], g), ki_lsized(from, es));
    KI_LPUT(l, es == 1 ? KI_X_MOV8_EG : KI_X_MOV_EG, ki_lsized(to, es), ki_mreg((ki_x86_kind)kind[es], g));
}

typedef struct lanes {
    ki_address a;
    kn_uop list, plus; /* of () indices, and what is added to each; or NULL */
    uint64_t indices;  /* else in the frame, if not affine */
    unsigned is;       /* bytes of one */
    bool sign;
} lanes;

static void lanes_of(ki_lower *l, lanes *x) {
    if (x->a.affine) return;
    kn_uop i = x->a.base;
    if (i->dtype == KN_IDX) {
        x->list = ki_llist(i, &x->plus);
        if (!x->list) ki_lfail(l, i, "a vector of indices is a list of them");
        return;
    }
    x->is = ki_les(i);
    x->sign = ki_is_sint((kn_dtype)i->dtype);
    x->indices = ki_mframe_take(&l->m, 64, 64);
    ki_lput(l, ki_lvector(l, i, true), x->a.lanes * x->is, ki_mframe(x->indices, 0), false);
}

static ki_mop lane_address(ki_lower *l, const lanes *x, unsigned k) {
    if (x->a.affine) return ki_laddress(l, &x->a, k);
    ki_mop o = ki_lbase(l, x->a.buf);
    o.scale = (uint8_t)ki_les(x->a.buf);
    if (x->list) {
        kn_uop i = x->list->src[k];
        int64_t es = o.scale, c = ki_is_const(i) ? i->arg.i : 0;
        if (!ki_is_const(i)) o.index = ki_lgeneral(l, i);
        if (!x->plus) return o.v += c * es, o;
        ki_vreg p = ki_lgeneral(l, x->plus);
        if (!o.index) return o.index = p, o.v += c * es, o;
        ki_vreg sum = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, sum),
                (ki_mop){.kind = KI_XO_MEM, .reg = o.index, .index = p, .scale = 1});
        return o.index = sum, o;
    }
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    ki_mop from = ki_mframe(x->indices + k * x->is, x->is);
    if (x->is == 8) KI_LPUT(l, KI_X_MOV_GE, ki_mreg(KI_XO_R64, r), from);
    else if (x->is == 4 && x->sign) KI_LPUT(l, KI_X_MOVSXD, ki_mreg(KI_XO_R64, r), from);
    else if (x->is == 4) KI_LPUT(l, KI_X_MOV_GE, ki_mreg(KI_XO_R32, r), from);
    else if (x->is == 2) KI_LPUT(l, x->sign ? KI_X_MOVSX_W : KI_X_MOVZX_W, ki_mreg(KI_XO_R64, r), from);
    else KI_LPUT(l, x->sign ? KI_X_MOVSX_B : KI_X_MOVZX_B, ki_mreg(KI_XO_R64, r), from);
    return o.index = r, o;
}

static void alt_to_frame(ki_lower *l, kn_uop u, uint64_t at, unsigned n, unsigned es) {
    if (u->nsrc < 2) return;
    kn_uop alt = u->src[1];
    ki_vreg r = 0;
    if (u->dtype == KN_BOOL) r = ki_lbytes(l, alt, n);
    else r = ki_lvector(l, alt, true);
    ki_lput(l, r, n * es, ki_mframe(at, 0), false);
}

static void finish_load(ki_lower *l, kn_uop u, ki_vreg r, unsigned n);

static void load_lanes(ki_lower *l, kn_uop u, const ki_address *a) {
    lanes x = {.a = *a};
    unsigned n = a->lanes, es = ki_les(u);
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    uint64_t to = ki_mframe_take(&l->m, 64, 64);
    lanes_of(l, &x);
    alt_to_frame(l, u, to, n, es);
    ki_vreg bits = gate_bits(l, gate, n);
    uint32_t past = gate && !bits ? skip_unless(l, gate) : 0;
    for (unsigned k = 0; k < n && !l->m.failed; k++) {
        uint32_t next = bits ? skip_unless_bit(l, bits, k) : 0;
        element(l, ki_mframe(to + k * es, es), lane_address(l, &x, k), es);
        if (next) here(l, next);
    }
    if (past) here(l, past);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, ki_lkind(n * es));
    ki_lget(l, r, n * es, ki_mframe(to, 0));
    finish_load(l, u, r, n);
}

/* ---- gathers and scatters ---------------------------------------------------------------------------------------- */

/* A list of constants, which a gather takes as a vector of 32-bit numbers. */
static kn_uop constant_list(const ki_address *a, kn_uop *plus) {
    kn_uop list = a->base->dtype == KN_IDX ? ki_llist(a->base, plus) : NULL;
    for (uint32_t k = 0; list && k < list->nsrc; k++)
        if (!ki_is_const(list->src[k]) || list->src[k]->arg.i != (int32_t)list->src[k]->arg.i) return NULL;
    return list;
}

static bool gathers(const ki_lower *l, const ki_address *a, unsigned es) {
    kn_uop plus;
    if (a->affine || !has(l, KI_CPU_AVX512F) || (es != 4 && es != 8)) return false;
    return a->base->dtype == KN_I32 || a->base->dtype == KN_I64 || constant_list(a, &plus);
}

static ki_vreg every_lane(ki_lower *l, unsigned n) {
    ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64), k = ki_vreg_new(&l->m, KI_RC_K, KI_XO_K);
    KI_LPUT(l, KI_X_MOV_OI, ki_mreg(KI_XO_R32, g), ki_mimm((INT64_C(1) << n) - 1));
    KI_LPUT(l, KI_X_KMOVQ_G, ki_mreg(KI_XO_K, k), ki_mreg(KI_XO_R64, g));
    return k;
}

/* Bytes of an index, as a gather has it. */
static unsigned index_bytes(const ki_address *a) { return a->base->dtype == KN_I64 ? 8 : 4; }

static ki_mop vector_address(ki_lower *l, const ki_address *a, unsigned es) {
    ki_mop o = ki_lbase(l, a->buf);
    unsigned is = index_bytes(a);
    kn_uop plus = NULL, list = constant_list(a, &plus);
    ki_lval *v = list ? ki_lv(l, list) : NULL;
    if (v && !v->reg) {
        int32_t offset[16] = {0};
        for (uint32_t k = 0; k < list->nsrc && k < 16; k++) offset[k] = (int32_t)list->src[k]->arg.i;
        v->reg = ki_lnumbers(l, offset, list->nsrc);
    }
    if (v) o.index = v->reg;
    else o.index = ki_lvector(l, a->base, true);
    if (plus) {
        ki_vreg r = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
        KI_LPUT(l, KI_X_LEA, ki_mreg(KI_XO_R64, r),
                (ki_mop){.kind = KI_XO_MEM,
                         .base = o.base,
                         .reg = o.reg,
                         .v = o.v,
                         .index = ki_lgeneral(l, plus),
                         .scale = (uint8_t)es});
        o.base = KI_MB_REG, o.reg = r, o.v = 0;
    }
    o.ikind = (uint8_t)ki_lkind(a->lanes * is);
    o.scale = (uint8_t)es;
    return o;
}

/* The mask an access consumes: a copy of the gate, or all lanes there are. */
static ki_vreg consumed(ki_lower *l, kn_uop gate, unsigned n) {
    if (!gate) return every_lane(l, n);
    return ki_lmove(l, KI_RC_K, KI_XO_K, ki_lmask_exact(l, gate, n));
}

/* The vector register's kind follows from both widths: 8 indices of 64 bits are a zmm, their 8 floats a ymm. */
static void gather(ki_lower *l, kn_uop u, const ki_address *a) {
    unsigned es = ki_les(u), n = a->lanes, is = index_bytes(a);
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    ki_x86_kind kind = ki_lkind(n * es);
    ki_x86_id form =
        is == 4 ? (es == 4 ? KI_X_VPGATHERDD : KI_X_VPGATHERDQ) : (es == 4 ? KI_X_VPGATHERQD : KI_X_VPGATHERQQ);
    ki_mop from = vector_address(l, a, es);
    bool whole = gate && !ki_rank(gate); /* all lanes or none */
    ki_vreg k = whole ? 0 : consumed(l, gate, n), r;
    r = ki_lmove(l, KI_RC_V, kind, u->nsrc > 1 ? ki_lvector(l, u->src[1], true) : ki_lconst(l, KN_U32, 0));
    uint32_t past = whole ? skip_unless(l, gate) : 0;
    KI_LPUT(l, form, ki_mreg(kind, r), from)->mask = whole ? every_lane(l, n) : k;
    if (past) here(l, past);
    finish_load(l, u, r, n);
}

static void scatter(ki_lower *l, kn_uop u, const ki_address *a) {
    unsigned es = ki_les(u->src[1]), n = a->lanes, is = index_bytes(a);
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    ki_x86_id form =
        is == 4 ? (es == 4 ? KI_X_VPSCATTERDD : KI_X_VPSCATTERDQ) : (es == 4 ? KI_X_VPSCATTERQD : KI_X_VPSCATTERQQ);
    ki_mop to = vector_address(l, a, es);
    ki_vreg k = consumed(l, gate, n), v = ki_lvector(l, u->src[1], true);
    KI_LPUT(l, form, to, ki_mreg(ki_lkind(n * es), v))->mask = k;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

/* r holds what was read: as the class of value u is. */
static void finish_load(ki_lower *l, kn_uop u, ki_vreg r, unsigned n) {
    ki_lval *v = ki_lv(l, u);
    if (u->dtype == KN_BOOL && has(l, KI_CPU_AVX512BW)) {
        v->reg = mask_of_bytes(l, r, n);
        return;
    }
    v->reg = r;
    if (v->wide && n == 1) v->all = ki_lall(l, r, ki_les(u));
}

/* An integer () that only an index is made of. */
static void load_general(ki_lower *l, kn_uop u, const ki_address *a) {
    ki_lval *v = ki_lv(l, u);
    bool sign = ki_is_sint((kn_dtype)u->dtype);
    unsigned es = ki_les(u);
    ki_mop from = ki_lsized(ki_laddress(l, a, 0), es);
    v->reg = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    v->gpr = 1;
    if (es == 8) KI_LPUT(l, KI_X_MOV_GE, ki_mreg(KI_XO_R64, v->reg), from);
    else if (es == 4) KI_LPUT(l, sign ? KI_X_MOVSXD : KI_X_MOV_GE, ki_mreg(sign ? KI_XO_R64 : KI_XO_R32, v->reg), from);
    else if (es == 2) KI_LPUT(l, sign ? KI_X_MOVSX_W : KI_X_MOVZX_W, ki_mreg(KI_XO_R64, v->reg), from);
    else KI_LPUT(l, sign ? KI_X_MOVSX_B : KI_X_MOVZX_B, ki_mreg(sign ? KI_XO_R64 : KI_XO_R32, v->reg), from);
}

/* A bool () that index arithmetic goes on with, or a gate: a general register. */
static void load_bit(ki_lower *l, kn_uop u, const ki_address *a) {
    ki_lval *v = ki_lv(l, u);
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    v->reg = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64);
    v->gpr = 1;
    ki_mop r32 = ki_mreg(KI_XO_R32, v->reg), r8 = ki_mreg(KI_XO_R8, v->reg);
    if (gate) KI_LPUT(l, KI_M_MOVE, ki_mreg(KI_XO_R64, v->reg), ki_mreg(KI_XO_R64, ki_lgeneral(l, u->src[1])));
    uint32_t past = gate ? skip_unless(l, gate) : 0;
    KI_LPUT(l, KI_X_MOVZX_B, r32, ki_lsized(ki_laddress(l, a, 0), 1));
    KI_LPUT(l, KI_X_TEST_EG, r32, r32);
    KI_LPUT(l, KI_X_SETNE, r8);
    KI_LPUT(l, KI_X_MOVZX_B, r32, r8);
    if (past) here(l, past);
}

/* The load's alternative where the signs of k are not set, if it is not what is there: zeros. */
static ki_vreg unless_zero(ki_lower *l, kn_uop u, ki_vreg r, ki_vreg k) {
    kn_uop alt = u->src[1];
    unsigned es = ki_les(u);
    if (ki_is_const(alt) && !alt->arg.bits) return r;
    ki_x86_kind kind = ki_lkind(ki_llanes(u) * es);
    ki_vreg t = ki_vreg_new(&l->m, KI_RC_V, kind);
    KI_LPUT(l, es == 4 ? KI_X_VBLENDVPS : KI_X_VBLENDVPD, ki_mreg(kind, t), ki_mreg(kind, ki_lvector(l, alt, true)),
            ki_mreg(kind, r), ki_mreg(kind, k));
    return t;
}

/* AVX2, 32 and 64 bits, by the signs of lanes as wide. */
static bool load_signed(ki_lower *l, kn_uop u, const ki_address *a, kn_uop gate) {
    kn_uop sign = ki_lsign(gate);
    unsigned es = ki_les(u), n = a->lanes;
    if (l->m.sse || !sign || ki_les(sign) != es || es < 4 || n * es < 16) return false;
    ki_x86_kind kind = ki_lkind(n * es);
    ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, kind), k = ki_lv(l, gate)->reg;
    KI_LPUT(l, es == 4 ? KI_X_VMASKMOVPS : KI_X_VMASKMOVPD, ki_mreg(kind, r), ki_mreg(kind, k), ki_laddress(l, a, 0));
    finish_load(l, u, unless_zero(l, u, r, k), n);
    return true;
}

/* Masked by lanes: one instruction where the level has it. */
static bool load_masked(ki_lower *l, kn_uop u, const ki_address *a, kn_uop gate) {
    unsigned es = ki_les(u), n = a->lanes;
    static const uint16_t forms[9] = {
        [1] = KI_X_VMOVDQU8, [2] = KI_X_VMOVDQU16, [4] = KI_X_VMOVUPS, [8] = KI_X_VMOVUPD};
    if (!a->affine || a->stride != 1 || u->dtype == KN_BOOL) return false;
    if (!has(l, KI_CPU_AVX512BW)) return load_signed(l, u, a, gate);
    ki_x86_kind kind = ki_lkind(n * es);
    ki_vreg k = n * es < 16 ? ki_lmask_exact(l, gate, n) : ki_lmask(l, gate, n), r;
    kn_uop alt = u->src[1];
    bool zero = ki_is_const(alt) && !alt->arg.bits;
    ki_mop from = ki_laddress(l, a, 0);
    ask_ahead(l, u, a, from);
    if (zero) r = ki_vreg_new(&l->m, KI_RC_V, kind);
    else r = ki_lmove(l, KI_RC_V, kind, ki_lvector(l, alt, true));
    ki_mins *i = KI_LPUT(l, forms[es], ki_mreg(kind, r), from);
    i->mask = k, i->zero = zero;
    if (!zero) i->flags |= KI_MF_READS0;
    finish_load(l, u, r, n);
    return true;
}

/* u, n lanes, from there. */
static void read_whole(ki_lower *l, kn_uop u, unsigned n, ki_mop from) {
    ki_lval *v = ki_lv(l, u);
    unsigned es = ki_les(u);
    bool alone = !v->wide || n > 1 || v->uses != v->nwide || l->m.sse || es < 4;
    if (alone) {
        ki_vreg r = ki_vreg_new(&l->m, KI_RC_V, ki_lkind(n * es));
        ki_lget(l, r, n * es, from);
        finish_load(l, u, r, n);
        return;
    }
    ki_x86_kind kind = ki_lkind(l->m.target->vector);
    v->reg = v->all = ki_vreg_new(&l->m, KI_RC_V, kind);
    KI_LPUT(l, es == 4 ? KI_X_VBROADCASTSS : KI_X_VBROADCASTSD, ki_mreg(kind, v->reg), ki_lsized(from, es));
}

void ki_lload_whole(ki_lower *l, kn_uop u) { read_whole(l, u, ki_lplace(l, u)->lanes, ki_ldeferred(l, u)); }

kn_uop ki_lword(kn_uop u) {
    kn_uop bits = u->op == KN_INDEX && u->nsrc == 2 ? u->src[0] : NULL;
    bool whole = bits && bits->op == KN_BITCAST && bits->src[0]->op == KN_LOAD && ki_llanes(bits) == 1;
    return whole && !ki_rank(u) ? bits->src[0] : NULL;
}

void ki_lload_word(ki_lower *l, kn_uop u, kn_uop load) { read_whole(l, u, 1, ki_ldeferred(l, load)); }

/* All of it or, where the gate is false, the alternative. */
static void load_gated(ki_lower *l, kn_uop u, const ki_address *a, kn_uop gate) {
    unsigned n = a->lanes, es = ki_les(u);
    ki_vreg alt = u->dtype == KN_BOOL ? ki_lbytes(l, u->src[1], n) : ki_lvector(l, u->src[1], true);
    ki_vreg r = ki_lmove(l, KI_RC_V, ki_lkind(n * es), alt); /* a copy: it is written once more */
    uint32_t past = skip_unless(l, gate);
    ki_mop from = ki_laddress(l, a, 0);
    ask_next(l, u, a, from);
    ki_lget(l, r, n * es, from);
    here(l, past);
    finish_load(l, u, r, n);
}

/* Lanes a few elements apart; of the mask no bit past the lanes is looked at. */
static void load_strided(ki_lower *l, kn_uop u, const ki_address *a, kn_uop gate) {
    unsigned n = a->lanes, es = ki_les(u);
    ki_x86_kind kind = ki_lkind(n * es);
    bool sign = gate && ki_rank(gate) && ki_lsign(gate);
    ki_vreg mask = !gate || !ki_rank(gate) ? 0 : sign ? ki_lv(l, gate)->reg : ki_lmask(l, gate, n), r;
    if (gate && !mask) {
        r = ki_lmove(l, KI_RC_V, kind, ki_lvector(l, u->src[1], true)); /* a copy: it is written once more */
        uint32_t past = skip_unless(l, gate);
        KI_LPUT(l, KI_M_MOVE, ki_mreg(kind, r), ki_mreg(kind, ki_lstrided(l, a, es, 0)));
        here(l, past);
    } else {
        r = ki_lstrided(l, a, es, mask);
    }
    if (sign) r = unless_zero(l, u, r, mask);
    else if (mask && !(ki_is_const(u->src[1]) && !u->src[1]->arg.bits)) {
        ki_vreg x = ki_vreg_new(&l->m, KI_RC_V, kind);
        KI_LPUT(l, es == 4 ? KI_X_VBLENDMPS : KI_X_VBLENDMPD, ki_mreg(kind, x),
                ki_mreg(kind, ki_lvector(l, u->src[1], true)), ki_mreg(kind, r))
            ->mask = mask;
        r = x;
    }
    finish_load(l, u, r, n);
}

void ki_lload(ki_lower *l, kn_uop u) {
    ki_address a = *ki_lplace(l, u);
    if (ki_lis_tile(u)) {
        ki_lload_tile(l, u);
        return;
    }
    ki_lval *v = ki_lv(l, u);
    kn_uop gate = u->nsrc > 2 ? u->src[2] : NULL;
    if (v->square && !v->reg) ki_lsquare(l, u);
    if (v->square) return;
    unsigned n = a.lanes, es = ki_les(u);
    ki_vreg slice = ki_lslice(l, &a);
    if (slice) {
        v->reg = v->alias ? slice : ki_lmove(l, KI_RC_V, ki_lkind(n * es), slice);
        finish_load(l, u, v->reg, n);
        return;
    }
    if (v->general && !gate) {
        load_general(l, u, &a);
        return;
    }
    if (u->dtype == KN_BOOL && n == 1 && !(gate && ki_rank(gate))) {
        load_bit(l, u, &a);
        return;
    }
    if (gate && ki_rank(gate) && load_masked(l, u, &a, gate)) return;
    if (gathers(l, &a, es)) {
        gather(l, u, &a);
        return;
    }
    bool whole = a.affine && (n == 1 || a.stride == 1) && !(gate && ki_rank(gate));
    if (!whole && ki_lis_strided(l, &a, es, gate)) load_strided(l, u, &a, gate);
    else if (!whole) load_lanes(l, u, &a);
    else if (gate) load_gated(l, u, &a, gate);
    else ki_lload_whole(l, u);
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

static void store_lanes(ki_lower *l, kn_uop u, const ki_address *a) {
    lanes x = {.a = *a};
    kn_uop v = u->src[1], gate = u->nsrc > 2 ? u->src[2] : NULL;
    unsigned n = a->lanes, es = ki_les(v);
    uint64_t from = ki_mframe_take(&l->m, 64, 64);
    lanes_of(l, &x);
    ki_vreg r = v->dtype == KN_BOOL ? ki_lbytes(l, v, n) : ki_lvector(l, v, n > 1);
    ki_lput(l, r, n * es, ki_mframe(from, 0), false);
    ki_vreg bits = gate_bits(l, gate, n);
    uint32_t past = gate && !bits ? skip_unless(l, gate) : 0;
    for (unsigned k = 0; k < n && !l->m.failed; k++) {
        uint32_t next = bits ? skip_unless_bit(l, bits, k) : 0;
        element(l, lane_address(l, &x, k), ki_mframe(from + k * es, es), es);
        if (next) here(l, next);
    }
    if (past) here(l, past);
}

static bool store_masked(ki_lower *l, kn_uop u, const ki_address *a, kn_uop gate) {
    kn_uop v = u->src[1];
    unsigned es = ki_les(v), n = a->lanes;
    static const uint16_t forms[9] = {
        [1] = KI_X_VMOVDQU8_ST, [2] = KI_X_VMOVDQU16_ST, [4] = KI_X_VMOVUPS_ST, [8] = KI_X_VMOVUPD_ST};
    if (!a->affine || a->stride != 1) return false;
    ki_mop to = ki_laddress(l, a, 0);
    ask_ahead(l, u, a, to);
    if (!has(l, KI_CPU_AVX512BW)) {
        kn_uop sign = ki_lsign(gate);
        if (l->m.sse || !sign || ki_les(sign) != es || es < 4 || n * es < 16) return false;
        ki_mop x = ki_mreg(ki_lkind(n * es), ki_lvector(l, v, true)),
               by = ki_mreg(ki_lkind(n * es), ki_lv(l, gate)->reg);
        KI_LPUT(l, es == 4 ? KI_X_VMASKMOVPS_ST : KI_X_VMASKMOVPD_ST, to, by, x);
        return true;
    }
    ki_vreg k = n * es < 16 ? ki_lmask_exact(l, gate, n) : ki_lmask(l, gate, n);
    ki_vreg r = v->dtype == KN_BOOL ? ki_lbytes(l, v, n) : ki_lvector(l, v, true);
    KI_LPUT(l, forms[es], to, ki_mreg(ki_lkind(n * es), r))->mask = k;
    return true;
}

static void store_slice(ki_lower *l, kn_uop u, ki_vreg slice, unsigned n) {
    kn_uop v = u->src[1];
    ki_lval *x = ki_is_const(v) || v->op == KN_STACK ? NULL : ki_lv(l, v);
    if (x && x->slice == l->now + 1) return; /* it was written there at once */
    ki_vreg r = v->dtype == KN_BOOL ? ki_lbytes(l, v, n) : ki_lvector(l, v, n > 1);
    ki_x86_kind kind = ki_lkind(n * ki_les(v));
    KI_LPUT(l, KI_M_MOVE, ki_mreg(kind, slice), ki_mreg(kind, r));
    if (slice && r) l->m.v[slice].hint = l->m.v[slice].hint ? l->m.v[slice].hint : r;
}

void ki_lstore(ki_lower *l, kn_uop u) {
    ki_address a = *ki_lplace(l, u);
    kn_uop v = u->src[1], gate = u->nsrc > 2 ? u->src[2] : NULL;
    if (ki_lv(l, u)->square) {
        ki_lstore_square(l, u);
        return;
    }
    unsigned n = a.lanes, es = ki_les(v);
    if (n * es > 64) {
        ki_lstore_tile(l, u);
        return;
    }
    ki_vreg slice = ki_lslice(l, &a);
    bool masked = gate && ki_rank(gate);
    if (!slice && masked && store_masked(l, u, &a, gate)) return;
    if (!slice && gathers(l, &a, es) && (!gate || masked)) {
        scatter(l, u, &a);
        return;
    }
    bool whole = slice || (a.affine && (n == 1 || a.stride == 1) && !masked);
    if (!whole && !masked && v->dtype != KN_BOOL && ki_lstores_strided(l, &a, es)) {
        ki_vreg x = ki_lvector(l, v, true);
        uint32_t past = gate ? skip_unless(l, gate) : 0;
        ki_lstore_strided(l, &a, es, x);
        if (past) here(l, past);
        return;
    }
    if (!whole) {
        store_lanes(l, u, &a);
        return;
    }
    uint32_t past = gate ? skip_unless(l, gate) : 0;
    if (slice) {
        store_slice(l, u, slice, n);
    } else if (v->dtype == KN_BOOL && n == 1 && !ki_is_const(v) && ki_lv(l, v)->gpr) {
        KI_LPUT(l, KI_X_MOV8_EG, ki_lsized(ki_laddress(l, &a, 0), 1), ki_mreg(KI_XO_R8, ki_lgeneral(l, v)));
    } else {
        ki_vreg r = v->dtype == KN_BOOL ? ki_lbytes(l, v, n) : ki_lvector(l, v, n > 1);
        bool stream = u->arg.i && n * es >= 16 && n * es == l->m.target->vector && a.buf->op == KN_PARAM;
        ki_mop to = ki_laddress(l, &a, 0);
        ask_ahead(l, u, &a, to);
        ki_lput(l, r, n * es, to, stream);
        l->m.fence = l->m.fence || stream;
    }
    if (past) here(l, past);
}

void ki_latomic(ki_lower *l, kn_uop u) {
    ki_address a = *ki_lplace(l, u);
    kn_uop v = u->src[1];
    unsigned es = ki_les(v);
    if (a.lanes != 1 || ki_is_float((kn_dtype)v->dtype) || es < 4 || a.buf->op != KN_PARAM) {
        ki_lfail(l, u, "only scalar integers of 4 or 8 bytes in GLOBAL memory");
        return;
    }
    ki_vreg g = ki_vreg_new(&l->m, KI_RC_G, KI_XO_R64), x = ki_lvector(l, v, false);
    ki_x86_kind kind = es == 8 ? KI_XO_R64 : KI_XO_R32;
    KI_LPUT(l, es == 8 ? KI_X_VMOVQ_GST : KI_X_VMOVD_ST, ki_mreg(kind, g), ki_mreg(KI_XO_X, x));
    KI_LPUT(l, KI_X_ADD_EG, ki_lsized(ki_laddress(l, &a, 0), es), ki_mreg(kind, g))->lock = 1;
}
