"""The functions networks are made of: koine's, also by PyTorch's names where those differ, in PyTorch's order of arguments there."""
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


_all |= {f.__name__: f for f in (unfold, fold, pad, conv_transpose, gelu, hardtanh, softplus)} | dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), conv_transpose)
__all__ = sorted(_all)
