/* nest.h: what OptOps and heuristics must know of a kernel's loops. Private to 3_optimize.
 *
 * A loop is a RANGE and its closer, the END or REDUCE that lists it (outermost first; lanes last). An access is an INDEX of
 * storage: where its index is affine, the stride of every range can be read off. */
#ifndef KI_NEST_H
#define KI_NEST_H

#include "stages/affine.h"
#include "stages/scope.h"
#include "stages/target.h"

typedef struct ki_nest {
    ki_ir *ir;
    kn_uop sink;
    ki_scope scope;
    ki_affines affines;
    const ki_affine **form; /* by place: of index nodes; of where(valid, i, invalid) that of i */
    kn_uop *closer;         /* by range number; NULL: nobody closes it */
    uint8_t *read;          /* by place: an INDEX whose value is used */
    kn_uop *reads;          /* these, in order */
    kn_uop *orders;         /* AFTERs and STOREs, in order */
    uint32_t nreads, norders;
    kn_uop *word;   /* by place: what an access is part of, if it is of a word (dots.c) */
    kn_uop *around; /* by place, of an END: the END that stands directly around it, else NULL */
    kn_uop *moves;  /* by place, of an access: the innermost loop that moves it (prefetch.c), itself if none does, NULL: nobody asked */
} ki_nest;

bool ki_nest_open(ki_nest *k, ki_ir *ir, kn_uop sink);
void ki_nest_close(ki_nest *k);
/* The kernel after one OptOp; ki_apply_opt of a nest that is open. */
kn_uop ki_nest_apply(ki_nest *k, ki_opt opt);
/* After several SPLITs into lanes, as one after the other. NULL, and env is as it was: not all at once. */
#define KI_MOST_SPLITS 32
kn_uop ki_nest_split(ki_nest *k, const ki_opt *opt, uint32_t n);

/* The RANGE with this id, NULL if the kernel has none. */
kn_uop ki_nest_range(const ki_nest *k, uint32_t id);
static inline kn_uop ki_nest_closer(const ki_nest *k, kn_uop r) { return k->closer[ki_scope_rank(&k->scope, r)]; }
/* Which source of its closer a range is; nsrc: none. */
static inline uint32_t ki_place_in(kn_uop closer, kn_uop r) {
    uint32_t j = 1;
    while (j < closer->nsrc && closer->src[j] != r) j++;
    return j;
}
/* A range whose iterations come one after the other: neither lane nor thread. */
static inline bool ki_is_serial(kn_uop r) { return !ki_is_lane(r) && r->arg.range.axis != KN_AX_THREAD; }
/* The innermost of these of an END or a REDUCE; NULL: it has none. */
kn_uop ki_last_loop(kn_uop closer);
/* Form of an access's index; NULL: not affine. */
const ki_affine *ki_nest_form(const ki_nest *k, kn_uop access);
/* Does u depend on a loop of this END or REDUCE? */
bool ki_varies_in(const ki_nest *k, kn_uop u, kn_uop closer);
/* Are all terms of a sum left out where another one says so? Its loops run then not at all (4_expand/skip.c). */
bool ki_is_seldom(const ki_nest *k, kn_uop closer);
/* Is there a sum over a loop of at least so many terms in every iteration of r? (0: of an unknown number too.) */
bool ki_sums_in(const ki_nest *k, kn_uop r, int64_t least);
/* The longest sum in every iteration of r, and how many terms one after the other it has; NULL: there is none. */
kn_uop ki_longest_sum(const ki_nest *k, kn_uop r, int64_t *most);
/* Elements between what two neighbouring iterations of r access; *known false if r stands in an opaque term. */
int64_t ki_nest_stride(const ki_nest *k, kn_uop access, kn_uop r, bool *known);
/* Bytes between them, forwards or backwards; 0: the same place, or nobody knows. */
int64_t ki_nest_step(const ki_nest *k, kn_uop access, kn_uop r);
/* Of two loops that stand in one another, is a the inner one? */
bool ki_is_inside(const ki_nest *k, kn_uop a, kn_uop b);
/* The innermost loop in which an access moves on; itself: there is none. */
kn_uop ki_innermost(const ki_nest *k, kn_uop access);
/* True if u is an INDEX of storage. */
bool ki_is_access(kn_uop u);
kn_uop ki_storage(kn_uop u); /* PARAM, BUFFER or SLICE an address is in */
/* Is this access one only under a condition? Under one that r decides about? (gates.c) */
bool ki_is_gated(kn_uop access);
bool ki_is_gated_by(const ki_nest *k, kn_uop access, kn_uop r);
/* Does the kernel store to the PARAM of this slot? */
bool ki_is_written(const ki_nest *k, int32_t slot);
/* What STAGE names: the slot of a PARAM; -1 - id of a BUFFER; else INT32_MIN. */
int32_t ki_slot_of(kn_uop storage);
/* Is the read one of another nest's, which is done before the loops of `end`? */
bool ki_is_before(const ki_nest *k, kn_uop end, kn_uop read);
/* The access under root that reads what has this slot, the last of *count; where words of them do, of words alone; under an END none of nests that
 * are done before it. NULL: none does. */
kn_uop ki_nest_read_of(const ki_nest *k, kn_uop root, int32_t slot, uint32_t *count);
/* Of several such, elements all, the one that r leaves where it is; NULL: none, or several. */
kn_uop ki_nest_read_without(const ki_nest *k, kn_uop root, int32_t slot, kn_uop r);
/* The one that STAGE copies inside root's loop `axis` (NULL: outside all): the only one; of several, elements all, the one that root's innermost loop
 * leaves where it is, or that all of its loops and lanes inside `axis` do; of a BUFFER's, which what fills it reads too, the one that these move.
 * NULL: there is no such one. */
kn_uop ki_nest_read_inside(const ki_nest *k, kn_uop root, int32_t slot, kn_uop axis);
/* Iterations of the loops, no sum's, that both accesses vary along, however they were split; 1: there are none. */
int64_t ki_nest_shared(const ki_nest *k, kn_uop a, kn_uop b);
/* Iterations of r may run in any order and at once: nothing is carried from one to another, and they write to different
 * places. REDUCE ranges are not asked about (false). */
bool ki_nest_independent(const ki_nest *k, kn_uop r);
/* May iterations of r be done twice? What they store is nothing that they read. */
bool ki_nest_laps(const ki_nest *k, kn_uop r);
/* Does something loop, or carry a value, while r runs? */
bool ki_nest_loops_inside(const ki_nest *k, kn_uop r);
/* Does some loop of this END carry a value to its next iteration? */
bool ki_nest_carries(const ki_nest *k, kn_uop end);
/* AFTER(buf, the loops that are free in u, but the n of except[]). */
kn_uop ki_nest_home(const ki_nest *k, kn_uop buf, kn_uop u, const kn_uop *except, uint32_t n);
/* The kernel's next OptOp of this kind behind `last` (NULL: the first). NULL: there is none. */
const ki_opt *ki_nest_opt(const ki_nest *k, ki_optop op, const ki_opt *last);
/* Next free RANGE and BUFFER ids of the kernel. */
uint32_t ki_nest_next_range(const ki_nest *k);
uint32_t ki_nest_next_buffer(const ki_nest *k);
bool ki_nest_own_buffer(const ki_nest *k,
                        int32_t *id); /* an OptOp's: the next one for -1; false, said: another has it */

/* ---- editing (edit.c) -------------------------------------------------------------------------------------- */

/* A RANGE, what it is in arithmetic, and what stands for it where loops are listed (END, REDUCE, AFTER). */
typedef struct ki_swap {
    kn_uop from, expr, list[2];
} ki_swap;
/* root after several of these at once. In the ENDs concerned THREAD ranges come first and lanes last. */
kn_uop ki_swap_ranges(ki_nest *k, kn_uop root, const ki_swap *swap, uint32_t n);
/* The same as of one after the other, each a range by a loop and a lane of it. expr is NULL where an earlier one has it already. */
kn_uop ki_swap_in_turn(ki_nest *k, kn_uop root, const ki_swap *swap, uint32_t n);
/* Where a comparison of a loop *r with a constant changes its value: the first *r for which it has another; 0: it is none. */
int64_t ki_changes_at(const ki_nest *k, kn_uop u, kn_uop *r);
/* Does a comparison, a quotient or a remainder depend on r? Then a part of its loop may decide it: u, a part of the kernel, rid of
 * what bounds decide. alone: a remainder, or a comparison of nothing else. */
bool ki_hangs_on(const ki_nest *k, kn_uop r, bool alone);
kn_uop ki_decided(const ki_nest *k, kn_uop u);
kn_uop ki_opt_padto(ki_nest *k, ki_opt *o);
kn_uop ki_opt_join(ki_nest *k, ki_opt *o);
kn_uop ki_opt_cut(ki_nest *k, ki_opt *o);
kn_uop ki_opt_stage(ki_nest *k, ki_opt *o);
/* What STAGE, DEAL and FRAME copy: the one access that reads o->arg inside the loop o->axis (-1: anywhere). A set, to be freed, of the loops outside
 * (ki_mark_outer). NULL: it cannot be copied, env says why. */
uint64_t *ki_find_copied(const ki_nest *k, const ki_opt *o, kn_uop *access);
/* Ranges that `axis` stands inside, and axis itself: those before it in its END, those of the ENDs around, and what its END knows; NULL:
 * those outside all loops. False: it is no loop of a nest. */
bool ki_mark_outer(const ki_nest *k, kn_uop axis, uint64_t *set);
kn_uop ki_opt_deal(ki_nest *k, ki_opt *o);
kn_uop ki_joined(ki_ir *ir, kn_uop outer, int64_t size, kn_uop inner); /* outer * size + inner */
/* deal.c: digits of an address along which a loop goes in steps, innermost first: elements between two of its values, the step, and where
 * the next digit begins; the last one ends with a block, of which the loops that are not in `outer` read so many. */
#define KI_MOST_DEALT 3
#define KI_MOST_STEP  4
typedef struct ki_deal {
    uint32_t n;
    int64_t unit[KI_MOST_DEALT], step[KI_MOST_DEALT], next[KI_MOST_DEALT], blocks;
} ki_deal;
/* False: there are none. */
bool ki_find_deal(const ki_nest *k, kn_uop access, const uint64_t *outer, ki_deal *d);
/* frame.c: loops of the nest and of a sum, windows, that go along the same rows, `step` of a window's for one of the other. */
typedef struct ki_frame_pair {
    kn_uop loop, window;
    int64_t step;
} ki_frame_pair;
typedef struct ki_frame {
    uint32_t n;
    bool all; /* of single elements too: the loop's place is part of the window's */
    ki_frame_pair pair[KI_MOST_DEALT];
} ki_frame;
/* False: there are none. */
bool ki_find_frame(const ki_nest *k, kn_uop access, const uint64_t *outer, bool all, ki_frame *f);
/* How many places r has in the copy, and which one it is at (f NULL: as many as iterations). */
int64_t ki_framed(const ki_frame *f, kn_uop r);
kn_uop ki_framed_place(ki_ir *ir, const ki_frame *f, kn_uop r);
/* What the copy reads, r being its places: nothing where no window comes. */
kn_uop ki_framed_read(ki_ir *ir, const ki_frame *f, kn_uop read, const ki_swap *swap, uint32_t n);
kn_uop ki_opt_frame(ki_nest *k, ki_opt *o);
/* stage.c: the kernel with what u reads inside the loops of `set`, which is freed, copied; f: as FRAME copies it, NULL: as STAGE does. */
kn_uop ki_copied(ki_nest *k, ki_opt *o, kn_uop u, uint64_t *set, const ki_frame *f);
kn_uop ki_opt_stream(ki_nest *k, ki_opt *o);
kn_uop ki_opt_tc(ki_nest *k, ki_opt *o);
/* dots.c: the word an access is part of, or itself; the first access of a word. What ki_nest_open does for it. */
kn_uop ki_word_of(const ki_nest *k, kn_uop access);
kn_uop ki_word_element(kn_uop u);
void ki_find_words(ki_nest *k);
/* Bytes of an access, or of the word it is part of; is what a step along r reads beside it? A word whose elements stand in a row? */
unsigned ki_word_bytes(const ki_nest *k, kn_uop access);
bool ki_reads_row(const ki_nest *k, kn_uop access, kn_uop r);
bool ki_is_split_word(ki_nest *k, kn_uop access);
/* terms.c */
#define KI_MOST_TAPS 8 /* terms that are written out */
kn_uop ki_opt_terms(ki_nest *k, ki_opt *o);
kn_uop ki_opt_prefetch(ki_nest *k, ki_opt *o);
kn_uop ki_opt_scan(ki_nest *k, ki_opt *o);
kn_uop ki_opt_rows(ki_nest *k, ki_opt *o);
kn_uop ki_opt_late(ki_nest *k, ki_opt *o);
kn_uop ki_opt_pipeline(ki_nest *k, ki_opt *o);
kn_uop ki_opt_rotate(ki_nest *k, ki_opt *o);
/* pipelined.c: of a kernel that PIPELINE has changed: does the access read the next row? */
bool ki_reads_ahead(kn_uop access);
kn_uop ki_opt_first(ki_nest *k, ki_opt *o);
/* first.c: a maximum of y over r, and another one over q of where(y is it, or is NaN, f, none): of f of the first such element. */
typedef struct ki_first {
    kn_uop most, place; /* the two REDUCEs */
    kn_uop r, q;        /* their loops */
    int64_t fall;       /* of f, from one q to the next */
    bool seen;          /* the maximum is used for more than that */
} ki_first;
bool ki_find_first(const ki_nest *k, kn_uop place, ki_first *p);
/* What m, the largest element so far and its f, becomes by one more. NULL: out of memory. */
kn_uop ki_first_step(ki_ir *ir, const ki_first *p, kn_uop y, kn_uop f, kn_uop m[2]);
/* flatten.c: sums of sums as one sum; where every OptOp starts from. */
kn_uop ki_flatten_sums(ki_ir *ir, kn_uop sink);
kn_uop ki_hoist_threads(ki_nest *k);
kn_uop ki_kernel_with(ki_ir *ir, kn_uop sink, const ki_opt *add, const uint32_t *threads);

/* ---- choosing (heuristic.c) -------------------------------------------------------------------------------- */

unsigned ki_weight(kn_uop u);                      /* of one node, an addition being 1; 0: it is no work */
unsigned ki_weight_in(const ki_nest *k, kn_uop r); /* of what runs in each iteration of r */
/* What search decides in their place. 0: as they see fit. */
typedef struct ki_knobs {
    uint8_t mu, nv, mw; /* register tile: rows, vectors, columns (tile_size.c) */
    uint8_t pack;       /* its streamed operand: 1 never packed, 2 wherever it can be */
    uint8_t parts;      /* 1: sums of AMX's tiles are kept for no more rows than a tile has, or a block of columns */
    uint8_t unroll;     /* vectors of a nest or of a row's reduce */
    uint8_t narrow;     /* vectors are so many times halved */
    uint8_t stream;     /* 1: never */
    uint8_t plain;      /* 1: no register tiles */
    uint8_t sums;       /* 1: only what decides in which order sums are added up */
    uint8_t whole;      /* 1: columns of a tile that are no whole vectors are cut off before threads share the loops */
    uint32_t threads;   /* at most so many */
} ki_knobs;
/* knobs: NULL, all 0. NULL: a step was refused, env says which. */
kn_uop ki_opt_choose(ki_ir *ir, const ki_target *t, const ki_machine *m, const ki_knobs *knobs, kn_uop sink);
/* orders.c: a kernel's sums of floats are shared out to threads. Two kernels add up their sums in the same order. */
bool ki_shares_sums(ki_ir *ir, kn_uop sink);
bool ki_same_orders(ki_ir *ir, kn_uop a, kn_uop b);
/* where.c: a number for the places, `at` each, to which the loops of `of` and `or` (NULL: none) store, the same for the same places. False: they are not
 * known. */
bool ki_where(const ki_scope *s, kn_uop at, kn_uop of, kn_uop or, uint64_t *number);
uint64_t ki_where_add(uint64_t a, uint64_t b); /* of all places of both, which share none */

#endif
