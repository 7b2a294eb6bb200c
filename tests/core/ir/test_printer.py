from __future__ import annotations

import ast
import keyword
from enum import IntEnum
from operator import add
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.ir.programs import CALLS, HERE, INPUTS, NUMBER, bind, fresh_arguments, interpret, lowered, mix, splits
from thunder.errors import VerifyError
from thunder.ir import (
    BoundSymbol,
    Const,
    OpaqueType,
    Phase,
    Ref,
    Source,
    Stage,
    Symbol,
    TensorType,
    Trace,
    Var,
    program_text,
)
from thunder.ir.printer import render
from thunder.ir.tree import freeze
from thunder.passes.schedule import schedule

X, Y = INPUTS
T0 = Var("t0", NUMBER)

plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(), st.text(), st.binary(), st.just(...)
)  # fmt: skip
bounds = st.one_of(st.none(), st.integers())
values = st.recursive(
    plain | st.builds(slice, bounds, bounds, bounds),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(), inner, max_size=3),
    ),
)


def run(trace: Trace, *args: Any) -> Any:
    program = render(trace)
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(program.text, namespace)
    namespace.update(program.supplied)
    return namespace[trace.name](*args)


def returned(*args: Any, **kwargs: Any) -> Any:
    return args, kwargs


def lines(trace: Trace) -> list[str]:
    return [line.strip() for line in program_text(trace).splitlines()]


@given(splits())
def test_text_computes_what_the_trace_says_and_ends_with_its_only_return(traces: dict[Phase, Trace]) -> None:
    for trace in schedule(traces, CALLS).values():
        args, again = fresh_arguments(trace), fresh_arguments(trace)
        assert run(trace, *args) == interpret(trace, again)
        assert args == again, "the states end up different"
        function = next(n for n in ast.parse(program_text(trace)).body if isinstance(n, ast.FunctionDef))
        returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
        assert returns == [function.body[-1]]


@given(splits())
def test_everything_that_was_used_is_freed_except_the_result(traces: dict[Phase, Trace]) -> None:
    for trace in traces.values():
        function = next(n for n in ast.parse(program_text(trace)).body if isinstance(n, ast.FunctionDef))
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        freed = [name.id for name in names if isinstance(name.ctx, ast.Del)]
        used = {var.name for op in trace.ops for var in (*op.inputs, *op.outputs)}
        assert sorted(freed) == sorted(used - {var.name for var in trace.results})


def test_unlowered_traces_are_not_cluttered_with_frees() -> None:
    ops = (bind(mix, (X,), T0),)
    assert "del x" in lines(Trace("f", INPUTS, ops, T0, Stage.SCHEDULED))
    assert not any(line.startswith("del") for line in lines(Trace("f", INPUTS, ops, T0, Stage.FUNCTIONAL)))


@given(st.lists(values, max_size=3), st.dictionaries(st.text(max_size=5) | st.sampled_from(keyword.kwlist), values))
def test_arguments_come_through_unchanged(args: list[Any], kwargs: dict[str, Any]) -> None:
    op = BoundSymbol(Symbol("f"), tuple(args), kwargs, T0, call=f"{__name__}:returned")
    assert freeze(run(lowered([op], T0, params=()))) == freeze((tuple(args), kwargs))


def test_keywords_that_python_would_normalise_stay_as_they_are() -> None:
    op = BoundSymbol(Symbol("f"), kwargs={"ª": 1, "a": 2}, outs=T0, call=f"{__name__}:returned")
    assert run(lowered([op], T0, params=())) == ((), {"ª": 1, "a": 2})


def operator() -> str:
    return "not the module"


def test_a_callable_does_not_hide_a_module_of_the_same_name() -> None:
    op = BoundSymbol(Symbol("f"), outs=T0, call=f"{__name__}:operator")
    constant = BoundSymbol(Symbol("f"), (Const("operator.add"),), outs=Y, call=f"{__name__}:returned")
    assert run(lowered([op, constant], (T0, Y), params=())) == ("not the module", ((add,), {}))


class Colour(IntEnum):
    RED = 1


def test_subclasses_of_plain_values_are_written_as_plain_values() -> None:
    op = BoundSymbol(Symbol("f"), (Colour.RED, type("S", (str,), {})("s")), {}, T0, call=f"{__name__}:returned")
    args, _ = run(lowered([op], T0, params=()))
    assert args == (1, "s")
    assert [type(arg) for arg in args] == [int, str]


def test_a_value_that_python_cannot_spell_is_an_error_and_a_ref_is_supplied() -> None:
    generator = object()
    with pytest.raises(VerifyError, match="type object cannot be written"):
        program_text(lowered([BoundSymbol(Symbol("f"), (generator,), outs=T0)], T0))
    refs = (Ref("generator", generator), Ref("generator", "other"), Ref("again", generator))
    trace = lowered([BoundSymbol(Symbol("f"), refs, outs=T0, call=f"{__name__}:returned")], T0, params=())
    assert run(trace) == ((generator, "other", generator), {})
    assert "generator = ...  # supplied when run: object" in lines(trace)
    assert "generator_1 = ...  # supplied when run: str" in lines(trace)


@pytest.mark.parametrize("name", ["math", "inf", "float", "slice", "complex", "returned", "generator", "math_inf"])
def test_variables_may_have_any_name(name: str) -> None:
    var = Var(name, NUMBER)
    args = (var, Const("math.inf"), float("-inf"), slice(1), 1j, Ref("generator", "g"), Const("range(2)"))
    op = BoundSymbol(Symbol("f"), args, outs=T0, call=f"{__name__}:returned")
    got, _ = run(lowered([op, bind(mix, (var,), None)], T0, params=(var,)), 5)
    assert got == (5, float("inf"), float("-inf"), slice(1), 1j, "g", range(2))


def test_a_constant_that_is_made_by_a_call_is_made_once() -> None:
    op = BoundSymbol(Symbol("f"), (Const("math.sqrt(4)"), Const("math.pi")), outs=T0, call=f"{__name__}:returned")
    text = lines(lowered([op, op], T0, params=()))
    assert text.count("import math") == 1
    assert "math_sqrt_4 = math.sqrt(4)" in text
    assert text.count("t0 = returned(math_sqrt_4, math.pi)  # number") == 2


@pytest.mark.parametrize(
    ("symbol", "call", "alias"),
    [
        ("torch.nn.functional.linear", None, "linear = torch.nn.functional.linear"),
        ("torch.Tensor.__getitem__", None, "getitem = torch.Tensor.__getitem__"),
        ("aten.mm", None, "mm = torch.ops.aten.mm.default"),
        ("aten.add.Tensor", None, "add = torch.ops.aten.add.Tensor"),
        ("aten.sum", None, "aten_sum = torch.ops.aten.sum.default"),
        ("aten.sum.dim_IntList", None, "sum_dim_IntList = torch.ops.aten.sum.dim_IntList"),
        ("torch.sum", None, "torch_sum = torch.sum"),
        ("te.linear", "thunder_te.kernels:linear", "linear = thunder_te.kernels.linear"),
        ("aten.mm", "torch:mm", "mm = torch.mm"),
    ],
)
def test_callables_get_readable_names(symbol: str, call: str | None, alias: str) -> None:
    assert alias in lines(lowered([BoundSymbol(Symbol(symbol), outs=T0, call=call)], T0))


def test_callables_of_one_name_stay_apart() -> None:
    symbols = ["aten.add.Tensor", "aten.add.Scalar", "torch.add", "torch.special.add", "mine.add"]
    ops = [BoundSymbol(Symbol(name), outs=Var(f"t{n}", NUMBER)) for n, name in enumerate(symbols)]
    text = lines(lowered([*ops, BoundSymbol(Symbol("aten.add.Tensor"), outs=Var("mm", NUMBER))], Y))
    names = [line.partition(" = ")[0] for line in text if " = torch." in line]
    assert names == ["add", "add_Scalar", "torch_add", "special_add", "mine_add"]
    assert "mm = add()  # number" in text


def test_results_are_unpacked_as_they_are_nested() -> None:
    a, b, c, d = (Var(name, NUMBER) for name in "abcd")
    shapes = {"a": a, "a, b": (a, b), "(a,)": (a,), "(a,) ": [a], "a, _, (b, (c,)), d": (a, None, [b, (c,)], d)}
    for target, outs in shapes.items():
        op = BoundSymbol(Symbol("torch.f"), outs=outs)
        assert any(line.startswith(f"{target.strip()} = f()") for line in lines(lowered([op], X)))
    for outs in (None, (), (None, None)):
        assert "f()" in lines(lowered([BoundSymbol(Symbol("torch.f"), outs=outs)], X))


def test_comments_tell_types_executor_source_and_phase() -> None:
    x = Var("x", TensorType((4, 64), (64, 1), "float32", "cpu"))
    source = Source("/home/user/model.py", 12, "  y = self.fc1(x)\n")
    ops = [
        bind(mix, (x,), T0, source=source),
        bind(mix, (x,), Var("t1", NUMBER), source=source),
        bind(mix, (x,), None, source=Source("/home/user/model.py", 13), phase=Phase.EPILOGUE),
    ]
    assert (
        program_text(lowered(ops, T0, params=(x,)))
        == f"""\
# forward: lowered, made by lower
import {HERE}
import torch

mix = {HERE}.mix


def forward(x):
    # x: cpu f32[4, 64]
    # forward
    # model.py:12   y = self.fc1(x)
    t0 = mix(x)  # number  [fake]
    t1 = mix(x)  # number  [fake]
    del t1
    # epilogue
    # model.py:13
    mix(x)  # [fake]
    del x
    return t0


if __name__ == "__main__":
    print(
        forward(
            torch.randn((4, 64), dtype=torch.float32, device='cpu'),  # x
        )
    )
"""
    )


def test_equal_traces_have_equal_text() -> None:
    """Nothing of the process (addresses, order of sets) gets into the text."""

    def make() -> Trace:
        return lowered([bind(mix, (X, Ref("r", object()), Const("math.pi")), T0)], T0)

    assert program_text(make()) == program_text(make())


def test_lines_lead_back_to_operations() -> None:
    ops = [bind(mix, (X,), T0), bind(mix, (T0,), Var("t1", OpaqueType("number")))]
    program = render(lowered(ops, T0))
    text = program.text.splitlines()
    assert [(text[n - 1].split(" = ")[0].strip(), op) for n, op in program.lines.items()] == [
        ("t0", ops[0]),
        ("t1", ops[1]),
    ]
