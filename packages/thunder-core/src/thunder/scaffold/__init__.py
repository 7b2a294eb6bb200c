"""A new executor package, written from templates: what ``thunder new-executor`` makes."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template

from thunder.errors import ThunderError
from thunder.plugins import registry

TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "plugin.py": "src/thunder_$name/plugin.py",
    "rules.py": "src/thunder_$name/rules.py",
    "kernels.py": "src/thunder_$name/kernels.py",
    "package.py": "src/thunder_$name/__init__.py",
    "test_suite.py": "tests/test_suite.py",
}
"""Each template, and where in the package it goes."""


def new_executor(name: str, into: Path) -> Path:
    """Write the package ``thunder-NAME`` below ``into``; the folder made.

    It runs ``gelu`` with a kernel of its own, forward and backward, and passes the conformance suite: replace the
    kernel, then the claim. Raises ThunderError for a name that no executor can have or that another one has, and if
    the folder exists.
    """
    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        fix = "lower case letters, digits and underscores, a letter first"
        raise ThunderError(f"no executor can be called {name!r}", fix=fix)
    if registry().knows(name):
        raise ThunderError(f'there is an executor "{name}" already', fix="choose another name")
    folder = into / f"thunder-{name.replace('_', '-')}"
    if folder.exists():
        raise ThunderError(f"{folder} exists already", fix="choose another name, or another folder with --into")
    for template, place in TEMPLATES.items():
        text = Template(files(__package__).joinpath(f"package/{template}.txt").read_text())
        path = folder / Template(place).substitute(name=name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.substitute(name=name, NAME=name.upper(), distribution=folder.name))
    return folder
