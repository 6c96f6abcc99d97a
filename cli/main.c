/* main.c: the koine command: finds the verb, reads its options, runs it. To add a verb: a file, a line in cli.h, a row
 * here. */
#include "cli.h"

#include "base/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const cli_verb *const cli_verbs[] = {&cli_run, &cli_compile, &cli_train, &cli_bench, &cli_rules,
                                     &cli_ops, &cli_devices, &cli_info,  &cli_help,  NULL};

static const cli_opt common[] = {{"help", NULL, "print what the command does and takes"}, {NULL, NULL, NULL}};

static const char *verb_word(const void *of, int i) {
    (void)of;
    return cli_verbs[i] ? cli_verbs[i]->name : NULL;
}

static const char *option_word(const void *of, int i) {
    const cli_verb *v = of;
    int n = 0;
    while (v->opt && v->opt[n].name) n++;
    return i < n ? v->opt[i].name : i == n ? common[0].name : NULL;
}

static const cli_verb *find_verb(const char *name) {
    for (int i = 0; cli_verbs[i]; i++)
        if (strcmp(cli_verbs[i]->name, name) == 0) return cli_verbs[i];
    return NULL;
}

static const cli_opt *find_option(const cli_verb *v, const char *name, size_t n) {
    const cli_opt *tables[] = {v->opt, common};
    for (int t = 0; t < 2; t++)
        for (const cli_opt *o = tables[t]; o && o->name; o++)
            if (strlen(o->name) == n && memcmp(o->name, name, n) == 0) return o;
    return NULL;
}

static int words(const char *s) {
    int n = 0;
    for (bool in = false; s && *s; s++) {
        n += *s != ' ' && !in;
        in = *s != ' ';
    }
    return n;
}

/* One option at argv[i]; returns how many words it took, 0 after a message. */
static int option(cli *c, int argc, char **argv, int i) {
    const char *name = argv[i] + 2, *eq = strchr(name, '=');
    const cli_opt *o = find_option(c->verb, name, strlen(name));
    /* --name=value, for options of one argument */
    if (!o && eq) o = find_option(c->verb, name, (size_t)(eq - name));
    else eq = NULL;
    if (!o) {
        const char *near = cli_near(name, option_word, c->verb);
        if (near) cli_usage(c, "unknown option --%s; did you mean --%s?", name, near);
        else cli_usage(c, "unknown option --%s", name);
        return 0;
    }
    int want = words(o->arg);
    if (eq && want != 1) {
        cli_usage(c, want ? "--%s takes %s, as separate words" : "--%s takes no value", o->name, o->arg);
        return 0;
    }
    if (!eq && argc - i - 1 < want) {
        cli_usage(c, "--%s needs %s", o->name, o->arg);
        return 0;
    }
    cli_given *g = &c->given[c->ngiven++];
    g->opt = o;
    g->arg = argv + i + 1;
    if (eq) {
        argv[i] += eq + 1 - argv[i]; /* the value stands in the option's own word */
        g->arg = argv + i;
        return 1;
    }
    return 1 + want;
}

static int parse(cli *c, int argc, char **argv) {
    bool plain = false;
    for (int i = 0; i < argc;) {
        if (!plain && strcmp(argv[i], "--") == 0) {
            plain = true;
            i++;
        } else if (!plain && strncmp(argv[i], "--", 2) == 0) {
            int took = option(c, argc, argv, i);
            if (!took) return CLI_USAGE;
            i += took;
        } else if (!plain && argv[i][0] == '-' && argv[i][1]) {
            if (strcmp(argv[i], "-h") != 0) return cli_usage(c, "unknown option %s; options begin with --", argv[i]);
            c->given[c->ngiven++] = (cli_given){&common[0], NULL};
            i++;
        } else {
            c->operand[c->noperand++] = argv[i++];
        }
    }
    c->json = cli_has(c, "json");
    if (cli_has(c, "help")) return CLI_OK;
    if (c->noperand < c->verb->least || c->noperand > c->verb->most)
        return cli_usage(c, "%s: koine %s %s", c->noperand < c->verb->least ? "something is missing" : "too many words",
                         c->verb->name, c->verb->args);
    return CLI_OK;
}

static int run_verb(const cli_verb *v, int argc, char **argv) {
    cli c = {.verb = v};
    size_t n = (size_t)argc + 1;
    c.given = calloc(n, sizeof *c.given);
    c.operand = calloc(n, sizeof *c.operand);
    int rc = c.given && c.operand ? parse(&c, argc, argv) : cli_fail(&c, "out of memory");
    if (rc == CLI_OK) {
        if (cli_has(&c, "help")) cli_help_verb(stdout, v);
        else rc = v->run(&c);
    }
    free(c.given);
    free(c.operand);
    return rc;
}

static const char *setting_word(const void *of, int i) {
    (void)of;
    return i < KI_VAR_COUNT ? ki_vars[i].name : NULL;
}

/* A misspelt setting would go unnoticed. */
static void check_environment(void) {
    for (char **e = environ; *e; e++) {
        char name[32];
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "KN_", 3) != 0 || n >= sizeof name) continue;
        memcpy(name, *e, n);
        name[n] = 0;
        const char *near = cli_near(name, setting_word, NULL);
        if (near && strcmp(near, name) != 0)
            fprintf(stderr, "koine: note: there is no setting %s; did you mean %s?\n", name, near);
    }
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        cli_help_all(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        cli_help_all(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("koine %s\n", CLI_VERSION);
        return CLI_OK;
    }
    check_environment();
    const cli_verb *v = find_verb(argv[1]);
    if (v) return run_verb(v, argc - 2, argv + 2);
    const char *near = cli_near(argv[1], verb_word, NULL);
    if (near) fprintf(stderr, "koine: unknown command %s; did you mean %s?\n", argv[1], near);
    else fprintf(stderr, "koine: unknown command %s; `koine --help` lists them\n", argv[1]);
    return CLI_USAGE;
}

int main(int argc, char **argv) {
    int rc = dispatch(argc, argv);
    /* A listing that did not reach its reader is a failure, unless the reader closed the pipe on purpose. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        if (errno != EPIPE) fprintf(stderr, "koine: cannot write the output: %s\n", strerror(errno));
        if (rc == CLI_OK) rc = CLI_FAILED;
    }
    return rc;
}
