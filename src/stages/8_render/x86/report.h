/* report.h: what a listing says beside the instructions: what each item of the list came from, which virtual registers an instruction
 * reads and writes, what goes to memory and comes back; and the sums of it. Private to 8_render/x86; nothing of it runs without a
 * listing. */
#ifndef KI_X86_REPORT_H
#define KI_X86_REPORT_H

#include "stages/8_render/x86/mir.h"
#include "stages/8_render/x86/native.h"

typedef enum ki_traffic { KI_SPILL, KI_RELOAD, KI_AGAIN } ki_traffic; /* written, read, a constant loaded again */

/* Before the first instruction of an item. */
void ki_report_item(const ki_mir *m, ki_asm *a, const ki_mins *i);
/* For the next line: the registers of i by their virtual names. */
void ki_report_operands(const ki_mir *m, ki_asm *a, const ki_mins *i);
/* For the next line, and counted: v of instruction i is in memory; in place: the instruction itself reads or writes it there. */
void ki_report_traffic(const ki_mir *m, ki_asm *a, const ki_mins *i, const ki_vinfo *v, ki_traffic what, bool in_place);
/* What is known once all registers are given. */
void ki_report_registers(const ki_mir *m, ki_x86_counts *c);

#endif
