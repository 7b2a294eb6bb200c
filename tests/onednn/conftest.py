"""Every trace is verified between passes, what would run eagerly instead is an error."""

from __future__ import annotations

import pytest
import torch

from thunder_onednn.library import missing


@pytest.fixture(autouse=True)
def _strict(monkeypatch, request):
    if missing() and "without_onednn" not in request.fixturenames:
        pytest.skip(f"oneDNN cannot be used here: {missing()}")
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    monkeypatch.setenv("THUNDER_STRICT", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)
