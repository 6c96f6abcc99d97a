/* Programs as text: run from any stage, on any device, several compiled at once; inputs stay as they are. */
#include "../tap.h"
#include "../text.h"
#include "run/run.h"

#include <koine/koine.h>

#include <stdlib.h>
#include <string.h>

static kn_ctx *k;

static const char *const add_relu = "koine 1 tensor\n"
                                    "%x = param \"x\" : f32 [4, 6]\n"
                                    "%y = param \"y\" : f32 [4, 6]\n"
                                    "%s = add %x %y\n"
                                    "%r = max %s 0.0\n"
                                    "%m = reduce add %r axes=(1)\n"
                                    "out \"r\" = %r\n"
                                    "out \"m\" = %m\n";

static void fill(float *x, float *y) {
    for (int i = 0; i < 24; i++) x[i] = (float)(i % 7) - 3, y[i] = (float)(i % 5) - 2;
}
static bool right(const float *x, const float *y, const float *r, const float *m) {
    bool ok = true;
    for (int i = 0; i < 4; i++) {
        float sum = 0;
        for (int j = 0; j < 6; j++) {
            float v = x[6 * i + j] + y[6 * i + j];
            sum += v > 0 ? v : 0;
            ok = ok && r[6 * i + j] == (v > 0 ? v : 0);
        }
        ok = ok && m[i] == sum;
    }
    return ok;
}

/* By name, since stages order the ports as they like. */
static bool run(const ki_program *p, const char *device) {
    float x[24], y[24], r[24] = {0}, m[4] = {0}, copy[24];
    void *in[2], *out[2];
    fill(x, y);
    memcpy(copy, x, sizeof x);
    for (size_t i = 0; i < p->nin && i < 2; i++) in[i] = p->in[i].name[0] == 'x' ? x : y;
    for (size_t i = 0; i < p->nout && i < 2; i++) out[i] = p->out[i].name[0] == 'r' ? r : m;
    if (p->nin != 2 || p->nout != 2 || !ki_run_program(k, p, device, in, out)) return false;
    return right(x, y, r, m) && !memcmp(copy, x, sizeof x);
}

static void stages(void) {
    text t;
    bool ok = text_parse(&t, &k->env, add_relu);
    CHECK(ok, "the program parses %s", k->env.message.s ? k->env.message.s : "");
    if (!ok) return;
    const char *const devices[] = {"CPU", "INTERP"};
    for (int s = KI_S_TENSOR; s < KI_S_COUNT; s++) {
        ki_ir ir;
        ki_program low;
        bool lowered = ki_ir_open(&ir, &k->env) && ki_lower(&t.p, &ir, (ki_stage)s, NULL, &low);
        for (int d = 0; d < 2; d++)
            CHECK(lowered && run(&low, devices[d]), "from %s on %s %s", ki_stage_names[s], devices[d],
                  k->env.message.s ? k->env.message.s : "");
        ki_env_clear(&k->env);
        if (lowered) ki_program_free(&low);
        ki_ir_close(&ir);
    }
    text_drop(&t);
}

/* out = x overwritten in part: the caller's x must not change. */
static void assigns(const char *device) {
    text t;
    bool ok = text_parse(&t, &k->env,
                         "koine 1 tensor\n"
                         "%x = param \"x\" : f32 [8]\n"
                         "%v = shrink %x (2) (3)\n"
                         "%s = store %v 7.0\n"
                         "%a = after %x %s\n"
                         "%y = add %a 1.0\n"
                         "out \"a\" = %a\n"
                         "out \"y\" = %y\n");
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, a[8], y[8];
    void *in[] = {x}, *out[] = {a, y};
    ok = ok && ki_run_program(k, &t.p, device, in, out);
    for (int i = 0; i < 8 && ok; i++) {
        float want = i >= 2 && i < 5 ? 7 : (float)i;
        ok = x[i] == (float)i && a[i] == want && y[i] == want + 1;
    }
    CHECK(ok, "%s: an assigned input is an output, and the caller's stays %s", device,
          k->env.message.s ? k->env.message.s : "");
    ki_env_clear(&k->env);
    text_drop(&t);
}

static void variables(const char *device) {
    text t;
    bool ok = text_parse(&t, &k->env,
                         "koine 1 tensor\n"
                         "%x = param \"x\" : f32 [8]\n"
                         "%n = param \"n\" bounds=[0, 9] : index\n"
                         "%f = cast %n : f32\n"
                         "%y = mul %x %f\n"
                         "in \"x\" = %x\n"
                         "in \"n\" = %n\n"
                         "out \"y\" = %y\n");
    CHECK(ok, "a program with a variable parses %s", k->env.message.s ? k->env.message.s : "");
    ki_env_clear(&k->env);
    if (!ok) return;
    float x[8] = {0, 1, 2, 3, 4, 5, 6, 7}, y[8];
    int64_t n = 3;
    void *in[2], *out[] = {y};
    for (size_t i = 0; i < t.p.nin && i < 2; i++) in[i] = t.p.in[i].name[0] == 'x' ? (void *)x : (void *)&n;
    ok = t.p.nin == 2 && ki_run_program(k, &t.p, device, in, out);
    for (int i = 0; i < 8 && ok; i++) ok = y[i] == 3 * x[i];
    CHECK(ok, "%s: a variable's value is an input %s", device, k->env.message.s ? k->env.message.s : "");
    ki_env_clear(&k->env);
    n = 10;
    CHECK(!ki_run_program(k, &t.p, device, in, out) && k->env.err == KI_E_VARIABLE_RANGE, "%s: out of its bounds",
          device);
    ki_env_clear(&k->env);
    text_drop(&t);
}

static void many(void) {
    enum { N = 30 };
    text t[N];
    const ki_program *p[N];
    ki_exec *e[N];
    kn_ctx *keep = k;
    k = kn_open("CPU");
    kn_set(k, "KN_CACHE", "off");
    kn_set(k, "KN_CODE", "c");
    bool ok = true;
    for (int i = 0; i < N; i++) {
        char s[256];
        snprintf(s, sizeof s, "koine 1 tensor\n%%x = param \"x\" : f32 [%d]\n%%y = mul %%x %d.0\nout \"y\" = %%y\n",
                 8 + i, i + 2);
        ok = text_parse(&t[i], &k->env, s) && ok;
        p[i] = &t[i].p;
    }
    ok = ok && ki_prepare(k, "CPU", p, N, e);
    CHECK(ok && kn_stats_of(k).compiler_runs <= 4, "thirty programs, %d compiler processes %s",
          (int)kn_stats_of(k).compiler_runs, k->env.message.s ? k->env.message.s : "");
    for (int i = 0; i < N && ok; i++) {
        float x[64] = {1, 2, 3}, y[64];
        void *in[] = {x}, *out[] = {y};
        ok = ki_run_prepared(k, e[i], p[i], in, out) && y[2] == 3 * (float)(i + 2);
    }
    CHECK(ok, "each gives its own");
    for (int i = 0; i < N; i++) {
        ki_exec_free(e[i]);
        text_drop(&t[i]);
    }
    kn_close(k);
    k = keep;
}

static void refuses(void) {
    text t;
    if (!text_parse(&t, &k->env, add_relu)) return;
    float m[24];
    void *in[] = {m, NULL}, *out[] = {m, m};
    CHECK(!ki_run_program(k, &t.p, "CPU", in, out) && k->env.err == KI_E_INPUT_MISSING &&
              strstr(k->env.message.s, "'y'"),
          "an input without data is named: %s", k->env.message.s);
    ki_env_clear(&k->env);
    CHECK(!ki_run_program(k, &t.p, "TPU", in, out) && k->env.err == KI_E_DEVICE_UNKNOWN, "an unknown device");
    ki_env_clear(&k->env);
    text_drop(&t);
}

int main(void) {
    k = kn_open("CPU");
    if (!k) return 1;
    stages();
    assigns("CPU");
    assigns("INTERP");
    variables("CPU");
    variables("INTERP");
    many();
    refuses();
    kn_close(k);
    return tap_done();
}
