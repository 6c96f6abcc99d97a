"""Misuse of the front end: one clear message each, with its number, the numbers that matter and a remedy; no crash."""
import inspect
import re
from collections import Counter
import subprocess

import koine
import numpy as np
import pytest
from koine import _abi

T = koine.Tensor


def t(k, *shape, dtype="f32"):
    return k.zeros(shape, dtype)


def i(k, *v):
    return k.array(np.array(v, np.int32))


MISUSES = {
    "add shapes": ("KN1203", ["(2, 3)", "(4, 3)", "axis -2: 2 vs 4"], lambda k: t(k, 2, 3).add(t(k, 4, 3))),
    "where shapes": ("KN1203", ["where"], lambda k: t(k, 2).where(t(k, 3), t(k, 3))),
    "expand": ("KN1204", ["(3,)", "(2, 4)"], lambda k: t(k, 3).expand((2, 4))),
    "expand fewer": ("KN1204", ["(2, 3)", "(3,)"], lambda k: t(k, 2, 3).expand((3,))),
    "matmul": ("KN1210", ["(64, 784)", "(748, 10)", "784 and 748"], lambda k: t(k, 64, 784).matmul(t(k, 748, 10))),
    "matmul batch": ("KN1203", ["matmul"], lambda k: t(k, 2, 3, 4).matmul(t(k, 5, 4, 3))),
    "matmul scalar": ("KN1128", ["a tensor of rank 1 expected, got rank 0"], lambda k: t(k).matmul(t(k, 3))),
    "dot rank": ("KN1128", ["dot"], lambda k: t(k, 3, 3).dot(t(k, 3))),
    "gemm rank": ("KN1128", ["gemm: a tensor of rank 2 expected, got rank 1"], lambda k: t(k, 3).gemm(t(k, 3, 3))),
    "outer rank": ("KN1128", ["outer"], lambda k: t(k, 3, 1).outer(t(k, 3))),
    "linear weight": ("KN1128", ["linear"], lambda k: t(k, 3).linear(t(k, 3), None)),
    "linear features": ("KN1211", ["(4, 3)", "3 features", "(5, 2)", "takes 2"], lambda k: t(k, 4, 3).linear(t(k, 5, 2), None)),
    "linear bias": ("KN1203", ["linear"], lambda k: t(k, 4, 3).linear(t(k, 5, 3), t(k, 4))),
    "reshape size": ("KN1006", ["(2, 3) has 6", "(4,) has 4"], lambda k: t(k, 2, 3).reshape((4,))),
    "reshape two": ("KN1130", ["-1"], lambda k: t(k, 2, 3).reshape((-1, -1))),
    "reshape left": ("KN1131", ["6 elements", "4"], lambda k: t(k, 2, 3).reshape((4, -1))),
    "reshape negative": ("KN1121", ["-5"], lambda k: t(k, 2, 3).reshape((-5, 6))),
    "reshape rank": ("KN1120", ["16"], lambda k: t(k, 1).reshape((1,) * 20)),
    "reshape long": ("KN1120", ["16"], lambda k: t(k, 1).reshape((1,) * 40)),
    "unflatten": ("KN1129", ["7 elements", "given 6"], lambda k: t(k, 7).unflatten(0, (2, 3))),
    "permute twice": ("KN1126", ["axis 1"], lambda k: t(k, 2, 3).permute((1, 1))),
    "permute few": ("KN1127", ["rank 2", "1 entries"], lambda k: t(k, 2, 3).permute((0,))),
    "permute range": ("KN1125", ["axis 2", "rank 2"], lambda k: t(k, 2, 3).permute((0, 2))),
    "transpose range": ("KN1125", ["-3"], lambda k: t(k, 2, 3).transpose(0, -3)),
    "mT rank": ("KN1125", ["mT"], lambda k: t(k, 2).mT()),
    "moveaxis": ("KN1125", ["5"], lambda k: t(k, 2).moveaxis(5, 0)),
    "softmax axis": ("KN1125", ["softmax: axis 2 is out of range for a tensor of rank 2"], lambda k: t(k, 2, 3).softmax(2)),
    "sum axis": ("KN1125", ["sum", "-4"], lambda k: t(k, 2, 3, 4).sum_over((-4,), 0)),
    "sum twice": ("KN1126", ["sum", "0"], lambda k: t(k, 2, 3).sum_over((0, -2), 0)),
    "squeeze axis": ("KN1125", ["squeeze"], lambda k: t(k, 2).squeeze(1)),
    "unsqueeze axis": ("KN1125", ["unsqueeze"], lambda k: t(k, 2).unsqueeze(3)),
    "sort axis": ("KN1125", ["sort", "axis 2"], lambda k: t(k, 2, 3).sort(2, 0)),
    "sort scalar": ("KN1125", ["sort", "rank 0"], lambda k: t(k).sort(0, 0)),
    "sort symbolic": ("KN1122", ["argsort", "<=4"], lambda k: t(k, 4).shrink((0,), (k.variable("n", 1, 4).sym(),)).argsort(0, 0)),
    "sort long": ("KN1157", ["sort", "4294967296", "rows"], lambda k: t(k, 1 << 32, dtype="i8").sort(0, 0)),
    "topk count": ("KN1155", ["topk: n = 4, axis 1 has 3 elements"], lambda k: koine.outputs("topk", 1, t(k, 2, 3), 4, 1, 1)[1]),
    "topk axis": ("KN1125", ["topk", "axis 3"], lambda k: koine.outputs("topk", 1, t(k, 2, 3), 1, 3, 1)[1]),
    "topk negative": ("KN1155", ["topk: n = -1"], lambda k: koine.outputs("topk", 1, t(k, 3), -1, 0, 1)[0]),
    "kthvalue zero": ("KN1155", ["kthvalue: n = 0", "counts from 1"], lambda k: koine.outputs("kthvalue", 1, t(k, 2, 3), 0, 0, 1)[0]),
    "kthvalue empty": ("KN1155", ["axis 0 has 0 elements"], lambda k: koine.outputs("kthvalue", 1, t(k, 0), 1, 0, 1)[0]),
    "kthvalue axis": ("KN1125", ["kthvalue"], lambda k: koine.outputs("kthvalue", 1, t(k, 3), 1, 1, 1)[0]),
    "quantile q": ("KN1154", ["quantile: probability 50"], lambda k: t(k, 3).quantile(50.0, 0)),
    "quantile method": ("KN1156", ["nanquantile", "7", "KN_QUANTILE_LINEAR"], lambda k: t(k, 3).nanquantile(0.5, 7)),
    "quantile axes": ("KN1126", ["quantile", "1"], lambda k: t(k, 2, 3).quantile_over(0.5, (1, -1), 0, 0)),
    "median empty": ("KN1152", ["median", "(2, 0)"], lambda k: t(k, 2, 0).median_over((1,), 0)),
    "median axis": ("KN1125", ["nanmedian", "axis 2"], lambda k: t(k, 2, 3).nanmedian_over((2,), 0)),
    "median symbolic": ("KN1122", ["median"], lambda k: t(k, 4).shrink((0,), (k.variable("n", 1, 4).sym(),)).median()),
    "searchsorted shapes": ("KN1158", ["searchsorted: table (2, 3), values (4, 3)", "one axis"], lambda k: t(k, 2, 3).searchsorted(t(k, 4, 3), 0)),
    "searchsorted scalar": ("KN1158", ["table ()"], lambda k: t(k).searchsorted(t(k, 4, 3), 0)),
    "bucketize shapes": ("KN1158", ["bucketize: table (2, 3), values (3,)"], lambda k: t(k, 3).bucketize(t(k, 2, 3), 0)),
    "bincount float": ("KN1151", ["bincount", "f32", "integer", "kn_cast"], lambda k: t(k, 3).bincount(4, None)),
    "bincount size": ("KN1121", ["bincount: size -1"], lambda k: i(k, 1).bincount(-1, None)),
    "bincount weights": ("KN1204", ["bincount", "(2,)", "(3,)"], lambda k: i(k, 1, 2, 3).bincount(4, t(k, 2))),
    "histogram bins": ("KN1159", ["0 bins from 0 to 1"], lambda k: t(k, 3).histogram(0, 0.0, 1.0, None, None)),
    "histogram range": ("KN1159", ["4 bins from 2 to 1", "lo below hi"], lambda k: koine.outputs("histogram", 1, t(k, 3), 4, 2.0, 1.0, None)[1]),
    "histogram weights": ("KN1204", ["histogram"], lambda k: t(k, 3).histogram(4, 0.0, 1.0, t(k, 2), None)),
    "unique size": ("KN1121", ["unique: size -2"], lambda k: koine.outputs("unique", 4, t(k, 3), -2)[3]),
    "unique symbolic": ("KN1122", ["unique"], lambda k: koine.outputs("unique", 4, t(k, 4).shrink((0,), (k.variable("n", 1, 4).sym(),)), 2)[0]),
    "unique long": ("KN1157", ["unique: an axis of 4294967296"], lambda k: koine.outputs("unique", 4, t(k, 1 << 32, dtype="i8"), 2)[0]),
    "median of all, empty": ("KN1152", ["median: axis 0 of (0, 3)"], lambda k: t(k, 0, 3).median()),
    "mode empty": ("KN1152", ["mode", "(0,)"], lambda k: koine.outputs("mode", 1, t(k, 0), 0, 0)[0]),
    "mode axis": ("KN1125", ["mode: axis 1"], lambda k: koine.outputs("mode", 1, t(k, 3), 1, 0)[1]),
    "nonzero size": ("KN1121", ["nonzero: size 2147483647"], lambda k: t(k, 3).nonzero(2**31 - 1, None)),
    "nonzero symbolic": ("KN1122", ["nonzero"], lambda k: t(k, 4).shrink((0,), (k.variable("n", 1, 4).sym(),)).nonzero(4, None)),
    "masked_select shapes": ("KN1203", ["masked_select", "(3,)", "(2,)"], lambda k: t(k, 3).masked_select(t(k, 2, dtype="bool"), 4, None)),
    "masked_select size": ("KN1121", ["masked_select"], lambda k: t(k, 3).masked_select(t(k, 3, dtype="bool"), -1, None)),
    "cummax_indices axis": ("KN1125", ["cummax_indices"], lambda k: t(k, 3).cummax_indices(1)),
    "logcumsumexp scalar": ("KN1125", ["logcumsumexp", "rank 0"], lambda k: t(k).logcumsumexp(0)),
    "logcumsumexp rank": ("KN1120", ["logcumsumexp", "14"], lambda k: t(k, *[1] * 15).logcumsumexp(0)),
    "nanmax empty": ("KN1152", ["nanmax", "(2, 0)"], lambda k: t(k, 2, 0).nanmax_over((1,), 0)),
    "cumsum scalar": ("KN1125", ["cumsum", "rank 0"], lambda k: t(k).cumsum(0)),
    "flatten order": ("KN1140", ["2", "1"], lambda k: t(k, 2, 3, 4).flatten(2, 1)),
    "pad count": ("KN1132", ["4 amounts expected", "got 2"], lambda k: t(k, 2, 3).pad((1, 1), 0.0)),
    "pad negative": ("KN1133", ["-1"], lambda k: t(k, 2).pad((-1, 1), 0.0)),
    "shrink range": ("KN1134", ["axis 0", "1 to 4 (exclusive)", "there are 3"], lambda k: t(k, 3).shrink((1,), (3,))),
    "shrink count": ("KN1127", ["shrink"], lambda k: t(k, 3).shrink((0, 0), (1, 1))),
    "slice step": ("KN1135", ["step"], lambda k: t(k, 3).slice(0, 0, 2, 0)),
    "slice rank": ("KN1120", ["16"], lambda k: t(k, 4, *(1,) * 15).slice(0, 0, 4, 2)), "slice last rank": ("KN1120", ["16"], lambda k: t(k, *(1,) * 15, 4).slice(15, 0, 4, 2)),
    "select range": ("KN1136", ["index 3", "size 3"], lambda k: t(k, 3).select(0, 3)),
    "cat shapes": ("KN1137", ["tensor 1", "(2, 4)", "(2, 3)"], lambda k: koine.cat([t(k, 2, 3), t(k, 2, 4)], 0)),
    "cat axis": ("KN1125", ["cat"], lambda k: koine.cat([t(k, 2)], 1)),
    "stack shapes": ("KN1137", ["stack"], lambda k: koine.stack([t(k, 2), t(k, 3)], 0)),
    "split negative": ("KN1121", ["split: size -2 of axis 0"], lambda k: koine.several("split", 2, t(k, 5), 0, (7, -2))[1]),
    "split sizes": ("KN1138", ["add up to 4", "has 5"], lambda k: koine.several("split", 2, t(k, 5), 0, (2, 2))[1]),
    "chunk count": ("KN1139", ["40 parts"], lambda k: koine.several("chunk", 40, t(k, 5), 0, 40)[0]),
    "unfold size": ("KN1141", ["size 6", "axis 0 of 5"], lambda k: t(k, 5).unfold(0, 6, 1)),
    "tril rank": ("KN1128", ["tril"], lambda k: t(k, 5).tril(0)),
    "diagonal rank": ("KN1128", ["diagonal"], lambda k: t(k, 5).diagonal(0)),
    "diag rank": ("KN1128", ["diag"], lambda k: t(k, 5, 5).diag()),
    "repeat negative": ("KN1121", ["-2"], lambda k: t(k, 5).repeat(-2, 0)),
    "absurd size": ("KN1121", ["1000000000000000"], lambda k: k.zeros((10**15,), "f32")),
    "absurd product": ("KN1023", ["2^62 elements"], lambda k: k.zeros((2**40, 2**40), "f32")),
    "zeros dtype": ("KN1150", ["void"], lambda k: k.zeros((2,), 0)),
    "dtype number": ("KN1150", ["?"], lambda k: k.zeros((2,), 99)),
    "arange endless": ("KN1142", ["steps of 0"], lambda k: k.arange(0, 1, 0, "f32")),
    "arange nan": ("KN1142", ["nan"], lambda k: k.arange(0, float("nan"), 1, "f32")),
    "linspace count": ("KN1121", ["-1"], lambda k: k.linspace(0, 1, -1, "f32")),
    "neg bool": ("KN1151", ["neg: dtype bool; expected a number"], lambda k: t(k, 2, dtype="bool").neg()),
    "sub bool": ("KN1151", ["sub", "bool"], lambda k: t(k, 2, dtype="bool").sub(t(k, 2, dtype="bool"))),
    "xor float": ("KN1151", ["bitwise_xor", "f32"], lambda k: t(k, 2).bitwise_xor(t(k, 2))),
    "not float": ("KN1151", ["bitwise_not", "f32"], lambda k: t(k, 2).bitwise_not()),
    "shift float": ("KN1151", ["shift_left"], lambda k: t(k, 2).shift_left(t(k, 2))),
    "threefry dtype": ("KN1151", ["u64"], lambda k: t(k, 2).threefry(t(k, 2))),
    "max empty": ("KN1152", ["max: axis 0 of (0, 3)"], lambda k: t(k, 0, 3).max_over((0,), 0)),
    "argmax empty": ("KN1152", ["argmax"], lambda k: t(k, 0).argmax(0, 0)),
    "randint range": ("KN1153", ["[5, 5)"], lambda k: k.randint((2,), 5, 5, "i32", None)),
    "randint float": ("KN1150", ["f32"], lambda k: k.randint((2,), 0, 5, "f32", None)),
    "rand integer": ("KN1150", ["i32", "float"], lambda k: k.rand_as((2,), "i32", None)),
    "key dtype": ("KN1180", ["rand: a key is a u64 of shape (), not i32 (1,)", "kn_key makes one"], lambda k: k.rand_as((2,), "f32", i(k, 1))),
    "key of keys": ("KN1180", ["normal", "u64 (3,)", "kn_select"], lambda k: k.normal((2,), 0, 1, "f32", k.key(1).key_split(3))),
    "key bernoulli": ("KN1180", ["bernoulli", "f32 ()"], lambda k: t(k, 2).bernoulli(t(k))),
    "key dropout": ("KN1180", ["dropout", "f32 (2,)"], lambda k: t(k, 2).dropout(0.5, t(k, 2))),
    "key randint": ("KN1180", ["randint"], lambda k: k.randint((2,), 0, 5, "i32", t(k))),
    "key_split key": ("KN1180", ["key_split", "f32 ()"], lambda k: t(k).key_split(2)),
    "key_split count": ("KN1181", ["-1 keys"], lambda k: k.key(1).key_split(-1)),
    "key_fold key": ("KN1180", ["key_fold", "u64 (2,)"], lambda k: k.key(1).key_split(2).key_fold(i(k, 1))),
    "key_fold float": ("KN1151", ["key_fold", "f32", "integer"], lambda k: k.key(1).key_fold(t(k))),
    "key_fold null": ("KN1103", ["key_fold"], lambda k: k.key(1).key_fold(None)),
    "bits dtype": ("KN1150", ["random_bits", "i32", "u8, u16, u32 or u64"], lambda k: k.random_bits((2,), "i32", None)),
    "bits key": ("KN1180", ["random_bits"], lambda k: k.random_bits((2,), "u8", i(k, 1))),
    "bits shape": ("KN1121", ["-3"], lambda k: k.random_bits((-3,), "u8", None)),
    "uniform bounds": ("KN1182", ["uniform: nothing lies between 3 and 1"], lambda k: k.uniform((2,), 3, 1, "f32", None)),
    "uniform nan": ("KN1182", ["nan"], lambda k: k.uniform((2,), float("nan"), 1, "f32", None)),
    "uniform dtype": ("KN1150", ["uniform", "i32", "float"], lambda k: k.uniform((2,), 0, 1, "i32", None)),
    "normal deviation": ("KN1183", ["normal", "-2", "0 or more"], lambda k: k.normal((2,), 0, -2, "f32", None)),
    "normal dtype": ("KN1150", ["normal", "u8"], lambda k: k.normal((2,), 0, 1, "u8", None)),
    "normal shape": ("KN1121", ["-1"], lambda k: k.normal((-1,), 0, 1, "f32", None)),
    **{f"{fn} {what}": (number, [fn, *parts], lambda k, fn=fn, args=args, build=build: build(k, fn, args))
       for fn, args in (("exponential", (1,)), ("laplace", (0, 1)), ("gumbel", (0, 1)), ("logistic", (0, 1)), ("cauchy", (0, 1)), ("truncated_normal", (-1, 1)))
       for what, number, parts, build in (
           ("dtype", "KN1150", ["i64", "float"], lambda k, fn, args: getattr(k, fn)((2,), *args, "i64", None)),
           ("key", "KN1180", ["f32 ()"], lambda k, fn, args: getattr(k, fn)((2,), *args, "f32", t(k))),
           ("size", "KN1121", ["-4"], lambda k, fn, args: getattr(k, fn)((-4,), *args, "f32", None)),
           ("scale", "KN1182" if fn == "truncated_normal" else "KN1183", ["-7"], lambda k, fn, args: getattr(k, fn)((2,), *args[:-1], -7, "f32", None)))},
    **{f"{fn} {what}": (number, [fn, *parts], lambda k, fn=fn, build=build: build(k, lambda x, key: getattr(x, fn)(key)))
       for fn in ("gamma", "chi_square", "student_t", "poisson", "dirichlet")
       for what, number, parts, build in (
           ("key", "KN1180", ["i32 (1,)", "kn_key"], lambda k, f: f(t(k, 2), i(k, 1))),
           ("keys", "KN1180", ["u64 (2,)", "kn_select"], lambda k, f: f(t(k, 2), k.key(1).key_split(2))),
           ("symbolic", "KN1122", ["<=4"], lambda k, f: f(t(k, 4).shrink((0,), (k.variable("n", 1, 4).sym(),)), None)))},
    "dirichlet scalar": ("KN1125", ["dirichlet", "rank 0"], lambda k: t(k).dirichlet(None)),
    "beta shapes": ("KN1203", ["beta", "(2,)", "(3,)"], lambda k: t(k, 2).beta(t(k, 3), None)),
    "beta key": ("KN1180", ["beta"], lambda k: t(k, 2).beta(t(k, 2), t(k))),
    "beta null": ("KN1103", ["beta", "operand 1"], lambda k: t(k, 2).beta(None, None)),
    "binomial shapes": ("KN1203", ["binomial", "(2,)", "(3,)"], lambda k: t(k, 2).binomial(t(k, 3), None)),
    "binomial key": ("KN1180", ["binomial"], lambda k: t(k, 2).binomial(t(k, 2), t(k))),
    "binomial null": ("KN1103", ["binomial", "operand 1"], lambda k: t(k, 2).binomial(None, None)),
    "permutation size": ("KN1121", ["permutation", "-1"], lambda k: k.permutation(-1, None)),
    "permutation long": ("KN1157", ["permutation", "4294967296"], lambda k: k.permutation(1 << 32, None)),
    "permutation key": ("KN1180", ["permutation", "u64 (2,)"], lambda k: k.permutation(3, k.key(1).key_split(2))),
    "shuffle axis": ("KN1125", ["shuffle", "axis 2"], lambda k: t(k, 2, 3).shuffle(2, None)),
    "shuffle scalar": ("KN1125", ["shuffle", "rank 0"], lambda k: t(k).shuffle(0, None)),
    "shuffle key": ("KN1180", ["shuffle"], lambda k: t(k, 2, 3).shuffle(0, t(k))),
    "categorical axis": ("KN1125", ["categorical", "axis -3"], lambda k: t(k, 2, 3).categorical(-3, None)),
    "categorical key": ("KN1180", ["categorical"], lambda k: t(k, 2, 3).categorical(1, t(k))),
    "categorical empty": ("KN1152", ["argmax", "(2, 0)"], lambda k: t(k, 2, 0).categorical(1, None)),
    "multinomial too many": ("KN1184", ["4 draws of 3 classes", "without replacement"], lambda k: t(k, 3).multinomial(4, 0, None)),
    "multinomial negative": ("KN1184", ["-1 draws"], lambda k: t(k, 3).multinomial(-1, 1, None)),
    "multinomial scalar": ("KN1125", ["multinomial", "rank 0"], lambda k: t(k).multinomial(1, 1, None)),
    "multinomial key": ("KN1180", ["multinomial"], lambda k: t(k, 3).multinomial(1, 1, t(k))),
    "rrelu bounds": ("KN1182", ["rrelu", "0.5"], lambda k: t(k, 2).rrelu(0.5, 0.25, 1, None)),
    "rrelu key": ("KN1180", ["rrelu", "f32 (2,)"], lambda k: t(k, 2).rrelu(0.125, 0.25, 1, t(k, 2))),
    "dropout": ("KN1154", ["1.5"], lambda k: t(k, 2).dropout(1.5, None)),
    "assign computed": ("KN1160", ["exp", "kn_param"], lambda k: t(k, 2).exp().assign(t(k, 2))),
    "assign dtype": ("KN1161", ["f32", "i32"], lambda k: k.ones((2,), "f32").param().assign(t(k, 2, dtype="i32"))),
    "assign shape": ("KN1204", ["assign", "(3,)", "(2,)"], lambda k: k.ones((2,), "f32").param().assign(t(k, 3))),
    "bitcast size": ("KN1012", ["(3,)", "u64"], lambda k: t(k, 3).bitcast("u64")),
    "cast void": ("KN1150", ["void"], lambda k: t(k, 3).cast(0)),
    "copy nowhere": ("KN1108", ["device"], lambda k: t(k, 3).copy_to("")),
    "take float": ("KN1151", ["integer index"], lambda k: t(k, 3).take(t(k, 2), 0)),
    "gather scalar": ("KN1125", ["gather"], lambda k: t(k).gather(i(k, 0))),
    "embedding rank": ("KN1128", ["embedding"], lambda k: t(k, 5).embedding(i(k, 1))),
    "take_along rank": ("KN1128", ["take_along_axis: a tensor of rank 2 expected, got rank 1"], lambda k: t(k, 3, 3).take_along_axis(i(k, 1), 0)),
    "scatter index": ("KN1128", ["scatter_add"], lambda k: t(k, 3).scatter_add(k.array(np.zeros((2, 2), np.int32)), t(k, 2))),
    "scatter value": ("KN1204", ["scatter_add"], lambda k: t(k, 3, 2).scatter_add(i(k, 1, 2), t(k, 5, 2))),
    "one_hot float": ("KN1151", ["one_hot"], lambda k: t(k, 3).one_hot(4, "f32")),
    "one_hot classes": ("KN1121", ["one_hot"], lambda k: i(k, 3).one_hot(0, "f32")),
    "conv rank": ("KN1128", ["conv2d: a tensor of rank 4"], lambda k: t(k, 3, 8, 8).conv2d(t(k, 4, 3, 3, 3), None, 1, 0, 1, 1)),
    "conv channels": ("KN1223", ["(1, 3, 8, 8)", "(4, 2, 3, 3)"], lambda k: t(k, 1, 3, 8, 8).conv2d(t(k, 4, 2, 3, 3), None, 1, 0, 1, 1)),
    "conv groups": ("KN1223", ["groups=0"], lambda k: t(k, 1, 3, 8, 8).conv2d(t(k, 4, 3, 3, 3), None, 1, 0, 1, 0)),
    "conv window": ("KN1222", ["9", "8"], lambda k: t(k, 1, 3, 8, 8).conv2d(t(k, 4, 3, 9, 9), None, 1, 0, 1, 1)),
    "conv stride": ("KN1221", ["stride 0"], lambda k: t(k, 1, 3, 8, 8).conv2d(t(k, 4, 3, 3, 3), None, 0, 0, 1, 1)),
    "conv bias": ("KN1224", ["(3,)", "(4,)"], lambda k: t(k, 1, 3, 8, 8).conv2d(t(k, 4, 3, 3, 3), t(k, 3), 1, 0, 1, 1)),
    "conv list": ("KN1220", ["stride", "2 expected, got 3"], lambda k: t(k, 1, 3, 8, 8).conv(t(k, 4, 3, 3, 3), None, (1, 1, 1), (0,), (1,), 1)),
    "conv back channels": ("KN1226", ["(1, 3, 8, 8)", "(4, 2, 3, 3)"], lambda k: t(k, 1, 3, 8, 8).conv_transpose2d(t(k, 4, 2, 3, 3), None, 1, 0, 0, 1, 1)),
    "conv back groups": ("KN1226", ["groups=3"], lambda k: t(k, 1, 4, 8, 8).conv_transpose2d(t(k, 4, 2, 3, 3), None, 1, 0, 0, 1, 3)),
    "conv back extra": ("KN1227", ["output_padding 2", "stride 2"], lambda k: t(k, 1, 4, 8, 8).conv_transpose2d(t(k, 4, 2, 3, 3), None, 2, 0, 2, 1, 1)),
    "conv back empty": ("KN1228", ["axis 0"], lambda k: t(k, 1, 4, 2, 2).conv_transpose2d(t(k, 4, 2, 3, 3), None, 1, 2, 0, 1, 1)),
    "conv back dtype": ("KN1151", ["floats"], lambda k: i(k, *range(12)).reshape((1, 1, 12)).conv_transpose(i(k, 1, 2, 3).reshape((1, 1, 3)), None, (1,), (0,), (0,), (1,), 1)),
    "conv back rank": ("KN1128", ["conv_transpose2d"], lambda k: t(k, 3, 8, 8).conv_transpose2d(t(k, 3, 4, 3, 3), None, 1, 0, 0, 1, 1)),
    "lp power": ("KN1229", ["p is 0"], lambda k: t(k, 1, 3, 8, 8).lp_pool(0.0, (2,), (2,), 0)),
    "lp infinity": ("KN1229", ["kn_max_pool"], lambda k: t(k, 1, 3, 8, 8).lp_pool(float("inf"), (2,), (2,), 0)),
    "lp rank": ("KN1128", ["lp_pool"], lambda k: t(k, 8, 8).lp_pool(2.0, (2,), (2,), 0)),
    "adaptive size": ("KN1221", ["size 0"], lambda k: t(k, 1, 3, 8, 8).adaptive_avg_pool((0, 2))),
    "adaptive list": ("KN1220", ["2 expected, got 3"], lambda k: t(k, 1, 3, 8, 8).adaptive_max_pool((1, 2, 3))),
    "adaptive rank": ("KN1128", ["adaptive_avg_pool"], lambda k: t(k, 8, 8).adaptive_avg_pool((2,))),
    "interpolate kind": ("KN1240", ["7"], lambda k: t(k, 1, 3, 8, 8).interpolate((2,), 7, 0)),
    "interpolate aligned": ("KN1241", ["align_corners"], lambda k: t(k, 1, 3, 8, 8).interpolate((2,), 0, 1)),
    "interpolate list": ("KN1220", ["sizes"], lambda k: t(k, 1, 3, 8, 8).interpolate((2, 3, 4), 2, 0)),
    "interpolate size": ("KN1221", ["size 0"], lambda k: t(k, 1, 3, 8, 8).interpolate((0,), 2, 0)),
    "pixels": ("KN1242", ["6 channels"], lambda k: t(k, 1, 6, 8, 8).pixel_shuffle(2)),
    "pixels apart": ("KN1242", ["8 x 9"], lambda k: t(k, 1, 6, 8, 9).pixel_unshuffle(2)),
    "pixels rank": ("KN1128", ["pixel_shuffle"], lambda k: t(k, 8, 8).pixel_shuffle(2)),
    "glu odd": ("KN1239", ["5 elements"], lambda k: t(k, 3, 5).glu(1)),
    "prelu": ("KN1232", ["(2,)", "(3, 5)"], lambda k: t(k, 3, 5).prelu(t(k, 2))),
    "normalize": ("KN1238", ["p is 0"], lambda k: t(k, 3, 5).normalize(0.0, 1, 1e-12)),
    "instance norm rank": ("KN1128", ["instance_norm"], lambda k: t(k, 3, 5).instance_norm(None, None, 1e-5)),
    "response size": ("KN1221", ["size 0"], lambda k: t(k, 1, 3, 5).local_response_norm(0, 1.0, 1.0, 1.0)),
    "reduction": ("KN1234", ["9"], lambda k: t(k, 3).mse_loss_as(t(k, 3), 9)),
    "batch of a scalar": ("KN1128", ["l1_loss"], lambda k: t(k).l1_loss_as(t(k), 3)),
    "class weight": ("KN1235", ["(3,)", "(5, 4)"], lambda k: t(k, 5, 4).cross_entropy_as(i(k, 1, 2, 3, 0, 1), t(k, 3), -100, 0.0, 0)),
    "smoothing": ("KN1236", ["1.5"], lambda k: t(k, 5, 4).cross_entropy_as(i(k, 1, 2, 3, 0, 1), None, -100, 1.5, 0)),
    "probabilities shape": ("KN1230", ["(5, 4)", "(4, 5)"], lambda k: t(k, 5, 4).cross_entropy(t(k, 4, 5))),
    "huber turn": ("KN1237", ["huber_loss", "-1"], lambda k: t(k, 3).huber_loss(t(k, 3), -1.0)),
    "smooth turn": ("KN1237", ["smooth_l1_loss"], lambda k: t(k, 3).smooth_l1_loss(t(k, 3), -1.0, 0)),
    "ctc shapes": ("KN1243", ["(5, 2, 3)", "(3, 2)"], lambda k: t(k, 5, 2, 3).ctc_loss(i(k, 1, 1, 1, 1, 1, 1).reshape((3, 2)), i(k, 5, 5), i(k, 2, 2), 0, 0, 0)),
    "ctc lengths": ("KN1244", ["numbers of labels", "(2,)"], lambda k: t(k, 5, 2, 3).ctc_loss(i(k, 1, 1, 1, 1).reshape((2, 2)), i(k, 5, 5), i(k, 2), 0, 0, 0)),
    "ctc steps": ("KN1244", ["numbers of steps", "f32"], lambda k: t(k, 5, 2, 3).ctc_loss(i(k, 1, 1, 1, 1).reshape((2, 2)), t(k, 2), i(k, 2, 2), 0, 0, 0)),
    "ctc blank": ("KN1245", ["blank 3"], lambda k: t(k, 5, 2, 3).ctc_loss(i(k, 1, 1, 1, 1).reshape((2, 2)), i(k, 5, 5), i(k, 2, 2), 3, 0, 0)),
    "ctc labels": ("KN1151", ["integer labels"], lambda k: t(k, 5, 2, 3).ctc_loss(t(k, 2, 2), i(k, 5, 5), i(k, 2, 2), 0, 0, 0)),
    "pool padding": ("KN1225", ["padding 2", "size 3"], lambda k: t(k, 1, 3, 8, 8).max_pool2d(3, 1, 2)),
    "pool window": ("KN1222", ["9"], lambda k: t(k, 1, 3, 8, 8).avg_pool2d(9, 1, 0)),
    "pool rank": ("KN1128", ["max_pool"], lambda k: t(k, 8, 8).max_pool2d(2, 2, 0)),
    "labels shape": ("KN1230", ["(5, 4)", "(4,)"], lambda k: t(k, 5, 4).cross_entropy(i(k, 1, 2, 3, 0))),
    "labels float": ("KN1151", ["integer labels"], lambda k: t(k, 5, 4).cross_entropy(t(k, 5))),
    "norm axes": ("KN1231", ["the last 3 axes", "has 2"], lambda k: t(k, 5, 4).layer_norm(3, None, None, 1e-5)),
    "norm weight": ("KN1203", ["layer_norm"], lambda k: t(k, 5, 4).layer_norm(1, t(k, 5), None, 1e-5)),
    "batch statistics": ("KN1232", ["(4,)", "(2, 3)"], lambda k: t(k, 2, 3).batch_norm(t(k, 4), t(k, 4), None, None, 1e-5)),
    "groups": ("KN1233", ["2 groups", "3 channels"], lambda k: t(k, 2, 3).group_norm(2, None, None, 1e-5)),
    "rotary": ("KN1213", ["5 elements", "cos 2"], lambda k: t(k, 3, 5).rotary(t(k, 3, 2), t(k, 3, 2))),
    "rotary sin": ("KN1213", ["sin 3"], lambda k: t(k, 3, 4).rotary(t(k, 3, 2), t(k, 3, 3))),
    "attention rank": ("KN1128", ["attention"], lambda k: t(k, 3).attention(t(k, 3), t(k, 3), None, 0, 0.0)),
    "attention mask": ("KN1151", ["attention", "i32", "bool"], lambda k: t(k, 3, 4).attention(t(k, 3, 4), t(k, 3, 4), i(k, 1, 0, 1), 0, 0.0)),
    "attention sizes": ("KN1212", ["(3, 4)", "(3, 5)"], lambda k: t(k, 3, 4).attention(t(k, 3, 5), t(k, 3, 5), None, 0, 0.0)),
    "einsum letters": ("KN1250", ['"i1,j->ij"', "an axis is a letter"], lambda k: koine.call("einsum", "i1,j->ij", [t(k, 2), t(k, 3)])),
    "einsum arrow": ("KN1250", ["after ->"], lambda k: koine.call("einsum", "i,j-ij", [t(k, 2), t(k, 3)])),
    "einsum result": ("KN1250", ["no operand has"], lambda k: koine.call("einsum", "i,j->ik", [t(k, 2), t(k, 3)])),
    "einsum result twice": ("KN1250", ["twice"], lambda k: koine.call("einsum", "i,j->ii", [t(k, 2), t(k, 3)])),
    "einsum dots": ("KN1250", ["three dots"], lambda k: koine.call("einsum", "..i->i", [t(k, 2, 3)])),
    "einsum two ellipses": ("KN1250", ["two ellipses"], lambda k: koine.call("einsum", "...i...->i", [t(k, 2, 3)])),
    "einsum rest": ("KN1250", ["nothing comes after"], lambda k: koine.call("einsum", "i->i,j", [t(k, 2)])),
    "einsum fewer": ("KN1251", ["fewer terms", "(2)"], lambda k: koine.call("einsum", "ij->i", [t(k, 2, 3), t(k, 3)])),
    "einsum more": ("KN1251", ["more terms", "(1)"], lambda k: koine.call("einsum", "ij,jk->ik", [t(k, 2, 3)])),
    "einsum rank": ("KN1252", ["operand 1", "names 2 axes", "(3,)"], lambda k: koine.call("einsum", "ij,jk->ik", [t(k, 2, 3), t(k, 3)])),
    "einsum rank with dots": ("KN1252", ["at least 2"], lambda k: koine.call("einsum", "...ij->i", [t(k, 3)])),
    "einsum size": ("KN1253", ["axis j has size 3, and 4 in operand 1"], lambda k: koine.call("einsum", "ij,jk->ik", [t(k, 2, 3), t(k, 4, 5)])),
    "einsum broadcast": ("KN1254", ["3", "4"], lambda k: koine.call("einsum", "...i,...i->...", [t(k, 3, 2), t(k, 4, 2)])),
    "einsum many": ("KN1255", ["65 operands"], lambda k: koine.call("einsum", "i," * 64 + "i", [t(k, 2)] * 65)),
    "einsum rank of a step": ("KN1120", ["einsum"], lambda k: koine.call("einsum", "abcdefghij,ijklmnopqr->abcdefghklmnopqr", [t(k, *(1,) * 10), t(k, *(1,) * 10)])),
    "tensordot lists": ("KN1256", ["1 axes", "2 of the right"], lambda k: t(k, 2, 3).tensordot(t(k, 3, 2), (1,), (0, 1))),
    "tensordot sizes": ("KN1257", ["axis 0 has 2", "axis 1 of the other operand 5"], lambda k: t(k, 2, 3).tensordot(t(k, 3, 5), (0,), (1,))),
    "tensordot axis": ("KN1125", ["tensordot", "2"], lambda k: t(k, 2, 3).tensordot(t(k, 3, 5), (2,), (1,))),
    "inner sizes": ("KN1257", ["inner"], lambda k: t(k, 2, 3).inner(t(k, 3, 5))),
    "bmm rank": ("KN1128", ["bmm"], lambda k: t(k, 2, 3).bmm(t(k, 3, 5))),
    "vecdot shapes": ("KN1203", ["vecdot"], lambda k: t(k, 2, 3).vecdot(t(k, 2, 4), -1)),
    "cross size": ("KN1265", ["sizes 2 and 2"], lambda k: t(k, 3, 2).cross(t(k, 3, 2), 1)),
    "kron rank": ("KN1120", ["kron"], lambda k: t(k, *(1,) * 9).kron(t(k, 3))),
    "trace rank": ("KN1128", ["trace"], lambda k: t(k, 9).trace(0)),
    "cdist features": ("KN1210", ["cdist", "4 and 5"], lambda k: t(k, 3, 4).cdist(t(k, 3, 5), 2.0)),
    "cdist rank": ("KN1128", ["cdist"], lambda k: t(k, 4).cdist(t(k, 3, 4), 2.0)),
    "vector_norm axis": ("KN1125", ["vector_norm"], lambda k: t(k, 4).vector_norm_over(2.0, (1,), 0)),
    "index many": ("KN1258", ["3 indices", "rank 2"], lambda k: koine.call("index", t(k, 3, 3), [i(k, 0)] * 3)),
    "index none": ("KN1259", ["index", "at least one"], lambda k: koine.call("index", t(k, 3, 3), [None, None])),
    "index shapes": ("KN1203", ["index"], lambda k: koine.call("index", t(k, 3, 3), [i(k, 0, 1), i(k, 0, 1, 2)])),
    "index mask": ("KN1260", ["a mask", "kn_where"], lambda k: koine.call("index", t(k, 3), [t(k, 3, dtype="bool")])),
    "index float": ("KN1151", ["integer index"], lambda k: koine.call("index", t(k, 3), [t(k, 3)])),
    "index_put value": ("KN1204", ["index_put", "(4,)", "(2,)"], lambda k: koine.call("index_put", t(k, 3), [i(k, 0, 1)], t(k, 4), 0)),
    "index_put mask": ("KN1260", ["index_put", "(4,)", "(3, 2)"], lambda k: koine.call("index_put", t(k, 3, 2), [t(k, 4, dtype="bool")], t(k), 0)),
    "setitem place": ("KN1160", ["kn_param"], lambda k: koine.call("setitem", t(k, 3).exp(), [i(k, 0, 1)], t(k))),
    "put_along_axis shape": ("KN1261", ["(3, 2)", "at most (2, 4)"], lambda k: t(k, 2, 4).put_along_axis(1, k.array(np.zeros((3, 2), int)), t(k, 3, 2))),
    "put_along_axis value": ("KN1204", ["put_along_axis"], lambda k: t(k, 2, 4).put_along_axis(1, k.array(np.zeros((2, 2), int)), t(k, 3, 2))),
    "scatter_reduce how": ("KN1262", ['"max"', "amax"], lambda k: t(k, 3).scatter_reduce(0, i(k, 0), t(k, 1), "max", 1)),
    "pad_mode": ("KN1262", ['"edge"', "replicate"], lambda k: t(k, 3).pad_mode((1, 1), "edge", 0.0)),
    "pad_mode count": ("KN1132", ["4 amounts"], lambda k: t(k, 3, 3).pad_mode((1, 1), "reflect", 0.0)),
    "pad_mode reflect": ("KN1263", ["reflect", "axis 0 has 3", "3 and 0"], lambda k: t(k, 3).pad_mode((3, 0), "reflect", 0.0)),
    "pad_mode symmetric": ("KN1263", ["symmetric", "axis 0 has 3"], lambda k: t(k, 3).pad_mode((4, 0), "symmetric", 0.0)),
    "pad_mode circular": ("KN1263", ["circular"], lambda k: t(k, 3).pad_mode((0, 4), "circular", 0.0)),
    "rot90 axes": ("KN1126", ["rot90"], lambda k: t(k, 3, 3).rot90(1, 0, -2)),
    "fliplr rank": ("KN1128", ["fliplr"], lambda k: t(k, 3).fliplr()),
    "diff times": ("KN1121", ["-1"], lambda k: t(k, 3).diff(-1, 0)),
    "meshgrid rank": ("KN1128", ["meshgrid"], lambda k: koine.several("meshgrid", 2, [t(k, 3), t(k, 3, 2)], 0)[0]),
    "broadcast_tensors": ("KN1203", ["(3,)", "(2,)"], lambda k: koine.several("broadcast_tensors", 2, [t(k, 3), t(k, 2)])[0]),
    "broadcast_to": ("KN1204", ["broadcast_to"], lambda k: t(k, 3).broadcast_to((2,))),
    "unstack axis": ("KN1125", ["unstack"], lambda k: (koine.several("unstack", 1, t(k, 3), 1), T(k, None))[1]),
    "clip shapes": ("KN1203", ["clip"], lambda k: t(k, 3).clip(t(k, 2), None)),
    "nextafter": ("KN1203", ["nextafter"], lambda k: t(k, 3).nextafter(t(k, 2))),
    "cholesky square": ("KN1266", ["cholesky", "(2, 3)"], lambda k: t(k, 2, 3).cholesky(0)),
    "cholesky rank": ("KN1128", ["cholesky"], lambda k: t(k, 2).cholesky(0)),
    "inv large": ("KN1267", ["inv", "129", "128 at most"], lambda k: t(k, 129, 129).inv()),
    "eigvalsh large": ("KN1267", ["eigvalsh", "65", "64 at most"], lambda k: t(k, 65, 65).eigvalsh()),
    "solve shapes": ("KN1268", ["(3, 3)", "(2, 3)"], lambda k: t(k, 3, 3).solve(t(k, 2, 3))),
    "solve batch": ("KN1203", ["solve"], lambda k: t(k, 2, 3, 3).solve(t(k, 4, 3, 1))),
    "solve_triangular shapes": ("KN1268", ["solve_triangular"], lambda k: t(k, 3, 3).solve_triangular(t(k, 4), 0, 0)),
    "det square": ("KN1266", ["det"], lambda k: t(k, 2, 3).det()),
    "slogdet rank": ("KN1128", ["slogdet"], lambda k: koine.several("slogdet", 2, t(k, 3))[0]),
    "matrix_power square": ("KN1266", ["matrix_power"], lambda k: t(k, 2, 3).matrix_power(2)),
    "qr rank": ("KN1128", ["qr"], lambda k: koine.several("qr", 2, t(k, 3), 0)[0]),
    "eigh square": ("KN1266", ["eigh"], lambda k: koine.several("eigh", 2, t(k, 2, 3))[1]),
    "svd large": ("KN1267", ["svd", "65", "64 at most"], lambda k: koine.several("svd", 3, t(k, 65, 70), 0)[0]),
    "svd long": ("KN1267", ["svd", "150", "64 at most", "not completed", "150 x 3"], lambda k: koine.several("svd", 3, t(k, 3, 150), 1)[0]),
    "qr long": ("KN1267", ["qr", "150", "128 at most", "not completed", "150 x 3"], lambda k: koine.several("qr", 2, t(k, 150, 3), 1)[0]),
    "svdvals rank": ("KN1128", ["svdvals"], lambda k: t(k, 3).svdvals()),
    "pinv rank": ("KN1128", ["pinv"], lambda k: t(k, 3).pinv(0.0)),
    "matrix_rank rank": ("KN1128", ["matrix_rank"], lambda k: t(k, 3).matrix_rank(0.0)),
    "matrix_norm order": ("KN1262", ["matrix_norm", '"frobenius"', "fro, nuc"], lambda k: t(k, 3, 3).matrix_norm("frobenius", 0)),
    "matrix_norm rank": ("KN1128", ["matrix_norm"], lambda k: t(k, 3).matrix_norm("fro", 0)),
    "linalg rank": ("KN1120", ["inv"], lambda k: t(k, *(1,) * 16).inv()),
    "im2col rank": ("KN1128", ["im2col"], lambda k: t(k, 8, 8).im2col((2,), (1,), (0,), (1,))),
    "im2col window": ("KN1222", ["9", "8"], lambda k: t(k, 1, 1, 8, 8).im2col((9,), (1,), (0,), (1,))),
    "im2col list": ("KN1220", ["size", "2 expected, got 3"], lambda k: t(k, 1, 1, 8, 8).im2col((2, 2, 2), (1,), (0,), (1,))),
    "col2im places": ("KN1264", ["(1, 4, 5)", "(N, C * 4, 49)"], lambda k: t(k, 1, 4, 5).col2im((8, 8), (2,), (1,), (0,), (1,))),
    "col2im channels": ("KN1264", ["(1, 5, 49)"], lambda k: t(k, 1, 5, 49).col2im((8, 8), (2,), (1,), (0,), (1,))),
    "fft pair": ("KN1269", ["fft", "last axis of 3"], lambda k: t(k, 4, 3).fft((0,))),
    "fft axis": ("KN1125", ["fft", "1"], lambda k: t(k, 4, 2).fft((1,))),
    "ifft rank": ("KN1128", ["ifft"], lambda k: t(k, 2).ifft((0,))),
    "rfft axis": ("KN1125", ["rfft"], lambda k: t(k, 4).rfft(1)),
    "irfft size": ("KN1121", ["irfft", "0"], lambda k: t(k, 4, 2).irfft(0, 0)),
    "hfft size": ("KN1121", ["hfft", "-1"], lambda k: t(k, 4, 2).hfft(-1, 0)),
    "hfft pair": ("KN1269", ["hfft", "last axis of 3"], lambda k: t(k, 4, 3).hfft(6, 0)),
    "hfft axis": ("KN1125", ["hfft"], lambda k: t(k, 4, 2).hfft(6, 1)),
    "ihfft axis": ("KN1125", ["ihfft"], lambda k: t(k, 4).ihfft(1)),
    "fftfreq size": ("KN1121", ["fftfreq"], lambda k: k.fftfreq(0, 1.0, "f32")),
    "rfftfreq dtype": ("KN1150", ["rfftfreq", "i32"], lambda k: k.rfftfreq(4, 1.0, "i32")),
    "fftshift axis": ("KN1125", ["fftshift"], lambda k: t(k, 4).fftshift((1,))),
    "grad integer": ("KN1170", ["grad: what is differentiated", "i32"], lambda k: i(k, 1).grad1(t(k, 1))),
    "grad by integer": ("KN1170", ["differentiate by", "i32"], lambda k: t(k, 1).grad1(i(k, 1))),
    "grad shape": ("KN1171", ["(3,)", "(2,)"], lambda k: koine.several("vjp", 1, t(k, 2), t(k, 3), [t(k, 2)])[0]),
    "vjp of nothing": ("KN1103", ["vjp", "operand 0"], lambda k: (lambda x: koine.several("vjp", 1, None, None, [x])[0])(t(k, 2))),
    "vjp integer": ("KN1170", ["vjp: a tensor to differentiate by", "i32"], lambda k: koine.several("vjp", 1, t(k, 2), t(k, 2), [i(k, 1, 2)])[0]),
    "jvp shape": ("KN1171", ["jvp", "(3,)", "(2,)"], lambda k: (lambda x: koine.call("jvp", x.exp(), [x], [t(k, 3)]))(t(k, 2))),
    "jvp integer": ("KN1170", ["jvp: what is differentiated", "i64"], lambda k: (lambda x: koine.call("jvp", x.argmax(0, 0), [x], [x]))(t(k, 2))),
    "jvp of nothing": ("KN1103", ["jvp", "operand 1"], lambda k: (lambda x: koine.call("jvp", x.exp(), [x], [None]))(t(k, 2))),
    "hvp shape": ("KN1171", ["hvp", "(2, 1)", "(2,)"], lambda k: (lambda x: koine.several("hvp", 1, x.exp().sum(), [x], [t(k, 2, 1)])[0])(t(k, 2))),
    "hvp integer": ("KN1170", ["hvp", "i32"], lambda k: (lambda x: koine.several("hvp", 1, x.sum(), [i(k, 1)], [x])[0])(t(k, 2))),
    "hvp twice": ("KN1172", ["bitcast"], lambda k: (lambda x: koine.several("hvp", 1, x.bitcast("f16").sum(), [x], [x])[0])(k.input("x", "f32", (4,)))),
    "jacobian of nothing": ("KN1103", ["jacobian", "operand 0"], lambda k: koine.call("jacobian", None, t(k, 2))),
    "jacobian integer": ("KN1170", ["jacobian", "i64"], lambda k: (lambda x: x.argmax(0, 0).jacobian(x))(t(k, 2))),
    "jacobian rank": ("KN1120", ["jacobian", "16"], lambda k: (lambda x: x.exp().jacobian(x))(t(k, *(1,) * 9))),
    "hessian rank": ("KN1120", ["hessian", "16"], lambda k: (lambda x: x.exp().sum().hessian(x))(t(k, *(1,) * 9))),
    "hessian integer": ("KN1170", ["hessian", "i32"], lambda k: t(k, 1).sum().hessian(i(k, 1))),
    "hessian of nothing": ("KN1103", ["hessian", "operand 2"], lambda k: t(k, 1).hessian(None)),
    "gumbel_softmax temperature": ("KN1185", ["gumbel_softmax", "-1"], lambda k: t(k, 3).gumbel_softmax(-1.0, 0, 0, None)),
    "gumbel_softmax axis": ("KN1125", ["gumbel_softmax", "axis 2"], lambda k: t(k, 2, 3).gumbel_softmax(1.0, 1, 2, None)),
    "gumbel_softmax key": ("KN1180", ["gumbel_softmax"], lambda k: t(k, 3).gumbel_softmax(1.0, 1, 0, t(k))),
    "straight_through shape": ("KN1175", ["(3,)", "(2, 3)", "kn_broadcast_to"], lambda k: t(k, 3).straight_through(t(k, 2, 3))),
    "straight_through integer": ("KN1170", ["straight_through", "i32"], lambda k: t(k, 1).straight_through(i(k, 1))),
    "straight_through of nothing": ("KN1103", ["straight_through", "operand 1"], lambda k: t(k, 1).straight_through(None)),
    "fake_quantize scale": ("KN1177", ["fake_quantize_per_tensor_affine", "-0.5"], lambda k: t(k, 3).fake_quantize_per_tensor_affine(-0.5, 0, 0, 255)),
    "fake_quantize steps": ("KN1176", ["255 to 0"], lambda k: t(k, 3).fake_quantize_per_tensor_affine(0.5, 0, 255, 0)),
    "fake_quantize zero point": ("KN1178", ["300", "[0, 255]"], lambda k: t(k, 3).fake_quantize_per_tensor_affine(0.5, 300, 0, 255)),
    "fake_quantize integer": ("KN1170", ["the input", "i32"], lambda k: i(k, 1).fake_quantize_per_tensor_affine(0.5, 0, 0, 255)),
    "fake_quantize channels": ("KN1179", ["(2,)", "axis 1", "(2, 3)"], lambda k: t(k, 2, 3).fake_quantize_per_channel_affine(t(k, 2), t(k, 3), 1, 0, 255)),
    "fake_quantize zero points": ("KN1179", ["(1, 3)"], lambda k: t(k, 2, 3).fake_quantize_per_channel_affine(t(k, 3), t(k, 1, 3), 1, 0, 255)),
    "fake_quantize axis": ("KN1125", ["fake_quantize_per_channel_affine", "axis 2"], lambda k: t(k, 2, 3).fake_quantize_per_channel_affine(t(k, 2), t(k, 2), 2, 0, 255)),
    "grad bitcast": ("KN1172", ["bitcast"], lambda k: (lambda x: x.bitcast("f16").sum().grad1(x))(k.input("x", "f32", (4,)))),
    "sym of float": ("KN1124", ["f32"], lambda k: t(k, 1).sum().sym() and T(k, None)),
    "variable bounds": ("KN1163", ["5 to 2"], lambda k: k.variable("n", 5, 2)),
    "variable name": ("KN1163", [], lambda k: k.variable("", 0, 2)),
    "input name": ("KN1164", [], lambda k: k.input("", "f32", (2,))),
    "null operand": ("KN1103", ["operand 1"], lambda k: t(k, 2).add(None)),
    "symbolic data": ("KN1123", ["rand"], lambda k: k.rand((k.variable("n", 1, 4).sym(), 2))),
    "symbolic tile": ("KN1122", ["tile", "<=4"], lambda k: t(k, 4).shrink((0,), (k.variable("n", 1, 4).sym(),)).tile((2,))),
    "not a value": ("KN1106", ["const"], lambda k: k.from_graph(koine.load().kn_u_int(koine.Context("NULL").h, 8, 1))),
    "no node": ("KN1109", ["from_graph", "the node"], lambda k: k.from_graph(None)),
    "setting": ("KN1107", ["KN_COLOUR"], lambda k: koine.load().kn_set(k.h, b"KN_COLOUR", b"1") and T(k, None)),
    "setting word": ("KN1111", ["KN_CPU=zzz", "one of sse2 avx2"], lambda k: koine.load().kn_set(k.h, b"KN_CPU", b"zzz") and T(k, None)),
    "setting value": ("KN1111", ["KN_VERIFY=7", "0..3"], lambda k: koine.load().kn_set(k.h, b"KN_VERIFY", b"7") and T(k, None)),
    "no data": ("KN1109", ["from_host"], lambda k: T(k, koine.load().kn_from_host(k.h, None, 14, koine.ints((2,))))),
}


@pytest.fixture(scope="module")
def k():
    c = koine.Context("NULL")
    yield c
    c.close()


@pytest.mark.parametrize("name", MISUSES)
def test_misuse(k, name):
    number, parts, build = MISUSES[name]
    koine.load().kn_clear(k.h)
    bad = build(k)
    text = bad.why() if bad.h and koine.load().kn_check(bad.h) else k.message()
    assert koine.load().kn_error(k.h) != 0
    assert re.search(rf"\b{number}: ", text), text
    for part in parts:
        assert part in text, text
    assert len(text.splitlines()[0]) < 200 and "%" not in text
    if bad.h and koine.load().kn_check(bad.h):  # it rides through, and realising it reports it
        for later in (bad.exp(), bad.add(k.ones((), "f32")), bad.sum()):
            assert later.why() == text
        with pytest.raises(koine.Error, match=number):
            k.realize(bad)
    koine.load().kn_clear(k.h)


def test_use_after_scope(k):
    k.scope_open()
    x = k.ones((2,), "f32")
    k.scope_close()
    with pytest.raises(koine.Error, match="KN1101"):
        x.exp().check()
    with pytest.raises(koine.Error, match="KN1101"):
        k.realize(x)


def test_every_function_has_its_line_in_here_h(root):
    names = set()
    for h in ("tensor.h", "nn.h"):
        names |= set(re.findall(r"^KN_API kn_tensor (kn_\w+)\(", (root / "include/koine" / h).read_text(), re.M))
    names |= {"kn_svd", "kn_slogdet", "kn_qr", "kn_eigh", "kn_unstack", "kn_meshgrid", "kn_broadcast_tensors", "kn_to_host", "kn_data", "kn_item", "kn_bind", "kn_split", "kn_chunk", "kn_function", "kn_grad", "kn_vjp", "kn_hvp", "kn_checkpoint",
              "kn_optim_step", "kn_optim_realize", "kn_write", "kn_replay"}
    names -= {"kn_keep", "kn_hand_up", "kn_at_"}
    here = set(re.findall(r"^#define (kn_\w+)\(\.\.\.\)", (root / "include/koine/here.h").read_text() + (root / "include/koine/nn.h").read_text(), re.M))
    assert names == here


def calls_of(build):
    """Names of the functions that making a case calls."""
    used, call, several = set(), koine.call, koine.several
    koine.call = lambda name, *a: (used.add(name), call(name, *a))[1]
    koine.several = lambda name, *a: (used.add(name), several(name, *a))[1]
    k = koine.Context("NULL")
    try:
        build(k)
    finally:
        koine.call, koine.several = call, several
        k.close()
    return used


def test_every_public_function_has_four_cases(root, request):
    """Four at least for each function of tensor.h, and six hundred in all: cases of the tables by the calls that make them,
    other tests by their items, C tests by their calls."""
    here = root / "tests/tensor"
    items = [i for i in request.session.items if i.path.parent == here and hasattr(i, "function")]
    if {p.name for p in here.glob("test_*.py")} - {i.path.name for i in items} or request.config.option.keyword:
        pytest.skip("only some of the tests run")
    count, modules, tables = Counter(), {}, 0
    for i in items:
        modules[i.path.name] = i.module
        if "case" not in getattr(i, "fixturenames", ()):  # an item is a case of each function it names
            count.update(set(re.findall(r"\b(?:kn_)?(\w+)\b", inspect.getsource(i.function))))
    for m in modules.values():
        for case in (c for c in getattr(m, "CASES", []) if hasattr(c, "build")):
            count.update(calls_of(case.build))
            tables += 1
    for p in (root / "tests").rglob("test_*.c"):
        count.update(n.removeprefix("kn_") for n in re.findall(r"\bkn_\w+(?=\()", p.read_text()))
    names = re.findall(r"^KN_API [^;(]*?\bkn_(\w+)\(", (root / "include/koine/tensor.h").read_text(), re.M)
    assert tables >= 600 and len(names) >= 250
    few = {n: count[n.removesuffix("_at")] for n in names if not n.endswith("_") and count[n.removesuffix("_at")] < 4}
    assert not few, str(few)


# Arguments that are wrong, by a parameter's name or kind. Operands can be none, ended, failed, and another context's.
WRONG = {"axis": [99], "kn_dtype": [0], "kn_ints": [koine.ints((-7,)), koine.ints((1,) * 20), koine.ints((1 << 50,))], "int64_t": [-7], "const char *": [b"?"]}
NONE = {"scalar", "int", "key"}  # any number does
NONE |= {"function", "checkpoint", "from_graph", "hand_up", "keep", "from_host", "borrow_host"}  # what they are given is no tensor, or returned as it is


def arguments(k, f, wrong):
    """Arguments of f, those of index `wrong` as given there."""
    lib, out, held = koine.load(), [], []
    for i, (kind, name) in enumerate(f.params):
        good = lib.kn_ones(k.h, koine.ints((4, 4)), 14) if "tensor" in kind else None
        if kind == "const kn_tensor *":
            held.append((_abi.P * 2)(good, wrong.get(i, good)))
            out.append(held[-1])
        elif kind == "kn_tensor *":
            out.append((_abi.P * 64)())
        elif i in wrong:
            out.append(wrong[i])
        else:
            plain = {"kn_ctx *": k.h, "kn_tensor": good, "kn_ints": koine.ints((0,)), "kn_dtype": 14, "size_t": 2, "const char *": b"sum", "double": 1.0}
            out.append(plain.get(kind, int(name != "axis")))
    return out


def refusals(f, k, other):
    """Messages of f by what was wrong."""
    lib, out = koine.load(), {}
    for i, (kind, name) in enumerate(f.params):
        tries = WRONG.get(name, WRONG.get(kind, []))
        if kind in ("kn_tensor", "const kn_tensor *"):
            lib.kn_scope_open(k.h)
            ended = lib.kn_ones(k.h, koine.ints((2,)), 14)
            lib.kn_scope_close(k.h)
            failed = lib.kn_reshape(lib.kn_ones(k.h, koine.ints((2,)), 14), koine.ints((3,)))
            tries = [None, ended, failed, lib.kn_ones(other.h, koine.ints((4, 4)), 14)]
        for j, v in enumerate(tries):
            r = getattr(lib, f.name)(*arguments(k, f, {i: v}))
            if f.result == "kn_tensor" and (not r or lib.kn_check(r)) or f.result == "kn_status" and r:
                text = lib.kn_why(r).decode() if f.result == "kn_tensor" else k.message()
                out[name, j] = text
                assert re.search(r"KN\d{4}: ", text) or not r or not text, (f.name, name, j, text)  # a failed operand has told already
            lib.kn_clear(k.h)
    return out


def test_every_function_says_what_is_wrong(k):
    """Three mistakes at least for each function that makes tensors: those of the table, and for each parameter what can be wrong with its kind."""
    said, other = Counter(), koine.Context("NULL")
    for number, _, build in MISUSES.values():
        bad = build(k)
        said.update(re.findall(r"KN\d+: (?:cannot broadcast )?(\w+)\b", bad.why() if bad.h and koine.load().kn_check(bad.h) else k.message()))
        koine.load().kn_clear(k.h)
    few = {}
    for f in _abi.FUNCTIONS.values():
        short = f.name.removeprefix("kn_")
        makes = f.header == "tensor.h" and (f.result == "kn_tensor" or f.result == "kn_status" and "kn_tensor *" in f.kinds)
        if makes and short not in NONE and not short.endswith(("_", "_at")):
            generated = refusals(f, k, other)
            if len(generated) + said[short] + said[short.removesuffix("_over")] < 3:
                few[short] = generated
    other.close()
    assert not few, few


CPP = """
#include <koine/koine.h>
int main() {
    kn_ctx *k = kn_open("NULL");
    kn_tensor x = kn_zeros(k, KN_SHAPE(2, 3), KN_F32), y = kn_add(kn_reshape(x, KN_SHAPE(3, 2)), kn_zeros(k, KN_SHAPE(), KN_F32));
    kn_status s = kn_realize(x, y);
    kn_uop u = kn_u(k, "add", kn_u_int(k, KN_I32, 1), kn_u_int(k, KN_I32, 2));
    kn_close(k);
    return s != KN_OK || !u || kn_stats_of(NULL).programs;
}
"""


def test_koine_h_is_all_of_them(root):
    """But here.h, which tensor.h includes."""
    folder = root / "include/koine"
    assert set(re.findall(r"#include <koine/(\w+\.h)>", (folder / "koine.h").read_text())) == {h.name for h in folder.glob("*.h")} - {"koine.h", "here.h"}


@pytest.mark.parametrize("compiler, flags", [("c++", ["-std=c++11", "-x", "c++"]), ("c++", ["-std=c++20", "-x", "c++"]), ("cc", ["-std=c99", "-x", "c", "-Dmain(...)=main(void)"]),
                                             ("cc", ["-std=c99", "-x", "c", "-DKN_NO_LOC", "-Dmain(...)=main(void)"])])
def test_headers_compile(root, tmp_path, compiler, flags):
    import shutil
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    r = subprocess.run([compiler, *flags, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{root}/include", "-c", "-", "-o", str(tmp_path / "x.o")],
                       input=CPP, text=True, capture_output=True)
    assert r.returncode == 0, r.stderr
