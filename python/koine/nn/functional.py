"""The functions networks are made of: koine's, also by PyTorch's names where those differ, in PyTorch's order of arguments there."""
import functools
import inspect

from .. import _api
from .._context import ArgumentError
from .._functions import FUNCTIONS as _FUNCTIONS, GENERATED as G, int_list as _int_list

SECTIONS = ("networks", "elementwise", "products")
PYTORCH = {"binary_cross_entropy": "bce_loss", "binary_cross_entropy_with_logits": "bce_with_logits", "scaled_dot_product_attention": "attention",
           "swish": "silu", "embedding": "embedding", "one_hot": "one_hot", "dropout": "dropout", "rrelu": "rrelu", "gumbel_softmax": "gumbel_softmax", "upsample": "interpolate"}
PYTORCH |= {f"{name}{n}d": name for n in (1, 2, 3) for name in ("conv", "max_pool", "avg_pool", "lp_pool", "adaptive_avg_pool", "adaptive_max_pool")}
_all = {n: getattr(_api, n, f) for n, f in G.items() if _FUNCTIONS["kn_" + n].section in SECTIONS} | {n: G[c] for n, c in PYTORCH.items()}
globals().update(_all)


def unfold(x, size, dilation=1, padding=0, stride=1):
    """Windows of x (N, C, ...) as columns: (N, C * the product of size, places). koine.im2col; koine.unfold is that of one axis."""
    return G["im2col"](x, size, stride, padding, dilation)


def fold(columns, image, size, dilation=1, padding=0, stride=1):
    """Columns back to images of the given spatial size, what overlaps added up: koine.col2im."""
    return G["col2im"](columns, image, size, stride, padding, dilation)


def pad(x, pads, mode="constant", value=0.0):
    """x with a border of (before, after) on its last axis, its last but one, ...: koine.pad and koine.pad_mode take pairs for all axes, from the first."""
    x, given = _api.asarray(x), _int_list(pads, "pad: pads of the last axes")
    pads = given.v[: given.n]
    if len(pads) % 2 or len(pads) > 2 * x.ndim:
        raise ArgumentError(f"pad: pairs for the last axes expected, {2 * x.ndim} numbers at most, not {len(pads)}")
    pairs = [pads[i : i + 2] for i in range(0, len(pads), 2)]
    return G["pad_mode"](x, [n for p in [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1] for n in p], mode, value)


def conv_transpose(x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """What the input of a convolution gets back for x: koine.conv_transpose."""
    return G["conv_transpose"](x, weight, bias, stride, padding, output_padding, dilation, groups)


conv_transpose1d = conv_transpose2d = conv_transpose3d = conv_transpose


def gelu(x, approximate="none"):
    """x times the normal distribution's function of x; approximate "tanh": nearly, by tanh."""
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate is 'none' or 'tanh', not {approximate!r}")
    return G["gelu" if approximate == "none" else "gelu_tanh"](x)


def hardtanh(x, least=-1.0, most=1.0):
    """x between the two."""
    return G["clamp"](x, least, most)


def softplus(x, beta=1.0):
    """log(1 + e^(beta x)) / beta."""
    return G["softplus"](x) if beta == 1 else G["softplus"](_api.asarray(x) * beta) / beta


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Mean 0 and variance 1 over the last axes, of this shape (or so many: an integer), times weight, plus bias: koine.layer_norm."""
    x, axes = _api.asarray(x), normalized_shape
    if isinstance(axes, (tuple, list)):
        if not axes or x.shape[-len(axes) :] != tuple(axes):
            raise ArgumentError(f"layer_norm: the last axes of {x.shape} are not of {tuple(axes)}")
        axes = len(axes)
    return G["layer_norm"](x, axes, weight, bias, eps)


def interpolate(x, size=None, scale_factor=None, mode="nearest", align_corners=False):
    """x (N, C, ...) with other numbers of places along its last axes: size, or scale_factor times as many; koine.interpolate says how.
    "bilinear", "trilinear" are "linear", "bicubic" is "cubic"."""
    x = _api.asarray(x)
    spatial = x.shape[2:]
    if (size is None) == (scale_factor is None):
        raise ArgumentError("interpolate: one of size and scale_factor expected")
    if size is None:
        factors = [scale_factor] * len(spatial) if isinstance(scale_factor, (int, float)) else list(scale_factor)
        if len(factors) != len(spatial):
            raise ArgumentError(f"interpolate: {len(factors)} factors for {len(spatial)} axes")
        size = [int(n * f) for n, f in zip(spatial, factors)]
    elif isinstance(size, int):
        size = [size] * len(spatial)
    mode = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic", "nearest-exact": "nearest_exact"}.get(mode, mode)
    return G["interpolate"](x, size, mode, align_corners)


upsample = interpolate
_all |= {f.__name__: f for f in (unfold, fold, pad, conv_transpose, gelu, hardtanh, softplus, layer_norm, interpolate)} | dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), conv_transpose) | {"upsample": interpolate}

# What PyTorch calls parameters that are koine's by another name; and their values.
PARAMETERS = {"input": "x", "dim": "axis", "keepdim": "keepdims", "reduction": "how", "ignore_index": "ignore", "label_smoothing": "smoothing", "pos_weight": "positive",
              "kernel_size": "size", "ceil_mode": "ceil", "count_include_pad": "count_padding", "num_classes": "classes", "attn_mask": "mask", "is_causal": "causal", "num_groups": "groups"}
VALUES = {"none": "each", "batchmean": "batch"}


def _by_pytorchs_parameters(f):
    own = inspect.signature(f).parameters
    names = {torch: name for torch, name in PARAMETERS.items() if name in own and torch not in own}

    @functools.wraps(f)
    def function(*args, **named):
        for torch in names.keys() & named.keys():
            v = named.pop(torch)
            named[names[torch]] = VALUES.get(v, v) if torch == "reduction" and isinstance(v, str) else v
        return f(*args, **named)

    return function if names else f


_all = {name: _by_pytorchs_parameters(f) for name, f in _all.items()}
globals().update(_all)
__all__ = sorted(_all)
