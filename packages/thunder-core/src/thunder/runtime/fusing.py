"""The fused regions of one compilation: found in every trace, all started, then waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Names, Trace
from thunder.ir.types import Var
from thunder.passes.bodies import Bodies
from thunder.passes.fuse import Fusion
from thunder.passes.fusers import ActiveFuser
from thunder.passes.measure import Measurer
from thunder.passes.progress import Progress, Report, unreported
from thunder.passes.reuse import owned, reuse
from thunder.plugins.spec import Yes
from thunder.runtime.library import LIBRARY, CompiledRegion, Library
from thunder.runtime.region_race import is_known_slower, is_slower


class Regions:
    """Fuses the traces of one compilation.

    uses: how often each different region is called. report: told of progress while regions are compiled.
    measurer: decides which regions are slower than their operations one by one; None: none is.
    """

    def __init__(
        self,
        fusers: Sequence[ActiveFuser],
        names: Names,
        report: Report = unreported,
        library: Library = LIBRARY,
        measurer: Measurer | None = None,
    ) -> None:
        self.uses: dict[CompiledRegion, int] = {}
        self._measurer = measurer
        self._report = report
        self._library = library
        self._bodies = Bodies()
        self._fusers = {fuser.name: fuser for fuser in fusers}
        self._fusions = [(f, Fusion(f, self._bodies, names, self._wants(f))) for f in fusers]
        self._found: dict[int, CompiledRegion] = {}

    @property
    def wanted(self) -> bool:
        """True if there is a fuser."""
        return bool(self._fusions)

    def fuse(self, trace: Trace) -> Trace:
        """The lowered trace with its regions as single operations."""
        for _, fusion in self._fusions:
            trace = fusion.fuse(trace)
        return trace

    def settled(self, trace: Trace, given: Collection[Var] = ()) -> Trace:
        """The scheduled trace with the regions that it runs: equal ones are the very same, and are compiled once.

        given: parameters whose memory it may overwrite.
        """
        trace = reuse(trace, self._bodies, given)
        return trace.with_ops(self._shared(op) for op in trace.ops)

    def owned(self, trace: Trace) -> set[Var]:
        """The results of a scheduled trace that may be overwritten by whoever reads them last."""
        return owned(trace, self._bodies)

    def is_cheap(self, op: BoundSymbol) -> bool:
        """True if one fuser can run all that an operation computes, and none of it is a matrix product."""
        return any(fusion.is_cheap(op) for _, fusion in self._fusions)

    def compile(self) -> None:
        """Have every region compiled that is not yet: all are started before the first is waited for."""
        if all(region.done for region in self.uses):
            return
        what = f"compiling {len(self.uses)} different regions of {sum(self.uses.values())}"
        for work in (CompiledRegion.start, CompiledRegion.function):
            for region in self.uses:
                work(region)
                self._report(Progress(what, sum(region.done for region in self.uses), len(self.uses)))

    def function(self, op: BoundSymbol) -> Callable[..., Any]:
        """What runs a fused operation."""
        region = self._found[id(op.fused)]
        slower = self._measurer is not None and is_slower(region, self._measurer)
        return region.unfused if slower else region.function()

    def _wants(self, fuser: ActiveFuser) -> Callable[[Trace], bool]:
        def wants(region: Trace) -> bool:
            found = self._library.find(fuser, region)
            known = self._measurer is not None and is_known_slower(found, self._measurer)
            return isinstance(found.answer, Yes) and not known

        return wants

    def _shared(self, op: BoundSymbol) -> BoundSymbol:
        if op.fused is None:
            return op
        found = self._library.find(self._fusers[op.sym.name.partition(".")[0]], op.fused)
        self.uses[found] = self.uses.get(found, 0) + 1
        self._found[id(found.region)] = found
        return replace(op, fused=found.region)
