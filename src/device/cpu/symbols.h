/* symbols.h: names for machine code in memory, so that tools that look at a running process can say where it is.
 *
 * gdb is told through its JIT interface, always (a list of small ELF images in memory that the debugger reads; it costs
 * microseconds). perf is told when KN_PERF=1, by lines of /tmp/perf-PID.map. Neither makes anything fail. */
#ifndef KI_SYMBOLS_H
#define KI_SYMBOLS_H

#include "base/env.h"

typedef struct ki_symbol {
    const char *name;
    size_t at, n; /* within the code */
} ki_symbol;

typedef struct ki_symbols ki_symbols;

/* Makes n symbols of code[0..bytes) known until ki_symbols_remove. NULL: out of memory; nothing was made known to gdb. */
ki_symbols *ki_symbols_add(ki_env *env, const uint8_t *code, size_t bytes, const ki_symbol *symbol, size_t n);
void ki_symbols_remove(ki_symbols *s); /* NULL is allowed */

#endif
