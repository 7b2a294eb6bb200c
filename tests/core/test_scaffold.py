"""A new executor package is a correct one from the start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.meta.sources import CORE
from thunder.errors import ThunderError
from thunder.scaffold import new_executor


@pytest.mark.slow
def test_it_passes_the_conformance_suite_and_the_linter(tmp_path):
    folder = new_executor("my_kernels", tmp_path)
    assert folder == tmp_path / "thunder-my-kernels"
    path = os.pathsep.join([str(folder / "src"), str(CORE), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "THUNDER_BLOCK_PLUGINS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    tested = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
    lint = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--line-length=120",
        "--select=E,F,W,B,UP",
        str(folder),
    ]
    checked = subprocess.run(lint, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_nothing_is_overwritten(tmp_path):
    folder = new_executor("mine", tmp_path)
    before = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ThunderError, match="exists already"):
        new_executor("mine", tmp_path)
    assert before == {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_name_of_another_executor(tmp_path):
    with pytest.raises(ThunderError, match="already"):
        new_executor("torch", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "Mine", "my-kernels", "9mine", "a b", "../mine"])
def test_names_that_no_executor_can_have(tmp_path, name):
    with pytest.raises(ThunderError, match="can be called"):
        new_executor(name, tmp_path)
    assert not list(tmp_path.iterdir())
