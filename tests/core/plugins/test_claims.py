"""Claims end to end: what a claimed call becomes, on both front ends."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from tests.core.testing import faulty
from thunder.errors import ExecutionError, PluginError
from thunder.testing.fakes import FAKE, kernels

FRONT_ENDS = ("functional", "dynamo")
FORWARD, BACKWARD = "fake.sync_forward", "fake.sync_backward"


@pytest.fixture(autouse=True)
def _checked(monkeypatch):
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    monkeypatch.setenv("THUNDER_STRICT", "1")
    kernels.CALLS.clear()
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def forgiving(monkeypatch):
    monkeypatch.delenv("THUNDER_STRICT")


def closings() -> list[tuple[str, int]]:
    """The closers called since the last time, each with the number of states it got."""
    found = [(name, len(states)) for name, states in kernels.CALLS]
    kernels.CALLS.clear()
    return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))


def agree(module: nn.Module, jitted: nn.Module, *args: torch.Tensor, loss=torch.Tensor.sum) -> None:
    """Loss and all gradients of a training step equal eager's."""
    module.zero_grad()
    twin = copy.deepcopy(module)
    loss(twin(*args)).backward()
    loss(jitted(*args)).backward()
    torch.testing.assert_close([p.grad for p in jitted.parameters()], [p.grad for p in twin.parameters()])
    torch.testing.assert_close(jitted(*args), twin(*args))
    module.zero_grad()


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_training_and_inference(frontend):
    module, x = mlp(), torch.randn(3, 4)
    jitted = thunder.jit(module, executors=[FAKE], frontend=frontend)
    jitted(x).sum().backward()
    assert closings() == [(FORWARD, 2), (BACKWARD, 2)]
    agree(module, jitted, x)
    closings()
    for grad_off in (torch.no_grad, torch.inference_mode):
        with grad_off():
            torch.testing.assert_close(jitted(x), module(x))
        assert closings() == [(FORWARD, 2)]
        assert not [v for trace in thunder.last_traces(jitted) for v in trace.variables() if "backward" in v.name]
    jitted(x).sum().backward()
    assert closings() == [(FORWARD, 2), (BACKWARD, 2)]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_results_that_are_backpropagated_apart(frontend):
    left, right = nn.Linear(4, 4), nn.Linear(4, 4)
    jitted = thunder.jit(lambda x, y: (left(x).tanh(), right(y).relu()), executors=[FAKE], frontend=frontend)
    first, second = jitted(torch.ones(2, 4), torch.ones(2, 4))
    assert closings() == [(FORWARD, 2)]
    second.sum().backward(retain_graph=True)
    assert closings() == [(BACKWARD, 1)]
    first.sum().backward()
    second.sum().backward()
    assert closings() == [(BACKWARD, 1)] * 2
    backward = thunder.executor_state(jitted)["fake.backward"].values()
    assert sorted(state.closes for state in backward) == [1, 2]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_gradients_of_some_results(frontend):
    trunk, left, right = (nn.Linear(4, 4) for _ in range(3))

    def program(x):
        value = trunk(x).tanh()
        return left(value), right(value)

    jitted, x = thunder.jit(program, executors=[FAKE], frontend=frontend), torch.randn(3, 4)
    jitted(x)[0].sum().backward()
    assert closings() == [(FORWARD, 3), (BACKWARD, 2)]
    assert right.weight.grad is None
    gradients = [left.weight.grad, trunk.weight.grad]
    expected = torch.autograd.grad(program(x)[0].sum(), [left.weight, trunk.weight])
    torch.testing.assert_close(gradients, list(expected))
    sum(r.sum() for r in jitted(x)).backward()
    assert closings() == [(FORWARD, 3), (BACKWARD, 3)]
    assert len(thunder.executor_state(jitted)["fake.backward"]) == 3


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_frozen_weights_get_no_gradient_work(frontend):
    module, x = mlp(), torch.randn(3, 4)
    module[0].requires_grad_(False)
    module[2].weight.requires_grad_(False)
    jitted = thunder.jit(module, executors=[FAKE], frontend=frontend)
    jitted(x).sum().backward()
    assert closings() == [(FORWARD, 2), (BACKWARD, 1)]
    (call,) = [op for op in thunder.last_backward_traces(jitted)[-1].ops if op.sym.name == "fake.linear_bwd"]
    assert call.args[3] == (False, False, True)
    torch.testing.assert_close(module[2].bias.grad, torch.full((2,), 3.0))


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_tensor_given_twice(frontend):
    jitted = thunder.jit(lambda w: F.linear(w, w, w[0]), executors=[FAKE], frontend=frontend)
    w = torch.randn(4, 4, requires_grad=True)
    (actual,) = torch.autograd.grad(jitted(w).square().sum(), w)
    (expected,) = torch.autograd.grad(F.linear(w, w, w[0]).square().sum(), w)
    torch.testing.assert_close(actual, expected)
    assert [name for name, _ in closings()] == [FORWARD, BACKWARD]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_linears_inside_attention(frontend):
    attention = nn.MultiheadAttention(8, 2, batch_first=True)

    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = attention

        def forward(self, x, y):
            return self.attention(x, y, y)[0] + self.attention(x, x, x, need_weights=False)[0]

    module = Attending()
    jitted = thunder.jit(module, executors=[FAKE], frontend=frontend)
    agree(module, jitted, torch.randn(2, 3, 8), torch.randn(2, 5, 8))
    sites = set(thunder.executor_state(jitted)["fake.forward"])
    inner = [f"attention_in_proj_weight{suffix}" for suffix in ("", "_1", "_2")]
    assert sites == {*inner, "attention_out_proj_weight", "attention_out_proj_weight_1"}


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_printed_programs_run_by_themselves(frontend, tmp_path):
    jitted = thunder.jit(mlp(), executors=[FAKE], frontend=frontend)
    jitted(torch.randn(3, 4)).sum().backward()
    for number, trace in enumerate((thunder.last_traces(jitted)[-1], thunder.last_backward_traces(jitted)[-1])):
        path = tmp_path / f"program{number}.py"
        path.write_text(str(trace))
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "tensor(" in done.stdout


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("recompute", ["forbid", "replay"])
def test_checkpointing(recompute, reentrant):
    """Forward state is touched again only where its kind allows that, and what is touched is closed in backward."""
    first, second = mlp(), nn.Linear(2, 2)
    fake = replace(FAKE, states=tuple(replace(kind, recompute=recompute) for kind in FAKE.states))

    def program(x):
        return second(checkpoint(first, x, use_reentrant=reentrant))

    jitted, x = thunder.jit(program, executors=[fake], frontend="functional"), torch.randn(3, 4, requires_grad=True)
    out = jitted(x)
    # The second linear of the region makes nothing that backward needs, so it is not run again.
    assert closings() == [(FORWARD, 3 if recompute == "forbid" else 2)]
    out.square().sum().backward()
    assert sorted(closings()) == [(BACKWARD, 3), (FORWARD, 1)][: 1 + (recompute == "replay")]
    updates = {site: state.updates for site, state in thunder.executor_state(jitted)["fake.forward"].items()}
    assert sorted(updates.values()) == ([1, 1, 1] if recompute == "forbid" else [1, 1, 2])
    actual, x.grad = x.grad, None
    program(x).square().sum().backward()
    torch.testing.assert_close(actual, x.grad)


def test_results_that_are_propagated_separately_close_what_they_replay():
    """Every touch is followed by a close, and no instance is closed that was not touched (the fake refuses that)."""
    first, second = nn.Sequential(nn.Linear(4, 2), nn.ReLU()), nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    fake = replace(FAKE, states=tuple(replace(kind, recompute="replay") for kind in FAKE.states))

    def program(x, y):
        return checkpoint(first, x, use_reentrant=False) * 2, checkpoint(second, y, use_reentrant=False).square()

    jitted = thunder.jit(program, executors=[fake], frontend="functional")
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    for order in ((0, 1), (1, 0), (0,)):
        outs = jitted(x, y)
        closings()
        for n in order:
            outs[n].sum().backward()
            assert sorted(closings()) == [(BACKWARD, 1), (FORWARD, 1)]
    states = list(thunder.executor_state(jitted)["fake.forward"].values())
    assert sorted((s.updates, s.closes, len(s.pending)) for s in states) == [(5, 2, 1), (6, 3, 0)]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_double_backward(frontend):
    module, x = mlp(), torch.randn(3, 4, requires_grad=True)

    def penalty(fn):
        (grad,) = torch.autograd.grad(fn(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), list(module.parameters()), allow_unused=True)

    torch.testing.assert_close(penalty(thunder.jit(module, executors=[FAKE], frontend=frontend)), penalty(module))


def test_what_a_check_is_told_about_gradients():
    def told(x, w, off):
        with torch.set_grad_enabled(not off):
            return F.linear(x, w)

    seen = faulty.ASKED
    seen.clear()
    executor = faulty.claiming(check="tests.core.testing.faulty:asked")
    jitted = thunder.jit(told, executors=[executor], frontend="functional")
    w = torch.randn(4, 4, requires_grad=True)
    jitted(torch.randn(2, 4), w, False)
    jitted(torch.randn(2, 4), w, True)
    assert seen == [(False, True), (False, False)]


def test_a_claim_whose_result_is_its_argument():
    executor = faulty.stateless(
        "passing",
        "torch.nn.functional.dropout",
        check="tests.core.testing.faulty:only_in_evaluation",
        lower="tests.core.testing.faulty:same",
    )
    jitted = thunder.jit(lambda x: F.dropout(x, 0.5, False) * 2, executors=[executor], frontend="functional")
    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(jitted(x), x * 2)
    torch.testing.assert_close(torch.autograd.grad(jitted(x).sum(), x)[0], torch.full((3,), 2.0))
    with torch.no_grad():
        torch.testing.assert_close(jitted(x), x * 2)


def test_a_rule_with_another_layout():
    executor = faulty.stateless(
        "fortran",
        "torch.sin",
        lower="tests.core.testing.faulty:fortran_sin",
        grad=faulty.pair("fortran_sin_forward", "fortran_sin_backward"),
    )
    jitted = thunder.jit(lambda x: torch.sin(x).view(-1), executors=[executor], frontend="functional")
    x = torch.randn(3, 4, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(jitted(x).sum(), x)[0], x.cos())
    with torch.no_grad():
        torch.testing.assert_close(jitted(x), x.sin().view(-1))


def test_a_rule_is_not_applied_to_the_calls_it_makes():
    executor = faulty.stateless("mine", "torch.mul", grad=faulty.pair("mul_forward", "mul_backward"))
    jitted = thunder.jit(lambda x, y: torch.mul(x, y), executors=[executor], frontend="functional")
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(jitted(x, y).sum(), (x, y)), (y, x))
    torch.testing.assert_close(torch.autograd.grad(jitted(x, x).sum(), x)[0], 2 * x)


BAD_CLAIMS = {
    "the check raises": {"check": "raises"},
    "the check answers nothing": {"check": "answers_false"},
    "the check refuses without a reason": {"check": "refuses_silently"},
    "lower raises": {"lower": "raises"},
    "lower returns another shape": {"lower": "wrong_shape"},
    "lower writes into its argument": {"lower": "writes_argument"},
    "forward raises": {"forward": "raises"},
    "forward returns no saved values": {"forward": "one_result"},
    "backward raises": {"backward": "raises"},
    "backward returns too few gradients": {"backward": "one_gradient"},
    "backward returns other shapes": {"backward": "transposed_gradients"},
    "lower does not exist": {"lower": "nowhere"},
}


@pytest.mark.parametrize("fault", BAD_CLAIMS)
@pytest.mark.parametrize("frontend", FRONT_ENDS)
def test_a_claim_that_fails_is_dropped(fault, frontend, forgiving, monkeypatch):
    executor = faulty.claiming(**{part: f"{faulty.HERE}:{name}" for part, name in BAD_CLAIMS[fault].items()})
    module, x = nn.Linear(4, 6), torch.randn(3, 4)

    def program(x):
        return module(x).tanh()

    jitted = thunder.jit(program, executors=[executor], frontend=frontend)
    with pytest.warns(RuntimeWarning, match="fake is not used for torch.nn.functional.linear") as warned:
        out = jitted(x)
    line = inspect.getsourcelines(program)[1] + 1
    assert f"test_claims.py:{line}" in str(warned[0].message)
    torch.testing.assert_close(out, program(x))
    out.sum().backward()
    selected = next(t for t in thunder.last_traces(jitted) if t.stage.value == "selected")
    linear = next(op for op in selected.ops if op.sym.name.endswith("linear"))
    assert (linear.selection.executor, [r.executor for r in linear.selection.refusals]) == ("torch", ["fake"])
    assert not kernels.CALLS
    monkeypatch.setenv("THUNDER_STRICT", "1")
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"boom|rule|check|gradient|nowhere"):
        thunder.jit(program, executors=[executor], frontend=frontend)(x)


def test_the_next_executor_is_asked_after_one_that_fails(forgiving):
    broken = replace(faulty.claiming(lower=f"{faulty.HERE}:raises"), name="broken", symbols=(), states=())
    jitted = thunder.jit(nn.Linear(4, 4), executors=[broken, FAKE], frontend="functional")
    with pytest.warns(RuntimeWarning, match="broken is not used"), torch.no_grad():
        jitted(torch.randn(2, 4))
    assert closings() == [(FORWARD, 1)]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize("part", ["linear_fwd", "linear_bwd", "sync_backward"])
def test_a_failure_at_run_time_names_the_executor_and_the_line(part, frontend):
    executor = faulty.running(**{part: f"{faulty.HERE}:raises"}, meta_linear_fwd=f"{kernels.__name__}:linear")
    module = nn.Linear(4, 4)

    def program(x):
        return module(x).sum()

    jitted = thunder.jit(program, executors=[executor], frontend=frontend)
    with pytest.raises(ExecutionError, match=rf"fake\.{part} failed, run by fake") as caught:
        jitted(torch.randn(2, 4)).backward()
    assert "boom" in caught.value.why
    if part != "sync_backward":  # a closer belongs to no line of the program
        assert f"test_claims.py:{inspect.getsourcelines(program)[1] + 1}" in caught.value.where


def test_no_warning_where_nothing_fails():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thunder.jit(mlp(), executors=[FAKE], frontend="functional")(torch.randn(3, 4)).sum().backward()


def test_a_fault_of_a_rule_is_told_by_its_place():
    executor = faulty.claiming(backward=f"{faulty.HERE}:one_gradient")
    jitted = thunder.jit(nn.Linear(4, 4), executors=[executor], frontend="functional")
    with pytest.raises(PluginError, match="1 gradients for 3 tensor arguments") as caught:
        jitted(torch.randn(2, 4))
    assert caught.value.where == f"{faulty.HERE}:one_gradient"
