"""What is in containers, remembered without taking it away from the program: to find changes and to undo them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import is_
from types import ModuleType
from typing import Any

import torch

from thunder.frontends.pytree import open_container

Container = Any
"""A list, dict, set or deque, or the ``__dict__`` of an object."""


def containers(value: Any) -> Iterator[tuple[Container, Collection[Any]]]:
    """Every container that can be reached from ``value`` through containers, each with a copy of its content."""
    seen: set[int] = set()
    rest = [value]
    while rest:
        item = rest.pop()
        if id(item) in seen or isinstance(item, torch.Tensor):
            continue
        seen.add(id(item))
        node = open_container(item)
        rest += node.items if node is not None else ()
        if isinstance(item, (list, set, dict)):
            yield item, _copy(item)
        elif node is not None and hasattr(item, "__dict__"):
            yield vars(item), dict(vars(item))


def holds(container: Container, content: Collection[Any]) -> bool:
    """True if the container has exactly this content: the same objects."""
    if isinstance(container, set):
        return container == content
    now, then = _flat(container), _flat(content)
    return len(now) == len(then) and all(map(is_, now, then))


def refill(container: Container, content: Collection[Any]) -> None:
    """Give the container this content. Other threads never see an unchanged entry missing."""
    if holds(container, content):
        return
    if isinstance(container, dict):
        for key in container.keys() - content:  # type: ignore[operator]  # the copy of a dict is one
            del container[key]
        container.update(content)
    elif isinstance(container, set):
        container &= content
        container |= content
    else:
        container[:] = content


def tensors_in(value: Any) -> dict[int, torch.Tensor]:
    """The tensors that can be reached from ``value`` through containers and attributes, by id."""
    found: dict[int, torch.Tensor] = {}
    seen: set[int] = set()
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, torch.Tensor):
            found[id(item)] = item
        elif id(item) not in seen and not isinstance(item, (torch.nn.Module, type, ModuleType)):
            seen.add(id(item))
            rest += item if isinstance(item, (list, tuple, set, frozenset)) else ()
            rest += item.values() if isinstance(item, dict) else getattr(item, "__dict__", {}).values()
    return found


def _copy(container: Container) -> Collection[Any]:
    return dict(container) if isinstance(container, dict) else type(container)(container)


def _flat(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else [*container]
