/* by_hand.c: kernels built node by node, checked, rendered as C and run: the graphs that "Documentation on Tinygrad's IR"
 * and the walkthrough of code generation build by hand, in today's dialect.
 *
 *   there                         here
 *   DEFINE_GLOBAL (0, "data0")    param of slot 0; what is written and what is read follows from its uses
 *   CONST                         const
 *   LOOP a b .. ENDLOOP           range b .. end (a range starts at 0)
 *   LOAD data, position           index(data, position); the compiler inserts the load
 *   ALU BinaryOps.ADD             add
 *   CAST                          cast
 *   STORE data, position, value   store(index(data, position), value)
 *   SPECIAL gidx0, lidx0          a range of axis type GLOBAL: a workgroup index on a GPU, a loop on a CPU
 */
#include <koine/koine.h>

#include <stdio.h>
#include <string.h>

static int failures;

static kn_uop at(kn_ctx *k, kn_uop data, kn_uop position) { return kn_u(k, "index", data, position); }
static kn_uop put(kn_ctx *k, kn_uop data, kn_uop position, kn_uop value) {
    return kn_u(k, "store", at(k, data, position), value);
}
static kn_uop index_const(kn_ctx *k, int64_t v) { return kn_u_int(k, KN_IDX, v); }

/* Check, print the C, run, compare the first output. */
static void finish(kn_ctx *k, const char *name, kn_uop effect, void *const *buffers, size_t n, const void *want,
                   size_t bytes) {
    kn_uop kernel = kn_u_kernel(k, name, effect);
    if (kn_kernel_check(k, kernel)) {
        printf("%s: %s\n", name, kn_message(k));
        kn_clear(k);
        failures++;
        return;
    }
    char *source = kn_kernel_source(k, kernel, "c");
    printf("---- %s\n%s", name, source ? source : kn_message(k));
    kn_free(source);
    int good = !kn_kernel_run(k, kernel, buffers, n) && memcmp(buffers[0], want, bytes) == 0;
    printf("---- %s: %s\n\n", name, good ? "right" : *kn_message(k) ? kn_message(k) : "wrong");
    kn_clear(k);
    failures += !good;
}

/* Seed 001, STORE: *(data0 + 0) = 10 */
static void store_constant(kn_ctx *k) {
    int32_t data0[1] = {0};
    kn_uop out = kn_u_param(k, 0, KN_I32, 1);
    finish(k, "store_ten", put(k, out, index_const(k, 0), kn_u_int(k, KN_I32, 10)), (void *[]){data0}, 1,
           (int32_t[]){10}, 4);
}

/* Seed 001, LOOP: for (ridx0 = 0; ridx0 < 10; ridx0++), here with a body: data0[ridx0] = 10 */
static void loop(kn_ctx *k) {
    int32_t data0[10] = {0}, want[10];
    for (int i = 0; i < 10; i++) want[i] = 10;
    kn_uop ridx0 = kn_u_range(k, index_const(k, 10), KN_LOOP_AXIS), out = kn_u_param(k, 0, KN_I32, 10);
    kn_uop body = put(k, out, ridx0, kn_u_int(k, KN_I32, 10));
    finish(k, "loop_ten", kn_u(k, "end", body, ridx0), (void *[]){data0}, 1, want, sizeof want);
}

/* Seeds 001, ALU, and 002, E_: the first elements of two inputs, added. */
static void add_first(kn_ctx *k) {
    int32_t data0[1] = {0}, data1[1] = {1}, data2[1] = {2};
    kn_uop out = kn_u_param(k, 0, KN_I32, 1), x1 = kn_u_param(k, 1, KN_I32, 1), x2 = kn_u_param(k, 2, KN_I32, 1);
    kn_uop zero = index_const(k, 0), sum = kn_u(k, "add", at(k, x1, zero), at(k, x2, zero));
    finish(k, "E_", put(k, out, zero, sum), (void *[]){data0, data1, data2}, 3, (int32_t[]){3}, 4);
}

/* Seed 001, Special: ten threads, each adds its own element. */
static void add_special(kn_ctx *k) {
    int32_t data0[10] = {0}, data1[10], data2[10], want[10];
    for (int i = 0; i < 10; i++) data1[i] = i, data2[i] = 100 * i, want[i] = 101 * i;
    kn_uop gidx0 = kn_u_range(k, index_const(k, 10), KN_GLOBAL_AXIS), out = kn_u_param(k, 0, KN_I32, 10);
    kn_uop x1 = kn_u_param(k, 1, KN_I32, 10), x2 = kn_u_param(k, 2, KN_I32, 10);
    kn_uop sum = kn_u(k, "add", at(k, x1, gidx0), at(k, x2, gidx0));
    finish(k, "tester", kn_u(k, "end", put(k, out, gidx0, sum), gidx0), (void *[]){data0, data1, data2}, 3, want,
           sizeof want);
}

/* Seed 002, E_2: (1, 2, 3) + (2, 5, 6). */
static void add_three(kn_ctx *k) {
    int32_t data0[3] = {0}, data1[3] = {1, 2, 3}, data2[3] = {2, 5, 6};
    kn_uop lidx0 = kn_u_range(k, index_const(k, 3), KN_GLOBAL_AXIS), out = kn_u_param(k, 0, KN_I32, 3);
    kn_uop x1 = kn_u_param(k, 1, KN_I32, 3), x2 = kn_u_param(k, 2, KN_I32, 3);
    kn_uop sum = kn_u(k, "add", at(k, x1, lidx0), at(k, x2, lidx0));
    finish(k, "E_2", kn_u(k, "end", put(k, out, lidx0, sum), lidx0), (void *[]){data0, data1, data2}, 3,
           (int32_t[]){3, 7, 9}, 12);
}

/* Seed 002, the cast: ((1, 3) + (4, 3)) as floats. */
static void add_cast(kn_ctx *k) {
    float data0[2] = {0};
    int32_t data1[2] = {1, 3}, data2[2] = {4, 3};
    kn_uop lidx0 = kn_u_range(k, index_const(k, 2), KN_GLOBAL_AXIS), out = kn_u_param(k, 0, KN_F32, 2);
    kn_uop x1 = kn_u_param(k, 1, KN_I32, 2), x2 = kn_u_param(k, 2, KN_I32, 2);
    kn_uop sum = kn_u_cast(k, kn_u(k, "add", at(k, x1, lidx0), at(k, x2, lidx0)), KN_F32);
    finish(k, "E_2_cast", kn_u(k, "end", put(k, out, lidx0, sum), lidx0), (void *[]){data0, data1, data2}, 3,
           (float[]){5, 6}, 8);
}

/* Seed 001's first example, on tensors: a + b, realised. */
static void on_tensors(kn_ctx *k) {
    kn_tensor a = kn_from_host(k, (int32_t[]){1}, KN_I32, KN_SHAPE(1)),
              b = kn_from_host(k, (int32_t[]){2}, KN_I32, KN_SHAPE(1));
    kn_tensor c = kn_add(a, b);
    int32_t value = 0;
    int good = !kn_to_host(c, &value, sizeof value) && value == 3;
    printf("---- Tensor([1]) + Tensor([2]): %s\n", good ? "right" : kn_message(k));
    failures += !good;
}

int main(void) {
    kn_ctx *k = kn_open(NULL);
    if (!k) return 1;
    store_constant(k);
    loop(k);
    add_first(k);
    add_special(k);
    add_three(k);
    add_cast(k);
    on_tensors(k);
    kn_close(k);
    return failures != 0;
}
