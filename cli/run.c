/* run.c: `koine run FILE.kn`: runs a program of any stage on npy files or made-up inputs. */
#include "cli.h"

#include "base/hash.h"
#include "device/device.h"
#include "io/array.h"
#include "program.h"
#include "run/run.h"

#include <koine/device.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct runner {
    cli *c;
    kn_ctx *k;
    cli_program p;
    ki_array *in, *out;
    void **inp, **outp;
    int64_t seed;
} runner;

/* "NAME=rest" for this port: the rest, else NULL. */
static const char *given_for(const runner *r, const char *option, const char *name) {
    const char *s;
    size_t n = strlen(name);
    for (int i = 0; (s = cli_nth(r->c, option, i)); i++)
        if (strncmp(s, name, n) == 0 && s[n] == '=') return s + n + 1;
    return NULL;
}

static bool known(const ki_port *port, size_t n, const char *s, size_t len) {
    for (size_t i = 0; i < n; i++)
        if (strlen(port[i].name) == len && memcmp(port[i].name, s, len) == 0) return true;
    return false;
}

/* A file that is written twice keeps one of the two; a device or a pipe takes both. */
static bool is_one_file(const char *a, const char *b) {
    struct stat st;
    return strcmp(a, b) == 0 && (stat(a, &st) || S_ISREG(st.st_mode));
}

/* Nothing before the i-th --in or --out is of its port, or to its file. */
static bool is_first(const runner *r, const char *option, int i) {
    const char *s = cli_nth(r->c, option, i), *file = strchr(s, '=') + 1;
    for (int j = 0; j < i; j++) {
        const char *before = cli_nth(r->c, option, j), *other = strchr(before, '=') + 1;
        if (other - before == file - s && memcmp(before, s, (size_t)(file - s)) == 0)
            return cli_usage(r->c, "--%s %s: given before, as %s", option, s, other), false;
        if (strcmp(option, "out") == 0 && is_one_file(file, other))
            return cli_usage(r->c, "--%s %s: --%s %s is to be written there", option, s, option, before), false;
    }
    return true;
}

/* Every --in and --out must name a port, each another one. */
static bool check_names(const runner *r, const char *option, const ki_port *port, size_t n) {
    const char *s;
    for (int i = 0; (s = cli_nth(r->c, option, i)); i++) {
        const char *eq = strchr(s, '=');
        if (!eq) return cli_usage(r->c, "--%s %s: expected NAME=FILE", option, s), false;
        if (known(port, n, s, (size_t)(eq - s))) {
            if (!is_first(r, option, i)) return false;
            continue;
        }
        fprintf(stderr, "koine run: --%s %s: the program has no such %sput; it has", option, s, option);
        for (size_t p = 0; p < n; p++) fprintf(stderr, " %s", port[p].name);
        fputs(n ? "\n" : " none\n", stderr);
        return false;
    }
    return true;
}

static kn_dtype stored(kn_dtype t) { return t == KN_IDX ? KN_I64 : t; }

static void shape_text(char *buf, size_t n, unsigned rank, const int64_t *dim) {
    size_t at = (size_t)snprintf(buf, n, "(");
    for (unsigned i = 0; i < rank && at < n; i++)
        at += (size_t)snprintf(buf + at, n - at, i ? ", %lld" : "%lld", (long long)dim[i]);
    if (at < n) snprintf(buf + at, n - at, rank == 1 ? ",)" : ")");
}

/* ---- inputs ---- */

static void put_value(ki_array *a, int64_t i, double v) {
    uint64_t bits = ki_is_float(a->dtype) ? ki_bits_from_f64(a->dtype, v) : (uint64_t)(int64_t)v;
    memcpy((char *)a->data + (size_t)i * ki_itemsize(a->dtype), &bits, ki_itemsize(a->dtype));
}

/* Uniform in the port's range; without one: floats in [-1, 1), integers in -10 to 10, unsigned ones in 0 to 10.
 * An element depends on the seed, the port's name and its position, so that every stage gets the same. */
static void make_up(const runner *r, const ki_port *port, ki_array *a) {
    bool real = ki_is_float(a->dtype);
    double lo = real ? -1 : ki_is_sint(a->dtype) ? -10 : 0, hi = real ? 1 : a->dtype == KN_BOOL ? 1 : 10;
    if (port->ranged) lo = port->lo, hi = port->hi;
    uint64_t key = ki_hash_bytes((uint64_t)r->seed, port->name, strlen(port->name));
    for (int64_t i = 0; i < a->numel; i++) {
        double u = (double)(ki_hash2(key, (uint64_t)i) >> 11) * 0x1p-53;
        double v = real ? lo + (hi - lo) * u : lo + (double)(int64_t)((hi - lo + 1) * u);
        put_value(a, i, v > hi ? hi : v);
    }
}

static bool is_number(const char *s) {
    char *end;
    strtod(s, &end);
    return end != s && *end == 0;
}

/* A scalar written out. */
static bool put_number(const runner *r, const ki_port *port, const char *s, ki_array *a) {
    kn_dtype t = a->dtype;
    char *end;
    errno = 0;
    if (ki_is_float(t)) return put_value(a, 0, strtod(s, NULL)), true;
    bool u64 = t == KN_U64;
    long long v = u64 ? (long long)strtoull(s, &end, 0) : strtoll(s, &end, 0);
    long long hi = t == KN_BOOL ? 1 : u64 ? -1 : (long long)ki_int_max(t), lo = t == KN_BOOL || u64 ? 0 : ki_int_min(t);
    if (*end == 0 && errno == 0 && (u64 ? *s != '-' : v >= lo && v <= hi)) {
        memcpy(a->data, &v, ki_itemsize(t));
        return true;
    }
    cli_fail(r->c, "--in %s=%s: expected a whole number from %lld to %llu (%s)", port->name, s, lo,
             (unsigned long long)hi, ki_dtypes[t].name);
    return false;
}

static bool input(runner *r, const ki_port *port, ki_array *a) {
    const char *from = given_for(r, "in", port->name);
    if (!from || (port->rank == 0 && is_number(from))) {
        if (!ki_array_make(r->p.env, a, stored(port->dtype), port->rank, port->dim)) return false;
        if (from) return put_number(r, port, from, a);
        make_up(r, port, a);
        return true;
    }
    if (port->rank == 0 && access(from, F_OK) != 0) {
        cli_fail(r->c, "--in %s=%s: neither a number nor a file that is there; input %s is %s ()", port->name, from,
                 port->name, ki_dtypes[port->dtype].name);
        return false;
    }
    if (!ki_npy_read(r->p.env, from, a)) return false;
    if (a->dtype == stored(port->dtype) && a->rank == port->rank &&
        memcmp(a->dim, port->dim, port->rank * sizeof *a->dim) == 0)
        return true;
    char want[256], got[256];
    shape_text(want, sizeof want, port->rank, port->dim);
    shape_text(got, sizeof got, a->rank, a->dim);
    cli_fail(r->c, "%s holds %s %s, input %s is %s %s", from, ki_dtypes[a->dtype].name, got, port->name,
             ki_dtypes[port->dtype].name, want);
    return false;
}

/* ---- outputs ---- */

static void print_value(const ki_array *a, int64_t i) {
    uint64_t bits = 0;
    size_t n = ki_itemsize(a->dtype);
    memcpy(&bits, (const char *)a->data + (size_t)i * n, n);
    if (a->dtype == KN_BOOL) fputs(bits ? "true" : "false", stdout);
    else if (ki_is_float(a->dtype)) printf("%.*g", a->dtype == KN_F64 ? 17 : 9, ki_f64_from_bits(a->dtype, bits));
    else if (ki_is_uint(a->dtype)) printf("%llu", (unsigned long long)bits);
    else printf("%lld", (long long)(n < 8 ? (int64_t)(bits << (64 - 8 * n)) >> (64 - 8 * n) : (int64_t)bits));
}

/* Name, type, a digest of the bits, the first and last few values. */
static void print_array(const runner *r, const ki_port *port, const ki_array *a) {
    enum { HEAD = 6, TAIL = 2 };
    char shape[256], digest[24];
    shape_text(shape, sizeof shape, a->rank, a->dim);
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)ki_hash_bytes(0, a->data, a->bytes));
    if (r->c->json) {
        cli_json(stdout, "s output, s dtype, s shape, s digest", port->name, ki_dtypes[port->dtype].name, shape,
                 digest);
        return;
    }
    printf("%s : %s %s  %s  [", port->name, ki_dtypes[port->dtype].name, shape, digest);
    for (int64_t i = 0; i < a->numel; i++) {
        if (i == HEAD && a->numel > HEAD + TAIL) {
            fputs(", ...", stdout);
            i = a->numel - TAIL;
        }
        if (i) fputs(", ", stdout);
        print_value(a, i);
    }
    puts("]");
}

static bool output(runner *r, const ki_port *port, const ki_array *a) {
    const char *to = given_for(r, "out", port->name);
    if (to) return ki_npy_write(r->p.env, to, a);
    print_array(r, port, a);
    return true;
}

/* ---- the run ---- */

static bool allocate(runner *r) {
    const ki_program *p = &r->p.in;
    r->in = calloc(p->nin + 1, sizeof *r->in);
    r->out = calloc(p->nout + 1, sizeof *r->out);
    r->inp = calloc(p->nin + 1, sizeof *r->inp);
    r->outp = calloc(p->nout + 1, sizeof *r->outp);
    if (!r->in || !r->out || !r->inp || !r->outp) return ki_fail(r->p.env, KI_E_NOMEM), false;
    for (size_t i = 0; i < p->nin; i++) {
        if (!input(r, &p->in[i], &r->in[i])) return false;
        r->inp[i] = r->in[i].data;
    }
    for (size_t i = 0; i < p->nout; i++) {
        const ki_port *port = &p->out[i];
        if (!ki_array_make(r->p.env, &r->out[i], stored(port->dtype), port->rank, port->dim)) return false;
        r->outp[i] = r->out[i].data;
    }
    return true;
}

static void timings(const runner *r, double wall) {
    kn_stats s = kn_stats_of(r->k);
    fprintf(stderr, "lower %.2f ms, compile %.2f ms (%llu kernels, %llu cached), run %.2f ms, %.2f ms in all\n",
            1e3 * s.lower_seconds, 1e3 * s.compile_seconds, (unsigned long long)(s.kernels_compiled + s.kernels_cached),
            (unsigned long long)s.kernels_cached, 1e3 * s.run_seconds, 1e3 * wall);
    if (s.kernels_searched)
        fprintf(stderr, "searched for %llu kernels, measured %llu lists of OptOps\n",
                (unsigned long long)s.kernels_searched, (unsigned long long)s.trials_measured);
}

static bool is_native(const runner *r) {
    unsigned unit;
    const ki_device_class *d = ki_device_parse(r->p.env, cli_str(r->c, "device", NULL), &unit);
    return d && d->runs && !d->execute;
}

static int run_program(runner *r) {
    const ki_program *p = &r->p.in;
    if (!check_names(r, "in", p->in, p->nin) || !check_names(r, "out", p->out, p->nout)) return CLI_USAGE;
    if (!allocate(r)) return r->p.env->err ? cli_program_failed(r->c, &r->p) : CLI_FAILED;
    if (!cli_program_fits(r->c, &r->p, r->inp, r->outp, is_native(r))) return CLI_FAILED;
    double begun = cli_now();
    if (!ki_run_program(r->k, p, cli_str(r->c, "device", NULL), r->inp, r->outp))
        return cli_program_failed(r->c, &r->p);
    double wall = cli_now() - begun;
    for (size_t i = 0; i < p->nout; i++)
        if (!output(r, &p->out[i], &r->out[i])) return cli_program_failed(r->c, &r->p);
    timings(r, wall);
    return CLI_OK;
}

static void release(runner *r) {
    for (size_t i = 0; r->in && i < r->p.in.nin; i++) ki_array_free(&r->in[i]);
    for (size_t i = 0; r->out && i < r->p.in.nout; i++) ki_array_free(&r->out[i]);
    free(r->in);
    free(r->out);
    free(r->inp);
    free(r->outp);
}

static int run(cli *c) {
    runner r = {.c = c};
    if (!cli_int(c, "seed", INT64_MIN, INT64_MAX, &r.seed)) return CLI_USAGE;
    r.k = kn_open(cli_str(c, "device", NULL));
    if (!r.k) return cli_fail(c, "out of memory");
    cli_log(r.k);
    int rc = kn_error(r.k) ? cli_fail(c, "%s", kn_message(r.k)) : CLI_FAILED;
    if (!kn_error(r.k) && cli_program_open(c, &r.p, &r.k->env)) rc = run_program(&r);
    release(&r);
    cli_program_close(&r.p);
    kn_close(r.k);
    return rc;
}

static const cli_opt options[] = {
    {"in", "NAME=x.npy", "an input from a file; a scalar also as NAME=NUMBER; may be repeated"},
    {"out", "NAME=y.npy", "an output to a file; may be repeated"},
    {"device", "D", "where to run: CPU, INTERP, NULL; default KN_DEVICE, else CPU"},
    {"seed", "N", "of the inputs that are not given; default 0"},
    {"json", NULL, "outputs as one object a line"},
    {NULL, NULL, NULL},
};
const cli_verb cli_run = {
    .name = "run",
    .args = "FILE.kn [--in NAME=x.npy]... [--out NAME=y.npy]... [OPTIONS]",
    .summary = "run a program of any stage",
    .text =
        "FILE.kn is what `koine compile` reads and prints (- reads standard input). An input not given is made from "
        "the seed: uniform in the range its line states, else floats in [-1, 1), integers from -10 (0) to 10. An "
        "output not written to a file is printed: name, type, a digest of its bits, its first and last values. "
        "Timings go to standard error.",
    .opt = options,
    .least = 1,
    .most = 1,
    .run = run,
};
