/* test_random_programs.c: random tensor programs, each through every stage, the text form and the CPU device, against the
 * interpreter. What fails is made small, printed and saved as build/failing/SEED.kn.
 *
 *   test_random_programs [--programs N] [--seed S] [--stages-only | --cpu-only] [--c-every K] [--c-optimized K]
 *                        [--threads-every K] [--jobs J] [FILE.kn...]
 *   test_random_programs [...] --first      stops at the first program that fails and prints its number, for broken_stages.py
 *   test_random_programs [...] --exempt     counts exempt elements by the op that made them so
 *   test_random_programs [...] --calls      programs of public calls (calls.h) instead of single ops
 *   test_random_programs [...] --prefer DTYPE   two in three of the dtypes that a program prefers are this one
 *   test_random_programs --one SEED, --show SEED
 *
 * Each runs on the CPU as machine code, every K-th as C too (--c-every, 8: the compiler is what takes time; 1 for a full run; 0: none;
 * --c-optimized, 1: all but every K-th of those without the compiler's optimizations, which are most of that time)
 * and every K-th shared out to threads (--threads-every, 4). --cpu-only: no stages, for many programs at the level KN_CPU says.
 * Seeds S, S+1, ... are dealt to worker processes in blocks, so that a crash or a hang costs one program; a block's
 * kernels are compiled in one go. With FILEs or --one only these are checked. */
#include "../tap.h"
#include "blame.h"
#include "calls.h"
#include "check.h"
#include "generate.h"
#include "shrink.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 64, MOST = 200, SLOW = 20 };
#define CALLS UINT64_C(1000000000000) /* seeds from here on are programs of calls (calls.h) */

typedef struct failure {
    uint64_t seed;
    finding f;
} failure;

/* What workers tell their parent. */
typedef struct board {
    uint64_t at[64];        /* by worker: the seed in hand */
    bool busy[64], cpu[64]; /* cpu: a block's kernels are being compiled or run, block[w] says which */
    uint64_t block[64];
    uint64_t done;
    unsigned nfail;
    failure fail[MOST];
    tally stages, device;
    uint64_t op[KI_OP_COUNT], dtype[KI_DTYPE_COUNT], nodes;
} board;
static board *B;

static struct {
    uint64_t programs, seed;
    bool stages_only, cpu_only, first, calls;
    unsigned jobs, every, optimized, threads;
} opt = {.programs = 2000, .seed = 1, .jobs = 2, .every = 8, .optimized = 1, .threads = 4};

/* A program that takes too long ends its process: so much processor time, as a busy machine is no loop without end, or very much
 * time, as what waits for itself takes none. 0: no longer. */
static void limit(unsigned seconds) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
    alarm(60 * seconds);
}

static void report(uint64_t seed, const finding *f) {
    unsigned i = __atomic_fetch_add(&B->nfail, 1, __ATOMIC_SEQ_CST);
    if (i < MOST) B->fail[i].seed = seed, B->fail[i].f = *f;
}
static void add(tally *to, const tally *t) {
    __atomic_fetch_add(&to->total, t->total, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&to->exempt, t->exempt, __ATOMIC_SEQ_CST);
}

/* ---- programs ----------------------------------------------------------------------------------------------- */

typedef struct subject {
    uint64_t seed;
    ki_ir ir;
    ki_program p;
    arrays d;
    bool ok;
} subject;

static void drop_unread_inputs(ki_program *p) {
    kn_uop *order;
    int64_t count = ki_toposort(p->ir, &p->root, 1, &order);
    size_t n = 0;
    for (size_t i = 0; i < p->nin && count >= 0; i++) {
        bool read = false;
        for (int64_t j = 0; j < count && !read; j++) read = order[j] == p->in[i].node;
        ki_port t = p->in[n];
        if (read) p->in[n] = p->in[i], p->in[i] = t, n++;
    }
    for (size_t i = n; i < p->nin; i++) ki_free(p->in[i].name);
    p->nin = n;
    if (count >= 0) ki_free(order);
}

static bool make_subject(subject *s, ki_env *env, uint64_t seed, finding *f) {
    memset(s, 0, sizeof *s);
    s->seed = seed;
    if (!ki_ir_open(&s->ir, env)) return found(f, "", "memory", env, NULL);
    if (!(seed >= CALLS ? generate_calls : generate)(&s->ir, seed, &s->p)) return found(f, "", "generate", env, NULL);
    drop_unread_inputs(&s->p);
    return true;
}
static void free_subject(subject *s) {
    arrays_free(&s->d);
    ki_program_free(&s->p);
    if (s->ir.env) ki_ir_close(&s->ir);
    memset(s, 0, sizeof *s);
}

static void count_ops(const ki_program *p) {
    kn_uop *order;
    int64_t count = ki_toposort(p->ir, &p->root, 1, &order);
    for (int64_t i = 0; i < count; i++) {
        B->op[order[i]->op]++;
        B->dtype[order[i]->dtype]++;
        B->nodes++;
    }
    if (count >= 0) ki_free(order);
}

/* ---- a worker ----------------------------------------------------------------------------------------------- */

/* What kernels are made by: machine code; C; C without optimizations. */
enum { X86, C, QUICK_C, WAYS };

static bool goes_by(unsigned way, uint64_t seed) {
    if (way == X86 || opt.every == 0 || seed % opt.every) return way == X86;
    return (way == C) == (seed / opt.every % opt.optimized == 0);
}

/* Those that go this way; of them those that `threads` divides shared out as well (0: none). */
static void device_block(kn_ctx *k, unsigned way, unsigned threads, subject *s, unsigned n) {
    const ki_program *p[BLOCK];
    ki_exec *e[BLOCK];
    unsigned idx[BLOCK], m = 0;
    finding f;
    for (unsigned i = 0; i < n; i++)
        if (s[i].ok && (n == 1 || goes_by(way, s[i].seed))) p[m] = &s[i].p, idx[m++] = i;
    bool whole = m && ki_prepare(k, "CPU", p, m, e);
    if (!whole) ki_env_clear(&k->env);
    for (unsigned j = 0; j < m; j++) {
        tally t = {0};
        subject *u = &s[idx[j]];
        bool ok = whole ? run_on_cpu(k, e[j], &u->p, &u->d, &f, &t) : check_cpu(k, &u->p, &u->d, &f, &t);
        if (ok && threads && (n == 1 || u->seed % threads == 0)) ok = threads_agree(k, &u->p, &u->d, &f);
        if (!ok) report(u->seed, &f);
        add(&B->device, &t);
        if (whole) ki_exec_free(e[j]);
    }
}

/* Kernels are written in this; every output that can be is written past the caches, whatever its size. */
static kn_ctx *streaming_cpu(unsigned way) {
    kn_ctx *k = kn_open("CPU");
    if (k) kn_set(k, "KN_STREAM", "1");
    if (k) kn_set(k, "KN_CODE", way == X86 ? "x86" : "c");
    const char *cc = getenv("KN_CC"), *other = getenv("CC");
    char quick[300];
    snprintf(quick, sizeof quick, "%s -O0", cc && *cc ? cc : other && *other ? other : "cc");
    if (k && way == QUICK_C) kn_set(k, "KN_CC", quick);
    return k;
}
static unsigned ways(void) { return !opt.every ? C : opt.optimized > 1 ? WAYS : QUICK_C; }

/* Programs first .. last of one block; with_cpu false: a block whose device part crashed before. */
static void work(unsigned w, uint64_t first, uint64_t last, bool with_cpu) {
    static subject s[BLOCK];
    kn_ctx *by[WAYS] = {NULL}, *k = NULL;
    for (unsigned way = 0; way < WAYS; way++)
        if (!(by[way] = streaming_cpu(way))) abort();
    k = by[X86];
    for (uint64_t seed = first; seed < last; seed++) {
        finding f;
        tally t = {0};
        subject *u = &s[seed - first];
        B->at[w] = seed;
        limit(SLOW);
        u->ok = make_subject(u, &k->env, seed, &f);
        if (u->ok && !arrays_make(&u->p, &u->d)) u->ok = found(&f, "tensor", "eval", &k->env, NULL);
        if (u->ok) count_ops(&u->p);
        u->ok = u->ok && (opt.cpu_only || check_stages(&u->p, &u->d, &f, &t));
        add(&B->stages, &t);
        __atomic_fetch_add(&B->done, 1, __ATOMIC_SEQ_CST);
        if (!u->ok) report(seed, &f);
    }
    limit(0);
    B->cpu[w] = true;
    for (unsigned way = 0; with_cpu && way < ways(); way++)
        device_block(by[way], way, way == X86 ? opt.threads : 0, s, (unsigned)(last - first));
    B->cpu[w] = false;
    for (uint64_t i = 0; i < last - first; i++) free_subject(&s[i]);
    for (unsigned way = 0; way < WAYS; way++) kn_close(by[way]);
}

/* ---- the parent --------------------------------------------------------------------------------------------- */

/* Does one program fail, in a process of its own? */
static bool fails_alone(const ki_program *p, bool cpu, finding *f) {
    static finding *shared;
    if (!shared) shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 0, sizeof *shared);
    pid_t pid = fork();
    if (pid == 0) {
        limit(SLOW);
        kn_ctx *k = streaming_cpu(X86);
        ki_ir ir;
        ki_program q = {0};
        ki_text text = {0};
        arrays d;
        tally t = {0};
        bool ok = k && ki_ir_open(&ir, &k->env) && ki_print(p, &text);
        ok = ok && (ki_parse(&ir, "program", text.s, text.n, &q) || found(shared, "tensor", "parse", &k->env, NULL));
        ok = ok && (arrays_make(&q, &d) || found(shared, "tensor", "eval", &k->env, NULL));
        ok = ok && (opt.cpu_only || check_stages(&q, &d, shared, &t));
        ok = ok && (!cpu || (check_cpu(k, &q, &d, shared, &t) && threads_agree(k, &q, &d, shared)));
        for (unsigned way = C; cpu && way < ways(); way++) ok = ok && check_cpu(streaming_cpu(way), &q, &d, shared, &t);
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    *f = *shared;
    if (WIFSIGNALED(status)) {
        snprintf(f->kind, sizeof f->kind, "signal %d", WTERMSIG(status));
        snprintf(f->why, sizeof f->why, "%s", strsignal(WTERMSIG(status)));
    }
    return status != 0;
}

typedef struct same {
    finding f;
    bool cpu;
} same;
static bool fails_the_same(void *user, const ki_program *p) {
    same *s = user;
    finding f;
    if (!fails_alone(p, s->cpu, &f) || strcmp(f.kind, s->f.kind) != 0) return false;
    s->f = f;
    return true;
}

static void comment(const char *s) {
    printf("#   ");
    for (; *s; s++) putchar(*s), *s == '\n' && s[1] ? (void)printf("#   ") : (void)0;
    printf("\n");
}

/* Shrinks p (its store is malloc'ed), prints and saves it. */
static void explain(ki_program *p, const char *name, const finding *f) {
    same s = {.f = *f, .cpu = strstr(f->kind, "CPU") || strncmp(f->kind, "signal", 6) == 0};
    ki_text text = {0};
    char path[300];
    finding again;
    if (!fails_alone(p, s.cpu, &again)) {
        printf("# %s fails among others, not alone\n", name);
    } else {
        s.f = again;
        shrink(p, fails_the_same, &s, s.cpu ? 250 : 900);
    }
    printf("# %s: %s\n", name, s.f.kind);
    comment(s.f.why);
    if (!ki_print(p, &text)) return;
    comment(text.s);
    mkdir("build", 0777);
    mkdir("build/failing", 0777);
    snprintf(path, sizeof path, "build/failing/%s.kn", name);
    FILE *file = fopen(path, "w");
    if (file) {
        fprintf(file, "# %s: %.200s\n%s", s.f.kind, strtok(s.f.why, "\n"), text.s);
        fclose(file);
    }
    ki_text_free(&text);
}

static void explain_seed(uint64_t seed, const finding *f) {
    kn_ctx *k = kn_open("NULL");
    subject *s = malloc(sizeof *s);
    finding g;
    char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)seed);
    if (k && s && make_subject(s, &k->env, seed, &g)) {
        ki_program p = s->p;
        ki_ir *ir = malloc(sizeof *ir);
        *ir = s->ir;
        p.ir = ir;
        explain(&p, name, f);
    }
    free(s);
}

static pid_t start(unsigned w, uint64_t first, uint64_t last, bool cpu) {
    B->busy[w] = true;
    B->block[w] = first;
    B->at[w] = first;
    B->cpu[w] = false;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        work(w, first, last, cpu);
        _exit(0);
    }
    return pid;
}

/* A block without the program that crashed is done again in pieces around it. */
static void crowd(void) {
    struct {
        uint64_t first, last;
        bool cpu;
    } todo[4096];
    size_t ntodo = 0;
    uint64_t next = opt.seed, end = opt.seed + opt.programs;
    pid_t pid[64] = {0};
    uint64_t last[64] = {0};
    unsigned running = 0;
    for (;;) {
        while (running < opt.jobs && (ntodo || next < end) && !(opt.first && B->nfail)) {
            unsigned w = 0;
            while (pid[w]) w++;
            uint64_t a = next, b = next + BLOCK < end ? next + BLOCK : end;
            bool cpu = !opt.stages_only;
            if (ntodo) ntodo--, a = todo[ntodo].first, b = todo[ntodo].last, cpu = todo[ntodo].cpu;
            else next = b;
            last[w] = b;
            pid[w] = start(w, a, b, cpu);
            running++;
        }
        if (!running) break;
        int status;
        pid_t done = wait(&status);
        unsigned w = 0;
        while (w < 64 && pid[w] != done) w++;
        if (w == 64) continue;
        pid[w] = 0, running--;
        if (!WIFSIGNALED(status)) continue;
        finding f = {0};
        uint64_t at = B->at[w];
        if (B->cpu[w]) { /* which one is found by looking at each */
            if (last[w] - B->block[w] > 1)
                for (uint64_t i = B->block[w]; i < last[w] && ntodo < 4000; i++)
                    todo[ntodo].first = i, todo[ntodo].last = i + 1, todo[ntodo++].cpu = true;
            at = B->block[w];
            if (last[w] - at > 1) continue;
        }
        snprintf(f.kind, sizeof f.kind, "signal %d", WTERMSIG(status));
        report(at, &f);
        if (B->cpu[w] || ntodo > 4000) continue;
        if (at > B->block[w])
            todo[ntodo].first = B->block[w], todo[ntodo].last = at, todo[ntodo++].cpu = !opt.stages_only;
        if (at + 1 < last[w])
            todo[ntodo].first = at + 1, todo[ntodo].last = last[w], todo[ntodo++].cpu = !opt.stages_only;
    }
}

/* Every op a tensor program may have, and every dtype of data. */
static void coverage(void) {
    static const kn_op others[] = {KN_PARAM,
                                   KN_CONST,
                                   KN_PERMUTE,
                                   KN_FLIP,
                                   KN_RESHAPE,
                                   KN_EXPAND,
                                   KN_PAD,
                                   KN_SHRINK,
                                   KN_INDEX,
                                   KN_STACK,
                                   KN_BITCAST,
                                   KN_REDUCE,
                                   KN_FUNCTION,
                                   KN_TUPLE,
                                   KN_GETTUPLE,
                                   KN_STORE,
                                   KN_AFTER,
                                   KN_CONTIGUOUS,
                                   KN_CONTIGUOUS_BACKWARD,
                                   KN_DETACH};
    unsigned missing = 0;
    for (int op = 0; op < KI_OP_COUNT; op++) {
        bool wanted = ki_is_elementwise((kn_op)op);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) wanted |= others[i] == (kn_op)op;
        if (wanted && !B->op[op]) missing++, printf("# no %s\n", ki_ops[op].name);
    }
    CHECK(missing == 0, "every op of tensor programs was met");
    missing = 0;
    for (int i = 0; i < NDATA; i++)
        if (!B->dtype[data_dtypes[i]]) missing++, printf("# no %s\n", ki_dtypes[data_dtypes[i]].name);
    CHECK(missing == 0, "every dtype was met");
}

/* Which program failed first: blocks are taken in order, so no earlier one is still to come. */
static int first_failure(void) {
    const failure *f = NULL;
    crowd();
    for (unsigned i = 0; i < B->nfail && i < MOST; i++)
        if (!f || B->fail[i].seed < f->seed) f = &B->fail[i];
    if (f) printf("program %llu: %s: %.200s\n", (unsigned long long)(f->seed - opt.seed + 1), f->f.kind, f->f.why);
    else printf("none of %llu\n", (unsigned long long)opt.programs);
    return f ? 1 : 0;
}

static void whole(void) {
    crowd();
    unsigned n = B->nfail < MOST ? B->nfail : MOST, shown = 0;
    struct {
        char kind[32];
        unsigned n;
    } seen[MOST];
    unsigned nseen = 0;
    for (unsigned i = 0; i < n; i++) { /* a few of each kind */
        unsigned k = 0;
        while (k < nseen && strcmp(seen[k].kind, B->fail[i].f.kind) != 0) k++;
        if (k == nseen) strcpy(seen[nseen].kind, B->fail[i].f.kind), seen[nseen++].n = 0;
        if (seen[k].n++ < 3 && shown++ < 30) explain_seed(B->fail[i].seed, &B->fail[i].f);
    }
    for (unsigned k = 0; k < nseen; k++) printf("# %u times: %s\n", seen[k].n, seen[k].kind);
    printf("# %llu programs, %llu nodes; exempt %.3f %% of %lld elements in stages, %.3f %% of %lld on CPU\n",
           (unsigned long long)B->done, (unsigned long long)B->nodes,
           100.0 * (double)B->stages.exempt / (double)(B->stages.total + 1), (long long)B->stages.total,
           100.0 * (double)B->device.exempt / (double)(B->device.total + 1), (long long)B->device.total);
    CHECK(B->nfail == 0, "%llu programs agree %s%s%s", (unsigned long long)opt.programs,
          opt.cpu_only ? "" : "at every stage", opt.cpu_only || opt.stages_only ? "" : " and ",
          opt.stages_only ? "" : "on CPU");
    /* --exempt says which ops do it. */
    CHECK(B->stages.exempt * 100 <= B->stages.total, "at most 1 %% of the elements of all programs are exempt");
    if (opt.programs >= 500 && opt.seed < CALLS) coverage();
}

static void one_file(const char *path) {
    kn_ctx *k = kn_open("NULL");
    ki_ir *ir = malloc(sizeof *ir);
    ki_program p = {0};
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    finding f;
    if (file) fclose(file);
    if (!k || !ir || !ki_ir_open(ir, &k->env)) return;
    if (!ki_parse(ir, path, text, n, &p)) {
        comment(k->env.message.s);
        CHECK(0, "%s", path);
        return;
    }
    bool bad = fails_alone(&p, !opt.stages_only, &f);
    if (bad) printf("# %s\n", f.kind), comment(f.why);
    CHECK(!bad, "%s", path);
}

static void show(uint64_t seed) {
    kn_ctx *k = kn_open("NULL");
    static subject s;
    finding f;
    ki_text text = {0};
    if (!make_subject(&s, &k->env, seed, &f)) printf("%s\n", f.why);
    else if (ki_print(&s.p, &text)) printf("%s", text.s);
}

static void one_seed(uint64_t seed) {
    kn_ctx *k = kn_open("NULL");
    static subject s;
    finding f = {0};
    bool bad = !make_subject(&s, &k->env, seed, &f) || fails_alone(&s.p, !opt.stages_only, &f);
    if (bad) explain_seed(seed, &f);
    CHECK(!bad, "program %llu", (unsigned long long)seed);
}

/* Without lowering: which ops make the elements of these programs exempt. */
static void exempt(void) {
    kn_ctx *k = kn_open("NULL");
    static subject s;
    int64_t count[KI_OP_COUNT] = {0}, total = 0, all = 0;
    for (uint64_t seed = opt.seed; seed < opt.seed + opt.programs; seed++) {
        finding f;
        if (make_subject(&s, &k->env, seed, &f) && arrays_make(&s.p, &s.d)) {
            blame(&s.p, &s.d, seed, count, true);
            for (size_t i = 0; i < s.p.nout; i++) total += port_numel(&s.p.out[i]);
        }
        free_subject(&s);
    }
    for (int op = 0; op < KI_OP_COUNT; op++) {
        all += count[op];
        if (count[op]) printf("%-10s %lld\n", op ? ki_ops[op].name : "?", (long long)count[op]);
    }
    printf("%.3f %% of %lld elements are exempt\n", 100.0 * (double)all / (double)(total + 1), (long long)total);
    kn_close(k);
}

int main(int argc, char **argv) {
    bool files = false;
    B = mmap(NULL, sizeof *B, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (getenv("KOINE_PROGRAMS")) opt.programs = strtoull(getenv("KOINE_PROGRAMS"), NULL, 10);
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "0";
        if (strcmp(a, "--programs") == 0) opt.programs = strtoull(v, NULL, 10), i++;
        else if (strcmp(a, "--seed") == 0) opt.seed = strtoull(v, NULL, 10), i++;
        else if (strcmp(a, "--c-every") == 0) opt.every = (unsigned)strtoul(v, NULL, 10), i++;
        else if (strcmp(a, "--c-optimized") == 0) opt.optimized = (unsigned)strtoul(v, NULL, 10), i++;
        else if (strcmp(a, "--jobs") == 0) opt.jobs = (unsigned)strtoul(v, NULL, 10), i++;
        else if (strcmp(a, "--prefer") == 0) preferred = ki_dtype_named(v, strlen(v)), i++;
        else if (strcmp(a, "--stages-only") == 0) opt.stages_only = true;
        else if (strcmp(a, "--cpu-only") == 0) opt.cpu_only = true;
        else if (strcmp(a, "--threads-every") == 0) opt.threads = (unsigned)atoi(v), i++;
        else if (strcmp(a, "--native") == 0)
            all_native = opt.stages_only = true; /* at all levels, and no other check */
        else if (strcmp(a, "--one") == 0) one_seed(strtoull(v, NULL, 10)), i++, files = true;
        else if (strcmp(a, "--calls") == 0) opt.calls = true;
        else if (strcmp(a, "--first") == 0) opt.first = true;
        else if (strcmp(a, "--show") == 0) return show(strtoull(v, NULL, 10)), 0;
        else if (strcmp(a, "--exempt") == 0) return exempt(), 0;
        else one_file(a), files = true;
    }
    if (opt.jobs < 1 || opt.jobs > 32) opt.jobs = 2;
    if (!opt.optimized) opt.optimized = 1;
    if (opt.calls) opt.seed += CALLS;
    if (opt.first) return first_failure();
    if (!files) whole();
    return tap_done();
}
