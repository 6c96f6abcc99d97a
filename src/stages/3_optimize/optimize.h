/* optimize.h: stage 3, a kernel's ranges are typed, split, reordered, cut; local buffers are put in. What is done is a list
 * of OptOps, data that stands in the kernel info and can be printed, stored and applied again.
 *
 *   SPLIT axis k target top?  n = (n/k, k), or (k, n/k) if top; the new part has id `id` and the target's type, the rest keeps
 *                             axis's id and type. Target as in the specification's table, or axis's own type. A LOOP that is
 *                             independent counts as g. `id` of a THREAD range that the kernel has already: the same threads.
 *                             k must divide n, but for THREAD: there the last part is shorter, axis's bound min(q, n - t q); and for lanes of a loop
 *                             whose iterations may be done twice: there the last part begins earlier, min(k axis, n - k), and ends with n
 *   PADTO axis m              the extent becomes the next multiple of m; what lies beyond is not accessed and not reduced
 *   SWAP axis other           exchanges two loops of one nest
 *   JOIN axis other           two loops of one nest become one, `axis`, which counts axis * (other's extent) + other: a row of both
 *                             where memory is indexed so; elsewhere the two are its quotient and its remainder
 *   CUT axis at               [0, at) and [at, n) become two loops, with what stands inside; the second one's ranges
 *                             have the ids id, id + 1, ... in order of the ids they are copies of
 *   STAGE axis slot top?      what the loops inside `axis` read of PARAM `slot`, of several reads that which the innermost of them leaves where it is, is copied to LOCAL buffer `id` before them
 *                             (axis -1: outside all loops of the nest; a loop of a sum of tiles: outside all loops, what that sum reads); copied ranges have ids from the kernel's next on; top:
 *                             what each sum reads lies in a row
 *   DEAL axis slot            what the loops inside `axis` read of PARAM `slot` is copied to LOCAL buffer `id` as it lies there, whole, but that where
 *                             a loop goes along it in steps of k, and one of a sum by single ones, every k-th row or element lies together;
 *                             copied ranges have ids from the kernel's next on
 *   FRAME axis slot           what the loops inside `axis` read of PARAM `slot` as windows is copied to LOCAL buffer `id` with zeros where it must not be
 *                             read: of a loop and one of a sum that go along the same rows there is one place for both, s places of steps; else as
 *                             STAGE copies
 *   STREAM slot               what is written to PARAM `slot` goes past the caches; it must not be read in the kernel
 *   PREFETCH axis bytes top?  the loop asks the caches for what stands so far ahead of what it, no loop inside it, reads or writes of
 *                             PARAM `id`, or writes to the LOCAL buffer -1 - id; top: all but the first cache. Of loops that ask for the same each asks for every so many-th line;
 *                             one that is given it several times asks as often for each. n up to 32 (KI_MOST_LED): for what a number that the
 *                             loop reads element by element leads to n iterations later.
 *                             A sum's loop that goes along one line element by element asks once, before it begins; one that goes along rows
 *                             which its lanes lie in asks for them row by row, in each iteration for as many lines; one that goes along rows in
 *                             steps of less than a line, and the loops around it through the same lines again (a window), in each of their
 *                             iterations for some of the rows, step by step
 *   SCAN axis n               the loop carries a running sum: n elements of it at a time, as lanes `id`; what it adds up over is the next id
 *   ROWS axis other n top?    the sum over this loop, or the sum it carries (n is 1), goes row by row: loops from `other` on run inside it, what
 *                             they have summed up stands in a LOCAL buffer; n (`id`) rows at a time, fewer than there are; top: products are added in one step.
 *                             Of a sum with other loops (n is 1) these stay a sum inside; top: the first row is stored, the last one added where the
 *                             result goes, and the loops inside may be lanes. What is copied has ids from the kernel's next on
 *   LATE axis                 of a row that is kept, summed up and then stored: it is stored while the next row is kept, the last one at the end.
 *                             axis is the loop over rows; what is copied has ids from the kernel's next on
 *   PIPELINE axis             of rows with a maximum, which a sum of the row needs, or what is kept of it: the next row's is found in this row's loop of
 *                             that, the first one's before. axis is the loop over rows
 *   ROTATE axis n             each lane of the lane `id` of the same nest goes through the loop from n iterations further on than the one before it, and
 *                             then through those it has left out
 *   FIRST axis n              the loop looks for the first place of what is the maximum over another one: the two are one loop, which takes n
 *                             elements at a time, as lanes, which have the ids `id` and the next three
 *   TERMS axis                the innermost loop of a sum is written out, its terms added one after the other, as the loop does. It changes no node:
 *                             stage 4 does so, if the loop is still the innermost
 *   NOLOCALS                  no LOCAL, GROUP or STAGE after this
 *   TC axis row top?          the sum over this loop goes by dot products of words of neighbours, row of the table in dots.c; top: the
 *                             product's factors change places. Words of tiles may be more than the sum has: they are not read, and are zeros
 * Where n is known at launch alone, CUT cuts at the largest multiple of `at` in it; SPLIT divides what CUT has left so; PADTO makes m of what is no more.
 * What the bounds of a part decide, of a CUT or of a SPLIT into the axis's own type, is decided: comparisons, quotients, what hangs on them.
 * id -1: the kernel's next free id is taken, and recorded. Every illegal op is refused with what is wrong with it. */
#ifndef KI_OPTIMIZE_H
#define KI_OPTIMIZE_H

#include "ir/uop.h"
#include "stages/target.h"

/* Heuristics for this target and this machine. A kernel that has OptOps already only gets the end of the
 * stage; one that is marked optimized is left as it is. NULL: env says why. */
kn_uop ki_optimize(ki_ir *ir, const ki_target *t, const ki_machine *m, kn_uop sink);
/* One OptOp; appended to the kernel info. NULL: env says why. */
kn_uop ki_apply_opt(ki_ir *ir, kn_uop sink, ki_opt opt);
/* Several, then what ki_optimize does at the end (threads outermost and counted). */
kn_uop ki_apply_opts(ki_ir *ir, kn_uop sink, const ki_opt *opt, uint32_t n);

#endif
