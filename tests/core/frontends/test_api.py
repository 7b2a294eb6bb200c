"""The public functions: lazy import, decorators, errors that say what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from thunder.errors import OptionError, PluginError, ThunderError
from thunder.ir.trace import Stage


def test_import_does_not_import_torch() -> None:
    code = "import sys, thunder; assert 'torch' not in sys.modules; assert thunder.__version__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists() -> None:
    for name in thunder.__all__:
        assert callable(getattr(thunder, name)), name
    assert set(thunder.__all__) <= set(dir(thunder))
    with pytest.raises(AttributeError, match="nothing"):
        _ = thunder.nothing


def test_jit_decorates_with_and_without_options() -> None:
    @thunder.jit(frontend="functional")
    def f(x: torch.Tensor) -> torch.Tensor:
        """Doubles."""
        return x * 2

    assert (f.__name__, f.__doc__) == ("f", "Doubles.")
    assert_close(f(torch.ones(2)), torch.full((2,), 2.0))


def test_jit_decorates_methods_of_modules() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        @thunder.jit(frontend="functional")
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(x)

    model, other, x = Model(), Model(), torch.randn(3, 2)
    for module in (model, other, model):
        assert_close(module(x), module.fc(x))
    assert thunder.cache_misses(Model.forward) == 2


def test_wrong_uses_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(OptionError, match="functional"):
        thunder.jit(torch.sin, frontend="jax")  # type: ignore[arg-type]
    with pytest.raises(ThunderError, match="int"):
        thunder.jit(3)
    with pytest.raises(PluginError, match="nonesuch"):
        thunder.jit(torch.sin, executors="nonesuch")
    with pytest.raises(OptionError, match="nonesuch"):
        thunder.jit(torch.sin, options={"nonesuch": 1})
    with pytest.raises(ThunderError, match="frontend='functional'"):
        thunder.cache_hits(torch.sin)


def test_trace_computes_nothing_and_names_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    x = torch.randn(4, 3)
    trace = thunder.trace(model, x)
    assert trace.stage is Stage.FUNCTIONAL
    assert [v.name for v in trace.params] == ["input", "_0_weight", "_0_bias"]
    assert [v.type.shape for v in trace.results] == [(4, 2)]
