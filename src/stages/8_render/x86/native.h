/* native.h: a kernel's machine code. All of 8_render/x86 that the rest of the compiler sees.
 *
 * The code is a function  void (void *const *buf, const int64_t *var, int64_t thread)  of the System V calling convention, as the C
 * renderer's (render.h). It names no address but its own, so it runs from any place aligned to 64 bytes. */
#ifndef KI_X86_NATIVE_H
#define KI_X86_NATIVE_H

#include "stages/target.h"

typedef struct ki_x86_counts { /* with a listing alone */
    uint32_t instructions;
    size_t code, pool;           /* bytes */
    uint64_t frame;
    uint32_t used[4], of[4];     /* registers: general, vector, mask, tile */
    uint32_t spilled, constants; /* values in memory; those that are constants and stay there */
    uint32_t traffic[3], inner[3]; /* by ki_traffic: instructions, and those in loops that have none inside */
} ki_x86_counts;

typedef struct ki_x86_text {
    uint8_t *bytes; /* owned */
    size_t n;
    uint32_t spills; /* values kept in memory */
    ki_x86_counts counts;
} ki_x86_text;

/* kernel: SINK(LINEAR(...)), or CALL of one, as select leaves it for a native target. listing: NULL, or it is appended: each
 * instruction under the item of the LINEAR it is for, "# %12 = add(%7, 4) : index [8]", with the virtual registers behind it (v7; v7* is
 * in memory), and, where the env keeps a history (ir/history.h), by what the item came to be. False: env says why. */
bool ki_render_x86(ki_ir *ir, const ki_target *t, kn_uop kernel, ki_x86_text *out, ki_text *listing);
void ki_x86_text_free(ki_x86_text *c);

#endif
