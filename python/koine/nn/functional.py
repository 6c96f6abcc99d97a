"""The functions networks are made of: koine's, also by PyTorch's names where those differ."""
from .._functions import FUNCTIONS, GENERATED as G

SECTIONS = ("networks", "elementwise", "products")
PYTORCH = {"binary_cross_entropy": "bce_loss", "binary_cross_entropy_with_logits": "bce_with_logits", "scaled_dot_product_attention": "attention",
           "hardsigmoid": "hardsigmoid", "swish": "silu", "embedding": "embedding", "one_hot": "one_hot", "dropout": "dropout", "pad": "pad"}
globals().update({n: f for n, f in G.items() if FUNCTIONS["kn_" + n].section in SECTIONS})
globals().update({n: G[c] for n, c in PYTORCH.items() if c in G})
