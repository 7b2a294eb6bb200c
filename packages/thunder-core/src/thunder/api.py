"""What users call: signatures, options, and which front end runs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

from thunder.errors import OptionError, ThunderError
from thunder.frontends.cache import Cache
from thunder.frontends.functional import FunctionalFunction, capture_trace
from thunder.frontends.module import is_jitted, jit_module, original
from thunder.frontends.settings import make_settings
from thunder.ir.trace import Trace
from thunder.plugins import registry
from thunder.plugins.spec import Transform
from thunder.runtime.driver import Settings

FrontEnd = Literal["dynamo", "functional"]


def jit(
    fn: Any = None,
    /,
    *,
    executors: str | Sequence[Any] | None = None,
    frontend: FrontEnd = "dynamo",
    fullgraph: bool = False,
    dynamic: bool | None = None,
    options: Mapping[str, Any] | None = None,
    transforms: Sequence[str | Transform] = (),
) -> Any:
    """Compile a function or a module; without one, a decorator. A jitted module is a module of the same class.

    executors: names in order of priority, ``...`` for the defaults (``["mine", ...]``), ``"-name"`` to remove one.
    frontend: ``"dynamo"`` takes any Python; ``"functional"`` runs it once on fake tensors: the fast lane.
    fullgraph, dynamic: as for ``torch.compile``; of the dynamo front end only.
    options: of executors, by full name (``{"mine.precision": "high"}``), and of the core: ``select="measure"`` lets the
        fastest run each call instead of the first able one, ``memory``, ``measure_budget`` (``plugins/options.py``).
    transforms: passes over the functional trace that plugins offer, by name, in the order they run.
    Raises PluginError for executors and transforms, and OptionError for options that cannot be used.
    """
    config: dict[str, Any] = {"executors": executors, "frontend": frontend, "fullgraph": fullgraph, "dynamic": dynamic}
    again = functools.partial(jit, **config, options=options, transforms=transforms)
    if fn is None:
        return again
    settings = make_settings(executors, options, transforms)
    if not callable(fn):
        raise ThunderError(f"thunder.jit takes a function or a module, not {type(fn).__name__}", fix="pass a callable")
    compiled = _compiled(_program(fn), settings, frontend, fullgraph, dynamic)
    return jit_module(original(fn), compiled, again) if isinstance(fn, torch.nn.Module) else compiled


def _program(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What there is to compile: of something jitted, what it was made from."""
    if isinstance(fn, torch.nn.Module):
        return original(fn).forward
    return getattr(fn, "__wrapped__", fn) if hasattr(fn, "_thunder_records") else fn


def _compiled(
    fn: Callable[..., Any], settings: Settings, frontend: FrontEnd, fullgraph: bool, dynamic: bool | None
) -> Callable[..., Any]:
    if frontend == "dynamo":
        from thunder.frontends.dynamo import DynamoFunction

        return DynamoFunction(fn, settings, fullgraph=fullgraph, dynamic=dynamic)
    if frontend != "functional":
        raise OptionError(f"there is no front end {frontend!r}", fix='use "dynamo" or "functional"')
    if fullgraph or dynamic is not None:
        raise OptionError(
            "fullgraph and dynamic are options of the dynamo front end",
            why='frontend="functional" always makes one program, for the shapes it is called with',
            fix='leave them out, or use frontend="dynamo"',
        )
    return FunctionalFunction(fn, settings)


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Trace:
    """The functional trace of ``fn(*args, **kwargs)``: nothing of it is computed."""
    return capture_trace(_program(fn), args, kwargs)


def cache_hits(f: Callable[..., Any]) -> int:
    """How many calls found a compiled program. For a function jitted with the functional front end."""
    return _cache(f).hits


def cache_misses(f: Callable[..., Any]) -> int:
    """How many calls were compiled."""
    return _cache(f).misses


def cache_miss_reasons(f: Callable[..., Any]) -> list[str]:
    """Why each of those calls was compiled, first to last."""
    return list(_cache(f).reasons)


def last_miss_reason(f: Callable[..., Any]) -> str:
    """Why the last compiled call was compiled; empty if none was."""
    return next(reversed(_cache(f).reasons), "")


def _cache(f: Any) -> Cache:
    compiled = f.forward if is_jitted(f) else f
    if not isinstance(compiled, FunctionalFunction):
        raise ThunderError(
            f"{getattr(f, '__name__', f)!s} has no cache",
            why="only what thunder.jit(..., frontend='functional') returns has one",
            fix="for the dynamo front end, TORCH_LOGS=recompiles shows the reason of each recompilation",
        )
    return compiled._cache


def executor_state(f: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """The states that executors keep for a jitted function or module: ``{kind: {call site: instance}}``.

    A call site is named after the parameter that it applies (``"fc1_weight"``), else after its symbol. The instances
    are the live ones: to restore a state, change it in place, or put it into the result before the first call.
    Raises ThunderError if ``f`` is not jitted.
    """
    states = getattr(f, "_thunder_states", None)
    if states is None:
        raise ThunderError(f"{getattr(f, '__name__', f)!s} is not jitted", fix="pass what thunder.jit returned")
    return states.instances


def available_executors() -> tuple[str, ...]:
    """The names of all executors that can be used here."""
    return registry().names()
