"""Recording public torch calls: composites stay whole, facts about their insides are observed below."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch._functorch.pyfunctorch import dispatch_functorch
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException
from torch.overrides import TorchFunctionMode

from thunder.capture.aten import Observer
from thunder.capture.autocast import explicit_casts
from thunder.capture.fakes import needs_values
from thunder.capture.log import Log, is_wrapped, tensor_leaves
from thunder.capture.source import user_line, user_source
from thunder.capture.standins import Standins
from thunder.errors import CaptureError
from thunder.ir.effects import RANDOM, Effect, Scope, StateKind
from thunder.ir.types import OpaqueType, Var
from thunder.lang.names import canonical_name
from thunder.plugins.spec import Op, resolve

_NO_DATA = "the recorded values have no data"
OTHER_FRONT_END = 'frontend="dynamo" (the default of thunder.jit), which runs such lines in Python'

# Calls that change a tensor's autograd state or identity: replaying the trace would not repeat what they do.
_REFUSED = {
    torch.Tensor.register_hook: "the hook would not run",
    torch.Tensor.register_post_accumulate_grad_hook: "the hook would not run",
    torch.Tensor.retain_grad: "the gradient would not be kept",
    torch.Tensor.backward: "it accumulates into .grad while the program is recorded",
    torch.autograd.grad: "it differentiates through history that is not recorded",
    torch.autograd.backward: "it accumulates into .grad while the program is recorded",
    torch.Tensor.grad_fn.__get__: "hooks on its node would not run",  # type: ignore[union-attr]  # a descriptor
    torch.Tensor.requires_grad_: "it starts a new graph inside the program",
    torch.Tensor.set_: "it gives the tensor another storage",
    torch.Tensor.resize_: "it changes the tensor's storage",
    torch.Tensor.numpy: _NO_DATA,
    torch.Tensor.tolist: _NO_DATA,
    torch.Tensor.data_ptr: _NO_DATA,
    torch.Tensor.__array__: _NO_DATA,
}


class TorchRecorder(TorchFunctionMode):
    """Logs each public torch call that has tensors among its arguments or results.

    states: the state kinds of executors, which their symbols may touch, by name.
    casts: what autocast made of parameters, by identity and dtype (PyTorch keeps them for the length of a region).
    """

    def __init__(self, log: Log, observer: Observer, standins: Standins, states: Mapping[str, StateKind]) -> None:
        super().__init__()
        self.log = log
        self.states = {RANDOM.name: RANDOM, **states}
        self.observer = observer
        self.casts: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self.standins = standins
        self._outer_hooks = _saved_tensor_hooks()
        self._regions: dict[Any, str] = {}

    def __torch_function__(
        self, fn: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(fn, torch._ops.HigherOrderOperator):
            return self._higher_order(fn, args, kwargs)
        args, kwargs = self.standins.fake((args, kwargs))
        return self.standins.real(self._called(fn, args, kwargs))

    def _called(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if torch._C._functorch.maybe_current_level() is not None:
            return self._guarded(fn, *args, **kwargs)  # the transform's ATen calls are logged by the observer
        self._refuse(fn)
        if torch._C._is_any_autocast_enabled() and tensor_leaves((args, kwargs)):
            return explicit_casts(self, fn, args, kwargs)
        return self.record(fn, args, kwargs)

    def record(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one call and log it, unless it does nothing a trace could show."""
        out = self.run(fn, args, kwargs)
        observer = self.observer
        written = self._written((args, kwargs))
        for t in tensor_leaves((args, kwargs)) if written or observer.rebinds else ():
            if self.log.relaid(t) and (written or not self.log.view_again(t, user_source())):
                self._raise(fn, "it changes the sizes of a tensor in place")
        if {id(t) for t in tensor_leaves(kwargs.get("out"))} - {id(t) for t in written}:
            self._raise(fn, "PyTorch does not write into its out= where values have no data")
        if written:
            self.casts.clear()
        new = [t for t in tensor_leaves(out) if not self.log.knows(t)]
        if written or observer.random or new:
            self.log.region = self._region(fn)
            self.log.add(fn, args, kwargs, out, writes=written, random=observer.random, source=user_source())
            self.log.note_histories(new)
        return out

    def run(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one call under observation, without logging it."""
        return self.observer.observe(self._guarded, (fn, *args), kwargs)

    def call_symbol(self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Log a call that an executor's rule makes of the executor's own symbol; the results come from its ``meta``."""
        with torch._C.DisableTorchFunction():
            args, keywords = self.standins.fake((args, dict(kwargs)))
            out = self.observer.observe(resolve(op.meta or op.impl), args, keywords)
            self.log.add_symbol(op, args, keywords, out, self._handles(op), user_source())
        return out

    def _handles(self, op: Op) -> list[Effect]:
        """One handle for each state kind that the symbol touches, shared by the calls of one rule."""
        kinds = self.states
        return [
            Effect(
                kinds[t.kind],
                t.access,
                Var(f"state:{t.kind}", OpaqueType(t.kind)) if _has_handle(kinds[t.kind]) else None,
            )
            for t in op.effects
        ]

    @contextlib.contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Operations logged inside belong to one new activation-checkpointing region."""
        with torch.autograd.graph.saved_tensors_hooks(_checkpoint_hook(), _checkpoint_hook()):
            yield

    def _region(self, fn: Any) -> str | None:
        """The checkpointing region that is open: checkpointing shows as hooks on the tensors autograd saves."""
        hooks = _saved_tensor_hooks()
        if hooks == self._outer_hooks or hooks is None:
            return None
        if "checkpoint_hook" not in hooks[0].__qualname__:
            self._raise(fn, "saved_tensors_hooks are active inside the program, and would not be called")
        return self._regions.setdefault(hooks[0], f"checkpoint{len(self._regions)}")

    def _guarded(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except UnsupportedFakeTensorException as error:
            self._raise(fn, str(error))
        except RuntimeError as error:
            if not needs_values(error):
                raise
            name = canonical_name(fn) or str(fn)
            raise CaptureError(
                f"{name} needs the values of a tensor, which are not known while the program is recorded",
                where=user_line(),
                why=f"a value or size in the program depends on data ({type(error).__name__})",
                fix=OTHER_FRONT_END,
            ) from None

    def _refuse(self, fn: Any) -> None:
        """Refuse calls that matter but leave nothing in a trace."""
        if getattr(fn, "__name__", "") == "__set__":
            self._raise(fn, "assigning to a tensor's attribute is not a call that can be replayed")
        try:
            reason = _REFUSED.get(fn)
        except TypeError:  # unhashable callable
            return
        if reason is not None:
            self._raise(fn, reason)

    def _raise(self, fn: Any, why: str) -> NoReturn:
        name = canonical_name(fn) or str(fn)
        where = user_line()
        raise CaptureError(f"{name} cannot be recorded", where=where, why=why, fix=OTHER_FRONT_END) from None

    def _written(self, given: Any) -> list[torch.Tensor]:
        """The arguments that the call wrote into: themselves, else the first that shares the written memory."""
        written = self.observer.written
        if not written:
            return []
        known = list({id(t): t for t in tensor_leaves(given)}.values())
        ids = {id(t) for t in written}
        exact = [t for t in known if id(t) in ids]
        missing = {_storage(t) for t in written} - {_storage(t) for t in exact}
        for t in known:
            if _storage(t) in missing:
                exact.append(t)
                missing.discard(_storage(t))
        return exact

    def _higher_order(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Operators over functions: those that only run them are run through, so that what they call is logged."""
        if op.name() == "tag_activation_checkpoint":
            body, *rest = args
            with self.checkpointed(), self:
                return body(*rest)
        if torch._C._functorch.maybe_current_level() is None:
            self._raise(op, "it runs functions of its own, which a trace cannot show")
        with self:
            return dispatch_functorch(op, args, kwargs)


def _has_handle(kind: StateKind) -> bool:
    return kind.scope is not Scope.PROCESS or kind.init is not None


def _saved_tensor_hooks() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def _checkpoint_hook() -> Callable[[Any], Any]:
    def checkpoint_hook(value: Any) -> Any:
        return value

    return checkpoint_hook


def _storage(t: torch.Tensor) -> int | None:
    if t.layout is not torch.strided or is_wrapped(t):
        return None
    return t.untyped_storage()._cdata
