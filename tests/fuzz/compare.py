"""What a program did, as data, and whether two runs of it did the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch

from thunder.errors import CaptureError

Fact = tuple[str, Any]
Mode = Callable[[], AbstractContextManager[Any]]

_TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 2e-2}


class Declined(Exception):
    """The compiler refused the program with its clear error."""


def difference(
    make: Callable[[int], Any], program: Callable[..., Any], jit: Callable[..., Any], mode: Mode
) -> str | None:
    """The first difference between eager and ``jit`` over two calls, in words; None if there is none.

    Raises Declined where the compiler refuses the program.
    """
    for call in (1, 2):
        expected = list(_facts(make, program, mode, call))
        actual = list(_facts(make, jit, mode, call))
        loosest = max((_tolerance(value) for _, value in expected), default=0.0)
        for (label, want), (other, got) in zip(expected, actual):
            if label != other:
                return f"call {call}: {other} ({_short(got)}) where eager has {label} ({_short(want)})"
            if not _same(want, got, loosest if label.startswith("gradient") else 0.0):
                return f"call {call}: {label} is {_short(got)}, in eager {_short(want)}"
        if len(expected) != len(actual):
            return f"call {call}: {len(actual)} facts, in eager {len(expected)}"
    return None


def _facts(make: Callable[[int], Any], fn: Callable[..., Any], mode: Mode, seed: int) -> Iterator[Fact]:
    """All that a caller can see of one call, in order."""
    leaves, args = make(seed)
    torch.manual_seed(seed)
    try:
        with mode():
            results = fn(*args)
    except CaptureError as error:
        raise Declined(str(error)) from error
    except Exception as error:
        yield "error", error
        return
    yield "random state", torch.get_rng_state()
    for i, t in enumerate(results):
        yield f"result {i}: type", (t.dtype, tuple(t.shape), _strides(t))
    tensors = [*args, *results]
    yield from _values(args, results)
    yield "memory", [_sharing(t, u) for i, t in enumerate(tensors) for u in tensors[:i]]
    yield from _gradients(leaves, args, results)
    if not any(t.is_inference() for t in results):
        yield from _written_afterwards(args, results)


def _strides(t: torch.Tensor) -> tuple[int, ...]:
    """Those that say where an element lies."""
    return tuple(step for extent, step in zip(t.shape, t.stride()) if extent > 1) if t.numel() else ()


def _values(args: list[torch.Tensor], results: list[torch.Tensor], when: str = "") -> Iterator[Fact]:
    for name, tensors in (("argument", args), ("result", results)):
        for i, t in enumerate(tensors):
            yield f"{name} {i}{when}", _value(t)


def _value(t: torch.Tensor) -> Any:
    """A copy, or the error that autograd raises for a view that may no longer be used."""
    try:
        return t.detach().clone()
    except RuntimeError as error:
        return error


def _sharing(t: torch.Tensor, other: torch.Tensor) -> Any:
    """Whether two tensors are one, or lie in one storage and how far apart."""
    if t is other:
        return "same tensor"
    if t.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return None
    return t.storage_offset() - other.storage_offset()


def _gradients(leaves: list[torch.Tensor], args: list[torch.Tensor], results: list[torch.Tensor]) -> Iterator[Fact]:
    """The gradients of each value on its own, then of all together."""
    ends = [t for t in (*results, *args) if t.is_floating_point()]
    groups = [[t] for t in ends] + ([ends] if len(ends) > 1 else [])
    for i, group in enumerate(groups):
        yield from ((f"gradient {i} of leaf {k}", g) for k, g in enumerate(_gradient(group, leaves)))


def _gradient(ends: list[torch.Tensor], leaves: list[torch.Tensor]) -> Any:
    """The gradient (None where there is none) or the error for each leaf."""
    try:
        ends = [t for t in ends if t.grad_fn is not None]
        if not ends or not leaves:
            return [None] * len(leaves)
        weights = [torch.linspace(0.5, 1.5, t.numel(), dtype=torch.float64).reshape(t.shape).to(t.dtype) for t in ends]
        return torch.autograd.grad(ends, leaves, weights, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        return [error] * len(leaves)


def _written_afterwards(args: list[torch.Tensor], results: list[torch.Tensor]) -> Iterator[Fact]:
    """Writing into the results must be seen where memory is shared, and nowhere else."""
    for i, t in enumerate(results):
        try:
            with torch.no_grad():
                t.add_(1) if t.dtype != torch.bool else t.logical_not_()
            outcome = None
        except RuntimeError as error:
            outcome = error
        yield f"write into result {i}", outcome
    yield from _values(args, results, " after a write into the results")


def _tolerance(value: Any) -> float:
    return _TOLERANCE.get(value.dtype, 0.0) if isinstance(value, torch.Tensor) else 0.0


def _same(want: Any, got: Any, at_least: float) -> bool:
    """at_least: a tolerance; gradients are as exact as the least exact value that they came through."""
    if isinstance(want, RuntimeError) and (got is None or isinstance(got, torch.Tensor)):
        return True  # eager refuses to use a value that was overwritten; a program without mutation still has it
    if isinstance(want, Exception):
        return type(want) is type(got) or (isinstance(got, Exception) and str(want) in str(got))
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        return _close(want, got, max(at_least, _tolerance(want)))
    return type(want) is type(got) and want == got


def _close(want: torch.Tensor, got: torch.Tensor, tolerance: float) -> bool:
    if want.dtype != got.dtype or want.shape != got.shape:
        return False
    if not want.is_floating_point():
        return torch.equal(want, got)
    want, got = want.double(), got.double()
    finite = want[want.isfinite()]
    scale = max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
    return torch.allclose(want, got, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 120 else text[:117] + "..."
