/* inflate.c: gzip and deflate, decoding only. See inflate.h.
 *
 * Huffman codes are decoded canonically: counts per length and symbols in code order, one bit at a time behind a
 * first table of FAST bits. Every read of the input and every copy is checked; a code that is over-subscribed is
 * refused, an incomplete one is allowed only where RFC 1951 does (one distance code). */
#include "io/inflate.h"

#include <string.h>

enum { FAST = 9, MAXBITS = 15 };

typedef struct bits {
    const uint8_t *p;
    size_t n, at;
    uint64_t buf;
    unsigned have;
    bool over; /* more was asked for than there is */
} bits;

static void fill(bits *b) {
    while (b->have <= 48 && b->at < b->n) {
        b->buf |= (uint64_t)b->p[b->at++] << b->have;
        b->have += 8;
    }
}

static unsigned take(bits *b, unsigned k) {
    if (b->have < k) fill(b);
    if (b->have < k) {
        b->over = true;
        b->have = 0;
        return 0;
    }
    unsigned v = (unsigned)(b->buf & ((UINT64_C(1) << k) - 1));
    b->buf >>= k;
    b->have -= k;
    return v;
}

typedef struct huff {
    uint16_t count[MAXBITS + 1];
    uint16_t symbol[288];
    uint16_t fast[1 << FAST]; /* symbol * 16 + length; 0: longer than FAST, or no code */
} huff;

/* Builds from code lengths. Returns 0 complete, > 0 incomplete, < 0 over-subscribed. */
static int build(huff *h, const uint8_t *len, unsigned n) {
    unsigned first[MAXBITS + 2], next[MAXBITS + 2];
    memset(h, 0, sizeof *h);
    for (unsigned i = 0; i < n; i++) h->count[len[i]]++;
    int left = 1;
    for (unsigned l = 1; l <= MAXBITS; l++) {
        left = left * 2 - h->count[l];
        if (left < 0) return left;
    }
    unsigned code = 0;
    first[1] = next[1] = 0;
    for (unsigned l = 1; l <= MAXBITS; l++) {
        first[l + 1] = first[l] + h->count[l];
        code = (code + (l > 1 ? h->count[l - 1] : 0u)) << 1;
        next[l] = code;
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned l = len[i];
        if (!l) continue;
        h->symbol[first[l]++] = (uint16_t)i;
        unsigned c = next[l]++, rev = 0;
        if (l > FAST) continue;
        for (unsigned k = 0; k < l; k++) rev |= ((c >> k) & 1) << (l - 1 - k);
        for (; rev < 1u << FAST; rev += 1u << l) h->fast[rev] = (uint16_t)(i * 16 + l);
    }
    h->count[0] = 0;
    return left;
}

static int decode(bits *b, const huff *h) {
    if (b->have < MAXBITS) fill(b);
    unsigned f = h->fast[b->buf & ((1u << FAST) - 1)];
    if (f && (f & 15) <= b->have) {
        b->buf >>= f & 15;
        b->have -= f & 15;
        return (int)(f >> 4);
    }
    unsigned code = 0, first = 0, index = 0;
    for (unsigned l = 1; l <= MAXBITS; l++) {
        code |= take(b, 1);
        if (b->over) return -1;
        unsigned c = h->count[l];
        if (code < first + c) return h->symbol[index + code - first];
        index += c;
        first = (first + c) << 1;
        code <<= 1;
    }
    return -1;
}

static const char *const too_much = "it unpacks to more than is allowed", *const no_memory = "out of memory";

static const char *reserve(ki_grow *g, size_t more) {
    if (more > g->limit - g->n) return too_much;
    if (g->n + more <= g->cap) return NULL;
    size_t cap = g->cap ? g->cap : 4096;
    while (cap < g->n + more) cap += cap / 2 + 16;
    uint8_t *p = ki_realloc(g->p, cap, 1);
    if (!p) return no_memory;
    g->p = p;
    g->cap = cap;
    return NULL;
}

static const char *stored(bits *b, ki_grow *out) {
    take(b, b->have & 7);
    unsigned len = take(b, 16), inv = take(b, 16);
    if (b->over) return "it ends inside a block";
    if (len != (inv ^ 0xffffu)) return "a stored block's length is damaged";
    const char *e = reserve(out, len);
    if (e) return e;
    while (len && b->have) {
        out->p[out->n++] = (uint8_t)take(b, 8);
        len--;
    }
    if (len > b->n - b->at) return "it ends inside a block";
    if (len) memcpy(out->p + out->n, b->p + b->at, len);
    out->n += len;
    b->at += len;
    return NULL;
}

static const uint16_t len_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                      31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
static const uint8_t len_extra[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                      2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
static const uint16_t dist_base[30] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                       33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                       1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
static const uint8_t dist_extra[30] = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                       6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

static const char *coded(bits *b, ki_grow *out, size_t base, const huff *lit, const huff *dist) {
    for (;;) {
        int s = decode(b, lit);
        if (s < 0) return b->over ? "it ends inside a block" : "a code is damaged";
        if (s == 256) return NULL;
        const char *e;
        if (s < 256) {
            if ((e = reserve(out, 1))) return e;
            out->p[out->n++] = (uint8_t)s;
            continue;
        }
        if ((s -= 257) >= 29) return "a length code is damaged";
        unsigned len = len_base[s] + take(b, len_extra[s]);
        int d = decode(b, dist);
        if (d < 0 || d >= 30) return b->over ? "it ends inside a block" : "a distance code is damaged";
        size_t far = dist_base[d] + (size_t)take(b, dist_extra[d]);
        if (b->over) return "it ends inside a block";
        if (far > out->n - base) return "it refers to what was before its beginning";
        if ((e = reserve(out, len))) return e;
        uint8_t *to = out->p + out->n;
        const uint8_t *from = to - far;
        for (unsigned i = 0; i < len; i++) to[i] = from[i]; /* may overlap: repeats */
        out->n += len;
    }
}

typedef struct tables {
    huff lit, dist;
} tables;

/* Only a code of one symbol, or of none, may be incomplete. */
static bool refused(const huff *h, int left) {
    unsigned used = 0;
    for (unsigned l = 1; l <= MAXBITS; l++) used += h->count[l];
    return left < 0 || (left > 0 && used > 1);
}

static const char *dynamic(bits *b, tables *t) {
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    unsigned nlit = take(b, 5) + 257, ndist = take(b, 5) + 1, ncode = take(b, 4) + 4;
    if (nlit > 286 || ndist > 30) return "a block has too many codes";
    uint8_t len[320] = {0};
    for (unsigned i = 0; i < ncode; i++) len[order[i]] = (uint8_t)take(b, 3);
    if (b->over) return "it ends inside a block";
    if (build(&t->lit, len, 19) != 0) return "a block's code lengths are damaged";
    memset(len, 0, sizeof len);
    for (unsigned i = 0; i < nlit + ndist;) {
        int s = decode(b, &t->lit);
        if (s < 0) return "a block's code lengths are damaged";
        if (s < 16) {
            len[i++] = (uint8_t)s;
            continue;
        }
        if (s == 16 && i == 0) return "a block's code lengths are damaged";
        uint8_t v = s == 16 ? len[i - 1] : 0;
        unsigned k = s == 16 ? 3 + take(b, 2) : s == 17 ? 3 + take(b, 3) : 11 + take(b, 7);
        if (b->over || i + k > nlit + ndist) return "a block's code lengths are damaged";
        while (k--) len[i++] = v;
    }
    if (len[256] == 0) return "a block has no end code";
    if (refused(&t->lit, build(&t->lit, len, nlit))) return "a block's codes are damaged";
    if (refused(&t->dist, build(&t->dist, len + nlit, ndist))) return "a block's codes are damaged";
    return NULL;
}

static void fixed(tables *t) {
    uint8_t len[288];
    for (unsigned i = 0; i < 288; i++) len[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    build(&t->lit, len, 288);
    for (unsigned i = 0; i < 30; i++) len[i] = 5;
    build(&t->dist, len, 30);
}

const char *ki_inflate(const uint8_t *p, size_t n, size_t *used, ki_grow *out) {
    bits b = {.p = p, .n = n};
    size_t base = out->n;
    tables *t = ki_malloc(sizeof *t);
    const char *e = t ? NULL : no_memory;
    for (bool last = false; !last && !e;) {
        last = take(&b, 1);
        unsigned kind = take(&b, 2);
        if (b.over) e = "it ends inside a block";
        else if (kind == 0) e = stored(&b, out);
        else if (kind == 3) e = "a block is of no known kind";
        else {
            if (kind == 1) fixed(t);
            else e = dynamic(&b, t);
            if (!e) e = coded(&b, out, base, &t->lit, &t->dist);
        }
    }
    ki_free(t);
    *used = b.at - b.have / 8; /* whole bytes that were read ahead go back */
    return e;
}

uint32_t ki_crc32(const uint8_t *p, size_t n) {
    uint32_t table[256], c = 0xffffffffu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++) v = v & 1 ? 0xedb88320u ^ (v >> 1) : v >> 1;
        table[i] = v;
    }
    for (size_t i = 0; i < n; i++) c = table[(c ^ p[i]) & 255] ^ (c >> 8);
    return c ^ 0xffffffffu;
}

static uint32_t le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Length of a member's header, 0 when it is damaged or cut. */
static size_t gzip_head(const uint8_t *p, size_t n) {
    if (n < 18 || !ki_is_gzip(p, n) || p[2] != 8 || (p[3] & 0xe0)) return 0;
    unsigned flags = p[3];
    size_t at = 10;
    if (flags & 4) { /* extra field */
        if (n - at < 2) return 0;
        size_t len = (size_t)p[at] | (size_t)p[at + 1] << 8;
        if (n - at - 2 < len) return 0;
        at += 2 + len;
    }
    for (unsigned f = 8; f <= 16; f <<= 1) { /* name, comment */
        if (!(flags & f)) continue;
        const uint8_t *z = memchr(p + at, 0, n - at);
        if (!z) return 0;
        at = (size_t)(z - p) + 1;
    }
    if (flags & 2) at += 2;
    return at <= n ? at : 0;
}

bool ki_gunzip(ki_env *env, const char *name, const uint8_t *p, size_t n, size_t limit, uint8_t **out, size_t *nout) {
    ki_grow g = {.limit = limit ? limit : (size_t)1 << 40};
    const char *e = NULL;
    size_t at = 0;
    do {
        size_t head = gzip_head(p + at, n - at), used = 0, start = g.n;
        if (!head) {
            e = "its header is damaged or cut";
            break;
        }
        at += head;
        if ((e = ki_inflate(p + at, n - at, &used, &g))) break;
        at += used;
        if (n - at < 8) e = "it ends before its checksum";
        else if (ki_crc32(g.p + start, g.n - start) != le32(p + at)) e = "its checksum does not match its contents";
        else if ((uint32_t)(g.n - start) != le32(p + at + 4)) e = "its length does not match its contents";
        at += 8;
    } while (!e && n - at >= 2 && ki_is_gzip(p + at, n - at)); /* what follows the last member is padding */
    if (!e) {
        g.limit = SIZE_MAX; /* room for the NUL */
        e = reserve(&g, 1);
    }
    if (e) {
        ki_free(g.p);
        if (e == no_memory) ki_fail(env, KI_E_NOMEM);
        else ki_fail(env, KI_E_GZIP, name, e);
        return false;
    }
    g.p[g.n] = 0;
    *out = g.p;
    *nout = g.n;
    return true;
}
