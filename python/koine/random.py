"""Random arrays: Threefry, the same bits on every device.

Without a key they are drawn from the context's stream: `koine.random.seed(0)`, and each call draws what is next. With one they are a function of it:

    key, sub = koine.random.split(koine.random.key(0), 2)
    x = koine.random.normal((3, 4), key=sub)        # the same whenever it is called; bits and uniform numbers are JAX's

Use a key once: draw from it, or split it, or fold into it (`fold_in(key, step)`).
"""
from ._api import manual_seed as seed  # noqa: F401
from ._functions import GENERATED as _G

for _name in ("rand", "randn", "rand_as", "randn_as", "uniform", "normal", "randint", "bernoulli", "dropout", "exponential", "laplace", "gumbel", "logistic",
              "cauchy", "truncated_normal", "permutation", "shuffle", "categorical", "multinomial", "gamma", "chi_square", "student_t", "beta", "dirichlet", "poisson",
              "binomial", "key", "threefry"):
    globals()[_name] = _G[_name]
for _name, _of in {"split": "key_split", "fold_in": "key_fold", "bits": "random_bits"}.items():
    globals()[_name] = _G[_of]
