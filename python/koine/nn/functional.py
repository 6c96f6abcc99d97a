"""The functions networks are made of: koine's, also by PyTorch's names where those differ."""
from .. import _api
from .._functions import FUNCTIONS as _FUNCTIONS, GENERATED as G

SECTIONS = ("networks", "elementwise", "products")
PYTORCH = {"binary_cross_entropy": "bce_loss", "binary_cross_entropy_with_logits": "bce_with_logits", "scaled_dot_product_attention": "attention",
           "swish": "silu", "embedding": "embedding", "one_hot": "one_hot", "dropout": "dropout", "pad": "pad"}
_all = {n: getattr(_api, n, f) for n, f in G.items() if _FUNCTIONS["kn_" + n].section in SECTIONS} | {n: G[c] for n, c in PYTORCH.items()}
globals().update(_all)
__all__ = sorted(_all)
