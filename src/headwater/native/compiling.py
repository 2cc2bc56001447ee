"""Compiling Python functions to machine code. Importing this module imports numba."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar, cast

import numba

log = logging.getLogger("headwater.kernels")
_F = TypeVar("_F", bound=Callable[..., object])


def compiled(function: _F) -> _F:
    """Compile a function that runs without the interpreter's lock. The code is cached on disk if that is possible."""
    try:
        return cast(_F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError as error:
        log.warning("compiled code is not cached: %s", error)
        return cast(_F, numba.njit(nogil=True)(function))
