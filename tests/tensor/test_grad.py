"""Gradients by finite differences in f64, first and second order, and the rules that are not derivatives."""
import ctypes

import koine
import numpy as np
import pytest
from data import values
from test_index import index, index_put, tensors

# name: (shapes, f(tensors) -> tensor, lo, hi)
S = (3, 4)
CASES = {}


def one(name, lo=-2.0, hi=2.0, args=(), shape=S):
    CASES[f"{name}{args or ''}"] = ([shape], lambda x: koine.call(name, x, *args), lo, hi)


def two(name, lo=-2.0, hi=2.0, shapes=(S, S), args=()):
    CASES[f"{name}-{shapes}"] = (list(shapes), lambda *t: koine.call(name, *t, *args), lo, hi)


for name in ("neg", "square", "exp", "exp2", "expm1", "sin", "cos", "sinh", "cosh", "tanh", "erf", "sigmoid", "gelu", "gelu_tanh", "quick_gelu",
             "silu", "mish", "softplus", "softsign", "logsigmoid", "selu", "relu", "abs", "atan", "asinh", "hardswish", "deg2rad", "rad2deg"):
    one(name)
for name in ("sqrt", "rsqrt", "recip", "log", "log2", "log10", "log1p"):
    one(name, 0.3, 3)
for name in ("asin", "acos", "atanh"):
    one(name, -0.8, 0.8)
one("tan", -1, 1)
one("acosh", 1.3, 3)
one("leaky_relu", args=(0.1,))
one("elu", args=(0.7,))
one("celu", args=(0.7,))
one("clamp", args=(-1.0, 1.5))
for e in (2.0, 3.0, 0.5, -1.0, 0.0):
    one("pows", 0.3, 2, args=(e,))
for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "logaddexp", "hypot", "atan2"):
    lo = 0.4 if name in ("div", "pow", "hypot", "atan2") else -2
    two(name, lo)
    two(name, lo, shapes=((2, 1, 3), (4, 1)))
    two(name, lo, shapes=((), (3,)))
CASES["mulacc"] = ([S, S, S], lambda a, b, c: a.mulacc(b, c), -2, 2)
CASES["where"] = ([S, S], lambda a, b: a.gts(0.0).where(a.mul(b), b), -2, 2)
for args in (((0,), 0), ((1,), 1), ((0, 1), 0)):
    for name in ("sum", "mean", "max", "min", "prod", "logsumexp", "norm"):
        one(name + "_over", 0.5, 2, args=args)
    one("var_over", args=args + (1.0,))
    one("std_over", args=args + (0.0,))
for name, args in (("cumsum", (1,)), ("cumprod", (0,)), ("cummax", (1,)), ("softmax", (-1,)), ("log_softmax", (0,)), ("reshape", ((2, 6),)), ("permute", ((1, 0),)),
                   ("expand", ((2, 3, 4),)), ("pad", ((1, 0, 2, 1), 3.0)), ("shrink", ((1, 0), (2, 3))), ("flip", ((0,),)), ("slice", (1, 3, koine.END, -2)),
                   ("tile", ((2, 2),)), ("roll", (2, 1)), ("tril", (0,)), ("diagonal", (1,)), ("unfold", (1, 2, 1)), ("contiguous", ()), ("contiguous_backward", ())):
    one(name, 0.5, 2, args=args)
two("matmul", shapes=((3, 4), (4, 2)))
two("matmul", shapes=((2, 3, 4), (4,)))
two("matmul", shapes=((2, 1, 3, 4), (3, 4, 2)))
CASES["linear"] = ([(5, 3), (2, 3), (2,)], lambda x, w, b: x.linear(w, b), -2, 2)
CASES["conv2d"] = ([(2, 2, 5, 5), (3, 2, 3, 3), (3,)], lambda x, w, b: x.conv2d(w, b, 2, 1, 1, 1), -2, 2)
CASES["conv2d-groups"] = ([(1, 4, 5, 5), (4, 2, 2, 2)], lambda x, w: x.conv2d(w, None, 1, 0, 2, 2), -2, 2)
CASES["max_pool2d"] = ([(1, 2, 5, 5)], lambda x: x.max_pool2d(2, 2, 1), -2, 2)
CASES["avg_pool2d"] = ([(1, 2, 5, 5)], lambda x: x.avg_pool2d(3, 2, 1), -2, 2)
CASES["layer_norm"] = ([(3, 5), (5,), (5,)], lambda x, w, b: x.layer_norm(1, w, b, 1e-5), -2, 2)
CASES["rms_norm"] = ([(3, 5), (5,)], lambda x, w: x.rms_norm(1, w, 1e-5), -2, 2)
CASES["group_norm"] = ([(2, 4, 3), (4,), (4,)], lambda x, w, b: x.group_norm(2, w, b, 1e-5), -2, 2)
CASES["batch_norm_train"] = ([(4, 3, 2), (3,), (3,)], lambda x, w, b: x.batch_norm_train(None, None, w, b, 0.1, 1e-5), -2, 2)
CASES["rotary"] = ([(2, 3, 4), (3, 2), (3, 2)], lambda x, c, s: x.rotary(c, s), -2, 2)
CASES["attention"] = ([(2, 3, 4), (2, 5, 4), (2, 5, 3)], lambda q, k, v: q.attention(k, v, None, 1, 0.0), -2, 2)
labels = np.array([1, 0, 3])
for name in ("cross_entropy", "nll_loss"):
    CASES[name] = ([(3, 4)], lambda x, name=name: koine.call(name, x, x.k.array(labels)), -2, 2)
two("mse_loss")
two("l1_loss")
two("bce_with_logits", 0.1, 0.9)
two("bce_loss", 0.1, 0.9)
two("huber_loss", args=(0.8,))
two("soft_margin_loss")
two("smooth_l1_loss", args=(0.8, 1))
two("kl_div", 0.1, 0.9, args=(0, 1))
two("kl_div", args=(1, 3))
two("poisson_nll_loss", args=(1, 1e-8, 0))
two("cosine_similarity", args=(1, 1e-8))
one("hardshrink", args=(0.5,))
one("softshrink", args=(0.5,))
one("tanhshrink")
one("glu", args=(1,))
one("logit", 0.1, 0.9, args=(0.0,))
one("normalize", args=(2.0, 1, 1e-12))
CASES["normalize-3"] = ([S], lambda x: x.normalize(3.0, 0, 1e-12), 0.2, 2)
CASES["prelu"] = ([(2, 3, 4), (3,)], lambda x, w: x.prelu(w), -2, 2)
CASES["gaussian_nll_loss"] = ([S, S, S], lambda x, t, v: x.gaussian_nll_loss(t, v, 1e-6, 0), 0.2, 2)
CASES["triplet_margin_loss"] = ([S, S, S], lambda a, b, c: a.triplet_margin_loss(b, c, 3.0, 1), -2, 2)
CASES["cross_entropy_as"] = ([(3, 4), (3, 4)], lambda x, p: x.cross_entropy_as(p, x.k.array(np.array([0.5, 1.0, 2.0, 0.1])), koine.END, 0.1, 0), 0.1, 2)
CASES["cross_entropy_as-labels"] = ([(3, 4)], lambda x: x.cross_entropy_as(x.k.array(labels), x.k.array(np.array([0.5, 1.0, 2.0, 0.1])), 3, 0.2, 0), -2, 2)
CASES["ctc_loss"] = ([(5, 2, 3)], lambda x: x.log_softmax(2).ctc_loss(x.k.array(np.array([[1, 1], [2, 1]])), x.k.array(np.array([5, 3])), x.k.array(np.array([2, 1])), 0, 0, 0), -2, 2)
CASES["conv_transpose"] = ([(2, 4, 3), (4, 2, 3), (4,)], lambda x, w, b: x.conv_transpose(w, b, (2,), (1,), (1,), (1,), 2), -2, 2)
CASES["conv_transpose2d"] = ([(1, 2, 3, 2), (2, 3, 2, 2)], lambda x, w: x.conv_transpose2d(w, None, 1, 0, 0, 2, 1), -2, 2)
CASES["max_pool-ceil"] = ([(1, 2, 5, 4)], lambda x: x.max_pool((2,), (2,), (0,), (1,), 1), -2, 2)
CASES["avg_pool-ceil"] = ([(1, 2, 5, 4)], lambda x: x.avg_pool((3,), (2,), (1,), 1, 1), -2, 2)
CASES["lp_pool"] = ([(1, 2, 5, 4)], lambda x: x.lp_pool(3.0, (2,), (2,), 1), 0.2, 2)
CASES["adaptive_avg_pool"] = ([(1, 2, 5, 7)], lambda x: x.adaptive_avg_pool((3, 4)), -2, 2)
CASES["adaptive_max_pool"] = ([(1, 2, 5, 7)], lambda x: x.adaptive_max_pool((2, 7)), -2, 2)
for how in range(4):
    CASES[f"interpolate-{how}"] = ([(1, 2, 3, 4)], lambda x, how=how: x.interpolate((5, 3), how, 0), -2, 2)
    if how < 2:  # whole factors
        CASES[f"interpolate-{how}-up"] = ([(1, 2, 3, 4)], lambda x, how=how: x.interpolate((6, 12), how, 0), -2, 2)
        CASES[f"interpolate-{how}-down"] = ([(1, 2, 6, 12)], lambda x, how=how: x.interpolate((3, 4), how, 0), -2, 2)
CASES["interpolate-aligned"] = ([(1, 2, 3, 4)], lambda x: x.interpolate((5, 3), 3, 1), -2, 2)
CASES["pixel_shuffle"] = ([(1, 8, 2, 3)], lambda x: x.pixel_shuffle(2), -2, 2)
CASES["instance_norm"] = ([(2, 3, 4), (3,), (3,)], lambda x, w, b: x.instance_norm(w, b, 1e-5), -2, 2)
CASES["local_response_norm"] = ([(2, 5, 3)], lambda x: x.local_response_norm(3, 0.5, 0.75, 1.5), -2, 2)
CASES["attention-grouped"] = ([(4, 3, 4), (2, 5, 4), (2, 5, 3)], lambda q, k, v: q.attention(k, v, None, 1, 0.0), -2, 2)
CASES["take"] = ([(5, 3)], lambda x: x.take(x.k.array(np.array([4, 0, 4])), 0), -2, 2)
CASES["embedding"] = ([(6, 2)], lambda x: x.embedding(x.k.array(np.array([[1, 5], [1, 0]], np.int32))), -2, 2)
CASES["take_along_axis"] = ([(3, 4)], lambda x: x.take_along_axis(x.k.array(np.array([[0, 3], [1, 1], [2, 0]])), 1), -2, 2)
CASES["scatter_add"] = ([(5, 2), (3, 2)], lambda x, v: x.scatter_add(x.k.array(np.array([1, 4, 1])), v), -2, 2)
def several_indices(x):
    return index(x, tensors(x.k, ([4, 0, 4], None, [1, 1, 1])))


def put(x, v):
    return index_put(x, tensors(x.k, ([4, 0, 4], [1, 2, 1])), v, 0)


CASES["index"] = ([(5, 2, 3)], several_indices, -2, 2)
CASES["index_put"] = ([(5, 3), (3,)], put, -2, 2)
ALONG = np.array([[1, 4, 1], [0, 0, 2]])
CASES["put_along_axis"] = ([(2, 5), (2, 3)], lambda x, v: x.put_along_axis(1, x.k.array(ALONG), v), -2, 2)
for how in ("sum", "prod", "mean", "amax", "amin"):
    for include in (0, 1):
        CASES[f"scatter_reduce-{how}-{include}"] = ([(2, 5), (2, 3)], lambda x, v, how=how, include=include: x.scatter_reduce(1, x.k.array(ALONG), v, how, include), 0.5, 2)
for i, (e, s) in enumerate((("ij,jk->ki", ((2, 3), (3, 4))), ("ij,ji->", ((2, 3), (3, 2))), ("iij,j->i", ((2, 2, 3), (3,))), ("...i,i->...", ((2, 3), (3,))), ("ij,jk,kl->il", ((2, 3), (3, 2), (2, 3))))):
    CASES[f"einsum-{i}"] = (list(s), lambda *t, e=e: koine.call("einsum", e, list(t)), -2, 2)
CASES["tensordot"] = ([(2, 3, 2), (3, 2, 4)], lambda a, b: a.tensordot(b, (1, 0), (0, 1)), -2, 2)
two("cross", shapes=((2, 3), (3,)), args=(-1,))
two("kron", shapes=((2, 3), (2,)))
two("vecdot", shapes=((2, 3), (3,)), args=(-1,))
one("trace", args=(1,))
one("vector_norm", args=(3.0,))
one("vector_norm", args=(2.0,))
two("cdist", shapes=((3, 2), (4, 2)), args=(2.0,))
for mode in ("reflect", "symmetric", "replicate", "circular"):
    one("pad_mode", args=((1, 2, 2, 3), mode, 0.0))
one("rot90", args=(1, 0, 1))
one("diff", args=(2, 1))
def definite(x):
    return x.matmul(x.mT()).add(x.k.array(np.eye(3)))


def far(x):
    return x.add(x.k.array(np.diag([5.0, 1.0, 3.0])))


M = (3, 3)
CASES["cholesky"] = ([(2, 3, 3)], lambda x: definite(x).cholesky(0), -1, 1)
CASES["solve_triangular"] = ([M, (3, 2)], lambda a, b: far(a).solve_triangular(b, 1, 0), -0.5, 0.5)
CASES["solve"] = ([M, (3, 2)], lambda a, b: far(a).solve(b), -0.5, 0.5)
CASES["inv"] = ([M], lambda a: far(a).inv(), -0.5, 0.5)
CASES["det"] = ([M], lambda a: a.det(), -1, 1)
CASES["slogdet"] = ([M], lambda a: koine.several("slogdet", 2, far(a))[1], -0.5, 0.5)
CASES["matrix_power"] = ([M], lambda a: far(a).matrix_power(-2), -0.5, 0.5)
for j in range(2):
    CASES[f"qr-{j}"] = ([(3, 2)], lambda a, j=j: koine.several("qr", 2, a, 0)[j], -1, 1)
    CASES[f"eigh-{j}"] = ([M], lambda a, j=j: koine.several("eigh", 2, far(a))[j], -0.5, 0.5)
CASES["im2col"] = ([(1, 2, 5, 4)], lambda x: x.im2col((3, 2), (2, 1), (1, 0), (1,)), -2, 2)
CASES["col2im"] = ([(1, 8, 9)], lambda x: x.col2im((4, 4), (2,), (1,), (0,), (1,)), -2, 2)
CASES["fft"] = ([(2, 6, 2)], lambda x: x.fft((0, 1)), -2, 2)
CASES["ifft"] = ([(70, 2)], lambda x: x.ifft((0,)), -2, 2)
CASES["rfft"] = ([(3, 5)], lambda x: x.rfft(0), -2, 2)
CASES["irfft"] = ([(4, 2)], lambda x: x.irfft(6, 0), -2, 2)
CASES["hfft"] = ([(4, 2)], lambda x: x.hfft(7, 0), -2, 2)
CASES["ihfft"] = ([(5, 2)], lambda x: x.ihfft(0), -2, 2)
for j in range(3):
    CASES[f"svd-{j}"] = ([(4, 3)], lambda a, j=j: koine.several("svd", 3, a.add(a.k.array(np.eye(4, 3) * [5, 3, 1])), 0)[j], -0.5, 0.5)
CASES["pinv"] = ([(2, 3)], lambda a: a.add(a.k.array(np.eye(2, 3) * 3)).pinv(0.0), -0.5, 0.5)
for o in ("fro", "nuc", "2", "-inf"):
    CASES[f"matrix_norm-{o}"] = ([(3, 3)], lambda a, o=o: far(a).matrix_norm(o, 0), -0.5, 0.5)
CASES["cat"] = ([(2, 3), (1, 3)], lambda a, b: koine.cat([a, b], 0), -2, 2)
CASES["stack"] = ([(2, 3), (2, 3)], lambda a, b: koine.stack([a, b], 1), -2, 2)
# Every function of tensor.h that takes floats is in one of these, or in test_derivatives.py: that it has none, and why.
for name in ("sum", "mean", "logsumexp", "norm", "nansum", "nanmean"):
    one(name)
for name, args in (("var", (1.0,)), ("std", (0.0,)), ("nanvar", (1.0,)), ("nanstd", (0.0,)), ("nansum_over", ((1,), 0)), ("nanmean_over", ((0,), 0)), ("nanvar_over", ((1,), 0, 1.0)),
                   ("nanstd_over", ((0,), 0, 0.0)), ("vector_norm_over", (2.0, (1,), 0)), ("softmin", (0,)), ("logcumsumexp", (1,)), ("prefix_sum", ()), ("adds", (2.0,)), ("subs", (2.0,)),
                   ("muls", (3.0,)), ("divs", (3.0,)), ("atleast", (4,)), ("broadcast_to", ((2, 3, 4),)), ("flatten", (0, 1)), ("unflatten", (1, (2, 2))), ("unsqueeze", (1,)),
                   ("transpose", (0, 1)), ("moveaxis", (0, 1)), ("fliplr", ()), ("flipud", ()), ("fftshift", ((0, 1),)), ("ifftshift", ((1,),)), ("repeat", (2, 0)), ("select", (1, 2)),
                   ("triu", (1,)), ("nan_to_num", (1.0,)), ("frac", ())):
    one(name, 0.1, 0.9, args=args)
for name in ("prod", "nanprod"):
    one(name, 0.5, 2)
one("nanprod_over", 0.5, 2, args=((1,), 0))
for name in ("max", "min", "nanmax", "nanmin", "median", "nanmedian", "relu6", "hardsigmoid", "hardtanh"):
    one(name)
for name in ("nanmax_over", "nanmin_over", "median_over", "nanmedian_over"):
    one(name, args=((1,), 0))
for name, args in (("cummin", (0,)), ("maximums", (0.3,)), ("minimums", (0.3,)), ("threshold", (0.1, 20.0)), ("sort", (1, 0)), ("quantile", (0.4, 0)), ("nanquantile", (0.4, 0)),
                   ("quantile_over", (0.3, (1,), 0, 0)), ("nanquantile_over", (0.7, (0,), 0, 0))):
    one(name, args=args)
one("squeeze", shape=(3, 1), args=(1,))
one("squeeze_all", shape=(3, 1, 2))
one("diag", shape=(3,))
one("pixel_unshuffle", shape=(1, 2, 4, 6), args=(2,))
for name, shapes in (("gemm", ((2, 3), (3, 2))), ("bmm", ((2, 2, 3), (2, 3, 2))), ("inner", ((2, 3), (4, 3))), ("outer", ((2,), (3,))), ("dot", ((3,), (3,)))):
    two(name, shapes=shapes)
two("lerp", args=(0.3,))
two("xlogy", 0.3, 2)
two("copysign", 0.3, 2)
for name in ("fmax", "fmin"):
    two(name)
CASES["fmod"] = ([S, S], lambda a, b: a.muls(9.0).fmod(b), 0.6, 0.9)
CASES["remainder"] = ([S, S], lambda a, b: a.muls(-9.0).remainder(b), 0.6, 0.9)
for how in (0, 1, 2):
    for name in ("mse_loss_as", "soft_margin_loss_as", "l1_loss_as"):
        two(name, args=(how,))
    two("bce_loss_as", 0.1, 0.9, args=(how,))
two("huber_loss_as", args=(0.8, 1))
CASES["bce_with_logits_as"] = ([S, S, S, (4,)], lambda x, t, w, p: x.bce_with_logits_as(t, w, p, 0), 0.1, 0.9)
CASES["nll_loss_as"] = ([(3, 4), (4,)], lambda x, w: x.nll_loss_as(x.k.array(labels), w, koine.END, 0), 0.1, 2)
signs = np.array([1.0, -1.0, 1.0])
CASES["hinge_embedding_loss"] = ([(3,)], lambda x: x.hinge_embedding_loss(x.k.array(signs), 1.0, 1), 0.1, 0.9)
CASES["margin_ranking_loss"] = ([(3,), (3,)], lambda a, b: a.margin_ranking_loss(b, a.k.array(signs), 5.0, 1), -1, 1)
CASES["cosine_embedding_loss"] = ([(3, 4), (3, 4)], lambda a, b: a.cosine_embedding_loss(b, a.k.array(signs), -1.0, 1), -2, 2)
CASES["batch_norm"] = ([(4, 3, 2), (3,), (3,), (3,), (3,)], lambda x, m, v, w, b: x.batch_norm(m, v, w, b, 1e-5), 0.3, 2)
CASES["conv"] = ([(1, 2, 6), (3, 2, 2)], lambda x, w: x.conv(w, None, (2,), (1,), (1,), 1), -2, 2)
CASES["clip"] = ([S, (4,), (3, 1)], lambda x, lo, hi: x.muls(3.0).clip(lo, hi.adds(1.0)), -0.9, 0.9)
CASES["gather"] = ([(5, 3)], lambda x: x.gather(x.k.array(np.array([4, 0, 4]))), -2, 2)
CASES["scatter_add_along_axis"] = ([(2, 5), (2, 3)], lambda x, v: x.scatter_add_along_axis(1, x.k.array(ALONG), v), -2, 2)
HOLES = np.array([[True, False, True, False], [False, True, True, False], [True, True, False, False]])
CASES["masked_fill"] = ([S], lambda x: x.masked_fill(x.k.array(HOLES), 3.0), -2, 2)
CASES["masked_select"] = ([S], lambda x: x.masked_select(x.k.array(HOLES), 8, None), -2, 2)
CASES["bincount"] = ([(5,)], lambda w: w.k.array(np.array([2, 0, 2, 1, 3])).bincount(4, w), -2, 2)
CASES["histogram"] = ([S], lambda w: w.k.array(np.linspace(0, 1, 12).reshape(S)).histogram(3, 0.0, 1.0, w, None), -2, 2)
CASES["unique"] = ([(4,)], lambda x: koine.outputs("unique", 4, x, 3)[0], -2, 2)
for name, args in (("topk", (2, 1, 1)), ("kthvalue", (2, 1, 0)), ("mode", (1, 0))):
    CASES[name] = ([S], lambda x, name=name, args=args: koine.outputs(name, 1, x, *args)[0], -2, 2)
CASES["cat2"] = ([(2, 3), (1, 3)], lambda a, b: a.cat2(b, 0), -2, 2)
for name, n, args in (("split", 2, (1, (1, 3))), ("chunk", 3, (1, 3)), ("unstack", 4, (1,))):
    CASES[name] = ([S], lambda x, name=name, n=n, args=args: koine.several(name, n, x, *args)[1].mul(koine.several(name, n, x, *args)[0].sum()), -2, 2)
CASES["meshgrid"] = ([(3,), (2,)], lambda a, b: (lambda g: g[0].mul(g[1]))(koine.several("meshgrid", 2, [a, b], 0)), -2, 2)
CASES["broadcast_tensors"] = ([(3, 1), (2,)], lambda a, b: (lambda g: g[0].mul(g[1]))(koine.several("broadcast_tensors", 2, [a, b])), -2, 2)
CASES["svdvals"] = ([(4, 3)], lambda a: a.add(a.k.array(np.eye(4, 3) * [5, 3, 1])).svdvals(), -0.5, 0.5)
CASES["eigvalsh"] = ([(3, 3)], lambda a: far(a).eigvalsh(), -0.5, 0.5)
CASES["cast"] = ([S], lambda x: x.cast("f64"), -2, 2)


def weights(shape):
    return np.cos(np.arange(int(np.prod(shape, dtype=int))) * 1.7 + 0.3).reshape(shape)


def loss(k, f, arrays):
    t = [k.array(a) for a in arrays]
    y = f(*t).check()
    return y.mul(k.array(weights(y.shape))).sum(), t


@pytest.fixture(scope="module")
def context():
    c = koine.Context("INTERP")
    yield c
    c.close()


@pytest.fixture
def k(context):
    context.scope_open()
    yield context
    context.scope_close()


def numeric(k, f, arrays, i, h):
    """Central differences by each element of arrays[i]: all in one realize."""
    a, y = arrays[i], []
    for at in np.ndindex(a.shape):
        for d in (h, -h):
            b = [x.copy() for x in arrays]
            b[i][at] += d
            y.append(loss(k, f, b)[0])
    k.realize(*y)
    v = np.array([t.item() for t in y]).reshape(-1, 2)
    return ((v[:, 0] - v[:, 1]) / (2 * h)).reshape(a.shape)


@pytest.mark.parametrize("name", CASES)
def test_first(k, name):
    shapes, f, lo, hi = CASES[name]
    arrays = [values(f"{name}{i}", s, np.float64, lo, hi) for i, s in enumerate(shapes)]
    y, t = loss(k, f, arrays)
    got = [g.numpy() for g in koine.several("grad", len(t), y, t)]
    for i in range(len(arrays)):
        want = numeric(k, f, arrays, i, 1e-6)
        np.testing.assert_allclose(got[i], want, rtol=1e-5, atol=1e-7)


SMOOTH = [n for n in CASES if not any(w in n for w in ("relu", "abs", "max", "min", "clamp", "hardswish", "l1", "deg2", "rad2", "elu", "celu", "huber", "where", "shrink"))]


@pytest.mark.parametrize("name", SMOOTH)
def test_second(k, name):
    shapes, f, lo, hi = CASES[name]
    arrays = [values(f"{name}{i}", s, np.float64, lo, hi) for i, s in enumerate(shapes)]

    def slope(b):  # a scalar made of the first gradients
        y, t = loss(k, f, b)
        total = None
        for g in koine.several("grad", len(t), y, t):
            s = g.mul(k.array(weights(g.shape) + 0.5)).sum()
            total = s if total is None else total + s
        return total, t

    y, t = slope(arrays)
    got = koine.several("grad", len(t), y, t)
    r = np.random.default_rng(1)
    for i, a in enumerate(arrays):  # along one random direction each: the whole Hessian costs too much here
        d = r.normal(size=a.shape)
        h = 1e-5
        plus, minus = [x.copy() for x in arrays], [x.copy() for x in arrays]
        plus[i] = plus[i] + h * d
        minus[i] = minus[i] - h * d
        want = (slope(plus)[0].numpy() - slope(minus)[0].numpy()) / (2 * h)
        np.testing.assert_allclose((got[i].numpy() * d).sum(), want, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_forward_is_the_transpose_of_backward(k, name):
    """<u, J v> = <J^T u, v>: jvp and vjp are transposes, whatever the function."""
    shapes, f, lo, hi = CASES[name]
    t = [k.array(values(f"{name}{i}", s, np.float64, lo, hi)) for i, s in enumerate(shapes)]
    y, r = f(*t), np.random.default_rng(0)
    v, u = [k.array(r.normal(size=s)) for s in shapes], k.array(r.normal(size=y.shape))
    forward, back = koine.call("jvp", y, t, v), koine.several("vjp", len(t), y, u, t)
    assert forward.check().shape == y.shape and forward.dtype == y.dtype
    k.realize(forward, *back)
    np.testing.assert_allclose((u.numpy() * forward.numpy()).sum(), sum((g.numpy() * x.numpy()).sum() for g, x in zip(back, v)), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SMOOTH)
def test_hessian_times_vector(k, name):
    """hvp is the gradient of <gradient, v>, and the Hessian symmetric: <w, H v> = <H w, v>."""
    shapes, f, lo, hi = CASES[name]
    y, t = loss(k, f, [values(f"{name}{i}", s, np.float64, lo, hi) for i, s in enumerate(shapes)])
    r = np.random.default_rng(2)
    v, w = ([k.array(r.normal(size=s)) for s in shapes] for _ in range(2))
    hv, hw = (koine.several("hvp", len(t), y, t, d) for d in (v, w))
    slope = None
    for g, d in zip(koine.several("grad", len(t), y, t), v):
        slope = g.mul(d).sum() if slope is None else slope + g.mul(d).sum()
    want = koine.several("grad", len(t), slope, t)
    k.realize(*hv, *hw, *want)
    for a, b in zip(hv, want):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-8)
    left, right = (sum((a.numpy() * b.numpy()).sum() for a, b in zip(x, y)) for x, y in ((w, hv), (hw, v)))
    np.testing.assert_allclose(left, right, rtol=1e-8, atol=1e-7)


def test_forward_through_data_and_functions(k):
    """What has been realised is gone through, functions too; a tangent is cast to its tensor's dtype, and what moves nothing is 0."""
    x = k.array(np.array([1.0, 2.0], np.float32))
    h = x.exp()
    y = h.square()
    k.realize(h)
    t = koine.call("jvp", y, [x], [k.array(np.array([1.0, 10.0]))])
    np.testing.assert_allclose(t.numpy(), 2 * np.exp([2, 4]) * [1, 10], rtol=1e-6)
    assert t.dtype == "f32"
    z = k.array(np.ones(3))
    assert koine.call("jvp", y, [z], [z]).numpy().tolist() == [0, 0]
    assert koine.call("jvp", y.detach(), [x], [x]).numpy().tolist() == [0, 0]
    assert koine.several("hvp", 1, x.sum(), [x], [x])[0].numpy().tolist() == [0, 0]
    assert koine.call("jvp", x, [x], [x]).numpy().tolist() == [1, 2]


def kernels(f):
    c = koine.Context("NULL")
    c.realize(*f(c))
    n = koine.load().kn_stats_of(c.h).kernels_launched
    c.close()
    assert n
    return n


@pytest.mark.parametrize("how", (0, 1))
@pytest.mark.parametrize("size", (32, 128))
def test_pixels_by_whole_factors_are_movements(how, size):
    """Nothing looks positions up, so that the gradient is a sum over a pixel's copies and none of it is scattered."""
    c = koine.Context("NULL")
    x = c.array(np.zeros((1, 8, 64, 64), np.float32))
    y = x.interpolate((size,), how, 0)
    for t in (y, *koine.several("grad", 1, y.square().sum(), [x])):
        text = ctypes.string_at(koine.load().kn_uop_text(c.h, koine.load().kn_graph(t.h))).decode()
        assert "64" in text and not any(f" = {op} " in text for op in ("idiv", "where", "lt", "ne", "eq")), text
    c.close()


def test_forward_takes_no_more_kernels_than_by_hand():
    """Each function and its derivative along v, beside the formula one would write."""
    def mlp(c, by_hand):
        x, w, u = c.array(np.zeros((64, 128), np.float32)), c.array(np.zeros((128, 96), np.float32)), c.array(np.zeros((96, 32), np.float32))
        d = [t.square() for t in (x, w, u)]
        h = (x @ w).tanh()
        y = h @ u
        if not by_hand:
            return y, koine.call("jvp", y, [x, w, u], d)
        return y, (((d[0] @ w) + (x @ d[1])) * h.square().neg().adds(1.0) @ u) + (h @ d[2])

    def conv(c, by_hand):
        x, w = c.array(np.zeros((2, 8, 14, 14), np.float32)), c.array(np.zeros((16, 8, 3, 3), np.float32))
        one = lambda x, w: x.conv2d(w, None, 1, 1, 1, 1)
        y = one(x, w)
        return y, one(x.square(), w) + one(x, w.square()) if by_hand else koine.call("jvp", y, [x, w], [x.square(), w.square()])

    for f in (mlp, conv):
        assert kernels(lambda c: f(c, False)) <= kernels(lambda c: f(c, True))


@pytest.mark.parametrize("shapes", [((3,), (2, 4)), ((2, 4), (3,)), ((), (3,)), ((2, 2), ()), ((0,), (3,)), ((1, 2), (2, 1))])
def test_jacobian(k, shapes):
    """Rows backward or columns forward, whichever are fewer: those of vjp."""
    x, m = k.array(values("jacobian", shapes[1], np.float64)), values("jacobian m", (*shapes[0], *shapes[1]), np.float64)
    y = k.array(m).mul(x.sin()).sum_over(tuple(range(len(shapes[0]), m.ndim)), 0) if shapes[1] else k.array(m).mul(x.sin())
    assert y.shape == shapes[0]
    np.testing.assert_allclose(y.jacobian(x).numpy(), m * np.cos(x.numpy()), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_jacobian_is_every_row_at_once(k, name):
    """v J = J^T v and J w = jvp, whatever the function: each op has an axis more in front where its operands have."""
    shapes, f, lo, hi = CASES[name]
    t = [k.array(values(f"{name}{i}", s, np.float64, lo, hi)) for i, s in enumerate(shapes)]
    y, r = f(*t), np.random.default_rng(3)
    v, w = k.array(r.normal(size=y.shape)), k.array(r.normal(size=shapes[0]))
    j, back, there = y.jacobian(t[0]), koine.several("vjp", 1, y, v, [t[0]])[0], koine.call("jvp", y, [t[0]], [w])
    assert j.check().shape == (*y.shape, *shapes[0])
    k.realize(j, back, there)
    np.testing.assert_allclose(np.tensordot(v.numpy(), j.numpy(), len(y.shape)), back.numpy(), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(np.tensordot(j.numpy(), w.numpy(), len(shapes[0])), there.numpy(), rtol=1e-9, atol=1e-10)


def test_jacobian_of_many():
    """A thousand rows are one graph: no more kernels than those of three, and values as by hand."""
    kernels = {}
    for n in (3, 1000):
        c = koine.Context("CPU")
        r = np.random.default_rng(n)
        a, m = r.normal(size=n).astype("f4") / 30, r.normal(size=(n, n)).astype("f4")
        x = c.array(a)
        j = (x.reshape((1, n)) @ c.array(m)).tanh().reshape((n,)).jacobian(x)
        before = koine.load().kn_stats_of(c.h).kernels_launched
        c.realize(j)
        kernels[n] = koine.load().kn_stats_of(c.h).kernels_launched - before
        np.testing.assert_allclose(j.numpy(), ((1 - np.tanh(a @ m) ** 2) * m).T, rtol=1e-3, atol=1e-4)
        c.close()
    assert kernels[1000] <= kernels[3] + 1


@pytest.mark.parametrize("f, want", [
    (lambda x: x.mul(x).mul(x).sum(), lambda a: np.diag(6 * a)), (lambda x: x.exp().sum(), lambda a: np.diag(np.exp(a))),
    (lambda x: x.sum().square(), lambda a: np.full((5, 5), 2.0)), (lambda x: x.mul(x.flip((0,))).sum(), lambda a: 2.0 * np.eye(5)[::-1])])
def test_hessian_by_hand(k, f, want):
    a = values("hessian by hand", (5,), np.float64)
    x = k.array(a)
    np.testing.assert_allclose(f(x).hessian(x).numpy(), want(a), rtol=1e-12)


def test_hessian(k):
    a = values("hessian", (2, 3), np.float64)
    x, w = k.array(a), k.array(values("hessian w", (3, 2), np.float64))
    h = (x @ w).tanh().square().sum().hessian(x).check()
    assert h.shape == (2, 3, 2, 3)
    v = k.array(values("hessian v", (2, 3), np.float64))
    np.testing.assert_allclose(np.tensordot(h.numpy(), v.numpy(), 2), koine.several("hvp", 1, (x @ w).tanh().square().sum(), [x], [v])[0].numpy(), rtol=1e-10)
    np.testing.assert_allclose(x.square().sum().hessian(x).numpy().reshape(6, 6), 2 * np.eye(6))
    assert x.sum().hessian(x).numpy().shape == (2, 3, 2, 3) and not x.sum().hessian(x).numpy().any()


# ---- what is not a derivative ----

def test_ties_share(k):
    x = k.array(np.array([1.0, 3.0, 3.0, 2.0]))
    assert x.max().grad1(x).numpy().tolist() == [0, 0.5, 0.5, 0]
    y = k.array(np.array([1.0, 3.0, 2.0, 2.0]))
    a, b = koine.several("grad", 2, x.maximum(y).sum(), [x, y])
    assert a.numpy().tolist() == [0.5, 0.5, 1, 0.5] and b.numpy().tolist() == [0.5, 0.5, 0, 0.5]


@pytest.mark.parametrize("f", [lambda x, w: x @ w, lambda x, w: x.softmax(-1), lambda x, w: (x @ w).tanh(), lambda x, w: w.mT()])
def test_a_given_gradient(k, f):
    """vjp(y, dy) is the gradient of sum(y * dy); what y does not depend on has gradient 0."""
    x, w = k.array(values("vjp x", (4, 3), np.float64)), k.array(values("vjp w", (3, 5), np.float64))
    y = f(x, w)
    dy = k.array(values("vjp dy", tuple(y.shape), np.float64))
    got = koine.several("vjp", 2, y, dy, [x, w])
    want = koine.several("grad", 2, y.mul(dy).sum(), [x, w])
    for a, b in zip(got, want):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-15)
    if f(x, w).shape == x.shape:
        assert not got[1].numpy().any()


def test_kinks(k):
    z = k.array(np.zeros(1))
    for name, want in (("relu", 0), ("abs", 0), ("sigmoid", 0.25), ("softplus", 0.5), ("sign", 0), ("floor", 0)):
        y = getattr(z, name)()
        assert y.sum().grad1(z).numpy() == want, name


def test_far_ends_are_finite(k):
    x = k.array(np.array([-1e4, -200, 200, 1e4], np.float32))
    for name in ("sigmoid", "softplus", "silu", "gelu", "logsigmoid", "tanh", "mish", "relu", "selu"):
        assert np.isfinite(getattr(x, name)().sum().grad1(x).numpy()).all(), name


@pytest.mark.parametrize("d", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("zeros", [(), (1,), (0, 3), (0, 1, 3), (0, 1, 2, 3)])
def test_second_derivative_of_a_product_with_zeros(k, zeros, d):
    """By x_i and x_j it is the product of the others, zeros among them."""
    a = np.array([1.5, -2.0, 0.5, 2.0])
    a[list(zeros)] = 0
    x = k.array(a).cast(d)
    want = np.array([[0.0 if i == j else np.prod(np.delete(a, [i, j])) for j in range(4)] for i in range(4)])
    first = np.array([np.prod(np.delete(a, i)) for i in range(4)])
    assert (x.prod().grad1(x).cast("f64").numpy() == first).all()
    np.testing.assert_allclose(koine.call("hessian", x.prod(), x).cast("f64").numpy(), want, atol=1e-15)
    table = k.array(np.stack([a, a[::-1]])).cast(d)  # over an axis of several
    v = k.array(np.array([[1.0, 2, 0, 1], [0, 1, 1, 0]])).cast(d)
    y = table.prod_over((1,), 0).sum()
    [got] = koine.several("hvp", 1, y, [table], [v])
    np.testing.assert_allclose(got.cast("f64").numpy(), np.stack([want @ v.cast("f64").numpy()[0], want[::-1, ::-1] @ v.cast("f64").numpy()[1]]), rtol=0.13 if d == "f8e5m2" else 1e-7, atol=1e-15)


@pytest.mark.parametrize("d", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"])
def test_fmod_of_large_quotients(k, d):
    """By the divisor it falls as the whole quotient does, however large; by the dividend it is 1, at 0 and of negative ones too."""
    a, b = np.array([64.0, -64.0, 0.0, -0.0, 7.0]), np.array([0.1875, 0.1875, 2.0, 2.0, -2.0])
    if d in ("f64", "f32", "bf16"):
        a[0] *= 2.0**100
    if d == "f64":
        a[1] *= 2.0**1000
    x, y = k.array(a).cast(d), k.array(b).cast(d)
    z = x.fmod(y)
    by = [g.cast("f64").numpy() for g in koine.several("grad", 2, z.sum(), [x, y])]
    assert z.cast("f64").numpy().tolist() == np.fmod(a, b).tolist()
    assert by[0].tolist() == [1] * 5
    np.testing.assert_allclose(by[1], -np.trunc(a / b), rtol={"f64": 1e-15, "f32": 1e-6, "f16": 1e-3}.get(d, 0.1))


def test_prod_with_zeros(k):
    for a, want in (([2.0, 0.0, 3.0], [0, 6, 0]), ([0.0, 0.0, 3.0], [0, 0, 0]), ([2.0, 4.0, 3.0], [12, 6, 8])):
        x = k.array(np.array(a))
        assert x.prod().grad1(x).numpy().tolist() == want


@pytest.mark.parametrize("d", ["f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_give_to_the_last_of_equals(k, name, d):
    """Rows of any length alike, to infinities and the first NaN too."""
    r = np.random.default_rng(3)
    for shape, axis in (((3, 5), 1), ((40, 2), 0), ((2, 700), 1)):
        a = k.array(r.integers(-9, 9, shape) / 4).cast(d).cast("f64").numpy()
        a[0, 1] = np.inf if d not in ("f8e4m3",) else 8
        a[1, -2] = np.nan
        w = r.integers(0, 2, shape).astype(np.float64)
        x = k.array(a).cast(d)
        y = koine.call(name, x, axis)
        [got] = koine.several("vjp", 1, y, k.array(w).cast(d), [x])
        m = (np.maximum, np.minimum)[name == "cummin"].accumulate(a, axis)
        place = np.arange(shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
        at = np.maximum.accumulate(np.where((a == m) | np.isnan(a), place, 0), axis)
        want = np.zeros(shape)
        np.add.at(want, (at, np.arange(shape[1])[None]) if axis == 0 else (np.arange(shape[0])[:, None], at), w)
        np.testing.assert_array_equal(y.cast("f64").numpy(), m)
        np.testing.assert_allclose(got.cast("f64").numpy(), k.array(want).cast(d).cast("f64").numpy(), rtol={"f8e4m3": 0.3, "f8e5m2": 0.5, "bf16": 0.05}.get(d, 1e-3), atol=0)


def test_detach_blocks(k):
    x = k.array(np.array([2.0, 3.0]))
    assert x.mul(x.detach()).sum().grad1(x).numpy().tolist() == [2, 3]
    assert x.detach().sum().grad1(x).numpy().tolist() == [0, 0]


def test_unused_is_zero(k):
    x, y = k.array(np.ones((2, 2))), k.array(np.ones(3))
    assert x.sum().grad1(y).numpy().tolist() == [0, 0, 0]


def test_by_an_intermediate(k):
    x = k.array(np.array([1.0, 2.0]))
    h = x.muls(3)
    a, b = koine.several("grad", 2, h.square().sum(), [x, h])
    assert a.numpy().tolist() == [18, 36] and b.numpy().tolist() == [6, 12]


def test_given_gradient(k):
    x, dy = k.array(np.array([1.0, 2.0])), k.array(np.array([10.0, 100.0]))
    assert koine.several("vjp", 1, x.square(), dy, [x])[0].numpy().tolist() == [20, 400]


def test_cast_passes(k):
    x = k.array(np.array([1.0, 2.0], np.float32))
    g = x.cast("f64").square().sum().grad1(x)
    assert g.dtype == "f32" and g.numpy().tolist() == [2, 4]


def test_integer_path_has_none(k):
    x = k.array(np.array([1.5, 2.5]))
    assert x.cast("i32").cast("f64").sum().grad1(x).numpy().tolist() == [0, 0]
    with pytest.raises(koine.Error, match="KN1170"):
        x.sum().grad1(k.array(np.arange(3))).check()


# ---- through realised values ----

def test_after_realize(k):
    x = k.array(np.array([1.0, 2.0]))
    h = x.square()
    y = h.muls(3).sum()
    k.realize(h)
    assert y.grad1(x).numpy().tolist() == [6, 12]
    k.realize(y)
    gx, gh = koine.several("grad", 2, y, [x, h])
    assert gx.numpy().tolist() == [6, 12] and gh.numpy().tolist() == [3, 3]
    z = y.mul(h).sum()
    assert np.allclose(z.grad1(x).numpy(), numeric_z())


def numeric_z():
    f = lambda v: (3 * (v**2).sum() * v**2).sum()
    v, h = np.array([1.0, 2.0]), 1e-6
    return [(f(v + h * e) - f(v - h * e)) / (2 * h) for e in np.eye(2)]


def test_realised_parameter(k):
    w = k.array(np.array([1.0, 2.0])).param()
    loss = w.square().sum()
    k.realize(loss)  # runs w's first assign as well
    assert loss.grad1(w).numpy().tolist() == [2, 4]
    w.assign(w.sub(loss.grad1(w).muls(0.5)))
    assert w.numpy().tolist() == [0, 0]


def test_overwritten_history_is_an_error(k):
    w = k.array(np.array([1.0, 2.0])).param()
    loss = w.square().sum()
    w.assign(w.muls(2))
    k.realize(loss, w)
    assert loss.item() == 5
    with pytest.raises(koine.Error, match="KN1173"):
        loss.grad1(w).check()


def test_history_ends_with_its_scope(k):
    x = k.array(np.array([1.0, 2.0]))
    k.scope_open()
    h = koine.Tensor(k, koine.load().kn_hand_up(x.square().h))
    k.realize(h)
    k.scope_close()
    assert h.sum().grad1(x).numpy().tolist() == [0, 0]
