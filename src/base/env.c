/* env.c: diagnostics, settings, log, device names. See env.h. */
#include "base/env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct error_row {
    int number, status;
    const char *format, *hint;
} error_row;

static const error_row errors[KI_E_COUNT] = {
    [KI_E_NONE] = {0, 0, "", ""},
#define KI_ERROR(num, name, status, fmt, hint) [KI_E_##name] = {num, KI_##status, fmt, hint},
#include "base/errors.def"
#undef KI_ERROR
};

const ki_var_info ki_vars[KI_VAR_COUNT] = {
#define KI_ENV(name, def, takes, code, doc) [KI_VAR_##name] = {"KN_" #name, def, takes, code, doc},
#include "base/env.def"
#undef KI_ENV
};

static char *copy(const char *s) {
    size_t n = strlen(s) + 1;
    char *p = ki_malloc(n);
    if (p) memcpy(p, s, n);
    return p;
}

/* Whether s is one of the numbers "lo..hi". */
static bool number_in(const char *s, const char *numbers, uint64_t *value) {
    char *end;
    uint64_t lo = strtoull(numbers, &end, 10), hi = strtoull(end + 2, NULL, 10);
    errno = 0;
    *value = strtoull(s, &end, 0);
    return *s >= '0' && *s <= '9' && *end == 0 && errno == 0 && *value >= lo && *value <= hi;
}

static bool takes_numbers(const char *takes) { return strstr(takes, "..") != NULL; }

/* Whether s is one of the words, which spaces part. */
static bool word_in(const char *s, const char *words) {
    size_t n = strlen(s);
    for (const char *w = words; *w; w += strcspn(w, " "), w += *w == ' ')
        if (strcspn(w, " ") == n && memcmp(w, s, n) == 0) return true;
    return false;
}

bool ki_env_open(ki_env *e) {
    *e = (ki_env){0};
    for (int v = 0; v < KI_VAR_COUNT; v++) {
        const char *value = getenv(ki_vars[v].name);
        if (!value || ki_setting_set(e, (ki_var)v, value) || e->err == KI_E_SETTING_VALUE) continue;
        ki_env_close(e);
        return false;
    }
    return true;
}

void ki_env_close(ki_env *e) {
    if (e->watch) e->watch_close(e);
    for (int v = 0; v < KI_VAR_COUNT; v++) ki_free(e->var[v]);
    for (unsigned i = 1; i < e->ndevice; i++) ki_free(e->device[i]);
    ki_free(e->device);
    ki_text_free(&e->message);
    *e = (ki_env){0};
}

static bool begin(ki_env *e, ki_err id) {
    if (e->err != KI_E_NONE) {
        e->more++;
        return false;
    }
    e->err = id;
    e->status = errors[id].status;
    ki_text_cut(&e->message, 0);
    return true;
}

#define HINT "\n  hint: "
/* "place: KNnnnn: text" and, last, the hint. */
static void head(ki_env *e, const char *place, va_list ap) {
    const error_row *r = &errors[e->err];
    if (place) ki_text_printf(&e->message, "%s: ", place);
    else if (e->loc.file) ki_text_printf(&e->message, "%s:%d: ", e->loc.file, e->loc.line);
    ki_text_printf(&e->message, "KN%04d: ", r->number);
    ki_text_vprintf(&e->message, r->format, ap);
}

static void tail(ki_env *e) {
    if (*errors[e->err].hint) ki_text_printf(&e->message, HINT "%s", errors[e->err].hint);
}

int ki_fail(ki_env *e, ki_err id, ...) {
    if (!begin(e, id)) return errors[id].status;
    va_list ap;
    va_start(ap, id);
    head(e, NULL, ap);
    va_end(ap);
    tail(e);
    return e->status;
}

int ki_fail_at(ki_env *e, ki_err id, const char *source, const char *text, size_t n, size_t at, ...) {
    if (!begin(e, id)) return errors[id].status;
    if (at > n) at = n;
    size_t start = at, end = at, line = 1;
    while (start > 0 && text[start - 1] != '\n') start--;
    while (end < n && text[end] != '\n') end++;
    for (size_t i = 0; i < start; i++) line += text[i] == '\n';
    char place[512];
    snprintf(place, sizeof place, "%s:%zu:%zu", source ? source : "text", line, at - start + 1);
    va_list ap;
    va_start(ap, at);
    head(e, place, ap);
    va_end(ap);
    /* Long lines are cut to a window around the caret. */
    size_t from = at - start > 100 ? at - 60 : start, to = end - from > 160 ? from + 160 : end;
    ki_text_put(&e->message, "\n  ");
    for (size_t i = from; i < to; i++) { /* what a terminal would obey is not shown */
        unsigned char c = (unsigned char)text[i];
        ki_text_putc(&e->message, (c < 32 && c != '\t') || c == 127 ? '?' : text[i]);
    }
    ki_text_put(&e->message, "\n  ");
    for (size_t i = from; i < at; i++) ki_text_putc(&e->message, text[i] == '\t' ? '\t' : ' ');
    ki_text_putc(&e->message, '^');
    tail(e);
    return e->status;
}

void ki_fail_note(ki_env *e, const char *fmt, ...) {
    if (e->err == KI_E_NONE || e->more) return;
    size_t hint = strlen(errors[e->err].hint), cut = hint ? hint + strlen(HINT) : 0;
    if (e->message.n >= cut) ki_text_cut(&e->message, e->message.n - cut); /* the hint stays last */
    ki_text_put(&e->message, "\n  ");
    va_list ap;
    va_start(ap, fmt);
    ki_text_vprintf(&e->message, fmt, ap);
    va_end(ap);
    tail(e);
}

void ki_env_clear(ki_env *e) {
    e->err = KI_E_NONE;
    e->status = KI_OK;
    e->more = 0;
    ki_text_cut(&e->message, 0);
}

const char *ki_setting(const ki_env *e, ki_var v) { return e->var[v] ? e->var[v] : ki_vars[v].def; }

uint64_t ki_setting_number(const ki_env *e, ki_var v) {
    uint64_t n = 0;
    number_in(ki_setting(e, v), ki_vars[v].takes, &n);
    return n;
}

bool ki_setting_set(ki_env *e, ki_var v, const char *value) {
    uint64_t n;
    const char *takes = ki_vars[v].takes;
    bool numbers = takes_numbers(takes);
    if (value && !*value) value = NULL;
    if (value && *takes && !(numbers ? number_in(value, takes, &n) : word_in(value, takes)))
        return ki_fail(e, KI_E_SETTING_VALUE, ki_vars[v].name, value, numbers ? "a whole number in" : "one of", takes),
               false;
    char *p = value ? copy(value) : NULL;
    if (value && !p) return ki_fail(e, KI_E_NOMEM), false;
    ki_free(e->var[v]);
    e->var[v] = p;
    return true;
}

void ki_log(ki_env *e, const char *fmt, ...) {
    if (!e->log) return;
    ki_text t = {0};
    va_list ap;
    va_start(ap, fmt);
    ki_text_vprintf(&t, fmt, ap);
    va_end(ap);
    if (t.s) e->log(e->log_user, t.s);
    ki_text_free(&t);
}

unsigned ki_device_id(ki_env *e, const char *name) {
    if (!name || !*name) return 0;
    for (unsigned i = 1; i < e->ndevice; i++)
        if (strcmp(e->device[i], name) == 0) return i;
    if (e->ndevice == e->device_cap) {
        unsigned cap = e->device_cap ? e->device_cap * 2 : 8;
        char **p = ki_realloc(e->device, cap, sizeof *p);
        if (!p) return ki_fail(e, KI_E_NOMEM), 0;
        e->device = p;
        e->device_cap = cap;
        if (e->ndevice == 0) e->device[e->ndevice++] = NULL;
    }
    char *p = copy(name);
    if (!p) return ki_fail(e, KI_E_NOMEM), 0;
    e->device[e->ndevice] = p;
    return e->ndevice++;
}
