"""Results and gradients against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.ir import tree
from thunder.plugins.spec import Claim
from thunder.testing.suite.samples import Sample
from thunder.testing.suite.subject import Subject


def test_results_equal_eager(subject: Subject, claim: Claim) -> None:
    """Where no gradient is wanted: values, and shape, strides, dtype and device."""
    for sample in subject.taken(claim):
        wanted = [False] * len(sample.tensors)
        expected, actual = (fn(*sample.inputs(wanted)) for fn in (sample.program, subject.jit(sample)))
        _compare(subject, sample, _tensors(actual), _tensors(expected))


def test_gradients_equal_eager(subject: Subject, differentiable: Claim) -> None:
    """Results and gradients where all of them are wanted."""
    for sample in subject.taken(differentiable):
        expected, actual = (_step(fn, sample.inputs()) for fn in (sample.program, subject.jit(sample)))
        _compare(subject, sample, actual, expected)


def test_gradients_of_some_inputs_equal_eager(subject: Subject, differentiable: Claim) -> None:
    """Each input in turn is the only one that needs a gradient."""
    for sample in subject.taken(differentiable):
        for only, t in enumerate(sample.tensors):
            if not t.is_floating_point():
                continue
            wanted = [at == only for at in range(len(sample.tensors))]
            expected, actual = (_step(fn, sample.inputs(wanted)) for fn in (sample.program, subject.jit(sample)))
            _compare(subject, sample, actual, expected)


def test_one_tensor_given_twice(subject: Subject, differentiable: Claim) -> None:
    """The gradient of a tensor that stands for two arguments is the sum of theirs."""
    for sample in subject.taken(differentiable):
        for kept, replaced in sample.doubled():
            once = _doubled(sample, kept, replaced)
            expected, actual = (_step(fn, sample.inputs()) for fn in (once.program, subject.jit(once)))
            _compare(subject, sample, actual, expected)


def test_other_ways_equal_eager(subject: Subject, claim: Claim) -> None:
    """Results and gradients in each further way that the check names for a call."""
    for sample in subject.samples(claim.target):
        for other in subject.other_ways(claim, sample):
            for wanted in (None, [False] * len(sample.tensors)):
                expected, actual = (_step(fn, sample.inputs(wanted)) for fn in (sample.program, other.jit(sample)))
                _compare(subject, sample, actual, expected)


def _doubled(sample: Sample, kept: int, replaced: int) -> Sample:
    def twice(*tensors: torch.Tensor) -> Any:
        return sample.program(*(tensors[kept if at == replaced else at] for at in range(len(tensors))))

    return Sample.of(twice, sample.tensors, {})


def _step(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Results, then the gradient of each input."""
    torch.manual_seed(0)
    outs = _tensors(fn(*inputs))
    differentiable = [out for out in outs if out.requires_grad]
    wanted = [t for t in inputs if t.requires_grad]
    if not differentiable or not wanted:
        return list(outs)
    torch.manual_seed(1)
    cotangents = [torch.randn_like(out) for out in differentiable]
    return [*outs, *torch.autograd.grad(differentiable, wanted, cotangents, allow_unused=True)]


def _tensors(out: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree.leaves(out) if isinstance(leaf, torch.Tensor)]


def _compare(subject: Subject, sample: Sample, actual: Sequence[Any], expected: Sequence[Any]) -> None:
    assert len(actual) == len(expected), f"{sample} returns {len(actual)} tensors instead of {len(expected)}"
    tolerance: dict[str, Any] = dict(subject.tolerance)
    for found, want in zip(actual, expected):
        assert (found is None) == (want is None), f"{sample}: a gradient is missing, or there is one too many"
        if want is not None:
            torch.testing.assert_close(
                found, want, check_stride=False, equal_nan=True, msg=lambda m: f"{sample}: {m}", **tolerance
            )
