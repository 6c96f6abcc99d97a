/* decompose.c: ops the target lacks, written in ops it has. */
#include "stages/5_select/select.h"

kn_uop ki_decompose(ki_ir *ir, const ki_target *t, kn_uop sink) {
    (void)ir, (void)t;
    return sink;
}
