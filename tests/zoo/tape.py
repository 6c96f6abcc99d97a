"""Reverse-mode differentiation on numpy arrays in f64: what the zoo's networks are checked against. An operation is its value
and, for each operand, the function that takes the result's gradient to the operand's."""
import numpy as np


class V:
    def __init__(self, value, *sources):
        self.value, self.sources, self.grad = np.asarray(value, np.float64), sources, None

    shape = property(lambda x: x.value.shape)

    def __add__(x, y):
        y = y if isinstance(y, V) else V(y)
        return V(x.value + y.value, (x, lambda g: fit(g, x.shape)), (y, lambda g: fit(g, y.shape)))

    def __mul__(x, y):
        y = y if isinstance(y, V) else V(y)
        return V(x.value * y.value, (x, lambda g: fit(g * y.value, x.shape)), (y, lambda g: fit(g * x.value, y.shape)))

    def __matmul__(x, y):
        return V(x.value @ y.value, (x, lambda g: fit(g @ y.mT.value, x.shape)), (y, lambda g: fit(x.mT.value @ g, y.shape)))

    def __sub__(x, y):
        return x + y * -1 if isinstance(y, V) else x + -y

    def __truediv__(x, y):
        return x * y.power(-1.0) if isinstance(y, V) else x * (1 / y)

    def power(x, p):
        return V(x.value**p, (x, lambda g: g * p * x.value ** (p - 1)))

    def exp(x):
        y = np.exp(x.value)
        return V(y, (x, lambda g: g * y))

    def log(x):
        return V(np.log(x.value), (x, lambda g: g / x.value))

    def tanh(x):
        y = np.tanh(x.value)
        return V(y, (x, lambda g: g * (1 - y * y)))

    def relu(x):
        return V(np.maximum(x.value, 0), (x, lambda g: g * (x.value > 0)))

    def sum(x, axis, keep=True):
        return V(x.value.sum(axis, keepdims=keep), (x, lambda g: np.broadcast_to(g if keep else np.expand_dims(g, axis), x.shape)))

    def mean(x, axis, keep=True):
        n = x.value.size / x.value.sum(axis).size
        return x.sum(axis, keep) * (1 / n)

    def max_last(x):
        at = x.value.argmax(-1)[..., None]

        def back(g):
            out = np.zeros(x.shape)
            np.put_along_axis(out, at, g[..., None], -1)
            return out
        return V(np.take_along_axis(x.value, at, -1)[..., 0], (x, back))

    def reshape(x, *shape):
        return V(x.value.reshape(shape), (x, lambda g: g.reshape(x.shape)))

    def permute(x, *order):
        return V(x.value.transpose(order), (x, lambda g: g.transpose(np.argsort(order))))

    @property
    def mT(x):
        r = list(range(x.value.ndim))
        return x.permute(*r[:-2], r[-1], r[-2])

    def __getitem__(x, i):
        def back(g):
            out = np.zeros(x.shape)
            np.add.at(out, i, g)
            return out
        return V(x.value[i], (x, back))

    def pad(x, widths, value=0.0):
        inner = tuple(slice(b, b + n) for (b, _), n in zip(widths, x.shape))
        return V(np.pad(x.value, widths, constant_values=value), (x, lambda g: g[inner]))


def fit(g, shape):
    """The gradient of what was broadcast."""
    g = g.sum(tuple(range(g.ndim - len(shape)))) if g.ndim > len(shape) else g
    return g.sum(tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] > 1), keepdims=True)


def backward(y):
    """Sets grad of all that y was computed from."""
    order, seen, stack = [], set(), [(y, False)]
    while stack:
        v, done = stack.pop()
        if done:
            order.append(v)
        elif id(v) not in seen:
            seen.add(id(v))
            stack.append((v, True))
            stack += [(s, False) for s, _ in v.sources]
    y.grad = np.ones(y.shape)
    for v in reversed(order):
        for s, back in v.sources:
            g = back(v.grad)
            s.grad = g if s.grad is None else s.grad + g
