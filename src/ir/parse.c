/* parse.c: a whole text: header, statements, ports, root. The grammar is docs/text.md.
 *
 * What holds: reading is linear in the text, without recursion; on failure the store is as before. */
#include "ir/parse.h"

#include <math.h>
#include <string.h>

/* A named PARAM of the tensor stage: an in port, unless the text has `in` lines. */
typedef struct implied {
    kn_uop node;
    size_t at, range_at;
    bool ranged;
    double lo, hi;
} implied;

typedef struct file {
    ki_reader r;
    ki_program *p;
    implied *param;
    uint32_t nparam, param_cap;
    bool in_lines;    /* some `in` line stood there */
    ki_names in, out; /* port names: keys point to the ports' own copies */
} file;

static const char *stage_name(size_t i) { return ki_stage_names[i]; }

/* Past blank lines and comments, to the next statement or the end. */
static void next_statement(ki_reader *r) {
    for (;;) {
        ki_skip(r);
        if (ki_peek(r) == '#' && r->at < r->n)
            while (r->at < r->n && r->text[r->at] != '\n') r->at++;
        if (r->at >= r->n || r->text[r->at] != '\n') return;
        r->at++;
    }
}

static bool end_statement(ki_reader *r, const char *what) {
    if (ki_at_end(r)) return true;
    char buf[64];
    return KI_READ_FAIL(r, KI_E_TEXT_TRAILING, r->at, ki_token(r, r->at, buf, sizeof buf), what);
}

static bool read_header(file *f) {
    ki_reader *r = &f->r;
    const char *s;
    if (r->n >= 3 && memcmp(r->text, "\xef\xbb\xbf", 3) == 0) r->at = 3; /* a byte order mark */
    next_statement(r);
    size_t at = r->at, n = ki_word(r, &s);
    if (!ki_word_is(s, n, "koine")) return KI_READ_FAIL(r, KI_E_TEXT_HEADER, at, KI_TEXT_VERSION);
    ki_skip(r);
    size_t version_at = r->at, len = ki_literal_len(r);
    int64_t version;
    if (!len || ki_i64_read(r->text + version_at, len, &version) != KI_NUM_OK)
        return KI_READ_FAIL(r, KI_E_TEXT_HEADER, version_at, KI_TEXT_VERSION);
    if (version != KI_TEXT_VERSION)
        return KI_READ_FAIL(r, KI_E_TEXT_VERSION, version_at, (int)(len > 40 ? 40 : len), r->text + version_at,
                            KI_TEXT_VERSION);
    r->at += len;
    ki_skip(r);
    at = r->at, n = ki_word(r, &s);
    if (!n) return ki_read_wanted(r, "a stage: tensor, callify, ...");
    for (int k = 0; k < KI_S_COUNT; k++) {
        if (!ki_word_is(s, n, ki_stage_names[k])) continue;
        f->p->stage = (ki_stage)k;
        return end_statement(r, "the header");
    }
    const char *near = ki_nearest(s, n, stage_name, KI_S_COUNT);
    return KI_READ_FAIL(r, KI_E_TEXT_STAGE, at, (int)(n > 40 ? 40 : n), s, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

/* ---- ports -------------------------------------------------------------------------------------------------- */

/* in [lo, hi]: the range of made-up values. The word was read. */
static bool read_range(ki_reader *r, double *lo, double *hi) {
    ki_skip(r);
    size_t at = r->at;
    if (!ki_expect_char(r, '[', "before the range") || !ki_read_f64(r, lo)) return false;
    if (!ki_expect_char(r, ',', "in the range") || !ki_read_f64(r, hi)) return false;
    if (!ki_expect_char(r, ']', "after the range")) return false;
    if (!(*lo <= *hi)) return KI_READ_FAIL(r, KI_E_TEXT_EMPTY_RANGE, at, "range");
    return true;
}

static bool accept_in(ki_reader *r) {
    const char *s;
    ki_skip(r);
    size_t at = r->at, n = ki_word(r, &s);
    if (ki_word_is(s, n, "in")) return true;
    r->at = at;
    return false;
}

/* Adds a port and its name to the table of names. Tensors that nobody named give ports without a name, as many as they are. */
static bool add_port(file *f, bool output, const char *name, size_t len, kn_uop node, size_t at) {
    ki_names *t = output ? &f->out : &f->in;
    const char *kind = output ? "out" : "in";
    if (memchr(name, 0, len)) return KI_READ_FAIL(&f->r, KI_E_TEXT_NUL, at, "a name");
    if (len && ki_names_find(t, name, len))
        return KI_READ_FAIL(&f->r, KI_E_TEXT_PORT_TWICE, at, kind, (int)(len > 60 ? 60 : len), name);
    if (!ki_program_port(f->p, output, name, len, node)) return false;
    ki_port *q = output ? &f->p->out[f->p->nout - 1] : &f->p->in[f->p->nin - 1];
    return !len || ki_names_add(t, q->name, len, node, at) || ki_read_nomem(&f->r);
}

/* The shape and dtype the user sees. */
static bool port_type(file *f, ki_port *q, const ki_said *said) {
    ki_reader *r = &f->r;
    if (!said->type) return true;
    bool same = said->dtype == q->dtype && (!said->dims || said->rank == q->rank);
    for (unsigned k = 0; same && said->dims && k < q->rank; k++) same = said->dim[k] == q->dim[k];
    if (!same && f->p->stage == KI_S_TENSOR) return ki_read_unlike(r, KI_E_TEXT_PORT_TYPE, q->name, said, q->node);
    q->dtype = said->dtype;
    if (said->dims) {
        q->rank = said->rank;
        for (unsigned k = 0; k < q->rank; k++) q->dim[k] = said->dim[k];
    }
    /* The buffer's own size: kernels write all of what the user's array is then the memory of. */
    int64_t bytes = (int64_t)ki_itemsize(q->dtype);
    for (unsigned k = 0; k < q->rank; k++)
        if (ki_mul_overflow(bytes, q->dim[k], &bytes)) bytes = INT64_MAX, k = q->rank;
    if (bytes == ki_nbytes(q->node) && bytes < INT64_MAX) return true;
    return ki_read_unlike(r, KI_E_TEXT_PORT_TYPE, q->name, said, q->node);
}

/* in "x" = %3 : f32 [4, 4] in [-4, 4]; out "y" = %9 : f32 [4]. The word was read at `at`. */
static bool read_port(file *f, bool output, size_t at) {
    ki_reader *r = &f->r;
    const char *s;
    ki_said said;
    kn_uop node;
    ki_skip(r);
    size_t from = r->at, n = ki_word(r, &s);
    if (!output) f->in_lines = true;
    if (!output && ki_word_is(s, n, "none")) return end_statement(r, "'in none'");
    r->at = from;
    if (!ki_read_string(r)) return false;
    ki_text name = r->str;
    r->str = (ki_text){0};
    bool ok = ki_expect_char(r, '=', "after the port's name");
    ki_skip(r);
    size_t node_at = r->at;
    ok = ok && ki_read_ref(r, &node);
    if (ok && !output && node->op != KN_PARAM && node->op != KN_BUFFER)
        ok = KI_READ_FAIL(r, KI_E_TEXT_PORT_NODE, node_at, ki_ops[node->op].name);
    if (ok && node->dtype == KN_VOID) ok = KI_READ_FAIL(r, KI_E_TEXT_PORT_NODE, node_at, ki_ops[node->op].name);
    ok = ok && ki_read_type(r, &said) && add_port(f, output, name.s, name.n, node, at);
    if (ok) {
        ki_port *q = output ? &f->p->out[f->p->nout - 1] : &f->p->in[f->p->nin - 1];
        ok = port_type(f, q, &said);
        if (ok && !output && accept_in(r)) q->ranged = true, ok = read_range(r, &q->lo, &q->hi);
    }
    ki_text_free(&name);
    return ok && end_statement(r, output ? "the out port" : "the in port");
}

/* ---- statements --------------------------------------------------------------------------------------------- */

static bool note_param(file *f, kn_uop u, size_t at) {
    ki_reader *r = &f->r;
    implied e = {.node = u, .at = at};
    ki_skip(r);
    e.range_at = r->at;
    if (accept_in(r)) {
        e.ranged = true;
        if (!read_range(r, &e.lo, &e.hi)) return false;
    }
    if (f->nparam == f->param_cap) {
        uint32_t cap = f->param_cap ? f->param_cap * 2 : 16;
        implied *p = cap ? ki_realloc(f->param, cap, sizeof *p) : NULL;
        if (!p) return ki_read_nomem(r);
        f->param = p;
        f->param_cap = cap;
    }
    f->param[f->nparam++] = e;
    return true;
}

static bool read_root(file *f, size_t at) {
    if (f->p->root) return KI_READ_FAIL(&f->r, KI_E_TEXT_ROOTS, at, "root");
    return ki_read_ref(&f->r, &f->p->root) && end_statement(&f->r, "the root");
}

static bool read_statement(file *f) {
    ki_reader *r = &f->r;
    size_t at = r->at;
    const char *s;
    if (ki_peek(r) == '%') {
        kn_uop u;
        if (!ki_read_node(r, &u)) return false;
        if (f->p->stage == KI_S_TENSOR && u->op == KN_PARAM && u->arg.param->len && !note_param(f, u, at)) return false;
        return end_statement(r, "the node");
    }
    size_t n = ki_word(r, &s);
    if (ki_word_is(s, n, "in")) return read_port(f, false, at);
    if (ki_word_is(s, n, "out")) return read_port(f, true, at);
    if (ki_word_is(s, n, "root")) return read_root(f, at);
    char buf[64];
    return KI_READ_FAIL(r, KI_E_TEXT_STATEMENT, at, ki_token(r, at, buf, sizeof buf));
}

static bool imply_ports(file *f) {
    for (uint32_t i = 0; i < f->nparam; i++) {
        implied *e = &f->param[i];
        if (f->in_lines) {
            if (e->ranged) return KI_READ_FAIL(&f->r, KI_E_TEXT_PORT_MIXED, e->range_at, "in");
            continue;
        }
        const ki_param *q = e->node->arg.param;
        ki_name_slot *old = ki_names_find(&f->in, q->name, q->len);
        if (old && old->node == e->node && !e->ranged) continue; /* the same line under another name */
        if (!add_port(f, false, q->name, q->len, e->node, e->at)) return false;
        ki_port *port = &f->p->in[f->p->nin - 1];
        port->ranged = e->ranged, port->lo = e->lo, port->hi = e->hi;
    }
    return true;
}

/* A tensor program's root need not be written: it is the SINK of its outputs. */
static bool imply_root(file *f) {
    ki_program *p = f->p;
    if (p->root) return true;
    if (p->stage != KI_S_TENSOR) return KI_READ_FAIL(&f->r, KI_E_TEXT_NO_ROOT, f->r.n, "root %name");
    if (!p->nout) return KI_READ_FAIL(&f->r, KI_E_TEXT_NO_ROOT, f->r.n, "out \"name\" = %name");
    kn_uop *v = ki_malloc(p->nout * sizeof *v);
    if (!v) return ki_read_nomem(&f->r);
    for (size_t i = 0; i < p->nout; i++) v[i] = p->out[i].node;
    p->root = ki_opn(p->ir, KN_SINK, v, (uint32_t)p->nout);
    ki_free(v);
    return p->root != NULL;
}

static bool read_file(file *f) {
    if (f->r.n > (size_t)INT64_MAX / 2) return KI_READ_FAIL(&f->r, KI_E_TEXT_LIMIT, 0, "bytes", INT64_MAX / 2);
    if (!read_header(f)) return false;
    for (;;) {
        next_statement(&f->r);
        if (f->r.at >= f->r.n) return imply_ports(f) && imply_root(f);
        if (!read_statement(f)) return false;
    }
}

bool ki_parse(ki_ir *ir, const char *source, const char *text, size_t n, ki_program *p) {
    ki_env *env = ir->env;
    ki_loc loc = env->loc;
    file f = {.r = {.ir = ir, .source = source, .text = text ? text : "", .n = text ? n : 0}, .p = p};
    *p = (ki_program){.ir = ir};
    f.r.clean = env->err == KI_E_NONE;
    env->loc = (ki_loc){0}; /* a message's place is in the text */
    ki_mark mark = ki_ir_mark(ir);
    bool ok = read_file(&f);
    env->loc = loc;
    ki_free(f.r.names.slot);
    ki_free(f.r.src);
    ki_free(f.r.lit);
    ki_text_free(&f.r.str);
    ki_free(f.param);
    ki_free(f.in.slot);
    ki_free(f.out.slot);
    if (!ok) {
        ki_program_free(p);
        p->root = NULL;
        ki_ir_drop(ir, mark);
    }
    return ok;
}
