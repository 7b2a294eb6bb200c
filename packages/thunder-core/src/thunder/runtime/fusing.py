"""The fused regions of one compilation: found in every trace, all started, then waited for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.ir.symbol import BoundSymbol, Phase
from thunder.ir.trace import Names, Trace
from thunder.ir.types import Var
from thunder.passes.bodies import Bodies
from thunder.passes.fuse import Faster, Fusion
from thunder.passes.fusers import ActiveFuser
from thunder.passes.measure import Measurer
from thunder.passes.progress import Progress, Report, unreported
from thunder.passes.reuse import owned, reuse
from thunder.passes.schedule import schedule
from thunder.passes.views import Views
from thunder.plugins.spec import Yes
from thunder.runtime.codegen import compile_trace
from thunder.runtime.library import LIBRARY, CompiledRegion, Library
from thunder.runtime.region_race import gains, is_open, is_slower, may_win


class Regions:
    """Fuses the traces of one compilation.

    uses: how often each different region is called. report: told of progress while regions are compiled.
    measurer: decides which regions are slower than their operations one by one, and what joins them; None: none is,
    and nothing does.
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
        self._views = Views()
        self._fusers = {fuser.name: fuser for fuser in fusers}
        self._fusions = [(f, Fusion(f, self._bodies, names, self._wants(f), self._faster(f))) for f in fusers]
        self._found: dict[int, CompiledRegion] = {}

    @property
    def wanted(self) -> bool:
        """True if there is a fuser."""
        return bool(self._fusions)

    def fuse(self, trace: Trace) -> Trace:
        """The lowered trace with its regions as single operations, and with few views between them."""
        for _, fusion in self._fusions:
            trace = fusion.fuse(trace)
        return self._views.shortened(trace) if self.wanted else trace

    def settled(self, trace: Trace, given: Collection[Var] = ()) -> Trace:
        """The scheduled trace with the regions that it runs: equal ones are the very same, and are compiled once.

        given: parameters whose memory it may overwrite.
        """
        trace = self._found_in(reuse(trace, self._bodies, given))
        for op in trace.ops:
            if op.fused is not None:
                region = self._found[id(op.fused)]
                self.uses[region] = self.uses.get(region, 0) + 1
        return trace

    def owned(self, trace: Trace) -> set[Var]:
        """The results of a scheduled trace that may be overwritten by whoever reads them last."""
        return owned(trace, self._bodies)

    def is_cheap(self, op: BoundSymbol) -> bool:
        """True if one fuser can run all that an operation computes, and none of it is a matrix product."""
        return any(fusion.is_cheap(op) for _, fusion in self._fusions)

    def compile(self) -> None:
        """Have every region compiled that is not yet: all are started before the first is waited for."""
        self._compile(self.uses, f"compiling {len(self.uses)} different regions of {sum(self.uses.values())}")

    def function(self, op: BoundSymbol) -> Callable[..., Any]:
        """What runs a fused operation."""
        region = self._found[id(op.fused)]
        slower = self._measurer is not None and is_slower(region, self._measurer)
        return region.unfused if slower else region.function()

    def _wants(self, fuser: ActiveFuser) -> Callable[[Trace], bool]:
        def wants(region: Trace) -> bool:
            found = self._library.find(fuser, region)
            return isinstance(found.answer, Yes) and (self._measurer is None or may_win(found, self._measurer))

        return wants

    def _faster(self, fuser: ActiveFuser) -> Faster | None:
        measurer = self._measurer
        if measurer is None:
            return None

        def faster(regions: Sequence[tuple[Trace, Trace]]) -> list[bool]:
            found = [(self._library.find(fuser, region), apart) for region, apart in regions]
            paying = {region: apart for region, apart in found if isinstance(region.answer, Yes)}
            rivals = {r: self._rival(r, apart) for r, apart in paying.items() if is_open(r, measurer)}
            self._compile_racing(rivals)

            def apart_from(region: CompiledRegion) -> Callable[..., Any]:
                return compile_trace(rivals[region], self.function)

            return [region in paying and gains(region, apart_from, measurer) for region, _ in found]

        return faster

    def _rival(self, region: CompiledRegion, apart: Trace) -> Trace:
        """What runs where nothing joins a region: if the rest of it is not worth fusing, its operations one by one."""
        wants = self._wants(region.fuser)
        fused = all(wants(op.fused) for op in apart.ops if op.fused is not None)
        trace = schedule({Phase.FORWARD: apart if fused else region.region})[Phase.FORWARD]
        return self._found_in(reuse(trace, self._bodies))

    def _compile_racing(self, rivals: Mapping[CompiledRegion, Trace]) -> None:
        inside = [self._found[id(op.fused)] for rival in rivals.values() for op in rival.ops if op.fused is not None]
        regions = dict.fromkeys([*rivals, *inside])
        self._compile(regions, f"compiling {len(regions)} different regions that race")

    def _found_in(self, trace: Trace) -> Trace:
        return trace.with_ops(self._shared(op) for op in trace.ops)

    def _shared(self, op: BoundSymbol) -> BoundSymbol:
        if op.fused is None:
            return op
        found = self._library.find(self._fusers[op.sym.name.partition(".")[0]], op.fused)
        self._found[id(found.region)] = found
        return replace(op, fused=found.region)

    def _compile(self, regions: Collection[CompiledRegion], what: str) -> None:
        if all(region.done for region in regions):
            return
        for work in (CompiledRegion.start, CompiledRegion.function):
            for region in regions:
                work(region)
                self._report(Progress(what, sum(region.done for region in regions), len(regions)))
