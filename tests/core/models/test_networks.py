"""Whole networks against eager: eval and training, gradients, and statistics updated once per call."""

from __future__ import annotations

import pytest

from tests.core.models.check import FRONTENDS, check
from tests.core.models.networks import NETWORKS


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, frontend: str) -> None:
    module, args = NETWORKS[name]()
    check(module, args, {}, frontend)
