"""Container trees of arguments, attributes and results: taken apart, compared, and rebuilt with the same types."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch.utils import _pytree

from thunder.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor: its index among the leaves."""

    index: int


@dataclass(frozen=True, slots=True)
class Const:
    """A value that holds no tensor (or hides it: see ``flatten``)."""

    value: Any


@dataclass(frozen=True, slots=True)
class Node:
    """How to test, open and rebuild one container.

    test: condition on an expression ``{e}`` under which another value has this structure; may assign ``{n}``.
    reads: expression for each item over ``{e}`` or ``{n}``. names: values of the other placeholders of these texts.
    labels: how a person writes each item (``[0]``, ``['ids']``, ``.mask``). build: items -> container.
    """

    items: tuple[Any, ...]
    labels: tuple[str, ...]
    test: str
    reads: tuple[str, ...]
    names: dict[str, Any]
    build: Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Branch:
    """A container and its subtrees."""

    node: Node
    children: tuple[Tree, ...]


Tree = Leaf | Const | Branch


def open_container(value: Any) -> Node | None:
    """The container ``value`` taken apart, or None if it is not a container with a known structure."""
    cls = type(value)
    if isinstance(value, VALUES):
        return None
    if cls is tuple or cls is list:
        return _sequence(value, cls)
    if cls is dict and all(type(key) is str for key in value):
        return _dict(value)
    if cls in _pytree.SUPPORTED_NODES:
        return _registered(value)
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return _named_tuple(value, cls)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value, cls)
    if isinstance(value, dict):
        return _dict_subclass(value, cls)
    if cls is weakref.ref and isinstance(value(), torch.Tensor):  # recurrent modules keep such references
        return Node((value(),), ("()",), "type({e}) is {cls}", ("{e}()",), {"cls": cls}, lambda items: cls(items[0]))
    return None


def _sequence(value: Any, cls: type) -> Node:
    size = len(value)
    labels = tuple(f"[{i}]" for i in range(size))
    reads = tuple(f"{{e}}[{i}]" for i in range(size))
    return Node(tuple(value), labels, f"type({{e}}) is {cls.__name__} and len({{e}}) == {size}", reads, {}, cls)


def _dict(value: dict[str, Any]) -> Node:
    keys = list(value)
    names = {f"k{i}": key for i, key in enumerate(keys)} | {"keys": keys}
    reads = tuple(f"{{e}}[{{k{i}}}]" for i in range(len(keys)))
    labels = tuple(f"[{key!r}]" for key in keys)
    test = "type({e}) is dict and [*{e}] == {keys}"
    return Node(tuple(value.values()), labels, test, reads, names, lambda items: dict(zip(keys, items, strict=True)))


def _named_tuple(value: tuple[Any, ...], cls: Any) -> Node:
    labels = tuple(f".{name}" for name in cls._fields)
    reads = tuple(f"{{e}}[{i}]" for i in range(len(value)))
    return Node(tuple(value), labels, "type({e}) is {cls}", reads, {"cls": cls}, cls._make)


def _dataclass(value: Any, cls: Any) -> Node:
    fields = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]

    def build(items: Sequence[Any]) -> Any:
        new: Any = object.__new__(cls)
        for name, item in zip(fields, items, strict=True):
            object.__setattr__(new, name, item)
        return new

    labels = tuple(f".{name}" for name in fields)
    reads = tuple(f"{{e}}.{name}" for name in fields)
    items = tuple(getattr(value, name) for name in fields)
    return Node(items, labels, "type({e}) is {cls}", reads, {"cls": cls}, build)


def _registered(value: Any) -> Node:
    """A node of ``torch.utils._pytree``: Hugging Face outputs, ``OrderedDict``, ``deque``, users' own."""
    cls = type(value)
    definition = _pytree.SUPPORTED_NODES[cls]
    items, context = definition.flatten_fn(value)
    size = len(items)

    def reopen(other: Any) -> Sequence[Any] | None:
        if type(other) is not cls:
            return None
        found, found_context = definition.flatten_fn(other)
        return found if len(found) == size and found_context == context else None

    def build(found: Sequence[Any]) -> Any:
        return definition.unflatten_fn(list(found), context)

    labels = tuple(f"[{key!r}]" for key in value) if isinstance(value, dict) else tuple(f"[{i}]" for i in range(size))
    reads = tuple(f"{{n}}[{i}]" for i in range(size))
    return Node(tuple(items), labels, "({n} := {reopen}({e})) is not None", reads, {"reopen": reopen}, build)


def _dict_subclass(value: dict[Any, Any], cls: Any) -> Node:
    keys, attributes = list(value), dict(getattr(value, "__dict__", {}))

    def reopen(other: dict[Any, Any]) -> list[Any] | None:
        return list(other.values()) if type(other) is cls and same(list(other), keys) else None

    def build(items: Sequence[Any]) -> Any:
        new = cls.__new__(cls)
        dict.update(new, zip(keys, items, strict=True))
        vars(new).update(attributes) if attributes else None
        return new

    labels = tuple(f"[{key!r}]" for key in keys)
    reads = tuple(f"{{n}}[{i}]" for i in range(len(keys)))
    test = "({n} := {reopen}({e})) is not None"
    return Node(tuple(value.values()), labels, test, reads, {"reopen": reopen}, build)


def flatten(value: Any, leaves: list[torch.Tensor], *, path: str = "", strict: bool = False) -> Tree:
    """The tree of ``value``; its tensors are appended to ``leaves``.

    Lists, tuples and dicts that hold neither tensors nor modules stay whole, as one ``Const``.
    strict: raise CaptureError for an object that hides tensors where no container structure is known.
    """
    return _flatten(value, leaves, path, strict, frozenset())


def _flatten(value: Any, leaves: list[torch.Tensor], path: str, strict: bool, above: frozenset[int]) -> Tree:
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return Leaf(len(leaves) - 1)
    node = open_container(value) if id(value) not in above else None
    if node is None:
        if strict and hides_tensors(value):
            raise _unsupported(value, path)
        return Const(value)
    above = above | {id(value)}
    children = tuple(
        _flatten(item, leaves, path + label, strict, above) for item, label in zip(node.items, node.labels, strict=True)
    )
    if type(value) in (tuple, list, dict) and all(_plain_const(child) for child in children):
        return Const(value)
    return Branch(dataclasses.replace(node, items=()), children)  # a tree outlives what it describes


def _plain_const(tree: Tree) -> bool:
    return isinstance(tree, Const) and not isinstance(tree.value, torch.nn.Module)


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """The containers of ``tree`` built anew around ``leaves``; plain lists and dicts are copied as well."""
    if isinstance(tree, Leaf):
        return leaves[tree.index]
    if isinstance(tree, Const):
        return snapshot(tree.value)
    return tree.node.build([unflatten(child, leaves) for child in tree.children])


def matches(tree: Tree, leaves: Sequence[Any], value: Any) -> bool:
    """True if ``value`` has the structure and constants of ``tree`` and exactly these ``leaves``."""
    if isinstance(tree, Leaf):
        return value is leaves[tree.index]
    if isinstance(tree, Const):
        return same(tree.value, value)
    node = open_container(value)
    if node is None or len(node.items) != len(tree.children) or node.labels != tree.node.labels:
        return False
    return all(matches(child, leaves, item) for child, item in zip(tree.children, node.items, strict=True))


def same(a: Any, b: Any) -> bool:
    """Equality of guarded values: by type and value for plain data and containers of it, else by identity.

    ``1``, ``1.0`` and ``True`` differ, ``0.0`` and ``-0.0`` differ, and ``nan`` equals itself.
    """
    if a is b:
        return True
    cls = type(a)
    if cls is not type(b):
        return False
    if isinstance(a, (float, complex)):
        return repr(a) == repr(b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and (all(map(is_, a, b)) or all(map(same, a, b)))
    if isinstance(a, dict):
        return same([*a], [*b]) and same([*a.values()], [*b.values()])
    if isinstance(a, (set, frozenset)):
        return {(type(x), x) for x in a} == {(type(x), x) for x in b}
    return isinstance(a, VALUES) and bool(a == b)


VALUES = (int, str, bytes, range, slice, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Immutable values that compare by value (besides numbers and containers)."""


def snapshot(value: Any) -> Any:
    """A copy of nested plain lists, tuples, dicts and sets, so that later changes of the original are seen."""
    cls = type(value)
    if cls is list or cls is tuple:
        return cls(map(snapshot, value))
    if cls is dict:
        return {key: snapshot(item) for key, item in value.items()}
    return set(value) if cls is set else value


def hides_tensors(value: Any) -> bool:
    """True if ``value`` is an object with tensors (or an array) inside, one level deep, that no rule can reach.

    What an iterator holds nobody knows before it is used up.
    """
    if isinstance(value, Iterator):
        return True
    if isinstance(value, torch.nn.Module) or callable(value):
        return False
    if hasattr(value, "__array_interface__"):
        return bool(getattr(value, "ndim", 0))
    inside = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, (list, tuple, set, frozenset)):
        inside.extend(value)
    return any(isinstance(item, torch.Tensor) for entry in inside for item in _elements(entry))


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, (list, tuple)):
        return value
    return list(value.values()) if isinstance(value, dict) else [value]


def _unsupported(value: Any, path: str) -> CaptureError:
    return CaptureError(
        f"{path} is a {type(value).__module__}.{type(value).__qualname__}, which holds tensors or an array",
        where=path,
        why="its structure is unknown, so its tensors can be neither inputs nor outputs of the program",
        fix='pass the tensors themselves, register the class with torch.utils._pytree, or use frontend="dynamo"',
    )
