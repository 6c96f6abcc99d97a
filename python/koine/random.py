"""Random arrays: Threefry, the same bits on every device. `koine.random.seed(0)`; they go on from there."""
from ._api import manual_seed as seed  # noqa: F401
from ._functions import GENERATED as _G

for _name in ("rand", "randn", "uniform", "normal", "randint", "bernoulli", "dropout", "permutation", "randperm", "categorical", "multinomial",
              "truncated_normal", "exponential", "gamma", "beta", "threefry", "rand_as", "randn_as"):
    if _name in _G:
        globals()[_name] = _G[_name]
