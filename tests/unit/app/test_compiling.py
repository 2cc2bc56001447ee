"""Compiled kernels are made once for an installation."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from headwater.app import compiling


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """An environment of its own; what was compiled there."""
    calls: list[str] = []
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(compiling, "PACKAGE", tmp_path / "package")
    kernels = tmp_path / "package" / "kernels.py"
    kernels.parent.mkdir()
    kernels.write_text("from headwater.native.compiling import compiled\n")
    (tmp_path / "package" / "plain.py").write_text("")
    monkeypatch.setattr(compiling, "_compile", lambda: calls.append("kernels"))
    monkeypatch.setattr(compiling, "_archive", lambda: calls.append("archive") or "")
    return calls


def test_it_is_made_once(made: list[str]) -> None:
    assert not compiling.is_made()
    assert compiling.make() == compiling.make() == ""
    assert compiling.is_made() and made == ["kernels", "archive"]


def test_it_is_made_again_when_a_source_with_kernels_changes(made: list[str]) -> None:
    compiling.make()
    (compiling.PACKAGE / "plain.py").write_text("changed = True\n")
    assert compiling.is_made()
    (compiling.PACKAGE / "kernels.py").write_text("from headwater.native.compiling import inlined\n")
    assert not compiling.is_made()
    compiling.make()
    assert compiling.is_made() and len(made) == 4


def test_two_processes_make_it_once(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of the same file by two handles exclude each other, as those of two processes do."""
    inside, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        made.append("kernels")
        inside.set()
        assert go_on.wait(20)

    monkeypatch.setattr(compiling, "_compile", slowly)
    threads = [threading.Thread(target=compiling.make) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert inside.wait(20)
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert made == ["kernels", "archive"]


def test_an_environment_that_is_read_only_compiles_all_the_same(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(sys, "prefix", str(blocked))
    assert compiling.make() == ""
    assert made == ["kernels", "archive"] and not compiling.is_made()


def test_nothing_is_started_for_what_is_there(made: list[str]) -> None:
    """Unit tests cannot start processes, so this would fail."""
    compiling.make()
    compiling.wait_until_made()
    assert made == ["kernels", "archive"]
