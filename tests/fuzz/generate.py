"""Random valid programs: statements are drawn, run in eager at once, and dropped where eager refuses them."""

from __future__ import annotations

import re
import warnings
from random import Random
from typing import Any

import torch
import torch.nn.functional as F

from tests.fuzz import statements as st
from tests.fuzz.program import Program

_EXPRESSIONS = (
    (st.POINTWISE, 30),
    (st.VIEWS, 30),
    (st.REDUCTIONS, 12),
    (st.SHAPES, 8),
    (st.MATRICES, 8),
    (st.CASTS, 4),
)
_MODES = ["torch.enable_grad()"] * 6 + ["torch.no_grad()", "torch.inference_mode()"]
_MOST_ELEMENTS = 200
_LARGEST = 1e4


def generate(rng: Random, statements: int = 8) -> Program:
    """A program of about ``statements`` statements that eager runs."""
    while True:
        draft = _Draft(rng, rng.choice(_MODES))
        draft.make_arguments()
        for _ in range(rng.randint(2, statements)):
            draft.statement()
        program = draft.program()
        if _runs(program):
            return program


def _runs(program: Program) -> bool:
    """False where a dropped statement had left its mark on the values that later ones were tried on."""
    make, fn = program.functions()
    try:
        with eval(program.mode, {"torch": torch}):
            fn(*make(0)[1])
    except Exception:
        return False
    return True


class _Draft:
    """A program being written, and the eager values of its names."""

    def __init__(self, rng: Random, mode: str) -> None:
        self.rng = rng
        self.mode = mode
        self.scope: dict[str, Any] = {"torch": torch, "F": F, "g": torch.Generator().manual_seed(0)}
        self.setup: list[str] = []
        self.leaves: list[str] = []
        self.args: list[str] = []
        self.body: list[str] = []
        self.made: list[str] = []

    def make_arguments(self) -> None:
        """One to three arguments: leaves, values computed from leaves, views of other arguments."""
        for i in range(self.rng.randint(1, 3)):
            name = f"a{i}"
            if self.args and self.rng.random() < 0.3:
                self._set(name, self._filled(self.rng.choice(st.VIEWS)), self.setup) or self._fresh(name)
            else:
                self._fresh(name)
            self.args.append(name)

    def _fresh(self, name: str) -> None:
        source = self.rng.choice(st.SETUPS).format(shape=self.rng.choice(st.SHAPE_CHOICES))
        if not self._set(name, source, self.setup):
            self._set(name, "torch.randn(3, 4, generator=g)", self.setup)
        if not self.scope[name].is_floating_point() or self.rng.random() < 0.4:
            return
        self._run(f"{name} = {name}.clone().requires_grad_()", self.setup)
        leaf = name
        if self.rng.random() < 0.5:
            leaf = f"leaf_{name}"
            self._run(f"{leaf} = {name}", self.setup)
            self._run(f"{name} = {leaf} * 1", self.setup)
        self.leaves.append(leaf)

    def statement(self) -> None:
        """Append one statement that eager accepts."""
        for _ in range(20):
            done = self._write() if self.rng.random() < 0.3 else self._expression()
            if done:
                return

    def _write(self) -> bool:
        names: dict[str, str] = {}
        source = self._filled(self.rng.choice(st.WRITES), names)
        touched = [self.scope[name] for name in dict.fromkeys(names.values()) if name in self.scope]
        if _overlap(touched):
            return False
        prefix = self.rng.choice([""] * 8 + ["with torch.no_grad(): ", self._condition()])
        return self._run(prefix + source, self.body)

    def _expression(self) -> bool:
        (table,) = self.rng.choices([t for t, _ in _EXPRESSIONS], [w for _, w in _EXPRESSIONS])
        source = self._filled(self.rng.choice(table))
        if self.rng.random() < 0.05:
            source = f"{source} if {self._name()}.shape[-1] > 2 else {self._filled(self.rng.choice(st.POINTWISE))}"
        name = f"b{len(self.made)}"
        prefix = "with torch.no_grad(): " if self.rng.random() < 0.04 else ""
        if not self._set(name, source, self.body, prefix):
            return False
        self.made.append(name)
        return True

    def _condition(self) -> str:
        return f"if {self._name()}.dim() > {self.rng.randint(0, 2)}: "

    def _set(self, name: str, source: str, lines: list[str], prefix: str = "") -> bool:
        if not self._run(f"{prefix}{name} = {source}", lines):
            return False
        if isinstance(self.scope.get(name), torch.Tensor) and _is_sane(self.scope[name]):
            return True
        self.scope.pop(name, None)
        lines.pop()
        return False

    def _run(self, line: str, lines: list[str]) -> bool:
        """Run a line in eager; keep it if it works."""
        try:
            with self._grad_mode(lines), warnings.catch_warnings():
                warnings.simplefilter("error")  # what eager warns of (resizing an ``out``) is no program worth having
                exec(line, self.scope)
        except Exception:
            return False
        lines.append(line)
        return True

    def _grad_mode(self, lines: list[str]) -> Any:
        return eval(self.mode, {"torch": torch}) if lines is self.body else torch.enable_grad()

    def _name(self, floating: bool = False, dtype: torch.dtype | None = None) -> str:
        names = [*self.args, *self.made, *self.made[-2:]]
        fitting = [n for n in names if not floating or self.scope[n].is_floating_point()]
        fitting = [n for n in fitting if dtype is None or self.scope[n].dtype == dtype]
        return self.rng.choice(fitting or names)

    def _filled(self, template: str, known: dict[str, str] | None = None) -> str:
        """The template with names and numbers for its placeholders, which are put into ``known``."""
        known = {} if known is None else known

        def fill(match: re.Match[str]) -> str:
            key = match.group(1)
            if key not in known:
                known[key] = self._drawn(key)
            return known[key]

        return re.sub(r"\{(\w+)\}", fill, template)

    def _drawn(self, key: str) -> str:
        if key in "xyz":
            return self._name()
        if key in "fg":
            return self._name(floating=True)
        if key == "i":
            return self._name(dtype=torch.int64)
        choices = {
            "s": st.SCALARS,
            "at": st.INDICES,
            "n": ("0", "1", "2", "3"),
            "d": ("0", "-1", "1"),
            "e": ("1", "-2", "0"),
        }
        return self.rng.choice(choices[key])

    def program(self) -> Program:
        known = [*self.args, *self.made]
        results = self.rng.sample(known, min(len(known), self.rng.randint(1, 3)))
        if self.made and self.made[-1] not in results:
            results.append(self.made[-1])
        return Program(
            tuple(self.setup), tuple(self.leaves), tuple(self.args), tuple(self.body), tuple(results), self.mode
        )


def _is_sane(t: torch.Tensor) -> bool:
    """Small, not empty (fake kernels refuse empty tensors where real ones do not), with values that can be compared."""
    if not 0 < t.numel() <= _MOST_ELEMENTS:
        return False
    return not t.is_floating_point() or bool((t.detach().abs() < _LARGEST).all())


def _overlap(tensors: list[torch.Tensor]) -> bool:
    """True if elements of the tensors share memory, also within one tensor: what a write does then is undefined."""
    storages = [t.untyped_storage()._cdata for t in tensors]
    return len(set(storages)) < len(storages) or any(torch._debug_has_internal_overlap(t) for t in tensors)
