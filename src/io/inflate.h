/* inflate.h: gzip (RFC 1952) and deflate (RFC 1951), decoding only. */
#ifndef KI_INFLATE_H
#define KI_INFLATE_H

#include "base/env.h"

#include <stddef.h>
#include <stdint.h>

static inline bool ki_is_gzip(const uint8_t *p, size_t n) { return n >= 2 && p[0] == 0x1f && p[1] == 0x8b; }

/* Unpacks every member of a gzip file; checksums and lengths are checked. limit bounds the result (0: 1 TiB), so
 * that a small file cannot ask for all memory. *out is ki_malloc'ed, with a NUL after the last byte. */
bool ki_gunzip(ki_env *env, const char *name, const uint8_t *p, size_t n, size_t limit, uint8_t **out, size_t *nout);

/* Raw deflate: a stream's end is found, *used says where. Returns NULL or what is wrong. */
typedef struct ki_grow { /* bytes that grow; oom once an allocation failed */
    uint8_t *p;
    size_t n, cap, limit;
} ki_grow;
const char *ki_inflate(const uint8_t *p, size_t n, size_t *used, ki_grow *out);

uint32_t ki_crc32(const uint8_t *p, size_t n);

#endif
