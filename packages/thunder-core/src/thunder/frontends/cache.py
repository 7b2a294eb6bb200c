"""The compiled programs of one function, the counts of hits and misses, and the reason of each miss."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.frontends.guards import Guard, Guards, explain_miss

LIMIT = 64
"""How many programs one function keeps. Above it the oldest is dropped."""

FIRST = "first call"


@dataclass(frozen=True, slots=True)
class Entry:
    """A compiled program. guard: call -> its inputs or None. run: inputs -> the result of the user's function."""

    guard: Guard
    run: Callable[[Sequence[Any]], Any]
    guards: Guards


class Cache:
    """``entries`` is replaced, never changed, so that it may be read without a lock."""

    __slots__ = ("_places", "_warned", "entries", "hits", "limit", "misses", "name", "reasons")

    def __init__(self, name: str, limit: int = LIMIT) -> None:
        self.name, self.limit = name, limit
        self.entries: tuple[Entry, ...] = ()
        self.hits = 0
        self.misses = 0
        self.reasons: list[str] = []
        self._places: Counter[str] = Counter()
        self._warned = False

    def missed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Count a miss; returns its reason, relative to the newest program."""
        self.misses += 1
        if not self.entries:
            reason = FIRST
        else:
            place, change = explain_miss(self.entries[-1].guards, args, kwargs)
            self._places[place] += 1
            reason = f"{place} {change}".rstrip()
        self.reasons.append(reason)
        return reason

    def add(self, entry: Entry) -> None:
        """Keep a new program. Warns once when the oldest must go for it, naming what keeps changing."""
        if len(self.entries) == self.limit and not self._warned:
            self._warned = True
            place, count = self._places.most_common(1)[0]
            warnings.warn(
                f"{self.name} has been compiled more than {self.limit} times, {count} times because of {place}; "
                "from now on the oldest program is dropped for each new one. Keep it constant, or pass it as a tensor.",
                RuntimeWarning,
                stacklevel=2,
            )
        self.entries = (*self.entries, entry)[-self.limit :]
