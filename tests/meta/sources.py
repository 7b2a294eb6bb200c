"""The sources of thunder-core as the tests of its structure see them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages/thunder-core/src"


def sources(root: Path = CORE) -> list[Path]:
    """All Python files below ``root``."""
    return sorted(root.rglob("*.py"))


def module_name(path: Path) -> str:
    """The name a file of thunder-core is imported by: ``thunder.ir.trace``."""
    parts = path.relative_to(CORE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(text: str, module: str, package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of each import in a program, wherever it stands, but for those made for types alone.

    ``module`` is the name of the program and ``package`` whether it is an ``__init__``: they resolve relative imports.
    ``from a import b`` is an import of ``a.b``: where ``b`` is not a module, its prefix is what counts.
    """
    for node in _executed(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = _base(node, module, package)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _base(node: ast.ImportFrom, module: str, package: bool) -> str:
    if not node.level:
        return node.module or ""
    parents = module.split(".")[: len(module.split(".")) - node.level + package]
    return ".".join([*parents, node.module] if node.module else parents)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below this one, except what stands under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _executed(child)
