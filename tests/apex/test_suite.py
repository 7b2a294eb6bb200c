"""The conformance suite, on the stand-ins."""

import pytest
import torch

from tests.apex.installing import STAND_INS, installed
from thunder.testing.suite import *  # noqa: F403
from thunder_apex.plugin import APEX

EXECUTOR = APEX
PLUGIN = "thunder_apex.plugin"
DTYPES = (torch.float32, torch.float64)


@pytest.fixture(autouse=True, scope="module")
def _stand_ins():
    with installed(STAND_INS):
        yield


def _cross_entropy(device, dtype):
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(6, 40, device=device, generator=generator).to(dtype)
    labels = torch.tensor([3, 0, 39, -100, 5, 5], device=device)
    for keywords in ({}, {"reduction": "sum"}, {"reduction": "none", "ignore_index": 5}, {"label_smoothing": 0.2}):
        yield (logits, labels), keywords
    yield (logits, logits.softmax(1)), {}
    yield (logits, labels, logits[0].exp()), {}


def _norm(*parameters):
    def samples(device, dtype):
        generator = torch.Generator(device).manual_seed(0)

        def new(*shape):
            return torch.randn(shape, device=device, generator=generator).to(dtype)

        for shape in ((5,), (3, 5)):
            yield (new(4, 3, 5), shape, *(new(*shape) for _ in parameters)), {}
        yield (new(4, 3, 5), (5,)), {"eps": 0.25}
        yield (new(2, 5), (5,), new(5)), {}

    return samples


SAMPLES = {
    "torch.nn.functional.cross_entropy": _cross_entropy,
    "torch.nn.functional.layer_norm": _norm("weight", "bias"),
    "torch.nn.functional.rms_norm": _norm("weight"),
    "torch.rms_norm": _norm("weight"),
}
