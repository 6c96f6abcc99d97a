/* test_x86_encode.c: every encoding of x86.def against an assembler that shares nothing with us. Each instruction is printed as
 * a line and encoded; GNU as reads the lines, and the bytes must be the same. Where an instruction has two equally good
 * encodings (and as takes the other), objdump must read both as the same text. */
#include "../tap.h"
#include "x86_forms.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLOT = 16 };
static char dir[] = "/tmp/koine-x86-XXXXXX";

typedef struct batch {
    FILE *text;
    ki_x86_bytes *b;
    char **line;
    size_t n, cap, refused;
    size_t *first; /* by form: its first instruction; [KI_X_COUNT] is the end */
} batch;

static void take(void *user, const ki_x86_ins *i) {
    batch *a = user;
    ki_text t = {0};
    if (a->n == a->cap) {
        a->cap = a->cap ? 2 * a->cap : 1 << 16;
        a->b = realloc(a->b, a->cap * sizeof *a->b);
        a->line = realloc(a->line, a->cap * sizeof *a->line);
    }
    ki_x86_error e = ki_x86_encode(i, &a->b[a->n]);
    ki_x86_print(i, &t);
    if (e) {
        if (a->refused++ < 20) printf("# refused (%s): %s %s\n", ki_x86_error_text(e), ki_x86_forms[i->form].name, t.s);
        ki_text_free(&t);
        return;
    }
    fprintf(a->text, "%s\n.p2align 4,0xcc\n", t.s);
    a->line[a->n++] = ki_text_take(&t);
}

static char *run(const char *fmt, ...) {
    static char path[4096], command[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    (void)path;
    return system(command) == 0 ? command : NULL;
}

static uint8_t *slurp(const char *name, size_t *n) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    *n = 0;
    if (!f) return NULL;
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    uint8_t *p = malloc(*n + 1);
    *n = fread(p, 1, *n, f);
    p[*n] = 0;
    fclose(f);
    return p;
}

/* The other encoding is as good if a disassembler reads both alike. */
static size_t resolve(const batch *a, const uint8_t *as, const size_t *odd, size_t n, bool *bad) {
    char path[256];
    size_t wrong = 0, size;
    for (int side = 0; side < 2; side++) {
        snprintf(path, sizeof path, "%s/odd%d.bin", dir, side);
        FILE *f = fopen(path, "wb");
        for (size_t k = 0; k < n; k++) {
            uint8_t slot[SLOT];
            memset(slot, 0xcc, sizeof slot);
            if (side) memcpy(slot, a->b[odd[k]].b, a->b[odd[k]].n);
            else memcpy(slot, as + SLOT * odd[k], SLOT);
            fwrite(slot, 1, sizeof slot, f);
        }
        fclose(f);
        run("objdump -D -b binary -m i386:x86-64 -M intel --no-show-raw-insn %s/odd%d.bin | sed -n 's/ *#.*//;s/^ "
            "*\\([0-9a-f]*0\\):\\t/\\1 /p' > %s/odd%d.txt",
            dir, side, dir, side);
    }
    char *text[2] = {(char *)slurp("odd0.txt", &size), (char *)slurp("odd1.txt", &size)};
    char *save[2], *l0 = strtok_r(text[0], "\n", &save[0]), *l1 = strtok_r(text[1], "\n", &save[1]);
    for (size_t k = 0; k < n; k++) {
        bool same = l0 && l1 && strcmp(l0, l1) == 0;
        bad[odd[k]] = !same;
        if (!same && wrong++ < 30) {
            printf("# %s: as", a->line[odd[k]]);
            for (unsigned j = 0; j < 12; j++) printf(" %02x", as[SLOT * odd[k] + j]);
            printf("; ours");
            for (unsigned j = 0; j < a->b[odd[k]].n; j++) printf(" %02x", a->b[odd[k]].b[j]);
            printf("\n#   as %s\n#   ours %s\n", l0 ? l0 : "?", l1 ? l1 : "?");
        }
        l0 = strtok_r(NULL, "\n", &save[0]), l1 = strtok_r(NULL, "\n", &save[1]);
    }
    free(text[0]), free(text[1]);
    return wrong;
}

static void compare(const batch *of) {
    batch a = *of;
    CHECK(!a.refused, "the encoder takes every operand of every form (%zu refused)", a.refused);
    bool built =
        run("cd %s && as --64 -o all.o all.s 2>all.err && objcopy -O binary -j .text all.o all.bin", dir) != NULL;
    if (!built) run("grep -v 'Assembler messages' %s/all.err | head -20 | sed 's/^/# /'", dir);
    if (!CHECK(built, "GNU as reads all %zu lines", a.n)) return;
    size_t size, nodd = 0;
    uint8_t *as = slurp("all.bin", &size);
    if (!CHECK(as && size >= SLOT * (a.n - 1), "an instruction a slot of 16 bytes")) {
        free(as);
        return;
    }
    size_t *odd = malloc(a.n * sizeof *odd);
    bool *bad = calloc(a.n, sizeof *bad);
    for (size_t k = 0; k < a.n; k++) {
        unsigned n = a.b[k].n;
        bool same = memcmp(as + SLOT * k, a.b[k].b, n) == 0;
        for (size_t j = n; j < SLOT && same && SLOT * k + j < size; j++) same = as[SLOT * k + j] == 0xcc;
        if (!same) odd[nodd++] = k;
    }
    size_t wrong = resolve(&a, as, odd, nodd, bad);
    printf("# %zu instructions of %d forms, %zu with an encoding other than as's\n", a.n, KI_X_COUNT, nodd);
    for (unsigned f = 0; f < KI_X_COUNT; f++) {
        size_t n = a.first[f + 1] - a.first[f], off = 0;
        for (size_t k = a.first[f]; k < a.first[f + 1]; k++) off += bad[k];
        CHECK(n && !off, "form %u %s: %zu instructions are as's", f, ki_x86_forms[f].name, n);
    }
    (void)wrong;
    free(as), free(odd), free(bad);
}

static void forms(void) {
    char path[256];
    batch a = {.first = calloc(KI_X_COUNT + 1, sizeof(size_t))};
    snprintf(path, sizeof path, "%s/all.s", dir);
    a.text = fopen(path, "w");
    fprintf(a.text, ".intel_syntax noprefix\n");
    for (unsigned f = 0; f < KI_X_COUNT; f++) {
        a.first[f] = a.n;
        x86_walk_form(f, take, &a);
    }
    a.first[KI_X_COUNT] = a.n;
    fclose(a.text);
    compare(&a);
    for (size_t k = 0; k < a.n; k++) ki_free(a.line[k]);
    free(a.line), free(a.b), free(a.first);
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    if (!run("as --version >/dev/null 2>&1 && objdump --version >/dev/null 2>&1")) {
        CHECK(0, "GNU as and objdump are there (Debian: binutils)");
        return tap_done();
    }
    forms();
    if (!getenv("KEEP")) run("rm -rf %s", dir);
    return tap_done();
}
