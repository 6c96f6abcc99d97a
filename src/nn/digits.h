/* digits.h: handwritten-style digits, drawn by the program itself, so that the main job needs no data set. */
#ifndef KI_DIGITS_H
#define KI_DIGITS_H

#include <stdint.h>

enum { KI_DIGIT = 28 }; /* width and height */

/* Image i of the set `seed`: ink in [0, 1], row-major. Depends on (seed, i) alone. Returns its label. */
int ki_digit_draw(uint64_t seed, uint64_t i, float *pixels);

#endif
