/* test_eval.c: the interpreter on tensor programs: every movement op, reductions, indexing, functions, assignment,
 * symbolic sizes, errors, and long chains. Expected numbers are worked out by hand. */
#include "eval_util.h"

#include <stdlib.h>

static lab L;
#define HOLE 0x77777777 /* not touched: the harness filled it */
#define T    "koine 1 tensor\n"

static void movement(void) {
    lab_iota(&L, 0, 1);
    CASE(&L, "permute", T "%x = param \"x\" : f32 [2, 3]\n%y = permute %x order=(1, 0)\nout \"y\" = %y\n",
         {0, 3, 1, 4, 2, 5});
    CASE(&L, "permute of three axes",
         T "%x = param \"x\" : i32 [2, 2, 2]\n%y = permute %x order=(2, 0, 1)\nout \"y\" = %y\n",
         {0, 2, 4, 6, 1, 3, 5, 7});
    CASE(&L, "flip", T "%x = param \"x\" : f32 [2, 3]\n%y = flip %x axes=(0, 1)\nout \"y\" = %y\n", {5, 4, 3, 2, 1, 0});
    CASE(&L, "reshape",
         T "%x = param \"x\" : f32 [2, 3]\n%y = reshape %x (3, 2)\n%z = permute %y order=(1, 0)\nout \"z\" = %z\n",
         {0, 2, 4, 1, 3, 5});
    CASE(&L, "expand", T "%x = param \"x\" : f32 [2, 1]\n%y = expand %x (2, 3)\nout \"y\" = %y\n", {0, 0, 0, 1, 1, 1});
    CASE(&L, "pad", T "%x = param \"x\" : i8 [2, 2]\n%a = add %x 1\n%y = pad %a (1, 0) (3, 4)\nout \"y\" = %y\n",
         {0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0});
    CASE(&L, "pad, then arithmetic on the zeros",
         T "%x = param \"x\" : f32 [2]\n%y = pad %x (1) (4)\n%z = add %y 5.0\n%w = flip %z axes=(0)\nout \"w\" = %w\n",
         {5, 6, 5, 5});
    CASE(&L, "pad of a shrink",
         T "%x = param \"x\" : f32 [3, 3]\n%s = shrink %x (1, 1) (2, 2)\n%y = pad %s (0, 1) (2, 3)\nout \"y\" = %y\n",
         {0, 4, 5, 0, 7, 8});
    CASE(&L, "pad of nothing", T "%x = param \"x\" : f32 [0]\n%y = pad %x (0) (3)\nout \"y\" = %y\n", {0, 0, 0});
    CASE(&L, "shrink", T "%x = param \"x\" : u16 [3, 3]\n%y = shrink %x (1, 0) (1, 2)\nout \"y\" = %y\n", {3, 4});
    CASE(&L, "stack", T "%x = param \"x\" : f32 [2]\n%a = mul %x 10.0\n%y = stack %x %a %x\nout \"y\" = %y\n",
         {0, 1, 0, 10, 0, 1});
    CASE(&L, "bitcast, one size", T "%x = param \"x\" : f32 [2]\n%y = bitcast %x : i32\nout \"y\" = %y\n",
         {0, 0x3f800000});
    CASE(&L, "bitcast to smaller",
         T "%x = param \"x\" : u32 [2]\n%a = mul %x 258\n%y = bitcast %a : u8\nout \"y\" = %y\n",
         {0, 0, 0, 0, 2, 1, 0, 0});
    CASE(&L, "bitcast to larger", T "%x = param \"x\" : u8 [4]\n%y = bitcast %x : u16\nout \"y\" = %y\n", {256, 770});
    CASE(&L, "slice", T "%x = param \"x\" : f32 [8]\n%y = slice %x 2 size=3 : f32\nout \"y\" = %y\n", {2, 3, 4});
    CASE(&L, "index by scalar, by list, and the rest",
         T
         "%x = param \"x\" : f32 [3, 2]\n%i = param \"i\" : i32 [2]\n%j = add %i 1\n%y = index %x %j\nout \"y\" = %y\n",
         {2, 3, 4, 5});
    CASE(&L, "index: outer product",
         T "%x = param \"x\" : f32 [3, 3]\n%i = param \"i\" : i32 [2]\n%j = add %i 1\n%y = index %x %i %j\nout \"y\" = "
           "%y\n",
         {1, 2, 4, 5});
    CASE(&L, "index by a constant removes the axis",
         T "%x = param \"x\" : f32 [3, 2]\n%y = index %x 2\nout \"y\" = %y\n", {4, 5});
    CASE(&L, "deep views",
         T "%x = param \"x\" : f32 [2, 3]\n%a = permute %x order=(1, 0)\n%b = pad %a (1, 0) (5, 2)\n%c = flip %b "
           "axes=(0)\n%d = reshape %c (2, 5)\n%e = shrink %d (0, 1) (2, 3)\nout \"e\" = %e\n",
         {0, 2, 5, 0, 3, 0});
}

static void reductions(void) {
    lab_iota(&L, 0, 1);
    CASE(&L, "sum of the last axis", T "%x = param \"x\" : f32 [2, 3]\n%y = reduce add %x axes=(1)\nout \"y\" = %y\n",
         {3, 12});
    CASE(&L, "sum of the first axis", T "%x = param \"x\" : f32 [2, 3]\n%y = reduce add %x axes=(0)\nout \"y\" = %y\n",
         {3, 5, 7});
    CASE(&L, "sum of outer and inner",
         T "%x = param \"x\" : i32 [2, 2, 2]\n%y = reduce add %x axes=(0, 2)\nout \"y\" = %y\n", {10, 18});
    CASE(&L, "max", T "%x = param \"x\" : i8 [2, 2]\n%n = neg %x\n%y = reduce max %n axes=(0, 1)\nout \"y\" = %y\n",
         {0});
    CASE(&L, "product wraps",
         T "%x = param \"x\" : u8 [6]\n%a = add %x 1\n%y = reduce mul %a axes=(0)\nout \"y\" = %y\n", {720 % 256});
    CASE(&L, "any and all",
         T "%x = param \"x\" : i32 [3]\n%p = lt %x 1\n%a = reduce add %p axes=(0)\n%m = reduce mul %p axes=(0)\n%y = "
           "stack %a %m\nout \"y\" = %y\n",
         {1, 0});
    CASE(&L, "empty sum is +0, empty product 1",
         T "%x = param \"x\" : f32 [0]\n%s = reduce add %x axes=(0)\n%p = reduce mul %x axes=(0)\n%y = stack %s "
           "%p\nout \"y\" = %y\n",
         {0, 1});
    CASE(&L, "empty max of integers", T "%x = param \"x\" : i16 [2, 0]\n%y = reduce max %x axes=(1)\nout \"y\" = %y\n",
         {-32768, -32768});
    lab_iota(&L, -0.0, 0);
    for (int i = 0; i < 8; i++) L.in[0][i] = -0.0;
    CASE(&L, "sum of -0 is -0", T "%x = param \"x\" : f32 [4]\n%y = reduce add %x axes=(0)\nout \"y\" = %y\n", {-0.0});
    lab_iota(&L, 0, 1);
    CASE(&L, "matmul as broadcast, multiply, reduce",
         T "%a = param \"a\" : f32 [2, 3]\n%b = param \"b\" : f32 [3, 2]\n%a1 = reshape %a (2, 3, 1)\n%a2 = expand %a1 "
           "(2, 3, 2)\n%b1 = reshape %b (1, 3, 2)\n"
           "%b2 = expand %b1 (2, 3, 2)\n%m = mul %a2 %b2\n%y = reduce add %m axes=(1)\nout \"y\" = %y\n",
         {10, 13, 28, 40});
    double e[6], s[2] = {0, 0};
    static double want[6];
    lab_iota(&L, -1, 0.5);
    for (int i = 0; i < 6; i++) e[i] = exp(L.in[0][i] - L.in[0][i / 3 * 3 + 2]), s[i / 3] += e[i];
    for (int i = 0; i < 6; i++) want[i] = e[i] / s[i / 3];
    lab_case(&L, "softmax",
             T "%x = param \"x\" : f64 [2, 3]\n%m = reduce max %x axes=(1)\n%b = expand %m (2, 3)\n%d = sub %x %b\n%e "
               "= exp %d\n%s = reduce add %e axes=(1)\n"
               "%t = expand %s (2, 3)\n%y = div %e %t\nout \"y\" = %y\n",
             want, 6);
}

static void programs(void) {
    lab_iota(&L, 1, 1);
    CASE(&L, "several outputs, one an input, one a constant",
         T "%x = param \"x\" : f32 [2]\n%c = const 2.5 : f32\nout \"x\" = %x\nout \"c\" = %c\n", {1, 2});
    CASE(&L, "function",
         T "%p = param slot=0 : f32 [2]\n%q = param slot=1 : f32 [2]\n%s = sub %p %q\n%d = mul %p %q\n%b = tuple %s "
           "%d\n%x = param \"x\" : f32 [2]\n%y = add %x 1.0\n"
           "%f = function %b %y %x\n%g = function %b %x %y\n%a = gettuple %f at=1\n%c = gettuple %g at=0\n%z = add %a "
           "%c\nout \"z\" = %z\n",
         {1, 5});
    CASE(&L, "function inside a function",
         T "%p = param slot=0 : f32 [2]\n%d = add %p %p\n%b = tuple %d\n%i = function %b %p\n%j = gettuple %i at=0\n%k "
           "= function %b %j\n%m = gettuple %k at=0\n%n = tuple %m\n"
           "%x = param \"x\" : f32 [2]\n%f = function %n %x\n%y = gettuple %f at=0\nout \"y\" = %y\n",
         {4, 8});
    CASE(&L, "assign to a part, old value still read",
         T "%x = param \"x\" : f32 [4]\n%v = shrink %x (1) (2)\n%w = mul %v 10.0\n%s = store %v %w\n%n = after %x "
           "%s\n%y = sub %n %x\nout \"y\" = %y\n",
         {0, 18, 27, 0});
    CASE(&L, "two assigns in a row",
         T "%x = param \"x\" : i32 [3]\n%s = store %x 7\n%n = after %x %s\n%v = shrink %n (0) (1)\n%t = store %v 9\n%m "
           "= after %n %t\nout \"m\" = %m\n",
         {9, 7, 7});
    CASE(&L, "assign through a transposed view",
         T "%x = param \"x\" : i32 [2, 2]\n%q = permute %x order=(1, 0)\n%y = param \"y\" : i32 [2, 2]\n%s = store %q "
           "%y\n%n = after %x %s\nout \"n\" = %n\n",
         {1, 3, 2, 4});
    CASE(&L, "assign where a gate is open",
         T "%x = param \"x\" : i32 [4]\n%g = lt %x 3\n%s = store %x 0 %g\n%n = after %x %s\nout \"n\" = %n\n",
         {0, 0, 3, 4});
    CASE(&L, "callify: a FUNCTION of buffers",
         "koine 1 callify\n%a = buffer 1 GLOBAL size=4 : f32\n%p = param slot=0 : f32 [4]\n%q = reshape %p (2, 2)\n%r "
         "= reduce add %q axes=(0)\n"
         "%b = tuple %r\n%f = function %b %a\n%g = gettuple %f at=0\nin \"a\" = %a : f32 [4]\nout \"r\" = %g : f32 [1, "
         "2]\nroot %f\n",
         {4, 6});
    CASE(&L, "callify: the buffer an assign wrote",
         "koine 1 callify\n%a = buffer 1 GLOBAL size=4 : f32\n%p = param slot=0 : f32 [4]\n%q = add %p 1.0\n%s = store "
         "%p %q\n%n = after %p %s\n"
         "%b = tuple %n\n%f = function %b %a\nin \"a\" = %a : f32 [4]\nout \"a\" = %a : f32 [4]\nroot %f\n",
         {2, 3, 4, 5});
    L.in[0][0] = 2;
    CASE(&L, "symbolic size: laid out at the bound",
         T "%n = param \"n\" bounds=[1, 4] : index\n%x = param \"x\" (3, %n) : f32 [3, <=4]\n%y = reduce add %x "
           "axes=(1)\nout \"y\" = %y\nin \"n\" = %n\nin \"x\" = %x\n",
         {3, 11, 19});
    L.in[0][0] = 3;
    CASE(&L, "symbolic size: reshape and shrink",
         T "%n = param \"n\" bounds=[1, 4] : index\n%x = param \"x\" (2, %n) : f32 [2, <=4]\n%y = reshape %x (%n, "
           "2)\n%z = shrink %y (0, 0) (1, 2)\nout \"z\" = %z\nin \"n\" = %n\nin \"x\" = %x\n",
         {1, 2});
    CASE(&L, "symbolic size: elementwise and expand",
         T "%n = param \"n\" bounds=[1, 4] : index\n%x = param \"x\" (1, %n) : i32 [1, <=4]\n%y = add %x 1\n%z = "
           "expand %y (2, %n)\nout \"z\" = %z\nin \"n\" = %n\nin \"x\" = %x\n",
         {2, 3, 4, HOLE, 2, 3, 4});
    CASE(&L, "a variable as a number",
         T "%n = param \"n\" bounds=[1, 4] : i32\n%x = param \"x\" : i32 [2]\n%y = mul %x %n\nout \"y\" = %y\nin \"n\" "
           "= %n\nin \"x\" = %x\n",
         {3, 6});
}

static void dtypes(void) {
    static const char *name[] = {"u8",  "u16", "u32",  "u64", "i8",  "i16",    "i32",
                                 "i64", "f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3"};
    lab_iota(&L, 0, 1);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 T "%%x = param \"x\" : %s [2, 2]\n%%a = add %%x %%x\n%%b = permute %%a order=(1, 0)\n%%p = pad %%b "
                   "(0, 1) (2, 3)\n%%y = reduce add %%p axes=(0)\nout \"y\" = %%y\n",
                 name[i]);
        static const double want[] = {0, 2, 10};
        char what[64];
        snprintf(what, sizeof what, "%s through arithmetic, views and a sum", name[i]);
        lab_case(&L, what, text, want, 3);
    }
    CASE(&L, "bool storage", T "%x = param \"x\" : bool [3]\n%y = not %x\nout \"y\" = %y\n", {1, 0, 0});
    CASE(&L, "cast", T "%x = param \"x\" : f32 [4]\n%a = mul %x -100.0\n%y = cast %a : i8\nout \"y\" = %y\n",
         {0, -100, -128, -128});
}

static void errors(void) {
    lab_iota(&L, 0, 1);
    lab_fails(&L, "a size that is computed from data", "KN4505",
              T "%x = param \"x\" : index [3]\n%m = reduce max %x axes=(0)\n%i = index %m 0\n%q = mod %i 3\n%y = "
                "shrink %x (0) (%q)\nout \"y\" = %y\n",
              "has no value");
    lab_fails(&L, "index out of bounds", "KN4503",
              T "%x = param \"x\" : f32 [3]\n%i = param \"i\" : i32 [4]\n%y = index %x %i\nout \"y\" = %y\n",
              "index 3 is outside the 3 elements");
    lab_fails(
        &L, "negative index", "KN4503",
        T "%x = param \"x\" : f32 [3]\n%i = param \"i\" : i32 [1]\n%j = sub %i 1\n%y = index %x %j\nout \"y\" = %y\n",
        "index -1 is outside");
    lab_fails(&L, "an input that is missing", "KN4505",
              T "%x = param \"x\" : f32 [3]\n%y = neg %x\nin none\nout \"y\" = %y\n", "'x'");
    L.in[0][0] = 9;
    lab_fails(&L, "a variable outside its bounds", "KN4506",
              T "%n = param \"n\" bounds=[1, 4] : i32\n%x = param \"x\" : i32 [2]\n%y = mul %x %n\nout \"y\" = %y\nin "
                "\"n\" = %n\nin \"x\" = %x\n",
              "bounds are 1 to 4");
    L.budget = 100;
    lab_fails(&L, "the budget", "KN4504",
              T "%x = param \"x\" : f32 [1]\n%y = expand %x (1000000)\n%z = reduce add %y axes=(0)\nout \"z\" = %z\n",
              "more than 100 steps");
    L.budget = 0;
    lab_fails(&L, "an index that leaves 64 bits", "KN4502",
              T "%i = param \"i\" : index [3]\n%j = mul %i 4611686018427387904\n%k = cast %j : i64\nout \"y\" = %k\n",
              "mul");
    lab_fails(
        &L, "a store that has no place", "KN4501",
        T
        "%x = param \"x\" : f32 [3]\n%v = param \"v\" : f32 [5]\n%p = pad %x (1) (5)\n%s = store %p %v\n%y = after %x "
        "%s\nout \"y\" = %y\n",
        "store to a pad");
    lab_fails(&L, "a slice past the end", "KN4503",
              T "%x = param \"x\" : f32 [8]\n%y = slice %x 6 size=3 : f32\nout \"y\" = %y\n", "slice");
}

static void starved(void) {
    lab_iota(&L, 0, 1);
    L.bounds = true;
    lab_starved(&L, "tensor program",
                T "%p = param slot=0 : f32 [2, 3]\n%d = exp %p\n%b = tuple %d\n%x = param \"x\" : f32 [2, 3]\n%f = "
                  "function %b %x\n%y = gettuple %f at=0\n"
                  "%v = shrink %x (0, 1) (2, 1)\n%w = mul %v 3.0\n%s = store %v %w\n%n = after %x %s\n%z = add %n "
                  "%y\n%i = param \"i\" : i32 [2]\n%g = index %z %i\n"
                  "%q = pad %g (1, 0) (4, 3)\n%c = bitcast %q : u8\n%t = stack %q %q\n%r = reduce add %t axes=(0, "
                  "2)\nout \"r\" = %r\nout \"c\" = %c\n");
    L.bounds = false;
}

/* x = f(x, x) and a chain with one reader, a million nodes each. */
static void chains(void) {
    enum { N = 1000000 };
    for (int twice = 0; twice < 2; twice++) {
        ki_env env;
        ki_ir ir;
        float x = 1, y = 0;
        bool ok = ki_env_open(&env) && ki_ir_open(&ir, &env);
        kn_uop p = ki_param_make(&ir, -1, KN_F32, KN_GLOBAL, 0, "x", NULL, NULL), u = p,
               half = ki_const_float(&ir, KN_F32, 0.5);
        for (int i = 0; i < N; i++)
            u = twice ? ki_op2(&ir, i & 1 ? KN_MUL : KN_ADD, u, u) : ki_op2(&ir, i & 1 ? KN_MUL : KN_ADD, u, half);
        kn_uop sink = ki_opn(&ir, KN_SINK, &u, 1);
        ki_program g = {.ir = &ir, .stage = KI_S_TENSOR, .root = sink};
        ok = ok && sink && ki_program_port(&g, false, "x", 1, p) && ki_program_port(&g, true, "y", 1, u);
        ok = ok && ki_eval(&g, (const void *const[]){&x}, (void *const[]){&y}, NULL) == KI_OK;
        if (!ok) printf("# %s\n", env.message.s ? env.message.s : "");
        CHECK(ok && (twice ? isinf(y) : y == 0.5f),
              twice ? "a million nodes x = f(x, x)" : "a chain of a million nodes");
        ki_program_free(&g);
        ki_ir_close(&ir);
        ki_env_close(&env);
    }
}

int main(void) {
    movement();
    reductions();
    programs();
    dtypes();
    errors();
    starved();
    chains();
    return tap_done();
}
