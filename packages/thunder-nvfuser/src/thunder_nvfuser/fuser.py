"""What the core asks nvFuser: whether it runs an operation, to compile a region, to show one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.extend import BoundSymbol, ClaimContext, No, TensorType, Trace, Yes
from thunder_nvfuser import library
from thunder_nvfuser.fusion import Fusion, taken_by_value
from thunder_nvfuser.lowerings import TABLE
from thunder_nvfuser.table import refusal

_YES = Yes()


def supports(cx: ClaimContext, op: BoundSymbol) -> Yes | No:
    """Whether an operation may be part of a fusion."""
    row = TABLE.get(op.sym.name)
    if row is None:
        return No(f"nvFuser has no counterpart of {op.sym}")
    if row.option and not cx.options.get(row.option):
        return No(f"{op.sym} is fused only with the option nvfuser.{row.option}")
    reason = refusal(row, op, library.load().device_types)
    return No(reason) if reason else _YES


def compile(cx: ClaimContext, region: Trace) -> Callable[..., tuple[Any, ...]]:
    """The region as one fusion. Raises what nvFuser raises if it refuses it; kernels are made when it first runs."""
    return Fusion(region, library.load())


def show(cx: ClaimContext, region: Trace) -> str:
    """The fusion's operations as nvFuser has them, and a program that runs it by itself."""
    definition = Fusion(region, library.load()).definition
    return f"{_commented(definition.fusion.print_math())}\n\n{reproducer(region, definition)}"


def reproducer(region: Trace, definition: Any) -> str:
    """A Python program that defines the fusion and runs it on random inputs."""
    numbers = taken_by_value(region)
    samples = ("0" if place in numbers else _sample(param.type) for place, param in enumerate(region.params))
    inputs = "".join(f"    {sample},\n" for sample in samples)
    return (
        "import torch\n"
        "from nvfuser_direct import DataType, FusionDefinition\n"
        f"{definition!r}\n"
        "with FusionDefinition() as fd:\n"
        "    nvfuser_fusion(fd)\n\n"
        f"inputs = [\n{inputs}]\n"
        "print(fd.execute(inputs))\n"
    )


def _commented(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.strip().splitlines())


def _sample(type: Any) -> str:
    assert isinstance(type, TensorType)
    extent = 1 + sum((size - 1) * step for size, step in zip(type.shape, type.stride or ()))
    place = f"dtype=torch.{type.dtype}, device={type.device!r}"
    return f"torch.testing.make_tensor({extent}, {place}).as_strided({type.shape}, {type.stride})"
