/* handle.c: tensors as handles: birth, scopes, death, failures.
 *
 * Invariants: k->tensors lists the live handles, youngest first, and keeping one does not move it, so closing a scope
 * walks the list down to the first handle older than the scope.
 * Dead handles wait in a queue and are reused oldest first, KI_QUARANTINE deaths later. */
#include "tensor/build.h"

#include <string.h>

#define SLAB 256

/* The context whose first failure was just recorded without its place: the macro around the call adds it. */
static _Thread_local kn_ctx *unplaced;

/* ---- birth and death --------------------------------------------------------------------------------------- */

static struct kn_tensor_s *fresh(kn_ctx *k) {
    if (k->ndead > KI_QUARANTINE) {
        struct kn_tensor_s *t = k->dead_first;
        k->dead_first = t->next;
        if (!t->next) k->dead_last = NULL;
        k->ndead--;
        return t;
    }
    /* The free part of the newest slab is counted in its head. */
    struct slab {
        uint32_t used;
        struct kn_tensor_s t[SLAB];
    } *s = k->nslab ? k->slab[k->nslab - 1] : NULL;
    if (!s || s->used == SLAB) {
        void **slab = ki_realloc(k->slab, k->nslab + 1u, sizeof *slab);
        if (!slab) return NULL;
        k->slab = slab;
        s = ki_calloc(1, sizeof *s);
        if (!s) return NULL;
        k->slab[k->nslab++] = s;
    }
    return &s->t[s->used++];
}

static void link_first(kn_ctx *k, struct kn_tensor_s *t) {
    t->prev = NULL;
    t->next = k->tensors;
    if (t->next) t->next->prev = t;
    k->tensors = t;
}
static void unlink_live(kn_ctx *k, struct kn_tensor_s *t) {
    if (t->prev) t->prev->next = t->next;
    else k->tensors = t->next;
    if (t->next) t->next->prev = t->prev;
}

static void bury(kn_ctx *k, struct kn_tensor_s *t) {
    unlink_live(k, t);
    ki_views_drop(k, t);
    for (unsigned d = 0; d < KI_TRACES; d++)
        k->trace[d].alive -= t->born > k->trace[d].first && t->born <= k->trace[d].last;
    if (k->first_tensor == t) k->first_tensor = NULL;
    ki_free(t->message);
    t->message = NULL;
    t->u = t->past = NULL;
    t->dead = KI_DEAD;
    t->next = t->prev = NULL;
    if (k->dead_last) k->dead_last->next = t;
    else k->dead_first = t;
    k->dead_last = t;
    k->ndead++;
}

void ki_handles_close(kn_ctx *k) {
    if (unplaced == k) unplaced = NULL;
    for (struct kn_tensor_s *t = k->tensors; t; t = t->next) ki_free(t->message);
    for (uint32_t i = 0; i < k->nslab; i++) ki_free(k->slab[i]);
    ki_free(k->slab);
    ki_free(k->view);
    k->tensors = NULL;
}

/* ---- failures ---------------------------------------------------------------------------------------------- */

int ki_settle_failure(kn_ctx *k) {
    if (k->env.err == KI_E_NONE) return KI_OK;
    int status = k->env.status;
    unplaced = !k->first_status && k->env.err != KI_E_TENSOR_ERROR && !k->env.loc.file ? k : NULL;
    if (!k->first_status) {
        k->first_status = status;
        ki_text_cut(&k->first, 0);
        ki_text_put(&k->first, k->env.message.s ? k->env.message.s : "");
    }
    ki_env_clear(&k->env);
    return status;
}

kn_tensor ki_handle(kn_ctx *k, kn_uop u) {
    kn_uop base = ki_view_base(u);
    struct kn_tensor_s *t = !base || ki_views_room(k, base->id) ? fresh(k) : NULL;
    if (!t) {
        if (k->env.err == KI_E_NONE) ki_fail(&k->env, KI_E_NOMEM);
        ki_settle_failure(k);
        return &k->nomem;
    }
    *t = (struct kn_tensor_s){.k = k, .u = u, .scope = k->depth, .born = ++k->births};
    link_first(k, t);
    ki_views_add(k, t);
    if (u) { /* what failed on the way to a good value does not count */
        if (k->env.err != KI_E_NONE) ki_env_clear(&k->env);
        return t;
    }
    if (k->env.err == KI_E_NONE) ki_fail(&k->env, KI_E_INTERNAL, "a call failed without a reason");
    t->status = (int16_t)k->env.status;
    t->message = ki_text_take(&k->env.message);
    unplaced = NULL;
    if (!k->first_status) {
        unplaced = k;
        k->first_status = t->status;
        k->first_tensor = t;
        ki_text_cut(&k->first, 0);
        ki_text_put(&k->first, t->message ? t->message : "");
    }
    ki_env_clear(&k->env);
    return t;
}

static char *with_place(const char *text, const char *file, int line) {
    ki_text s = {0};
    ki_text_printf(&s, "%s:%d: %s", file, line, text);
    return ki_text_take(&s);
}

kn_tensor kn_at_(kn_tensor t, const char *file, int line) {
    if (!t || !file || t->loc.file || t->dead) return t;
    t->loc = (ki_loc){file, line};
    if (t->u || !t->message) return t;
    char *m = with_place(t->message, file, line);
    if (!m) return t; /* the message without its place is still right */
    ki_free(t->message);
    t->message = m;
    if (t->k->first_tensor == t) {
        ki_text_cut(&t->k->first, 0);
        ki_text_put(&t->k->first, m);
        t->k->first_tensor = NULL;
    }
    return t;
}

static void place_failure(const char *file, int line) {
    kn_ctx *k = unplaced;
    unplaced = NULL;
    if (!k) return;
    if (k->first_tensor) { /* one of the results */
        kn_at_(k->first_tensor, file, line);
        return;
    }
    char *m = with_place(k->first.s ? k->first.s : "", file, line);
    if (!m) return;
    ki_text_cut(&k->first, 0);
    ki_text_put(&k->first, m);
    ki_free(m);
}
kn_status kn_at_status_(kn_status s, const char *file, int line) {
    if (s) place_failure(file, line);
    return s;
}
const void *kn_at_data_(const void *p, const char *file, int line) {
    if (!p) place_failure(file, line);
    return p;
}
double kn_at_double_(double v, const char *file, int line) {
    if (v != v) place_failure(file, line);
    return v;
}

bool ki_usable(kn_tensor t, const char *fn) {
    if (t->u) return true;
    ki_env *e = &t->k->env;
    if (t->dead) {
        ki_fail(e, t->dead == KI_DEAD ? KI_E_TENSOR_DEAD : KI_E_TENSOR_STALE, fn);
        if (t->loc.file) ki_fail_note(e, "it was made at %s:%d", t->loc.file, t->loc.line);
    } else if (e->err == KI_E_NONE) { /* the same failure again, word for word */
        e->err = KI_E_TENSOR_ERROR;
        e->status = t->status;
        ki_text_cut(&e->message, 0);
        ki_text_put(&e->message, t->message ? t->message : "out of memory");
    }
    return false;
}

bool ki_given(kn_ctx *k, const char *fn, const char *what, const void *p) {
    if (!p) ki_fail(&k->env, KI_E_NULL_GIVEN, fn, what);
    return p != NULL;
}

kn_status ki_no_out(const char *fn, const kn_tensor *t, size_t n) {
    kn_ctx *k;
    kn_tensor bad = ki_enter(&k, fn, t, n, 0);
    if (bad || !k) return kn_check(bad);
    ki_given(k, fn, "out", NULL);
    return (kn_status)ki_settle_failure(k);
}

/* ---- entering a public call -------------------------------------------------------------------------------- */

void ki_begin(kn_ctx *k, const char *fn) {
    ki_settle_failure(k);
    k->fn = fn;
    k->operand[0] = k->operand[1] = NULL;
}

/* Returns NULL when all operands may be used; else what the call returns. */
kn_tensor ki_enter(kn_ctx **out, const char *fn, const kn_tensor *t, size_t n, unsigned optional) {
    kn_ctx *k = NULL;
    for (size_t i = 0; t && i < n && !k; i++)
        if (t[i]) k = t[i]->k;
    *out = k;
    if (!k) return NULL;
    ki_settle_failure(k);
    k->fn = fn;
    k->operand[0] = n > 0 ? t[0] : NULL;
    k->operand[1] = n > 1 ? t[1] : NULL;
    for (size_t i = 0; i < n; i++) {
        if (!t[i]) {
            if (i < 32 && optional >> i & 1) continue;
            ki_fail(&k->env, KI_E_TENSOR_NULL, fn, (unsigned)i);
        } else if (t[i]->dead) {
            ki_usable(t[i], fn);
        } else if (!t[i]->u) {
            return t[i]; /* errors ride along */
        } else if (t[i]->k != k) {
            ki_fail(&k->env, KI_E_TENSOR_CONTEXT, fn);
        } else {
            continue;
        }
        return ki_handle(k, NULL);
    }
    return NULL;
}

/* ---- scopes ------------------------------------------------------------------------------------------------ */

void kn_scope_open(kn_ctx *k) {
    if (!k) return;
    k->depth++;
    if (k->depth < KI_SCOPES) k->opened[k->depth] = k->births;
}

void kn_scope_close(kn_ctx *k) {
    if (!k || !k->depth) return;
    uint64_t since = k->depth < KI_SCOPES ? k->opened[k->depth] : 0;
    for (struct kn_tensor_s *t = k->tensors, *next; t && t->born > since; t = next) {
        next = t->next;
        if (t->scope >= k->depth) bury(k, t);
        else t->past = NULL; /* what outlives the scope keeps its value, not its history */
    }
    k->depth--;
    ki_maybe_collect(k, true);
}

kn_tensor kn_keep(kn_tensor t) {
    if (t && !t->dead) t->scope = 0;
    return t;
}
kn_tensor kn_hand_up(kn_tensor t) {
    if (t && !t->dead && t->scope == t->k->depth && t->scope) t->scope--;
    return t;
}
void kn_drop(kn_tensor t) {
    if (t && t->dead != KI_DEAD && t != &t->k->nomem) bury(t->k, t);
}

/* ---- readers ----------------------------------------------------------------------------------------------- */

kn_status kn_check(kn_tensor t) {
    if (!t) return KN_BAD_ARGUMENT;
    return t->u ? KN_OK : t->dead ? KN_BAD_ARGUMENT : (kn_status)t->status;
}
const char *kn_why(kn_tensor t) {
    if (!t)
        return "no tensor: a call was given NULL for each of its operands, which were never set or could not be made";
    if (t->u) return "";
    if (t->dead) return t->dead == KI_DEAD ? "the tensor's scope has ended" : "a value it reads has been overwritten";
    return t->message ? t->message : "out of memory";
}
kn_ctx *kn_context(kn_tensor t) { return t ? t->k : NULL; }
kn_dtype kn_dtype_of(kn_tensor t) { return t && t->u ? (kn_dtype)t->u->dtype : KN_VOID; }
int kn_rank(kn_tensor t) { return t && t->u ? (int)ki_rank(t->u) : -1; }
int64_t kn_size(kn_tensor t, int axis) {
    int rank = kn_rank(t);
    if (axis < 0) axis += rank;
    return rank >= 0 && axis >= 0 && axis < rank ? ki_dim_n(t->u, (unsigned)axis) : -1;
}
int64_t kn_numel(kn_tensor t) { return t && t->u ? ki_numel(t->u) : -1; }
kn_ints kn_shape(kn_tensor t) {
    kn_ints s = {0};
    for (int k = 0; k < kn_rank(t); k++) s.v[s.n++] = ki_dim_n(t->u, (unsigned)k);
    return s;
}
kn_uop kn_graph(kn_tensor t) { return t ? t->u : NULL; }
kn_tensor kn_from_graph(kn_ctx *k, kn_uop u) {
    ENTER_CTX("from_graph");
    if (u && (u->dtype == KN_VOID || u->id >= k->ir.n || k->ir.node[u->id] != u))
        ki_fail(&k->env, KI_E_NOT_A_VALUE, ki_ops[u->op].name), u = NULL;
    else if (!u && k->env.err == KI_E_NONE) ki_given(k, k->fn, "the node", u);
    return ki_handle(k, u);
}
