"""Programs over one matrix of any size, made of steps from a matrix to a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

Step = Callable[[Tensor], Tensor]

STEPS: dict[str, Step] = {
    "sin": torch.sin,
    "scaled": lambda x: x * 0.5 + 1,
    "scaled by its size": lambda x: x * x.shape[0] / (x.shape[1] + 1) - x.numel(),
    "where": lambda x: torch.where(x > 0, x, x.exp()),
    "transposed": lambda x: x.t(),
    "without a row": lambda x: x[1:],
    "without a column": lambda x: x[:, :-1],
    "half": lambda x: x[:, : x.shape[1] // 2],
    "doubled": lambda x: torch.cat([x, x.cos()]),
    "padded": lambda x: F.pad(x, (1, 0)),
    "reshaped": lambda x: x.reshape(x.shape[1], x.shape[0]),
    "flattened": lambda x: x.reshape(-1).square().reshape(x.shape),
    "outer": lambda x: x.sum(1, keepdim=True) + x[:1],
    "centred": lambda x: x - x.mean(0, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "normalised": lambda x: F.layer_norm(x, x.shape[-1:]),
    "counted": lambda x: x + torch.arange(x.shape[1]),
    "masked": lambda x: x * torch.ones(x.shape[0], x.shape[1]).tril(),
}

SIZES = st.tuples(st.integers(0, 6), st.integers(0, 6))


def program(names: Sequence[str]) -> Step:
    """The steps, one after the other."""

    def run(x: Tensor) -> Tensor:
        for name in names:
            x = STEPS[name](x)
        return x

    return run


def step(fn: Step, size: tuple[int, int]) -> list[Tensor]:
    """The result for a matrix of a size, and its gradient."""
    x = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    out = fn(x)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), x)]
