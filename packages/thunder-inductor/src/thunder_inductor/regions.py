"""The fuser: regions to functions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import torch

from thunder.extend import ClaimContext, Trace
from thunder_inductor import inductor
from thunder_inductor.graphs import dtype_of, graph_of_region, is_byte, plain
from thunder_inductor.kernels import Kernels


def threads(options: Mapping[str, Any]) -> int:
    """What kernels depend on besides the region: how many threads they divide their work among."""
    return torch.get_num_threads()


def compile(cx: ClaimContext, region: Trace) -> Future[Callable[..., Any]]:
    """The region as a function of its parameters that returns a tuple of its results."""
    with plain():
        graph, kernels = graph_of_region(region), _kernels(inductor.cache_folder())
        dtypes = {place: dtype_of(v.type) for place, v in enumerate(region.results) if is_byte(v)}
        return inductor.compiled(graph.module, graph.mode, graph.inputs, graph.spent, kernels, dtypes)


def show(cx: ClaimContext, region: Trace) -> str:
    """The module that Inductor generates for the region, with the source of its kernels."""
    with plain():
        graph, kernels = graph_of_region(region), _kernels(inductor.cache_folder())
        return inductor.generated(graph.module, graph.mode, graph.inputs, graph.spent, kernels)


@functools.cache
def _kernels(folder: Any) -> Kernels:
    """All but one processor compile; the last one writes more kernels meanwhile."""
    return Kernels(folder / "thunder", max(1, (os.cpu_count() or 1) - 1))
