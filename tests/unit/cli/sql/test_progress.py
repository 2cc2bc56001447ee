"""The line that shows how far a query is: there while it runs, and gone before its rows are printed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.cli.sql import progress
from headwater.cli.sql.progress import Progress, line_of
from headwater.errors import NotFound

RUNNING = {"phase": "running", "percent": 42.4, "file_bytes": 1_500_000, "hot_bytes": 0, "seconds": 3.2,
           "engine": "duckdb"}  # fmt: skip


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.0)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)


def test_what_is_said() -> None:
    assert line_of(RUNNING) == "42 % of 1.5 MB, 3 s, duckdb (Ctrl-C cancels)"
    assert line_of({**RUNNING, "phase": "waiting"}) == "waiting, 3 s (Ctrl-C cancels)"


def test_a_line_is_shown_and_taken_back() -> None:
    written: list[str] = []
    paths: list[str] = []
    twice = threading.Event()

    def look(path: str) -> Any:
        paths.append(path)
        if len(paths) == 1:
            raise NotFound("the gateway does not know it yet")
        if len(paths) == 4:
            twice.set()
        return RUNNING

    with Progress(look, written.append)("some-id"):
        assert twice.wait(60)
    assert set(paths) == {"/v1/queries/some-id"}
    assert written[0] == f"\r\x1b[K{line_of(RUNNING)}" and written[-1] == "\r\x1b[K"
    count = len(written)
    assert [text for text in written if "42 %" in text] == written[: count - 1]


def test_nothing_is_written_when_the_answer_has_begun() -> None:
    """Also if the gateway answers the last look only then."""
    written: list[str] = []
    asked, answer, answered = threading.Event(), threading.Event(), threading.Event()

    def look(path: str) -> Any:
        asked.set()
        assert answer.wait(60)
        answered.set()
        return RUNNING

    with Progress(look, written.append)("some-id"):
        assert asked.wait(60)
    answer.set()
    assert answered.wait(60)
    for thread in threading.enumerate():
        if thread.name == "progress":
            thread.join(60)
    assert "".join(written) == ""
