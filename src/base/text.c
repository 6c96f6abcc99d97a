/* text.c: a growing string. See text.h. */
#include "base/text.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

static bool reserve(ki_text *t, size_t more) {
    if (t->oom) return false;
    if (t->n + more + 1 <= t->cap) return true;
    size_t cap = t->cap ? t->cap * 2 : 128;
    while (cap < t->n + more + 1) cap *= 2;
    char *s = ki_realloc(t->s, cap, 1);
    if (!s) {
        t->oom = true;
        return false;
    }
    t->s = s;
    t->cap = cap;
    return true;
}

void ki_text_putn(ki_text *t, const char *s, size_t n) {
    if (!reserve(t, n)) return;
    if (n) memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

void ki_text_put(ki_text *t, const char *s) { ki_text_putn(t, s, strlen(s)); }

void ki_text_putc(ki_text *t, char c) { ki_text_putn(t, &c, 1); }

/* Length of a directive that needs no more than digits or a copy, after its '%'; 0: printf's business. */
static size_t plain(const char *s) {
    size_t n = 0;
    while (s[n] == 'l' && n < 2) n++;
    if (n == 0 && s[0] == 'z') return s[1] == 'u' ? 2 : 0;
    if (s[n] == 'd' || s[n] == 'u') return n + 1;
    return n == 0 && (s[0] == 's' || s[0] == 'c' || s[0] == '%');
}

static bool all_plain(const char *fmt) {
    for (const char *p = fmt; (p = strchr(p, '%'));) {
        size_t n = plain(p + 1);
        if (!n) return false;
        p += n + 1;
    }
    return true;
}

static void put_number(ki_text *t, unsigned long long v, bool minus) {
    char digit[24], *end = digit + sizeof digit, *p = end;
    do *--p = (char)('0' + v % 10);
    while (v /= 10);
    if (minus) *--p = '-';
    ki_text_putn(t, p, (size_t)(end - p));
}
static void put_signed(ki_text *t, long long v) {
    put_number(t, v < 0 ? 0 - (unsigned long long)v : (unsigned long long)v, v < 0);
}

/* Most of what is rendered and printed. */
static void put_plain(ki_text *t, const char *fmt, va_list ap) {
    for (const char *s;;) {
        const char *p = strchr(fmt, '%');
        ki_text_putn(t, fmt, p ? (size_t)(p - fmt) : strlen(fmt));
        if (!p) return;
        size_t n = plain(p + 1);
        bool u = p[n] == 'u';
        switch (p[1]) {
        case 's':
            if ((s = va_arg(ap, const char *))) ki_text_put(t, s); /* NULL: a text that memory did not suffice for */
            break;
        case 'c': ki_text_putc(t, (char)va_arg(ap, int)); break;
        case '%': ki_text_putc(t, '%'); break;
        case 'z': put_number(t, va_arg(ap, size_t), false); break;
        case 'd': put_signed(t, va_arg(ap, int)); break;
        case 'u': put_number(t, va_arg(ap, unsigned), false); break;
        default:
            if (n == 2 && u) put_number(t, va_arg(ap, unsigned long), false);
            else if (n == 2) put_signed(t, va_arg(ap, long));
            else if (u) put_number(t, va_arg(ap, unsigned long long), false);
            else put_signed(t, va_arg(ap, long long));
        }
        fmt = p + 1 + n;
    }
}

void ki_text_vprintf(ki_text *t, const char *fmt, va_list ap) {
    if (all_plain(fmt)) {
        put_plain(t, fmt, ap);
        return;
    }
    va_list again;
    va_copy(again, ap);
    if (reserve(t, 64)) {
        int n = vsnprintf(t->s + t->n, t->cap - t->n, fmt, ap);
        if (n > 0 && (size_t)n >= t->cap - t->n) {
            if (reserve(t, (size_t)n)) vsnprintf(t->s + t->n, t->cap - t->n, fmt, again);
        }
        if (!t->oom && n > 0) t->n += (size_t)n;
    }
    va_end(again);
}

void ki_text_printf(ki_text *t, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    ki_text_vprintf(t, fmt, ap);
    va_end(ap);
}

void ki_text_quoted(ki_text *t, const char *s, size_t n) {
    ki_text_putc(t, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') {
            ki_text_putc(t, '\\');
            ki_text_putc(t, (char)c);
        } else if (c == '\n') {
            ki_text_put(t, "\\n");
        } else if (c == '\t') {
            ki_text_put(t, "\\t");
        } else if (c < 32 || c == 127) {
            ki_text_printf(t, "\\x%02x", c);
        } else {
            ki_text_putc(t, (char)c);
        }
    }
    ki_text_putc(t, '"');
}

void ki_text_cut(ki_text *t, size_t n) {
    if (n >= t->n) return;
    t->n = n;
    t->s[n] = 0;
}

void ki_text_free(ki_text *t) {
    ki_free(t->s);
    *t = (ki_text){0};
}

char *ki_text_take(ki_text *t) {
    if (!t->s) ki_text_put(t, "");
    char *s = t->oom ? NULL : t->s;
    if (!s) ki_free(t->s);
    *t = (ki_text){0};
    return s;
}
