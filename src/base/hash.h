/* hash.h: one mixer for every table and every digest. Results depend on content alone, never on addresses,
 * so that the same program gives the same bytes on every run. */
#ifndef KI_HASH_H
#define KI_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A bijection on 64 bits with full avalanche (the finaliser constants of SplitMix64). */
static inline uint64_t ki_mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t ki_hash2(uint64_t h, uint64_t v) {
    return ki_mix(h * UINT64_C(0x9e3779b97f4a7c15) + v + UINT64_C(0x2545f4914f6cdd1d));
}

static inline uint64_t ki_hash_bytes(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    h = ki_hash2(h, n);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        h = ki_hash2(h, w);
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < n; i++) tail |= (uint64_t)p[i] << (8 * i);
    return ki_hash2(h, tail);
}

/* For tables in memory, whose order nobody sees: a multiplication a word. The upper half is mixed best. */
static inline uint64_t ki_hash_step(uint64_t h, uint64_t v) {
    return ((h << 27 | h >> 37) ^ v) * UINT64_C(0x9e3779b97f4a7c15);
}
static inline uint32_t ki_hash_place(const void *data, size_t n) {
    const unsigned char *p = data;
    uint64_t h = ki_hash_step(1, n), w = 0;
    for (; n >= 8; n -= 8, p += 8) memcpy(&w, p, 8), h = ki_hash_step(h, w);
    for (w = 0; n; n--) w = w << 8 | p[n - 1];
    return (uint32_t)(ki_hash_step(h, w) >> 32);
}

/* 128-bit digest, for content-addressed files. */
typedef struct ki_digest {
    uint64_t a, b;
} ki_digest;
static inline ki_digest ki_digest_bytes(const void *data, size_t n) {
    return (ki_digest){ki_hash_bytes(UINT64_C(0x6b6f696e65), data, n),
                       ki_hash_bytes(UINT64_C(0x6469616c656374), data, n)};
}
/* The same with n numbers more. */
static inline ki_digest ki_digest_also(ki_digest d, const uint64_t *v, size_t n) {
    for (size_t i = 0; i < n; i++) d = (ki_digest){ki_hash2(d.a, v[i]), ki_hash2(d.b ^ v[i], i + 1)};
    return d;
}

#endif
