"""The conformance suite. float32 is not relaxed: the tolerances are PyTorch's own."""

import torch

from thunder.testing.suite import *  # noqa: F403
from thunder_onednn.plugin import ONEDNN

EXECUTOR = ONEDNN
PLUGIN = "thunder_onednn.plugin"
OPTIONS = {"onednn.when": "always"}


def _attention(device, dtype):
    generator = torch.Generator(device).manual_seed(0)

    def new(*shape):
        return torch.randn(shape, device=device, generator=generator).to(dtype)

    yield (new(2, 3, 5, 4), new(2, 3, 5, 4), new(2, 3, 5, 4)), {"is_causal": True}
    yield (new(1, 4, 130, 8), new(1, 2, 70, 8), new(1, 2, 70, 6)), {"enable_gqa": True, "scale": 0.25}
    yield (new(2, 2, 3, 4), new(2, 2, 7, 4), new(2, 2, 7, 4), new(3, 7)), {}
    yield (new(2, 2, 3, 4), new(2, 2, 7, 4), new(2, 2, 7, 4), new(2, 1, 1, 7) > 0), {}


SAMPLES = {"torch.nn.functional.scaled_dot_product_attention": _attention}
