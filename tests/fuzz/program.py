"""A program under test, as data: text that makes its arguments, and text that computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Program:
    """setup: statements that make the leaves and the arguments. body: statements over the arguments.

    leaves: names whose gradients are compared. args, results: names. mode: grad mode of the call, as an expression.
    """

    setup: tuple[str, ...]
    leaves: tuple[str, ...]
    args: tuple[str, ...]
    body: tuple[str, ...]
    results: tuple[str, ...]
    mode: str = "torch.enable_grad()"

    @property
    def text(self) -> str:
        """Two Python functions: ``make(seed) -> (leaves, args)`` and ``program(*args) -> results``."""
        lines = [
            "def make(seed):",
            "    g = torch.Generator().manual_seed(seed)",
            *(f"    {line}" for line in self.setup),
            f"    return [{', '.join(self.leaves)}], [{', '.join(self.args)}]",
            "",
            "",
            f"def program({', '.join(self.args)}):",
            *(f"    {line}" for line in self.body),
            f"    return [{', '.join(self.results)}]",
        ]
        return "\n".join(lines) + "\n"

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """``make`` and ``program``, compiled."""
        scope: dict[str, Any] = {"torch": torch, "F": F}
        exec(compile(self.text, "<fuzz>", "exec"), scope)
        return scope["make"], scope["program"]

    def as_test(self, reason: str) -> str:
        """A test file that fails as long as the program differs from eager."""
        return (
            f'"""Found by the fuzzer: {reason}."""\n\n'
            "import torch\nimport torch.nn.functional as F\n\n"
            "import thunder\nfrom tests.fuzz.compare import difference\n\n\n"
            f"{self.text}\n\n"
            "def test_program_is_as_in_eager():\n"
            f'    jit = thunder.jit(program, frontend="functional")\n'
            f"    assert difference(make, program, jit, lambda: {self.mode}) is None\n"
        )
