/* build.h: short names to build kernels by hand. For tests of stages 3 and 4; a test program has one store at a time. */
#ifndef BUILD_H
#define BUILD_H

#include "ir/uop.h"

static ki_ir ir;
static ki_env env;
static uint32_t next_id;

__attribute__((unused)) static kn_uop I(int64_t v) { return ki_index(&ir, v); }
__attribute__((unused)) static kn_uop add(kn_uop a, kn_uop b) { return ki_op2(&ir, KN_ADD, a, b); }
__attribute__((unused)) static kn_uop mul(kn_uop a, kn_uop b) { return ki_op2(&ir, KN_MUL, a, b); }
__attribute__((unused)) static kn_uop rng(kn_axis ax, int64_t n) { return ki_range_make(&ir, next_id++, ax, I(n)); }
__attribute__((unused)) static kn_uop param(int slot, kn_dtype t, int64_t n) {
    return ki_param_make(&ir, slot, t, KN_GLOBAL, 0, NULL, NULL, ki_shape_src(&ir, &n, 1));
}
__attribute__((unused)) static kn_uop at(kn_uop p, kn_uop i) { return ki_op2(&ir, KN_INDEX, p, i); }
__attribute__((unused)) static kn_uop store(kn_uop p, kn_uop i, kn_uop v) { return ki_op2(&ir, KN_STORE, at(p, i), v); }
__attribute__((unused)) static kn_uop reduce(kn_op op, kn_uop v, kn_uop a, kn_uop b) {
    kn_arg arg = {.bits = 0};
    arg.reduce.op = (uint8_t)op;
    return ki_make(&ir, KN_REDUCE, KN_VOID, (kn_uop[]){v, a, b}, b ? 3 : 2, arg, 0);
}
__attribute__((unused)) static kn_uop end(kn_uop body, kn_uop a, kn_uop b) {
    return ki_opn(&ir, KN_END, (kn_uop[]){body, a, b}, b ? 3 : 2);
}
__attribute__((unused)) static kn_uop sink1(kn_uop e) { return ki_op1(&ir, KN_SINK, e); }
__attribute__((unused)) static kn_uop where(kn_uop p, kn_uop a, kn_uop b) { return ki_op3(&ir, KN_WHERE, p, a, b); }
__attribute__((unused)) static kn_uop lt(kn_uop a, kn_uop b) { return ki_op2(&ir, KN_CMPLT, a, b); }
__attribute__((unused)) static kn_uop invalid(void) { return ki_op0(&ir, KN_INVALID); }

__attribute__((unused)) static void begin(void) {
    ki_env_open(&env);
    ki_ir_open(&ir, &env);
    next_id = 0;
}
__attribute__((unused)) static void finish(void) {
    ki_ir_close(&ir);
    ki_env_close(&env);
}

#define MEM(a, t)                                                                                                      \
    { (unsigned char *)(a), (int64_t)(sizeof(a) / sizeof *(a)), t }

#endif
