/* lack.c: ops on data that the instructions of a level lack, written in ops they have, by the rules of lack_x86.kr. For native
 * targets, after lower_index (which makes data of index arithmetic) and before instructions are chosen. */
#include "stages/5_select/select.h"

#include "base/cpuid.h"
#include "rules/rules.h"

#include "rules.h"

kn_uop ki_lack(ki_ir *ir, unsigned level, kn_uop sink) {
    static const ki_ruleset *const sse2[] = {&ki_rules_lack_max, &ki_rules_lack_sse2, &ki_rules_lack_narrow,
                                             &ki_rules_lack_half, &ki_rules_lack},
                                   *const avx2[] = {&ki_rules_lack_max, &ki_rules_lack_avx2, &ki_rules_lack_narrow,
                                                    &ki_rules_lack_half, &ki_rules_lack},
                                   *const avx512[] = {&ki_rules_lack_max, &ki_rules_lack_avx512, &ki_rules_lack_half,
                                                      &ki_rules_lack},
                                   *const fp16[] = {&ki_rules_lack_max, &ki_rules_lack_fp16, &ki_rules_lack_avx512,
                                                    &ki_rules_lack};
    ki_rewrite_opts o = {.sets = sse2, .nsets = 5};
    if (level == KI_CPU_AVX2_LEVEL) o.sets = avx2;
    if (level >= KI_CPU_AVX512_LEVEL)
        o = (ki_rewrite_opts){.sets = level < KI_CPU_FP16_LEVEL ? avx512 : fp16, .nsets = 4};
    return sink ? ki_rewrite(ir, sink, &o) : NULL;
}
