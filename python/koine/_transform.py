"""Functions of arrays: traced, differentiated, compiled once.

A function is traced by running it on placeholders, named inputs without values. What its results read besides those (arrays it
finds where it was written) are captured. The trace is one FUNCTION node, kept as a template applied to the placeholders
themselves; a call applies its body to other arguments. Nothing of this is semantics: FUNCTION is inlined when it is compiled.
"""
import dis
import functools
import inspect
import itertools
from threading import local
from types import CodeType, FunctionType, MethodType, ModuleType
from weakref import ref

from ._abi import KINDS, P
from ._api import asarray, computed
from ._array import OWN, VALUE, Array, context_of, wrap, wrap_as
from ._context import DTypeError, Error, L, place
from ._functions import said

_number = (bool, int, float)


def _callable(f, name):
    if not callable(f):
        raise DTypeError(f"{name}: a function expected, not {said(f)}; a call of it comes later: {name}(f)(x)")
_names = itertools.count(1)


# ---- nested arguments ----

def flatten(tree, data=asarray):
    """The arrays in nested tuples, lists and dicts, and a form to put others in their place. The form is hashable if what else is in it is.
    data: what becomes of other libraries' arrays."""
    leaves = []
    return leaves, _visit(tree, leaves, data)


def _visit(t, leaves, data):
    if isinstance(t, (tuple, list)):
        form = []
        for v in t:
            if type(v) is Array:
                leaves.append(v)
                form.append(_LEAF)
            else:
                form.append(_visit(v, leaves, data))
        return type(t), tuple(form)
    if type(t) is Array:
        leaves.append(t)
        return _LEAF
    if isinstance(t, dict):
        return dict, tuple(t), tuple([_visit(v, leaves, data) for v in t.values()])
    if isinstance(t, _number):
        return "is", type(t), t  # 1, 1.0 and True are equal keys
    if hasattr(t, "__array__") and not callable(t):
        leaves.append(data(t))
        return _LEAF
    return "is", None, t


def rebuild(form, leaves):
    """The other way: leaves is an iterator."""
    if form is _LEAF:
        return next(leaves)
    kind = form[0]
    if kind == "is":
        return form[2]
    if kind is dict:
        return {k: rebuild(f, leaves) for k, f in zip(form[1], form[2])}
    parts = [next(leaves) if f is _LEAF else rebuild(f, leaves) for f in form[1]]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


class _Leaf:
    __slots__ = ()

    def __repr__(self):
        return "*"


_LEAF = _Leaf()


# ---- traces ----

def placeholder(k, like):
    """An array without values, of another's shape and dtype."""
    with k.lock:
        return wrap(k, L.kn_input(k._c, b"#py%d" % next(_names), like._d, L.kn_shape(like._h)))


class Trace:
    """Results over placeholders as one function: apply(arguments) gives them over those."""

    def __init__(self, k, placeholders, results, again=False):
        self.k, self.n = k, len(results)
        with k.lock:
            outs = [x._h for x in results]

            def body(user, given, out):
                for i, h in enumerate(outs):
                    ctypes_array = (P * len(outs)).from_address(out)
                    ctypes_array[i] = h

            made = (P * max(self.n, 1))()
            f = KINDS["kn_fn"](body)
            L.kn_scope_open(k._c)  # handles it makes on the way
            status = L.kn_function(k._c, f, None, None, 0, made, self.n)
            for h in made[: self.n]:
                L.kn_keep(h)
            L.kn_scope_close(k._c)
            k.check(status)
            k.dead.extend(made[: self.n])
            self.slots = []  # of each argument: the placeholder's number, or the captured array
            self.inside = False  # another trace: what stands for its arguments is captured
            node = L.kn_uop_src(L.kn_graph(made[0]), 0)
            numbers = {L.kn_graph(p._h): i for i, p in enumerate(placeholders)}
            for s in range(1, L.kn_uop_nsrc(node)):
                u = L.kn_uop_src(node, s)
                self.slots.append(numbers[u] if u in numbers else wrap(k, L.kn_from_graph(k._c, u)))
                self.inside |= u not in numbers and L.kn_uop_op(u) == b"param"
            # Over placeholders alone: what is captured may be assigned to, and the template must not end with its old value.
            make = lambda op, *src: L.kn_u_make(k._c, op, len(src), (P * len(src))(*src))
            body = L.kn_uop_src(node, 0)
            src = [make(b"tuple", *[make(b"remat", L.kn_uop_src(body, i)) for i in range(self.n)]) if again else body]
            for s in self.slots:
                p = placeholders[s] if type(s) is int else placeholder(k, s)
                src.append(L.kn_graph(p._h))
            node = L.kn_u_make(k._c, b"function", len(src), (P * len(src))(*src))
            self.template = wrap(k, L.kn_from_graph(k._c, L.kn_u_get(k._c, node, 0)))
            self.kinds = [(x._d, x.shape) for x in results]
            self.handles = P * len(src)

    def apply(self, arguments):
        """Its results over other arguments, lazily."""
        k = self.k
        with k.lock:
            if k.dead:
                k.drain()
            graph, from_graph, get, at, c = L.kn_graph, L.kn_from_graph, L.kn_u_get, L.kn_at_, k._c
            src = [L.kn_uop_src(L.kn_uop_src(graph(self.template._h), 0), 0)]
            for s in self.slots:
                a = arguments[s] if type(s) is int else s
                if a._own == OWN:
                    a._own = VALUE
                src.append(graph(a._h))
            node = L.kn_u_make(c, b"function", len(src), self.handles(*src))
            outs = [get(c, node, i) for i in range(self.n)] if node else []
            if not node or not all(outs):
                k.fail()
            (file, line), out = place(), []
            for u, (d, shape) in zip(outs, self.kinds):
                h = from_graph(c, u)
                if not h:
                    k.fail()
                out.append(wrap_as(k, at(h, file, line), d, shape))
            if k.made is not None:
                k.made += [(ref(x), file, line) for x in out]
            return out


class tracing:
    """While values are unknown: nothing is computed, and what asks for a value is told so."""

    def __init__(self, k):
        self.k = k

    def __enter__(self):
        self.k.tracing += 1

    def __exit__(self, *_):
        self.k.tracing -= 1


def _one_context(leaves):
    k, _ = context_of(*leaves)
    for x in leaves:
        if x._k is not k:
            raise Error(f"arguments on {k.name} and {x._k.name}: to_device brings them together")
    return k


# ---- derivatives ----

class _Inside:
    """f run on placeholders for the arguments at `at`, which may be nested lists, tuples and dicts of arrays."""

    def __init__(self, name, f, args, kwargs, at):
        self.name, self.at = name, at
        self.every, self.inner, self.forms, call_args = [], [], [], list(args)
        for i in at:
            leaves, form = flatten((asarray(args[i]) if isinstance(args[i], _number) else args[i],))
            self.every += leaves
            self.forms.append(form)
        for x in self.every:
            if x.dtype.kind != "f":
                raise DTypeError(f"{name}: argument of dtype {x.dtype}, which has no derivative; astype a float dtype first")
        self.k = _one_context(self.every)
        self.inner = [placeholder(self.k, x) for x in self.every]
        each = iter(self.inner)
        for i, form in zip(at, self.forms):
            call_args[i] = rebuild(form, each)[0]
        with tracing(self.k):
            self.out = f(*call_args, **kwargs)

    def result(self, y, hint=""):
        """y, if it is an array."""
        if type(y) is not Array:
            raise DTypeError(f"{self.name}: the function returned {type(y).__name__}; an array expected{hint}")
        return y

    def call(self, function, y, *given):
        """kn_grad, kn_vjp and kn_hvp: one array for each placeholder."""
        n = max(len(self.inner), 1)
        made = (P * n)()
        with self.k.lock:
            self.k.check(function(y._h, *given, (P * n)(*[p._h for p in self.inner]), *self.directions, len(self.inner), made))
            return [wrap(self.k, h) for h in made[: len(self.inner)]]

    directions = ()

    def along(self, given):
        """Directions, nested as the arguments are: placeholders for them, and the arrays."""
        arrays, form = flatten(tuple(asarray(d) if isinstance(d, _number) else d for d in given))
        if form != (tuple, tuple(f[1][0] for f in self.forms)):
            raise DTypeError(f"{self.name}: directions are nested as the arguments are")
        for d, x in zip(arrays, self.every):
            if d.shape != x.shape:
                raise DTypeError(f"{self.name}: a direction of shape {d.shape} for an argument of shape {x.shape}; they are equal")
        inner = [placeholder(self.k, d) for d in arrays]
        self.directions = ((P * max(len(inner), 1))(*[p._h for p in inner]),)
        return inner, arrays

    def nested(self, results):
        """One result for each leaf of the arguments, nested as they are: a tuple."""
        return tuple(rebuild(form, results)[0] for form in self.forms)


def value_and_grad(f, argnums=0, has_aux=False):
    """A function that returns (f(...), its gradient by the argument at argnums). By several (a tuple): a tuple of gradients; an
    argument may be a nested list, tuple or dict of arrays, and so is its gradient then. f returns a scalar, or what it returns is
    summed; with has_aux, (that, anything else), and the first result is that pair."""
    _callable(f, "grad")
    several = isinstance(argnums, (tuple, list))
    wanted = tuple(argnums) if several else (argnums,)

    @functools.wraps(f)
    def run(*args, **kwargs):
        at = [i + len(args) if i < 0 else i for i in wanted]
        if not all(0 <= i < len(args) for i in at):
            raise DTypeError(f"grad: argnums {argnums} for a call with {len(args)} positional arguments")
        t = _Inside("grad", f, args, kwargs, at)
        y, aux = t.out if has_aux else (t.out, None)
        t.result(y, " (its loss)" + ("" if has_aux or not isinstance(t.out, tuple) else "; has_aux=True for (loss, more)"))
        more, form = flatten(aux)
        results = iter(Trace(t.k, t.inner, [y, *t.call(L.kn_grad, y), *more]).apply(t.every))
        value, gradients = next(results), t.nested(results)
        gradients = gradients if several else gradients[0]
        return ((value, rebuild(form, results)) if has_aux else value), gradients

    return run


def grad(f, argnums=0, has_aux=False):
    """A function that returns the gradient of f by the argument at argnums; see value_and_grad. With has_aux: (gradient, the rest)."""
    both = value_and_grad(f, argnums, has_aux)

    @functools.wraps(f)
    def run(*args, **kwargs):
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return run


def vjp(f, *primals):
    """(f(*primals), back): back(v), v of the value's shape, is the tuple of J^T v by each of primals, nested as they are."""
    t = _Inside("vjp", f, primals, {}, range(len(primals)))
    y = t.result(t.out)
    v = placeholder(t.k, y)
    both = Trace(t.k, [*t.inner, v], [y, *t.call(L.kn_vjp, y, v._h)])

    def back(v):
        v = asarray(v)
        if v.shape != y.shape:
            raise DTypeError(f"vjp: a vector of shape {v.shape} for a value of shape {y.shape}; they are equal")
        results = iter(both.apply([*t.every, v.astype(y.dtype)]))
        next(results)
        return t.nested(results)

    return Trace(t.k, t.inner, [y]).apply(t.every)[0], back


def jvp(f, primals, tangents):
    """(f(*primals), how that changes when primals move along tangents: J v); tangents are nested as primals are."""
    t = _Inside("jvp", f, primals, {}, range(len(primals)))
    y, (inner, arrays) = t.result(t.out), t.along(tangents)
    n = max(len(inner), 1)
    with t.k.lock:
        moved = wrap(t.k, L.kn_jvp(y._h, (P * n)(*[p._h for p in t.inner]), (P * n)(*[p._h for p in inner]), len(inner)))
    return tuple(Trace(t.k, [*t.inner, *inner], [y, moved]).apply([*t.every, *arrays]))


def hvp(f, primals, tangents):
    """(f(*primals), how its gradients change when primals move along tangents: the Hessian times v, nested as primals are)."""
    t = _Inside("hvp", f, primals, {}, range(len(primals)))
    y, (inner, arrays) = t.result(t.out), t.along(tangents)
    results = iter(Trace(t.k, [*t.inner, *inner], [y, *t.call(L.kn_hvp, y)]).apply([*t.every, *arrays]))
    return next(results), t.nested(results)


def _matrix(name, function):
    def transform(f, argnums=0):
        _callable(f, name)

        @functools.wraps(f)
        def run(*args, **kwargs):
            if not -len(args) <= argnums < len(args):
                raise DTypeError(f"{name}: argnums {argnums} for a call with {len(args)} positional arguments")
            t = _Inside(name, f, args, kwargs, [argnums % len(args)])
            if t.forms[0] != (tuple, (_LEAF,)):
                raise DTypeError(f"{name}: by an array; nested arguments are for vjp, jvp and hvp")
            with t.k.lock:
                m = wrap(t.k, function(t.result(t.out)._h, t.inner[0]._h))
            return Trace(t.k, t.inner, [m]).apply(t.every)[0]

        return run

    return transform


def jacobian(f, argnums=0):
    """A function that returns all derivatives of f's result by the argument at argnums: in the result's axes, then the argument's: one
    graph, of as many rows as the smaller of the two has elements."""
    return _matrix("jacobian", L.kn_jacobian)(f, argnums)


def hessian(f, argnums=0):
    """A function that returns the second derivatives of f, a scalar or summed, by the argument at argnums: in its axes twice."""
    return _matrix("hessian", L.kn_hessian)(f, argnums)


def checkpoint(f):
    """f, but gradients keep nothing of what it computes but its results: they compute it again. `y = koine.checkpoint(layer)(x)`. Arguments and
    results are as kn.function's; f is traced at each call."""
    _callable(f, "checkpoint")

    @functools.wraps(f)
    def run(*args, **kwargs):
        leaves, form = flatten((args, kwargs))
        k = _one_context(leaves)
        inner = [placeholder(k, x) for x in leaves]
        args, kwargs = rebuild(form, iter(inner))
        with tracing(k), k:
            results, out = flatten(f(*args, **kwargs))
        return rebuild(out, iter(Trace(k, inner, results, again=True).apply(leaves) if results else []))

    return run


# ---- functions ----

def found(*rest):
    """Arrays among these and their attributes, and by the names that functions among them, and those they call, read where they were written."""
    seen, rest, out = set(), list(rest), []
    while rest:
        v = rest.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        v = inspect.unwrap(v) if isinstance(v, (FunctionType, function)) else v
        if type(v) is Array:
            out.append(v)
        elif isinstance(v, (list, tuple, dict)):
            if len(v) <= 1000:  # more of them are data
                rest += v.values() if isinstance(v, dict) else v
        elif isinstance(v, functools.partial):
            rest += [v.func, v.args, v.keywords]
        elif isinstance(v, MethodType):
            rest += [v.__func__, v.__self__]
        elif isinstance(v, FunctionType):
            if not (v.__module__ or "").startswith("koine"):
                rest += [*_named(v), v.__defaults__, v.__kwdefaults__]
        elif not isinstance(v, (type, ModuleType)):
            rest.append(getattr(v, "__dict__", None))
    return out


def _named(f):
    """The values of the globals that a function reads, and of what it closes over."""
    codes, out = [f.__code__], []
    for code in codes:
        codes += [c for c in code.co_consts if isinstance(c, CodeType)]
        out += [f.__globals__.get(i.argval) for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"]
    for cell in f.__closure__ or ():
        try:
            out.append(cell.cell_contents)
        except ValueError:  # not bound yet
            pass
    return out


class asking:
    """The modules that are asked whether they are in training, in this thread, within a `with`: what was traced holds while they say the same."""

    inside = local()

    def __enter__(self):
        self.before, self.inside.modules = getattr(self.inside, "modules", None), []
        return self.inside.modules

    def __exit__(self, *_):
        if self.before is not None:
            self.before += self.inside.modules
        self.inside.modules = self.before

    @classmethod
    def asked(cls, module):
        modules = getattr(cls.inside, "modules", None)
        if modules is not None:
            modules.append(module)


class function:
    """f, compiled once for each set of shapes and dtypes: `@koine.function`. Its arguments and results are (nested tuples, lists and
    dicts of) arrays; other arguments are part of what it is compiled for. A call computes all results at once. Arrays that f finds
    where it was written are captured: a later call sees what a param() has become by then, and the value the others had.

    f runs only when it is traced: what it prints or changes, it does then, and what it draws (koine.random) is the same at each
    call: draw outside, and pass it in. (After model.eval() or train() it is traced again.)"""

    def __init__(self, f):
        _callable(f, type(self).__name__)
        functools.update_wrapper(self, f)  # first: f's own attributes may be these
        self.f, self.traces, self.modules = f, {}, {}

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self):
        return f"<koine.function {getattr(self.f, '__qualname__', self.f)}, traced {len(self.traces)} times>"

    def __call__(self, *args, **kwargs):
        leaves, form = flatten((args, kwargs))
        k = _one_context(leaves)
        with k.lock:
            key = k, form, tuple([(x._d, x.shape) for x in leaves])
            traced = self._known(key, args, kwargs)
            if traced is None:
                with asking() as modules:
                    traced = self._trace(k, leaves, form)
                if traced[0] is None or not traced[0].inside:
                    self._keep(key, modules, traced)
            trace, out = traced
            results = trace.apply(leaves) if trace else []
            if not k.tracing and results:
                computed(k, results)
            return rebuild(out, iter(results))

    def _known(self, key, args, kwargs):
        """What was kept for such arguments, by modules that were in training or not as they are now; None: nothing."""
        try:
            modules = self.modules.get(key, ())
        except TypeError:
            raise DTypeError(f"{type(self).__name__}: arguments are arrays, or what a dict takes as a key: {getattr(self.f, '__name__', self.f)}{args!r}") from None
        return self.traces.get((key, *[m.training for m in modules]))

    def _keep(self, key, modules, traced):
        """modules: those that were asked whether they are in training."""
        modules = self.modules[key] = list(dict.fromkeys([*self.modules.get(key, ()), *modules]))
        self.traces[(key, *[m.training for m in modules])] = traced

    def _trace(self, k, leaves, form):
        made, k.made = k.made, None if k.made is None else []  # the trace keeps them, not the step
        try:
            inner = [placeholder(k, x) for x in leaves]
            args, kwargs = rebuild(form, iter(inner))
            with tracing(k), k:
                out = self.f(*args, **kwargs)
            results, out_form = flatten(out)
            return Trace(k, inner, results) if results else None, out_form
        finally:
            k.made = made
