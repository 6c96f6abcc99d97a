/* indexing.h: arithmetic on elements of index tuples. Private to the stages.
 *
 * An element is an `index` value x or where(valid, x, invalid). Every function here keeps the condition outermost. */
#ifndef KI_INDEXING_H
#define KI_INDEXING_H

#include "ir/uop.h"

typedef struct ki_element {
    kn_uop x;
    kn_uop valid; /* NULL: always */
} ki_element;

/* Does x mention range r? What lies below x is looked at, which is to be small: one kernel's expression. */
bool ki_depends(ki_ir *ir, kn_uop x, kn_uop r);
ki_element ki_element_of(kn_uop u);
kn_uop ki_element_uop(ki_ir *ir, ki_element e);
kn_uop ki_and(ki_ir *ir, kn_uop a, kn_uop b); /* NULL operand: true */
/* The index, invalid where c does not hold as well: its one condition, which others ask. */
kn_uop ki_element_if(ki_ir *ir, kn_uop c, kn_uop index);
/* x + c, constants folded. */
kn_uop ki_index_add(ki_ir *ir, kn_uop a, kn_uop b);
kn_uop ki_index_mul(ki_ir *ir, kn_uop a, kn_uop b);
/* The larger of two, the smaller, NULL being no bound; sign: 1, -1. */
kn_uop ki_index_extreme(ki_ir *ir, kn_uop a, kn_uop b, int sign);
kn_uop ki_dim_uop(ki_ir *ir, ki_dim d);

/* Row-major position in a shape, with the conjunction of the elements' conditions. */
ki_element ki_linear_index(ki_ir *ir, const ki_type *shape, const kn_uop *i);
/* A tuple for shape `from` re-expressed for shape `to` (equal element counts); out has to->rank entries. False: failed. */
bool ki_reshape_index(ki_ir *ir, const ki_type *from, const kn_uop *i, const ki_type *to, kn_uop *out);

#endif
