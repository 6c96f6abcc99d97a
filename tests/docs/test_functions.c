/* The examples of docs/functions.md (examples.def), each a test: what is shown is what stands beside it.
 *
 * --shown: what each shows, for KN_BLESS=1. --facts: what tools/functions.py writes of a function beside its comment: shapes,
 * the dtype that comes of each dtype, whether a gradient flows, the operations of its graph, the numbers of mistakes. For
 * these an example is run again with other dtypes and shapes of its data; nothing is computed. */
#define KN_NO_LOC
#include <koine/koine.h>

#include "../tap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16 };
enum { FLOATS, INTS, BOOLS, KINDS };
static kn_ctx *k;
static struct {
    const char *name;
    int shown;  /* results so far */
    int checks; /* they are compared with the text beside them, otherwise printed */
    int trying; /* they are kept, not computed */
    int vary;   /* the kind of data that has dtype, if that is not KN_VOID */
    kn_dtype dtype;
    int scalar, odd; /* the input that is a scalar, or has one element more along its last axis; -1: none */
    kn_tensor in[MOST], result[MOST];
    int kind[MOST], nin, nresult;
} run;

/* ---- what examples are made of ---- */

static kn_tensor make(const double *v, int64_t n, kn_ints shape, int kind) {
    static const kn_dtype dtypes[KINDS] = {KN_F32, KN_I64, KN_BOOL};
    int i = run.nin < MOST ? run.nin++ : MOST - 1;
    if (i == run.odd && shape.n > 0) {
        int64_t last = shape.v[shape.n - 1]++;
        n += last ? n / last : 0;
    }
    if (i == run.scalar) shape = KN_SHAPE(), n = 1;
    double *wide = calloc((size_t)n + 1, sizeof *wide);
    float *narrow = calloc((size_t)n + 1, sizeof *narrow);
    int64_t *whole = calloc((size_t)n + 1, sizeof *whole);
    unsigned char *truth = calloc((size_t)n + 1, sizeof *truth);
    for (int64_t j = 0; j < n && wide && narrow && whole && truth; j++) {
        wide[j] = v[i == run.odd || i == run.scalar ? 0 : j];
        narrow[j] = (float)wide[j];
        if (kind != FLOATS) truth[j] = (whole[j] = (int64_t)wide[j]) != 0;
    }
    const void *values[KINDS] = {narrow, whole, truth};
    kn_tensor t = kind == run.vary && run.dtype != KN_VOID ? kn_cast(kn_from_host(k, wide, KN_F64, shape), run.dtype)
                                                           : kn_from_host(k, values[kind], dtypes[kind], shape);
    free(wide);
    free(narrow);
    free(whole);
    free(truth);
    run.kind[i] = kind;
    return run.in[i] = t;
}
#define LIST(...)               (double[]){__VA_ARGS__, 0}, (int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))
#define vec(...)                make(LIST(__VA_ARGS__), KN_SHAPE(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), FLOATS)
#define mat(rows, columns, ...) make(LIST(__VA_ARGS__), KN_SHAPE(rows, columns), FLOATS)
#define data(shape, ...)        make(LIST(__VA_ARGS__), shape, FLOATS)
#define ints(...)               make(LIST(__VA_ARGS__), KN_SHAPE(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), INTS)
#define bools(...)              make(LIST(__VA_ARGS__), KN_SHAPE(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), BOOLS)
static kn_tensor count_to(int64_t n, kn_ints shape) { /* 1, 2, ... */
    double *v = calloc((size_t)n + 1, sizeof *v);
    for (int64_t i = 0; i < n && v; i++) v[i] = (double)(i + 1);
    kn_tensor t = make(v, n, shape, FLOATS);
    free(v);
    return t;
}
#define counting(...) count_to((int64_t)kn_numel(kn_zeros(k, KN_SHAPE(__VA_ARGS__), KN_F32)), KN_SHAPE(__VA_ARGS__))

/* ---- what they show ---- */

typedef struct line {
    char text[2000];
    size_t n;
} line;
__attribute__((format(printf, 2, 3))) static void add(line *l, const char *format, ...) {
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, format, ap);
    va_end(ap);
    l->n += n < 0 ? 0 : (size_t)n;
    if (l->n >= sizeof l->text) l->n = sizeof l->text - 1;
}
static void number(line *l, double v) { add(l, "%.4g", isnan(v) ? NAN : v); }
/* What rounding leaves of a zero beside numbers so large is shown as 0. */
static double smallest(const double *p, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(p[i]) && fabs(p[i]) > most) most = fabs(p[i]);
    return most * 1e-9;
}

static void is_line(const line *l, const char *want) {
    int at = run.shown++;
    if (run.checks)
        CHECK(strcmp(l->text, want) == 0, "%s: %s%s%s", run.name, want, strcmp(l->text, want) ? ", not " : "",
              strcmp(l->text, want) ? l->text : "");
    else printf("%s\t%d\t%s\n", run.name, at, l->text);
}
static void elements(line *l, kn_tensor t) {
    kn_ints s = kn_shape(t);
    kn_dtype d = kn_dtype_of(t);
    int real = d >= KN_F8E4M3 && d <= KN_F64;
    const void *p = kn_data(kn_cast(t, real ? KN_F64 : d == KN_U64 ? KN_U64 : KN_I64));
    if (!p) {
        add(l, "%s", kn_message(k));
        return;
    }
    int64_t n = kn_numel(t);
    if (n == 0) add(l, "no elements");
    double least = real ? smallest(p, n) : 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t run_of = 1;
        for (int64_t a = s.n; a-- > 0;) add(l, "%s", i % (run_of *= s.v[a]) == 0 ? "[" : "");
        double v = real ? ((const double *)p)[i] : 0;
        if (real) number(l, v != 0 && fabs(v) < least ? 0 : v);
        else if (d == KN_BOOL) add(l, "%s", ((const int64_t *)p)[i] ? "true" : "false");
        else if (d == KN_U64) add(l, "%llu", ((const unsigned long long *)p)[i]);
        else add(l, "%lld", ((const long long *)p)[i]);
        run_of = 1;
        for (int64_t a = s.n; a-- > 0;) add(l, "%s", (i + 1) % (run_of *= s.v[a]) == 0 ? "]" : "");
        if (i + 1 < n) add(l, ", ");
    }
}
static void is_tensor(kn_tensor t, const char *want) {
    line l = {{0}, 0};
    if (run.trying) {
        if (run.nresult < MOST) run.result[run.nresult++] = t;
        return;
    }
    if (kn_check(t)) add(&l, "%s", kn_why(t));
    else elements(&l, t);
    is_line(&l, want);
}
static void is_number(double v, const char *want) {
    line l = {{0}, 0};
    number(&l, v);
    if (!run.trying) is_line(&l, want);
}
static void is_text(const char *v, const char *want) {
    line l = {{0}, 0};
    add(&l, "%s", v ? v : "NULL");
    if (!run.trying) is_line(&l, want);
}
#define IS(what, want)                                                                                                 \
    _Generic((what), kn_tensor : is_tensor, const char * : is_text, char * : is_text, default : is_number)(what, want)

/* Bodies that examples of kn_function name. */
static void hypotenuse(void *user, const kn_tensor *in, kn_tensor *out) {
    (void)user;
    out[0] = kn_sqrt(kn_add(kn_square(in[0]), kn_square(in[1])));
}
static void count_release(void *owner) { ++*(int *)owner; }

#define EXAMPLE(name, ...) static void example_##name(void) __VA_ARGS__
#include "examples.def"
#undef EXAMPLE
static const struct {
    const char *name;
    void (*f)(void);
} examples[] = {
#define EXAMPLE(name, ...) {#name, example_##name},
#include "examples.def"
#undef EXAMPLE
};
enum { COUNT = sizeof examples / sizeof *examples };

static void start(int i) {
    run.name = examples[i].name;
    run.shown = run.nin = run.nresult = 0;
    kn_scope_open(k);
    kn_manual_seed(k, 0);
    examples[i].f();
}
static void end(void) {
    kn_scope_close(k);
    kn_clear(k);
}

/* ---- facts ---- */

static void try_it(int i, int vary, kn_dtype dtype, int scalar, int odd) {
    run.trying = 1;
    run.vary = vary;
    run.dtype = dtype;
    run.scalar = scalar;
    run.odd = odd;
    start(i);
    run.vary = run.scalar = run.odd = -1;
    run.dtype = KN_VOID;
}
static void print_shape(kn_tensor t) {
    kn_ints s = kn_shape(t);
    printf("(");
    for (int64_t i = 0; i < s.n; i++) printf(i ? ", %lld" : s.n == 1 ? "%lld," : "%lld", (long long)s.v[i]);
    printf(")");
}
/* The number of what is wrong with the first result, "" if nothing. */
static const char *mistake(void) {
    static char number[8];
    const char *at = run.nresult && kn_check(run.result[0]) ? strstr(kn_why(run.result[0]), "KN") : NULL;
    snprintf(number, sizeof number, "%.6s", at ? at : "");
    return number;
}
static void print_ops(void) {
    for (int r = 0; r < run.nresult; r++) {
        char *text = kn_check(run.result[r]) ? NULL : kn_uop_text(k, kn_graph(run.result[r]));
        for (char *p = text; p && (p = strstr(p, " = ")) != NULL;) {
            p += 3;
            int n = (int)strcspn(p, " :\n"), reduce = n == 6 && !strncmp(p, "reduce", 6);
            printf("%.*s%s%.*s ", n, p, reduce ? "_" : "", reduce ? (int)strcspn(p + 7, " \n") : 0, p + n + 1);
        }
        kn_free(text);
    }
}
/* flows: something but zero; zero; or the number of the message. */
static void print_gradient(void) {
    kn_dtype d = run.nresult && !kn_check(run.result[0]) ? kn_dtype_of(run.result[0]) : KN_VOID;
    const char *what = d < KN_F8E4M3 || d > KN_F64 ? "integer" : "";
    for (int i = 0; i < run.nin && !*what + (strcmp(what, "zero") == 0); i++) {
        if (run.kind[i] != FLOATS || kn_check(run.in[i])) continue;
        kn_tensor g = kn_grad1(run.result[0], run.in[i]);
        const char *number = kn_check(g) ? strstr(kn_why(g), "KN1172") : NULL;
        char *text = kn_check(g) ? NULL : kn_uop_text(k, kn_graph(g));
        int constant = text && !strstr(text, " = param ") && !strstr(text, " = buffer ");
        what = number ? "KN1172" : constant && kn_item(kn_count_nonzero(g)) == 0 ? "zero" : "flows";
        kn_free(text);
    }
    printf("%s", what);
}
static void facts(int i) {
    int vary = INTS, nin;
    try_it(i, -1, KN_VOID, -1, -1);
    nin = run.nin;
    printf("%s\t", run.name);
    for (int j = 0; j < nin; j++) {
        printf(j ? ", " : "");
        print_shape(run.in[j]);
        if (run.kind[j] == FLOATS) vary = FLOATS;
    }
    printf("\t");
    for (int r = 0; r < run.nresult; r++) {
        printf(r ? ", " : "");
        print_shape(run.result[r]);
    }
    printf("\t");
    print_ops();
    printf("\t");
    print_gradient();
    printf("\t");
    end();
    for (kn_dtype d = KN_BOOL; nin && d <= KN_F64; d++) {
        try_it(i, vary, d, -1, -1);
        const char *bad = mistake();
        printf("%s=%s ", kn_dtype_name(d), *bad ? bad : run.nresult ? kn_dtype_name(kn_dtype_of(run.result[0])) : "");
        end();
    }
    printf("\t");
    for (int j = 0; j < 2 * nin && j < 2 * MOST; j++) {
        try_it(i, -1, KN_VOID, j < nin ? j : -1, j < nin ? -1 : j - nin);
        printf("%s ", mistake());
        end();
    }
    printf("\n");
}

int main(int argc, char **argv) {
    int shown = argc > 1 && !strcmp(argv[1], "--shown"), told = argc > 1 && !strcmp(argv[1], "--facts");
    run.vary = run.scalar = run.odd = -1;
    run.checks = !shown;
    k = kn_open(NULL);
    for (int i = 0; i < COUNT; i++) {
        if (told) {
            facts(i);
            continue;
        }
        start(i);
        end();
    }
    kn_close(k);
    return shown || told ? 0 : tap_done();
}
