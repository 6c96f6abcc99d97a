/* codemem.h: memory that machine code runs from. A page is writable or executable, never both: code is written, then sealed,
 * and what is sealed is not written again. */
#ifndef KI_CODEMEM_H
#define KI_CODEMEM_H

#include "base/env.h"

typedef struct ki_codemem {
    uint8_t *code; /* NULL: none */
    size_t bytes;  /* mapped: whole pages */
} ki_codemem;

/* A copy of code[0..n) that may be executed. False: env says why. */
KI_NODISCARD bool ki_codemem_make(ki_env *env, const void *code, size_t n, ki_codemem *out);
void ki_codemem_free(ki_codemem *e);

#endif
