"""A fuser with symbols of its own: in its regions, cheap to run again; drawing random numbers; differentiated twice."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F

import thunder
from thunder.extend import Claim, Executor, Fuser, Grad, Op, Writes, Yes, leaves, map_tree, resolve, symbol, to_torch
from thunder.ir.types import Var
from thunder.plugins.validate import validate

HERE = "tests.core.passes.test_own_symbols"
SEEDED = Executor(
    name="seeded",
    symbols=(
        Op("seeded.draw", impl=f"{HERE}:draw", meta=f"{HERE}:draw_type", effects=(Writes("torch.random"),)),
        Op("seeded.noise", impl=f"{HERE}:noise", meta=f"{HERE}:noise_type"),
    ),
    claims=(
        Claim(
            "torch.nn.functional.dropout",
            lower=f"{HERE}:lower",
            grad=Grad(forward=f"{HERE}:forward", backward=f"{HERE}:backward"),
        ),
    ),
    fuser=Fuser(supports=f"{HERE}:supports", compile=f"{HERE}:compile_region", overhead=0.0),
)


def draw():
    return torch.randint(2**40, ())


def draw_type():
    return torch.empty((), dtype=torch.int64)


def noise(shape, seed):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed.item()))


def noise_type(shape, seed):
    return torch.empty(shape)


def dropped(x, p, seed):
    return x * (symbol("seeded.noise")(x.shape, seed) >= p) / (1 - p)


def lower(input, p=0.5, training=True, inplace=False):
    return dropped(input, p, symbol("seeded.draw")())


def forward(input, p=0.5, training=True, inplace=False):
    seed = symbol("seeded.draw")()
    return dropped(input, p, seed), (p, seed)


def backward(saved, grad):
    return dropped(grad, *saved)


def supports(cx, op):
    return Yes()


def compile_region(cx, region):
    def run(*tensors):
        values = dict(zip(region.params, tensors, strict=True))
        for op in region.ops:
            args, kwargs = (
                map_tree(lambda v: values[v] if isinstance(v, Var) else to_torch(v), t) for t in (op.args, op.kwargs)
            )
            made = resolve(op.call)(*args, **kwargs)
            values.update(zip(leaves(op.outs), leaves(made), strict=True))
        return tuple(values[v] for v in region.result)

    return run


def jit(fn):
    return thunder.jit(fn, executors=[SEEDED], frontend="functional")


def names(trace):
    return [[op.sym.name for op in region.fused.ops] for region in trace.ops if region.fused is not None]


def test_an_executor_may_say_that_it_draws():
    assert validate(SEEDED) == ()
    wrong = replace(SEEDED, symbols=(Op("seeded.draw", impl=f"{HERE}:draw", effects=(Writes("torch.rand"),)),))
    assert [fault.kind for fault in validate(wrong)] == ["effect"]


def test_its_symbols_are_in_its_regions_and_are_run_again_in_backward():
    x = torch.randn(30, 40, requires_grad=True)
    fn = jit(lambda x: F.dropout(x.exp()).sin())
    out = fn(x)
    (forward_ops,), (backward_ops,) = names(thunder.last_traces(fn)[-1]), names(thunder.last_backward_traces(fn)[-1])
    assert "seeded.noise" in forward_ops
    assert "seeded.noise" in backward_ops
    assert "seeded.draw" in [op.sym.name for op in thunder.last_traces(fn)[-1].ops], "an effect stays outside"
    _, _, saved = thunder.last_traces(fn)[-1].result
    assert sorted(v.type.numel for v in saved) == [1, x.numel()]
    kept, e = out != 0, x.exp()
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, kept * 2 * e * (2 * e).cos())


def test_draws_are_an_effect():
    """They keep their order and move the generator, whether their numbers are used or not."""
    x = torch.randn(30)

    def program(x):
        F.dropout(x)
        return F.dropout(x), torch.rand(3)

    torch.manual_seed(0)
    first, last = jit(program)(x)
    torch.manual_seed(0)
    draw()
    expected = x * (noise(x.shape, draw()) >= 0.5) * 2
    torch.testing.assert_close(first, expected)
    assert torch.equal(last, torch.rand(3))


def test_the_derivative_of_a_derivative_sees_the_numbers_of_the_executor():
    x = torch.randn(30, 40, requires_grad=True)
    out = jit(lambda x: F.dropout(x) ** 3)(x)
    kept = out != 0
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.testing.assert_close(first, 24 * x**2 * kept)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 48 * x * kept)
