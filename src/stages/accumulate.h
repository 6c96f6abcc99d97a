/* accumulate.h: how a term goes into a sum, a product, or the greatest. Private to the stages. */
#ifndef KI_ACCUMULATE_H
#define KI_ACCUMULATE_H

#include "ir/uop.h"

/* old op v; of a dot product the instruction that adds it. contract: a product and its sum are one step where op is ADD; so is one that a condition
 * chooses, whatever the term would be else. */
kn_uop ki_accumulate(ki_ir *ir, bool contract, kn_op op, kn_uop old, kn_uop v);

#endif
