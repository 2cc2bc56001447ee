"""Typed columns of rows in the WAL: what the table has columns for, and nulls where something is not known."""

from typing import Any

import pyarrow as pa
import pytest

from headwater.query.typed import HotTyper
from headwater.schemas.columns import merged
from headwater.schemas.typer import Typer
from headwater.schemas.typing import KnownSchema, Typing
from headwater.state.commands.columns import Column
from tests.unit.schemas.test_typer import POINT, avro, framed, known, rows

LAST = 99


def columns_of(
    values: list[bytes | None], source: str = "json", *schemas: KnownSchema
) -> tuple[tuple[Column, ...], int]:
    """The columns that a table has when these values are settled."""
    typer = Typer(Typing("none", source, False, False, (), 0, LAST, schemas))
    typer.typed(rows(values))
    columns: tuple[Column, ...] = ()
    last = LAST
    for root in typer.wants.roots:
        columns, last = merged(columns, last, root)
    return columns, last


def typing_of(columns: tuple[Column, ...], last: int, source: str = "json", *schemas: KnownSchema) -> Typing:
    return Typing("none", source, False, False, columns, 1, last, schemas, cut_off=True)


def typed(typer: HotTyper, *values: bytes | None) -> list[dict[str, Any]]:
    batch = typer.typed(rows(list(values)))
    assert batch.schema.names[-len(typer.fields) :] == [field.name for field in typer.fields]
    assert pa.schema(typer.fields).equals(pa.schema(list(batch.schema)[-len(typer.fields) :]))
    return batch.select([field.name for field in typer.fields]).to_pylist()


def test_fields_without_a_column_are_left_out() -> None:
    """At every level. The others are there, also in the rows behind."""
    typer = HotTyper(typing_of(*columns_of([b'{"a": 1, "s": {"x": 1}, "l": [{"y": 1}]}'])))
    more = b'{"a": 2, "b": 3, "s": {"x": 5, "z": 1}, "l": [{"y": 2, "q": "w"}]}'
    expected = {"a": 2, "s": {"x": 5}, "l": [{"y": 2}]}
    assert typed(typer, more, b'{"a": 7}', b"{bad", None) == [
        {"decode_error": None, "value_data": expected},
        {"decode_error": None, "value_data": {"a": 7, "s": None, "l": None}},
        {"decode_error": typed(typer, b"{bad")[0]["decode_error"], "value_data": None},
        {"decode_error": None, "value_data": None},
    ]
    assert "JSON" in str(typed(typer, b"{bad")[0]["decode_error"])
    assert typed(typer, b'{"a": "text"}')[0]["value_data"]["a"] is None  # it belongs into a column of its own


def test_schemas_that_are_not_known() -> None:
    """If nobody can be asked for them: a null, and a reason. They are decoded when they are settled."""
    one = framed(1, avro(POINT, {"x": 1}))
    typer = HotTyper(typing_of(*columns_of([one], "auto", known("1")), "auto", known("1")))
    assert [row["value_data"] for row in typed(typer, one, framed(2, b"\x02"))] == [{"x": 1}, None]
    [row] = typed(typer, framed(2, b"\x02"))
    assert row["decode_error"] == "no-answer: value: the registry did not give the schema with the id 2"
    assert "no-schema" in typed(typer, b"plain")[0]["decode_error"]


def test_schemas_that_are_missing_are_named() -> None:
    """All of them, also if columns are missing too. Until they are there, the rows have nulls."""
    one = framed(1, avro(POINT, {"x": 1}))
    columns, last = columns_of([one], "auto", known("1"))
    typer = HotTyper(Typing("none", "auto", False, False, columns, 1, last, (known("1"),)))
    assert typed(typer, one)[0]["value_data"] == {"x": 1} and typer.missing == ()
    assert [row["value_data"] for row in typed(typer, one, framed(2, b"\x02"))] == [None, None]
    assert typed(typer, framed(3, b"\x02"), framed(2, b"\x02"))[0]["decode_error"] is None
    assert typer.missing == ("2", "3")


def test_a_mistake_in_a_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs the values, not the query. Memory that runs out is told."""
    typer = HotTyper(typing_of(*columns_of([b'{"a": 1}'])))
    thrown: list[type[BaseException]] = [ValueError, MemoryError]

    def broken(self: Typer, batch: pa.RecordBatch) -> None:
        raise thrown.pop(0)

    monkeypatch.setattr(Typer, "typed", broken)
    assert typed(typer, b'{"a": 1}') == [{"decode_error": None, "value_data": None}]
    with pytest.raises(MemoryError):
        typed(typer, b'{"a": 1}')


def test_tokens_differ_with_what_is_known() -> None:
    columns, last = columns_of([framed(1, avro(POINT, {"x": 1}))], "auto", known("1"))
    first = HotTyper(typing_of(columns, last, "auto", known("1")))
    assert first.token == HotTyper(typing_of(columns, last, "auto", known("1"))).token
    assert first.token != HotTyper(typing_of(columns, last, "auto", known("1"), known("2"))).token
    assert "HotTyper" in repr(first)
