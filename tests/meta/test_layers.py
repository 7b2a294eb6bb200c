"""The layers of thunder-core: a module imports from its own layer and from those below it."""

from __future__ import annotations

import pytest

from tests.meta.sources import imports, module_name, sources

LAYERS = (
    ("errors",),
    ("ir",),
    ("prims", "lang", "plugins"),
    ("executors", "extend"),
    ("capture", "grad", "passes"),
    ("runtime",),
    ("frontends", "observe"),
    ("api",),
    ("cli", "scaffold", "testing"),
)
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}


def part(module: str) -> str:
    """The part of thunder a module belongs to: ``passes`` for ``thunder.passes.dce``."""
    return module.split(".")[1]


def faults(text: str, module: str, package: bool = False) -> list[str]:
    """What a program imports against the rule."""
    found = []
    for line, name in imports(text, module, package):
        if part(module) == "ir" and name.split(".")[0] in {"torch", "pluggy"}:
            found.append(f"{module}:{line} imports {name}: thunder.ir must not")
        if not name.startswith("thunder.") or part(name) not in RANK:
            continue
        if RANK[part(name)] > RANK[part(module)]:
            found.append(f"{module}:{line} imports {name}, which is above it")
    return found


MODULES = [path for path in sources() if module_name(path) != "thunder"]


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_downwards(path):
    assert part(module_name(path)) in RANK, f"{module_name(path)} belongs to no layer: add it to LAYERS"
    assert not faults(path.read_text(), module_name(path), path.stem == "__init__")


@pytest.mark.parametrize(
    ("text", "module", "wrong"),
    [
        ("import torch", "thunder.ir.types", True),
        ("from torch import nn", "thunder.ir.types", True),
        ("def f():\n    import torch.nn", "thunder.ir.types", True),
        ("from thunder import api", "thunder.passes.dce", True),
        ("from thunder.runtime.cache import Cache", "thunder.capture.record", True),
        ("from ..runtime import cache", "thunder.capture.record", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch", "thunder.ir.types", False),
        ("import torch", "thunder.lang.canonical", False),
        ("from thunder.ir import tree", "thunder.api", False),
        ("from . import tree", "thunder.ir.types", False),
    ],
)
def test_the_rule_itself(text, module, wrong):
    assert bool(faults(text, module)) is wrong
