"""What holds for every test."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from harness.process import NICENESS
from harness.tools import ROOT, Missing
from headwater import native
from headwater.native import rows
from headwater.ops.logs import JsonFormatter
from tests.support.collecting import Collecting
from tests.support.limits import pytest_runtest_protocol, pytest_timeout_cancel_timer, pytest_timeout_set_timer
from tests.support.promise import promise
from tests.support.seconds import Seconds
from tests.support.tiers import ALL, FULL, TEST, Selection, read

__all__ = ["pytest_runtest_protocol", "pytest_timeout_cancel_timer", "pytest_timeout_set_timer"]
"""Hooks that are written elsewhere."""

pytest.register_assert_rewrite("tests.compat.common", "tests.compat.contract", "tests.compat.wire")
os.environ[NICENESS] = "0"
"""Tests share their processors with each other. Settling that steps back would wait for all of them."""

TOGETHER = ("tests/unit", "tests/engines")
"""Folders whose own modules share what is dear: syntax trees of all sources, a Spark with connectors."""
GARBAGE = (50_000, 20, 50)
"""How seldom garbage is collected: what tests and libraries have loaded stays, and would be looked at every time."""

settings.register_profile("headwater", deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""No test asserts a time: neither that of an example, nor that of making one."""
settings.load_profile("headwater")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headwater")
    group.addoption("--tier", choices=(TEST, FULL, ALL), default=ALL, help="run the tests of one tier; all by default")
    group.addoption("--seconds", action="store_true", help="print and write where the seconds of the run go")


def pytest_configure(config: pytest.Config) -> None:
    gc.set_threshold(*GARBAGE)
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        config.pluginmanager.register(Collecting(worker), "headwater-collecting")
    tier = config.getoption("--tier")
    if tier != ALL:
        config.pluginmanager.register(Selection(tier, read()), "headwater-tier")
    if config.getoption("--seconds"):
        config.pluginmanager.register(Seconds(ROOT / "build" / f"seconds-{tier}.json"), "headwater-seconds")


class ByModule(LoadGroupScheduling):
    """Tests of a module run in one worker, because they share servers, unless they name a group of their own.

    So do the modules of some folders.
    """

    def _split_scope(self, nodeid: str) -> str:
        # xdist 3.8 cannot pass on the groups of marks with pytest 9.2, so modules must not depend on marks.
        group = super()._split_scope(nodeid)
        return group if group != nodeid else worker_scope(nodeid)


def worker_scope(nodeid: str) -> str:
    """What stays in one worker: tests with the same answer."""
    module = nodeid.partition("::")[0]
    folder = module.rpartition("/")[0]
    return folder if folder in TOGETHER else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """What `--dist loadgroup` means here."""
    return ByModule(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test holds the promises of its module, too."""
    if ids := getattr(getattr(item, "module", None), "PROMISES", ()):
        item.add_marker(promise(*ids))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with modules marked `long`, in any order drawn: one that begins last keeps every other worker idle."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now is no garbage, ever."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    with skipped_if_missing(item.config):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with skipped_if_missing(item.config):
        return (yield)


@contextmanager
def skipped_if_missing(config: pytest.Config) -> Iterator[None]:
    """Skip a test that needs what is not installed, or fail it under CI, where that would hide a missing test.

    Tests of the tier `test` need nothing that could be missing.
    """
    try:
        yield
    except Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        if config.getoption("--tier") == TEST:
            pytest.fail(f"{missing}, so it belongs to the tier {FULL} (tests/tiers.toml)", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _no_log_of_a_process() -> Iterator[None]:
    """A command that serves makes the log its own. In this process, its stream is closed after the test."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if isinstance(handler.formatter, JsonFormatter):
            root.removeHandler(handler)


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
def _loaded() -> rows.Serve | None:
    native.load()
    return native.serve
