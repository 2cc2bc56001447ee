"""The shell without a terminal: statements, commands, forms, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.cli.sql.asking import Asker
from headwater.cli.sql.command import parts
from headwater.cli.sql.shell import HELP, Leave, Shell, pointed
from headwater.cli.sql.terminal import MAX_HISTORY, history_file, page_lines
from headwater.cli.sql.wishes import SqlOutput, Wish
from headwater.errors import BadInput, ConfigError, NotFound
from headwater.sdk.remote import RemoteConnection
from headwater.sdk.result import QueryInfo, Result

TABLE = {"topic": "orders", "version": 3, "oldest_version": 1, "rows": 5, "files": 2, "pending_records": 4,
         "held_records": 1}  # fmt: skip


class Answer:
    """An answer that is written down. Statements with `interrupt` are interrupted while they are read."""

    def __init__(self, sql: str) -> None:
        notes = "Some values are null." if "noted" in sql else ""
        self.info = QueryInfo("q1", "duckdb", "It is small.", {"orders": 3}, notes)
        self.batch = pa.record_batch({"n": [1, 2], "text": ["a", None]})
        self.schema = self.batch.schema
        self.sql = sql
        self.cancelled = self.closed = False

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield self.batch
        if "interrupt" in self.sql:
            raise KeyboardInterrupt

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


class Cluster:
    """A connection that keeps what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.answers: list[Answer] = []

    def ask(self, body: Mapping[str, Any]) -> Result:
        self.bodies.append(body)
        self.answers.append(Answer(body["sql"]))
        return Result(self.answers[-1])

    def sql(self, sql: str) -> Result:
        return self.ask({"sql": sql})

    def look(self, path: str, query: Mapping[str, object] | None = None) -> Any:
        assert path == "/v1/tables"
        return {"items": [TABLE], "next": "x"} if "next" not in (query or {}) else {"items": [{**TABLE, "topic": "b"}]}

    def table(self, topic: str) -> Any:
        if topic != "orders":
            raise NotFound("no such table")
        return TABLE


class World:
    """A shell, and what it has printed."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.out: list[str] = []
        asker = Asker(
            cast(RemoteConnection, self.cluster), lambda data: self.out.append(data.decode()), self.out.extend
        )
        self.shell = Shell(asker, Wish(), self.out.append)

    def run(self, text: str) -> str:
        self.out.clear()
        self.shell.run(text)
        return "\n".join(self.out)


def test_statements() -> None:
    world = World()
    assert world.run("SELECT 1; SELECT 2;").count("(2 rows)") == 2
    assert [body["sql"] for body in world.cluster.bodies] == ["SELECT 1", "SELECT 2"]
    assert all(answer.closed and not answer.cancelled for answer in world.cluster.answers)


def test_notes(capsys: pytest.CaptureFixture[str]) -> None:
    """They are beside the result, so that what reads it gets nothing else."""
    world = World()
    assert "null" not in world.run("SELECT 'noted';") and "(2 rows)" in "".join(world.out)
    world.run("\\format json")
    assert json.loads(world.run("SELECT 'noted';"))["notes"] == ["Some values are null."]
    assert capsys.readouterr().err == "Note: Some values are null.\n" * 2
    assert "notes" not in json.loads(world.run("SELECT 1;")) and not capsys.readouterr().err


def test_settings_of_the_shell() -> None:
    world = World()
    assert "Timing is on" in world.run("\\timing") and "Time: " in world.run("SELECT 1;")
    assert "The engine is spark." in world.run("\\engine spark")
    assert "as of 7" in world.run("\\asof 7")
    world.run("SELECT 1;")
    assert world.cluster.bodies[-1] == {"sql": "SELECT 1", "engine": "spark", "as_of": {"version": 7}}
    assert "as they are now" in world.run("\\asof")
    assert "on" in world.run("\\x") and "-[ row 2 ]-" in world.run("SELECT 1;")
    world.run("\\timing")
    assert "csv" in world.run("\\format csv") and world.run("SELECT 1;").split() == ["n,text", "1,a", "2,"]
    world.run("\\format json")
    assert json.loads(world.run("SELECT 1;"))["rows"] == [[1, "a"], [2, None]]
    assert world.run("\\?") == HELP
    with pytest.raises(Leave):
        world.run("\\q")


def test_topics_and_their_columns() -> None:
    world = World()
    lines = world.run("\\d").splitlines()
    assert lines[0].split() == ["topic", "|", "version", "|", "rows", "|", "not", "settled"]
    assert [line.split()[0] for line in lines[2:]] == ["orders", "b"] and lines[2].split()[-1] == "5"
    told = world.run("\\d orders")
    assert "n      | int64" in told and "Version 3 (the oldest is 1) has 5 rows in 2 files. 5 records" in told
    assert world.cluster.bodies[-1] == {"sql": "SELECT * FROM orders LIMIT 0"}
    with pytest.raises(BadInput, match="no topic 'none'"):
        world.run("\\d none")


def test_bad_commands_change_nothing() -> None:
    world = World()
    for text, words in (
        ("\\nope", "there is no"), ("\\engine presto", "auto, duckdb, spark"), ("\\format parquet", "ndjson, csv"),
        ("\\asof never", "no state"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            world.run(text)
    assert world.shell.wish == Wish() and world.cluster.bodies == []


@pytest.mark.parametrize("output", [SqlOutput.TABLE, SqlOutput.NDJSON])
def test_an_interrupt_cancels_at_the_gateway(output: SqlOutput) -> None:
    world = World()
    world.shell.wish.output = output
    with pytest.raises(KeyboardInterrupt):
        world.run("SELECT interrupt;")
    [answer] = world.cluster.answers
    assert answer.cancelled and answer.closed


def test_a_watched_query_has_an_id_before_it_is_asked() -> None:
    """The line of its progress is gone before the first row is printed."""
    world = World()
    seen: list[str] = []

    @contextlib.contextmanager
    def watch(query: str) -> Iterator[None]:
        seen.append(query)
        yield
        world.out.append("gone")

    asker = Asker(cast(RemoteConnection, world.cluster), lambda _: None, world.out.extend, watch=watch)
    world.shell = Shell(asker, Wish(), world.out.append)
    assert world.run("SELECT 1;").startswith("gone")
    assert [body["id"] for body in world.cluster.bodies] == seen and len(seen[0]) == 32


def test_the_history_is_private_and_has_an_end(tmp_path: Path) -> None:
    file = history_file({"XDG_STATE_HOME": str(tmp_path)})
    assert file == tmp_path / "headwater" / "sql_history" and file.stat().st_mode & 0o777 == 0o600
    assert history_file({"HOME": str(tmp_path)}) == tmp_path / ".local/state/headwater/sql_history"
    entry = b"\n# 2026-01-31 12:00:00\n+SELECT 1;\n"
    file.write_bytes(entry * (MAX_HISTORY // len(entry) + 2))
    history_file({"XDG_STATE_HOME": str(tmp_path)})
    kept = file.read_bytes()
    assert len(kept) <= MAX_HISTORY // 2 and kept.startswith(b"# 2026") and kept.endswith(entry)


def test_every_line_is_printed_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    page_lines(f"line {n}" for n in range(300))
    assert capsys.readouterr().out.splitlines() == [f"line {n}" for n in range(300)]


def test_words_of_habit() -> None:
    """They work without a backslash, and begin no statement."""
    told: list[str] = []
    shell = Shell(Asker(cast(RemoteConnection, Cluster()), lambda data: None, lambda lines: None), Wish(), told.append)
    for text in ("help", " HELP; ", r"\?"):
        shell.run(text)
    assert told == [HELP] * 3
    for text in ("exit", "quit;", r"\q"):
        with pytest.raises(Leave):
            shell.run(text)
    assert list(parts("help\nSELECT 1 AS\nhelp;\nexit\n")) == ["help\n", "SELECT 1 AS\nhelp;\n", "exit\n"]


def test_where_a_statement_is_wrong() -> None:
    assert pointed("SELECT *\nFROM nothere", "no such table (line 2, column 6)") == ["FROM nothere", "     ^"]
    wide = "SELECT '\u6570' AS b c"
    assert pointed(wide, "unexpected (line 1, column 17)") == [wide, " " * 17 + "^"]
    assert pointed("SELECT 1", "too many rows") == pointed("SELECT 1", "x (line 2, column 1)") == []
