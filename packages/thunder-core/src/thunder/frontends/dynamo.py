"""The dynamo front end.

PyTorch's own capture gives guards, graph breaks and any Python; Thunder compiles each graph.
"""

from __future__ import annotations

import functools
import itertools
import os
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import fx
from torch._dynamo import trace_rules
from torch._dynamo.exc import InternalTorchDynamoError, TorchRuntimeError
from torch._dynamo.external_utils import wrap_inline
from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

from thunder.capture.source import user_source
from thunder.errors import CaptureError
from thunder.frontends.fx_source import modules_of
from thunder.frontends.graph import Graph
from thunder.frontends.guards import HOOKS
from thunder.frontends.jitted import JittedFunction
from thunder.frontends.notes import eager
from thunder.frontends.settings import make_settings
from thunder.ir.effects import Scope
from thunder.observe.history import History
from thunder.runtime.driver import Settings
from thunder.runtime.states import States

_serial = itertools.count()


class DynamoFunction(JittedFunction):
    """``fn`` (a function, a bound method or a module) compiled by ``torch.compile`` with a backend of its own.

    fullgraph, dynamic: as for ``torch.compile``; with ``fullgraph``, a graph that cannot be compiled is an error too.
    Sizes that Dynamo makes symbolic stay symbolic: one program serves all that it is valid for.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        settings: Settings,
        again: Callable[[Any], Any] | None = None,
        *,
        fullgraph: bool = False,
        dynamic: bool | None = None,
    ) -> None:
        options: dict[str, Any] = {"fullgraph": fullgraph, "dynamic": dynamic}
        super().__init__(fn, again or functools.partial(DynamoFunction, settings=settings, **options))
        history = History()
        states = self._thunder_states = States()
        frames = self._frames = dict[int | None, str]()

        def thunder(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Graph:
            _refuse_overrides(example_inputs)
            # A frame of Python is one part of the program: it keeps its states when it is compiled again.
            part = frames.setdefault(_frame(), f"graph{len(frames)}." if frames else "")
            own = replace(settings, states=states.part(part))
            return Graph(gm, example_inputs, own, history, modules=modules_of(fn), strict=fullgraph)

        self._thunder_records, self._thunder_notes = history.records, history.notes
        self._fullgraph = fullgraph
        self._strict = fullgraph or os.environ.get("THUNDER_STRICT") == "1"
        self._compile = functools.partial(torch.compile, backend=thunder, **options)
        self._hooks = RemovableHandle.next_id
        self._compiled = self._compile(_with_own_code(fn))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if RemovableHandle.next_id != self._hooks:
            self._notice_hooks()
        try:
            return self._compiled(*args, **kwargs)
        except TorchRuntimeError as error:
            # PyTorch refuses a call: the program may catch that, which Dynamo does not see.
            if self._fullgraph or _started(self.__wrapped__, error):
                raise
        except (InternalTorchDynamoError, AssertionError) as error:
            if self._strict or _started(self.__wrapped__, error):
                raise
            return self._run_eagerly(error, args, kwargs)
        return self.__wrapped__(*args, **kwargs)

    def _run_eagerly(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result in eager, with a warning, since Dynamo has failed; or what the program itself raises."""
        result = self.__wrapped__(*args, **kwargs)
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        note = eager(CaptureError("Dynamo fails on it", why=why), user_source())
        if note not in self._thunder_notes:
            self._thunder_notes.append(note)
        return result

    def _notice_hooks(self) -> None:
        """Start anew if modules have new hooks: Dynamo guards the hooks of a module, but not that it has none.

        Every hook of PyTorch gets the next number of one counter as its key.
        """
        known, self._hooks = self._hooks, RemovableHandle.next_id
        modules = [module for root in modules_of(self.__wrapped__).values() for module in root.modules()]
        registries = [getattr(module, name) for module in modules for name in HOOKS]
        registries += [getattr(torch_module, f"_global{name}") for name in HOOKS]
        if any(key >= known for registry in registries for key in registry):
            self._frames.clear()
            self._compiled = self._compile(_with_own_code(self.__wrapped__))


def _with_own_code(fn: Any) -> Any:
    """The function with a code object of its own, where Dynamo keeps what it compiles and counts it, up to a limit.

    Else all modules of a class would share the code of ``forward``, and by its name also what Dynamo has learnt about
    changing sizes. What is PyTorch's own is called from such a function, since Dynamo does not enter it,
    or would enter what is one operation elsewhere.
    """
    of_torch = (getattr(fn, "__module__", None) or "").partition(".")[0] == "torch"
    if not isinstance(fn, (FunctionType, MethodType)) or of_torch or trace_rules.check(fn):
        fn = wrap_inline(fn)
    if isinstance(fn, MethodType):
        return MethodType(_with_own_code(fn.__func__), fn.__self__)
    code = fn.__code__.replace(co_name=f"{fn.__code__.co_name}_{next(_serial)}")
    copy = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    copy.__kwdefaults__ = fn.__kwdefaults__
    return functools.update_wrapper(copy, fn)


def _started(fn: Callable[..., Any], error: Exception) -> bool:
    """True unless the error came while the first frame of ``fn`` was traced, before anything ran."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    running = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return code is None or any(
        (c.co_filename, c.co_firstlineno) == (code.co_filename, code.co_firstlineno)
        or c.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX)
        for c in running
    )


def _refuse_overrides(example_inputs: Sequence[Any]) -> None:
    """Let Python run what takes tensors that override torch functions: Dynamo's graphs return them as plain tensors."""
    for example in example_inputs:
        if isinstance(example, torch.Tensor) and _torch_function(type(example)) not in _PLAIN:
            raise UnsupportedFakeTensorException(f"{type(example).__name__} overrides __torch_function__")


def _torch_function(cls: Any) -> Any:
    return getattr(cls.__torch_function__, "__func__", cls.__torch_function__)


_PLAIN = (_torch_function(torch.Tensor), _torch_function(torch.nn.Parameter))


def _frame() -> int | None:
    """The number of the frame that Dynamo is compiling; the same when it compiles the frame again."""
    compiling = torch._guards.CompileContext.current_compile_id()
    return compiling.frame_id if compiling is not None else None


def backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Graph:
    """The backend of ``torch.compile(fn, backend="thunder", options={"executors": "torch"})``.

    options: ``executors`` as in ``thunder.jit``; every other key is an option of the core or of
    an executor (``"name.option"``).
    PyTorch looks backends of other packages up by name without a lock: where several threads are the first to name it,
    at once, all but one get an AssertionError ("duplicate name"). Name it once before, or pass this function.
    """
    chosen = dict(options or {})
    settings = make_settings(chosen.pop("executors", None), chosen)
    _warn_of_states(settings)
    return Graph(gm, example_inputs, settings, History())


def _warn_of_states(settings: Settings) -> None:
    """A graph that is all there is of a program owns the states of its calls: nobody keeps them when it is replaced."""
    kinds = [kind for executor in settings.executors for kind in executor.states]
    if names := [kind.name for kind in kinds if kind.init and kind.scope is not Scope.PROCESS]:
        warnings.warn(
            f"{', '.join(names)}: under torch.compile, states of executors start anew whenever it compiles again, and "
            "they cannot be saved. Use thunder.jit, which keeps them",
            RuntimeWarning,
            stacklevel=2,
        )
