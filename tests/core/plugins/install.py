"""Installing packages by path into a folder, as importlib.metadata sees it and without a build backend."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).resolve().parents[2] / "plugin_fixtures"


def project(root: Path) -> dict[str, Any]:
    """The metadata of the package in a folder."""
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def install(name: str, site: Path) -> None:
    """Copy the package of a fixture to ``site`` and write its ``.dist-info`` there."""
    root = FIXTURES / name
    meta = project(root)
    shutil.copytree(root / "src", site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{name.replace('-', '_')}-{meta['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {meta['version']}\n")
    groups = meta["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in rows.items()) for group, rows in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
