"""What is told of work that may take long: compiling regions, measuring candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far work is. what: in words. done: of ``total``, which are regions, or seconds."""

    what: str
    done: int
    total: int


Report = Callable[[Progress | None], None]
"""Told how far work is, again and again, and of None when there is no more."""


def unreported(progress: Progress | None) -> None:
    """Nobody is told."""
