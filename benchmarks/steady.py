"""Steady state: the time of a training step, and the bytes autograd saves for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.harness import Case, Row, Table, in_child, interleaved, ratios
from benchmarks.models import gpt
from benchmarks.subjects import SUBJECTS, subjects
from benchmarks.workload import training_step

STEADY_TARGET = 1.03


def steps(names: list[str], rounds: int, layers: int) -> dict[str, list[float]]:
    """Seconds of a training step of each subject, on one and the same module. Runs in a child."""
    module, args = gpt(layers)
    actions = {name: training_step(SUBJECTS[name](module), module, args) for name in names}
    interleaved(actions, rounds=3)
    return interleaved(actions, rounds)


def saved_bytes(subject: str, layers: int) -> int:
    """``held_bytes`` of a GPT. Runs in a child."""
    module, args = gpt(layers)
    return held_bytes(SUBJECTS[subject](module), module, args)


def held_bytes(program: Any, module: nn.Module, args: tuple[Any, ...]) -> int:
    """Bytes of the storages that autograd holds after a forward call, without parameters and inputs."""
    program(*args).backward()
    known = {t.untyped_storage()._cdata for t in (*module.parameters(), *module.buffers(), *args)}
    held: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        held.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = program(*args)
    loss.backward()
    return sum(tensor.untyped_storage().nbytes() for key, tensor in held.items() if key not in known)


def steady(quick: bool) -> Iterable[Table]:
    names = subjects(quick)
    samples = in_child("benchmarks.steady:steps", names=names, rounds=10 if quick else 40, layers=12)
    milliseconds = tuple(Row.of(name, [s * 1e3 for s in samples[name]]) for name in names)
    yield Table(title="Training step of a 12-layer GPT", unit="ms", rows=milliseconds)
    over = tuple(
        Row.of(name, ratios(samples[name], samples["eager"]), STEADY_TARGET if name.startswith("thunder") else None)
        for name in names
    )
    yield Table(title="Training step of a 12-layer GPT over eager's", unit="x", rows=over)


def memory(quick: bool) -> Iterable[Table]:
    names = subjects(quick)
    sizes = {name: in_child("benchmarks.steady:saved_bytes", subject=name, layers=12) / 2**20 for name in names}
    rows = tuple(
        Row.of(name, [size], sizes["eager"] if name.startswith("thunder") else None) for name, size in sizes.items()
    )
    note = "Distinct storages packed by autograd during the forward call, without parameters and inputs."
    yield Table(title="Saved for backward, 12-layer GPT", unit="MiB", rows=rows, note=note)


CASES = (Case("steady", steady), Case("memory", memory))
