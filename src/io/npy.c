/* npy.c: numpy's array file, versions 1 to 3. See array.h for the dtypes numpy has no name for.
 *
 * The header is a Python dict literal; the reader accepts the three keys numpy writes, in any order and spacing, and
 * nothing else. All sizes are checked before memory is asked for. */
#include "io/array.h"

#include "io/file.h"

#include <string.h>

bool ki_array_make(ki_env *env, ki_array *a, kn_dtype dtype, unsigned rank, const int64_t *dim) {
    *a = (ki_array){.dtype = dtype, .rank = rank, .numel = 1};
    if (rank > KI_ARRAY_RANK) return ki_fail(env, KI_E_ARRAY_RANK, rank, KI_ARRAY_RANK), false;
    int64_t bytes = (int64_t)ki_itemsize(dtype);
    bool empty = false;
    for (unsigned k = 0; k < rank; k++) empty |= dim[k] == 0;
    for (unsigned k = 0; k < rank; k++) {
        a->dim[k] = dim[k];
        if (dim[k] < 0 || (!empty && ki_mul_overflow(bytes, dim[k], &bytes)) || bytes > INT64_C(1) << 47)
            return ki_fail(env, KI_E_ARRAY_SIZE, (long long)dim[k], k), false;
    }
    if (empty) bytes = 0;
    a->bytes = (size_t)bytes;
    a->numel = bytes / (int64_t)(ki_itemsize(dtype) ? ki_itemsize(dtype) : 1);
    a->data = ki_calloc(a->bytes, 1);
    if (!a->data) return ki_fail(env, KI_E_NOMEM), false;
    return true;
}

void ki_array_free(ki_array *a) {
    ki_free(a->data);
    *a = (ki_array){0};
}

/* ---- the header's dict ---- */

typedef struct dict {
    const char *name;
    ki_env *env;
    const uint8_t *p;
    size_t n, at;
    /* what it says */
    kn_dtype dtype;
    bool big, fortran;
    unsigned rank;
    int64_t dim[KI_ARRAY_RANK];
    unsigned seen; /* bit 0 descr, 1 fortran_order, 2 shape */
} dict;

static void space(dict *d) {
    while (d->at < d->n && (d->p[d->at] == ' ' || d->p[d->at] == '\n' || d->p[d->at] == '\t')) d->at++;
}

static bool is(dict *d, const char *s) {
    space(d);
    size_t n = strlen(s);
    if (d->n - d->at < n || memcmp(d->p + d->at, s, n) != 0) return false;
    d->at += n;
    return true;
}

static bool bad(dict *d, const char *what) { return ki_fail(d->env, KI_E_NPY_HEADER, d->name, d->at, what), false; }

/* A quoted word into buf; false when there is none or it is long. */
static bool quoted(dict *d, char *buf, size_t cap) {
    space(d);
    if (d->at >= d->n || (d->p[d->at] != '\'' && d->p[d->at] != '"')) return false;
    uint8_t q = d->p[d->at];
    size_t from = d->at + 1, to = from;
    while (to < d->n && d->p[to] != q) to++;
    if (to >= d->n || to - from >= cap) return false;
    memcpy(buf, d->p + from, to - from);
    buf[to - from] = 0;
    d->at = to + 1;
    return true;
}

static bool descr_word(dict *d, const char *s) {
    static const struct {
        const char *s;
        kn_dtype t;
    } names[] = {{"b1", KN_BOOL}, {"u1", KN_U8},  {"u2", KN_U16},  {"u4", KN_U32},    {"u8", KN_U64},
                 {"i1", KN_I8},   {"i2", KN_I16}, {"i4", KN_I32},  {"i8", KN_I64},    {"f2", KN_F16},
                 {"f4", KN_F32},  {"f8", KN_F64}, {"V2", KN_BF16}, {"V1", KN_F8E4M3}, {"f1", KN_F8E5M2}};
    char order = *s;
    if (order == '<' || order == '>' || order == '|' || order == '=') s++;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(s, names[i].s) != 0) continue;
        d->dtype = names[i].t;
        d->big = order == '>' && ki_itemsize(d->dtype) > 1;
        return true;
    }
    return ki_fail(d->env, KI_E_NPY_DTYPE, d->name, s), false;
}

/* 'descr': '<f4', or the list [('f8e5m2', '|u1')] that names one of the dtypes numpy lacks. */
static bool descr(dict *d) {
    char a[32], b[32];
    if (quoted(d, a, sizeof a)) return descr_word(d, a);
    if (!is(d, "[")) return bad(d, "a dtype in quotes");
    if (!is(d, "(") || !quoted(d, a, sizeof a) || !is(d, ",") || !quoted(d, b, sizeof b) || !is(d, ")"))
        return bad(d, "one ('name', 'type')");
    is(d, ",");
    if (!is(d, "]")) return bad(d, "one field: records of several are not supported");
    kn_dtype t = ki_dtype_named(a, strlen(a));
    if (t != KN_BF16 && t != KN_F8E4M3 && t != KN_F8E5M2) return ki_fail(d->env, KI_E_NPY_DTYPE, d->name, a), false;
    if (!descr_word(d, b)) return false;
    if (ki_itemsize(d->dtype) != ki_itemsize(t)) return bad(d, "a field as wide as its name says");
    d->dtype = t;
    return true;
}

static bool shape(dict *d) {
    if (!is(d, "(")) return bad(d, "'('");
    while (!is(d, ")")) {
        int64_t v = 0;
        size_t from = d->at;
        while (d->at < d->n && d->p[d->at] >= '0' && d->p[d->at] <= '9') {
            if (ki_mul_overflow(v, 10, &v) || ki_add_overflow(v, d->p[d->at] - '0', &v))
                return bad(d, "a size below 2^63");
            d->at++;
        }
        if (d->at == from) return bad(d, "a size");
        is(d, "L"); /* Python 2 */
        if (d->rank == KI_ARRAY_RANK) return ki_fail(d->env, KI_E_ARRAY_RANK, d->rank + 1, KI_ARRAY_RANK), false;
        d->dim[d->rank++] = v;
        if (!is(d, ",")) {
            if (!is(d, ")")) return bad(d, "',' or ')'");
            break;
        }
    }
    return true;
}

static bool parse_dict(dict *d) {
    if (!is(d, "{")) return bad(d, "'{'");
    while (!is(d, "}")) {
        char key[32];
        if (!quoted(d, key, sizeof key)) return bad(d, "a key in quotes");
        if (!is(d, ":")) return bad(d, "':'");
        unsigned bit;
        bool ok;
        if (strcmp(key, "descr") == 0) {
            bit = 1;
            ok = descr(d);
        } else if (strcmp(key, "fortran_order") == 0) {
            bit = 2;
            d->fortran = is(d, "True");
            ok = d->fortran || is(d, "False") || bad(d, "True or False");
        } else if (strcmp(key, "shape") == 0) {
            bit = 4;
            ok = shape(d);
        } else {
            return bad(d, "descr, fortran_order or shape");
        }
        if (!ok) return false;
        if (d->seen & bit) return bad(d, "each key once");
        d->seen |= bit;
        if (!is(d, ",")) {
            if (!is(d, "}")) return bad(d, "',' or '}'");
            break;
        }
    }
    space(d);
    if (d->at != d->n) return bad(d, "nothing after the dict");
    return d->seen == 7 || bad(d, "descr, fortran_order and shape, all three");
}

/* ---- the data ---- */

static void swap_bytes(uint8_t *p, size_t n, size_t item) {
    for (size_t i = 0; i < n; i += item)
        for (size_t a = 0, b = item - 1; a < b; a++, b--) {
            uint8_t t = p[i + a];
            p[i + a] = p[i + b];
            p[i + b] = t;
        }
}

/* From column-major to row-major: walks the source in order, the target by an odometer. */
static void from_fortran(const ki_array *a, const uint8_t *from) {
    size_t item = ki_itemsize(a->dtype), stride[KI_ARRAY_RANK], at = 0;
    int64_t i[KI_ARRAY_RANK] = {0};
    size_t s = item;
    for (unsigned k = a->rank; k-- > 0; s *= (size_t)a->dim[k]) stride[k] = s;
    for (int64_t e = 0; e < a->numel; e++, from += item) {
        memcpy((uint8_t *)a->data + at, from, item);
        for (unsigned k = 0; k < a->rank; k++) {
            at += stride[k];
            if (++i[k] < a->dim[k]) break;
            at -= stride[k] * (size_t)a->dim[k];
            i[k] = 0;
        }
    }
}

bool ki_npy_parse(ki_env *env, const char *name, const uint8_t *p, size_t n, ki_array *out) {
    *out = (ki_array){0};
    if (n < 10 || memcmp(p, "\x93NUMPY", 6) != 0) return ki_fail(env, KI_E_NPY_MAGIC, name), false;
    unsigned major = p[6];
    if (major < 1 || major > 3) return ki_fail(env, KI_E_NPY_VERSION, name, major, (unsigned)p[7]), false;
    size_t head = major == 1 ? 10 : 12;
    if (n < head) return ki_fail(env, KI_E_NPY_SHORT, name, "the header", head, n), false;
    size_t len = (size_t)p[8] | (size_t)p[9] << 8;
    if (major > 1) len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (len > n - head) return ki_fail(env, KI_E_NPY_SHORT, name, "the header", head + len, n), false;
    dict d = {.name = name, .env = env, .p = p + head, .n = len};
    if (!parse_dict(&d)) return false;
    /* The file must hold what the shape asks for before any memory is asked for. */
    size_t want = ki_itemsize(d.dtype);
    bool empty = false;
    for (unsigned k = 0; k < d.rank; k++) empty |= d.dim[k] == 0;
    for (unsigned k = 0; k < d.rank && !empty; k++)
        if (ki_mul_overflow(want, (size_t)d.dim[k], &want))
            return ki_fail(env, KI_E_ARRAY_SIZE, (long long)d.dim[k], k), false;
    if (empty) want = 0;
    if (want != n - head - len) {
        if (want > n - head - len) ki_fail(env, KI_E_NPY_SHORT, name, "the data", want, n - head - len);
        else ki_fail(env, KI_E_NPY_LONG, name, want, n - head - len);
        return false;
    }
    if (!ki_array_make(env, out, d.dtype, d.rank, d.dim)) return false;
    const uint8_t *from = p + head + len;
    if (d.fortran && d.rank > 1) from_fortran(out, from);
    else if (want) memcpy(out->data, from, want);
    if (d.big) swap_bytes(out->data, out->bytes, ki_itemsize(d.dtype));
    if (d.dtype == KN_BOOL) /* any other byte than 0 and 1 would be no bool */
        for (size_t i = 0; i < out->bytes; i++) ((uint8_t *)out->data)[i] = ((uint8_t *)out->data)[i] != 0;
    return true;
}

bool ki_npy_read(ki_env *env, const char *path, ki_array *out) {
    uint8_t *p;
    size_t n;
    *out = (ki_array){0};
    if (!ki_file_read_gz(env, path, &p, &n)) return false;
    bool ok = ki_npy_parse(env, path, p, n, out);
    ki_free(p);
    return ok;
}

bool ki_npy_write(ki_env *env, const char *path, const ki_array *a) {
    ki_text t = {0};
    const char *s = a->dtype == KN_BF16     ? "'<V2'"
                    : a->dtype == KN_F8E4M3 ? "'|V1'"
                    : a->dtype == KN_F8E5M2 ? "[('f8e5m2', '|u1')]"
                                            : NULL;
    ki_text_putn(&t, "\x93NUMPY\1\0\0\0", 10);
    if (s) ki_text_printf(&t, "{'descr': %s, 'fortran_order': False, 'shape': (", s);
    else ki_text_printf(&t, "{'descr': '%s', 'fortran_order': False, 'shape': (", ki_dtypes[a->dtype].npy);
    for (unsigned k = 0; k < a->rank; k++) ki_text_printf(&t, k ? ", %lld" : "%lld", (long long)a->dim[k]);
    ki_text_put(&t, a->rank == 1 ? ",), }" : "), }");
    while (!t.oom && (t.n + 1) % 64) ki_text_putc(&t, ' '); /* the data is aligned, as numpy has it */
    ki_text_putc(&t, '\n');
    bool ok = !t.oom;
    if (ok) {
        t.s[8] = (char)((t.n - 10) & 255);
        t.s[9] = (char)((t.n - 10) >> 8);
        ok = ki_file_write2(env, path, t.s, t.n, a->data, a->bytes);
    } else {
        ki_fail(env, KI_E_NOMEM);
    }
    ki_text_free(&t);
    return ok;
}
