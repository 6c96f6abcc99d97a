/* cc.c: finding and running the C compiler. See cc.h. */
#include "device/cpu/cc.h"

#include "base/fd.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { NOTE_LINES = 20, NOTE_BYTES = 4096 };

/* ---- finding ------------------------------------------------------------------------------------------------- */

static char *copy(const char *s, size_t n) {
    char *p = ki_malloc(n + 1);
    if (!p) return NULL;
    memcpy(p, s, n);
    p[n] = 0;
    return p;
}

static bool is_program(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The file a command name stands for, ki_malloc'ed, or NULL: there is none, or memory ran out. */
static char *find_program(const char *name, bool *oom) {
    if (strchr(name, '/')) {
        bool there = is_program(name);
        char *same = there ? copy(name, strlen(name)) : NULL;
        *oom = there && !same;
        return same;
    }
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/bin:/bin"; *p && !*oom;) {
        size_t n = strcspn(p, ":");
        ki_text t = {0};
        ki_text_putn(&t, n ? p : ".", n ? n : 1);
        ki_text_printf(&t, "/%s", name);
        if (!t.oom && is_program(t.s)) return ki_text_take(&t);
        *oom = t.oom;
        ki_text_free(&t);
        p += n + (p[n] == ':');
    }
    return NULL;
}

static bool split_words(ki_cc *cc, const char *s) {
    for (s += strspn(s, " \t"); *s; s += strspn(s, " \t")) {
        size_t n = strcspn(s, " \t");
        char **p = ki_realloc(cc->word, cc->nword + 1, sizeof *p);
        if (!p) return false;
        cc->word = p;
        if (!(p[cc->nword] = copy(s, n))) return false;
        cc->nword++;
        s += n;
    }
    return true;
}

void ki_cc_free(ki_cc *cc) {
    for (size_t i = 0; i < cc->nword; i++) ki_free(cc->word[i]);
    ki_free(cc->word);
    ki_free(cc->path);
    ki_text_free(&cc->identity);
    *cc = (ki_cc){0};
}

static bool identify(ki_cc *cc) {
    struct stat st;
    if (stat(cc->path, &st)) return false;
    for (size_t i = 0; i < cc->nword; i++) ki_text_printf(&cc->identity, "%s ", cc->word[i]);
    ki_text_printf(&cc->identity, "%s %lld %lld.%ld", cc->path, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
                   st.st_mtim.tv_nsec);
    return !cc->identity.oom;
}

bool ki_cc_find(ki_env *env, ki_cc *cc) {
    const char *named[] = {ki_setting(env, KI_VAR_CC), getenv("CC"), "cc", "gcc", "clang"};
    ki_text tried = {0};
    bool oom = false;
    *cc = (ki_cc){0};
    for (size_t i = 0; i < sizeof named / sizeof *named && !oom; i++) {
        if (!named[i] || !named[i][strspn(named[i], " \t")]) continue;
        oom = !split_words(cc, named[i]);
        if (!oom) cc->path = find_program(cc->word[0], &oom);
        if (cc->path && identify(cc)) return ki_text_free(&tried), true;
        oom |= cc->identity.oom; /* what could not be looked at is not passed over for the next one */
        ki_text_printf(&tried, "%s%s%s", tried.n ? ", " : "", i == 0 ? "KN_CC=" : i == 1 ? "CC=" : "", named[i]);
        ki_cc_free(cc);
        if (i == 0) break; /* who names one wants that one */
    }
    if (oom || tried.oom) ki_fail(env, KI_E_NOMEM);
    else ki_fail(env, KI_E_CC_MISSING, tried.s ? tried.s : "");
    ki_text_free(&tried);
    return false;
}

/* ---- running ------------------------------------------------------------------------------------------------- */

/* A file without a name, open for reading and writing; -1 on failure: *e is why, the first time. */
static int nameless(const char *dir, int *e) {
    ki_text t = {0};
    ki_text_printf(&t, "%s/.koine-XXXXXX", dir);
    int fd = t.oom ? -1 : mkostemp(t.s, 02000000 /* O_CLOEXEC */);
    if (fd < 0 && !*e) *e = t.oom ? ENOMEM : errno;
    if (fd >= 0) unlink(t.s);
    ki_text_free(&t);
    return fd;
}

/* Starts argv with stdin from `in`, the rest to `errors`. 0 or an errno. */
static int spawn(const char *path, char **argv, int in, int errors, pid_t *pid) {
    posix_spawn_file_actions_t fa;
    int e = posix_spawn_file_actions_init(&fa);
    if (e) return e;
    if (!(e = posix_spawn_file_actions_adddup2(&fa, in, 0)) &&
        !(e = posix_spawn_file_actions_adddup2(&fa, errors, 1)) &&
        !(e = posix_spawn_file_actions_adddup2(&fa, errors, 2)))
        e = posix_spawn(pid, path, &fa, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&fa);
    return e;
}

bool ki_cc_start(ki_env *env, const ki_cc *cc, const char *const *flags, size_t nflags, const ki_text *source,
                 const char *dir, const char *out, ki_cc_job *job) {
    static const char *const fixed[] = {"-x", "c", "-", "-o"};
    char **argv = ki_calloc(cc->nword + nflags + 8, sizeof *argv);
    int e = 0, in = nameless(dir, &e);
    *job = (ki_cc_job){0, nameless(dir, &e)};
    if (!e && (!ki_fd_write(in, source->s, source->n) || lseek(in, 0, SEEK_SET) != 0)) e = errno;
    bool ok = argv && !e;
    if (!argv || e == ENOMEM) ki_fail(env, KI_E_NOMEM);
    else if (e) ki_fail(env, KI_E_TEMP_FILE, dir, strerror(e));
    if (ok) {
        size_t n = 0, own = 1; /* options of its own come last: they win */
        while (own < cc->nword && cc->word[own][0] != '-') own++;
        for (size_t i = 0; i < own; i++) argv[n++] = cc->word[i];
        for (size_t i = 0; i < nflags; i++) argv[n++] = (char *)flags[i];
        for (size_t i = own; i < cc->nword; i++) argv[n++] = cc->word[i];
        for (size_t i = 0; i < 4; i++) argv[n++] = (char *)fixed[i];
        argv[n++] = (char *)out;
        argv[n++] = (char *)"-lm";
        e = spawn(cc->path, argv, in, job->errors, &job->pid);
        if (e) ok = (ki_fail(env, KI_E_CC_START, cc->path, strerror(e)), false);
    }
    ki_free(argv);
    if (in >= 0) close(in);
    if (!ok && job->errors >= 0) close(job->errors);
    if (!ok) *job = (ki_cc_job){0, -1};
    return ok;
}

/* The first lines of what it said become notes of the failure. */
static void note_errors(ki_env *env, int fd) {
    char *s = ki_malloc(NOTE_BYTES + 1);
    ssize_t n = s ? pread(fd, s, NOTE_BYTES, 0) : 0;
    if (n < 0) n = 0;
    if (s) s[n] = 0;
    char *line = s;
    for (int k = 0; line && *line; k++) {
        char *end = strchr(line, '\n');
        if (k == NOTE_LINES) {
            ki_fail_note(env, "...");
            break;
        }
        if (end) *end = 0;
        ki_fail_note(env, "%s", line);
        line = end ? end + 1 : NULL;
    }
    ki_free(s);
}

bool ki_cc_finish(ki_env *env, const ki_cc *cc, ki_cc_job *job) {
    int status = 0;
    if (!job->pid) return false;
    pid_t got;
    do got = waitpid(job->pid, &status, 0);
    while (got < 0 && errno == EINTR);
    /* The host may ignore SIGCHLD, and then there is no status: the output file decides. */
    bool ok = got < 0 ? errno == ECHILD : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ok) {
        char why[64];
        if (got >= 0 && WIFSIGNALED(status)) snprintf(why, sizeof why, "signal %d", WTERMSIG(status));
        else snprintf(why, sizeof why, "exit status %d", got >= 0 ? WEXITSTATUS(status) : -1);
        ki_fail(env, KI_E_CC_FAILED, cc->path, why);
        note_errors(env, job->errors);
    }
    if (job->errors >= 0) close(job->errors);
    *job = (ki_cc_job){0, -1};
    return ok;
}
