/* text.h: a growing string. Once an allocation fails it stays failed (`oom`) and later calls do nothing,
 * so that a writer checks once, at the end. `s` is always NUL-terminated after the first successful write. */
#ifndef KI_TEXT_H
#define KI_TEXT_H

#include "base/gnu.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct ki_text {
    char *s;
    size_t n, cap;
    bool oom;
} ki_text;

void ki_text_put(ki_text *t, const char *s);
void ki_text_putn(ki_text *t, const char *s, size_t n);
void ki_text_putc(ki_text *t, char c);
void ki_text_printf(ki_text *t, const char *fmt, ...) KI_PRINTF(2, 3);
void ki_text_vprintf(ki_text *t, const char *fmt, va_list ap);
/* "s" with quotes, and with \n \t \" \\ and \xNN for what would not survive; UTF-8 passes. */
void ki_text_quoted(ki_text *t, const char *s, size_t n);
/* Cuts back to n bytes. */
void ki_text_cut(ki_text *t, size_t n);
void ki_text_free(ki_text *t);
/* The string, owned by the caller (ki_free); NULL when out of memory. The text is empty afterwards. */
char *ki_text_take(ki_text *t);

#endif
