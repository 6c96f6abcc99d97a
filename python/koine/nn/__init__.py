"""Layers and optimizers, over koine/nn.h. `functional` has the functions they are made of, by PyTorch's names.

    model = nn.Sequential(nn.Linear(784, 128), kn.relu, nn.Linear(128, 10))
    opt = nn.Adam(model.parameters(), 1e-3)
    loss = opt.step(kn.cross_entropy(model(x), y))          # one step: gradients, and all parameters at once
"""
import ctypes

from .. import _abi
from .._array import PLACE, Array, asarray, copied, wrap
from .._context import ArgumentError, L, S, DTypeError, current, place
from .._functions import index, real, said
from .._transform import asking
from . import functional

__all__ = ["Module", "Sequential", "Linear", "Conv2d", "LayerNorm", "BatchNorm", "Embedding", "Dropout", "SGD", "Adam", "AdamW", "functional"]

# ---- layers ----


class Module:
    """Something with parameters: its attributes that are arrays made by koine.param (or a layer's), modules, and lists of such."""

    _buffers = ()

    @property
    def training(self):
        """Is it in training? What a koine.function or a koine.capture traces holds while it says the same."""
        asking.asked(self)
        return vars(self).get("training", True)

    @training.setter
    def training(self, mode):
        vars(self)["training"] = mode

    def _parts(self):
        return vars(self)

    def _inside(self):
        """(name, module or parameter, whether training moves it by other means) of all there is, once each, in the order attributes were set."""
        seen = set()

        def visit(name, v, buffer):
            if id(v) in seen:
                return
            seen.add(id(v))
            if isinstance(v, Module) or type(v) is Array and v._own == PLACE:
                yield name, v, buffer
            parts = v._parts() if isinstance(v, Module) else v if isinstance(v, dict) else dict(enumerate(v)) if isinstance(v, (list, tuple)) else {}
            for n, part in parts.items():
                yield from visit(f"{name}.{n}" if name else str(n), part, buffer or isinstance(v, Module) and n in v._buffers)

        return visit("", self, False)

    def named_parameters(self):
        """(name, parameter) of parameters(): "0.weight" is that of a Sequential's first module."""
        return [(name, v) for name, v, buffer in self._inside() if type(v) is Array and not buffer]

    def parameters(self):
        """Its parameters, in the order its attributes were set; what training moves by other means (running statistics) is not among them."""
        return [v for _, v in self.named_parameters()]

    def modules(self):
        """Itself and all modules inside."""
        return [v for _, v, _ in self._inside() if isinstance(v, Module)]

    def train(self, mode=True):
        """This module and all inside it in training (Dropout, BatchNorm), or not. Returns the module."""
        for m in self.modules():
            m.training = bool(mode)
        return self

    def eval(self):
        """As train(False)."""
        return self.train(False)

    def state_dict(self):
        """{name: value now} of its parameters and running statistics. np.savez(path, **model.state_dict()) keeps it."""
        return {name: copied(v) for name, v, _ in self._inside() if type(v) is Array}

    def load_state_dict(self, state):
        """Its parameters and running statistics take the values of a state_dict(), or of np.load(path): all, or none if one is missing or does not fit."""
        own, given = {name: v for name, v, _ in self._inside() if type(v) is Array}, {name: asarray(state[name]) for name in state}
        wrong = [f"{n} is missing" for n in own.keys() - given.keys()] + [f"{n} is not of this model" for n in given.keys() - own.keys()]
        wrong += [f"{n} has shape {own[n].shape}, not {given[n].shape}" for n in own.keys() & given.keys() if own[n].shape != given[n].shape]
        if wrong:
            raise ArgumentError("load_state_dict: " + "; ".join(sorted(wrong)))
        for name, v in own.items():
            v.assign(given[name].astype(v.dtype, copy=False))

    def forward(self, *args):
        raise NotImplementedError(f"{type(self).__name__}: define forward")

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def __repr__(self):
        """Its attributes: arrays by shape, what is inside by its own name."""
        said = [f"{n}={v.shape}" if type(v) is Array else f"{n}={getattr(v, '__name__', v)}" for n, v in vars(self).items() if not n.startswith("_") and v is not None]
        return f"{type(self).__name__}({', '.join(said)})"


class Sequential(Module):
    """Modules and functions, one after the other."""

    def __init__(self, *parts):
        for p in parts:
            if not callable(p):
                raise DTypeError(f"Sequential: modules and functions, one after the other, not {said(p)}" + ("; Sequential(*parts) takes those of a list" if isinstance(p, (list, tuple)) else ""))
        self.parts = list(parts)

    def _parts(self):
        return dict(enumerate(self.parts))

    def __repr__(self):
        return f"Sequential({', '.join(getattr(p, '__name__', repr(p)) for p in self.parts)})"

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x


class _Layer(Module):
    """A struct of nn.h: its tensors are attributes, and so are its numbers."""

    def _make(self, name, struct, *args):
        k, self._struct = current(), _abi.STRUCTS[struct]
        if k.tracing:
            raise DTypeError(f"a layer is made {k.meanwhile}: make it outside")
        with k.lock:
            if k.dead:
                k.drain()
            L.kn_scope_open(k._c)  # the layer keeps its parameters; what they were drawn from ends
            made = getattr(L, name)(k._c, *args)
            L.kn_scope_close(k._c)
            for kind, field in self._struct.fields:
                v = getattr(made, field)
                setattr(self, field, v if kind != "kn_tensor" else wrap(k, v, PLACE) if v else None)

    def _call(self, name, x, *args):
        x = asarray(x)
        s, k = self._struct.type(), x._k
        for kind, field in self._struct.fields:
            v = getattr(self, field)
            setattr(s, field, v._h if type(v) is Array else v)
        with k.lock:
            if k.dead:
                k.drain()
            return wrap(k, getattr(L, name)(ctypes.addressof(s), x._h, *args))


class Linear(_Layer):
    """x (..., inputs) to (..., outputs): x @ weight.T + bias, weight (outputs, inputs)."""

    def __init__(self, inputs, outputs, bias=True):
        self._make("kn_linear_new", "kn_linear_layer", index(inputs, "Linear: inputs"), index(outputs, "Linear: outputs"), bool(bias))

    def forward(self, x):
        return self._call("kn_linear_apply", x)


class Conv2d(_Layer):
    """x (N, inputs, H, W) to (N, outputs, ...); weight (outputs, inputs, size, size)."""

    def __init__(self, inputs, outputs, size, stride=1, padding=0, bias=True):
        given = {"inputs": inputs, "outputs": outputs, "size": size, "stride": stride, "padding": padding}
        self._make("kn_conv2d_new", "kn_conv2d_layer", *[index(v, f"Conv2d: {n}") for n, v in given.items()], bool(bias))

    def forward(self, x):
        return self._call("kn_conv2d_apply", x)


class LayerNorm(_Layer):
    """Mean 0 and variance 1 over the last axis, of `size`, times weight, plus bias."""

    def __init__(self, size):
        self._make("kn_layer_norm_new", "kn_norm_layer", index(size, "LayerNorm: size"))

    def forward(self, x):
        return self._call("kn_layer_norm_apply", x)


class BatchNorm(_Layer):
    """The same over all axes but axis 1. training: by the batch's statistics, which mean and var follow; else by mean and var."""

    _buffers = ("mean", "var")

    def __init__(self, channels):
        self._make("kn_batch_norm_new", "kn_norm_layer", index(channels, "BatchNorm: channels"))

    def forward(self, x):
        if self.training and type(x) is Array and x._k.tracing and not x._k.in_step:
            raise DTypeError("BatchNorm in training moves its statistics, and a function that is traced changes nothing: take the loss outside of it (opt.step), or call eval() on it or its model first")
        return self._call("kn_batch_norm_apply", x, bool(self.training))


class Embedding(Module):
    """Integers to rows of weight (count, size)."""

    def __init__(self, count, size):
        from .._api import param
        self.weight = param(functional.G["randn"]((count, size)))

    def forward(self, idx):
        return functional.G["embedding"](self.weight, idx)


class Dropout(Module):
    """While training: 0 with probability p, the rest scaled by 1 / (1 - p)."""

    def __init__(self, p=0.5):
        self.p = p

    def forward(self, x):
        return functional.G["dropout"](x, self.p) if self.training else x


# ---- optimizers ----

class _Optimizer:
    _o = None

    def __init__(self, make, params, lr, **more):
        """params: a list of parameters, or a module, whose they are."""
        self.params, numbers = params.parameters() if isinstance(params, Module) else [params] if type(params) is Array else list(params), {"lr": lr, **more}
        if not self.params or not all(type(p) is Array and p._own == PLACE for p in self.params):
            raise DTypeError("an optimizer takes a list of parameters: koine.param(x), or layer.parameters()")
        self._k = self.params[0]._k
        with self._k.lock:
            self._o = make(self._k._c, (_abi.P * len(self.params))(*[p._h for p in self.params]), len(self.params), *[real(v, f"{type(self).__name__}: {n}") for n, v in numbers.items()])
            if not self._o:
                self._k.fail()
        self._lr = float(lr)

    def __del__(self):
        if self._o and self._k._c:
            with self._k.lock:
                L.kn_optim_free(self._o)

    def step(self, loss):
        """One step down the gradient of loss, computed now, with loss, which is returned. (In a step that is captured: with that.)"""
        k = self._k
        if type(loss) is not Array:
            raise DTypeError(f"step: the loss expected, an array that was computed from the parameters, not {said(loss)}")
        with k.lock:
            if k.tracing and not k.in_step:
                raise DTypeError("a step inside a function that is traced: take the loss out of it, and step there")
            if k.dead:
                k.drain()
            file, line = place()
            L.kn_scope_open(k._c)  # gradients end with the step
            status = L.kn_optim_step(self._o, loss._h)
            if not status and not k.capturing:
                status = S.kn_optim_realize(self._o, loss._h)
            L.kn_at_status_(status, file, line)
            L.kn_scope_close(k._c)
            if status:
                k.fail(status)
        return loss

    @property
    def lr(self):
        """The learning rate. A new one is for the steps that follow; nothing is compiled again."""
        return self._lr

    @lr.setter
    def lr(self, lr):
        with self._k.lock:
            self._k.between("lr is set")
            self._k.check(L.kn_optim_rate(self._o, real(lr, "lr")))
        self._lr = float(lr)

    def __repr__(self):
        return f"{type(self).__name__}({len(self.params)} parameters, lr={self._lr})"


class SGD(_Optimizer):
    """Stochastic gradient descent: v = momentum v + g; p -= lr v."""

    def __init__(self, params, lr=0.01, momentum=0.0, weight_decay=0.0):
        super().__init__(L.kn_sgd, params, lr, momentum=momentum, weight_decay=weight_decay)


class Adam(_Optimizer):
    """Adam, with bias correction."""

    def __init__(self, params, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
        super().__init__(L.kn_adam, params, lr, beta1=beta1, beta2=beta2, eps=eps)


class AdamW(_Optimizer):
    """Adam with weight decay on the weight itself."""

    def __init__(self, params, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
        super().__init__(L.kn_adamw, params, lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=weight_decay)
