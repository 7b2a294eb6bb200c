"""Running the user's program once for its recording, with everything that it changes put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from thunder.capture.randomness import numbers_refused
from thunder.errors import CaptureError
from thunder.frontends.contents import containers, holds, refill, tensors_in
from thunder.frontends.places import Argument, Binding, Holder, Slot, read, write
from thunder.frontends.pytree import Tree, flatten, matches, same, snapshot, unflatten

MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Write:
    """State that the program leaves behind: after each run ``tree`` is put into a slot."""

    holder: Holder
    key: str
    tree: Tree


class Tracing:
    """The program of one binding, as a function of its flat input tensors that returns flat tensors.

    After the call ``output`` is the tree of its result and ``writes`` is the state it leaves, over the same leaves.
    told: whether it is told that it is compiled, if it asks PyTorch.
    """

    def __init__(self, fn: Callable[..., Any], binding: Binding) -> None:
        self._fn = fn
        self._binding = binding
        self.output: Tree
        self.writes: list[Write] = []
        self.compiling: bool | Asked = Asked()

    def __call__(self, *tensors: Any) -> list[Any]:
        args = [_build(argument, tensors) for argument in self._binding.args]
        kwargs = {name: _build(argument, tensors) for name, argument in self._binding.kwargs.items()}
        leaves: list[Any] = []
        with _restored(self._binding, tensors) as before, numbers_refused():
            with _answering(self.compiling):
                result = self._fn(*args, **kwargs)
            self.output = flatten(result, leaves, path="the result", strict=True)
            self._check_arguments(args, kwargs, tensors)
            self.writes = list(_writes(self._binding, before, tensors, leaves))
        return leaves

    def _check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: Sequence[Any]) -> None:
        pairs = [*zip(self._binding.args, args, strict=True)]
        pairs += [(argument, kwargs[name]) for name, argument in self._binding.kwargs.items()]
        for argument, value in pairs:
            if not _unchanged(argument, value, tensors):
                raise _changed(argument.path, value)


class Asked(int):
    """No, as the answer of ``torch.compiler.is_compiling()``; it notes that somebody asked."""

    asked = False

    def __bool__(self) -> bool:
        self.asked = True
        return False


@contextmanager
def _answering(answer: bool | Asked) -> Iterator[None]:
    before, torch.compiler._is_compiling_flag = torch.compiler._is_compiling_flag, answer  # type: ignore[assignment]  # PyTorch only asks whether it is true
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def _build(argument: Argument, tensors: Sequence[Any]) -> Any:
    return unflatten(argument.tree, [tensors[i] for i in argument.inputs])


def _unchanged(place: Argument | Slot, value: Any, tensors: Sequence[Any]) -> bool:
    return matches(place.tree, [tensors[i] for i in place.inputs], value)


@contextmanager
def _restored(binding: Binding, tensors: Sequence[Any]) -> Iterator[dict[int, dict[str, Any]]]:
    """Put back what the program assigns to, and refuse what it changes in place: CaptureError.

    Plain containers that the program changed stay changed, and constants rebound, unless it failed or left tensors.
    Yields what each holder contains before, by the holder's id.
    """
    owned = [(holder, dict(holder)) for _, holder in binding.owned]
    slots = [(slot, read(slot.holder, slot.key)) for slot in binding.slots]
    plain = [(path, container, snapshot(container), tensors_in(container)) for path, container in binding.plain]
    inside = [(slot.path, *found) for slot, value in slots for found in containers(value)]
    inside += [("the attributes of a tensor", vars(t), dict(vars(t))) for t in tensors]
    try:
        yield _before(owned, slots)
        for path, container, _, known in plain:
            if tensors_in(container).keys() - known:
                raise _changed(path, container)
        for path, container, content in inside:
            if not holds(container, content):
                raise _changed(path, container)
    except BaseException:
        for holder, key, value in binding.constants:
            if _now(holder, key) is not value:
                write(holder, key, value)
        for _, container, content, _ in plain:
            if not same(container, content):
                refill(container, content)
        for _, container, content in inside:
            refill(container, content)
        raise
    finally:
        for slot, value in slots:
            if not isinstance(slot.holder, dict) and read(slot.holder, slot.key) is not value:
                write(slot.holder, slot.key, value)
        for holder, content in owned:
            refill(holder, content)


def _before(
    owned: Sequence[tuple[Holder, dict[str, Any]]], slots: Sequence[tuple[Slot, Any]]
) -> dict[int, dict[str, Any]]:
    found = {id(holder): content for holder, content in owned}
    for slot, value in slots:
        found.setdefault(id(slot.holder), {})[slot.key] = value
    return found


def _writes(
    binding: Binding, before: Mapping[int, Mapping[str, Any]], tensors: Sequence[Any], leaves: list[Any]
) -> Iterator[Write]:
    """What the program left in the slots and holders; its tensors are appended to ``leaves``."""
    slots = {(id(slot.holder), slot.key): slot for slot in binding.slots}
    owned = {id(holder) for _, holder in binding.owned}
    places: list[tuple[Holder, str, str]] = [
        (holder, key, f"{name}: {key}") for name, holder in binding.owned for key in {**before[id(holder)], **holder}
    ]
    places += [(slot.holder, slot.key, slot.path) for slot in binding.slots if id(slot.holder) not in owned]
    for holder, key, path in places:
        value = _left(holder, key, path)
        slot = slots.get((id(holder), key))
        if value is before[id(holder)].get(key, MISSING) or (slot is not None and _unchanged(slot, value, tensors)):
            continue
        if isinstance(value, torch.nn.Module):
            raise CaptureError(f"the program makes {path}, a module", where=path, fix="make modules in __init__")
        yield Write(holder, key, flatten(value, leaves, path=path, strict=True))


def _now(holder: Holder, key: str) -> Any:
    """What is in a place, ``MISSING`` if nothing is."""
    try:
        return read(holder, key)
    except (KeyError, ValueError):
        return MISSING


def _left(holder: Holder, key: str, path: str) -> Any:
    value = _now(holder, key)
    if value is not MISSING:
        return value
    raise CaptureError(
        f"the program removes {path}",
        where=path,
        why="what a program leaves in modules must be the same attributes or more",
        fix='assign None instead, or use frontend="dynamo"',
    )


def _changed(path: str, value: Any) -> CaptureError:
    return CaptureError(
        f"the program changes {path} in place (a {type(value).__name__})",
        where=path,
        why="a container that the program changes is neither an input nor an output of it",
        fix='make a new container and return it or assign it to the attribute, or use frontend="dynamo"',
    )


@contextmanager
def classes_kept(binding: Binding) -> Iterator[None]:
    """Refuse what changes an attribute of a class that the program reads, and put it back."""
    try:
        yield
    finally:
        changed = [(cls, name) for cls, name, value in binding.classes if getattr(cls, name, MISSING) is not value]
        for cls, name, value in binding.classes:
            if (cls, name) in changed:
                setattr(cls, name, value)
    if changed:
        cls, name = changed[0]
        raise CaptureError(
            f"the program changes {cls.__name__}.{name}, an attribute of a class",
            where=f"{cls.__module__}.{cls.__qualname__}.{name}",
            why="that would happen once, while it is recorded, and not at each call",
            fix='keep it in an attribute of an object, or use frontend="dynamo"',
        )
