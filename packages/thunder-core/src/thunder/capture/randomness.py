"""Random generators while a program is recorded: fakes draw no numbers, so whoever moves a generator is noticed."""

from __future__ import annotations

import functools
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from thunder.errors import CaptureError


class GeneratorMoved(CaptureError):
    """A generator moved while a program was recorded: by the program, or by another thread if there is one.

    undo: sets the generator to where it was.
    """

    def __init__(self, what: str, undo: Callable[[], None], **reasons: str) -> None:
        super().__init__(what, **reasons)
        self.undo = undo


@contextmanager
def numbers_refused() -> Iterator[None]:
    """Refuse what draws from Python's or NumPy's generator: the number would be the same in every run."""
    before = _states()
    yield
    for (name, then, restore), (_, now, _) in zip(before, _states()):
        if now == then:
            continue
        raise GeneratorMoved(
            f"the program draws a number with {name}",
            functools.partial(restore, then),
            why="a number that Python draws while the program is captured is a constant of the compiled program",
            fix='draw it with torch, pass it as an argument, or use frontend="dynamo"',
        )


def alone() -> bool:
    """True if no other thread can have moved a generator."""
    return threading.active_count() == 1


def _states() -> list[tuple[str, Any, Any]]:
    """Each generator with its state, and how to go back to one."""
    states: list[tuple[str, Any, Any]] = [("random", random.getstate(), random.setstate)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, key, *rest = numpy.random.get_state()
        states.append(("numpy.random", (kind, tuple(key.tolist()), *rest), numpy.random.set_state))
    return states


class TorchGenerator:
    """The state of torch's generator when a recording began."""

    def __init__(self) -> None:
        self._before = torch.get_rng_state()
        self._seed = torch.initial_seed()

    def check(self) -> None:
        """Raise GeneratorMoved if the generator has been seeded since.

        One that only moved on served another thread.
        """
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            now = torch.get_rng_state()
            if torch.initial_seed() == self._seed and (torch.equal(now, self._before) or not self._is_fresh(now)):
                return
        raise GeneratorMoved(
            "the program sets the state of torch's random generator",
            functools.partial(torch.set_rng_state, self._before),
            why="that would happen once, while it is recorded, and not at each call",
            fix='seed outside of it, or use frontend="dynamo" (the default of thunder.jit)',
        )

    def _is_fresh(self, state: torch.Tensor) -> bool:
        return torch.equal(state, torch.Generator().manual_seed(self._seed).get_state())
