"""Chains: calls in a row that an executor claims as one, where nothing needs what lies between them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from tests.fuzz.check import verdict
from tests.fuzz.generate import generate
from thunder.extend import Claim, Executor, No, Option, Yes, symbol
from thunder.ir.trace import Stage
from thunder.passes.chains import CHAIN, title
from thunder.prims.structural import chain
from thunder.testing.fakes import FAKE
from thunder.testing.fakes.fuser import FUSER

HERE = __name__
FRONT_ENDS = ("functional", "dynamo")
LINEAR, GELU, RELU = "torch.nn.functional.linear", "torch.nn.functional.gelu", "torch.relu"
DROPOUT = "torch.nn.functional.dropout"


pytestmark = pytest.mark.usefixtures("strict")


def check(cx, linear, input, weight, bias=None, *, then):
    rows = input.shape[0]
    return Yes(then[0][0].__name__) if rows <= cx.options["rows"] else No(f"{rows} rows are too many")


def lower(fn, *args, then, **kwargs):
    return chain(fn, *args, then=then, **kwargs)


def claim(*target, check=None):
    return Claim(target, check=check, lower=f"{HERE}:lower")


PAIRS = Executor(
    name="pairs",
    claims=(claim(LINEAR, GELU, check=f"{HERE}:check"), claim(LINEAR, RELU, check=f"{HERE}:check")),
    options=(Option("rows", int, 64, "the most that it takes"),),
)


def jit(program, *executors, frontend="functional", **options):
    return thunder.jit(program, executors=[*(executors or [PAIRS])], frontend=frontend, **options)


def selected(compiled):
    return next(trace for trace in reversed(thunder.last_traces(compiled)) if trace.stage is Stage.SELECTED)


def chains(compiled) -> list[str]:
    """The chains of the last compilation, with who runs each."""
    ops = (op for op in selected(compiled).ops if op.sym.name == CHAIN)
    return [f"{title(op).replace('torch.nn.functional.', 'F.')} on {op.selection.executor}" for op in ops]


def refusals(compiled) -> list[str]:
    return [r.reason for op in selected(compiled).ops for r in op.selection.refusals]


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        (nn.GELU(), ["F.linear + F.gelu on pairs"]),
        (nn.GELU("tanh"), ["F.linear + F.gelu on pairs"]),
        (torch.relu, ["F.linear + torch.relu on pairs"]),
        (torch.Tensor.relu, ["F.linear + torch.relu on pairs"]),
        (torch.Tensor.relu_, ["F.linear + torch.relu on pairs"]),
        (F.silu, []),
    ],
)
def test_however_it_is_written(frontend, activation, expected):
    first, second = nn.Linear(4, 8), nn.Linear(8, 2, bias=False)
    x = torch.randn(3, 4)

    def program(x):
        return second(activation(first(x)))

    compiled = jit(program, frontend=frontend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), program(x))
    assert chains(compiled) == expected
    compiled(x).sum().backward()
    assert chains(compiled) == []


STEPS = ("linear", "trained", "gelu", "relu", "add", "write", "narrow")


@st.composite
def programs(draw):
    """Steps over a growing list of values, as (name, operands); and which values are returned."""
    steps = []
    for made in range(1, draw(st.integers(2, 9)) + 1):
        latest = st.sampled_from([made - 1, *range(made)])  # mostly what was just made
        steps.append((draw(st.sampled_from(STEPS)), [draw(latest), draw(latest)]))
    return steps, [*draw(st.lists(st.integers(1, len(steps)), min_size=1, max_size=2)), len(steps)]


def run(steps, results, x, frozen, trained):
    values = [x]
    for name, (a, b) in steps:
        if name == "write":
            values.append(values[a].mul_(0.5) if a else values[a] * 0.5)  # (not into the caller's tensor)
        elif name in ("linear", "trained"):
            values.append(F.linear(values[a], frozen if name == "linear" else trained))
        elif name == "add":
            values.append(values[a] + values[b])
        else:
            values.append(values[a].narrow(0, 0, 3) * 1 if name == "narrow" else getattr(F, name)(values[a]))
    return [values[result] for result in results]


def expected_chains(steps, results):
    """The same from the text: which linear layers only an activation reads, without gradients."""
    holds, read, makers, needs = [0], Counter(), {}, set()  # of each value, the place that now has it
    current = {0: 0}
    ssa = []
    for made, (name, (a, b)) in enumerate(steps, 1):
        operands = [current[holds[a]]] + ([current[holds[b]]] if name == "add" else [])
        if name == "write" and a:
            holds.append(holds[a])
            current[holds[a]] = made
        else:
            holds.append(made)
            current[made] = made
        if name == "trained" or not needs.isdisjoint(operands):
            needs.add(made)
        ssa.append((made, name, operands))
        makers[made] = (name, operands)
    live, wanted = [], {current[holds[result]] for result in results}
    read.update(wanted)
    for made, name, operands in reversed(ssa):
        if made in wanted:
            wanted.update(operands)
            read.update(operands)
            live.append((made, name, operands))
    pairs = ((name, operands[0], made) for made, name, operands in live if name in ("gelu", "relu"))
    return sum(
        makers.get(middle, ("",))[0] == "linear" and read[middle] == 1 and made not in needs
        for _, middle, made in pairs
    )


@settings(max_examples=60)
@given(programs())
def test_random_programs(program):
    """Formed exactly where the text of the program allows it; results and gradients are those of eager."""
    steps, results = program
    x, frozen, trained = torch.randn(3, 4), torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    relu = replace(PAIRS, claims=(claim(LINEAR, GELU), claim(LINEAR, "torch.nn.functional.relu")))
    compiled, outcomes = jit(lambda *tensors: run(steps, results, *tensors), relu), []
    for function in (compiled, lambda *tensors: run(steps, results, *tensors)):
        try:
            outs = function(x, frozen, trained)
            loss = sum(out.square().sum() for out in outs)
            grads = torch.autograd.grad(loss, trained) if loss.requires_grad else ()
            outcomes.append([*outs, *grads])
        except RuntimeError as error:  # a value that backward needs was overwritten
            outcomes.append(str(error)[:40])
    ours, theirs = outcomes
    if isinstance(theirs, str):
        return
    torch.testing.assert_close(ours, theirs)
    assert len(chains(compiled)) == expected_chains(steps, results)


@pytest.mark.slow
def test_random_programs_of_many_calls():
    """All pairs of common calls are claimed: values, layouts, shared memory, random state and errors are eager's."""
    names = ("add", "mul", "sin", "relu", "sum", "t", "cat", "nn.functional.linear", "nn.functional.dropout", "clone")
    targets = [f"torch.{name}" for name in names]
    every = Executor(name="every", claims=tuple(claim(a, b) for a in targets for b in targets))
    verdicts = [verdict(generate(Random(seed)), executors=[every]) for seed in range(3000, 3060)]
    assert [reason for outcome, reason in verdicts if outcome == "wrong"] == []


def test_what_draws_is_no_part_of_a_chain():
    w, x, results = torch.randn(4, 4), torch.randn(3, 4), []
    compiled = jit(lambda x: F.dropout(F.linear(x, w)), replace(PAIRS, claims=(claim(LINEAR, DROPOUT),)))
    for function in (compiled, lambda x: F.dropout(F.linear(x, w))):
        torch.manual_seed(1)
        results.append(function(x))
    torch.testing.assert_close(*results)
    assert chains(compiled) == []


def test_without_gradients_inside_of_training():
    frozen, trained = nn.Linear(4, 4), nn.Linear(4, 4)

    def program(x):
        with torch.no_grad():
            target = F.gelu(frozen(x))
        return (F.gelu(trained(x)) - target).square().mean()

    compiled, x = jit(program), torch.randn(3, 4)
    for wanted in (lambda loss: torch.autograd.grad(loss, trained.weight), _twice_differentiated(trained.weight)):
        torch.testing.assert_close(wanted(compiled(x)), wanted(program(x)))
    assert chains(compiled) == ["F.linear + F.gelu on pairs"]


def _twice_differentiated(weight):
    def run(loss):
        (first,) = torch.autograd.grad(loss, weight, create_graph=True)
        return torch.autograd.grad(first.square().sum(), weight)

    return run


def test_what_is_computed_again_in_backward():
    """A chain is computed again as a whole: it does not reach out of what is checkpointed."""
    frozen, trained, x = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4), torch.randn(3, 4)

    def inside(x):
        return checkpoint(lambda x: trained(F.gelu(frozen(x))), x, use_reentrant=False)

    def across(x):
        return checkpoint(lambda h: trained(F.gelu(h)), frozen(x), use_reentrant=False)

    for program, expected in ((inside, ["F.linear + F.gelu on pairs"]), (across, [])):
        compiled = jit(program)
        results = [torch.autograd.grad(fn(x).square().sum(), trained.weight) for fn in (compiled, program)]
        torch.testing.assert_close(*results)
        assert chains(compiled) == expected


def test_the_longest_comes_first():
    claims = (claim(LINEAR, RELU), claim(LINEAR, RELU, LINEAR), claim(RELU, LINEAR))
    w, x = torch.randn(4, 4), torch.randn(3, 4)

    def program(x):
        return F.linear(torch.relu(F.linear(torch.relu(F.linear(x, w)), w)), w, w[0])

    compiled = jit(program, replace(PAIRS, claims=claims))
    torch.testing.assert_close(compiled(x), program(x))
    assert chains(compiled) == ["F.linear + torch.relu + F.linear on pairs", "torch.relu + F.linear on pairs"]


def test_calls_inside_of_a_composite():
    """Attention is a Python function, in which a linear layer is followed by ``unflatten``."""
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)
    compiled = jit(lambda x: attention(x, x, x)[0], replace(PAIRS, claims=(claim(LINEAR, "torch.Tensor.unflatten"),)))
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), attention(x, x, x)[0])
    assert chains(compiled) == ["F.linear + torch.Tensor.unflatten on pairs"]


def linear(input, weight, bias=None):
    return F.linear(input, weight, bias)


def gelu(input, *, approximate="none"):
    return F.gelu(input, approximate=approximate)


ALONE = Executor(name="alone", claims=(Claim(LINEAR, lower=f"{HERE}:linear"),))
GELUS = Executor(name="gelus", claims=(Claim(GELU, lower=f"{HERE}:gelu"),))


@pytest.mark.parametrize(
    ("executors", "whole", "why"),
    [
        ((PAIRS, ALONE), True, None),
        ((ALONE, PAIRS), False, "alone comes before it"),
        ((PAIRS, GELUS), True, None),
        ((GELUS, PAIRS), False, "gelus comes before it"),
        ((PAIRS, FUSER), True, None),
        ((FUSER, PAIRS), False, None),
    ],
)
def test_the_order_of_the_user(executors, whole, why):
    w, x = torch.randn(4, 4), torch.randn(3, 4)
    compiled = jit(lambda x: F.gelu(F.linear(x, w)), *executors)
    torch.testing.assert_close(compiled(x), F.gelu(F.linear(x, w)))
    assert bool(chains(compiled)) == whole
    found = [reason for reason in refusals(compiled) if "before" in reason]
    assert found == ([f"as one, {LINEAR} + {GELU}: {why}"] if why else [])


def test_refusals_are_shown():
    w, x = torch.randn(4, 4), torch.randn(65, 4)
    compiled = jit(lambda x: torch.relu(F.linear(x, w)))
    text = " ".join(str(thunder.explain(compiled)(x)).split())
    assert refusals(compiled) == [f"as one, {LINEAR} + torch.relu: 65 rows are too many"]
    assert "65 rows are too many" in text
    assert "F.linear + torch.relu" in str(thunder.explain(compiled)(x[:3]))
    assert "pairs (relu)" in str(thunder.explain(compiled)(x[:3]))


def test_a_rule_that_fails_leaves_the_calls_alone(monkeypatch):
    monkeypatch.delenv("THUNDER_STRICT")
    w, x = torch.randn(4, 4), torch.randn(3, 4)
    compiled = jit(
        lambda x: torch.relu(F.linear(x, w)), replace(PAIRS, claims=(Claim((LINEAR, RELU), lower="math:sin"),))
    )
    with pytest.warns(RuntimeWarning, match=r"pairs is not used for torch.nn.functional.linear \+ torch.relu"):
        torch.testing.assert_close(compiled(x), torch.relu(F.linear(x, w)))
    assert chains(compiled) == []


def fake_pair(linear, input, weight, bias=None, *, then):
    return torch.relu(symbol("fake.linear_fwd")(input, weight, bias))


def test_states_belong_to_the_first_call():
    """A state has the same name whether its call is part of a chain or alone, in inference or training."""
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    names = []
    for claims in (FAKE.claims, (*FAKE.claims, Claim((LINEAR, "torch.nn.functional.relu"), lower=f"{HERE}:fake_pair"))):
        for training in (True, False):
            compiled = jit(module, replace(FAKE, claims=claims))
            with torch.set_grad_enabled(training):
                out, x = compiled(torch.ones(2, 4)), torch.ones(2, 4)
                torch.testing.assert_close(out, module(x))
            assert len(chains(compiled)) == (not training and len(claims) > 1)
            names.append(sorted(thunder.executor_state(compiled)["fake.forward"]))
    assert names == [names[0]] * 4


def test_printed_programs_run():
    w, x = torch.randn(4, 4), torch.randn(3, 4)
    compiled = jit(lambda x: F.gelu(F.linear(x, w), approximate="tanh"))
    expected = compiled(x)
    for trace in thunder.last_traces(compiled):
        space = {"__name__": "printed"}
        exec(str(trace), space)
        torch.testing.assert_close(space[trace.name](x, w)[0], expected)
    (line,) = (line for line in str(selected(compiled)).splitlines() if " = chain(" in line)
    assert "(torch.nn.functional.linear, x, " in line
    assert "then=((torch.nn.functional.gelu, (), {'approximate': 'tanh'}),))" in line


def test_many_sizes():
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU()).requires_grad_(False)
    compiled = jit(module, frontend="dynamo", dynamic=True)
    for rows in (3, 5, 7):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), module(x))
    assert chains(compiled) == ["F.linear + F.gelu on pairs"]
    assert len(compiled._thunder_records) == 1


def test_programs_without_chains_are_as_they_were():
    """An executor with chains changes nothing of programs that have none."""
    module, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(3, 4)
    texts = []
    for executors in ([], [PAIRS]):
        compiled = thunder.jit(module, executors=[*executors], frontend="functional")
        compiled(x)
        texts.append(str(thunder.last_traces(compiled)[-1]))
    assert texts[0] == texts[1]
