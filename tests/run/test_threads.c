/* What a program computes depends on no number of threads: every result bit for bit that of one thread, at extents that no
 * number of threads divides. */
#include "run/run.h"
#include "../tap.h"

#include <koine/koine.h>

#include <stdlib.h>
#include <string.h>

#define H "koine 1 tensor\n"

/* In %x, out "y", each large enough to be worth threads. */
static const struct {
    const char *name, *text;
} programs[] = {
    {"add", H "%x = param \"x\" : f32 [200003]\n%y = add %x %x\nout \"y\" = %y\n"},
    {"exp", H "%x = param \"x\" : f32 [30011]\n%y = exp %x\nout \"y\" = %y\n"},
    {"sum", H "%x = param \"x\" : f32 [1048583]\n%y = reduce add %x axes=(0)\nout \"y\" = %y\n"},
    {"row sums", H "%x = param \"x\" : f32 [101, 2003]\n%y = reduce add %x axes=(1)\nout \"y\" = %y\n"},
    {"column sums", H "%x = param \"x\" : f32 [2003, 101]\n%y = reduce add %x axes=(0)\nout \"y\" = %y\n"},
    {"softmax", H "%x = param \"x\" : f32 [97, 333]\n%m = reduce max %x axes=(1)\n%n = expand %m (97, 333)\n"
                  "%d = sub %x %n\n%e = exp %d\n%s = reduce add %e axes=(1)\n%t = expand %s (97, 333)\n%y = div %e %t\n"
                  "out \"y\" = %y\n"},
    {"transpose",
     H "%x = param \"x\" : f32 [331, 457]\n%p = permute %x order=(1, 0)\n%y = add %p 1.0\nout \"y\" = %y\n"},
    {"product", H "%x = param \"x\" : f32 [67, 129]\n%a = reshape %x (67, 1, 129)\n%b = reshape %x (1, 67, 129)\n"
                  "%c = expand %a (67, 67, 129)\n%d = expand %b (67, 67, 129)\n%m = mul %c %d\n"
                  "%y = reduce add %m axes=(2)\nout \"y\" = %y\n"},
    {"batches", H "%x = param \"x\" : f32 [7, 61, 500]\n%s = reduce add %x axes=(2)\n%t = expand %s (7, 61, 500)\n"
                  "%m = mul %x %t\n%y = reduce max %m axes=(1)\nout \"y\" = %y\n"},
    {"a norm before the product of its row",
     H "%x = param \"x\" : f32 [403, 336]\n%r = shrink %x (0, 0) (1, 336)\n%s = reduce add %r axes=(1)\n"
       "%t = expand %s (1, 336)\n%n = sub %r %t\n%a = expand %n (403, 336)\n%m = mul %x %a\n"
       "%y = reduce add %m axes=(1)\nout \"y\" = %y\n"},
};
/* Too narrow for both vectors and threads. */
static bool alone(size_t i) { return strcmp(programs[i].name, "column sums") == 0; }

enum { N = sizeof programs / sizeof *programs };

typedef struct subject {
    ki_ir ir;
    ki_program p;
    void *in, *one, *out;
    size_t bytes;
} subject;

static size_t size(const ki_port *q) {
    size_t n = ki_itemsize(q->dtype);
    for (unsigned k = 0; k < q->rank; k++) n *= (size_t)q->dim[k];
    return n;
}

static bool open_subject(kn_ctx *k, subject *s, const char *text) {
    if (!ki_ir_open(&s->ir, &k->env) || !ki_parse(&s->ir, "test", text, strlen(text), &s->p)) return false;
    size_t n = size(&s->p.in[0]) / sizeof(float);
    float *x = s->in = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)((i * 2654435761u) % 20011) / 4001.0f - 2.3f;
    s->bytes = size(&s->p.out[0]);
    s->one = malloc(s->bytes), s->out = malloc(s->bytes);
    return true;
}

static void close_subject(subject *s) {
    ki_program_free(&s->p);
    ki_ir_close(&s->ir);
    free(s->in), free(s->one), free(s->out);
}

/* Runs all with so many threads; the most threads a kernel got. */
static void run(kn_ctx *k, subject *s, const char *threads) {
    const ki_program *p[N];
    ki_exec *e[N];
    uint32_t most[N] = {0};
    for (size_t i = 0; i < N; i++) p[i] = &s[i].p;
    kn_set(k, "KN_STREAM", strcmp(threads, "1") ? "1" : "0"); /* past the caches or not is the same too */
    bool ok = kn_set(k, "KN_THREADS", threads) == KN_OK && ki_prepare(k, "CPU", p, N, e);
    CHECK(ok, "%s threads: all compile %s", threads, kn_message(k));
    for (size_t i = 0; i < N && ok; i++) {
        bool one = strcmp(threads, "1") == 0;
        void *in[] = {s[i].in}, *out[] = {one ? s[i].one : s[i].out};
        memset(out[0], 0xa5, s[i].bytes);
        bool ran = ki_run_prepared(k, e[i], p[i], in, out);
        for (size_t l = 0; l < e[i]->schedule->nlaunch; l++)
            if (e[i]->schedule->launch[l].threads > most[i]) most[i] = e[i]->schedule->launch[l].threads;
        bool same = ran && memcmp(s[i].one, out[0], s[i].bytes) == 0;
        CHECK(same && (one ? most[i] == 1 : most[i] > 1 || alone(i)), "%s: the same with %s threads (%u have work)",
              programs[i].name, threads, most[i]);
        ki_exec_free(e[i]);
    }
}

int main(void) {
    static const char *const counts[] = {"1", "2", "3", "5", "8", "13"};
    static subject s[N];
    kn_ctx *k = kn_open("CPU");
    bool ok = k != NULL;
    for (size_t i = 0; i < N && ok; i++)
        if (!(ok = open_subject(k, &s[i], programs[i].text))) printf("# %s: %s\n", programs[i].name, kn_message(k));
    CHECK(ok, "all parse");
    for (size_t i = 0; i < sizeof counts / sizeof *counts && ok; i++) run(k, s, counts[i]);
    for (size_t i = 0; i < N && k; i++) close_subject(&s[i]);
    kn_close(k);
    return tap_done();
}
