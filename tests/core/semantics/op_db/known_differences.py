"""Where Thunder declines or differs from eager, or where comparing says nothing, with a reason each."""

from __future__ import annotations

from dataclasses import dataclass

UNINITIALISED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_"}
)
"""Operators that return memory as it is: there are no values to compare."""


@dataclass(frozen=True)
class Known:
    """A difference of these kinds is expected of an operator."""

    operator: str
    kinds: frozenset[str]
    reason: str


KNOWN: tuple[Known, ...] = ()

DECLINED: dict[str, str] = {}
"""Operators that the functional front end may decline, and why; the dynamo front end must be right on them."""


def explained(operator: str, kind: str) -> bool:
    """True if a difference of this kind is expected of the operator."""
    return any(known.operator == operator and kind in known.kinds for known in KNOWN)
