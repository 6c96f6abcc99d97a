/* encode.h: an instruction to its bytes, and to a line of a listing. */
#ifndef KI_X86_ENCODE_H
#define KI_X86_ENCODE_H

#include "stages/x86/x86.h"

enum { KI_X86_MOST = 16 }; /* bytes; the processor takes 15 */

#define KI_X86_ERRORS(X)                                                                                               \
    X(FORM, "no such form") X(COUNT, "operands missing or too many") X(KIND, "an operand of another kind or size")      \
    X(LENGTH, "not at this vector length") X(ENCODING, "the form has no such encoding")                                \
    X(EVEX, "needs EVEX: zmm, registers from 16 on, masks, broadcasts, rounding") X(REG, "no such register")           \
    X(ADDRESS, "no such address: index, scale or displacement") X(IMM, "the immediate does not fit")                  \
    X(MASK, "this form takes no such mask, or needs one") X(ROUND, "this form takes no such rounding")                 \
    X(BCAST, "this form takes no broadcast") X(SAME, "registers must differ") X(LOCK, "cannot be locked")
typedef enum ki_x86_error {
    KI_X86_OK,
#define X(name, text) KI_X86_BAD_##name,
    KI_X86_ERRORS(X)
#undef X
} ki_x86_error;
const char *ki_x86_error_text(ki_x86_error e);

typedef struct ki_x86_bytes {
    uint8_t b[KI_X86_MOST], n;
    uint8_t fix;    /* where its 4 bytes relative to its end stand, 0 none */
    uint32_t label; /* they are to reach */
} ki_x86_bytes;

/* The only maker of bytes. A jump's IMM is counted from the instruction's first byte; near ones are short. No allocation.
 * On an error nothing of `out` may be used. */
KI_NODISCARD ki_x86_error ki_x86_encode(const ki_x86_ins *i, ki_x86_bytes *out);
/* Encoding and vector length (0 128 .. 2 512) it would use; and its bytes where those are known. */
KI_NODISCARD ki_x86_error ki_x86_choose(const ki_x86_ins *i, unsigned *enc, unsigned *len);
KI_NODISCARD ki_x86_error ki_x86_encode_as(const ki_x86_ins *i, unsigned enc, unsigned len, ki_x86_bytes *out);
/* Operand codes the instruction has in an encoding, in order: SSE has no third operand. Their number. */
unsigned ki_x86_operands(const ki_x86_form *f, unsigned enc, uint8_t code[4]);
/* A place's code in that encoding: the destination of SSE's shifts stands in ModRM.rm. */
ki_x86_place ki_x86_place_of(const ki_x86_form *f, unsigned enc, uint8_t code);

/* One line, Intel syntax as GNU as and LLVM read it. Labels are .Ln. */
void ki_x86_print(const ki_x86_ins *i, ki_text *out);

#endif
