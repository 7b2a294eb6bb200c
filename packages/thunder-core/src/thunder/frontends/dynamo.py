"""The dynamo front end.

PyTorch's own capture gives guards, graph breaks and any Python; Thunder compiles each graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from thunder.frontends.fx_source import modules_of
from thunder.frontends.graph import Graph
from thunder.frontends.settings import make_settings
from thunder.observe.history import History
from thunder.runtime.driver import Settings


class DynamoFunction:
    """``fn`` (a function, a bound method or a module) compiled by ``torch.compile`` with a backend of its own.

    fullgraph, dynamic: as for ``torch.compile``; with ``fullgraph``, a graph that cannot be compiled is an error too. A
    size that Dynamo makes symbolic is a number again when its graph runs: a new size costs a compilation of the graph,
    but no tracing of Python.
    """

    def __init__(
        self, fn: Callable[..., Any], settings: Settings, *, fullgraph: bool = False, dynamic: bool | None = None
    ) -> None:
        history = History()

        def thunder(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Graph:
            return Graph(gm, example_inputs, settings, history, modules=modules_of(fn), strict=fullgraph)

        self.__wrapped__ = fn
        self._thunder_records, self._thunder_notes = history.records, history.notes
        # Isolated: Dynamo counts recompiles per code object, and all modules of a class share the code of ``forward``.
        self._compiled = torch.compile(  # type: ignore[call-overload]  # the overloads lag behind the signature
            fn, backend=thunder, fullgraph=fullgraph, dynamic=dynamic, isolate_recompiles=True
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)


def backend(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Graph:
    """The backend of ``torch.compile(fn, backend="thunder", options={"executors": "torch"})``.

    options: ``executors`` as in ``thunder.jit``; every other key is an option of an executor (``"name.option"``).
    """
    chosen = dict(options or {})
    return Graph(gm, example_inputs, make_settings(chosen.pop("executors", None), chosen), History())
