"""Each test runs on stand-ins for Apex's extensions, and on Apex itself where it is installed beside a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.apex.installing import NAMES, STAND_INS, installed
from thunder_apex import extensions


@pytest.fixture(autouse=True)
def _strict(strict):
    """For every test here."""


@pytest.fixture(scope="module", params=["stand-ins", "apex"])
def device(request) -> Iterator[str]:
    """Where the extensions run: the type of the device."""
    if request.param == "apex":
        missing = [name for name in NAMES if extensions.find(name) is None]
        if missing or not torch.cuda.is_available():
            pytest.skip(f"{' and '.join(missing) or 'a CUDA device'} is not here")
        yield "cuda"
        return
    with installed(STAND_INS):
        yield "cpu"


@pytest.fixture
def stand_ins() -> Iterator[None]:
    """The stand-ins are what is installed."""
    with installed(STAND_INS):
        yield
