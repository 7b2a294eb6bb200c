"""The TransformerEngine engine: whether it can be used here. Its operations are in ``engine``."""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from typing import Any

from packaging.version import Version

OLDEST = Version("2.0")


@cache
def missing() -> str:
    """Why TransformerEngine cannot be used here; empty if it can."""
    try:
        version = metadata.version("transformer_engine")
    except metadata.PackageNotFoundError:
        return 'TransformerEngine is not installed: pip install "thunder-te[runtime]"'
    if Version(version) < OLDEST:
        return f"TransformerEngine >= {OLDEST} is needed, and {version} is installed"
    return _unsupported("is_fp8_available")


def is_usable() -> bool:
    return not missing()


def refusal(recipe: str) -> str:
    """Why TransformerEngine does not run a recipe on this device; empty if it does."""
    return missing() or (_unsupported("is_mxfp8_available") if recipe == "MXFP8BlockScaling" else "")


def _unsupported(question: str) -> str:
    """The reason that TransformerEngine gives for a "no" to one of its questions about the device."""
    try:
        import_module("torch")  # its libraries are found through those that torch has loaded
        te: Any = import_module("transformer_engine.pytorch")
        quantization = getattr(te, "quantization", None) or te.fp8  # its name before 2.9
        available, reason = getattr(quantization.FP8GlobalStateManager, question)()
    except Exception as error:
        return f"TransformerEngine does not work here: {str(error).partition('. ')[0]}"
    return "" if available else str(reason)
