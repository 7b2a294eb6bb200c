"""Whole networks against eager: eval and training, gradients, and statistics updated once per call."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from tests.core.models.check import FRONTENDS, check
from tests.core.models.networks import NETWORKS

DECLINED = {"packed sequences": "_pack_padded_sequence needs the values of a tensor"}
"""What the functional front end declines."""

PYTHON = {"lstm", "gru", "lstm with dropout", "rnn", "packed sequences"}
"""What Dynamo leaves to Python: it traces no recurrent layers (``torch._dynamo.config.allow_rnn``)."""


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, frontend: str) -> None:
    module, args = NETWORKS[name]()
    compiled = frontend == "functional" or name not in PYTHON
    check(module, args, {}, frontend, declined=DECLINED.get(name, ""), compiled=compiled)


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_padding_in_the_encoder_of_eval_mode(frontend: str) -> None:
    """Eager's fast path looks into the mask, and zeroes padded rows; PyTorch does not take that path for compilers."""
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    jitted = thunder.jit(module, frontend=frontend)
    x = torch.randn(2, 6, 32)
    for lengths in ([[6], [4]], [[3], [6]]):
        padding = torch.arange(6) >= torch.tensor(lengths)
        with torch.no_grad():
            found, expected = (program(x, src_key_padding_mask=padding) for program in (jitted, module))
        assert_close(found[~padding], expected[~padding], rtol=1e-4, atol=1e-5)
        assert found[padding].all()
        assert not expected[padding].any()
    assert frontend == "dynamo" or thunder.cache_misses(jitted) == 1
