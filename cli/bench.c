/* bench.c: `koine bench`: how few kernels and bytes a program becomes, and how fast it is compiled. */
#include "cli.h"

#include "device/cpu/cpu.h"
#include "stages/stages.h"
#include "tensor/context.h"

#include "floor.h"
#include "net.h"
#include "rank.h"
#include "zoo/zoo.h"

#include <stdlib.h>
#include <string.h>

/* A program: outputs into out[], their number returned; and what it holds before its step is built. */
enum { MAX_OUT = 32 };
typedef struct built {
    kn_tensor own[MAX_OUT], *out;
    size_t n;
    net net;
    zoo zoo;
} built;

static kn_tensor in(kn_ctx *k, const char *name, kn_ints shape) { return kn_input(k, name, KN_F32, shape); }

static void one(built *b, kn_tensor t) { b->own[b->n++] = t; }

static void add(kn_ctx *k, built *b) {
    one(b, kn_add(in(k, "a", KN_SHAPE(4096, 4096)), in(k, "b", KN_SHAPE(4096, 4096))));
}
static void matmul(kn_ctx *k, built *b) {
    one(b, kn_matmul(in(k, "a", KN_SHAPE(1024, 1024)), in(k, "b", KN_SHAPE(1024, 1024))));
}
static void linear_relu(kn_ctx *k, built *b) {
    kn_tensor x = in(k, "x", KN_SHAPE(64, 1024)), w = in(k, "w", KN_SHAPE(1024, 1024)), c = in(k, "b", KN_SHAPE(1024));
    one(b, kn_relu(kn_linear(x, w, c)));
}
static void softmax(kn_ctx *k, built *b) { one(b, kn_softmax(in(k, "x", KN_SHAPE(4096, 4096)), -1)); }
static void layernorm(kn_ctx *k, built *b) {
    one(b, kn_layer_norm(in(k, "x", KN_SHAPE(4096, 4096)), 1, in(k, "w", KN_SHAPE(4096)), in(k, "b", KN_SHAPE(4096)),
                         1e-5));
}
static void attention(kn_ctx *k, built *b) {
    kn_ints s = KN_SHAPE(1, 12, 128, 64);
    one(b, kn_attention(in(k, "q", s), in(k, "k", s), in(k, "v", s), NULL, 0, 0));
}
static void embedding(kn_ctx *k, built *b) {
    one(b, kn_embedding(in(k, "w", KN_SHAPE(50257, 768)), kn_input(k, "i", KN_I32, KN_SHAPE(1024))));
}
static void conv_bn(kn_ctx *k, built *b) {
    kn_tensor x = in(k, "x", KN_SHAPE(1, 64, 56, 56)), w = in(k, "w", KN_SHAPE(64, 64, 3, 3));
    kn_ints c = KN_SHAPE(64);
    kn_tensor y = kn_conv2d(x, w, NULL, 1, 1, 1, 1);
    one(b, kn_relu(kn_batch_norm(y, in(k, "mean", c), in(k, "var", c), in(k, "g", c), in(k, "b", c), 1e-5)));
}
static void digits_step(kn_ctx *k, built *b) {
    (void)k;
    net *n = &b->net;
    one(b, net_build(n));
    const kn_tensor *state;
    size_t count = kn_optim_state(n->adam, &state);
    for (size_t i = 0; i < count && b->n < MAX_OUT; i++) one(b, state[i]);
}

static const struct {
    const char *name;
    void (*build)(kn_ctx *k, built *b);
} programs[] = {
    {"add", add},
    {"matmul", matmul},
    {"linear_relu", linear_relu},
    {"softmax", softmax},
    {"layernorm", layernorm},
    {"attention", attention},
    {"embedding", embedding},
    {"conv_bn", conv_bn},
    {"digits_step", digits_step},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* Programs by number: those above, then the zoo's. */
static const char *name_of(int i) { return i < PROGRAMS ? programs[i].name : zoo_models[i - PROGRAMS].name; }

/* What must be there before the step is built: its parameters. */
static kn_status hold(kn_ctx *k, int i, built *b) {
    if (i >= PROGRAMS) return zoo_open(&b->zoo, k, &zoo_models[i - PROGRAMS], 0, false);
    return programs[i].build == digits_step ? net_open(&b->net, k, 1, 28, 28, 10, 128) : KN_OK;
}
static kn_status build(kn_ctx *k, int i, built *b) {
    b->out = b->own;
    if (i < PROGRAMS) programs[i].build(k, b);
    else if (!zoo_step(&b->zoo, &b->out, &b->n)) return kn_error(k) ? kn_error(k) : KN_NOMEM;
    return KN_OK;
}
static void let_go(built *b) {
    if (b->out != b->own) free(b->out);
    net_close(&b->net);
    zoo_close(&b->zoo);
}

/* One program in a context of its own. */
typedef struct sample {
    double seconds;
    int64_t kernels, bytes, floor;
} sample;

static void note_moved(void *user, kn_uop memory, int64_t read, int64_t written) {
    if (memory->op == KN_SLICE) memory = memory->src[0]; /* a part of it */
    moved_add(user, MOVED_SCHEDULE, ki_numel(memory) * (int64_t)ki_itemsize((kn_dtype)memory->dtype), read, written);
}

/* begun: when the tensor calls were. m: NULL, or gets which memory is moved. */
static kn_status lower(kn_ctx *k, const built *b, ki_stage to, double begun, sample *s, moved *m) {
    ki_plan plan;
    bool planned = ki_plan_open(k, b->out, b->n, &plan) && ki_plan_program(k, &plan);
    if (!planned) return ki_plan_close(&plan), (kn_status)ki_settle_failure(k);
    ki_ir ir, tensors;
    ki_program out = {0}, function = {0};
    ki_lower_opts o = {.machine = ki_cpu_machine(&k->env), .rough = true, .target = ki_target_chosen(&k->env, false)};
    bool ok = o.target && ki_ir_open(&ir, &k->env);
    ok = ok && ki_lower(&plan.program, &ir, to, &o, &out);
    s->seconds = cli_now() - begun;
    if (ok) {
        ki_traffic t = ki_count_traffic(&out, m ? note_moved : NULL, m);
        s->kernels = t.kernels;
        s->bytes = t.bytes;
    }
    ki_program_free(&out);
    ki_ir_close(&ir);
    if (ok && to == KI_S_RANGEIFY && ki_ir_open(&tensors, &k->env)) {
        if (ki_lower(&plan.program, &tensors, KI_S_CALLIFY, &o, &function)) s->floor = floor_bytes(&function, m);
        ki_program_free(&function);
        ki_ir_close(&tensors);
    }
    ki_plan_close(&plan);
    return (kn_status)ki_settle_failure(k);
}

/* From tensor calls to stage `to`, in a fresh context on NULL. */
static int measure(cli *c, int i, ki_stage to, sample *s, moved *m) {
    kn_ctx *k = kn_open("NULL");
    if (!k) return cli_fail(c, "out of memory");
    built b = {.n = 0};
    kn_status st = kn_error(k);
    if (!st) st = hold(k, i, &b);
    if (!st) {
        double begun = cli_now();
        kn_scope_open(k);
        st = build(k, i, &b);
        if (!st) st = lower(k, &b, to, begun, s, m);
        kn_scope_close(k);
    }
    int rc = st ? cli_fail(c, "%s: %s", name_of(i), kn_message(k)) : CLI_OK;
    let_go(&b);
    kn_close(k);
    return rc;
}

/* The tensor program as text: for `koine compile -`. */
static int bench_text(cli *c, int i) {
    kn_ctx *k = kn_open("NULL");
    if (!k) return cli_fail(c, "out of memory");
    built b = {.n = 0};
    ki_plan plan;
    ki_text t = {0};
    kn_status st = kn_error(k);
    if (!st) st = hold(k, i, &b);
    if (!st) st = build(k, i, &b);
    if (!st && ki_plan_open(k, b.out, b.n, &plan) && ki_plan_program(k, &plan)) {
        if (ki_print(&plan.program, &t)) fputs(t.s ? t.s : "", stdout);
        ki_plan_close(&plan);
    }
    st = st ? st : (kn_status)ki_settle_failure(k);
    int rc = st ? cli_fail(c, "%s: %s", name_of(i), kn_message(k)) : CLI_OK;
    ki_text_free(&t);
    let_go(&b);
    kn_close(k);
    return rc;
}

/* The program's kernels, for rank.h. */
static int bench_model(cli *c, int i) {
    kn_ctx *k = kn_open("CPU");
    if (!k) return cli_fail(c, "out of memory");
    built b = {.n = 0};
    ki_plan plan;
    ki_ir ir;
    ki_program low = {0};
    int rc = CLI_OK;
    kn_status st = kn_error(k);
    if (!st) st = hold(k, i, &b);
    if (!st) st = build(k, i, &b);
    if (!st && ki_plan_open(k, b.out, b.n, &plan) && ki_plan_program(k, &plan)) {
        if (ki_ir_open(&ir, &k->env) && ki_lower(&plan.program, &ir, KI_S_RANGEIFY, NULL, &low))
            rc = rank_kernels(c, name_of(i), &k->env, &low);
        ki_program_free(&low);
        ki_ir_close(&ir);
        ki_plan_close(&plan);
    }
    st = st ? st : (kn_status)ki_settle_failure(k);
    if (st) rc = cli_fail(c, "%s: %s", name_of(i), kn_message(k));
    let_go(&b);
    kn_close(k);
    return rc;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench_kernels(cli *c, int i) {
    sample s = {0};
    moved m = {0};
    bool list = cli_has(c, "memory");
    if (measure(c, i, KI_S_RANGEIFY, &s, list ? &m : NULL)) return moved_free(&m), CLI_FAILED;
    if (c->json) cli_json(stdout, "s program, i kernels, i bytes, i floor", name_of(i), s.kernels, s.bytes, s.floor);
    else
        printf("%-16s %3lld kernels  %12lld bytes  %12lld floor  %.3f\n", name_of(i), (long long)s.kernels,
               (long long)s.bytes, (long long)s.floor, s.floor ? (double)s.bytes / (double)s.floor : 0);
    if (m.failed) return moved_free(&m), cli_fail(c, "out of memory");
    if (list) moved_print(c, name_of(i), &m);
    moved_free(&m);
    return CLI_OK;
}

static int bench_compile(cli *c, int i) {
    enum { TIMES = 5 };
    double us[TIMES];
    sample s = {0};
    for (int t = 0; t < TIMES; t++) {
        if (measure(c, i, KI_S_RENDER, &s, NULL)) return CLI_FAILED;
        us[t] = 1e6 * s.seconds;
    }
    qsort(us, TIMES, sizeof *us, by_value);
    if (c->json) cli_json(stdout, "s program, d us, i kernels", name_of(i), us[TIMES / 2], s.kernels);
    else printf("%-16s %10.0f us  %3lld kernels\n", name_of(i), us[TIMES / 2], (long long)s.kernels);
    return CLI_OK;
}

static const struct {
    const char *name;
    int (*run)(cli *c, int i);
    bool zoo; /* without a name, the networks too */
} benches[] = {{"kernels", bench_kernels, true},
               {"compile", bench_compile, true},
               {"text", bench_text, true},
               {"model", bench_model, false}};

static int bench(cli *c) {
    size_t which = 0, n = sizeof benches / sizeof *benches;
    while (which < n && strcmp(c->operand[0], benches[which].name)) which++;
    if (which == n) return cli_usage(c, "no benchmark %s; there are kernels, compile, text and model", c->operand[0]);
    int rc = CLI_OK, matched = 0;
    for (int i = 0; name_of(i); i++) {
        bool wanted = c->noperand == 1 && (benches[which].zoo || i < PROGRAMS);
        for (int o = 1; o < c->noperand; o++) wanted |= strcmp(c->operand[o], name_of(i)) == 0;
        if (!wanted) continue;
        matched++;
        int one_rc = benches[which].run(c, i);
        if (one_rc) rc = one_rc;
        fflush(stdout);
    }
    if (matched < c->noperand - 1) {
        fputs("koine bench: no such program; there are", stderr);
        for (int i = 0; name_of(i); i++) fprintf(stderr, " %s", name_of(i));
        fputc('\n', stderr);
        return CLI_USAGE;
    }
    return rc;
}

static const cli_opt options[] = {
    {"json", NULL, "one object a line"},
    {"memory", NULL,
     "kernels: then how often memory of each size is written and read, and on the floor; what is most above it first"},
    {NULL, NULL, NULL},
};
const cli_verb cli_bench = {
    .name = "bench",
    .args = "kernels|compile|text|model [PROGRAM]... [--memory] [--json]",
    .summary = "measure the compiler",
    .text =
        "kernels: how many kernels each program becomes, the bytes they move (each buffer once for each kernel that "
        "reads "
        "it and for each that writes it), and the floor, which is worked out from the tensor program alone: inputs, "
        "outputs, and what must be stored, written once and read once for each kernel of the longest chain of values "
        "that "
        "read it and need each other. What must be stored: an operand that was computed by a sum and that another sum "
        "reads more than once; a sum that two stored values need of which one needs the other; a product and a sum "
        "over it "
        "along axes of both its sides, needed together. Values made element by element from each other are one "
        "kernel's.\n"
        "compile: microseconds from tensor calls to machine code (C text with KN_CODE=c), cold, in a fresh context on "
        "NULL; median of 5.\n"
        "text: the programs themselves, for `koine compile -`.\n"
        "model: how well the cost model that KN_BEAM searches by orders lists of OptOps: for each kernel the rank "
        "correlation with measured time (the networks only if they are named).\n"
        "Programs: add, matmul, linear_relu, softmax, layernorm, attention, embedding, conv_bn, digits_step; whole "
        "networks: "
        "resnet50_forward, resnet50_train, gpt2_forward, gpt2_train, gpt2_decode, llama_decode, "
        "vit_forward, vit_train, lstm_forward, lstm_train, unet_forward, unet_train, moe_forward, moe_train.",
    .opt = options,
    .least = 1,
    .most = 64,
    .run = bench,
};
