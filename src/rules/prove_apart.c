/* prove_apart.c: the rung by execution in a process of its own. A C function behind a changed guard meets what it was
 * never meant for; if it crashes, that is a verdict on the guard, not the end of the prover. */
#include "rules/prove_impl.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct answer {
    uint32_t rung, narrower, within, reason; /* reason: bytes that follow */
    uint64_t instances;
} answer;

enum { OWN_SECONDS = 30, SECONDS = 20, TRIES = 4 };

static void in_child(int fd, const ki_proof *p, const ki_prove_opts *o) {
    ki_verdict v = {0};
    /* A function that never returns: processor time, since a busy machine is no verdict. A child of a process with threads may also
     * be stuck behind a lock that one of them held; it is waited for no longer, and made again. */
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value = {.tv_sec = OWN_SECONDS}}, NULL);
    alarm(SECONDS);
    int null = open("/dev/null", O_WRONLY); /* a crash here is an answer: nobody need hear of it */
    if (null >= 0) dup2(null, 2);
    if (ki_prove_execute(p, o, &v)) {
        answer a = {v.rung, v.narrower, v.within, v.reason.n < 2000 ? (uint32_t)v.reason.n : 2000, v.instances};
        if (ki_fd_write(fd, &a, sizeof a) && a.reason) ki_fd_write(fd, v.reason.s, a.reason);
    }
    close(fd);
    kill(getpid(), SIGKILL); /* leaves without running anything the parent registered */
}

/* False: no child could be made. */
static bool ask_child(const ki_proof *p, const ki_prove_opts *o, answer *a, char *reason, bool *whole, bool *stuck) {
    int fd[2], status = 0;
    if (pipe(fd)) return false;
    pid_t pid = fork();
    if (pid < 0) return close(fd[0]), close(fd[1]), false;
    if (pid == 0) {
        close(fd[0]);
        in_child(fd[1], p, o);
    }
    close(fd[1]);
    *whole = ki_fd_read(fd[0], a, sizeof *a) == sizeof *a;
    if (*whole) reason[ki_fd_read(fd[0], reason, a->reason < 2000 ? a->reason : 2000)] = 0;
    close(fd[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    *stuck = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    return true;
}

bool ki_prove_apart(const ki_proof *p, const ki_prove_opts *o, ki_verdict *out) {
    answer a;
    char reason[2001] = "";
    bool whole = false, stuck = true;
    for (int k = 0; k < TRIES && stuck && !whole; k++)
        if (!ask_child(p, o, &a, reason, &whole, &stuck)) return ki_prove_execute(p, o, out);
    ki_text_cut(&out->reason, 0);
    out->rung = whole ? (ki_rung)a.rung : KI_REFUTED;
    if (whole) out->instances += a.instances, out->narrower = a.narrower, out->within = a.within;
    ki_text_put(&out->reason, whole ? reason : "the C function crashed or did not return");
    return true;
}
