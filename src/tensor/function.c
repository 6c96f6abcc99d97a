/* function.c: a C function on tensors as one FUNCTION node, and back.
 *
 * f runs on placeholders: PARAMs with names of their own ("#n"), so that a function traced inside another cannot take
 * one for its own. What the result reads besides them (buffers, assigned places, placeholders of an outer trace) is
 * captured as further arguments; then all become PARAM slots. */
#include "tensor/build.h"

#include <stdio.h>
#include <string.h>

typedef struct list {
    kn_uop *v;
    size_t n, cap;
} list;
static bool push(kn_ctx *k, list *l, kn_uop u) {
    if (!ki_array_grow(&l->v, &l->cap, l->n + 1, sizeof *l->v)) return ki_fail(&k->env, KI_E_NOMEM), false;
    l->v[l->n++] = u;
    return true;
}

kn_uop ki_t_placeholder(kn_ctx *k, kn_uop like) {
    char name[32];
    snprintf(name, sizeof name, "#%llu", (unsigned long long)++k->births);
    return ki_param_make(&k->ir, -1, (kn_dtype)like->dtype, KN_GLOBAL, like->type->device, name, NULL,
                         ki_shape_of(&k->ir, like));
}

static bool captured(kn_uop u) {
    return (u->op == KN_BUFFER && u->arg.buffer->addrspace == KN_GLOBAL) || u->op == KN_AFTER ||
           (u->op == KN_PARAM && u->arg.param->len && u->arg.param->name[0] == '#');
}

/* What the outputs read and the first `own` entries of `from` are not. */
static bool capture(kn_ctx *k, const kn_uop *out, size_t nout, list *from) {
    list work = {0};
    uint8_t *seen = ki_calloc(k->ir.n, 1);
    bool ok = seen || (ki_fail(&k->env, KI_E_NOMEM), false);
    for (size_t i = 0; i < from->n && ok; i++) seen[from->v[i]->id] = 1;
    for (size_t i = 0; i < nout && ok; i++)
        if (!seen[out[i]->id]) seen[out[i]->id] = 1, ok = push(k, &work, out[i]);
    for (size_t at = 0; at < work.n && ok; at++) {
        kn_uop u = work.v[at];
        if (captured(u)) {
            ok = push(k, from, u);
            continue;
        }
        for (uint32_t s = 0; s < u->nsrc && ok; s++)
            if (!seen[u->src[s]->id]) seen[u->src[s]->id] = 1, ok = push(k, &work, u->src[s]);
    }
    ki_free(seen);
    ki_free(work.v);
    return ok;
}

/* FUNCTION(TUPLE(out...), args...): from[i] in the outputs is what args[i] stands for. */
static kn_uop close_over(kn_ctx *k, kn_uop *out, size_t nout, list *from, list *args) {
    list to = {0};
    bool ok = capture(k, out, nout, from);
    for (size_t i = args->n; i < from->n && ok; i++) ok = push(k, args, from->v[i]);
    for (size_t i = 0; i < from->n && ok; i++) {
        kn_uop f = from->v[i];
        kn_uop p = ki_param_make(&k->ir, (int)i, (kn_dtype)f->dtype, KN_GLOBAL, f->type->device, NULL, NULL,
                                 ki_shape_of(&k->ir, f));
        ok = p && push(k, &to, p);
    }
    kn_uop fn = NULL;
    if (ok && ki_substitute_all(&k->ir, out, nout, from->v, to.v, from->n)) {
        kn_uop *src = ki_malloc((args->n + 1) * sizeof *src);
        if (src) {
            src[0] = ki_opn(&k->ir, KN_TUPLE, out, (uint32_t)nout);
            if (args->n) memcpy(src + 1, args->v, args->n * sizeof *src);
            fn = ki_opn(&k->ir, KN_FUNCTION, src, (uint32_t)args->n + 1);
        }
        ki_free(src);
    }
    ki_free(to.v);
    return fn;
}

static kn_status all_bad(kn_ctx *k, kn_tensor bad, kn_tensor *out, size_t n) {
    if (!bad) bad = ki_handle(k, NULL);
    for (size_t i = 0; i < n; i++) out[i] = bad;
    return kn_check(bad);
}

kn_status kn_function(kn_ctx *k, kn_fn f, void *user, const kn_tensor *in, size_t nin, kn_tensor *out, size_t nout) {
    ENTER_CTX("function");
    list from = {0}, args = {0};
    kn_ctx *own;
    kn_tensor bad = ki_enter(&own, "function", in, nin, 0);
    if (bad) return all_bad(k, bad, out, nout);
    kn_tensor *hold = ki_malloc((nin + 1) * sizeof *hold);
    kn_uop *res = ki_malloc((nout + 1) * sizeof *res), fn = NULL;
    bool ok = hold && res;
    if (!ok) ki_fail(&k->env, KI_E_NOMEM);
    for (size_t i = 0; i < nin && ok; i++) {
        size_t j = 0; /* equal inputs are one argument */
        while (j < args.n && args.v[j] != in[i]->u) j++;
        if (j == args.n) ok = push(k, &args, in[i]->u) && push(k, &from, ki_t_placeholder(k, in[i]->u)) && from.v[j];
        if (ok) hold[i] = ki_handle(k, from.v[j]);
    }
    if (ok) {
        for (size_t i = 0; i < nout; i++) out[i] = NULL;
        f(user, hold, out);
        ENTER_CTX("function");
    }
    for (size_t i = 0; i < nout && ok; i++) {
        if (!out[i] || !(ok = ki_usable(out[i], "function"))) {
            if (!out[i]) ki_fail(&k->env, KI_E_FUNCTION_OUT, (unsigned)i), ok = false;
            break;
        }
        res[i] = out[i]->u;
    }
    if (ok) fn = close_over(k, res, nout, &from, &args);
    ki_free(from.v);
    ki_free(args.v);
    ki_free(hold);
    ki_free(res);
    if (!fn) return all_bad(k, NULL, out, nout);
    for (size_t i = 0; i < nout; i++) out[i] = ki_handle(k, kn_u_get(k, fn, (int64_t)i));
    return KN_OK;
}

/* ---- inlining ---------------------------------------------------------------------------------------------- */

static kn_uop inlined(kn_ctx *k, kn_uop body, const kn_uop *args, uint32_t n) {
    kn_uop *order, result = NULL;
    int64_t count = ki_toposort(&k->ir, &body, 1, &order);
    if (count < 0) return NULL;
    kn_uop *from = ki_malloc(((size_t)count + 1) * 2 * sizeof *from), *to = from ? from + count + 1 : NULL;
    size_t m = 0;
    for (int64_t i = 0; i < count && from; i++) {
        kn_uop u = order[i];
        if (u->op != KN_PARAM || u->arg.param->slot < 0 || (uint32_t)u->arg.param->slot >= n) continue;
        from[m] = u;
        to[m++] = args[u->arg.param->slot];
    }
    if (from) result = ki_substitute(&k->ir, body, from, to, m);
    ki_free(from);
    ki_free(order);
    return result;
}

/* Every FUNCTION replaced by its body. Inner ones come first: they have smaller ids. */
bool ki_inline_functions(kn_ctx *k, kn_uop *root, size_t n) {
    kn_uop *order, src[64], *buf = src;
    int64_t count = ki_toposort(&k->ir, root, n, &order);
    if (count < 0) return false;
    bool any = false;
    for (int64_t i = 0; i < count; i++) any |= order[i]->op == KN_FUNCTION;
    uint32_t cap = 64, ids = k->ir.n;
    kn_uop *map = any ? ki_calloc(ids, sizeof *map) : NULL;
    bool ok = !any || map;
    for (int64_t i = 0; i < count && any && ok; i++) {
        kn_uop u = order[i];
        if (u->nsrc > cap) {
            kn_uop *p = ki_realloc(buf == src ? NULL : buf, u->nsrc, sizeof *p);
            ok = p != NULL;
            if (!ok) break;
            buf = p, cap = u->nsrc;
        }
        for (uint32_t s = 0; s < u->nsrc; s++) buf[s] = map[u->src[s]->id];
        if (u->op == KN_FUNCTION) map[u->id] = inlined(k, buf[0], buf + 1, u->nsrc - 1);
        else if (u->op == KN_GETTUPLE && buf[0]->op == KN_TUPLE) map[u->id] = buf[0]->src[u->arg.i];
        else map[u->id] = ki_with_src(&k->ir, u, buf);
        ok = map[u->id] != NULL;
    }
    for (size_t i = 0; i < n && any && ok; i++) root[i] = map[root[i]->id];
    if (!ok && k->env.err == KI_E_NONE) ki_fail(&k->env, KI_E_NOMEM);
    if (buf != src) ki_free(buf);
    ki_free(map);
    ki_free(order);
    return ok;
}
