#ifndef KI_OPTIMIZE_H
#define KI_OPTIMIZE_H
#include "stages/target.h"
kn_uop ki_optimize(ki_ir *ir, const ki_target *t, unsigned threads, kn_uop sink);
#endif
