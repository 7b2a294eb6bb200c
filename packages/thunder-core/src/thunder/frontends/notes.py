"""Why a program was compiled again or left the compiler, in a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.utils import get_metrics_context

from thunder.capture.source import warn_at
from thunder.errors import ThunderError
from thunder.ir.symbol import Source
from thunder.observe.history import Note
from thunder.runtime.driver import Settings


def recompile() -> Note | None:
    """Why Dynamo traces the program again, asked while it does so; None the first time."""
    reason = getattr(get_metrics_context(), "_metrics", {}).get("recompile_reason")  # Dynamo has no public way
    if reason is None:
        return None
    guard = reason.split("\n")[0].split("  # ")[0].strip()  # behind it Dynamo quotes its own and the user's source
    return Note("recompile", None, guard.partition(": ")[2])


def specialised(
    names: Sequence[str], args: Sequence[Any], settings: Settings, unlike: Iterable[str | None] = ()
) -> Note:
    """Why a graph is compiled again for these arguments. unlike: what the programs for many sizes ask of sizes."""
    sizes = [f"{name} = {arg}" for name, arg in zip(names, args) if not isinstance(arg, torch.Tensor)]
    keys = [
        f"key of {executor.name} = {executor.key(settings.options.get(executor.name, {}))!r}"
        for executor in settings.executors
        if executor.cache_key
    ]
    tests = [f"not {test}" for test in dict.fromkeys(unlike) if test is not None]
    return Note("recompile", None, ", ".join([*sizes, *tests, *keys]) or "which of the inputs share storage")


def by_size(failure: Exception, line: Source | None) -> Note:
    """Why a graph is compiled anew for each size."""
    return Note("by size", line, f"{type(failure).__name__}: {failure}")


def graph_break(gm: fx.GraphModule) -> Note | None:
    """Why Dynamo ended this graph, if the program goes on behind it."""
    end = getattr(gm, "compile_subgraph_reason", None)
    if end is None or not end.graph_break:
        return None
    reason = "a branch on tensor data" if end.reason.startswith("generic_jump") else end.reason.split("\n")[0]
    frame = end.user_stack[-1] if end.user_stack else None
    return Note("graph break", Source(frame.filename, frame.lineno or 0, frame.line or "") if frame else None, reason)


def eager(failure: Exception, line: Source | None) -> Note:
    """Why a graph runs without the compiler, warned about at the user's line, since nobody asked for that."""
    reason = f"{type(failure).__name__}: {failure}"
    if isinstance(failure, ThunderError):
        reason = ": ".join(filter(None, (failure.what, failure.why)))
    warn_at(
        line,
        f"a part of the program runs eagerly, since it could not be compiled: {reason}\n"
        'THUNDER_STRICT=1 makes this an error with its traceback; TORCH_LOGS="+thunder" shows what was compiled.',
    )
    return Note("eager", line, reason)
