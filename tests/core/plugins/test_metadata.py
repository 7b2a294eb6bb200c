"""What the metadata of the packages says is what the code says."""

from __future__ import annotations

import pytest

from tests.core.plugins.install import FIXTURES, project
from thunder.executors.torch import TORCH
from thunder.plugins.needs import Distribution
from thunder.plugins.spec import resolve

CORE = project(FIXTURES.parents[1] / "packages" / "thunder-core")


def test_the_range_of_torch_is_one():
    (wanted,) = [text for text in CORE["dependencies"] if text.startswith("torch")]
    assert TORCH.needs == (Distribution("torch", wanted.removeprefix("torch")),)


@pytest.mark.parametrize("text", [CORE["scripts"]["thunder"], CORE["entry-points"]["torch_dynamo_backends"]["thunder"]])
def test_what_the_core_registers_exists(text):
    assert callable(resolve(text))


@pytest.mark.parametrize("root", [path for path in FIXTURES.iterdir() if path.is_dir()], ids=lambda path: path.name)
def test_fixtures_are_installable_packages(root):
    (module,) = project(root)["entry-points"]["thunder"].values()
    assert project(root)["name"] == root.name
    assert (root / "src" / f"{module.replace('.', '/')}.py").is_file()
