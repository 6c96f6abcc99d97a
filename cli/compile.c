/* compile.c: `koine compile FILE.kn`: prints what a stage, or the C renderer, makes of a program. */
#include "cli.h"

#include "io/file.h"
#include "ir/history.h"
#include "program.h"
#include "stages/8_render/render.h"
#include "stages/8_render/x86/native.h"

#include <string.h>

/* What the registers were not enough for, and where that costs. */
static void print_counts(const ki_x86_counts *c) {
    static const char *const classes[] = {"general", "vector", "mask", "tile"};
    printf("#   %u instructions in %zu bytes, constants %zu bytes, frame %llu bytes\n#   registers:", c->instructions,
           c->code, c->pool, (unsigned long long)c->frame);
    for (unsigned k = 0; k < 4; k++)
        if (c->of[k]) printf("%s %u of %u %s", k ? "," : "", c->used[k], c->of[k], classes[k]);
    if (!c->spilled && !c->constants) {
        printf("; nothing spilled\n");
        return;
    }
    printf("\n#   spilled: %u values and %u constants; %u spills, %u reloads, %u constants loaded again; in innermost "
           "loops %u, %u, %u\n",
           c->spilled, c->constants, c->traffic[0], c->traffic[1], c->traffic[2], c->inner[0], c->inner[1],
           c->inner[2]);
}

static bool print_kernel(cli_program *p, const ki_target *t, kn_uop call) {
    ki_text listing = {0};
    ki_x86_text code;
    bool ok = (t = ki_render_target(p->env, t, call->src[0])) && ki_render_x86(p->out.ir, t, call, &code, &listing);
    if (ok) {
        printf("\n# %s: %zu bytes, %u values in memory\n", ki_kernel_name(call->src[0]->arg.kernel), code.n,
               code.spills);
        print_counts(&code.counts);
        fwrite(listing.s, 1, listing.n, stdout);
        ki_x86_text_free(&code);
    }
    ki_text_free(&listing);
    return ok;
}

/* Every distinct kernel's machine code as a listing, in the order of their first launch. */
static int print_listing(cli *c, cli_program *p) {
    const ki_target *t = ki_target_chosen(p->env, false);
    bool *seen = ki_calloc(p->out.root->id, sizeof *seen), ok = true;
    if (!seen) return cli_fail(c, "out of memory");
    printf("# %s, for the target x86 (%s).\n", strcmp(c->operand[0], "-") ? c->operand[0] : "standard input", t->name);
    for (uint32_t i = 0; i < p->out.root->nsrc && ok; i++) {
        kn_uop call = p->out.root->src[i], kernel = call->src[0];
        if ((kernel->op != KN_SINK && kernel->op != KN_PROGRAM) || seen[kernel->id]) continue;
        seen[kernel->id] = true;
        ok = print_kernel(p, t, call);
    }
    ki_free(seen);
    return ok ? CLI_OK : cli_program_failed(c, p);
}

/* The text of every distinct kernel, in the order of their first launch. */
static int print_source(cli *c, cli_program *p) {
    kn_uop *node;
    int64_t n = ki_toposort(p->out.ir, &p->out.root, 1, &node);
    if (n < 0) return cli_fail(c, "out of memory");
    printf("/* %s, for the target c. */\n", strcmp(c->operand[0], "-") ? c->operand[0] : "standard input");
    for (int64_t i = 0; i < n; i++)
        if (node[i]->op == KN_SOURCE) fwrite(node[i]->arg.str->s, 1, (size_t)node[i]->arg.str->n, stdout);
    ki_free(node);
    return CLI_OK;
}

static int print_text(cli *c, cli_program *p, const ki_program *what) {
    ki_text t = {0};
    if (!ki_print(what, &t) || t.oom) {
        ki_text_free(&t);
        return cli_program_failed(c, p);
    }
    fwrite(t.s, 1, t.n, stdout);
    ki_text_free(&t);
    return CLI_OK;
}

static int compile(cli *c) {
    const char *target = cli_str(c, "target", NULL);
    bool x86 = target && strcmp(target, "x86") == 0, source = target && !cli_has(c, "to");
    if (target && !x86 && strcmp(target, "c") != 0) return cli_usage(c, "no target %s; there are c and x86", target);
    ki_stage to = source ? KI_S_RENDER : cli_stage(c, cli_str(c, "to", "render"));
    if (to == KI_S_COUNT) return CLI_USAGE;
    cli_program p;
    int rc = CLI_FAILED;
    bool open = cli_program_open(c, &p, NULL);
    if (open && target && !ki_setting_set(p.env, KI_VAR_CODE, target)) open = (cli_program_failed(c, &p), false);
    bool asks = open && source && x86;
    if (asks) open = ki_history_open(p.env) || (cli_program_failed(c, &p), false);
    if (open && source && x86 && p.in.stage < to) to = KI_S_PLAN; /* the listing is made from the list itself */
    if (open) {
        if (to < p.in.stage)
            rc = cli_fail(c, "%s is at stage %s already, which comes after %s", c->operand[0],
                          ki_stage_names[p.in.stage], ki_stage_names[to]);
        else if (to == p.in.stage && !source) rc = print_text(c, &p, &p.in);
        else if (cli_program_lower(c, &p, to))
            rc = source ? (x86 ? print_listing : print_source)(c, &p) : print_text(c, &p, &p.out);
    }
    if (asks) ki_history_close(p.env);
    cli_program_close(&p);
    return rc;
}

static const cli_opt options[] = {
    {"to", "STAGE", "tensor, callify, rangeify, optimize, expand, select, linearize, plan or render (the default)"},
    {"target", "T",
     "what kernels are written in, c or x86, whatever KN_CODE says; without --to the source text is printed"},
    {NULL, NULL, NULL},
};
const cli_verb cli_compile = {
    .name = "compile",
    .args = "FILE.kn [--to STAGE] [--target c | x86]",
    .summary = "print what a stage makes of a program",
    .text =
        "FILE.kn is a program at any stage (- reads standard input); what is printed can be run, or compiled further.\n"
        "--target x86 lists machine code. Above each group of instructions stands the item of the list that they are "
        "for and by which "
        "rules it came to be, youngest first; behind each instruction the virtual registers it writes and reads (v7; "
        "v7* is in memory), "
        "what is spilled and reloaded. Each kernel begins with its counts: instructions, bytes, frame, registers, and "
        "what was spilled, in "
        "all and in innermost loops.",
    .opt = options,
    .least = 1,
    .most = 1,
    .run = compile,
};
