"""Where Thunder differs from eager, or where comparing says nothing, with a reason each."""

from __future__ import annotations

UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}
)
"""Operators that return memory as it is: there are no values to compare."""
