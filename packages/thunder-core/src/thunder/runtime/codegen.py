"""From trace to function: the printed program is executed as it stands, and failures are told in the user's terms."""

from __future__ import annotations

import itertools
import linecache
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from thunder.errors import ExecutionError
from thunder.ir.printer import render
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace

_LINES = "__thunder_lines__"
_serial = itertools.count()


def compile_trace(trace: Trace, fused: Callable[[BoundSymbol], Callable[..., Any]] | None = None) -> Callable[..., Any]:
    """The function that ``program_text(trace)`` defines; it takes the trace's parameters by position.

    fused: finds what runs a fused operation; without it, its operations run one by one, as the text says.
    Its source is known to ``linecache`` (so debuggers and tracebacks show it) for as long as the function lives, and
    the trace is its attribute ``__thunder_trace__``.
    """
    program = render(trace)
    text = program.definition
    filename = f"<thunder {trace.name} {next(_serial)}>"
    namespace: dict[str, Any] = {"__name__": filename, _LINES: program.lines}
    exec(compile(text, filename, "exec"), namespace)
    namespace.update(program.supplied)
    if fused is not None:
        namespace.update({name: fused(op) for name, op in program.regions.items()})
    fn = namespace.pop(trace.name)  # the function refers to its namespace: without a cycle it dies with its last user
    fn.__thunder_trace__ = trace
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    weakref.finalize(fn, linecache.cache.pop, filename, None).atexit = False
    return fn


def explained(exc: Exception) -> Exception:
    """What to raise for an error under a compiled trace: it names the failed operation, its executor, the user's line.

    Errors of PyTorch itself stay what they are in eager mode, with a note. Costs nothing while nothing fails: it reads
    the traceback. Of nested compiled functions the innermost counts.
    """
    op = _failed(exc.__traceback__)
    if op is None:
        return exc
    executor = op.selection.executor if op.selection else "torch"
    if executor in ("torch", "python") or op.fused is not None:  # a region that fails runs as PyTorch's own operations
        if op.source and hasattr(exc, "add_note"):  # Python 3.11
            exc.add_note(f"  in {op.sym}, called at {op.source}   {op.source.text.strip()}".rstrip())
        return exc
    error = ExecutionError(
        f"{op.sym} failed, run by {executor}",
        where=f"{op.source}   {op.source.text.strip()}".rstrip() if op.source else "",
        why=f"{type(exc).__name__}: {exc}",
        fix=f"run without this executor: executors=[..., '-{executor}']",
    )
    error.__cause__ = exc
    return error


def _failed(traceback: TracebackType | None) -> BoundSymbol | None:
    found = None
    while traceback is not None:
        lines = traceback.tb_frame.f_globals.get(_LINES)
        op = lines.get(traceback.tb_lineno) if lines is not None else None
        found = op if op is not None and (op.source or found is None) else found
        traceback = traceback.tb_next
    return found
