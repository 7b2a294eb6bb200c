"""One program for many sizes, against eager PyTorch."""

from __future__ import annotations

import threading

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from examples.models import GPT, GPTConfig
from tests.faults import fault_of_torch_2_10
from thunder.extend import Claim, Executor, No, Yes
from thunder.frontends import symbolic
from thunder.frontends.dynamo import backend as dynamo_backend
from thunder.ir.types import NumberType
from thunder.lang.numbers import Numbers
from thunder.observe.history import last_backward_traces, last_traces
from thunder.runtime import backward
from thunder.testing.fakes import FAKE

PLAIN_SIZES = fault_of_torch_2_10("matrix products of batches take plain sizes, so that there is a program for each")

SIZES = [(4, 6), (2, 7), (3, 8), (9, 5), (8, 6)]


@pytest.fixture(autouse=True)
def _fresh_dynamo(monkeypatch):
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)


def jit(fn, *executors, dynamic=True):
    return thunder.jit(fn, executors=[*executors, ...], dynamic=dynamic)


def programs(jitted):
    return len(jitted._thunder_records)


def derivatives(fn, x, parameters=()):
    """Result of a call, and the gradients of its sum for ``x`` and the parameters."""
    torch.manual_seed(1)
    x = x.detach().clone().requires_grad_(x.is_floating_point())
    out = fn(x)
    wanted = [*parameters, x] if x.requires_grad else [*parameters]
    return [out.detach(), *torch.autograd.grad(out.sum(), wanted, allow_unused=True)]


def assert_one_program(fn, shapes, make=torch.randn, parameters=(), **tolerance):
    """As eager, gradients too, for inputs of all shapes, with one compilation."""
    jitted = jit(fn)
    for shape in shapes:
        x = make(*shape)
        tight = tolerance or {"rtol": 0, "atol": 0}
        torch.testing.assert_close(derivatives(jitted, x, parameters), derivatives(fn, x, parameters), **tight)
    assert [str(note) for note in jitted._thunder_notes] == []
    assert programs(jitted) == 1
    return jitted


def module(*layers):
    net = nn.Sequential(*layers)
    return net, tuple(net.parameters())


class Tokens(nn.Module):
    """Embeddings with positions, and the loss of the next token."""

    def __init__(self):
        super().__init__()
        self.tokens, self.positions, self.head = nn.Embedding(10, 8), nn.Embedding(32, 8), nn.Linear(8, 10)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return F.cross_entropy(self.head(x[:, :-1]).reshape(-1, 10), tokens[:, 1:].reshape(-1))


def masked_attention(x):
    time = x.shape[1]
    mask = torch.tril(torch.ones(time, time, dtype=torch.bool))
    return (x @ x.mT / x.shape[-1] ** 0.5).masked_fill(~mask, float("-inf")).softmax(-1) @ x


def written(x):
    y = x * 2
    y[1:] += x.shape[0]
    y[:, :2].mul_(3)
    return y


FUNCTIONS = {
    "sizes as numbers": lambda x: x * x.shape[0] + x.shape[1] / 3 - x.numel(),
    "loss": lambda x: x.square().mean() + x.abs().sum() / x.shape[0],
    "reshape": lambda x: torch.sin(x).reshape(-1).reshape(x.shape[1], x.shape[0]).t() * 2,
    "cat": lambda x: torch.cat([x, x[:, 1:], x[:, : x.shape[1] // 2]], 1),
    "slices": lambda x: x[:, 1:-1][:, ::2].cumsum(1) * x[:, -2:].sum(),
    "factories": lambda x: x + torch.ones(x.shape) * torch.arange(x.shape[1]) + x.new_zeros(x.shape[0], 1),
    "pad and roll": lambda x: F.pad(x, (1, 2)).roll(1, 0),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1).sum(0) * x.mean(0, keepdim=True),
    "reductions": lambda x: x.std(1) + x.norm() + x.amax(1) + x.logsumexp(1),
    "matmul": lambda x: (x @ x.t()).softmax(-1) @ x,
    "dropout": lambda x: F.dropout(x, 0.5) * 2,
    "writes": written,
    "view of the input": lambda x: x.t()[1:],
    "overlapping windows": lambda x: x.unfold(1, 3, 1).sum(-1),
    "sorted": lambda x: x.sort(-1)[0][:, :2] * x.topk(2, -1)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_serves_all_sizes(name):
    assert_one_program(FUNCTIONS[name], [(n + 1, m) for n, m in SIZES])


def test_an_mlp_at_all_batch_sizes():
    net, parameters = module(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    assert_one_program(net, [(n, 6) for n in range(2, 10)], parameters=parameters)


def test_convolutions_at_all_batch_sizes():
    net, parameters = module(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    shapes = [(n, 3, 8, 8) for n in range(2, 7)]
    assert_one_program(net, shapes, parameters=parameters, rtol=1e-4, atol=1e-4)


@PLAIN_SIZES
def test_a_gpt_at_all_batch_sizes_and_lengths():
    net = GPT(GPTConfig(vocab=10, context=16, layers=2, heads=2, width=16))
    jitted = jit(net)
    for shape in ((2, 7), (3, 9), (5, 4), (9, 16)):
        tokens, targets = torch.randint(0, 10, shape), torch.randint(0, 10, shape)
        parameters = tuple(net.parameters())
        ours, theirs = (torch.autograd.grad(fn(tokens, targets), parameters) for fn in (jitted, net))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert programs(jitted) == 1


@PLAIN_SIZES
def test_attention_with_a_mask_made_of_sizes():
    assert_one_program(masked_attention, [(2, 7, 4), (3, 9, 4), (5, 6, 4)])


@PLAIN_SIZES
def test_embeddings_and_a_loss():
    net = Tokens()
    assert_one_program(net, SIZES, lambda *shape: torch.randint(0, 10, shape), tuple(net.parameters()))


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=5), st.sampled_from([*FUNCTIONS]))
def test_any_sequence_of_sizes_is_as_in_eager(shapes, name):
    torch._dynamo.reset()
    fn = FUNCTIONS[name]
    jitted = jit(fn)
    for shape in shapes:
        x = torch.randn(shape)
        try:
            expected = derivatives(fn, x)
        except (RuntimeError, IndexError):
            assume(False)  # too small for the function
        torch.testing.assert_close(derivatives(jitted, x), expected, equal_nan=True)
    assert not [note for note in jitted._thunder_notes if note.kind in ("eager", "by size")]


@pytest.mark.parametrize("marked", [True, False])
def test_what_dynamo_finds_dynamic_is_symbolic(marked):
    jitted = jit(lambda x: torch.relu(x) @ x.t(), dynamic=None)
    for n in range(2, 8):
        x = torch.randn(n, 9)
        if marked:
            torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(jitted(x), torch.relu(x) @ x.t())
    assert programs(jitted) == (1 if marked else 2)  # the second size shows that it changes


def test_nothing_is_symbolic_without_dynamic():
    jitted = jit(lambda x: torch.relu(x), dynamic=False)
    for n in (2, 3, 4):
        jitted(torch.ones(n))
        assert not [v for v in last_traces(jitted)[-1].params if isinstance(v.type, NumberType)]
    assert programs(jitted) == 3


def test_the_backend_of_torch_compile_is_symbolic_too():
    graphs = []

    def kept(gm, examples):
        graphs.append(dynamo_backend(gm, examples))
        return graphs[-1]

    compiled = torch.compile(lambda x: torch.sin(x) * x.shape[0], backend=kept, dynamic=True)
    for n in (2, 3, 5):
        torch.testing.assert_close(compiled(torch.ones(n)), torch.sin(torch.ones(n)) * n)
    assert [len(graph._history.records) for graph in graphs] == [1]


def test_double_backward():
    def fn(x):
        return (x.reshape(-1) ** 3).sum() / x.shape[0]

    def twice(f, x):
        x = x.detach().clone().requires_grad_()
        (once,) = torch.autograd.grad(f(x), x, create_graph=True)
        return once, *torch.autograd.grad(once.sum(), x)

    jitted = jit(fn)
    for n in (3, 4, 6):
        x = torch.randn(n, 5)
        torch.testing.assert_close(twice(jitted, x), twice(fn, x))
    assert programs(jitted) == 1


def some(x):
    y = (x * 2).exp()
    return y.t() * 3, (y.sum(0) / x.shape[0]).sin()


def assert_partial_gradients(jitted):
    for n, which in ((3, 0), (4, 1), (6, 0), (2, 1)):
        x = torch.randn(n, 5, requires_grad=True)
        ours, theirs = (torch.autograd.grad(f(x)[which].sum(), x) for f in (jitted, some))
        torch.testing.assert_close(ours, theirs)
    assert programs(jitted) == 1


def test_gradients_of_some_results():
    assert_partial_gradients(jit(some))


def test_gradients_of_some_results_where_their_program_asks_more(monkeypatch):
    def asking(numbers):
        assert numbers is not None
        assert symbols[0] == 3  # true in the first call, and not asked before
        return real(numbers)

    symbols, real, param = [], backward.compiling, Numbers.param
    monkeypatch.setattr(Numbers, "param", lambda self, *args: symbols.append(param(self, *args)) or symbols[-1])
    jitted = jit(some)
    sum(out.sum() for out in jitted(torch.randn(3, 5, requires_grad=True))).backward()
    monkeypatch.setattr(backward, "compiling", asking)
    assert_partial_gradients(jitted)


def test_graph_breaks_pass_sizes_and_views_on():
    def fn(x):
        q, k, v = (x * 2).chunk(3, -1)
        n = x.shape[0] * 2
        torch._dynamo.graph_break()
        return q * k + v + n

    jitted = jit(fn)
    for shape in ((3, 5, 12), (4, 7, 12), (8, 2, 12)):
        x = torch.randn(shape)
        torch.testing.assert_close(derivatives(jitted, x), derivatives(fn, x))
    assert programs(jitted) == 2


def test_writes_into_inputs():
    def fn(x):
        x[1:].mul_(2)
        return x.add_(x.shape[0]).sum(0)

    jitted = jit(fn)
    for n in (3, 4, 6):
        ours, theirs = (torch.arange(4.0 * (n + 3)).reshape(n + 3, 4) for _ in range(2))
        torch.testing.assert_close(jitted(ours[3:]), fn(theirs[3:]))
        torch.testing.assert_close(ours, theirs)
    assert programs(jitted) == 1


def test_inputs_that_share_memory_and_are_written():
    def fn(x, y):
        x.mul_(2)
        return x + y

    jitted = jit(fn)
    for n in (3, 4, 6):
        for parts in (lambda t, n=n: (t[:n].clone(), t[:n]), lambda t, n=n: (t[1 : n + 1], t[:n])):
            ours, theirs = (torch.arange(8.0 * n).reshape(2 * n, 4) for _ in range(2))
            torch.testing.assert_close(jitted(*parts(ours)), fn(*parts(theirs)))
            torch.testing.assert_close(ours, theirs)


def test_checkpointed_regions_are_computed_again():
    linear = nn.Linear(4, 4)

    def fn(x):
        return checkpoint(lambda y: linear(y).relu().reshape(x.shape[0] * 2, 2), x, use_reentrant=False)

    assert_one_program(fn, [(n, 4) for n in (3, 4, 6)], parameters=tuple(linear.parameters()))


def test_numbers_inside_of_checkpointed_regions():
    """Dynamo passes the floats of modules as tensors, into regions inside of regions too."""
    norm, linear = nn.LayerNorm(4), nn.Linear(4, 4)

    def inner(x):
        return checkpoint(lambda y: norm(y) * norm.eps, linear(x), use_reentrant=False)

    def fn(x):
        return checkpoint(inner, norm(x), use_reentrant=False) + norm(x)

    parameters = (*norm.parameters(), *linear.parameters())
    assert_one_program(fn, [(n, 4) for n in (3, 4, 6)], parameters=parameters, rtol=1e-5, atol=1e-6)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.scale, None


def test_numbers_inside_of_autograd_functions():
    module = nn.LayerNorm(4)
    assert_one_program(lambda x: Scaled.apply(x, module.eps), [(n, 4) for n in (3, 4, 6)])


def test_a_checkpointed_number_that_is_used_as_a_tensor_too():
    def fn(x, scale):
        return checkpoint(lambda y: F.leaky_relu(y, scale.item()) * scale, x, use_reentrant=False)

    jitted = jit(fn)
    for n in (3, 4, 6):
        x, scale = torch.randn(n, 4), torch.rand((), dtype=torch.float64)
        torch.testing.assert_close(jitted(x, scale), fn(x, scale))


def test_integers_of_any_sign():
    def fn(x, n):
        return x * n + x.shape[0]

    jitted = jit(fn)
    for n in (3, 4, -2, 0, 1, 7):
        torch.testing.assert_close(jitted(torch.ones(5), n), fn(torch.ones(5), n))
    assert programs(jitted) == 4  # one for all from 2 on, and one for each of the others


def test_under_autocast_and_in_inference_mode():
    def fn(x):
        return torch.relu(x @ x.t()) * x.shape[0]

    jitted = jit(fn)
    for n in (3, 4, 5):
        x = torch.randn(n, 9)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(jitted(x), fn(x), rtol=0, atol=0)
        with torch.inference_mode():
            made = x * 2
            torch.testing.assert_close(jitted(made), fn(made), rtol=0, atol=0)
    assert programs(jitted) == 2


def test_the_printed_program_runs_alone():
    jitted = jit(lambda x: (torch.sin(x) * max(x.shape[0], 3)).reshape(-1)[: x.shape[1] // 2].mean())
    jitted(torch.randn(4, 6, requires_grad=True))
    for trace in (last_traces(jitted)[-1], last_backward_traces(jitted)[-1]):
        space = {"__name__": "__main__"}
        exec(compile(str(trace), trace.name, "exec"), space)
    forward = str(last_traces(jitted)[-1])
    assert "s77: int" in forward
    assert "[s77, s27]" in forward


def even(cx, input):
    return Yes() if input.shape[0] % 2 == 0 else No(f"{input.shape[0]} is odd")


def known(cx, input):
    return Yes() if {3: "three", 4: "four"}[input.shape[0]] else No("never")


def counted(cx, input):
    return No(f"{int(input.shape[0])} rows")


def claiming(check):
    """An executor that takes ``torch.sin`` where a function of this file says so."""
    return Executor(name="picky", claims=(Claim("torch.sin", check=f"{__name__}:{check}"),))


def takers(jitted):
    """Who took ``torch.sin``, in each compilation."""
    selected = [trace for record in jitted._thunder_records for trace in record.traces if trace.made_by == "select"]
    return [next(op.selection.executor for op in trace.ops if op.sym.name == "torch.sin") for trace in selected]


def test_a_question_about_a_size_is_a_condition_of_the_program():
    jitted = jit(lambda x: torch.sin(x) + 1, claiming("even"))
    for n in (4, 6, 3, 5, 8):
        torch.testing.assert_close(jitted(torch.ones(n)), torch.sin(torch.ones(n)) + 1)
    assert programs(jitted) == 2
    assert takers(jitted) == ["picky", "torch"]
    assert "% 2) == 0" in str(jitted._thunder_notes[-1])


def test_a_check_that_cannot_take_symbolic_sizes_gets_plain_ones():
    jitted = jit(lambda x: torch.sin(x) + 1, claiming("known"))
    for n in (3, 4, 3):
        torch.testing.assert_close(jitted(torch.ones(n)), torch.sin(torch.ones(n)) + 1)
    assert takers(jitted) == ["picky", "picky"]
    assert [note.kind for note in jitted._thunder_notes] == ["by size", "recompile"]


def test_an_executor_with_states():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    jitted = jit(net, FAKE)
    for n in (2, 5, 7):
        x = torch.randn(n, 6)
        parameters = tuple(net.parameters())
        torch.testing.assert_close(derivatives(jitted, x, parameters), derivatives(net, x, parameters))
    assert programs(jitted) == 1
    assert "fake" in {op.selection.executor for op in last_backward_traces(jitted)[-1].ops}


def test_a_graph_that_fits_few_sizes_is_compiled_by_size_at_last(monkeypatch):
    monkeypatch.setattr(symbolic, "PROGRAMS", 2)

    jitted = jit(lambda x: torch.sin(x) + 1, claiming("counted"))
    for n in (3, 4, 5, 6, 3, 4, 5, 6):
        torch.testing.assert_close(jitted(torch.ones(n)), torch.sin(torch.ones(n)) + 1)
    assert programs(jitted) == 4


def test_threads_share_one_program():
    jitted = jit(lambda x: torch.sin(x) * x.shape[0])
    jitted(torch.ones(2))
    barrier, results = threading.Barrier(4), []

    def work(n):
        barrier.wait()
        results.append(torch.equal(jitted(torch.ones(n)), torch.sin(torch.ones(n)) * n))

    threads = [threading.Thread(target=work, args=(n,)) for n in (3, 4, 5, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4
    assert programs(jitted) == 1


def test_what_one_function_has_learnt_about_sizes_is_not_held_against_another():
    torch._dynamo.reset()
    first, second = (thunder.jit(torch.nn.Linear(4, 4)) for _ in range(2))
    for rows in (3, 5):
        first(torch.randn(rows, 4))
    second(torch.randn(6, 4))
    (record,) = second._thunder_records
    assert not any(op.is_symbolic for op in record.traces[0].ops)
