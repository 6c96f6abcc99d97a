/* Every examples/<name>.kn is read, survives the round trip, and means what its name says: the interpreter against a loop in
 * double. Run from the root of the repository. */
#include "text_util.h"

#include "base/hash.h"
#include "ir/eval.h"

#include <math.h>
#include <stdlib.h>

enum { MAX_PORTS = 8 };
typedef float f32;
typedef void reference(const void *const *in, double *const *out);

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    char *s = malloc(1 << 16);
    *n = fread(s, 1, 1 << 16, f);
    fclose(f);
    return s;
}

static int64_t count(const ki_port *q) {
    int64_t n = 1;
    for (unsigned k = 0; k < q->rank; k++) n *= q->dim[k];
    return n;
}

/* Values spread over the port's range; whole ones for integers. */
static void *fill(const ki_port *q, uint64_t seed) {
    int64_t n = count(q);
    f32 *v = malloc((size_t)n * 4);
    for (int64_t i = 0; i < n; i++) {
        double r = q->lo + (q->hi - q->lo) * (double)(ki_hash2(seed, (uint64_t)i) >> 11) / 9007199254740992.0;
        if (q->dtype == KN_F32) v[i] = (f32)r;
        else ((int32_t *)v)[i] = (int32_t)lrint(r);
    }
    return v;
}

static int close_to(const ki_port *q, const void *got, const double *want) {
    for (int64_t i = 0; i < count(q); i++) {
        double g = q->dtype == KN_F32 ? ((const f32 *)got)[i] : ((const int32_t *)got)[i];
        if (fabs(g - want[i]) <= 2e-5 * (1 + fabs(want[i]))) continue;
        printf("# %s[%d] is %.9g, not %.9g\n", q->name, (int)i, g, want[i]);
        return 0;
    }
    return 1;
}

static int runs(const ki_program *p, reference *ref) {
    void *in[MAX_PORTS] = {0}, *out[MAX_PORTS] = {0};
    double *want[MAX_PORTS] = {0};
    for (size_t i = 0; i < p->nin; i++) in[i] = fill(&p->in[i], i + 1);
    for (size_t i = 0; i < p->nout; i++)
        out[i] = calloc((size_t)count(&p->out[i]), 8), want[i] = calloc((size_t)count(&p->out[i]), 8);
    int ok = ki_eval(p, (const void *const *)in, out, NULL) == KI_OK;
    if (!ok) printf("# %s\n", p->ir->env->message.s);
    ref((const void *const *)in, want);
    for (size_t i = 0; i < p->nout; i++) ok = ok && close_to(&p->out[i], out[i], want[i]);
    for (size_t i = 0; i < MAX_PORTS; i++) free(in[i]), free(out[i]), free(want[i]);
    return ok;
}

static void example(const char *name, size_t nin, size_t nout, reference *ref) {
    char path[128];
    size_t n = 0;
    lab l;
    ki_program p = {0};
    lab_open(&l);
    snprintf(path, sizeof path, "examples/%s.kn", name);
    char *text = slurp(path, &n);
    bool ok = text && ki_parse(&l.ir, path, text, n, &p);
    if (!ok) printf("# %s\n", text ? l.env.message.s : "no such file");
    bool ranged = true;
    for (size_t i = 0; i < p.nin; i++) ranged = ranged && p.in[i].ranged;
    CHECK(ok && p.nin == nin && p.nout == nout && ranged && round_trip(&p, name), "%s: read and printed", name);
    CHECK(ok && runs(&p, ref), "%s: computes it", name);
    ki_program_free(&p);
    free(text);
    lab_close(&l);
}

/* ---- what they should compute ------------------------------------------------------------------------------- */

static void product(const f32 *a, const f32 *b, double *y, int m, int k, int n) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            for (int t = 0; t < k; t++) y[i * n + j] += (double)a[i * k + t] * b[t * n + j];
}
static void matmul(const void *const *in, double *const *out) { product(in[0], in[1], out[0], 64, 48, 80); }

static void linear_relu(const void *const *in, double *const *out) {
    product(in[0], in[1], out[0], 32, 64, 16);
    for (int i = 0; i < 32 * 16; i++) out[0][i] = fmax(out[0][i] + ((const f32 *)in[2])[i % 16], 0);
}

static void soften(double *v, int n) {
    double m = -INFINITY, s = 0;
    for (int i = 0; i < n; i++) m = fmax(m, v[i]);
    for (int i = 0; i < n; i++) s += v[i] = exp(v[i] - m);
    for (int i = 0; i < n; i++) v[i] /= s;
}
static void softmax(const void *const *in, double *const *out) {
    for (int i = 0; i < 32 * 64; i++) out[0][i] = ((const f32 *)in[0])[i];
    for (int i = 0; i < 32; i++) soften(out[0] + i * 64, 64);
}

static void layernorm(const void *const *in, double *const *out) {
    const f32 *w = in[1], *b = in[2];
    for (int i = 0; i < 32; i++) {
        const f32 *x = (const f32 *)in[0] + i * 64;
        double mean = 0, var = 0;
        for (int k = 0; k < 64; k++) mean += x[k] / 64.0;
        for (int k = 0; k < 64; k++) var += (x[k] - mean) * (x[k] - mean) / 64.0;
        for (int k = 0; k < 64; k++) out[0][i * 64 + k] = (x[k] - mean) / sqrt(var + 1e-5) * w[k] + b[k];
    }
}

static void attention(const void *const *in, double *const *out) {
    enum { N = 40 };
    const f32 *q = in[0], *k = in[1], *v = in[2];
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < N; i++) {
            double s[N];
            for (int j = 0; j < N; j++) {
                s[j] = j > i ? -INFINITY : 0;
                for (int c = 0; c < 8 && j <= i; c++)
                    s[j] += (double)q[(h * N + i) * 8 + c] * k[(h * N + j) * 8 + c] / sqrt(8);
            }
            soften(s, N);
            for (int j = 0; j < N; j++)
                for (int c = 0; c < 8; c++) out[0][(h * N + i) * 8 + c] += s[j] * v[(h * N + j) * 8 + c];
        }
}

static void conv(const void *const *in, double *const *out) {
    const f32 *x = in[0], *w = in[1], *b = in[2];
    for (int at = 0; at < 2 * 4 * 100; at++) {
        int n = at / 400, o = at / 100 % 4, i = at / 10 % 10, j = at % 10;
        double s = b[o];
        for (int t = 0; t < 27; t++) {
            int c = t / 9, y = i + t / 3 % 3 - 1, z = j + t % 3 - 1;
            if (y >= 0 && y < 10 && z >= 0 && z < 10) s += (double)x[((n * 3 + c) * 10 + y) * 10 + z] * w[o * 27 + t];
        }
        out[0][at] = s;
    }
}

static void gather(const void *const *in, double *const *out) {
    for (int i = 0; i < 6; i++)
        for (int c = 0; c < 8; c++) out[0][i * 8 + c] = ((const f32 *)in[0])[((const int32_t *)in[1])[i] * 8 + c];
}

static void cumsum(const void *const *in, double *const *out) {
    for (int i = 0; i < 8 * 16; i++) out[0][i] = (i % 16 ? out[0][i - 1] : 0) + ((const f32 *)in[0])[i];
}

static void argmax(const void *const *in, double *const *out) {
    for (int i = 0; i < 16; i++) {
        const f32 *x = (const f32 *)in[0] + i * 10;
        int best = 0;
        for (int k = 1; k < 10; k++)
            if (x[k] > x[best]) best = k;
        out[0][i] = x[best];
        out[1][i] = best;
    }
}

int main(void) {
    example("matmul", 2, 1, matmul);
    example("linear_relu", 3, 1, linear_relu);
    example("softmax", 1, 1, softmax);
    example("layernorm", 3, 1, layernorm);
    example("attention", 3, 1, attention);
    example("conv", 3, 1, conv);
    example("gather", 2, 1, gather);
    example("cumsum", 1, 1, cumsum);
    example("argmax", 1, 2, argmax);
    return tap_done();
}
