"""Fourier transforms against numpy, (real, imaginary) as the last axis."""
import koine
import numpy as np
from conftest import Case
from data import values

CASES = []
W = np.float64


def pairs(z):
    return np.stack([z.real, z.imag], -1)


def of_pairs(x):
    return x[..., 0].astype(W) + 1j * x[..., 1]


def add(key, build, ref, n=1, d=np.float32, **more):
    tol = (2e-6 if d == np.float32 else 1e-13) * max(1.0, n**0.5) * 3
    CASES.append(Case(key, build, ref, **{"tol": tol, "atol": tol, **more}))


# small, even, odd, prime, prime powers, of large factors, a large prime through a convolution
for i, n in enumerate((1, 2, 3, 4, 5, 8, 12, 15, 16, 31, 49, 64, 67, 96, 100, 128, 210, 243, 521, 1000, 1024, 4096, 67 * 71)):
    d = (np.float32, W)[i % 2]
    x, r = values(f"fft{n}", (n, 2), d), values(f"rfft{n}", (n,), d)
    add(f"fft-{n}", lambda k, x=x: k.array(x).fft((0,)), lambda x=x: pairs(np.fft.fft(of_pairs(x))), n, d)
    add(f"ifft-{n}", lambda k, x=x: k.array(x).ifft((-1,)), lambda x=x: pairs(np.fft.ifft(of_pairs(x))), n, d)
    add(f"rfft-{n}", lambda k, r=r: k.array(r).rfft(0), lambda r=r: pairs(np.fft.rfft(r)), n, d)
    h = values(f"irfft{n}", (n // 2 + 1, 2), d)
    add(f"irfft-{n}", lambda k, h=h, n=n: k.array(h).irfft(n, 0), lambda h=h, n=n: np.fft.irfft(of_pairs(h), n), n, d)
    if n < 300:
        add(f"hfft-{n}", lambda k, h=h, n=n: k.array(h).hfft(n, 0), lambda h=h, n=n: np.fft.hfft(of_pairs(h), n), n, d, atol=(2e-6 if d == np.float32 else 1e-13) * 3 * n)
        add(f"ihfft-{n}", lambda k, r=r: k.array(r).ihfft(0), lambda r=r: pairs(np.fft.ihfft(r)), n, d)
for i, (s, axes) in enumerate((((3, 4), (0,)), ((3, 4), (0, 1)), ((2, 5, 6), (1, -1)), ((2, 3, 4), (0, 1, 2)), ((2, 0, 4), (2,)), ((2, 3), ()))):
    x = values(f"fftn{i}", s + (2,))
    add(f"fft-axes-{i}", lambda k, x=x, axes=axes: k.array(x).fft(axes), lambda x=x, axes=axes: pairs(np.fft.fftn(of_pairs(x), axes=axes) if axes else of_pairs(x)), x.size)
    add(f"ifft-axes-{i}", lambda k, x=x, axes=axes: k.array(x).ifft(axes), lambda x=x, axes=axes: pairs(np.fft.ifftn(of_pairs(x), axes=axes) if axes else of_pairs(x)), x.size)
    add(f"fftshift-{i}", lambda k, x=x, axes=axes: k.array(x).fftshift(axes), lambda x=x, axes=axes: np.fft.fftshift(x, axes))
    add(f"ifftshift-{i}", lambda k, x=x, axes=axes: k.array(x).ifftshift(axes), lambda x=x, axes=axes: np.fft.ifftshift(x, axes))
x = values("rfft-axis", (3, 8, 2))
add("rfft-axis", lambda k: k.array(x).rfft(1), lambda: pairs(np.fft.rfft(x.astype(W), axis=1)), 8)
add("irfft-longer", lambda k: k.array(x).irfft(20, 1), lambda: np.fft.irfft(of_pairs(x), 20, 1), 20)
add("irfft-shorter", lambda k: k.array(x).irfft(5, 1), lambda: np.fft.irfft(of_pairs(x), 5, 1), 5)
add("hfft-longer", lambda k: k.array(x).hfft(20, 1), lambda: np.fft.hfft(of_pairs(x), 20, 1), 20)
add("hfft-shorter", lambda k: k.array(x).hfft(5, -1), lambda: np.fft.hfft(of_pairs(x), 5, 1), 5)
add("ihfft-axis", lambda k: k.array(x).ihfft(1), lambda: pairs(np.fft.ihfft(x.astype(W), axis=1)), 8)
add("hfft-f16", lambda k: k.array(x).cast("f16").hfft(6, 1), lambda: np.fft.hfft(of_pairs(x), 6, 1), dtype="f16", tol=2e-3, atol=2e-2)
add("ihfft-f16", lambda k: k.array(x).cast("f16").ihfft(0), lambda: pairs(np.fft.ihfft(x.astype(W), axis=0)), dtype="f16", tol=2e-3, atol=2e-3)
add("fft-integers", lambda k: k.array(np.arange(6).reshape(3, 2)).fft((0,)), lambda: pairs(np.fft.fft(of_pairs(np.arange(6).reshape(3, 2)))), 3, dtype="f32")
for n in (1, 2, 5, 8):
    add(f"fftfreq-{n}", lambda k, n=n: k.fftfreq(n, 0.5, "f64"), lambda n=n: np.fft.fftfreq(n, 0.5), 1, W)
    add(f"rfftfreq-{n}", lambda k, n=n: k.rfftfreq(n, 0.5, "f64"), lambda n=n: np.fft.rfftfreq(n, 0.5), 1, W)


def test_case(case, device, check):
    check(case, device)
