"""Each test meets a fresh Dynamo: it keeps at most 256 programs of one wrapper, which all of ``torch.nn`` shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    yield
    torch._dynamo.reset()
