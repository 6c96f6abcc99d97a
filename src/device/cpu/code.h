/* code.h: rendered kernels to machine code: in memory by content, on disk by content (cache.h), else by the C compiler
 * (cc.h), all that is missing in as few processes as there are cores to run them. */
#ifndef KI_CODE_H
#define KI_CODE_H

#include "device/cpu/cache.h"
#include "device/cpu/cc.h"
#include "device/cpu/entries.h"

typedef struct ki_code {
    ki_cc cc;
    ki_text cc_said;     /* what KN_CC said when it was found */
    ki_code_cache cache; /* opened at the first compilation, so that a setting made before it counts */
    ki_entries known;    /* by text, name, flags and KN_CC */
    void **object; /* loaded shared objects */
    size_t nobject;
} ki_code;

void ki_code_close(ki_code *c);
/* Fills k[i].entry. jobs: compilers that may run at once. */
bool ki_code_compile(ki_code *c, ki_device *d, unsigned jobs, const char *cflags, ki_kernel_text *k, size_t n);

#endif
