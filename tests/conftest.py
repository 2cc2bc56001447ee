"""What holds for every test."""

from functools import cache

import pytest
from hypothesis import settings

from headwater import native
from tests.support.limits import pytest_runtest_protocol, pytest_timeout_cancel_timer, pytest_timeout_set_timer

__all__ = ["pytest_runtest_protocol", "pytest_timeout_cancel_timer", "pytest_timeout_set_timer"]
"""Hooks that are written elsewhere."""

settings.register_profile("headwater", deadline=None)  # no test asserts a time
settings.load_profile("headwater")

LONGEST = (
    "tests/faults/test_compactor_kills.py",
    "tests/engines/test_spark_masters.py",
    "tests/engines/test_s3.py",
    "tests/lake/test_crash_matrix.py",
    "tests/engines/test_external_catalog.py",
    "tests/faults/test_cluster.py",
    "tests/simulation/test_simulation.py",
    "tests/compat/test_groups.py",
    "tests/faults/test_compactor_kills_s3.py",
)
"""The files that take longest, the longest of them first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, whatever order was drawn: one that begins last keeps every other worker idle."""
    place = {file: i for i, file in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.location[0], len(LONGEST)))


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
