"""Cross entropy against PyTorch, in every combination of its options."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import thunder
from tests.apex.programs import close, executors, jit, step, wide
from thunder.testing.fakes.fuser import FUSER
from thunder_apex.plugin import APEX

CLASSES = 40


@st.composite
def calls(draw):
    """Labels (some of them to be ignored), and keywords."""
    ignored = draw(st.sampled_from([-100, -1, 7]))
    label = st.integers(0, CLASSES - 1) | st.just(ignored)
    keywords = {
        "ignore_index": ignored,
        "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
        "label_smoothing": draw(st.sampled_from([0.0, 0.1, 1.0])),
    }
    default = {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}
    given = {k: v for k, v in keywords.items() if v != default[k] or draw(st.booleans())}
    return draw(st.lists(label, min_size=1, max_size=5)), given


def error(logits: torch.Tensor) -> float:
    """Of gradients, relative to the largest, by the dtype of the logits.

    The kernel keeps the logarithm ``s`` of the sum of exponentials of bfloat16 logits in bfloat16: rounding moves it by
    up to ``2**-8 * s`` and a probability ``exp(x - s)`` by that part of itself; two more roundings are those of the
    arriving gradient and of the result.
    """
    if logits.dtype is torch.bfloat16:
        largest = torch.logsumexp(logits.float(), 1).abs().max().item()
        return math.expm1(2**-8 * largest) + 2**-7
    return 2**-10 if logits.dtype is torch.float16 else 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@given(calls(), st.integers(0, 99))
@settings(max_examples=40)
def test_options(device, dtype, call, seed):
    labels, keywords = call
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(len(labels), CLASSES, generator=generator) * 3).to(device, dtype).requires_grad_()
    target = torch.tensor(labels, device=device)
    grad = torch.randint(1, 9, (len(labels),), generator=generator).to(device) / 8
    grad = grad if keywords.get("reduction") == "none" else grad[0]

    def loss(logits, target):
        return F.cross_entropy(logits, target, **keywords)

    jitted = jit(loss)
    actual = step(jitted, logits, target, grad=grad)
    assert executors(jitted)["cross_entropy"] == "apex"
    assert actual[0].dtype is actual[1].dtype is dtype
    close(actual, step(loss, wide(logits), target, grad=grad), error(logits))


@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_the_module(device, frontend):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(8, CLASSES)
            self.loss = nn.CrossEntropyLoss(ignore_index=2, label_smoothing=0.1)

        def forward(self, x, target):
            return self.loss(self.head(x).flatten(0, 1), target.flatten())

    module = Net().to(device)
    x, target = torch.randn(3, 4, 8, device=device), torch.randint(0, 5, (3, 4), device=device)
    wanted = torch.autograd.grad(module(x, target), list(module.parameters()))
    jitted = thunder.jit(module, executors=[APEX], frontend=frontend)
    found = torch.autograd.grad(jitted(x, target), list(module.parameters()))
    assert executors(jitted)["cross_entropy"] == "apex"
    torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(jitted(x, target), module(x, target))
    assert executors(jitted)["cross_entropy"] == "apex"


def test_backward_keeps_one_number_per_row_beside_logits_and_labels(device):
    logits, target = torch.randn(6, CLASSES, device=device).requires_grad_(), torch.arange(6, device=device)
    jitted = jit(lambda logits, target: F.cross_entropy(logits * 1, target))
    jitted(logits, target)
    saved = thunder.last_traces(jitted)[-1].result[2]
    assert sorted(v.type.shape for v in saved) == [(6,), (6,), (6, CLASSES)]


def test_one_call_forward_and_one_backward(device):
    logits, target = torch.randn(6, CLASSES, device=device).requires_grad_(), torch.arange(6, device=device)
    jitted = jit(F.cross_entropy)
    jitted(logits, target).backward()
    for traces, name in ((thunder.last_traces(jitted), "fwd"), (thunder.last_backward_traces(jitted), "bwd")):
        symbols = [op.sym.name for op in traces[-1].ops]
        assert symbols.count(f"apex.cross_entropy_{name}") == 1
        assert not any("softmax" in symbol for symbol in symbols)


def test_labels_that_are_no_class_are_an_error(stand_ins):
    logits, jitted = torch.randn(2, CLASSES), jit(F.cross_entropy)
    for label in (CLASSES, -1):
        with pytest.raises(Exception, match="a target is out of bounds"):
            jitted(logits, torch.tensor([0, label]))


def test_beside_a_fuser(device):
    """What is around the kernels may be fused, and stays what it is."""
    logits, target = torch.randn(6, CLASSES, device=device).requires_grad_(), torch.tensor([1, -100, 3, 4, 5, 6])
    target, grad = target.to(device), torch.tensor(0.5, device=device)

    def loss(logits, target):
        return F.cross_entropy(F.rms_norm(logits.tanh() * 2, (CLASSES,)) + 1, target, label_smoothing=0.1)

    alone, fused = (thunder.jit(loss, executors=[APEX, *more], frontend="functional") for more in ([], [FUSER]))
    torch.testing.assert_close(
        step(fused, logits, target, grad=grad), step(alone, logits, target, grad=grad), rtol=0, atol=0
    )
    symbols = [op.sym.name for op in thunder.last_traces(fused)[-1].ops]
    assert "fakefuser.region" in symbols
    assert {"apex.cross_entropy_fwd", "apex.rms_norm_fwd"} <= set(symbols)
