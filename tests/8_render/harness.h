/* harness.h: what the tests of stages 5 to 8 share: a store, short makers, and a kernel compiled and loaded. */
#ifndef HARNESS_H
#define HARNESS_H

#include "../tap.h"
#include "stages/6_linearize/linearize.h"
#include "stages/8_render/render.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void kernel_fn(void *const *buf, const int64_t *var, int64_t thread);

static ki_env env;
static ki_ir ir_, *ir = &ir_;

#define U  kn_uop
#define C(v)  ki_index(ir, (v))
#define F(v)  ki_const_float(ir, KN_F32, (v))
__attribute__((unused)) static U add(U a, U b) { return ki_op2(ir, KN_ADD, a, b); }
__attribute__((unused)) static U mul(U a, U b) { return ki_op2(ir, KN_MUL, a, b); }
__attribute__((unused)) static U lt(U a, U b) { return ki_op2(ir, KN_CMPLT, a, b); }
__attribute__((unused)) static U param(int slot, kn_dtype t, int64_t n) {
    return ki_param_make(ir, slot, t, KN_GLOBAL, 0, NULL, NULL, ki_shape_src(ir, &n, 1));
}
__attribute__((unused)) static U reg(kn_dtype t, int64_t n) { return ki_buffer_make(ir, ir->next_buffer++, n, t, KN_REG, 0); }
__attribute__((unused)) static U range(int64_t n) { return ki_range_make(ir, ir->next_range++, KN_AX_LOOP, C(n)); }
__attribute__((unused)) static U at(U buf, U i) { return ki_op2(ir, KN_INDEX, buf, i); }
__attribute__((unused)) static U load(U buf, U i) { return ki_op1(ir, KN_LOAD, at(buf, i)); }
__attribute__((unused)) static U store(U buf, U i, U v) { return ki_op2(ir, KN_STORE, at(buf, i), v); }
__attribute__((unused)) static U after1(U a, U b) { return ki_op2(ir, KN_AFTER, a, b); }
__attribute__((unused)) static U after2(U a, U b, U c) { return ki_op3(ir, KN_AFTER, a, b, c); }
__attribute__((unused)) static U end1(U body, U r) { return ki_op2(ir, KN_END, body, r); }
__attribute__((unused)) static U end2(U body, U r, U s) { return ki_op3(ir, KN_END, body, r, s); }
/* STACK(start, start + step, ...) of n index constants. */
__attribute__((unused)) static U iota(int n, int64_t start, int64_t step) {
    U s[128];
    for (int k = 0; k < n; k++) s[k] = C(start + k * step);
    return ki_opn(ir, KN_STACK, s, (uint32_t)n);
}
/* SINK of effects, named. */
__attribute__((unused)) static U sink(const char *name, const U *src, uint32_t n) {
    _Alignas(16) char raw[sizeof(ki_kernel) + 64] = {0};
    ki_kernel *k = (ki_kernel *)raw;
    k->len = (uint32_t)strlen(name);
    k->threads = 1;
    memcpy(raw + sizeof *k, name, k->len + 1);
    return ki_make(ir, KN_SINK, KN_VOID, src, n, (kn_arg){.p = ki_intern(ir, raw, sizeof *k + k->len + 1)}, 0);
}

/* Text of a kernel, compiled alone and loaded; NULL (with a TAP comment) on any failure. */
__attribute__((unused)) static kernel_fn *build(const ki_target *t, const char *cc, U kernel, const char *name) {
    ki_text text = {0};
    char c[64], so[64], cmd[512];
    static int count;
    U lin = kernel && kernel->op == KN_SINK && kernel->src[0]->op != KN_LINEAR ? ki_linearize(ir, kernel) : kernel;
    if (!lin || !ki_render_c(ir, t, lin, &text)) {
        printf("# %s\n", env.message.s ? env.message.s : "?");
        ki_env_clear(&env);
        ki_text_free(&text);
        return NULL;
    }
    snprintf(c, sizeof c, "/tmp/kn_%d_%d.c", (int)getpid(), count);
    snprintf(so, sizeof so, "/tmp/kn_%d_%d.so", (int)getpid(), count++);
    FILE *f = fopen(c, "w");
    if (!f) return NULL;
    fwrite(text.s, 1, text.n, f);
    fclose(f);
    if (getenv("SHOW")) printf("%s\n", strstr(text.s, "\nvoid "));
    ki_text_free(&text);
    snprintf(cmd, sizeof cmd, "%s %s %s -fPIC -shared %s -o %s -lm", cc, KI_C_FLAGS, t->cflags, c, so);
    void *lib = system(cmd) == 0 ? dlopen(so, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!lib) printf("# %s failed\n", cmd);
    if (lib) unlink(c);
    unlink(so);
    return lib ? (kernel_fn *)(uintptr_t)dlsym(lib, name) : NULL;
}

static inline bool have(const char *cc) {
    char cmd[128];
    snprintf(cmd, sizeof cmd, "command -v %s >/dev/null 2>&1", cc);
    return system(cmd) == 0;
}

static inline bool open_store(void) { return ki_env_open(&env) && ki_ir_open(ir, &env); }
static inline void close_store(void) {
    ki_ir_close(ir);
    ki_env_close(&env);
}

#endif
