/* c.c: a kernel's instruction list as one C function. See render.h for what it looks like, c_gen.h for how values are
 * held.
 *
 * Two sweeps. Backwards: how often each value's text will stand, counting what the C form really reads (an address
 * needs the scalar base of a vector index, not the vector). Forwards: a value used once, in its own loop and short, is
 * written into its user; every other one gets a variable. Loads always get one, so text never moves past a store. */
#include "stages/8_render/c_gen.h"

#include <string.h>

const char *const ki_celem_name[KI_CELEM_COUNT] = {"u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f32", "f64"};
const uint8_t ki_celem_bytes[KI_CELEM_COUNT] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};

ki_celem ki_cmemory_elem(kn_dtype t) {
    switch (t) {
    case KN_I8: return KI_I8;
    case KN_U16:
    case KN_F16:
    case KN_BF16: return KI_U16;
    case KN_I16: return KI_I16;
    case KN_U32: return KI_U32;
    case KN_I32: return KI_I32;
    case KN_U64: return KI_U64;
    case KN_I64:
    case KN_IDX: return KI_I64;
    case KN_F32: return KI_F32;
    case KN_F64: return KI_F64;
    default: return KI_U8;
    }
}
bool ki_csmall(kn_dtype t) { return t == KN_F16 || t == KN_BF16 || t == KN_F8E4M3 || t == KN_F8E5M2; }
ki_celem ki_cvalue_elem(kn_dtype t) { return ki_csmall(t) ? KI_F32 : ki_cmemory_elem(t); }
ki_celem ki_cmask_elem(unsigned w) { return w == 1 ? KI_I8 : w == 2 ? KI_I16 : w == 4 ? KI_I32 : KI_I64; }

/* ---- text --------------------------------------------------------------------------------------------------- */

const char *ki_cwritten(ki_cgen *g, ki_text *t) {
    char *s = t->oom ? NULL : ki_arena_alloc(&g->strs, t->n + 1);
    if (s && t->n) memcpy(s, t->s, t->n);
    if (s) s[t->n] = 0;
    ki_text_free(t);
    if (s) return s;
    ki_fail(g->ir->env, KI_E_NOMEM);
    g->failed = true;
    return "";
}

const char *ki_cfmt(ki_cgen *g, const char *fmt, ...) {
    va_list ap;
    ki_text t = {0};
    va_start(ap, fmt);
    ki_text_vprintf(&t, fmt, ap);
    va_end(ap);
    return ki_cwritten(g, &t);
}

void ki_cline(ki_cgen *g, const char *fmt, ...) {
    va_list ap;
    for (uint32_t k = 0; k <= g->indent; k++) ki_text_put(&g->body, "    ");
    va_start(ap, fmt);
    ki_text_vprintf(&g->body, fmt, ap);
    va_end(ap);
    ki_text_putc(&g->body, '\n');
}

bool ki_cis_name(const char *s) {
    if (*s >= '0' && *s <= '9') return false;
    for (; *s; s++)
        if (*s != '_' && (*s < '0' || *s > '9') && (*s < 'a' || *s > 'z')) return false;
    return true;
}

const char *ki_cbare(ki_cgen *g, const char *s) {
    if (*s != '(') return s;
    size_t n = strlen(s);
    int depth = 0;
    for (size_t k = 0; k < n; k++) {
        depth += (s[k] == '(') - (s[k] == ')');
        if (depth == 0) return k == n - 1 ? ki_cfmt(g, "%.*s", (int)n - 2, s + 1) : s;
    }
    return s;
}

const char *ki_cfail(ki_cgen *g, kn_uop u, const char *why) {
    if (!g->failed) ki_fail(g->ir->env, KI_E_RENDER_FORM, ki_ops[u->op].name, why);
    g->failed = true;
    return NULL;
}

void ki_cneed(ki_cgen *g, ki_chelper h, ki_celem e, unsigned lanes) {
    g->need[h][e] |= (uint8_t)(1u << ki_ctz64(lanes | 128));
}

const char *ki_ctype(ki_cgen *g, ki_celem e, unsigned lanes) {
    if (lanes == 1) return ki_celem_name[e];
    if (lanes > 128 || (lanes & (lanes - 1))) {
        if (!g->failed) ki_fail(g->ir->env, KI_E_RENDER_FORM, "vector", "lanes must be a power of two up to 128");
        g->failed = true;
        return "";
    }
    ki_cneed(g, KI_H_VEC, e, lanes);
    return ki_cfmt(g, "%sx%u", ki_celem_name[e], lanes);
}

/* ---- backwards: who reads what ------------------------------------------------------------------------------ */

static void read_by(ki_cgen *g, kn_uop s, uint32_t block) {
    ki_cval *v = ki_cv(g, s);
    v->uses++;
    v->user = block;
}

static bool read_address(ki_cgen *g, kn_uop index, uint32_t block) {
    ki_address a;
    if (!ki_caddress(g, index, &a)) return false;
    while (index->op == KN_AFTER) index = index->src[0];
    kn_uop i = index->src[1];
    if (a.affine) {
        if (a.base) read_by(g, a.base, block);
    } else if (i->op == KN_STACK && ki_rank(i) == 1) {
        for (uint32_t k = 0; k < i->nsrc; k++) read_by(g, i->src[k], block);
    } else {
        read_by(g, i, block);
    }
    return true;
}

static bool count_reads(ki_cgen *g, kn_uop u) {
    uint32_t b = ki_cv(g, u)->block, from = 0, to = u->nsrc;
    switch ((kn_op)u->op) {
    case KN_LOAD:
    case KN_STORE:
    case KN_ATOMICADD:
        if (!read_address(g, u->src[0], b)) return false;
        from = 1;
        break;
    case KN_INDEX:
        if (ki_is_memory(u->src[0])) return true; /* its readers read the address themselves */
        if (ki_rank(u)) to = 1;                   /* a shuffle states its lanes as constants */
        break;
    case KN_AFTER: to = ki_is_memory(u) || u->dtype == KN_VOID ? 0 : 1; break;
    case KN_RANGE:
    case KN_SPECIAL:
    case KN_IF: to = 1; break;
    case KN_PARAM:
    case KN_END:
    case KN_GROUP:
    case KN_ENDIF:
    case KN_BARRIER: to = 0; break;
    default: break;
    }
    for (uint32_t k = from; k < to; k++) read_by(g, u->src[k], b);
    return true;
}

static bool is_effect(kn_uop u) { return ki_ops[u->op].flags & KI_EFFECT || u->op == KN_RANGE; }

/* Blocks, forwards; then reads, backwards, of what is read itself. */
static bool count_uses(ki_cgen *g) {
    uint32_t *open = ki_malloc(((size_t)g->n + 1) * sizeof *open), top = 0, next = 0;
    if (!open) return ki_fail(g->ir->env, KI_E_NOMEM), false;
    open[top] = next++;
    bool ok = true;
    for (uint32_t i = 0; i < g->n && ok; i++) {
        kn_uop u = g->inst[i];
        if (u->op == KN_END || u->op == KN_ENDIF) {
            uint32_t close = u->op == KN_END ? u->nsrc - 1 : 1;
            ok = close <= top;
            if (!ok) ki_cfail(g, u, "closes more loops than are open");
            else top -= close;
        }
        ki_cv(g, u)->block = open[top];
        if (u->op == KN_RANGE || u->op == KN_IF) open[++top] = next++;
    }
    if (ok && top) ok = ki_cfail(g, g->kernel, "a loop is not closed") != NULL;
    for (uint32_t i = g->n; i-- > 0 && ok;)
        if (is_effect(g->inst[i]) || ki_cv(g, g->inst[i])->uses) ok = count_reads(g, g->inst[i]);
    ki_free(open);
    return ok;
}

/* ---- forwards ----------------------------------------------------------------------------------------------- */

enum { INLINE_MOST = 88 };

static void emit_value(ki_cgen *g, kn_uop u) {
    ki_cval *v = ki_cv(g, u);
    uint8_t w = 0;
    if (!v->uses) return;
    const char *s = ki_cexpr(g, u, &w);
    if (g->failed) return;
    if (!s) {
        const char *name = ki_cfmt(g, "v%u", g->nvar++);
        if (!ki_clanewise(g, u, name)) {
            if (!g->failed) {
                char shape[64];
                ki_fail(g->ir->env, KI_E_RENDER_OP, ki_ops[u->op].name, ki_dtypes[u->dtype].name,
                        ki_shape_text(u->type, shape, sizeof shape));
            }
            g->failed = true;
        }
        v->s = name;
        return;
    }
    v->w = w;
    bool atom = ki_is_const(u) || ki_cis_name(s); /* names never change their value, so another one adds nothing */
    if (atom || (v->uses == 1 && v->user == v->block && strlen(s) <= INLINE_MOST)) {
        v->s = s;
        return;
    }
    ki_celem e = u->dtype == KN_BOOL && ki_rank(u) ? ki_cmask_elem(w) : ki_cvalue_elem((kn_dtype)u->dtype);
    v->s = ki_cfmt(g, "v%u", g->nvar++);
    ki_cline(g, "%s %s = %s;", ki_ctype(g, e, ki_lanes(u)), v->s, ki_cbare(g, s));
}

static void emit_range(ki_cgen *g, kn_uop u, uint32_t number) {
    bool type = number == 8 || number == 16 || number == 32 || number == 64; /* i8 is one */
    const char *i = ki_cfmt(g, type ? "i%u_" : "i%u", number), *n = ki_cscalar(g, u->src[0]);
    ki_cv(g, u)->s = i;
    ki_cline(g, "for (i64 %s = 0; %s < %s; %s++) {", i, i, n ? n : "0", i);
    g->indent++;
}

static void emit_custom(ki_cgen *g, kn_uop u) {
    const ki_bytes *fmt = u->arg.str;
    ki_text t = {0};
    for (uint64_t k = 0; fmt && k < fmt->n; k++) { /* {0} {1} ...: the sources */
        char c = fmt->s[k];
        if (c == '{' && k + 2 < fmt->n && fmt->s[k + 2] == '}' && (uint32_t)(fmt->s[k + 1] - '0') < u->nsrc) {
            const char *s = ki_cv(g, u->src[fmt->s[k + 1] - '0'])->s;
            ki_text_put(&t, s ? s : "0");
            k += 2;
        } else {
            ki_text_putc(&t, c);
        }
    }
    const char *code = ki_cwritten(g, &t);
    if (u->dtype == KN_VOID) {
        ki_cline(g, "%s", code);
    } else {
        ki_cv(g, u)->s = ki_cfmt(g, "v%u", g->nvar++);
        ki_cline(g, "%s %s = %s;", ki_ctype(g, ki_cvalue_elem((kn_dtype)u->dtype), 1), ki_cv(g, u)->s,
                 *code ? code : "0");
    }
}

static void emit_atomic(ki_cgen *g, kn_uop u) {
    ki_address a;
    if (!ki_caddress(g, u->src[0], &a)) return;
    kn_dtype t = (kn_dtype)u->src[1]->dtype;
    if (a.lanes != 1 || ki_is_float(t) || t == KN_BOOL || a.buf->op != KN_PARAM) {
        ki_cfail(g, u, "only scalar integers in GLOBAL memory");
        return;
    }
    const char *at = a.base ? ki_cscalar(g, a.base) : "0", *v = ki_cscalar(g, u->src[1]);
    ki_cline(g, "__atomic_fetch_add(&p%d[%s + %lld], %s, __ATOMIC_RELAXED);", a.buf->arg.param->slot, at,
             (long long)a.start, v);
}

static void emit_special(ki_cgen *g, kn_uop u) {
    const ki_bytes *name = u->arg.str;
    if (name && strcmp(name->s, "thread") == 0) ki_cv(g, u)->s = "thread";
    else ki_cfail(g, u, "the host has only \"thread\"");
}

static void emit(ki_cgen *g, kn_uop u, uint32_t *loops) {
    switch ((kn_op)u->op) {
    case KN_PARAM:
    case KN_BUFFER:
    case KN_GROUP:
    case KN_NOOP:
    case KN_BARRIER: break; /* one thread: a barrier is order */
    case KN_RANGE: emit_range(g, u, (*loops)++); break;
    case KN_END:
        for (uint32_t k = 1; k < u->nsrc; k++) {
            g->indent--;
            ki_cline(g, "}");
        }
        break;
    case KN_IF:
        ki_cline(g, "if (%s) {", ki_cbare(g, ki_cscalar(g, u->src[0])));
        g->indent++;
        break;
    case KN_ENDIF:
        g->indent--;
        ki_cline(g, "}");
        break;
    case KN_LOAD:
        if (ki_cv(g, u)->uses) ki_cload(g, u);
        break;
    case KN_STORE: ki_cstore(g, u); break;
    case KN_ATOMICADD: emit_atomic(g, u); break;
    case KN_SPECIAL: emit_special(g, u); break;
    case KN_CUSTOM: emit_custom(g, u); break;
    case KN_INDEX:
        if (!ki_is_memory(u->src[0])) emit_value(g, u);
        break;
    case KN_AFTER:
        if (!ki_is_memory(u) && u->dtype != KN_VOID) emit_value(g, u);
        break;
    default: emit_value(g, u);
    }
}

/* ---- the function ------------------------------------------------------------------------------------------- */

static void bind_variable(ki_cgen *g, kn_uop u, uint32_t place) {
    const ki_param *p = u->arg.param;
    kn_dtype t = (kn_dtype)u->dtype;
    const char *name = ki_cfmt(g, "n%u", place), *note = p->len ? p->name : "";
    ki_cv(g, u)->s = name;
    for (uint32_t k = 0; k < p->len; k++)
        if (p->name[k] == '*' || p->name[k] == '\\' || p->name[k] == '\n') note = "";
    if (ki_is_float(t)) ki_cneed(g, ki_csmall(t) ? KI_H_SMALL : KI_H_BITS, KI_U8, 1);
    const char *from = ki_csmall(t)  ? ki_cfmt(g, "kn_%s_get", ki_dtypes[t].name)
                       : t == KN_F32 ? "kn_from_f32"
                       : t == KN_F64 ? "kn_from_f64"
                                     : "";
    ki_cline(g, "const %s %s = %s((%s)var[%u]); /* %s */", ki_celem_name[ki_cvalue_elem(t)], name, from,
             t == KN_F32   ? "u32"
             : t == KN_F64 ? "u64"
                           : ki_celem_name[ki_cmemory_elem(t)],
             place, note);
}

static void bind_params(ki_cgen *g) {
    uint32_t seen = 0;
    for (uint32_t i = 0; i < g->n; i++) {
        kn_uop u = g->inst[i];
        if (u->op != KN_PARAM) continue;
        int slot = u->arg.param->slot;
        if (slot < 0) {
            bind_variable(g, u, ki_variable_place(g->kernel, u, seen++));
            continue;
        }
        bool written = ki_is_written(&g->st, slot);
        ki_cline(g, "%s%s *restrict const p%d = buf[%d]; /* %s (%lld) */", written ? "" : "const ",
                 ki_celem_name[ki_cmemory_elem((kn_dtype)u->dtype)], slot, slot, ki_dtypes[u->dtype].name,
                 (long long)ki_numel(u));
    }
}

static const char basics[] = "#ifndef KN_BASICS\n"
                             "#define KN_BASICS\n"
                             "typedef unsigned char u8;\n"
                             "typedef signed char i8;\n"
                             "typedef unsigned short u16;\n"
                             "typedef short i16;\n"
                             "typedef unsigned u32;\n"
                             "typedef int i32;\n"
                             "typedef unsigned long long u64;\n"
                             "typedef long long i64;\n"
                             "typedef float f32;\n"
                             "typedef double f64;\n"
                             "#define KN_F static inline __attribute__((always_inline))\n"
                             "#endif\n";

static bool generate(ki_cgen *g, const ki_kernel *info, ki_text *out) {
    uint32_t loops = 0;
    const kn_uop linear = (g->kernel->op == KN_CALL ? g->kernel->src[0] : g->kernel)->src[0];
    if (!ki_locals_open(&g->st, g->ir->env, g->inst, g->n, linear->id) || !count_uses(g)) return false;
    bind_params(g);
    ki_cdeclare_storage(g);
    for (uint32_t i = 0; i < g->n && !g->failed; i++) emit(g, g->inst[i], &loops);
    if (g->failed) return false;
    if (g->streams) ki_cline(g, "__builtin_ia32_sfence();"); /* what is past the caches is seen by all before the end */
    const char *name = ki_kernel_name(info);
    ki_text_put(out, basics);
    ki_chelpers(g, out);
    ki_text_printf(out, "\nvoid %s(void *const *buf, const i64 *var, i64 thread) {\n", *name ? name : "kernel");
    if (g->body.n) ki_text_putn(out, g->body.s, g->body.n);
    ki_text_put(out, "}\n");
    if (g->body.oom || out->oom) return ki_fail(g->ir->env, KI_E_NOMEM), false;
    return !g->failed;
}

bool ki_render_c(ki_ir *ir, const ki_target *t, kn_uop kernel, ki_text *out) {
    if (!kernel) return false;
    kn_uop body = kernel->op == KN_CALL ? kernel->src[0] : kernel;
    if ((body->op != KN_SINK && body->op != KN_PROGRAM) || body->nsrc < 1 || body->src[0]->op != KN_LINEAR) {
        ki_fail(ir->env, KI_E_RENDER_FORM, ki_ops[body->op].name, "SINK(LINEAR(...)) was expected");
        return false;
    }
    kn_uop linear = body->src[0];
    ki_cgen g = {.ir = ir, .t = t, .kernel = kernel, .inst = linear->src, .n = linear->nsrc};
    g.val = ki_calloc((size_t)linear->id + 1, sizeof *g.val);
    bool ok = g.val != NULL;
    if (!ok) ki_fail(ir->env, KI_E_NOMEM);
    ok = ok && generate(&g, body->arg.kernel, out);
    ki_free(g.val);
    ki_locals_close(&g.st);
    ki_text_free(&g.body);
    ki_arena_free(&g.strs);
    return ok;
}
