"""The specification itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from thunder.plugins.needs import first_unmet
from thunder.plugins.targets import unknown_targets, unresolved
from thunder.plugins.validate import validate
from thunder.testing.suite.subject import Subject


def test_the_specification_is_valid(subject: Subject) -> None:
    """It keeps the rules, its needs are met here, its targets are canonical, and all that it names imports."""
    executor = subject.executor
    assert validate(executor) == ()
    assert first_unmet(executor.needs) is None
    assert unknown_targets(executor) == ()
    assert unresolved(executor) == ()
    assert hash(executor) == hash(executor)


def test_the_plugin_imports_without_torch(subject: Subject) -> None:
    """Plugins are listed in every process: what is heavy stands behind import strings."""
    if subject.plugin is None:
        pytest.skip("no module of hooks is known: set PLUGIN")
    code = f"import sys; sys.path[:] = {sys.path!r}; import {subject.plugin}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"{subject.plugin} imports torch"
