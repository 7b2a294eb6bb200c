"""Places: where a call finds what it depends on, and how to read and write there."""

from __future__ import annotations

import keyword
import re
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from types import CellType
from typing import Any

from thunder.frontends.guards import Guards
from thunder.frontends.pytree import Tree

Holder = MutableMapping[str, Any] | CellType
"""What a place is in: the dict of a module's attributes, parameters or buffers, a function's globals, or a cell."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place outside the arguments that the program sees with fake tensors while it is captured.

    key: the holder's key; ``"cell_contents"`` in a cell. path: in the user's words.
    inputs: the input of each leaf of the tree.
    """

    holder: Holder
    key: str
    tree: Tree
    path: str
    inputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its tree and the input of each of its leaves."""

    path: str
    tree: Tree
    inputs: tuple[int, ...]


@dataclass
class Binding:
    """All that one call depends on. Holds no tensor of the call itself.

    owned: holders, with their paths, whose new and changed entries are state that the program leaves.
    plain: lists, dicts and sets outside the arguments that hold no tensors, with their paths.
    constants: places outside the arguments that hold no tensors, as holder, key and value.
    classes: attributes of classes that the program may read, with their values.
    """

    guards: Guards = field(default_factory=Guards)
    args: list[Argument] = field(default_factory=list)
    kwargs: dict[str, Argument] = field(default_factory=dict)
    slots: list[Slot] = field(default_factory=list)
    owned: list[tuple[str, MutableMapping[str, Any]]] = field(default_factory=list)
    plain: list[tuple[str, Any]] = field(default_factory=list)
    constants: list[tuple[Holder, str, Any]] = field(default_factory=list)
    classes: list[tuple[type, str, Any]] = field(default_factory=list)


CELL = "cell_contents"


def read(holder: Holder, key: str) -> Any:
    """What is in a slot now."""
    return holder.cell_contents if isinstance(holder, CellType) else holder[key]


def write(holder: Holder, key: str, value: Any) -> None:
    """Put a value into a slot."""
    if isinstance(holder, CellType):
        holder.cell_contents = value
    else:
        holder[key] = value


def identifier(path: str) -> str:
    """A path as a Python identifier: ``blocks.0.w`` -> ``blocks_0_w``."""
    name = re.sub(r"\W+", "_", path, flags=re.ASCII).strip("_") or "x"
    return f"_{name}" if name[0].isdigit() or keyword.iskeyword(name) else name
