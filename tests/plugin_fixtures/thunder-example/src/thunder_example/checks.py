"""Health checks for ``thunder doctor``."""

import torch

from thunder.extend import CheckResult
from thunder_example.kernels import gelu


def gelu_of_zero():
    value = gelu(torch.zeros(())).item()
    return CheckResult(value == 0, f"it is {value}", "reinstall thunder-example")
