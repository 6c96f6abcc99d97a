/* print.c: an instruction as a line of a listing, from its operands alone, so that an assembler that reads the line checks the
 * bytes. The encoder only says whether there is such an instruction. */
#include "stages/8_render/x86/encode.h"

#include <stdio.h>
#include <string.h>

static void put_gpr(ki_text *out, unsigned kind, unsigned n) {
    static const char *const low[] = {"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"};
    static const char *const byte[] = {"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"};
    static const char *const tail[] = {"b", "w", "d", ""};
    unsigned size = kind - KI_XO_R8;
    if (n >= 8) ki_text_printf(out, "r%u%s", n, tail[size]);
    else if (!size) ki_text_put(out, byte[n]);
    else ki_text_printf(out, "%s%s", size == 1 ? "" : size == 2 ? "e" : "r", low[n]);
}

static void put_register(ki_text *out, unsigned kind, unsigned n) {
    if (kind <= KI_XO_R64) put_gpr(out, kind, n);
    else if (kind == KI_XO_K) ki_text_printf(out, "k%u", n);
    else if (kind == KI_XO_T) ki_text_printf(out, "tmm%u", n);
    else ki_text_printf(out, "%cmm%u", "xyz"[kind - KI_XO_X], n);
}

static const char *size_word(unsigned bytes) {
    switch (bytes) {
    case 1: return "BYTE PTR ";
    case 2: return "WORD PTR ";
    case 4: return "DWORD PTR ";
    case 8: return "QWORD PTR ";
    case 16: return "XMMWORD PTR ";
    case 32: return "YMMWORD PTR ";
    case 64: return "ZMMWORD PTR ";
    default: return "";
    }
}

static void put_memory(ki_text *out, const ki_x86_op *o, bool vsib, unsigned bytes, unsigned lanes) {
    bool absolute = o->reg == KI_X_NOREG && o->index == KI_X_NOREG;
    ki_text_printf(out, "%s%s[", size_word(bytes), absolute ? "ds:" : ""); /* as wants the segment to take {1toN} */
    const char *plus = "";
    if (o->reg == KI_X_RIP) ki_text_put(out, "rip"), plus = "+";
    else if (o->reg != KI_X_NOREG) put_gpr(out, KI_XO_R64, o->reg), plus = "+";
    if (o->index != KI_X_NOREG) {
        ki_text_put(out, plus), plus = "+";
        put_register(out, vsib ? o->ikind : KI_XO_R64, o->index);
        ki_text_printf(out, "*%u", o->scale);
    }
    if (o->label) ki_text_printf(out, "%s.L%u", plus, o->label), plus = "+";
    if (o->v || !*plus) ki_text_printf(out, "%s%lld", o->v < 0 ? "" : plus, (long long)o->v);
    ki_text_put(out, "]");
    if (o->bcast) ki_text_printf(out, "{1to%u}", lanes);
}

/* Bytes of a memory operand, for its size word. */
static unsigned memory_bytes(const ki_x86_form *f, const ki_x86_ins *i, uint8_t code, unsigned len, bool bcast) {
    static const char letters[] = "b1w2dq";
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 8};
    char size = ki_x86_codes[code].size;
    const char *at = strchr(letters, size);
    if (size == 'v' || size == 'y') {
        for (unsigned k = 0; k < 4; k++) {
            char s = ki_x86_codes[f->op[k]].size;
            if ((s == 'v' || s == 'y') && i->op[k].kind >= KI_XO_R16 && i->op[k].kind <= KI_XO_R64)
                return 1u << (i->op[k].kind - KI_XO_R8);
        }
        for (unsigned k = 0; k < 4; k++)
            if (i->op[k].kind == KI_XO_MEM) return i->op[k].size;
    }
    if (at && size) return bytes[at - letters];
    return ki_x86_mem_bytes(f, len, bcast);
}

static void put_operand(ki_text *out, const ki_x86_form *f, const ki_x86_ins *i, unsigned k, uint8_t code,
                        unsigned len) {
    const ki_x86_op *o = &i->op[k];
    if (o->kind == KI_XO_MEM) {
        unsigned bytes = memory_bytes(f, i, code, len, o->bcast);
        unsigned part = f->tuple == KI_XT_HALF ? 2 : f->tuple == KI_XT_QUARTER ? 4 : 1;
        bool vsib = ki_x86_codes[code].place == KI_XP_VSIB;
        put_memory(out, o, vsib, f->port == KI_XR_TILE ? 0 : bytes, f->es ? (16u << len) / f->es / part : 0);
    } else if (o->kind == KI_XO_IMM) {
        ki_text_printf(out, ki_x86_codes[code].place == KI_XP_JUMP ? ".%+lld" : "%lld", (long long)o->v);
    } else if (o->kind == KI_XO_LABEL) {
        ki_text_printf(out, ".L%u", o->label);
    } else {
        put_register(out, o->kind, o->reg);
    }
}

void ki_x86_print(const ki_x86_ins *i, ki_text *out) {
    static const char *const rounding[] = {"", "{rn-sae}", "{rd-sae}", "{ru-sae}", "{rz-sae}", "{sae}"};
    uint8_t code[4];
    unsigned enc, len;
    ki_x86_bytes bytes;
    ki_x86_error e = ki_x86_encode(i, &bytes);
    if (!e) e = ki_x86_choose(i, &enc, &len);
    if (e) {
        ki_text_printf(out, "(bad: %s)", ki_x86_error_text(e));
        return;
    }
    const ki_x86_form *f = &ki_x86_forms[i->form];
    unsigned n = ki_x86_operands(f, enc, code);
    ki_x86_ins plain = *i;
    unsigned other;
    plain.enc = 0;
    bool differs = f->enc & KI_XE_VEX && f->enc & KI_XE_EVEX && ki_x86_choose(&plain, &other, &len) == 0 &&
                   other != enc && enc != KI_XE_SSE;
    if (differs || (f->attr & KI_XA_TWIN && len < 2) || (enc == KI_XE_VEX && f->feat[1] == KI_CPU_AVXVNNI))
        ki_text_put(out, enc == KI_XE_EVEX ? "{evex} " : "{vex} ");
    ki_text_printf(out, "%s%s", i->lock ? "lock " : "", ki_x86_name(f, enc));
    for (unsigned k = 0; k < n; k++) {
        ki_text_put(out, k ? ", " : " ");
        bool last = k + 1 == n || (k + 2 == n && ki_x86_codes[code[n - 1]].place == KI_XP_IMM);
        put_operand(out, f, i, k, code[k], len);
        if (!k && i->mask) ki_text_printf(out, "{k%u}%s", i->mask, i->zero ? "{z}" : "");
        if (i->round && last && ki_x86_codes[code[k]].place != KI_XP_IMM)
            ki_text_printf(out, ", %s", rounding[i->round % 6]);
    }
}
