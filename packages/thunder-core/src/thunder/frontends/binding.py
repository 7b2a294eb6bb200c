"""Binding: what a call of a function depends on, found by walking its arguments, modules, closures and globals.

Each place that holds tensors becomes inputs of the program; each other place that the program may read becomes a guard.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from contextvars import ContextVar
from dataclasses import is_dataclass
from enum import Enum
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from thunder.errors import CaptureError
from thunder.frontends.guards import BIG, HOOKS, environment, global_hooks, hooks
from thunder.frontends.places import CELL, Argument, Binding, Holder, Slot, identifier, read
from thunder.frontends.pytree import Branch, Const, Leaf, Tree, flatten
from thunder.ir.trace import Names
from thunder.runtime.driver import Input

HANDLED = frozenset(vars(torch.nn.Module()))
"""Attributes that every module has: guarded by themselves, or PyTorch's bookkeeping."""


DEPTH = 3
"""How deep objects in objects are looked into: what is deeper is guarded by identity."""


def bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Binding, tuple[Input, ...]]:
    """Bind a call ``fn(*args, **kwargs)``: what it depends on, and the tensors its program reads.

    Raises CaptureError for an argument that hides tensors.
    """
    binder = _Binder()
    environment(binder.guards)
    binder.arguments(fn, args, kwargs)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        binder.module(owner, "", root=True)
    elif owner is not None and not isinstance(owner, (type, ModuleType)):
        binder.attributes(getattr(owner, "__dict__", {}), f"{type(owner).__name__}.", "")
    if _is_plain_object(fn):
        binder.plain_object(fn, type(fn).__name__, "")
    binder.function(fn, owner if isinstance(owner, type) else type(owner))
    if binder.found_module:
        global_hooks(binder.guards)
    return binder.binding, tuple(binder.inputs)


class _Binder:
    def __init__(self) -> None:
        self.binding = Binding()
        self.guards = self.binding.guards
        self._names = Names()
        self.inputs: list[Input] = []
        self._index: dict[int, int] = {}
        self._seen: dict[int, Any] = {}
        self._depth = 0
        self.found_module = False

    def arguments(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positional = f"not kwargs and len(args) == {len(args)}"
        keywords = f"[*kwargs] == {self.guards.bind(list(kwargs))} and len(args) == {len(args)}"
        expected = f"{len(args)} and {list(kwargs)}"
        now = 'f"{len(args)} and {[*kwargs]}"'
        place = "number of positional arguments and keywords"
        self.guards.check(keywords if kwargs else positional, place, expected=expected, value=now, show=str)
        for i, (name, value) in enumerate(zip(_positional_names(fn, len(args)), args, strict=True)):
            self.binding.args.append(self._argument(value, f"args[{i}]", name))
        for name, value in kwargs.items():
            self.binding.kwargs[name] = self._argument(value, f"kwargs[{name!r}]", name)

    def _argument(self, value: Any, expr: str, name: str) -> Argument:
        leaves: list[torch.Tensor] = []
        path = f"argument {name}"
        tree = flatten(value, leaves, path=path, strict=True)
        return Argument(path, tree, self.value(tree, leaves, expr, path, name))

    def value(self, tree: Tree, leaves: list[torch.Tensor], expr: str, path: str, stem: str) -> tuple[int, ...]:
        """Guard the value of an expression; returns the input of each leaf of its tree."""
        found: dict[int, int] = {}
        self._tree(tree, leaves, expr, path, stem, found)
        return tuple(found[i] for i in range(len(leaves)))

    def _tree(self, tree: Tree, leaves: list[Any], expr: str, path: str, stem: str, found: dict[int, int]) -> None:
        if isinstance(tree, Leaf):
            found[tree.index] = self._tensor(leaves[tree.index], expr, path, stem)
        elif isinstance(tree, Const):
            self._constant(tree.value, expr, path, stem)
        else:
            self._branch(tree, leaves, expr, path, stem, found)

    def _branch(self, tree: Branch, leaves: list[Any], expr: str, path: str, stem: str, found: dict[int, int]) -> None:
        node = tree.node
        opened = self.guards.fresh() if "{n}" in node.test else expr
        names = {name: repr(v) if isinstance(v, str) else self.guards.bind(v) for name, v in node.names.items()}
        self.guards.check(node.test.format(e=expr, n=opened, **names), path, expected="the same structure", show=str)
        for child, label, text in zip(tree.children, node.labels, node.reads, strict=True):
            item = text.format(e=expr, n=opened, **names)
            self._tree(child, leaves, item, path + label, _join(stem, label), found)

    def _tensor(self, tensor: torch.Tensor, expr: str, path: str, stem: str) -> int:
        if is_lazy(tensor):
            raise CaptureError(f"{path} has no shape yet", where=path, fix="run the module once eagerly first")
        index = self._index.get(id(tensor))
        if index is not None:  # tied: one input, which must stay tied
            self.guards.check(f"{expr} is {self.guards.reads[index]}", f"{path}: is {self.guards.facts[index][0]}")
            return index
        self._index[id(tensor)] = index = self.guards.tensor(expr, tensor, path)
        self.inputs.append(Input(self._names.fresh(identifier(stem)), tensor))
        if vars(tensor) or expr.startswith(("args", "kwargs")):
            self._tensor_attributes(tensor, expr, path, stem)
        return index

    def _tensor_attributes(self, tensor: torch.Tensor, expr: str, path: str, stem: str) -> None:
        """Guard what Python code has attached to a tensor."""
        held, attached = f"{expr}.__dict__", vars(tensor)
        test = f"len({held}) == {len(attached)}" if attached else f"not {held}"
        self.guards.check(test, f"{path}: number of attributes", expected=len(attached), value=f"len({held})")
        for key, value in attached.items():
            leaves: list[torch.Tensor] = []
            tree = flatten(value, leaves)
            self.value(tree, leaves, f"{held}[{key!r}]", f"{path}.{key}", _join(stem, key))

    def _constant(self, value: Any, expr: str, path: str, stem: str) -> None:
        if isinstance(value, torch.nn.Module):
            self.guards.identity(expr, value, path)
            self.module(value, stem)
            return
        self.guards.equal(expr, value, path)
        if type(value) is ContextVar:
            now = value.get(None)
            self.guards.equal(f"{expr}.get(None)", now, f"{path}: value in this context")
        elif _is_plain_object(value):
            self.plain_object(value, path, stem)
        elif isinstance(value, (list, tuple, dict)):
            self._objects_in(value, path, stem)
        inner = inspect.unwrap(value) if hasattr(value, "__wrapped__") else value
        if isinstance(inner, MethodType) and isinstance(inner.__self__, torch.nn.Module):
            self.module(inner.__self__, stem)
        else:
            self._follow(inner)

    def _objects_in(self, container: Any, path: str, stem: str) -> None:
        """Guard the attributes of objects in a container, which is guarded by their identity."""
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, item in () if len(container) > BIG else items:
            if isinstance(item, (list, tuple, dict)):
                self._objects_in(item, f"{path}[{key!r}]", stem)
            elif _is_plain_object(item):
                self.plain_object(item, f"{path}[{key!r}]", stem)

    def plain_object(self, value: Any, path: str, stem: str) -> None:
        """Guard the attributes of an object (a configuration, a cache), and of those in it, to a small depth."""
        if self._depth == DEPTH or self._seen_before(value):
            return
        self._depth += 1
        if hasattr(value, "__dict__"):
            self.attributes(vars(value), f"{path}.", stem)
        for name in _slots(value):
            leaves: list[torch.Tensor] = []
            tree = flatten(getattr(value, name), leaves)
            self.value(tree, leaves, f"{self.guards.bind(value)}.{name}", f"{path}.{name}", _join(stem, name))
        cls = type(value)
        own = getattr(value, "__dict__", {})
        self._class(cls, {name for base in _users(cls) for name in vars(base) if name[:2] != "__"} - own.keys())
        if callable(value):
            self._follow(cls.__call__, cls)
        self._depth -= 1

    def _class(self, cls: Any, names: Iterable[str]) -> None:
        """Guard those of the named attributes of a class that are values, not methods or other descriptors."""
        if not isinstance(cls, type) or issubclass(cls, Enum):
            return
        for name in names:
            value = next((vars(base)[name] for base in _users(cls) if name in vars(base)), None)
            if value is not None and not hasattr(type(value), "__get__"):
                self._constant(value, f"{self.guards.bind(cls)}.{name}", f"{cls.__name__}.{name}", name)
                self.binding.classes.append((cls, name, value))

    def slot(self, holder: Holder, key: str, expr: str, path: str, stem: str) -> None:
        """Guard a place outside the arguments; its tensors become inputs."""
        value = read(holder, key)
        if is_dataclass(value) and hasattr(value, "__dict__") and not isinstance(value, type):
            self.guards.identity(expr, value, path)
            self.plain_object(value, path, stem)
            return
        leaves: list[torch.Tensor] = []
        tree = flatten(value, leaves)
        inputs = self.value(tree, leaves, expr, path, stem)
        if leaves:
            self.binding.slots.append(Slot(holder, key, tree, path, inputs))
            return
        self.binding.constants.append((holder, key, value))
        if type(value) in (list, dict, set):
            self.binding.plain.append((path, value))

    def module(self, module: torch.nn.Module, stem: str, *, root: bool = False) -> None:
        """Guard a module and everything in it. root: its own hooks run outside of the program."""
        state = vars(module)
        if self._seen_before(state):
            return
        self.found_module = True
        name, held = stem or type(module).__name__, self.guards.bind(state, "m")
        self.slot(state, "training", f"{held}['training']", f"module {name}: training", stem)
        if not root:
            hooks(self.guards, [(f"{held}[{key!r}]", state[key]) for key in HOOKS], f"module {name}: hooks")
            for hook in (hook for key in HOOKS for hook in state[key].values()):
                self._follow(hook)
        self._tensors(state, "_parameters", "parameter", stem)
        self._tensors(state, "_buffers", "buffer", stem)
        self._children(state, name, stem)
        self.attributes(state, f"module {name}: ", stem, HANDLED)
        found = (vars(cls).get("forward") for cls in type(module).__mro__)
        self._follow(next(filter(lambda f: isinstance(f, FunctionType), found), None), type(module))

    def attributes(self, state: dict[str, Any], label: str, stem: str, skip: Set[str] = frozenset()) -> None:
        """Guard the attributes of an object; ones that the program adds or changes are state that it leaves."""
        held, size = self.guards.bind(state, "m"), len(state)
        self.binding.owned.append((label.rstrip(":. "), state))
        place = f"{label}number of attributes"
        self.guards.check(f"len({held}) == {size}", place, expected=size, value=f"len({held})")
        for key in state:
            if key not in skip:
                self.slot(state, key, f"{held}[{key!r}]", label + key, _join(stem, key))

    def _tensors(self, state: dict[str, Any], registry: str, kind: str, stem: str) -> None:
        tensors = self._registry(state, registry, f"module {stem}: number of {kind}s")
        held = self.guards.bind(tensors, "m")
        self.binding.owned.append((f"module {stem}", tensors))
        for key in tensors:
            path = _join(stem, key)
            self.slot(tensors, key, f"{held}[{key!r}]", f"{kind} {path}", path)

    def _children(self, state: dict[str, Any], name: str, stem: str) -> None:
        children = self._registry(state, "_modules", f"module {name}: children")
        held = self.guards.bind(children, "m")
        self.binding.owned.append((f"module {name}", children))
        for key, child in children.items():
            self.guards.identity(f"{held}[{key!r}]", child, f"module {_join(stem, key)}")
            if child is not None:
                self.module(child, _join(stem, key))

    def _registry(self, state: dict[str, Any], key: str, path: str) -> dict[str, Any]:
        """Guard one of a module's dicts: the same dict of the same size."""
        registry, expr = state[key], f'{self.guards.bind(state, "m")}["{key}"]'
        if not registry:
            self.guards.check(f"not {expr}", path, expected="empty", value=expr, show=str)
        else:
            held = self.guards.bind(registry, "m")
            self.guards.check(
                f"{expr} is {held} and len({held}) == {len(registry)}",
                path,
                expected=len(registry),
                value=f"len({expr})",
            )
        return registry

    def function(self, fn: Callable[..., Any], owner: type | None = None) -> None:
        """Guard the closure of a function and the globals that its code names.

        Followed are functions in its closure, of the same file, and of the same class (``owner``).
        """
        fn = getattr(fn, "__func__", fn)
        if hasattr(fn, "__wrapped__"):
            self.function(fn.__wrapped__, owner)
        if not isinstance(fn, FunctionType) or _is_torch(fn) or self._seen_before(fn):
            return
        named, attributes = _named(fn.__code__)
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            if not _is_empty(cell):
                held = self.guards.bind(cell, "m")
                self.slot(cell, CELL, f"{held}.{CELL}", f"closure variable {name}", name)
                self._follow(read(cell, CELL))
                self._class(read(cell, CELL), attributes)
        for name in named:
            self._global(fn.__globals__, name, attributes)
        for name in attributes:
            self._follow(getattr(owner, name, None), owner)
        self._class(owner, attributes)

    def _global(self, scope: dict[str, Any], name: str, attributes: Iterable[str]) -> None:
        value = scope.get(name)
        if name not in scope or isinstance(value, ModuleType):  # a builtin; and nobody rebinds an imported module
            return
        self.slot(scope, name, f"{self.guards.bind(scope, 'm')}[{name!r}]", f"global {name}", name)
        self._class(value, attributes)
        if getattr(value, "__globals__", None) is scope:
            self._follow(value)
        if isinstance(value, type) and issubclass(value, torch.autograd.Function):
            for method in vars(value).values():
                self._follow(getattr(method, "__func__", method), value)

    def _follow(self, value: Any, owner: type | None = None) -> None:
        if isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, FunctionType):
            self.function(value, owner)

    def _seen_before(self, value: Any) -> bool:
        """True from the second time on. The object is kept alive, so that its id stays its own."""
        if id(value) in self._seen:
            return True
        self._seen[id(value)] = value
        return False


def _join(stem: str, key: str) -> str:
    return f"{stem}.{key}" if stem else key


def _is_empty(cell: CellType) -> bool:
    try:
        return cell.cell_contents is cell
    except ValueError:
        return True


def _is_plain_object(value: Any) -> bool:
    """True for an instance that keeps attributes of its own and is no function, type or module."""
    if isinstance(value, (FunctionType, MethodType, type, ModuleType, Enum, torch.nn.Module)):
        return False
    if callable(value) and not any(True for _ in _users(type(value))):
        return False
    return type(getattr(value, "__dict__", None)) is dict or any(_slots(value))


def _slots(value: Any) -> list[str]:
    """The attributes that an object of a user's class keeps in ``__slots__``."""
    found = [vars(base).get("__slots__", ()) for base in _users(type(value))]
    names = [name for slots in found for name in ([slots] if isinstance(slots, str) else slots)]
    return [name for name in names if name[:2] != "__" and hasattr(value, name)]


def _is_torch(fn: FunctionType) -> bool:
    return str(fn.__globals__.get("__name__")).partition(".")[0] == "torch"


def _users(cls: type) -> Iterator[type]:
    """The classes among ``cls`` and its bases that neither PyTorch nor Python brings along."""
    return (base for base in cls.__mro__ if base.__module__.partition(".")[0] not in _LIBRARIES)


_LIBRARIES = sys.stdlib_module_names - {"__main__"} | {"torch", "thunder"}


@functools.lru_cache(maxsize=4096)
def _named(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals and the attributes that code names, nested functions included."""
    instructions = list(dis.get_instructions(code))
    found = dict.fromkeys(i.argval for i in instructions if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL"))
    attributes = dict.fromkeys(i.argval for i in instructions if i.opname in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR"))
    for const in code.co_consts:
        if isinstance(const, CodeType):
            inner_globals, inner_attributes = _named(const)
            found |= dict.fromkeys(inner_globals)
            attributes |= dict.fromkeys(inner_attributes)
    return tuple(found), tuple(attributes)


def _positional_names(fn: Callable[..., Any], count: int) -> list[str]:
    """What to call ``count`` positional arguments."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return names + [f"{rest}_{i}" for i in range(count - len(names))]
