"""The digits koine draws: repeatable, balanced, and of the difficulty that the main job promises."""
import ctypes

import pytest

np = pytest.importorskip("numpy")


class Images(ctypes.Structure):
    _fields_ = [("n", ctypes.c_int64), ("channels", ctypes.c_int64), ("height", ctypes.c_int64), ("width", ctypes.c_int64),
                ("classes", ctypes.c_int), ("x", ctypes.POINTER(ctypes.c_float)), ("y", ctypes.POINTER(ctypes.c_int32))]


@pytest.fixture(scope="module")
def draw(libkoine):
    lib = ctypes.CDLL(str(libkoine))
    lib.kn_open.restype = ctypes.c_void_p
    lib.kn_close.argtypes = [ctypes.c_void_p]
    lib.kn_images_digits.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.POINTER(Images)]
    lib.kn_images_free.argtypes = [ctypes.POINTER(Images)]
    k = lib.kn_open(b"INTERP")

    def images(seed, n):
        im = Images()
        assert lib.kn_images_digits(k, seed, n, im) == 0
        x = np.ctypeslib.as_array(im.x, (n, 784)).copy()
        y = np.ctypeslib.as_array(im.y, (n,)).copy()
        lib.kn_images_free(im)
        return x, y

    yield images
    lib.kn_close(k)


def test_an_image_depends_on_its_seed_and_number_alone(draw):
    x, y = draw(5, 300)
    again, labels = draw(5, 40)
    assert np.array_equal(x[:40], again) and np.array_equal(y[:40], labels)
    other, _ = draw(6, 40)
    assert not np.array_equal(again, other)


def test_ink_is_between_0_and_1_and_labels_are_balanced(draw):
    x, y = draw(1, 4000)
    assert x.min() >= 0 and x.max() <= 1 and np.isfinite(x).all()
    assert np.bincount(y, minlength=10).min() > 300
    assert x.reshape(-1, 28, 28)[:, 8:20, 8:20].mean() > 2 * x.reshape(-1, 28, 28)[:, :3].mean()


def test_a_linear_classifier_stays_under_90_percent(draw, sanitized):
    if sanitized:
        pytest.skip("says nothing new under a sanitizer")
    linear = pytest.importorskip("sklearn.linear_model")
    x, y = draw(1, 20000)
    xt, yt = draw(2, 3000)
    score = linear.LogisticRegression(max_iter=40, C=0.1)
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        score = score.fit(x, y).score(xt, yt)
    assert 0.6 < score < 0.90, score
