"""The dynamo front end against eager PyTorch."""

from __future__ import annotations

import copy
import dataclasses
import threading
import warnings

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.errors import CaptureError
from thunder.frontends import graph as graph_module
from thunder.frontends import specialise
from thunder.frontends.dynamo import DynamoFunction, backend
from thunder.observe.history import last_traces
from thunder.plugins import registry, resolve_options, select_executors
from thunder.plugins.spec import Executor
from thunder.runtime.driver import Settings

EXECUTORS = select_executors(None, registry())
SETTINGS = Settings(EXECUTORS, resolve_options({}, EXECUTORS))


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    torch._dynamo.reset()
    torch.manual_seed(0)


def jit(fn, **options):
    return DynamoFunction(fn, SETTINGS, **options)


def gradients(fn, *args):
    """Result and gradients of ``sum(fn(*args))`` with respect to the arguments that are floating-point tensors."""
    args = [
        a.detach().clone().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a
        for a in args
    ]
    out = fn(*args)
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    return [out.detach(), *torch.autograd.grad(out.sum(), leaves)]


def assert_like_eager(fn, *args):
    torch.testing.assert_close(gradients(jit(fn), *args), gradients(fn, *args), rtol=0, atol=0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(8, 2))
        self.register_buffer("scale", torch.full((2,), 0.5))

    def forward(self, x, shift=None):
        y = self.tail(self.norm(self.fc1(x))) * self.scale
        return y if shift is None else y + shift


def test_function_and_gradients():
    assert_like_eager(lambda x, w: torch.sin(x @ w) * 2, torch.randn(3, 4), torch.randn(4, 5))


def test_branch_on_data_breaks_the_graph_and_takes_the_right_side():
    def fn(x):
        y = x * 2
        if y.sum() > 0:  # here
            return y + 1
        return y - 1

    jitted = jit(fn)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(gradients(jitted, x), gradients(fn, x))
    first = next(note for note in jitted._thunder_notes if note.kind == "graph break")
    assert "branch on tensor data" in first.reason
    assert (first.source.file, first.source.line) == line_of(fn, "# here")


def test_item_breaks_the_graph():
    def fn(x):
        return x * x.sum().item()

    jitted = jit(fn)
    torch.testing.assert_close(gradients(jitted, torch.arange(3.0)), gradients(fn, torch.arange(3.0)))
    assert any(note.kind == "graph break" and "item" in note.reason for note in jitted._thunder_notes)


def test_fullgraph_refuses_a_graph_break():
    with pytest.raises(torch._dynamo.exc.Unsupported):
        jit(lambda x: x if x.sum() > 0 else -x, fullgraph=True)(torch.ones(3))


def test_fullgraph_refuses_to_run_a_graph_eagerly():
    with pytest.raises(CaptureError, match="item"):  # Dynamo does put it into the graph
        jit(lambda x: x * x.sum().item(), fullgraph=True)(torch.ones(3))


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: list


def test_structured_results_and_arguments():
    def fn(x, scale, flag, extra=None):
        assert flag == "double" or extra is None
        return {"pair": Pair(x * scale, [x + 1, None, 3]), "plain": (scale, flag), "empty": extra}

    x = torch.randn(3)
    ours, theirs = jit(fn)(x, 2.5, "double"), fn(x, 2.5, "double")
    assert ours["plain"] == theirs["plain"]
    assert ours["empty"] is None
    torch.testing.assert_close(ours["pair"].left, theirs["pair"].left)
    assert ours["pair"].right[1:] == [None, 3]
    torch.testing.assert_close(ours["pair"].right[0], theirs["pair"].right[0])


def test_training_a_module_matches_eager_in_gradients_and_buffers():
    net = Net()
    ours, theirs = copy.deepcopy(net), copy.deepcopy(net)
    jitted = jit(ours)
    for step in range(3):
        x = torch.randn(5, 4)
        jitted(x).square().sum().backward()
        theirs(x).square().sum().backward()
        assert ours.norm.num_batches_tracked == step + 1
    for mine, other in zip(ours.parameters(), theirs.parameters()):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=0)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)


def test_train_and_eval_modes_are_told_apart():
    net = Net()
    jitted = jit(net)
    x = torch.randn(5, 4)
    jitted(x)
    net.eval()
    before = net.norm.running_mean.clone()
    torch.testing.assert_close(jitted(x), net(x), rtol=0, atol=0)
    torch.testing.assert_close(net.norm.running_mean, before, rtol=0, atol=0)


def test_replaced_and_frozen_parameters_are_honoured():
    net = Net().eval()
    jitted = jit(net)
    x = torch.randn(5, 4)
    jitted(x)
    net.fc1.weight = nn.Parameter(torch.randn(8, 4))
    torch.testing.assert_close(jitted(x), net(x), rtol=0, atol=0)
    net.requires_grad_(False)
    assert not jitted(x).requires_grad


def test_parameters_keep_their_names():
    jitted = jit(Net().forward)
    jitted(torch.randn(5, 4), shift=torch.ones(2))
    names = {param.name for param in last_traces(jitted)[0].params}
    expected = {name.replace(".", "_") for name in Net().state_dict()}
    assert names == expected | {"x", "shift"}


def test_inputs_of_a_function_are_named_after_their_expressions():
    net = nn.Linear(4, 4)

    def fn(batch):
        return net(batch["tokens"])

    jitted = jit(fn)
    jitted({"tokens": torch.randn(2, 4)})
    names = [param.name for param in last_traces(jitted)[0].params]
    assert sorted(names) == ["batch_tokens", "net_bias", "net_weight"]


def test_parameters_of_a_jitted_module_in_a_jitted_function_are_named_after_the_module():
    net = thunder.jit(nn.Linear(4, 4))
    jitted = jit(lambda x: net(x) * 2)
    jitted(torch.randn(2, 4))
    assert {param.name for param in last_traces(jitted)[0].params} == {"x", "net_weight", "net_bias"}


def line_of(fn, marker):
    code = fn.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    found = [n for n, line in enumerate(lines, 1) if marker in line and n >= code.co_firstlineno]
    return code.co_filename, found[0]


def test_every_operation_carries_its_line():
    def fn(x):
        with torch.no_grad():
            a = torch.sin(x)  # first
        b = helper(x)
        return a + b  # last

    def helper(x):
        return torch.cos(x)  # inner

    jitted = jit(fn)
    jitted(torch.randn(3))
    lines = {op.sym.name: (op.source.file, op.source.line) for op in last_traces(jitted)[0].ops}
    assert lines["torch.sin"] == line_of(fn, "# first")
    assert lines["torch.cos"] == line_of(fn, "# inner")
    assert lines["torch.add"] == line_of(fn, "# last")


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0, 1, 2, 0]])
def test_grad_modes_never_mix(order):
    modes = [torch.enable_grad, torch.no_grad, torch.inference_mode]
    weight = torch.randn(3, requires_grad=True)
    x = torch.randn(3)

    def fn(x):
        return (x * weight).exp()

    jitted = jit(fn)
    for mode in (modes[i] for i in order):
        with mode():
            ours, theirs = jitted(x), fn(x)
        torch.testing.assert_close(ours, theirs)
        assert (ours.requires_grad, ours.is_inference()) == (theirs.requires_grad, theirs.is_inference())


def test_autocast_inside_and_around():
    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    assert jit(fn)(x, w).dtype == torch.bfloat16

    jitted = jit(lambda x, w: x @ w)
    assert jitted(x, w).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(jitted(x, w), x @ w, rtol=0, atol=0)


@pytest.fixture
def by_size(monkeypatch):
    """Graphs of which nothing can stay symbolic."""
    monkeypatch.setattr(graph_module.Sizes, "of", lambda placeholders: None)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(2, 6), min_size=2, max_size=6))
def test_a_changing_batch_costs_one_compilation_per_size(by_size, sizes):
    torch._dynamo.reset()

    def fn(x):
        return (x.reshape(-1) * x.shape[0]).reshape(x.shape[0], -1).cumsum(0)

    jitted = jit(fn, dynamic=True)
    for size in sizes:
        x = torch.randn(size, 3)
        torch.testing.assert_close(gradients(jitted, x), gradients(fn, x))
    assert len(jitted._thunder_records) == len(set(sizes))


def test_a_symbolic_graph_knows_strides(by_size):
    jitted = jit(lambda x: x.contiguous().view(-1) * x.shape[1], dynamic=True)
    x = torch.randn(4, 5)
    for value in (x, x.t(), torch.randn(5, 4), x.t()):
        torch.testing.assert_close(jitted(value), value.contiguous().view(-1) * value.shape[1])


def test_every_recompilation_has_a_reason():
    jitted = jit(lambda x, k: x * k)
    jitted(torch.ones(3), 1)
    jitted(torch.ones(4), 1)  # Dynamo makes the size symbolic
    jitted(torch.ones(5), 1)  # the same program
    jitted(torch.ones(2), 1)
    with torch.no_grad():
        jitted(torch.ones(5), 1)
    reasons = [note.reason for note in jitted._thunder_notes if note.kind == "recompile"]
    assert len(reasons) == len(jitted._thunder_records) - 1 == 2
    assert "size mismatch at index 0. expected 3, actual 4" in reasons[0]
    assert "grad_mode" in reasons[1]


def test_too_many_sizes_drop_the_oldest_with_a_warning(by_size, monkeypatch):
    monkeypatch.setattr(specialise, "LIMIT", 2)
    jitted = jit(lambda x: x * 2, dynamic=True)
    jitted(torch.ones(2))
    jitted(torch.ones(3))
    with pytest.warns(RuntimeWarning, match="more than 2 keys"):
        jitted(torch.ones(4))
    with pytest.warns(RuntimeWarning, match="more than 2 keys"):
        torch.testing.assert_close(jitted(torch.ones(2)), torch.full((2,), 2.0))
    assert len(jitted._thunder_records) == 4


AMBIENT = {"recipe": "a"}


def ambient_key(options):
    return AMBIENT["recipe"]


def test_a_cache_key_picks_the_specialisation_when_the_graph_runs(monkeypatch):
    keyed = Executor(name="keyed", cache_key=f"{__name__}:ambient_key")
    monkeypatch.setattr(Executor, "key", lambda self, options: ambient_key(options))
    jitted = DynamoFunction(lambda x: x + 1, Settings((keyed, *EXECUTORS), SETTINGS.options))
    counts = []
    for AMBIENT["recipe"] in ("a", "b", "a", "b", "a"):
        torch.testing.assert_close(jitted(torch.ones(3)), torch.full((3,), 2.0))
        counts.append(len(jitted._thunder_records))
    assert counts == [1, 2, 2, 2, 2]


@pytest.mark.filterwarnings("ignore:a part of the program runs eagerly")  # inputs that overlap in part
def test_arguments_that_share_memory():
    def fn(x, y):
        x.add_(1)
        return y * 2

    jitted = jit(fn)
    base = torch.zeros(4)
    for make in (lambda b: (b[:2], b[2:]), lambda b: (b[:3], b[1:4]), lambda b: (b, torch.zeros(4)), lambda b: (b, b)):
        ours, theirs = base.clone(), base.clone()
        torch.testing.assert_close(jitted(*make(ours)), fn(*make(theirs)))
        torch.testing.assert_close(ours, theirs)


def test_jitted_inside_jitted():
    inner = jit(lambda x: torch.sin(x))
    assert_like_eager(lambda x: inner(x) * 2, torch.randn(3))


def test_many_modules_of_one_class_are_all_compiled():
    x = torch.randn(5, 4)
    for _ in range(12):
        net = Net().eval()
        jitted = jit(net.forward)
        torch.testing.assert_close(jitted(x), net(x), rtol=0, atol=0)
        assert len(jitted._thunder_records) == 1


def test_threads_share_the_compilation_of_a_new_size(by_size):
    jitted = jit(lambda x: torch.sin(x) * x.shape[0], dynamic=True)
    jitted(torch.ones(3))
    barrier = threading.Barrier(4)
    results = []

    def work():
        barrier.wait()
        results.append(jitted(torch.ones(7)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(torch.stack(results), torch.sin(torch.ones(4, 7)) * 7)
    assert len(jitted._thunder_records) == 2


def test_torch_compile_with_the_backend():
    net = Net().eval()
    compiled = torch.compile(net, backend=backend, options={"executors": "torch"})
    x = torch.randn(5, 4)
    torch.testing.assert_close(compiled(x), net(x), rtol=0, atol=0)


@pytest.mark.skipif("thunder" not in torch._dynamo.list_backends(), reason="thunder-core is not installed")
def test_the_backend_is_found_by_name():
    torch.testing.assert_close(torch.compile(lambda x: x + 1, backend="thunder")(torch.ones(3)), torch.full((3,), 2.0))


def test_the_backend_refuses_unknown_options():
    compiled = torch.compile(lambda x: x + 1, backend=backend, options={"torch.colour": 1})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"torch\.colour"):
        compiled(torch.ones(3))


@pytest.fixture
def broken(monkeypatch):
    """A compiler that fails; ``broken["failure"] = None`` mends it."""
    state = {"failure": CaptureError("sin cannot be recorded", why="it is broken on purpose")}
    real = graph_module.driver.compile_program

    def compile_program(fn, inputs, *rest):
        program = real(fn, inputs, *rest)
        if state["failure"] is not None:
            raise state["failure"]
        return program

    monkeypatch.setattr(graph_module.driver, "compile_program", compile_program)
    return state


def test_what_cannot_be_compiled_runs_eagerly_with_one_warning(broken):
    def fn(x):
        return torch.sin(x)  # blamed

    jitted = jit(fn)
    with pytest.warns(
        RuntimeWarning, match=r"runs eagerly.*sin cannot be recorded: it is broken(?s:.*)THUNDER_STRICT=1"
    ) as seen:
        ours = gradients(jitted, torch.ones(3))
    assert [(w.filename, w.lineno) for w in seen if w.category is RuntimeWarning] == [line_of(fn, "# blamed")]
    torch.testing.assert_close(ours, gradients(fn, torch.ones(3)))
    (note,) = jitted._thunder_notes
    assert (note.kind, note.reason) == ("eager", "sin cannot be recorded: it is broken on purpose")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jitted(torch.ones(3, requires_grad=True))


def test_any_failure_of_the_compiler_falls_back(broken):
    broken["failure"] = ZeroDivisionError("internal")
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError: internal"):
        torch.testing.assert_close(jit(torch.neg)(torch.ones(3)), -torch.ones(3))


def test_strict_mode_raises_the_error_itself_and_the_next_call_works(broken, monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    jitted = jit(lambda x: torch.sin(x))
    with pytest.raises(CaptureError, match="sin cannot be recorded"):
        jitted(torch.ones(3))
    broken["failure"] = None
    torch.testing.assert_close(jitted(torch.ones(3)), torch.sin(torch.ones(3)))
    assert len(jitted._thunder_records) == 1


def test_a_fallback_with_symbolic_sizes(broken):
    jitted = jit(lambda x: x.reshape(-1) * x.shape[0], dynamic=True)
    with pytest.warns(RuntimeWarning):
        torch.testing.assert_close(jitted(torch.ones(2, 3)), torch.full((6,), 2.0))


def test_a_checkpointed_region_that_runs_eagerly_draws_the_same_again():
    """More values of a float than are compiled: the rest runs eagerly."""

    def fn(x, scale):
        return checkpoint(lambda y: F.dropout(y.sin(), 0.5) * y, x, use_reentrant=False) * scale

    jitted = jit(fn)
    x = torch.randn(6, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it runs eagerly
        for step in range(20):
            torch.manual_seed(2)
            actual = gradients(lambda y, s=step: jitted(y, s / 7), x)
            torch.manual_seed(2)
            torch.testing.assert_close(actual, gradients(lambda y, s=step: fn(y, s / 7), x))
    assert any(note.kind == "eager" for note in jitted._thunder_notes)
