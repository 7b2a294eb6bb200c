"""A callable compiled once for each key of its arguments."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

Run = Callable[[Sequence[Any]], Sequence[Any]]
"""Runs a program on its inputs."""

LIMIT = 64
"""How many runs one callable keeps. Above it the oldest is dropped, and compiled again when it is needed again."""


class Specialisations:
    """Runs ``build(args)`` for the key of the arguments, built when the key is first seen. Thread-safe."""

    def __init__(
        self,
        name: str,
        key: Callable[[Sequence[Any]], Hashable],
        build: Callable[[Sequence[Any]], Run],
        built: Mapping[Hashable, Run] = MappingProxyType({}),
    ) -> None:
        self._name = name
        self._key = key
        self._build = build
        self._runs = dict(built)
        self._lock = threading.RLock()

    def __call__(self, args: Sequence[Any]) -> Sequence[Any]:
        key = self._key(args)
        run = self._runs.get(key) or self._add(key, args)
        return run(args)

    def _add(self, key: Hashable, args: Sequence[Any]) -> Run:
        with self._lock:
            if key in self._runs:  # another thread built it meanwhile
                return self._runs[key]
            run = self._build(args)
            if len(self._runs) >= LIMIT:
                self._drop_oldest(key)
            self._runs[key] = run
            return run

    def _drop_oldest(self, key: Hashable) -> None:
        oldest = next(iter(self._runs))
        del self._runs[oldest]
        warnings.warn(
            f"{self._name} has been compiled for more than {LIMIT} keys, the last for {key}: the oldest are dropped. "
            "Pad inputs to fewer sizes, and keep the settings of executors constant.",
            RuntimeWarning,
            stacklevel=2,
        )
