"""When FP8 is on, and under which recipe: a context of this package or of TransformerEngine, or an option."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from typing import Any

from thunder.extend import PluginError, recording
from thunder_te import library, recipes
from thunder_te.precision import Precision


@dataclass(frozen=True)
class _Setting:
    precision: Precision | None


_SETTING: ContextVar[_Setting | None] = ContextVar("thunder_te_precision", default=None)


@contextmanager
def autocast(enabled: bool = True, recipe: Any = None, amax_reduction_group: Any = None) -> Iterator[None]:
    """Run the linear layers of jitted functions in FP8, where the executor ``te`` is active.

    recipe: DelayedScaling() unless given. amax_reduction_group: the processes that share scales; all unless given.
    Backward runs as its forward did, wherever it is called. With ``enabled=False``, FP8 is off inside.
    Raises PluginError where a program is being recorded (one program runs under one recipe), and for what is no recipe.
    """
    if recording():
        raise PluginError(
            "thunder_te.autocast is entered inside of a program",
            why="who runs a program is decided as a whole, when it is called",
            fix="enter it around the call of the jitted function",
        )
    if recipe is not None and (isinstance(recipe, type) or not is_dataclass(recipe)):
        raise PluginError(
            f"thunder_te.autocast is given {recipe!r} as recipe",
            why="a recipe is an instance of one of the classes that say how scales are chosen",
            fix=f"make one of {', '.join(recipes.SUPPORTED)}: recipe=thunder_te.{recipes.SUPPORTED[0]}()",
        )
    precision = Precision(recipe or recipes.DelayedScaling(), amax_reduction_group) if enabled else None
    token = _SETTING.set(_Setting(precision))
    try:
        yield
    finally:
        _SETTING.reset(token)


def current(options: Mapping[str, Any]) -> Precision | None:
    """What is in force: of the innermost context, else of TransformerEngine's, else of the option ``te.recipe``.

    Raises PluginError if the option ``te.engine`` asks for TransformerEngine where that cannot run the recipe.
    """
    precision = _in_force(options)
    if precision is not None and options.get("engine") == "transformer_engine":
        _require_library(precision.name)
    return precision


def _in_force(options: Mapping[str, Any]) -> Precision | None:
    setting = _SETTING.get()
    if setting is not None:
        return setting.precision
    if (manager := _manager()) is not None and manager.is_fp8_enabled():
        return Precision(manager.get_fp8_recipe(), manager.get_fp8_group())
    name = options.get("recipe")
    return _default(name) if name is not None else None


def _require_library(recipe: str) -> None:
    if reason := library.refusal(recipe):
        raise PluginError(
            'the option te.engine asks for "transformer_engine", which cannot be used here',
            why=reason,
            fix="mend that, or leave the option out: then the engine is chosen for each device",
        )


def _manager() -> Any:
    """TransformerEngine's global state, if somebody has imported it: otherwise nobody is in a context of it."""
    for name in ("transformer_engine.pytorch.quantization", "transformer_engine.pytorch.fp8"):
        if (module := sys.modules.get(name)) is not None:
            return module.FP8GlobalStateManager
    return None


@lru_cache
def _default(name: str) -> Precision:
    return Precision(getattr(recipes, name)())
