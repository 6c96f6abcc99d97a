/* A program for running, whose kernels are rendered one by one as soon as they are lists, is the program that is rendered stage by
 * stage: the same bytes, called with the same memory. */
#include "stages/stages.h"
#include "base/cpuid.h"
#include "../tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_arg(kn_uop a, kn_uop b) {
    if (a->op != b->op || a->dtype != b->dtype) return false;
    if (a->op == KN_BUFFER) return a->arg.buffer->size == b->arg.buffer->size;
    if (a->op == KN_SLICE) return a->arg.i == b->arg.i && a->src[1]->arg.i == b->src[1]->arg.i;
    return a->op == KN_PARAM ? strcmp(a->arg.param->name, b->arg.param->name) == 0 : a->arg.bits == b->arg.bits;
}

static bool same_code(kn_uop a, kn_uop b) {
    if (a->op != b->op || a->op != KN_PROGRAM) return a->op == b->op;
    const ki_bytes *x = a->src[1]->arg.str, *y = b->src[1]->arg.str;
    return x->n == y->n && memcmp(x->s, y->s, x->n) == 0 && a->arg.kernel->threads == b->arg.kernel->threads;
}

static const char *compare(const ki_program *a, const ki_program *b, unsigned *kernels) {
    if (a->root->nsrc != b->root->nsrc) return "as many calls";
    for (uint32_t i = 0; i < a->root->nsrc; i++) {
        kn_uop x = a->root->src[i], y = b->root->src[i];
        if (x->nsrc != y->nsrc || !same_code(x->src[0], y->src[0])) return "the same code";
        *kernels += x->src[0]->op == KN_PROGRAM;
        for (uint32_t k = 1; k < x->nsrc; k++)
            if (!same_arg(x->src[k], y->src[k])) return "the same arguments";
    }
    return NULL;
}

static void try(const char *name, const char *text, size_t n, const char *level) {
    ki_env env;
    ki_ir in, ir[2];
    ki_program p = {0}, out[2] = {{0}};
    unsigned kernels = 0;
    const ki_target *t = ki_target_native(level);
    bool ok = ki_env_open(&env) && ki_ir_open(&in, &env) && ki_ir_open(&ir[0], &env) && ki_ir_open(&ir[1], &env) &&
              ki_parse(&in, name, text, n, &p);
    for (int k = 0; k < 2 && ok; k++)
        ok = ki_lower(&p, &ir[k], KI_S_RENDER, &(ki_lower_opts){.target = t, .machine.threads = 2, .rough = k == 1},
                      &out[k]);
    CHECK(ok, "%s, %s: %s", name, level, ok ? "lowered both ways" : env.message.s);
    if (!ok) return;
    const char *differs = compare(&out[0], &out[1], &kernels);
    CHECK(!differs && kernels, "%s, %s: %s, %u kernels", name, level, differs ? differs : "the same", kernels);
    CHECK(out[1].root->src[0]->src[0]->src[0]->nsrc == 0, "%s: its lists stay behind", name);
    for (int k = 0; k < 2; k++) ki_program_free(&out[k]), ki_ir_close(&ir[k]);
    ki_program_free(&p);
    ki_ir_close(&in);
    ki_env_close(&env);
}

int main(void) {
    setenv("KN_VERIFY", "0", 1); /* who looks at the stages sees them one by one */
    static const char *const file[] = {"attention", "conv", "softmax", "layernorm", "scatter", "cumsum"},
                             *const level[] = {"sse2", "avx2", "avx512"};
    /* Two kernels that are one, called with the variables in other places. */
    static const char variables[] = "koine 1 tensor\n"
                                    "%x = param \"x\" : f32 [512, 256]\n"
                                    "%n = param \"n\" bounds=[0, 9] : index\n"
                                    "%m = param \"m\" bounds=[0, 9] : index\n"
                                    "%a = cast %n : f32\n"
                                    "%b = cast %m : f32\n"
                                    "%y = mul %x %a\n"
                                    "%s = reduce add %y axes=(0)\n"
                                    "%e = expand %s (512, 256)\n"
                                    "%z = mul %e %b\n"
                                    "%t = reduce add %z axes=(1)\n"
                                    "out \"t\" = %t\n";
    for (unsigned l = 0; l < 3; l++) {
        for (unsigned k = 0; k < sizeof file / sizeof *file; k++) {
            static char text[1 << 16];
            char path[256];
            snprintf(path, sizeof path, "examples/%s.kn", file[k]);
            FILE *f = fopen(path, "rb");
            size_t n = f ? fread(text, 1, sizeof text, f) : 0;
            if (f) fclose(f);
            try(path, text, n, level[l]);
        }
        try("variables", variables, sizeof variables - 1, level[l]);
    }
    return tap_done();
}
