"""Unit tests run in one process; and how `make test` divides tests: a module stays together, and long ones begin."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from xdist.scheduler import LoadGroupScheduling

from tests.conftest import ByModule, pytest_collection_modifyitems, pytest_xdist_make_scheduler, worker_scope

WAYS: dict[str, Callable[[], object]] = {
    "subprocess": lambda: subprocess.run([sys.executable, "-c", ""], check=False),
    "asyncio": lambda: asyncio.run(asyncio.create_subprocess_exec(sys.executable, "-c", "")),
    "fork": lambda: os.fork(),
    "multiprocessing": lambda: multiprocessing.get_context("fork").Process(target=print).start(),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_process_is_started(way: str) -> None:
    with pytest.raises(AssertionError, match="starts no process"):
        WAYS[way]()


@dataclass(frozen=True, slots=True)
class Item:
    """A test that is marked as long, or not."""

    name: str
    long: bool = False

    def get_closest_marker(self, name: str) -> object:
        return object() if self.long and name == "long" else None


def test_long_modules_begin() -> None:
    """The others keep the order that was drawn, and so do the long ones."""
    items = [Item("b"), Item("d", long=True), Item("a"), Item("c", long=True)]
    pytest_collection_modifyitems(cast("list[pytest.Item]", items))
    assert [item.name for item in items] == ["d", "c", "b", "a"]


def test_a_module_stays_in_one_worker() -> None:
    """Whatever a test's parameters say. Modules of folders that share something dear stay together."""
    assert worker_scope("tests/cli/test_a.py::test_one[x::y]") == "tests/cli/test_a.py"
    assert worker_scope("tests/cli/test_a.py::Test::test_two") == "tests/cli/test_a.py"
    assert worker_scope("tests/unit/test_a.py::test_one") == worker_scope("tests/unit/test_b.py::test_one")
    assert worker_scope("tests/engines/test_a.py::test_one") == worker_scope("tests/engines/test_b.py::test_one")
    assert worker_scope("tests/unit/log/test_a.py::test_one") == "tests/unit/log/test_a.py"


@pytest.mark.parametrize(("dist", "ours"), [("loadgroup", True), ("load", False)])
def test_the_scheduler_is_ours(dist: str, ours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """xdist asks it which tests stay together."""
    monkeypatch.setattr(LoadGroupScheduling, "__init__", lambda self, config, log: None)

    class Config:
        def getvalue(self, name: str) -> Any:
            return dist

    made = pytest_xdist_make_scheduler(cast("pytest.Config", Config()), None)
    assert isinstance(made, ByModule) is ours
