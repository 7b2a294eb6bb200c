"""First call: compile a GPT and run its first training step, in a fresh process each time."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.harness import Case, Row, Table, in_child, ratios, seconds
from benchmarks.models import gpt
from benchmarks.subjects import SLOW, SUBJECTS, subjects
from benchmarks.workload import training_step, warm_up

ROUNDS = 3
TARGETS = {"thunder functional": 0.4, "thunder dynamo": 1.5}
GROWTH_TARGET = 4.5


def first_step(subject: str, layers: int, warm: bool = True) -> float:
    """Seconds from the untouched module to the end of its first training step. Runs in a child."""
    if warm:
        warm_up()
    module, args = gpt(layers)
    return seconds(lambda: training_step(SUBJECTS[subject](module), module, args)())


def _measure(names: list[str], layers: tuple[int, ...], warm: bool = True) -> dict[tuple[str, int], list[float]]:
    """Samples by subject and number of layers, in turns; what is slow runs once."""
    samples: dict[tuple[str, int], list[float]] = {(name, n): [] for name in names for n in layers}
    for turn in range(ROUNDS):
        for name, n in samples:
            if turn == 0 or name not in SLOW:
                samples[name, n].append(in_child("benchmarks.first_call:first_step", subject=name, layers=n, warm=warm))
    return samples


def warm(quick: bool) -> Iterable[Table]:
    samples = _measure(subjects(quick), (12,))
    rows = tuple(Row.of(name, values, TARGETS.get(name)) for (name, _), values in samples.items())
    yield Table(title="First training step of a 12-layer GPT, warm process", unit="s", rows=rows)


def cold(quick: bool) -> Iterable[Table]:
    samples = _measure(subjects(quick), (12,), warm=False)
    rows = tuple(Row.of(name, values) for (name, _), values in samples.items())
    note = "torch and thunder are imported; everything they load on first use counts."
    yield Table(title="First training step of a 12-layer GPT, cold process", unit="s", rows=rows, note=note)


def growth(quick: bool) -> Iterable[Table]:
    names = [name for name in subjects(quick=True) if name != "eager"]
    samples = _measure(names, (12, 48))
    rows = tuple(
        Row.of(name, ratios(samples[name, 48], samples[name, 12]), GROWTH_TARGET if "functional" in name else None)
        for name in names
    )
    yield Table(title="First training step, 48 layers over 12", unit="x", rows=rows)


CASES = (Case("first_call", warm), Case("first_call_cold", cold), Case("growth", growth))
