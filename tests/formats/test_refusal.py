"""Data of another format is refused, unchanged, with a message that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.ports import free_ports
from harness.process import headwater
from headwater.state.records import FORMAT
from tests.support.contents import contents
from tests.support.files import unpack
from tests.support.promise import promise

PROMISES = ("M5",)

OLD, OLD_FORMAT = Path(__file__).parent / "format-2.tar.xz", 2
"""What `kill -9` left of the last build with that format: objects, tables, checkpoints, and records in SQLite's log."""

COMMANDS = (
    *("up", "broker", "compactor", "gateway", "link run", "ingest"),
    *("doctor", "cluster describe", "table list", "schema list", "dlq list", "backup", "metadata copy"),
)


def arguments(command: str, elsewhere: Path) -> list[str]:
    """What a command needs beside the data directory."""
    if command == "backup":
        return [str(elsewhere / "backup")]
    if command == "metadata copy":
        return ["--to", f"sqlite://{elsewhere}/copy/ledger.db"]
    ports = free_ports(3)
    own = ["--http", f"127.0.0.1:{ports}"]
    if command in ("up", "broker", "ingest"):
        own += ["--kafka", f"127.0.0.1:{ports + 1}"]
    if command in ("up", "gateway", "ingest"):
        own += ["--gateway-http", f"127.0.0.1:{ports + 2}"]
    if command == "ingest":
        own += ["--source", "127.0.0.1:1", "--topics", "orders"]
    return own if command in ("up", "broker", "compactor", "gateway", "link run", "ingest") else []


@promise("M5")
def test_there_is_one_older_format() -> None:
    """The data is of the build before this one's format, and has all that a data directory may have."""
    assert [path.name for path in OLD.parent.glob("*.tar.xz")] == [OLD.name]
    assert OLD_FORMAT == FORMAT - 1


@promise("M5")
@pytest.mark.parametrize("command", COMMANDS)
def test_data_of_another_format_is_refused(tmp_path: Path, command: str) -> None:
    """By every command that opens a ledger, before it creates, opens or changes a file."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    elsewhere.mkdir()
    unpack(OLD, data)
    before = contents(data)
    assert {"ledger.db", "ledger.db-wal", "objects/tables", "objects/meta/v1/domain=1/checkpoint"} <= before.keys()
    done = headwater(*command.split(), "--data", str(data), *arguments(command, elsewhere))
    assert done.returncode == 1, done.stdout + done.stderr
    told = f"has format {OLD_FORMAT}, and this build of Headwater reads format {FORMAT} only. Nothing was changed. "
    assert told in done.stderr, done.stderr
    assert "Use the build that wrote it." in done.stderr and "start with an empty data directory" in done.stderr
    assert contents(data) == before
    assert not list(elsewhere.iterdir())
