from __future__ import annotations

import gc
import inspect
import linecache
import runpy
import sys
import traceback
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thunder.errors import ExecutionError
from thunder.ir import (
    BoundSymbol,
    Const,
    OpaqueType,
    Ref,
    Selection,
    Source,
    Stage,
    Symbol,
    TensorType,
    Trace,
    Var,
    program_text,
)
from thunder.runtime.codegen import compile_trace, explained

F32 = TensorType((4, 4), (4, 1), "float32", "cpu")
X, W = Var("x", F32), Var("w", F32)
SOURCE = Source("/home/user/model.py", 12, "    y = x @ w")

UNARY: dict[str, Any] = {
    "torch.sin": torch.sin,
    "aten.tanh": torch.ops.aten.tanh.default,
    "torch.nn.functional.relu": torch.nn.functional.relu,
    "torch.Tensor.t": torch.Tensor.t,
}
BINARY: dict[str, Any] = {
    "torch.matmul": torch.matmul,
    "aten.mul.Tensor": torch.ops.aten.mul.Tensor,
    "aten.add.Tensor": torch.add,
}


def bind(name: str, *args: Any, outs: Any, call: str | None = None, **kwargs: Any) -> BoundSymbol:
    return BoundSymbol(Symbol(name), args, kwargs, outs, call=call, selection=Selection("torch"), source=SOURCE)


def trace(*ops: BoundSymbol, result: Any, params: tuple[Var, ...] = (X, W), name: str = "forward") -> Trace:
    return Trace(name, params, ops, result, Stage.LOWERED, "lower")


def explode(x: torch.Tensor) -> torch.Tensor:
    raise FloatingPointError("it exploded")


@given(st.data())
def test_a_compiled_trace_computes_what_its_operations_say(data: st.DataObject) -> None:
    torch.manual_seed(0)
    env = {X: torch.randn(4, 4), W: torch.randn(4, 4)}
    args, ops = tuple(env.values()), []
    for index in range(data.draw(st.integers(0, 6))):
        name = data.draw(st.sampled_from([*UNARY, *BINARY]))
        inputs = [data.draw(st.sampled_from(list(env))) for _ in range(1 if name in UNARY else 2)]
        out = Var(f"t{index}", F32)
        env[out] = (UNARY | BINARY)[name](*(env[var] for var in inputs))
        ops.append(bind(name, *inputs, outs=out))
    result = data.draw(st.lists(st.sampled_from(list(env)), max_size=3))
    got = compile_trace(trace(*ops, result=(result, {"last": result[-1:]})))(*args)
    expected = [env[var] for var in result]
    torch.testing.assert_close(got, (expected, {"last": expected[-1:]}), rtol=0, atol=0)


def test_constants_multiple_results_and_indexing() -> None:
    values, indices, t = Var("values", F32), Var("indices", F32), Var("t", F32)
    fn = compile_trace(
        trace(
            bind("torch.topk", X, 2, outs=(values, indices), dim=-1),
            bind("torch.Tensor.__getitem__", values, (..., slice(None, None, 2), None), outs=t),
            bind("torch.full_like", t, float("-inf"), outs=W, dtype=Const("torch.float64")),
            result=(indices, t, W),
            params=(X,),
        )
    )
    x = torch.randn(4, 4)
    top = x.topk(2, dim=-1)
    full = torch.full((4, 1, 1), float("-inf"), dtype=torch.float64)
    torch.testing.assert_close(fn(x), (top.indices, top.values[..., ::2, None], full), rtol=0, atol=0)


def test_the_function_is_the_program_and_knows_its_trace() -> None:
    program = trace(bind("torch.sin", X, outs=Var("t0", F32)), result=Var("t0", F32))
    fn = compile_trace(program)
    assert vars(fn)["__thunder_trace__"] is program
    assert fn.__name__ == "forward"
    assert inspect.getsource(fn) in program_text(program)
    assert "t0 = sin(x)" in inspect.getsource(fn)


def test_text_is_forgotten_with_its_function() -> None:
    fns = [compile_trace(trace(result=X)) for _ in range(2)]
    names = [fn.__code__.co_filename for fn in fns]
    assert len(set(names)) == 2
    linecache.checkcache()
    assert all(name in linecache.cache for name in names)
    gc.disable()  # nothing but the last reference may be needed
    try:
        fns.pop()
        assert [name in linecache.cache for name in names] == [True, False]
    finally:
        gc.enable()


def test_objects_are_supplied() -> None:
    generator = torch.Generator().manual_seed(3)
    op = bind("torch.rand", 2, outs=W, generator=Ref("generator", generator))
    got = compile_trace(trace(op, result=W, params=()))()
    assert torch.equal(got, torch.rand(2, generator=torch.Generator().manual_seed(3)))


def test_values_are_freed_after_their_last_use() -> None:
    alive: list[bool] = []
    deaths: list[int] = []

    def watch(x: torch.Tensor) -> torch.Tensor:
        made = x + 1
        weakref.finalize(made, deaths.append, 1)
        return made

    def look(x: torch.Tensor) -> torch.Tensor:
        alive.append(not deaths)
        return x * 2

    t = [Var(f"t{n}", F32) for n in range(4)]
    ops = [
        BoundSymbol(Symbol("f"), (Ref("watch", watch), X), outs=t[0], call=f"{__name__}:apply"),
        BoundSymbol(Symbol("f"), (Ref("look", look), t[0]), outs=t[1], call=f"{__name__}:apply"),
        BoundSymbol(Symbol("f"), (Ref("look", look), t[1]), outs=t[2], call=f"{__name__}:apply"),
    ]
    compile_trace(trace(*ops, result=t[2]))(torch.randn(4, 4), None)
    assert alive == [True, False]


def apply(fn: Any, *args: Any) -> Any:
    return fn(*args)


def test_a_failure_names_the_operation_its_executor_and_the_users_line() -> None:
    t0, t1 = Var("t0", F32), Var("t1", F32)
    bad = BoundSymbol(
        Symbol("fake.explode"), (t0,), outs=t1, call=f"{__name__}:explode", selection=Selection("fake"), source=SOURCE
    )
    fn = compile_trace(trace(bind("torch.sin", X, outs=t0), bad, bind("torch.sin", t1, outs=W), result=W, params=(X,)))
    with pytest.raises(FloatingPointError) as caught:
        fn(torch.ones(4, 4))
    error = explained(caught.value)
    assert isinstance(error, ExecutionError)
    assert error.__cause__ is caught.value
    assert error.what == "fake.explode failed, run by fake"
    assert error.where == "/home/user/model.py:12   y = x @ w"
    assert error.why == "FloatingPointError: it exploded"
    assert "-fake" in error.fix
    assert "t1 = explode(t0)" in "".join(traceback.format_exception(caught.value))


def test_of_nested_programs_the_innermost_failed() -> None:
    product = replace(bind("torch.matmul", X, W, outs=Var("t0", F32)), source=SOURCE)
    inner = compile_trace(trace(product, result=Var("t0", F32), name="inner"))
    call = BoundSymbol(
        Symbol("fake.region"), (Ref("inner", inner), X, W), outs=Var("t0", F32), call=f"{__name__}:apply"
    )
    with pytest.raises(RuntimeError) as caught:
        compile_trace(trace(call, result=Var("t0", F32)))(torch.ones(2, 3), torch.ones(2, 3))
    assert explained(caught.value) is caught.value  # PyTorch's own errors stay what they are
    if sys.version_info >= (3, 11):
        assert "torch.matmul, called at /home/user/model.py:12" in caught.value.__notes__[0]


def test_failures_elsewhere_are_not_explained() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 // 0
    assert explained(caught.value) is caught.value
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(TypeError) as wrong_call:
        compile_trace(trace(result=X))()
    assert explained(wrong_call.value) is wrong_call.value
    assert not hasattr(wrong_call.value, "__notes__")


@pytest.mark.parametrize("stage", [Stage.CAPTURED, Stage.LOWERED])
def test_a_saved_program_runs_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: Stage) -> None:
    ids, state = Var("ids", TensorType((2, 3), (3, 1), "int64", "cpu")), Var("state", OpaqueType("state"))
    t0, t1 = Var("t0", F32), Var("t1", F32)
    ops = (
        bind("torch.nn.functional.embedding", ids, W, outs=t0, call="torch.nn.functional:embedding"),
        bind("torch.zeros_like", t0, outs=t1, call="torch:zeros_like"),
    )
    path = tmp_path / "program.py"
    path.write_text(program_text(Trace("forward", (ids, W, state), ops, (t1,), stage)))
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip() == f"({torch.zeros(2, 3, 4)!r},)"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), max_size=3),
    st.sampled_from(["float32", "bfloat16", "float8_e4m3fn", "complex64", "int64", "int32", "uint8", "bool"]),
)
def test_sample_inputs_have_the_types_of_the_parameters(dims: list[tuple[int, int]], dtype: str) -> None:
    shape, stride = tuple(size for size, _ in dims), tuple(step for _, step in dims)
    for strides in (stride, torch.empty(shape).stride()):
        text = program_text(trace(result=(X,), params=(Var("x", TensorType(shape, strides, dtype, "cpu")),)))
        got: list[Any] = []
        namespace = {"__name__": "__main__", "print": got.extend}
        exec(text, namespace)
        assert (got[0].shape, got[0].stride(), got[0].dtype) == (shape, strides, getattr(torch, dtype))
        assert got[0].device.type == "cpu"


def test_layouts_without_strides_are_sampled() -> None:
    text = program_text(
        trace(result=(X,), params=(Var("x", TensorType((2, 3), None, "float32", "cpu", False, "sparse_coo")),))
    )
    got: list[Any] = []
    exec(text, {"__name__": "__main__", "print": got.extend})
    assert got[0].layout is torch.sparse_coo
    assert got[0].shape == (2, 3)
