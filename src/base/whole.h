/* whole.h: division of whole numbers as the dialect has it: quotients round down, remainders take the divisor's sign, and
 * nothing traps: x / 0 = 0, x % 0 = 0, INT64_MIN / -1 = INT64_MIN. (The interpreter has its own: ir/scalar.c, ir/eval_apply.c.) */
#ifndef KI_WHOLE_H
#define KI_WHOLE_H

#include <stdint.h>

static inline int64_t ki_floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return a == INT64_MIN ? a : -a;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t ki_floor_mod(int64_t a, int64_t b) {
    if (b == 0 || b == -1) return 0;
    return a - ki_floor_div(a, b) * b;
}
/* Greatest common divisor, 1 where INT64_MIN takes part (its magnitude is no int64_t). */
static inline int64_t ki_gcd(int64_t a, int64_t b) {
    if (a == INT64_MIN || b == INT64_MIN) return 1;
    if (a < 0) a = -a;
    if (b < 0) b = -b;
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

#endif
