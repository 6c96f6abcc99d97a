/* test_draw.c: a drawn digit is the same to the bit whether its pixels are inked one at a time or sixteen. */
#define ki_digit_draw plain_draw
#include "nn/digits.c"
#undef ki_digit_draw

int ki_digit_draw(uint64_t seed, uint64_t i, float *pixels); /* the library's */

#include "tap.h"

#include <string.h>

static void same_bits(uint64_t seed) {
    static float one[KI_DIGIT * KI_DIGIT], wide[KI_DIGIT * KI_DIGIT];
    unsigned differ = 0, inked = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        bool label = draw(seed, i, one) == ki_digit_draw(seed, i, wide);
        differ += !label || memcmp(one, wide, sizeof one) != 0;
        for (unsigned k = 0; k < KI_DIGIT * KI_DIGIT; k++) inked += one[k] > 0.5f;
    }
    CHECK(!differ, "seed %llu: %u of 3000 digits differ", (unsigned long long)seed, differ);
    CHECK(inked > 3000u * 20, "seed %llu: %u pixels are dark", (unsigned long long)seed, inked);
}

int main(void) {
    same_bits(0);
    same_bits(~UINT64_C(0));
    return tap_done();
}
