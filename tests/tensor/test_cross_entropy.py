"""Cross entropy, and logsumexp, of rows that are gone through once (2_rangeify/prepare.kr), against numpy in f64: where one sum does, where it is beyond
what a float holds, where a row or its label's value is infinite or none, on rows of whole vectors and of others."""
import koine
import numpy as np
import pytest
from conftest import Case
from data import values

EACH = 2
CASES = []


def reference(x, labels):
    """log sum e^(x - t), t the label's; 0 of a label that is none."""
    n, c = x.shape
    t = x[np.arange(n), np.clip(labels, 0, c - 1)][:, None]
    with np.errstate(all="ignore"):
        z = x.astype(np.float64) - t
        most = z.max(1, keepdims=True)
        each = (np.where(np.isfinite(most), most, 0) + np.log(np.exp(z - np.where(np.isfinite(most), most, 0)).sum(1, keepdims=True)))[:, 0]
    each = np.where(np.isinf(t[:, 0]) & (t[:, 0] < 0), np.inf, each)  # of minus infinity, which no other is less than
    each = np.where(np.isnan(x).any(1) | (x == np.inf).any(1) | (x == -np.inf).all(1), np.nan, each)
    return np.where((labels >= 0) & (labels < c), each, 0)


def case(name, x, labels, **more):
    for of, f in (("", lambda k: koine.call("cross_entropy_as", k.array(x), k.array(labels), None, koine.END, 0.0, EACH)),
                  ("-sum", lambda k: koine.call("cross_entropy_as", k.array(x), k.array(labels), None, koine.END, 0.0, 1))):
        want = reference(x, labels)
        CASES.append(Case(name + of, f, (lambda want=want: want) if not of else (lambda want=want: want.sum()), **{"tol": 2e-6, "atol": 1e-6, **more}))


for n, c in ((5, 256), (3, 300), (4, 263), (2, 1000), (1, 2056), (9, 255)):
    labels = values(f"ce{n}{c}", (n,), np.int32, 0, c - 1)
    x = values(f"cex{n}{c}", (n, c), np.float32, -2, 2)
    for by in (1, 10, 44, 60, 200):  # 44: differences of up to 176, of which a sum is none that a float holds
        case(f"{n}x{c}-by-{by}", x * np.float32(by), labels)
    sure = x.copy()
    sure[np.arange(n), labels] = 30
    case(f"{n}x{c}-sure", sure, labels, atol=2e-7)
    wrong = x.copy()
    wrong[:, 7] = 70.0  # the sum is finite, and large
    case(f"{n}x{c}-wrong", wrong, labels)
    far = x.copy()
    far[::2, c - 1] = 90.5  # each other row is gone through again
    case(f"{n}x{c}-far", far, labels)
    case(f"{n}x{c}-none", far, np.where(np.arange(n) % 2, labels, np.where(labels % 2, -1, c)).astype(np.int32))

x, labels = values("ceodd", (8, 300), np.float32, -2, 2), np.array([0, 299, 5, 6, 7, 8, 9, 10], np.int32)
x[0, 3], x[1, 299], x[2, 17], x[3, 6] = np.nan, np.nan, np.inf, np.inf
x[4, ::3], x[5, 8], x[6], x[7, :] = -np.inf, -np.inf, -np.inf, 3e38
case("odd", x, labels)
masked = np.full((3, 300), -np.inf, np.float32)
masked[np.arange(3), [1, 2, 3]] = [0, -500, 1e30]
case("one-left", masked, np.array([1, 2, 3], np.int32))




def total(x):
    """log sum e^x"""
    with np.errstate(all="ignore"):
        most = x.max(1, keepdims=True).astype(np.float64)
        most[np.isinf(most)] = 0
        return (np.log(np.exp(x - most).sum(1, keepdims=True)) + most)[:, 0]


for n, c in ((9, 256), (8, 300), (3, 1000)):
    x = values(f"lse{n}{c}", (n, c), np.float32, -2, 2)
    probable = (x - total(x)[:, None]).astype(np.float32)
    odd = x.copy()
    odd[0, 3], odd[1, ::2], odd[2] = np.nan, -np.inf, -np.inf
    more = odd.copy()
    more[1, 7], more[0, 3] = np.inf, 3e38
    mixed = x.copy()
    mixed[::2, 5] = 88.5
    for key, v in (("small", x), ("far", x * 44), ("farther", x * 200), ("below", x - 43.0), ("far-below", x - 200.0), ("above", x + 86.0),
                   ("log-p", probable), ("odd", odd), ("more", more), ("mixed", mixed)):
        v = v.astype(np.float32)
        CASES.append(Case(f"logsumexp-{n}x{c}-{key}", lambda k, v=v: koine.call("logsumexp_over", k.array(v), [1], 0), lambda v=v: total(v), tol=2e-6, atol=1e-6))


# A row's values may be made of other rows' sums, of which none is left out where its own row needs it no more.
w = np.zeros((300, 300), np.float32)
w[0, 1], w[0, 2], w[1, 0] = 100, -100, 5
CASES.append(Case("logsumexp-of-sums", lambda k: (lambda t: koine.call("logsumexp_over", t + koine.call("sum_over", t, [1], 0).reshape((1, 300)), [1], 0))(k.array(w)),
                  lambda: total(w + w.sum(1)[None]), tol=2e-6, atol=1e-6))
for shape, axes in (((3, 300, 2), 1), ((300, 9), 0)):
    v = values(f"lse{shape}", shape, np.float32, -2, 2) * np.float32(40)
    CASES.append(Case(f"logsumexp-axis-{axes}", lambda k, v=v, a=axes: koine.call("logsumexp_over", k.array(v), [a], 0),
                      lambda v=v, a=axes: total(np.moveaxis(v, a, -1).reshape(-1, 300)).reshape(np.delete(v.shape, a)), tol=2e-6, atol=1e-6))
for t in ("f16", "bf16"):
    v = np.round(values(f"ce{t}", (9, 300), np.float32, -2, 2) * 8) / 2  # few bits
    y = values(f"cel{t}", (9,), np.int32, 0, 299)
    CASES.append(Case(f"{t}", lambda k, v=v, y=y, t=t: koine.call("cross_entropy", k.array(v.astype(np.float32)).cast(t), k.array(y)).cast("f32"), lambda v=v, y=y: reference(v, y).mean(),
                      tol=1e-3 if t == "f16" else 8e-3, atol=0))


def test_case(case, device, check):
    check(case, device)


TEXT = """koine 1 tensor
%x = param "x" : f32 [{1}, {0}]
%t = param "t" : f32 [{1}, 1]
%m = reduce max %x axes=(1)
%b = expand %m ({1}, {0})
%d = sub %x %b
%e = exp %d
%s = reduce add %e axes=(1)
%l = log %s
%tm = sub %t %m
%y = sub %tm %l
out "y" = %y
"""


def test_one_pass(koine_session):
    """Of long rows alone, of none whose largest, or whose sum, is needed beside, as a gradient does, and of none so few that their sums go in parts."""
    cases = [(256, 6, "", True), (255, 6, "", False), (20000, 8, "", True), (20000, 7, "", False), (9000, 7, "", True)]
    for c, rows, also, once in cases + [(300, 6, x, False) for x in "slmed"]:
        text = TEXT.format(c, rows) + (f'out "{also}" = %{also}\n' if also else "")
        out = koine_session("compile", "-", "--to", "rangeify", stdin=text).stdout
        assert ("bitcast" in out) == once, out
    down = TEXT.format(300, 6).replace('%x = param "x" : f32 [6, 300]', '%z = param "x" : f32 [300, 6]\n%x = permute %z order=(1, 0)')
    assert "bitcast" not in koine_session("compile", "-", "--to", "rangeify", stdin=down).stdout


@pytest.mark.parametrize("shape, axis, once", [((8, 300), 1, True), ((2, 300, 4), 1, False), ((300, 8), 0, False)])
def test_the_functions_do(tmp_path, shape, axis, once):
    """kn_cross_entropy and kn_logsumexp_over are written as the rules know them, and rows alone, which lie along memory, are gone through once."""
    for rule, f in (("once.total", lambda x: x.logsumexp_over((axis,), 0)), ("once.own", lambda x: x.cross_entropy(y))):
        if rule == "once.own" and axis == 0:
            continue
        k, path = koine.Context("NULL"), tmp_path / rule
        koine.load().kn_set(k.h, b"KN_TRACE", str(path).encode())
        x, y = k.array(np.zeros(shape, np.float32)), k.array(np.zeros(shape[:1] + shape[2:], np.int32))
        k.realize(f(x))
        assert (rule in path.read_text()) == once
        k.close()
