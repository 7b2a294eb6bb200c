"""A stand-in for TransformerEngine with the signatures of version 2.20 and the arithmetic of the reference engine."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from thunder_te.reference import engine


class Quantised(torch.Tensor):
    """A tensor subclass of the shape and dtype of what it stands for, with the parts of the reference engine."""

    parts: tuple[Tensor, ...]

    @staticmethod
    def of(t: Tensor, parts: tuple[Tensor, ...]) -> Quantised:
        made = torch.Tensor._make_wrapper_subclass(Quantised, t.shape, dtype=t.dtype, device=t.device)
        made.parts = parts
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls.of(args[0], args[0].parts)
        raise AssertionError(f"{func} of a quantised tensor")


class _Quantizer:
    how: tuple[Any, ...]
    scale: Tensor | None = None
    amax: Tensor | None = None

    def __call__(self, t: Tensor) -> Quantised:
        assert t.ndim == 2
        scheme = engine._scheme(self.how)
        parts, amax = scheme.quantise(t, self.scale[0] if self.scale is not None else None, self.how)
        if self.amax is not None:
            self.amax.copy_(amax)
        return Quantised.of(t, parts)


class Float8Quantizer(_Quantizer):
    def __init__(self, scale: Tensor, amax: Tensor, fp8_dtype: str, *, rowwise: bool = True, columnwise: bool = True):
        assert scale.shape == amax.shape == (1,)
        self.scale, self.amax, self.how = scale, amax, ("delayed", fp8_dtype)


class Float8CurrentScalingQuantizer(_Quantizer):
    def __init__(
        self, fp8_dtype: str, device: torch.device, *, force_pow_2_scales: bool = False, amax_epsilon: float = 0.0
    ):
        self.how = ("current", fp8_dtype, amax_epsilon, force_pow_2_scales)


class MXFP8Quantizer(_Quantizer):
    def __init__(self, fp8_dtype: str, *, rowwise: bool = True, columnwise: bool = True):
        self.how = ("mxfp8", fp8_dtype)


class BasicLinear:
    @staticmethod
    def _functional_forward(
        input: Tensor,
        weight: Tensor,
        *,
        bias: Tensor | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        with_quantized_compute: bool = False,
        input_quantizer: Any = None,
        weight_quantizer: Any = None,
        input_requires_grad: bool = True,
        weight_requires_grad: bool = True,
    ) -> tuple[Tensor, Any, Any]:
        assert with_quantized_compute
        assert isinstance(weight, Quantised)
        x = input_quantizer(input)
        out = engine._product(x.parts, 1, weight.parts, 1, input_quantizer.how, dtype)
        return out if bias is None else out + bias, x, weight

    @staticmethod
    def _functional_backward(
        grad_output: Tensor,
        input: Any,
        weight: Any,
        *,
        input_requires_grad: bool = True,
        weight_requires_grad: bool = True,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        with_quantized_compute: bool = False,
        input_quantizer: Any = None,
        weight_quantizer: Any = None,
        grad_output_quantizer: Any = None,
        grad_input_quantizer: Any = None,
    ) -> tuple[Tensor | None, Tensor | None]:
        assert with_quantized_compute
        assert input_quantizer is not None or not weight_requires_grad
        grad, how = grad_output_quantizer(grad_output), grad_output_quantizer.how
        of_input = engine._product(grad.parts, 1, weight.parts, 0, how, dtype) if input_requires_grad else None
        of_weight = engine._product(grad.parts, 0, input.parts, 0, how, dtype) if weight_requires_grad else None
        return of_input, of_weight


def modules() -> dict[str, ModuleType]:
    """What ``sys.modules`` holds where the library is installed."""
    float8 = {"Float8Quantizer": Float8Quantizer, "Float8CurrentScalingQuantizer": Float8CurrentScalingQuantizer}
    contents: dict[str, dict[str, Any]] = {
        "transformer_engine": {},
        "transformer_engine.pytorch": {},
        "transformer_engine.pytorch.ops": {"BasicLinear": BasicLinear},
        "transformer_engine.pytorch.tensor": {},
        "transformer_engine.pytorch.tensor.float8_tensor": float8,
        "transformer_engine.pytorch.tensor.mxfp8_tensor": {"MXFP8Quantizer": MXFP8Quantizer},
        "transformer_engine_torch": {"DType": SimpleNamespace(kFloat8E4M3="E4M3", kFloat8E5M2="E5M2")},
    }
    found = {}
    for name, content in contents.items():
        found[name] = ModuleType(name)
        vars(found[name]).update(content)
    return found
