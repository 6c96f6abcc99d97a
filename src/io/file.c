/* file.c: whole files in and out. See file.h. */
#include "io/file.h"

#include "base/fd.h"
#include "io/inflate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_fd(ki_env *env, const char *path, int fd, uint8_t **data, size_t *n) {
    struct stat st;
    size_t cap = 65536, len = 0;
    if (fstat(fd, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return ki_fail(env, KI_E_FILE_READ, path, strerror(EISDIR)), false;
        if (S_ISREG(st.st_mode) && st.st_size > 0) cap = (size_t)st.st_size + 2;
    }
    uint8_t *p = ki_malloc(cap);
    while (p) {
        ssize_t got = read(fd, p + len, cap - 1 - len);
        if (got == 0) break;
        if (got < 0) {
            if (errno == EINTR) continue;
            ki_fail(env, KI_E_FILE_READ, path, strerror(errno));
            ki_free(p);
            return false;
        }
        len += (size_t)got;
        if (len < cap - 1) continue;
        uint8_t *more = cap < SIZE_MAX / 2 ? ki_realloc(p, cap * 2, 1) : NULL;
        if (!more) ki_free(p);
        p = more;
        cap *= 2;
    }
    if (!p) return ki_fail(env, KI_E_NOMEM), false;
    p[len] = 0;
    *data = p;
    *n = len;
    return true;
}

bool ki_file_read(ki_env *env, const char *path, uint8_t **data, size_t *n) {
    if (strcmp(path, "-") == 0) return read_fd(env, "standard input", STDIN_FILENO, data, n);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return ki_fail(env, KI_E_FILE_READ, path, strerror(errno)), false;
    bool ok = read_fd(env, path, fd, data, n);
    close(fd);
    return ok;
}

bool ki_file_read_gz(ki_env *env, const char *path, uint8_t **data, size_t *n) {
    uint8_t *raw;
    size_t nraw;
    if (!ki_file_read(env, path, &raw, &nraw)) return false;
    if (!ki_is_gzip(raw, nraw)) {
        *data = raw;
        *n = nraw;
        return true;
    }
    bool ok = ki_gunzip(env, path, raw, nraw, 0, data, n);
    ki_free(raw);
    return ok;
}

bool ki_file_write2(ki_env *env, const char *path, const void *head, size_t nhead, const void *data, size_t n) {
    struct stat st;
    /* Standard output and devices are written in place; a file through a temporary one and a rename. */
    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode))) {
        int fd = strcmp(path, "-") == 0 ? dup(STDOUT_FILENO) : open(path, O_WRONLY | O_CLOEXEC);
        bool ok = fd >= 0 && ki_fd_write(fd, head, nhead) && ki_fd_write(fd, data, n);
        if (!ok) ki_fail(env, KI_E_FILE_WRITE, path, strerror(errno));
        if (fd >= 0) close(fd);
        return ok;
    }
    ki_text t = {0};
    ki_text_printf(&t, "%s.%ld.tmp", path, (long)getpid());
    if (t.oom) return ki_text_free(&t), ki_fail(env, KI_E_NOMEM), false;
    int fd = open(t.s, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && ki_fd_write(fd, head, nhead) && ki_fd_write(fd, data, n);
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && ok) ok = false, why = errno;
    if (ok && rename(t.s, path) != 0) ok = false, why = errno;
    if (!ok) {
        ki_fail(env, KI_E_FILE_WRITE, path, strerror(why));
        if (fd >= 0) unlink(t.s);
    }
    ki_text_free(&t);
    return ok;
}

bool ki_file_write(ki_env *env, const char *path, const void *data, size_t n) {
    return ki_file_write2(env, path, NULL, 0, data, n);
}
