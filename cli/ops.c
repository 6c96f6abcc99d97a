/* ops.c: `koine ops` prints the op table, straight from ops.def. */
#include "cli.h"

#include "ir/uop.h"

#include <string.h>

typedef struct row {
    const char *name, *cls, *arg, *dtype, *shape, *bounds, *doc;
    int least, most;
    unsigned flags;
} row;

static const row rows[] = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc)                                   \
    {text, #class, #arg, #dtype, #shape, #bounds, doc, least, most, flags},
#define MANY KI_MANY
#include "ir/ops.def"
#undef MANY
#undef KI_OP
};

static const char *const flag_names[] = {"commutative", "associative", "idempotent", "effect",
                                         "floats only", "no floats",   "no bool",    "decomposable"};

static void flags_text(unsigned flags, char *buf, size_t n) {
    size_t at = 0;
    buf[0] = 0;
    for (unsigned i = 0; i < sizeof flag_names / sizeof *flag_names; i++)
        if (flags >> i & 1) at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", flag_names[i]);
}

static void sources_text(const row *r, char *buf, size_t n) {
    if (r->most == KI_MANY) snprintf(buf, n, "%d..", r->least);
    else if (r->least == r->most) snprintf(buf, n, "%d", r->least);
    else snprintf(buf, n, "%d..%d", r->least, r->most);
}

static bool wanted(const cli *c, const row *r) {
    for (int i = 0; i < c->noperand; i++)
        if (strcasecmp(c->operand[i], r->name) == 0 || strcasecmp(c->operand[i], r->cls) == 0) return true;
    return c->noperand == 0;
}

static int ops(cli *c) {
    if (cli_has(c, "x86")) return cli_x86(c);
    const char *cls = "";
    int shown = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        char flags[128], sources[32];
        if (!wanted(c, r)) continue;
        shown++;
        flags_text(r->flags, flags, sizeof flags);
        sources_text(r, sources, sizeof sources);
        if (c->json) {
            cli_json(stdout, "s name, s class, i least, i most, s arg, s dtype, s shape, s bounds, s flags, s doc",
                     r->name, r->cls, (int64_t)r->least, (int64_t)(r->most == KI_MANY ? -1 : r->most), r->arg, r->dtype,
                     r->shape, r->bounds, flags, r->doc);
            continue;
        }
        if (strcmp(cls, r->cls) != 0) {
            printf("%s%s\n", *cls ? "\n" : "", r->cls);
            cls = r->cls;
        }
        printf("  %-20s %-5s %-7s %s%s%s%s\n", r->name, sources, strcmp(r->arg, "NONE") == 0 ? "" : r->arg, r->doc,
               *flags ? " [" : "", flags, *flags ? "]" : "");
    }
    return shown ? CLI_OK : cli_fail(c, "no op or class %s; `koine ops` lists all", c->operand[0]);
}

static const cli_opt options[] = {{"x86", NULL, "the table of x86-64 instructions instead; NAME is a mnemonic"},
                                  {"json", NULL, "one object a line"},
                                  {NULL, NULL, NULL}};
const cli_verb cli_ops = {.name = "ops",
                          .args = "[NAME or CLASS]... [--x86] [--json]",
                          .summary = "the table of operations",
                          .text =
                              "Name, number of sources, kind of the argument, meaning, properties. This is the table "
                              "from which the parser, the verifier, the interpreter and docs/ops.md are made.",
                          .opt = options,
                          .most = 1000,
                          .run = ops};
