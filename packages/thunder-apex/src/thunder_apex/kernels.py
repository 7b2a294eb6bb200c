"""What runs: the functions of the extensions, in the form of the symbols of this package."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from thunder_apex.extensions import CROSS_ENTROPY, NORM, function, is_memory_efficient

Shape = Sequence[int]


def cross_entropy_fwd(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """The loss of each row in float32, and the logarithm of its sum of exponentials.

    logits: [rows, classes]. labels: int64 [rows]; one that is no class is an error, as in eager mode (the kernel would
    read other memory). Of float16 logits the sums are kept in float32, else in the dtype of the logits.
    """
    torch._assert_async(((labels >= 0) & (labels < logits.shape[1])).all(), "a target is out of bounds")
    losses, sums = function(CROSS_ENTROPY, "forward")(logits, labels, smoothing, logits.dtype is torch.float16)
    return losses, sums


def cross_entropy_bwd(grad: Tensor, logits: Tensor, sums: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The gradient of the logits. grad: of each row's loss, in the dtype of ``sums``."""
    return function(CROSS_ENTROPY, "backward")(grad, logits, sums, labels, smoothing)


def layer_norm_fwd(
    input: Tensor, shape: Shape, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The normalised input; of each row the mean, and the reciprocal of the standard deviation.

    weight, bias: both or neither.
    """
    if weight is None:
        out, mean, scale = function(NORM, "forward")(input, shape, eps)
    else:
        out, mean, scale = function(NORM, "forward_affine")(input, shape, weight, bias, eps)
    return out, mean, scale


def layer_norm_bwd(
    grad: Tensor,
    mean: Tensor | None,
    scale: Tensor,
    kept: Tensor,
    shape: Shape,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The gradients of input, weight and bias. kept: the input, or (without a mean) the result."""
    if weight is None:
        args = (grad, mean, scale, kept, shape, eps, *_flag(mean is None))
        return function(NORM, "backward")(*args), None, None
    args = (grad, mean, scale, kept, shape, weight, bias, eps, *_flag(mean is None))
    of_input, of_weight, of_bias = function(NORM, "backward_affine")(*args)
    return of_input, of_weight, of_bias


def rms_norm_fwd(input: Tensor, shape: Shape, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """The normalised input, and of each row the reciprocal of the root of the mean of squares."""
    if weight is None:
        out, scale = function(NORM, "rms_forward")(input, shape, eps)
    else:
        out, scale = function(NORM, "rms_forward_affine")(input, shape, weight, eps)
    return out, scale


def rms_norm_bwd(
    grad: Tensor, scale: Tensor, kept: Tensor, shape: Shape, weight: Tensor | None, eps: float, from_result: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of input and weight. kept: the input, or the result."""
    if weight is None:
        return function(NORM, "rms_backward")(grad, scale, kept, shape, eps, *_flag(from_result)), None
    args = (grad, scale, kept, shape, weight, eps, *_flag(from_result))
    of_input, of_weight = function(NORM, "rms_backward_affine")(*args)
    return of_input, of_weight


def _flag(from_result: bool) -> tuple[bool, ...]:
    """The flag that says what was kept, for versions that take one."""
    return (from_result,) if is_memory_efficient() else ()
