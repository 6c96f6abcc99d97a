/* choose.h: the state of the heuristics. Private to 3_optimize. */
#ifndef KI_CHOOSE_H
#define KI_CHOOSE_H

#include "stages/3_optimize/nest.h"
#include "stages/3_optimize/optimize.h"

#define KI_MOST_RANGES 1024
#define KI_MOST_OPTS   2048 /* of one kernel: beyond, the heuristics contradict themselves and it stays as it is */

typedef struct ki_choice {
    ki_ir *ir;
    const ki_target *target;
    ki_knobs knobs;
    unsigned threads;
    int64_t count;  /* threads chosen, 0: none yet */
    bool even;      /* all get the same */
    bool single;    /* as ki_machine */
    uint32_t steps; /* OptOps so far */
    double alone;   /* less work than this is not worth waking them */
    uint64_t from;  /* bytes of an output that is better written past the caches; 0: none is */
    int64_t ahead;  /* likewise */
    unsigned all;   /* lanes of a vector of the kernel's widest element */
    unsigned lanes; /* of the nest or reduce looked at: what is wide before or behind its sums takes none from them */
    kn_uop sink;
    ki_nest nest;
    bool open, ok;
    struct {
        uint32_t v; /* id + 1 */
        int64_t nv, mu, mw;
        bool cut, parts;
    } tile;                             /* the tile last decided: it stands for what is left after a CUT */
    uint64_t done[KI_MOST_RANGES / 64]; /* by range id */
    uint32_t beside;                    /* id + 1 of a sum's loop whose parts are gone through side by side */
    uint32_t once;                      /* id + 1 of the loop of a heavy sum that others follow seldom (ki_is_seldom) */
    bool paired;                        /* rows go two beside each other (pairs.c) */
    bool parts;                         /* sums of AMX's tiles are kept for many rows (strips.c) */
    bool apart;                         /* rows are read in several places (places.c), a vector of each */
    uint32_t phased;                    /* id + 1 of a loop of the nest whose sums phases.c takes apart */
} ki_choice;

/* A register tile: the reduce has a streamed operand that varies along v (a vector of its elements is what one load
 * brings) and, perhaps, along w, and another one that varies along u. mu * mw * nv accumulators are fed by mu + mw * nv
 * loads. In a dot tile the vector lies along `row`, a loop of the reduce in which both operands are contiguous. */
typedef struct ki_tile {
    kn_uop v, u, w;     /* u NULL: no tile; w NULL: none */
    kn_uop reduce, row; /* row: of a dot tile, else NULL */
    kn_uop streamed;    /* the access */
    kn_uop other;       /* that of the other operand */
    kn_uop
        inner; /* the loop of the reduce that runs under one mask of it (gates.c); NULL: there is no mask, or no such loop */
    kn_uop taps; /* a loop of the reduce that is written out; NULL: none */
    int64_t nv, mu, mw;
    int64_t lanes; /* along v; 1 in a dot tile */
    int64_t step;  /* nv * lanes; without a tile what the nest's vector takes in one go, 0: no vectors */
    bool pack;     /* stage `streamed` */
    bool cut;      /* what step does not divide of v is cut off, where else it would be padded */
    bool turned;   /* v is not the loop along which the nest stores */
    bool frames;   /* `other` is framed (FRAME's top) */
    bool first;    /* `streamed` is packed before all loops */
    bool outside;  /* v goes around all loops: each panel is packed once */
    bool whole;    /* `streamed` is packed once, outside u, which is around v */
    bool parts;    /* v is in nv parts, and what stands beside each other is one of each */
} ki_tile;

bool ki_choice_look(ki_choice *c, kn_uop sink);
/* Applies one OptOp; the nest is another one afterwards. */
bool ki_choice_do(ki_choice *c, ki_optop op, kn_axis target, bool top, uint32_t axis, int64_t arg);
/* Splits lanes off ranges, one after the other, all looked at once: n of them, 0: none. */
typedef struct ki_part {
    kn_axis to;
    uint32_t axis;
    int64_t n;
} ki_part;
bool ki_choice_split(ki_choice *c, const ki_part *part, uint32_t n);
#define KI_CHOICE_SPLIT(c, ...)                                                                                        \
    ki_choice_split(c, (const ki_part[]){__VA_ARGS__}, sizeof((ki_part[]){__VA_ARGS__}) / sizeof(ki_part))
/* Makes r's extent a multiple of f by CUT; true if a step was made. */
bool ki_choice_even(ki_choice *c, kn_uop r, int64_t f);
void ki_choice_mark(ki_choice *c, kn_uop closer);
/* Lanes of a vector of the widest element that is computed on: in a reduce's loops, or, given NULL, anywhere. */
unsigned ki_choice_lanes(const ki_choice *c, kn_uop reduce);

/* choose.c */
void ki_choose_nest(ki_choice *c, kn_uop end);
void ki_choose_reduce(ki_choice *c, kn_uop reduce);
/* The first store to memory in a nest's body; NULL if other nests stand there. */
kn_uop ki_nest_store(kn_uop end);
/* Does a vector's mask cost nothing? */
bool ki_masks_are_free(const ki_choice *c);
/* Does a line take two vectors, as with AVX2? */
static inline bool ki_is_narrow(const ki_choice *c) { return c->target->vector < c->target->line; }
/* Does the hardware fetch ahead for several places faster than for one (places.c)? */
static inline bool ki_likes_places(const ki_choice *c) { return ki_is_narrow(c) || c->target->streams > 1; }
/* Lanes of a vector along an extent: a full one, or for a short extent its own size or the power of two above; 0: too
 * short. */
int64_t ki_lanes_for(const ki_choice *c, int64_t n);
#define KI_PLACES 4 /* far apart, that are read one beside the other */
/* How many vectors of r are unrolled when the body weighs so much: 4, 2 or 1, for weight 0 half of the registers; 0: r is not worth vectors. */
int64_t ki_unroll(const ki_choice *c, kn_uop r, unsigned weight);
/* Makes r's extent divide by vectors, and by `vectors` of them when it is long: a short one is padded (masks), of a long
 * one the remainder is cut off. True if a step was made. */
bool ki_choice_fit(ki_choice *c, kn_uop r, int64_t vectors);
#define KI_SHORT       8 /* vectors: below this a range is padded, not cut */
#define KI_LEAST_TILES 6 /* that go through a panel which is packed though it could be read in place */
/* A nest whose reduces read rows: they are vectorised along the row, not across rows, along v. */
bool ki_sums_rows(const ki_choice *c, kn_uop end, kn_uop v);
/* A loop in which an operand is contiguous that is not in v, the vector's: NULL if all is well. */
kn_uop ki_crossing(const ki_choice *c, kn_uop end, kn_uop v);
/* tile.c: lanes of a vector in this nest: those of its sums, if they are long, else the kernel's. */
unsigned ki_nest_lanes(const ki_choice *c, kn_uop end);
/* How many sums, each of what it reads along v alone, a light nest is made of; 0: of something else. Wide strips, for the memory's
 * sake. */
int ki_sums_columns(const ki_nest *k, kn_uop end, kn_uop v);
/* Of a sum, in words if it is of such; 64 for a loop of unknown length. */
int64_t ki_terms(kn_uop reduce);
/* Of the nest's loops but v the longest (or, given u, the innermost but u) that `has` uses and `lacks` does not; of two that are equally
 * long the older, wherever it stands: a SWAP must not change what is chosen. */
kn_uop ki_apart(const ki_nest *k, kn_uop end, kn_uop has, kn_uop lacks, kn_uop v, kn_uop u);
/* v and step are set for any nest that has a contiguous store. */
void ki_find_tile(ki_choice *c, kn_uop end, ki_tile *t);
/* tiled.c */
bool ki_apply_tile(ki_choice *c, kn_uop end, const ki_tile *t);
/* windows.c: the tile of a convolution whose filters are few beside its positions, instead of *t; false: it is none. */
bool ki_tile_windows(ki_choice *c, kn_uop end, ki_tile *t);
/* Is operand a, vectors of which go along v, with rows u of the other, the same for all rounds of a loop outside, and worth packing once for all
 * of them? So are the filters of a convolution whose image and results have channels innermost. */
bool ki_packs_once(const ki_choice *c, kn_uop end, kn_uop sum, kn_uop a, kn_uop v, kn_uop u);
/* Where such panels are packed, by their bytes. */
void ki_place_panels(const ki_choice *c, ki_tile *t);
/* Does the nest read something else at each of its results, places of both loops? */
bool ki_reads_results(const ki_nest *k, kn_uop end, kn_uop sum, kn_uop filters, kn_uop columns);
/* pack.c: the operand in this slot is copied before u (id), the innermost loop, and before all loops around that it does not vary in; in rows: as
 * each sum reads it. */
bool ki_pack_before(ki_choice *c, uint32_t u, int32_t slot, bool in_rows);
/* filled.c: a row of sums of products that the kernel keeps, v along it. True if steps were made. */
bool ki_choose_filled(ki_choice *c, kn_uop e, kn_uop v);
/* column.c: a matrix times a few vectors that lie apart in memory; v: along which the nest stores. True if steps were made. */
#define KI_FEW_COLUMNS 4
bool ki_choose_column(ki_choice *c, kn_uop e, kn_uop v);
/* gates.c: the loop of the reduce that may run innermost because no condition of the access depends on it, NULL if there is
 * none. The next step towards that: true if one was made. */
kn_uop ki_ungated(const ki_nest *k, kn_uop reduce, kn_uop access);
bool ki_lift_gate(ki_choice *c, kn_uop reduce, kn_uop inner);
/* Joins v, along which the nest stores, with the loop whose steps are rows of v, where that fills vectors better. True if a step
 * was made. */
bool ki_join_rows(ki_choice *c, kn_uop e, kn_uop v);
/* Joins this loop of a sum with the one around it, if what is read follows each other along both. True if a step was made. */
bool ki_join_sums(ki_choice *c, uint32_t id);
/* In how many parts of *rows, inside *before (NULL: outside all loops), may windows of the access be framed, single elements along v too (FRAME's
 * top)? 0: they may not. The next step towards that: true if one was made. */
int64_t ki_frame_parts(const ki_nest *k, kn_uop e, kn_uop access, kn_uop v, kn_uop *rows, kn_uop *before);
bool ki_frame_all(ki_choice *c, kn_uop e, kn_uop access, kn_uop v);
/* stream.c: outputs of at least c->from bytes that are better written past the caches. */
void ki_choose_streams(ki_choice *c);
/* Is what the tile's nest stores so large? Under a mask it is not written past them. */
bool ki_goes_past(const ki_choice *c, const ki_tile *t);
/* Results of a short sum, which wait for memory on their way past the caches, and what is added to them, which comes from there: are they better
 * stored along rows, as both lie? What the tile streams is read again for each few rows, so the second-level cache is to keep it. */
bool ki_stores_by_rows(const ki_choice *c, kn_uop end, const ki_tile *t);
/* A sum's loop reads one value up to a place, and another one from there on: it is cut there. True if a step was made. */
bool ki_cut_sums(ki_choice *c);
/* Does a condition of a choice that has a sum in it hang on u? NULL: is there such a choice? */
bool ki_chooses_sum(const ki_nest *k, kn_uop u);
/* phases.c: what remainders decide is taken apart; true if a step was made. */
bool ki_choose_phases(ki_choice *c, kn_uop end);
/* spread.c: places that share a sum beside each other; true if a step was made. */
bool ki_choose_spread(ki_choice *c, kn_uop end);
/* scan.c: running sums along what a nest stores; true if a step was made. */
bool ki_choose_scan(ki_choice *c, kn_uop end);
/* first.c: the largest of a row and where it is in one pass; true if a step was made. */
bool ki_choose_first(ki_choice *c, kn_uop place);
/* rows.c: sums down columns that go row by row instead, v the place within a row; true if a step was made. */
bool ki_choose_rows(ki_choice *c, kn_uop end, kn_uop v);
bool ki_choice_rows(ki_choice *c, kn_uop r, kn_uop v, int64_t rows, bool contract);
bool ki_reads_written(const ki_nest *k, kn_uop u); /* what the kernel writes */
#define KI_MOST_KEPT (1 << 18) /* bytes of sums that are kept: they are read and written once for so many rows */
/* terms.c: the innermost loops of long sums of tiles, in a few terms. */
void ki_choose_terms(ki_choice *c);
/* parts.c: a product that both operands lie along is added up part by part; few: it has lanes, too few. True if steps were made. */
bool ki_choose_parts(ki_choice *c, kn_uop end, bool few);
/* A nest that does so: an outer loop of it carries what the columns have summed up, or all of it is one sum. */
bool ki_keeps_sums(const ki_choice *c, kn_uop end);
/* strips.c: a turned tile's nest by strips, whose results are kept and then stored. True if steps were made. */
bool ki_choose_strips(ki_choice *c, kn_uop end, const ki_tile *t);
/* Does such a tile's nest go by strips? Where vectors are narrow it is turned only then. */
bool ki_goes_in_strips(const ki_choice *c, kn_uop end, const ki_tile *turned);
/* Is it a tile of a few rows, however threads share them, by a matrix that no second-level cache holds? */
bool ki_is_few(const ki_choice *c, const ki_tile *t);
/* ends.c: what follows a tile's sums in a loop of its own. True if steps were made. */
bool ki_choose_end(ki_choice *c, kn_uop end, const ki_tile *t);
/* What is done at each place of v beside the sum, whether it needs that or not, in additions. */
unsigned ki_work_beside(const ki_nest *k, kn_uop end, kn_uop sum, kn_uop v);
/* late.c: a row's result that is better stored while the next row is worked on. */
void ki_choose_late(ki_choice *c);
/* pipelined.c: a row's maximum that is better found while the row before is worked on, and what that adds to the weight of loop r. */
void ki_choose_pipeline(ki_choice *c);
/* Rows that are gone through once, and those better gone through in parts. Asked before there are threads, so that no sum's order depends on them. */
void ki_find_long_rows(ki_choice *c);
unsigned ki_weight_ahead(const ki_nest *k, kn_uop r);
/* places.c: rows for their sums alone are read in several places. Before threads share them. */
void ki_choose_apart(ki_choice *c);
/* In how many places e goes along v, in each *unroll vectors of so many lanes at a time; 1: as it lies. */
int64_t ki_places_along(const ki_choice *c, kn_uop e, kn_uop v, int64_t lanes, int64_t *unroll);
/* pairs.c: rows that are gone through several times go in pairs. */
void ki_choose_pairs(ki_choice *c);
/* Is a PARAM so large that it is better written past the caches? */
static inline bool ki_is_past(const ki_choice *c, kn_uop param) {
    return c->from && (uint64_t)ki_numel(param) * ki_itemsize((kn_dtype)param->dtype) >= c->from;
}
/* choose.c: the one access that reads along r; NULL: none, or several do. */
kn_uop ki_only_read(const ki_nest *k, kn_uop r);
/* prefetch.c: is what is asked for lost, as it seems, behind stores of wide vectors past the caches? */
bool ki_waits_behind_stores(const ki_choice *c);
/* Inputs of as many bytes that are better asked for ahead. */
void ki_choose_prefetches(ki_choice *c);
/* asked.c: does the loop ask for what is in this slot? */
enum { KI_ANY_LOOP = -1, KI_LEAST_AHEAD = 64, KI_MOST_AHEAD = 1 << 24 /* bytes */ };
bool ki_is_asked_for(const ki_nest *k, int32_t slot, int32_t loop);
/* May it ask so many bytes ahead? */
bool ki_is_distance(int64_t bytes);
/* led.c: the loop that reads, element by element, where an access goes; NULL: there is none. */
kn_uop ki_led_by(const ki_nest *k, kn_uop access);
/* Large inputs of which numbers from memory say what is read. */
void ki_choose_led(ki_choice *c);
/* rotate.c: last, as rotated loops go along nothing any more. */
void ki_choose_rotations(ki_choice *c);

#endif
