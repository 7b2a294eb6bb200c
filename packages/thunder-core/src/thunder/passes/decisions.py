"""What was measured, kept in a file for later processes on the same machine."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from filelock import FileLock

MARGIN = 1.05
"""How many times the fastest's time a candidate may take that comes before it in the user's order."""


class Cost(NamedTuple):
    """What one call costs: seconds, and the bytes that it saves for backward."""

    seconds: float
    saved: int = 0


@dataclass(frozen=True)
class Decision:
    """Who runs one call, or one region.

    what, signature: the symbol and its arguments with their types. chosen: the label of the candidate.
    costs: of each candidate by label; empty where the order decided, because of ``why``.
    origin: where the costs come from.
    """

    what: str
    signature: str
    chosen: str
    costs: Mapping[str, Cost]
    origin: Literal["measured", "kept", "order"]
    why: str = ""

    def __str__(self) -> str:
        times = ", ".join(f"{label} {cost.seconds * 1e6:.1f} us" for label, cost in self.costs.items())
        return f"{self.what}{self.signature} runs on {self.chosen}: {times or self.why}"

    def told(self, label: str) -> str:
        """What a candidate costs, for people, beside the one that is chosen."""
        own, best = self.costs[label], self.costs[self.chosen]
        if own.seconds <= best.seconds:
            return f"saves {own.saved} bytes for backward, {self.chosen} {best.saved}"
        return f"{own.seconds * 1e6:.4g} us, {self.chosen} {best.seconds * 1e6:.4g} us"


def cheapest(labels: Sequence[str], costs: Mapping[str, Cost], trade_memory: bool) -> str:
    """The first of the labels, which are in the user's order, that is not slower than the fastest beyond noise.

    The last label is what PyTorch itself does. Unless memory may be traded, what saves more than that is left out.
    """
    native = costs[labels[-1]]
    allowed = [label for label in labels if trade_memory or costs[label].saved <= native.saved]
    fastest = min(costs[label].seconds for label in allowed)
    return next(label for label in allowed if costs[label].seconds <= MARGIN * fastest)


def _cost(seconds: float, saved: int) -> Cost:
    """A cost from a file. Raises ValueError or TypeError for what is none."""
    if not (seconds >= 0 and saved >= 0):
        raise ValueError(f"{seconds} s and {saved} bytes are no cost")
    return Cost(seconds, saved)


class Store:
    """Costs by group (the executors with their versions and settings) and call, in one file for each kind of machine.

    A file that cannot be read costs a warning, and the measurements are made again. One that cannot be written costs
    one warning: no other measurement of the process is kept there.
    """

    def __init__(self, path: Path, machine: Mapping[str, Any]) -> None:
        self._path = path
        self._machine = dict(machine)
        self._writable = True
        self._known: dict[str, dict[str, dict[str, Cost]]] = {}
        self._merge(self._read())

    def find(self, group: str, call: str) -> Mapping[str, Cost] | None:
        """The costs of a call's candidates; None if they were never measured."""
        return self._known.get(group, {}).get(call)

    def add(self, group: str, call: str, costs: Mapping[str, Cost], *, lasting: bool = True) -> None:
        """Keep what was measured: in the file, together with what others wrote there meanwhile, if it is to last."""
        new = {group: {call: dict(costs)}}
        self._merge(new)
        if not (lasting and self._writable):
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock"):
                kept = self._read()
                kept.setdefault(group, {})[call] = dict(costs)
                self._write(kept)
        except OSError as error:
            self._writable = False
            warnings.warn(
                f"measurements are not kept in {self._path}: {error}. Set THUNDER_CACHE_DIR to a folder for them",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        self._merge(kept)

    def _merge(self, found: Mapping[str, Mapping[str, dict[str, Cost]]]) -> None:
        for group, calls in found.items():
            self._known.setdefault(group, {}).update(calls)

    def _read(self) -> dict[str, dict[str, dict[str, Cost]]]:
        try:
            groups = json.loads(self._path.read_text())["costs"]
            return {
                group: {call: {label: _cost(*cost) for label, cost in costs.items()} for call, costs in calls.items()}
                for group, calls in groups.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            warnings.warn(f"measurements in {self._path} are made again: {error!r}", RuntimeWarning, stacklevel=2)
            return {}

    def _write(self, groups: Mapping[str, Any]) -> None:
        """Replace the file as a whole: a reader sees the old one or the new one."""
        text = json.dumps({"machine": self._machine, "costs": groups}, indent=1)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, self._path)


def store() -> Store:
    """The store of this machine, with the present number of threads.

    It lies in ``THUNDER_CACHE_DIR``, else in ``thunder`` under ``XDG_CACHE_HOME`` or ``~/.cache``.
    """
    machine = machine_key()
    name = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]
    return _store(_folder() / f"measured-{name}.json", tuple(machine.items()))


@functools.cache
def _store(path: Path, machine: tuple[tuple[str, Any], ...]) -> Store:
    return Store(path, dict(machine))


def machine_key() -> dict[str, Any]:
    """What times depend on besides the call and the executors."""
    return {
        "torch": torch.__version__,
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }


@functools.cache
def _cpu() -> str:
    """The model of the CPU: Linux tells it in a file, others through ``platform``."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    told = dict(line.replace("\t", "").split(":", 1) for line in lines if ":" in line)
    return " ".join(told.get(key, "").strip() for key in ("model name", "cpu family", "model")).strip()


def _folder() -> Path:
    if own := os.environ.get("THUNDER_CACHE_DIR"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thunder"
