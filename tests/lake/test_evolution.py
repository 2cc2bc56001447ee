"""Thirty steps of a schema's evolution, decoded and merged, agree with a plain model, value by value."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from headwater.log.segment.rows import plain_rows as log_rows
from headwater.log.segment.rows import plain_schema
from headwater.schemas.columns import merged
from headwater.schemas.framing import VALUE_HEADER
from headwater.schemas.typer import Typer
from headwater.schemas.typing import KnownSchema, Typing
from headwater.state.commands.columns import Column
from tests.support.evolving import model, reading
from tests.support.evolving.steps import PLAIN, SCHEMAS, Step, evolution
from tests.support.protobuf import compile_in_process

PROMISES = ("T6", "T7")

SEEDS = 2


class Typed:
    """A table whose typed columns grow as those of a compactor do, without one."""

    def __init__(self, flatten: bool) -> None:
        self.flatten = flatten
        self.columns: tuple[Column, ...] = ()
        self.last = 99
        self.schemas: list[KnownSchema] = []

    def settle(self, steps: Sequence[Step], by_header: bool) -> dict[str, list[Any]]:
        """The typed columns of the records of some steps."""
        values: list[bytes] = []
        headers: list[Any] = []
        for step in steps:
            number, guid = step.number + 1, uuid.UUID(int=step.number + 1)
            if step.text:
                self.schemas.append(KnownSchema((str(number), str(guid)), step.format.name, step.text, ()))
            for payload in step.payloads:
                framed = by_header or not step.text
                values.append(payload if framed else struct.pack(">bI", 0, number) + payload)
                headers.append(None)
                if by_header and step.text:
                    front = 0 if step.format.name != "PROTOBUF" else 2 if payload[0] else 1
                    values[-1] = payload[front:]
                    headers[-1] = [{"key": VALUE_HEADER, "value": b"\x01" + guid.bytes + payload[:front]}]
        count = len(values)
        given = {"key": [None] * count, "value": values, "timestamp_ms": [5] * count, "headers": headers}
        rows = log_rows(0, 0, pa.RecordBatch.from_pydict(given, schema=plain_schema()), append_time=False)
        source = "auto" if steps[0].text else "json"
        for version in range(5):
            typing = Typing("none", source, self.flatten, False, self.columns, version, self.last, tuple(self.schemas))
            typer = Typer(typing)
            found = typer.typed(rows)
            if found is not None:
                names = [field.name for field in typer.fields()]
                return {name: array.to_pylist() for name, array in zip(names, found.arrays, strict=True)}
            assert not typer.wants.schemas
            for root in typer.wants.roots:
                self.columns, self.last = merged(self.columns, self.last, root)
        raise AssertionError("the columns never suffice")


def check(seed: int, formats: tuple[str, ...], size: int, flatten: bool) -> None:
    """Settle the steps in groups, and compare the columns and the rows after each."""
    steps, table, typed = evolution(seed, formats), model.Table(flatten), Typed(flatten)
    for first in range(0, len(steps), size):
        group = steps[first : first + size]
        before = len(table.rows)
        table.settle(group)
        told = typed.settle(group, by_header=first // size % 2 == 1)
        what = f"seed {seed}, {formats}, {size} at once, step {first}: {[step.changes for step in group]}"
        assert told.pop("decode_error") == [None] * len(next(iter(told.values()))), what
        own = [column for column in typed.columns if column.name != "decode_error"]
        assert {*reading.drawn(as_model(own))} ^ {*reading.drawn(table.columns)} == set(), what
        found = [dict(zip(told, row, strict=True)) for row in zip(*told.values(), strict=True)]
        assert reading.plain_rows(table.columns, found) == parsed(table, before), what


def as_model(columns: Sequence[Column]) -> list[model.Column]:
    return [model.Column(one.name, one.source, one.kind, as_model(one.children)) for one in columns]


def parsed(table: model.Table, after: int) -> list[dict[str, Any]]:
    return reading.plain_rows(table.columns, table.expected(len(table.rows))[after:])


@pytest.mark.parametrize("flatten", [False, True], ids=["nested", "flat"])
@pytest.mark.parametrize("formats", [SCHEMAS, PLAIN], ids=["schemas", "plain"])
def test_thirty_steps(formats: tuple[str, ...], flatten: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step at a time and several together, by prefix and by header."""
    compile_in_process(monkeypatch)
    for seed in range(SEEDS):
        check(seed, formats, (1, 5)[seed % 2], flatten)


def test_the_generator_has_every_format_and_every_change() -> None:
    steps = evolution(0)
    assert {step.format.name for step in steps} == set(SCHEMAS)
    assert len(steps) == 30 and len({step.changes for step in steps}) == 11
    assert all(json.loads(step.text) for step in steps if step.format.name != "PROTOBUF")
