"""Which of several callables is the fastest: their times, robust to the noise of a busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from thunder.ir.types import TensorType

Clock = Callable[[], float]
Run = Callable[[], Any]

SAMPLE = 50e-6
"""Seconds that one sample takes at least: a short call is repeated, so that reading the clock does not count."""
ENOUGH = 10e-3
"""Seconds of samples of one candidate after which more of them tell nothing new."""
LEAST, MOST = 5, 40
"""Rounds of samples, in each of which every candidate has its turn."""
LONG, FEW = 20e-3, 2
"""Noise is small beside a call that takes this many seconds: so many rounds are enough for it."""
HOPELESS = 2.0
"""A candidate this many times slower than the fastest after a few rounds gets no more turns."""


def race(candidates: Mapping[str, Run], clock: Clock, seconds: float) -> dict[str, float] | None:
    """Seconds that one call of each candidate takes: the least of many samples, since noise only ever adds.

    The candidates take turns, so that a slow spell of the machine meets all of them. None if that would take longer
    than ``seconds``; what ran to find that out is at most one call of each, or two if they are short.
    """
    start, once = clock(), {}
    for label, run in candidates.items():
        once[label] = _warm(run, clock)
        if clock() - start > seconds:
            return None
    repeats = {label: max(1, round(SAMPLE / max(t, 1e-9))) for label, t in once.items()}
    least = LEAST if min(once.values()) < LONG else FEW
    if least * sum(repeats[label] * t for label, t in once.items()) > seconds - (clock() - start):
        return None
    best, running, begun = dict(once), dict(candidates), clock()
    for played in range(1, MOST + 1):
        for label, run in running.items():
            best[label] = min(best[label], _sample(run, repeats[label], clock))
        if played < least:
            continue
        fastest = min(best.values())
        running = {label: run for label, run in running.items() if best[label] < HOPELESS * fastest}
        if len(running) == 1 or clock() - begun > ENOUGH * len(candidates):
            break
    return best


def _warm(run: Run, clock: Clock) -> float:
    """The time of the second call, since the first makes what is made once; for long calls that does not count."""
    first = _sample(run, 1, clock)
    return first if first >= LONG else _sample(run, 1, clock)


def _sample(run: Run, repeats: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repeats):
        run()
    return (clock() - start) / repeats


def clock_for(types: Iterable[TensorType]) -> Clock:
    """A clock that waits for the device of the tensors before it is read."""
    if all(type.device == "cpu" for type in types):
        return time.perf_counter

    def synchronised() -> float:
        torch.accelerator.synchronize()
        return time.perf_counter()

    return synchronised


def random_tensors(types: Iterable[TensorType]) -> list[torch.Tensor]:
    """Tensors of the types, the same each time: normal values, and zeros and ones where they are integers.

    Zeros and ones are valid as indices and as classes. The caller's generators are not touched.
    """
    return [_random(type) for type in types]


def _random(type: TensorType) -> torch.Tensor:
    if type.stride is None or type.device == "meta":
        raise TypeError(f"no values for {type}")
    dtype = getattr(torch, type.dtype)
    generator = torch.Generator(type.device).manual_seed(0)
    extent = 1 + sum((n - 1) * step for n, step in zip(type.shape, type.stride)) if type.numel else 0
    size = min(extent, 1 << 20)  # random numbers cost more than what is measured: a large tensor repeats them
    if dtype.is_floating_point or dtype.is_complex:
        made = torch.complex64 if dtype.is_complex else torch.float32
        values = torch.randn(size, generator=generator, device=type.device, dtype=made).to(dtype)
    else:
        values = torch.randint(0, 2, (size,), generator=generator, device=type.device).to(dtype)
    if size < extent:
        values = values.repeat(-(-extent // size))
    return values.as_strided(type.shape, type.stride)
