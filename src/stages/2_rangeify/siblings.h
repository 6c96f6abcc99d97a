/* siblings.h: what siblings.c, part.c, inside.c and taken.c share: what each kernel touches, and which others it reaches. For order.c, which asks
 * both. */
#ifndef KI_SIBLINGS_H
#define KI_SIBLINGS_H

#include "stages/2_rangeify/rangeify.h"

enum {
    KI_WINDOW = 512,   /* kernels that may lie between two that are joined: a step of a network, there and back */
    KI_SHARED = 4096,  /* bytes worth sharing, */
    KI_MOST_NODES = 3000, /* of a joined kernel */
    KI_MOST_ARGS = 56,    /* a kernel has room for 64 */
    KI_SHARED_PART = 8 /* and this part of what the smaller kernel touches */
};

typedef struct ki_use { /* of memory by a kernel */
    uint32_t buffer, kernel;
    int64_t read, bytes;
    bool made, fresh; /* fresh: not memory that held something before */
} ki_use;

typedef struct ki_fact { /* of a kernel, or of those joined to it */
    uint32_t use, nuse;  /* in order of buffers; of the one kernel */
    uint32_t nodes, nests, args;
    uint32_t ranges; /* numbers of its RANGEs are below */
    int64_t bytes;
    uint8_t widest; /* bytes of the widest element: it decides on vectors for all of a kernel */
    bool fixed;     /* stays alone */
    bool sums;
    bool one; /* those joined to it are in its sink already */
    uint32_t next, last; /* joined to it: a list */
    uint32_t at;         /* in the order */
    uint32_t head;       /* kernel that stands for those joined */
} ki_fact;

typedef struct ki_family {
    rangeifier *r;
    ki_kernels *k;
    const ki_edge *edge;
    uint32_t nedge;
    ki_fact *fact;
    ki_use *use;
    uint32_t nuse;
    size_t use_cap;
    uint32_t *order;
    ki_firsts firsts; /* kernels, and pairs of them, that became another: each kind once */
} ki_family;
enum { KI_TOOK_IN, KI_FINISHED }; /* what the firsts became, the last word but what it depends on */

/* siblings.c: joins kernels; the order is brought in line, k->used of it remain. */
bool ki_range_siblings(ki_family *f);
/* part.c: sums that overwriting keeps from joining get memory of their own; *whole: none did, and the family is as it was; else
 * the order is to be found anew. */
bool ki_range_part(ki_family *f, bool *whole);

/* inside.c: sums of rows, and what is made of them, in the kernel that reads the rows next. */
bool ki_range_inside(ki_family *f);
/* taken.c: a product that one kernel keeps rows of, in that kernel. */
bool ki_range_take(ki_family *f);

bool ki_family_open(ki_family *f, rangeifier *r, ki_kernels *k, uint32_t *order, const ki_edge *edge, uint32_t nedge);
void ki_family_close(ki_family *f);
/* Bytes that both read, by the kernels they started as. */
int64_t ki_family_shared(const ki_family *f, uint32_t a, uint32_t b);
/* marked[i]: a reaches what stands i places behind it, up to b, at most KI_WINDOW. False: too much to look at; or, if they are to be
 * apart, a reaches b. */
bool ki_family_reach(const ki_family *f, uint32_t a, uint32_t b, bool apart, bool *marked);
/* b is joined to a; marked: what a reaches up to b. */
void ki_family_join(ki_family *f, uint32_t a, uint32_t b, const bool *marked);
/* RANGEs named from *next on: alike for kernels that are joined alike. */
kn_uop ki_family_fresh(ki_ir *ir, kn_uop sink, uint32_t *next);

#endif
