"""The time of ``import thunder``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from benchmarks.harness import Case, Row, Table

TARGET_MS = 50.0
ROUNDS = 7
PROBE = """
import sys, time
start = time.perf_counter()
import {module}
print((time.perf_counter() - start) * 1e3, "torch" in sys.modules)
"""


def import_time(module: str) -> tuple[float, bool]:
    """Milliseconds of one import in a fresh interpreter, and whether it brought torch along."""
    command = [sys.executable, "-c", PROBE.format(module=module)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    milliseconds, torch_too = text.split()
    return float(milliseconds), torch_too == "True"


def imports(quick: bool) -> Iterable[Table]:
    rounds = 3 if quick else ROUNDS
    thunder, torch = zip(*((import_time("thunder"), import_time("torch")) for _ in range(rounds)))
    rows = (
        Row.of("import thunder", [ms for ms, _ in thunder], TARGET_MS),
        Row.of("import torch", [ms for ms, _ in torch]),
    )
    brought = "torch along" if any(torch_too for _, torch_too in thunder) else "no torch along"
    yield Table(title="Import", unit="ms", rows=rows, note=f"`import thunder` brings {brought}.")


CASES = (Case("import", imports),)
