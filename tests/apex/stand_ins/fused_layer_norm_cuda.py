"""A stand-in for Apex's extension of this name: its contract and its formulas, on a CPU."""

from __future__ import annotations

import math

import torch
from pybind import DEVICE_TYPES, check, check_input, compiled

device_types = DEVICE_TYPES

_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@compiled
def forward(input: torch.Tensor, normalized_shape: list[int], epsilon: float):
    """LayerNorm forward"""
    mean, scale, normal = _normal(input, normalized_shape, epsilon)
    return [normal.reshape(input.shape).to(input.dtype), mean, scale]


@compiled
def forward_affine(
    input: torch.Tensor, normalized_shape: list[int], gamma: torch.Tensor, beta: torch.Tensor, epsilon: float
):
    """LayerNorm forward"""
    _parameters(input, normalized_shape, gamma=gamma, beta=beta)
    mean, scale, normal = _normal(input, normalized_shape, epsilon)
    out = normal * _row(gamma, normal) + _row(beta, normal)
    return [out.reshape(input.shape).to(input.dtype), mean, scale]


@compiled
def backward(
    dout: torch.Tensor,
    mean: torch.Tensor | None,
    invvar: torch.Tensor,
    input_or_output: torch.Tensor,
    normalized_shape: list[int],
    epsilon: float,
    memory_efficient: bool,
):
    """LayerNorm backward"""
    _statistics(dout, input_or_output, normalized_shape, mean, invvar, memory_efficient)
    normal = _rows(input_or_output, normalized_shape)
    if not memory_efficient:
        normal = (normal - mean[:, None]) * invvar[:, None]
    return _of_layer(_rows(dout, normalized_shape), normal, invvar).reshape(dout.shape).to(input_or_output.dtype)


@compiled
def backward_affine(
    dout: torch.Tensor,
    mean: torch.Tensor | None,
    invvar: torch.Tensor,
    input_or_output: torch.Tensor,
    normalized_shape: list[int],
    gamma: torch.Tensor,
    beta: torch.Tensor,
    epsilon: float,
    memory_efficient: bool,
):
    """LayerNorm backward"""
    _statistics(dout, input_or_output, normalized_shape, mean, invvar, memory_efficient)
    _parameters(input_or_output, normalized_shape, gamma=gamma, beta=beta)
    rows, grad = _rows(input_or_output, normalized_shape), _rows(dout, normalized_shape)
    if memory_efficient:
        normal = (rows - _row(beta, rows)) / _clamped(_row(gamma, rows), epsilon)
    else:
        normal = (rows - mean[:, None]) * invvar[:, None]
    of_input = _of_layer(grad * _row(gamma, rows), normal, invvar)
    of_gamma, of_beta = (grad * normal).sum(0).to(gamma.dtype), grad.sum(0).to(beta.dtype)
    of_input = of_input.reshape(dout.shape).to(input_or_output.dtype)
    return [of_input, of_gamma.reshape(gamma.shape), of_beta.reshape(beta.shape)]


@compiled
def rms_forward(input: torch.Tensor, normalized_shape: list[int], epsilon: float):
    """RMSNorm forward"""
    scale, normal = _rms_normal(input, normalized_shape, epsilon)
    return [normal.reshape(input.shape).to(input.dtype), scale]


@compiled
def rms_forward_affine(input: torch.Tensor, normalized_shape: list[int], gamma: torch.Tensor, epsilon: float):
    """RMSNorm forward"""
    _parameters(input, normalized_shape, gamma=gamma)
    scale, normal = _rms_normal(input, normalized_shape, epsilon)
    return [(normal * _row(gamma, normal)).reshape(input.shape).to(input.dtype), scale]


@compiled
def rms_backward(
    dout: torch.Tensor,
    invvar: torch.Tensor,
    input_or_output: torch.Tensor,
    normalized_shape: list[int],
    epsilon: float,
    memory_efficient: bool,
):
    """RMSNorm backward"""
    _statistics(dout, input_or_output, normalized_shape, None, invvar, True)
    normal = _rows(input_or_output, normalized_shape)
    if not memory_efficient:
        normal = normal * invvar[:, None]
    return _of_rms(_rows(dout, normalized_shape), normal, invvar).reshape(dout.shape).to(input_or_output.dtype)


@compiled
def rms_backward_affine(
    dout: torch.Tensor,
    invvar: torch.Tensor,
    input_or_output: torch.Tensor,
    normalized_shape: list[int],
    gamma: torch.Tensor,
    epsilon: float,
    memory_efficient: bool,
):
    """RMSNorm backward"""
    _statistics(dout, input_or_output, normalized_shape, None, invvar, True)
    _parameters(input_or_output, normalized_shape, gamma=gamma)
    rows, grad = _rows(input_or_output, normalized_shape), _rows(dout, normalized_shape)
    normal = rows / _clamped(_row(gamma, rows), epsilon) if memory_efficient else rows * invvar[:, None]
    of_input = _of_rms(grad * _row(gamma, rows), normal, invvar).reshape(dout.shape)
    return [of_input.to(input_or_output.dtype), (grad * normal).sum(0).to(gamma.dtype).reshape(gamma.shape)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32


def _rows(t: torch.Tensor, normalized_shape: list[int]) -> torch.Tensor:
    return t.to(_wide(t.dtype)).reshape(-1, math.prod(normalized_shape))


def _row(parameter: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return parameter.to(rows.dtype).reshape(1, -1)


def _clamped(gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Kept away from zero, with its sign."""
    return torch.where(gamma >= 0, gamma.clamp(min=epsilon), gamma.clamp(max=-epsilon))


def _normal(input: torch.Tensor, shape: list[int], epsilon: float):
    _check(input, shape)
    rows = _rows(input, shape)
    mean = rows.mean(1)
    scale = torch.rsqrt((rows - mean[:, None]).square().mean(1) + epsilon)
    return mean, scale, (rows - mean[:, None]) * scale[:, None]


def _rms_normal(input: torch.Tensor, shape: list[int], epsilon: float):
    _check(input, shape)
    rows = _rows(input, shape)
    scale = torch.rsqrt(rows.square().mean(1) + epsilon)
    return scale, rows * scale[:, None]


def _of_layer(grad: torch.Tensor, normal: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    along = (grad * normal).mean(1, keepdim=True)
    return (grad - grad.mean(1, keepdim=True) - normal * along) * scale[:, None]


def _of_rms(grad: torch.Tensor, normal: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (grad - normal * (grad * normal).mean(1, keepdim=True)) * scale[:, None]


def _check(input: torch.Tensor, shape: list[int]) -> None:
    check_input("input", input)
    check(input.dtype in _DTYPES, f"not implemented for {input.dtype}")
    check(len(shape) >= 1, "Expected normalized_shape to be at least 1-dimensional")
    check(tuple(input.shape[input.dim() - len(shape) :]) == tuple(shape), f"Given normalized_shape={shape}")
    check(input.numel() > 0, "invalid configuration argument")  # what CUDA says of an empty grid


def _parameters(input: torch.Tensor, shape: list[int], **parameters: torch.Tensor) -> None:
    for name, parameter in parameters.items():
        check_input(name, parameter)
        check(tuple(parameter.shape) == tuple(shape), f"{name} is not of normalized_shape")
        check(parameter.dtype is input.dtype, f"expected scalar type {input.dtype} but found {parameter.dtype}")


def _statistics(
    dout: torch.Tensor,
    kept: torch.Tensor,
    shape: list[int],
    mean: torch.Tensor | None,
    invvar: torch.Tensor,
    memory_efficient: bool,
) -> None:
    _check(kept, shape)
    check_input("dout", dout)
    check(dout.shape == kept.shape, "dout is of another shape")
    check(dout.dtype is kept.dtype, f"expected scalar type {kept.dtype} but found {dout.dtype}")
    check(memory_efficient or mean is not None, "the kernel reads a mean that is not there")
    for name, t in (("mean", mean), ("invvar", invvar)):
        if t is not None:
            check_input(name, t)
            check(t.shape == (kept.numel() // math.prod(shape),), f"{name} is of another shape")
            check(t.dtype is _wide(kept.dtype), f"expected scalar type {_wide(kept.dtype)} but found {t.dtype}")
