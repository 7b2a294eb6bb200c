from __future__ import annotations

import pytest
import torch

from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.types import TensorType, Var
from thunder.lang.cheapest import cheapest_call
from thunder.plugins.spec import resolve

X = Var("x", TensorType((4, 4), (4, 1), "float32", "cpu"))


@pytest.mark.parametrize(
    ("name", "args", "call"),
    [
        ("aten.mm", (X, X), "torch:mm"),
        ("aten.add.Tensor", (X, X), "torch:add"),
        ("aten.view", (X, [16]), "torch:Tensor.view"),
        ("aten.sum.dim_IntList", (X, [0], True), "torch:sum"),
        ("aten.gelu_backward", (X, X), "torch:ops.aten.gelu_backward.default"),  # not public
        ("aten.slice.Tensor", (X, 0, 0, 2), "torch:ops.aten.slice.Tensor"),  # no callable of that name
    ],
)
def test_the_cheapest_callable_computes_what_the_operator_does(name, args, call):
    found = cheapest_call(BoundSymbol(Symbol(name), args))
    assert found == call
    value = torch.rand(4, 4)
    values = [value if arg is X else arg for arg in args]
    namespace, op, *overload = name.split(".")
    operator = getattr(getattr(getattr(torch.ops, namespace), op), overload[0] if overload else "default")
    torch.testing.assert_close(resolve(found)(*values), operator(*values), rtol=0, atol=0)
