/* symbols.c: see symbols.h. The interface is that of the GDB manual, "JIT Compilation Interface"; the file that of perf's
 * tools/perf/Documentation/jit-interface.txt. */
#include "device/cpu/symbols.h"

#include "base/gnu.h"

#include <elf.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- what gdb looks for, by these names; they stay in this file, so that another library may have its own ---------- */

typedef enum jit_action { JIT_NONE, JIT_REGISTER, JIT_UNREGISTER } jit_action;

typedef struct jit_entry {
    struct jit_entry *next, *prev;
    const void *image;
    uint64_t size;
} jit_entry;

static struct {
    uint32_t version, action; /* a jit_action */
    jit_entry *relevant, *first;
} __jit_debug_descriptor KI_KEPT = {.version = 1};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */

/* gdb stops here and reads the descriptor. */
KI_NOINLINE static void __jit_debug_register_code(void) { KI_OPAQUE(); }

/* ---- an image ------------------------------------------------------------------------------------------------- */

enum { S_NONE, S_TEXT, S_SYMTAB, S_STRTAB, S_COUNT };
static const char names[] = "\0.text\0.symtab\0.strtab"; /* begins the string table */
enum { NAME_TEXT = 1, NAME_SYMTAB = 7, NAME_STRTAB = 15 };

struct ki_symbols {
    jit_entry entry;
    Elf64_Ehdr head;
    Elf64_Shdr section[S_COUNT];
    Elf64_Sym symbol[]; /* one for none, one each; then the strings */
};

static void fill(ki_symbols *s, const uint8_t *code, size_t bytes, const ki_symbol *symbol, size_t n, size_t strings) {
    const size_t base = offsetof(ki_symbols, head), symbols = offsetof(ki_symbols, symbol) - base;
    char *text = (char *)&s->symbol[n + 1];
    size_t at = sizeof names;
    memcpy(s->head.e_ident, ELFMAG, SELFMAG);
    s->head.e_ident[EI_CLASS] = ELFCLASS64, s->head.e_ident[EI_DATA] = ELFDATA2LSB,
    s->head.e_ident[EI_VERSION] = EV_CURRENT;
    s->head.e_type = ET_REL, s->head.e_machine = EM_X86_64, s->head.e_version = EV_CURRENT;
    s->head.e_ehsize = sizeof s->head, s->head.e_shentsize = sizeof *s->section;
    s->head.e_shoff = offsetof(ki_symbols, section) - base, s->head.e_shnum = S_COUNT, s->head.e_shstrndx = S_STRTAB;
    s->section[S_TEXT] = (Elf64_Shdr){.sh_name = NAME_TEXT,
                                      .sh_type = SHT_NOBITS,
                                      .sh_flags = SHF_ALLOC | SHF_EXECINSTR,
                                      .sh_addr = (uintptr_t)code,
                                      .sh_size = bytes,
                                      .sh_addralign = 1};
    s->section[S_SYMTAB] = (Elf64_Shdr){.sh_name = NAME_SYMTAB,
                                        .sh_type = SHT_SYMTAB,
                                        .sh_offset = symbols,
                                        .sh_size = (n + 1) * sizeof *s->symbol,
                                        .sh_link = S_STRTAB,
                                        .sh_info = 1,
                                        .sh_addralign = 8,
                                        .sh_entsize = sizeof *s->symbol};
    s->section[S_STRTAB] = (Elf64_Shdr){.sh_name = NAME_STRTAB,
                                        .sh_type = SHT_STRTAB,
                                        .sh_offset = symbols + (n + 1) * sizeof *s->symbol,
                                        .sh_size = strings,
                                        .sh_addralign = 1};
    memcpy(text, names, sizeof names);
    for (size_t i = 0; i < n; i++) {
        s->symbol[i + 1] = (Elf64_Sym){.st_name = (uint32_t)at,
                                       .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                       .st_shndx = S_TEXT,
                                       .st_value = symbol[i].at, /* ET_REL: from the section's start */
                                       .st_size = symbol[i].n};
        size_t len = strlen(symbol[i].name) + 1;
        memcpy(text + at, symbol[i].name, len);
        at += len;
    }
    s->entry.image = &s->head;
    s->entry.size = symbols + (n + 1) * sizeof *s->symbol + strings;
}

/* ---- perf ------------------------------------------------------------------------------------------------------- */

static void tell_perf(ki_env *env, const uint8_t *code, const ki_symbol *symbol, size_t n) {
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%ld.map", (long)getpid());
    FILE *f = fopen(path, "ae");
    if (!f) {
        ki_log(env, "KN_PERF=1: %s: %s; perf will not know kernels by name\n", path, strerror(errno));
        return;
    }
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%lx %zx %s\n", (unsigned long)(uintptr_t)(code + symbol[i].at), symbol[i].n, symbol[i].name);
    fclose(f);
}

/* ---- both ------------------------------------------------------------------------------------------------------- */

ki_symbols *ki_symbols_add(ki_env *env, const uint8_t *code, size_t bytes, const ki_symbol *symbol, size_t n) {
    if (ki_setting_number(env, KI_VAR_PERF)) tell_perf(env, code, symbol, n);
    size_t strings = sizeof names;
    for (size_t i = 0; i < n; i++) strings += strlen(symbol[i].name) + 1;
    ki_symbols *s = ki_calloc(1, sizeof *s + (n + 1) * sizeof *s->symbol + strings);
    if (!s) return NULL;
    fill(s, code, bytes, symbol, n, strings);
    pthread_mutex_lock(&lock);
    s->entry.next = __jit_debug_descriptor.first;
    if (s->entry.next) s->entry.next->prev = &s->entry;
    __jit_debug_descriptor.first = __jit_debug_descriptor.relevant = &s->entry;
    __jit_debug_descriptor.action = JIT_REGISTER;
    __jit_debug_register_code();
    pthread_mutex_unlock(&lock);
    return s;
}

void ki_symbols_remove(ki_symbols *s) {
    if (!s) return;
    pthread_mutex_lock(&lock);
    if (s->entry.next) s->entry.next->prev = s->entry.prev;
    if (s->entry.prev) s->entry.prev->next = s->entry.next;
    else __jit_debug_descriptor.first = s->entry.next;
    __jit_debug_descriptor.relevant = &s->entry;
    __jit_debug_descriptor.action = JIT_UNREGISTER;
    __jit_debug_register_code();
    pthread_mutex_unlock(&lock);
    ki_free(s);
}
