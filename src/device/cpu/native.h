/* native.h: kernels that are machine code already: those of a program are put into code memory together. Equal ones stand there
 * once. */
#ifndef KI_NATIVE_H
#define KI_NATIVE_H

#include "device/cpu/codemem.h"
#include "device/cpu/entries.h"
#include "device/cpu/symbols.h"

typedef struct ki_native {
    struct ki_native_block { /* one a program that brought something new */
        ki_codemem mem;
        ki_symbols *symbols;
    } *block;
    size_t nblock;
    ki_entries known; /* by the code */
} ki_native;

/* Fills k[i].entry; all of k are machine code. */
bool ki_native_load(ki_native *c, ki_device *d, ki_kernel_text *k, size_t n);
void ki_native_close(ki_native *c);

#endif
