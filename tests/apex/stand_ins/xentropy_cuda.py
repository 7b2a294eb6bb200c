"""A stand-in for Apex's extension of this name: its contract and its formulas, on a CPU."""

from __future__ import annotations

import torch
from pybind import DEVICE_TYPES, check, check_input, compiled
from torch.nn.functional import one_hot

device_types = DEVICE_TYPES
__version__ = ""

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@compiled
def forward(input: torch.Tensor, labels: torch.Tensor, smoothing: float, half_to_float: bool):
    """Softmax cross entropy loss with label smoothing forward"""
    check(input.device.type in DEVICE_TYPES, "input must be on the device")
    check_input("labels", labels)
    check(not half_to_float or input.dtype is torch.float16, "conversion is supported for Half type only")
    _check(input, labels)
    x = input.float()
    sums = torch.logsumexp(x, 1)
    at_label = x.gather(1, labels[:, None])[:, 0]
    losses = (sums - x.mean(1)) * smoothing - (at_label - sums) * (1 - smoothing)
    return [losses, sums if half_to_float else sums.to(input.dtype)]


@compiled
def backward(
    grad_loss: torch.Tensor, logits: torch.Tensor, max_log_sum_exp: torch.Tensor, labels: torch.Tensor, smoothing: float
):
    """Softmax cross entropy loss with label smoothing backward"""
    check(grad_loss.device.type in DEVICE_TYPES, "grad_loss must be on the device")
    check_input("max_log_sum_exp", max_log_sum_exp)
    check_input("labels", labels)
    if grad_loss.dtype is not logits.dtype:
        check(
            grad_loss.dtype is torch.float32 and logits.dtype is torch.float16,
            "expected input and grad types to match, or input to be at::Half and grad to be at::Float",
        )
    check(max_log_sum_exp.dtype is grad_loss.dtype, f"expected scalar type {grad_loss.dtype}")
    check(grad_loss.shape == labels.shape, "Label and loss should have same number of examples")
    _check(logits, labels)
    classes = logits.shape[1]
    softmax = torch.exp(logits.float() - max_log_sum_exp.float()[:, None])
    wanted = (1 - smoothing) * one_hot(labels, classes) + smoothing / classes
    values = grad_loss.float()[:, None] * (softmax - wanted)
    gradient = torch.empty_like(logits)  # with its strides, into which the kernel writes rows one after the other
    gradient.as_strided(logits.shape, (classes, 1)).copy_(values)
    return gradient


def _check(logits: torch.Tensor, labels: torch.Tensor) -> None:
    check(labels.dtype is torch.int64, "Label type should be CUDA Long")
    check(logits.dtype in _DTYPES, f"not implemented for {logits.dtype}")
    check(logits.dim() == 2, "Currently only 2 dim input supported")
    check(labels.dim() == 1, "Labels should be 1 dimensional")
    check(logits.shape[0] == labels.shape[0], "Input and label should have same number of examples")
    check(logits.numel() > 0, "Number of classes in input should not be 0")
    check(bool(((labels >= 0) & (labels < logits.shape[1])).all()), "the kernel reads outside of the logits")
    rows = logits.data_ptr() % 16 == 0 and logits.shape[1] * logits.element_size() % 16 == 0
    check(rows or logits.shape[1] >= 32, "the kernel reads past the end of rows that are short and not aligned")
