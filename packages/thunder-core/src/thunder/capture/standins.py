"""The fake tensors that stand for real ones while a program is recorded. The program itself keeps the real ones."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from thunder.capture.log import Log, is_wrapped, tensor_leaves
from thunder.capture.source import user_source
from thunder.errors import CaptureError
from thunder.ir import tree


class Standins:
    """Gives each real tensor that calls reach its fake, and each fake that calls return its real tensor.

    What is not an input of the program becomes a parameter of the trace, bound to that very tensor.
    """

    def __init__(self, mode: FakeTensorMode, log: Log) -> None:
        self._mode = mode
        self._log = log
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._reals: dict[int, torch.Tensor] = {}

    def put(self, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
        """Let ``fake`` stand for ``real``, which is kept alive."""
        self._fakes[id(real)] = (real, fake)
        self._reals[id(fake)] = real
        return real

    def fake(self, value: Any) -> Any:
        """The tree with real tensors replaced."""
        strange = [t for t in tensor_leaves(value) if not self._log.knows(t) and not is_wrapped(t)]
        return replace_tensors(value, {id(t): self._fake(t) for t in strange}) if strange else value

    def real(self, value: Any) -> Any:
        """The tree with the fakes of real tensors replaced by those."""
        if isinstance(value, torch.Tensor):
            return self._reals.get(id(value), value)
        known = {id(t): self._reals[id(t)] for t in tensor_leaves(value) if id(t) in self._reals}
        return replace_tensors(value, known) if known else value

    def inside(self, value: Any) -> Any:
        """The tree with real tensors replaced, inside of a call which finds them by itself when it runs again."""
        real = [t for t in tensor_leaves(value) if not isinstance(t, FakeTensor) and not is_wrapped(t)]
        return replace_tensors(value, {id(t): self._hidden(t) for t in real}) if real else value

    def _fake(self, t: torch.Tensor) -> torch.Tensor:
        known = self._fakes.get(id(t))
        if known is not None:
            return known[1]
        if isinstance(t, FakeTensor):
            raise CaptureError(
                "a tensor of another recording was used",
                where=str(user_source() or ""),
                why="a value made while a program was recorded has outlived that recording",
                fix="do not keep results in globals or attributes inside a recorded function",
            )
        fake = self._hidden(t)
        self.put(t, fake)
        self._log.constants[self._log.param(fake, "constant")] = t
        return fake

    def _hidden(self, t: torch.Tensor) -> torch.Tensor:
        known = self._fakes.get(id(t))
        if known is not None:
            return known[1]
        with torch._C.DisableTorchFunction(), _disable_current_modes():  # its calls are not the program's
            return self._mode.from_tensor(t, static_shapes=True)


def replace_tensors(value: Any, by_id: dict[int, torch.Tensor]) -> Any:
    """Replace tensors in a tree, keeping container types that calls may depend on (named tuples, sizes)."""
    if isinstance(value, torch.Tensor):
        return by_id.get(id(value), value)
    if isinstance(value, tuple) and type(value) is not tuple:
        items = [replace_tensors(item, by_id) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, (tuple, list)):
        return type(value)([replace_tensors(item, by_id) for item in value])
    return (
        tree.map_tree(lambda leaf: replace_tensors(leaf, by_id), value) if isinstance(value, (dict, slice)) else value
    )
