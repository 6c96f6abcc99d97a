/* asm.c: see asm.h. */
#include "stages/8_render/x86/asm.h"

#include "base/hash.h"

#include <stdint.h>
#include <string.h>

enum { NOTES = 52 }; /* the column of what a listing says behind an instruction */

void ki_asm_open(ki_asm *a, ki_env *env, uint64_t features) {
    *a = (ki_asm){.env = env, .features = features, .nlabel = 1};
}

void ki_asm_close(ki_asm *a) {
    ki_free(a->code);
    ki_free(a->label);
    ki_free(a->fix);
    ki_free(a->konst);
    ki_free(a->pool);
    ki_text_free(&a->note);
    *a = (ki_asm){0};
}

/* Room for `more` elements of `size` bytes behind n. */
static bool room(ki_asm *a, void *array, size_t *cap, size_t n, size_t more, size_t size) {
    if (a->failed || n + more <= *cap) return !a->failed;
    if (ki_array_grow(array, cap, n + more, size)) return true;
    ki_fail(a->env, KI_E_NOMEM);
    return a->failed = true, false;
}

/* ---- labels -------------------------------------------------------------------------------------------------------- */

uint32_t ki_asm_label(ki_asm *a) {
    size_t cap = a->label_cap;
    if (!room(a, &a->label, &cap, a->nlabel, 1, sizeof *a->label)) return 0;
    a->label_cap = (uint32_t)cap;
    a->label[a->nlabel] = SIZE_MAX;
    return a->nlabel++;
}

void ki_asm_bind(ki_asm *a, uint32_t label) {
    if (a->failed) return;
    if (!label || label >= a->nlabel || a->label[label] != SIZE_MAX) {
        ki_fail(a->env, KI_E_INTERNAL, "a label is bound twice, or is none");
        a->failed = true;
        return;
    }
    a->label[label] = a->n;
    if (a->listing) ki_text_printf(a->listing, ".L%u:\n", label);
}

/* ---- instructions -------------------------------------------------------------------------------------------------- */

static void refuse(ki_asm *a, const ki_x86_ins *i, ki_x86_error e) {
    a->failed = true;
    ki_fail(a->env, KI_E_X86_OPERAND, i->form < KI_X_COUNT ? ki_x86_forms[i->form].name : "?", ki_x86_error_text(e));
}

/* How this machine's level encodes it. False: refused. */
static bool settle(ki_asm *a, const ki_x86_ins *i, unsigned *enc, unsigned *len) {
    ki_x86_error e = ki_x86_choose(i, enc, len);
    if (e) return refuse(a, i, e), false;
    uint64_t lacks = ki_x86_needs(&ki_x86_forms[i->form], *enc, *len) & ~a->features;
    if (!lacks) return true;
    a->failed = true;
    ki_fail(a->env, KI_E_X86_LEVEL, ki_x86_forms[i->form].name, ki_cpu_feature_names[ki_ctz64(lacks)]);
    return false;
}

void ki_asm_ins(ki_asm *a, const ki_x86_ins *i) {
    ki_x86_bytes b;
    ki_x86_ins old, back;
    unsigned enc, len;
    if (a->failed) return;
    bool sse = !(a->features & KI_CPU_BIT(KI_CPU_AVX));
    if (!i->enc && sse && i->form < KI_X_COUNT && ki_x86_forms[i->form].enc & KI_XE_SSE) {
        old = *i;
        old.enc = KI_XE_SSE;
        i = &old;
    }
    if (!settle(a, i, &enc, &len)) return;
    if (!room(a, &a->code, &a->cap, a->n, KI_X86_MOST, 1)) return;
    if (!room(a, &a->fix, &a->fix_cap, a->nfix, 1, sizeof *a->fix)) return;
    const ki_x86_ins *to = i;
    if (i->op[0].kind == KI_XO_LABEL && i->op[0].label < a->nlabel && a->label[i->op[0].label] != SIZE_MAX) {
        back = *i; /* the distance is known */
        back.op[0] = ki_x86_imm((int64_t)a->label[i->op[0].label] - (int64_t)a->n);
        to = &back;
    }
    ki_x86_error e = ki_x86_encode_as(to, enc, len, &b);
    if (e) {
        refuse(a, i, e);
        return;
    }
    memcpy(a->code + a->n, b.b, b.n);
    if (b.fix && b.label) a->fix[a->nfix++] = (ki_asm_fix){a->n + b.fix, a->n + b.n, b.label};
    a->n += b.n;
    if (a->listing) {
        ki_text_put(a->listing, "    ");
        size_t from = a->listing->n;
        ki_x86_print(i, a->listing);
        if (a->note.n)
            ki_text_printf(a->listing, "%*s#%s", (int)(from + NOTES > a->listing->n ? from + NOTES - a->listing->n : 1),
                           "", a->note.s);
        ki_text_putc(a->listing, '\n');
        a->note.n = 0;
        a->counts.instructions++;
    }
}

void ki_asm_put(ki_asm *a, ki_x86_id form, ki_x86_op x, ki_x86_op y, ki_x86_op z) {
    ki_asm_ins(a, &(ki_x86_ins){.form = (uint16_t)form, .op = {x, y, z}});
}

void ki_asm_align(ki_asm *a, unsigned to) {
    /* The long nops that Intel and AMD recommend. */
    static const uint8_t nop[9][9] = {
        {0x90},
        {0x66, 0x90},
        {0x0f, 0x1f, 0x00},
        {0x0f, 0x1f, 0x40, 0},
        {0x0f, 0x1f, 0x44, 0, 0},
        {0x66, 0x0f, 0x1f, 0x44, 0, 0},
        {0x0f, 0x1f, 0x80, 0, 0, 0, 0},
        {0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
        {0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0},
    };
    if (!room(a, &a->code, &a->cap, a->n, 64, 1)) return;
    for (size_t gap = (0 - a->n) & (to - 1); gap;) {
        size_t k = gap < 9 ? gap : 9;
        memcpy(a->code + a->n, nop[k - 1], k);
        a->n += k;
        gap -= k;
    }
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

static struct ki_asm_const *find(const ki_asm *a, const void *bytes, unsigned n) {
    size_t k = ki_hash_bytes(n, bytes, n) & (a->konst_cap - 1);
    while (a->konst[k].label && (a->konst[k].n != n || memcmp(a->pool + a->konst[k].at, bytes, n) != 0))
        k = (k + 1) & (a->konst_cap - 1);
    return &a->konst[k];
}

static bool table_room(ki_asm *a) {
    if (a->konst_cap && (a->nkonst + 1) * 2 <= a->konst_cap) return true;
    ki_asm next = *a;
    next.konst_cap = a->konst_cap ? a->konst_cap * 2 : 64;
    if (!(next.konst = ki_calloc(next.konst_cap, sizeof *next.konst)))
        return ki_fail(a->env, KI_E_NOMEM), a->failed = true, false;
    for (uint32_t k = 0; k < a->konst_cap; k++)
        if (a->konst[k].label) *find(&next, a->pool + a->konst[k].at, a->konst[k].n) = a->konst[k];
    ki_free(a->konst);
    a->konst = next.konst;
    a->konst_cap = next.konst_cap;
    return true;
}

uint32_t ki_asm_const(ki_asm *a, const void *bytes, unsigned n) {
    if (a->failed || !table_room(a)) return 0;
    struct ki_asm_const *c = find(a, bytes, n);
    if (c->label) return c->label;
    size_t at = (a->npool + n - 1) & ~(size_t)(n - 1);
    if (!room(a, &a->pool, &a->pool_cap, a->npool, at + n - a->npool, 1)) return 0;
    memset(a->pool + a->npool, 0, at - a->npool);
    memcpy(a->pool + at, bytes, n);
    a->npool = at + n;
    *c = (struct ki_asm_const){ki_asm_label(a), (uint32_t)at, n};
    a->nkonst += c->label != 0;
    return c->label;
}

bool ki_asm_finish(ki_asm *a) {
    a->counts.code = a->n;
    a->counts.pool = a->npool;
    if (a->npool) ki_asm_align(a, 64);
    if (!room(a, &a->code, &a->cap, a->n, a->npool + 1, 1)) return false;
    if (a->n + a->npool > INT32_MAX) return ki_fail(a->env, KI_E_INTERNAL, "machine code of more than 2 GiB"), false;
    if (a->npool) memcpy(a->code + a->n, a->pool, a->npool);
    for (uint32_t k = 0; k < a->konst_cap; k++)
        if (a->konst[k].label) a->label[a->konst[k].label] = a->n + a->konst[k].at;
    a->n += a->npool;
    for (size_t k = 0; k < a->nfix; k++) {
        const ki_asm_fix *f = &a->fix[k];
        if (f->label >= a->nlabel || a->label[f->label] == SIZE_MAX)
            return ki_fail(a->env, KI_E_INTERNAL, "a jump to a label that is bound nowhere"), a->failed = true, false;
        int32_t add, v;
        memcpy(&add, a->code + f->at, 4);
        v = (int32_t)((int64_t)a->label[f->label] - (int64_t)f->end + add);
        memcpy(a->code + f->at, &v, 4);
    }
    return true;
}
