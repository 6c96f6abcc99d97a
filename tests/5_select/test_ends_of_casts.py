"""Integers to floats and back, at the ends of what they hold: 2^31 - 1 is 2^31 as an f32, which no i32 is. What bounds say of such a cast must be what
it gives, or the comparison that saturates is left out."""
import numpy as np
import pytest

INTS, FLOATS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"), {"f32": np.float32, "f64": np.float64, "f16": np.float16}
NUMPY = {i: np.dtype({"i": "int", "u": "uint"}[i[0]] + i[1:]) for i in INTS}


def near(lo, hi):
    """Both ends, what is next to them, and what rounds up or down."""
    steps = [0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025]
    return sorted({v for s in steps for v in (lo + s, hi - s, (lo + hi) // 2 + s) if lo <= v <= hi})


@pytest.mark.runs()
@pytest.mark.parametrize("level", ["sse2", "avx2", "avx512", "dot"])
@pytest.mark.parametrize("float_", FLOATS)
def test_casts_saturate_where_rounding_leaves_the_integers(koine, tmp_path, float_, level):
    names, text, given, want = [], ["koine 1 tensor"], [], {}
    for i in INTS:
        info = np.iinfo(NUMPY[i])
        x = np.array(near(info.min, info.max), NUMPY[i])
        with np.errstate(over="ignore"):
            f = x.astype(FLOATS[float_])
        back = [info.max if v >= info.max else info.min if v <= info.min else int(v) for v in f.tolist()]
        top = min(2.0 ** (NUMPY[i].itemsize * 8 - (i[0] == "i")), float(np.finfo(FLOATS[float_]).max))
        text += [f'%{i} = param "{i}" : {i} [{len(x)}]', f"%f{i} = cast %{i} : {float_} [{len(x)}]", f"%b{i} = cast %f{i} : {i} [{len(x)}]", f"%c{i} = ge %f{i} {top!r} : bool [{len(x)}]"]
        text += [f'out "b{i}" = %b{i}', f'out "c{i}" = %c{i}']
        np.save(tmp_path / f"{i}.npy", x)
        given += ["--in", f"{i}={tmp_path}/{i}.npy", "--out", f"b{i}={tmp_path}/b{i}.npy", "--out", f"c{i}={tmp_path}/c{i}.npy"]
        want[f"b{i}"], want[f"c{i}"] = np.array(back, NUMPY[i]), f >= FLOATS[float_](top)
        names += [f"b{i}", f"c{i}"]
    (tmp_path / "p.kn").write_text("\n".join([a for a in text if not a.startswith("out")] + [a for a in text if a.startswith("out")]) + "\n")
    for code in ("x86", "c") if level == "avx2" else ("x86",):
        koine("run", tmp_path / "p.kn", *given, env={"KN_CPU": level, "KN_CODE": code})
        for n in names:
            np.testing.assert_array_equal(np.load(tmp_path / f"{n}.npy"), want[n], err_msg=f"{n} {code}")
