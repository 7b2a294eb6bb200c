"""Running the user's program once on fake tensors, with every place it reads showing fakes, and all of it restored."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from thunder.errors import CaptureError
from thunder.frontends.places import Argument, Binding, Holder, Slot, read, write
from thunder.frontends.pytree import Tree, flatten, keeps_fakes, matches, same, snapshot, unflatten

MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Write:
    """State that the program leaves behind: after each run ``tree`` is put into a slot."""

    holder: Holder
    key: str
    tree: Tree


class Tracing:
    """The program of one binding, as a function of flat fake tensors that returns flat tensors.

    After the call ``output`` is the tree of its result and ``writes`` is the state it leaves, over the same leaves.
    """

    def __init__(self, fn: Callable[..., Any], binding: Binding) -> None:
        self._fn = fn
        self._binding = binding
        self.output: Tree
        self.writes: list[Write] = []

    def __call__(self, *fakes: Any) -> list[Any]:
        args = [_build(argument, fakes) for argument in self._binding.args]
        kwargs = {name: _build(argument, fakes) for name, argument in self._binding.kwargs.items()}
        leaves: list[Any] = []
        with _no_random_numbers(), _installed(self._binding, fakes) as before:
            self.output = flatten(self._fn(*args, **kwargs), leaves, path="the result", strict=True)
            self._check_arguments(args, kwargs, fakes)
            self.writes = list(_writes(self._binding, before, fakes, leaves))
        return leaves

    def _check_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any], fakes: Sequence[Any]) -> None:
        pairs = [*zip(self._binding.args, args, strict=True)]
        pairs += [(argument, kwargs[name]) for name, argument in self._binding.kwargs.items()]
        for argument, value in pairs:
            if not _unchanged(argument, value, fakes):
                raise _changed(argument.path, value)


@contextmanager
def _no_random_numbers() -> Iterator[None]:
    """Refuse what draws from Python's or NumPy's generator: the number would be the same in every run."""
    before = _random_states()
    yield
    for (name, state, restore), (_, now, _) in zip(before, _random_states()):
        if now != state:
            restore(state)
            raise CaptureError(
                f"the program draws a number with {name}",
                why="a number that Python draws while the program is captured is a constant of the compiled program",
                fix='draw it with torch, pass it as an argument, or use frontend="dynamo"',
            )


def _random_states() -> list[tuple[str, Any, Callable[[Any], None]]]:
    """Each generator with its state, and how to go back to one."""
    states: list[tuple[str, Any, Callable[[Any], None]]] = [("random", random.getstate(), random.setstate)]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, key, *rest = numpy.random.get_state()
        states.append(("numpy.random", (kind, tuple(key.tolist()), *rest), numpy.random.set_state))
    return states


def _build(place: Argument | Slot, fakes: Sequence[Any]) -> Any:
    return unflatten(place.tree, [fakes[i] for i in place.inputs])


def _unchanged(place: Argument | Slot, value: Any, fakes: Sequence[Any]) -> bool:
    return matches(place.tree, [fakes[i] for i in place.inputs], value)


@contextmanager
def _installed(binding: Binding, fakes: Sequence[Any]) -> Iterator[dict[int, dict[str, Any]]]:
    """Put fakes into all slots, and put everything back as it was.

    Plain containers that the program changed stay changed, unless it failed or left tensors in one: CaptureError.
    Yields what each owned holder contains with the fakes in place, by the holder's id.
    """
    owned = [(holder, dict(holder)) for _, holder in binding.owned]
    slots = [(slot, read(slot.holder, slot.key)) for slot in binding.slots]
    plain = [(container, snapshot(container)) for _, container in binding.plain]
    try:
        for slot, _ in slots:
            write(slot.holder, slot.key, _build(slot, fakes))
        yield {id(holder): dict(holder) for holder, _ in owned}
        for path, container in binding.plain:
            if keeps_fakes(container):
                raise _changed(path, container)
    except BaseException:
        for container, content in plain:
            _refill(container, content)
        raise
    finally:
        for slot, value in slots:
            write(slot.holder, slot.key, value)
        for holder, content in owned:
            for key in holder.keys() - content.keys():
                del holder[key]
            holder.update(content)


def _refill(container: Any, content: Any) -> None:
    if same(container, content):
        return
    container.clear()
    container.extend(content) if isinstance(container, list) else container.update(content)


def _writes(
    binding: Binding, before: Mapping[int, Mapping[str, Any]], fakes: Sequence[Any], leaves: list[Any]
) -> Iterator[Write]:
    """What the program left in the slots and holders; its tensors are appended to ``leaves``."""
    slots = {(id(slot.holder), slot.key): slot for slot in binding.slots}
    for name, holder in binding.owned:
        content = before[id(holder)]
        for key in {**content, **holder}:
            yield from _left(holder, key, f"{name}: {key}", content.get(key, MISSING), slots, fakes, leaves)
    for slot in binding.slots:
        if id(slot.holder) not in before:
            yield from _left(slot.holder, slot.key, slot.path, MISSING, slots, fakes, leaves)


def _left(
    holder: Holder,
    key: str,
    path: str,
    before: Any,
    slots: Mapping[tuple[int, str], Slot],
    fakes: Sequence[Any],
    leaves: list[Any],
) -> Iterator[Write]:
    slot = slots.get((id(holder), key))
    try:
        value = read(holder, key)
    except KeyError:
        raise _removed(path) from None
    if slot is not None and _unchanged(slot, value, fakes):
        return
    if value is before:
        if slot is None:
            return
        raise _changed(path, value)
    if isinstance(value, torch.nn.Module):
        raise CaptureError(f"the program makes {path}, a module", where=path, fix="make modules in __init__")
    yield Write(holder, key, flatten(value, leaves, path=path, strict=True))


def _changed(path: str, value: Any) -> CaptureError:
    return CaptureError(
        f"the program changes {path} in place (a {type(value).__name__})",
        where=path,
        why="a container that the program changes is neither an input nor an output of it",
        fix='make a new container and return it or assign it to the attribute, or use frontend="dynamo"',
    )


def _removed(path: str) -> CaptureError:
    return CaptureError(
        f"the program removes {path}",
        where=path,
        why="what a program leaves in modules must be the same attributes or more",
        fix='assign None instead, or use frontend="dynamo"',
    )
