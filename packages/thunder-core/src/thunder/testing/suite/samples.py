"""Calls of a target with arguments to try: from PyTorch's database of operators, and varied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import torch

from thunder.ir import tree
from thunder.lang.names import canonical_name, resolve_symbol
from thunder.lang.values import tensor_type
from thunder.passes.chains import CHAIN

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments and keywords."""

LIMIT = 8
"""How many samples of one operator are tried."""

_HOLE = object()


@dataclass(frozen=True)
class Sample:
    """A call of ``fn``: trees of arguments with holes for the tensors, and the tensors.

    trains: whether gradients are wanted unless told otherwise.
    """

    fn: Callable[..., Any]
    args: Any
    kwargs: Any
    tensors: tuple[torch.Tensor, ...]
    trains: bool = True

    @classmethod
    def of(cls, fn: Callable[..., Any], args: Any, kwargs: Any, trains: bool = True) -> Sample:
        """The call ``fn(*args, **kwargs)``."""
        tensors = tuple(leaf.detach() for leaf in tree.leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
        args, kwargs = tree.map_tree(lambda leaf: _HOLE if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs))
        return cls(fn, args, kwargs, tensors, trains)

    def __str__(self) -> str:
        return f"{self.fn.__name__}({', '.join(str(tensor_type(t)) for t in self.tensors)}; {self.kwargs})"

    def program(self, *tensors: torch.Tensor) -> Any:
        """The call on some tensors."""
        rest = iter(tensors)
        args, kwargs = tree.map_tree(lambda leaf: next(rest) if leaf is _HOLE else leaf, (self.args, self.kwargs))
        return self.fn(*args, **kwargs)

    def inputs(self, wanted: Sequence[bool] | None = None) -> list[torch.Tensor]:
        """The tensors, new ones each time. wanted: which need gradients; by default all that can, if it trains."""
        flags = wanted or [self.trains and (t.is_floating_point() or t.is_complex()) for t in self.tensors]
        return [torch.clone(t).requires_grad_(flag) for t, flag in zip(self.tensors, flags)]

    def runs(self) -> bool:
        """Whether eager PyTorch takes the call."""
        try:
            self.program(*self.inputs())
        except Exception:
            return False
        return True

    def strided(self) -> Sample:
        """The same values in tensors that are not contiguous."""
        return replace(self, tensors=tuple(map(_strided, self.tensors)))

    def doubled(self) -> Iterator[tuple[int, int]]:
        """Pairs of positions that can hold one tensor: the second the first's."""
        for kept, replaced in permutations(range(len(self.tensors)), 2):
            tensors = list(self.tensors)
            tensors[replaced] = tensors[kept]
            if replace(self, tensors=tuple(tensors)).runs():
                yield kept, replaced


def _strided(t: torch.Tensor) -> torch.Tensor:
    wide = torch.stack([t, t], dim=-1)
    return wide[..., 0] if t.dim() < 2 else wide[..., 0].mT.contiguous().mT


def samples_of(
    target: str | tuple[str, ...], device: str, dtype: torch.dtype, make: Callable[..., Iterable[Any]] | None
) -> list[Sample]:
    """Calls of a target that eager PyTorch takes; of a chain, without gradients."""
    fn = resolve_symbol(target if isinstance(target, str) else CHAIN)
    calls = list(make(device, dtype) if make is not None else _known(target, device, dtype))
    step = max(1, len(calls) // LIMIT)
    found = [Sample.of(fn, args, kwargs, trains=isinstance(target, str)) for args, kwargs in calls[::step][:LIMIT]]
    return [sample for sample in found if sample.runs()]


def _known(target: str | tuple[str, ...], device: str, dtype: torch.dtype) -> Iterator[Call]:
    return _from_database(target, device, dtype) if isinstance(target, str) else _chained(target, device, dtype)


def _chained(target: tuple[str, ...], device: str, dtype: torch.dtype) -> Iterator[Call]:
    """Each way to call the first of a chain, with each to call the others."""
    fn, *others = map(resolve_symbol, target)
    first, *rest = ([*_from_database(name, device, dtype)] or [((None,), {})] for name in target)
    for (args, kwargs), *following in product(first, *rest):
        then = [(other, given[1:], keywords) for other, (given, keywords) in zip(others, following)]
        yield (fn, *args), {**kwargs, "then": tuple(then)}


def _from_database(target: str, device: str, dtype: torch.dtype) -> Iterator[Call]:
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if target in (canonical_name(info.op), f"aten.{info.aten_name}") and dtype in info.supported_dtypes(device):
            for sample in info.sample_inputs(device, dtype):
                yield (sample.input, *sample.args), sample.kwargs
