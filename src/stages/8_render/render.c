/* render.c: stage 8: each kernel becomes a PROGRAM, of C text or of machine code, as the target is. See render.h. */
#include "stages/8_render/render.h"

#include "base/cpuid.h"
#include "stages/8_render/x86/native.h"

#include <string.h>

/* The next variable among a call's arguments from k on. */
static uint32_t next_variable(kn_uop call, uint32_t k) {
    while (k < call->nsrc && (call->src[k]->op != KN_PARAM || call->src[k]->arg.param->slot >= 0)) k++;
    return k;
}

bool ki_render_same(kn_uop a, kn_uop b) {
    uint32_t i = next_variable(a, 1), k = next_variable(b, 1);
    for (; i < a->nsrc && k < b->nsrc; i = next_variable(a, i + 1), k = next_variable(b, k + 1))
        if (a->src[i]->arg.param != b->src[k]->arg.param) return false;
    return i == a->nsrc && k == b->nsrc;
}

static kn_uop source_of(ki_ir *ir, ki_ir *own, const ki_target *t, kn_uop call) {
    ki_text text = {0};
    kn_uop s = NULL;
    if (ki_render_c(own, t, call, &text)) s = ki_str_op(ir, KN_SOURCE, KN_VOID, text.s, text.n, NULL, 0);
    ki_text_free(&text);
    return s;
}

static kn_uop binary_of(ki_ir *ir, ki_ir *own, const ki_target *t, kn_uop call) {
    ki_x86_text code;
    kn_uop b = NULL;
    if (ki_render_x86(own, t, call, &code, NULL))
        b = ki_str_op(ir, KN_BINARY, KN_U8, (const char *)code.bytes, code.n, NULL, 0);
    ki_x86_text_free(&code);
    return b;
}

const ki_target *ki_render_target(ki_env *env, const ki_target *t, kn_uop body) {
    const ki_kernel *k = body->arg.kernel;
    if (!k || !k->native) return t->native ? ki_target_named(t->name) : t;
    const char *level = ki_cpu_level_names[k->native - 1];
    if (k->native - 1 <= t->level) return ki_target_native(level);
    return ki_fail(env, KI_E_RENDER_LEVEL, ki_kernel_name(k), level, t->name), NULL;
}

/* Machine code that came with a text: of another processor maybe, or damaged. What it was made from stands beside it. */
static bool is_foreign(kn_uop kernel) {
    return kernel->op == KN_PROGRAM && kernel->nsrc > 1 && kernel->src[1]->op == KN_BINARY;
}

/* CALL(SINK(LINEAR), ...) -> CALL(PROGRAM(LINEAR, SOURCE or BINARY), ...). The kernel is read in a store of its own: what is known
 * of a node stands in arrays by id, and these are as long as the kernel then, not as the program. */
static kn_uop render_kernel(ki_ir *ir, ki_ir *own, const ki_target *t, kn_uop call) {
    kn_uop body = call->src[0], alone;
    if (!ki_ir_reset(own) || !ki_import(own, ir, &call, 1, &alone)) return NULL;
    if (!(t = ki_render_target(ir->env, t, body))) return NULL;
    kn_uop code = t->native ? binary_of(ir, own, t, alone) : source_of(ir, own, t, alone);
    return code ? ki_make(ir, KN_PROGRAM, KN_VOID, (kn_uop[]){body->src[0], code}, 2, body->arg, 0) : NULL;
}

kn_uop ki_render_alone(ki_ir *ir, ki_ir *own, const ki_target *t, kn_uop sink, ki_ir *calls, kn_uop call) {
    kn_uop list = ki_opn(ir, KN_LINEAR, NULL, 0), from = sink, code = NULL;
    bool ok = list && (t = ki_render_target(ir->env, t, sink));
    if (ok && next_variable(call, 1) < call->nsrc) {
        kn_uop *src = ki_malloc(call->nsrc * sizeof *src);
        if (!src) return ki_fail(ir->env, KI_E_NOMEM), NULL;
        src[0] = sink;
        ok = ki_import(own, calls, call->src + 1, call->nsrc - 1, src + 1) &&
             (from = ki_make(own, KN_CALL, (kn_dtype)call->dtype, src, call->nsrc, ki_import_arg(own, call), 0));
        ki_free(src);
    }
    if (ok)
        code = t->native ? binary_of(ir, own, t, from)
                         : source_of(ir, own, t, from); /* a text may have been selected for C */
    return code ? ki_make(ir, KN_PROGRAM, KN_VOID, (kn_uop[]){list, code}, 2, ki_import_arg(ir, sink), 0) : NULL;
}

kn_uop ki_render(ki_ir *ir, const ki_target *t, kn_uop root) {
    if (!root || root->op != KN_LINEAR) return ki_fail(ir->env, KI_E_PLAN_FORM, "render wants LINEAR(CALL...)"), NULL;
    size_t most = root->nsrc;
    for (uint32_t k = 0; k < root->nsrc; k++)
        if (root->src[k]->nsrc > most) most = root->src[k]->nsrc;
    kn_uop *calls = ki_calloc(root->nsrc, sizeof *calls), *src = ki_calloc(most, sizeof *src), result = NULL;
    uint32_t *last = ki_calloc(root->id, sizeof *last); /* of a kernel: its last call, plus one */
    ki_ir own = {0};
    bool ok = calls && src && last;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    ok = ok && ki_ir_open(&own, ir->env);
    for (uint32_t k = 0; k < root->nsrc && ok; k++) {
        kn_uop call = calls[k] = root->src[k];
        if (call->op != KN_CALL || (call->src[0]->op != KN_SINK && !is_foreign(call->src[0])))
            continue; /* copies stay */
        uint32_t *before = &last[call->src[0]->id];
        memcpy(src, call->src, call->nsrc * sizeof *src);
        if (*before && ki_render_same(root->src[*before - 1], call)) src[0] = calls[*before - 1]->src[0];
        else src[0] = render_kernel(ir, &own, t, call);
        *before = k + 1;
        ok = src[0] && (calls[k] = ki_with_src(ir, call, src)) != NULL;
    }
    if (ok) result = ki_with_src(ir, root, calls);
    ki_free(calls);
    ki_free(src);
    ki_free(last);
    ki_ir_close(&own);
    return result;
}
