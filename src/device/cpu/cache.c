/* cache.c: see cache.h. */
#include "device/cpu/cache.h"

#include "base/fd.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum {
    KEEP_FILES = 4096,
    PRUNE_EVERY = 256,
    KEEP_TEMPORARY = 24 * 60 * 60, /* seconds */
    ROOM = 1 << 20                 /* for an object, its source and what the compiler says */
};

#define TEMPORARY ".koine-"

typedef struct trailer {
    char magic[8];
    uint64_t length;
    ki_digest content, key;
} trailer;
static const char MAGIC[8] = "KNCODE1";

/* ---- the folder ---------------------------------------------------------------------------------------------- */

static char *format(const char *a, const char *b) {
    ki_text t = {0};
    ki_text_put(&t, a);
    ki_text_put(&t, b);
    return ki_text_take(&t);
}

/* mkdir -p, private to the user; true if it is there and can be written. */
static bool make_dir(char *path) {
    for (char *p = path + 1; *p; p++) {
        if (*p != '/') continue;
        *p = 0;
        mkdir(path, 0700);
        *p = '/';
    }
    struct stat st;
    if (mkdir(path, 0700) && errno == EEXIST && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return errno = ENOTDIR, false;
    return access(path, W_OK | X_OK) == 0;
}

static char *other_folder(void) {
    const char *temp = getenv("TMPDIR");
    return format(temp && *temp ? temp : "/tmp", "");
}

/* errno says why a folder that was asked for is no use. */
static void tell(ki_code_cache *c) {
    const char *set = ki_setting(c->env, KI_VAR_CACHE);
    if (!c->told && *set && strcmp(set, "off") != 0)
        ki_log(c->env, "KN_CACHE=%s: %s; compiled kernels are not kept\n", set, strerror(errno ? errno : EIO));
    c->told = true;
}

void ki_code_cache_close(ki_code_cache *c) {
    ki_free(c->dir);
    ki_free(c->temp);
    *c = (ki_code_cache){0};
}

bool ki_code_cache_open(ki_env *env, ki_code_cache *c) {
    const char *set = ki_setting(env, KI_VAR_CACHE), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    *c = (ki_code_cache){.env = env};
    bool off = strcmp(set, "off") == 0;
    if (!off && *set) c->dir = format(set, "");
    else if (!off && xdg && *xdg == '/') c->dir = format(xdg, "/koine");
    else if (!off && home && *home == '/') c->dir = format(home, "/.cache/koine");
    if (c->dir && make_dir(c->dir)) {
        c->temp = format(c->dir, "");
    } else {
        /* A folder that cannot be written may still be read. */
        tell(c);
        c->temp = other_folder();
    }
    if (c->temp) return true;
    ki_code_cache_close(c);
    return ki_fail(env, KI_E_NOMEM), false;
}

static char *path_of(const ki_code_cache *c, ki_digest key, const char *suffix) {
    ki_text t = {0};
    if (!c->dir) return NULL;
    ki_text_printf(&t, "%s/%016llx%016llx%s", c->dir, (unsigned long long)key.a, (unsigned long long)key.b, suffix);
    return ki_text_take(&t);
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* The whole file, ki_malloc'ed. Only a regular file that nobody else could have written; a pipe in its place is not waited for. */
static char *read_own(const char *path, size_t *n) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return NULL;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (st.st_uid == geteuid() || st.st_uid == 0) &&
              !(st.st_mode & 022) && st.st_size > 0;
    char *s = ok ? ki_malloc((size_t)st.st_size) : NULL;
    *n = s ? ki_fd_read(fd, s, (size_t)st.st_size) : 0;
    close(fd);
    if (s && *n == (size_t)st.st_size) return s;
    ki_free(s);
    return NULL;
}

static bool same_digest(ki_digest a, ki_digest b) { return a.a == b.a && a.b == b.b; }

/* What stands before the trailer of the file of a key, ki_malloc'ed. NULL: there is none, or it is not sound. */
static char *read_sound(const char *path, ki_digest key, size_t *n) {
    trailer t;
    char *s = path ? read_own(path, n) : NULL;
    bool ok = s && *n > sizeof t;
    if (ok) {
        *n -= sizeof t;
        memcpy(&t, s + *n, sizeof t);
        ok = memcmp(t.magic, MAGIC, sizeof MAGIC) == 0 && t.length == *n && same_digest(t.key, key) &&
             same_digest(t.content, ki_digest_bytes(s, *n));
    }
    if (ok) {
        s[*n] = 0;
        utimensat(AT_FDCWD, path, NULL, 0); /* the oldest go first */
        return s;
    }
    ki_free(s);
    return NULL;
}

void *ki_code_cache_load(ki_code_cache *c, ki_digest key) {
    size_t n;
    char *path = path_of(c, key, ".so"), *s = read_sound(path, key, &n);
    void *object = s ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    ki_free(s);
    ki_free(path);
    return object;
}

char *ki_code_cache_read(ki_code_cache *c, ki_digest key, const char *suffix, size_t *n) {
    char *path = path_of(c, key, suffix), *s = read_sound(path, key, n);
    ki_free(path);
    return s;
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

static bool is_kept(const ki_code_cache *c) { return c->dir && c->temp && strcmp(c->dir, c->temp) == 0; }

/* NULL: no memory, or (errno) no such file can be made. */
static char *new_file(const char *folder) {
    char *path = folder ? format(folder, "/" TEMPORARY "XXXXXX.so") : NULL;
    int fd = path ? mkstemps(path, 3) : -1;
    if (fd >= 0) return close(fd), path;
    ki_free(path);
    return NULL;
}

/* As far as can be told: a folder that is full takes new names, but nothing in them. */
static bool has_room(const char *folder) {
    struct statvfs v;
    if (statvfs(folder, &v) || !v.f_blocks || v.f_bavail * (uint64_t)v.f_frsize >= ROOM) return true;
    return errno = ENOSPC, false;
}

char *ki_code_cache_new(ki_env *env, ki_code_cache *c) {
    errno = 0;
    char *path = !is_kept(c) || has_room(c->temp) ? new_file(c->temp) : NULL;
    if (!path && errno && is_kept(c)) { /* it looked as if it could be written */
        tell(c);
        char *other = other_folder();
        if (!other) return ki_fail(env, KI_E_NOMEM), NULL;
        ki_free(c->temp);
        c->temp = other;
        path = new_file(c->temp);
    }
    if (!path && !errno) ki_fail(env, KI_E_NOMEM);
    else if (!path) ki_fail(env, KI_E_TEMP_FILE, c->temp, strerror(errno));
    return path;
}

/* Appends the trailer. */
static bool seal(const char *path, ki_digest key) {
    struct stat st;
    if (chmod(path, 0700)) return false;
    size_t n;
    char *s = read_own(path, &n);
    if (!s) return false;
    trailer t = {.length = n, .content = ki_digest_bytes(s, n), .key = key};
    memcpy(t.magic, MAGIC, sizeof MAGIC);
    ki_free(s);
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return false;
    bool ok = ki_fd_write(fd, &t, sizeof t) && fstat(fd, &st) == 0;
    return close(fd) == 0 && ok;
}

typedef struct entry {
    struct timespec when;
    char name[40];
} entry;
static int older(const void *a, const void *b) {
    const struct timespec *x = &((const entry *)a)->when, *y = &((const entry *)b)->when;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* What a process that was killed had begun. */
static bool is_left(const char *name, const struct stat *st) {
    return strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 && time(NULL) - st->st_mtim.tv_sec > KEEP_TEMPORARY;
}

/* Keeps the folder from growing for ever: the files longest unused go. */
static void prune(const char *dir) {
    DIR *d = opendir(dir);
    size_t n = 0, cap = 0;
    entry *v = NULL;
    struct stat st;
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (fstatat(dirfd(d), e->d_name, &st, 0)) continue;
        if (is_left(e->d_name, &st)) unlinkat(dirfd(d), e->d_name, 0);
        if (len != 35 || (strcmp(e->d_name + 32, ".so") && strcmp(e->d_name + 32, ".kn"))) continue;
        if (n == cap) {
            entry *p = ki_realloc(v, cap = cap ? cap * 2 : 1024, sizeof *p);
            if (!p) break;
            v = p;
        }
        v[n].when = st.st_mtim;
        memcpy(v[n++].name, e->d_name, len + 1);
    }
    if (n > KEEP_FILES) {
        qsort(v, n, sizeof *v, older);
        for (size_t i = 0; i + KEEP_FILES * 3 / 4 < n; i++) unlinkat(dirfd(d), v[i].name, 0);
    }
    if (d) closedir(d);
    ki_free(v);
}

static void stored(ki_code_cache *c) {
    if (c->stored++ % PRUNE_EVERY == 0) prune(c->dir);
}

void *ki_code_cache_store(ki_env *env, ki_code_cache *c, ki_digest key, char *path) {
    char *to = is_kept(c) ? path_of(c, key, ".so") : NULL;
    bool kept = to && seal(path, key) && rename(path, to) == 0;
    if (to && !kept) tell(c);
    void *object = dlopen(kept ? to : path, RTLD_NOW | RTLD_LOCAL);
    if (!object) {
        const char *why = dlerror();
        ki_fail(env, KI_E_CODE_LOAD, why ? why : "unknown reason");
    }
    if (!kept) unlink(path);
    if (kept) stored(c);
    ki_free(to);
    ki_free(path);
    return object;
}

void ki_code_cache_write(ki_code_cache *c, ki_digest key, const char *suffix, const char *text, size_t n) {
    char *path = is_kept(c) ? format(c->temp, "/" TEMPORARY "XXXXXX.kn") : NULL, *to = path_of(c, key, suffix);
    int fd = path ? mkstemps(path, 3) : -1, why = 0;
    bool ok = fd >= 0 && to && ki_fd_write(fd, text, n);
    if (!ok) why = errno;
    if (fd >= 0) ok = close(fd) == 0 && ok;
    ok = ok && seal(path, key) && rename(path, to) == 0;
    if (!ok && path && to) errno = why ? why : errno, tell(c);
    if (ok) stored(c);
    else if (fd >= 0) unlink(path);
    ki_free(path);
    ki_free(to);
}
