"""The conformance suite on Apex itself."""

import pytest
import torch

from tests.apex.installing import NAMES
from tests.apex.test_suite import DTYPES, EXECUTOR, PLUGIN, SAMPLES  # noqa: F401
from thunder.testing.suite import *  # noqa: F403
from thunder_apex.extensions import find

DEVICE = "cuda"

if not torch.cuda.is_available() or any(find(name) is None for name in NAMES):
    pytest.skip("Apex's extensions or a CUDA device are not here", allow_module_level=True)
