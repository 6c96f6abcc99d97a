"""Steps: functions whose first call is kept, and run again by the next ones.

A step may do what a function (_transform.py) may not: assign to parameters, draw random numbers, take an optimizer's step. Its
first call runs f on memory of the step's own, for the arguments, and has C keep the program with where everything lies. A later call
writes its arguments there, runs that again, and copies the results out: they are values, as all arrays are, and no later call
changes them. What f reads besides is read where it is; what it assigns is written there.

While f runs nothing is computed (Context.made is not None): what is still to be assigned before is before, and what is afterwards is the step's.
"""
import gc
import warnings
from weakref import ref

import numpy as np

from ._abi import P, ints
from ._api import asarray
from ._array import PLACE, VALUE, Array, _of_numpy, call, wrap, wrap_as
from ._context import DTypeError, L, S, current, place
from ._dtypes import dtype as dtype_of
from ._transform import _one_context, asking, flatten, found, function, rebuild, tracing

MANY = 32  # captures of one function: more are a mistake, most likely


class capture(function):
    """f as a step that comes again: `@koine.capture`. Its first call is computed and kept, the next ones run that again, without a graph. Arguments
    and results are as koine.function's; but f may assign to parameters (p.assign(v), p[i] = v), take an optimizer's step (opt.step(loss)) and draw
    random numbers, and each call does so anew.

    Arguments are copied in, results out: they are values, which no later call changes. A koine.param is read and written where it is, be it
    an argument or found where f was written; other arrays found there are data, those of the first call. Each call takes koine.bind's variables, an
    optimizer's lr and model.eval() or train() as they are then.

    f itself runs at the first call for a set of shapes, dtypes and other arguments: what else it does, print or append to a list, it does then
    alone. It cannot ask for values (float(x), if x:), and is not called inside a koine.function."""

    def __init__(self, f):
        super().__init__(f)
        self.calls = 0

    def __repr__(self):
        return f"<koine.capture {getattr(self.f, '__qualname__', self.f)}, captured {len(self.traces)} times, called {self.calls} times>"

    def __call__(self, *args, **kwargs):
        leaves, form = flatten((args, kwargs), _data)
        arrays = [x for x in leaves if type(x) is Array]
        k = _one_context(arrays) if arrays else current()
        with k.lock:
            if k.in_step:  # of another: part of that
                return self.f(*args, **kwargs)
            if k.tracing:
                raise DTypeError(f"{self.__name__}: a captured step is called while a function is traced: call it outside; koine.function is what can be called there")
            key = k, form, tuple([_kind(x) for x in leaves])
            step = self._known(key, args, kwargs)
            if step is None:
                with asking() as modules:
                    step = _Step(k, self.f, leaves, form, found(self.f, args, kwargs))
                self._keep(key, modules, step)
                if len(self.traces) == MANY:
                    warnings.warn(f"{self.__name__} is captured for the {MANY}nd time: a number among its arguments is part of what it is captured for; koine.asarray(v) is an argument", RuntimeWarning, stacklevel=2)
            else:
                step.again(leaves)
            self.calls += 1
            return step.results()


def _data(t):
    """Of an argument with data: numpy's arrays stay as they are."""
    return t if type(t) is np.ndarray else asarray(t)


def _kind(x):
    if type(x) is Array:
        return id(x) if x._own == PLACE else (x._d, x.shape)
    return dtype_of(x.dtype).number, x.shape


def _pending(k):
    n = L.kn_pending(k._c, 0, None)
    out = (P * max(n, 1))()
    L.kn_pending(k._c, n, out)
    return out[:n]


def _assigned(k):
    """What is still to be assigned there, and of what: a param assigned once more is another."""
    return {h: L.kn_graph(h) for h in _pending(k)}


def _all(f, handles):
    """kn_realize_at or kn_capture_at of handles."""
    return f(*place(), len(handles), (P * len(handles))(*handles))


def _kept(k, known, inputs):
    """An error if what the step made of its arguments, drew, or assigned, is kept outside: it would be the first call's for ever."""
    living = lambda: [(x, file, line) for made, file, line in k.made for x in [made()] if x is not None and x._own != PLACE and not any(x is y for y in known)]
    if not living():
        return
    gc.collect()
    given = {_base(L.kn_graph(x._h)) for x in inputs}
    for x, file, line in living():
        if _reads(L.kn_graph(x._h), given):
            raise DTypeError(f"{file.decode(errors='replace')}:{line}: an array of shape {x.shape} that a captured step makes is kept outside of it: it would be the first call's for ever\n"
                             "  hint: keep what a call returns, or assign it to a koine.param")


def _base(u):
    while L.kn_uop_op(u) == b"reshape":
        u = L.kn_uop_src(u, 0)
    return u


def _reads(u, given):
    """Does u read one of these nodes, an assignment, or a random number?"""
    seen, rest = set(), [u]
    while rest:
        u = rest.pop()
        if u in given or L.kn_uop_op(u) in (b"after", b"threefry"):
            return True
        if u not in seen:
            seen.add(u)
            rest += [L.kn_uop_src(u, i) for i in range(L.kn_uop_nsrc(u))]
    return False


class _Step:
    """f captured: where its arguments lie, how it is run again, where its results are."""

    c = None

    def __init__(self, k, f, leaves, form, outside):
        self.k = k
        k.drain()
        given = [*[x._h for x in leaves if type(x) is Array], *_pending(k)]
        # What arrays outside were drawn or made from is no part of a step. One that cannot be computed fails where it is read.
        before = [x._h for x in outside if x._k is k and x._own != PLACE and not x._is_data()]
        if not before or _all(S.kn_realize_at, [*given, *before]):
            L.kn_clear(k._c)
            self._compute(given)
            for h in before:
                _all(S.kn_realize_at, [h])
            L.kn_clear(k._c)
        self.inputs = [x if type(x) is Array and x._own == PLACE else _own_memory(k, x) for x in leaves]
        k.made = []
        others = {o: _assigned(o) for o in {x._k for x in outside} if o is not k and o._c}
        try:
            args, kwargs = rebuild(form, iter([x if x._own == PLACE else wrap(k, x._again()) for x in self.inputs]))
            with tracing(k), k:
                out = f(*args, **kwargs)
                leaves, self.form = flatten(out)
                del out, args, kwargs
                for x in leaves:
                    if x._k is not k:
                        raise DTypeError(f"capture: an array on {x._k.name} is returned by a step on {k.name}: to_device brings it there")
                for o, before in others.items():
                    if _assigned(o) != before:
                        raise DTypeError(f"capture: a step on {k.name} assigns to a param on {o.name}: only its first call would; capture another step for {o.name}, or keep both on one device")
                # Nodes of the step's own, whatever else is equal to them outside.
                self.out = [x if x._own == PLACE else call(L.kn_contiguous, x) for x in leaves]
                leaves = x = None
                _kept(k, self.out, self.inputs)
        finally:
            k.made = None
        wanted = [*_pending(k), *[x._h for x in self.out if x._own != PLACE]]
        if wanted:
            self.c = _all(S.kn_capture_at, wanted)
            if not self.c:
                k.fail()
        self.places = [None if x._own == PLACE else (x._pointer(), x._d, x.shape, ints(x.shape), x.nbytes) for x in self.out]

    def _compute(self, handles):
        """Together: what is still to be assigned, and what reads what that overwrites."""
        if handles and _all(S.kn_realize_at, handles):
            self.k.fail()

    def again(self, leaves):
        k = self.k
        if k.dead:
            k.drain()
        self._compute([x._h for x in leaves if type(x) is Array and not x._is_data()])
        for x, own in zip(leaves, self.inputs):
            if x is own:
                continue
            if type(x) is Array:
                if L.kn_uop_op(_base(L.kn_graph(x._h))) != b"buffer":  # a part of another: computed where it is wanted
                    k.check(L.kn_check(L.kn_assign(own._h, x._h)))
                    continue
                at, size = x._pointer(), own.nbytes
            else:
                if not (x.flags.c_contiguous and x.dtype.isnative):
                    x = np.ascontiguousarray(x, x.dtype.newbyteorder("="))
                at, size = x.__array_interface__["data"][0], x.nbytes
            if size:
                k.check(S.kn_write(own._h, at, size))
        if self.c:
            k.check(S.kn_replay(self.c))

    def results(self):
        k, out = self.k, []
        for x, given in zip(self.out, self.places):
            if given:
                at, d, shape, sizes, size = given
                k.bytes += size
                h = L.kn_from_host(k._c, at, d, sizes)
                if not L.kn_dtype_of(h):
                    raise k.failed(h)
                x = wrap_as(k, h, d, shape)
            out.append(x)
        return rebuild(self.form, iter(out))

    def __del__(self):
        if self.c and self.k._c:
            with self.k.lock:
                L.kn_captured_free(self.c)


def _own_memory(k, x):
    """A copy that nothing else shows: a step's argument."""
    if type(x) is not Array:
        x = _of_numpy(k, x)
        x._own = VALUE
        return x
    return wrap(k, L.kn_from_host(k._c, x._pointer(), x._d, ints(x.shape)))
