"""When a linear layer runs in FP8, and on which engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from thunder.extend import CheckResult, ClaimContext, No, TensorType, Yes
from thunder_te import library, recipes

_DTYPES = ("float32", "bfloat16", "float16")


def linear(cx: ClaimContext, input: TensorType, weight: TensorType, bias: TensorType | None = None) -> Yes | No:
    precision: Any = cx.cache_key
    if precision is None:
        return No("no FP8 recipe is in force: enter thunder_te.autocast(recipe=…) or set the option te.recipe")
    if reason := recipes.refusal(precision.recipe):
        return No(reason)
    if reason := _unfit(precision.name, input, weight, gradients=any(cx.needs_grad[:2])):
        return No(reason)
    engine = engine_for(input.device, cx.options)
    if engine == "transformer_engine" and (reason := library.refusal(precision.name)):
        return No(reason)
    return Yes(f"{engine}, {precision.name}")


def engine_for(device: str, options: Mapping[str, Any]) -> str:
    """The engine for tensors on a device: TransformerEngine on CUDA where it can be used, else the reference."""
    if options.get("engine") is not None:
        return str(options["engine"])
    return "transformer_engine" if device.startswith("cuda") and library.is_usable() else "reference"


def _unfit(recipe: str, input: TensorType, weight: TensorType, gradients: bool) -> str:
    """Why FP8 matrix multiplication does not take the operands; empty if it does."""
    if weight.ndim != 2 or input.ndim < 2:
        return "needs a matrix as weight, and an input of two dimensions or more"
    if input.dtype not in _DTYPES:
        return f"no FP8 from {input.dtype}"
    rows, columns = math.prod(input.shape[:-1]), input.shape[-1]
    matrices = {"input": (rows, columns), "weight": weight.shape}
    if gradients:
        matrices["gradient"] = (rows, weight.shape[0])
    if not rows:
        return "the input is empty"
    by_row, by_column = (32, 32) if recipe == "MXFP8BlockScaling" else (8, 16)
    for name, (height, width) in matrices.items():
        if height % by_row or width % by_column:
            return (
                f"{recipe} needs rows divisible by {by_row} and columns divisible by {by_column}, "
                f"and the {name} is {height} x {width}"
            )
    return ""


def doctor() -> CheckResult:
    """What runs FP8 layers on CUDA tensors here; on all other devices it is the reference engine."""
    reason = library.missing()
    if not reason:
        return CheckResult(True, "TransformerEngine on CUDA, the reference engine elsewhere")
    return CheckResult(True, f"the reference engine on all devices ({reason})")
