/* print.c: a program, or any graph, as text. The grammar is docs/text.md; parse*.c read what is written here.
 *
 * What holds: reading the text gives the same graph, and printing that gives the same bytes. So everything that is
 * part of a node's key is written, and nothing that depends on addresses or on what else the store holds. A node
 * has a line, and a number in depth-first post-order (the graph alone decides it), unless it stands inline wherever it
 * is used (constants, shapes). */
#include "base/cpuid.h"
#include "ir/parse.h"

#include <stdio.h>
#include <string.h>

typedef struct printer {
    ki_text *t;
    const ki_env *env;
    kn_uop *node; /* reachable, ascending */
    int64_t n;
    uint32_t *ord; /* by id: 0 inline, else the line's number */
    uint32_t nord;
    const ki_program *p; /* NULL: a graph alone */
    bool implied_in;     /* params are the in ports */
    kn_uop hidden;       /* the implied root, no line */
    uint64_t run_total;
} printer;

enum { TYPE_COLUMN = 40 };

/* ---- pieces ------------------------------------------------------------------------------------------------- */

static bool plain_device(const char *s) {
    if (!*s) return false;
    return s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:,./-")] == 0;
}

static void put_device(ki_text *t, const ki_env *env, unsigned device) {
    const char *s = device < env->ndevice ? env->device[device] : NULL;
    if (!s) ki_text_put(t, "\"?\"");
    else if (plain_device(s)) ki_text_put(t, s);
    else ki_string_put(t, s, strlen(s));
}

static void put_dims(ki_text *t, const ki_type *type) {
    ki_text_putc(t, '[');
    for (unsigned k = 0; k < type->rank; k++)
        ki_text_printf(t, "%s%s%lld", k ? ", " : "", type->dim[k].sym ? "<=" : "", (long long)type->dim[k].n);
    ki_text_putc(t, ']');
}

void ki_type_put(ki_text *t, const ki_env *env, kn_dtype dtype, const ki_type *type) {
    ki_text_put(t, ki_dtypes[dtype].name);
    if (type->rank) ki_text_putc(t, ' '), put_dims(t, type);
    if (type->device) ki_text_put(t, " @"), put_device(t, env, type->device);
    if (type->axis >= 0) ki_text_printf(t, " axis=%d", type->axis);
}

/* Length of the UTF-8 sequence at s, 0 if it is none (or an overlong or surrogate one). */
static size_t utf8_len(const unsigned char *s, size_t n) {
    size_t len = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (!len || n < len) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)) return 0;
    return len;
}

void ki_string_put(ki_text *t, const char *s, size_t n) {
    ki_text_putc(t, '"');
    for (size_t i = 0, run; i < n; i += run) {
        const unsigned char *p = (const unsigned char *)s + i;
        run = *p >= 0x80 ? utf8_len(p, n - i) : *p >= 32 && *p != 127 && *p != '"' && *p != '\\';
        if (run) {
            ki_text_putn(t, s + i, run);
            continue;
        }
        run = 1;
        if (*p == '"' || *p == '\\') ki_text_putc(t, '\\'), ki_text_putc(t, (char)*p);
        else if (*p == '\n') ki_text_put(t, "\\n");
        else if (*p == '\t') ki_text_put(t, "\\t");
        else ki_text_printf(t, "\\x%02x", *p);
    }
    ki_text_putc(t, '"');
}

/* Text of several lines stands on several lines. */
static void put_lines(ki_text *t, const char *s, size_t n) {
    const char *end = memchr(s, '\n', n);
    if (!end || end + 1 == s + n) {
        ki_text_putc(t, ' ');
        ki_string_put(t, s, n);
        return;
    }
    while (n) {
        end = memchr(s, '\n', n);
        size_t len = end ? (size_t)(end - s) + 1 : n;
        ki_text_put(t, "\n    ");
        ki_string_put(t, s, len);
        s += len, n -= len;
    }
}

static void put_bytes(ki_text *t, const char *s, size_t n) {
    enum { ROW = 32 };
    if (n <= ROW) ki_text_put(t, " x\"");
    for (size_t i = 0; i < n; i++) {
        if (n > ROW && i % ROW == 0) ki_text_put(t, i ? "\"\n    x\"" : "\n    x\"");
        ki_text_printf(t, "%02x", (unsigned char)s[i]);
    }
    ki_text_putc(t, '"');
}

static void put_ints(ki_text *t, const char *key, const int64_t *v, uint32_t n) {
    ki_text_printf(t, " %s=(", key);
    for (uint32_t k = 0; k < n; k++) ki_text_printf(t, "%s%lld", k ? ", " : "", (long long)v[k]);
    ki_text_putc(t, ')');
}

static void put_space(ki_text *t, unsigned space) { ki_text_put(t, space < 3 ? ki_space_names[space] : "?"); }

/* ---- what stands inline ------------------------------------------------------------------------------------- */

static bool is_atom(kn_uop u) { return (u->op == KN_CONST || u->op == KN_INVALID) && u->tag == 0; }

/* A STACK that may be written (4, %n); fixed: every entry a constant, so it may stand anywhere. */
static bool is_shape(kn_uop u, bool *fixed) {
    *fixed = true;
    if (u->op != KN_STACK || u->tag || u->dtype != KN_IDX || u->nsrc > KI_MAX_RANK || u->type->rank != 1) return false;
    for (uint32_t k = 0; k < u->nsrc; k++)
        if (u->src[k]->op != KN_CONST || u->src[k]->tag) *fixed = false;
    return true;
}

static void mark_line(printer *c, kn_uop u) { c->ord[u->id] = 1; }

/* Which nodes need a line: users first, so that all uses of a node are known when it is reached. */
static void choose_lines(printer *c) {
    for (int64_t i = c->n; i-- > 0;) {
        kn_uop u = c->node[i];
        bool fixed;
        if (!is_atom(u) && !is_shape(u, &fixed)) mark_line(c, u);
        for (uint32_t k = 0; k < u->nsrc; k++) {
            kn_uop s = u->src[k];
            if (!c->ord[s->id] && s->op == KN_STACK && is_shape(s, &fixed) && !fixed &&
                ki_expects((kn_op)u->op, k) != KI_X_SHAPE)
                mark_line(c, s);
            if (s->op == KN_INVALID && u->op == KN_STACK && is_shape(u, &fixed)) mark_line(c, s);
        }
    }
    if (c->hidden) c->ord[c->hidden->id] = 0;
    uint32_t line = 0;
    for (int64_t i = 0; i < c->n; i++)
        if (c->ord[c->node[i]->id]) c->ord[c->node[i]->id] = ++line;
}

/* %12, without the weight of printf: a list may have a million of these. */
static void put_ref(printer *c, kn_uop u) {
    char s[16], *p = s + sizeof s;
    uint32_t n = c->ord[u->id];
    do *--p = (char)('0' + n % 10);
    while (n /= 10);
    *--p = '%';
    ki_text_putn(c->t, p, (size_t)(s + sizeof s - p));
}

static void put_shape(printer *c, kn_uop u) {
    ki_text_putc(c->t, '(');
    for (uint32_t k = 0; k < u->nsrc; k++) {
        kn_uop s = u->src[k];
        if (k) ki_text_put(c->t, ", ");
        if (c->ord[s->id]) put_ref(c, s);
        else ki_num_put(c->t, KN_IDX, s->arg.bits);
    }
    ki_text_putc(c->t, ')');
}

/* Literals of a group go without suffix when all of them have the dtype that the reader will take: that of the
 * first operand that shows one. */
typedef struct group {
    bool bare;      /* no suffix */
    uint32_t first; /* but for this operand, if all are literals */
} group;

static bool is_bare_literal(printer *c, kn_uop s) { return !c->ord[s->id] && s->op == KN_CONST && s->dtype != KN_BOOL; }

static group group_of(printer *c, kn_uop u) {
    group g = {true, UINT32_MAX};
    uint32_t first = UINT32_MAX, shown = UINT32_MAX;
    for (uint32_t k = 0; k < u->nsrc; k++) {
        if (ki_expects((kn_op)u->op, k) != KI_X_GROUP) continue;
        if (first == UINT32_MAX) first = k;
        if (shown == UINT32_MAX && !is_bare_literal(c, u->src[k])) shown = k;
    }
    if (first == UINT32_MAX) return g;
    unsigned dtype = u->src[shown == UINT32_MAX ? first : shown]->dtype;
    for (uint32_t k = first; k < u->nsrc; k++)
        if (ki_expects((kn_op)u->op, k) == KI_X_GROUP && is_bare_literal(c, u->src[k]) && u->src[k]->dtype != dtype)
            g.bare = false;
    if (shown == UINT32_MAX) g.first = first;
    return g;
}

static void put_inline(printer *c, kn_uop u, uint32_t k, group g) {
    kn_uop s = u->src[k];
    ki_expect x = ki_expects((kn_op)u->op, k);
    if (s->op == KN_STACK) {
        put_shape(c, s);
        return;
    }
    if (s->op == KN_INVALID) {
        ki_text_put(c->t, ki_ops[KN_INVALID].name);
        return;
    }
    ki_num_put(c->t, (kn_dtype)s->dtype, s->arg.bits);
    if (s->dtype == KN_BOOL || (x == KI_X_INDEX && s->dtype == KN_IDX)) return;
    if (x == KI_X_GROUP && g.bare && k != g.first) return;
    ki_text_printf(c->t, ":%s", ki_dtypes[s->dtype].name);
}

/* Last of the operands from k on whose numbers follow one another. */
static uint32_t run_end(printer *c, kn_uop u, uint32_t k) {
    uint32_t e = k;
    while (e + 1 < u->nsrc && c->ord[u->src[e + 1]->id] && c->ord[u->src[e + 1]->id] == c->ord[u->src[e]->id] + 1) e++;
    return e;
}

static void put_operands(printer *c, kn_uop u, uint32_t from) {
    group g = group_of(c, u);
    uint32_t searched = from; /* a run is looked for from here on: each operand is looked at once */
    for (uint32_t k = from; k < u->nsrc; k++) {
        ki_text_putc(c->t, ' ');
        if (!c->ord[u->src[k]->id]) {
            put_inline(c, u, k, g);
            continue;
        }
        put_ref(c, u->src[k]);
        if (k < searched) continue;
        uint32_t end = run_end(c, u, k);
        searched = end + 1;
        if (end < k + 2 || c->run_total + (end - k) > KI_RUN_LIMIT) continue;
        c->run_total += end - k;
        ki_text_put(c->t, "..");
        put_ref(c, u->src[end]);
        k = end;
    }
}

/* ---- args --------------------------------------------------------------------------------------------------- */

static void put_head(printer *c, kn_uop u) {
    ki_text *t = c->t;
    const ki_bytes *s = u->arg.str;
    switch ((ki_argkind)ki_ops[u->op].arg) {
    case KI_A_CONST:
        ki_text_putc(t, ' ');
        ki_num_put(t, (kn_dtype)u->dtype, u->arg.bits);
        return;
    case KI_A_REDUCE:
        ki_text_printf(t, " %s", u->arg.reduce.op < KI_OP_COUNT ? ki_ops[u->arg.reduce.op].name : "?");
        return;
    case KI_A_RANGE:
        ki_text_printf(t, " %u %s", u->arg.range.id,
                       u->arg.range.axis < KI_AX_COUNT ? ki_axis_names[u->arg.range.axis] : "?");
        return;
    case KI_A_PARAM:
        if (!u->arg.param->len) return;
        ki_text_putc(t, ' ');
        ki_string_put(t, u->arg.param->name, u->arg.param->len);
        return;
    case KI_A_BUFFER:
        ki_text_printf(t, " %u ", u->arg.buffer->id);
        put_space(t, u->arg.buffer->addrspace);
        return;
    case KI_A_STR:
        if (s) put_lines(t, s->s, s->n);
        return;
    case KI_A_BYTES:
        if (s) put_bytes(t, s->s, s->n);
        return;
    default: return;
    }
}

static void put_opt(ki_text *t, const ki_opt *o) {
    ki_text_put(t, o->op < KI_OPT_COUNT ? ki_optop_names[o->op] : "?");
    if (o->op != KI_OPT_NOLOCALS || o->axis || o->arg) ki_text_printf(t, " %d", o->axis);
    if (o->op != KI_OPT_NOLOCALS || o->arg) ki_text_printf(t, " %d", o->arg);
    if (o->op == KI_OPT_SPLIT || o->target)
        ki_text_printf(t, " %c", o->target < KI_AX_COUNT ? ki_axis_letters[o->target] : '?');
    if (o->top) ki_text_put(t, " top");
    if (o->id) ki_text_printf(t, " #%d", o->id);
}

void ki_opts_put(ki_text *t, const ki_opt *opt, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (i) ki_text_put(t, ", ");
        put_opt(t, &opt[i]);
    }
}

static void put_kernel(ki_text *t, const ki_kernel *k) {
    ki_text_put(t, " name=");
    ki_string_put(t, ki_kernel_name(k), k->len);
    if (k->threads != 1) ki_text_printf(t, " threads=%u", k->threads);
    if (k->optimized) ki_text_printf(t, " optimized=%u", k->optimized);
    if (k->native) ki_text_printf(t, " native=%s", ki_cpu_level_names[(k->native - 1) % KI_CPU_LEVELS]);
    if (!k->nopt) return;
    ki_text_put(t, " opts=[");
    ki_opts_put(t, k->opt, k->nopt);
    ki_text_putc(t, ']');
}

static void put_param_keys(ki_text *t, const ki_param *p) {
    if (p->slot != -1) ki_text_printf(t, " slot=%d", p->slot);
    if (p->addrspace) ki_text_put(t, " space="), put_space(t, p->addrspace);
    if (!p->bounded) return;
    ki_text_put(t, " bounds=[");
    for (int i = 0; i < 2; i++) {
        int64_t v = i ? p->hi : p->lo;
        double f;
        memcpy(&f, &v, sizeof f);
        if (i) ki_text_put(t, ", ");
        if (ki_is_float((kn_dtype)p->dtype)) ki_f64_put(t, f);
        else ki_text_printf(t, "%lld", (long long)v);
    }
    ki_text_putc(t, ']');
}

static void put_axes(ki_text *t, uint32_t axes) {
    int64_t v[32];
    uint32_t n = 0;
    for (int k = 0; k < 32; k++)
        if (axes >> k & 1) v[n++] = k;
    if (n) put_ints(t, "axes", v, n);
}

static void put_keys(printer *c, kn_uop u) {
    ki_text *t = c->t;
    switch ((ki_argkind)ki_ops[u->op].arg) {
    case KI_A_INT:
        if (u->op == KN_STAGE) ki_text_put(t, " to="), put_space(t, (uint64_t)u->arg.i < 3 ? (unsigned)u->arg.i : 3);
        else ki_text_printf(t, " %s=%lld", u->op == KN_SLICE ? "size" : "at", (long long)u->arg.i);
        break;
    case KI_A_INTS:
        if (u->arg.ints) put_ints(t, u->op == KN_PERMUTE ? "order" : "axes", u->arg.ints->v, u->arg.ints->n);
        break;
    case KI_A_REDUCE: put_axes(t, u->arg.reduce.axes); break;
    case KI_A_PARAM: put_param_keys(t, u->arg.param); break;
    case KI_A_BUFFER: ki_text_printf(t, " size=%lld", (long long)u->arg.buffer->size); break;
    case KI_A_LOAD:
        if (!u->arg.load) break;
        ki_text_put(t, " to=");
        put_space(t, u->arg.load->addrspace);
        if (u->arg.load->device) ki_text_put(t, " device="), put_device(t, c->env, u->arg.load->device);
        break;
    case KI_A_STORE:
        if (u->arg.i) ki_text_printf(t, " stream=%lld", (long long)u->arg.i);
        break;
    case KI_A_KERNEL:
        if (u->arg.kernel) put_kernel(t, u->arg.kernel);
        break;
    default: break;
    }
    if (u->tag) ki_text_printf(t, " tag=%u", u->tag);
}

/* ---- lines -------------------------------------------------------------------------------------------------- */

static void pad_to_type(ki_text *t, size_t line) {
    do ki_text_putc(t, ' ');
    while (!t->oom && t->n - line < TYPE_COLUMN);
    ki_text_put(t, ": ");
}

/* What follows from the operands is said for the reader; void, which says nothing, only where it must be. */
static void put_type(printer *c, kn_uop u, size_t line) {
    if (u->dtype == KN_VOID && !ki_dtype_given((kn_op)u->op)) return;
    pad_to_type(c->t, line);
    ki_type_put(c->t, c->env, (kn_dtype)u->dtype, u->type);
}

static const ki_port *port_of(const printer *c, kn_uop u, size_t *next) {
    if (!c->implied_in || *next >= c->p->nin || c->p->in[*next].node != u) return NULL;
    return &c->p->in[(*next)++];
}

/* -4, 0.5: no dtype is to be seen here, so whole numbers go without point. */
static void put_plain(ki_text *t, double v) {
    size_t n = t->n;
    ki_f64_put(t, v);
    if (!t->oom && t->n - n > 2 && memcmp(t->s + t->n - 2, ".0", 2) == 0) ki_text_cut(t, t->n - 2);
}

static void put_range(ki_text *t, const ki_port *q) {
    ki_text_put(t, "   in [");
    put_plain(t, q->lo);
    ki_text_put(t, ", ");
    put_plain(t, q->hi);
    ki_text_putc(t, ']');
}

static void put_nodes(printer *c) {
    ki_text *t = c->t;
    size_t next = 0;
    for (int64_t i = 0; i < c->n; i++) {
        kn_uop u = c->node[i];
        if (!c->ord[u->id]) continue;
        size_t line = t->n;
        put_ref(c, u);
        ki_text_put(t, " = ");
        ki_text_put(t, ki_ops[u->op].name);
        put_head(c, u);
        bool fixed, in_type = u->op == KN_PARAM && u->nsrc && !c->ord[u->src[0]->id] && u->src[0]->nsrc &&
                              is_shape(u->src[0], &fixed) && fixed;
        if (!in_type) put_operands(c, u, 0);
        put_keys(c, u);
        for (size_t k = t->n; k-- > line;) /* the column counts from the last line of a long string */
            if (t->s[k] == '\n') line = k + 1, k = line;
        put_type(c, u, line);
        const ki_port *q = port_of(c, u, &next);
        if (q && q->ranged) put_range(t, q);
        ki_text_putc(t, '\n');
    }
}

static bool prepare(printer *c, ki_ir *ir, const kn_uop *root, size_t nroot) {
    c->env = ir->env;
    c->n = ki_postorder(ir, root, nroot, &c->node);
    if (c->n < 0) return false;
    c->nord = 1;
    for (int64_t i = 0; i < c->n; i++) /* the last one is not the youngest, if a port stands apart from the root */
        if (c->node[i]->id >= c->nord) c->nord = c->node[i]->id + 1;
    c->ord = ki_calloc(c->nord, sizeof *c->ord);
    if (!c->ord) return ki_free(c->node), ki_fail(ir->env, KI_E_NOMEM), false;
    for (size_t i = 0; i < nroot; i++) mark_line(c, root[i]);
    return true;
}

static bool finish(printer *c, ki_ir *ir) {
    ki_free(c->node);
    ki_free(c->ord);
    return c->t->oom ? ki_fail(ir->env, KI_E_NOMEM), false : true;
}

bool ki_print_graph(ki_ir *ir, kn_uop root, ki_text *out) {
    printer c = {.t = out};
    if (!root || !prepare(&c, ir, &root, 1)) return false;
    choose_lines(&c);
    put_nodes(&c);
    return finish(&c, ir);
}

/* ---- programs ----------------------------------------------------------------------------------------------- */

static bool same_as_node(const ki_port *q) {
    const ki_type *t = q->node->type;
    if (q->dtype != (kn_dtype)q->node->dtype || q->rank != t->rank) return false;
    for (unsigned k = 0; k < q->rank; k++)
        if (q->dim[k] != t->dim[k].n) return false;
    return true;
}

/* True when reading would make these very in ports of the named PARAMs. */
static bool ports_follow(const printer *c) {
    const ki_program *p = c->p;
    size_t next = 0;
    if (p->stage != KI_S_TENSOR) return false;
    for (int64_t i = 0; i < c->n; i++) {
        kn_uop u = c->node[i];
        if (u->op != KN_PARAM || !u->arg.param->len) continue;
        if (next == p->nin) return false;
        const ki_port *q = &p->in[next++];
        if (q->node != u || strlen(q->name) != u->arg.param->len ||
            memcmp(q->name, u->arg.param->name, u->arg.param->len) != 0)
            return false;
        if (!same_as_node(q)) return false;
    }
    return next == p->nin;
}

/* The root is implied when it is the plain SINK of the outputs and nothing else refers to it. */
static bool root_follows(const printer *c) {
    const ki_program *p = c->p;
    kn_uop u = p->root;
    if (!u || p->stage != KI_S_TENSOR || u->op != KN_SINK || u->arg.kernel || u->tag || !p->nout || u->nsrc != p->nout)
        return false;
    for (size_t i = 0; i < p->nout; i++)
        if (u->src[i] != p->out[i].node) return false;
    return c->n && c->node[c->n - 1] == u;
}

static void put_port(printer *c, const ki_port *q, bool output) {
    ki_text *t = c->t;
    size_t line = t->n;
    ki_text_put(t, output ? "out " : "in ");
    ki_string_put(t, q->name, strlen(q->name));
    ki_text_put(t, " = ");
    put_ref(c, q->node);
    if (c->p->stage != KI_S_TENSOR) {
        pad_to_type(t, line);
        ki_text_printf(t, "%s [", ki_dtypes[q->dtype].name);
        for (unsigned k = 0; k < q->rank; k++) ki_text_printf(t, "%s%lld", k ? ", " : "", (long long)q->dim[k]);
        ki_text_putc(t, ']');
    }
    if (!output && q->ranged) put_range(t, q);
    ki_text_putc(t, '\n');
}

static bool print_program(printer *c, ki_ir *ir, const kn_uop *root, size_t nroot) {
    const ki_program *p = c->p;
    if (!prepare(c, ir, root, nroot)) return false;
    c->implied_in = ports_follow(c);
    if (root_follows(c)) c->hidden = p->root;
    choose_lines(c);
    ki_text_printf(c->t, "koine %d %s\n", KI_TEXT_VERSION, p->stage < KI_S_COUNT ? ki_stage_names[p->stage] : "?");
    put_nodes(c);
    if (!c->implied_in) {
        for (size_t i = 0; i < p->nin; i++) put_port(c, &p->in[i], false);
        if (!p->nin && p->stage == KI_S_TENSOR) ki_text_put(c->t, "in none\n");
    }
    if (p->root && !c->hidden) ki_text_put(c->t, "root "), put_ref(c, p->root), ki_text_putc(c->t, '\n');
    for (size_t i = 0; i < p->nout; i++) put_port(c, &p->out[i], true);
    return finish(c, ir);
}

bool ki_print(const ki_program *p, ki_text *out) {
    printer c = {.t = out, .p = p};
    size_t n = 0;
    kn_uop *root = ki_malloc((p->nin + p->nout + 1) * sizeof *root);
    if (!root) return ki_fail(p->ir->env, KI_E_NOMEM), false;
    if (p->root) root[n++] = p->root;
    for (size_t i = 0; i < p->nin; i++) root[n++] = p->in[i].node;
    for (size_t i = 0; i < p->nout; i++) root[n++] = p->out[i].node;
    bool ok = print_program(&c, p->ir, root, n);
    ki_free(root);
    return ok;
}
