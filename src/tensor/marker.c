/* marker.c: casts, copies and the marks that steer gradient and memory. */
#include "tensor/build.h"

#include <string.h>

kn_tensor kn_cast(kn_tensor t, kn_dtype dtype) {
    ENTER("cast", t);
    if ((unsigned)dtype >= KI_DTYPE_COUNT || dtype == KN_VOID)
        return FAIL(KI_E_DTYPE_GIVEN, "cast", kn_dtype_name(dtype), "a dtype of a value"), ki_handle(k, NULL);
    if (t->weak == KI_WEAK_FLOAT && ki_is_float(dtype)) return ki_handle(k, ki_const_float(&k->ir, dtype, t->lit.f));
    return ki_handle(k, ki_t_cast(k, t->u, dtype));
}

kn_tensor kn_bitcast(kn_tensor t, kn_dtype dtype) {
    ENTER("bitcast", t);
    if ((unsigned)dtype >= KI_DTYPE_COUNT || dtype == KN_VOID || dtype == KN_IDX || t->u->dtype == KN_IDX)
        return FAIL(KI_E_DTYPE_GIVEN, "bitcast", kn_dtype_name(dtype), "a dtype that data can have"),
               ki_handle(k, NULL);
    return ki_handle(k, ki_bitcast(&k->ir, t->u, dtype));
}

static kn_tensor mark(kn_tensor t, kn_op op, const char *fn) {
    ENTER(fn, t);
    return ki_handle(k, ki_op1(&k->ir, op, t->u));
}
kn_tensor kn_contiguous(kn_tensor t) { return mark(t, KN_CONTIGUOUS, "contiguous"); }
kn_tensor kn_contiguous_backward(kn_tensor t) { return mark(t, KN_CONTIGUOUS_BACKWARD, "contiguous_backward"); }
kn_tensor kn_detach(kn_tensor t) { return mark(t, KN_DETACH, "detach"); }

kn_tensor kn_copy_to(kn_tensor t, const char *device) {
    ENTER("copy_to", t);
    ki_load to;
    memset(&to, 0, sizeof to);
    if (!device || !*device) return FAIL(KI_E_DEVICE_NAME), ki_handle(k, NULL);
    to.device = (uint16_t)ki_device_id(&k->env, device);
    to.addrspace = KN_GLOBAL;
    if (to.device == t->u->type->device) return ki_handle(k, t->u);
    const void *arg = ki_intern(&k->ir, &to, sizeof to);
    return ki_handle(k, arg ? ki_make(&k->ir, KN_LOAD, KN_VOID, &t->u, 1, (kn_arg){.p = arg}, 0) : NULL);
}
