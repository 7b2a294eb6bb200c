"""Tensors die when dropped, with the garbage collector off; threads with grad modes of their own."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch.testing import assert_close

import thunder

FRONTENDS = ["functional", "dynamo"]


@pytest.fixture(autouse=True)
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def program(x, w):
    y = x @ w
    return y, (y.view(-1) * y.view(-1)).sum()


def inputs():
    return torch.ones(3, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)


@pytest.mark.parametrize("frontend", FRONTENDS)
@pytest.mark.parametrize("backward", [False, True])
def test_results_die_with_their_last_name(frontend, backward):
    f = thunder.jit(program, frontend=frontend)
    x, w = inputs()
    f(x, w)[1].backward()
    gc.collect()
    y, s = f(x, w)
    refs = [weakref.ref(y), weakref.ref(s)]
    if backward:
        s.backward()
    del y, s
    assert [r() for r in refs] == [None, None]


@pytest.mark.parametrize("frontend", FRONTENDS)
def test_inputs_die_with_the_graph(frontend):
    f = thunder.jit(program, frontend=frontend)
    f(*inputs())[1].backward()
    gc.collect()
    x, w = inputs()
    out = f(x, w)[1]
    refs = [weakref.ref(x), weakref.ref(w)]
    out.backward()
    del x, w, out
    assert [r() for r in refs] == [None, None]


def test_an_input_that_backward_does_not_need_is_not_kept():
    """Only inputs with a history are: differentiating the backward runs the program on them again."""
    f = thunder.jit(lambda x, w: x + w, frontend="functional")
    w = torch.ones(3, requires_grad=True)
    f(torch.ones(3), w)
    x = torch.ones(3)
    out, ref = f(x, w), weakref.ref(x)
    del x
    assert ref() is None
    out.sum().backward()
    assert w.grad.tolist() == [1, 1, 1]


def test_saved_tensors_are_freed_by_backward():
    f = thunder.jit(lambda x: x.exp().sin().sum(), frontend="functional")
    x = torch.ones(3, requires_grad=True)
    refs = []
    for _ in range(2):
        refs.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: refs.append(weakref.ref(t)) or t.clone(), lambda t: t):
            out = f(x)
        out.backward()
        del out
    assert refs
    assert [r() for r in refs if r() is not x] == [None] * len([r for r in refs if r() is not x])


def test_a_jitted_function_dies():
    def make():
        f = thunder.jit(lambda x: x * 2, frontend="functional")
        f(torch.ones(3))
        return weakref.ref(f)

    ref = make()
    gc.collect()
    assert ref() is None


def test_threads_with_mixed_grad_modes():
    w = torch.linspace(0, 1, 16).reshape(4, 4).requires_grad_()
    f = thunder.jit(lambda x, w: torch.tanh(x @ w), frontend="functional")
    modes = [torch.enable_grad, torch.no_grad, torch.inference_mode]
    failures = []

    def work(number):
        try:
            for i in range(20):
                x = torch.full((2 + (number + i) % 3, 4), float(number))
                with modes[(number + i) % 3]():
                    out, want = f(x, w), torch.tanh(x @ w)
                    assert out.requires_grad == want.requires_grad
                    assert_close(out, want, rtol=0, atol=0)
                if want.requires_grad:
                    pair = [torch.autograd.grad(t.sum(), w)[0] for t in (out, want)]
                    assert_close(*pair, rtol=0, atol=0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
