/* encode.c: instructions to bytes. See encode.h.
 *
 * In two steps: `take` puts each operand where its code says and learns the sizes, `put_*` write prefixes, opcode, address
 * and immediate. What the form does not allow is an error before any byte is written. */
#include "stages/8_render/x86/encode.h"

#include <string.h>

typedef struct parts {
    const ki_x86_form *f;
    const ki_x86_ins *i;
    unsigned enc, len;
    unsigned osize;  /* bytes of general operands, 0 none */
    unsigned access; /* bytes of the memory operand, 0 unknown */
    uint8_t reg, rm, vvvv, opc;
    bool has_reg, has_rm, has_opc, rex; /* rex: a byte register that needs it */
    uint8_t is4;
    bool has_is4;
    const ki_x86_op *mem, *imm, *jump;
    char imm_size;
} parts;

const char *ki_x86_error_text(ki_x86_error e) {
    static const char *const text[] = {"no error",
#define X(name, what) what,
                                       KI_X86_ERRORS(X)
#undef X
    };
    return (unsigned)e < sizeof text / sizeof *text ? text[e] : "unknown error";
}

unsigned ki_x86_operands(const ki_x86_form *f, unsigned enc, uint8_t code[4]) {
    unsigned n = 0;
    if (enc != KI_XE_SSE || f->enc == KI_XE_SSE) { /* as the row has them */
        memcpy(code, f->op, 4);
        while (n < 4 && code[n]) n++;
        return n;
    }
    bool dest = ki_x86_codes[f->op[0]].place == KI_XP_VVVV;
    for (unsigned k = 0; k < 4 && f->op[k]; k++) {
        /* SSE shifts by an immediate: the one register stands first, the second operand is left out. */
        bool gone = dest ? k == 1 : ki_x86_codes[f->op[k]].place == KI_XP_VVVV;
        if (!gone) code[n++] = f->op[k];
    }
    for (unsigned k = n; k < 4; k++) code[k] = KI_XC_NONE;
    return n;
}

ki_x86_place ki_x86_place_of(const ki_x86_form *f, unsigned enc, uint8_t code) {
    ki_x86_place p = (ki_x86_place)ki_x86_codes[code].place;
    return enc == KI_XE_SSE && p == KI_XP_VVVV && code == f->op[0] ? KI_XP_RMREG : p;
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

static bool is_vector(unsigned kind) { return kind >= KI_XO_X && kind <= KI_XO_Z; }

/* Register kind of a size letter; NONE: it has none of its own. */
static unsigned kind_of(char size, unsigned len, unsigned osize) {
    static const uint8_t gpr[9] = {0, KI_XO_R8, KI_XO_R16, 0, KI_XO_R32, 0, 0, 0, KI_XO_R64};
    switch (size) {
    case 'b': return KI_XO_R8;
    case 'w': return KI_XO_R16;
    case 'd':
    case '1':
    case '2': return KI_XO_R32;
    case 'q': return KI_XO_R64;
    case 'v': return osize > 8 ? KI_XO_NONE : gpr[osize];
    case 'y': return osize > 8 || osize == 2 ? KI_XO_NONE : gpr[osize];
    case 'x': return KI_XO_X + len;
    case 'h': return len == 2 ? KI_XO_Y : KI_XO_X;
    case 'n':
    case 'e':
    case 'o': return KI_XO_X;
    case 'k': return KI_XO_K;
    case 't': return KI_XO_T;
    default: return KI_XO_NONE;
    }
}

static unsigned gpr_bytes(unsigned kind) {
    return kind == KI_XO_R8 ? 1 : kind == KI_XO_R16 ? 2 : kind == KI_XO_R32 ? 4 : kind == KI_XO_R64 ? 8 : 0;
}

/* The vector length, from the operands that have it; and whether anything asks for EVEX. */
static ki_x86_error length_of(const ki_x86_form *f, const ki_x86_ins *i, const uint8_t *code, unsigned n, unsigned *len,
                              bool *evex) {
    int found = -1, half = -1;
    *evex = i->mask || i->zero || i->round;
    for (unsigned k = 0; k < n; k++) {
        const ki_x86_op *o = &i->op[k];
        char size = ki_x86_codes[code[k]].size;
        unsigned kind = o->kind == KI_XO_MEM ? o->ikind : o->kind;
        if (o->kind == KI_XO_MEM && o->bcast) *evex = true;
        if (!is_vector(kind)) continue;
        bool index = ki_x86_codes[code[k]].place == KI_XP_VSIB;
        if (kind == KI_XO_Z || (o->kind == KI_XO_MEM ? index && o->index >= 16 : o->reg >= 16)) *evex = true;
        if (size == 'x') found = (int)(kind - KI_XO_X);
        if (size == 'h') half = (int)(kind - KI_XO_X);
    }
    if (found < 0 && half >= 0) return KI_X86_BAD_KIND; /* cannot be: each form has a whole vector */
    *len = found >= 0 ? (unsigned)found : f->lens == 2 ? 1 : 0;
    return f->lens && !(f->lens >> *len & 1) ? KI_X86_BAD_LENGTH : KI_X86_OK;
}

ki_x86_error ki_x86_choose(const ki_x86_ins *i, unsigned *enc, unsigned *len) {
    uint8_t code[4];
    bool evex;
    if (i->form >= KI_X_COUNT) return KI_X86_BAD_FORM;
    if (i->enc & (i->enc - 1)) return KI_X86_BAD_ENCODING;
    const ki_x86_form *f = &ki_x86_forms[i->form];
    unsigned sse = i->enc == KI_XE_SSE || f->enc == KI_XE_SSE ? KI_XE_SSE : 0;
    unsigned n = ki_x86_operands(f, sse, code);
    ki_x86_error e = length_of(f, i, code, n, len, &evex);
    if (e) return e;
    if (sse) *enc = KI_XE_SSE;
    else if (i->enc) *enc = i->enc;
    /* VNNI in VEX is the later addition: a processor may have the EVEX form alone. */
    else if (f->enc & KI_XE_VEX && !evex && !(f->feat[1] == KI_CPU_AVXVNNI && f->enc & KI_XE_EVEX)) *enc = KI_XE_VEX;
    else *enc = KI_XE_EVEX;
    if (evex && *enc != KI_XE_EVEX) return KI_X86_BAD_EVEX;
    if (!(f->enc & *enc)) return evex ? KI_X86_BAD_EVEX : KI_X86_BAD_ENCODING;
    if (*enc == KI_XE_SSE && f->lens && *len) return KI_X86_BAD_LENGTH;
    return KI_X86_OK;
}

/* ---- operands to their places -------------------------------------------------------------------------------------- */

/* General operands of size v or y agree; memory speaks for itself where no register does. */
static ki_x86_error operand_size(parts *p, const uint8_t *code, unsigned n) {
    bool any = false;
    for (unsigned k = 0; k < n; k++) any |= ki_x86_codes[code[k]].size == 'v' || ki_x86_codes[code[k]].size == 'y';
    if (!any) return KI_X86_OK; /* as most: vectors */
    for (unsigned pass = 0; pass < 2 && !p->osize; pass++)
        for (unsigned k = 0; k < n && !p->osize; k++) {
            const ki_x86_op *o = &p->i->op[k];
            char size = ki_x86_codes[code[k]].size;
            if (size != 'v' && size != 'y') continue;
            p->osize = pass ? (o->kind == KI_XO_MEM ? o->size : 0) : gpr_bytes(o->kind);
        }
    for (unsigned k = 0; k < n; k++) {
        char size = ki_x86_codes[code[k]].size;
        if (size == 'v' || size == 'y')
            return p->osize == 4 || p->osize == 8 || (p->osize == 2 && size == 'v') ? KI_X86_OK : KI_X86_BAD_KIND;
    }
    return KI_X86_OK;
}

static ki_x86_error take_memory(parts *p, const ki_x86_op *o, uint8_t code) {
    char size = ki_x86_codes[code].size;
    unsigned gpr = size == '1' ? 1 : size == '2' ? 2 : gpr_bytes(kind_of(size, p->len, p->osize));
    bool vsib = ki_x86_codes[code].place == KI_XP_VSIB;
    if (o->bcast && !(p->f->attr & KI_XA_BCAST)) return KI_X86_BAD_BCAST;
    p->access = gpr ? gpr : ki_x86_mem_bytes(p->f, p->len, o->bcast);
    if (o->size && p->access && o->size != p->access) return KI_X86_BAD_KIND;
    if (o->v != (int32_t)o->v) return KI_X86_BAD_ADDRESS;
    if (o->reg == KI_X_RIP) {
        if (vsib || size == '#' || o->index != KI_X_NOREG) return KI_X86_BAD_ADDRESS;
    } else if (o->reg != KI_X_NOREG && o->reg > 15) {
        return KI_X86_BAD_ADDRESS;
    }
    if ((vsib || o->ikind) && o->ikind != kind_of(size, p->len, 0)) return KI_X86_BAD_ADDRESS;
    if (vsib && o->index > 31) return KI_X86_BAD_ADDRESS;
    if (!vsib && o->index != KI_X_NOREG && (o->index > 15 || o->index == KI_X_RSP)) return KI_X86_BAD_ADDRESS;
    if (o->scale != 1 && o->scale != 2 && o->scale != 4 && o->scale != 8) return KI_X86_BAD_ADDRESS;
    p->mem = o;
    return KI_X86_OK;
}

static ki_x86_error take_immediate(parts *p, const ki_x86_op *o, char size) {
    int64_t v = o->v;
    bool byte = p->f->op[0] == KI_XC_Eb;
    if (o->kind != KI_XO_IMM) return KI_X86_BAD_KIND;
    if (size == 'b' && (v < -128 || v > (byte ? 255 : 127))) return KI_X86_BAD_IMM;
    if (size == 'u' && (v < 0 || v > 255)) return KI_X86_BAD_IMM;
    if (size == 'z') {
        bool narrow = p->osize == 4 || p->f->op[0] == KI_XC_Od; /* nothing is sign-extended */
        if (p->osize == 2 ? v < -32768 || v > 65535 : v < INT32_MIN || v > (narrow ? (int64_t)UINT32_MAX : INT32_MAX))
            return KI_X86_BAD_IMM;
    }
    p->imm = o;
    p->imm_size = size;
    return KI_X86_OK;
}

static ki_x86_error take_register(parts *p, const ki_x86_op *o, ki_x86_place place, char size) {
    unsigned want = kind_of(size, p->len, p->osize);
    if (o->kind != want) return KI_X86_BAD_KIND;
    unsigned most = is_vector(want) ? p->enc == KI_XE_EVEX ? 31 : 15 : want == KI_XO_K || want == KI_XO_T ? 7 : 15;
    if (o->reg > most) return KI_X86_BAD_REG;
    if (want == KI_XO_R8 && o->reg >= 4) p->rex = true;
    switch (place) {
    case KI_XP_REG: p->reg = o->reg, p->has_reg = true; break;
    case KI_XP_RM:
    case KI_XP_RMREG: p->rm = o->reg, p->has_rm = true; break;
    case KI_XP_VVVV: p->vvvv = o->reg; break;
    case KI_XP_OPC: p->opc = o->reg, p->has_opc = true; break;
    case KI_XP_IS4: p->is4 = (uint8_t)(o->reg << 4), p->has_is4 = true; break;
    case KI_XP_CL: return o->reg == KI_X_RCX ? KI_X86_OK : KI_X86_BAD_REG;
    default: return KI_X86_BAD_KIND;
    }
    return KI_X86_OK;
}

static ki_x86_error take(parts *p, unsigned k, uint8_t code) {
    const ki_x86_op *o = &p->i->op[k];
    ki_x86_place place = ki_x86_place_of(p->f, p->enc, code);
    char size = ki_x86_codes[code].size;
    switch (place) {
    case KI_XP_IMM: return take_immediate(p, o, size);
    case KI_XP_JUMP:
        if (o->kind != KI_XO_LABEL && o->kind != KI_XO_IMM) return KI_X86_BAD_KIND;
        if (o->kind == KI_XO_IMM && (o->v < INT32_MIN + 8 || o->v > INT32_MAX)) return KI_X86_BAD_IMM;
        p->jump = o;
        return KI_X86_OK;
    case KI_XP_MEM:
    case KI_XP_VSIB: return o->kind == KI_XO_MEM ? take_memory(p, o, code) : KI_X86_BAD_KIND;
    case KI_XP_RM:
        if (o->kind == KI_XO_MEM) return take_memory(p, o, code);
        return take_register(p, o, place, size);
    default: return take_register(p, o, place, size);
    }
}

/* Masks, rounding, locks, registers that must differ. */
static ki_x86_error check_extras(const parts *p) {
    const ki_x86_ins *i = p->i;
    unsigned a = p->f->attr;
    if (i->mask > 7 || (i->mask && !(a & KI_XA_MASK)) || (!i->mask && a & KI_XA_MUST)) return KI_X86_BAD_MASK;
    if (i->zero && (!i->mask || !(a & KI_XA_ZERO) || i->op[0].kind == KI_XO_MEM)) return KI_X86_BAD_MASK;
    if (i->round) {
        bool ok = i->round == KI_X_SAE ? a & KI_XA_SAE : i->round < KI_X_SAE && a & KI_XA_ROUND;
        if (!ok || p->mem || (p->f->lens > 1 && p->len != 2)) return KI_X86_BAD_ROUND;
    }
    if (i->lock && (!(a & KI_XA_LOCK) || !p->mem)) return KI_X86_BAD_LOCK;
    if (a & KI_XA_DISTINCT) {
        bool tiles = p->f->port == KI_XR_TILE, three = p->f->enc == KI_XE_VEX;
        unsigned second = tiles ? p->rm : p->mem->index;
        if (p->reg == second || (three && (p->reg == p->vvvv || second == p->vvvv))) return KI_X86_BAD_SAME;
    }
    return KI_X86_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

static void put(ki_x86_bytes *out, unsigned byte) { out->b[out->n++] = (uint8_t)byte; }
static void put_le(ki_x86_bytes *out, uint64_t v, unsigned n) {
    for (unsigned k = 0; k < n; k++) put(out, (unsigned)(v >> (8 * k)) & 255);
}

/* Bits above the low three of base, index, rm, for REX, VEX and EVEX. */
static void high_bits(const parts *p, unsigned *x, unsigned *b, unsigned *v5) {
    *x = *b = *v5 = 0;
    if (p->mem) {
        if (p->mem->reg < 16) *b = p->mem->reg >> 3;
        if (p->mem->index < 32) *x = p->mem->index >> 3 & 1, *v5 = p->mem->index >> 4;
    } else if (p->has_rm) {
        *b = p->rm >> 3 & 1;
        *x = p->rm >> 4;
    } else if (p->has_opc) {
        *b = p->opc >> 3;
    }
}

static unsigned wide(const parts *p) {
    if (p->osize == 8 && !(p->f->attr & KI_XA_D64)) return 1;
    if (p->enc == KI_XE_VEX && p->f->attr & KI_XA_EW) return 0;
    /* W of the SSE encodings is REX.W: it means something for general registers only. */
    if (p->enc == KI_XE_SSE && (p->f->enc & KI_XE_EVEX || p->f->enc & KI_XE_VEX)) {
        bool gpr = false;
        for (unsigned k = 0; k < 4; k++) gpr |= p->f->op[k] == KI_XC_Eq || p->f->op[k] == KI_XC_Rq;
        return gpr && p->f->w;
    }
    return p->f->w;
}

/* A shift by one has an opcode of its own, without the immediate. */
static bool by_one(const parts *p) { return p->enc == KI_XE_SSE && p->f->opcode == 0xc1 && p->imm && p->imm->v == 1; }

static void put_sse(const parts *p, ki_x86_bytes *out) {
    static const uint8_t prefix[] = {0, 0x66, 0xf3, 0xf2};
    unsigned x, b, v5;
    high_bits(p, &x, &b, &v5);
    if (p->i->lock) put(out, 0xf0);
    if (p->osize == 2) put(out, 0x66);
    if (p->f->pp) put(out, prefix[p->f->pp]);
    unsigned rex = wide(p) << 3 | (unsigned)(p->reg >> 3) << 2 | x << 1 | b;
    if (rex || p->rex) put(out, 0x40 | rex);
    if (p->f->map) put(out, 0x0f);
    if (p->f->map == 2) put(out, 0x38);
    if (p->f->map == 3) put(out, 0x3a);
    put(out, (p->f->opcode | (p->has_opc ? p->opc & 7u : 0)) + (by_one(p) ? 0x10u : 0));
}

static void put_vex(const parts *p, ki_x86_bytes *out) {
    unsigned x, b, v5, r = p->reg >> 3 & 1, w = wide(p);
    high_bits(p, &x, &b, &v5);
    unsigned last = (~(unsigned)p->vvvv & 15) << 3 | (p->len & 1) << 2 | p->f->pp;
    if (!x && !b && !w && p->f->map == 1) {
        put(out, 0xc5);
        put(out, (r ^ 1) << 7 | last);
    } else {
        put(out, 0xc4);
        put(out, (r ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | p->f->map);
        put(out, w << 7 | last);
    }
    put(out, p->f->opcode);
}

static void put_evex(const parts *p, ki_x86_bytes *out) {
    const ki_x86_ins *i = p->i;
    unsigned x, b, v5, reg = p->reg, len = p->len;
    high_bits(p, &x, &b, &v5);
    v5 |= p->vvvv >> 4;
    bool bit = i->round || (p->mem && p->mem->bcast);
    if (i->round) len = i->round == KI_X_SAE ? p->len : i->round - 1u;
    const unsigned byte[] = {
        0x62,
        (reg >> 3 & 1 ? 0 : 0x80u) | (x ? 0 : 0x40u) | (b ? 0 : 0x20u) | (reg >> 4 ? 0 : 0x10u) | p->f->map,
        wide(p) << 7 | (~(unsigned)p->vvvv & 15) << 3 | 4 | p->f->pp,
        (i->zero ? 0x80u : 0) | len << 5 | (bit ? 0x10u : 0) | (v5 ? 0 : 8u) | i->mask,
        p->f->opcode,
    };
    uint8_t *to = out->b + out->n;
    for (unsigned k = 0; k < 5; k++) to[k] = (uint8_t)byte[k];
    out->n += 5;
}

static void put_address(const parts *p, unsigned reg, ki_x86_bytes *out) {
    const ki_x86_op *m = p->mem;
    static const uint8_t log2[9] = {0, 0, 1, 0, 2, 0, 0, 0, 3};
    reg = (reg & 7) << 3;
    if (m->reg == KI_X_RIP) {
        put(out, reg | 5);
        out->fix = out->n;
        out->label = m->label;
        put_le(out, (uint64_t)m->v, 4);
        return;
    }
    bool sib = m->reg == KI_X_NOREG || m->index != KI_X_NOREG || (m->reg & 7) == 4 || p->f->op[1] == KI_XC_Mt ||
               p->f->op[0] == KI_XC_Mt;
    unsigned index = m->index == KI_X_NOREG ? 4 : m->index & 7u, scale = log2[m->scale];
    if (m->reg == KI_X_NOREG) {
        put(out, reg | 4);
        put(out, scale << 6 | index << 3 | 5);
        put_le(out, (uint64_t)m->v, 4);
        return;
    }
    unsigned n = p->f->tuple == KI_XT_UNIT ? p->f->es : p->access;
    int64_t unit = p->enc == KI_XE_EVEX && n ? (int64_t)n : 1;
    bool none = !m->v && (m->reg & 7) != 5, byte = m->v % unit == 0 && m->v / unit >= -128 && m->v / unit <= 127;
    put(out, (none ? 0 : byte ? 0x40u : 0x80u) | reg | (sib ? 4 : m->reg & 7u));
    if (sib) put(out, scale << 6 | index << 3 | (m->reg & 7u));
    if (none) return;
    if (byte) put_le(out, (uint64_t)(m->v / unit), 1);
    else put_le(out, (uint64_t)m->v, 4);
}

static void put_jump(const parts *p, ki_x86_bytes *out) {
    const ki_x86_form *f = p->f;
    bool known = p->jump->kind == KI_XO_IMM, call = f->opcode == 0xe8;
    if (known && !call && p->jump->v - 2 >= -128 && p->jump->v - 2 <= 127) {
        out->n = 0;
        put(out, f->map ? f->opcode - 0x10u : 0xebu);
        put_le(out, (uint64_t)(p->jump->v - 2), 1);
        return;
    }
    if (!known) out->fix = out->n, out->label = p->jump->label;
    put_le(out, known ? (uint64_t)(p->jump->v - out->n - 4) : 0, 4);
}

static void put_immediate(const parts *p, ki_x86_bytes *out) {
    unsigned n = p->imm_size == 'q' ? 8 : p->imm_size == 'z' ? (p->osize == 2 ? 2 : 4) : 1;
    put_le(out, (uint64_t)p->imm->v, n);
}

ki_x86_error ki_x86_encode(const ki_x86_ins *i, ki_x86_bytes *out) {
    unsigned enc, len;
    ki_x86_error e = ki_x86_choose(i, &enc, &len);
    return e ? e : ki_x86_encode_as(i, enc, len, out);
}

ki_x86_error ki_x86_encode_as(const ki_x86_ins *i, unsigned enc, unsigned len, ki_x86_bytes *out) {
    parts p = {.i = i, .enc = enc, .len = len};
    uint8_t code[4];
    ki_x86_error e;
    out->n = out->fix = 0;
    out->label = 0;
    p.f = &ki_x86_forms[i->form];
    unsigned n = ki_x86_operands(p.f, p.enc, code);
    for (unsigned k = 0; k < 4; k++)
        if ((i->op[k].kind != KI_XO_NONE) != (k < n)) return KI_X86_BAD_COUNT;
    e = operand_size(&p, code, n);
    for (unsigned k = 0; k < n && !e; k++) e = take(&p, k, code[k]);
    if (!e) e = check_extras(&p);
    if (e) return e;
    if (p.enc == KI_XE_SSE) put_sse(&p, out);
    else if (p.enc == KI_XE_VEX) put_vex(&p, out);
    else put_evex(&p, out);
    unsigned reg = p.f->ext < 8 ? p.f->ext : p.reg;
    if (p.mem) put_address(&p, reg, out);
    else if (p.f->ext >= 16) put(out, 0xc0 | (p.f->ext & 7u) << 3);
    else if (p.has_rm || p.has_reg) put(out, 0xc0 | (reg & 7) << 3 | (p.rm & 7u));
    if (p.jump) put_jump(&p, out);
    if (p.has_is4) put(out, p.is4);
    if (p.imm && !by_one(&p)) put_immediate(&p, out);
    return KI_X86_OK;
}
