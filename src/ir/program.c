/* program.c: a program's ports, and the tables both directions of the text form share. See program.h, parse.h. */
#include "ir/parse.h"

#include <string.h>

const char *const ki_stage_names[KI_S_COUNT] = {
    "tensor", "callify", "rangeify", "optimize", "expand", "select", "linearize", "plan", "render",
};
const char *const ki_space_names[3] = {"GLOBAL", "LOCAL", "REG"};
const char *const ki_optop_names[KI_OPT_COUNT] = {"split",  "padto", "swap",     "nolocals", "tc",    "stage", "cut",
                                                  "stream", "join",  "prefetch", "scan",     "rows",  "late",  "first",
                                                  "deal",   "frame", "terms",    "pipeline", "rotate"};

/* ---- ports -------------------------------------------------------------------------------------------------- */

static void free_ports(ki_port *v, size_t n) {
    for (size_t i = 0; i < n; i++) ki_free(v[i].name);
    ki_free(v);
}

void ki_program_free(ki_program *p) {
    free_ports(p->in, p->nin);
    free_ports(p->out, p->nout);
    ki_free(p->filled);
    p->filled = NULL;
    p->in = p->out = NULL;
    p->nin = p->nout = 0;
}

static char *copy_name(const char *name, size_t len) {
    char *s = ki_malloc(len + 1);
    if (!s) return NULL;
    if (len) memcpy(s, name, len);
    s[len] = 0;
    return s;
}

bool ki_program_port(ki_program *p, bool output, const char *name, size_t len, kn_uop node) {
    ki_port **v = output ? &p->out : &p->in;
    size_t *n = output ? &p->nout : &p->nin;
    if (!node) return false;
    if ((*n & (*n - 1)) == 0) { /* room doubles at powers of two: the count alone says how much there is */
        ki_port *more = ki_realloc(*v, *n ? *n * 2 : 1, sizeof **v);
        if (!more) return ki_fail(p->ir->env, KI_E_NOMEM), false;
        *v = more;
    }
    ki_port *q = &(*v)[*n];
    *q = (ki_port){.name = copy_name(name, len), .node = node, .dtype = (kn_dtype)node->dtype};
    if (!q->name) return ki_fail(p->ir->env, KI_E_NOMEM), false;
    q->rank = node->type->rank;
    for (unsigned k = 0; k < q->rank; k++) q->dim[k] = node->type->dim[k].n;
    ++*n;
    return true;
}

static bool clone_ports(ki_port **to, size_t *nto, const ki_port *from, size_t n) {
    size_t room = 1;
    while (room < n) room *= 2;
    ki_port *v = n ? ki_malloc(room * sizeof *v) : NULL;
    if (n && !v) return false;
    for (size_t i = 0; i < n; i++) {
        v[i] = from[i];
        v[i].name = copy_name(from[i].name, strlen(from[i].name));
        if (!v[i].name) return free_ports(v, i), false;
    }
    free_ports(*to, *nto);
    *to = v;
    *nto = n;
    return true;
}

bool ki_program_clone_ports(ki_program *to, const ki_program *from) {
    if (to == from) return true;
    if (clone_ports(&to->in, &to->nin, from->in, from->nin) && clone_ports(&to->out, &to->nout, from->out, from->nout))
        return true;
    ki_program_free(to);
    return ki_fail(from->ir->env, KI_E_NOMEM), false;
}

/* The program's nodes and more[0..n) into v, or back. */
static void exchange(ki_program *p, kn_uop *more, size_t n, kn_uop *v, bool back) {
    for (size_t k = 0; k < 1 + p->nin + p->nout + n; k++) {
        size_t i = k - 1;
        kn_uop *node = k == 0                 ? &p->root
                       : i < p->nin           ? &p->in[i].node
                       : i < p->nin + p->nout ? &p->out[i - p->nin].node
                                              : &more[i - p->nin - p->nout];
        if (back) *node = v[k];
        else v[k] = *node;
    }
}

bool ki_program_collect(ki_program *p, kn_uop *more, size_t n) {
    size_t count = 1 + p->nin + p->nout + n;
    kn_uop *v = ki_calloc(count, sizeof *v);
    if (!v) return ki_fail(p->ir->env, KI_E_NOMEM), false;
    exchange(p, more, n, v, false);
    bool ok = ki_ir_collect(p->ir, v, count);
    if (ok) exchange(p, more, n, v, true);
    ki_free(v);
    return ok;
}

/* ---- what the text form knows of an op ---------------------------------------------------------------------- */

bool ki_dtype_given(kn_op op) {
    enum { SRC0, SRC1, SRC2, GIVEN, BOOL, VOID, INDEX, U8, TUPLE, GETTUPLE, STACK };
    static const unsigned char rule[KI_OP_COUNT] = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc) [KN_##name] = dtype,
#include "ir/ops.def"
#undef KI_OP
    };
    return rule[op] == GIVEN;
}

ki_expect ki_expects(kn_op op, uint32_t i) {
    switch (op) {
    case KN_PARAM: return KI_X_SHAPE;
    case KN_RESHAPE:
    case KN_EXPAND:
    case KN_PAD:
    case KN_SHRINK: return i ? KI_X_SHAPE : KI_X_NONE;
    case KN_RANGE:
    case KN_SPECIAL: return KI_X_INDEX;
    case KN_INDEX:
    case KN_SLICE: return i ? KI_X_INDEX : KI_X_NONE;
    case KN_WHERE: return i ? KI_X_GROUP : KI_X_NONE;
    case KN_LOAD:
    case KN_STORE:
    case KN_ATOMICADD: return i < 2 ? KI_X_GROUP : KI_X_NONE;
    case KN_STACK: return KI_X_GROUP;
    default: return ki_is_elementwise(op) ? KI_X_GROUP : KI_X_NONE;
    }
}

/* ---- names that look alike ---------------------------------------------------------------------------------- */

enum { NEAR_MAX = 24 };

/* Edit distance with transpositions, of words up to NEAR_MAX. */
static unsigned edits(const char *a, size_t na, const char *b, size_t nb) {
    unsigned row[3][NEAR_MAX + 1];
    for (size_t j = 0; j <= nb; j++) row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned *now = row[i % 3], *up = row[(i + 2) % 3], *up2 = row[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const char *ki_nearest(const char *s, size_t len, const char *(*name)(size_t), size_t n) {
    const char *found = NULL;
    unsigned best = len < 3 ? 4 : len < 6 ? 6 : 8; /* twice the edits that are too many */
    if (len > NEAR_MAX) return NULL;
    for (size_t i = 0; i < n; i++) {
        const char *c = name(i);
        if (strlen(c) > NEAR_MAX) continue;
        unsigned d = 2 * edits(s, len, c, strlen(c)) + (*s != *c); /* the first letter is seldom wrong */
        if (d < best) best = d, found = c;
    }
    return found;
}
