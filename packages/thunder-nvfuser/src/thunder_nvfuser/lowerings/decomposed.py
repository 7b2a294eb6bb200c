"""Operators that PyTorch's own decompositions make of those that nvFuser has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from thunder.extend import TensorType
from thunder_nvfuser.builder import Builder, Value
from thunder_nvfuser.table import ANY, FLOATS, Row


@dataclass(frozen=True)
class Part:
    """A call in a decomposition, on tensors without data."""

    row: Row
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any

    @property
    def types(self) -> Any:
        """Of its results."""
        return _types(self.out)

    def refusal(self) -> str:
        """Why nvFuser does not run it; empty if it does."""
        return self.row.refuse(self.types, *_types(self.args), **_types(self.kwargs)) if self.row.refuse else ""


class Recorder(TorchDispatchMode):
    """Records the calls of a decomposition, down to operators that have a row."""

    def __init__(self, rows: dict[str, Row]) -> None:
        super().__init__()
        self.parts: list[Part] = []
        self._rows = rows

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if op is torch.ops.prim.device.default:
            return op(*args, **kwargs)
        row = self._rows.get(operator_name(op))
        if row is not None:
            self.parts.append(Part(row, args, kwargs, op(*args, **kwargs)))
            if reason := self.parts[-1].refusal():
                raise NotImplementedError(f"{op}: {reason}")
            return self.parts[-1].out
        if op not in decomposition_table:
            raise NotImplementedError(f"nvFuser has no counterpart of {op}")
        with self:
            return decomposition_table[op](*args, **kwargs)


def lower_parts(b: Builder, rows: dict[str, Row], op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Emit what an operator decomposes into. Returns its results (a tree)."""
    known: dict[int, Value] = {}
    recorder = Recorder(rows)

    def fake(value: Value) -> torch.Tensor:
        t = torch.empty(value.shape, dtype=getattr(torch, value.dtype), device=b.device)
        fakes.append(t)
        known[id(t)] = value
        return t

    def value(t: torch.Tensor) -> Value:
        return known[id(t)]

    fakes: list[torch.Tensor] = []  # kept, as the recorder keeps those it sees: ids stay theirs
    with FakeTensorMode(), torch.no_grad():
        given, named = _pytree.tree_map_only(Value, fake, (args, kwargs))
        with recorder:
            out = decomposition_table[op](*given, **named)
    for part in recorder.parts:
        given, named = _pytree.tree_map_only(torch.Tensor, value, (part.args, part.kwargs))
        made = b.lower(part.row, part.types, given, named)
        known.update(zip(map(id, _pytree.tree_leaves(part.out)), _pytree.tree_leaves(made), strict=True))
    return _pytree.tree_map_only(torch.Tensor, value, out)


def _types(tree: Any) -> Any:
    return _pytree.tree_map_only(torch.Tensor, _type, tree)


def _type(t: torch.Tensor) -> TensorType:
    return TensorType(tuple(t.shape), tuple(t.stride()), str(t.dtype).removeprefix("torch."), str(t.device))


def operator_name(op: Any) -> str:
    """The name of an operator in a trace."""
    namespace, name = op._schema.name.split("::")
    return f"{namespace}.{name}" + (f".{op._overloadname}" if op._overloadname != "default" else "")


def decomposition(target: str, rows: dict[str, Row]) -> Callable[..., Any]:
    """The lowering of an operator of which PyTorch has a decomposition. rows: how its parts are lowered."""
    namespace, name, *overload = target.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload[0] if overload else "default")

    def lower(b: Builder, out: Any, *args: Any, **kwargs: Any) -> Any:
        return lower_parts(b, rows, op, args, kwargs)

    return lower


_OF_FLOATS = """
    gelu gelu_backward silu silu_backward sigmoid_backward tanh_backward threshold_backward leaky_relu
    leaky_relu_backward elu elu_backward hardtanh hardtanh_backward hardswish hardswish_backward hardsigmoid
    hardsigmoid_backward softplus softplus_backward softshrink hardshrink mish mish_backward logit logit_backward
    celu selu prelu glu glu_backward _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data
    logsumexp logaddexp native_layer_norm native_layer_norm_backward native_group_norm
    _native_batch_norm_legit_functional native_batch_norm_backward _fused_rms_norm _fused_rms_norm_backward mse_loss
    mse_loss_backward smooth_l1_loss smooth_l1_loss_backward huber_loss huber_loss_backward binary_cross_entropy
    binary_cross_entropy_backward addcdiv sinc deg2rad rad2deg nan_to_num linalg_vector_norm xlogy.Tensor
"""

_OF_ANY = """
    native_dropout_backward nll_loss_forward nll_loss_backward tril triu heaviside any any.dim all all.dim
"""


def decomposed(rows: dict[str, Row]) -> dict[str, Row]:
    """The rows of operators whose parts are among ``rows``."""
    return {
        f"aten.{name}": Row(lower=decomposition(f"aten.{name}", rows), operands=dtypes, results=dtypes)
        for names, dtypes in ((_OF_FLOATS, FLOATS), (_OF_ANY, ANY))
        for name in names.split()
    }
