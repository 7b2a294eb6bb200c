"""Code of executors that go wrong, one way each, and executors made with it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import torch

from thunder.extend import Claim, Executor, Grad, No, Yes, symbol
from thunder.testing.fakes import FAKE, kernels, rules

HERE = __name__
LINEAR = FAKE.claims[0]


def claiming(**changes: Any) -> Executor:
    """The fake with its claim changed; ``forward`` and ``backward`` change its rule pair."""
    grad = {key: changes.pop(key) for key in ("forward", "backward") if key in changes}
    return replace(FAKE, claims=(replace(LINEAR, **changes, grad=replace(LINEAR.grad, **grad)),))


def running(**impls: str) -> Executor:
    """The fake with other implementations of its symbols, by last part of the name; ``meta_…`` for the metas."""
    ops = []
    for op in FAKE.symbols:
        name = op.name.partition(".")[2]
        changes = {part: impls[key] for part, key in (("impl", name), ("meta", f"meta_{name}")) if key in impls}
        ops.append(replace(op, **changes))
    return replace(FAKE, symbols=tuple(ops))


def stateless(name: str, target: str, **claim: Any) -> Executor:
    """An executor with one claim and nothing else."""
    return Executor(name=name, claims=(Claim(target, **claim),))


def pair(forward: str, backward: str) -> Grad:
    return Grad(forward=f"{HERE}:{forward}", backward=f"{HERE}:{backward}")


def raises(*args, **kwargs):
    raise ValueError("boom")


def answers_false(cx, *args, **kwargs):
    return False


def refuses_silently(cx, *args, **kwargs):
    return No("")


def one_result(input, weight, bias=None):
    return rules.forward(input, weight, bias)[0]


def one_gradient(saved, grad):
    return (rules.backward(saved, grad)[0],)


def transposed_gradients(saved, grad):
    return tuple(g.t() if g is not None and g.dim() == 2 else g for g in rules.backward(saved, grad))


def doubled_gradients(saved, grad):
    return tuple(g * 2 if g is not None else None for g in rules.backward(saved, grad))


def wrong_shape(input, weight, bias=None):
    return rules.lower(input, weight, bias).sum()


def writes_argument(input, weight, bias=None):
    return rules.lower(input.mul_(2), weight, bias)


def linear_plus_one(input, weight, bias=None, states=()):
    return kernels.linear_fwd(input, weight, bias, states) + 1


def two_ways(cx, *args, **kwargs):
    answer = rules.check(cx, *args, **kwargs)
    return Yes(candidates=("right", "wrong")) if isinstance(answer, Yes) else answer


def wrong_second_way(input, weight, bias=None, *, cx):
    out = rules.lower(input, weight, bias)
    return out + 1 if cx.choice == "wrong" else out


def double_precision(input, weight, bias=None):
    return kernels.linear(input, weight, bias).double()


def transposed_layout(input, weight, bias=None):
    out = kernels.linear(input, weight, bias)
    return out.transpose(0, -1).contiguous().transpose(0, -1) if out.dim() > 1 else out


def linear_writing(input, weight, bias=None, states=()):
    out = kernels.linear_fwd(input, weight, bias, states)
    input.zero_()
    return out


def rank_two_only(input, weight, bias=None, states=()):
    if input.dim() > 2:
        raise RuntimeError("no kernel for this")
    return kernels.linear_fwd(input, weight, bias, states)


def no_aliases(input, weight, bias=None, states=()):
    if input is weight:
        raise RuntimeError("input and weight are one tensor")
    return kernels.linear_fwd(input, weight, bias, states)


def meddling(grad, input, weight, wanted, states):
    states[0].update(grad)
    return kernels.linear_bwd(grad, input, weight, wanted, states)


def all_or_nothing(saved, grad):
    gradients = rules.backward(saved, grad)
    return gradients if all(g is not None for g in gradients) else (None,) * len(gradients)


def sync_one(state):
    kernels.sync_backward(state)


def refuses_all(cx, *args, **kwargs):
    return No("never")


def a_list(options):
    return [1]


_COUNTER = itertools.count()


def another_each_time(options):
    return next(_COUNTER)


_SHARED = kernels.Scales()


def shared(of):
    return _SHARED


class Note:
    factor = 1.0


def noted(input, weight, bias=None):
    return symbol("fake.linear_fwd")(input, weight, bias, Note())


def linear_noted(input, weight, bias, note, states=()):
    return kernels.linear_fwd(input, weight, bias, states) * note.factor


def meta_noted(input, weight, bias, note):
    return kernels.linear(input, weight, bias) * note.factor


def samples(device, dtype):
    def make(*shape):
        return torch.randn(shape, device=device, dtype=dtype)

    return [((make(4, 4), make(4, 4), make(4)), {}), ((make(2, 3, 4), make(6, 4)), {})]


# Rules that are unusual but right.


def same(input, p=0.5, training=True, inplace=False):
    return input


def only_in_evaluation(cx, input, p=0.5, training=True, inplace=False):
    return No("drops values") if training else Yes()


def fortran_sin(input):
    return torch.sin(input).t().contiguous().t()


def fortran_sin_forward(input):
    return fortran_sin(input), (input,)


def fortran_sin_backward(saved, grad):
    return (grad * torch.cos(saved[0]),)


def mul_forward(input, other):
    return torch.mul(input, other), (input, other)


def mul_backward(saved, grad):
    input, other = saved
    return grad * other, grad * input


ASKED = []


def asked(cx, *args, **kwargs):
    ASKED.append(cx.needs_grad)
    return Yes()
