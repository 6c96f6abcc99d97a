/* layout.c: in which order the axes of a buffer between kernels lie in memory. Row-major, but for products whose innermost
 * axis fills no vectors: a convolution's channels, of which there are whole vectors, go innermost, its rows of 7 or 28
 * further out. What the outside sees (inputs, outputs, what is assigned) stays as it is.
 *
 * A *wish* moves one axis of a buffer: position i becomes i / (s e) (s e) + i % s e + i / s % e, s the axis's stride, e its
 * extent. It is granted if no index of any kernel keeps a quotient or a remainder more from it: all or none, so that no
 * reader pays for it. And it is taken back if those who write and read the buffer lose more than they gain (weighing): a sum
 * of products whose rows, one after the other, fill vectors wants them so; one along those rows, and what reads at strides,
 * wants channels beside each other. Where the target has tiles for them (3_optimize/windows.c), neither loses anything whose filters are the
 * same for many positions: of a buffer that no other product reads. */
#include "stages/2_rangeify/rangeify.h"
#include "stages/affine.h"
#include "stages/scope.h"

#include <string.h>

/* Rows: what the other factor's axes have together. A factor that is read across its own order is packed first, which must pay: of
 * itself for MANY_ROWS, for less by what those gain who read the buffer. */
enum { LANES = 16, MOST_AXES = 8, MANY_ROWS = 128, LEAST_ROWS = 32 };

/* What a multiply-add is worth in a sum along what are rows now, and an element that is read at strides. */
static const double SUMMED = 4, STRIDED = 64;

static ki_wish *wish_for(const ki_layouts *l, kn_uop access) {
    kn_uop b = access->src[0];
    while (b->op == KN_AFTER) b = b->src[0];
    if (b->op != KN_BUFFER || b->arg.buffer->addrspace != KN_GLOBAL || b->arg.buffer->id >= l->nbuffer) return NULL;
    ki_wish *w = &l->wish[b->arg.buffer->id];
    return w->extent > 0 ? w : NULL;
}

/* ---- wishing ------------------------------------------------------------------------------------------------- */

/* The axes of a store, outermost first; 0 if its index is not a row-major walk over its loops. */
static uint32_t axes_of(const ki_affine *f, int64_t size, ki_affine_term *axis) {
    uint32_t n = f && !f->k && f->n <= MOST_AXES ? f->n : 0;
    int64_t below = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = i;
        for (; k > 0 && axis[k - 1].c < f->t[i].c; k--) axis[k] = axis[k - 1];
        axis[k] = f->t[i];
    }
    for (uint32_t i = n; i-- > 0; below *= ki_extent(axis[i].x))
        if (axis[i].x->op != KN_RANGE || !ki_extent(axis[i].x) || axis[i].c != below) return 0;
    return below == size ? n : 0;
}

/* Sums and what is left out of them, down to a product. */
static kn_uop product_in(kn_uop u) {
    while (u && u->op != KN_MUL) {
        bool more = u->op == KN_WHERE || u->op == KN_REDUCE || (u->op == KN_ADD && ki_is_const(u->src[1]));
        u = more ? u->src[u->op == KN_WHERE] : NULL;
    }
    return u;
}

/* The product that a stored sum adds up, the outermost one; NULL: there is none. */
static kn_uop product_of(const ki_scope *s, kn_uop value) {
    kn_uop x = NULL, *node;
    int64_t n = ki_toposort(s->ir, &value, 1, &node);
    for (int64_t i = n; i-- > 0 && !x;)
        if (node[i]->op == KN_REDUCE && node[i]->arg.reduce.op == KN_ADD) x = product_in(node[i]);
    if (n >= 0) ki_free(node);
    return x;
}

/* How often u is computed. */
static double runs_of(const ki_scope *s, kn_uop u) {
    double n = 1;
    for (uint32_t r = 0; r < s->nrange; r++)
        if (ki_in_set(ki_scope_free(s, u), r)) n *= (double)ki_extent(s->range[r]);
    return n;
}

/* An axis of whole vectors between the outermost and the innermost; best one that only the other factor has, then the
 * longest. */
static void wish_of(const ki_scope *s, const ki_affine *index, kn_uop store, ki_wish *w) {
    ki_affine_term axis[MOST_AXES];
    const ki_buffer *b = store->src[0]->src[0]->arg.buffer;
    uint32_t n = axes_of(index, b->size, axis);
    if (n < 3 || ki_extent(axis[n - 1].x) % LANES == 0 || !ki_is_float((kn_dtype)b->dtype)) return;
    kn_uop x = product_of(s, store->src[1]);
    if (!x) return;
    bool last = ki_scope_has(s, x->src[0], axis[n - 1].x);
    for (uint32_t k = 0; k < n; k++)
        if (ki_scope_has(s, x->src[0], axis[k].x) == ki_scope_has(s, x->src[1], axis[k].x)) return;
    int64_t best = 0, rows[2] = {1, 1}; /* products of the axes that the one factor has, and the other */
    for (uint32_t k = 0; k < n; k++) rows[ki_scope_has(s, x->src[0], axis[k].x)] *= ki_extent(axis[k].x);
    for (uint32_t k = 1; k + 1 < n; k++) {
        int64_t e = ki_extent(axis[k].x);
        bool first = ki_scope_has(s, x->src[0], axis[k].x);
        if (rows[!first] < LEAST_ROWS) continue;
        int64_t worth = e * (first != last ? 1 << 20 : 1);
        double packed = rows[!first] < MANY_ROWS ? STRIDED * runs_of(s, x->src[!first]) : 0;
        if (e % LANES == 0 && worth > best)
            best = worth, *w = (ki_wish){.stride = axis[k].c, .extent = e, .gain = -packed};
    }
}

static void make_wishes(ki_layouts *l, const ki_scope *s, const ki_affine *const *form) {
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        if (u->op != KN_STORE || u->src[0]->op != KN_INDEX || u->src[0]->src[0]->op != KN_BUFFER) continue;
        const ki_buffer *b = u->src[0]->src[0]->arg.buffer;
        if (b->addrspace != KN_GLOBAL || b->id >= l->nbuffer || l->wish[b->id].extent < 0) continue;
        l->wish[b->id] = (ki_wish){0};
        wish_of(s, form[s->at[u->src[0]->src[1]->id]], u, &l->wish[b->id]);
    }
}

/* ---- weighing ------------------------------------------------------------------------------------------------ */

/* The RANGE that counts by c in a form and along which `of` varies; NULL: none. */
static kn_uop counting(const ki_scope *s, const ki_affine *f, int64_t c, kn_uop of) {
    for (uint32_t i = 0; i < f->n; i++)
        if (f->t[i].c == c && f->t[i].x->op == KN_RANGE && ki_scope_has(s, of, f->t[i].x)) return f->t[i].x;
    return NULL;
}

static const ki_affine *position(const ki_scope *s, const ki_affine *const *form, kn_uop access) {
    kn_uop at = access->src[1];
    return form[s->at[(at->op == KN_WHERE ? at->src[1] : at)->id]];
}

/* Does inner, with the axis that goes on where it ends (JOIN of optimize makes them one), fill vectors, or nearly? */
static bool row_of(const ki_scope *s, const ki_affine *f, kn_uop inner, kn_uop of) {
    kn_uop outer = counting(s, f, ki_affine_coef(f, inner) * ki_extent(inner), of);
    int64_t n = ki_extent(inner) * (outer ? ki_extent(outer) : 1), whole = (n + LANES - 1) / LANES * LANES;
    return n * 4 > whole * 3;
}

/* Is product x one of filters, whole pairs of vectors of them, with an image, at many positions of an image, and of several? r: an axis of the
 * channels, of those that it sums (in) or of those that it makes. */
static bool takes_panels(const ki_scope *s, kn_uop x, kn_uop r, bool in) {
    for (uint32_t f = 0; f < 2; f++) {
        kn_uop filters = x->src[f], image = x->src[!f];
        int64_t made = 1, positions = 1;
        uint32_t loops = 0, both = 0;
        for (uint32_t q = 0; q < s->nrange; q++) {
            kn_uop y = s->range[q];
            bool has = ki_in_set(ki_scope_free(s, filters), q), had = ki_in_set(ki_scope_free(s, image), q);
            if (has && !had) made *= ki_extent(y);
            if (had && !has) positions *= ki_extent(y), loops += ki_extent(y) > 1;
            both += has && had && y == r;
        }
        bool is_made = ki_scope_has(s, filters, r) && !ki_scope_has(s, image, r);
        if (made % (2 * LANES) == 0 && loops > 1 && positions >= KI_PANEL_POSITIONS && (in ? both > 0 : is_made))
            return true;
    }
    return false;
}

/* What a sum, or a store without one, gains from reading w's buffer with its axis innermost. */
static double gain_of(const ki_layouts *l, const ki_scope *s, const ki_affine *f, ki_wish *w, kn_uop user) {
    kn_uop x = user->op == KN_REDUCE ? product_in(user) : NULL, of = user->op == KN_STORE ? user->src[0] : user;
    kn_uop inner = counting(s, f, 1, of);
    double runs = runs_of(s, x ? x : user->op == KN_STORE ? of : user->src[0]);
    kn_uop channel = x && l->panels ? counting(s, f, w->stride, x) : NULL;
    bool takes = channel && !ki_scope_has(s, user, channel) && takes_panels(s, x, channel, true);
    w->other |= x && !takes;
    if (!inner) return counting(s, f, w->stride, of) ? runs * (x ? SUMMED : STRIDED) : 0;
    double gain = x && row_of(s, f, inner, of) ? -runs : 0;
    if (takes) w->spared += gain;
    return takes ? 0 : gain;
}

/* The same of the store of a sum of products, all of whose reads are one row where it has one. */
static double gain_of_store(const ki_layouts *l, const ki_scope *s, const ki_affine *const *form, ki_wish *w,
                            kn_uop store) {
    const ki_affine *f = position(s, form, store->src[0]);
    kn_uop x = product_of(s, store->src[1]), inner = f && x ? counting(s, f, 1, x) : NULL;
    if (!inner || !row_of(s, f, inner, x)) return 0;
    for (uint32_t i = 0; i < s->n; i++) {
        kn_uop u = s->node[i];
        const ki_affine *g = u->op == KN_INDEX && ki_scope_has(s, u, inner) ? position(s, form, u) : NULL;
        if (g && !row_of(s, g, inner, x)) return 0;
    }
    kn_uop channel = l->panels ? counting(s, f, w->stride, x) : NULL;
    bool takes = channel && takes_panels(s, x, channel, false);
    if (takes) w->spared -= runs_of(s, x);
    return takes ? 0 : -runs_of(s, x);
}

/* What the kernel gains from each wish that touches it: user[i] is the sum that node i is for, or the store. */
static void weigh(ki_layouts *l, const ki_scope *s, const ki_affine *const *form, kn_uop *user) {
    for (uint32_t i = s->n; i-- > 0;) {
        kn_uop u = s->node[i], own = u->op == KN_REDUCE || u->op == KN_STORE ? u : user[i];
        for (uint32_t k = 0; k < u->nsrc; k++) user[s->at[u->src[k]->id]] = own;
        ki_wish *w = u->op == KN_INDEX && own ? wish_for(l, u) : NULL;
        const ki_affine *f = w ? position(s, form, u) : NULL;
        if (f) w->gain += own->src[0] == u ? gain_of_store(l, s, form, w, own) : gain_of(l, s, f, w, own);
    }
}

/* Makes a kernel's wishes, or weighs those of others. */
static bool look(ki_layouts *l, ki_ir *ir, kn_uop sink) {
    ki_scope s;
    ki_affines a = {.ir = ir};
    bool ok = ki_scope_open(&s, ir, sink);
    const ki_affine **form = ok ? ki_affine_all(&a, s.node, s.n, s.at) : NULL;
    kn_uop *user = ok ? ki_calloc(s.n, sizeof *user) : NULL;
    ok = ok && ((form && user) || (ki_fail(ir->env, KI_E_NOMEM), false));
    if (ok && l->step == KI_WISH) make_wishes(l, &s, form);
    else if (ok) weigh(l, &s, form, user);
    ki_free(form);
    ki_free(user);
    ki_arena_free(&a.arena);
    ki_scope_close(&s);
    return ok;
}

/* ---- granting ------------------------------------------------------------------------------------------------ */

static uint32_t quotients(ki_ir *ir, kn_uop u) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &u, 1, &node);
    uint32_t found = 0;
    for (int64_t i = 0; i < n; i++) found += node[i]->op == KN_IDIV || node[i]->op == KN_MOD;
    if (n >= 0) ki_free(node);
    return found;
}

/* An access at position i, where that is now. */
static kn_uop moved(ki_ir *ir, kn_uop access, const ki_wish *w) {
    kn_uop i = access->src[1], gate = NULL;
    if (i->op == KN_WHERE && i->src[2]->op == KN_INVALID) gate = i->src[0], i = i->src[1];
    int64_t all;
    if (ki_mul_overflow(w->stride, w->extent, &all)) return access;
    kn_uop s = ki_index(ir, w->stride), e = ki_index(ir, w->extent), se = ki_index(ir, all);
    kn_uop outer = ki_op2(ir, KN_MUL, ki_op2(ir, KN_IDIV, i, se), se);
    kn_uop middle = ki_op2(ir, KN_MUL, ki_op2(ir, KN_MOD, i, s), e);
    kn_uop inner = ki_op2(ir, KN_MOD, ki_op2(ir, KN_IDIV, i, s), e);
    kn_uop at = ki_op2(ir, KN_ADD, ki_op2(ir, KN_ADD, outer, middle), inner);
    if (gate) at = ki_op3(ir, KN_WHERE, gate, at, ki_op0(ir, KN_INVALID));
    return ki_range_fold(ir, ki_op2(ir, KN_INDEX, access->src[0], at), 0);
}

/* sink with what is wished moved; NULL: env says why. A wish that leaves quotients is taken back. */
static kn_uop move_all(ki_layouts *l, ki_ir *ir, kn_uop sink) {
    kn_uop *node, result = NULL;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    kn_uop *now = n < 0 ? NULL : ki_calloc(ir->n, sizeof *now);
    bool ok = now || (n >= 0 && (ki_fail(ir->env, KI_E_NOMEM), false));
    for (int64_t i = 0; ok && i < n; i++) {
        kn_uop u = node[i], src[64], *v = u->nsrc <= 64 ? src : ki_calloc(u->nsrc, sizeof *v);
        if (!(ok = v != NULL)) break;
        for (uint32_t k = 0; k < u->nsrc; k++) v[k] = now[u->src[k]->id];
        kn_uop x = ki_with_src(ir, u, v);
        if (v != src) ki_free(v);
        ki_wish *w = x && x->op == KN_INDEX ? wish_for(l, x) : NULL;
        if (w) {
            kn_uop y = moved(ir, x, w);
            bool clean = y && y->op == KN_INDEX && quotients(ir, y) <= quotients(ir, x);
            if (y && !clean && l->step == KI_TRY) w->extent = 0;
            else x = y;
        }
        ok = (now[u->id] = x) != NULL;
    }
    if (ok) result = now[sink->id];
    ki_free(now);
    if (n >= 0) ki_free(node);
    return result;
}

/* Might a sum of products be stored here whose axes could be moved? */
static bool may_wish(const ki_layouts *l, kn_uop sink) {
    for (uint32_t i = 0; i < sink->nsrc; i++) {
        kn_uop e = sink->src[i], s = e->op == KN_END ? e->src[0] : NULL;
        if (s && s->op == KN_GROUP && s->nsrc) s = s->src[0];
        if (s && s->op == KN_STORE && e->nsrc >= 4 && s->src[0]->op == KN_INDEX && s->src[0]->src[0]->op == KN_BUFFER &&
            s->src[0]->src[0]->arg.buffer->id < l->nbuffer)
            return true;
    }
    return false;
}

bool ki_layouts_open(ki_layouts *l, const ki_program *p, const ki_target *t) {
    *l = (ki_layouts){.nbuffer = p->ir->next_buffer, .panels = t && ki_target_takes_panels(t)};
    if (!(l->wish = ki_calloc(l->nbuffer + 1, sizeof *l->wish))) return ki_fail(p->ir->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < p->nin + p->nout; i++) {
        kn_uop b = i < p->nin ? p->in[i].node : p->out[i - p->nin].node;
        if (b->op == KN_BUFFER && b->arg.buffer->id < l->nbuffer) l->wish[b->arg.buffer->id].extent = -1;
    }
    return true;
}

void ki_layouts_close(ki_layouts *l) { ki_free(l->wish); }

void ki_layouts_settle(ki_layouts *l) {
    for (uint32_t i = 0; i < l->nbuffer && l->step == KI_TRY; i++)
        if (l->wish[i].gain + (l->wish[i].other ? l->wish[i].spared : 0) < 0) l->wish[i].extent = 0;
}

bool ki_layouts_any(const ki_layouts *l) {
    for (uint32_t i = 0; i < l->nbuffer; i++)
        if (l->wish[i].extent > 0) return true;
    return false;
}

bool ki_layouts_touch(ki_layouts *l, ki_ir *ir, kn_uop sink, bool scatters, bool *any) {
    kn_uop *node;
    int64_t n = ki_toposort(ir, &sink, 1, &node);
    *any = false;
    for (int64_t i = 0; i < n; i++) {
        ki_wish *w = node[i]->op == KN_INDEX ? wish_for(l, node[i]) : NULL;
        if (w && scatters) w->extent = 0;
        else if (w) *any = true;
    }
    if (n >= 0) ki_free(node);
    return n >= 0;
}

kn_uop ki_layouts_apply(ki_layouts *l, ki_ir *ir, kn_uop sink) {
    if (!l) return sink;
    if (l->step == KI_WISH && !may_wish(l, sink)) return sink;
    if (l->step != KI_MOVE && !look(l, ir, sink)) return NULL;
    if (l->step == KI_WISH) return sink;
    kn_uop to = move_all(l, ir, sink);
    return l->step == KI_MOVE || !to ? to : sink;
}
