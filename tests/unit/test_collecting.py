"""Each second worker collects the files of a folder from the last one on, and hands over the same tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.collecting import Collecting

FILES = ["tests/a/test_a.py", "tests/a/test_b.py", "tests/b/test_a.py"]


def reported(worker: str, kind: type[pytest.Collector]) -> list[str]:
    """What a collector of this kind has found, as a worker takes it."""
    report: Any = SimpleNamespace(result=["first", "second"])
    turn = Collecting(worker).pytest_make_collect_report(kind.__new__(kind))
    next(turn)
    with pytest.raises(StopIteration) as stopped:
        turn.send(report)
    assert stopped.value.value is report
    return list(report.result)


def test_only_the_files_of_folders_change_places() -> None:
    """What is in a file stays in its order: only that of files is made good again."""
    assert reported("gw0", pytest.Dir) == reported("gw2", pytest.Dir) == ["first", "second"]
    assert reported("gw1", pytest.Dir) == reported("gw3", pytest.Package) == ["second", "first"]
    assert reported("gw1", pytest.Module) == reported("gw1", pytest.Class) == ["first", "second"]


def test_all_workers_have_the_same_order() -> None:
    """As xdist demands it."""
    found = [
        [f"{file}::{test}" for file in files for test in ("test_y", "test_x[a::b]")]
        for files in (FILES, list(reversed(FILES)))
    ]
    for worker, names in zip(("gw0", "gw1"), found, strict=True):
        items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
        assert next(Collecting(worker).pytest_collection_modifyitems(items), True) is None
        assert [item.nodeid for item in items] == found[0]
