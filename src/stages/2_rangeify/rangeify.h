/* rangeify.h: the state of stage 2, shared by its files. Private to the stage.
 *
 * A *demand* is a node INDEX(v, i...) with one index for every axis of the tensor value v: equal demands are the same
 * pointer. Values are visited users first, so all demands on a value are known when its turn comes; then it is either
 * inlined (each demand is rewritten, by push.kr, into demands on its sources) or given storage: a *nest* of fresh ranges
 * that stores it, and every demand becomes a read of that buffer. */
#ifndef KI_RANGEIFY_H
#define KI_RANGEIFY_H

#include "base/slots.h"
#include "stages/2_rangeify/push.h"
#include "stages/stages.h"

#define NONE UINT32_MAX

/* Where a demand stands: inside the bodies of these REDUCEs of its nest, innermost first. */
typedef struct context {
    uint32_t parent; /* NONE where it runs once for each of its own places, whoever asks */
    kn_uop reduce;   /* tensor node */
    double count;    /* times its body runs */
    uint32_t next;   /* of its nest */
} context;

typedef struct demand {
    kn_uop d;
    uint32_t nest, ctx;
    bool linear; /* between the innermost REDUCE's body and here: only views and zero fill */
    uint32_t next, same; /* on the same value, and of those in the same nest: the one before it */
} demand;

typedef struct asker { /* a nest with demands on a value */
    uint32_t value, nest, last;
} asker;

typedef struct output { /* one store of a nest */
    kn_uop node;   /* tensor node: the value's, or an AFTER */
    kn_uop target; /* flat BUFFER */
    kn_uop index, value; /* demands not yet resolved */
} output;

typedef struct nest {
    kn_uop axis[KI_MAX_RANK];  /* by axis of the shape: RANGE, or 0 for size 1 */
    kn_uop range[KI_MAX_RANK]; /* the RANGEs, in axis order */
    unsigned rank, nrange;
    const ki_type *shape;
    uint32_t prefix[8]; /* sets of ranges (bits) that must come first, each inside the next */
    unsigned nprefix;
    uint32_t out[16], nout; /* outputs */
    double reduce_work;     /* elements of the largest REDUCE inlined */
    uint32_t youngest;      /* id of the last of the stored values it reads */
    bool scatter;           /* stores a REDUCE that scatters, alone */
    uint32_t place;         /* of the loop that came up last: places.c */
    uint32_t own;           /* demands on what it stores: NONE, or the first among `own` */
    uint32_t context;       /* NONE, or the last of its REDUCEs' bodies */
    uint32_t contexts;      /* so many */
    uint32_t sources;       /* values it has demands on that are not inlined, constants aside: so many buffers at most */
    uint32_t sides;         /* of the sums of several products in it */
} nest;

/* A demand on what its nest stores is the value itself there; other nests with this demand read the buffer. */
typedef struct own_demand {
    kn_uop d, value;
    uint32_t next;
} own_demand;

typedef struct ki_place {
    uint32_t before, axes; /* before: 1 + the place before this one in its nests, 0: they begin here */
    const ki_type *shape;
    uint32_t first; /* number of axis 0's RANGE */
} ki_place;
typedef struct ki_places {
    ki_place *place;
    ki_slots slots;
    size_t cap;
} ki_places;

typedef struct info { /* of a tensor node */
    uint32_t first;    /* demands */
    uint32_t askers;   /* nests that have some */
    uint32_t users;
    bool root, keep;   /* an output; must be stored */
    bool awaited;      /* by a REMAT */
    bool remat, back;  /* made of one; of what one waits for */
    uint8_t products;  /* matrix products that end in it: at most 2 */
    bool constant;     /* made of constants alone */
    bool compares;     /* made of comparisons with something made of constants */
    bool counts;       /* and these are with loop positions still: its sum may fold */
    bool folds;        /* REDUCE that folds away */
    int64_t scatters;  /* REDUCE that adds terms where data says: positions each may go to; else 0 */
    bool heavy;        /* ends a chain of single uses, or of uses that come together, that starts at a REDUCE */
    float cost;        /* arithmetic an element, when inlined */
    float again;       /* a sum, by way of views alone, reads each element so often; 0: none does */
    float leaves;      /* values read an element; of one that is broadcast, its part of them */
    kn_uop buffer;     /* flat BUFFER that holds it */
    uint32_t nest;     /* that stores it */
    uint32_t met;      /* alike.c: its number in the last key it was in */
    uint32_t folded;   /* alike.c: 1 + the last demand on it that was folded, 0 none */
} info;

typedef struct ki_alike_sum { /* what facts.c has found of sums with this key */
    size_t at, n; /* the key's words */
    int64_t scatters;
    bool folds, counts;
} ki_alike_sum;
typedef struct ki_alike {
    uint64_t *word; /* keys, one after the other */
    size_t nword, word_cap;
    ki_alike_sum *sum;
    ki_slots slots;
    size_t sum_cap;
    uint32_t met; /* nodes numbered so far */
    struct ki_alike_demand {
        kn_uop d, e; /* what it became; NULL: it stays a sum */
        uint32_t next;
    } *demand;
    uint32_t ndemand;
    size_t demand_cap;
} ki_alike;

typedef struct rangeifier {
    ki_ir *ir;
    const ki_lower_opts *opts;
    ki_program *p;
    uint32_t top; /* ids up to here are tensor nodes */
    kn_uop *order;
    int64_t n;
    info *info;
    demand *demand;
    uint32_t ndemand;
    size_t demand_cap;
    asker *asker;
    ki_slots askers;
    size_t asker_cap;
    context *context;
    uint32_t ncontext;
    size_t context_cap;
    nest *nest;
    uint32_t nnest;
    size_t nest_cap;
    output *output;
    uint32_t noutput;
    size_t output_cap;
    own_demand *own;
    uint32_t nown;
    size_t own_cap;
    ki_places places;
    kn_uop *map; /* by id: what a demand became, but where it is a nest's own */
    uint32_t map_cap;
    struct {
        uint32_t from, to;
    } *after; /* nest `from` reads what nest `to` has assigned, where order.c cannot see it */
    uint32_t nafter;
    size_t after_cap;
    uint32_t nlater; /* so many of them, the last: a REMAT's, which give way where kernels wait for each other */
    bool remat;  /* something is computed again, to keep less */
    bool nested; /* some positions are data: demands may stand inside the indices of demands */
    uint8_t *asks; /* by id: it is a demand, or there is one in it; simplify.c */
    uint32_t nasks;
    size_t asks_cap;
    struct ki_forms *forms; /* while there are kernels */
    ki_push push;
    ki_memo memo;
    ki_alike alike;
} rangeifier;

static inline bool is_tensor(const rangeifier *r, kn_uop u) { return u->id <= r->top; }
/* INDEX on a tensor value, made by this stage. */
static inline bool is_demand(const rangeifier *r, kn_uop u) {
    return u->op == KN_INDEX && u->id > r->top && is_tensor(r, u->src[0]) && u->src[0]->op != KN_BUFFER;
}

/* A demand at loop positions as they are, or constants: nothing inside it is a demand, and nothing is left to simplify. */
static inline bool ki_is_plain(kn_uop d) {
    for (uint32_t k = 1; k < d->nsrc; k++)
        if (d->src[k]->op != KN_RANGE && d->src[k]->op != KN_CONST) return false;
    return true;
}

/* alike.c: the entry of all sums that are made as v is; *known: something was found of one before. *out is NULL where v is too
 * large, and valid until the next call. False: env says why. */
bool ki_alike_find(rangeifier *r, kn_uop v, ki_alike_sum **out, bool *known);
/* The same of demands on one sum, at positions that differ in the names of RANGEs alone: what d becomes, *known, or NULL for a sum
 * that stays one. */
kn_uop ki_alike_folded(rangeifier *r, kn_uop d, bool *known);
bool ki_alike_note(rangeifier *r, kn_uop d, kn_uop e);
void ki_alike_free(ki_alike *a);

/* places.c: *place: that of the loops over those axes of a shape that come up where *place was the last; *first: axis 0's number. */
bool ki_range_place(rangeifier *r, uint32_t *place, const ki_type *shape, uint32_t axes, uint32_t *first);
void ki_places_free(ki_places *s);

/* simplify.c */
/* Demands inside the indices of others (positions that are data) become variables, all but u itself. A demand has been
 * registered as it is, perhaps already met: what rewriting would make of it nobody would meet. */
enum { MOST_HIDDEN = 32 };
typedef struct hidden {
    kn_uop demand[MOST_HIDDEN], name[MOST_HIDDEN];
    size_t n;
    bool too_many; /* nothing is hidden: leave u as it is */
} hidden;
/* r->asks of all there is now. */
bool ki_range_find_demands(rangeifier *r);
kn_uop ki_range_hide(rangeifier *r, kn_uop u, hidden *h);
kn_uop ki_range_show(rangeifier *r, kn_uop u, const hidden *h);
kn_uop ki_range_simplify(rangeifier *r, kn_uop u);
/* The tensor graph before anything else: in normal form, large reduces cut. */
kn_uop ki_range_prepare(ki_ir *ir, kn_uop tuple);
/* A kernel's expressions once all is resolved: folds reduces over comparisons with ranges, too. Not what has an id up to
 * `floor`. */
kn_uop ki_range_fold(ki_ir *ir, kn_uop u, uint32_t floor);
/* Operands of what commutes in the order of rules: the same terms become the same node. */
kn_uop ki_range_sorted(ki_ir *ir, kn_uop u);

/* layout.c */
typedef struct ki_wish {
    int64_t stride, extent; /* of the axis to be innermost; extent 0: none, < 0: never */
    double gain;            /* of all that write and read the buffer, in multiply-adds */
    double spared;          /* what products lose that take tiles of filters by positions: nothing, */
    bool other;             /* but where other products read it */
} ki_wish;
typedef struct ki_layouts {
    enum { KI_WISH, KI_TRY, KI_MOVE } step; /* every kernel's wishes; which leave no quotients; those done */
    ki_wish *wish;                          /* by buffer id */
    uint32_t nbuffer;
    bool panels; /* the target has tiles of filters by positions (3_optimize/windows.c) */
} ki_layouts;
bool ki_layouts_open(ki_layouts *l, const ki_program *p, const ki_target *t);
void ki_layouts_close(ki_layouts *l);
/* After all kernels were tried: what loses more than it gains is taken back. */
void ki_layouts_settle(ki_layouts *l);
bool ki_layouts_any(const ki_layouts *l);
/* *any: the kernel reads or writes what is to be moved; one that scatters takes back what it touches. False: env says why. */
bool ki_layouts_touch(ki_layouts *l, ki_ir *ir, kn_uop sink, bool scatters, bool *any);
/* The present step for one kernel, which names buffers. l may be NULL. */
kn_uop ki_layouts_apply(ki_layouts *l, ki_ir *ir, kn_uop sink);

/* loops.c */
kn_uop ki_range_join_loops(ki_ir *ir, kn_uop sink);

/* scan.c */
kn_uop ki_range_scan(ki_ir *ir, kn_uop sink);

/* Elements of a row: below, a loop more costs as much; above, it leaves a core's second-level cache. */
#define KI_LEAST_ROW 32
#define KI_MOST_ROW  (1 << 16)
/* As it is kept: rows of a tile that are pages apart would share the sets of a first-level cache, so a line more lies between them. */
static inline int64_t ki_row_kept(int64_t n) { return n % 1024 ? n : n + 16; }
/* row.c: once the loops are settled. alone: no other kernel joins this one any more (siblings.c joins none that keeps something). Before that
 * only what its loops compute again is kept, not what they might in another order. */
kn_uop ki_range_rows(ki_ir *ir, kn_uop sink, bool alone);

/* scatter.c: a sum gated by an equality of an output's position with data, in loops over range[0..n): the positions a term
 * may go to, where adding each where it belongs is worth it; else 0. */
int64_t ki_range_scatters(ki_ir *ir, kn_uop value, const kn_uop *range, uint32_t n);
/* A nest that stores such a sum: the kernel that adds; *fill: the one to run before it. sink itself and NULL: it is none. */
kn_uop ki_range_scatter(ki_ir *ir, kn_uop sink, kn_uop *fill);

/* facts.c: info of every tensor node, sources first. */
bool ki_range_facts(rangeifier *r);
/* Arithmetic of one element of an elementwise op, in units of an addition, roughly, as vector code. */
float ki_op_cost(kn_uop u);
bool ki_range_folded(rangeifier *r, kn_uop d, kn_uop *out);
/* A movement op of one value: what else it has is its shape. */
bool ki_range_is_view(kn_uop u);
/* A sum of products of which each side is read many times over. */
bool ki_range_is_product(kn_uop u);
/* Whether folding looks through a value: views and arithmetic over comparisons, and REDUCEs known to fold. */
bool ki_range_goes_through(const rangeifier *r, kn_uop v);
/* prepare.c: what the products read that a REDUCE adds up, if its body is a sum of products alone: at most so many. Else 0. An element of
 * a side is in so many products at least. */
enum { KI_MOST_SIDES = 40, KI_SIDE_REUSE = 8 };
uint32_t ki_range_sides(kn_uop u);
/* decide.c: users first; fills nests, outputs and map. */
bool ki_range_decide(rangeifier *r);
kn_uop ki_range_push(rangeifier *r, kn_uop d);
/* Would the nest read too many with the sources of v in place of v? */
bool ki_range_crowds(const rangeifier *r, uint32_t nest, kn_uop v);
/* storage.c: is v stored, all its users having asked for it? *ok: false when out of memory. */
bool ki_range_wants_storage(rangeifier *r, kn_uop v, bool *ok);
/* A product that is computed again, and what follows it, asked for by a nest that has another one: the first time it was not there.
 * Two share no tiles. */
bool ki_range_meets_product(const rangeifier *r, kn_uop v);
/* A REDUCE inlined where it needs fewer ranges than its nest has: those ranges must be the outer ones. */
bool ki_range_place_reduce(rangeifier *r, kn_uop v);
/* Free RANGEs of the index tuple of d, which nest n asks for. Inner demands (an index that was loaded) count through their own tuples. */
typedef struct ranges {
    uint32_t nest;   /* bits: ranges of the nest */
    unsigned reduce; /* ranges of enclosing REDUCEs */
    double count;    /* product of all their extents */
} ranges;
bool ki_range_free(rangeifier *r, const nest *n, kn_uop d, ranges *out);
/* How often a place runs: in a REDUCE's body as often as that, else once for each element of the nest. */
double ki_range_iterations(const rangeifier *r, const nest *n, uint32_t ctx);
/* order.c: the kernels' SINKs, each to be run once. May add some that copy. *out: indices in execution order. */
typedef struct ki_kernels {
    kn_uop *sink;
    uint32_t n, cap, used; /* used: of *out, those that stand for the others too */
    uint32_t *first; /* scratch of order.c */
} ki_kernels;
bool ki_range_order(rangeifier *r, ki_kernels *k, uint32_t **out);
/* What decided, given back once all is: demands, facts. What is left: nests, outputs, map, and what indices become. */
void ki_range_forget(rangeifier *r);
/* siblings.h: what lies between kernels, in order of `before`, k->first: each kernel's first. */
typedef struct ki_edge {
    uint32_t before, after;
} ki_edge;
/* Bytes of memory that an INDEX can name; -1: out of memory. */
int64_t ki_range_touched(ki_ir *ir, kn_uop index);
typedef struct ki_call { /* a kernel on its way to CALL */
    kn_uop sink;         /* with PARAMs, */
    kn_uop whole;        /* and as it was before these became parts of buffers; NULL: they are buffers */
    kn_uop arg[64];      /* buffers, then variables */
    uint32_t nbuffer, narg;
} ki_call;
/* inplace.c: results take the place of what is read there for the last time: *any: kernels are others then, and numbered anew. */
bool ki_range_in_place(rangeifier *r, const ki_call *c, ki_kernels *k, const uint32_t *order, bool *any);
/* slots.c: kernels that differ in where they begin in a buffer become one. */
bool ki_range_slots(rangeifier *r, ki_call *c, uint32_t n);
/* Elements [lo, hi) of each buffer that `sink`, a kernel with c's arguments, touches; lo begins a line. narrow: that is not all. */
typedef struct ki_part {
    int64_t lo, hi;
    bool narrow;
} ki_part;
bool ki_range_parts(ki_ir *ir, const ki_call *c, kn_uop sink, ki_part *part, bool *any);
/* kernels.c: nests to LINEAR(CALL...). Forgets what decided. */
/* What a kernel alone decides. scatter: it may become a loop of additions; *fill: the kernel before it, or NULL. */
kn_uop ki_range_finish(ki_ir *ir, kn_uop sink, bool scatter, ki_layouts *l, kn_uop *fill);
bool ki_range_kernels(rangeifier *r);
/* A RANGE of r's extent. */
kn_uop ki_range_renamed(ki_ir *ir, kn_uop r, uint32_t id, kn_axis axis);

/* written.c: kernels of one store written out without the names of buffers and versions. */
typedef struct ki_naming { /* names by number, from 0 on, in the order they were met */
    uint32_t *number, cap; /* 1 + number, by name; 0: not met */
    uint32_t *name, n;
    size_t name_cap;
} ki_naming;
bool ki_name_number(ki_naming *s, ki_env *env, uint32_t name, uint32_t *number);
void ki_names_forget(ki_naming *s);
void ki_names_free(ki_naming *s);

typedef struct ki_written_kernel {
    size_t at, n; /* its words */
} ki_written_kernel;
typedef struct ki_written_frame { /* a node whose sources are being walked */
    kn_uop u;
    uint32_t next;
} ki_written_frame;
typedef struct ki_forms { /* what is found of nodes, and the walk at hand: one for all who write kernels of a store */
    ki_ir *ir;
    uint8_t *named;           /* by id: written.c; 0: there are no names in it */
    uint32_t *at, known, cap; /* at: by id, 1 + place in the walk at hand */
    uint32_t *form;           /* by id: what is the same in kernels that differ in names alone */
    kn_uop *node;             /* of the kernel at hand, those with names in them, sources first */
    uint32_t n;
    size_t node_cap;
    ki_written_frame *stack;
    size_t stack_cap;
} ki_forms;
void ki_forms_close(ki_forms *f);
typedef struct ki_written {
    ki_forms *forms;
    ki_naming buffer, version; /* names of the kernel at hand, */
    kn_uop *called;            /* and a BUFFER of each, by number */
    size_t called_cap;
    uint64_t *word; /* of kernels that differ, one after the other; from `begun` on the one at hand */
    size_t nword, word_cap, begun;
    ki_written_kernel *kernel;
    ki_slots slots;
    size_t kernel_cap;
} ki_written;
/* Nodes of kernels with names in them: node[0..n). */
bool ki_written_walk(ki_forms *w, const kn_uop *sink, uint32_t n);
/* Walks kernels and writes them (*whole: unless they are large); more words that tell kernels apart; which it is, and whether there was
 * one before. */
bool ki_written_begin(ki_written *w, const kn_uop *sink, uint32_t n, bool *whole);
bool ki_written_put(ki_written *w, uint64_t word);
bool ki_written_find(ki_written *w, uint32_t *kernel, bool *known);
void ki_written_close(ki_written *w);

typedef struct ki_first { /* of kernels that are written alike the first */
    kn_uop done;          /* what it became, under its own names; NULL: nothing */
    uint32_t *name;       /* of its buffers, then of its versions, by number; NULL: it is yet to become something */
    uint32_t nbuffer, nversion, fresh;
    uint32_t twin; /* twins.c: its place among them */
} ki_first;
typedef struct ki_firsts {
    ki_written seen;
    ki_first *first; /* by number of the kernel in `seen` */
    uint32_t nfirst;
    size_t first_cap;
    uint32_t fresh; /* LOCAL buffers of the kernel at hand are named from here on: next_buffer, before it becomes something */
} ki_firsts;
/* BUFFER u under another name. */
bool ki_buffer_called(ki_ir *to, kn_uop u, uint32_t id, kn_arg *arg);
/* Once all is written. */
bool ki_firsts_find(ki_firsts *s, ki_first **first);
/* The kernel at hand is it, and has become `done`. */
bool ki_firsts_note(ki_firsts *s, ki_first *f, kn_uop done);
/* What the first became, under the names of the kernel at hand. */
kn_uop ki_firsts_as(ki_firsts *s, const ki_first *f);
void ki_firsts_close(ki_firsts *s);

/* twins.c: nests that differ in names alone are finished once. */
typedef struct ki_twin {
    kn_uop done;   /* finished, named by numbers */
    ki_wish *wish; /* by number of the buffer, as finishing left them */
} ki_twin;
typedef struct ki_twins {
    ki_ir ir; /* nests named by numbers, and what they became */
    ki_twin *twin;
    uint32_t ntwin, *of, of_cap; /* of: 1 + place among twins, by the nest's id */
    size_t twin_cap;
    ki_firsts firsts;
    ki_naming range;
} ki_twins;
bool ki_twins_open(ki_twins *t, ki_forms *forms);
void ki_twins_close(ki_twins *t);
/* As ki_range_finish of a nest that does not scatter. */
kn_uop ki_twins_finish(ki_twins *t, ki_ir *ir, kn_uop sink, ki_layouts *l);

#endif
