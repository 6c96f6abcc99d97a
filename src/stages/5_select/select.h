/* select.h: stage 5, from lane axes to what the target's registers and instructions hold.
 *
 * In:  a kernel of stage expand: shaped values with one axis a lane axis, LOADs and STOREs with linear indices.
 * Out: every value is () or (n,) with n a power of two that fits the target's vectors; REDUCE is gone; THREAD ranges are
 *      SPECIAL "thread"; no arithmetic of dtype index is left but RANGE bounds; ops the target lacks are decomposed.
 *
 * Native targets (native.spec.kr is the law): scalars of dtype index and truths about them stay, they are general registers;
 * every op on data is an INS of a row of stages/x86, its sources in the row's order (d a b c i k), an immediate as a
 * constant of i32. A () source of a vector is broadcast; a row that works bit by bit has lanes of any width, so that its
 * memory operand is broadcast only where the widths agree. Beside INS: CONST, LOAD, STORE, INDEX (address; lanes at constant
 * places), STACK, BITCAST of equal width and CAST index -> i32, i64 or word -> index (a transfer).
 * Truths of data: masks with AVX-512. Below it `m < 0`, m of signed lanes, is left as a gate of LOAD and STORE alone; and these
 * casts, which no row says: word to word of half the width (SSE2: of double, too), load of bool -> i8 and u8 of 0 and 1 -> bool
 * (no code), truth -> index (no code).
 * A value of data fits a vector register, whatever the rules made on the way.
 *
 * The order there: decompose, rare and lack first, so that lanes are cut for the widest of what they make; chains; devectorize; words; lower_index; lack
 * again for what those two made; then one rewrite with the sets of the level: select_<level>, by hand (select_x86.kr), then
 * x86_<level>, made from the table by tools/selgen.c. */
#ifndef KI_SELECT_H
#define KI_SELECT_H

#include "stages/target.h"

kn_uop ki_select(ki_ir *ir, const ki_target *t, kn_uop sink);

#define KI_NEAR 1048576 /* what is less f32 divides exactly, rounding down: idiv_near, mod_near of lack_x86.kr */
/* An index divided within it: 32 bits of a lane do. */
static inline bool ki_divides_near(kn_uop u) {
    return (u->op == KN_IDIV || u->op == KN_MOD) && u->src[0]->lo.i >= 0 && u->src[0]->hi.i < KI_NEAR &&
           u->src[1]->op == KN_CONST && u->src[1]->arg.i > 0 && u->src[1]->arg.i < KI_NEAR;
}

/* The steps, in order. */
kn_uop ki_devectorize(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_decompose(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_tile_sums(ki_ir *ir, const ki_target *t, kn_uop sink); /* native targets; tiles.c */
kn_uop ki_read_words(ki_ir *ir, const ki_target *t, kn_uop sink); /* native targets; words.c */
kn_uop ki_branch_rare(ki_ir *ir, const ki_target *t, kn_uop sink); /* native targets; rare.c */
kn_uop ki_cut_chains(ki_ir *ir, const ki_target *t, kn_uop sink); /* native targets; chains.c */
kn_uop ki_lower_index(ki_ir *ir, const ki_target *t, kn_uop sink);
kn_uop ki_lack(ki_ir *ir, unsigned level, kn_uop sink); /* native targets; level: ki_cpu_level */
kn_uop ki_masks_as_signs(ki_ir *ir, kn_uop sink); /* native targets below AVX-512 */
kn_uop ki_select_x86(ki_ir *ir, const ki_target *t, kn_uop sink); /* native targets */

#endif
