"""A program of one array x and one result y, run as machine code of a level."""
import numpy as np


def text(lines, shape):
    return "\n".join(["koine 1 tensor", f'%x = param "x" : f32 {list(shape)}', *lines, 'out "y" = %y', ""])


def run(koine, tmp_path, lines, x, level, threads=1):
    p = tmp_path / "p.kn"
    p.write_text(text(lines, x.shape))
    np.save(tmp_path / "x.npy", x)
    koine("run", p, "--in", f"x={tmp_path}/x.npy", "--out", f"y={tmp_path}/y.npy",
          env={"KN_CODE": "x86", "KN_CPU": level, "KN_CACHE": "off", "KN_THREADS": str(threads)})
    return np.load(tmp_path / "y.npy")
