"""Convolutions run in channels last, and nobody sees it but the clock."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import thunder
from benchmarks.models import ResNet
from benchmarks.steady import held_bytes
from thunder.extend import ClaimContext, No, TensorType, Yes
from thunder.ir.types import contiguous_strides
from thunder.passes.layouts import is_relayout
from thunder.runtime import trial
from thunder.runtime.codegen import compile_trace
from thunder_inductor.convolutions import DIRECT, TRANSPOSED
from thunder_inductor.plugin import INDUCTOR

FORMATS = {2: (torch.contiguous_format, torch.channels_last), 3: (torch.contiguous_format, torch.channels_last_3d)}
FUNCTIONS = {
    "conv2d": (2, F.conv2d),
    "conv3d": (3, F.conv3d),
    "conv_transpose2d": (2, F.conv_transpose2d),
    "conv_transpose3d": (3, F.conv_transpose3d),
}


def jit(fn, **options):
    return thunder.jit(fn, executors=[INDUCTOR], **options)


@st.composite
def calls(draw):
    """A function, its tensors, some of which need gradients, and the rest of its arguments."""
    name = draw(st.sampled_from(list(FUNCTIONS)))
    space, fn = FUNCTIONS[name]
    groups = draw(st.sampled_from([1, 1, 2]))
    inputs, outputs = (groups * draw(st.integers(1, 3)) for _ in range(2))
    numbers = st.one_of(st.integers(1, 2), st.lists(st.integers(1, 2), min_size=space, max_size=space).map(tuple))
    rest = {"stride": draw(numbers), "padding": draw(st.integers(0, 1)), "dilation": draw(numbers), "groups": groups}
    kernel = draw(st.lists(st.integers(1, 3), min_size=space, max_size=space))
    size = draw(st.lists(st.integers(5, 7), min_size=space, max_size=space))
    channels = (inputs, outputs // groups) if "transpose" in name else (outputs, inputs // groups)
    tensors = [torch.randn(draw(st.integers(1, 2)), inputs, *size), torch.randn(*channels, *kernel)]
    tensors = [t.contiguous(memory_format=draw(st.sampled_from(FORMATS[space]))) for t in tensors]
    tensors += [torch.randn(outputs)] if draw(st.booleans()) else []
    if "transpose" not in name and draw(st.booleans()):
        rest |= {"padding": draw(st.sampled_from(["same", "valid"])), "stride": 1}
    return fn, [t.requires_grad_(draw(st.booleans())) for t in tensors], rest


@settings(max_examples=60, deadline=None)
@given(calls())
def test_calls_equal_eager(call):
    """Values, gradients and strides of all."""
    function, tensors, rest = call

    def fn(*tensors):
        return function(*tensors, **rest)

    expected, actual = fn(*tensors), jit(fn)(*tensors)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5, check_stride=True)
    wanted = [t for t in tensors if t.requires_grad]
    if wanted:
        g = torch.randn_like(expected)
        found, want = (torch.autograd.grad(out, wanted, g) for out in (actual, expected))
        torch.testing.assert_close(found, want, rtol=1e-5, atol=2e-5, check_stride=True)


def tensor(*shape: int, stride=None, dtype="float32", device="cpu") -> TensorType:
    return TensorType(shape, stride or contiguous_strides(shape), dtype, device)


IMAGES, WEIGHT = tensor(2, 3, 8, 8), tensor(4, 3, 3, 3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((tensor(2, 3, 8, 8, device="cuda:0"), tensor(4, 3, 3, 3, device="cuda:0")), "only oneDNN"),
        ((tensor(2, 3, 8, 8, dtype="float64"), tensor(4, 3, 3, 3, dtype="float64")), "oneDNN does not take float64"),
        ((tensor(3, 8, 8), WEIGHT), "needs a batch"),
        ((IMAGES, WEIGHT, None, 1, "same"), "needs a batch"),
        ((tensor(2, 3, 8, 8, stride=(192, 1, 24, 3)), WEIGHT), "its memory format"),
        ((tensor(1, 64, 2, 2), tensor(64, 64, 3, 3)), "its weight is larger"),
    ],
)
def test_refusals(arguments, reason):
    answer = DIRECT.check(ClaimContext(), *arguments)
    assert isinstance(answer, No)
    assert answer.reason.startswith(reason)
    assert isinstance(DIRECT.check(ClaimContext(), IMAGES, WEIGHT), Yes)


@pytest.mark.parametrize("strides", [(4, 1, 4, 4), (4, 1, 1, 1)])
def test_gradients_have_their_strides_where_an_extent_of_one_leaves_the_format_open(strides):
    x = torch.randn(2, 4, 8, 8, requires_grad=True)
    w = torch.randn(4, 4, 1, 1).as_strided((4, 4, 1, 1), strides).requires_grad_()

    def fn(x, w):
        return F.conv2d(x, w, padding=1)

    g = torch.randn(2, 4, 10, 10)
    found, want = (torch.autograd.grad(program(x, w), (x, w), g) for program in (jit(fn), fn))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5, check_stride=True)


@pytest.mark.parametrize("place", [torch.argmax, torch.argmin])
def test_places_are_counted_in_the_order_of_elements(place):
    x, w = torch.randn(2, 4, 8, 8), torch.randn(4, 4, 3, 3)

    def fn(x, w):
        y = F.conv2d(x, w).relu() * 2
        return place(y), place(y, None, True), place(y, 1)

    for found, want in zip(jit(fn)(x, w), fn(x, w), strict=True):
        assert torch.equal(found, want)


def test_hooks_may_lay_saved_tensors_out_as_they_like():
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU())
    x, jitted = torch.randn(4, 3, 8, 8, requires_grad=True), jit(module)

    def gradients(program):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous().clone(), lambda t: t):
            y = program(x)
        return torch.autograd.grad(y.square().sum(), [x, *module.parameters()])

    torch.testing.assert_close(gradients(jitted), gradients(module), rtol=1e-3, atol=1e-3)


def test_it_is_left_to_torch_without_onednn():
    with torch.backends.mkldnn.flags(enabled=False):
        assert isinstance(DIRECT.check(ClaimContext(), IMAGES, WEIGHT), No)


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_one_element_are_for_onednn_with_any_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert isinstance(DIRECT.check(ClaimContext(), tensor(2, 16, 8, 8), tensor(4, 16, 1, 1)), Yes)
        assert isinstance(TRANSPOSED.check(ClaimContext(), tensor(2, 16, 8, 8), tensor(16, 4, 1, 1)), Yes)
    finally:
        torch.set_num_threads(before)


def step(module: nn.Module, program, images: Tensor, classes: Tensor) -> list[Tensor]:
    loss = program(images, classes)
    return [loss.detach(), *torch.autograd.grad(loss, list(module.parameters()))]


@pytest.mark.slow
@pytest.mark.parametrize("frontend", ["functional", "dynamo"])
def test_a_network_copies_only_its_images_and_gradients_of_weights(frontend):
    torch.manual_seed(0)
    module, batch = ResNet((8, 16)), (torch.randn(4, 3, 32, 32), torch.randint(100, (4,)))
    other = copy.deepcopy(module)
    jitted = jit(module, frontend=frontend)
    for _ in range(2):
        torch.testing.assert_close(step(module, jitted, *batch), step(other, other, *batch), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(dict(module.named_buffers()), dict(other.named_buffers()))
    forward = next(t for t in reversed(thunder.last_traces(jitted)) if t.name != "epilogue")
    assert [op.inputs[0].type.shape for op in forward.ops if is_relayout(op)] == [(4, 3, 32, 32)]
    made_again, *others = [op for op in thunder.last_backward_traces(jitted)[-1].ops if is_relayout(op)]
    weights = sum(isinstance(part, nn.Conv2d) for part in module.modules())
    assert len([op for op in (made_again, *others) if op.outs.type.shape[2:] == (3, 3)]) == weights
    assert len(others) == weights
    assert held_bytes(jitted, module, batch) <= held_bytes(other, other, batch)


@pytest.mark.slow
def test_what_is_saved_around_convolutions_is_in_their_format():
    """Batch norm's result is read by the derivative of ``hardtanh``, and is not made again."""

    def layers(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.Hardtanh(-0.5, 0.5)]

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean()

    module, x = nn.Sequential(*layers(3), *layers(6), Mean()), torch.randn(4, 3, 8, 8)
    other, jitted = copy.deepcopy(module), jit(module)
    for _ in range(2):
        found, want = (
            torch.autograd.grad(program(x), list(own.parameters()))
            for program, own in ((jitted, module), (other, other))
        )
        torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-4)
    saved = [v for v in thunder.last_backward_traces(jitted)[-1].params if v.type.shape == (4, 6, 8, 8)]
    assert len(saved) >= 3
    assert {v.type.stride for v in saved} == {(384, 1, 48, 6)}
    assert held_bytes(jitted, module, (x,)) <= held_bytes(other, other, (x,))


@pytest.mark.slow
def test_a_value_that_two_convolutions_read_is_saved_once():
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(x) * 2
            return (torch.relu(self.one(y)) + torch.relu(self.two(y))).sum()

    module, x = Split(), torch.randn(2, 4, 8, 8, requires_grad=True)
    jitted = jit(module)
    wanted = [x, *module.parameters()]
    found, want = (torch.autograd.grad(program(x), wanted) for program in (jitted, module))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)
    assert held_bytes(jitted, module, (x,)) <= held_bytes(module, module, (x,))


def test_measured_selection_does_not_time_copies_that_regions_make(monkeypatch):
    """They run in its place as views, which take no time."""
    made = []
    monkeypatch.setattr(trial, "compile_trace", lambda trace: made.append(trace) or compile_trace(trace))
    options = {"select": "measure", "measure_budget": 60.0}
    conv, x = nn.Conv2d(3, 4, 3), torch.randn(2, 3, 8, 8, requires_grad=True)
    jitted = jit(lambda x: torch.relu(conv(x) * 2), options=options)
    torch.testing.assert_close(jitted(x), torch.relu(conv(x) * 2), rtol=1e-5, atol=1e-5)
    timed = [[op.sym.name for op in trace.ops] for trace in made]
    assert any("aten.as_strided" in names for names in timed)
    assert not any("clone" in name for names in timed for name in names)
