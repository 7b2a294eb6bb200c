"""Which calls the kernels take: the contracts of the extensions, asked before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from thunder.extend import CheckResult, ClaimContext, No, TensorType, Yes
from thunder_apex.extensions import CROSS_ENTROPY, NORM, find, is_memory_efficient, unusable
from thunder_apex.plugin import INSTALL

WARP = 32
"""Threads of the smallest block. The kernel lets a block read from the 16-byte boundary below a row to its own width,
so a row that is shorter than the block and not aligned is read past its end."""

_LOGITS = ("float32", "bfloat16", "float16")
_NORMALISED = ("float64", "float32", "bfloat16", "float16")


def cross_entropy(
    cx: ClaimContext,
    input: TensorType,
    target: TensorType,
    weight: TensorType | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Yes | No:
    if reason := unusable(CROSS_ENTROPY, "forward", input.device):
        return No(reason)
    if weight is not None:
        return No("no kernel for weights of classes")
    if size_average is not None or reduce is not None:
        return No("size_average and reduce are deprecated: use reduction")
    if input.ndim != 2 or target.ndim != 1:
        return No(f"needs logits [rows, classes] and labels [rows], not {list(input.shape)} and {list(target.shape)}")
    if target.dtype != "int64":
        return No(f"needs int64 labels, not {target.dtype}")
    if input.dtype not in _LOGITS:
        return No(f"no kernel for {input.dtype} logits")
    if not input.numel:
        return No("the logits are empty")
    if input.shape[1] < WARP:
        return No(f"needs at least {WARP} classes: shorter rows that are not aligned are read past their end")
    return Yes() if input.is_contiguous else No("the logits are not contiguous")


def layer_norm(
    cx: ClaimContext,
    input: TensorType,
    normalized_shape: Sequence[int],
    weight: TensorType | None = None,
    bias: TensorType | None = None,
    eps: float = 1e-5,
) -> Yes | No:
    reason = unusable(NORM, "forward_affine", input.device) or _not_normalised(cx, input, weight, bias)
    return No(reason) if reason else Yes(_detail(cx))


def rms_norm(
    cx: ClaimContext,
    input: TensorType,
    normalized_shape: Sequence[int],
    weight: TensorType | None = None,
    eps: float | None = None,
) -> Yes | No:
    reason = unusable(NORM, "rms_forward_affine", input.device) or _not_normalised(cx, input, weight)
    return No(reason) if reason else Yes(_detail(cx))


def _not_normalised(cx: ClaimContext, input: TensorType, *parameters: TensorType | None) -> str:
    """Why the kernels do not take a norm of these tensors; empty if they do."""
    if input.dtype not in _NORMALISED:
        return f"no kernel for {input.dtype}"
    if not math.prod(input.shape):
        return "the input is empty"
    if not input.is_contiguous:
        return "the input is not contiguous"
    for parameter in parameters:
        if parameter is None:
            continue
        if parameter.dtype != input.dtype:
            return f"the dtypes differ: {input.dtype} input and {parameter.dtype} parameters"
        if not parameter.is_contiguous:
            return "a parameter is not contiguous"
    if cx.options["memory_efficient"] and not is_memory_efficient():
        return f"the {NORM} that is installed cannot start backward from results: update Apex"
    return ""


def _detail(cx: ClaimContext) -> str:
    return "memory efficient" if cx.options["memory_efficient"] and cx.training else ""


def doctor() -> CheckResult:
    """Which extensions are here."""
    names = (CROSS_ENTROPY, NORM)
    here = [name for name in names if find(name) is not None]
    if here == list(names):
        return CheckResult(True, " and ".join(here))
    missing = " and ".join(name for name in names if name not in here)
    return CheckResult(bool(here), f"{here[0]}, without {missing}" if here else f"without {missing}", fix=INSTALL)
