"""Faults of PyTorch 2.10, the oldest version that Thunder runs on, which tests meet there."""

from __future__ import annotations

import pytest
import torch


def fault_of_torch_2_10(reason: str) -> pytest.MarkDecorator:
    """Marks a test that fails for a fault of that version of PyTorch."""
    return pytest.mark.xfail(torch.__version__.startswith("2.10."), reason=f"PyTorch 2.10: {reason}", strict=True)
