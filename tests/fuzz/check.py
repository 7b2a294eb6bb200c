"""Judging one program."""

from __future__ import annotations

import warnings
from typing import Any

import torch

import thunder
from tests.fuzz.compare import Declined, difference
from tests.fuzz.program import Program


def verdict(program: Program, frontend: str = "functional", **settings: Any) -> tuple[str, str]:
    """``right``, ``declined`` or ``wrong``, and the reason in words. settings: of ``thunder.jit``."""
    make, fn = program.functions()
    jit = thunder.jit(fn, frontend=frontend, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = difference(make, fn, jit, lambda: eval(program.mode, {"torch": torch}))
        except Declined as declined:
            return "declined", str(declined)
        except Exception as error:
            return "wrong", f"{type(error).__name__}: {error}"
    return ("right", "") if found is None else ("wrong", found)


def fails_like(reason: str, frontend: str = "functional"):
    """A test for programs that are wrong in the same way (by the kind of the first difference)."""
    kind = _kind(reason)

    def fails(program: Program) -> bool:
        try:
            outcome, found = verdict(program, frontend)
        except Exception:  # the smaller program does not even make sense to Python
            return False
        return outcome == "wrong" and _kind(found) == kind

    return fails


def _kind(reason: str) -> str:
    return "".join(c for c in reason.split(" is ")[0].split("\n")[0] if not c.isdigit())[:60]
