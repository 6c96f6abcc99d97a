/* agree.c: two runs of a program compared, element by element, within the interpreter's bounds. */
#include "ir/agree.h"

#include "ir/eval_apply.h"
#include "ir/scalar.h"

#include <math.h>

static bool element_agrees(kn_dtype t, uint64_t got, uint64_t want, double e, int slack, double *worst) {
    if (got == want) return true;
    if (!ki_is_float(t)) return false;
    double g = ki_f64_from_bits(t, got), w = ki_f64_from_bits(t, want);
    if (isnan(g) || isnan(w)) return isnan(g) && isnan(w);
    if (e == KI_ROUNDED && slack > 0) e = slack * ki_ulp(t, w);
    if (ki_certain(e) || !isfinite(g) || !isfinite(w)) return false;
    double d = fabs(g - w);
    if (d > e) return false;
    if (d / e > *worst) *worst = d / e;
    return true;
}

bool ki_agree(kn_dtype t, int64_t n, const void *got, const void *want, const double *bound, int slack,
              ki_agreement *r) {
    *r = (ki_agreement){.n = n, .first = -1};
    for (int64_t i = 0; i < n; i++) {
        double e = bound ? bound[i] : 0;
        uint64_t g = ki_storage_get(t, got, i), w = ki_storage_get(t, want, i);
        if (e == INFINITY) {
            r->exempt++;
        } else if (!element_agrees(t, g, w, e, slack, &r->worst)) {
            if (!r->wrong++) {
                r->first = i;
                r->got = ki_f64_from_bits(t, g);
                r->want = ki_f64_from_bits(t, w);
                r->bound = e;
            }
        }
    }
    r->ok = r->wrong == 0 && r->exempt * 100 <= n;
    return r->ok;
}
