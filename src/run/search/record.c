/* record.c: the text of a search on disk. Lines of words and numbers; times are their bits, so that what is read is what was
 * measured. The file's trailer (device/cpu/cache.h) has been checked before; here nothing is believed all the same. */
#include "run/search/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char FIRST[] = "koine search 1\n";
enum { MOST_OPTS = 4096 };

void ki_record_free(ki_record *r) {
    ki_free(r->opt);
    ki_free(r->time);
    *r = (ki_record){0};
}

/* ---- writing ------------------------------------------------------------------------------------------------ */

static unsigned long long bits(double d) {
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    return b;
}

bool ki_record_write(const ki_search *s, const char *name, ki_text *out) {
    ki_text_put(out, FIRST);
    ki_text_printf(out, "# %s: %zu lists, %u measured\n", name, s->n, s->measured);
    for (size_t i = 0; i < s->n; i++) {
        const ki_trial *t = &s->trial[i];
        if (t->time > 0)
            ki_text_printf(out, "time %016llx %016llx %016llx\n", (unsigned long long)t->key.a,
                           (unsigned long long)t->key.b, bits(t->time));
    }
    if (s->done) {
        const ki_trial *t = ki_search_best(s);
        ki_text_put(out, "# ");
        ki_opts_put(out, t->opt, t->nopt);
        ki_text_printf(out, "\nfound %u %016llx %016llx %u\n", s->width, bits(t->time), bits(s->trial[0].time),
                       t->nopt);
        for (uint32_t i = 0; i < t->nopt; i++) {
            const ki_opt *o = &t->opt[i];
            ki_text_printf(out, "opt %u %u %u %d %d %d\n", o->op, o->target, o->top, o->axis, o->arg, o->id);
        }
    }
    ki_text_put(out, "end\n");
    return !out->oom;
}

/* ---- reading ------------------------------------------------------------------------------------------------ */

typedef struct reader {
    const char *at;
    bool bad;
} reader;

static bool word(reader *r, const char *w) {
    size_t n = strlen(w);
    if (strncmp(r->at, w, n) || (r->at[n] != ' ' && r->at[n] != '\n')) return false;
    r->at += n;
    return true;
}
static uint64_t hex(reader *r) {
    uint64_t v = 0;
    if (*r->at == ' ') r->at++;
    for (int i = 0; i < 16; i++, r->at++) {
        char c = *r->at;
        int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (d < 0) return r->bad = true, 0;
        v = v << 4 | (unsigned)d;
    }
    return v;
}
static double seconds(reader *r) {
    uint64_t b = hex(r);
    double d;
    memcpy(&d, &b, sizeof d);
    if (!(d > 0)) r->bad = true;
    return d;
}
static int64_t number(reader *r, int64_t lo, int64_t hi) {
    int64_t v = 0, sign = 1;
    int digits = 0;
    if (*r->at == ' ') r->at++;
    if (*r->at == '-') sign = -1, r->at++;
    for (; *r->at >= '0' && *r->at <= '9' && digits < 11; digits++) v = v * 10 + (*r->at++ - '0');
    v *= sign;
    if (!digits || v < lo || v > hi) r->bad = true;
    return v;
}
static void line_end(reader *r) {
    if (*r->at != '\n') r->bad = true;
    else r->at++;
}

static void read_time(reader *in, ki_record *r) {
    struct ki_record_time t = {.key.a = hex(in)};
    t.key.b = hex(in);
    t.time = seconds(in);
    if (in->bad || !ki_array_grow(&r->time, &r->cap, r->ntime + 1, sizeof *r->time)) in->bad = true;
    else r->time[r->ntime++] = t;
}

static void read_found(reader *in, ki_record *r) {
    if (r->width) in->bad = true; /* twice */
    r->width = (unsigned)number(in, 1, 64);
    r->seconds = seconds(in);
    r->heuristics = seconds(in);
    r->nopt = (uint32_t)number(in, 0, MOST_OPTS);
    line_end(in);
    if (in->bad || !(r->opt = ki_calloc(r->nopt + 1, sizeof *r->opt))) in->bad = true;
    for (uint32_t i = 0; i < r->nopt && !in->bad; i++) {
        ki_opt *o = &r->opt[i];
        if (!word(in, "opt")) in->bad = true;
        o->op = (uint8_t)number(in, 0, KI_OPT_COUNT - 1);
        o->target = (uint8_t)number(in, 0, KI_AX_COUNT - 1);
        o->top = (uint8_t)number(in, 0, 1);
        o->axis = (int32_t)number(in, INT32_MIN, INT32_MAX);
        o->arg = (int32_t)number(in, INT32_MIN, INT32_MAX);
        o->id = (int32_t)number(in, -1, INT32_MAX);
        if (i + 1 < r->nopt) line_end(in);
    }
}

bool ki_record_read(ki_record *r, const char *text, size_t n) {
    reader in = {text, strlen(text) != n || strncmp(text, FIRST, sizeof FIRST - 1)};
    *r = (ki_record){0};
    bool ended = false;
    if (!in.bad) in.at += sizeof FIRST - 1;
    while (!in.bad && !ended) {
        if (*in.at == '#') in.at += strcspn(in.at, "\n");
        else if (word(&in, "time")) read_time(&in, r);
        else if (word(&in, "found")) {
            read_found(&in, r);
            if (!in.bad && !r->nopt) continue; /* its line has ended */
        } else if (word(&in, "end")) ended = true;
        else in.bad = true;
        if (!in.bad) line_end(&in);
    }
    if (!in.bad && !*in.at) return true;
    ki_record_free(r);
    return false;
}
