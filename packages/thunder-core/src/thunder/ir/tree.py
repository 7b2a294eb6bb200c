"""Argument trees: tuples, lists, dicts and slices whose leaves are variables and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thunder.ir.types import Var

_CONTAINERS = (tuple, list, dict, slice)


def leaves(tree: Any) -> list[Any]:
    """All leaves of an argument tree, left to right."""
    if not isinstance(tree, _CONTAINERS):
        return [tree]
    found: list[Any] = []
    _gather(tree, found)
    return found


def _gather(container: Any, found: list[Any]) -> None:
    for item in _items(container):
        if isinstance(item, _CONTAINERS):
            _gather(item, found)
        else:
            found.append(item)


def _items(container: Any) -> Any:
    if isinstance(container, (tuple, list)):
        return container
    return container.values() if isinstance(container, dict) else (container.start, container.stop, container.step)


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``fn`` applied to each leaf; containers become plain tuples, lists, dicts and slices."""
    if not isinstance(tree, _CONTAINERS):
        return fn(tree)
    if isinstance(tree, tuple):
        return tuple([map_tree(fn, item) for item in tree])
    if isinstance(tree, list):
        return [map_tree(fn, item) for item in tree]
    if isinstance(tree, dict):
        return {key: map_tree(fn, item) for key, item in tree.items()}
    return slice(map_tree(fn, tree.start), map_tree(fn, tree.stop), map_tree(fn, tree.step))


def variables(tree: Any) -> tuple[Var, ...]:
    """The different variables of a tree, in order of first occurrence."""
    if not isinstance(tree, _CONTAINERS):
        return (tree,) if isinstance(tree, Var) else ()
    found: dict[Var, None] = {}
    _note(tree, found)
    return tuple(found)


def _note(container: Any, found: dict[Var, None]) -> None:
    for item in _items(container):
        if isinstance(item, Var):
            found[item] = None
        elif isinstance(item, _CONTAINERS):
            _note(item, found)


def substitute(tree: Any, mapping: Mapping[Var, Any]) -> Any:
    """The tree with each variable replaced by what ``mapping`` holds for it, if anything."""
    return map_tree(lambda leaf: mapping.get(leaf, leaf) if isinstance(leaf, Var) else leaf, tree)


def freeze(tree: Any) -> Any:
    """A hashable form of a tree: equal trees give equal keys, and ``1``, ``1.0``, ``True`` and ``-0.0`` stay apart."""
    if isinstance(tree, (tuple, list)):
        return (type(tree).__name__, *[freeze(item) for item in tree])
    if isinstance(tree, dict):
        return ("dict", *[(key, freeze(item)) for key, item in tree.items()])
    if isinstance(tree, slice):
        return ("slice", freeze(tree.start), freeze(tree.stop), freeze(tree.step))
    if isinstance(tree, (float, complex)):
        return (type(tree).__name__, repr(tree))
    if isinstance(tree, (bool, int)):
        return (type(tree).__name__, tree)
    return tree
