"""What the tests compare with: FP8 arithmetic written again, one number at a time, and an eager FP8 layer."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import torch
from torch import Tensor, nn

BITS = {"E4M3": (3, -6, 448.0), "E5M2": (2, -14, 57344.0)}
"""Of each format: bits of the mantissa, exponent of the least normal number, largest value."""


def rounded(x: float, form: str) -> float:
    """The FP8 number next to ``x`` (ties to even), saturated."""
    bits, least, largest = BITS[form]
    if x == 0 or math.isnan(x):
        return x
    exponent = max(math.frexp(abs(x))[1] - 1, least) if math.isfinite(x) else 0
    step = Fraction(2) ** (exponent - bits)
    value = float(round(Fraction(abs(x)) / step) * step) if math.isfinite(x) else largest
    return math.copysign(min(value, largest), x)


def float32(x: float) -> float:
    """``x`` rounded to float32; infinite if it is too large."""
    try:
        return struct.unpack("f", struct.pack("f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


class History:
    """Delayed scaling of one tensor, in Python floats."""

    def __init__(self, steps: int, largest: float, margin: int = 0, algorithm: str = "max") -> None:
        self.values = [0.0] * steps
        self.scale = 1.0
        self.largest, self.margin, self.algorithm = largest, margin, algorithm

    def step(self, amax: float) -> None:
        """The end of a step in which ``amax`` was seen; nothing if it is zero."""
        if amax == 0:
            return
        self.values[0] = amax
        chosen = max(self.values) if self.algorithm == "max" else amax
        if math.isfinite(chosen):
            scale = float32(float32(self.largest / chosen) / 2**self.margin)
            self.scale = scale if math.isfinite(scale) else struct.unpack("f", b"\xff\xff\x7f\x7f")[0]
        self.values = [*self.values[1:], self.values[0]]
        self.values[0] = 0.0


def cast(t: Tensor, scale: float, form: str) -> Tensor:
    """A float32 tensor scaled, rounded to FP8 and scaled back, in float64."""
    scaled = (t.float() * scale).flatten().tolist()
    return torch.tensor([rounded(x, form) for x in scaled], dtype=torch.float64).reshape(t.shape) / scale


class Layer(nn.Linear):
    """A linear layer in FP8 with delayed scaling, in eager mode: products in float64."""

    def __init__(self, inputs: int, outputs: int, steps: int, margin: int = 0, bias: bool = True) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.of_input, self.of_weight = (History(steps, 448.0, margin) for _ in range(2))
        self.of_grad = History(steps, 57344.0, margin)

    def forward(self, x: Tensor) -> Tensor:
        out = _Product.apply(x, self.weight, self)
        if torch.is_grad_enabled():
            self.of_input.step(x.abs().max().item())
            self.of_weight.step(self.weight.abs().max().item())
        return out if self.bias is None else out + self.bias


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, layer):
        ctx.layer = layer
        x8 = cast(x, layer.of_input.scale, "E4M3")
        w8 = cast(weight, layer.of_weight.scale, "E4M3")
        ctx.save_for_backward(x8, w8)
        return (x8 @ w8.t()).float()

    @staticmethod
    def backward(ctx, grad):
        x8, w8 = ctx.saved_tensors
        g8 = cast(grad, ctx.layer.of_grad.scale, "E5M2")
        ctx.layer.of_grad.step(grad.abs().max().item())
        return (g8 @ w8).float(), (g8.flatten(0, -2).t() @ x8.flatten(0, -2)).float(), None
