"""When the executor takes a call, and what it makes of it."""

import torch

from thunder.extend import No, Yes, symbol

_gelu, _gelu_backward = symbol("example.gelu"), symbol("example.gelu_backward")


def check_gelu(cx, input, approximate="none"):
    if approximate != "none":
        return No(f"no kernel for approximate={approximate!r}")
    if input.dtype == "float64" and not cx.options["double"]:
        return No("float64 is switched off by the option example.double")
    if input.dtype not in ("float32", "float64"):
        return No(f"no kernel for {input.dtype}")
    return Yes()


def gelu(input, approximate="none"):
    return _gelu(input)


def gelu_forward(input, approximate="none"):
    return _gelu(input), (input,)


def gelu_backward(saved, grad):
    (input,) = saved
    return (_gelu_backward(input, grad),)


def sin_forward(input):
    return torch.sin(input), (input,)


def sin_backward(saved, grad):
    (input,) = saved
    return (grad * torch.cos(input),)
