/* rangeify.c: stage 2, movement ops become index arithmetic over RANGEs and the function is cut into kernels.
 *
 *   facts.c     what a value costs, which sums fold away          (sources first; alike.c: once for sums made alike)
 *   decide.c    which values get storage                          (users first; storage.c: the rules of thumb; push.kr moves the INDEX; places.c names loops)
 *   kernels.c   nests to kernels: fold.kr folds sums, scan.c carries them, scatter.c adds each term where it belongs,
 *               loops.c joins loops, row.c keeps rows, layout.c orders the axes of what lies between kernels; twins.c: once
 *               for nests that differ in names alone, which written.c leaves out
 *   order.c     kernels in execution order                        (part.c, inside.c and siblings.c: which become one)
 *   inplace.c   a result takes the place of what is read for the last time
 *   slots.c     kernels that differ in where they begin in a buffer become one, which gets parts of buffers
 */
#include "stages/indexing.h"
#include "stages/2_rangeify/rangeify.h"

#include <string.h>

/* A value whose layout another has: storing that one stores both. */
static kn_uop stored_base(kn_uop v) {
    while (v->op == KN_RESHAPE && v->src[0]->op != KN_PARAM && v->src[0]->op != KN_CONST && !v->src[0]->type->symbolic)
        v = v->src[0];
    return v;
}

static bool begin(rangeifier *r, kn_uop tuple) {
    r->n = ki_toposort(r->ir, &tuple, 1, &r->order);
    if (r->n < 0) return false;
    r->top = r->ir->n - 1;
    r->info = ki_calloc(r->ir->n, sizeof *r->info);
    r->push = (ki_push){r->ir, ki_calloc(r->ir->n, sizeof *r->push.range)};
    if (!r->info || !r->push.range) return ki_fail(r->ir->env, KI_E_NOMEM), false;
    for (int64_t i = 0; i < r->n; i++) {
        kn_uop u = r->order[i];
        info *f = &r->info[u->id];
        f->first = f->nest = NONE;
        r->nested |= u->op == KN_INDEX;
        if (u->op == KN_LOAD) f->keep = true;
        if (u->op == KN_AFTER) f->keep = true;
        r->remat |= u->op == KN_REMAT;
        for (uint32_t k = 1; u->op == KN_REMAT && k < u->nsrc; k++) r->info[u->src[k]->id].awaited = true;
    }
    kn_uop function = r->p->root;
    for (int64_t i = 0; i < r->n; i++)
        if (r->order[i]->op == KN_PARAM && r->order[i]->nsrc)
            r->info[r->order[i]->id].buffer = function->src[r->order[i]->arg.param->slot + 1];
    for (uint32_t i = 0; i < tuple->nsrc; i++) {
        kn_uop v = stored_base(tuple->src[i]);
        if (v->type->numel) r->info[v->id].root = r->info[v->id].keep = true;
    }
    return true;
}

/* Outputs that are inputs, as they were or as assigned, once all is simplified: copied. */
static kn_uop copy_of_params(const ki_program *p, kn_uop tuple) {
    ki_ir *ir = p->ir;
    kn_uop *s = ki_calloc(tuple->nsrc + 1, sizeof *s), t = NULL;
    bool ok = s || (ki_fail(ir->env, KI_E_NOMEM), false);
    for (uint32_t i = 0; ok && i < tuple->nsrc; i++) {
        kn_uop v = tuple->src[i], b = v;
        while (b->op == KN_RESHAPE) b = b->src[0];
        bool assigned = p->out[i].node->op == KN_BUFFER; /* the memory itself */
        if (!assigned && v->type->numel && ((b->op == KN_PARAM && b->nsrc) || b->op == KN_AFTER)) {
            ki_load l = {.device = v->type->device, .addrspace = KN_GLOBAL};
            const void *arg = ki_intern(ir, &l, sizeof l);
            v = arg ? ki_make(ir, KN_LOAD, KN_VOID, &v, 1, (kn_arg){.p = arg}, 0) : NULL;
        }
        ok = (s[i] = v) != NULL;
    }
    if (ok) t = ki_opn(ir, KN_TUPLE, s, tuple->nsrc);
    ki_free(s);
    return t;
}

/* The prepared outputs are the program now; what they were made from is given back. */
static bool settle(ki_program *p, kn_uop tuple) {
    kn_uop f = p->root, *s = ki_calloc(f->nsrc, sizeof *s);
    if (!s) return ki_fail(p->ir->env, KI_E_NOMEM), false;
    memcpy(s, f->src, f->nsrc * sizeof *s);
    s[0] = tuple;
    bool ok = (f = ki_with_src(p->ir, f, s)) != NULL;
    for (size_t i = 0; i < p->nout && ok; i++)
        if (p->out[i].node->op == KN_GETTUPLE) ok = (p->out[i].node = ki_with_src(p->ir, p->out[i].node, &f)) != NULL;
    ki_free(s);
    return ok && (p->root = f, ki_program_collect(p, NULL, 0));
}

/* Where the outputs are. */
static bool place_outputs(rangeifier *r, kn_uop tuple) {
    ki_program *p = r->p;
    for (size_t i = 0; i < p->nout; i++) {
        kn_uop v = stored_base(tuple->src[i]);
        if (p->out[i].node->op == KN_BUFFER) continue; /* an assigned input */
        kn_uop b = r->info[v->id].buffer;
        if (!b)
            b = ki_buffer_make(r->ir, r->ir->next_buffer, v->type->numel, (kn_dtype)v->dtype, KN_GLOBAL,
                               v->type->device);
        if (!b) return false;
        p->out[i].node = b;
    }
    return true;
}

void ki_range_forget(rangeifier *r) {
    ki_free(r->order);
    ki_free(r->info);
    ki_free(r->push.range);
    ki_free(r->demand);
    ki_free(r->asker);
    ki_slots_free(&r->askers);
    ki_free(r->context);
    ki_alike_free(&r->alike);
    ki_places_free(&r->places);
    r->order = NULL;
    r->info = NULL;
    r->push.range = NULL;
    r->demand = NULL;
    r->asker = NULL;
    r->context = NULL;
}

bool ki_rangeify(ki_program *p, const ki_lower_opts *o) {
    rangeifier r = {.ir = p->ir, .opts = o, .p = p};
    kn_uop tuple = ki_range_prepare(p->ir, p->root->src[0]);
    if (tuple) tuple = copy_of_params(p, tuple);
    bool ok = tuple && settle(p, tuple) && (tuple = p->root->src[0], begin(&r, tuple)) && ki_range_facts(&r) &&
              ki_range_decide(&r) && place_outputs(&r, tuple) && ki_range_kernels(&r);
    if (ok) p->stage = KI_S_RANGEIFY;
    ki_range_forget(&r);
    ki_memo_free(&r.memo);
    ki_free(r.nest);
    ki_free(r.output);
    ki_free(r.own);
    ki_free(r.map);
    ki_free(r.asks);
    ki_free(r.after);
    return ok;
}
