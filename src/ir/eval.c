/* eval.c: the interpreter's entry: which half of it a program's root asks for. */
#include "ir/eval_impl.h"

int ki_eval(const ki_program *p, const void *const *in, void *const *out, const ki_eval_opts *o) {
    switch ((kn_op)p->root->op) {
    case KN_LINEAR:
    case KN_CALL: return ki_eval_launches(p, in, out, o);
    default: return ki_eval_tensor(p, in, out, o);
    }
}
