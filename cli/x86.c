/* x86.c: `koine ops --x86` prints the table of x86-64 instructions, straight from x86.def. */
#include "cli.h"

#include "stages/x86/x86.h"

#include <string.h>

static void operands_text(const ki_x86_form *f, char *buf, size_t n) {
    size_t at = 0;
    buf[0] = 0;
    for (unsigned k = 0; k < 4 && f->op[k]; k++)
        at += (size_t)snprintf(buf + at, n - at, "%s%s", k ? ", " : "", ki_x86_codes[f->op[k]].name);
}

/* "66 0F38 W1 b8 /2". */
static void opcode_text(const ki_x86_form *f, char *buf, size_t n) {
    static const char *const prefix[] = {"", "66 ", "F3 ", "F2 "};
    static const char *const map[] = {"", "0F ", "0F38 ", "0F3A ", "", "MAP5 ", "MAP6 "};
    size_t at = (size_t)snprintf(buf, n, "%s%s%s%02x", prefix[f->pp], map[f->map], f->w ? "W1 " : "", f->opcode);
    if (f->ext < 8) snprintf(buf + at, n - at, " /%u", f->ext);
}

static void encodings_text(const ki_x86_form *f, char *buf, size_t n) {
    static const char *const name[] = {"SSE", "VEX", "EVEX"};
    size_t at = 0;
    for (unsigned e = 0; e < 3; e++) {
        if (!(f->enc >> e & 1)) continue;
        const char *feature = f->feat[e] < KI_CPU_COUNT ? ki_cpu_feature_names[f->feat[e]] : "AVX/AVX2";
        at += (size_t)snprintf(buf + at, n - at, "%s%s:%s", at ? " " : "", name[e], feature);
    }
}

static bool wanted(const cli *c, const ki_x86_form *f) {
    for (int i = 0; i < c->noperand; i++)
        if (strcmp(c->operand[i], f->name) == 0 || strcmp(c->operand[i], ki_x86_name(f, KI_XE_SSE)) == 0) return true;
    return c->noperand == 0;
}

int cli_x86(cli *c) {
    int shown = 0;
    for (unsigned k = 0; k < KI_X_COUNT; k++) {
        const ki_x86_form *f = &ki_x86_forms[k];
        char operands[32], opcode[32], encodings[96];
        if (!wanted(c, f)) continue;
        shown++;
        operands_text(f, operands, sizeof operands);
        opcode_text(f, opcode, sizeof opcode);
        encodings_text(f, encodings, sizeof encodings);
        const char *port = ki_x86_ports[f->port].name;
        if (c->json) {
            cli_json(stdout, "s name, s operands, s opcode, s encodings, i latency, s port, s types, s meaning",
                     f->name, operands, opcode, encodings, (int64_t)f->lat, port, f->types, f->meaning);
            continue;
        }
        printf("%-16s %-14s %-15s %-34s %2d %-8s %s%s%s\n", f->name, operands, opcode, encodings, f->lat, port,
               f->types, *f->meaning ? ": " : "", f->meaning);
    }
    return shown ? CLI_OK : cli_fail(c, "no instruction %s; `koine ops --x86` lists all", c->operand[0]);
}
