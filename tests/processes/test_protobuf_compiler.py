"""The compiler of Protobuf schemas in its child process: what it answers, and what it may not do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.errors import BadSchema, Overloaded
from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.schemas.protobuf import compiling, protoc

TEXT = 'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'


def test_child_compiles_and_refuses_without_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    assert parse(Source(SchemaKind.PROTOBUF, TEXT)).canonical.endswith(".google.protobuf.Timestamp t = 1;\n}\n")
    with pytest.raises(BadSchema, match="The Protobuf schema, at line 1, column 13: Expected"):
        parse(Source(SchemaKind.PROTOBUF, "message A { nonsense }"))
    assert capfd.readouterr() == ("", "")


def test_child_that_ends_by_a_signal_is_a_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text("import os\nos.abort()\n")
    monkeypatch.setattr(protoc, "__file__", str(program))
    with pytest.raises(BadSchema, match="cannot be compiled: it needs too much time or memory"):
        parse(Source(SchemaKind.PROTOBUF, TEXT))


def test_child_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    told = tmp_path / "pid"
    program.write_text(f"import os, time\nopen({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    monkeypatch.setattr(protoc, "__file__", str(program))
    monkeypatch.setattr(compiling, "PATIENCE", 0.6)
    with pytest.raises(Overloaded, match="did not end within 1 seconds"):
        parse(Source(SchemaKind.PROTOBUF, TEXT))
    if told.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(told.read_text()), 0)


def test_limits_of_the_child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With little memory the compiler ends, and the answer is a refusal."""
    program = tmp_path / "small.py"
    text = Path(protoc.__file__).read_text()
    assert "MAX_MEMORY = 2 << 30" in text
    program.write_text(text.replace("MAX_MEMORY = 2 << 30", "MAX_MEMORY = 1 << 20"))
    monkeypatch.setattr(protoc, "__file__", str(program))
    with pytest.raises(BadSchema, match="cannot be compiled"):
        parse(Source(SchemaKind.PROTOBUF, TEXT))
