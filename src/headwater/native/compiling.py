"""Compiling Python functions to machine code. Importing this module imports numba."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import dispatcher
from numba.core.caching import FunctionCache

log = logging.getLogger("headwater.kernels")
_F = TypeVar("_F", bound=Callable[..., object])

PLACES: set[str] = set()
"""The directories that have compiled code of this process. One that gives up its rights must still read them."""


class _Cache(FunctionCache):
    """Numba's cache on disk. Code that cannot be stored there, for lack of rights or of space, is used all the same."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        PLACES.add(self.cache_path)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except OSError as error:
            log.info("compiled code cannot be read: %s", error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError as error:
            log.info("compiled code is not cached: %s", error)


dispatcher.FunctionCache = _Cache  # type: ignore[attr-defined]
# Numba has no other way to say which cache its functions use.


def compiled(function: _F) -> _F:
    """Compile a function that runs without the interpreter's lock. The code is cached on disk if that is possible."""
    return _compiled(function, inlined=False)


def inlined(function: _F) -> _F:
    """The same, for a small function: its code is put into each compiled function that calls it."""
    return _compiled(function, inlined=True)


def _compiled(function: _F, inlined: bool) -> _F:
    try:
        return cast(_F, numba.njit(cache=True, nogil=True, forceinline=inlined)(function))
    except RuntimeError as error:
        log.warning("compiled code is not cached: %s", error)
        return cast(_F, numba.njit(nogil=True, forceinline=inlined)(function))
