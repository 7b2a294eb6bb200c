"""The text of a trace: a complete Python program. What is printed is what is saved, edited and run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from thunder.ir.deps import last_uses
from thunder.ir.spelling import Spelling
from thunder.ir.symbol import BoundSymbol, Source
from thunder.ir.trace import Stage, Trace
from thunder.ir.types import Number, NumberType, TensorType, Var, contiguous_strides

_FREEING = (Stage.LOWERED, Stage.SCHEDULED)
_INDENT = "    "
_RANDN = {"float64", "float32", "float16", "bfloat16", "complex64", "complex128"}


@dataclass(frozen=True)
class Program:
    """A trace as text.

    definition: all of the program but the block that runs it, with which it is its ``text``.
    lines: the operation on each line (counted from 1) that is a call.
    supplied: objects that no text spells, by the module-level name under which the program expects them.
    regions: an operation that calls it, by the name of each function that defines a fused region.
    """

    trace: Trace
    definition: str
    lines: dict[int, BoundSymbol]
    supplied: dict[str, Any]
    regions: dict[str, BoundSymbol]

    @property
    def text(self) -> str:
        """All of the program."""
        return "\n".join([self.definition, "", *_main(self.trace), ""])


def program_text(trace: Trace) -> str:
    """The trace as a Python program that runs: ``def name(params)``, and a main block with inputs of the right types.

    Each different fused region is a function of its own above it, which says what the region computes.
    Lowered traces free each value right after its last use. Raises VerifyError for an argument no expression spells.
    """
    return render(trace).text


def render(trace: Trace) -> Program:
    """The text of a trace with what is needed to run it and to explain a failure; see ``program_text``."""
    regions = {id(op.fused): op for op in trace.ops if op.fused is not None}
    fused = {key: op.fused for key, op in regions.items() if op.fused is not None}
    spelling = Spelling(trace, fused)
    body = list(_body(trace, spelling))
    functions = [line for key, region in fused.items() for line in _function(region, spelling, spelling.region(key))]
    made = f", made by {trace.made_by}" if trace.made_by else ""
    lines = [f"# {trace.name}: {trace.stage.value}{made}", *spelling.header(), "", "", *functions]
    lines.append(f"def {trace.name}({_signature(trace)}):")
    calls = {}
    for text, op in body:
        lines.append(_INDENT + text)
        if op:
            calls[len(lines)] = op
    definition = "\n".join(lines) + "\n"
    named = {spelling.region(key): op for key, op in regions.items()}
    return Program(trace, definition, calls, spelling.supplied(), named)


def _function(region: Trace, spelling: Spelling, name: str) -> Iterator[str]:
    """The lines of a function that runs a region one operation after the other."""
    yield f"def {name}({_signature(region)}):"
    yield from (_INDENT + text for text, _ in _body(region, spelling))
    yield from ("", "")


def _body(trace: Trace, spelling: Spelling) -> Iterator[tuple[str, BoundSymbol | None]]:
    """The lines of the function, each with the operation it runs, if any."""
    for param in trace.params:
        yield f"# {param.name}: {param.type}{', may be overwritten' if param in trace.spent else ''}", None
    if trace.boxed and trace.params:
        box = _box(trace)
        yield f"[{', '.join(param.name for param in trace.params)}] = {box}", None
        yield f"{box}.clear()", None
    last = last_uses(trace) if trace.stage in _FREEING else {}
    phases = {op.phase for op in trace.ops}
    phase, source = None, None
    for index, op in enumerate(trace.ops):
        if op.phase is not phase and len(phases) > 1:
            yield f"# {op.phase.value}", None
        if op.source and op.source != source:
            yield _source_line(op.source), None
        phase, source = op.phase, op.source or source
        yield _call_line(op, spelling), op
        dead = [var.name for var in dict.fromkeys(op.inputs + op.outputs) if last.get(var) == index]
        if dead:
            yield f"del {', '.join(dead)}", None
    yield f"return {spelling.value(trace.result)}", None


def _signature(trace: Trace) -> str:
    return _box(trace) if trace.boxed else ", ".join(param.name for param in trace.params)


def _box(trace: Trace) -> str:
    """The name of the list that the parameters of a boxed trace come in."""
    taken = {var.name for var in trace.variables()}
    return next(name for name in ("box", *(f"box_{n}" for n in range(len(taken) + 1))) if name not in taken)


def _call_line(op: BoundSymbol, spelling: Spelling) -> str:
    call = f"{spelling.callable(op)}({spelling.arguments(op)})"
    text = f"{spelling.target(op.outs)} = {call}" if op.outputs else call
    types = ", ".join(str(var.type) for var in op.outputs)
    executor = f"[{op.selection.executor}]" if op.selection else ""
    comment = "  ".join(filter(None, (types, executor)))
    return f"{text}  # {comment}" if comment else text


def _source_line(source: Source) -> str:
    code = source.text.strip().partition("\n")[0]
    return f"# {os.path.basename(source.file)}:{source.line}   {code}".rstrip()


def _main(trace: Trace) -> Iterator[str]:
    """The block that runs a saved program by itself."""
    yield 'if __name__ == "__main__":'
    if not trace.params:
        yield f"{_INDENT}print({trace.name}({'[]' if trace.boxed else ''}))"
        return
    opening, closing = ("([", "])") if trace.boxed else ("(", ")")
    for module in sorted({init.partition(":")[0] for init in _inits(trace).values()}):
        yield f"{_INDENT}import {module}"
    yield from (f"{_INDENT}{v.name} = {v.type.example}" for v in trace.params if isinstance(v.type, NumberType))
    yield f"{_INDENT}print("
    yield f"{_INDENT * 2}{trace.name}{opening}"
    for param, sample in zip(trace.params, samples(trace), strict=True):
        yield f"{_INDENT * 3}{sample},  # {param.name}"
    yield f"{_INDENT * 2}{closing}"
    yield f"{_INDENT})"


def samples(trace: Trace) -> list[str]:
    """An expression for a value of each parameter; a state is a new instance, a number is its own name."""
    inits = _inits(trace)
    return [
        f"{inits[p].replace(':', '.')}({getattr(p.type, 'of', '')!r})" if p in inits else _sample(p)
        for p in trace.params
    ]


def _inits(trace: Trace) -> dict[Var, str]:
    """What makes an instance of the state in each handle."""
    return {e.handle: e.state.init for op in trace.ops for e in op.effects if e.handle and e.state.init}


def _sample(param: Var) -> str:
    """An input of its type: random numbers; zeros where a number may be an index; None for what cannot be made."""
    type = param.type
    if not isinstance(type, TensorType):
        return param.name if isinstance(type, NumberType) else "None"
    rest = f"dtype=torch.{type.dtype}, device={type.device!r}"
    if type.stride is None:
        return f"torch.zeros({type.shape}, {rest}, layout=torch.{type.layout})"
    if any(isinstance(n, Number) for n in (*type.shape, *type.stride)):
        fill = "normal_" if type.dtype in _RANDN else "zero_"
        return f"torch.empty_strided({type.shape}, {type.stride}, {rest}).{fill}()"
    make = "torch.randn" if type.dtype in _RANDN else "torch.zeros"
    if type.stride == contiguous_strides(type.shape):
        return f"{make}({type.shape}, {rest})"
    extent = 1 + sum((size - 1) * step for size, step in zip(type.shape, type.stride, strict=True))
    return f"{make}({extent if type.numel else 0}, {rest}).as_strided({type.shape}, {type.stride})"
