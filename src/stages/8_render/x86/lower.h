/* lower.h: a LINEAR's items to machine instructions over virtual registers. Private to 8_render/x86.
 *
 * Where values live (MAP: "native"):
 *   dtype index           general register, 64 bits; a bool () made of comparisons of such: general register, 0 or 1
 *   other (), other (n,)  vector register; () is its lowest lane, what the lanes above hold is never looked at
 *   bool of data          mask register (AVX-512); else the sign of integer lanes, M of `M < 0`, or bytes from and for memory
 * A () that a vector instruction reads is also kept broadcast to all lanes, made where the () is made. A LOAD that one instruction
 * reads, with no store in between, is that instruction's memory operand. A split REG BUFFER's slice is a virtual register that is
 * written more than once; a LOAD of it is that register itself where nothing writes the slice before the LOAD's last use. */
#ifndef KI_X86_LOWER_H
#define KI_X86_LOWER_H

#include "stages/8_render/locals.h"
#include "stages/8_render/x86/mir.h"
#include "stages/target.h"

typedef struct ki_lval {  /* by item */
    uint32_t uses, last;  /* how often it is read, and the last item that does */
    uint32_t block;       /* loop it stands in */
    uint8_t wide;         /* a vector instruction reads this () */
    uint8_t general;      /* its one use is a cast to index: a LOAD goes to a general register */
    uint8_t deferred;     /* a LOAD that waits for its one user */
    uint8_t gpr;          /* the register is a general one */
    uint8_t alias;        /* a LOAD of a slice: it is the slice's register */
    uint8_t outside;      /* it is read in another loop than it stands in */
    uint8_t branch;       /* a bool (): no value, it is compared where a gate asks */
    uint8_t within;       /* an AND: 0 <= x < c, one comparison */
    uint32_t nwide;       /* how many of its uses want it in all lanes */
    ki_vreg reg, all;     /* itself; broadcast, a table's second half, or what `led` says */
    uint32_t slice;       /* 1 + the STORE (item) whose slice it is written to at once */
    uint32_t square;      /* a LOAD or a STORE of a square (square.c): 1 + the item that starts lowest */
    uint32_t next;        /* 1 + the square's next item */
    int32_t ahead;        /* a LOAD, a STORE: bytes ahead of it to be asked for, 0: none; a CAST that leads: iterations */
    uint16_t part, parts; /* from which of how many lines on, */
    uint16_t share;       /* so many */
    uint8_t often;        /* so many times */
    uint8_t second;       /* a LOAD: of all but the first cache */
    uint8_t terms;        /* a LOAD of one element: it asks in rows of the loop around it */
    uint32_t leads;       /* a CAST of what is read, that other LOADs' places are found by: 1 + the first of them */
    uint32_t led;         /* such a LOAD: 1 + the CAST, whose `all` is where the buffer would begin for it to read what it will, so many iterations later */
    uint8_t parks;        /* an END behind which a slice may be parked */
    uint32_t induction;   /* 1 + which: it is not made where it stands */
} ki_lval;

/* A loop's body that is being copied (unroll.c). */
typedef struct ki_lunroll {
    ki_mins *body;
    uint32_t n;
    ki_vreg first, end; /* registers that are older are no copy's own */
    ki_vreg *own;       /* from first on: the copy's */
    uint8_t *seen;
    size_t body_cap, own_cap, seen_cap;
} ki_lunroll;

#define KI_MOST_FIXED 4
/* An index in an innermost loop that goes on evenly: the sum of fixed[k] * scale[k] + step * the loop's counter (induction.c). */
typedef struct ki_linduction {
    kn_uop value, fixed[KI_MOST_FIXED];
    uint8_t scale[KI_MOST_FIXED]; /* 1, 2, 4, 8 */
    unsigned n;
    int64_t step;
    uint32_t head; /* item of the RANGE */
    ki_vreg reg;   /* 0: nobody reads it */
} ki_linduction;

typedef struct ki_lower {
    ki_ir *ir;
    ki_mir m;
    ki_asm *a;
    kn_uop kernel;
    const kn_uop *inst;
    uint32_t n, now;
    uint32_t *at; /* by id: item */
    ki_lval *val;
    ki_locals local;
    ki_vreg buf, var, thread;
    uint32_t variables; /* seen so far */
    ki_vreg *pointer;   /* by item of a PARAM */
    ki_vreg **slices;   /* by local: by element */
    ki_vreg *slice_mem;
    uint32_t *sliced, nsliced; /* items: LOADs and STOREs of slices */
    uint32_t *park, nslice;    /* by slice: 1 + the END behind which another register holds it; see lower.c */
    uint64_t *home;            /* by local that is an array: place in the frame */
    ki_vreg *array;            /* by local: where it begins, if it is reached by an index */
    ki_linduction *induction;  /* by loop, in order; so many of them have been met */
    uint32_t ninduction, opened;
    size_t induction_cap;
    ki_lunroll unroll;
    uint32_t *epoch; /* by item: stores, loops and branches before it */
    struct ki_lloop {
        uint32_t number, head, done; /* of the MIR; labels */
        ki_vreg counter, registers;  /* what comes after is younger than the loop */
        kn_uop range, bound;         /* range: NULL of a condition */
        ki_vreg far;                 /* of what it asks for in each iteration, the first of so many rows; 0: nothing */
        uint32_t rows;
        int64_t apart; /* bytes */
    } loop[64];
    uint32_t depth;
    struct ki_lconst {
        uint64_t bits;
        uint8_t es;
        ki_vreg reg;
    } * konst;
    uint32_t nkonst, konst_cap;
    struct {
        int64_t bytes;
        ki_vreg reg;
    } stride[4]; /* of tiles' rows */
} ki_lower;

static inline ki_lval *ki_lv(ki_lower *l, kn_uop u) { return &l->val[l->at[u->id]]; }
/* Where a LOAD, a STORE or an ATOMICADD of the list goes. */
static inline const ki_address *ki_lplace(const ki_lower *l, kn_uop u) { return &l->local.address[l->at[u->id]]; }
static inline unsigned ki_llanes(kn_uop u) { return u->type->rank ? (unsigned)u->type->dim[0].n : 1; }
/* bool in memory and in lanes of its own: a byte. */
static inline unsigned ki_les(kn_uop u) { return (unsigned)ki_itemsize((kn_dtype)u->dtype); }
ki_x86_kind ki_lkind(unsigned bytes); /* vector register that holds so many */
bool ki_lfail(ki_lower *l, kn_uop u, const char *why);
#define KI_LPUT(l, form, ...) KI_MPUT(&(l)->m, form, (l)->now, __VA_ARGS__)

/* value.c: operands. Each makes what it takes to have the value there. */
ki_vreg ki_lgeneral(ki_lower *l, kn_uop u);                     /* index, bool () */
ki_vreg ki_lvector(ki_lower *l, kn_uop u, bool all);            /* vector register; all: a () in all lanes */
ki_vreg ki_lmask(ki_lower *l, kn_uop u, unsigned lanes);        /* mask register; a () in all lanes where lanes > 1 */
kn_uop ki_lsign(kn_uop truth);                                  /* below AVX-512: M of `M < 0`, NULL: it is no such */
ki_vreg ki_lbytes(ki_lower *l, kn_uop u, unsigned lanes);       /* bool as bytes of 0 and 1, in all lanes there are */
ki_vreg ki_lbits(ki_lower *l, int64_t bits);                    /* mask register of these bits */
ki_vreg ki_lfirst(ki_lower *l, unsigned n);                     /* the first n lanes */
ki_vreg ki_lmask_exact(ki_lower *l, kn_uop u, unsigned lanes);  /* no bit set past the lanes */
ki_vreg ki_lconst(ki_lower *l, kn_dtype t, uint64_t bits);      /* in all lanes */
ki_vreg ki_ltable(ki_lower *l, kn_uop stack, unsigned half);    /* STACK of constants: 64 bytes of it */
ki_vreg ki_lnumbers(ki_lower *l, const int32_t *v, unsigned n); /* a constant vector */
ki_vreg ki_lfrom_general(ki_lower *l, ki_vreg r, unsigned es);  /* to the lowest lane */
ki_vreg ki_lall(ki_lower *l, ki_vreg r, unsigned es);           /* the lowest lane to all */
ki_vreg ki_lmove(ki_lower *l, ki_rclass c, ki_x86_kind kind, ki_vreg from); /* a copy */
bool ki_lis_const(kn_uop u);

/* index.c: index arithmetic, transfers. False: not such an op. */
bool ki_lindex(ki_lower *l, kn_uop u);

/* induction.c. Before who reads what; of the loop that is being opened, before it runs; of one that is being closed, at its end. */
bool ki_lfind_inductions(ki_lower *l);
void ki_lopen_inductions(ki_lower *l);
void ki_lclose_inductions(ki_lower *l, kn_uop range, int64_t times); /* iterations done in one */

/* unroll.c. Is the loop one that is written out, if its body may be? Of the loop that is being closed, behind its body: written out so many times
 * (1: it is left alone); behind its end: the iterations that these do not divide. */
bool ki_lmay_unroll(const ki_lower *l, kn_uop range);
uint32_t ki_lunroll_loop(ki_lower *l, const struct ki_lloop *p);
void ki_lunroll_rest(ki_lower *l, const struct ki_lloop *p, uint32_t copies);

/* branch.c: truths of index arithmetic. Who asks which, after who reads what is known; the value of one; to `past` unless it is so. */
bool ki_lfind_branches(ki_lower *l);
ki_vreg ki_lcomparison(ki_lower *l, kn_uop u);
void ki_lskip_unless(ki_lower *l, kn_uop gate, uint32_t past);

/* memory.c */
bool ki_lplan_memory(ki_lower *l);
/* A vector of indices as a list of (), one a lane, and what is added to all of them (NULL: nothing). NULL: it is no such. */
kn_uop ki_llist(kn_uop index, kn_uop *plus);
kn_uop ki_lpeel(kn_uop base, int64_t *start); /* without constants added, which go to start; NULL: nothing is left */
ki_mop ki_laddress(ki_lower *l, const ki_address *a,
                   int64_t lane); /* of an affine address; of lane 0's element + lane */
void ki_lload(ki_lower *l, kn_uop u);
void ki_lload_whole(ki_lower *l, kn_uop u); /* one without a gate, of a () or lanes in a row */
/* The LOAD of neighbours that are one element of u's width: INDEX(BITCAST(LOAD), 0). NULL: u is no such. And u read so, from a
 * LOAD that is deferred. */
kn_uop ki_lword(kn_uop u);
void ki_lload_word(ki_lower *l, kn_uop u, kn_uop load);
void ki_lstore(ki_lower *l, kn_uop u);
void ki_latomic(ki_lower *l, kn_uop u);
/* The operand as so many bytes; 0: a line of memory, whatever its size. */
static inline ki_mop ki_lsized(ki_mop o, unsigned bytes) { return o.size = (uint8_t)bytes, o; }
/* The buffer's own address, with no index. */
ki_mop ki_lbase(ki_lower *l, kn_uop buf);
/* A deferred LOAD as a memory operand, at its one user. */
ki_mop ki_ldeferred(ki_lower *l, kn_uop load);
/* As OptOps name it: a PARAM's number, below 0 a BUFFER. */
static inline int32_t ki_lslot(kn_uop buf) {
    return buf->op == KN_PARAM ? buf->arg.param->slot : -1 - (int32_t)buf->arg.buffer->id;
}
/* Is u a LOAD or STORE of what lies side by side in the PARAM of this slot? */
bool ki_lmoves_vector(const ki_lower *l, kn_uop u, int32_t slot);
/* Rows, so many elements apart, that a loop asks for in turn, so that it has asked for all of them when it has run so many times: how many it is each time, and
 * in *at, made from the counter, where the first of them lies. Where it runs more than twice as often as there are rows, each has several turns. */
int64_t ki_lturn(ki_lower *l, ki_vreg counter, int64_t times, int64_t rows, int64_t apart, ki_vreg *at);
/* In each of so many iterations of the loop that begins here asks for its part of the rows that stand behind it, so many bytes
 * ahead. */
void ki_lask_rows(ki_lower *l, ki_vreg counter, int64_t trips, int32_t slot, int64_t ahead);
/* PREFETCH of a loop that is no longer than a line: what it reads along memory element by element, before it. */
void ki_lask_lines(ki_lower *l, kn_uop loop, const ki_opt *o);
/* PREFETCH of a loop that goes along lines of several rows, and by less than a line in each iteration, where loops around it read the same lines again:
 * in each iteration it asks for an element's line of those rows whose turn it is. */
void ki_lask_terms(ki_lower *l, kn_uop loop, const ki_opt *o);
/* In each iteration of a sum's loop that has just been opened: some of the rows that a copy before it has read of the PARAM, so many bytes further
 * on: all of them in all tiles that stand in the loops around both. */
void ki_lask_copied(ki_lower *l, const ki_opt *o);
/* PREFETCH by iterations: who leads and who is led by it; where the CAST that has just been lowered leads to so many iterations later. */
void ki_lfind_led(ki_lower *l, const ki_opt *o);
void ki_lask_next(ki_lower *l, kn_uop cast);
ki_vreg ki_lslice(ki_lower *l, const ki_address *a); /* 0: no slice */

void ki_lget(ki_lower *l, ki_vreg r, unsigned bytes, ki_mop from); /* a power of two of bytes, to a vector register */
void ki_lput(ki_lower *l, ki_vreg r, unsigned bytes, ki_mop to, bool stream);

/* strided.c: can lanes that lie so be read, under this gate (NULL: none)? And the register with them; what the mask (0: none) leaves out is 0. */
bool ki_lis_strided(const ki_lower *l, const ki_address *a, unsigned es, kn_uop gate);
ki_vreg ki_lstrided(ki_lower *l, const ki_address *a, unsigned es, ki_vreg mask);
/* Are they better stored so than one by one? */
bool ki_lstores_strided(const ki_lower *l, const ki_address *a, unsigned es);
void ki_lstore_strided(ki_lower *l, const ki_address *a, unsigned es, ki_vreg x);

/* square.c: LOADs, and STOREs, that are columns of a square; all values of that in which the LOAD u stands; what is stored by STORE u,
 * and, where it is the last one, the square. */
bool ki_lfind_squares(ki_lower *l);
void ki_lsquare(ki_lower *l, kn_uop u);
void ki_lstore_square(ki_lower *l, kn_uop u);

/* tiles.c: values of 1024 bytes */
bool ki_lis_tile(kn_uop u);
/* Of a LOAD or a STORE of a tile: how many rows, where the first of them lies, and how many elements further on the next one does; 0: it is of none. */
unsigned ki_ltile_rows(kn_uop u, ki_address *row, int64_t *step);
ki_vreg ki_ltile_slice(ki_lower *l, ki_vreg *slice); /* a slice's register, made when it is first asked for */
void ki_lload_tile(ki_lower *l, kn_uop u);
void ki_lstore_tile(ki_lower *l, kn_uop u);
void ki_ltile_product(ki_lower *l, kn_uop u, const ki_x86_form *f);

/* ins.c */
void ki_lins(ki_lower *l, kn_uop u);

/* resize.c: CAST between integers */
void ki_lresize(ki_lower *l, kn_uop u);

/* lanes.c: STACK, and lanes of a value */
void ki_lstack(ki_lower *l, kn_uop u);
void ki_lpick(ki_lower *l, kn_uop u);
/* Which entries of a table u is: data of which the low bits count. NULL: u is no INDEX of a table (a STACK of 16 or 32 words). */
kn_uop ki_lentry(kn_uop u);
void ki_llook_up(ki_lower *l, kn_uop u);

#endif
