/* test_eval_random.c: random tensor programs, made from the op table, lowered to every stage and interpreted there; each
 * stage must agree with the tensor program. A failing program is cut down to the first node that fails and printed.
 * Arguments: count, first seed, stage to stop at. */
#include "eval_util.h"

#include "stages/stages.h"

#include <stdlib.h>

typedef struct gen {
    ki_env env;
    ki_ir ir;
    uint64_t seed;
    kn_uop v[96];
    int n;
} gen;

static uint64_t rnd(gen *g) {
    g->seed += UINT64_C(0x9e3779b97f4a7c15);
    return ki_mix(g->seed);
}
static unsigned below(gen *g, unsigned n) { return (unsigned)(rnd(g) % n); }
static kn_uop any(gen *g) { return g->v[below(g, (unsigned)g->n)]; }
static kn_uop add(gen *g, kn_uop u) {
    if (!u) {
        ki_env_clear(&g->env); /* a step that makes no sense is no step */
        return NULL;
    }
    if (ki_numel(u) <= 4096 && g->n < 96) g->v[g->n++] = u;
    return u;
}

static const kn_dtype dtypes[] = {KN_F32, KN_F32, KN_F32, KN_F32, KN_I32, KN_I32, KN_BOOL, KN_F64,    KN_F16,   KN_BF16,
                                  KN_I64, KN_U8,  KN_I8,  KN_U32, KN_U64, KN_I16, KN_U16,  KN_F8E4M3, KN_F8E5M2};
static kn_dtype some_dtype(gen *g) { return dtypes[below(g, sizeof dtypes / sizeof *dtypes)]; }
static int64_t some_size(gen *g) {
    static const int64_t s[] = {1, 2, 3, 4, 5, 7, 8, 12, 16, 17};
    return s[below(g, below(g, 4) ? 6 : 10)];
}

static unsigned dims_of(kn_uop u, int64_t *d) {
    for (unsigned k = 0; k < ki_rank(u); k++) d[k] = ki_dim_n(u, k);
    return ki_rank(u);
}

static kn_uop input(gen *g, int i) {
    char name[16];
    int64_t d[4];
    unsigned rank = below(g, 4);
    for (unsigned k = 0; k < rank; k++) d[k] = some_size(g);
    snprintf(name, sizeof name, "x%d", i);
    kn_uop shape = ki_shape_src(&g->ir, d, rank);
    return add(g, ki_param_make(&g->ir, -1, some_dtype(g), KN_GLOBAL, 0, name, NULL, shape));
}

/* u in the shape of `like`, by whatever movement fits: size-1 axes, repetition, or a piece. NULL if none does. */
static kn_uop fitted(gen *g, kn_uop u, kn_uop like) {
    int64_t a[16], b[16], o[16] = {0}, big[16];
    unsigned ra = dims_of(u, a), rb = dims_of(like, b);
    if (ra == rb && !memcmp(a, b, ra * sizeof *a)) return u;
    if (ki_numel(u) == ki_numel(like)) return ki_reshape(&g->ir, u, b, rb);
    if (ra > rb) return NULL;
    int64_t c[16];
    for (unsigned k = 0; k < rb; k++) c[k] = k < rb - ra ? 1 : a[k - (rb - ra)];
    u = ki_reshape(&g->ir, u, c, rb);
    for (unsigned k = 0; k < rb; k++) big[k] = c[k] == 1 ? b[k] : c[k];
    u = ki_expand(&g->ir, u, big, rb);
    for (unsigned k = 0; k < rb; k++) {
        if (big[k] < b[k]) big[k] = b[k];
    }
    u = ki_pad(&g->ir, u, o, big);
    return ki_shrink(&g->ir, u, o, b);
}

static kn_uop constant(gen *g, kn_dtype t) {
    static const double f[] = {0, 1, -1, 2, 0.5, 3, -0.0, 10, 0.1, 1e30, -2.5};
    if (ki_is_float(t)) return ki_const_float(&g->ir, t, f[below(g, sizeof f / sizeof *f)]);
    return ki_const_int(&g->ir, t, (int64_t)below(g, 9) - 3);
}

/* An operand of dtype t and the shape of `like` (or a scalar). */
static kn_uop operand(gen *g, kn_dtype t, kn_uop like) {
    for (int tries = 0; tries < 4; tries++) {
        kn_uop u = any(g);
        if (u->dtype != t && below(g, 2)) continue;
        kn_uop w = fitted(g, ki_cast(&g->ir, u, t), like);
        if (w) return w;
        ki_env_clear(&g->env);
    }
    return constant(g, t);
}

static void elementwise(gen *g) {
    kn_op op;
    do op = (kn_op)below(g, KI_OP_COUNT);
    while (!ki_is_elementwise(op));
    kn_uop a = any(g), src[3];
    kn_dtype t = (kn_dtype)a->dtype;
    unsigned flags = ki_ops[op].flags;
    if (op == KN_CAST) {
        add(g, ki_cast(&g->ir, a, some_dtype(g)));
        return;
    }
    if (op == KN_THREEFRY) t = KN_U64;
    if (flags & KI_FLOAT && !ki_is_float(t)) t = KN_F32;
    if (flags & KI_INT && ki_is_float(t)) t = KN_I32;
    if (flags & KI_NUM && t == KN_BOOL) t = KN_I32;
    for (int k = 0; k < ki_ops[op].least; k++) {
        kn_dtype want = op == KN_WHERE && k == 0 ? KN_BOOL : t;
        src[k] = k == 0 ? ki_cast(&g->ir, a, want) : operand(g, want, a);
    }
    add(g, ki_opn(&g->ir, op, src, (uint32_t)ki_ops[op].least));
}

static void movement(gen *g) {
    kn_uop a = any(g);
    int64_t d[16], e[16], o[16];
    unsigned r = dims_of(a, d);
    switch (below(g, 8)) {
    case 0: /* permute */
        for (unsigned k = 0; k < r; k++) e[k] = k;
        for (unsigned k = r; k > 1; k--) {
            unsigned j = below(g, k);
            int64_t x = e[k - 1];
            e[k - 1] = e[j], e[j] = x;
        }
        add(g, ki_permute(&g->ir, a, e, r));
        break;
    case 1: { /* flip */
        unsigned n = 0;
        for (unsigned k = 0; k < r; k++)
            if (below(g, 2)) e[n++] = k;
        add(g, ki_flip(&g->ir, a, e, n));
        break;
    }
    case 2: { /* reshape: merge or split */
        int64_t rest = ki_numel(a);
        unsigned n = 0;
        while (rest > 1 && n < 4) {
            int64_t f = 1 + (int64_t)below(g, 8);
            if (rest % f) continue;
            e[n++] = f;
            rest /= f;
        }
        e[n++] = rest;
        add(g, ki_reshape(&g->ir, a, e, n));
        break;
    }
    case 3: { /* expand a new axis */
        unsigned at = below(g, r + 1);
        for (unsigned k = 0; k <= r; k++) e[k] = k < at ? d[k] : k == at ? 1 : d[k - 1];
        if (r >= 4) break;
        a = ki_reshape(&g->ir, a, e, r + 1);
        e[at] = some_size(g);
        add(g, ki_expand(&g->ir, a, e, r + 1));
        break;
    }
    case 4: /* pad */
        for (unsigned k = 0; k < r; k++) o[k] = below(g, 3), e[k] = d[k] + o[k] + below(g, 3);
        add(g, ki_pad(&g->ir, a, o, e));
        break;
    case 5: /* shrink */
        for (unsigned k = 0; k < r; k++)
            e[k] = 1 + below(g, (unsigned)d[k]), o[k] = below(g, (unsigned)(d[k] - e[k] + 1));
        add(g, ki_shrink(&g->ir, a, o, e));
        break;
    case 6: { /* bitcast to a dtype of the same size, or across */
        kn_dtype t = some_dtype(g);
        if (t == KN_BOOL || a->dtype == KN_BOOL) break;
        add(g, ki_bitcast(&g->ir, a, t));
        break;
    }
    default: add(g, ki_op1(&g->ir, below(g, 2) ? KN_CONTIGUOUS : KN_DETACH, a));
    }
}

static void joining(gen *g) {
    kn_uop a = any(g), src[3];
    if (below(g, 3) == 0 && ki_rank(a) < 4) { /* stack */
        unsigned n = 1 + below(g, 3);
        for (unsigned k = 0; k < n; k++) src[k] = k ? fitted(g, ki_cast(&g->ir, any(g), (kn_dtype)a->dtype), a) : a;
        add(g, ki_opn(&g->ir, KN_STACK, src, n));
        return;
    }
    if (below(g, 3) == 0) { /* assign to a part, and read both */
        kn_uop base = a;
        int64_t d[16], e[16], o[16];
        if (base->op != KN_PARAM) return;
        unsigned r = dims_of(a, d);
        for (unsigned k = 0; k < r; k++)
            e[k] = 1 + below(g, (unsigned)d[k]), o[k] = below(g, (unsigned)(d[k] - e[k] + 1));
        (void)o, (void)e, (void)r;
        return; /* needs BUFFERs of the caller's: tests/ir/test_eval.c has it */
    }
    uint32_t axes = ki_rank(a) ? 1 + below(g, (1u << ki_rank(a)) - 1) : 0;
    static const kn_op ops[] = {KN_ADD, KN_ADD, KN_ADD, KN_MAX, KN_MAX, KN_MUL};
    add(g, ki_reduce(&g->ir, a, ops[below(g, 6)], axes));
}

static bool generate(gen *g, uint64_t seed) {
    memset(g, 0, sizeof *g);
    g->seed = seed;
    if (!ki_env_open(&g->env) || !ki_ir_open(&g->ir, &g->env)) return false;
    int inputs = 1 + (int)below(g, 3), steps = 2 + (int)below(g, 14);
    for (int i = 0; i < inputs; i++) input(g, i);
    for (int i = 0; i < steps; i++) {
        unsigned w = below(g, 10);
        w < 5 ? elementwise(g) : w < 8 ? movement(g) : joining(g);
    }
    return g->n > 0;
}

/* ---- running -------------------------------------------------------------------------------------------------- */

typedef struct io {
    void *in[MOST], *want, *got;
    double *bound;
} io;
enum { BYTES = 1 << 16 };

static void fill(const ki_port *p, void *data, uint64_t seed) {
    int kind = (int)(ki_threefry(99, seed) % 3);
    for (int64_t i = 0; i < port_size(p); i++) {
        uint64_t r = ki_threefry((uint64_t)i, seed);
        double u = (double)(r >> 11) * 0x1p-53, v = floor(9 * u) - 4;
        if (ki_is_float(p->dtype) && kind) v = kind == 1 ? 4 * u - 2 : (u - 0.5) * ldexp(1, (int)(r % 12));
        if (!ki_is_float(p->dtype) && kind == 2) v = (u - 0.5) * ldexp(1, (int)(r % ki_dtypes[p->dtype].bits));
        ki_storage_put(p->dtype, data, i,
                       ki_bits_from_f64(p->dtype, ki_is_uint(p->dtype) || p->dtype == KN_BOOL ? fabs(v) : v));
    }
}

/* The program of one output. */
static bool program_of(gen *g, kn_uop out, ki_program *p) {
    kn_uop *order;
    *p = (ki_program){.ir = &g->ir, .stage = KI_S_TENSOR, .root = ki_opn(&g->ir, KN_SINK, &out, 1)};
    int64_t n = p->root ? ki_toposort(&g->ir, &p->root, 1, &order) : -1;
    bool ok = n >= 0 && ki_program_port(p, true, "y", 1, out);
    for (int64_t i = 0; ok && i < n; i++)
        if (order[i]->op == KN_PARAM)
            ok = ki_program_port(p, false, order[i]->arg.param->name, order[i]->arg.param->len, order[i]);
    if (n >= 0) ki_free(order);
    return ok;
}

/* 0 agrees, 1 does not, -1 could not be lowered or run. */
static int at_stage(const ki_program *p, io *d, ki_stage s, char *why, size_t room) {
    ki_env env;
    ki_ir ir;
    ki_program q = {0};
    const void *in[MOST];
    void *out[1] = {d->got};
    int r = 0;
    if (!ki_env_open(&env) || !ki_ir_open(&ir, &env)) return -1;
    memset(d->got, 0x5a, BYTES);
    bool ok = ki_lower(p, &ir, s, &(ki_lower_opts){.machine.threads = 2}, &q);
    for (size_t i = 0; ok && i < q.nin; i++) {
        in[i] = NULL;
        for (size_t k = 0; k < p->nin; k++)
            if (!strcmp(p->in[k].name, q.in[i].name)) in[i] = d->in[k];
        ok = in[i] != NULL;
    }
    ok = ok && ki_eval(&q, in, out, NULL) == KI_OK;
    ki_agreement a;
    if (!ok) {
        snprintf(why, room, "%s: %s", ki_stage_names[s], env.message.s ? env.message.s : "ports differ");
        r = -1;
    } else if (!ki_agree(p->out[0].dtype, port_size(&p->out[0]), d->got, d->want, d->bound, 0, &a) && a.wrong) {
        snprintf(why, room, "%s: %lld of %lld wrong; element %lld is %.9g, want %.9g within %.3g", ki_stage_names[s],
                 (long long)a.wrong, (long long)a.n, (long long)a.first, a.got, a.want, a.bound);
        r = 1;
    }
    ki_program_free(&q);
    ki_ir_close(&ir);
    ki_env_close(&env);
    return r;
}

static long elements, exempt, covered[KI_OP_COUNT];

static int check(gen *g, kn_uop out, io *d, ki_stage last, char *why, size_t room, bool count) {
    ki_program p;
    void *want[1] = {d->want};
    double *bound[1] = {d->bound};
    int r = -1;
    if (!program_of(g, out, &p)) {
        snprintf(why, room, "%s", g->env.message.s);
        return -1;
    }
    for (size_t i = 0; i < p.nin; i++) fill(&p.in[i], d->in[i], g->seed + (uint64_t)p.in[i].name[1]);
    ki_eval_opts o = {.bound = bound};
    if (ki_eval(&p, (const void *const *)d->in, want, &o) != KI_OK) snprintf(why, room, "tensor: %s", g->env.message.s);
    else r = 0;
    for (int64_t i = 0; count && r == 0 && i < port_size(&p.out[0]); i++) elements++, exempt += d->bound[i] == INFINITY;
    for (int s = KI_S_CALLIFY; r == 0 && s <= (int)last; s++) r = at_stage(&p, d, (ki_stage)s, why, room);
    ki_program_free(&p);
    return r;
}

static void show(gen *g, kn_uop u) {
    ki_program p;
    ki_text t = {0};
    if (program_of(g, u, &p) && ki_print(&p, &t)) {
        printf("# ");
        for (char *c = t.s; *c; c++) printf(*c == '\n' && c[1] ? "\n# " : "%c", *c);
    }
    ki_text_free(&t);
    ki_program_free(&p);
}

static bool one(uint64_t seed, io *d, ki_stage last) {
    static gen g;
    char why[1024] = "";
    bool ok = generate(&g, seed);
    kn_uop out = ok ? g.v[g.n - 1] : NULL;
    if (ok && check(&g, out, d, last, why, sizeof why, true)) {
        ok = false;
        for (int i = 0; i < g.n; i++) { /* the first value that fails is the smallest program */
            char w[1024] = "";
            ki_env_clear(&g.env);
            if (!check(&g, g.v[i], d, last, w, sizeof w, false)) continue;
            out = g.v[i];
            memcpy(why, w, sizeof why);
            break;
        }
        printf("# seed %llu: %s\n", (unsigned long long)seed, why);
        ki_env_clear(&g.env);
        show(&g, out);
    }
    for (int i = 0; i < g.n; i++) covered[g.v[i]->op]++;
    ki_ir_close(&g.ir);
    ki_env_close(&g.env);
    return ok;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 300, bad = 0;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    ki_stage last = KI_S_RENDER;
    for (int s = 0; argc > 3 && s < KI_S_COUNT; s++)
        if (!strcmp(argv[3], ki_stage_names[s])) last = (ki_stage)s;
    io d;
    for (int i = 0; i < MOST; i++) d.in[i] = calloc(1, BYTES);
    d.want = calloc(1, BYTES), d.got = calloc(1, BYTES), d.bound = calloc(BYTES, sizeof(double));
    for (int i = 0; i < count && bad < 20; i++) bad += !one(first + (uint64_t)i, &d, last);
    CHECK(!bad, "%d random programs agree at every stage", count);
    CHECK(exempt * 20 <= elements, "%ld of %ld elements exempt", exempt, elements);
    int missing = 0;
    for (int op = 0; op < KI_OP_COUNT && count >= 2000; op++)
        if (ki_is_elementwise((kn_op)op) && !covered[op]) missing++, printf("# never made: %s\n", ki_ops[op].name);
    CHECK(!missing, "every elementwise op was made");
    for (int i = 0; i < MOST; i++) free(d.in[i]);
    free(d.want), free(d.got), free(d.bound);
    return tap_done();
}
