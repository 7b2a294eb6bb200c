"""What is compared: ways to run a module or function, each made by one function.

``thunder functional`` and ``thunder dynamo`` are the core alone, on torch: what tracing and differentiating cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder


def _inductor(program: Any) -> Any:
    return torch.compile(program, backend="inductor")


def _aot_eager(program: Any) -> Any:
    return torch.compile(program, backend="aot_eager")


def _functional(program: Any) -> Any:
    return thunder.jit(program, frontend="functional", executors=["torch"])


def _dynamo(program: Any) -> Any:
    return thunder.jit(program, frontend="dynamo", executors=["torch"])


def _fused(program: Any) -> Any:
    return thunder.jit(program, frontend="functional", executors=["inductor"])


def _measured(program: Any) -> Any:
    return thunder.jit(program, frontend="functional", executors=["onednn", "inductor"], options={"select": "measure"})


SUBJECTS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda program: program,
    "thunder functional": _functional,
    "thunder dynamo": _dynamo,
    "torch.compile aot_eager": _aot_eager,
    "torch.compile inductor": _inductor,
}
EXECUTORS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda program: program,
    "torch.compile": _inductor,
    "thunder inductor": _fused,
    "thunder measured": _measured,
}
"""Ways to run with other kernels than eager's; the last offers everything that gains on a CPU and measures."""
SLOW = frozenset({"torch.compile inductor"})
"""What ``--quick`` leaves out."""


def subjects(quick: bool) -> list[str]:
    """Names of what to compare."""
    return [name for name in SUBJECTS if not (quick and name in SLOW)]
