/* data.h: what a random program runs on: arrays of its ports, with guards, and what the interpreter makes of them. */
#ifndef DATA_H
#define DATA_H

#include "base/hash.h"
#include "ir/agree.h"
#include "ir/eval.h"
#include "ir/scalar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 64, GUARD = 64 };

typedef struct arrays {
    void *in[PORTS], *want[PORTS], *got[PORTS];
    double *bound[PORTS];
    size_t nin, nout;
} arrays;

static int64_t port_numel(const ki_port *p) {
    int64_t n = 1;
    for (unsigned k = 0; k < p->rank; k++) n *= p->dim[k];
    return n;
}
static size_t port_size(const ki_port *p) { return (size_t)port_numel(p) * ki_itemsize(p->dtype); }

static void *array_new(size_t n) {
    char *a = aligned_alloc(64, (n + 63) / 64 * 64 + GUARD);
    if (a) memset(a, 0xa5, (n + 63) / 64 * 64 + GUARD);
    return a;
}
/* Nothing was written behind the end. */
static bool guard_whole(const void *a, size_t n) {
    const unsigned char *c = a;
    for (size_t i = n; i < (n + 63) / 64 * 64 + GUARD; i++)
        if (c[i] != 0xa5) return false;
    return true;
}

static double special(kn_dtype t, uint64_t r) {
    static const double f[] = {0,      -0.0, 1,   -1,  INFINITY, -INFINITY, NAN, 1e-8,
                               -1e-40, 3e38, 0.5, 448, 65504,    1e-300,    2,   -3};
    if (ki_is_float(t)) return f[r % 16];
    switch (r % 8) {
    case 0: return (double)ki_int_min(t);
    case 1: return (double)ki_int_max(t);
    case 2: return t == KN_BOOL || ki_is_uint(t) ? 1 : -1;
    case 3: return 0;
    default: return (double)(r / 8 % 7);
    }
}

static uint64_t element(const ki_port *p, uint64_t r) {
    kn_dtype t = p->dtype;
    double u = (double)(r >> 11) * 0x1p-53, v;
    bool real = ki_is_float(t), sign = ki_is_sint(t);
    if (t == KN_BOOL) return r >> 17 & 1;
    switch (p->name[0]) {
    case 'w':
        if (!real) return ki_bits_wrap(t, (int64_t)(r % 3 ? r : r % 11));
        v = ldexp(2 * u - 1, (int)(r % 40) - 20);
        break;
    case 's':
        v = r % 3 ? floor(13 * u) / (real ? 4 : 1) - (sign || real ? 3 : 0) : special(t, r / 3);
        if (!real && r % 3 == 0 && (r / 3) % 8 == 1) return ki_bits_wrap(t, ki_int_max(t)); /* exact in 64 bits */
        break;
    case 'r': v = p->ranged ? p->lo + u * (p->hi - p->lo) : 6 * u - 3; break;
    case 'i': v = p->ranged ? p->lo + floor(u * (p->hi - p->lo + 1)) : 0; break;
    default: v = real ? floor(33 * u) / 4 - 4 : sign ? floor(11 * u) - 5 : floor(8 * u);
    }
    return real ? ki_bits_from_f64(t, v) : ki_bits_wrap(t, (int64_t)v);
}

/* Depends on the port's name and type alone. */
static void fill(const ki_port *p, void *a) {
    uint64_t key = ki_hash_bytes(p->dtype, p->name, strlen(p->name));
    for (int64_t i = 0; i < port_numel(p); i++) ki_storage_put(p->dtype, a, i, element(p, ki_hash2(key, (uint64_t)i)));
}

static void arrays_free(arrays *d) {
    for (size_t i = 0; i < d->nin; i++) free(d->in[i]);
    for (size_t i = 0; i < d->nout; i++) free(d->want[i]), free(d->got[i]), free(d->bound[i]);
    memset(d, 0, sizeof *d);
}

/* Inputs, and the interpreter's outputs and bounds. False: env says why. */
static bool arrays_make(const ki_program *p, arrays *d) {
    memset(d, 0, sizeof *d);
    if (p->nin > PORTS || p->nout > PORTS) return false;
    d->nin = p->nin, d->nout = p->nout;
    for (size_t i = 0; i < p->nin; i++) {
        d->in[i] = array_new(port_size(&p->in[i]));
        fill(&p->in[i], d->in[i]);
    }
    for (size_t i = 0; i < p->nout; i++) {
        d->want[i] = array_new(port_size(&p->out[i]));
        d->got[i] = array_new(port_size(&p->out[i]));
        d->bound[i] = calloc((size_t)port_numel(&p->out[i]) + 1, sizeof(double));
    }
    return ki_eval(p, (const void *const *)d->in, d->want, &(ki_eval_opts){.bound = d->bound}) == KI_OK;
}

/* The inputs of `q`, which may stand in another order, by name. NULL: no such input. */
static void *input_named(const ki_program *p, const arrays *d, const char *name) {
    for (size_t i = 0; i < p->nin; i++)
        if (strcmp(p->in[i].name, name) == 0) return d->in[i];
    return NULL;
}

/* got against want; exempt elements are counted apart, so that a program may consist of them. */
static bool compare(const ki_program *p, const arrays *d, char *why, size_t n, int64_t *total, int64_t *exempt) {
    for (size_t i = 0; i < p->nout; i++) {
        ki_agreement r;
        const ki_port *q = &p->out[i];
        ki_agree(q->dtype, port_numel(q), d->got[i], d->want[i], d->bound[i], 0, &r);
        *total += r.n;
        *exempt += r.exempt;
        if (!guard_whole(d->got[i], port_size(q)))
            return snprintf(why, n, "output %s: written behind its end", q->name), false;
        if (!r.wrong) continue;
        snprintf(why, n, "output %s: element %d is %.17g, not %.17g (bound %.3g); %d of %d wrong", q->name,
                 (int)r.first, r.got, r.want, r.bound, (int)r.wrong, (int)r.n);
        return false;
    }
    return true;
}

#endif
