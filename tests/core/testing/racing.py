"""Executors that run linear layers slower or faster than others, for measured selection to tell apart.

A way to run one is named after how often it does the work. ``once`` does it for one row, where all rows are equal: that
is faster than PyTorch can be.
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.extend import Claim, ClaimContext, Executor, Grad, No, Op, Option, TensorType, Yes, symbol

_HERE = __name__
ROUNDS = {"once": 1, "plain": 1, "twice": 2, "often": 8}


def racer(name: str, *ways: str, saves_more: bool = False) -> Executor:
    """An executor that runs linear layers in these ways."""
    return Executor(
        name=name,
        symbols=(
            Op(f"{name}.linear", impl=f"{_HERE}:linear", meta=f"{_HERE}:meta"),
            Op(f"{name}.of_input", impl=f"{_HERE}:of_input", meta=f"{_HERE}:product"),
            Op(f"{name}.of_weight", impl=f"{_HERE}:of_weight", meta=f"{_HERE}:outer"),
        ),
        claims=(
            Claim(
                "torch.nn.functional.linear",
                check=f"{_HERE}:check",
                lower=f"{_HERE}:lower",
                grad=Grad(forward=f"{_HERE}:forward", backward=f"{_HERE}:backward"),
            ),
        ),
        options=(
            Option("name", str, name, "its own name"),
            Option("ways", str, ",".join(ways), "the ways in which it runs a call"),
            Option("saves_more", bool, saves_more, "whether it saves more for backward than it needs"),
        ),
    )


def linear(input: torch.Tensor, weight: torch.Tensor, way: str) -> torch.Tensor:
    if way == "once":
        return (input[:1] @ weight.t()).expand(input.shape[0], -1).contiguous()
    for _ in range(ROUNDS[way]):
        out = input @ weight.t()
    return out


def meta(input: torch.Tensor, weight: torch.Tensor, way: str) -> torch.Tensor:
    return input @ weight.t()


def of_input(grad: torch.Tensor, weight: torch.Tensor, way: str) -> torch.Tensor:
    for _ in range(ROUNDS[way]):
        out = grad @ weight
    return out


def of_weight(grad: torch.Tensor, input: torch.Tensor, way: str) -> torch.Tensor:
    if way == "once":
        return torch.outer(grad.sum(0), input[0])
    for _ in range(ROUNDS[way]):
        out = grad.t() @ input
    return out


def product(a: torch.Tensor, b: torch.Tensor, way: str) -> torch.Tensor:
    return a @ b


def outer(grad: torch.Tensor, input: torch.Tensor, way: str) -> torch.Tensor:
    return grad.t() @ input


def check(cx: ClaimContext, input: TensorType, weight: TensorType, bias: TensorType | None = None) -> Yes | No:
    if bias is not None or input.ndim != 2:
        return No("takes a matrix and no bias")
    ways = cx.options["ways"].split(",")
    if "once" in ways and (input.stride is None or input.stride[0] != 0):
        return No("the rows are not one row")
    return Yes(candidates=tuple(ways)) if len(ways) > 1 else Yes(ways[0])


def lower(input: torch.Tensor, weight: torch.Tensor, bias: None = None, *, cx: ClaimContext) -> torch.Tensor:
    return symbol(f"{cx.options['name']}.linear")(input, weight, cx.choice or cx.options["ways"])


def forward(input: torch.Tensor, weight: torch.Tensor, bias: None = None, *, cx: ClaimContext) -> Any:
    way = cx.choice or cx.options["ways"]
    more = (input + 1,) if cx.options["saves_more"] else ()
    return lower(input, weight, cx=cx), (input, weight, way, cx.options["name"], *more)


def backward(saved: Any, grad: torch.Tensor) -> Any:
    input, weight, way, name, *more = saved
    if more:
        grad = grad + 0 * more[0].sum()
    return symbol(f"{name}.of_input")(grad, weight, way), symbol(f"{name}.of_weight")(grad, input, way)


def samples(device: str, dtype: torch.dtype) -> list[tuple[tuple[torch.Tensor, ...], dict[str, Any]]]:
    """Calls that every way but ``once`` can run."""
    return [((torch.randn(3, 4, device=device, dtype=dtype), torch.randn(5, 4, device=device, dtype=dtype)), {})]
