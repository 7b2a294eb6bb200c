"""The conformance suite under delayed scaling. Its tolerance is for sums of 64 products of numbers of 3 and 2 bits."""

import torch

from thunder.testing.suite import *  # noqa: F403
from thunder_te.plugin import TE

EXECUTOR = TE
PLUGIN = "thunder_te.plugin"
OPTIONS = {"te.recipe": "DelayedScaling"}
DTYPES = (torch.float32, torch.bfloat16)
TOLERANCE = {"rtol": 0.1, "atol": 3.0}


def _linear(device, dtype):
    generator = torch.Generator(device).manual_seed(0)

    def new(*shape):
        return torch.randn(shape, device=device, generator=generator).to(dtype)

    yield (new(8, 16), new(16, 16)), {}
    yield (new(32, 64), new(32, 64), new(32)), {}
    yield (new(2, 16, 32), new(64, 32), new(64)), {}
    yield (new(3, 16), new(16, 16)), {}


SAMPLES = {"torch.nn.functional.linear": _linear}
