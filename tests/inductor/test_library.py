"""Kernels: several in one library, a bad one harms no other, and the next process finds them on disk."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from thunder_inductor import kernels as module
from thunder_inductor.kernels import Kernels

TYPES = ("const float*", "float*")


def source(body: str) -> str:
    return f'#include <cmath>\nextern "C" void kernel(const float* in, float* out) {{ {body} }}'


ADD, EXP, BAD = source("out[0] = in[0] + 1;"), source("out[0] = std::exp(in[0]);"), source("out[0] = nothing;")


@pytest.fixture
def builds(monkeypatch):
    """How many kernels each library that is built has."""
    found: list[int] = []
    real = module.build

    def build(text, path):
        found.append(text.count("kernel(static_cast"))
        return real(text, path)

    monkeypatch.setattr(module, "build", build)
    return found


def apply(kernel, number: float) -> float:
    out = torch.zeros(1)
    kernel.result()(torch.full((1,), float(number)), out)
    return out.item()


def test_kernels_that_wait_are_built_together(tmp_path, builds):
    kernels = Kernels(tmp_path, workers=0)  # nobody compiles until all are there
    add, exp = kernels.start(TYPES, ADD), kernels.start(TYPES, EXP)
    assert kernels.start(TYPES, ADD) is add
    kernels._working = 1
    kernels._work()
    assert builds == [2]
    assert (apply(add, 2), apply(exp, 0)) == (3, 1)


def test_a_kernel_that_does_not_compile_harms_no_other(tmp_path):
    kernels = Kernels(tmp_path, workers=0)
    add, bad, exp = (kernels.start(TYPES, text) for text in (ADD, BAD, EXP))
    kernels._working = 1
    kernels._work()
    assert (apply(add, 2), apply(exp, 0)) == (3, 1)
    with pytest.raises(Exception, match="nothing"):
        bad.result()


def test_the_next_process_builds_nothing(tmp_path, builds):
    assert apply(Kernels(tmp_path, workers=1).start(TYPES, ADD), 1) == 2
    assert apply(Kernels(tmp_path, workers=1).start(TYPES, ADD), 1) == 2
    assert builds == [1]


def test_a_kernel_of_other_types_is_another(tmp_path, builds):
    kernels = Kernels(tmp_path, workers=1)
    text = 'extern "C" void kernel(const {0}* in, {0}* out) {{ out[0] = in[0] + 1; }}'
    for name, dtype in (("float", torch.float32), ("double", torch.float64)):
        out = torch.zeros(1, dtype=dtype)
        kernels.start((f"const {name}*", f"{name}*"), text.format(name)).result()(torch.ones(1, dtype=dtype), out)
        assert out.item() == 2
    assert sum(builds) == 2


def test_a_kernel_takes_sizes(tmp_path):
    text = 'extern "C" void kernel(const float* in, float* out, const int64_t n) { out[0] = in[0] + n; }'
    kernel = Kernels(tmp_path, workers=1).start((*TYPES, "const int64_t"), f"#include <cstdint>\n{text}").result()
    out = torch.zeros(1)
    kernel(torch.zeros(1), out, 2**40)
    assert out.item() == 2**40


def test_calls_with_wrong_arguments_raise(tmp_path):
    kernel = Kernels(tmp_path, workers=1).start(TYPES, ADD).result()
    with pytest.raises(TypeError, match="takes 2 arguments, not 1"):
        kernel(torch.ones(1))


def test_an_error_in_a_kernel_is_raised(tmp_path):
    text = "#include <stdexcept>\n" + source('throw std::runtime_error("no");')
    with pytest.raises(RuntimeError, match="no"):
        apply(Kernels(tmp_path, workers=1).start(TYPES, text), 1)


SHARED = """
import sys, torch, thunder
from thunder_inductor import kernels
from thunder_inductor.plugin import INDUCTOR
builds = []
real = kernels.build
kernels.build = lambda text, path: (builds.append(1), real(text, path))
x = torch.arange(64.0)
jitted = thunder.jit(lambda x: x.sin() + x.cos() * 2, executors=[INDUCTOR], frontend="functional")
assert torch.allclose(jitted(x), x.sin() + x.cos() * 2, atol=1e-5)
print(len(builds))
"""


@pytest.mark.slow
def test_processes_share_what_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    counts = [
        subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, check=True).stdout.split()[-1]
        for _ in range(2)
    ]
    assert counts == ["1", "0"]
