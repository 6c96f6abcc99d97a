/* tap.h: the little that a C test program needs. Each check prints one TAP line; main ends with `return tap_done();`. */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdio.h>

/* Whether the build is `make check`'s: what only counts time, memory or values tries less of it there. */
#if defined __SANITIZE_ADDRESS__
#define SANITIZED 1
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static int tap_n, tap_bad;

__attribute__((format(printf, 4, 5), unused)) static int tap_check(int ok, const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    if (!ok) printf("# %s:%d\n", file, line);
    printf("%sok %d - ", ok ? "" : "not ", ++tap_n);
    vprintf(fmt, ap);
    printf("\n");
    fflush(stdout);
    va_end(ap);
    tap_bad += !ok;
    return ok;
}
#define CHECK(cond, ...) tap_check(!!(cond), __FILE__, __LINE__, __VA_ARGS__)

__attribute__((unused)) static int tap_done(void) {
    printf("1..%d\n", tap_n);
    return tap_bad != 0;
}

#endif
