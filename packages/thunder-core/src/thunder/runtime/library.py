"""Compiled regions: each different one is compiled once in a process, and runs unfused where that fails.

One that is to serve many sizes is compiled again for those that its kernels are not valid for.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from thunder.ir.trace import Trace
from thunder.lang.numbers import compiling
from thunder.passes.fusers import ActiveFuser
from thunder.passes.measure import copied
from thunder.passes.regions import detached, has_elements, region_key, with_examples
from thunder.plugins.spec import No, Yes
from thunder.runtime.codegen import compile_trace

LIMIT = 4096
"""How many regions a process keeps. Above it the one that was not asked for the longest is forgotten."""

VARIANTS = 8
"""How often a region is compiled for different sizes. For those that none of its kernels fits it runs unfused."""


class CompiledRegion:
    """One region, compiled by one fuser. Thread-safe.

    seconds: what compiling took, from its start to its end. failure: why it runs unfused, if it does.
    variants: how often it may be compiled for different sizes.
    """

    def __init__(self, fuser: ActiveFuser, region: Trace, variants: int = VARIANTS) -> None:
        self.fuser = fuser
        self.region, self._numbers = detached(region)
        self._variants = variants
        self._next: CompiledRegion | None = None
        self.seconds = 0.0
        self.failure = ""
        self._lock = threading.RLock()
        self._compiled: Any = None
        self._run: Callable[..., Any] | None = None
        self._started = 0.0

    @cached_property
    def answer(self) -> Yes | No:
        """Whether it is worth fusing. Asked once."""
        with compiling(self._numbers):
            return self.fuser.pays(self.region)

    @cached_property
    def unfused(self) -> Callable[..., Any]:
        """Its operations, one by one."""
        return compile_trace(self.region)

    @cached_property
    def spent(self) -> frozenset[int]:
        """The positions of the arguments that it may overwrite."""
        return frozenset(place for place, param in enumerate(self.region.params) if param in self.region.spent)

    @property
    def done(self) -> bool:
        """True once ``function`` does not wait any more."""
        compiled = self._compiled
        if self._run is not None or compiled is None:
            return self._run is not None
        return compiled.done() if isinstance(compiled, Future) else True

    def start(self) -> None:
        """Begin to compile it, unless that has begun."""
        with self._lock:
            if self._compiled is not None or self._run is not None:
                return
            self._started = time.perf_counter()
            try:
                with compiling(self._numbers):
                    self._compiled = self.fuser.compile(self.region) if has_elements(self.region) else self.unfused
            except Exception as error:
                self._give_up("could not compile a region", error)
            if isinstance(self._compiled, Future):
                self._compiled.add_done_callback(lambda _: self._clock())
            else:
                self._clock()

    def function(self) -> Callable[..., Any]:
        """What runs it; waits until it is compiled."""
        self.start()
        with self._lock:
            if self._run is None:
                self._run = self._finished()
            return self._run

    def _finished(self) -> Callable[..., Any]:
        compiled = self._compiled
        try:
            return self._where_valid(self._guarded(compiled.result() if isinstance(compiled, Future) else compiled))
        except Exception as error:
            self._give_up("could not compile a region", error)
            return self.unfused

    def _where_valid(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The callable, for the numbers that it is valid for, by what compiling it has asked about them."""
        if self._numbers is None or not self._numbers.asked:
            return run
        holds, count = self._numbers.condition(), len(self._numbers.params)
        return lambda *args: (run if holds(*args[-count:]) else self._variant(args[-count:]))(*args)

    def _variant(self, numbers: Sequence[int]) -> Callable[..., Any]:
        """What runs it for numbers that it was not compiled for."""
        with self._lock:
            if self._next is None and self._variants > 1:
                self._next = CompiledRegion(self.fuser, with_examples(self.region, numbers), self._variants - 1)
        return self._next.function() if self._next is not None else self.unfused

    def _guarded(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The callable, until it raises: then the operations one by one, unless they raise as well.

        What may overwrite its arguments is tried on copies. It has to run once until it gets the arguments themselves,
        and what it raises then is raised.
        """
        spent = self.spent
        untried = bool(spent)

        def run(*args: Any) -> Any:
            nonlocal compiled, untried
            given = copied(args, spent) if untried else args
            try:
                result = compiled(*given)
            except Exception as error:
                if compiled is self.unfused or (spent and not untried):
                    raise
                failure = error
            else:
                untried = False
                return result
            result = self.unfused(*args)
            compiled = self.unfused
            self._give_up("failed to run a region", failure)
            return result

        return run

    def _give_up(self, what: str, error: Exception) -> None:
        self._run = self.unfused
        self.failure = f"{what}: {type(error).__name__}: {error}"
        self.fuser.report(what, self.region, error)

    def _clock(self) -> None:
        self.seconds = time.perf_counter() - self._started


class Library:
    """The regions of a process, by fuser and content. Thread-safe."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._regions: OrderedDict[Hashable, CompiledRegion] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, fuser: ActiveFuser, region: Trace) -> CompiledRegion:
        """The region that equals this one."""
        key = (fuser.key, region_key(region))
        with self._lock:
            found = self._regions.get(key)
            if found is None:
                found = self._regions[key] = CompiledRegion(fuser, region)
            self._regions.move_to_end(key)
            if len(self._regions) > self._limit:
                self._regions.popitem(last=False)
            return found

    def clear(self) -> None:
        """Forget all regions; programs keep theirs."""
        with self._lock:
            self._regions.clear()

    def __len__(self) -> int:
        return len(self._regions)


LIBRARY = Library()
"""The regions of this process."""
