/* match.h: what matching, evaluating and building share. Private to src/rules. */
#ifndef KI_MATCH_H
#define KI_MATCH_H

#include "rules/rules.h"

int64_t ki_arg_field(kn_uop u, ki_field f);
/* Value of a constant expression. truth: over mathematical integers, as in guards; else constants keep their dtype. */
ki_val ki_expr(ki_match *m, unsigned term, bool truth);
/* v as a constant of dtype t. False: it has no such value. */
bool ki_val_bits(const ki_val *v, kn_dtype t, uint64_t *bits);
/* A short text of a value, for messages. */
const char *ki_val_text(const ki_val *v, char *buf, size_t n);

#endif
