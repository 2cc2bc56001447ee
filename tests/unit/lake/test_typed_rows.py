"""Typed columns of a file: failures are counted and told up to a limit; a decoder's own error stops nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.lake.typed_rows import TypedRows
from headwater.log.segment.rows import plain_rows, plain_schema
from headwater.schemas.columns import merged
from headwater.schemas.typer import Typer
from headwater.schemas.typing import Typing
from headwater.state.commands.columns import Column

PROMISES = ("T7",)


def rows(*values: bytes) -> pa.RecordBatch:
    count = len(values)
    given = {"key": [None] * count, "value": [*values], "timestamp_ms": [5] * count, "headers": [None] * count}
    return plain_rows(0, 10, pa.RecordBatch.from_pydict(given, schema=plain_schema()), append_time=False)


def ready(batch: pa.RecordBatch) -> Typing:
    """What the rows need, columns included."""
    columns: tuple[Column, ...] = ()
    last = 99
    typer = Typer(Typing("none", "json", False, False, columns, 0, last))
    assert typer.typed(batch) is None
    for root in typer.wants.roots:
        columns, last = merged(columns, last, root)
    return Typing("none", "json", False, False, columns, 1, last)


def test_failures_are_counted() -> None:
    batch = rows(b'{"a": 1}', b"{", b"[", b"x")
    found = TypedRows(ready(batch))
    made = found.typed(batch)
    assert made is not None and made.column("value_data").to_pylist() == [{"a": 1}, None, None, None]
    facts = found.facts
    assert (facts.version, facts.failures, facts.flaw) == (1, 3, "")


def test_a_decoder_that_fails_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are written without typed values, and the file counts as not decoded."""
    batch = rows(b'{"a": 1}')
    found = TypedRows(ready(batch))

    def broken(self: Typer, rows: object) -> None:
        raise ZeroDivisionError("a mistake")

    monkeypatch.setattr(Typer, "typed", broken)
    made = found.typed(batch)
    assert made is not None and made.column("value_data").null_count == 1
    assert made.column("value").to_pylist() == [b'{"a": 1}']
    assert (found.facts.version, found.facts.failures, found.facts.flaw) == (0, 0, "ZeroDivisionError: a mistake")


def test_what_is_missing() -> None:
    found = TypedRows(Typing("none", "json", False, False, (), 0, 99))
    assert found.typed(rows(b'{"a": 1}')) is None
    assert found.facts.wants and not found.facts.version
