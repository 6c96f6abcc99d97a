"""Sums of products over named axes against numpy: expressions, contraction orders, what they are made of; vectors and norms."""
import ctypes
import itertools
import re

import koine
import numpy as np
import pytest
from conftest import Case
from data import values

CASES = []
W = np.float64
SIZE = dict(zip("abcdefghijklmnopqrstuvwxyz", (2, 3, 4, 5, 2, 3, 2, 3, 4, 2, 5, 3, 4, 2, 3, 2, 5, 2, 3, 4, 2, 3, 2, 2, 3, 2)))


def add(key, build, ref, **more):
    CASES.append(Case(key, build, ref, **{"tol": 2e-5, "atol": 2e-5, **more}))


def einsum_case(key, expression, arrays, reference=None, **more):
    add(f"einsum-{key}", lambda k: koine.call("einsum", expression, [k.array(a) for a in arrays]),
        lambda: np.einsum(reference or expression, *[a.astype(W) if a.dtype.kind == "f" else a for a in arrays]), **more)


def shape_of(term):
    return tuple(SIZE[c] for c in term if c.isalpha())


for i, e in enumerate((
        "i->i", "i->", "i", "ij->ji", "ij", "ba", "ij->", "ij->i", "ij->j", "ii", "ii->i", "iii->i", "iji->j", "iij->ji", "iijj->ij", "ijk->kij", "i,i->i", "i,i->", "i,i", "i,j->ij",
        "i,j->ji", "i,j", "ij,jk->ik", "ij,jk", "ij,jk->ki", "ij,kj->ik", "ji,jk->ik", "ij,j->i", "j,ij->i", "ij,ij->", "ij,ij->ij", "ij,ji->", "ij,i->j", "bij,bjk->bik", "bij,bjk->ikb",
        "bij,bkj->bik", "bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ijk,jkl->il", "ijk,kjl->li", "ij,jk,kl->il", "ij,jk,kl,lm->im", "ij,jk,kl,lm,mn->in", "i,i,i->i", "i,i,i->",
        "i,ij,j->", "bi,ij,bj->b", "ij,ik,il->jkl", "i,j,k->ijk", "ijk,ilm,njm,nlk->", "ab,cd->", "ab,cd->ac", "a,ab,abc->abc", "ij,jj->i", "ii,ij->j", "abc,cd,be->ade",
        " i j , j k -> i k ", "aB,Bc->ac" if False else "ab,bc->ac", "xyz,xyz->", "abcd,abcd->abcd", "abcd,efgh->")):
    terms = e.replace(" ", "").split("->")[0].split(",")
    einsum_case(f"{i}-{e.strip().replace(' ', '')}", e, [values(f"es{i}{t}{n}", shape_of(t)) for n, t in enumerate(terms)])
for i, (e, shapes) in enumerate((
        ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))), ("...ij,...jk", ((2, 3, 4), (4, 5))), ("...ij,jk->...ik", ((2, 3, 3, 4), (4, 5))), ("...,...->...", ((2, 3), (3,))),
        ("...i->...", ((2, 3, 4),)), ("i...->...", ((2, 3, 4),)), ("i...->i...", ((2, 3, 4),)), ("i...j->ij...", ((2, 3, 5, 4),)), ("...ii->...i", ((2, 3, 3),)), ("...", ((2, 3),)),
        ("...ij,...j->...i", ((2, 1, 3, 4), (5, 4))), ("i...,i...->...", ((4, 2, 3), (4, 1, 3))), ("ij...,jk...->ik...", ((3, 4, 2), (4, 5, 2))), ("...->", ()) if False else ("i,...->i...", ((3,), ())),
        ("ij,jk->ik", ((3, 1), (4, 5))), ("ij,ij->ij", ((1, 4), (3, 1))), ("ij,jk->ik", ((3, 0), (0, 4))), ("ij,jk->ik", ((0, 3), (3, 4))), ("ij->", ((0, 3),)), (",ij->ij", ((), (2, 3))),
        (",", ((), ())), ("ij,jk->ik", ((70, 90), (90, 65))), ("bij,bjk->bik", ((3, 40, 50), (3, 50, 30))), ("ij,kj->ik", ((257, 63), (65, 63))), ("ii->i", ((300, 300),)))):
    einsum_case(f"shapes-{i}", e, [values(f"esh{i}{n}", s) for n, s in enumerate(shapes)], atol=1e-3)
einsum_case("dots-summed", "...i->i", [values("dots", (2, 3, 4))], "abi->i")
einsum_case("capitals", "aB,Bc", [values("cap0", (2, 3)), values("cap1", (3, 4))])
einsum_case("capitals-first", "bA", [values("cap2", (2, 3))])
for n in (11, 13):  # beyond the subsets
    letters = "abcdefghijklmnopqrst"
    einsum_case(f"chain-{n}", ",".join(letters[i : i + 2] for i in range(n)) + "->" + letters[0] + letters[n],
                [values(f"chain{n}{i}", (2 + i % 3, 2 + (i + 1) % 3)) for i in range(n)], atol=1e-3, tol=1e-4)
for d in (np.int32, np.int64, np.uint8, np.bool_, np.float64, np.float16):
    more = {"tol": 2e-3, "atol": 2e-3} if d == np.float16 else {}
    einsum_case(f"dtype-{np.dtype(d).name}", "ij,jk->ik", [values(f"esd0{d}", (3, 4), d), values(f"esd1{d}", (4, 2), d)], dtype=koine.OF_NUMPY[np.dtype(d)], **more)
add("einsum-mixed", lambda k: koine.call("einsum", "ij,j->i", [k.array(values("mix0", (3, 4))), k.array(values("mix1", (4,), np.int32))]),
    lambda: values("mix0", (3, 4)).astype(W) @ values("mix1", (4,), np.int32), dtype="f32")
add("einsum-views", lambda k: koine.call("einsum", "ij,kj->ik", [k.array(values("esv", (4, 6))).mT().flip((0,)), k.array(values("esw", (6, 8))).slice(1, 0, 8, 2)]),
    lambda: values("esv", (4, 6)).T[::-1].astype(W) @ values("esw", (6, 8))[:, ::2].T)
add("einsum-infinite", lambda k: koine.call("einsum", "ij,jk->ik", [k.array(np.array([[np.inf, 1], [np.nan, 2]], np.float32)), k.array(np.eye(2, dtype=np.float32) + 1)]),
    lambda: np.array([[np.inf, 1], [np.nan, 2]]) @ (np.eye(2) + 1))

for i, (sa, sb, over) in enumerate((((3, 4), (4, 5), ((1,), (0,))), ((3, 4, 5), (4, 3, 2), ((0, 1), (1, 0))), ((2, 3), (4,), ((), ())), ((3, 4, 5), (5, 2), ((-1,), (0,))), ((2, 3), (2, 3), ((0, 1), (0, 1))))):
    a, b = values(f"td{i}a", sa), values(f"td{i}b", sb)
    add(f"tensordot-{i}", lambda k, a=a, b=b, over=over: k.array(a).tensordot(k.array(b), *over), lambda a=a, b=b, over=over: np.tensordot(a.astype(W), b.astype(W), over))
for i, (sa, sb) in enumerate((((3,), (3,)), ((2, 3), (3,)), ((2, 3), (4, 3)), ((2, 5, 3), (4, 3)), ((), (3,)))):
    a, b = values(f"in{i}a", sa), values(f"in{i}b", sb)
    add(f"inner-{i}", lambda k, a=a, b=b: k.array(a).inner(k.array(b)), lambda a=a, b=b: np.inner(a.astype(W), b.astype(W)))
for i, (sa, sb, axis) in enumerate((((3,), (3,), 0), ((2, 3), (3,), -1), ((2, 3), (2, 3), 0), ((4, 1, 5), (3, 5), -1), ((2, 0), (2, 0), 1))):
    a, b = values(f"vd{i}a", sa), values(f"vd{i}b", sb)
    add(f"vecdot-{i}", lambda k, a=a, b=b, axis=axis: k.array(a).vecdot(k.array(b), axis), lambda a=a, b=b, axis=axis: (a.astype(W) * b).sum(axis))
for i, (sa, sb) in enumerate((((2, 3, 4), (2, 4, 5)), ((1, 3, 1), (1, 1, 2)), ((3, 20, 30), (3, 30, 10)), ((2, 0, 3), (2, 3, 2)))):
    a, b = values(f"bmm{i}a", sa), values(f"bmm{i}b", sb)
    add(f"bmm-{i}", lambda k, a=a, b=b: k.array(a).bmm(k.array(b)), lambda a=a, b=b: a.astype(W) @ b)
for i, (sa, sb, axis) in enumerate((((3,), (3,), 0), ((2, 3), (2, 3), -1), ((2, 3), (3,), -1), ((3, 4), (3, 4), 0), ((5, 3, 2), (5, 3, 2), 1))):
    a, b = values(f"cr{i}a", sa), values(f"cr{i}b", sb)
    add(f"cross-{i}", lambda k, a=a, b=b, axis=axis: k.array(a).cross(k.array(b), axis), lambda a=a, b=b, axis=axis: np.cross(a.astype(W), b.astype(W), axis=axis))
add("cross-integers", lambda k: k.array(np.array([1, 2, 3])).cross(k.array(np.array([4, 5, 6])), 0), lambda: np.cross([1, 2, 3], [4, 5, 6]))
for i, (sa, sb) in enumerate((((2, 3), (4, 2)), ((3,), (2,)), ((2,), (2, 3)), ((), (2, 3)), ((2, 3, 2), (2, 3)))):
    a, b = values(f"kr{i}a", sa), values(f"kr{i}b", sb)
    add(f"kron-{i}", lambda k, a=a, b=b: k.array(a).kron(k.array(b)), lambda a=a, b=b: np.kron(a.astype(W), b.astype(W)))
for i, (s, offset) in enumerate((((4, 4), 0), ((2, 3, 5), 1), ((5, 3), -2), ((3, 3), 5))):
    a = values(f"tr{i}", s)
    add(f"trace-{i}", lambda k, a=a, offset=offset: k.array(a).trace(offset), lambda a=a, offset=offset: np.trace(a.astype(W), offset, -2, -1))
add("trace-integers", lambda k: k.array(np.eye(3, dtype=np.int8)).trace(0), lambda: np.int64(3))
for i, o in enumerate((2.0, 1.0, float("inf"), float("-inf"), 0.0, 3.0, 0.5, -1.0)):
    a = values(f"vn{i}", (3, 4))
    a[0, 0] = 0 if o == 0 else a[0, 0]
    add(f"vector_norm-{o}", lambda k, a=a, o=o: k.array(a).vector_norm(o), lambda a=a, o=o: np.linalg.norm(a.astype(W).ravel(), o))
    add(f"vector_norm_over-{o}", lambda k, a=a, o=o: k.array(a).vector_norm_over(o, (1,), 1), lambda a=a, o=o: np.linalg.norm(a.astype(W), o, 1, True))
add("vector_norm-zeros", lambda k: k.array(np.zeros(4, np.float32)).vector_norm(3.0), lambda: np.float32(0))
add("vector_norm-integers", lambda k: k.array(np.array([3, -4], np.int32)).vector_norm(2.0), lambda: np.float32(5))
for i, (sa, sb, p) in enumerate((((3, 4), (5, 4), 2.0), ((2, 3, 4), (2, 2, 4), 1.0), ((3, 2), (3, 2), float("inf")), ((3, 4), (5, 4), 3.0), ((2, 0), (3, 0), 2.0))):
    a, b = values(f"cd{i}a", sa), values(f"cd{i}b", sb)
    def dist(a=a, b=b, p=p):
        d = np.abs(a.astype(W)[..., :, None, :] - b[..., None, :, :])
        return d.max(-1) if p == float("inf") else (d**p).sum(-1) ** (1 / p)
    add(f"cdist-{i}", lambda k, a=a, b=b, p=p: k.array(a).cdist(k.array(b), p), dist)


def test_case(case, device, check):
    check(case, device)


# ---- what it is made of

def products(k, expression, *shapes):
    """Elements of each product that the graph sums, largest first."""
    t = koine.call("einsum", expression, [k.zeros(s, "f32").contiguous() for s in shapes]).check()
    text = koine.load().kn_uop_text
    f = koine.load().kn_graph
    f.restype, f.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    text.restype, text.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p]
    p = text(k.h, f(t.h))
    s = ctypes.string_at(p).decode()
    koine.load().kn_free(ctypes.c_void_p(p))
    found = re.findall(r"= mul %\d+ %\d+\s+: f32(?: \[([\d, ]*)\])?", s)
    return sorted((int(np.prod([int(d) for d in f.split(",") if d.strip()] or [1])) for f in found), reverse=True), s


@pytest.mark.parametrize("expression, shapes, most", [
    ("ij,jk,kl->il", ((2, 50), (50, 50), (50, 50)), [5000, 5000]),  # from the left
    ("ij,jk,kl->il", ((50, 50), (50, 50), (50, 2)), [5000, 5000]),  # from the right
    ("i,ij,j->", ((30,), (30, 30), (30,)), [900, 30]),
    ("ab,cd->", ((30, 30), (40, 40)), [1]),                         # what nothing else has is summed first
    ("ij,jk,kl,lm->im", ((10, 1), (1, 20), (20, 1), (1, 30)), [300, 20, 10]),
    (",".join("abcdefghijklmn"[i : i + 2] for i in range(12)) + "->am", ((2, 9),) + ((9, 9),) * 11, [162] * 11)])
def test_the_order_is_a_good_one(k, expression, shapes, most):
    got, text = products(k, expression, *shapes)
    assert len(got) == len(most) and all(g <= m for g, m in zip(got, most)), (got, text)
