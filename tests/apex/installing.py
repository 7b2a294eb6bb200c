"""Which modules stand for Apex's extensions."""

from __future__ import annotations

import sys
from pathlib import Path

from thunder_apex import extensions

NAMES = (extensions.CROSS_ENTROPY, extensions.NORM)
STAND_INS = Path(__file__).parent / "stand_ins"


class installed:
    """While it is open, a folder comes first among those that modules are imported from."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)
        self._before = {name: sys.modules.pop(name) for name in NAMES if name in sys.modules}
        extensions.find.cache_clear()

    def __exit__(self, *error: object) -> None:
        sys.path.remove(self._folder)
        for name in (*NAMES, "pybind"):
            sys.modules.pop(name, None)
        sys.modules.update(self._before)
        extensions.find.cache_clear()
