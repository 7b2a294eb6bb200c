"""The conformance suite finds an installed executor by its name, and the module of its hooks with it."""

from __future__ import annotations

import types

import pytest

from thunder.errors import PluginError
from thunder.testing.suite.subject import Subject


def test_an_installed_executor_is_found_by_name(installed):
    installed("thunder-example")
    subject = Subject.of(types.SimpleNamespace(EXECUTOR="example", OPTIONS={"example.double": False}))
    assert (subject.executor.name, subject.plugin) == ("example", "thunder_example.plugin")
    assert {str(sample.fn.__name__) for sample in subject.samples("torch.sin")} == {"sin"}
    with pytest.raises(PluginError, match="no executor"):
        Subject.of(types.SimpleNamespace(EXECUTOR="nobody"))
