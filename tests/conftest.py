"""What holds for every test."""

from functools import cache

import pytest
from hypothesis import settings

from headwater import native

settings.register_profile("headwater", deadline=None)  # no test asserts a time
settings.load_profile("headwater")


@pytest.fixture(autouse=True)
def _no_native_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever compiles kernels in a test must not change how the tests after it store anything."""
    monkeypatch.setattr(native, "serve", None)


@pytest.fixture
def natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores and ledgers on local disks use native threads where they can."""
    monkeypatch.setattr(native, "serve", _loaded())
    assert native.serve is not None


@cache
def _loaded() -> native.Serve | None:
    native.load()
    return native.serve
