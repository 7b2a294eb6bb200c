"""What runs: here PyTorch; in a real package, kernels of a library."""

import math

import torch


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_backward(x, grad):
    density = torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return grad * (0.5 * (1 + torch.erf(x / math.sqrt(2))) + x * density)
