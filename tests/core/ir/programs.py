"""Random programs over operations on integers, with state, and an interpreter that is independent of the printer."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from operator import attrgetter
from typing import Any

from hypothesis import strategies as st

from thunder.ir import (
    RANDOM,
    Access,
    BoundSymbol,
    Effect,
    OpaqueType,
    Phase,
    Selection,
    Source,
    Stage,
    StateKind,
    Symbol,
    Trace,
    Var,
)
from thunder.ir import tree as trees

HERE = "tests.core.ir.programs"
NUMBER = OpaqueType("number")
STATE = OpaqueType("state")
LAST = StateKind(name="fake.last", close="fake.sync_last", closes="last")
FIRST = StateKind(name="fake.first", close="fake.sync_first", closes="first")
EACH = StateKind(name="fake.each", close="fake.sync_each", closes="each")
AMBIENT = StateKind(name="fake.ambient", close="fake.sync_ambient")
OPEN = StateKind(name="fake.open")
CALLS = {str(kind.close): f"{HERE}:sync" for kind in (LAST, FIRST, EACH, AMBIENT)}

INPUTS = tuple(Var(name, NUMBER) for name in ("x", "y"))
HANDLES = {Var(f"{kind.name[5:]}{n}", STATE): kind for kind in (LAST, FIRST, EACH, OPEN) for n in range(2)}
STATES = [*((kind, handle) for handle, kind in HANDLES.items()), (AMBIENT, None), (RANDOM, None)]


def mix(*numbers: int) -> int:
    """A number that depends on all arguments and on their order."""
    return reduce(lambda acc, n: (acc * 31 + n) % 1_000_003, numbers, 7)


def mix2(*numbers: int) -> tuple[int, list[int]]:
    return mix(*numbers), [mix(*numbers, 1)]


def read(handle: dict[str, int], *numbers: int) -> int:
    return mix(*numbers, handle["sum"])


def update(handle: dict[str, int], *numbers: int) -> int:
    """Adds to the state: two updates commute. The result does not depend on the state."""
    handle["sum"] += mix(*numbers)
    return mix(*numbers)


def write(handle: dict[str, int], *numbers: int) -> int:
    handle["sum"] = mix(*numbers, handle["sum"])
    return handle["sum"]


def sync(*handles: dict[str, int]) -> None:
    for handle in handles:
        handle["closed"] += 1


def bind(fn: Any, args: tuple[Any, ...], outs: Any, effects: tuple[Effect, ...] = (), **changes: Any) -> BoundSymbol:
    """One lowered call of a function of this module."""
    defaults: dict[str, Any] = {
        "sym": Symbol(f"fake.{fn.__name__}"),
        "call": f"{HERE}:{fn.__name__}",
        "selection": Selection("fake"),
        "source": Source("user/model.py", 1 + len(args), f"y = {fn.__name__}(x)"),
    }
    return BoundSymbol(args=args, outs=outs, effects=effects, **(defaults | changes))


def lowered(ops: Any, result: Any, name: str = "forward", params: tuple[Var, ...] = (*INPUTS, *HANDLES)) -> Trace:
    return Trace(name, params, tuple(ops), result, Stage.LOWERED, "lower")


@st.composite
def operation(draw: st.DrawFn, defined: list[Var], index: int, stateful: bool) -> BoundSymbol:
    """An operation that reads some of the variables defined so far."""
    args = tuple(draw(st.lists(st.sampled_from(defined), max_size=3)))
    out = Var(f"t{index}", NUMBER)
    if not (stateful and draw(st.booleans())):
        if draw(st.booleans()):
            return bind(mix, args, out)
        return bind(
            mix2, args, draw(st.sampled_from([(out, [Var(f"s{index}", NUMBER)]), (None, [out]), (out, [None])]))
        )
    kind, handle = draw(st.sampled_from(STATES))
    access = Access.WRITE if kind is RANDOM else draw(st.sampled_from(Access))
    effects = (Effect(kind, access, handle),)
    if handle is None:
        return bind(mix, args, out, effects)
    return bind(globals()[access.value], (handle, *args), out, effects)


@st.composite
def programs(draw: st.DrawFn, max_size: int = 12, stateful: bool = True) -> Trace:
    """A lowered trace whose operations read, update and write states; the result is a tuple of some variables."""
    defined = list(INPUTS)
    ops = []
    for index in range(draw(st.integers(0, max_size))):
        op = draw(operation(defined, index, stateful))
        ops.append(op)
        defined.extend(op.outputs)
    return lowered(ops, tuple(draw(st.lists(st.sampled_from(defined), max_size=3))))


@st.composite
def splits(draw: st.DrawFn) -> dict[Phase, Trace]:
    """A program cut into a forward and a backward trace; backward also takes what forward made."""
    whole = draw(programs())
    cut = draw(st.integers(0, len(whole.ops)))
    made = tuple(var for op in whole.ops[:cut] for var in op.outputs)
    backward = [replace(op, phase=Phase.BACKWARD) for op in whole.ops[cut:]]
    last = whole.ops[-1].outputs if whole.ops else ()
    return {
        Phase.FORWARD: lowered(whole.ops[:cut], made),
        Phase.BACKWARD: lowered(backward, last, "backward", (*whole.params, *made)),
    }


def fresh_arguments(trace: Trace) -> list[Any]:
    return [{"sum": 1, "closed": 0} if param.type == STATE else n + 2 for n, param in enumerate(trace.params)]


def interpret(trace: Trace, args: list[Any]) -> Any:
    """Runs a trace one operation at a time."""
    env: dict[Var, Any] = dict(zip(trace.params, args, strict=True))
    for op in trace.ops:
        assert op.call is not None
        module, _, name = op.call.partition(":")
        fn = attrgetter(name)(importlib.import_module(module))
        _assign(env, op.outs, fn(*trees.substitute(op.args, env), **trees.substitute(op.kwargs, env)))
    return trees.substitute(trace.result, env)


def _assign(env: dict[Var, Any], outs: Any, value: Any) -> None:
    if isinstance(outs, Var):
        env[outs] = value
    elif isinstance(outs, (tuple, list)):
        for out, item in zip(outs, value, strict=True):
            _assign(env, out, item)


def conflicts(first: BoundSymbol, second: BoundSymbol) -> bool:
    """By definition: the second reads what the first makes, or two of their effects conflict."""
    data = not set(first.outputs).isdisjoint(second.inputs)
    return data or any(a.conflicts(b) for a in first.effects for b in second.effects)


def touched(trace: Trace) -> Mapping[tuple[str, Var | None], StateKind]:
    """The closable states that the operations of a trace changed; closers are not among its operations yet."""
    return {
        (e.state.name, e.handle): e.state
        for op in trace.ops
        for e in op.effects
        if e.state.close and e.access is not Access.READ
    }
