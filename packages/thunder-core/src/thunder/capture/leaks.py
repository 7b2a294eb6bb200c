"""Tensors of a recording that outlive it: they have no data, and whoever uses them later would fail far from here."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from thunder.errors import CaptureError
from thunder.ir.symbol import Source

DEPTH = 4
"""How many containers deep in a cache a tensor is looked for."""

Made = tuple["weakref.ref[torch.Tensor]", Source | None]
"""A tensor that a recording made, and the line that made it."""


class Outlived(FakeTensor):
    """What a tensor of a recording becomes when that is over."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _outlived("")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "<a tensor that was made while a program was recorded>"


def end(tensors: Iterable[torch.Tensor]) -> None:
    """Let tensors of a recording that failed say so when they are used."""
    for t in tensors:
        if type(t) is FakeTensor:
            t.__class__ = Outlived


def check(made: Sequence[Made]) -> None:
    """Refuse a program that keeps a tensor of its recording, unless a function only memoised it: that forgets it.

    Called when nothing but the program can still hold them. What autograd alone holds, in a cycle, nobody can use.
    """
    for generation in (0, 2):  # what a recording made is young, since compiling pauses the collector: that is cheap
        if not _held(made):
            return
        gc.collect(generation)
    _forget(_held(made))
    if not (kept := _held(made)):
        return
    end(kept)
    sources = {id(ref()): source for ref, source in made}
    raise _outlived(next((str(sources[id(t)]) for t in kept if sources[id(t)] is not None), ""))


def _held(made: Sequence[Made]) -> list[torch.Tensor]:
    """The tensors that some Python object refers to."""
    alive = [t for ref, _ in made if (t := ref()) is not None]
    if not alive:
        return []
    holders = [holder for holder in gc.get_referrers(*alive) if holder is not alive and type(holder) is not FrameType]
    held = {id(item) for holder in holders for item in gc.get_referents(holder)}
    return [t for t in alive if id(t) in held]


def _forget(tensors: list[torch.Tensor]) -> None:
    """Clear the caches of functions (``functools.lru_cache``) that hold one of the tensors."""
    holders: list[Any] = tensors
    for _ in range(DEPTH if tensors else 0):
        found = gc.get_referrers(*holders)
        for cache in [item for item in found if isinstance(item, functools._lru_cache_wrapper)]:
            cache.cache_clear()
        holders = [item for item in found if type(item) in (tuple, list, dict) and item is not holders]


def _outlived(where: str) -> CaptureError:
    return CaptureError(
        "a tensor that was made while a program was recorded is kept after it",
        where=where,
        why="it has no data: a recording computes nothing",
        fix='return it, assign it to an attribute of a module, or use frontend="dynamo"',
    )
