"""Overhead per call: of a tiny program, and of the guards on parameters."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from itertools import chain

import torch
from torch import Tensor, nn

from benchmarks.harness import Case, Row, Table, differences, in_child, interleaved, ratios
from benchmarks.subjects import SUBJECTS, subjects

EXTRA_TARGET_US, BACKWARD_TARGET, GUARD_TARGET_US = 4.0, 1.6, 0.25
REPEAT = 500


def tiny(x: Tensor) -> Tensor:
    return torch.sin(x) + 1


def forward(names: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of one call of each subject on an input that needs no gradient. Runs in a child."""
    x = torch.randn(4)

    def call(program: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        return lambda: program(x)

    actions = {name: call(SUBJECTS[name](tiny)) for name in names}
    interleaved(actions, rounds=2, repeat=REPEAT)
    return interleaved(actions, rounds, REPEAT)


def forward_backward(names: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of one call and its back-propagation. Runs in a child."""
    x, gradient = torch.randn(4, requires_grad=True), torch.ones(4)

    def step(program: Callable[[Tensor], Tensor]) -> Callable[[], object]:
        def run() -> None:
            program(x).backward(gradient)
            x.grad = None

        return run

    actions = {name: step(SUBJECTS[name](tiny)) for name in names}
    interleaved(actions, rounds=2, repeat=REPEAT)
    return interleaved(actions, rounds, REPEAT)


def straight_line(linears: list[nn.Linear]) -> Callable[[Tensor], Tensor]:
    """What a compiled stack of linears computes, with nothing around it: parameters in, result out."""
    weights = list(chain.from_iterable((layer.weight, layer.bias) for layer in linears))
    names = [f"p{i}" for i in range(len(weights))]
    calls = [f"    x = linear(x, {w}, {b})" for w, b in zip(names[::2], names[1::2])]
    text = "\n".join([f"def run(x, {', '.join(names)}):", *calls, "    return x"])
    space: dict[str, Callable[..., Tensor]] = {"linear": torch.nn.functional.linear}
    exec(text, space)  # a program as long as the stack is deep: what the compiler writes, too
    run = space["run"]
    return lambda x: run(x, *weights)


@torch.no_grad()
def guards(depths: list[int], rounds: int) -> dict[str, list[float]]:
    """Seconds of a call of a stack of linears, ``"compiled DEPTH"`` and ``"alone DEPTH"``. Runs in a child."""
    actions: dict[str, Callable[[], object]] = {}
    for depth in depths:
        actions[f"compiled {depth}"], actions[f"alone {depth}"] = _stack(depth)
    interleaved(actions, rounds=2, repeat=20)
    return interleaved(actions, rounds, repeat=20)


def _stack(depth: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A stack of linears, compiled and as its computation alone; both give the same."""
    linears = [nn.Linear(4, 4) for _ in range(depth)]
    x, compiled, alone = (
        torch.randn(2, 4),
        SUBJECTS["thunder functional"](nn.Sequential(*linears)),
        straight_line(linears),
    )
    assert torch.equal(compiled(x), alone(x))
    return lambda: compiled(x), lambda: alone(x)


def slope(points: dict[int, float]) -> float:
    """Least-squares slope of values over their keys."""
    x_mean, y_mean = sum(points) / len(points), sum(points.values()) / len(points)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in points.items())
    return covariance / sum((x - x_mean) ** 2 for x in points)


def tiny_forward(quick: bool) -> Iterable[Table]:
    names = subjects(quick)
    samples = in_child("benchmarks.overhead:forward", names=names, rounds=10 if quick else 30)
    rows = [
        Row.of(
            name,
            [s * 1e6 for s in differences(samples[name], samples["eager"])],
            EXTRA_TARGET_US if name == "thunder functional" else None,
        )
        for name in names
        if name != "eager"
    ]
    rows = [Row.of("eager (whole call)", [s * 1e6 for s in samples["eager"]]), *rows]
    yield Table(title="sin(x) + 1, no gradient: extra per call over eager", unit="us", rows=tuple(rows))


def tiny_backward(quick: bool) -> Iterable[Table]:
    names = subjects(quick)
    samples = in_child("benchmarks.overhead:forward_backward", names=names, rounds=10 if quick else 30)
    rows = tuple(
        Row.of(
            name,
            ratios(samples[name], samples["eager"]),
            BACKWARD_TARGET if name == "thunder functional" else None,
        )
        for name in names
    )
    yield Table(title="sin(x) + 1, forward and backward, over eager's", unit="x", rows=rows)


def guard_cost(quick: bool) -> Iterable[Table]:
    depths = [4, 64, 512] if quick else [4, 16, 64, 128, 256, 512]
    samples = in_child("benchmarks.overhead:guards", depths=depths, rounds=15 if quick else 30)

    def per_parameter(summary: Callable[[list[float]], float]) -> float:
        return slope(
            {2 * n: 1e6 * (summary(samples[f"compiled {n}"]) - summary(samples[f"alone {n}"])) for n in depths}
        )

    row = Row(
        subject="thunder functional",
        median=per_parameter(statistics.median),
        minimum=per_parameter(min),
        target=GUARD_TARGET_US,
    )
    note = (
        f"Slope, over {2 * depths[0]} to {2 * depths[-1]} parameters, of the time of a call beyond its computation; "
        "once of the medians of both, once of their minima."
    )
    yield Table(title="Guards, per parameter and call", unit="us", rows=(row,), note=note)


CASES = (Case("tiny_forward", tiny_forward), Case("tiny_backward", tiny_backward), Case("guards", guard_cost))
