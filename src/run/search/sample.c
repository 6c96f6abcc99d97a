/* sample.c: children that run a kernel and report, and the parent that waits for them. See sample.h. */
#include "run/search/sample.h"

#include "base/alloc.h"
#include "run/search/child.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_JOBS = 16 };

/* ---- memory: a page that nothing may touch behind each buffer -------------------------------------------------- */

static size_t pages(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (n + page - 1) & ~(page - 1);
}

void *ki_sample_map(size_t bytes, bool shared, size_t page) {
    size_t n = (bytes + page - 1) & ~(page - 1), pad = n - ((bytes + 63) & ~(size_t)63);
    int kind = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
    char *p = mmap(NULL, n + page, PROT_READ | PROT_WRITE, kind, -1, 0);
    if (p == MAP_FAILED) return NULL;
    madvise(p, n, MADV_HUGEPAGE);
    mprotect(p + n, page, PROT_NONE);
    return p + pad; /* its end, to the next 64 bytes, is the page's */
}

static void unmap(void *data, size_t bytes) {
    size_t page = pages(1), n = pages(bytes), pad = n - ((bytes + 63) & ~(size_t)63);
    if (data) munmap((char *)data - pad, n + page);
}

bool ki_sampling_open(ki_sampling *s, ki_env *env) {
    s->env = env;
    s->has_want = false;
    bool ok = true;
    for (size_t i = 0; i < s->nbuffer; i++) s->buffer[i].data = s->buffer[i].want = s->buffer[i].shared = NULL;
    for (size_t i = 0; i < s->nbuffer && ok; i++) {
        ki_sample_buffer *b = &s->buffer[i];
        if (b->read) ok = (b->data = ki_sample_map(b->bytes, false, pages(1))) != NULL;
        if (ok && b->written) ok = (b->want = ki_sample_map(b->bytes, true, pages(1))) != NULL;
    }
    return ok || (ki_fail(env, KI_E_NOMEM), false);
}

void ki_sampling_seal(ki_sampling *s) {
    for (size_t i = 0; i < s->nbuffer; i++) {
        ki_sample_buffer *b = &s->buffer[i];
        size_t pad = pages(b->bytes) - ((b->bytes + 63) & ~(size_t)63);
        if (b->data) mprotect((char *)b->data - pad, pages(b->bytes), PROT_READ);
    }
}

void ki_sampling_close(ki_sampling *s) {
    for (size_t i = 0; i < s->nbuffer; i++) {
        ki_sample_buffer *b = &s->buffer[i];
        unmap(b->data, b->bytes);
        unmap(b->want, b->bytes);
        unmap(b->shared, b->bytes);
        b->data = b->want = b->shared = NULL;
    }
}

/* Outputs that the threads of a kernel share. */
static bool share(ki_sampling *s) {
    for (size_t i = 0; i < s->nbuffer; i++) {
        ki_sample_buffer *b = &s->buffer[i];
        if (b->written && !b->shared && !(b->shared = ki_sample_map(b->bytes, true, pages(1)))) return false;
    }
    return true;
}

/* ---- children -------------------------------------------------------------------------------------------------- */

typedef struct job {
    ki_sample *sample; /* NULL: none */
    ki_report *report; /* shared with its children */
    pid_t *pid;        /* 0: it is gone */
    unsigned n;
    int signal; /* by which one of them ended that was not ended here */
    int end;    /* readable once all children are gone */
    double deadline;
} job;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* True once the child is gone; *status: how, -1 if somebody else has seen it. */
static bool reap(pid_t pid, bool wait, int *status) {
    pid_t p;
    while ((p = waitpid(pid, status, wait ? 0 : WNOHANG)) < 0 && errno == EINTR) continue;
    if (p < 0) *status = -1;
    return p != 0;
}

/* One child is gone. ours: it was sent a SIGKILL from here, so having ended by that says nothing. A fault says most. */
static void note_end(job *j, unsigned i, int status, bool ours) {
    int sig = status != -1 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    j->pid[i] = 0;
    if (sig && !(ours && sig == SIGKILL) && !ki_child_fault(j->signal)) j->signal = sig;
}

/* Only a run that was begun, and that nobody ended from outside (for want of memory, by Ctrl-C), says something of the kernel. */
static ki_outcome outcome_of(const job *j, bool late) {
    uint32_t state = j->report->state;
    if (state == KI_REPORT_RAN) return KI_RAN;
    if (state == KI_REPORT_WRONG) return KI_WRONG;
    if (state == KI_REPORT_NONE || (j->signal && !ki_child_fault(j->signal))) return KI_NO_CHILD;
    return late ? KI_TIMED_OUT : KI_CRASHED;
}

static void release(job *j) {
    if (j->report && j->report != MAP_FAILED) munmap(j->report, sizeof *j->report);
    ki_free(j->pid);
    *j = (job){0};
}

/* Ends all of a job's children and says what came of it. */
static void finish(job *j, bool late) {
    ki_sample *s = j->sample;
    const ki_report *r = j->report;
    int status;
    for (unsigned i = 0; i < j->n; i++)
        if (j->pid[i]) kill(j->pid[i], SIGKILL); /* one that crashed has its own signal already */
    for (unsigned i = 0; i < j->n; i++)
        if (j->pid[i]) reap(j->pid[i], true, &status), note_end(j, i, status, true);
    close(j->end);
    s->outcome = outcome_of(j, late);
    s->signal = j->signal;
    if (s->outcome == KI_RAN) s->seconds = r->seconds;
    if (s->outcome == KI_WRONG) s->buffer = r->buffer, s->at = r->at, s->got = r->got, s->expected = r->expected;
    release(j);
}

/* A run that is to be waited for: several of the best's, and never less than the floor, for a busy machine is no fault. */
static double patience(const ki_sampling *s, double best) {
    double least = s->floor > 0 ? s->floor : 1;
    for (size_t i = 0; i < s->nbuffer; i++) least += 1e-8 * (double)s->buffer[i].bytes; /* results are compared */
    return best > 0 ? least + 20 * best : 20 * least;
}

/* As many children as are wanted, or fewer. They begin with all signals blocked: no handler of the host's runs in one. */
static void populate(job *j, const ki_child *c, unsigned want) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (; j->n < want; j->n++) {
        pid_t pid = fork();
        if (pid == 0) ki_child_run(c, j->n);
        if (pid < 0) break;
        j->pid[j->n] = pid;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* False: there are no children for it, and none is left. */
static bool start(ki_sampling *s, ki_sample *v, double best, job *j) {
    int fd[2];
    unsigned want = v->threads ? v->threads : 1;
    if (want > 1 && !share(s)) return false;
    j->pid = ki_calloc(want, sizeof *j->pid);
    j->report = mmap(NULL, sizeof *j->report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!j->pid || j->report == MAP_FAILED || pipe2(fd, O_CLOEXEC)) return release(j), false;
    ki_child c = {s, v, j->report, best, pages(1), getpid()};
    j->sample = v;
    j->end = fd[0];
    populate(j, &c, want);
    close(fd[1]);
    j->deadline = now() + patience(s, best);
    if (j->n == want) return true;
    finish(j, false);
    v->outcome = KI_NO_CHILD;
    return false;
}

/* Waits a while; ends the job if its first child is gone, any other crashed, or it is late. */
static void look(job *j, int wait_ms) {
    struct pollfd p = {.fd = j->end, .events = POLLIN};
    int status;
    poll(&p, 1, wait_ms);
    bool gone = p.revents & POLLHUP, over = gone || j->report->state >= KI_REPORT_RAN;
    for (unsigned i = 0; i < j->n; i++)
        if (j->pid[i] && reap(j->pid[i], gone, &status)) note_end(j, i, status, false), over = true;
    bool late = !over && now() > j->deadline;
    if (over || late) finish(j, late);
}

static void set_want(ki_sampling *s) {
    s->has_want = true;
    for (size_t i = 0; i < s->nbuffer; i++)
        if (s->buffer[i].written) s->buffer[i].most = ki_sample_largest(&s->buffer[i]);
}

/* The one that sets the results, and what has threads, runs alone. */
static bool may_start(const ki_sampling *s, const job *jobs, unsigned most, const ki_sample *next) {
    unsigned running = 0;
    bool alone = !s->has_want || next->threads > 1;
    for (unsigned i = 0; i < most; i++) {
        if (!jobs[i].sample) continue;
        running++;
        alone |= jobs[i].sample->threads > 1;
    }
    return running < (alone ? 1 : most);
}

static job *free_job(job *jobs) {
    while (jobs->sample) jobs++;
    return jobs;
}

bool ki_sample_all(ki_sampling *s, ki_sample *v, size_t n, double best) {
    job jobs[MOST_JOBS] = {0};
    unsigned most = s->jobs < 1 ? 1 : s->jobs > MOST_JOBS ? MOST_JOBS : s->jobs, running = 0;
    bool ok = true;
    for (size_t i = 0; i < n; i++) v[i].seconds = (double)INFINITY, v[i].outcome = KI_NO_CHILD;
    for (size_t next = 0; (ok && next < n) || running;) {
        while (ok && next < n && may_start(s, jobs, most, &v[next]))
            if ((ok = start(s, &v[next++], best, free_job(jobs)))) running++;
        for (unsigned i = 0; i < most; i++) {
            ki_sample *was = jobs[i].sample;
            if (!was) continue;
            look(&jobs[i], running > 1 ? 1 : 5);
            if (jobs[i].sample) continue;
            running--;
            ok &= was->outcome != KI_NO_CHILD;
            if (was->outcome != KI_RAN) continue;
            if (!s->has_want) set_want(s);
            if (best == 0 || was->seconds < best) best = was->seconds;
        }
    }
    return ok;
}
