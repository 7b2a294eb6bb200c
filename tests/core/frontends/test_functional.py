"""The functional front end against eager: inputs, containers, closures, ambient state, threads, failures."""

from __future__ import annotations

import copy
import dataclasses
import gc
import threading
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import thunder
from thunder.errors import CaptureError

Pair = namedtuple("Pair", ["left", "right"])

SCALE = 2.0
TABLE = torch.arange(4.0)


@dataclasses.dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor | None = None
    scale: float = 1.0


def functional(fn: Any) -> Any:
    return thunder.jit(fn, frontend="functional")


def test_calls_with_the_same_metadata_hit_and_others_miss() -> None:
    f = functional(lambda x: torch.sin(x) + 1)
    for shape in ((4, 8), (4, 8), (5, 8)):
        x = torch.randn(shape)
        assert_close(f(x), torch.sin(x) + 1, rtol=0, atol=0)
    assert thunder.cache_hits(f) == 1
    assert thunder.cache_misses(f) == 2
    assert thunder.cache_miss_reasons(f) == ["first call", "argument x: shape (4, 8) → (5, 8)"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x.double(), "dtype torch.float32 → torch.float64"),
        (lambda x: x.t().contiguous().t(), "stride (3, 1) → (1, 2)"),
        (lambda x: x.clone().requires_grad_(), "requires_grad False → True"),
        (lambda x: nn.Parameter(x, requires_grad=False), "type Tensor → Parameter"),
        (lambda x: x.to("meta"), "device cpu → meta"),
    ],
)
def test_every_kind_of_tensor_metadata_is_guarded(change: Any, reason: str) -> None:
    f = functional(lambda x: x * 2)
    x = torch.randn(2, 3)
    f(x)
    f(change(x))
    assert thunder.last_miss_reason(f) == f"argument x: {reason}"


def test_requires_grad_is_guarded_without_gradients_too() -> None:
    def program(x: torch.Tensor) -> bool:
        return x.requires_grad

    f = functional(program)
    with torch.no_grad():
        assert f(torch.ones(2)) is False
        assert f(torch.ones(2, requires_grad=True)) is True


@pytest.mark.parametrize(
    "values", [(1, 1.0, True), (0.0, -0.0), (float("nan"), 1.0), ("a", "b"), (None, 0), ((1, 2), [1, 2]), (1000, 1001)]
)
def test_arguments_that_are_no_tensors_are_guarded_by_type_and_value(values: tuple[Any, ...]) -> None:
    seen: list[Any] = []
    note = seen.append

    def program(x: torch.Tensor, value: Any) -> torch.Tensor:
        note(value)
        return x + 1

    f = functional(program)
    for value in (*values, *values):
        f(torch.ones(2), value)
    assert thunder.cache_misses(f) == len(values)
    assert [(type(a), repr(a)) for a in seen] == [(type(a), repr(a)) for a in values]


def _containers(x: torch.Tensor) -> list[Any]:
    return [
        (x, 2.0),
        [x, [x * 2, None]],
        {"a": x, "b": {"c": (x + 1,)}},
        Pair(x, "text"),
        Batch(x, scale=3.0),
        OrderedDict(first=x, second=x + 1),
        torch.Size([2, 3]),
    ]


@pytest.mark.parametrize("index", range(7))
def test_containers_pass_in_and_out_with_their_types(index: int) -> None:
    f = functional(lambda value: value)
    for seed in (0, 1):
        torch.manual_seed(seed)
        value = _containers(torch.randn(3))[index]
        result = f(value)
        assert type(result) is type(value)
        a, b = _leaves(value), _leaves(result)
        assert len(a) == len(b)
        assert all(torch.equal(p, q) if isinstance(p, torch.Tensor) else p == q for p, q in zip(a, b, strict=True))
    assert thunder.cache_hits(f) == 1


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in _leaves(item)]
    if isinstance(value, dict):
        return [*value, *_leaves(list(value.values()))]
    return _leaves(list(vars(value).values())) if isinstance(value, Batch) else [value]


def test_hugging_face_outputs_keep_their_class() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    f = functional(lambda x: outputs.BaseModelOutput(last_hidden_state=x + 1))
    x = torch.randn(3)
    for _ in range(2):
        result = f(x)
        assert type(result) is outputs.BaseModelOutput
        assert_close(result.last_hidden_state, x + 1)
        assert result[0] is result.last_hidden_state


def test_another_structure_is_another_program() -> None:
    f = functional(lambda value: sum(value) if isinstance(value, list) else value["a"])
    x = torch.ones(2)
    assert_close(f([x, x]), x * 2)
    assert_close(f([x, x, x]), x * 3)
    assert_close(f({"a": x}), x)
    assert thunder.cache_misses(f) == 3
    f(value=[x])
    assert thunder.last_miss_reason(f) == "number of positional arguments and keywords 1 and [] → 0 and ['value']"


def test_results_get_fresh_containers() -> None:
    f = functional(lambda x: (x, [1, 2]))
    f(torch.ones(1))[1].append(3)
    assert f(torch.ones(1))[1] == [1, 2]


def test_an_object_that_hides_tensors_is_an_error_that_names_the_argument() -> None:
    class Box:
        def __init__(self) -> None:
            self.content = torch.ones(2)

    f = functional(lambda x, box: x + box.content)
    with pytest.raises(CaptureError, match=r'argument box.*Box(.|\n)*frontend="dynamo"'):
        f(torch.ones(2), Box())
    with pytest.raises(CaptureError, match=r"argument box\[0\]"):
        f(torch.ones(2), [Box()])


def test_closures_and_globals_are_read_at_call_time() -> None:
    weight, factor = torch.ones(4), 2

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * weight * factor * SCALE + TABLE

    f = functional(program)
    x = torch.randn(4)
    for weight in (torch.ones(4), torch.full((4,), 3.0)):  # noqa: B007 (the program reads it)
        assert_close(f(x), program(x))
    assert thunder.cache_misses(f) == 1
    factor = 5
    assert_close(f(x), program(x))
    assert thunder.last_miss_reason(f) == "closure variable factor 2 → 5"


def test_a_changed_global_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def helper(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    f = functional(lambda x: helper(x))
    f(torch.ones(2))
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert_close(f(torch.ones(2)), torch.full((2,), 7.0))
    assert thunder.last_miss_reason(f) == "global SCALE 2.0 → 7.0"


def test_a_tensor_given_twice_is_one_input() -> None:
    f = functional(lambda x, y: x * y)
    x = torch.randn(3, requires_grad=True)
    f(x, x).sum().backward()
    assert_close(x.grad, 2 * x.detach())
    y = torch.randn(3)
    assert_close(f(x, y), x * y)
    assert thunder.cache_misses(f) == 2


def test_ambient_state_is_guarded() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, w)

    f = functional(program)
    x, w = torch.randn(2, 2), torch.randn(2, 2, requires_grad=True)
    assert f(x, w).requires_grad
    with torch.no_grad():
        assert not f(x, w).requires_grad
    with torch.inference_mode():
        assert f(x, w).is_inference()
    with torch.autocast("cpu", torch.bfloat16):
        assert f(x, w).dtype is torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert f(x, w).dtype is torch.float16
    assert thunder.cache_misses(f) == 5
    assert f(x, w).requires_grad
    assert thunder.cache_misses(f) == 5


def test_the_default_dtype_is_guarded() -> None:
    f = functional(lambda: torch.ones(2))
    assert f().dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert f().dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_under_a_function_mode_the_program_runs_eagerly() -> None:
    seen: list[Any] = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    f = functional(lambda x: torch.sin(x))
    f(torch.ones(2))
    with Spy(), pytest.warns(RuntimeWarning, match="runs eagerly while Spy is active"):
        f(torch.ones(2))
    assert torch.sin in seen


def test_vmap_runs_the_program_eagerly() -> None:
    f = functional(lambda x: torch.sin(x).sum())
    x = torch.randn(3, 4)
    assert_close(torch.vmap(f)(x), x.sin().sum(1))


def test_a_jitted_function_is_inlined_in_another() -> None:
    inner = functional(lambda x: torch.sin(x) * SCALE)
    outer = functional(lambda x: inner(x) + 1)
    x = torch.randn(3)
    assert_close(outer(x), torch.sin(x) * SCALE + 1)
    assert thunder.cache_misses(inner) == 0


def test_methods_and_plain_objects() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model, self.bias, self.steps = nn.Linear(2, 2), torch.ones(2), 0

        @thunder.jit(frontend="functional")
        def step(self, x: torch.Tensor) -> torch.Tensor:
            self.bias = self.bias * 2
            return self.model(x) + self.bias

    trainer = Trainer()
    f = functional(trainer.step.__func__.__wrapped__.__get__(trainer))
    x = torch.randn(3, 2)
    for factor in (2, 4, 8):
        assert_close(f(x), trainer.model(x) + factor)
    assert thunder.cache_misses(f) == 1


def test_memory_shared_by_inputs_is_guarded_where_the_program_writes() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    f = functional(program)
    for shared in (False, True, False):
        a, b = torch.zeros(4), torch.zeros(4)
        assert_close(f(a, a[:] if shared else b), torch.full((4,), 2.0 if shared else 0.0))
        assert_close(a, torch.ones(4))
    assert thunder.cache_misses(f) == 2


def test_an_argument_container_that_the_program_changes_is_an_error_and_stays_as_it_was() -> None:
    def program(x: torch.Tensor, out: list[torch.Tensor]) -> torch.Tensor:
        out.append(x + 1)
        return x

    f, given = functional(program), [torch.ones(1)]
    with pytest.raises(CaptureError, match="argument out"):
        f(torch.ones(1), given)
    assert len(given) == 1


def test_a_failed_capture_leaves_nothing_and_the_next_call_works() -> None:
    fail = True

    class Model(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count, self.extra, self.note = self.count + 1, x, "changed"
            if fail:
                raise RuntimeError("no")
            return super().forward(x)

    model = Model(2, 2)
    model.register_buffer("count", torch.zeros(1))
    before, buffers = dict(vars(model)), dict(model._buffers)
    f = functional(lambda x: model(x))
    with pytest.raises(RuntimeError, match="no"):
        f(torch.ones(1, 2))
    assert vars(model) == before
    assert model._buffers == buffers
    assert f._cache.entries == ()
    fail, x = False, torch.randn(1, 2)
    assert_close(f(x), nn.functional.linear(x, model.weight, model.bias))
    assert model.count == 1


def test_eight_threads_share_one_function() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    f = functional(lambda x: model(x))
    failures: list[Any] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for rows in (1, 2, 3, 1, 2, 3):
            x = torch.randn(rows, 4, generator=generator)
            expected = nn.functional.linear(x, weights[0], weights[1]).relu() @ weights[2].t() + weights[3]
            if not torch.allclose(f(x), expected, atol=1e-6):
                failures.append(seed)

    weights = [p.detach().clone() for p in model.parameters()]
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert thunder.cache_misses(f) == 3


def test_inputs_and_results_die_when_dropped() -> None:
    f = functional(lambda x: torch.sin(x) + 1)
    f(torch.ones(2))
    gc.collect()
    gc.disable()
    try:
        for shape in (2, 3):  # a hit and a miss
            x = torch.randn(shape)
            result = f(x)
            dead = [weakref.ref(x), weakref.ref(result)]
            del x, result
            assert [ref() for ref in dead] == [None, None]
    finally:
        gc.enable()


def test_above_the_limit_the_oldest_program_is_dropped_with_one_warning_that_names_the_cause() -> None:
    f = functional(lambda x, step: x + step)
    f._cache.limit = 3
    with pytest.warns(RuntimeWarning, match="because of argument step") as caught:
        results = [f(torch.zeros(1), step).item() for step in range(6)]
    assert results == [0, 1, 2, 3, 4, 5]
    assert len([w for w in caught if "argument step" in str(w.message)]) == 1
    assert len(f._cache.entries) == 3


def test_the_random_numbers_are_those_of_eager() -> None:
    f = functional(lambda x: nn.functional.dropout(x, 0.5))
    x = torch.ones(100)
    for seed in (0, 1):
        torch.manual_seed(seed)
        expected = nn.functional.dropout(x, 0.5)
        torch.manual_seed(seed)
        assert_close(f(x), expected, rtol=0, atol=0)


def test_an_executor_key_is_part_of_the_cache_key() -> None:
    from thunder.frontends.functional import FunctionalFunction
    from thunder.plugins.spec import Executor

    executor = Executor(name="keyed", summary="a test", cache_key=f"{__name__}:ambient_key")
    jitted = thunder.jit(lambda x: x + 1, frontend="functional")
    settings = dataclasses.replace(jitted._settings, executors=(executor, *jitted._settings.executors))
    f = FunctionalFunction(lambda x: x + 1, settings)
    KEY.append("a")
    f(torch.ones(1))
    f(torch.ones(1))
    KEY.append("b")
    f(torch.ones(1))
    assert thunder.cache_miss_reasons(f) == ["first call", "executor keyed: cache key 'a' → 'b'"]


KEY: list[str] = []


def ambient_key(options: Any) -> str:
    return KEY[-1]


def test_builtin_functions_and_callable_objects() -> None:
    class Double:
        factor = 2.0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    x = torch.randn(3)
    assert_close(functional(torch.sin)(x), x.sin())
    assert_close(functional(Double())(x), x * 2)


def test_a_deep_copy_of_an_object_with_a_jitted_method_uses_the_copy() -> None:
    class Model(nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.step = functional(self.shifted)

        def shifted(self, x: torch.Tensor) -> torch.Tensor:
            return self(x) + 1

    model, x = Model(), torch.randn(1, 2)
    model.step(x)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.weight.zero_()
    assert_close(twin.step(x), twin(x) + 1)
    assert_close(model.step(x), model(x) + 1)


def test_a_program_that_asks_for_values_is_told_that_it_is_compiled() -> None:
    """First it runs as in eager: what programs do for compilers may not work."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        return x.no_such if torch.compiler.is_compiling() else x * 2

    assert_close(functional(broken)(torch.ones(3)), torch.full((3,), 2.0))

    def masked(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and torch.all(mask == 1):
            return x * 1
        return x * mask

    x = torch.randn(3)
    for mask in (torch.ones(3), torch.tensor([1.0, 0.0, 1.0])):
        assert_close(functional(masked)(x, mask), masked(x, mask))
    assert not torch.compiler.is_compiling()
    with pytest.raises(ZeroDivisionError):
        functional(lambda x: x / (1 // 0))(x)
    assert not torch.compiler.is_compiling()


def test_a_capture_that_is_refused_rebinds_no_names() -> None:
    n = 0

    def counting(x: torch.Tensor) -> torch.Tensor:
        nonlocal n
        n += 1
        return x * n if torch.compiler.is_compiling() else x * x.sum().item()

    jitted = functional(counting)
    assert [jitted(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]
    assert n == 3

    def refused(x: torch.Tensor) -> float:
        nonlocal n
        n += 1
        return x.sum().item()

    with pytest.raises(CaptureError):
        functional(refused)(torch.ones(1))
    assert n == 3


def test_a_capture_is_refused_at_once_if_the_program_has_nothing_for_compilers() -> None:
    numbers = iter(range(5))

    def consuming(x: torch.Tensor) -> float:
        return next(numbers) * x.sum().item()

    with pytest.raises(CaptureError):
        functional(consuming)(torch.ones(1))
    assert next(numbers) == 1
