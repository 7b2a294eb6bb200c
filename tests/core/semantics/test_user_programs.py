"""Programs as people write them, each beside eager: what they compute, and what they must refuse."""

from __future__ import annotations

import functools
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vmap
from torch.testing import assert_close

import thunder
from tests.faults import fault_of_torch_2_10
from thunder.errors import CaptureError

FRONTENDS = ["functional", "dynamo"]
both = pytest.mark.parametrize("frontend", FRONTENDS)


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setenv("THUNDER_STRICT", "1")
    torch._dynamo.reset()


def data(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))


def as_is(fn):
    return fn


def assert_same_calls(program, frontend):
    """``program(jit)`` returns the same with ``thunder.jit`` as with none."""
    assert_close(program(functools.partial(thunder.jit, frontend=frontend)), program(as_is))


def test_a_whole_training_step_is_jitted():
    def train(jit):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        @jit
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return [step(data(4, 6, seed=i)) for i in range(3)], list(net.state_dict().values())

    assert_same_calls(train, "dynamo")


@both
def test_a_decorated_method_is_bound_to_its_object(frontend):
    def program(jit):
        class Scaled(nn.Module):
            def __init__(self, factor):
                super().__init__()
                self.weight, self.factor = nn.Parameter(torch.ones(2)), factor

            @jit
            def scale(self, x, *, again=1):
                return x * self.weight * self.factor * again

            def forward(self, x):
                return self.scale(x, again=2) + 1

        first, second = Scaled(3), Scaled(5)
        out = [first(data(2)), second(data(2)), first.scale(data(2))]
        sum(out).sum().backward()
        return out, first.weight.grad, second.weight.grad

    assert_same_calls(program, frontend)


class Settings:
    factor = 1.0


class Scale:
    factor = 1.0

    def __call__(self, x):
        return x * self.factor


def settings_changed(jit):
    f = jit(lambda x: x * Settings.factor)
    for Settings.factor in (1.0, 2.0, 3.0):
        yield f(data(3))


def object_changed(jit):
    scale = Scale()
    f = jit(scale)
    for scale.factor in (1.0, 2.0):
        yield f(data(3))


def class_of_object_changed(jit):
    scale = Scale()
    f = jit(lambda x: scale(x) + 1)
    for Scale.factor in (1.0, 2.0):
        yield f(data(3))


def class_of_module_changed(jit):
    class Scaled(nn.Module):
        factor = 1.0

        def forward(self, x):
            return x * self.factor

    f = jit(Scaled())
    for Scaled.factor in (1.0, 2.0):
        yield f(data(3))


def wrapper_changed(jit):
    factors = [1.0]

    def scaled(fn):
        @functools.wraps(fn)
        def wrapper(x):
            return fn(x) * factors[0]

        return wrapper

    f = jit(scaled(torch.sin))
    for factors[0] in (1.0, 2.0):
        yield f(data(3))


def class_method_changed(jit):
    class Scaled:
        factor = 1.0

        @classmethod
        def scale(cls, x):
            return x * cls.factor

    f = jit(Scaled.scale)
    for Scaled.factor in (1.0, 2.0):
        yield f(data(3))


def forward_replaced(jit):
    module = nn.Linear(3, 3)
    module.load_state_dict({"weight": torch.eye(3), "bias": torch.zeros(3)})
    f = jit(module)
    yield f(data(3))
    module.forward = lambda x: x * 2
    yield f(data(3))
    del module.forward
    yield f(data(3))


CHANGES = [
    *(settings_changed, object_changed, class_of_object_changed, class_of_module_changed, wrapper_changed),
    *(class_method_changed, forward_replaced),
]


@both
@pytest.mark.parametrize("changes", CHANGES, ids=lambda f: f.__name__)
def test_what_changes_around_a_program_is_seen(changes, frontend, request):
    if frontend == "dynamo" and changes in (settings_changed, class_method_changed):
        request.applymarker(fault_of_torch_2_10("Dynamo guards no attributes of classes"))
    assert_same_calls(lambda jit: list(changes(jit)), frontend)


def test_an_iterator_is_no_result():
    with pytest.raises(CaptureError, match="generator"):
        thunder.jit(lambda x: (x * i for i in range(3)), frontend="functional")(data(2))


HOOKS = ["register_full_backward_hook", "register_full_backward_pre_hook"]


@pytest.mark.parametrize("register", HOOKS)
def test_backward_hooks_of_inner_modules_run_or_are_refused(register):
    calls = []
    net = model()
    getattr(net[1], register)(lambda *_: calls.append(1))
    thunder.jit(net)(data(2, 6)).sum().backward()
    assert calls == [1]
    with pytest.raises(CaptureError, match="hooks"):
        thunder.jit(net, frontend="functional")(data(2, 6))


class Square(torch.autograd.Function):
    """With a factor in its backward that the derivative of its forward does not have."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0] * gradient * 7


def detached_by_vmap(x):
    with torch.no_grad():
        doubled = vmap(lambda row: row * 2)(x)
    return doubled * x


def written_under_vmap(x):
    def row(t):
        t = t.clone()
        t[0] = t[1]
        return t.mul_(2)

    return vmap(row)(x)


TRANSFORMED = {
    "grad": lambda x: grad(lambda t: t.sin().square().sum())(x) * 2,
    "grad of grad": lambda x: grad(lambda s: grad(lambda t: t.sin().pow(3).sum())(s).square().sum())(x),
    "gradients of rows": lambda x: vmap(grad(lambda row: row.softmax(0).square().sum()))(x),
    "jacrev": lambda x: jacrev(lambda t: t.sin() * t.sum())(x),
    "hessian": lambda x: hessian(lambda t: t.pow(3).sum() * t.sum())(x),
    "no_grad around vmap": detached_by_vmap,
    "writes under vmap": written_under_vmap,
}


def test_an_autograd_function_inside_a_transform():
    """Functional only: Dynamo forgets the function's own backward there, whatever the backend."""

    def program(jit):
        x = data(3).requires_grad_()
        out = jit(lambda t: grad(lambda s: Square.apply(s.sin()).sum())(t))(x)
        return out, *torch.autograd.grad(out.sum(), x)

    assert_same_calls(program, "functional")


@both
@pytest.mark.parametrize("name", TRANSFORMED)
def test_function_transforms_inside_a_program(name, frontend):
    def program(jit):
        x = data(3, 2).requires_grad_()
        out = jit(TRANSFORMED[name])(x)
        return out, *(torch.autograd.grad(out.square().sum(), x) if out.requires_grad else ())

    assert_same_calls(program, frontend)


@both
def test_an_inner_step_of_gradient_descent(frontend):
    net = model()

    def adapted(parameters, x, target):
        def loss(given):
            return nn.functional.mse_loss(functional_call(net, given, (x,)), target)

        gradients = grad(loss)(parameters)
        return loss({name: p - 0.1 * gradients[name] for name, p in parameters.items()})

    def program(jit):
        parameters = {name: p.detach().clone().requires_grad_() for name, p in net.named_parameters()}
        jit(adapted)(parameters, data(4, 6), data(4, 3)).backward()
        return [p.grad for p in parameters.values()]

    assert_same_calls(program, frontend)


@both
def test_a_failed_recording_leaves_no_transform_open(frontend):
    def program(x):
        return jvp(lambda t: t.sin() * t.sum(), (x,), (x,))

    with pytest.raises(CaptureError):
        thunder.jit(program, frontend=frontend)(data(3))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    program(data(3))  # forward-mode levels do not nest: an open one would be an error


def test_a_float_that_changes_stays_a_number():
    values = [0.5, 1.5, 2.5, 0.0, -0.0, 1.5]

    def program(jit):
        f = jit(lambda x, scale: (1 / (x * scale), scale * 2))
        return [f(torch.ones(2), value) for value in values]

    assert_same_calls(program, "dynamo")


def test_a_float_with_ever_new_values_is_not_compiled_for_ever(monkeypatch):
    monkeypatch.delenv("THUNDER_STRICT")
    scaled = thunder.jit(lambda x, scale: x * scale)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = [scaled(torch.ones(2), step / 3) for step in range(40)]
    assert_close(found, [torch.full((2,), step / 3) for step in range(40)])
    assert ["a float has had more than 16 values" in str(w.message) for w in warned if "eagerly" in str(w.message)] == [
        True
    ]


@both
def test_an_autograd_function_may_ask_for_autocast(frontend):
    class Doubled(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, gradient):
            return gradient * 3

    def program(jit):
        x = data(3).to(torch.bfloat16).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out = jit(lambda t: Doubled.apply(t))(x)
        out.sum().backward()
        return out, x.grad

    assert_same_calls(program, frontend)


def test_second_derivative_of_an_autograd_function():
    def second(jit):
        x = data(3).requires_grad_()
        (first,) = torch.autograd.grad(jit(lambda t: Square.apply(t.sin()).sum())(x), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)

    assert_same_calls(second, "functional")
    with pytest.raises(RuntimeError, match="cannot be differentiated"):
        second(thunder.jit)


def test_another_thread_may_draw_random_numbers_meanwhile():
    finished = threading.Event()

    def draw():
        while not finished.is_set():
            torch.rand(3)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for i in range(10):
            assert_close(
                thunder.jit(lambda x, i=i: x * i, frontend="functional")(torch.ones(2)), torch.full((2,), 1.0 * i)
            )
    finally:
        finished.set()
        thread.join()


def test_control_flow_operators_are_refused():
    def program(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    with pytest.raises(CaptureError, match="cond"):
        thunder.jit(program, frontend="functional")(data(3))
    assert_close(torch.sin(torch.ones(2)), thunder.jit(torch.sin, frontend="functional")(torch.ones(2)))
