/* lack.c: ops on data that the instructions of a level lack, written in ops they have, by the rules of lack_x86.kr. For native
 * targets, after lower_index (which makes data of index arithmetic) and before instructions are chosen. */
#include "stages/5_select/select.h"

#include "base/cpuid.h"
#include "rules/rules.h"

#include "rules.h"

#include <string.h>

enum { MOST_COMPARED = 16, ORDERED = 7, GREATER = 5 };

static bool is_ins(kn_uop u, const char *f32, const char *f64, int64_t imm) {
    bool ok = u->op == KN_INS && u->nsrc >= 3 && ki_is_const(u->src[2]) && u->src[2]->arg.i == imm;
    return ok && (strcmp(u->arg.str->s, f32) == 0 || strcmp(u->arg.str->s, f64) == 0);
}

/* (k, x): is x the greatest, as vrangeps finds it, of values of which k says that none is NaN? (a, x, b): of a and b. */
bool ki_is_greatest(ki_match *m, const ki_val *v, unsigned n, ki_val *out) {
    kn_uop of[MOST_COMPARED], todo[MOST_COMPARED + 1];
    uint32_t count = 0, left = 0;
    bool ok = true;
    (void)m;
    if (n > 2) of[count++] = v[0].node, of[count++] = v[2].node;
    else todo[left++] = v[0].node;
    while (ok && left) {
        kn_uop k = todo[--left];
        bool both = k->op == KN_AND;
        ok = (both || is_ins(k, "VCMPPS_K", "VCMPPD_K", ORDERED)) && left + 2 <= MOST_COMPARED &&
             count + 2 <= MOST_COMPARED;
        for (uint32_t i = 0; i < 2 && ok; i++) *(both ? &todo[left++] : &of[count++]) = k->src[i];
        if (ok && !both && k->nsrc > 3) todo[left++] = k->src[3];
    }
    left = 0;
    for (todo[left++] = v[1].node; ok && left;) {
        kn_uop u = todo[--left];
        bool is = false;
        for (uint32_t i = 0; i < count; i++) is |= of[i] == u;
        if (is) continue;
        ok = is_ins(u, "VRANGEPS", "VRANGEPD", GREATER) && left + 2 <= MOST_COMPARED;
        for (uint32_t i = 0; i < 2 && ok; i++) todo[left++] = u->src[i];
    }
    *out = (ki_val){.kind = KI_V_BOOL, .i = ok};
    return true;
}

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
