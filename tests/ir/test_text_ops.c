/* Every op of ops.def, with varied args and operands, survives the text form; an op without a case here fails. */
#include "text_util.h"

#include "base/hash.h"

static uint64_t state;
static uint64_t rnd(void) { return state = ki_mix(state + UINT64_C(0x9e3779b97f4a7c15)); }
static unsigned below(unsigned n) { return (unsigned)(rnd() % n); }

static kn_uop str_op(lab *l, kn_op op, kn_dtype t, const char *s, size_t n, const kn_uop *src, uint32_t nsrc) {
    return ki_str_op(&l->ir, op, t, s, n, src, nsrc);
}

static kn_dtype any_dtype(unsigned flags) {
    for (;;) {
        kn_dtype t = (kn_dtype)below(KI_DTYPE_COUNT);
        if (t == KN_VOID) continue;
        if (flags & KI_FLOAT && !ki_is_float(t)) continue;
        if (flags & KI_INT && ki_is_float(t)) continue;
        if (flags & KI_NUM && t == KN_BOOL) continue;
        return t;
    }
}

static kn_uop any_const(lab *l, kn_dtype t) {
    uint64_t v = rnd() >> below(64);
    if (ki_is_float(t)) {
        unsigned bits = ki_dtypes[t].bits;
        return ki_const_bits(&l->ir, t, bits == 64 ? v : v & ((UINT64_C(1) << bits) - 1));
    }
    return ki_const_bits(&l->ir, t, t == KN_BOOL ? v & 1 : ki_bits_wrap(t, (int64_t)v));
}

static kn_uop param(lab *l, kn_dtype t) {
    int64_t dim[2] = {3, 4};
    return ki_param_make(&l->ir, (int)below(5), t, KN_GLOBAL, 0, below(2) ? "x" : NULL, NULL,
                         ki_shape_src(&l->ir, dim, 2));
}

/* A constant, a scalar parameter, a tensor, or a constant with a tag, which has a line of its own. */
static kn_uop any_operand(lab *l, kn_dtype t) {
    switch (below(5)) {
    case 0: return any_const(l, t);
    case 1: return ki_with_tag(&l->ir, any_const(l, t), 7);
    case 2: return ki_param_make(&l->ir, -1, t, KN_GLOBAL, 0, "s\"q\\", NULL, NULL);
    default: return param(l, t);
    }
}

static kn_uop elementwise(lab *l, kn_op op) {
    kn_dtype t = op == KN_THREEFRY ? KN_U64 : any_dtype(ki_ops[op].flags);
    kn_uop s[3];
    for (int i = 0; i < ki_ops[op].least; i++) s[i] = any_operand(l, op == KN_WHERE && i == 0 ? KN_BOOL : t);
    kn_dtype to = any_dtype(0);
    return ki_make(&l->ir, op, to, s, (uint32_t)ki_ops[op].least, (kn_arg){.bits = 0}, below(3) ? 0 : below(1000));
}

static kn_uop range(lab *l) {
    return ki_range_make(&l->ir, below(50), (kn_axis)below(KI_AX_COUNT),
                         below(2) ? ki_index(&l->ir, below(99))
                                  : ki_param_make(&l->ir, -1, KN_IDX, KN_GLOBAL, 0, "n", (int64_t[]){1, 9}, NULL));
}

static kn_uop buffer(lab *l, kn_dtype t) {
    static const char *const device[] = {"", "CPU", "CUDA:0,CUDA:1", "DISK:/a file"};
    return ki_buffer_make(&l->ir, below(9), below(100), t, (kn_addrspace)below(3),
                          ki_device_id(&l->env, device[below(4)]));
}

static kn_uop param_op(lab *l) {
    int64_t lohi[2] = {-(int64_t)below(9), below(9)};
    kn_dtype t = any_dtype(0);
    if (ki_is_float(t)) {
        double f[2] = {-0.1, 1e300};
        memcpy(lohi, f, sizeof lohi);
    }
    kn_uop n = ki_param_make(&l->ir, -1, KN_IDX, KN_GLOBAL, 0, "n", (int64_t[]){1, 64}, NULL);
    kn_uop shape = below(2) ? ki_opn(&l->ir, KN_STACK, (kn_uop[]){n, ki_index(&l->ir, 4)}, 2) : NULL;
    if (!shape && below(2)) shape = ki_opn(&l->ir, KN_STACK, NULL, 0);
    return ki_param_make(&l->ir, (int)below(3) - 1, t, (kn_addrspace)below(3),
                         below(2) ? ki_device_id(&l->env, "CL:0") : 0, below(2) ? "w \n\t\x01\xc3\xa9\xff" : NULL,
                         below(2) ? lohi : NULL, shape);
}

static kn_arg kernel_arg(lab *l) {
    _Alignas(8) char raw[512] = {0};
    ki_kernel *k = (ki_kernel *)raw;
    k->nopt = below(6), k->threads = below(4), k->optimized = below(2), k->len = 6;
    for (uint32_t i = 0; i < k->nopt; i++)
        k->opt[i] = (ki_opt){.op = (uint8_t)below(KI_OPT_COUNT),
                             .target = (uint8_t)below(KI_AX_COUNT),
                             .top = (uint8_t)below(2),
                             .axis = (int32_t)below(9) - 1,
                             .arg = (int32_t)below(70),
                             .id = (int32_t)below(9)};
    memcpy(raw + sizeof *k + k->nopt * sizeof(ki_opt), "r_4096", 7);
    return (kn_arg){.p = ki_intern(&l->ir, raw, sizeof *k + k->nopt * sizeof(ki_opt) + 7)};
}

static kn_uop many(lab *l, kn_op op) {
    kn_uop s[8];
    uint32_t n = (uint32_t)ki_ops[op].least + below(4);
    for (uint32_t i = 0; i < n; i++) s[i] = any_operand(l, any_dtype(0));
    return ki_opn(&l->ir, op, s, n);
}

static kn_uop reduce_op(lab *l) {
    static const kn_op ops[] = {KN_ADD, KN_MUL, KN_MAX};
    kn_arg a = {.bits = 0};
    a.reduce.op = (uint8_t)ops[below(3)];
    a.reduce.axes = below(4);
    return ki_make(&l->ir, KN_REDUCE, KN_VOID, (kn_uop[]){param(l, any_dtype(0)), range(l), range(l)}, 1 + below(3), a,
                   0);
}

static kn_uop stack_op(lab *l) {
    kn_uop s[20];
    uint32_t n = below(20);
    kn_dtype t = any_dtype(0);
    bool constants = below(2);
    for (uint32_t i = 0; i < n; i++)
        s[i] = constants || below(2) ? any_const(l, t) : ki_param_make(&l->ir, (int)i, t, KN_REG, 0, NULL, NULL, NULL);
    return ki_opn(&l->ir, KN_STACK, s, n);
}

static kn_uop load_op(lab *l) {
    kn_dtype t = any_dtype(0);
    ki_load to;
    memset(&to, 0, sizeof to);
    to.device = (uint16_t)(below(2) ? ki_device_id(&l->env, "CUDA:0") : 0);
    to.addrspace = (uint8_t)below(3);
    kn_arg a = {.p = below(2) ? ki_intern(&l->ir, &to, sizeof to) : NULL};
    kn_uop at = ki_op2(&l->ir, KN_INDEX, buffer(l, t), below(2) ? range(l) : ki_index(&l->ir, 3));
    return ki_make(&l->ir, KN_LOAD, KN_VOID, (kn_uop[]){at, any_const(l, t), any_const(l, KN_BOOL)}, 1 + below(3), a,
                   0);
}

static kn_uop store_op(lab *l, kn_op op) {
    kn_dtype t = any_dtype(KI_NUM);
    kn_uop at = ki_op2(&l->ir, KN_INDEX, ki_buffer_make(&l->ir, below(9), 64, t, KN_GLOBAL, 0), range(l));
    uint32_t n = op == KN_STORE ? 2 + below(2) : 2;
    kn_arg a = {.i = op == KN_STORE ? below(2) : 0};
    return ki_make(&l->ir, op, KN_VOID, (kn_uop[]){at, any_const(l, t), any_const(l, KN_BOOL)}, n, a, 0);
}

static kn_uop string_op(lab *l, kn_op op) {
    static const char text[] =
        "void f(float *x) {\n  x[0] = \"\\\"[1]; /* \xc3\xa9 \xf0\x9f\x98\x80 \xed\xa0\x80 \xfe */\n}\n\x00tail";
    size_t n = below(sizeof text);
    kn_uop s[3] = {param(l, KN_F32), param(l, KN_F32), param(l, KN_F32)};
    uint32_t least = (uint32_t)ki_ops[op].least, most = ki_ops[op].most < 3 ? (uint32_t)ki_ops[op].most : 3;
    if (op == KN_SPECIAL) s[0] = ki_index(&l->ir, 8);
    return str_op(l, op, below(2) ? KN_VOID : any_dtype(0), text, n, s, least + below(most - least + 1));
}

static kn_uop movement(lab *l, kn_op op) {
    kn_uop x = param(l, any_dtype(0));
    int64_t one[2] = {1, 4}, flat[1] = {12}, off[2] = {1, 2}, big[2] = {9, 8}, small[2] = {2, 2}, axes[2] = {1, 0};
    kn_uop n = ki_param_make(&l->ir, -1, KN_IDX, KN_GLOBAL, 0, "n", (int64_t[]){0, 2}, NULL);
    switch (op) {
    case KN_PERMUTE: return ki_permute(&l->ir, x, axes, 2);
    case KN_FLIP: return ki_flip(&l->ir, x, axes, 1);
    case KN_REPLICATED: {
        struct {
            uint32_t n, pad;
            int64_t v[2];
        } k = {below(3), 0, {0, 1}};
        kn_arg a = {.p = ki_intern(&l->ir, &k, 8 + 8 * k.n)};
        return ki_make(&l->ir, op, KN_VOID, &x, 1, a, 0);
    }
    case KN_RESHAPE: return ki_reshape(&l->ir, x, flat, 1);
    case KN_EXPAND:
        x = ki_param_make(&l->ir, 0, KN_F32, KN_GLOBAL, 0, NULL, NULL, ki_shape_src(&l->ir, one, 2));
        return ki_op2(&l->ir, op, x, ki_opn(&l->ir, KN_STACK, (kn_uop[]){n, ki_index(&l->ir, 4)}, 2));
    case KN_PAD: return ki_pad(&l->ir, x, off, big);
    case KN_SHRINK:
        if (below(2)) return ki_shrink(&l->ir, x, off, small);
        return ki_op3(&l->ir, op, x, ki_opn(&l->ir, KN_STACK, (kn_uop[]){n, n}, 2), ki_shape_src(&l->ir, small, 2));
    case KN_INDEX:
        return ki_op3(&l->ir, op, x, ki_shape_src(&l->ir, axes, 2),
                      below(2) ? ki_index(&l->ir, 2) : ki_const_int(&l->ir, KN_I32, 1));
    case KN_SLICE:
        return ki_make(&l->ir, op, any_dtype(0), (kn_uop[]){buffer(l, KN_U8), ki_index(&l->ir, 8)}, 2,
                       (kn_arg){.i = below(99)}, 0);
    case KN_BITCAST:
        return ki_make(&l->ir, op, KN_I32, (kn_uop[]){param(l, below(2) ? KN_F32 : KN_F64)}, 1, (kn_arg){.bits = 0}, 0);
    default: return NULL;
    }
}

static kn_uop instance(lab *l, kn_op op) {
    if (ki_is_elementwise(op)) return elementwise(l, op);
    switch (op) {
    case KN_PARAM: return param_op(l);
    case KN_BUFFER: return buffer(l, any_dtype(0));
    case KN_CONST: return any_const(l, any_dtype(0));
    case KN_STACK: return stack_op(l);
    case KN_REDUCE: return reduce_op(l);
    case KN_FUNCTION: return ki_op2(&l->ir, op, many(l, KN_TUPLE), param(l, KN_I8));
    case KN_CALL: return ki_op2(&l->ir, op, many(l, KN_SINK), buffer(l, KN_F16));
    case KN_GETTUPLE: {
        kn_uop t = ki_opn(&l->ir, KN_TUPLE, (kn_uop[]){param(l, KN_F32), param(l, KN_BOOL)}, 2);
        return ki_make(&l->ir, op, KN_VOID, &t, 1, (kn_arg){.i = below(2)}, 0);
    }
    case KN_LOAD: return load_op(l);
    case KN_STORE:
    case KN_ATOMICADD: return store_op(l, op);
    case KN_RANGE: return range(l);
    case KN_END: return ki_op3(&l->ir, op, store_op(l, KN_STORE), range(l), range(l));
    case KN_AFTER: return ki_op3(&l->ir, op, buffer(l, KN_F64), store_op(l, KN_STORE), range(l));
    case KN_SINK:
    case KN_PROGRAM: {
        kn_uop s[3] = {many(l, KN_LINEAR), string_op(l, KN_SOURCE),
                       str_op(l, KN_BINARY, KN_U8, "\x7f\x00ELF", below(6), NULL, 0)};
        return ki_make(&l->ir, op, KN_VOID, s, 1 + below(3), below(2) ? kernel_arg(l) : (kn_arg){.bits = 0}, below(2));
    }
    case KN_TUPLE:
    case KN_GROUP:
    case KN_LINEAR:
    case KN_BARRIER:
    case KN_NOOP: return many(l, op);
    case KN_IF: return ki_op2(&l->ir, op, param(l, KN_BOOL), store_op(l, KN_STORE));
    case KN_ENDIF: return ki_op1(&l->ir, op, ki_op1(&l->ir, KN_IF, any_const(l, KN_BOOL)));
    case KN_REMAT: return ki_op2(&l->ir, op, any_operand(l, any_dtype(0)), any_operand(l, any_dtype(0)));
    case KN_CONTIGUOUS:
    case KN_CONTIGUOUS_BACKWARD:
    case KN_DETACH: return ki_op1(&l->ir, op, any_operand(l, any_dtype(0)));
    case KN_BINARY: {
        char raw[100];
        for (int i = 0; i < 100; i++) raw[i] = (char)rnd();
        return str_op(l, op, KN_U8, raw, below(101), NULL, 0);
    }
    case KN_INVALID: return ki_op3(&l->ir, KN_WHERE, any_const(l, KN_BOOL), ki_index(&l->ir, 5), ki_op0(&l->ir, op));
    case KN_STAGE:
        return ki_make(&l->ir, op, KN_VOID, (kn_uop[]){param(l, KN_F32), range(l), range(l)}, 3,
                       (kn_arg){.i = below(3)}, 0);
    case KN_INS:
    case KN_SPECIAL:
    case KN_CUSTOM:
    case KN_CUSTOM_FUNCTION:
    case KN_WMMA:
    case KN_SOURCE: return string_op(l, op);
    default: return movement(l, op);
    }
}

static int one(kn_op op, unsigned seed) {
    lab l;
    lab_open(&l);
    state = seed * 1000u + op;
    kn_uop u = instance(&l, op);
    if (!u)
        printf("# %s, seed %u: no instance: %s\n", ki_ops[op].name, seed,
               l.env.message.s ? l.env.message.s : "add one here");
    int ok = u != NULL;
    if (ok) {
        /* alone, and as a source beside a node that shares its sources */
        ki_program p = {.ir = &l.ir, .stage = (ki_stage)(1 + seed % (KI_S_COUNT - 1)), .root = u};
        ok = round_trip(&p, ki_ops[op].name);
        kn_uop s[4] = {u, u->nsrc ? u->src[u->nsrc - 1] : u, u, u};
        p.root = ki_opn(&l.ir, KN_LINEAR, s, 4);
        ok = ok && p.root && round_trip(&p, ki_ops[op].name);
    }
    lab_close(&l);
    return ok;
}

int main(void) {
    for (int op = 0; op < KI_OP_COUNT; op++) {
        int ok = 1;
        for (unsigned seed = 0; seed < 60 && ok; seed++) ok = one((kn_op)op, seed);
        CHECK(ok, "%s", ki_ops[op].name);
    }
    return tap_done();
}
