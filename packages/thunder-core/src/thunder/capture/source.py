"""Where in the user's program a call is made."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from contextvars import ContextVar
from functools import lru_cache
from types import FrameType

import torch

import thunder
from thunder.ir.symbol import Source

_LIBRARY = tuple(os.path.dirname(os.path.abspath(str(module.__file__))) + os.sep for module in (torch, thunder))
_LOCATED: ContextVar[Source | None] = ContextVar("thunder_located_source", default=None)


def locate(source: Source | None) -> None:
    """Say which user line the calls recorded from now on belong to; None returns to reading the Python stack.

    For front ends that run a program the user did not write, such as a graph.
    """
    _LOCATED.set(source)


def user_source() -> Source | None:
    """The innermost line on the stack that belongs neither to torch nor to Thunder."""
    located = _LOCATED.get()
    if located is not None:
        return located
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not _is_library(frame.f_code.co_filename):
            return _source(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def quoted(source: Source | None) -> str:
    """A line of the user's program for errors: where it is and what it says."""
    return f"{source}   {source.text}".rstrip() if source is not None else ""


def user_line() -> str:
    """``user_source``, quoted."""
    return quoted(user_source())


def warn_at(source: Source | None, message: str) -> None:
    """Warn at a line of the user's program."""
    file, line = (source.file, source.line) if source is not None else ("<unknown>", 0)
    warnings.warn_explicit(message, RuntimeWarning, file, line)


@lru_cache(maxsize=4096)
def _is_library(filename: str) -> bool:
    return filename.startswith((*_LIBRARY, "<frozen")) or os.sep + "contextlib.py" in filename


@lru_cache(maxsize=65536)
def _source(filename: str, line: int) -> Source:
    return Source(filename, line, linecache.getline(filename, line).strip())
