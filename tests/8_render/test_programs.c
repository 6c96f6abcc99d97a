/* test_programs.c: tensor programs (examples/, and those below) lowered to C by the whole pipeline, compiled, run, and
 * compared with the interpreter on the tensor program; the interpreter also runs the stages select, linearize and plan.
 * Arguments: .kn files to take instead. */
#include "harness.h"
#include "ir/agree.h"
#include "ir/eval.h"
#include "ir/scalar.h"
#include "rules/rules.h"
#include "stages/3_optimize/optimize.h"
#include "stages/stages.h"

#include "rules.h"

#include <glob.h>

enum { MOST = 64 };

static const char *const programs[] = {
    "koine 1 tensor\n%x = param \"x\" : f32 [6, 37] in [-4, 4]\n%r = reduce max %x axes=(1)\n%b = expand %r (6, "
    "37)\n%d = sub %x %b\n%e = exp %d\n"
    "%s = reduce add %e axes=(1)\n%t = expand %s (6, 37)\n%y = div %e %t\nout \"y\" = %y\n",
    "koine 1 tensor\n%a = param \"a\" : f32 [33, 65] in [-2, 2]\n%b = param \"b\" : f32 [65, 48] in [-2, 2]\n%c = "
    "reshape %a (33, 65, 1)\n%d = reshape %b (1, 65, 48)\n"
    "%e = expand %c (33, 65, 48)\n%f = expand %d (33, 65, 48)\n%m = mul %e %f\n%s = reduce add %m axes=(1)\n%y = "
    "reshape %s (33, 48)\nout \"y\" = %y\n",
    "koine 1 tensor\n%x = param \"x\" : f16 [64, 32] in [-4, 4]\n%y = param \"y\" : bf16 [64, 32] in [-4, 4]\n%a = "
    "cast %x : f32\n%b = cast %y : f32\n%c = tanh %a\n%d = mul %c %b\n"
    "%e = cast %d : bf16\n%f = exp %x\nout \"e\" = %e\nout \"f\" = %f\n",
    "koine 1 tensor\n%x = param \"x\" : i32 [100] in [-50, 50]\n%y = param \"y\" : i32 [100] in [-3, 3]\n%a = idiv %x "
    "%y\n%b = mod %x %y\n%c = lt %a %b\n%d = cast %c : u8\n%e = max %a %b\n"
    "out \"a\" = %a\nout \"b\" = %b\nout \"d\" = %d\nout \"e\" = %e\n",
    "koine 1 tensor\n%x = param \"x\" : f32 [20, 30] in [-2, 2]\n%p = pad %x (1, 2) (23, 35)\n%t = permute %p "
    "order=(1, 0)\n%f = flip %t axes=(0)\n%s = reduce add %f axes=(0)\n%l = log2 %x\n%g = erf %x\n"
    "%h = mul %l %g\nout \"t\" = %f\nout \"s\" = %s\nout \"h\" = %h\n",
    "koine 1 tensor\n%x = param \"x\" : bool [70]\n%y = param \"y\" : bool [70]\n%a = and %x %y\n%b = not %a\n%c = xor "
    "%b %x\n%n = cast %c : i64\n%s = reduce add %n axes=(0)\nout \"c\" = %c\nout \"s\" = %s\n",
    "koine 1 tensor\n%x = param \"x\" : f64 [7, 19] in [-3, 3]\n%e = exp %x\n%q = sqrt %e\n%s = reduce mul %q axes=(0, "
    "1)\n%m = reduce max %x axes=(0)\nout \"s\" = %s\nout \"m\" = %m\n",
};

static void *array(const ki_port *p) {
    size_t n = 1;
    for (unsigned k = 0; k < p->rank; k++) n *= (size_t)p->dim[k];
    return calloc(n + 64, ki_itemsize(p->dtype) ? ki_itemsize(p->dtype) : 1);
}
static int64_t count(const ki_port *p) {
    int64_t n = 1;
    for (unsigned k = 0; k < p->rank; k++) n *= p->dim[k];
    return n;
}

/* Values in the port's range; variables and indices whole. */
static void fill(const ki_port *p, void *a) {
    static uint64_t seed = 12345;
    double lo = p->ranged             ? p->lo
                : p->dtype == KN_BOOL ? 0
                                      : -4,
           hi = p->ranged             ? p->hi
                : p->dtype == KN_BOOL ? 1.99
                                      : 4;
    if (!p->ranged && ki_is_uint(p->dtype)) lo = 0;
    for (int64_t i = 0; i < count(p); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        double v = lo + (hi - lo) * (double)(seed >> 40) / (double)(1 << 24);
        uint64_t bits = ki_is_float(p->dtype) ? ki_bits_from_f64(p->dtype, v)
                        : p->dtype == KN_BOOL ? v >= 1
                                              : ki_bits_wrap(p->dtype, (int64_t)floor(v + 0.5));
        ki_storage_put(p->dtype, a, i, bits);
    }
}

/* ---- running the rendered form ---- */

typedef struct memory {
    kn_uop buffer;
    void *data;
} memory;
static memory mem[1024];
static int nmem;

static void *storage(kn_uop b) {
    if (b->op == KN_SLICE) {
        char *base = storage(b->src[0]);
        return base + (size_t)b->src[1]->arg.i * ki_itemsize((kn_dtype)b->src[0]->dtype);
    }
    for (int k = 0; k < nmem; k++)
        if (mem[k].buffer == b) return mem[k].data;
    void *p = NULL;
    if (b->op != KN_BUFFER || posix_memalign(&p, 64, (size_t)b->arg.buffer->size * 8 + 64)) return NULL;
    memset(p, 0xa5, (size_t)b->arg.buffer->size * ki_itemsize((kn_dtype)b->dtype));
    mem[nmem++] = (memory){b, p};
    return p;
}

static bool launch(void *lib, kn_uop call, const ki_program *p, void *const *in) {
    kn_uop program = call->src[0];
    if (program->op != KN_PROGRAM) return false;
    kernel_fn *f = (kernel_fn *)(uintptr_t)dlsym(lib, ki_kernel_name(program->arg.kernel));
    void *buf[256];
    int64_t var[16];
    int nbuf = 0, nvar = 0;
    for (uint32_t k = 1; k < call->nsrc; k++) {
        if (call->src[k]->op == KN_PARAM) {
            for (size_t i = 0; i < p->nin; i++)
                if (p->in[i].node == call->src[k]) var[nvar++] = (int64_t)ki_storage_get(p->in[i].dtype, in[i], 0);
        } else if (!(buf[nbuf++] = storage(call->src[k]))) {
            return false;
        }
    }
    uint32_t threads = program->arg.kernel->threads;
    for (uint32_t t = 0; t < (threads ? threads : 1) && f; t++) f(buf, var, (int64_t)t);
    return f != NULL;
}

/* Names must differ in one file: each kernel gets a file of its own. */
static bool run_c(const ki_program *p, const ki_target *t, void *const *in, void *const *out, const char *name) {
    bool ok = true;
    nmem = 0;
    for (size_t i = 0; i < p->nin; i++) {
        void *to = p->in[i].node && p->in[i].node->op == KN_BUFFER ? storage(p->in[i].node) : NULL;
        if (to) memcpy(to, in[i], (size_t)count(&p->in[i]) * ki_itemsize(p->in[i].dtype));
    }
    for (uint32_t k = 0; k < p->root->nsrc && ok; k++) {
        char c[80], so[80], cmd[512];
        kn_uop call = p->root->src[k];
        snprintf(c, sizeof c, "/tmp/kn_prog_%d.c", (int)getpid());
        snprintf(so, sizeof so, "/tmp/kn_prog_%d_%u.so", (int)getpid(), k);
        FILE *f = fopen(c, "w");
        if (!f || call->src[0]->op != KN_PROGRAM) return false;
        const ki_bytes *text = call->src[0]->src[1]->arg.str;
        fwrite(text->s, 1, text->n, f);
        fclose(f);
        if (getenv("SHOW")) printf("%s\n", strstr(text->s, "\nvoid "));
        snprintf(cmd, sizeof cmd, "cc %s %s -O1 -fPIC -shared %s -o %s -lm", KI_C_FLAGS, t->cflags, c, so);
        void *lib = system(cmd) == 0 ? dlopen(so, RTLD_NOW | RTLD_LOCAL) : NULL;
        ok = lib && launch(lib, call, p, in);
        if (!ok) printf("# kernel %u of %s did not run\n", k, name);
        unlink(so);
        unlink(c);
        if (lib) dlclose(lib);
    }
    for (size_t i = 0; i < p->nout && ok; i++)
        memcpy(out[i], storage(p->out[i].node), (size_t)count(&p->out[i]) * ki_itemsize(p->out[i].dtype));
    for (int k = 0; k < nmem; k++) free(mem[k].data);
    return ok;
}

/* ---- random OptOps ---- */

static uint32_t dice(uint32_t n) {
    static uint32_t s = 2463534242u;
    s ^= s << 13, s ^= s >> 17, s ^= s << 5;
    return s % n;
}

/* A few splits of the kernel's ranges into lanes, threads and blocks; what is refused is left out. */
static kn_uop shake(ki_ir *store, kn_uop sink) {
    static const int factors[] = {2, 3, 4, 5, 8, 16, 6, 32};
    for (int tries = 0, lanes = 1; tries < 6 && lanes < 64; tries++) {
        kn_uop *node, r = NULL;
        int64_t n = ki_toposort(store, &sink, 1, &node), seen = 0;
        for (int64_t i = 0; i < n; i++)
            if (node[i]->op == KN_RANGE && dice((uint32_t)++seen) == 0) r = node[i];
        ki_free(node);
        if (!r) return sink;
        kn_axis from = (kn_axis)r->arg.range.axis;
        ki_opt o = {.op = KI_OPT_SPLIT,
                    .axis = (int32_t)r->arg.range.id,
                    .arg = factors[dice(8)],
                    .id = -1,
                    .target = (uint8_t)(from == KN_AX_REDUCE ? KN_AX_UNROLL : KN_AX_UPCAST)};
        if (dice(6) == 0) o.target = (uint8_t)from;
        if (dice(5) == 0) o.op = KI_OPT_PADTO;
        kn_uop next = ki_apply_opt(store, sink, o);
        if (next) sink = next;
        else ki_env_clear(store->env);
    }
    kn_uop done = ki_apply_opts(store, sink, NULL, 0);
    if (!done) ki_env_clear(store->env);
    return done ? done : sink;
}

/* Lowers to rangeify, shakes every kernel, lowers the rest. */
static bool lower_shaken(const ki_program *p, ki_ir *low, const ki_lower_opts *o, ki_program *q) {
    ki_ir middle;
    ki_program r = {0};
    if (!ki_ir_open(&middle, low->env)) return false;
    bool ok = ki_lower(p, &middle, KI_S_RANGEIFY, o, &r);
    kn_uop call[256], src[256];
    if (ok) {
        for (uint32_t k = 0; k < r.root->nsrc && k < 256; k++) {
            kn_uop c = r.root->src[k];
            memcpy(src, c->src, c->nsrc * sizeof *src);
            if (src[0]->op == KN_SINK) src[0] = shake(&middle, src[0]);
            call[k] = ki_with_src(&middle, c, src);
        }
        r.root = ki_opn(&middle, KN_LINEAR, call, r.root->nsrc);
        r.stage = KI_S_OPTIMIZE;
        ok = r.root && ki_lower(&r, low, KI_S_RENDER, o, q);
    }
    ki_program_free(&r);
    ki_ir_close(&middle);
    return ok;
}

/* ---- one program ---- */

static bool compare(const ki_program *p, void *const *got, void *const *want, double *const *bound, const char *what) {
    bool ok = true;
    for (size_t i = 0; i < p->nout && ok; i++) {
        ki_agreement r;
        ok = ki_agree(p->out[i].dtype, count(&p->out[i]), got[i], want[i], bound[i], 4, &r);
        if (!ok)
            printf("# %s, output %s: element %d is %.9g, not %.9g (bound %.3g); %d of %d wrong, %d exempt\n", what,
                   p->out[i].name, (int)r.first, r.got, r.want, r.bound, (int)r.wrong, (int)r.n, (int)r.exempt);
    }
    return ok;
}

/* A lowered program against the spec of its stage. */
static bool verify(const ki_program *q, const char *name) {
    const ki_ruleset *const kernel[] = {&ki_rules_spec_select, &ki_rules_spec_linearize}, *const plan[] = {
                                                                                              &ki_rules_spec_plan};
    bool ok = q->stage < KI_S_PLAN || ki_verify(q->ir, q->root, plan, 1, true, NULL, name);
    for (uint32_t k = 0; k < q->root->nsrc && ok; k++) {
        kn_uop body = q->root->src[k]->src[0];
        if (body->op == KN_SINK) ok = ki_verify(q->ir, body, kernel, q->stage == KI_S_SELECT ? 1 : 2, true, NULL, name);
    }
    return ok;
}

static void complain(ki_env *e, const char *name, const char *what) {
    printf("# %s: %s: %s\n", name, what, e->message.s ? e->message.s : "?");
    ki_env_clear(e);
}

static int shakes = 1;

static void one(const char *name, const char *text, const ki_target *t, unsigned threads) {
    ki_program p = {0}, q = {0};
    ki_ir low;
    void *in[MOST], *out[MOST], *want[MOST];
    double *bound[MOST];
    ki_ir_close(ir);
    if (!ki_ir_open(ir, &env)) return;
    if (!ki_parse(ir, name, text, strlen(text), &p)) {
        complain(&env, name, "parse");
        CHECK(0, "%s parses", name);
        return;
    }
    for (size_t i = 0; i < p.nin; i++) fill(&p.in[i], in[i] = array(&p.in[i]));
    for (size_t i = 0; i < p.nout; i++)
        out[i] = array(&p.out[i]), want[i] = array(&p.out[i]),
        bound[i] = calloc((size_t)count(&p.out[i]) + 1, sizeof(double));
    bool ok = ki_eval(&p, (const void *const *)in, want, &(ki_eval_opts){.bound = bound}) == KI_OK;
    if (!ok) complain(&env, name, "interpreter");
    ki_lower_opts o = {.target = t,
                       .machine.threads = threads,
                       .machine.stream = threads > 1}; /* past the caches, whatever its size */
    static const ki_stage stops[] = {KI_S_EXPAND, KI_S_SELECT, KI_S_LINEARIZE, KI_S_PLAN};
    for (int k = 0; k < 4 && ok && !getenv("ONLY_C"); k++) {
        if (!ki_ir_open(&low, &env)) return;
        ok = ki_lower(&p, &low, stops[k], &o, &q);
        if (!ok) complain(&env, name, ki_stage_names[stops[k]]);
        if (ok && stops[k] >= KI_S_SELECT && !verify(&q, name)) ok = false, complain(&env, name, "spec");
        const void *from[MOST];
        for (size_t i = 0; ok && i < q.nin; i++) { /* ports of the lowered program by name */
            from[i] = NULL;
            for (size_t j = 0; j < p.nin; j++)
                if (strcmp(q.in[i].name, p.in[j].name) == 0) from[i] = in[j];
        }
        if (ok && ki_eval(&q, from, out, NULL) != KI_OK) ok = false, complain(&env, name, ki_stage_names[stops[k]]);
        if (ok) ok = compare(&q, out, want, bound, ki_stage_names[stops[k]]);
        ki_program_free(&q);
        ki_ir_close(&low);
    }
    for (int turn = 0; turn <= shakes && ok && ki_ir_open(&low, &env); turn++) {
        ok = turn ? lower_shaken(&p, &low, &o, &q) : ki_lower(&p, &low, KI_S_RENDER, &o, &q);
        if (!ok) complain(&env, name, "render");
        void *from[MOST];
        for (size_t i = 0; ok && i < q.nin; i++) {
            from[i] = NULL;
            for (size_t j = 0; j < p.nin; j++)
                if (strcmp(q.in[i].name, p.in[j].name) == 0) from[i] = in[j];
        }
        ok = ok && run_c(&q, t, from, out, name) && compare(&q, out, want, bound, turn ? "C, shaken" : "C");
        ki_program_free(&q);
        ki_ir_close(&low);
    }
    CHECK(ok, "%s on %s, %u threads", name, t->name, threads);
    for (size_t i = 0; i < p.nin; i++) free(in[i]);
    for (size_t i = 0; i < p.nout; i++) free(out[i]), free(want[i]), free(bound[i]);
    ki_program_free(&p);
}

static void file(const char *path, const ki_target *t, unsigned threads) {
    FILE *f = fopen(path, "r");
    static char text[1 << 20];
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    one(path, text, t, threads);
}

int main(int argc, char **argv) {
    if (!open_store()) return 1;
    const ki_target *host = ki_target_host(), *small = ki_target_named("sse2");
    if (getenv("SHAKES")) shakes = atoi(getenv("SHAKES"));
    if (argc > 1) {
        for (int k = 1; k < argc; k++) file(argv[k], host, 1);
    } else {
        for (size_t k = 0; k < sizeof programs / sizeof *programs; k++) {
            char name[32];
            snprintf(name, sizeof name, "program %d", (int)k);
            one(name, programs[k], host, 2);
            one(name, programs[k], small, 1);
        }
        glob_t g;
        if (glob("examples/*.kn", 0, NULL, &g) == 0)
            for (size_t k = 0; k < g.gl_pathc; k++) file(g.gl_pathv[k], host, 2);
        globfree(&g);
    }
    close_store();
    return tap_done();
}
