"""Views against numpy: nothing is computed, so every answer is exact."""
import koine
import numpy as np
from conftest import Case
from data import values

CASES = []


def add(fn, label, shape, build, ref, dtype=np.float32):
    key = f"{fn}-{label}"
    a = values(key, shape, dtype)
    CASES.append(Case(key, lambda k: build(k.array(a)), lambda: ref(a)))


def each(fn, rows):
    """rows: (shape, koine's arguments, numpy's function)"""
    for i, (shape, args, ref) in enumerate(rows):
        add(fn, str(i), shape, lambda t, args=args: koine.call(fn, t, *args), ref, np.int32 if i % 3 == 2 else np.float32)


each("reshape", [((2, 3, 4), ((6, 4),), lambda a: a.reshape(6, 4)), ((24,), ((-1, 3),), lambda a: a.reshape(-1, 3)),
                 ((1, 1), ((),), lambda a: a.reshape(())), ((0, 3), ((3, 0, 5),), lambda a: a.reshape(3, 0, 5)),
                 ((4, 6), ((2, 2, -1, 2),), lambda a: a.reshape(2, 2, -1, 2))])
each("permute", [((2, 3, 4), ((2, 0, 1),), lambda a: a.transpose(2, 0, 1)), ((2, 3), ((-1, 0),), lambda a: a.T),
                 ((5,), ((0,),), lambda a: a), ((2, 1, 3, 4), ((3, 1, 0, 2),), lambda a: a.transpose(3, 1, 0, 2)), ((), ((),), lambda a: a)])
each("transpose", [((2, 3), (0, 1), lambda a: a.T), ((2, 3, 4), (-1, 0), lambda a: a.swapaxes(-1, 0)), ((0, 3), (0, 1), lambda a: a.T),
                   ((300, 200), (0, 1), lambda a: a.T)])
each("mT", [((2, 3), (), lambda a: a.T), ((4, 2, 3), (), lambda a: a.swapaxes(1, 2)), ((1, 1), (), lambda a: a), ((0, 5), (), lambda a: a.T)])
each("moveaxis", [((2, 3, 4), (0, 2), lambda a: np.moveaxis(a, 0, 2)), ((2, 3, 4), (-1, 0), lambda a: np.moveaxis(a, -1, 0)),
                  ((2, 3, 4, 5), (2, 1), lambda a: np.moveaxis(a, 2, 1)), ((7,), (0, 0), lambda a: a)])
each("expand", [((1, 3), ((4, 3),), lambda a: np.broadcast_to(a, (4, 3))), ((3,), ((2, 5, 3),), lambda a: np.broadcast_to(a, (2, 5, 3))),
                ((2, 1), ((-1, 6),), lambda a: np.broadcast_to(a, (2, 6))), ((), ((3, 0),), lambda a: np.broadcast_to(a, (3, 0))),
                ((1, 1), ((200, 300),), lambda a: np.broadcast_to(a, (200, 300)))])
each("pad", [((2, 3), ((1, 0, 2, 3), 0.0), lambda a: np.pad(a, ((1, 0), (2, 3)))), ((3,), ((2, 2), 5.0), lambda a: np.pad(a, 2, constant_values=5)),
             ((0, 2), ((1, 1, 0, 0), -1.0), lambda a: np.pad(a, ((1, 1), (0, 0)), constant_values=-1)),
             ((2, 2), ((0, 0, 0, 0), 9.0), lambda a: a), ((4,), ((0, 1), float("-inf")), lambda a: np.pad(a, (0, 1), constant_values=-np.inf))])
each("shrink", [((4, 5), ((1, 2), (2, 3)), lambda a: a[1:3, 2:5]), ((6,), ((0,), (6,)), lambda a: a), ((6,), ((3,), (0,)), lambda a: a[3:3]),
                ((3, 4, 5), ((0, 1, 4), (3, 2, 1)), lambda a: a[:, 1:3, 4:5])])
each("flip", [((2, 3), ((0,),), lambda a: np.flip(a, 0)), ((2, 3, 4), ((0, -1),), lambda a: np.flip(a, (0, 2))), ((5,), ((),), lambda a: a),
              ((0, 4), ((1,),), lambda a: a)])
SLICES = [(9, 2, 7, 1), (9, 0, None, 2), (9, -3, None, 1), (9, 1, -1, 3), (9, 8, 0, -3), (9, None, None, -1), (9, -1, -6, -2), (9, 5, 2, 1),
          (9, -100, 100, 4), (1, 0, None, 5), (0, 0, None, 2), (10, 9, None, -9), (7, 6, 0, -1), (100, 3, 90, 7)]
for n, start, stop, step in SLICES:
    s = (start if start is not None else (n - 1 if step < 0 else 0)), (koine.END if stop is None else stop), step
    add("slice", f"{n}[{start}:{stop}:{step}]", (2, n, 3), lambda t, s=s: t.slice(1, *s), lambda a, r=slice(start, stop, step): a[:, r])
each("select", [((3, 4), (0, 1), lambda a: a[1]), ((3, 4), (1, -1), lambda a: a[:, -1]), ((5,), (0, 4), lambda a: a[4]), ((2, 3, 0), (1, 2), lambda a: a[:, 2])])
each("tile", [((3,), ((2,),), lambda a: np.tile(a, 2)), ((2, 3), ((2, 1, 3),), lambda a: np.tile(a, (2, 1, 3))), ((2, 3), ((2,),), lambda a: np.tile(a, 2)),
              ((2,), ((0,),), lambda a: np.tile(a, 0))])
each("repeat", [((3,), (2, 0), lambda a: np.repeat(a, 2, 0)), ((2, 3), (3, -1), lambda a: np.repeat(a, 3, -1)), ((2, 3), (1, 0), lambda a: a),
                ((2, 3), (0, 0), lambda a: np.repeat(a, 0, 0))])
each("squeeze", [((1, 3), (0,), lambda a: a[0]), ((2, 1), (-1,), lambda a: a[:, 0]), ((2, 3), (1,), lambda a: a), ((1,), (0,), lambda a: a[0])])
each("squeeze_all", [((1, 3, 1), (), np.squeeze), ((2, 3), (), np.squeeze), ((1, 1), (), np.squeeze), ((1, 0, 1), (), np.squeeze)])
each("unsqueeze", [((3,), (0,), lambda a: a[None]), ((3,), (-1,), lambda a: a[:, None]), ((2, 3), (1,), lambda a: a[:, None]), ((), (0,), lambda a: a[None])])
each("flatten", [((2, 3, 4), (0, -1), lambda a: a.reshape(-1)), ((2, 3, 4), (1, 2), lambda a: a.reshape(2, 12)), ((), (0, -1), lambda a: a.reshape(1)),
                 ((2, 3), (0, 0), lambda a: a)])
each("unflatten", [((6, 2), (0, (2, 3)), lambda a: a.reshape(2, 3, 2)), ((2, 12), (-1, (3, -1)), lambda a: a.reshape(2, 3, 4)), ((4,), (0, (4, 1)), lambda a: a[:, None]),
                   ((0, 3), (0, (0, 5)), lambda a: a.reshape(0, 5, 3))])
each("roll", [((5,), (2, 0), lambda a: np.roll(a, 2)), ((3, 4), (-1, 1), lambda a: np.roll(a, -1, 1)), ((5,), (12, 0), lambda a: np.roll(a, 12)), ((0,), (1, 0), lambda a: a)])
each("tril", [((4, 4), (0,), np.tril), ((2, 3, 5), (1,), lambda a: np.tril(a, 1)), ((5, 3), (-2,), lambda a: np.tril(a, -2)), ((2, 2), (-9,), lambda a: np.tril(a, -9))])
each("triu", [((4, 4), (0,), np.triu), ((2, 3, 5), (1,), lambda a: np.triu(a, 1)), ((5, 3), (-2,), lambda a: np.triu(a, -2)), ((2, 2), (9,), lambda a: np.triu(a, 9))])
each("diagonal", [((4, 4), (0,), np.diagonal), ((3, 5), (1,), lambda a: np.diagonal(a, 1)), ((2, 5, 3), (-2,), lambda a: np.diagonal(a, -2, 1, 2)),
                  ((3, 3), (2,), lambda a: np.diagonal(a, 2)), ((3, 3), (7,), lambda a: np.diagonal(a, 7))])
each("diag", [((3,), (), np.diag), ((1,), (), np.diag), ((7,), (), np.diag), ((40,), (), np.diag)])


each("broadcast_to", [((1, 3), ((4, 3),), lambda a: np.broadcast_to(a, (4, 3))), ((3,), ((2, 5, 3),), lambda a: np.broadcast_to(a, (2, 5, 3))),
                      ((), ((2, 0),), lambda a: np.broadcast_to(a, (2, 0))), ((2, 3), ((2, 3),), lambda a: a)])
each("atleast", [((), (2,), np.atleast_2d), ((3,), (2,), np.atleast_2d), ((2, 3), (1,), np.atleast_1d), ((3,), (4,), lambda a: a[None, None, None])])
each("flipud", [((3, 2), (), np.flipud), ((3,), (), np.flipud), ((0, 2), (), np.flipud), ((2, 3, 4), (), np.flipud)])
each("fliplr", [((3, 2), (), np.fliplr), ((1, 5), (), np.fliplr), ((2, 0), (), np.fliplr), ((2, 3, 4), (), np.fliplr)])
each("rot90", [((3, 4), (n, 0, 1), lambda a, n=n: np.rot90(a, n)) for n in (-5, -1, 0, 1, 2, 3, 4)] +
     [((2, 3, 4), (n, 2, 0), lambda a, n=n: np.rot90(a, n, (2, 0))) for n in (1, 2, 3)])
each("diff", [((5,), (1, 0), np.diff), ((3, 6), (2, -1), lambda a: np.diff(a, 2)), ((3, 6), (1, 0), lambda a: np.diff(a, axis=0)), ((4,), (0, 0), lambda a: a),
              ((2,), (3, 0), lambda a: np.diff(a, 3)), ((0, 2), (1, 0), lambda a: a), ((1,), (1, 0), np.diff)])
MODES = {"reflect": "reflect", "symmetric": "symmetric", "replicate": "edge", "circular": "wrap", "constant": "constant"}
for mode, numpys in MODES.items():
    for i, (shape, pads) in enumerate((((5,), (2, 3)), ((4, 5), (1, 0, 3, 4)), ((3, 4, 5), (0, 0, 2, 2, 1, 3)), ((4,), (0, 0)), ((4, 4), (3, 3, 3, 3)), ((70, 60), (5, 9, 0, 30)))):
        pairs = [(pads[2 * j], pads[2 * j + 1]) for j in range(len(shape))]
        more = {"constant_values": 2} if mode == "constant" else {}
        add("pad_mode", f"{mode}-{i}", shape, lambda t, mode=mode, pads=pads: t.pad_mode(pads, mode, 2.0), lambda a, pairs=pairs, numpys=numpys, more=more: np.pad(a, pairs, numpys, **more),
            (np.float32, np.int32, np.bool_)[i % 3])
add("pad_mode", "symmetric-whole", (3, 2), lambda t: t.pad_mode((3, 3, 2, 2), "symmetric", 0.0), lambda a: np.pad(a, ((3, 3), (2, 2)), "symmetric"))
add("pad_mode", "replicate-far", (2,), lambda t: t.pad_mode((7, 5), "replicate", 0.0), lambda a: np.pad(a, (7, 5), "edge"))
add("pad_mode", "nothing", (0, 3), lambda t: t.pad_mode((0, 0, 1, 1), "reflect", 0.0), lambda a: np.zeros((0, 5), np.float32))


def unfold(a, axis, size, step):
    return np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, size, axis), axis, axis)[(slice(None),) * axis + (slice(None, None, step),)]


each("unfold", [((7,), (0, 3, 1), lambda a: unfold(a, 0, 3, 1)), ((2, 9), (1, 4, 2), lambda a: unfold(a, 1, 4, 2)), ((5, 2), (0, 5, 3), lambda a: unfold(a, 0, 5, 3)),
                ((8,), (0, 1, 3), lambda a: unfold(a, 0, 1, 3)), ((6,), (0, 2, 5), lambda a: unfold(a, 0, 2, 5)), ((20,), (0, 3, 9), lambda a: unfold(a, 0, 3, 9))])

for label, shapes, axis in (("rows", ((2, 3), (1, 3), (4, 3)), 0), ("columns", ((2, 3), (2, 1)), -1), ("one", ((2, 2),), 0), ("empty", ((0, 2), (3, 2), (0, 2)), 0),
                            ("large", ((100, 200), (100, 300)), 1)):
    parts = [values(f"cat{label}{i}", s) for i, s in enumerate(shapes)]
    CASES.append(Case(f"cat-{label}", lambda k, parts=parts, axis=axis: koine.cat([k.array(p) for p in parts], axis),
                      lambda parts=parts, axis=axis: np.concatenate(parts, axis)))
for label, shape, n, axis in (("new", (3,), 2, 0), ("last", (2, 3), 3, -1), ("scalars", (), 4, 0), ("middle", (2, 2), 2, 1)):
    parts = [values(f"stack{label}{i}", shape) for i in range(n)]
    CASES.append(Case(f"stack-{label}", lambda k, parts=parts, axis=axis: koine.stack([k.array(p) for p in parts], axis),
                      lambda parts=parts, axis=axis: np.stack(parts, axis)))
for i, (sa, sb, axis) in enumerate((((2,), (3,), 0), ((2, 2), (2, 2), 1), ((0,), (2,), 0), ((1, 2, 3), (1, 2, 1), 2))):
    a, b = values(f"cat2a{i}", sa, np.float32), values(f"cat2b{i}", sb, np.float64 if i == 1 else np.float32)
    CASES.append(Case(f"cat2-{i}", lambda k, a=a, b=b, axis=axis: k.array(a).cat2(k.array(b), axis), lambda a=a, b=b, axis=axis: np.concatenate([a, b], axis)))
for n in (1, 2, 3, 5):
    for i in (0, n - 1):
        if n == 1 and i:
            continue
        a = values(f"chunk{n}", (3, 7))
        CASES.append(Case(f"chunk-{n}-{i}-", lambda k, a=a, n=n, i=i: koine.several("chunk", n, k.array(a), 1, n)[i], lambda a=a, n=n, i=i: np.array_split(a, n, 1)[i]))
        if n == 1:
            break
for i in range(4):
    a = values("split", (7, 2))
    CASES.append(Case(f"split-{i}", lambda k, a=a, i=i: koine.several("split", 4, k.array(a), 0, (1, 0, 4, 2))[i], lambda a=a, i=i: np.split(a, [1, 1, 5])[i]))
for i in range(3):
    a = values("unstack", (2, 3, 4))
    CASES.append(Case(f"unstack-{i}", lambda k, a=a, i=i: koine.several("unstack", 3, k.array(a), 1)[i], lambda a=a, i=i: a[:, i]))
CASES.append(Case("unstack-last", lambda k: koine.several("unstack", 4, k.array(a), -1)[3], lambda: a[..., 3]))
for i, (sizes, xy) in enumerate((((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 0), ((2, 3, 4), 1), ((5,), 1), ((2, 0), 0))):
    parts = [values(f"mesh{i}{j}", (n,)) for j, n in enumerate(sizes)]
    for j in range(len(sizes)):
        CASES.append(Case(f"meshgrid-{i}-{j}", lambda k, parts=parts, xy=xy, j=j: koine.several("meshgrid", len(parts), [k.array(p) for p in parts], xy)[j],
                          lambda parts=parts, xy=xy, j=j: np.meshgrid(*parts, indexing="xy" if xy else "ij")[j]))
for i, shapes in enumerate((((3, 1), (1, 4)), ((), (2, 3)), ((2, 1, 3), (4, 1)), ((5,), (5,), (1,)))):
    parts = [values(f"bt{i}{j}", s) for j, s in enumerate(shapes)]
    CASES.append(Case(f"broadcast_tensors-{i}", lambda k, parts=parts: koine.several("broadcast_tensors", len(parts), [k.array(p) for p in parts])[0],
                      lambda parts=parts: np.broadcast_arrays(*parts)[0]))
# -0.0 keeps its sign through every assembly
z = np.array([-0.0, 0.0, -0.0], np.float32)
CASES.append(Case("cat-negative-zero", lambda k: (lambda t: koine.cat([t, t], 0).signbit())(k.array(z)), lambda: np.signbit(np.concatenate([z, z]))))
CASES.append(Case("take-negative-zero", lambda k: k.array(z).take(k.array(np.array([2, 1, 0], np.int32)), 0).signbit(), lambda: np.signbit(z[::-1])))


def test_case(case, device, check):
    check(case, device)
