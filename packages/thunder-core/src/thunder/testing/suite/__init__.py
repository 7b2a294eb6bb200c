"""The definition of a correct executor, as tests. A package of executors adds one file:

    from thunder.testing.suite import *

    EXECUTOR = "mine"  # or the Executor itself

Each test is parametrised by what the executor declares; what it does not have is not tested. Optional names:

    SAMPLES = {"torch.nn.functional.linear": make}  # make(device, dtype) -> iterable of (args, kwargs) for the target
    DTYPES = (torch.float32,)                       # of samples
    DEVICE = "cpu"
    TOLERANCE = {"rtol": 1e-2, "atol": 1e-2}        # default: that of the dtype; needed where numerics="approximate"
    PLUGIN = "mine.plugin"                          # the module of its hooks, where EXECUTOR is no name
    OPTIONS = {"mine.precision": "high"}

Samples of targets without ``SAMPLES`` come from PyTorch's own database of operators. Those of a chain are calls of
``thunder.prims.structural.chain``, under the tuple of its targets.
"""

import pytest

_PARTS = ("checks", "numerics", "spec", "states", "texts", "values")
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from thunder.testing.suite.checks import (  # noqa: E402 (asserts are rewritten at import)
    test_every_claim_is_taken_somewhere,
    test_the_cache_key_is_a_key,
    test_what_a_check_answers,
)
from thunder.testing.suite.numerics import (  # noqa: E402
    test_gradients_equal_eager,
    test_gradients_of_some_inputs_equal_eager,
    test_one_tensor_given_twice,
    test_other_ways_equal_eager,
    test_results_equal_eager,
)
from thunder.testing.suite.spec import test_the_plugin_imports_without_torch, test_the_specification_is_valid  # noqa: E402
from thunder.testing.suite.states import (  # noqa: E402
    test_closers_run_once_per_step,
    test_operations_touch_what_they_declare,
    test_states_are_made_anew,
)
from thunder.testing.suite.subject import _strict, pytest_generate_tests, subject  # noqa: E402
from thunder.testing.suite.texts import test_printed_programs_run  # noqa: E402
from thunder.testing.suite.values import test_arguments_are_left_alone, test_values_have_the_types_of_the_trace  # noqa: E402

__all__ = [
    "_strict",
    "pytest_generate_tests",
    "subject",
    "test_arguments_are_left_alone",
    "test_closers_run_once_per_step",
    "test_every_claim_is_taken_somewhere",
    "test_gradients_equal_eager",
    "test_gradients_of_some_inputs_equal_eager",
    "test_one_tensor_given_twice",
    "test_operations_touch_what_they_declare",
    "test_other_ways_equal_eager",
    "test_printed_programs_run",
    "test_results_equal_eager",
    "test_states_are_made_anew",
    "test_the_cache_key_is_a_key",
    "test_the_plugin_imports_without_torch",
    "test_the_specification_is_valid",
    "test_values_have_the_types_of_the_trace",
    "test_what_a_check_answers",
]
