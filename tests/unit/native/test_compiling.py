"""Compiled code is used also where it cannot be stored."""

from pathlib import Path

import pytest
from numba.core.caching import FunctionCache

from headwater.native.compiling import PLACES, compiled


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def full(self: object, sig: object, data: object) -> None:
        tried.append(sig)
        raise PermissionError("read-only")

    monkeypatch.setattr(FunctionCache, "save_overload", full)

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(4) == 8 and twice(5) == 10 and len(tried) == 1


def test_a_cache_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(self: object, sig: object, target_context: object) -> None:
        raise PermissionError("no right")

    monkeypatch.setattr(FunctionCache, "load_overload", closed)
    monkeypatch.setattr(FunctionCache, "save_overload", lambda self, sig, data: None)

    @compiled
    def thrice(number: int) -> int:
        return 3 * number

    assert thrice(4) == 12 and str(Path(__file__).parent / "__pycache__") in PLACES
