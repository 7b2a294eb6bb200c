"""Every trace is verified between passes, and what would run eagerly instead is an error."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _strict(monkeypatch):
    monkeypatch.setenv("THUNDER_VERIFY", "1")
    monkeypatch.setenv("THUNDER_STRICT", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)
