"""Whole networks against eager: eval and training, gradients, and statistics updated once per call."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from tests.core.models.check import FRONTENDS, check
from tests.core.models.networks import NETWORKS
from thunder.errors import CaptureError

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


def test_padding_in_the_encoder_of_eval_mode() -> None:
    """Eager's fast path looks into the mask, and zeroes padded rows; under Dynamo PyTorch does not take that path."""
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).eval()
    x, padding = torch.randn(2, 6, 32), torch.arange(6) >= torch.tensor([[6], [4]])
    with torch.no_grad():
        with pytest.raises(CaptureError, match="needs the values of a tensor"):
            thunder.jit(module, frontend="functional")(x, src_key_padding_mask=padding)
        found = thunder.jit(module)(x, src_key_padding_mask=padding)
        assert_close(found[~padding], module(x, src_key_padding_mask=padding)[~padding], rtol=1e-4, atol=1e-5)
