/* Schedules: a hand-built program of stage render becomes launches, and replays with other buffers and variables. */
#include "run/schedule.h"
#include "../tap.h"

#include <stdlib.h>
#include <string.h>

static ki_env env;
static ki_ir ir;
static ki_device *device;

static kn_uop program(const char *name, unsigned threads, const char *text) {
    char raw[256] = {0};
    ki_kernel *k = (void *)raw;
    k->len = (uint32_t)strlen(name);
    k->threads = threads;
    strcpy((char *)&k->opt[0], name);
    kn_uop src[] = {ki_opn(&ir, KN_LINEAR, NULL, 0), ki_str_op(&ir, KN_SOURCE, KN_VOID, text, strlen(text), NULL, 0)};
    const void *arg = ki_intern(&ir, raw, sizeof *k + strlen(name) + 1);
    return ki_make(&ir, KN_PROGRAM, KN_VOID, src, 2, (kn_arg){.p = arg}, 0);
}

static kn_uop buffer(uint32_t id, int64_t n, kn_dtype t) {
    return ki_buffer_make(&ir, id, n, t, KN_GLOBAL, device->id);
}

static kn_uop slice(kn_uop arena, int64_t offset, int64_t n, kn_dtype t) {
    kn_uop src[] = {arena, ki_index(&ir, offset)};
    return ki_make(&ir, KN_SLICE, t, src, 2, (kn_arg){.i = n}, 0);
}

#define SIG(name) "void " name "(void *const *buf, const long *var, long thread)"

/* t = x + v; u = 2 t, both in the arena; y = u + 1 in two halves. */
static ki_program example(void) {
    int64_t lohi[] = {0, 9};
    kn_uop v = ki_param_make(&ir, -1, KN_IDX, KN_GLOBAL, 0, "v", lohi, NULL);
    kn_uop x = buffer(1, 8, KN_F32), y = buffer(2, 8, KN_F32), arena = buffer(3, 128, KN_U8);
    kn_uop t = slice(arena, 0, 8, KN_F32), u = slice(arena, 64, 8, KN_F32);
    kn_uop k1 = program(
        "add", 1, SIG("add") "{ for (int i = 0; i < 8; i++) ((float *)buf[0])[i] = ((float *)buf[1])[i] + var[0]; }");
    kn_uop k2 = program(
        "twice", 1, SIG("twice") "{ for (int i = 0; i < 8; i++) ((float *)buf[0])[i] = 2 * ((float *)buf[1])[i]; }");
    kn_uop k3 = program("inc", 2,
                        SIG("inc") "{ for (int i = 4 * thread; i < 4 * thread + 4; i++) ((float *)buf[0])[i] = ((float "
                                   "*)buf[1])[i] + 1; }");
    kn_uop c1[] = {k1, t, x, v}, c2[] = {k2, u, t}, c3[] = {k3, y, u};
    kn_uop calls[] = {ki_opn(&ir, KN_CALL, c1, 4), ki_opn(&ir, KN_CALL, c2, 3), ki_opn(&ir, KN_CALL, c3, 3)};
    ki_program p = {.ir = &ir, .stage = KI_S_RENDER, .root = ki_opn(&ir, KN_LINEAR, calls, 3)};
    ki_program_port(&p, false, "x", 1, x);
    ki_program_port(&p, false, "v", 1, v);
    ki_program_port(&p, true, "y", 1, y);
    return p;
}

static bool compile(ki_schedule *s, const ki_program *p) {
    ki_kernel_text text[16];
    ki_schedule_texts(p, false, text);
    if (s->nkernel > 16 || !device->is->compile(device, "", text, s->nkernel)) return false;
    ki_schedule_entries(s, text);
    return true;
}

static void replays(void) {
    ki_program p = example();
    ki_schedule *s = ki_schedule_make(&p);
    CHECK(s && s->nlaunch == 3 && s->nkernel == 3 && s->nslot == 3, "three launches, three buffers");
    CHECK(s && s->nvar == 1 && s->in_slot[0] == 0 && s->in_slot[1] == -1 && s->out_slot[0] == 1, "ports");
    CHECK(s && s->scratch == 128 && s->slot[2].scratch == 0, "the arena is scratch");
    CHECK(s && compile(s, &p), "compiles: %s", env.message.s ? env.message.s : "");
    float x[2][8], y[8];
    void *scratch = device->is->alloc(device, s->scratch);
    bool good = true;
    ki_program_free(&p);
    for (int round = 0; round < 100; round++) {
        int64_t v = round % 10;
        float *in = x[round & 1];
        for (int i = 0; i < 8; i++) in[i] = (float)(i * round);
        s->base[s->in_slot[0]] = in;
        s->base[s->out_slot[0]] = y;
        ki_alloc_fail(1, 1); /* a replay allocates nothing */
        good = good && ki_schedule_run(s, device, &v, scratch);
        ki_alloc_fail(0, 0);
        for (int i = 0; i < 8; i++) good = good && y[i] == 2 * (in[i] + (float)v) + 1;
    }
    CHECK(good, "replays with other buffers and values, without an allocation");
    device->is->free(device, scratch, s->scratch);
    ki_schedule_free(s);
}

static void refuses(void) {
    ki_program p = example();
    kn_uop good = p.root;
    kn_uop sink[] = {ki_opn(&ir, KN_SINK, NULL, 0)}, call = ki_opn(&ir, KN_CALL, sink, 1);
    p.root = ki_opn(&ir, KN_LINEAR, &call, 1);
    ki_env_clear(&env);
    CHECK(!ki_schedule_make(&p) && env.err == KI_E_SCHEDULE_FORM, "a kernel that is not rendered");
    p.root = good->src[0];
    ki_env_clear(&env);
    CHECK(!ki_schedule_make(&p) && env.err == KI_E_SCHEDULE_FORM, "a root that is no LINEAR");
    p.root = good;
    for (uint64_t i = 1;; i++) {
        ki_env_clear(&env);
        ki_alloc_fail(i, 0);
        ki_schedule *s = ki_schedule_make(&p);
        ki_alloc_fail(0, 0);
        if (s) {
            CHECK(i > 5, "each of %d allocations may fail", (int)i - 1);
            ki_schedule_free(s);
            break;
        }
        if (env.err != KI_E_NOMEM) {
            CHECK(0, "allocation %d failed without a word", (int)i);
            break;
        }
    }
    ki_program_free(&p);
}

/* A variable is known by its name: where kernels state other bounds it lies within them all. */
static void narrows(void) {
    const int64_t bounds[][2] = {{0, 9}, {2, 20}};
    kn_uop x = buffer(15, 8, KN_F32), kernel = program("none", 1, SIG("none") "{}"), calls[2];
    for (int i = 0; i < 2; i++) {
        kn_uop v = ki_param_make(&ir, -1, KN_IDX, KN_GLOBAL, 0, "v", bounds[i], NULL);
        calls[i] = ki_op3(&ir, KN_CALL, kernel, x, v);
    }
    ki_program p = {.ir = &ir, .stage = KI_S_RENDER, .root = ki_opn(&ir, KN_LINEAR, calls, 2)};
    ki_schedule *s = ki_schedule_make(&p);
    CHECK(s && s->nvar == 1 && s->var[0].lo == 2 && s->var[0].hi == 9, "one variable, within all of its bounds");
    ki_schedule_free(s);
}

/* LINEAR(CALL(LOAD, to, from)) */
static kn_uop copy(kn_uop to, kn_uop from) {
    ki_load arg;
    memset(&arg, 0, sizeof arg);
    arg.device = (uint16_t)device->id;
    kn_uop load = ki_make(&ir, KN_LOAD, KN_VOID, &from, 1, (kn_arg){.p = ki_intern(&ir, &arg, sizeof arg)}, 0);
    kn_uop src[] = {load, to, from}, call = ki_opn(&ir, KN_CALL, src, 3);
    return ki_opn(&ir, KN_LINEAR, &call, 1);
}

static void copies(void) {
    kn_uop a = buffer(11, 4, KN_I32), b = buffer(12, 4, KN_I32);
    ki_program p = {.ir = &ir, .stage = KI_S_RENDER, .root = copy(b, a)};
    ki_program_port(&p, false, "a", 1, a);
    ki_program_port(&p, true, "b", 1, b);
    ki_schedule *s = ki_schedule_make(&p);
    int32_t x[] = {1, 2, 3, 4}, y[4] = {0};
    s->base[0] = x;
    s->base[1] = y;
    CHECK(compile(s, &p) && ki_schedule_run(s, device, NULL, NULL) && !memcmp(x, y, sizeof x), "a copy is a launch");
    ki_schedule_free(s);
    ki_program_free(&p);
}

/* Of parts of buffers what they hold is copied, and nothing behind them. */
static void copies_parts(void) {
    enum { PART = 16, ALL = 3 * PART };
    kn_uop a = buffer(13, ALL, KN_I32), b = buffer(14, ALL, KN_I32);
    ki_program p = {
        .ir = &ir, .stage = KI_S_RENDER, .root = copy(slice(b, PART, PART, KN_I32), slice(a, 2 * PART, PART, KN_I32))};
    ki_program_port(&p, false, "a", 1, a);
    ki_program_port(&p, true, "b", 1, b);
    ki_schedule *s = ki_schedule_make(&p);
    int32_t x[2 * ALL], y[2 * ALL];
    bool right = s && s->launch[0].copy && s->launch[0].bytes == PART * sizeof *x;
    for (int i = 0; i < 2 * ALL; i++) x[i] = i, y[i] = -i;
    if (s) s->base[0] = x, s->base[1] = y;
    right = right && compile(s, &p) && ki_schedule_run(s, device, NULL, NULL);
    for (int i = 0; i < 2 * ALL; i++) right = right && y[i] == (i / PART == 1 ? i + PART : -i);
    CHECK(right, "a copy of a part ends with it");
    ki_schedule_free(s);
    ki_program_free(&p);
}

int main(void) {
    if (!ki_env_open(&env) || !ki_ir_open(&ir, &env)) return 1;
    device = ki_device_open(&env, ki_device_id(&env, "CPU"));
    replays();
    refuses();
    narrows();
    copies();
    copies_parts();
    ki_device_close(device);
    ki_ir_close(&ir);
    ki_env_close(&env);
    return tap_done();
}
