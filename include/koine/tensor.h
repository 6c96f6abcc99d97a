/* tensor.h: lazy tensors. C99 and C++ clean.
 *
 * Every call below returns at once: it adds nodes to a graph. kn_realize compiles and runs what its tensors need.
 *
 *   1. Compute                                       2. Train (see nn.h)
 *     kn_ctx *k = kn_open(NULL);                       kn_tensor w = kn_param(kn_randn(k, KN_SHAPE(784, 10)));
 *     kn_tensor x = kn_rand(k, KN_SHAPE(64, 784));     for (int step = 0; step < 100; step++) {
 *     kn_tensor y = kn_softmax(kn_matmul(x, w), -1);       kn_scope_open(k);
 *     float out[640];                                      kn_tensor loss = kn_cross_entropy(kn_matmul(x, w), t);
 *     if (kn_to_host(y, out, sizeof out))                  kn_assign(w, kn_sub(w, kn_muls(kn_grad1(loss, w), 0.1)));
 *         fputs(kn_message(k), stderr);                    if (kn_realize(w, loss)) fputs(kn_message(k), stderr);
 *     kn_close(k);                                         kn_scope_close(k);
 *                                                      }
 *   3. Make one's own function, failures and temporaries included
 *     kn_tensor swish(kn_tensor x, double beta) {
 *         return kn_mul(x, kn_sigmoid(kn_muls(x, beta)));
 *     }
 *
 * Errors. A call that cannot be right returns an *error tensor*, which carries its message with the caller's file and
 * line; a call given an error tensor returns it unchanged. So an expression is written plainly and checked once:
 * kn_check(t), kn_realize(t...), kn_to_host(t, ...). kn_message(k) is the first failure's text. The place comes from
 * the macros at the end (koine/here.h); with KN_NO_LOC defined the calls are plain functions and messages have none.
 *
 * Lifetime. A tensor belongs to the innermost open scope of its context and ends with it; kn_keep lets it live on.
 * A context is the outermost scope. A handle used after its end gives an error that says where it was made.
 *
 * dtypes. Two operands meet in the least dtype that holds both (integers with a float give that float; u64 with a
 * signed integer gives f64). Literals (kn_scalar, kn_int, the ...s functions) are weak: they take the other operand's
 * dtype; a fraction with integers gives f32. True division, and functions with fractional values, of integers give f32.
 * Sums and products of bool and signed integers give i64, of unsigned u64; of f16, bf16 and 8-bit floats they are
 * accumulated in f32 and rounded once. mean, var, std of integers give f32 (numpy: f64).
 *
 * Axes may be negative (-1 is the last). Shapes are lists: KN_SHAPE(2, 3); KN_SHAPE() is a scalar's. */
#ifndef KN_TENSOR_H
#define KN_TENSOR_H

#include <koine/base.h>
#include <koine/uop.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KN_TO_END INT64_MAX /* in a slice: to the end, whichever way the step goes */

/* ---- context ----------------------------------------------------------------------------------------------- */

KN_API void kn_scope_open(kn_ctx *k);  /* tensors made from here on end with kn_scope_close */
KN_API void kn_scope_close(kn_ctx *k); /* ends the innermost scope and its tensors */
/* t lives until kn_drop or kn_close. Returns t. */
KN_API kn_tensor kn_keep(kn_tensor t);
/* t belongs to the enclosing scope: how a function that opens a scope hands its result out. Returns t. */
KN_API kn_tensor kn_hand_up(kn_tensor t);
/* Ends t now. NULL is allowed. */
KN_API void kn_drop(kn_tensor t);

/* KN_OK, or what is wrong with t; kn_why: its text, "" if nothing. Nothing runs. */
KN_API kn_status kn_check(kn_tensor t);
KN_API const char *kn_why(kn_tensor t);

KN_API kn_ctx *kn_context(kn_tensor t);              /* the context t belongs to */
KN_API kn_dtype kn_dtype_of(kn_tensor t);            /* KN_VOID of an error tensor */
KN_API int kn_rank(kn_tensor t);                     /* -1 of an error tensor */
KN_API int64_t kn_size(kn_tensor t, int axis);       /* a symbolic axis: its upper bound; -1: no such axis */
KN_API int64_t kn_numel(kn_tensor t);                /* -1 of an error tensor */
KN_API kn_ints kn_shape(kn_tensor t);                /* its sizes; none of an error tensor */
KN_API kn_uop kn_graph(kn_tensor t);                 /* the node t stands for; NULL of an error tensor */
KN_API kn_tensor kn_from_graph(kn_ctx *k, kn_uop u); /* a tensor of a node made by hand (uop.h) */

/* ---- running (implemented by the run layer) ---------------------------------------------------------------- */

/* kn_realize(a, b, ...): computes all of them, together, in one compiled program. */
KN_API kn_status kn_realize_at(const char *file, int line, size_t n, const kn_tensor *t);
#ifdef __cplusplus
extern "C++" {
template <class... A> static inline kn_status kn_realize_list(const char *file, int line, A... a) {
    const kn_tensor v[] = {a...};
    return kn_realize_at(file, line, sizeof...(a), v);
}
}
#define kn_realize(...) kn_realize_list(KN_FILE_LINE_, __VA_ARGS__)
#else
#define kn_realize(...) \
    kn_realize_at(KN_FILE_LINE_, sizeof((kn_tensor[]){__VA_ARGS__}) / sizeof(kn_tensor), (const kn_tensor[]){__VA_ARGS__})
#endif
/* Realises t and copies its elements, row-major, to `to`; bytes must be their exact size. */
KN_API kn_status kn_to_host(kn_tensor t, void *to, size_t bytes);
/* Copies its elements, row-major, into the memory of t, a kn_param or data (kn_from_host, kn_borrow_host, realised), at once: what kn_assign does
 * of host data, without a program. bytes must be their exact size. Tensors that were to be computed from the old ones are an error when used. */
KN_API kn_status kn_write(kn_tensor t, const void *from, size_t bytes);
/* Tensors that show what is assigned and still to be computed, one for each place: up to n of them into out (NULL: n is 0). Returns how
 * many there are. */
KN_API size_t kn_pending(kn_ctx *k, size_t n, kn_tensor *out);
/* Realises t and returns its elements, contiguous in host memory, NULL on failure. Valid while t lives and until it
 * is assigned to. */
KN_API const void *kn_data(kn_tensor t);
/* The only element of t as a double, NaN on failure. */
KN_API double kn_item(kn_tensor t);
/* Gives the variable `name` its value for the next launches. */
KN_API kn_status kn_bind(kn_ctx *k, const char *name, int64_t value);

/* ---- captured steps ---------------------------------------------------------------------------------------- */

/* A step that was realised once, to be run again: no graph is built or looked at; on the CPU nothing is allocated.
 *
 *     kn_captured *step = kn_capture(y, loss);      as kn_realize(y, loss), and the step
 *     while (!kn_write(x, next(), bytes) && !kn_replay(step)) use(kn_item(loss));
 *     kn_captured_free(step);
 *
 * A replay reads what the step's data (kn_param, host data, all that was realised before) hold then, takes variables as
 * kn_bind has them then, and draws new random numbers of the context's stream, as the same step built anew would. It writes
 * what the step assigns, and its results where they were: y and loss, which may have ended, show them. Their old values
 * are gone: tensors still to be computed from them are an error when used. What a kn_param begins with is computed
 * before, and no part of the step; what was assigned and is still to be computed when it is replayed comes first. Settings are those
 * of the capture.
 * NULL: kn_message says why; also if there is nothing to compute, or a result's shape is symbolic (assign it to a kn_param). */
typedef struct kn_captured kn_captured;
KN_API kn_captured *kn_capture_at(const char *file, int line, size_t n, const kn_tensor *t);
#ifdef __cplusplus
extern "C++" {
template <class... A> static inline kn_captured *kn_capture_list(const char *file, int line, A... a) {
    const kn_tensor v[] = {a...};
    return kn_capture_at(file, line, sizeof...(a), v);
}
}
#define kn_capture(...) kn_capture_list(KN_FILE_LINE_, __VA_ARGS__)
#else
#define kn_capture(...) \
    kn_capture_at(KN_FILE_LINE_, sizeof((kn_tensor[]){__VA_ARGS__}) / sizeof(kn_tensor), (const kn_tensor[]){__VA_ARGS__})
#endif
KN_API kn_status kn_replay(kn_captured *c);
/* NULL is allowed. The context must be open; kn_close frees those that are left. */
KN_API void kn_captured_free(kn_captured *c);

/* ---- creation ---------------------------------------------------------------------------------------------- */

/* Copies n-d row-major host data. The data is read before the call returns. */
KN_API kn_tensor kn_from_host(kn_ctx *k, const void *data, kn_dtype dtype, kn_ints shape);
/* Uses the caller's memory in place; release(owner), if not NULL, is called when koine no longer needs it (never if this fails). */
KN_API kn_tensor kn_borrow_host(kn_ctx *k, void *data, kn_dtype dtype, kn_ints shape, void (*release)(void *owner), void *owner);
KN_API kn_tensor kn_scalar(kn_ctx *k, double value);                 /* weak; a value without fraction meets integers as an integer */
KN_API kn_tensor kn_int(kn_ctx *k, int64_t value);                   /* weak */
KN_API kn_tensor kn_zeros(kn_ctx *k, kn_ints shape, kn_dtype dtype); /* 0 everywhere */
KN_API kn_tensor kn_ones(kn_ctx *k, kn_ints shape, kn_dtype dtype);  /* 1 everywhere */
KN_API kn_tensor kn_full(kn_ctx *k, kn_ints shape, double value, kn_dtype dtype); /* value everywhere */
KN_API kn_tensor kn_zeros_like(kn_tensor x);              /* of x's shape and dtype */
KN_API kn_tensor kn_ones_like(kn_tensor x);               /* of x's shape and dtype */
KN_API kn_tensor kn_full_like(kn_tensor x, double value); /* of x's shape and dtype */
KN_API kn_tensor kn_arange(kn_ctx *k, double start, double stop, double step, kn_dtype dtype); /* start, start + step, ... below stop (above it where step < 0) */
KN_API kn_tensor kn_linspace(kn_ctx *k, double start, double stop, int64_t n, kn_dtype dtype); /* n values, both ends among them */
KN_API kn_tensor kn_eye(kn_ctx *k, int64_t rows, int64_t columns, kn_dtype dtype);             /* 1 on the diagonal */
/* A scalar of dtype index whose value, lo to hi, arrives at launch (kn_bind). kn_sym makes it a dimension: use its
 * result in a shape, as in kn_shrink(x, KN_LIST(0, 0), KN_SHAPE(kn_sym(n), 64)). */
KN_API kn_tensor kn_variable(kn_ctx *k, const char *name, int64_t lo, int64_t hi);
KN_API int64_t kn_sym(kn_tensor variable); /* the size that stands for it in shapes */
/* A named input of the given shape without data: for programs written out as text. */
KN_API kn_tensor kn_input(kn_ctx *k, const char *name, kn_dtype dtype, kn_ints shape);

/* ---- random (Threefry 2x32, 20 rounds) --------------------------------------------------------------------- */

/* Random numbers come from the context's stream, or, the last operand of each call, from a key:
 *   kn_manual_seed(k, 7);  kn_normal(k, s, 0, 1, KN_F32, NULL);      the stream goes on: each call draws what is next
 *   kn_tensor two = kn_key_split(kn_key(k, 7), 2), a = kn_select(two, 0, 0), b = kn_select(two, 0, 1);
 *   kn_normal(k, s, 0, 1, KN_F32, a);  kn_dropout(x, 0.1, b);        a key is a value: a call with it always draws the same
 *   kn_key_fold(a, step);                                            a key for each step; a kn_function takes keys as operands
 * Use a key once: draw from it, or split it, or fold into it. What is drawn depends on seed and order of calls, or on the key, alone:
 * not on what is realised, the device or threads.
 * Element i drawn from the stream is threefry(counter + i, seed); the counter then moves on by the number of elements, and
 * f32 in [0, 1) are the top 24 bits of the low word. Element i drawn with a key has the bits of JAX's threefry2x32 for that key
 * (jax_threefry_partitionable on, as it is by default), and so have kn_key, kn_key_split, kn_key_fold, kn_random_bits, kn_rand_as,
 * kn_uniform, kn_bernoulli; others are distributed alike. Normals are Box and Muller's in plain multiplications and additions: the same
 * bits on every device. f64 is computed in f64, the rest in f32 and rounded, so that uniform numbers of bf16 may be rounded to hi. A new context
 * starts from KN_SEED, default 0. Nothing flows back into what is drawn. */

KN_API void kn_manual_seed(kn_ctx *k, uint64_t seed);             /* the context's stream starts again, from this seed */
KN_API kn_tensor kn_key(kn_ctx *k, uint64_t seed);                /* a key, u64, (): JAX's two words, the first one above the second */
KN_API kn_tensor kn_key_split(kn_tensor key, int64_t n);          /* (n,) independent keys */
KN_API kn_tensor kn_key_fold(kn_tensor key, kn_tensor data);      /* a key for each integer of data, independent of each other */
KN_API kn_tensor kn_random_bits(kn_ctx *k, kn_ints shape, kn_dtype dtype, kn_tensor key); /* bits: u8, u16, u32 or u64 */
KN_API kn_tensor kn_rand(kn_ctx *k, kn_ints shape);               /* f32, uniform in [0, 1) */
KN_API kn_tensor kn_randn(kn_ctx *k, kn_ints shape);              /* f32, normal: mean 0, deviation 1 */
KN_API kn_tensor kn_rand_as(kn_ctx *k, kn_ints shape, kn_dtype dtype, kn_tensor key);  /* uniform in [0, 1) */
KN_API kn_tensor kn_randn_as(kn_ctx *k, kn_ints shape, kn_dtype dtype, kn_tensor key); /* normal: mean 0, deviation 1 */
KN_API kn_tensor kn_uniform(kn_ctx *k, kn_ints shape, double lo, double hi, kn_dtype dtype, kn_tensor key); /* lo <= v < hi; lo = hi gives lo */
KN_API kn_tensor kn_normal(kn_ctx *k, kn_ints shape, double mean, double deviation, kn_dtype dtype, kn_tensor key); /* deviation 0 gives mean */
KN_API kn_tensor kn_randint(kn_ctx *k, kn_ints shape, int64_t lo, int64_t hi, kn_dtype dtype, kn_tensor key); /* lo <= v < hi */
KN_API kn_tensor kn_bernoulli(kn_tensor p, kn_tensor key);        /* 1 with probability p, of p's shape and dtype */
KN_API kn_tensor kn_dropout(kn_tensor x, double p, kn_tensor key); /* 0 with probability p, the rest scaled by 1/(1-p) */

/* Slopes where x < 0 are drawn between lower and upper, one for each element; not in training all are the mean of the two. */
KN_API kn_tensor kn_rrelu(kn_tensor x, double lower, double upper, int training, kn_tensor key);

/* Of a location and a scale, 0 or more, in numpy's sense: location + scale * a number of the standard distribution. */

KN_API kn_tensor kn_exponential(kn_ctx *k, kn_ints shape, double scale, kn_dtype dtype, kn_tensor key); /* -scale * log(u): mean scale */
KN_API kn_tensor kn_laplace(kn_ctx *k, kn_ints shape, double location, double scale, kn_dtype dtype, kn_tensor key);  /* exponential on both sides */
KN_API kn_tensor kn_gumbel(kn_ctx *k, kn_ints shape, double location, double scale, kn_dtype dtype, kn_tensor key);   /* -log(-log(u)) */
KN_API kn_tensor kn_logistic(kn_ctx *k, kn_ints shape, double location, double scale, kn_dtype dtype, kn_tensor key); /* log(u / (1 - u)) */
KN_API kn_tensor kn_cauchy(kn_ctx *k, kn_ints shape, double location, double scale, kn_dtype dtype, kn_tensor key);   /* tan(pi u) */
/* A normal number, mean 0 and deviation 1, that lies between lo and hi, which may be infinite; exact to 1e-15, up to 37 deviations out,
 * beyond which it is the nearer bound. */
KN_API kn_tensor kn_truncated_normal(kn_ctx *k, kn_ints shape, double lo, double hi, kn_dtype dtype, kn_tensor key);
KN_API kn_tensor kn_permutation(kn_ctx *k, int64_t n, kn_tensor key);     /* 0 .. n - 1 in random order, i64 */
KN_API kn_tensor kn_shuffle(kn_tensor x, int axis, kn_tensor key);        /* places along an axis in random order, the same for all rows; gradients follow */
KN_API kn_tensor kn_categorical(kn_tensor logits, int axis, kn_tensor key); /* a place along the axis, i64, with probability softmax(logits) */
/* n places along the last axis, (..., n), i64, with probability p (0 or more, which need not add up to 1); without replacement in the order drawn,
 * places of p 0 last. */
KN_API kn_tensor kn_multinomial(kn_tensor p, int64_t n, int replace, kn_tensor key);
/* softmax((logits + g) / tau), g Gumbel: near 0 for tau, which is above it, nearly a choice by categorical. hard: 1 at the choice, else 0, with the
 * gradient of the soft one. */
KN_API kn_tensor kn_gumbel_softmax(kn_tensor logits, double tau, int hard, int axis, kn_tensor key);

/* One number for each of the parameters, which broadcast, of their dtype (integers: f32); NaN where these are out of range; kn_broadcast_to makes
 * more of them. By a fixed number of tries: at most 4e-9 of them, gammas 4e-11, are not accepted in any and as tried last. In f64, with the same bits on
 * every device (but for the last one of dirichlet, whose sums add in another order). */

KN_API kn_tensor kn_gamma(kn_tensor a, kn_tensor key);             /* of shape a >= 0 and scale 1 */
KN_API kn_tensor kn_chi_square(kn_tensor df, kn_tensor key);       /* the sum of df squares of normal numbers */
KN_API kn_tensor kn_student_t(kn_tensor df, kn_tensor key);        /* Student's t of df > 0 degrees of freedom */
KN_API kn_tensor kn_beta(kn_tensor a, kn_tensor b, kn_tensor key); /* of a, b >= 0, in [0, 1] */
KN_API kn_tensor kn_dirichlet(kn_tensor a, kn_tensor key);         /* along the last axis: a gamma of each over the sum of all */
KN_API kn_tensor kn_poisson(kn_tensor rate, kn_tensor key);        /* how many there are where `rate` are expected, up to 10^8 */
KN_API kn_tensor kn_binomial(kn_tensor n, kn_tensor p, kn_tensor key); /* how many of n have what each has with probability p; n p up to 10^8 */

KN_API kn_tensor kn_threefry(kn_tensor counter, kn_tensor key);   /* the generator itself; both u64, low word first */

/* ---- dtypes and markers ------------------------------------------------------------------------------------ */

KN_API kn_tensor kn_cast(kn_tensor x, kn_dtype dtype);        /* floats to integers towards 0, saturating, NaN to 0; integers wrap */
KN_API kn_tensor kn_bitcast(kn_tensor x, kn_dtype dtype);     /* the last axis scales with the size of the dtype */
KN_API kn_tensor kn_contiguous(kn_tensor x);                  /* x, stored */
KN_API kn_tensor kn_contiguous_backward(kn_tensor x);         /* x; its gradient is stored */
KN_API kn_tensor kn_detach(kn_tensor x);                      /* x; no gradient flows back */
KN_API kn_tensor kn_copy_to(kn_tensor x, const char *device); /* x on another device: "CPU", "INTERP" */
/* Storage of its own with x as first value: what kn_assign can write. */
KN_API kn_tensor kn_param(kn_tensor x);
/* target, a kn_param or a view of one or of host data, any movements of it, takes value's elements when it is next realised; later uses of
 * target mean the new value. value is broadcast and must have target's dtype or a weak one. Returns target. Tensors
 * computed from the old value must be realised with the assign or before it; later use of them is an error. value may read target: it sees the old one.
 * Where target shows a place more than once, kn_expand's last element is kept, of kn_unfold's windows the earliest's. */
KN_API kn_tensor kn_assign(kn_tensor target, kn_tensor value);
/* value, in x's dtype, with x's gradient: straight-through. x has value's shape. kn_straight_through(kn_round(x), x) */
KN_API kn_tensor kn_straight_through(kn_tensor value, kn_tensor x);
/* x to the nearest of the steps (q - zero_point) * scale, q an integer of quant_min..quant_max; the gradient passes where q is in there. */
KN_API kn_tensor kn_fake_quantize_per_tensor_affine(kn_tensor x, double scale, int64_t zero_point, int64_t quant_min, int64_t quant_max);
/* The same with a scale and a zero point for each place of an axis: (C,). */
KN_API kn_tensor kn_fake_quantize_per_channel_affine(kn_tensor x, kn_tensor scale, kn_tensor zero_point, int axis, int64_t quant_min, int64_t quant_max);

/* ---- movement ---------------------------------------------------------------------------------------------- */

KN_API kn_tensor kn_reshape(kn_tensor x, kn_ints shape);      /* one -1: what is left */
KN_API kn_tensor kn_permute(kn_tensor x, kn_ints order);      /* axis i of the result is axis order[i] of x */
KN_API kn_tensor kn_transpose(kn_tensor x, int a, int b);     /* two axes swapped */
KN_API kn_tensor kn_mT(kn_tensor x);                          /* swaps the last two axes */
KN_API kn_tensor kn_moveaxis(kn_tensor x, int from, int to);  /* one axis to another place, the others in order */
KN_API kn_tensor kn_expand(kn_tensor x, kn_ints shape);       /* -1 keeps an axis; new axes come in front */
KN_API kn_tensor kn_broadcast_to(kn_tensor x, kn_ints shape); /* as numpy */
KN_API kn_status kn_broadcast_tensors(const kn_tensor *x, size_t n, kn_tensor *out); /* out receives n, of one shape */
KN_API kn_tensor kn_atleast(kn_tensor x, int rank); /* axes of 1 in front, up to so many */
/* n vectors as the coordinates of a grid: out receives n tensors of n axes, x[i] along axis i; xy: the first two axes
 * swapped, as columns and rows of an image. */
KN_API kn_status kn_meshgrid(const kn_tensor *x, size_t n, int xy, kn_tensor *out);
KN_API kn_tensor kn_pad(kn_tensor x, kn_ints pads, double value); /* value around: KN_PADS(before0, after0, ...) */
/* kn_pad with a border made of x. mode: "reflect" (without the edge: pads below the size), "symmetric" (with it: pads up to the size),
 * "replicate" (the edge), "circular" (the other end: pads up to the size), or "constant", for which alone value counts. */
KN_API kn_tensor kn_pad_mode(kn_tensor x, kn_ints pads, const char *mode, double value);
KN_API kn_tensor kn_shrink(kn_tensor x, kn_ints start, kn_ints size); /* x[start : start + size] on each axis */
KN_API kn_tensor kn_flip(kn_tensor x, kn_ints axes);                  /* backwards along the axes */
KN_API kn_tensor kn_flipud(kn_tensor x);                              /* the first axis */
KN_API kn_tensor kn_fliplr(kn_tensor x);                              /* the second */
KN_API kn_tensor kn_rot90(kn_tensor x, int times, int from, int to);  /* quarter turns in the plane of two axes */
/* x[start:stop:step] on one axis, as in Python: negative positions count from the end, out of range is clamped. */
KN_API kn_tensor kn_slice(kn_tensor x, int axis, int64_t start, int64_t stop, int64_t step);
KN_API kn_tensor kn_select(kn_tensor x, int axis, int64_t index);    /* x[index] on one axis, which goes */
KN_API kn_tensor kn_cat(const kn_tensor *x, size_t n, int axis);     /* joined along an axis that is there */
KN_API kn_tensor kn_stack(const kn_tensor *x, size_t n, int axis);   /* joined along a new axis */
KN_API kn_tensor kn_cat2(kn_tensor a, kn_tensor b, int axis);        /* kn_cat of two */
KN_API kn_tensor kn_tile(kn_tensor x, kn_ints times);                /* all of x, times[i] times along axis i */
KN_API kn_tensor kn_repeat(kn_tensor x, int64_t times, int axis);    /* each element `times` times in a row */
KN_API kn_tensor kn_squeeze(kn_tensor x, int axis);                  /* an axis of size 1 goes; another stays */
KN_API kn_tensor kn_squeeze_all(kn_tensor x);                        /* all axes of size 1 go */
KN_API kn_tensor kn_unsqueeze(kn_tensor x, int axis);                /* a new axis of size 1 */
KN_API kn_tensor kn_flatten(kn_tensor x, int first, int last);       /* axes first to last become one */
KN_API kn_tensor kn_unflatten(kn_tensor x, int axis, kn_ints shape); /* one axis becomes several; one size may be -1 */
KN_API kn_status kn_split(kn_tensor x, int axis, kn_ints sizes, kn_tensor *out); /* x cut along the axis: out receives a tensor for each size */
KN_API kn_status kn_chunk(kn_tensor x, int axis, int n, kn_tensor *out);         /* x cut into n parts, whose sizes differ by 1 at most, into out */
KN_API kn_status kn_unstack(kn_tensor x, int axis, kn_tensor *out);              /* x along the axis, without it: out receives as many as its size */
KN_API kn_tensor kn_diff(kn_tensor x, int times, int axis);         /* x[i+1] - x[i], so many times; of bool: != */
KN_API kn_tensor kn_roll(kn_tensor x, int64_t shift, int axis);     /* element i goes to i + shift, around the end */
KN_API kn_tensor kn_tril(kn_tensor x, int64_t diagonal);            /* 0 above the diagonal (of the last two axes) */
KN_API kn_tensor kn_triu(kn_tensor x, int64_t diagonal);            /* 0 below the diagonal (of the last two axes) */
KN_API kn_tensor kn_diagonal(kn_tensor x, int64_t offset);          /* of the last two axes */
KN_API kn_tensor kn_diag(kn_tensor x);                              /* a vector as the diagonal of a matrix */
/* Windows of `size` every `step` along an axis; the window is a new last axis. */
KN_API kn_tensor kn_unfold(kn_tensor x, int axis, int64_t size, int64_t step);

/* ---- elementwise ------------------------------------------------------------------------------------------- */

KN_API kn_tensor kn_neg(kn_tensor x);                      /* -x; unsigned integers wrap */
KN_API kn_tensor kn_abs(kn_tensor x);                      /* |x| */
KN_API kn_tensor kn_sign(kn_tensor x);                     /* -1, 0 or 1; NaN stays */
KN_API kn_tensor kn_square(kn_tensor x);                   /* x x */
KN_API kn_tensor kn_sqrt(kn_tensor x);                     /* NaN below 0 */
KN_API kn_tensor kn_rsqrt(kn_tensor x);                    /* 1 / sqrt(x) */
KN_API kn_tensor kn_recip(kn_tensor x);                    /* 1 / x */
KN_API kn_tensor kn_exp(kn_tensor x);                      /* e^x */
KN_API kn_tensor kn_exp2(kn_tensor x);                     /* 2^x */
KN_API kn_tensor kn_expm1(kn_tensor x);                    /* e^x - 1, exact near 0 */
KN_API kn_tensor kn_log(kn_tensor x);                      /* natural; NaN below 0 */
KN_API kn_tensor kn_log2(kn_tensor x);                     /* to base 2 */
KN_API kn_tensor kn_log10(kn_tensor x);                    /* to base 10 */
KN_API kn_tensor kn_log1p(kn_tensor x);                    /* log(1 + x), exact near 0 */
KN_API kn_tensor kn_sin(kn_tensor x);                      /* of radians, of any size */
KN_API kn_tensor kn_cos(kn_tensor x);                      /* of radians, of any size */
KN_API kn_tensor kn_tan(kn_tensor x);                      /* of radians, of any size */
KN_API kn_tensor kn_sinh(kn_tensor x);                     /* hyperbolic */
KN_API kn_tensor kn_cosh(kn_tensor x);                     /* hyperbolic */
KN_API kn_tensor kn_tanh(kn_tensor x);                     /* hyperbolic */
KN_API kn_tensor kn_asin(kn_tensor x);                     /* -pi/2 to pi/2; NaN outside -1 .. 1 */
KN_API kn_tensor kn_acos(kn_tensor x);                     /* 0 to pi; NaN outside -1 .. 1 */
KN_API kn_tensor kn_atan(kn_tensor x);                     /* -pi/2 to pi/2 */
KN_API kn_tensor kn_asinh(kn_tensor x);                    /* inverse of sinh */
KN_API kn_tensor kn_acosh(kn_tensor x);                    /* NaN below 1 */
KN_API kn_tensor kn_atanh(kn_tensor x);                    /* NaN outside -1 .. 1 */
KN_API kn_tensor kn_erf(kn_tensor x);                      /* the error function */
KN_API kn_tensor kn_floor(kn_tensor x);                    /* down to a whole number */
KN_API kn_tensor kn_ceil(kn_tensor x);                     /* up to a whole number */
KN_API kn_tensor kn_round(kn_tensor x);                    /* halves to even */
KN_API kn_tensor kn_trunc(kn_tensor x);                    /* towards 0 */
KN_API kn_tensor kn_frac(kn_tensor x);                     /* x - trunc(x) */
KN_API kn_tensor kn_isnan(kn_tensor x);                    /* bool */
KN_API kn_tensor kn_isinf(kn_tensor x);                    /* bool; either sign */
KN_API kn_tensor kn_isfinite(kn_tensor x);                 /* bool */
KN_API kn_tensor kn_signbit(kn_tensor x);                  /* bool; true of -0.0 */
KN_API kn_tensor kn_sigmoid(kn_tensor x);                  /* 1 / (1 + e^-x) */
KN_API kn_tensor kn_relu(kn_tensor x);                     /* max(x, 0) */
KN_API kn_tensor kn_relu6(kn_tensor x);                    /* x between 0 and 6 */
KN_API kn_tensor kn_gelu(kn_tensor x);                     /* with erf */
KN_API kn_tensor kn_gelu_tanh(kn_tensor x);                /* the approximation with tanh */
KN_API kn_tensor kn_quick_gelu(kn_tensor x);               /* x sigmoid(1.702 x) */
KN_API kn_tensor kn_silu(kn_tensor x);                     /* x sigmoid(x) */
KN_API kn_tensor kn_mish(kn_tensor x);                     /* x tanh(softplus(x)) */
KN_API kn_tensor kn_softplus(kn_tensor x);                 /* log(1 + e^x) */
KN_API kn_tensor kn_softsign(kn_tensor x);                 /* x / (1 + |x|) */
KN_API kn_tensor kn_logsigmoid(kn_tensor x);               /* log(sigmoid(x)) */
KN_API kn_tensor kn_selu(kn_tensor x);                     /* 1.0507 elu(x, 1.6733) */
KN_API kn_tensor kn_hardtanh(kn_tensor x);                 /* x between -1 and 1 */
KN_API kn_tensor kn_hardsigmoid(kn_tensor x);              /* x / 6 + 1/2 between 0 and 1 */
KN_API kn_tensor kn_hardswish(kn_tensor x);                /* x hardsigmoid(x) */
KN_API kn_tensor kn_tanhshrink(kn_tensor x);               /* x - tanh(x) */
KN_API kn_tensor kn_deg2rad(kn_tensor x);                  /* x pi / 180 */
KN_API kn_tensor kn_rad2deg(kn_tensor x);                  /* x 180 / pi */
KN_API kn_tensor kn_logical_not(kn_tensor x);              /* bool: x is 0 */
KN_API kn_tensor kn_bitwise_not(kn_tensor x);              /* of integers and bool */
KN_API kn_tensor kn_leaky_relu(kn_tensor x, double slope); /* slope x where x < 0 */
KN_API kn_tensor kn_elu(kn_tensor x, double alpha);        /* alpha (e^x - 1) where x < 0 */
KN_API kn_tensor kn_celu(kn_tensor x, double alpha);       /* alpha (e^(x / alpha) - 1) where x < 0 */
KN_API kn_tensor kn_threshold(kn_tensor x, double least, double value); /* value where x <= least */
KN_API kn_tensor kn_hardshrink(kn_tensor x, double size);               /* 0 where |x| <= size */
KN_API kn_tensor kn_softshrink(kn_tensor x, double size);               /* the same, the rest nearer to 0 by size */
KN_API kn_tensor kn_logit(kn_tensor x, double eps);                     /* log(x / (1 - x)); eps > 0: x is clamped to eps .. 1 - eps */
KN_API kn_tensor kn_prelu(kn_tensor x, kn_tensor weight);               /* weight: one slope, or one a channel (axis 1) */
KN_API kn_tensor kn_glu(kn_tensor x, int axis);                         /* the axis' first half times the sigmoid of its second */
KN_API kn_tensor kn_clamp(kn_tensor x, double lo, double hi);           /* x between lo and hi; NaN stays */
KN_API kn_tensor kn_nan_to_num(kn_tensor x, double nan);                /* nan in place of NaN */

/* Two operands, broadcast against each other. */
KN_API kn_tensor kn_add(kn_tensor a, kn_tensor b);          /* a + b */
KN_API kn_tensor kn_sub(kn_tensor a, kn_tensor b);          /* a - b */
KN_API kn_tensor kn_mul(kn_tensor a, kn_tensor b);          /* a b */
KN_API kn_tensor kn_div(kn_tensor a, kn_tensor b);          /* a / b; of integers f32 */
KN_API kn_tensor kn_pow(kn_tensor a, kn_tensor b);          /* a^b; of integers wraps, b 0 or more */
KN_API kn_tensor kn_maximum(kn_tensor a, kn_tensor b);      /* the larger one; NaN if either is */
KN_API kn_tensor kn_minimum(kn_tensor a, kn_tensor b);      /* the smaller one; NaN if either is */
KN_API kn_tensor kn_fmax(kn_tensor a, kn_tensor b);         /* the larger one; the other if one is NaN */
KN_API kn_tensor kn_fmin(kn_tensor a, kn_tensor b);         /* the smaller one; the other if one is NaN */
KN_API kn_tensor kn_floor_divide(kn_tensor a, kn_tensor b); /* a / b down to a whole number; integers: by 0 is 0 */
KN_API kn_tensor kn_trunc_divide(kn_tensor a, kn_tensor b); /* a / b towards 0 */
KN_API kn_tensor kn_remainder(kn_tensor a, kn_tensor b);    /* a - b floor(a / b): the sign of b, a zero's too; kn_fmod, or that and b, rounded once */
KN_API kn_tensor kn_fmod(kn_tensor a, kn_tensor b);         /* a - b trunc(a / b): the sign of a; exact */
KN_API kn_tensor kn_lt(kn_tensor a, kn_tensor b);           /* a < b, bool */
KN_API kn_tensor kn_le(kn_tensor a, kn_tensor b);           /* a <= b, bool */
KN_API kn_tensor kn_gt(kn_tensor a, kn_tensor b);           /* a > b, bool */
KN_API kn_tensor kn_ge(kn_tensor a, kn_tensor b);           /* a >= b, bool */
KN_API kn_tensor kn_eq(kn_tensor a, kn_tensor b);           /* a = b, bool */
KN_API kn_tensor kn_ne(kn_tensor a, kn_tensor b);           /* a is not b, bool; NaN is not NaN */
KN_API kn_tensor kn_logical_and(kn_tensor a, kn_tensor b);  /* bool: both are not 0 */
KN_API kn_tensor kn_logical_or(kn_tensor a, kn_tensor b);   /* bool: one of them is not 0 */
KN_API kn_tensor kn_logical_xor(kn_tensor a, kn_tensor b);  /* bool: exactly one is not 0 */
KN_API kn_tensor kn_bitwise_and(kn_tensor a, kn_tensor b);  /* of integers and bool */
KN_API kn_tensor kn_bitwise_or(kn_tensor a, kn_tensor b);   /* of integers and bool */
KN_API kn_tensor kn_bitwise_xor(kn_tensor a, kn_tensor b);  /* of integers and bool */
KN_API kn_tensor kn_shift_left(kn_tensor a, kn_tensor b);   /* a 2^b, wrapping; 0 for b outside the width */
KN_API kn_tensor kn_shift_right(kn_tensor a, kn_tensor b);  /* a / 2^b, down; b outside the width: 0, or -1 of a below 0 */
KN_API kn_tensor kn_logaddexp(kn_tensor a, kn_tensor b);    /* log(e^a + e^b), without overflow */
KN_API kn_tensor kn_hypot(kn_tensor a, kn_tensor b);        /* sqrt(a^2 + b^2), without overflow */
KN_API kn_tensor kn_atan2(kn_tensor a, kn_tensor b);        /* the angle of the point (b, a), -pi to pi */
KN_API kn_tensor kn_copysign(kn_tensor a, kn_tensor b);     /* a with the sign of b */
KN_API kn_tensor kn_nextafter(kn_tensor a, kn_tensor b);    /* the next value of the dtype from a towards b */
KN_API kn_tensor kn_xlogy(kn_tensor a, kn_tensor b);        /* a log(b); 0 where a is 0 */
/* The same with a number, weak: kn_adds(x, 2) is x + 2. */
KN_API kn_tensor kn_adds(kn_tensor a, double b);
KN_API kn_tensor kn_subs(kn_tensor a, double b);
KN_API kn_tensor kn_muls(kn_tensor a, double b);
KN_API kn_tensor kn_divs(kn_tensor a, double b);
KN_API kn_tensor kn_pows(kn_tensor a, double b);
KN_API kn_tensor kn_maximums(kn_tensor a, double b);
KN_API kn_tensor kn_minimums(kn_tensor a, double b);
KN_API kn_tensor kn_lts(kn_tensor a, double b);
KN_API kn_tensor kn_les(kn_tensor a, double b);
KN_API kn_tensor kn_gts(kn_tensor a, double b);
KN_API kn_tensor kn_ges(kn_tensor a, double b);
KN_API kn_tensor kn_eqs(kn_tensor a, double b);
KN_API kn_tensor kn_nes(kn_tensor a, double b);

KN_API kn_tensor kn_where(kn_tensor condition, kn_tensor a, kn_tensor b);   /* a where condition, else b; all broadcast */
KN_API kn_tensor kn_clip(kn_tensor x, kn_tensor lo, kn_tensor hi);          /* bounds are broadcast; NULL: none */
KN_API kn_tensor kn_masked_fill(kn_tensor x, kn_tensor mask, double value); /* value where mask */
KN_API kn_tensor kn_mulacc(kn_tensor a, kn_tensor b, kn_tensor c);          /* a * b + c, rounded once */
KN_API kn_tensor kn_lerp(kn_tensor a, kn_tensor b, double weight);          /* a + weight (b - a) */

/* ---- reductions: over everything, or over axes (an empty list: none) --------------------------------------- */

KN_API kn_tensor kn_sum(kn_tensor x);           /* of bool and small integers in 64 bits */
KN_API kn_tensor kn_prod(kn_tensor x);          /* of bool and small integers in 64 bits */
KN_API kn_tensor kn_max(kn_tensor x);           /* NaN if there is one */
KN_API kn_tensor kn_min(kn_tensor x);           /* NaN if there is one */
KN_API kn_tensor kn_mean(kn_tensor x);          /* of integers f32 */
KN_API kn_tensor kn_any(kn_tensor x);           /* bool: one is not 0 */
KN_API kn_tensor kn_all(kn_tensor x);           /* bool: none is 0 */
KN_API kn_tensor kn_logsumexp(kn_tensor x);     /* log(sum(e^x)), without overflow */
KN_API kn_tensor kn_count_nonzero(kn_tensor x); /* i64 */
KN_API kn_tensor kn_norm(kn_tensor x);          /* square root of the sum of squares */
KN_API kn_tensor kn_sum_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_prod_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_max_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_min_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_mean_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_any_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_all_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_logsumexp_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_count_nonzero_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_norm_over(kn_tensor x, kn_ints axes, int keep);
/* correction 0: divide by n (numpy); 1: by n - 1 (PyTorch). */
KN_API kn_tensor kn_var(kn_tensor x, double correction);
KN_API kn_tensor kn_std(kn_tensor x, double correction);
KN_API kn_tensor kn_var_over(kn_tensor x, kn_ints axes, int keep, double correction);
KN_API kn_tensor kn_std_over(kn_tensor x, kn_ints axes, int keep, double correction);

/* Of the numbers alone: NaN is left out; nanmax, nanmin, nanmean of NaN alone are NaN. */
KN_API kn_tensor kn_nansum(kn_tensor x);
KN_API kn_tensor kn_nanprod(kn_tensor x);
KN_API kn_tensor kn_nanmax(kn_tensor x);
KN_API kn_tensor kn_nanmin(kn_tensor x);
KN_API kn_tensor kn_nanmean(kn_tensor x);
KN_API kn_tensor kn_nanvar(kn_tensor x, double correction);
KN_API kn_tensor kn_nanstd(kn_tensor x, double correction);
KN_API kn_tensor kn_nansum_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_nanprod_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_nanmax_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_nanmin_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_nanmean_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_nanvar_over(kn_tensor x, kn_ints axes, int keep, double correction);
KN_API kn_tensor kn_nanstd_over(kn_tensor x, kn_ints axes, int keep, double correction);

KN_API kn_tensor kn_argmax(kn_tensor x, int axis, int keep); /* i64; the first of equals; NaN counts as largest */
KN_API kn_tensor kn_argmin(kn_tensor x, int axis, int keep); /* as argmax, of the smallest */
KN_API kn_tensor kn_cumsum(kn_tensor x, int axis);           /* element i: the sum of 0 .. i */
KN_API kn_tensor kn_cumprod(kn_tensor x, int axis);          /* the product of 0 .. i */
KN_API kn_tensor kn_cummax(kn_tensor x, int axis);           /* the largest of 0 .. i */
KN_API kn_tensor kn_cummin(kn_tensor x, int axis);           /* the smallest of 0 .. i */
KN_API kn_tensor kn_cummax_indices(kn_tensor x, int axis);   /* i64: where the largest so far is, the last of equals or of NaN */
KN_API kn_tensor kn_cummin_indices(kn_tensor x, int axis);   /* of the smallest so far */
KN_API kn_tensor kn_logcumsumexp(kn_tensor x, int axis);     /* log(cumsum(e^x)), without overflow */

/* ---- products ---------------------------------------------------------------------------------------------- */

KN_API kn_tensor kn_matmul(kn_tensor a, kn_tensor b);           /* numpy's rules for vectors and batches */
KN_API kn_tensor kn_dot(kn_tensor a, kn_tensor b);              /* of two vectors */
KN_API kn_tensor kn_outer(kn_tensor a, kn_tensor b);            /* a[i] b[j] of two vectors */
KN_API kn_tensor kn_gemm(kn_tensor a, kn_tensor b);             /* (M, K) x (K, N) */
KN_API kn_tensor kn_bmm(kn_tensor a, kn_tensor b);              /* (B, M, K) x (B, K, N) */
KN_API kn_tensor kn_inner(kn_tensor a, kn_tensor b);            /* summed over both last axes: a's others, then b's */
KN_API kn_tensor kn_vecdot(kn_tensor a, kn_tensor b, int axis); /* a and b broadcast, then summed over the axis */
KN_API kn_tensor kn_cross(kn_tensor a, kn_tensor b, int axis);  /* of vectors of 3 along the axis */
KN_API kn_tensor kn_kron(kn_tensor a, kn_tensor b);             /* Kronecker's: each element of a times all of b */
KN_API kn_tensor kn_trace(kn_tensor x, int64_t offset);         /* the diagonal of the last two axes, summed */
/* Summed over pairs of axes: axes_a[i] of a with axes_b[i] of b, of equal sizes. The other axes of a, then those of b. */
KN_API kn_tensor kn_tensordot(kn_tensor a, kn_tensor b, kn_ints axes_a, kn_ints axes_b);
/* Einstein's sum: a term of letters for each operand, one for each axis, then -> and those of the result; what it lacks is
 * summed over. "..." stands for the axes not named, which broadcast; a letter twice in a term takes the diagonal; without ->
 * the result has the letters that stand once, sorted, behind the ellipsis. Spaces are skipped, an axis of 1 broadcasts.
 *   kn_einsum("bij,bjk->bik", (kn_tensor[]){a, b}, 2)     kn_einsum("ii", &a, 1): the trace
 *   kn_einsum("...qd,...kd,...kv->...qv", (kn_tensor[]){q, k, v}, 3)
 * Several operands are contracted in pairs, in the cheapest order up to ten of them, beyond that greedily; dtypes as for
 * kn_matmul: integers stay what they are, small floats add up in f32 and are rounded once, at the end. 64 operands at most. */
KN_API kn_tensor kn_einsum(const char *expression, const kn_tensor *operands, size_t n);
/* The ord-th root of the sum of |x|^ord; infinities: the largest, the smallest; 0: how many are not 0. Its gradient is 0
 * where the norm is. */
KN_API kn_tensor kn_vector_norm(kn_tensor x, double ord);
KN_API kn_tensor kn_vector_norm_over(kn_tensor x, double ord, kn_ints axes, int keep);
KN_API kn_tensor kn_cdist(kn_tensor a, kn_tensor b, double p);             /* (..., M, E), (..., N, E) to (..., M, N): norms of a - b */
KN_API kn_tensor kn_linear(kn_tensor x, kn_tensor weight, kn_tensor bias); /* weight (out, in); bias may be NULL */

/* ---- linear algebra ---------------------------------------------------------------------------------------- */

/* Of matrices (..., m, n), batched over the axes in front, which broadcast. They are loops over columns written out as a graph: for
 * small matrices, of 128 rows and columns at most (kn_eigh, kn_svd: 64), or as narrow ones of any length where the longer side's square is
 * not asked for (complete); compiling takes a millisecond or two a column, kn_eigh and kn_svd up to seconds. Computed in f32 at least; integers
 * give f32. Where there is no answer (a matrix that is singular, or not positive definite) it is NaN or infinite; nothing is
 * raised. out receives the results in the order named. */
KN_API kn_tensor kn_cholesky(kn_tensor x, int upper); /* L with L L' = x, or U with U' U = x; reads that triangle alone */
KN_API kn_tensor kn_solve_triangular(kn_tensor a, kn_tensor b, int upper, int unit); /* unit: the diagonal counts as 1 */
KN_API kn_tensor kn_solve(kn_tensor a, kn_tensor b); /* a x = b; b (..., n, m), or a vector (n,) */
KN_API kn_tensor kn_inv(kn_tensor x);
KN_API kn_tensor kn_det(kn_tensor x);
KN_API kn_status kn_slogdet(kn_tensor x, kn_tensor *out); /* the determinant's sign, the logarithm of its size */
KN_API kn_tensor kn_matrix_power(kn_tensor x, int n);     /* n < 0: of the inverse */
/* Q with orthonormal columns, R upper triangular: Q (m, r), R (r, n), r = min(m, n); complete: r = m. */
KN_API kn_status kn_qr(kn_tensor x, int complete, kn_tensor *out);
/* Of a symmetric matrix, of which the lower triangle is read: eigenvalues (..., n), ascending; eigenvectors as columns.
 * Gradients of eigenvectors are defined where eigenvalues differ; between equal ones nothing flows. */
KN_API kn_status kn_eigh(kn_tensor x, kn_tensor *out);
KN_API kn_tensor kn_eigvalsh(kn_tensor x); /* the eigenvalues of kn_eigh alone */
/* U, singular values in descending order, V': U (m, r), (r,), (r, n), r = min(m, n); complete: the longer side's r is its
 * own, and what completes it has no gradient. Gradients as those of eigenvectors. */
KN_API kn_status kn_svd(kn_tensor x, int complete, kn_tensor *out);
KN_API kn_tensor kn_svdvals(kn_tensor x); /* the singular values of kn_svd alone */
/* Singular values up to tolerance times the largest count as 0; tolerance 0: the longer side times the epsilon. */
KN_API kn_tensor kn_matrix_rank(kn_tensor x, double tolerance);
KN_API kn_tensor kn_pinv(kn_tensor x, double tolerance);
/* ord: "fro"; "nuc", the sum of singular values; "2", "-2", the largest and the smallest; "1", "-1", "inf", "-inf", the
 * largest and the smallest sum of a column's and of a row's sizes. */
KN_API kn_tensor kn_matrix_norm(kn_tensor x, const char *ord, int keep);

/* ---- Fourier transforms ------------------------------------------------------------------------------------- */

/* There are no complex dtypes: (real, imaginary) are the last axis, of 2, and axes are counted without it. Any length; the
 * inverse divides by it. Cost: n times the sum of n's factors, for a large prime n log n. Computed in f32 at least. */
KN_API kn_tensor kn_fft(kn_tensor x, kn_ints axes);
KN_API kn_tensor kn_ifft(kn_tensor x, kn_ints axes);
KN_API kn_tensor kn_rfft(kn_tensor x, int axis);             /* of real x (..., n, ...): (..., n / 2 + 1, ..., 2) */
KN_API kn_tensor kn_irfft(kn_tensor x, int64_t n, int axis); /* back to real (..., n, ...) */
KN_API kn_tensor kn_hfft(kn_tensor x, int64_t n, int axis);  /* n real values, of the first half of what is Hermitian: the rest mirrors it */
KN_API kn_tensor kn_ihfft(kn_tensor x, int axis);            /* back: the first half, as of kn_rfft */
KN_API kn_tensor kn_fftfreq(kn_ctx *k, int64_t n, double spacing, kn_dtype dtype);
KN_API kn_tensor kn_rfftfreq(kn_ctx *k, int64_t n, double spacing, kn_dtype dtype);
KN_API kn_tensor kn_fftshift(kn_tensor x, kn_ints axes); /* frequency 0 to the middle; a plain tensor's axes */
KN_API kn_tensor kn_ifftshift(kn_tensor x, kn_ints axes);

/* ---- indexing by tensors ----------------------------------------------------------------------------------- */

KN_API kn_tensor kn_prefix_sum(kn_tensor x);                               /* along axis 0 */
KN_API kn_tensor kn_gather(kn_tensor x, kn_tensor idx);                    /* x[idx] on axis 0; an index out of range gives 0, of floats -0.0 */
KN_API kn_tensor kn_take(kn_tensor x, kn_tensor idx, int axis);            /* kn_gather on any axis; negative counts from the end */
KN_API kn_tensor kn_take_along_axis(kn_tensor x, kn_tensor idx, int axis); /* x[.., idx[.., j, ..], ..]: idx has x's rank; out of range gives 0 */
KN_API kn_tensor kn_scatter_add(kn_tensor x, kn_tensor idx, kn_tensor value);                      /* x[idx] += value on axis 0 */
KN_API kn_tensor kn_scatter_add_along_axis(kn_tensor x, int axis, kn_tensor idx, kn_tensor value); /* x[.., idx[.., j, ..], ..] += value */
/* PyTorch's: idx has x's rank and, but for the axis, at most its sizes; what it does not reach stays. value is broadcast to
 * idx's shape and meets x[.., idx[.., j, ..], ..]. put: the last j wins. how: "sum", "prod", "mean", "amax", "amin" (NaN is
 * both); without include_self x counts only where nothing meets it. Negative indices count from the end, those out of range
 * go nowhere. Cost: linear in x and value. */
KN_API kn_tensor kn_put_along_axis(kn_tensor x, int axis, kn_tensor idx, kn_tensor value);
KN_API kn_tensor kn_scatter_reduce(kn_tensor x, int axis, kn_tensor idx, kn_tensor value, const char *how, int include_self);
/* numpy's x[i, j, ...]: one entry for each axis from the first, NULL takes it whole; integer tensors are broadcast against
 * each other, and their axes stand where the indexed axes were if those are neighbours, in front otherwise. Negative indices
 * count from the end; out of range reads 0 and writes nothing.
 *   kn_index(x, (kn_tensor[]){i, NULL, j}, 3)             x[i, :, j]
 *   kn_index_put(x, (kn_tensor[]){i, j}, 2, v, 0)         x with x[i, j] = v: of equal places the last wins; 1: x[i, j] += v
 *   kn_setitem(w, &mask, 1, v)                            w[mask] = v, in place: w is a kn_param or a view of one
 * value is broadcast to the shape that kn_index would have. For writing, a bool tensor may stand alone: a mask over the
 * leading axes, with value broadcast to x's shape. */
KN_API kn_tensor kn_index(kn_tensor x, const kn_tensor *idx, size_t n);
KN_API kn_tensor kn_index_put(kn_tensor x, const kn_tensor *idx, size_t n, kn_tensor value, int add);
KN_API kn_tensor kn_setitem(kn_tensor target, const kn_tensor *idx, size_t n, kn_tensor value);
KN_API kn_tensor kn_one_hot(kn_tensor idx, int64_t classes, kn_dtype dtype); /* a new last axis: 1 at idx, else 0; out of range all 0 */
KN_API kn_tensor kn_embedding(kn_tensor weight, kn_tensor idx);              /* rows of weight (N, E): (..., E) */

/* ---- order (sort.c): NaN counts as the largest, -0.0 and 0.0 as equal; equals keep their order -----------------
 *
 *   kn_tensor which, best = kn_topk(logits, 50, -1, 1, &which);               the 50 likeliest of each row, and which they are
 *   kn_tensor ranked = kn_take(names, kn_argsort(score, 0, 1), 0);            by score, the best first
 *   kn_tensor counts, n, word = kn_unique(ids, 1000, NULL, NULL, &counts, &n);  up to 1000 distinct, how often each is there, how many */

/* Along an axis, ascending or descending (NaN then first, as in PyTorch); cost grows as n. argsort: i64. */
KN_API kn_tensor kn_sort(kn_tensor x, int axis, int descending);
KN_API kn_tensor kn_argsort(kn_tensor x, int axis, int descending);
/* The n largest (or smallest) along an axis, in order, the first of equals; indices, if not NULL, receives where they are, i64. */
KN_API kn_tensor kn_topk(kn_tensor x, int64_t n, int axis, int largest, kn_tensor *indices);
/* The n-th smallest along an axis, n from 1; PyTorch's median is that of n = (size + 1) / 2. */
KN_API kn_tensor kn_kthvalue(kn_tensor x, int64_t n, int axis, int keep, kn_tensor *indices);
/* numpy's: the mean of the two in the middle; integers give f32; NaN where there is one, but for nan..., which leaves NaN out. */
KN_API kn_tensor kn_median(kn_tensor x);
KN_API kn_tensor kn_nanmedian(kn_tensor x);
KN_API kn_tensor kn_median_over(kn_tensor x, kn_ints axes, int keep);
KN_API kn_tensor kn_nanmedian_over(kn_tensor x, kn_ints axes, int keep);
/* q from 0 to 1; what lies between two elements is the mixture, the lower, the higher, the mean, or the nearer (even) one. */
typedef enum kn_quantile_method {
    KN_QUANTILE_LINEAR,
    KN_QUANTILE_LOWER,
    KN_QUANTILE_HIGHER,
    KN_QUANTILE_MIDPOINT,
    KN_QUANTILE_NEAREST
} kn_quantile_method;
KN_API kn_tensor kn_quantile(kn_tensor x, double q, kn_quantile_method method);
KN_API kn_tensor kn_nanquantile(kn_tensor x, double q, kn_quantile_method method);
KN_API kn_tensor kn_quantile_over(kn_tensor x, double q, kn_ints axes, int keep, kn_quantile_method method);
KN_API kn_tensor kn_nanquantile_over(kn_tensor x, double q, kn_ints axes, int keep, kn_quantile_method method);
/* The most frequent along an axis: the least of several; indices: its first place. */
KN_API kn_tensor kn_mode(kn_tensor x, int axis, int keep, kn_tensor *indices);

/* ---- looking up and counting (count.c) ------------------------------------------------------------------------- */

/* Where values would go in a table that ascends along its last axis: before equals (right: behind them); i64. The table has one axis, or
 * those of values but for the last. bucketize is the same by another name: as PyTorch's, and numpy's digitize with right turned round. */
KN_API kn_tensor kn_searchsorted(kn_tensor sorted, kn_tensor values, int right);
KN_API kn_tensor kn_bucketize(kn_tensor x, kn_tensor boundaries, int right);
/* How often each of 0 .. size - 1 is in x, integers, i64; with weights of x's shape (NULL: none), the sum of theirs. Others are left out. */
KN_API kn_tensor kn_bincount(kn_tensor x, int64_t size, kn_tensor weights);
/* numpy's: how many of x lie in each of as many bins from lo to hi (equal: from x's least to its greatest), i64, or the sum of their
 * weights. edges, if not NULL, receives the bins + 1 edges. No gradient but for the weights'. */
KN_API kn_tensor kn_histogram(kn_tensor x, int64_t bins, double lo, double hi, kn_tensor weights, kn_tensor *edges);
/* The distinct elements of x, ascending, the first `size` of them, 0 behind those that there are. Each of the others may be NULL:
 * index: where each is first, the number of elements behind; inverse: of x's shape, which of them an element is; counts: how often each
 * is there; number: how many there are, (), more than size if there was no room. All i64. */
KN_API kn_tensor kn_unique(kn_tensor x, int64_t size, kn_tensor *index, kn_tensor *inverse, kn_tensor *counts, kn_tensor *number);
/* Positions of the first `size` elements that are not 0, (size, rank) i64; behind those that there are stands x's shape, which lies
 * outside. number, if not NULL: how many there are, (). */
KN_API kn_tensor kn_nonzero(kn_tensor x, int64_t size, kn_tensor *number);
/* The first `size` elements of x where mask is true (both broadcast), in order, 0 behind those that there are. */
KN_API kn_tensor kn_masked_select(kn_tensor x, kn_tensor mask, int64_t size, kn_tensor *number);

/* ---- networks ---------------------------------------------------------------------------------------------- */

KN_API kn_tensor kn_conv2d(kn_tensor x, kn_tensor weight, kn_tensor bias, int stride, int padding, int dilation, int groups); /* x (N, C, H, W), weight (out, C / groups, h, w), bias (out,) or NULL */
/* Any number of spatial axes; each list has one entry for all of them or one each. bias may be NULL. */
KN_API kn_tensor kn_conv(kn_tensor x, kn_tensor weight, kn_tensor bias, kn_ints stride, kn_ints padding, kn_ints dilation, int groups);
/* Windows as columns: x (N, C, ...) to (N, C * the product of size, places), lists as for kn_conv; and back, what overlaps
 * added up, to images of the given spatial size (PyTorch's unfold and fold). */
KN_API kn_tensor kn_im2col(kn_tensor x, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation);
KN_API kn_tensor kn_col2im(kn_tensor columns, kn_ints image, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation);
/* What the input of kn_conv gets back for x (PyTorch's ConvTranspose): x (N, in, S..), weight (in, out / groups, K..) to
 * (N, out, (S - 1) * stride - 2 * padding + dilation * (K - 1) + 1 + output_padding ..). Floats. output_padding is less than the
 * stride or the dilation. */
KN_API kn_tensor kn_conv_transpose2d(kn_tensor x, kn_tensor weight, kn_tensor bias, int stride, int padding, int output_padding, int dilation, int groups);
KN_API kn_tensor kn_conv_transpose(kn_tensor x, kn_tensor weight, kn_tensor bias, kn_ints stride, kn_ints padding, kn_ints output_padding, kn_ints dilation, int groups);
/* Windows over the spatial axes of x (N, C, S..), lists as for kn_conv. ceil: their number is rounded up; the last one may hang over
 * what is padded, if it starts before the padding behind. count_padding: a mean counts padded positions too. */
KN_API kn_tensor kn_max_pool2d(kn_tensor x, int size, int stride, int padding);
KN_API kn_tensor kn_avg_pool2d(kn_tensor x, int size, int stride, int padding); /* counts the padding */
KN_API kn_tensor kn_max_pool(kn_tensor x, kn_ints size, kn_ints stride, kn_ints padding, kn_ints dilation, int ceil);
KN_API kn_tensor kn_avg_pool(kn_tensor x, kn_ints size, kn_ints stride, kn_ints padding, int ceil, int count_padding);
KN_API kn_tensor kn_lp_pool(kn_tensor x, double p, kn_ints size, kn_ints stride, int ceil); /* (sum |x|^p)^(1/p) */
/* Each spatial axis in `sizes` (one for all, or one each) nearly equal parts, which may share positions. */
KN_API kn_tensor kn_adaptive_avg_pool(kn_tensor x, kn_ints sizes);
KN_API kn_tensor kn_adaptive_max_pool(kn_tensor x, kn_ints sizes);
/* x (N, C, S..) to spatial sizes (one for all, or one each), axis by axis. align_corners: the first and last positions stay;
 * else pixels are areas. KN_INTERP_NEAREST takes floor(i n / out), KN_INTERP_NEAREST_EXACT the pixel under the middle; of KN_INTERP_LINEAR and KN_INTERP_CUBIC
 * (a = -3/4) integers give f32. */
typedef enum kn_interpolation { KN_INTERP_NEAREST, KN_INTERP_NEAREST_EXACT, KN_INTERP_LINEAR, KN_INTERP_CUBIC } kn_interpolation;
KN_API kn_tensor kn_interpolate(kn_tensor x, kn_ints sizes, kn_interpolation how, int align_corners);
KN_API kn_tensor kn_pixel_shuffle(kn_tensor x, int r);   /* (.., C r r, H, W) to (.., C, H r, W r) */
KN_API kn_tensor kn_pixel_unshuffle(kn_tensor x, int r); /* and back */
/* exp(x - max), times the reciprocal of its sum: the two are rounded apart, so a value may be one unit in the last place further off. */
KN_API kn_tensor kn_softmax(kn_tensor x, int axis);
KN_API kn_tensor kn_log_softmax(kn_tensor x, int axis); /* x - max - log(sum(exp(x - max))) */
KN_API kn_tensor kn_softmin(kn_tensor x, int axis);     /* softmax of -x */

/* Losses. Each has a value for every element (row, sequence): KN_LOSS_EACH asks for these, KN_LOSS_MEAN and _SUM for one
 * value of all, KN_LOSS_BATCH for the sum over the size of axis 0. The short forms are the mean. */
typedef enum kn_reduction { KN_LOSS_MEAN, KN_LOSS_SUM, KN_LOSS_EACH, KN_LOSS_BATCH } kn_reduction;
#define KN_LOSS_IGNORE_NONE INT64_MIN
/* logits (N, C, ...); target: labels (N, ...) of integers, or how probable each class is: floats of logits' shape.
 * weight (C,) or NULL: of each class. A label `ignore` counts nothing; one that is no class (-100, unless ignore says so) is not noticed: it
 * adds 0, and counts where there are no weights. smoothing, 0 to 1: so much of a target is spread over all classes. A mean is by weights.
 * nll_loss: of log_p (N, C, ...), given labels. */
KN_API kn_tensor kn_cross_entropy(kn_tensor logits, kn_tensor target);
KN_API kn_tensor kn_cross_entropy_as(kn_tensor logits, kn_tensor target, kn_tensor weight, int64_t ignore, double smoothing, kn_reduction how);
KN_API kn_tensor kn_nll_loss(kn_tensor log_p, kn_tensor labels);
KN_API kn_tensor kn_nll_loss_as(kn_tensor log_p, kn_tensor labels, kn_tensor weight, int64_t ignore, kn_reduction how);
/* (x - target)^2 */
KN_API kn_tensor kn_mse_loss(kn_tensor x, kn_tensor target);
KN_API kn_tensor kn_mse_loss_as(kn_tensor x, kn_tensor target, kn_reduction how);
/* |x - target| */
KN_API kn_tensor kn_l1_loss(kn_tensor x, kn_tensor target);
KN_API kn_tensor kn_l1_loss_as(kn_tensor x, kn_tensor target, kn_reduction how);
/* Squares up to |x - target| = delta, straight from there on; smooth_l1: the same over beta, beta 0 is l1. */
KN_API kn_tensor kn_huber_loss(kn_tensor x, kn_tensor target, double delta);
KN_API kn_tensor kn_huber_loss_as(kn_tensor x, kn_tensor target, double delta, kn_reduction how);
KN_API kn_tensor kn_smooth_l1_loss(kn_tensor x, kn_tensor target, double beta, kn_reduction how);
/* -target log(p) - (1 - target) log(1 - p), of probabilities p and target; logarithms are -100 at least. */
KN_API kn_tensor kn_bce_loss(kn_tensor p, kn_tensor target);
KN_API kn_tensor kn_bce_loss_as(kn_tensor p, kn_tensor target, kn_reduction how);
/* bce_loss of sigmoid(logits), without overflow. weight: of each element; positive: of the targets that are 1. Both broadcast, or are NULL. */
KN_API kn_tensor kn_bce_with_logits(kn_tensor logits, kn_tensor target);
KN_API kn_tensor kn_bce_with_logits_as(kn_tensor logits, kn_tensor target, kn_tensor weight, kn_tensor positive, kn_reduction how);
/* target (log target - log_p); log_target: target is given as its logarithm. PyTorch's batchmean is KN_LOSS_BATCH. */
KN_API kn_tensor kn_kl_div(kn_tensor log_p, kn_tensor target, int log_target, kn_reduction how);
/* exp(x) - target x, or x - target log(x + eps) where x is not a logarithm. */
KN_API kn_tensor kn_poisson_nll_loss(kn_tensor x, kn_tensor target, int log_input, double eps, kn_reduction how);
/* (log v + (x - target)^2 / v) / 2, v the larger of var and eps. */
KN_API kn_tensor kn_gaussian_nll_loss(kn_tensor x, kn_tensor target, kn_tensor var, double eps, kn_reduction how);
/* Targets are 1 and -1. */
KN_API kn_tensor kn_soft_margin_loss(kn_tensor x, kn_tensor target);
KN_API kn_tensor kn_soft_margin_loss_as(kn_tensor x, kn_tensor target, kn_reduction how); /* log(1 + e^(-target x)) */
KN_API kn_tensor kn_hinge_embedding_loss(kn_tensor x, kn_tensor target, double margin, kn_reduction how); /* x where target is 1, max(0, margin - x) where it is -1 */
KN_API kn_tensor kn_margin_ranking_loss(kn_tensor a, kn_tensor b, kn_tensor target, double margin, kn_reduction how); /* max(0, margin - target (a - b)) */
/* Of vectors along the last axis: 1 - cosine, or what the cosine is above margin; distances to one that is near and one that is far. */
KN_API kn_tensor kn_cosine_embedding_loss(kn_tensor a, kn_tensor b, kn_tensor target, double margin, kn_reduction how);
KN_API kn_tensor kn_triplet_margin_loss(kn_tensor anchor, kn_tensor near, kn_tensor far, double margin, kn_reduction how);
/* log_p (T, N, C), labels (N, S) of integers, steps and lengths (N,): how many of T and S count. blank: the class between labels. One
 * kernel a step. zero_infinity: labels that do not fit the steps count 0, not infinity. A mean is of each over its length. */
KN_API kn_tensor kn_ctc_loss(kn_tensor log_p, kn_tensor labels, kn_tensor steps, kn_tensor lengths, int blank, int zero_infinity, kn_reduction how);

/* Over the last `axes` axes; weight and bias have their shape, or are NULL. */
KN_API kn_tensor kn_layer_norm(kn_tensor x, int axes, kn_tensor weight, kn_tensor bias, double eps);
KN_API kn_tensor kn_rms_norm(kn_tensor x, int axes, kn_tensor weight, double eps);
KN_API kn_tensor kn_group_norm(kn_tensor x, int groups, kn_tensor weight, kn_tensor bias, double eps);
KN_API kn_tensor kn_instance_norm(kn_tensor x, kn_tensor weight, kn_tensor bias, double eps); /* x (N, C, S..); (C,) or NULL */
/* x / (add + alpha * mean of the squares of `size` channels around)^beta, as if zeros stood beside. */
KN_API kn_tensor kn_local_response_norm(kn_tensor x, int64_t size, double alpha, double beta, double add);
/* x over its length (sum |x|^p)^(1/p) along an axis, which counts as eps at least; p INFINITY: the largest. */
KN_API kn_tensor kn_normalize(kn_tensor x, double p, int axis, double eps);
KN_API kn_tensor kn_cosine_similarity(kn_tensor a, kn_tensor b, int axis, double eps);
/* x (N, C, ...). Inference: with the given statistics. Training: with the batch's; mean and var, if not NULL, are
 * parameters that move towards them by momentum (realise them with the result). */
KN_API kn_tensor kn_batch_norm(kn_tensor x, kn_tensor mean, kn_tensor var, kn_tensor weight, kn_tensor bias, double eps);
KN_API kn_tensor kn_batch_norm_train(kn_tensor x, kn_tensor mean, kn_tensor var, kn_tensor weight, kn_tensor bias, double momentum, double eps);
/* Turns each pair (x[i], x[i + E/2]) of the last axis by an angle: x (..., E), its cos and sin (..., E/2), broadcast. */
KN_API kn_tensor kn_rotary(kn_tensor x, kn_tensor cos, kn_tensor sin);
/* q (..., L, E), k (..., S, E), v (..., S, V). mask: bool (true: attend) or float (added), or NULL.
 * scale 0: 1/sqrt(E). Axis -3 are heads: where k and v have fewer, which divide q's, neighbours among q's share them.
 * On the way forward scores of 128 queries and keys or more (f32, f64; up to 32768 keys, values up to 128 wide) are in no memory: rows of them are made
 * and used at once. */
KN_API kn_tensor kn_attention(kn_tensor q, kn_tensor k, kn_tensor v, kn_tensor mask, int causal, double scale);

/* ---- functions and gradients ------------------------------------------------------------------------------- */

/* Traces f(user, in, out) into one FUNCTION node; out receives nout tensors. */
typedef void (*kn_fn)(void *user, const kn_tensor *in, kn_tensor *out);
KN_API kn_status kn_function(kn_ctx *k, kn_fn f, void *user, const kn_tensor *in, size_t nin, kn_tensor *out, size_t nout);
/* The same, but gradients keep nothing of what f computes but its results: they compute it again, from in and what f finds
 * outside, once the gradients of out are there. */
KN_API kn_status kn_checkpoint(kn_ctx *k, kn_fn f, void *user, const kn_tensor *in, size_t nin, kn_tensor *out, size_t nout);
/* d loss / d wrt[i] into out[i]. loss is a scalar, or its elements are summed. A wrt that loss does not depend on
 * has gradient zero. Tensors that are realised already are reached through while they live in the scope they were made in
 * and nothing they were computed from has been assigned to. */
KN_API kn_status kn_grad(kn_tensor loss, const kn_tensor *wrt, size_t n, kn_tensor *out);
KN_API kn_tensor kn_grad1(kn_tensor loss, kn_tensor wrt);
/* The same with a given gradient v of y, of y's shape, instead of ones: into out[i] J^T v, J the derivatives of y by wrt[i]. */
KN_API kn_status kn_vjp(kn_tensor y, kn_tensor v, const kn_tensor *wrt, size_t n, kn_tensor *out);
/* How y changes when each wrt[i] moves along v[i], of its shape: the sum of J v, of y's shape. */
KN_API kn_tensor kn_jvp(kn_tensor y, const kn_tensor *wrt, const kn_tensor *v, size_t n);
/* How the gradients change then: the Hessian of loss by all of wrt, times v, into out. */
KN_API kn_status kn_hvp(kn_tensor loss, const kn_tensor *wrt, const kn_tensor *v, size_t n, kn_tensor *out);
/* All derivatives of y by x, in y's axes and then x's: one graph, of as many rows as the smaller of the two has elements. */
KN_API kn_tensor kn_jacobian(kn_tensor y, kn_tensor x);
/* The second derivatives of loss by x, in x's axes twice. */
KN_API kn_tensor kn_hessian(kn_tensor loss, kn_tensor x);

/* Stamps the caller's place on a tensor just made, or on the failure a call just had; used by the macros of here.h. */
KN_API kn_tensor kn_at_(kn_tensor t, const char *file, int line);
KN_API kn_status kn_at_status_(kn_status s, const char *file, int line);
KN_API const void *kn_at_data_(const void *data, const char *file, int line);
KN_API double kn_at_double_(double v, const char *file, int line);

#ifdef __cplusplus
}
#endif

#ifdef KN_NO_LOC
#define KN_FILE_LINE_ NULL, 0
#else
#define KN_FILE_LINE_ __FILE__, __LINE__
#include <koine/here.h>
#endif
#endif
