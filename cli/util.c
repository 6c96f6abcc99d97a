/* util.c: options, messages, JSON lines. See cli.h. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void say(const cli *c, const char *fmt, va_list ap) {
    fprintf(stderr, "koine %s: ", c->verb->name);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
}

int cli_usage(const cli *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(c, fmt, ap);
    va_end(ap);
    fprintf(stderr, "  try: koine %s --help\n", c->verb->name);
    return CLI_USAGE;
}

int cli_fail(const cli *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    say(c, fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

char **cli_args(const cli *c, const char *name) {
    for (int i = c->ngiven; i-- > 0;)
        if (strcmp(c->given[i].opt->name, name) == 0) return c->given[i].arg;
    return NULL;
}

bool cli_has(const cli *c, const char *name) {
    for (int i = 0; i < c->ngiven; i++)
        if (strcmp(c->given[i].opt->name, name) == 0) return true;
    return false;
}

const char *cli_str(const cli *c, const char *name, const char *def) {
    char **a = cli_args(c, name);
    return a ? a[0] : def;
}

const char *cli_nth(const cli *c, const char *name, int i) {
    for (int g = 0; g < c->ngiven; g++)
        if (strcmp(c->given[g].opt->name, name) == 0 && i-- == 0) return c->given[g].arg[0];
    return NULL;
}

bool cli_int(const cli *c, const char *name, int64_t lo, int64_t hi, int64_t *v) {
    const char *s = cli_str(c, name, NULL);
    if (!s) return true;
    char *end;
    errno = 0;
    long long n = strtoll(s, &end, 0);
    if (end != s && *end == 0 && errno == 0 && n >= lo && n <= hi) {
        *v = n;
        return true;
    }
    cli_usage(c, "--%s %s: expected a whole number from %lld to %lld", name, s, (long long)lo, (long long)hi);
    return false;
}

bool cli_real(const cli *c, const char *name, double lo, double hi, double *v) {
    const char *s = cli_str(c, name, NULL);
    if (!s) return true;
    char *end;
    double x = strtod(s, &end);
    if (end != s && *end == 0 && x >= lo && x <= hi) {
        *v = x;
        return true;
    }
    cli_usage(c, "--%s %s: expected a number from %g to %g", name, s, lo, hi);
    return false;
}

void cli_json_string(FILE *f, const char *s) {
    fputc('"', f);
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\') fprintf(f, "\\%c", ch);
        else if (ch == '\n') fputs("\\n", f);
        else if (ch < 32 || ch == 127) fprintf(f, "\\u%04x", ch);
        else fputc(ch, f);
    }
    fputc('"', f);
}

void cli_json(FILE *f, const char *spec, ...) {
    va_list ap;
    va_start(ap, spec);
    fputc('{', f);
    for (bool first = true; *spec; first = false) {
        char kind = *spec;
        spec += 2;
        const char *end = strchr(spec, ',');
        size_t n = end ? (size_t)(end - spec) : strlen(spec);
        fprintf(f, "%s\"%.*s\": ", first ? "" : ", ", (int)n, spec);
        if (kind == 's') {
            const char *s = va_arg(ap, const char *);
            if (s) cli_json_string(f, s);
            else fputs("null", f);
        } else if (kind == 'i') {
            fprintf(f, "%lld", (long long)va_arg(ap, int64_t));
        } else if (kind == 'b') {
            fputs(va_arg(ap, int) ? "true" : "false", f);
        } else {
            double d = va_arg(ap, double);
            if (isfinite(d)) fprintf(f, "%.9g", d);
            else fputs("null", f);
        }
        spec += n;
        while (*spec == ',' || *spec == ' ') spec++;
    }
    fputs("}\n", f);
    va_end(ap);
}

static void log_line(void *user, const char *text) {
    (void)user;
    fputs(text, stderr);
}

void cli_log(kn_ctx *k) { kn_set_log(k, log_line, NULL); }

double cli_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Edit distance with transpositions, of words of at most 31 letters. */
static unsigned distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    if (n > 31 || m > 31) return 99;
    unsigned d[32][32];
    for (unsigned i = 0; i <= n; i++)
        for (unsigned j = 0; j <= m; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            unsigned v = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1 < v) v = d[i - 1][j] + 1;
            if (d[i][j - 1] + 1 < v) v = d[i][j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < v)
                v = d[i - 2][j - 2] + 1;
            d[i][j] = v;
        }
    return d[n][m];
}

const char *cli_near(const char *s, const char *(*word)(const void *of, int i), const void *of) {
    const char *best = NULL;
    unsigned least = 3;
    for (int i = 0; word(of, i); i++) {
        const char *w = word(of, i);
        unsigned d = distance(s, w);
        if (strlen(s) >= 3 && strncmp(s, w, strlen(s)) == 0) d = 1; /* a word begun */
        if (d < least && d < strlen(w)) {
            least = d;
            best = w;
        }
    }
    return best;
}
