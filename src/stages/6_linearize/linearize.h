/* linearize.h: stage 6, a kernel's DAG becomes one list of instructions.
 *
 * In:  SINK(effects...) whose nodes obey the scope rule: the free RANGEs of a node are its sources', less those an END
 *      closes. Works on any form from *expand* on.
 * Out: SINK(LINEAR(instructions...)); every instruction's sources stand before it, a RANGE opens a loop, an END closes its
 *      ranges, the innermost first. */
#ifndef KI_LINEARIZE_H
#define KI_LINEARIZE_H

#include "ir/uop.h"

kn_uop ki_linearize(ki_ir *ir, kn_uop sink);

#endif
