"""Apex's compiled extensions: which are here, where they run and what their functions take.

Their modules are called directly: Apex's own Python layers keep state and check devices in ways that no trace can show.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

CROSS_ENTROPY, NORM = "xentropy_cuda", "fused_layer_norm_cuda"


@cache
def find(name: str) -> ModuleType | None:
    """The module of an extension, if it imports here."""
    import_module("torch")  # its libraries are found through those that torch has loaded
    try:
        return import_module(name)
    except ImportError:
        return None


def unusable(name: str, function: str, device: str) -> str:
    """Why a function of an extension does not run on a device; empty if it does.

    An extension that runs elsewhere than on CUDA says so: ``device_types`` lists the types of its devices.
    """
    module = find(name)
    if module is None:
        return f"{name} is not installed here"
    if not hasattr(module, function):
        return f"the {name} that is installed has no {function}: update Apex"
    types = getattr(module, "device_types", ("cuda",))
    if device.partition(":")[0] not in types:
        return f"{name} takes tensors on {' or '.join(types)}, not on {device}"
    return ""


def function(name: str, of: str) -> Callable[..., Any]:
    """A function of an extension that is known to be here."""
    return getattr(find(name), of)


def is_memory_efficient() -> bool:
    """True if backward of a norm can start from its result: then its functions take a flag more than before."""
    module = find(NORM)
    return module is not None and arity(module.backward_affine) == 9


def arity(fn: Callable[..., Any]) -> int:
    """How many arguments a compiled function takes, by the signature in the first line of its documentation."""
    return len(re.findall(r"\w+: ", (fn.__doc__ or "").partition("\n")[0]))
