/* opdoc: docs/ops.md from ops.def. */
#include "ir/uop.h"

#include <stdio.h>
#include <string.h>

typedef struct row {
    const char *cls, *name, *arg, *dtype, *shape, *doc;
    int least, most;
    unsigned flags;
} row;

static const row rows[] = {
#define KI_OP(name, text, class, least, most, arg, dtype, shape, bounds, flags, doc)                                   \
    {#class, text, #arg, #dtype, #shape, doc, least, most, flags},
#define MANY KI_MANY
#include "ir/ops.def"
#undef MANY
#undef KI_OP
};

static const struct {
    const char *cls, *title;
} titles[] = {
    {"SOURCE", "Sources: leaf nodes"},
    {"MOVEMENT", "Movement: views, no arithmetic"},
    {"REDUCE", "Reduce"},
    {"CALL", "Calls"},
    {"LOAD", "Load"},
    {"STORE", "Store"},
    {"ORDER", "Order"},
    {"UNARY", "Unary, elementwise"},
    {"BINARY", "Binary, elementwise"},
    {"TERNARY", "Ternary, elementwise"},
    {"MARKER", "Markers: identity on data"},
    {"CODEGEN", "Code generation: not in the main graph"},
    {"INTERNAL", "Internal: never in a finished stage that does not name them"},
};

static void print_row(const row *r) {
    char most[16];
    snprintf(most, sizeof most, "%d", r->most);
    printf("| `%s` | %d%s%s | %s | %s | %s | %s%s |\n", r->name, r->least, r->most == r->least ? "" : " to ",
           r->most == r->least  ? ""
           : r->most == KI_MANY ? "any"
                                : most,
           strcmp(r->arg, "NONE") ? r->arg : "", r->dtype, r->shape, r->doc,
           r->flags & KI_DECOMP ? " *(decomposable)*" : "");
}

int main(void) {
    printf(
        "# Operations\n\nMade from `src/ir/ops.def` by `make docs`: do not edit. `koine ops` prints the same table.\n"
        "Arg, dtype and shape name the rules in `src/ir/`; a decomposable op is written in primitives by *select* "
        "where a\n"
        "target lacks it.\n");
    for (size_t t = 0; t < sizeof titles / sizeof *titles; t++) {
        printf("\n## %s\n\n| op | sources | arg | dtype | shape | meaning |\n|---|---|---|---|---|---|\n",
               titles[t].title);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            if (strcmp(rows[i].cls, titles[t].cls) == 0) print_row(&rows[i]);
    }
    return 0;
}
