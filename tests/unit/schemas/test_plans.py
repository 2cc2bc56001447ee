"""Records of many versions of a schema, from bytes to rows of one table: every value is in its column."""

from __future__ import annotations

import datetime
import io
import json
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from headwater.schemas.columns import count, merged, root_of
from headwater.schemas.conform import arrow_fields, conform, root_array
from headwater.schemas.decoding import json_plain
from headwater.schemas.decoding.avro import Program
from headwater.schemas.parsing import AvroModel, SchemaKind, Source, parse
from headwater.schemas.plans import plan
from headwater.schemas.shapes import Field, Shape, struct
from headwater.schemas.shaping import shape_of
from headwater.state.commands.columns import Column
from tests.support.shapes import fields_of

STEPS = 30
ROWS = 4
NAMES = ("id", "ID", "amount", "offset", "user_name", "tags", "select", "nested")
SCALARS: dict[str, tuple[Any, Any]] = {
    "int": ("int", lambda dice: dice.randint(-5, 5)),
    "long": ("long", lambda dice: dice.randint(-(2**62), 2**62)),
    "float": ("float", lambda dice: dice.randint(-5, 5) / 4),
    "double": ("double", lambda dice: dice.random()),
    "string": ("string", lambda dice: dice.choice(["", "x", "größer"])),
    "bytes": ("bytes", lambda dice: dice.randbytes(3)),
    "boolean": ("boolean", lambda dice: dice.random() < 0.5),
    "date": (
        {"type": "int", "logicalType": "date"},
        lambda dice: datetime.date(2024, 1, 1) + datetime.timedelta(dice.randint(0, 999)),
    ),
    "moment": (
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda dice: datetime.datetime(2024, 1, 1, 2, 3, 4, dice.randint(0, 999_999), datetime.UTC),
    ),
    "money": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        lambda dice: Decimal(dice.randint(-999, 999)).scaleb(-2),
    ),
}


class Schema:
    """A schema of Avro that changes. A type is a name of SCALARS, a list of a type, a map of one, or fields."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.fields: dict[str, Any] = {"id": "int"}
        self._records = 0

    def change(self) -> None:
        """Add, drop, rename or retype a field, here or in a nested record."""
        fields = self.fields
        nested = [kind for kind in fields.values() if isinstance(kind, dict)]
        if nested and self.dice.random() < 0.4:
            fields = self.dice.choice(nested)
        name = self.dice.choice(NAMES)
        change = self.dice.choice(["add", "add", "drop", "rename"])
        if change == "drop" and len(fields) > 1:
            fields.pop(self.dice.choice(list(fields)))
        elif change == "rename" and name not in fields:
            fields[name] = fields.pop(self.dice.choice(list(fields)))
        else:
            fields[name] = self.any_type(2)

    def any_type(self, depth: int) -> Any:
        chosen = self.dice.choice([*SCALARS, "list", "map", "record"]) if depth else self.dice.choice(list(SCALARS))
        if chosen == "record":
            return {name: self.any_type(depth - 1) for name in self.dice.sample(NAMES, 2)}
        return (chosen, self.any_type(depth - 1)) if chosen in ("list", "map") else chosen

    def avro(self, kind: Any) -> Any:
        """A type in Avro's words. Every one may be null."""
        if isinstance(kind, str):
            return ["null", SCALARS[kind][0]]
        if isinstance(kind, tuple):
            inner = self.avro(kind[1])
            return [
                "null",
                {"type": "array", "items": inner} if kind[0] == "list" else {"type": "map", "values": inner},
            ]
        self._records += 1
        name = f"R{self._records}"
        fields = [{"name": field, "type": self.avro(one)} for field, one in kind.items()]
        return ["null", {"type": "record", "name": name, "fields": fields}]

    def value(self, kind: Any) -> Any:
        if self.dice.random() < 0.2:
            return None
        if isinstance(kind, str):
            return SCALARS[kind][1](self.dice)
        if isinstance(kind, tuple):
            inner = [self.value(kind[1]) for _ in range(self.dice.randint(0, 2))]
            return inner if kind[0] == "list" else dict(zip("xy", inner, strict=False))
        return {name: self.value(one) for name, one in kind.items()}


def natural(value: Any, shape: Shape) -> Any:
    """A value of Avro as the reference has it: structs are tuples."""
    if value is None or not shape.fields:
        return value
    if shape.kind == "struct":
        return tuple(natural(value[field.name], field.shape) for field in shape.fields)
    if shape.kind == "list":
        return [natural(one, shape.fields[0].shape) for one in value]
    return {key: natural(one, shape.fields[1].shape) for key, one in value.items()}


def rows_of(columns: tuple[Column, ...], array: pa.Array, root: Shape) -> list[Any]:
    made = plan(columns, root)
    assert made.is_whole and not made.left_out
    arrays = conform(root_array(None, array, None), made)
    rows: list[Any] = pa.Table.from_arrays(arrays, schema=pa.schema(arrow_fields(columns))).to_pylist()
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_thirty_versions_of_a_schema_share_a_table(seed: int) -> None:
    """Files of every version, written with the columns of that time and with the last ones, have the same values."""
    dice = random.Random(seed)
    schema = Schema(dice)
    columns: tuple[Column, ...] = ()
    last = 0
    written = []
    for _ in range(STEPS):
        schema.change()
        schema.change()
        text = json.dumps(schema.avro(schema.fields)[1])
        parsed = parse(Source(SchemaKind.AVRO, text))
        shape = shape_of(parsed)
        root = root_of(None, shape)
        columns, last = merged(columns, last, root)
        values = [{name: schema.value(kind) for name, kind in schema.fields.items()} for _ in range(ROWS)]
        payloads = []
        for value in values:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(text)), value)
            payloads.append(out.getvalue())
        assert isinstance(parsed.model, AvroModel)
        decoded = Program(parsed.model.tree, shape).decode(pa.array([*payloads, None, b"\xff"], pa.binary()))
        assert list(decoded.errors) == [ROWS + 1]
        written.append((decoded.array, root, shape, [*values, None, None], rows_of(columns, decoded.array, root)))
    assert count(columns) > STEPS
    for array, root, shape, values, then in written:
        now = rows_of(columns, array, root)
        assert now == [fields_of((None, natural(value, shape)), root, columns) for value in values]
        assert [seen_before(row, before) for row, before in zip(now, then, strict=True)] == then


def seen_before(row: Any, before: Any) -> Any:
    """A row as far as an earlier version of the columns has it."""
    if isinstance(row, dict) and isinstance(before, dict):
        return {name: seen_before(row[name], before[name]) for name in before}
    if isinstance(row, list) and isinstance(before, list):
        return [seen_before(one, other) for one, other in zip(row, before, strict=True)]
    if isinstance(row, tuple) and isinstance(before, tuple):
        return row[0], seen_before(row[1], before[1])
    return row


def test_json_without_a_schema_keeps_its_columns() -> None:
    """Types of one name that change from batch to batch have a column each, and every value is in one of them."""
    batches = [
        ['{"a":1,"b":{"c":"x"},"l":[1]}', '{"a":null,"l":[]}'],
        ['{"a":"one","b":{"c":2,"d":true}}', '{"a":2,"l":["x"]}'],
        ['{"a":1.5,"b":"flat","a.b":1,"a_b":2}', '{"A":3}', "not json", "[1]"],
    ]
    columns: tuple[Column, ...] = ()
    last = 0
    rows: list[Any] = []
    known: Shape | None = None
    for batch in batches:
        payloads = pa.array([text.encode() for text in batch], pa.binary())
        known = json_plain.infer(payloads, known)
        root = root_of(None, known)
        columns, last = merged(columns, last, root)
        rows += rows_of(columns, json_plain.decode_as(known, payloads).array, root)
    values = [row["value_data"] and without_nulls(row["value_data"]) for row in rows]
    assert values == [
        {"a": 1, "b": {"c": "x"}, "l": [1]},
        {"l": []},
        {"a__string": "one", "b": {"c__long": 2, "d": True}},
        {"a": 2, "l__list_json": ['"x"']},
        {"a__double": 1.5, "b__string": "flat", "a_b": 1, "a_b__2": 2},
        {"A__2": 3},
        None,
        None,
    ]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return value


def test_columns_of_a_field_that_was_left_out_are_found_by_their_source() -> None:
    """A column's own name says nothing: another field may have it."""
    first = struct(Field("a b", Shape("long")), Field("a_b", Shape("long")))
    columns, _ = merged((), 0, root_of(None, first))
    later = struct(Field("a_b", Shape("long")))
    array = pa.array([{"a_b": 7}], pa.struct([("a_b", pa.int64())]))
    assert rows_of(columns, array, root_of(None, later))[0]["value_data"] == {"a_b": None, "a_b__2": 7}
