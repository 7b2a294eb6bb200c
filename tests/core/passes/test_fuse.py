"""Fused programs: what they compute, what they share, and what is left alone."""

from __future__ import annotations

import runpy
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from examples.models import GPT, GPTConfig, Llama, LlamaConfig
from tests.fuzz.check import verdict
from tests.fuzz.generate import generate
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import Trace
from thunder.runtime.library import LIBRARY
from thunder.testing.fakes import FAKE
from thunder.testing.fakes.fuser import COMPILED, FUSER, RUNS

FRONTENDS = ["functional", "dynamo"]
EVERYTHING = {"fakefuser.everything": True}


@pytest.fixture(autouse=True)
def fresh():
    LIBRARY.clear()
    COMPILED.clear()
    RUNS.clear()


def fused(fn, frontend="functional", **options):
    named = {f"fakefuser.{name}": value for name, value in options.items()}
    return thunder.jit(fn, executors=[FUSER], frontend=frontend, options=named)


def regions(trace: Trace) -> list[BoundSymbol]:
    return [op for op in trace.ops if op.fused is not None]


def steps(module, args, program):
    """The loss, and the gradients of all parameters."""
    module.zero_grad()
    loss = program(*args).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in module.parameters())]


@pytest.mark.parametrize("everything", [False, True])
def test_random_programs_do_what_they_do_in_eager(everything):
    """Values bit by bit, layouts, shared memory, random state, gradients, errors, writes afterwards."""
    options = {"fakefuser.everything": everything, "fakefuser.alone": everything}
    seeds = range(1000 + 50 * everything, 1050 + 50 * everything)
    verdicts = [verdict(generate(Random(seed)), executors=[FUSER], options=options) for seed in seeds]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []
    assert len(RUNS) > 30


@pytest.mark.slow
def test_random_programs_do_what_they_do_in_eager_under_dynamo():
    verdicts = [
        verdict(generate(Random(seed)), "dynamo", executors=[FUSER], options=EVERYTHING) for seed in range(2000, 2030)
    ]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []
    assert RUNS


def test_results_without_elements_that_nobody_reads_keep_nothing_apart():
    """Batch norm with running statistics makes two of them."""
    module = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()).eval()
    module[0].running_mean.uniform_(-1, 1)
    program, x = fused(module, everything=True), torch.randn(4, 3)
    with torch.no_grad():
        assert torch.equal(program(x), module(x))
    assert [len(regions(trace)) for trace in thunder.last_traces(program)][-1:] == [1]


def gpt(layers: int):
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab=32, context=16, layers=layers, heads=2, width=32))
    return model, (torch.randint(0, 32, (2, 16)),)


def llama(layers: int):
    torch.manual_seed(0)
    model = Llama(LlamaConfig(vocab=32, context=16, layers=layers, heads=2, groups=2, width=32))
    return model, (torch.randint(0, 32, (2, 16)),)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("make", [gpt, llama])
def test_training_is_bitwise_that_of_the_program_without_a_fuser(make, frontend):
    module, args = make(2)
    expected = steps(module, args, thunder.jit(module, frontend=frontend))
    found = steps(module, args, fused(module, frontend))
    assert all(map(torch.equal, found, expected))
    assert RUNS


def test_each_different_region_is_compiled_once_however_many_layers_there_are():
    compiled = []
    for layers in (3, 24):
        LIBRARY.clear()
        COMPILED.clear()
        module, args = llama(layers)
        jitted = fused(module)
        steps(module, args, jitted)
        compiled.append(len(COMPILED))
        calls = regions(thunder.last_traces(jitted)[-1]) + regions(thunder.last_backward_traces(jitted)[-1])
        assert len(calls) >= 8 * layers
        assert len({id(op.fused) for op in calls}) == len(COMPILED)
    assert compiled[0] == compiled[1]


def test_other_functions_share_them():
    fused(lambda x: (x.sin() + 1).cos())(torch.ones(4))
    fused(lambda y, z: z @ (y.sin() + 1).cos())(torch.ones(4), torch.ones(4, 4))
    assert len(COMPILED) == 1
    fused(lambda x: (x.sin() + True).cos())(torch.ones(4))  # another constant, though 1 == True
    assert len(COMPILED) == 2


def test_composites_stay_whole_where_nothing_of_them_is_fused():
    def program(x, w):
        return F.layer_norm(x @ w, (8,)) @ w

    jitted = fused(program)
    jitted(torch.ones(4, 8), torch.ones(8, 8))
    assert [op.sym.name for op in thunder.last_traces(jitted)[-1].ops] == [
        "torch.matmul", "torch.nn.functional.layer_norm", "torch.matmul"
    ]  # fmt: skip


@pytest.mark.parametrize("alone", [False, True])
def test_one_operation_is_fused_where_the_fuser_says_that_it_is_faster(alone):
    def program(x, w):
        return F.layer_norm(x.t() @ w, (64,)) @ w

    args = torch.randn(64, 128), torch.randn(64, 64)
    jitted = fused(program, alone=alone)
    assert torch.equal(jitted(*args), program(*args))
    assert [op.sym.name for region in COMPILED for op in region.ops] == ["aten.native_layer_norm"] * alone


def test_views_alone_are_not_fused():
    jitted = fused(lambda x: x.t().reshape(2, 2, 4).transpose(0, 1)[0] @ x, everything=False)
    jitted(torch.ones(4, 4))
    assert not RUNS


def test_views_between_are_taken_inside():
    def program(x, w):
        y = (x.sin() * 2).view(2, 2, 4).transpose(0, 1)
        return (y + 1).flatten() @ w

    jitted = fused(program)
    jitted(torch.ones(4, 4), torch.ones(16, 3))
    (region,) = COMPILED
    assert [op.sym.name for op in region.ops].count("aten.view") == 1
    assert len(regions(thunder.last_traces(jitted)[-1])) == 1


def test_results_that_are_views_share_memory_as_in_eager():
    def program(x):
        y = x.sin() + 1
        return y, y.t(), y[0], (y * 2).t(), x.t()

    x = torch.randn(3, 3)
    y, t, row, other, of_input = fused(program)(x)
    assert y.data_ptr() == t.data_ptr() == row.data_ptr()
    assert of_input.data_ptr() == x.data_ptr()
    assert other.data_ptr() != y.data_ptr()
    for got, want in zip((y, t, row, other, of_input), program(x)):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
    y.zero_()
    assert not t.any()


def test_a_composite_that_stays_whole_makes_no_group_depend_on_itself():
    """``b`` is a view of ``a`` alone, so that both could be in one group, but the call makes ``c`` for it as well."""

    def program(x, w, y):
        a = x.sin() + 1
        b, c = torch.broadcast_tensors(a, y)
        return b.cos() + c @ w

    args = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    assert torch.equal(fused(program)(*args), program(*args))
    assert RUNS


@pytest.mark.parametrize("grad", [False, True])
def test_together_with_an_executor_that_has_states(grad):
    """Regions between linear layers whose states are closed once per step, as without a fuser."""
    found = []
    for executors in ([FAKE], [FAKE, FUSER]):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Tanh(), nn.Linear(8, 4), nn.Sigmoid(), nn.Tanh())
        jitted = thunder.jit(net, executors=executors, frontend="functional")
        for _ in range(2):
            out = jitted(torch.ones(3, 4, requires_grad=grad)).sum()
            out.backward()
        states = thunder.executor_state(jitted)
        closed = {kind: {site: (s.closes, s.history) for site, s in of.items()} for kind, of in states.items()}
        found.append((out.detach(), [p.grad for p in net.parameters()], closed))
    assert torch.equal(found[0][0], found[1][0])
    assert all(map(torch.equal, found[0][1], found[1][1]))
    assert found[0][2] == found[1][2]
    assert RUNS


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_inputs_that_the_program_writes(frontend):
    def program(x, y):
        z = (x * 2).sin()
        x.add_(1)
        return z + x, (y * x).cos() + 1

    expected, found = [], []
    for fn, out in ((program, expected), (fused(program, frontend), found)):
        x, y = torch.ones(4), torch.ones(4, requires_grad=True)
        results = fn(x, y)
        results[1].sum().backward()
        out += [*map(torch.detach, results), x, y.grad]
    assert all(map(torch.equal, found, expected))
    assert RUNS


def test_values_without_elements_are_left_alone():
    jitted = fused(lambda x: (x + 1).sin() * 2)
    assert jitted(torch.ones(0, 4)).shape == (0, 4)
    assert not RUNS


def test_devices_are_not_mixed():
    from thunder.passes.partition import Graph, Node, partition

    nodes = [Node("cpu", frozenset(), (), ("a",)), Node("cuda:0", frozenset({0}), ("a",), ("b",))]
    assert partition(Graph(nodes, {"a": 8, "b": 8})) == [[0], [1]]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(F.gelu(self.fc(x)) + x).tanh() * 2


def test_the_printed_program_runs_by_itself(tmp_path, capsys):
    jitted = fused(Net())
    jitted(torch.randn(4, 8)).sum().backward()
    for trace in (thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]):
        RUNS.clear()
        path = tmp_path / f"{trace.name}.py"
        path.write_text(str(trace))
        runpy.run_path(str(path), run_name="__main__")
        assert "tensor(" in capsys.readouterr().out
        assert "def fakefuser_region_0(" in str(trace)
        assert not RUNS


def test_equal_regions_have_one_definition():
    def program(x, w):
        for _ in range(3):
            x = (x @ w).sin() * 2
        return x

    jitted = fused(program)
    jitted(torch.ones(4, 4), torch.ones(4, 4))
    text = str(thunder.last_traces(jitted)[-1])
    assert text.count("def fakefuser_region_") == 1
    assert text.count("= fakefuser_region_0(") == 3


def test_random_numbers_are_drawn_in_order_outside():
    def program(x):
        a = F.dropout(x.sin() + 1, 0.5)
        b = torch.rand_like(a) * a
        return (b + 1).cos()

    torch.manual_seed(0)
    expected = program(torch.ones(16))
    torch.manual_seed(0)
    assert torch.equal(fused(program, everything=True)(torch.ones(16)), expected)
    assert RUNS
    assert not any("dropout" in op.sym.name or "rand" in op.sym.name for r in RUNS for op in r.ops)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_fuel_limits_the_number_of_regions_forward_first(count):
    def program(x, w):
        return ((x.sin() * 2) @ w).cos() * 3

    def step(fn):
        x, w = torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)
        out = fn(x, w)
        out.sum().backward()
        return out.detach(), x.grad

    jitted = fused(program, fuel=count)
    assert all(map(torch.equal, step(jitted), step(program)))
    forward, backward = thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1]
    assert len(regions(forward)) == min(count, 2)
    assert len(regions(forward)) + len(regions(backward)) == count


def test_without_a_fuser_nothing_changes():
    jitted = thunder.jit(lambda x: (x.sin() + 1).cos(), executors=[], frontend="functional")
    jitted(torch.ones(4))
    assert [trace.made_by for trace in thunder.last_traces(jitted)] == [
        "capture", "functionalize", "select", "lower", "schedule"
    ]  # fmt: skip
