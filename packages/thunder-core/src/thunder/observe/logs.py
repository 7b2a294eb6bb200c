"""Logging through the standard library, under ``thunder``.

``TORCH_LOGS="thunder"`` shows a line per compilation, the cause of each recompilation, what runs eagerly, and what
measuring decides;
``TORCH_LOGS="+thunder"`` adds the traces of every stage and who runs each operation. PyTorch imports the packages of
``thunder`` to know their loggers while it is itself half imported, so no package here may import torch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from thunder.ir.trace import Stage, Trace
from thunder.observe.history import Note
from thunder.passes.chains import title
from thunder.plugins import registry

if TYPE_CHECKING:
    from thunder.runtime.program import CompilationRecord

compiles = logging.getLogger("thunder.compiles")
traces = logging.getLogger("thunder.traces")
claims = logging.getLogger("thunder.claims")


def report(record: CompilationRecord) -> None:
    """Logs one finished compilation (summary at INFO, the rest at DEBUG) and tells the plugins that observe."""
    if compiles.isEnabledFor(logging.INFO):
        compiles.info("%s", _summary(record))
    every = [*record.traces, *record.backward_traces]
    if traces.isEnabledFor(logging.DEBUG):
        for trace in every:
            traces.debug("%s", trace)
    if claims.isEnabledFor(logging.DEBUG):
        for line in _claim_lines(every):
            claims.debug("%s", line)
    registry().compiled(record)


def log_note(note: Note) -> None:
    """Logs a recompilation, or what runs outside the compiler, at INFO."""
    compiles.info("%s", note)


def _summary(record: CompilationRecord) -> str:
    back = f", backward {len(record.backward_traces[-1].ops)}" if record.backward_traces else ""
    return (
        f"compiled {record.name}: {len(record.traces[-1].ops)} operations{back}, in {sum(record.times.values()):.3f} s"
    )


def _claim_lines(every: list[Trace]) -> list[str]:
    lines = []
    for trace in every:
        if trace.stage is not Stage.SELECTED:
            continue
        for op in trace.ops:
            if op.selection is not None:
                refusals = "".join(
                    f"; {refusal.executor} refused: {refusal.reason}" for refusal in op.selection.refusals
                )
                lines.append(f"{op.source or '?'}: {title(op)} runs on {op.selection.executor}{refusals}")
    return lines
