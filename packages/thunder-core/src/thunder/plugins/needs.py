"""What an executor needs around it. Needs are evaluated before anything heavy of the executor is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module, metadata, util


@dataclass(frozen=True)
class Unmet:
    """Why a need is not met, and what to do about it."""

    why: str
    fix: str


@dataclass(frozen=True)
class Distribution:
    """An installed distribution, such as ``Distribution("numpy", ">=2.0")``. An empty specifier takes any version.

    A pre-release or a local build (``2.10.0a0+git``) counts as the release it leads to.
    """

    name: str
    specifier: str = ""

    def unmet(self) -> Unmet | None:
        """None if a distribution that fits is installed. Only its metadata is read."""
        wanted = f"{self.name} {self.specifier}".strip()
        fix = f'pip install "{self.name}{self.specifier}"'
        try:
            installed = metadata.version(self.name)
        except metadata.PackageNotFoundError:
            return Unmet(f"{wanted} is required, and none is installed", fix)
        if not self.specifier or _fits(installed, self.specifier):
            return None
        return Unmet(f"{wanted} is required, and {installed} is installed", fix)

    @property
    def is_valid(self) -> bool:
        """False if the specifier is malformed."""
        if not self.specifier:
            return True
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(self.specifier)
        except InvalidSpecifier:
            return False
        return True


def _fits(version: str, specifier: str) -> bool:
    from packaging.specifiers import SpecifierSet  # here: the built-in executors need none
    from packaging.version import Version

    return SpecifierSet(specifier).contains(Version(version).base_version)


@dataclass(frozen=True, kw_only=True)
class Modules:
    """One of some top-level modules, for what no package index has under a name of its own.

    install: the shell command that brings them.
    """

    any_of: tuple[str, ...]
    install: str

    def unmet(self) -> Unmet | None:
        """None if one of them can be found. None is imported."""
        if any(map(_is_found, self.any_of)):
            return None
        return Unmet(f"the module {' or '.join(self.any_of)} is required, and there is none", self.install)


def _is_found(module: str) -> bool:
    if module in sys.modules:  # one that was made by hand has no specification to find
        return sys.modules[module] is not None
    return util.find_spec(module) is not None


@dataclass(frozen=True, kw_only=True)
class Cuda:
    """A CUDA device that PyTorch can use, with at least the compute capability ``min`` if that is given."""

    min: tuple[int, int] = (0, 0)

    def unmet(self) -> Unmet | None:
        """None if a visible device is capable enough. Imports torch."""
        import torch

        fix = "use a machine that has one, with a build of PyTorch for it"
        if not torch.cuda.is_available():
            return Unmet("a CUDA device is required, and PyTorch sees none", fix)
        best = max(torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))
        if best >= self.min:
            return None
        wanted, found = (".".join(map(str, capability)) for capability in (self.min, best))
        return Unmet(
            f"a CUDA device of compute capability {wanted} is required, and the best one here has {found}", fix
        )


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Something that only trying tells: an entry point of a library, a compiler that works.

    run: ``"module:function"``, a function ``() -> str`` that says what is missing, and nothing if all is there.
    fix: what to do then.
    """

    run: str
    fix: str

    def unmet(self) -> Unmet | None:
        """None if nothing is missing. Imports what ``run`` needs."""
        module, _, function = self.run.partition(":")
        try:
            missing = getattr(import_module(module), function)()
        except Exception as error:
            missing = f"{self.run} raised {type(error).__name__}: {error}"
        return Unmet(missing, self.fix) if missing else None


Need = Distribution | Modules | Cuda | Probe


def first_unmet(needs: Iterable[Need]) -> Unmet | None:
    """The first need that is not met. Devices and probes come last: asking for them imports torch."""
    for need in sorted(needs, key=lambda need: isinstance(need, (Cuda, Probe))):
        if (unmet := need.unmet()) is not None:
            return unmet
    return None
