/* eval_view.c: movement ops as maps of linear indices. Written from the definitions in ops.def; the compiler's own
 * index arithmetic is not used, so that the two can be compared. */
#include "ir/eval_impl.h"

#include <string.h>

bool ki_is_view(kn_op op) {
    switch (op) {
    case KN_PERMUTE:
    case KN_FLIP:
    case KN_RESHAPE:
    case KN_EXPAND:
    case KN_PAD:
    case KN_SHRINK:
    case KN_REPLICATED:
    case KN_CONTIGUOUS:
    case KN_CONTIGUOUS_BACKWARD:
    case KN_DETACH:
    case KN_REMAT: return true;
    default: return false;
    }
}

/* Drops axes of size 1 and merges an axis into the one before it where the two are one contiguous walk. */
static void simplify(ki_view *v) {
    unsigned r = 0;
    for (unsigned k = 0; k < v->rank; k++) {
        bool open = v->lo[k] > 0 || v->hi[k] < v->dim[k];
        if (v->dim[k] == 1 && !open) continue;
        if (r && !open && v->lo[r - 1] == 0 && v->hi[r - 1] >= v->dim[r - 1] &&
            v->stride[r - 1] == v->stride[k] * v->dim[k]) {
            v->dim[r - 1] *= v->dim[k];
            v->stride[r - 1] = v->stride[k];
            v->hi[r - 1] = v->dim[r - 1];
            continue;
        }
        v->dim[r] = v->dim[k], v->stride[r] = v->stride[k], v->lo[r] = v->lo[k], v->hi[r] = v->hi[k];
        r++;
    }
    v->rank = r;
    v->padded = false;
    for (unsigned k = 0; k < r; k++) v->padded |= v->lo[k] > 0 || v->hi[k] < v->dim[k];
    v->identity = !v->padded && v->base == 0 && (r == 0 || (r == 1 && v->stride[0] == 1));
}

static void strides_of(unsigned rank, const int64_t *dim, int64_t *stride) {
    int64_t s = 1;
    for (unsigned k = rank; k-- > 0;) {
        stride[k] = s;
        s *= dim[k];
    }
}

void ki_view_broadcast(ki_view *v, unsigned rank, const int64_t *in, const int64_t *out) {
    v->rank = rank;
    v->base = 0;
    strides_of(rank, in, v->stride);
    for (unsigned k = 0; k < rank; k++) {
        v->dim[k] = out[k], v->lo[k] = 0, v->hi[k] = out[k];
        if (in[k] == 1) v->stride[k] = 0;
    }
    simplify(v);
}

void ki_view_make(ki_view *v, kn_uop u, const int64_t *in, const int64_t *out, const int64_t *off) {
    unsigned rank = u->type->rank;
    int64_t stride[KI_MAX_RANK];
    strides_of(u->src[0]->type->rank, in, stride);
    v->rank = rank;
    v->base = 0;
    v->identity = false;
    for (unsigned k = 0; k < rank; k++) v->dim[k] = out[k], v->stride[k] = stride[k], v->lo[k] = 0, v->hi[k] = out[k];
    switch ((kn_op)u->op) {
    case KN_PERMUTE:
        for (unsigned k = 0; k < rank; k++) v->stride[k] = stride[u->arg.ints->v[k]];
        break;
    case KN_FLIP:
        for (uint32_t i = 0; u->arg.ints && i < u->arg.ints->n; i++) {
            int64_t k = u->arg.ints->v[i];
            v->base += (out[k] - 1) * stride[k];
            v->stride[k] = -stride[k];
        }
        break;
    case KN_EXPAND: ki_view_broadcast(v, rank, in, out); return;
    case KN_PAD:
        for (unsigned k = 0; k < rank; k++) {
            v->base -= off[k] * stride[k];
            v->lo[k] = off[k], v->hi[k] = off[k] + in[k];
        }
        break;
    case KN_SHRINK:
        for (unsigned k = 0; k < rank; k++) v->base += off[k] * stride[k];
        break;
    case KN_REPLICATED: break; /* the replicated axes have size 1 now */
    default:                   /* RESHAPE and the markers keep the order of elements */
        v->rank = 0;
        v->padded = false;
        v->identity = true;
        return;
    }
    simplify(v);
}

static inline int64_t map_one(const ki_view *v, int64_t i, bool *inside) {
    int64_t to = v->base;
    *inside = true;
    for (unsigned k = v->rank; k-- > 0;) {
        int64_t c = i % v->dim[k];
        i /= v->dim[k];
        to += c * v->stride[k];
        if (c < v->lo[k] || c >= v->hi[k]) *inside = false;
    }
    return to;
}

/* Consecutive results: the innermost axis is walked without division. */
static void map_run(const ki_view *v, int64_t start, size_t n, int64_t *to, uint8_t *mask) {
    unsigned last = v->rank - 1;
    for (size_t i = 0; i < n;) {
        bool inside;
        int64_t c = (start + (int64_t)i) % v->dim[last], stop = v->dim[last] - c;
        int64_t at = map_one(v, start + (int64_t)i - c, &inside), lo = v->lo[last], hi = v->hi[last];
        if (v->padded) { /* is the rest inside, the innermost axis apart? */
            ki_view rest = *v;
            rest.lo[last] = 0, rest.hi[last] = v->dim[last];
            (void)map_one(&rest, start + (int64_t)i - c, &inside);
        }
        if (stop > (int64_t)(n - i)) stop = (int64_t)(n - i);
        for (int64_t j = 0; j < stop; j++, i++) {
            bool in = inside && c + j >= lo && c + j < hi;
            to[i] = in ? at + (c + j) * v->stride[last] : 0;
            if (mask) mask[i] = in;
        }
    }
}

void ki_view_map(const ki_view *v, const int64_t *from, int64_t start, size_t n, int64_t *to, uint8_t *mask) {
    if (!from && v->rank) {
        map_run(v, start, n, to, mask);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        bool inside = true;
        int64_t f = from ? from[i] : start + (int64_t)i;
        int64_t at = v->identity ? f : map_one(v, f, &inside);
        to[i] = inside ? at : 0;
        if (mask) mask[i] = inside;
    }
}
