/* help.c: `koine help`, --help of every verb, and the man page, all from the verbs' tables. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

static const char *const about =
    "koine compiles tensor programs. One graph, the UOp, carries a program from lazy tensors to machine code; every "
    "stage on the way can be printed, read back, checked, interpreted and compared.";

static const struct {
    const char *code, *doc;
} exits[] = {
    {"0", "all went well"},
    {"1",
     "it did not: an input is missing or malformed, a rule was refuted, a device failed; standard error says which"},
    {"2", "the command was not understood"},
};

static const struct {
    const char *command, *doc;
} examples[] = {
    {"koine train digits", "draw digits, train a network on them, test it"},
    {"koine run softmax.kn --in x=x.npy --out y=y.npy", "run a program on numpy files"},
    {"koine compile softmax.kn --to rangeify", "print what a stage makes of it"},
    {"koine compile softmax.kn --to linearize | koine run -", "run what a stage made of it"},
    {"koine compile softmax.kn --target c", "print the C it becomes"},
    {"koine rules --prove", "prove every rewrite rule"},
};

/* Words of s wrapped at `width`, each line indented by `left`; the first line begins at column `at`. */
static void wrap(FILE *f, const char *s, int at, int left, int width) {
    while (*s) {
        const char *end = s;
        while (*end && *end != ' ' && *end != '\n') end++;
        int n = (int)(end - s);
        if (at > left && at + 1 + n > width) {
            fputc('\n', f);
            at = 0;
        }
        if (at == 0 || at < left) fprintf(f, "%*s", left - at, ""), at = left;
        else if (at > left) fputc(' ', f), at++;
        fwrite(s, 1, (size_t)n, f);
        at += n;
        s = end;
        if (*s == '\n') {
            fputs("\n\n", f);
            at = 0;
            s++;
        }
        while (*s == ' ') s++;
    }
    fputc('\n', f);
}

static void entry(FILE *f, const char *head, const char *doc, int column) {
    int at = fprintf(f, "  %s", head);
    if (at >= column) fputc('\n', f), at = 0;
    wrap(f, doc, at, column, 100);
}

void cli_help_verb(FILE *f, const cli_verb *v) {
    fprintf(f, "koine %s%s%s: %s\n\n", v->name, *v->args ? " " : "", v->args, v->summary);
    if (v->text) {
        wrap(f, v->text, 0, 0, 100);
        fputc('\n', f);
    }
    fputs("options:\n", f);
    for (const cli_opt *o = v->opt; o && o->name; o++) {
        char head[80];
        snprintf(head, sizeof head, "--%s%s%s", o->name, o->arg ? " " : "", o->arg ? o->arg : "");
        entry(f, head, o->doc, 28);
    }
    entry(f, "--help", "print this", 28);
}

void cli_help_all(FILE *f) {
    fputs("koine COMMAND [OPTIONS]\n\n", f);
    wrap(f, about, 0, 0, 100);
    fputs("\ncommands:\n", f);
    for (int i = 0; cli_verbs[i]; i++) entry(f, cli_verbs[i]->name, cli_verbs[i]->summary, 12);
    fputs("\nexamples:\n", f);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
        fprintf(f, "  %-52s %s\n", examples[i].command, examples[i].doc);
    fputs("\nkoine COMMAND --help says more; so does `man koine`. Settings come from the environment: `koine info`.\n",
          f);
}

/* ---- the man page ---- */

static void roff(FILE *f, const char *s) {
    for (bool line = true; *s; s++) {
        if (line && (*s == '.' || *s == '\'')) fputs("\\&", f);
        if (*s == '\\') fputs("\\e", f);
        else if (*s == '-') fputs("\\-", f);
        else if (*s == '\n') fputs("\n.PP\n", f);
        else fputc(*s, f);
        line = *s == '\n';
    }
    fputc('\n', f);
}

static void item(FILE *f, const char *head, const char *arg, const char *doc) {
    fputs(".TP\n.B ", f);
    for (const char *p = head; *p; p++) fputs(*p == '-' ? "\\-" : (char[]){*p, 0}, f);
    if (arg) fprintf(f, " \\fI%s\\fR", arg);
    fputc('\n', f);
    roff(f, doc);
}

void cli_man(FILE *f) {
    fprintf(f, ".TH KOINE 1 \"\" \"koine %s\" \"User Commands\"\n", CLI_VERSION);
    fputs(".SH NAME\nkoine \\- a tensor compiler in C\n.SH SYNOPSIS\n", f);
    for (int i = 0; cli_verbs[i]; i++) {
        fprintf(f, ".B koine %s\n", cli_verbs[i]->name);
        if (*cli_verbs[i]->args) roff(f, cli_verbs[i]->args);
        fputs(".br\n", f);
    }
    fputs(".SH DESCRIPTION\n", f);
    roff(f, about);
    fputs(".SH COMMANDS\n", f);
    for (int i = 0; cli_verbs[i]; i++) {
        const cli_verb *v = cli_verbs[i];
        fprintf(f, ".SS koine %s\n", v->name);
        roff(f, v->summary);
        if (v->text) {
            fputs(".PP\n", f);
            roff(f, v->text);
        }
        for (const cli_opt *o = v->opt; o && o->name; o++) {
            char head[64];
            snprintf(head, sizeof head, "--%s", o->name);
            item(f, head, o->arg, o->doc);
        }
    }
    fputs(".SH ENVIRONMENT\n", f);
    for (int i = 0; i < KI_VAR_COUNT; i++) item(f, ki_vars[i].name, NULL, ki_vars[i].doc);
    fputs(".SH EXIT STATUS\n", f);
    for (size_t i = 0; i < sizeof exits / sizeof *exits; i++) item(f, exits[i].code, NULL, exits[i].doc);
    fputs(".SH EXAMPLES\n", f);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) item(f, examples[i].command, NULL, examples[i].doc);
}

static const char *verb_word(const void *of, int i) {
    (void)of;
    return cli_verbs[i] ? cli_verbs[i]->name : NULL;
}

static int help(cli *c) {
    if (cli_has(c, "man")) {
        cli_man(stdout);
        return CLI_OK;
    }
    if (c->noperand == 0) {
        cli_help_all(stdout);
        return CLI_OK;
    }
    for (int i = 0; cli_verbs[i]; i++)
        if (strcmp(cli_verbs[i]->name, c->operand[0]) == 0) {
            cli_help_verb(stdout, cli_verbs[i]);
            return CLI_OK;
        }
    const char *near = cli_near(c->operand[0], verb_word, NULL);
    return near ? cli_usage(c, "no command %s; did you mean %s?", c->operand[0], near)
                : cli_usage(c, "no command %s", c->operand[0]);
}

static const cli_opt options[] = {{"man", NULL, "print the man page (roff)"}, {NULL, NULL, NULL}};
const cli_verb cli_help = {.name = "help",
                           .args = "[COMMAND]",
                           .summary = "what a command does and takes",
                           .opt = options,
                           .most = 1,
                           .run = help};
