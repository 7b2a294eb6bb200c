"""How everything is measured: fresh processes with one thread, repetitions in turns, medians and minima."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number of one table.

    median, minimum: over the rounds, in the table's unit. target: what the number must not exceed, if anything.
    """

    subject: str
    median: float
    minimum: float
    target: float | None = None

    @classmethod
    def of(cls, subject: str, samples: Sequence[float], target: float | None = None) -> Row:
        return cls(subject=subject, median=statistics.median(samples), minimum=min(samples), target=target)


@dataclass(frozen=True, kw_only=True)
class Table:
    """The result of a case: rows of numbers in one unit (``"s"``, ``"x"``, ``"us"``, …)."""

    title: str
    unit: str
    rows: tuple[Row, ...]
    note: str = ""


@dataclass(frozen=True)
class Case:
    """A benchmark: ``run(quick)`` measures and gives its tables."""

    name: str
    run: Callable[[bool], Iterable[Table]]


def in_child(function: str, *, environment: Mapping[str, str] = ENVIRONMENT, **arguments: Any) -> Any:
    """The result of ``"module:function"`` called in a fresh interpreter; it must be JSON.

    environment: what is added to that of this process; one thread and no caches unless told otherwise.
    Raises RuntimeError with the end of what the child said if it fails.
    """
    command = [sys.executable, "-m", "benchmarks.child", function, json.dumps(arguments)]
    # Bytecode is cached, as it is for an installed package, whatever the environment says.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, env={**inherited, **environment}, check=False)
    if done.returncode:
        raise RuntimeError(f"{function}({arguments}) failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def seconds(action: Callable[[], object], repeat: int = 1) -> float:
    """Mean seconds of one of ``repeat`` calls in a row."""
    start = time.perf_counter()
    for _ in range(repeat):
        action()
    return (time.perf_counter() - start) / repeat


def interleaved(actions: Mapping[str, Callable[[], object]], rounds: int, repeat: int = 1) -> dict[str, list[float]]:
    """Seconds per call of each action, one sample per round; each round starts with another action."""
    names = list(actions)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            samples[name].append(seconds(actions[name], repeat))
    return samples


def ratios(samples: Sequence[float], base: Sequence[float]) -> list[float]:
    """Sample over base, round by round."""
    return [a / b for a, b in zip(samples, base)]


def differences(samples: Sequence[float], base: Sequence[float]) -> list[float]:
    """Sample minus base, round by round."""
    return [a - b for a, b in zip(samples, base)]
