"""Recipes: how FP8 scales are chosen. TransformerEngine's own classes where it is installed, else equal ones.

Names, fields and defaults are TransformerEngine's, so that a program does not depend on which of the two it gets.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from thunder_te import own_recipes


def _transformer_engine() -> Any:
    """TransformerEngine's module of recipes, if it is installed and imports here."""
    if importlib.util.find_spec("transformer_engine") is None:
        return None
    try:
        importlib.import_module("torch")  # its libraries are found through those that torch has loaded
        return importlib.import_module("transformer_engine.common.recipe")
    except (ImportError, OSError, RuntimeError):
        return None


if TYPE_CHECKING:
    from thunder_te.own_recipes import (
        DelayedScaling,
        Float8CurrentScaling,
        Format,
        MXFP8BlockScaling,
        NVFP4BlockScaling,
    )
else:
    _SOURCE = _transformer_engine()
    _CLASSES = ("DelayedScaling", "Float8CurrentScaling", "Format", "MXFP8BlockScaling", "NVFP4BlockScaling")
    globals().update({name: getattr(_SOURCE, name, getattr(own_recipes, name)) for name in _CLASSES})

__all__ = ["DelayedScaling", "Float8CurrentScaling", "Format", "MXFP8BlockScaling", "NVFP4BlockScaling"]

SUPPORTED = ("DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling")
"""The recipes that linear layers run under, by name of their class."""

_REFUSED = {
    "NVFP4BlockScaling": "4-bit training depends on random Hadamard transforms and stochastic rounding, for which "
    "there is no exact reference to test against: use MXFP8BlockScaling",
    "Float8BlockScaling": "scales for blocks of 128 are not implemented: use Float8CurrentScaling or MXFP8BlockScaling",
    "CustomRecipe": "quantizers made by user code cannot be checked: use one of the other recipes",
}


def name_of(recipe: object) -> str:
    """The name of the recipe that an object is an instance of; of its own class if it is none of the supported."""
    names = [base.__name__ for base in type(recipe).__mro__]
    return next((name for name in names if name in SUPPORTED), names[0])


def refusal(recipe: object) -> str:
    """Why nothing runs under this recipe; empty if linear layers do."""
    name = name_of(recipe)
    if name in SUPPORTED:
        return ""
    return f"{name} is not supported: " + _REFUSED.get(name, f"the recipes are {', '.join(SUPPORTED)}")
