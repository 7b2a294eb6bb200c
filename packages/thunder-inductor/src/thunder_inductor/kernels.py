"""Kernels that are compiled in the background, each different one once, and kept on disk for the next process."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from thunder_inductor import inductor
from thunder_inductor.library import Source, build, load, source_of

Function = Callable[..., Any]


class Kernel(Future[Function]):
    """The function of a kernel, as soon as it is compiled. A call waits for it."""

    def __call__(self, *tensors: Any) -> Any:
        return self.result()(*tensors)


class Kernels:
    """Kernels by their content.

    Whoever is free compiles all that wait, as one library: the first kernel at once, and many together when they come
    faster than the compiler runs.
    folder: where the libraries are. workers: how many compilers run at a time.
    """

    def __init__(self, folder: Path, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._lock = threading.Lock()
        self._known: dict[str, Kernel] = {}
        self._waiting: list[Source] = []
        self._working = 0

    def start(self, types: Sequence[str], source: str) -> Kernel:
        """The kernel of some source. Its exception is what the compiler says."""
        name = _name(types, source)
        with self._lock:
            if name in self._known:
                return self._known[name]
            future = self._known[name] = Kernel()
            if not self._path(name).exists():
                self._waiting.append((name, types, source))
                if self._working < self._workers:
                    self._working += 1
                    threading.Thread(target=self._work, name="thunder-inductor", daemon=True).start()
                return future
        self._finish(name)
        return future

    def _work(self) -> None:
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._working -= 1
                    return
            self._compile(batch)

    def _compile(self, batch: Sequence[Source]) -> None:
        """Compile kernels as one library; if it fails, each alone, so that a bad one harms no other."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            library = Path(mkdtemp(dir=self._folder), "kernels.so")
            build(source_of(batch), library)
            for name, _, _ in batch:
                _link(library, self._path(name))
        except Exception as error:
            for kernel in batch if len(batch) > 1 else ():
                self._compile([kernel])
            if len(batch) == 1:
                self._known[batch[0][0]].set_exception(error)
            return
        for name, _, _ in batch:
            self._finish(name)

    def _finish(self, name: str) -> None:
        try:
            self._known[name].set_result(load(self._path(name), name))
        except Exception as error:
            self._known[name].set_exception(error)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.so"


def _name(types: Sequence[str], source: str) -> str:
    content = "\n".join((inductor.build_command(), *types, source))
    return f"kernel_{hashlib.sha256(content.encode()).hexdigest()[:32]}"


def _link(library: Path, path: Path) -> None:
    """Let a path lead to a library, whoever else does the same now."""
    new = library.with_name(path.name)
    new.symlink_to(library)
    os.replace(new, path)
