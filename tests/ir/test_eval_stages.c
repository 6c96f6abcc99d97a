/* test_eval_stages.c: every example program, lowered to every stage and interpreted there, agrees with the tensor program
 * within the bounds the interpreter carries. */
#include "eval_util.h"

#include "stages/stages.h"

#include <dirent.h>
#include <stdlib.h>

static char *read_all(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = f ? malloc(1 << 20) : NULL;
    *n = s ? fread(s, 1, 1 << 20, f) : 0;
    if (f) fclose(f);
    return s;
}

static size_t port_bytes(const ki_port *p) { return (size_t)port_size(p) * ki_itemsize(p->dtype); }

/* Made-up values of an in port: inside its range, else small whole numbers. */
static void fill(const ki_port *p, void *data, uint64_t seed) {
    for (int64_t i = 0; i < port_size(p); i++) {
        uint64_t r = ki_threefry((uint64_t)i, seed);
        double u = (double)(r >> 11) * 0x1p-53, v = p->ranged               ? p->lo + u * (p->hi - p->lo)
                                                    : ki_is_float(p->dtype) ? 4 * u - 2
                                                                            : floor(4 * u);
        if (!ki_is_float(p->dtype) && p->ranged) v = floor(p->lo + u * (p->hi - p->lo + 1));
        if (v > p->hi && p->ranged) v = p->hi;
        ki_storage_put(p->dtype, data, i, ki_bits_from_f64(p->dtype, v));
    }
}

typedef struct data {
    void *in[32], *want[32], *got[32];
    double *bound[32];
} data;

static void make_data(const ki_program *p, data *d) {
    memset(d, 0, sizeof *d);
    for (size_t i = 0; i < p->nin; i++) {
        d->in[i] = calloc(port_bytes(&p->in[i]) + 8, 1);
        fill(&p->in[i], d->in[i], i + 1);
    }
    for (size_t i = 0; i < p->nout; i++) {
        d->want[i] = calloc(port_bytes(&p->out[i]) + 8, 1);
        d->got[i] = calloc(port_bytes(&p->out[i]) + 8, 1);
        d->bound[i] = calloc((size_t)port_size(&p->out[i]) + 1, sizeof(double));
    }
}
static void free_data(data *d) {
    for (int i = 0; i < 32; i++) free(d->in[i]), free(d->want[i]), free(d->got[i]), free(d->bound[i]);
}

static bool compare(const ki_program *p, data *d, const char *stage) {
    bool ok = true;
    for (size_t i = 0; i < p->nout; i++) {
        ki_agreement r;
        if (ki_agree(p->out[i].dtype, port_size(&p->out[i]), d->got[i], d->want[i], d->bound[i], 0, &r)) continue;
        printf("# %s: output %s: %lld of %lld wrong, %lld exempt; element %lld is %.9g, want %.9g within %.3g\n", stage,
               p->out[i].name, (long long)r.wrong, (long long)r.n, (long long)r.exempt, (long long)r.first, r.got,
               r.want, r.bound);
        ok = false;
    }
    return ok;
}

static bool at_stage(const ki_program *p, data *d, ki_stage s) {
    ki_env env;
    ki_ir ir;
    ki_program q = {0};
    const void *in[32];
    bool ok = ki_env_open(&env) && ki_ir_open(&ir, &env);
    ok = ok && ki_lower(p, &ir, s, &(ki_lower_opts){.machine.threads = 2}, &q);
    for (size_t i = 0; ok && i < q.nin; i++) { /* its in ports are those of p, perhaps in another order */
        in[i] = NULL;
        for (size_t k = 0; k < p->nin; k++)
            if (!strcmp(p->in[k].name, q.in[i].name)) in[i] = d->in[k];
        ok = in[i] != NULL;
    }
    for (size_t i = 0; ok && i < p->nout; i++) memset(d->got[i], 0x5a, port_bytes(&p->out[i]));
    ok = ok && ki_eval(&q, in, d->got, NULL) == KI_OK;
    if (!ok) printf("# %s: %s\n", ki_stage_names[s], env.message.s ? env.message.s : "ports differ");
    ok = ok && compare(p, d, ki_stage_names[s]);
    ki_program_free(&q);
    ki_ir_close(&ir);
    ki_env_close(&env);
    return ok;
}

static void one(const char *path, const char *name) {
    static lab l;
    size_t n;
    char *text = read_all(path, &n);
    memset(&l.p, 0, sizeof l.p);
    bool ok = text && ki_env_open(&l.env) && ki_ir_open(&l.ir, &l.env) && ki_parse(&l.ir, name, text, n, &l.p);
    if (!ok) printf("# %s\n", text ? l.env.message.s : "cannot read");
    data d;
    make_data(&l.p, &d);
    ki_eval_opts o = {.bound = d.bound};
    if (ok && ki_eval(&l.p, (const void *const *)d.in, d.want, &o) != KI_OK) {
        printf("# %s\n", l.env.message.s);
        ok = false;
    }
    int64_t exempt = 0, all = 0;
    for (size_t i = 0; ok && i < l.p.nout; i++)
        for (int64_t k = 0; k < port_size(&l.p.out[i]); k++, all++) exempt += d.bound[i][k] == INFINITY;
    CHECK(ok && exempt * 100 <= all, "%s: interpreted with bounds, %lld of %lld elements exempt", name,
          (long long)exempt, (long long)all);
    for (int s = KI_S_CALLIFY; ok && s < KI_S_COUNT; s++)
        CHECK(at_stage(&l.p, &d, (ki_stage)s), "%s: %s agrees", name, ki_stage_names[s]);
    free_data(&d);
    free(text);
    lab_close(&l);
}

int main(int argc, char **argv) {
    char path[512];
    if (argc > 1) {
        for (int i = 1; i < argc; i++) one(argv[i], argv[i]);
        return tap_done();
    }
    struct dirent **list;
    int n = scandir("examples", &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(list[i]->d_name);
        snprintf(path, sizeof path, "examples/%s", list[i]->d_name);
        if (len > 3 && !strcmp(list[i]->d_name + len - 3, ".kn")) one(path, list[i]->d_name);
        free(list[i]);
    }
    if (n >= 0) free(list);
    return tap_done();
}
