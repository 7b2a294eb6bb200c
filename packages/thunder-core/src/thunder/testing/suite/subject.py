"""What a file of tests is about: its executor, found by the names it defines, and how it is tried."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest
import torch

import thunder
from thunder.frontends.functional import FunctionalFunction
from thunder.frontends.settings import make_settings
from thunder.ir.trace import Stage, Trace
from thunder.plugins.manager import registry
from thunder.plugins.spec import Claim, Executor
from thunder.testing.suite.samples import Sample, samples_of
from thunder.testing.suite.ways import in_way


@dataclass(frozen=True)
class Subject:
    """An executor under test.

    plugin: the module of its hooks, if known. asked: what is asked for calls in its place.
    """

    executor: Executor
    plugin: str | None
    device: str = "cpu"
    dtypes: tuple[torch.dtype, ...] = (torch.float32,)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    own_samples: Mapping[str | tuple[str, ...], Any] = field(default_factory=dict)
    asked: Executor | None = None

    @classmethod
    def of(cls, module: ModuleType) -> Subject:
        """The subject of a file of tests. Raises PluginError for a name that cannot be used."""
        executor = _executor(module)
        plugin = getattr(module, "PLUGIN", None) or _plugin(executor)
        loose = {"rtol": 0.1, "atol": 0.1} if executor.numerics == "approximate" else {}
        return cls(
            executor,
            plugin,
            getattr(module, "DEVICE", "cpu"),
            tuple(getattr(module, "DTYPES", (torch.float32,))),
            getattr(module, "TOLERANCE", loose),
            getattr(module, "OPTIONS", {}),
            getattr(module, "SAMPLES", {}),
        )

    def samples(self, target: str | tuple[str, ...]) -> list[Sample]:
        """Calls of a target, as PyTorch gives them and with strides."""
        make = self.own_samples.get(target)
        plain = [s for dtype in self.dtypes for s in _samples(target, self.device, dtype, make)]
        return [*plain, *(strided for s in plain if (strided := s.strided()).runs())]

    def jit(self, sample: Sample) -> Any:
        """The call compiled, with this executor alone."""
        torch.manual_seed(0)
        settings = make_settings([self.executor], {"select": "order", **self.options})
        executors = (self.asked if self.asked and e is self.executor else e for e in settings.executors)
        return FunctionalFunction(
            lambda *tensors: sample.program(*tensors), replace(settings, executors=tuple(executors))
        )

    def taken(self, claim: Claim) -> Iterator[Sample]:
        """The samples of a claim's target that its executor takes."""
        return (sample for sample in self.samples(claim.target) if self.takes(claim, sample))

    def takes(self, claim: Claim, sample: Sample) -> bool:
        """Whether the executor takes the call, as in training where that is what it can."""
        jitted = self.jit(sample)
        jitted(*sample.inputs())
        claims = [op.selection.claim for op in selected(jitted).ops if op.selection is not None and op.selection.claim]
        return any(taken.target == claim.target for taken in claims)

    def other_ways(self, claim: Claim, sample: Sample) -> Iterator[Subject]:
        """The executor running the call in each further way that its check names: in any but the first."""
        for number in itertools.count(1):
            other = replace(self, asked=in_way(self.executor, number))
            if not other.takes(claim, sample):
                return
            yield other


@functools.cache
def _samples(target: str | tuple[str, ...], device: str, dtype: torch.dtype, make: Any) -> list[Sample]:
    return samples_of(target, device, dtype, make)


def selected(jitted: Any) -> Trace:
    """The last trace in which every operation has its executor."""
    return next(trace for trace in reversed(thunder.last_traces(jitted)) if trace.stage is Stage.SELECTED)


def scheduled(jitted: Any) -> list[Trace]:
    """The final forward trace of the last compilation, and the backward ones."""
    backward = thunder.last_backward_traces(jitted)
    return [thunder.last_traces(jitted)[-1], *(trace for trace in backward if trace.stage is Stage.SCHEDULED)]


def _executor(module: ModuleType) -> Executor:
    executor = module.EXECUTOR
    return registry().executor(executor) if isinstance(executor, str) else executor


def _plugin(executor: Executor) -> str | None:
    found = (found for found in registry().found if executor in found.executors)
    return next((f.entry_point for f in found), None)


@pytest.fixture
def subject(request: pytest.FixtureRequest) -> Subject:
    """What the file that imports the suite is about."""
    return Subject.of(request.module)


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be a warning for users is an error here, and every trace is checked between passes."""
    monkeypatch.setenv("THUNDER_STRICT", "1")
    monkeypatch.setenv("THUNDER_VERIFY", "1")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each claim, or state, that the executor declares."""
    executor = _executor(metafunc.module)
    claims = executor.claims
    for name, values, ids in (
        (
            "claim",
            claims,
            [claim.target if isinstance(claim.target, str) else "+".join(claim.target) for claim in claims],
        ),
        ("differentiable", [c for c in claims if c.grad], [c.target for c in claims if c.grad]),
        ("state", executor.states, [state.name for state in executor.states]),
    ):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, values, ids=ids)
