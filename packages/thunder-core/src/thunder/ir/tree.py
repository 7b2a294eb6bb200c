"""Argument trees: tuples, lists, dicts and slices whose leaves are variables and constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from thunder.ir.types import Var


def leaves(tree: Any) -> Iterator[Any]:
    """All leaves of an argument tree, left to right."""
    if isinstance(tree, (tuple, list)):
        for item in tree:
            yield from leaves(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves(item)
    elif isinstance(tree, slice):
        yield from leaves((tree.start, tree.stop, tree.step))
    else:
        yield tree


def map_tree(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with ``fn`` applied to each leaf; containers become plain tuples, lists, dicts and slices."""
    if isinstance(tree, tuple):
        return tuple([map_tree(fn, item) for item in tree])
    if isinstance(tree, list):
        return [map_tree(fn, item) for item in tree]
    if isinstance(tree, dict):
        return {key: map_tree(fn, item) for key, item in tree.items()}
    if isinstance(tree, slice):
        return slice(map_tree(fn, tree.start), map_tree(fn, tree.stop), map_tree(fn, tree.step))
    return fn(tree)


def variables(tree: Any) -> tuple[Var, ...]:
    """The different variables of a tree, in order of first occurrence."""
    return tuple(dict.fromkeys(leaf for leaf in leaves(tree) if isinstance(leaf, Var)))


def substitute(tree: Any, mapping: dict[Var, Any]) -> Any:
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
