"""The conformance suite. Its tolerance is for sums of products in another order: those of convolutions."""

import torch

from thunder.testing.suite import *  # noqa: F403
from thunder_inductor.plugin import INDUCTOR

EXECUTOR = INDUCTOR
PLUGIN = "thunder_inductor.plugin"
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}


def _transposed(device, dtype):
    generator = torch.Generator(device).manual_seed(0)

    def new(*shape):
        return torch.randn(shape, device=device, generator=generator).to(dtype)

    yield (new(2, 4, 8, 8), new(4, 3, 3, 3)), {}
    yield (new(2, 4, 8, 8), new(4, 3, 2, 2), new(6)), {"stride": 2, "groups": 2}


def _bags(device, dtype):
    generator = torch.Generator(device).manual_seed(0)
    table = torch.randn(5, 4, device=device, generator=generator).to(dtype)
    indices = torch.tensor([[4], [0], [4], [2]], device=device)
    for mode in ("sum", "mean", "max"):
        yield (indices, table), {"mode": mode}


SAMPLES = {"torch.nn.functional.conv_transpose2d": _transposed, "torch.nn.functional.embedding_bag": _bags}
