"""What the documents say works: the quickstart runs, links lead somewhere, and the demo does what it promises."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.meta.sources import CORE, ROOT, sources

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("packages/*/*.md"), *ROOT.glob("docs/**/*.md")])


def test_quickstart_runs():
    quickstart = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    space = {}
    exec(quickstart, space)
    reference = space["model"](space["x"]).square().mean()
    assert space["loss"].item() == reference.item()
    assert all(parameter.grad is not None for parameter in space["model"].parameters())


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert not [t for t in targets if "://" not in t and not (path.parent / t).exists()]


def test_every_module_is_in_the_reading_order():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`(\w+(?:/\w+)*\.py)`", text)) - {"plugin.py"}  # that of an executor's package
    modules = {str(path.relative_to(CORE / "thunder")) for path in sources() if path.stem != "__init__"}
    assert not named - modules
    whole = ("executors/", "scaffold/", "testing/")
    assert not [module for module in modules - named if not module.startswith(whole)]


@pytest.mark.slow
def test_demo(tmp_path):
    command = [sys.executable, "-m", "examples.train_char_gpt", "--steps", "3", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    before, after = map(float, re.search(r"loss: (\S+) before, (\S+) after", done.stdout).groups())
    assert after < before
    for phase in ("forward", "backward"):
        program = max(tmp_path.glob(f"{phase}_*.py"))
        assert subprocess.run([sys.executable, program], capture_output=True, check=False).returncode == 0
