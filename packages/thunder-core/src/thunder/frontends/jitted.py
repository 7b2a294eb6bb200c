"""What jitted functions have in common, whichever front end compiles them: they bind as methods, copy and pickle."""

from __future__ import annotations

import copy
import functools
import operator
import sys
from collections.abc import Callable
from types import MethodType
from typing import Any


class JittedFunction:
    """``fn``, to be compiled by a subclass. again: jits a copy of ``fn`` in the same way."""

    __qualname__: str

    def __init__(self, fn: Callable[..., Any], again: Callable[[Any], Any]) -> None:
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn
        self._again = again

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._again(copy.deepcopy(self.__wrapped__, memo))

    def __reduce__(self) -> Any:
        """By its name, as functions are pickled, where that leads here; else jitted anew."""
        return self.__qualname__ if self._is_named() else (self._again, (self.__wrapped__,))

    def _is_named(self) -> bool:
        module = sys.modules.get(getattr(self, "__module__", ""))
        try:
            return operator.attrgetter(self.__qualname__)(module) is self
        except AttributeError:
            return False

    def __repr__(self) -> str:
        return f"<thunder.jit of {getattr(self, '__qualname__', type(self.__wrapped__).__qualname__)}>"
