"""Micro-benchmark of the functional front end: ``python tests/core/frontends/bench_guards.py``.

Prints what dispatch adds to a call of ``sin(x) + 1``, and what guards cost for each parameter of a stack of linears.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import thunder
from thunder.frontends.binding import bind
from thunder.frontends.guards import compile_guard


def best(fn: Callable[[], Any], *, runs: int, rounds: int = 7) -> float:
    """Seconds of one call: the best of several rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(runs):
            fn()
        times.append((time.perf_counter() - start) / runs)
    return min(times)


def dispatch() -> None:
    def eager(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    x = torch.randn(16)
    jitted = thunder.jit(eager, frontend="functional")
    jitted(x)
    entry = jitted._cache.entries[0]
    guard = best(lambda: entry.guard((x,), {}), runs=20_000)
    whole, plain = best(lambda: jitted(x), runs=20_000), best(lambda: eager(x), runs=20_000)
    print(f"sin(x)+1: guard {guard * 1e6:.2f} µs, eager {plain * 1e6:.2f} µs, adds {(whole - plain) * 1e6:+.2f} µs")


def parameters(count: int) -> None:
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(count // 2)])
    x = torch.randn(4, 4)
    start = time.perf_counter()
    binding, inputs = bind(model.forward, (x,), {})
    bound = time.perf_counter()
    guard = compile_guard(binding.guards, [given.value for given in inputs])
    compiled = time.perf_counter()
    call = best(lambda: guard((x,), {}), runs=200_000 // count)
    print(
        f"{count:5} parameters: guard {call / count * 1e9:.0f} ns for each; "
        f"binding {(bound - start) * 1e3:.1f} ms, generating {(compiled - bound) * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    dispatch()
    for size in (8, 128, 1024):
        parameters(size)
