/* parse_node.c: one node line: %name = op head operands key=value... : type.
 *
 * What holds: the operands' constants are made before the node, in the order they stand; a node is made by ki_make
 * alone, so what is ill-formed is refused there and reported here with its place. */
#include "ir/parse.h"

#include <stdio.h>
#include <string.h>

/* ---- type column -------------------------------------------------------------------------------------------- */

static bool read_dims(ki_reader *r, ki_said *said) {
    said->dims = true;
    if (ki_accept(r, ']')) return true;
    do {
        if (said->rank == KI_MAX_RANK) return KI_READ_FAIL(r, KI_E_TEXT_RANK, r->at, KI_MAX_RANK);
        if (ki_accept(r, '<')) {
            if (!ki_expect_char(r, '=', "after '<' of a symbolic size")) return false;
            said->bounded |= UINT32_C(1) << said->rank;
        }
        if (!ki_read_i64(r, 0, INT64_C(1) << 47, "a size", &said->dim[said->rank])) return false;
        said->rank++;
    } while (ki_accept(r, ','));
    return ki_expect_char(r, ']', "after the sizes");
}

bool ki_read_type(ki_reader *r, ki_said *said) {
    *said = (ki_said){0};
    if (!ki_accept(r, ':')) return true;
    ki_skip(r);
    said->type = true;
    said->at = r->at;
    if (!ki_read_dtype(r, &said->dtype)) return false;
    if (ki_accept(r, '[') && !read_dims(r, said)) return false;
    if (ki_accept(r, '@')) {
        said->device = true;
        if (!ki_read_device(r, &said->device_id)) return false;
    }
    said->end = r->at;
    const char *s;
    size_t n = ki_word(r, &s);
    if (ki_word_is(s, n, "axis")) {
        said->axis = true;
        if (!ki_expect_char(r, '=', "after 'axis'")) return false;
        if (!ki_read_i64(r, 0, KI_MAX_RANK - 1, "an axis", &said->axis_no)) return false;
        said->end = r->at;
    }
    r->at = said->end;
    return true;
}

static bool type_holds(const ki_said *said, kn_uop u) {
    const ki_type *t = u->type;
    if (said->type && said->dtype != (kn_dtype)u->dtype) return false;
    if (said->device && said->device_id != t->device) return false;
    if (said->axis && said->axis_no != t->axis) return false;
    if (!said->dims) return true;
    if (said->rank != t->rank) return false;
    for (unsigned k = 0; k < t->rank; k++)
        if (said->dim[k] != t->dim[k].n || (said->bounded >> k & 1) != (t->dim[k].sym != NULL)) return false;
    return true;
}

bool ki_read_unlike(ki_reader *r, ki_err id, const char *whose, const ki_said *said, kn_uop u) {
    ki_text is = {0};
    ki_type_put(&is, r->ir->env, (kn_dtype)u->dtype, u->type);
    size_t n = said->end - said->at;
    if (is.s) KI_READ_FAIL(r, id, said->at, whose, is.s, (int)(n > 160 ? 160 : n), r->text + said->at);
    else ki_read_nomem(r);
    ki_text_free(&is);
    return false;
}

static bool check_type(ki_reader *r, const ki_said *said, kn_uop u) {
    return type_holds(said, u) || ki_read_unlike(r, KI_E_TEXT_TYPE, ki_ops[u->op].name, said, u);
}

/* ---- names -------------------------------------------------------------------------------------------------- */

/* The name behind a %, which the cursor stands on. */
static bool read_name(ki_reader *r, const char **s, size_t *n) {
    size_t at = r->at++;
    *s = r->text + r->at;
    *n = 0;
    while (r->at < r->n) {
        char c = r->text[r->at];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!ok) break;
        r->at++;
        ++*n;
    }
    if (!*n) return ki_read_wanted(r, "a name after '%'");
    if (*n > 255) return KI_READ_FAIL(r, KI_E_TEXT_LIMIT, at, "bytes in a name", 255LL);
    return true;
}

bool ki_read_ref(ki_reader *r, kn_uop *out) {
    const char *s;
    size_t n;
    ki_skip(r);
    size_t at = r->at;
    if (ki_peek(r) != '%') return ki_read_wanted(r, "a %name");
    if (!read_name(r, &s, &n)) return false;
    ki_name_slot *slot = ki_names_find(&r->names, s, n);
    if (!slot) return KI_READ_FAIL(r, KI_E_TEXT_NAME, at, (int)(n > 60 ? 60 : n), s);
    *out = slot->node;
    return true;
}

static bool push_src(ki_reader *r, kn_uop u) {
    if (r->nsrc == r->src_cap) {
        uint32_t cap = r->src_cap ? r->src_cap * 2 : 16;
        kn_uop *p = cap ? ki_realloc(r->src, cap, sizeof *p) : NULL;
        if (!p) return ki_read_nomem(r);
        r->src = p;
        r->src_cap = cap;
    }
    r->src[r->nsrc++] = u;
    return true;
}

static bool ordinal(const char *s, size_t n, uint64_t *v) {
    *v = 0;
    if (n == 0 || n > 10 || s[0] == '0') return false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
        *v = *v * 10 + (uint64_t)(s[i] - '0');
    }
    return true;
}

/* %a..%b: all names between two numbers. The cursor stands behind the dots; *first was read. */
static bool read_run(ki_reader *r, size_t at, const char *first, size_t nfirst) {
    const char *last;
    size_t nlast;
    uint64_t a, b;
    ki_skip(r);
    if (ki_peek(r) != '%') return ki_read_wanted(r, "a %name after '..'");
    if (!read_name(r, &last, &nlast)) return false;
    if (!ordinal(first, nfirst, &a) || !ordinal(last, nlast, &b) || a > b)
        return KI_READ_FAIL(r, KI_E_TEXT_RUN, at, (int)(r->at - at), r->text + at);
    r->run_total += b - a;
    if (r->run_total > KI_RUN_LIMIT)
        return KI_READ_FAIL(r, KI_E_TEXT_LIMIT, at, "operands in runs", (long long)KI_RUN_LIMIT);
    for (uint64_t k = a + 1; k <= b; k++) {
        char name[24];
        int n = snprintf(name, sizeof name, "%llu", (unsigned long long)k);
        ki_name_slot *slot = ki_names_find(&r->names, name, (size_t)n);
        if (!slot) return KI_READ_FAIL(r, KI_E_TEXT_NAME, at, n, name);
        if (!push_src(r, slot->node)) return false;
    }
    return true;
}

static bool read_name_operand(ki_reader *r) {
    kn_uop u;
    size_t at = r->at;
    if (!ki_read_ref(r, &u) || !push_src(r, u)) return false;
    if (r->n - r->at < 2 || r->text[r->at] != '.' || r->text[r->at + 1] != '.') return true;
    size_t n = r->at - at - 1;
    r->at += 2;
    return read_run(r, at, r->text + at + 1, n);
}

/* ---- literals ----------------------------------------------------------------------------------------------- */

static kn_uop make_literal(ki_reader *r, size_t at, size_t end, kn_dtype dtype) {
    uint64_t bits;
    const char *s = r->text + at;
    size_t n = end - at;
    ki_num st = ki_num_read(dtype, s, n, &bits);
    int shown = (int)(n > 40 ? 40 : n);
    if (st == KI_NUM_OK) return ki_const_bits(r->ir, dtype, bits);
    if (st == KI_NUM_RANGE) return KI_READ_FAIL(r, KI_E_TEXT_NUMBER_RANGE, at, shown, s, ki_dtypes[dtype].name), NULL;
    char what[32];
    snprintf(what, sizeof what, "a value of %s", ki_dtypes[dtype].name);
    return KI_READ_FAIL(r, KI_E_TEXT_NUMBER, at, shown, s, what), NULL;
}

/* :f32 directly behind a literal (a colon after a blank begins the type). */
static bool read_suffix(ki_reader *r, kn_dtype *dtype) {
    *dtype = KN_VOID;
    if (ki_peek(r) != ':' || r->at + 1 >= r->n) return true;
    char c = r->text[r->at + 1] | 32;
    if (c < 'a' || c > 'z') return true;
    r->at++;
    return ki_read_dtype(r, dtype);
}

/* What is not yet known to be a constant of some dtype waits in r->lit. */
static bool read_literal_operand(ki_reader *r, size_t len) {
    size_t at = r->at;
    kn_dtype dtype;
    r->at += len;
    if (!read_suffix(r, &dtype)) return false;
    if (dtype == KN_VOID && (r->text[at] == 't' || r->text[at] == 'f')) dtype = KN_BOOL;
    if (dtype != KN_VOID) {
        kn_uop u = make_literal(r, at, at + len, dtype);
        return u && push_src(r, u);
    }
    if (r->nlit == r->lit_cap) {
        uint32_t cap = r->lit_cap ? r->lit_cap * 2 : 8;
        ki_literal *p = cap ? ki_realloc(r->lit, cap, sizeof *p) : NULL;
        if (!p) return ki_read_nomem(r);
        r->lit = p;
        r->lit_cap = cap;
    }
    r->lit[r->nlit++] = (ki_literal){r->nsrc, at, at + len};
    return push_src(r, NULL);
}

/* Dtypes of the literals that had no suffix. */
static bool resolve_literals(ki_reader *r, kn_op op) {
    kn_dtype group = KN_VOID;
    for (uint32_t i = 0; i < r->nsrc && r->nlit && group == KN_VOID; i++)
        if (r->src[i] && ki_expects(op, i) == KI_X_GROUP) group = (kn_dtype)r->src[i]->dtype;
    for (uint32_t k = 0; k < r->nlit; k++) {
        ki_literal l = r->lit[k];
        ki_expect x = ki_expects(op, l.index);
        kn_dtype dtype = x == KI_X_INDEX ? KN_IDX : x == KI_X_GROUP ? group : KN_VOID;
        if (dtype == KN_VOID)
            return KI_READ_FAIL(r, KI_E_TEXT_LITERAL, l.at, (int)(l.end - l.at > 40 ? 40 : l.end - l.at),
                                r->text + l.at);
        r->src[l.index] = make_literal(r, l.at, l.end, dtype);
        if (!r->src[l.index]) return false;
    }
    return true;
}

/* (4096, %n): a STACK of index scalars. */
static bool read_shape_operand(ki_reader *r) {
    kn_uop e[KI_MAX_RANK];
    unsigned n = 0;
    size_t at = r->at++;
    if (!ki_accept(r, ')')) {
        do {
            if (n == KI_MAX_RANK) return KI_READ_FAIL(r, KI_E_TEXT_RANK, r->at, KI_MAX_RANK);
            ki_skip(r);
            size_t len = ki_literal_len(r);
            if (len) {
                e[n] = make_literal(r, r->at, r->at + len, KN_IDX);
                if (!e[n]) return false;
                r->at += len;
            } else if (!ki_read_ref(r, &e[n])) {
                return false;
            }
            n++;
        } while (ki_accept(r, ','));
        if (!ki_expect_char(r, ')', "after the sizes")) return false;
    }
    for (unsigned k = 0; k < n; k++)
        if (e[k]->dtype != KN_IDX || e[k]->type->rank) return KI_READ_FAIL(r, KI_E_TEXT_SHAPE, at, k);
    kn_uop u = ki_opn(r->ir, KN_STACK, e, n);
    return u && push_src(r, u);
}

/* Operands, until something else stands there. */
static bool read_operands(ki_reader *r) {
    r->nsrc = r->nlit = 0;
    for (;;) {
        ki_skip(r);
        char c = ki_peek(r);
        if (c == '%') {
            if (!read_name_operand(r)) return false;
            continue;
        }
        if (c == '(') {
            if (!read_shape_operand(r)) return false;
            continue;
        }
        size_t at = r->at, len = ki_literal_len(r);
        if (len) {
            if (!read_literal_operand(r, len)) return false;
            continue;
        }
        const char *s;
        size_t n = ki_word(r, &s);
        if (!ki_word_is(s, n, ki_ops[KN_INVALID].name)) return r->at = at, true;
        kn_uop u = ki_op0(r->ir, KN_INVALID);
        if (!u || !push_src(r, u)) return false;
    }
}

/* ---- the line ----------------------------------------------------------------------------------------------- */

/* ki_make has recorded why; the message gets the place, and keeps the reason and its hint. */
static bool refused(ki_reader *r, const ki_args *a) {
    ki_env *e = r->ir->env;
    if (!r->clean || e->err == KI_E_NOMEM || !e->message.s) return false;
    char *reason = ki_text_take(&e->message), *rest = reason ? strchr(reason, '\n') : NULL;
    ki_env_clear(e);
    if (rest) *rest++ = 0;
    ki_fail_at(e, KI_E_TEXT_NODE, r->source, r->text, r->n, a->op_at, reason ? reason : "?");
    while (rest && *rest) {
        char *end = strchr(rest, '\n');
        if (end) *end++ = 0;
        while (*rest == ' ') rest++;
        ki_fail_note(e, "%s", rest);
        rest = end;
    }
    ki_free(reason);
    return false;
}

static const char *op_name(size_t i) { return ki_ops[i].name; }

/* What people write who come from elsewhere. */
static const char *op_alias(const char *s, size_t n) {
    static const char *const alias[][2] = {
        {"sum", "reduce add"},
        {"prod", "reduce mul"},
        {"copy", "load"},
        {"cmplt", "lt"},
        {"cmpne", "ne"},
        {"cmpeq", "eq"},
        {"cmpgt", "gt"},
        {"cmpge", "ge"},
        {"cmple", "le"},
        {"vectorize", "stack"},
        {"cat", "stack"},
        {"gep", "index"},
        {"define_global", "param"},
        {"define_var", "param"},
        {"define_local", "buffer"},
        {"define_acc", "buffer"},
        {"define_reg", "buffer"},
        {"empty", "buffer"},
        {"loop", "range"},
        {"endrange", "end"},
        {"view", "reshape"},
        {"transpose", "permute"},
        {"broadcast", "expand"},
        {"slice_axis", "shrink"},
        {"minimum", "neg, max, neg"},
        {"maximum", "max"},
        {"reciprocal", "recip"},
        {"assign", "store, then after"},
        {"kernel", "call"},
        {"select", "where"},
    };
    for (size_t i = 0; i < sizeof alias / sizeof *alias; i++)
        if (ki_word_is(s, n, alias[i][0])) return alias[i][1];
    return ki_nearest(s, n, op_name, KI_OP_COUNT);
}

static bool read_op(ki_reader *r, ki_args *a) {
    const char *s;
    ki_skip(r);
    a->op_at = r->at;
    size_t n = ki_word(r, &s);
    if (!n) return ki_read_wanted(r, "an op");
    a->op = ki_op_named(s, n);
    if (a->op != KI_OP_COUNT) return true;
    const char *near = op_alias(s, n);
    return KI_READ_FAIL(r, KI_E_TEXT_OP, a->op_at, (int)(n > 40 ? 40 : n), s, near ? "; did you mean " : "",
                        near ? near : "", near ? "?" : "");
}

/* const 2.0 : f32, or const 2.0:f32 */
static bool read_const(ki_reader *r, ki_args *a, ki_said *said, kn_uop *out) {
    ki_skip(r);
    size_t at = r->at, len = ki_literal_len(r);
    kn_dtype dtype;
    if (!len) return ki_read_wanted(r, "a value");
    r->at += len;
    if (!read_suffix(r, &dtype) || !ki_read_keys(r, a) || !ki_read_type(r, said)) return false;
    if (dtype == KN_VOID && said->type) dtype = said->dtype;
    if (dtype == KN_VOID && (r->text[at] == 't' || r->text[at] == 'f')) dtype = KN_BOOL;
    if (dtype == KN_VOID) return KI_READ_FAIL(r, KI_E_TEXT_LITERAL, at, (int)(len > 40 ? 40 : len), r->text + at);
    uint64_t bits;
    ki_num st = ki_num_read(dtype, r->text + at, len, &bits);
    if (st != KI_NUM_OK) return make_literal(r, at, at + len, dtype), false;
    *out = ki_make(r->ir, KN_CONST, dtype, NULL, 0, (kn_arg){.bits = bits}, a->tag);
    return *out || refused(r, a);
}

/* A PARAM whose shape stands in its type alone. */
static bool param_shape(ki_reader *r, const ki_said *said) {
    if (r->nsrc || !said->dims || !said->rank) return true;
    if (said->bounded) return KI_READ_FAIL(r, KI_E_TEXT_SYMBOLIC, said->at, "param");
    kn_uop s = ki_shape_src(r->ir, said->dim, said->rank);
    return s && push_src(r, s);
}

static bool given_dtype(ki_reader *r, const ki_args *a, const ki_said *said) {
    if (!ki_dtype_given(a->op)) return true;
    if (!said->type) return KI_READ_FAIL(r, KI_E_TEXT_NO_DTYPE, r->at, ki_ops[a->op].name);
    bool effect = a->op == KN_INS || a->op == KN_CUSTOM;
    if (said->dtype == KN_VOID && !effect) return KI_READ_FAIL(r, KI_E_TEXT_VOID, said->at, ki_ops[a->op].name);
    return true;
}

static bool read_rest(ki_reader *r, ki_args *a, kn_uop *out) {
    ki_said said;
    if (a->op == KN_CONST) return read_const(r, a, &said, out) && check_type(r, &said, *out);
    if (!ki_read_head(r, a) || !read_operands(r) || !ki_read_keys(r, a) || !ki_read_type(r, &said)) return false;
    if (!given_dtype(r, a, &said) || !resolve_literals(r, a->op)) return false;
    if (a->op == KN_PARAM && !param_shape(r, &said)) return false;
    kn_arg arg;
    if (!ki_build_arg(r, a, said.dtype, said.device ? said.device_id : 0, &arg)) return false;
    *out = ki_make(r->ir, a->op, said.dtype, r->src, r->nsrc, arg, a->tag);
    return *out ? check_type(r, &said, *out) : refused(r, a);
}

bool ki_read_node(ki_reader *r, kn_uop *out) {
    const char *name;
    size_t n, at = r->at;
    if (!read_name(r, &name, &n)) return false;
    ki_name_slot *old = ki_names_find(&r->names, name, n);
    if (old) {
        size_t line = 1;
        for (size_t i = 0; i < old->at; i++) line += r->text[i] == '\n';
        return KI_READ_FAIL(r, KI_E_TEXT_TWICE, at, (int)(n > 60 ? 60 : n), name, line);
    }
    if (!ki_expect_char(r, '=', "after the name")) return false;
    ki_args a = {0};
    bool ok = read_op(r, &a) && read_rest(r, &a, out);
    ki_args_free(&a);
    if (!ok) return false;
    return ki_names_add(&r->names, name, n, *out, at) || ki_read_nomem(r);
}
