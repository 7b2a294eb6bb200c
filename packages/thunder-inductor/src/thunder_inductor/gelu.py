"""GELU in training: its derivative is made beside it, in one region, and is saved instead of its argument."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from thunder.extend import ClaimContext, No, TensorType, Yes


def check(cx: ClaimContext, input: TensorType, *, approximate: str = "none") -> Yes | No:
    """Where the derivative takes no more bytes than the argument, and is not rounded to fewer digits than it has."""
    if not cx.training:
        return No("it needs no gradient")
    if approximate != "tanh" or input.device != "cpu":
        return No("PyTorch's own kernel is faster")
    return Yes() if input.dtype == "float32" else No("the derivative would be rounded before it is used")


def forward(input: torch.Tensor, *, approximate: str = "none") -> tuple[torch.Tensor, tuple[torch.Tensor]]:
    """GELU, and its derivative to save."""
    derivative = torch.ops.aten.gelu_backward(torch.ones_like(input), input, approximate=approximate)
    return F.gelu(input, approximate=approximate), (derivative,)


def backward(saved: tuple[torch.Tensor], grad: torch.Tensor) -> torch.Tensor:
    """The gradient of the argument."""
    (derivative,) = saved
    return grad * derivative
