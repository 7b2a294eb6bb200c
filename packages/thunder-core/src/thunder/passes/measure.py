"""Deciding by measuring: candidates are timed on tensors of the real types, once for each different call."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from thunder.ir.types import TensorType
from thunder.passes.decisions import Cost, Decision, Store, cheapest, store
from thunder.passes.progress import Progress, Report, unreported
from thunder.passes.race import clock_for, race, random_tensors
from thunder.plugins import registry
from thunder.plugins.spec import Executor

logger = logging.getLogger("thunder.measured")


@dataclass(frozen=True)
class Candidate:
    """One way to run a call or a region, given its tensors by position.

    run: all that is timed. keeps: the part of it that returns the tensors kept for backward; absent: there are none.
    """

    run: Callable[..., Any]
    keeps: Callable[..., Iterable[torch.Tensor]] | None = None


class Measurer:
    """Decides within the budget of one compilation, and remembers what it decided.

    options: of the core. report: told while it measures.
    decisions: what was decided, in order, each different call once.
    """

    def __init__(
        self,
        executors: Sequence[Executor],
        options: Mapping[str, Mapping[str, Any]],
        kept: Store | None = None,
        report: Report = unreported,
    ) -> None:
        core = options["core"]
        self._report = report
        self.decisions: list[Decision] = []
        self._trade = core["memory"] == "trade"
        self._budget: float = core["measure_budget"]
        self._whole = self._budget
        self._began: float | None = None
        self._group, self._lasting = _group(executors, options)
        self._store = kept or store()
        self._made: dict[tuple[str, ...], Decision] = {}

    @property
    def has_time(self) -> bool:
        """True if anything may still be measured."""
        return self._left() > 0

    def decide(
        self,
        what: str,
        signature: str,
        candidates: Mapping[str, Callable[[], Candidate]],
        types: Sequence[TensorType],
        spent: Collection[int] = (),
    ) -> Decision:
        """Who runs a call, or a region.

        what, signature: text that says all that the work depends on. types: of the tensors it takes.
        spent: positions of the tensors that a candidate may overwrite: each run is given copies.
        candidates: what makes each, by label, in the user's order: the first is what runs where nothing is measured,
        the last is PyTorch's own way. They are made only if the store does not know them. One that raises, when it is
        made or run, leaves the call to the order.
        """
        key = (what, signature, *candidates)
        if key not in self._made:
            first = next(iter(candidates))
            self._made[key] = Decision(what, signature, first, {}, "order", "it is part of its own measurement")
            self._made[key] = decision = self._decided(what, signature, candidates, types, spent)
            self.decisions.append(decision)
            logger.info("%s", decision)
        return self._made[key]

    def kept(self, what: str, signature: str, labels: Sequence[str]) -> Decision | None:
        """What ``decide`` would answer for candidates of these labels without measuring; None if it would measure."""
        costs = self._store.find(self._group, _call(what, signature, labels))
        if costs is None:
            return None
        ordered = {label: costs[label] for label in labels}
        return Decision(what, signature, cheapest(labels, ordered, self._trade), ordered, "kept")

    def _decided(
        self,
        what: str,
        signature: str,
        candidates: Mapping[str, Callable[[], Candidate]],
        types: Sequence[TensorType],
        spent: Collection[int],
    ) -> Decision:
        labels = list(candidates)
        if (kept := self.kept(what, signature, labels)) is not None:
            return kept
        with self._on_the_clock():
            self._tell()
            try:
                costs = self._costs(candidates, types, spent) if self._left() > 0 else None
            except Exception as error:
                return Decision(what, signature, labels[0], {}, "order", f"{type(error).__name__}: {error}")
        if costs is None:
            return Decision(what, signature, labels[0], {}, "order", "the time for measuring is used up")
        self._store.add(self._group, _call(what, signature, labels), costs, lasting=self._lasting)
        return Decision(what, signature, cheapest(labels, costs, self._trade), costs, "measured")

    def _costs(
        self, candidates: Mapping[str, Callable[[], Candidate]], types: Sequence[TensorType], spent: Collection[int]
    ) -> dict[str, Cost] | None:
        made = {label: make() for label, make in candidates.items()}
        with _disable_current_modes(), torch._C._DisableAutocast(), torch.no_grad():
            tensors = random_tensors(types)
            saved = {
                label: _bytes(candidate.keeps(*tensors)) if candidate.keeps else 0 for label, candidate in made.items()
            }
            runs = {label: _run(candidate, tensors, spent) for label, candidate in made.items()}
            seconds = race(runs, clock_for(types), self._left())
        return {label: Cost(seconds[label], saved[label]) for label in made} if seconds else None

    def _tell(self) -> None:
        seconds = math.ceil(self._whole)
        self._report(
            Progress(f"measuring for at most {seconds} s", min(int(self._whole - self._left()), seconds), seconds)
        )

    def _left(self) -> float:
        """Seconds of the budget that are left."""
        return self._budget - (time.perf_counter() - self._began if self._began is not None else 0.0)

    @contextlib.contextmanager
    def _on_the_clock(self) -> Iterator[None]:
        """Counts time against the budget; a call measured to make a candidate of another one counts once."""
        outermost = self._began is None
        if self._began is None:
            self._began = time.perf_counter()
        try:
            yield
        finally:
            if outermost:
                self._budget, self._began = self._left(), None


def _run(candidate: Candidate, tensors: Sequence[torch.Tensor], spent: Collection[int]) -> Callable[[], Any]:
    """What is timed of a candidate."""
    if not spent:
        return partial(candidate.run, *tensors)
    return lambda: candidate.run(*copied(tensors, spent))


def copied(tensors: Sequence[Any], places: Collection[int]) -> tuple[Any, ...]:
    """The tensors, with copies of those at some positions."""
    return tuple([t.clone() if place in places else t for place, t in enumerate(tensors)])


def _call(what: str, signature: str, labels: Sequence[str]) -> str:
    """The name under which costs are stored: the user's order does not change them."""
    return f"{what}{signature} by {', '.join(sorted(labels))}"


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """The memory behind tensors, what several of them share counted once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())


def _group(executors: Sequence[Executor], options: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool]:
    """What times depend on besides call and machine; and whether a later process can know that it is the same."""
    texts, lasting = [f"{_switches()}, memory {options['core']['memory']}"], True
    for executor in executors:
        if not executor.claims and executor.fuser is None:
            continue
        release = registry().release(executor)
        lasting &= bool(release)
        own = options.get(executor.name, {})
        changed = {o.name: own[o.name] for o in executor.options if o.name in own and own[o.name] != o.default}
        key = executor.key(own)
        texts.append(f"{executor.name} of {release or executor}, {changed}" + (f", {key}" if key is not None else ""))
    return "; ".join(texts), lasting


def _switches() -> str:
    """The process-wide switches that change how fast PyTorch is."""
    exact = torch.are_deterministic_algorithms_enabled()
    return (
        f"float32 {torch.get_float32_matmul_precision()}, deterministic {exact}, mkldnn {torch.backends.mkldnn.enabled}"
    )
