/* test_x86_meaning.c: what the rows of x86.def mean, against the processor. A form's meaning is compiled as a rule, its value
 * over random operands found by the interpreter; the same instruction is encoded, run here on the same bits, and must give the
 * same. Forms that this processor lacks are named. */
#include "../8_render/x86_forms.h"
#include "../tap.h"
#include "device/cpu/codemem.h"
#include "ir/agree.h"
#include "ir/eval.h"
#include "ir/scalar.h"
#include "stages/8_render/x86/asm.h"

#include <math.h>
#include <stdlib.h>

enum { SLOT = 64, TRIALS = 24, MASKED = 5, OLD = 6, RESULT = 7 }; /* slots */
enum { PLAIN, MERGE, ZERO };
static ki_env env;
static uint64_t seed = 0x2545f4914f6cdd1d;
static uint64_t rnd(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed * UINT64_C(0x2545f4914f6cdd1d);
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

typedef struct value {
    kn_dtype dtype;
    unsigned lanes;
    _Alignas(64) uint8_t raw[SLOT]; /* a lane each, in the dtype's storage; masks as bool lanes */
} value;

static uint64_t random_bits(kn_dtype t, bool calm) {
    unsigned bits = ki_dtypes[t].bits;
    uint64_t v = rnd();
    if (t == KN_BOOL) return v & 1;
    if (calm) return ki_bits_from_f64(t, ldexp((double)(int64_t)v * 0x1p-63, (int)(rnd() % 9) - 4));
    if (ki_is_float(t)) {
        static const double special[] = {0,
                                         -0.0,
                                         INFINITY,
                                         -INFINITY,
                                         NAN,
                                         1,
                                         -1,
                                         0.5,
                                         -0.5,
                                         1.5,
                                         2.5,
                                         -2.5,
                                         3,
                                         1e-40,
                                         -1e-45,
                                         2147483648.0,
                                         -2147483648.0,
                                         -2147483649.0,
                                         4294967295.0,
                                         9223372036854775808.0,
                                         65504,
                                         1e300,
                                         8388607.5};
        if (v % 3 == 0) return ki_bits_from_f64(t, special[rnd() % (sizeof special / sizeof *special)]);
        if (v % 3 == 1) return ki_bits_from_f64(t, ldexp((double)(int64_t)rnd() * 0x1p-63, (int)(rnd() % 80) - 20));
    } else if (v % 4 == 0) {
        int64_t small = (int64_t)(rnd() % 70) - 3;
        return ki_bits_wrap(t, small);
    }
    v = rnd();
    return bits == 64 ? v : v & ((UINT64_C(1) << bits) - 1);
}

static void fill(value *x, bool calm) {
    for (unsigned k = 0; k < x->lanes; k++) ki_storage_put(x->dtype, x->raw, k, random_bits(x->dtype, calm));
}

/* ---- one form at one length ---------------------------------------------------------------------------------------- */

typedef struct trial {
    const ki_x86_form *f;
    unsigned form, enc, len;
    char name[8];
    unsigned nsrc;
    value src[8], want, got;
    uint8_t code[4];
    ki_x86_ins ins;
    unsigned at[8]; /* source: its operand, 8 the mask, 9 and 10 the compared registers */
    int masking;    /* PLAIN, MERGE, ZERO: under k7, in slot MASKED */
    uint64_t mask;
    uint8_t old[SLOT]; /* the destination before */
    ki_program p;      /* the meaning */
    ki_ir ir;
    ki_codemem exec;
} trial;

static unsigned operand_bytes(char size, unsigned len) {
    unsigned whole = 16u << len;
    return size == 'x'   ? whole
           : size == 'h' ? whole / 2
           : size == 'n' ? whole / 4
           : size == 'e' ? whole / 8
           : size == 'o' ? 16
                         : 0;
}
static bool one_lane(const ki_x86_form *f) { return f->lens <= 1 && f->enc != 0; }

/* Lanes of the operand with that code. */
static unsigned lanes_of(const trial *t, unsigned code, kn_dtype d, unsigned result) {
    char size = ki_x86_codes[code].size;
    if (d == KN_BOOL && size == 'k') return result;
    unsigned bytes = operand_bytes(size, t->len);
    return one_lane(t->f) || !bytes ? 1 : bytes / (ki_dtypes[d].bits / 8);
}

/* Which operand is source k; operands in the full (three-operand) order of the form. */
static void sources(trial *t) {
    const ki_x86_form *f = t->f;
    unsigned op[8], n = 0;
    if (f->attr & KI_XA_RW) op[n++] = 0;
    if (f->attr & KI_XA_FLAGS) op[n++] = 9, op[n++] = 10;
    for (unsigned k = f->attr & KI_XA_READS ? 0 : 1; k < 4 && f->op[k]; k++)
        if (ki_x86_codes[f->op[k]].place != KI_XP_IMM) op[n++] = k;
    for (unsigned k = 0; k < 4 && f->op[k]; k++)
        if (ki_x86_codes[f->op[k]].place == KI_XP_IMM) op[n++] = k;
    t->nsrc = ki_x86_sources(f, t->name);
    if (t->nsrc > n) op[n] = 8; /* k */
    for (unsigned k = 0; k < t->nsrc; k++) t->at[k] = op[k];
}

static bool shape_values(trial *t) {
    const ki_x86_form *f = t->f;
    sources(t);
    t->want.dtype = ki_x86_dtype(f, 0);
    unsigned result = 0;
    if (ki_x86_codes[f->op[0]].size == 'k' && t->want.dtype == KN_BOOL)
        result = one_lane(f) ? 1 : (16u << t->len) / (ki_dtypes[ki_x86_dtype(f, 1)].bits / 8);
    t->want.lanes = lanes_of(t, f->op[0], t->want.dtype, result);
    for (unsigned k = 0; k < t->nsrc; k++) {
        value *v = &t->src[k];
        char c = t->name[k];
        v->dtype = c == 'i'   ? KN_I32
                   : c == 'k' ? KN_BOOL
                   : c == 'd' ? t->want.dtype
                              : ki_x86_dtype(f, (unsigned)(c - 'a') + 1);
        v->lanes = c == 'i' || t->at[k] > 8 ? 1
                   : c == 'k'               ? t->want.lanes
                                            : lanes_of(t, f->op[t->at[k]], v->dtype, t->want.lanes);
        if ((unsigned)v->dtype >= KI_DTYPE_COUNT || v->lanes > SLOT) return false;
    }
    t->got.dtype = t->want.dtype;
    t->got.lanes = t->want.lanes;
    return true;
}

/* ---- meaning ----------------------------------------------------------------------------------------------------- */

static bool understand(trial *t) {
    kn_uop src[8];
    if (!ki_ir_open(&t->ir, &env)) return false;
    t->p = (ki_program){.ir = &t->ir, .stage = KI_S_TENSOR};
    for (unsigned k = 0; k < t->nsrc; k++) {
        char name[2] = {t->name[k], 0};
        int64_t dim = t->src[k].lanes;
        src[k] = ki_param_make(&t->ir, -1, t->src[k].dtype, KN_GLOBAL, 0, name, NULL,
                               dim == 1 ? NULL : ki_shape_src(&t->ir, &dim, 1));
        if (!src[k] || !ki_program_port(&t->p, false, name, 1, src[k])) return false;
    }
    kn_uop v = ki_x86_meaning(&t->ir, t->f, src, t->nsrc, t->want.lanes);
    if (!v || v->dtype != t->want.dtype) return false;
    if (ki_numel(v) != t->want.lanes && ki_numel(v) != 1) return false;
    if (ki_numel(v) != t->want.lanes) t->want.lanes = 1; /* one value for all lanes */
    t->p.root = ki_op1(&t->ir, KN_SINK, v);
    return t->p.root && ki_program_port(&t->p, true, "y", 1, v);
}

static bool interpret(trial *t) {
    const void *in[8];
    void *out[1] = {t->want.raw};
    for (unsigned k = 0; k < t->nsrc; k++) in[k] = t->src[k].raw;
    return ki_eval(&t->p, in, out, NULL) == KI_OK;
}

/* ---- the instruction --------------------------------------------------------------------------------------------- */

static const uint8_t gprs[4] = {0, 6, 2, 8}; /* rcx is for counts; rdi holds the slots */
static unsigned register_of(const trial *t, unsigned k) {
    ki_x86_place place = (ki_x86_place)ki_x86_codes[t->f->op[k]].place;
    if (place == KI_XP_CL) return KI_X_RCX;
    char size = ki_x86_codes[t->f->op[k]].size;
    return strchr("xhneok", size) ? k + 1 : gprs[k];
}

static bool setup(trial *t) {
    const ki_x86_form *f = t->f;
    unsigned n = ki_x86_operands(f, t->enc, t->code), j = 0;
    bool dest = ki_x86_codes[f->op[0]].place == KI_XP_VVVV;
    x86_walk w = {.f = f, .enc = t->enc, .len = t->len, .osize = 4};
    t->ins = (ki_x86_ins){.form = (uint16_t)t->form, .enc = (uint8_t)t->enc, .mask = strchr(t->name, 'k') ? 7 : 0};
    for (unsigned k = 0; k < 4 && f->op[k]; k++) {
        ki_x86_code_info c = ki_x86_codes[f->op[k]];
        bool gone = t->enc == KI_XE_SSE && f->enc != KI_XE_SSE && (dest ? k == 1 : c.place == KI_XP_VVVV);
        if (gone) continue;
        if (c.place == KI_XP_IMM) t->ins.op[j++] = ki_x86_imm(0);
        else t->ins.op[j++] = ki_x86_reg((ki_x86_kind)x86_kind(&w, c.size), register_of(t, k));
    }
    return j == n;
}

static ki_x86_op slot(unsigned k) { return ki_x86_mem(KI_X_RDI, KI_X_NOREG, 1, (int32_t)(k * SLOT)); }

static void vector_move(const trial *t, ki_asm *a, unsigned reg, unsigned at, bool store) {
    unsigned len = t->enc == KI_XE_SSE ? 0 : t->enc == KI_XE_VEX ? 1 : 2;
    ki_x86_ins m = {.form = store ? KI_X_VMOVUPS_ST : KI_X_VMOVUPS, .enc = t->enc == KI_XE_SSE ? KI_XE_SSE : 0};
    m.op[store] = ki_x86_reg((ki_x86_kind)(KI_XO_X + len), reg);
    m.op[!store] = slot(at);
    ki_asm_ins(a, &m);
}

static void move_operand(const trial *t, ki_asm *a, unsigned k, unsigned at, bool store) {
    char size = ki_x86_codes[t->f->op[k]].size;
    unsigned reg = register_of(t, k);
    ki_x86_op none = {0};
    bool dest = ki_x86_codes[t->f->op[0]].place == KI_XP_VVVV;
    /* What SSE has no operand for stands in the destination. */
    if (t->enc == KI_XE_SSE && t->f->enc != KI_XE_SSE &&
        (dest ? k == 1 : ki_x86_codes[t->f->op[k]].place == KI_XP_VVVV))
        reg = register_of(t, 0);
    if (strchr("xhneo", size)) vector_move(t, a, reg, at, store);
    else if (size == 'k' && store) ki_asm_put(a, KI_X_KMOVQ_ST, slot(at), ki_x86_reg(KI_XO_K, reg), none);
    else if (size == 'k') ki_asm_put(a, KI_X_KMOVQ, ki_x86_reg(KI_XO_K, reg), slot(at), none);
    else if (store) ki_asm_put(a, KI_X_MOV_EG, slot(at), ki_x86_reg(KI_XO_R64, reg), none);
    else ki_asm_put(a, KI_X_MOV_GE, ki_x86_reg(KI_XO_R64, reg), slot(at), none);
}

/* void f(uint8_t *slots): loads the sources, runs the instruction, stores operand 0 into slot RESULT. */
static bool compile(trial *t) {
    ki_asm a;
    ki_x86_op none = {0};
    ki_asm_open(&a, &env, ki_cpu_features());
    for (unsigned k = 0; k < t->nsrc; k++) {
        if (t->name[k] == 'i') continue;
        if (t->at[k] == 8) ki_asm_put(&a, KI_X_KMOVQ, ki_x86_reg(KI_XO_K, 7), slot(k), none);
        else if (t->at[k] > 8) ki_asm_put(&a, KI_X_MOV_GE, ki_x86_reg(KI_XO_R64, t->at[k] == 9 ? 8 : 9), slot(k), none);
        else move_operand(t, &a, t->at[k], k, false);
    }
    if (t->f->attr & KI_XA_FLAGS) ki_asm_put(&a, KI_X_CMP_EG, ki_x86_reg(KI_XO_R32, 8), ki_x86_reg(KI_XO_R32, 9), none);
    if (t->masking) {
        ki_asm_put(&a, KI_X_KMOVQ, ki_x86_reg(KI_XO_K, 7), slot(MASKED), none);
        if (!(t->f->attr & KI_XA_RW)) move_operand(t, &a, 0, OLD, false);
    }
    ki_asm_ins(&a, &t->ins);
    move_operand(t, &a, 0, RESULT, true);
    if (t->enc != KI_XE_SSE) ki_asm_put(&a, KI_X_VZEROUPPER, none, none, none);
    ki_asm_put(&a, KI_X_RET, none, none, none);
    ki_codemem_free(&t->exec);
    bool ok = ki_asm_finish(&a) && ki_codemem_make(&env, a.code, a.n, &t->exec);
    ki_asm_close(&a);
    return ok;
}

static void pack_mask(const value *v, uint8_t *out) {
    uint64_t bits = 0;
    for (unsigned k = 0; k < v->lanes; k++) bits |= (uint64_t)(v->raw[k] & 1) << k;
    memcpy(out, &bits, 8);
}

static void execute(trial *t) {
    _Alignas(64) uint8_t io[8 * SLOT];
    for (unsigned k = 0; k < sizeof io; k++) io[k] = (uint8_t)rnd();
    for (unsigned k = 0; k < t->nsrc; k++) {
        const value *v = &t->src[k];
        unsigned bytes = v->lanes * ki_dtypes[v->dtype].bits / 8;
        if (v->dtype == KN_BOOL) pack_mask(v, io + k * SLOT);
        else memcpy(io + k * SLOT, v->raw, bytes);
    }
    t->mask = rnd();
    memcpy(io + MASKED * SLOT, &t->mask, 8);
    memcpy(t->old, t->f->attr & KI_XA_RW ? io : io + OLD * SLOT, SLOT);
    union { /* ISO C has no cast for this */
        void *p;
        void (*f)(uint8_t *);
    } call = {t->exec.code};
    call.f(io);
    const uint8_t *r = io + RESULT * SLOT;
    if (t->got.dtype == KN_BOOL && ki_x86_codes[t->f->op[0]].size == 'k') {
        uint64_t bits;
        memcpy(&bits, r, 8);
        for (unsigned k = 0; k < t->got.lanes; k++) t->got.raw[k] = bits >> k & 1;
    } else {
        memcpy(t->got.raw, r, t->got.lanes * ki_dtypes[t->got.dtype].bits / 8);
    }
}

/* ---- comparison -------------------------------------------------------------------------------------------------- */

static bool is_nan(kn_dtype d, uint64_t bits) { return ki_is_float(d) && isnan(ki_f64_from_bits(d, bits)); }

static bool same(const trial *t, unsigned *lane) {
    for (unsigned k = 0; k < t->got.lanes; k++) {
        uint64_t g = ki_storage_get(t->got.dtype, t->got.raw, k);
        uint64_t w = ki_storage_get(t->got.dtype, t->want.raw, t->want.lanes == 1 ? 0 : k);
        if (t->masking && !(t->mask >> k & 1)) /* what the mask leaves out: the old value, or 0; in masks always 0 */
            w = t->masking == ZERO || t->got.dtype == KN_BOOL ? 0 : ki_storage_get(t->got.dtype, t->old, k);
        *lane = k;
        if (g != w && !(is_nan(t->got.dtype, g) && is_nan(t->got.dtype, w))) return false;
    }
    return true;
}

static void show(const trial *t, unsigned lane) {
    ki_text line = {0};
    ki_x86_print(&t->ins, &line);
    uint64_t g = ki_storage_get(t->got.dtype, t->got.raw, lane),
             w = ki_storage_get(t->got.dtype, t->want.raw, t->want.lanes == 1 ? 0 : lane);
    printf("# %s lane %u: processor %llx (%g), meaning %llx (%g)", line.s, lane, (unsigned long long)g,
           ki_f64_from_bits(t->got.dtype, g), (unsigned long long)w, ki_f64_from_bits(t->got.dtype, w));
    for (unsigned k = 0; k < t->nsrc; k++) {
        const value *v = &t->src[k];
        unsigned at = v->lanes > lane ? lane : 0;
        uint64_t x = ki_storage_get(v->dtype, v->raw, at);
        printf(", %c = %llx (%g)", t->name[k], (unsigned long long)x, ki_f64_from_bits(v->dtype, x));
    }
    printf("\n");
    ki_text_free(&line);
}

/* Immediates for which the row states what happens. */
static int64_t immediate(const ki_x86_form *f, unsigned trial) {
    if (strstr(f->name, "round") || strstr(f->name, "rndscale")) return 8 + trial % 4;
    if (strncmp(f->name, "vcmp", 4) == 0) return trial % 8;
    if (strncmp(f->name, "vcvtps2ph", 9) == 0) return 0; /* to nearest even */
    for (unsigned k = 0; k < 4; k++) {
        if (f->op[k] == KI_XC_Ib) return (int8_t)rnd();
        if (f->op[k] == KI_XC_Iz) return (int32_t)rnd();
    }
    return trial % 2 ? (int64_t)(rnd() & 255) : (int64_t)(rnd() % 20);
}

/* Whether the processor agreed on all trials. */
static bool trials(trial *t) {
    bool calm = strstr(t->f->name, "bf16") != NULL; /* subnormals are flushed there */
    for (unsigned n = 0; n < TRIALS; n++) {
        for (unsigned k = 0; k < t->nsrc; k++) {
            fill(&t->src[k], calm && ki_is_float(t->src[k].dtype));
            if (calm && t->src[k].dtype == KN_U32)
                for (unsigned l = 0; l < 2 * t->src[k].lanes; l++)
                    ki_storage_put(KN_BF16, t->src[k].raw, l, random_bits(KN_BF16, true));
            /* Equal lanes, which chance would hardly make. */
            for (unsigned l = 0; k && l < t->src[k].lanes && l < t->src[0].lanes; l++)
                if (t->src[k].dtype == t->src[0].dtype && rnd() % 4 == 0)
                    ki_storage_put(t->src[k].dtype, t->src[k].raw, l,
                                   ki_storage_get(t->src[k].dtype, t->src[0].raw, l));
            if (t->name[k] != 'i') continue;
            int64_t v = immediate(t->f, n);
            int32_t v32 = (int32_t)v;
            memcpy(t->src[k].raw, &v32, 4);
            for (unsigned j = 0; j < 4; j++)
                if (t->ins.op[j].kind == KI_XO_IMM) t->ins.op[j].v = v;
        }
        if (!n || strchr(t->name, 'i'))
            if (!compile(t)) return printf("# %s: %s\n", t->f->name, env.message.s), false;
        if (!interpret(t)) return printf("# %s: %s\n", t->f->name, env.message.s), false;
        execute(t);
        unsigned lane;
        if (!same(t, &lane)) return show(t, lane), false;
    }
    return true;
}

/* Plain, and under a mask where the form takes one and its meaning does not name it. */
static bool run(trial *t) {
    bool takes = t->f->attr & KI_XA_MASK && t->enc == KI_XE_EVEX && !strchr(t->name, 'k');
    bool ok = trials(t);
    for (t->masking = MERGE; ok && takes && t->masking <= ZERO; t->masking++) {
        t->ins.mask = 7;
        t->ins.zero = t->masking == ZERO;
        if (!t->ins.zero || t->f->attr & KI_XA_ZERO) ok = trials(t);
    }
    return ok;
}

static bool one(trial *t) {
    bool ok = shape_values(t) && setup(t) && understand(t);
    if (!ok) printf("# %s: %s\n", t->f->name, env.message.s ? env.message.s : "its meaning has another dtype or shape");
    ok = ok && run(t);
    ki_codemem_free(&t->exec);
    ki_program_free(&t->p);
    ki_ir_close(&t->ir);
    ki_env_clear(&env);
    return ok;
}

static const char *lacking(uint64_t missing) {
    for (int k = 0; k < KI_CPU_COUNT; k++)
        if (missing >> k & 1) return ki_cpu_feature_names[k];
    return "";
}

/* ---- tiles: against loops in C, on numbers whose sums are exact ---------------------------------------------------- */

static void tile(unsigned form) {
    const ki_x86_form *f = &ki_x86_forms[form];
    kn_dtype to = ki_x86_dtype(f, 0), from[2] = {ki_x86_dtype(f, 1), ki_x86_dtype(f, 2)};
    static uint8_t raw[3][1024], out[1024]; /* a, b, d */
    static double v[3][16][16][4];
    int64_t group = 32 / ki_dtypes[from[0]].bits, dim[3] = {16, 16, group};
    ki_ir ir;
    bool ok = ki_ir_open(&ir, &env);
    ki_program p = {.ir = &ir, .stage = KI_S_TENSOR};
    const void *in[3] = {raw[2], raw[0], raw[1]}; /* d first */
    void *result[1] = {out};
    for (int m = 0; m < 3; m++)
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < 16; c++)
                for (int g = 0; g < (m < 2 ? group : 1); g++) {
                    kn_dtype d = m < 2 ? from[m] : to;
                    double x = (double)(rnd() % 100) - (ki_is_uint(d) ? 0 : 50);
                    v[m][r][c][g] = x;
                    ki_storage_put(d, raw[m], m < 2 ? (r * 16 + c) * group + g : r * 16 + c, ki_bits_from_f64(d, x));
                }
    kn_uop a = ki_param_make(&ir, -1, from[0], KN_GLOBAL, 0, "a", NULL, ki_shape_src(&ir, dim, 3));
    kn_uop b = ki_param_make(&ir, -1, from[1], KN_GLOBAL, 0, "b", NULL, ki_shape_src(&ir, dim, 3));
    kn_uop d = ki_param_make(&ir, -1, to, KN_GLOBAL, 0, "d", NULL, ki_shape_src(&ir, dim, 2)), src[3] = {d, a, b};
    kn_uop value = ok && a && b && d ? ki_x86_meaning(&ir, f, src, 3, 16) : NULL;
    p.root = ki_op1(&ir, KN_SINK, value);
    ok = p.root && ki_program_port(&p, false, "d", 1, d) && ki_program_port(&p, false, "a", 1, a) &&
         ki_program_port(&p, false, "b", 1, b) && ki_program_port(&p, true, "y", 1, value) &&
         ki_eval(&p, in, result, NULL) == KI_OK;
    if (!ok) printf("# %s: %s\n", f->name, env.message.s ? env.message.s : "no meaning");
    for (int r = 0; r < 16 && ok; r++)
        for (int c = 0; c < 16 && ok; c++) {
            double sum = v[2][r][c][0];
            for (int k = 0; k < 16; k++)
                for (int g = 0; g < group; g++) sum += v[0][r][k][g] * v[1][k][c][g];
            ok = ki_f64_from_bits(to, ki_storage_get(to, out, r * 16 + c)) == sum;
        }
    CHECK(ok, "form %u %s means a product of tiles (not run on the processor)", form, f->name);
    ki_program_free(&p);
    ki_ir_close(&ir);
    ki_env_clear(&env);
}

int main(void) {
    static trial t;
    if (!ki_env_open(&env)) return 1;
    unsigned told = 0, ran_forms = 0;
    for (unsigned form = 0; form < KI_X_COUNT; form++) {
        const ki_x86_form *f = &ki_x86_forms[form];
        if (!*f->meaning) continue;
        told++;
        if (f->port == KI_XR_TILE) {
            tile(form);
            continue;
        }
        unsigned ran = 0;
        uint64_t missing = 0;
        bool ok = true;
        for (unsigned enc = 1; enc <= 4; enc *= 2)
            for (unsigned len = 0; len < 3 && f->enc & enc; len++) {
                if (f->lens ? !(f->lens >> len & 1) : len) continue;
                if ((enc == KI_XE_SSE && len) || (enc == KI_XE_VEX && len == 2)) continue;
                if (f->port == KI_XR_MASK || f->port == KI_XR_MASK5)
                    missing |= ~ki_cpu_features() & KI_CPU_BIT(KI_CPU_AVX512BW);
                missing |= ki_x86_needs(f, enc, len) & ~ki_cpu_features();
                if (ki_x86_needs(f, enc, len) & ~ki_cpu_features()) continue;
                memset(&t, 0, sizeof t);
                t.f = f, t.form = form, t.enc = enc, t.len = len;
                ok = one(&t) && ok;
                ran++;
            }
        ran_forms += ran != 0;
        if (ran) CHECK(ok, "form %u %s means what it does, %u encodings and lengths", form, f->name, ran);
        else printf("# form %u %s: this processor has no %s to compare with\n", form, f->name, lacking(missing));
    }
    printf("# %u forms of %d have a meaning, %u ran\n", told, KI_X_COUNT, ran_forms);
    ki_env_close(&env);
    return tap_done();
}
