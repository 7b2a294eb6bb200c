"""Measured selection of chains: the whole against its calls, by whoever is fastest at each."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from tests.core.runtime.measuring import FRONT_ENDS, LONG, MEASURE, decisions
from thunder.extend import Claim, Executor, No, Yes
from thunder.ir.trace import Stage
from thunder.passes.chains import title
from thunder.runtime.measured import OPENED

pytestmark = pytest.mark.usefixtures("folder")

HERE = __name__
LINEAR, GELU = "torch.nn.functional.linear", "torch.nn.functional.gelu"
BOTH = f"{LINEAR} + {GELU}"


def unless_measured(cx, *args, **kwargs):
    return Yes() if cx.measured else No("expected to be slower")


def both(linear, input, weight, bias=None, *, then):
    return F.gelu(F.linear(input, weight, bias), **then[0][2])


def alone(input, weight, bias=None):
    return F.linear(input, weight, bias)


CHAIN = Executor(name="chain", claims=(Claim((LINEAR, GELU), check=f"{HERE}:unless_measured", lower=f"{HERE}:both"),))
ALONE = Executor(name="alone", claims=(Claim(LINEAR, lower=f"{HERE}:alone"),))


def ran(jitted) -> list[tuple[str, str]]:
    selected = next(trace for trace in reversed(thunder.last_traces(jitted)) if trace.stage is Stage.SELECTED)
    return [(title(op), op.selection.executor) for op in selected.ops]


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.GELU("tanh")).requires_grad_(False), torch.randn(3, 4)


@pytest.mark.parametrize("frontend", FRONT_ENDS)
@pytest.mark.parametrize(
    ("prices", "expected"),
    [
        ({"chain": 1.0, "alone": 2.0, "torch": 4.0}, [(BOTH, "chain")]),
        ({"chain": 2.0, "alone": 1.0, "torch": 4.0}, [(LINEAR, "alone"), (GELU, "torch")]),
        ({"chain": 3.0, "alone": 4.0, "torch": 2.0}, [(LINEAR, "torch"), (GELU, "torch")]),
        ({"chain": 1.03, "alone": 1.0, "torch": 4.0}, [(BOTH, "chain")]),
    ],
)
def test_the_fastest_runs(frontend, prices, expected, priced):
    priced(**prices)
    module, x = model()
    jitted = thunder.jit(module, executors=[CHAIN, ALONE], frontend=frontend, options=MEASURE | LONG)
    torch.testing.assert_close(jitted(x), module(x))
    assert ran(jitted) == expected
    chain = decisions(jitted)[-1]
    assert chain.chosen == ("chain" if len(expected) == 1 else OPENED)
    assert list(chain.costs) == ["chain", OPENED]


def test_times_are_shown_and_kept(priced):
    prices = priced(chain=2e-6, alone=1e-6, torch=4e-6)
    module, x = model()
    for _ in range(2):
        jitted = thunder.jit(module, executors=[CHAIN, ALONE], frontend="functional", options=MEASURE | LONG)
        text = " ".join(str(thunder.explain(jitted)(x)).split())
        assert f"chain: as one, {BOTH}: measured: 2 us, its parts 1 us" in text
        assert "chain(F.linear, i0, i1, i2," in text
        assert len(prices.timed) == 3
    assert {decision.origin for decision in decisions(jitted)} == {"kept"}


def test_where_nothing_is_measured_the_order_decides():
    module, x = model()
    options = MEASURE | {"measure_budget": 0.0}
    jitted = thunder.jit(module, executors=[CHAIN, ALONE], frontend="functional", options=options)
    torch.testing.assert_close(jitted(x), module(x))
    assert ran(jitted) == [(LINEAR, "alone"), (GELU, "torch")]
    symbolic = thunder.jit(module, executors=[CHAIN, ALONE], dynamic=True, options=MEASURE | LONG)
    torch.testing.assert_close(symbolic(x), module(x))
    assert ran(symbolic) == [(LINEAR, "alone"), (GELU, "torch")]
