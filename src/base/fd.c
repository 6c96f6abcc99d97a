/* fd.c: see fd.h. */
#include "base/fd.h"

#include <errno.h>
#include <unistd.h>

bool ki_fd_write(int fd, const void *data, size_t n) {
    const char *p = data;
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

size_t ki_fd_read(int fd, void *data, size_t n) {
    char *p = data;
    size_t at = 0;
    while (at < n) {
        ssize_t got = read(fd, p + at, n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        at += (size_t)got;
    }
    return at;
}
