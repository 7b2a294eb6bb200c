"""Tables as Markdown for people and JSON for programs."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import thunder
from benchmarks.harness import Row, Table


def environment() -> dict[str, str]:
    """What the numbers depend on."""
    models = [line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "torch": version("torch"),
        "thunder": thunder.__version__,
        "python": platform.python_version(),
        "processor": models[0] if models else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def markdown(table: Table) -> str:
    """One table, with a column of targets if it has any."""
    targets = any(row.target is not None for row in table.rows)
    head = ["", f"median, {table.unit}", f"minimum, {table.unit}", *(["at most", "met"] if targets else [])]
    lines = [f"### {table.title}", "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(_cells(row, targets))} |" for row in table.rows]
    return "\n".join([*lines, "", *([table.note, ""] if table.note else [])])


def _cells(row: Row, targets: bool) -> list[str]:
    cells = [row.subject, f"{row.median:.3g}", f"{row.minimum:.3g}"]
    if not targets:
        return cells
    if row.target is None:
        return [*cells, "", ""]
    return [*cells, f"{row.target:.3g}", "yes" if row.median <= row.target else "no"]


def write(tables: dict[str, list[Table]], failures: dict[str, str], folder: Path) -> None:
    """Write ``results.md`` and ``results.json``: what was measured, where, and what could not be."""
    folder.mkdir(parents=True, exist_ok=True)
    where = environment()
    head = ["# Benchmarks", "", ", ".join(f"{name} {value}" for name, value in where.items()) + ", one thread", ""]
    body = [markdown(table) for measured in tables.values() for table in measured]
    failed = [f"**{name}** could not be measured:\n\n```\n{why}\n```\n" for name, why in failures.items()]
    (folder / "results.md").write_text("\n".join([*head, *body, *failed]))
    cases = {name: [asdict(table) for table in measured] for name, measured in tables.items()}
    data = {"environment": where, "cases": cases, "failures": failures}
    (folder / "results.json").write_text(json.dumps(data, indent=2) + "\n")
