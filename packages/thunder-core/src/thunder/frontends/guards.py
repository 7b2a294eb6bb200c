"""Guards: one flat generated function that decides whether a program fits a call, and the words for why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._dynamo import guards as torch_guards
from torch.nn.modules import module as torch_module

from thunder.frontends.pytree import same, snapshot

Guard = Callable[[tuple[Any, ...], dict[str, Any]], "list[torch.Tensor] | None"]
"""``(args, kwargs)`` -> the input tensors of the program, or None if the program does not fit the call."""

BIG = 1000
"""Containers of more plain values than this are guarded by identity and length: comparing them would cost too much."""

LITERALS = {None: "None", True: "True", False: "False"}


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of the call. ``code`` is an expression over ``args``, ``kwargs`` and the pre-bound names.

    place: what it looks at, in the user's words. expected: the value while the program was captured.
    value: expression for the value now; empty if there is nothing to show. show: value -> text.
    """

    code: str
    place: str
    expected: Any = None
    value: str = ""
    show: Callable[[Any], str] = repr


@dataclass
class Guards:
    """The guards of one program while they are collected: pre-bound names, conditions in order, inputs.

    reads: an expression for each input. facts: its name in words and its metadata.
    aliases: the memory shared among the inputs (see ``alias_pattern``), where the program depends on that.
    """

    names: dict[str, Any] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    facts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    aliases: tuple[tuple[int, int], ...] | None = None
    _bound: dict[int, str] = field(default_factory=dict)

    def bind(self, value: Any, stem: str = "c") -> str:
        """The name under which the generated code sees ``value``: one name for one object, which is kept alive."""
        name = self._bound.get(id(value))
        if name is None:
            name = f"{stem}{len(self.names)}"
            self._bound[id(value)] = name
            self.names[name] = value
        return name

    def fresh(self) -> str:
        """A name for a value that the generated code computes."""
        name = f"n{len(self.names)}"
        self.names[name] = None
        return name

    def check(self, code: str, place: str, **what: Any) -> None:
        self.checks.append(Check(code, place, **what))

    def identity(self, expr: str, value: Any, place: str) -> None:
        """Require the same object."""
        name = LITERALS[value] if value is None or value is True or value is False else self.bind(value)
        self.check(f"{expr} is {name}", place, expected=value, value=expr)

    def equal(self, expr: str, value: Any, place: str) -> None:
        """Require the same type and value; for objects without known values, the same object."""
        if value is None or value is True or value is False or not isinstance(value, COMPARED):
            return self.identity(expr, value, place)
        if isinstance(value, (list, dict, set)) and len(value) > BIG:
            held, size = self.bind(value), len(value)
            return self.check(f"{expr} is {held} and len({held}) == {size}", place, expected=size, value=f"len({expr})")
        held, compare = self.bind(snapshot(value)), self.bind(same)
        self.check(f"({expr} is {held} or {compare}({expr}, {held}))", place, expected=self.names[held], value=expr)

    def tensor(self, read: str, tensor: torch.Tensor, place: str) -> int:
        """Add an input of the program; returns its index."""
        self.reads.append(read)
        self.facts.append((place, metadata(tensor)))
        return len(self.reads) - 1


COMPARED = (int, float, complex, str, bytes, tuple, list, dict, set, frozenset, range, slice, torch.dtype, torch.device,
            torch.layout, torch.memory_format)  # fmt: skip
"""Types that ``same`` compares by value."""


def metadata(tensor: torch.Tensor) -> dict[str, Any]:
    """What a program depends on in a tensor; for messages, the check itself is ``tensor_check``."""
    strided = tensor.layout is torch.strided
    return {
        "type": type(tensor).__name__,
        "dtype": tensor.dtype,
        "device": str(tensor.device),
        "shape": tuple(tensor.shape),
        "stride": tensor.stride() if strided else tensor.layout,
        "requires_grad": tensor.requires_grad,
    }


def environment(guards: Guards) -> None:
    """Guard ambient state: modes, grad and inference mode, autocast, default dtype, determinism."""
    state = guards.bind(torch_guards.GlobalStateGuard(), "state")
    inference = torch.is_inference_mode_enabled()
    reading = guards.bind(torch.is_inference_mode_enabled, "inference")
    guards.check(f"not {guards.bind(torch._C._len_torch_function_stack)}()", "a TorchFunctionMode is active")
    guards.check(f"not {guards.bind(torch._C._len_torch_dispatch_stack)}()", "a TorchDispatchMode is active")
    guards.check(f"{state}.check()", "ambient state", expected="as captured", value=f"{state}.reason()", show=str)
    guards.check(f"{reading}() is {inference}", "inference mode", expected=inference, value=f"{reading}()")


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def global_hooks(guards: Guards) -> None:
    """Guard the hooks that PyTorch calls for every module."""
    registries = [getattr(torch_module, f"_global{name}") for name in HOOKS]
    hooks(guards, [(guards.bind(registry), registry) for registry in registries], "global module hooks")


def hooks(guards: Guards, registries: Sequence[tuple[str, dict[int, Any]]], place: str) -> None:
    """Guard registries of hooks, given as (expression, registry): the same hooks in the same order."""
    if empty := [expr for expr, registry in registries if not registry]:
        guards.check(
            f"not ({' or '.join(empty)})", place, expected="none", value=f"({' or '.join(empty)})", show=_hooks
        )
    for expr, registry in registries:
        if registry:
            guards.equal(f"[*{expr}.values()]", list(registry.values()), place)


def _hooks(value: Any) -> str:
    return ", ".join(map(repr, value.values())) if isinstance(value, dict) else str(value)


def tensor_check(tensors: Sequence[torch.Tensor]) -> Callable[..., bool]:
    """PyTorch's own check of tensors: exact type, dtype, device, dispatch keys, sizes, strides, requires_grad.

    It ends the process on compressed sparse tensors, so tensors without strides are checked here.
    """
    if any(tensor.layout is not torch.strided for tensor in tensors):
        facts = [metadata(tensor) for tensor in tensors]
        return lambda *now: [metadata(tensor) for tensor in now] == facts
    return torch_guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def alias_pattern(tensors: Sequence[torch.Tensor]) -> tuple[tuple[int, int], ...]:
    """Which tensors share storage: for each the first with its storage and its offset; empty if none share."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    if len(set(storages)) == len(storages):
        return ()
    offsets = [int(tensor.storage_offset()) for tensor in tensors]
    return tuple([(storages.index(storage), offset) for storage, offset in zip(storages, offsets, strict=True)])


def compile_guard(guards: Guards, tensors: Sequence[torch.Tensor]) -> Guard:
    """Generate the guard function for the conditions collected so far and the tensors they were collected from."""
    names = dict(guards.names, tensor_check=tensor_check(tensors) if tensors else None)
    tests = [*dict.fromkeys(check.code for check in guards.checks)]
    lines = [f"    if not ({' and '.join(tests)}): return None", f"    tensors = [{', '.join(guards.reads)}]"]
    if tensors:
        lines.append("    if not tensor_check(*tensors): return None")
        lines += _requires_grad(tensors)
    if guards.aliases is not None:
        names["alias_pattern"] = alias_pattern
        lines.append(f"    if alias_pattern(tensors) != {guards.aliases}: return None")
    body = "\n".join(f"    {line}" for line in lines)
    text = f"def guard(args, kwargs):\n    try:\n{body}\n    except FAILURES: return None\n    return tensors\n"
    names["FAILURES"] = FAILURES
    exec(compile(text, "<thunder guard>", "exec"), names)
    return names["guard"]


FAILURES = (LookupError, AttributeError, TypeError, ValueError)
"""What reading a place raises that is gone, or has become something else."""


def _requires_grad(tensors: Sequence[torch.Tensor]) -> list[str]:
    """PyTorch's check ignores requires_grad while gradients are disabled, but the program may enable them."""
    if torch.is_grad_enabled():
        return []
    yes = [f"tensors[{i}].requires_grad" for i, tensor in enumerate(tensors) if tensor.requires_grad]
    no = [f"tensors[{i}].requires_grad" for i, tensor in enumerate(tensors) if not tensor.requires_grad]
    rows = [f"    if not ({' and '.join(yes)}): return None"] if yes else []
    return rows + ([f"    if {' or '.join(no)}: return None"] if no else [])


def explain_miss(guards: Guards, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    """Why a call does not fit: (what it is about, what it was → what it is)."""
    scope = dict(guards.names, args=args, kwargs=kwargs)
    for check in guards.checks:
        if not _holds(check.code, scope):
            return check.place, _change(check, scope)
    for read, (place, before) in zip(guards.reads, guards.facts, strict=True):
        tensor = _value(read, scope)
        if not isinstance(tensor, torch.Tensor):
            return place, f"a tensor → {tensor!r}"
        now = metadata(tensor)
        for key, value in before.items():
            if now[key] != value:
                return f"{place}: {key}", f"{value} → {now[key]}"
    aliases = alias_pattern([_value(read, scope) for read in guards.reads])
    if guards.aliases not in (None, aliases):
        return "the inputs: memory shared among them", f"{guards.aliases} → {aliases}"
    return "the inputs", "have other dispatch keys"


def _holds(code: str, scope: dict[str, Any]) -> bool:
    try:
        return bool(eval(code, scope))
    except FAILURES:
        return False


def _value(expr: str, scope: dict[str, Any]) -> Any:
    try:
        return eval(expr, scope)
    except FAILURES:
        return "nothing"


def _change(check: Check, scope: dict[str, Any]) -> str:
    if not check.value:
        return ""
    expected = check.expected if isinstance(check.expected, str) and check.show is not repr else repr(check.expected)
    return f"{expected} → {check.show(_value(check.value, scope))}"
