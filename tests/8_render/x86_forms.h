/* x86_forms.h: every instruction that can be made of a row of x86.def, in turn: each operand through all its registers (the others
 * held), memory through all shapes of address, masks, broadcasts, rounding, immediates. For the tests of x86. */
#ifndef X86_FORMS_H
#define X86_FORMS_H

#include "stages/8_render/x86/encode.h"

#include <string.h>

typedef void (*x86_take)(void *user, const ki_x86_ins *i);
typedef struct x86_walk {
    const ki_x86_form *f;
    unsigned form, enc, len, osize, n;
    uint8_t code[4];
    x86_take take;
    void *user;
} x86_walk;

static inline bool x86_vector(char size) { return size && strchr("xhneo", size) != NULL; }
static inline unsigned x86_kind(const x86_walk *w, char size) {
    switch (size) {
    case 'b': return KI_XO_R8;
    case 'w': return KI_XO_R16;
    case 'd': case '1': case '2': return KI_XO_R32;
    case 'q': return KI_XO_R64;
    case 'v': case 'y': return w->osize == 2 ? KI_XO_R16 : w->osize == 4 ? KI_XO_R32 : KI_XO_R64;
    case 'x': return KI_XO_X + w->len;
    case 'h': return w->len == 2 ? KI_XO_Y : KI_XO_X;
    case 'n': case 'e': case 'o': return KI_XO_X;
    case 'k': return KI_XO_K;
    case 't': return KI_XO_T;
    default: return KI_XO_NONE;
    }
}
static inline unsigned x86_registers(const x86_walk *w, char size) {
    if (x86_vector(size)) return w->enc == KI_XE_EVEX ? 32 : 16;
    return size == 'k' || size == 't' ? 8 : 16;
}

/* Addresses worth trying: all bases and indices, the ones that need a SIB byte or a displacement, disp8*N at its edges. */
static inline unsigned x86_addresses(const x86_walk *w, unsigned k, ki_x86_op *out, unsigned most) {
    unsigned n = 0;
    bool vsib = ki_x86_codes[w->code[k]].place == KI_XP_VSIB, tile = ki_x86_codes[w->code[k]].size == '#';
    static const int32_t disp[] = {0, 1, 8, 127, 128, -128, -129, 16, 64, 4096, 8128, 8192, -8192, -8256, 2032, 508, 1024, -512, 0x12345678, -0x12345678};
#define ADD(...)                                                                                                       \
    do {                                                                                                               \
        if (n < most) out[n++] = (ki_x86_op){.kind = KI_XO_MEM, __VA_ARGS__};                                          \
    } while (0)
    if (vsib) {
        unsigned ik = x86_kind(w, ki_x86_codes[w->code[k]].size), regs = w->enc == KI_XE_EVEX ? 32 : 16;
        for (unsigned r = 0; r < regs; r++) ADD(.reg = 3, .index = (uint8_t)r, .scale = 4, .ikind = (uint8_t)ik, .v = 16);
        for (unsigned r = 0; r < 16; r++) ADD(.reg = (uint8_t)r, .index = 9, .scale = 1, .ikind = (uint8_t)ik);
        for (unsigned d = 0; d < sizeof disp / sizeof *disp; d++) ADD(.reg = 0, .index = 9, .scale = 8, .ikind = (uint8_t)ik, .v = disp[d]);
        ADD(.reg = KI_X_NOREG, .index = 9, .scale = 2, .ikind = (uint8_t)ik, .v = 64);
        return n;
    }
    for (unsigned r = 0; r < 16; r++) ADD(.reg = (uint8_t)r, .index = KI_X_NOREG, .scale = 1);
    for (unsigned r = 0; r < 16; r++) ADD(.reg = (uint8_t)r, .index = 1, .scale = 2, .v = 64);
    for (unsigned r = 0; r < 16; r++)
        if (r != KI_X_RSP) ADD(.reg = 5, .index = (uint8_t)r, .scale = 8);
    for (unsigned d = 0; d < sizeof disp / sizeof *disp; d++) ADD(.reg = 6, .index = KI_X_NOREG, .scale = 1, .v = disp[d]);
    for (unsigned d = 0; d < sizeof disp / sizeof *disp; d++) ADD(.reg = 12, .index = 13, .scale = 4, .v = disp[d]);
    ADD(.reg = KI_X_NOREG, .index = 2, .scale = 4, .v = 100);
    if (!tile) {
        ADD(.reg = KI_X_NOREG, .index = KI_X_NOREG, .scale = 1, .v = 0x1234);
        ADD(.reg = KI_X_RIP, .index = KI_X_NOREG, .scale = 1, .v = 0x40);
    }
#undef ADD
    return n;
}

static inline ki_x86_op x86_held(const x86_walk *w, unsigned k) {
    static const uint8_t gpr[4] = {3, 6, 2, 7}, vec[4] = {1, 2, 3, 4};
    ki_x86_code_info c = ki_x86_codes[w->code[k]];
    unsigned kind = x86_kind(w, c.size);
    if (c.place == KI_XP_CL) return ki_x86_reg(KI_XO_R8, KI_X_RCX);
    if (c.place == KI_XP_IMM) return ki_x86_imm(c.size == 'z' ? 1000 : c.size == 'q' ? 0x123456789abcdef : 5);
    if (c.place == KI_XP_JUMP) return ki_x86_imm(64);
    if (c.place == KI_XP_MEM) return ki_x86_mem(3, c.size == '#' ? 6 : KI_X_NOREG, 1, 64);
    if (c.place == KI_XP_VSIB) {
        ki_x86_op m = ki_x86_mem(3, 9, 4, 64);
        m.ikind = (uint8_t)kind;
        return m;
    }
    return ki_x86_reg((ki_x86_kind)kind, kind <= KI_XO_R64 ? gpr[k] : vec[k]);
}

static inline bool x86_clash(const ki_x86_form *f, const ki_x86_ins *i) { /* DISTINCT: what the encoder refuses */
    ki_x86_bytes b;
    return f->attr & KI_XA_DISTINCT && ki_x86_encode(i, &b) == KI_X86_BAD_SAME;
}
static inline void x86_give(const x86_walk *w, const ki_x86_ins *i) {
    if (!x86_clash(w->f, i)) w->take(w->user, i);
}

static inline void x86_immediates(const x86_walk *w, ki_x86_ins i, unsigned k) {
    static const int64_t byte[] = {0, 1, 2, 7, 127, -1, -128}, control[] = {0, 1, 2, 7, 31, 127, 128, 255};
    static const int64_t word[] = {0, 1, 128, -129, 32767, -32768}, dword[] = {128, -129, 65536, INT32_MAX, INT32_MIN};
    static const int64_t quad[] = {0x100000000, INT64_MAX, INT64_MIN, -0x100000001}, jump[] = {2, 0, 100, 129, 130, 1000, -126, -127, -100000};
    const int64_t *v = byte;
    unsigned n = 7;
    switch (ki_x86_codes[w->code[k]].size) {
    case 'u': v = control, n = 8; break;
    case 'q': v = quad, n = 4; break;
    case 'z':
        v = w->osize == 2 ? word : dword, n = w->osize == 2 ? 6 : 5;
        if (ki_x86_codes[w->code[k]].place == KI_XP_JUMP) v = jump, n = 9;
        break;
    }
    for (unsigned j = 0; j < n; j++) {
        i.op[k].v = v[j];
        x86_give(w, &i);
    }
}

static inline void x86_operand(const x86_walk *w, ki_x86_ins held, unsigned k) {
    ki_x86_code_info c = ki_x86_codes[w->code[k]];
    ki_x86_op address[128];
    ki_x86_place place = ki_x86_place_of(w->f, w->enc, w->code[k]);
    if (place == KI_XP_CL) return;
    if (place == KI_XP_IMM || place == KI_XP_JUMP) {
        x86_immediates(w, held, k);
        return;
    }
    if (place != KI_XP_MEM && place != KI_XP_VSIB)
        for (unsigned r = 0; r < x86_registers(w, c.size); r++) {
            ki_x86_ins i = held;
            i.op[k].reg = (uint8_t)r;
            x86_give(w, &i);
        }
    if (place != KI_XP_RM && place != KI_XP_MEM && place != KI_XP_VSIB) return;
    unsigned n = x86_addresses(w, k, address, 128);
    for (unsigned a = 0; a < n; a++) {
        ki_x86_ins i = held;
        i.op[k] = address[a];
        i.op[k].size = (uint8_t)((c.size == 'v' || c.size == 'y') && w->osize ? w->osize : 0);
        i.round = 0;
        if (c.size == 'x' && place == KI_XP_RM) i.op[k].ikind = (uint8_t)x86_kind(w, 'x');
        x86_give(w, &i);
        if (w->f->attr & KI_XA_BCAST && w->enc == KI_XE_EVEX) {
            i.op[k].bcast = 1;
            x86_give(w, &i);
        }
        if (w->f->attr & KI_XA_LOCK && k == 0) {
            i.lock = 1;
            x86_give(w, &i);
        }
    }
}

static inline void x86_extras(const x86_walk *w, ki_x86_ins held) {
    for (unsigned m = 1; m < 8 && w->f->attr & KI_XA_MASK; m++) {
        held.mask = (uint8_t)m;
        x86_give(w, &held);
        if (w->f->attr & KI_XA_ZERO && held.op[0].kind != KI_XO_MEM) {
            held.zero = 1;
            x86_give(w, &held);
            held.zero = 0;
        }
    }
    held.mask = w->f->attr & KI_XA_MUST ? 1 : 0;
    for (unsigned r = 1; r <= KI_X_SAE && (w->len == 2 || w->f->lens <= 1); r++) {
        if (!(w->f->attr & (r == KI_X_SAE ? KI_XA_SAE : KI_XA_ROUND))) continue;
        held.round = (uint8_t)r;
        x86_give(w, &held);
    }
}

/* All of a form. Counts what it gives only through `take`. */
static inline void x86_walk_form(unsigned form, x86_take take, void *user) {
    x86_walk w = {.f = &ki_x86_forms[form], .form = form, .take = take, .user = user};
    for (w.enc = 1; w.enc <= 4; w.enc *= 2) {
        if (!(w.f->enc & w.enc)) continue;
        w.n = ki_x86_operands(w.f, w.enc, w.code);
        bool sized = false, wide = true;
        for (unsigned k = 0; k < w.n; k++) {
            char s = ki_x86_codes[w.code[k]].size;
            sized |= s == 'v' || s == 'y';
            wide &= s != 'y';
        }
        for (w.len = 0; w.len < 3; w.len++) {
            if (w.f->lens ? !(w.f->lens >> w.len & 1) : w.len) continue;
            if (w.enc != KI_XE_EVEX && w.len == 2) continue;
            if (w.enc == KI_XE_SSE && w.len) continue;
            for (w.osize = sized ? wide ? 2 : 4 : 0; w.osize <= (sized ? 8 : 0); w.osize *= 2) {
                ki_x86_ins held = {.form = (uint16_t)form, .enc = (uint8_t)w.enc, .mask = w.f->attr & KI_XA_MUST};
                held.mask = held.mask ? 1 : 0;
                for (unsigned k = 0; k < w.n; k++) held.op[k] = x86_held(&w, k);
                if (!w.n) x86_give(&w, &held);
                for (unsigned k = 0; k < w.n; k++) x86_operand(&w, held, k);
                if (w.enc == KI_XE_EVEX) x86_extras(&w, held);
                if (!w.osize) break;
            }
        }
    }
}

#endif
