"""Making a failing program smaller while it keeps failing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.program import Program


def minimise(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program that is reached by leaving out parts one at a time and still fails."""
    while smaller := next((p for p in _smaller(program) if fails(p)), None):
        program = smaller
    return program


def _smaller(program: Program) -> Iterator[Program]:
    for i in reversed(range(len(program.body))):
        yield replace(program, body=_without(program.body, i))
    for i in range(len(program.results)):
        yield replace(program, results=_without(program.results, i))
    for i in reversed(range(len(program.args))):
        yield replace(program, args=_without(program.args, i))
    for i in reversed(range(len(program.setup))):
        line = program.setup[i]
        yield replace(
            program,
            setup=_without(program.setup, i),
            leaves=tuple(n for n in program.leaves if not line.startswith(f"{n} = ")),
        )
    if program.mode != "torch.enable_grad()":
        yield replace(program, mode="torch.enable_grad()")


def _without(items: tuple[str, ...], i: int) -> tuple[str, ...]:
    return items[:i] + items[i + 1 :]
