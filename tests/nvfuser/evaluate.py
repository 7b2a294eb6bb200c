"""What the real nvFuser says a fusion computes, without a GPU.

The library can check results itself: its evaluator goes through the fusion with operators of PyTorch, and compares what
it finds with what it is given. Under the stand-in for CUDA (``fake_cuda.c``), where CUDA memory is the host's, those
operators run on the host, and the comparison tells what was found.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from thunder_nvfuser.fusion import Fusion

_KEEPING = ("aten.empty", "aten.new_empty", "aten.set_", "aten.resize_", "aten.detach")
_READING = ("aten._local_scalar_dense", "aten.item")


def evaluate(fused: Fusion, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results that nvFuser's evaluator finds. results: tensors of their shapes and dtypes, of any values."""
    import nvfuser_direct

    given = [on_device(x) if isinstance(x, torch.Tensor) else x for x in fused.arguments(inputs)]
    expected = [torch.zeros(t.shape, dtype=t.dtype).cuda() for t in results]
    with _OnHost() as mode:
        nvfuser_direct.validate_with_auto_inferred_outputs(fused.definition.fusion, expected, given)
    return mode.compared


def on_device(t: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, zero ones too."""
    if not t.numel():
        return torch.empty(t.shape, dtype=t.dtype, device="cuda")
    made = torch.empty(_extent(t), dtype=t.dtype, device="cuda")
    _host(made).copy_(t.as_strided((_extent(t),), (1,)))
    return made.as_strided(t.shape, t.stride())


class _OnHost(TorchDispatchMode):
    """Runs operators on CUDA tensors on the host. compared: what was compared with results."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: list[torch.Tensor] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = str(op)
        if name.startswith(("aten.allclose", "aten.equal")):
            self.compared.append(_host(args[0]).clone())
            return True
        on_cuda = _pytree.tree_any(lambda x: isinstance(x, torch.Tensor) and x.is_cuda, (args, kwargs))
        makes_cuda = "device" in kwargs and torch.device(kwargs["device"] or "cpu").type == "cuda"
        if not (on_cuda or makes_cuda) or name.startswith(_KEEPING) or _views(op):
            return op(*args, **kwargs)
        host_args, host_kwargs = _pytree.tree_map(_host, (args, kwargs))
        target = torch.device(kwargs.get("device") or ("cuda" if on_cuda else "cpu"))
        if "device" in host_kwargs:
            host_kwargs["device"] = torch.device("cpu")
        out = op(*host_args, **host_kwargs)
        if name.startswith(_READING):
            return out
        written = [a for a, spec in zip(args, op._schema.arguments) if spec.alias_info and spec.alias_info.is_write]
        if written:
            return written[0]
        return _pytree.tree_map_only(torch.Tensor, on_device, out) if target.type == "cuda" else out


def _views(op: Any) -> bool:
    return any(spec.alias_info is not None and not spec.alias_info.is_write for spec in op._schema.arguments)


def _host(t: Any) -> Any:
    """The same memory as a tensor of the host."""
    if not isinstance(t, torch.Tensor) or not t.is_cuda:
        return t
    if not t.numel():
        return torch.empty(t.shape, dtype=t.dtype)
    memory = (ctypes.c_char * (_extent(t) * t.element_size())).from_address(t.data_ptr())
    return torch.frombuffer(memory, dtype=t.dtype, count=_extent(t)).as_strided(t.shape, t.stride())


def _extent(t: torch.Tensor) -> int:
    """The number of elements from the first to the last in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride()))
