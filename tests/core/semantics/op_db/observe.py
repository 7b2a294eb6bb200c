"""What a run of a call shows to its caller, and how two runs differ."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_map

from tests.core.semantics.op_db.cases import Call

_TOLERANCE = {torch.bfloat16: (2e-2, 2e-2), torch.complex64: (2e-5, 2e-5), torch.float32: (2e-5, 2e-5)}


@dataclass(frozen=True)
class Leaf:
    """One tensor: its facts, by name, and a copy of its values."""

    facts: dict[str, Any]
    values: torch.Tensor | None


@dataclass(frozen=True)
class Observation:
    """Everything a caller can see of one call.

    structure: the result's containers and what in it is no tensor. outs: the tensors of the result.
    arguments: the tensors among the arguments, after the call. gradients: of the arguments that require grad.
    random: the state of the random generator after the call. failure: the exception of the call; backward_failure: that
    of back-propagation.
    """

    structure: Any = None
    outs: tuple[Leaf, ...] = ()
    arguments: tuple[Leaf, ...] = ()
    gradients: tuple[Leaf | None, ...] = ()
    random: torch.Tensor | None = field(default=None, repr=False)
    failure: BaseException | None = None
    backward_failure: BaseException | None = None


@dataclass(frozen=True)
class Difference:
    """One way in which two runs differ. kind: a word to count by."""

    kind: str
    text: str


def observe(fn: Callable[..., Any], call: Call, *, leaf: bool, seed: int) -> Observation:
    """Run ``fn`` on a copy of the call and back-propagate random gradients from every result that requires grad.

    leaf: pass the tensors themselves; otherwise copies inside the graph, which may be written to.
    """
    origin = call.fresh()
    used = origin if leaf else _inside_graph(origin)
    tensors = used.tensors()
    before = [(t._version, _values(t)) for t in tensors]
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn(*used.args, **used.kwargs)
        except Exception as error:
            return Observation(failure=error)
        random = torch.get_rng_state()
        leaves, spec = tree_flatten(result)
        outs = [item for item in leaves if isinstance(item, torch.Tensor)]
        plain = [item if not isinstance(item, torch.Tensor) else "tensor" for item in leaves]
        seen = [_out(t, tensors, outs) for t in outs]
        after = [_argument(t, *was) for t, was in zip(tensors, before)]
        gradients, backward_failure = _gradients(call, result, origin.tensors(), seed)
    return Observation((str(spec), plain), tuple(seen), tuple(after), gradients, random, None, backward_failure)


def _inside_graph(call: Call) -> Call:
    """The call on values computed from its arguments, with their layout."""
    twins = {id(t): _strided_copy(t) if t.requires_grad else t for t in call.tensors()}
    args, kwargs = tree_map(lambda v: twins.get(id(v), v), (call.args, call.kwargs))
    return Call(args, kwargs, call.processed)


def _strided_copy(t: torch.Tensor) -> torch.Tensor:
    if t.layout is not torch.strided:
        return t.clone()
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t)


def _facts(t: torch.Tensor) -> dict[str, Any]:
    strided = t.layout is torch.strided
    return {
        "type": type(t).__name__,
        "dtype": t.dtype,
        "shape": tuple(t.shape),
        "stride": tuple(t.stride()) if strided else None,
        "layout": t.layout,
        "device": t.device,
        "conj": t.is_conj() if strided else False,
        "neg": t.is_neg() if strided else False,
    }


def _out(t: torch.Tensor, arguments: list[torch.Tensor], outs: list[torch.Tensor]) -> Leaf:
    facts = _facts(t)
    facts["requires_grad"] = t.requires_grad
    facts["is_leaf"] = t.is_leaf
    facts["is argument"] = next((i for i, a in enumerate(arguments) if a is t), None)
    facts["is result"] = next(i for i, o in enumerate(outs) if o is t)
    facts["memory of argument"] = [i for i, a in enumerate(arguments) if _share(a, t)]
    facts["memory of result"] = [i for i, o in enumerate(outs) if _share(o, t)]
    shared = t.layout is torch.strided and bool(facts["memory of argument"])
    facts["offset"] = t.storage_offset() if shared else None
    return Leaf(facts, _values(t))


def _argument(t: torch.Tensor, version: int, before: torch.Tensor) -> Leaf:
    written = t._version != version or not _identical(_values(t), before)
    state = {"requires_grad": t.requires_grad, "is_leaf": t.is_leaf, "written": written}
    return Leaf(_facts(t) | state, _values(t))


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided or b.layout is not torch.strided:
        return a is b
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _values(t: torch.Tensor) -> torch.Tensor:
    t = t.detach()
    return t.resolve_conj().resolve_neg().clone() if t.layout is torch.strided else t.clone()


def _gradients(
    call: Call, result: Any, inputs: list[torch.Tensor], seed: int
) -> tuple[tuple[Leaf | None, ...], BaseException | None]:
    wanted = [t for t in inputs if t.requires_grad]
    if not wanted:
        return (), None
    try:
        processed = call.processed(result)
    except Exception:  # the sample's own function expects another kind of result (an in-place one)
        processed = result
    roots = [t for t in tree_flatten(processed)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
    if not roots:
        return (), None
    generator = torch.Generator().manual_seed(seed)
    try:
        cotangents = [_cotangent(t, generator) for t in roots]
        found = torch.autograd.grad(roots, wanted, cotangents, allow_unused=True)
    except Exception as error:
        return (), error
    return tuple(_gradient(g) if g is not None else None for g in found), None


def _gradient(g: torch.Tensor) -> Leaf:
    """A gradient; strides that no two elements are apart tell nothing."""
    facts = _facts(g)
    if facts["stride"] is not None:
        facts["stride"] = tuple(step for n, step in zip(g.shape, facts["stride"]) if n > 1 and g.numel())
    return Leaf(facts, _values(g))


def _cotangent(t: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random numbers with the layout that autograd itself gives to new gradients."""
    numbers = torch.randn(t.shape, dtype=t.dtype, generator=generator)
    return torch.empty_like(t.detach()).copy_(numbers) if t.layout is torch.strided else numbers


def differences(eager: Observation, jitted: Observation, *, values: bool = True) -> Iterator[Difference]:
    """How two runs differ; ``values=False`` leaves out the numbers themselves."""
    if eager.failure or jitted.failure:
        yield from _failures("raises", eager.failure, jitted.failure)
        return
    if eager.structure != jitted.structure:
        yield Difference("structure", f"{jitted.structure}, not {eager.structure}")
        return
    for kind, expected, found in (
        ("result", eager.outs, jitted.outs),
        ("argument", eager.arguments, jitted.arguments),
    ):
        for index, (a, b) in enumerate(zip(expected, found, strict=True)):
            yield from _leaf(f"{kind} {index}", kind, a, b, values)
    if eager.random is not None and not torch.equal(eager.random, jitted.random):
        yield Difference("random state", "the generator was advanced differently")
    if eager.backward_failure or jitted.backward_failure:
        yield from _failures("backward raises", eager.backward_failure, jitted.backward_failure)
        return
    if len(eager.gradients) != len(jitted.gradients):
        yield Difference("gradient count", f"{len(jitted.gradients)}, not {len(eager.gradients)}")
        return
    for index, (a, b) in enumerate(zip(eager.gradients, jitted.gradients, strict=True)):
        if a is None or b is None:
            if a is not b:
                yield Difference("gradient None", f"gradient {index}: None on one side only (eager {a is None})")
            continue
        yield from _leaf(f"gradient {index}", "gradient", a, b, values)


def _failures(kind: str, eager: BaseException | None, jitted: BaseException | None) -> Iterator[Difference]:
    if eager is None or jitted is None:
        error = jitted or eager
        side = "thunder" if jitted else "eager"
        yield Difference(f"{kind}: {side} only", f"{type(error).__name__}: {error}")


def _leaf(place: str, kind: str, eager: Leaf, jitted: Leaf, values: bool) -> Iterator[Difference]:
    for name, expected in eager.facts.items():
        unseen = name == "written" and expected  # eager moved a version counter, for values that stayed the same
        if jitted.facts[name] != expected and not unseen:
            yield Difference(f"{kind} {name}", f"{place}: {name} {jitted.facts[name]}, not {expected}")
    if not values or eager.values is None or jitted.values is None:
        return
    if eager.values.shape != jitted.values.shape or eager.values.dtype != jitted.values.dtype:
        return
    if _identical(eager.values, jitted.values):
        return
    rtol, atol = _TOLERANCE.get(eager.values.dtype, (0.0, 0.0))
    try:
        assert_close(jitted.values, eager.values, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        yield Difference(f"{kind} values", f"{place}: {' '.join(str(error).split())[:300]}")
    else:
        yield Difference(f"{kind} bits", f"{place}: close but not bitwise equal")


def _identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    return a.is_floating_point() and bool(((a == b) | ((a != a) & (b != b))).all())
