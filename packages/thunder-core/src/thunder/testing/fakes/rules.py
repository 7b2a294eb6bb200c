"""When the fake takes a linear layer, and what it makes of it."""

from __future__ import annotations

from typing import Any

import torch

from thunder.extend import ClaimContext, No, TensorType, Yes, symbol

_fwd, _bwd = symbol("fake.linear_fwd"), symbol("fake.linear_bwd")


def check(cx: ClaimContext, input: TensorType, weight: TensorType, bias: TensorType | None = None) -> Yes | No:
    if weight.ndim != 2 or (bias is not None and bias.ndim != 1):
        return No("needs a matrix as weight and a vector as bias")
    if input.dtype not in ("float32", "float64"):
        return No(f"no kernel for {input.dtype}")
    if input.shape[-1] % 2:
        return No("needs an even number of input features")
    return Yes()


def lower(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return _fwd(input, weight, bias)


def forward(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
    wanted = (input.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad)
    return _fwd(input, weight, bias), (input, weight, wanted, bias is not None)


def backward(saved: Any, grad: torch.Tensor) -> Any:
    input, weight, wanted, has_bias = saved
    gradients = tuple(_bwd(grad, input, weight, wanted))
    return gradients if has_bias else gradients[:2]
