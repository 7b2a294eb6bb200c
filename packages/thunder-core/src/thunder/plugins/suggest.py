"""Suggestions for names that do not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean "…"?`` with the nearest known names, or the empty string if none is near."""
    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f"did you mean {quoted(near, ' or ')}?" if near else ""


def quoted(names: Iterable[str], separator: str = ", ") -> str:
    """Names in quotes, one after the other."""
    return separator.join(f'"{name}"' for name in names)
