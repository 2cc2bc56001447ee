"""Natural values become columns: every value is found again, and nothing is copied where types are equal."""

from __future__ import annotations

import datetime
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import pyarrow_to_schema

from headwater.schemas.columns import LIMITS, REST, Limits, cut, merged, root_of
from headwater.schemas.conform import FIELD_ID, arrow_fields, arrow_type, conform, root_array
from headwater.schemas.plans import plan
from headwater.schemas.shapes import (
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    NULL,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    Field,
    Shape,
    list_of,
    map_of,
    struct,
)
from headwater.state.commands.columns import Column, walk
from tests.support.shapes import any_struct, any_value, array_of, fields_of, plain, type_of, type_of_column

ODD = ("a.b", "A_b", "select", 'q"', "b`", "1", "", "offset", "x,;{}()\n\t=", "価")
EPOCH = datetime.datetime(2024, 2, 29, 12, 30, 15, 250_001)


def written(
    columns: tuple[Column, ...], value: pa.Array, shape: Shape, limits: Limits = LIMITS
) -> list[dict[str, Any]]:
    """The rows of a table with columns, as an engine shows them; the arrays are checked."""
    made = plan(columns, root_of(None, shape), limits)
    assert made.is_whole
    arrays = conform(root_array(None, value, None), made)
    schema = pa.schema(arrow_fields(columns))
    for array, field in zip(arrays, schema, strict=True):
        array.validate(full=True)
        assert array.type.equals(field.type), (array.type, field.type)
    rows: list[dict[str, Any]] = pa.Table.from_arrays(arrays, schema=schema).to_pylist()
    return rows


def one(shape: Shape, rows: list[Any], *later: Shape, limits: Limits = LIMITS) -> list[dict[str, Any]]:
    """The rows of one shape, in a table that has had other shapes after it."""
    columns: tuple[Column, ...] = ()
    last = 0
    for value in (shape, *later):
        columns, last = merged(columns, last, root_of(None, value), limits)
    return written(columns, array_of(rows, shape), shape, limits)


def test_ids_are_on_every_level() -> None:
    shape = struct(Field("l", list_of(struct(Field("m", map_of(LONG))))))
    columns, _ = merged((), 0, root_of(None, shape))
    [_, value] = arrow_fields(columns)
    assert value.metadata == {FIELD_ID: b"101"}
    items = value.type.field("l")
    assert items.metadata == {FIELD_ID: b"102"} and items.type.value_field.metadata == {FIELD_ID: b"103"}
    entries = items.type.value_type.field("m")
    assert entries.type.key_field.metadata == {FIELD_ID: b"105"} and not entries.type.key_field.nullable
    assert entries.type.item_field.metadata == {FIELD_ID: b"106"} and entries.type.item_field.nullable


def test_numbers_are_widened_and_a_time_of_day_is_text() -> None:
    shape = struct(Field("i", INT), Field("f", FLOAT), Field("t", TIME))
    rows = one(shape, [(2**31 - 1, 0.5, EPOCH.time()), (None, None, None), None])
    assert [row["value_data"] for row in rows] == [
        {"i": 2**31 - 1, "f": 0.5, "t": "12:30:15.250001"},
        {"i": None, "f": None, "t": None},
        None,
    ]


def test_equal_types_are_not_copied() -> None:
    shape = struct(Field("a", LONG), Field("l", list_of(struct(Field("s", STRING)))), Field("m", map_of(DOUBLE)))
    columns, _ = merged((), 0, root_of(None, shape))
    array = array_of([(1, [("x",)], {"k": 1.0}), None], shape)
    [_, result] = conform(root_array(None, array, None), plan(columns, root_of(None, shape)))
    assert [b and b.address for b in result.buffers()] == [b and b.address for b in array.buffers()]


def test_a_new_column_beside_leaves_the_buffers_of_the_others() -> None:
    old, new = struct(Field("s", STRING), Field("l", list_of(LONG))), struct(Field("z", LONG))
    columns, last = merged((), 0, root_of(None, old))
    columns, _ = merged(columns, last, root_of(None, new))
    array = array_of([("x", [1, 2]), None], old)
    [_, result] = conform(root_array(None, array, None), plan(columns, root_of(None, old)))
    for at in (0, 1):
        assert [b and b.address for b in result.field(at).buffers()] == [
            b and b.address for b in array.field(at).buffers()
        ]


def test_fields_of_one_name_go_to_the_columns_of_their_types() -> None:
    shape = struct(Field("x", LONG), Field("x", STRING))
    rows = one(shape, [(1, None), (None, "one")])
    assert [row["value_data"] for row in rows] == [{"x": 1, "x__string": None}, {"x": None, "x__string": "one"}]


def test_lists_whose_type_is_unknown_stay_empty_lists() -> None:
    columns, _ = merged((), 0, root_of(None, struct(Field("l", list_of(STRING)), Field("m", map_of(list_of(LONG))))))
    shape = struct(Field("l", list_of(NULL)), Field("m", map_of(NULL)))
    rows = written(columns, array_of([([], {}), ([None], {"k": None}), (None, None)], shape), shape)
    assert [row["value_data"] for row in rows] == [
        {"l": [], "m": []},
        {"l": [None], "m": [("k", None)]},
        {"l": None, "m": None},
    ]


def test_what_is_too_deep_is_json_text() -> None:
    deep = struct(
        Field("d", DATE), Field("t", TIMESTAMPTZ), Field("n", TIMESTAMP), Field("j", JSON), Field("f", DOUBLE)
    )
    shape = struct(Field("l", list_of(deep)))
    moment = EPOCH.replace(tzinfo=datetime.UTC)
    row = (EPOCH.date(), moment, EPOCH, '{"a":1e999}', float("-inf"))
    rows = one(shape, [([row, None],), ([],), (None,), None], limits=Limits(depth=2))
    assert [row["value_data"] and row["value_data"]["l"] for row in rows] == [
        '[{"d":"2024-02-29","t":"2024-02-29T12:30:15.250001Z","n":"2024-02-29T12:30:15.250001",'
        '"j":{"a":"Infinity"},"f":"-Infinity"},null]',
        "[]",
        None,
        None,
    ]


def test_text_that_is_not_json_or_not_text_is_kept() -> None:
    shape = struct(Field("l", list_of(JSON)))
    rows = one(shape, [(["{", "NaN", '"\\ud800"'],)], limits=Limits(depth=2))
    assert rows[0]["value_data"]["l"] == '["{","NaN","\\ud800"]'


def test_what_finds_no_column_is_in_the_rest() -> None:
    inner = struct(Field("a", LONG), Field("n" * 300, LONG))
    shape = struct(Field("l", list_of(inner)), Field("m", map_of(inner)), Field("s", inner))
    made = plan(merged((), 0, root_of(None, shape))[0], root_of(None, shape))
    assert made.left_out == [f"value_data.{part}.{'n' * 300}" for part in ("l.element", "m.value", "s")]
    full, empty = (1, 2), (1, None)
    rows = one(shape, [([full, empty, None], {"x": full, "y": empty}, empty), ([empty], {}, None), None])
    assert [row["value_data"] and row["value_data"]["l"] for row in rows] == [
        [{"a": 1}, {"a": 1}, None],
        [{"a": 1}],
        None,
    ]
    rest = {"n" * 300: 2}
    assert [row[REST] and json.loads(row[REST]) for row in rows] == [
        {"value_data": {"l": [rest, None, None], "m": {"x": rest}}},
        None,
        None,
    ]


def test_the_rest_of_a_flattened_value_has_the_path_that_it_has_in_other_tables() -> None:
    shape = struct(Field("a", LONG), Field("n" * 300, LONG))
    value = array_of([(1, 2), (1, None), None], shape)
    root = root_of(shape, shape, flatten=True)
    made = plan(merged((), 0, root)[0], root)
    found = conform(root_array(value, value, None, flatten=True), made)[-1].to_pylist()
    rest = {"n" * 300: 2}
    assert [text and json.loads(text) for text in found] == [{"key_data": rest, "value_data": rest}, None, None]


def test_a_plan_for_columns_that_lack_some_is_not_whole() -> None:
    columns, _ = merged((), 0, root_of(None, struct(Field("a", LONG))))
    made = plan(columns, root_of(None, struct(Field("a", LONG), Field("b", struct(Field("c", LONG))))))
    assert not made.is_whole and made.left_out == ["value_data.b"]


def test_keys_errors_and_flattened_values_are_at_the_top() -> None:
    shape = struct(Field("offset", LONG), Field("b", STRING))
    value = array_of([(1, "x"), None, (2, None)], shape)
    key, errors = pa.array(["k", None, "l"]), pa.array([None, "not Avro", None])
    root = root_of(STRING, shape, flatten=True)
    columns, _ = merged((), 0, root)
    arrays = conform(root_array(key, value, errors, flatten=True), plan(columns, root))
    assert pa.Table.from_arrays(arrays, names=[column.name for column in columns]).to_pylist() == [
        {"decode_error": None, "key_data": "k", "value_offset": 1, "b": "x"},
        {"decode_error": "not Avro", "key_data": None, "value_offset": None, "b": None},
        {"decode_error": None, "key_data": "l", "value_offset": 2, "b": None},
    ]


def test_a_record_type_of_its_own_is_null_where_the_value_is() -> None:
    shape = struct(Field("a", LONG))
    root = root_of(None, shape, record="com.Order")
    columns, _ = merged((), 0, root)
    arrays = conform(root_array(None, array_of([(1,), None], shape), None, record="com.Order"), plan(columns, root))
    assert arrays[1].to_pylist() == [{"com_Order": {"a": 1}}, None]


def deep(levels: int, kinds: int) -> Shape:
    """Structs in each other; also lists, and maps."""
    shape = LONG
    for level in range(levels - 1):
        shape = (struct(Field("s", shape)), list_of(shape), map_of(shape))[level % kinds]
    return shape


@pytest.mark.parametrize(
    "shape",
    [
        struct(
            *(
                Field(name, LONG)
                for name in ("a.b", "A_b", "select", 'q"', "b`", "1", "", "offset", "x,;{}()\n\t=", "価")
            )
        ),
        struct(Field("d", deep(38, 1))),
        struct(Field("d", deep(60, 3))),
        struct(*(Field(f"f{at}", LONG) for at in range(2_100))),
    ],
    ids=["names", "40 levels", "60 levels", "2,100 fields"],
)
def test_engines_read_a_file_with_such_columns(shape: Shape, tmp_path: Path) -> None:
    def value(one: Shape) -> Any:
        if one.kind == "struct":
            return tuple(value(field.shape) for field in one.fields)
        return {"list": lambda: [value(one.fields[0].shape)], "map": lambda: {"k": value(one.fields[1].shape)}}.get(
            one.kind, lambda: 7
        )()

    root = root_of(None, shape)
    columns, _ = merged((), 0, root)
    arrays = conform(root_array(None, array_of([value(shape), None], shape), None), plan(columns, root))
    table = pa.Table.from_arrays(arrays, schema=pa.schema(arrow_fields(columns)))
    path = tmp_path / "file.parquet"
    pq.write_table(table, path)
    assert pq.read_table(path).equals(table)
    ids = pyarrow_to_schema(pq.read_schema(path))
    assert {number: ids.find_field(number).name for number in (101, 102)} == {
        101: "value_data",
        102: columns[1].children[0].name,
    }
    assert ids.highest_field_id == max(column.id for column in walk(columns))
    with duckdb.connect() as engine:
        found, other = engine.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    assert list(found[1]) == [column.name for column in columns[1].children] and str(found[1]).count("7") >= 1
    assert other[1] is None


@pytest.mark.parametrize("kind", ["boolean", "decimal(38,10)", "json", "uuid", "null"])
def test_scalars_have_natural_types(kind: str) -> None:
    types = {"boolean": pa.bool_(), "decimal(38,10)": pa.decimal128(38, 10), "null": pa.null()}
    assert arrow_type(Shape(kind)) == types.get(kind, pa.string())


@given(st.integers(0, 1 << 64))
def test_every_value_is_found_again_after_every_evolution(seed: int) -> None:
    """Rows of any shape, in a table with the columns of many, are what the plain reference says. So are slices."""
    dice = random.Random(seed)
    steps = [any_struct(dice, depth=4) for _ in range(dice.randint(1, 4))]
    columns: tuple[Column, ...] = ()
    last = 0
    for shape in steps:
        columns, last = merged(columns, last, root_of(None, shape))
    shape = dice.choice(steps)
    rows = [any_value(dice, shape) for _ in range(dice.randint(0, 5))]
    expected = [
        {column.name: None for column in columns} | found
        for found in (fields_of((None, row), root_of(None, shape), columns) for row in rows)
    ]
    array = array_of(rows, shape)
    assert written(columns, array, shape) == expected
    start = dice.randint(0, len(rows))
    stop = dice.randint(start, len(rows))
    assert written(columns, array.slice(start, stop - start), shape) == expected[start:stop]


@given(st.integers(0, 1 << 64))
def test_what_is_below_a_null_is_not_seen(seed: int) -> None:
    """Arrays may have values below null structs and lists, parts with offsets of their own, and any order of parts."""
    dice = random.Random(seed)
    shape = list_of(any_struct(dice, depth=3))
    rows = [[any_value(dice, shape.fields[0].shape) for _ in range(2)] for _ in range(5)]
    columns, last = merged((), 0, root_of(None, shape))
    columns, _ = merged(columns, last, root_of(None, list_of(any_struct(dice, depth=3))))
    expected = written(columns, array_of(rows, shape), shape)
    full = array_of([None, *rows, [None]], shape)
    moved = pa.concat_arrays([full.slice(3, 3), full.slice(1, 2)])
    assert written(columns, moved, shape) == expected[2:] + expected[:2]
    parts = array_of([None, *(one for row in rows for one in row)], shape.fields[0].shape).slice(1)
    hidden = [dice.random() < 0.5 for _ in rows]
    offsets = pa.array(range(0, 12, 2), pa.int32())
    masked = pa.ListArray.from_arrays(offsets, parts, type=full.type, mask=pa.array(hidden))
    nothing = {column.name: None for column in columns}
    assert written(columns, masked, shape) == [
        nothing if unseen else row for unseen, row in zip(hidden, expected, strict=True)
    ]


def test_a_flattened_null_hides_what_is_below_it() -> None:
    shape = struct(Field("a", LONG))
    value = pa.StructArray.from_arrays([pa.array([1, 2])], names=["a"], mask=pa.array([False, True]))
    root = root_of(None, shape, flatten=True)
    columns, _ = merged((), 0, root)
    assert conform(root_array(None, value, None, flatten=True), plan(columns, root))[1].to_pylist() == [1, None]
    deep = Limits(depth=1)
    columns, _ = merged((), 0, root_of(None, shape), deep)
    arrays = conform(root_array(None, value, None), plan(columns, root_of(None, shape), deep))
    assert arrays[1].to_pylist() == ['{"a":1}', None]


@given(st.integers(0, 1 << 64))
def test_with_little_room_every_value_is_in_its_column_or_in_the_rest(seed: int) -> None:
    """Putting the columns and the rest together gives the value that was written."""
    dice = random.Random(seed)
    limits = Limits(columns=dice.randint(4, 12), depth=dice.randint(2, 4))
    shape = any_struct(dice, depth=4)
    root = root_of(None, shape)
    columns, _ = merged((), 0, root, limits)
    rows = [any_value(dice, shape) for _ in range(3)]
    known = cut(root, limits)
    for row, found in zip(rows, written(columns, array_of(rows, shape), shape, limits), strict=True):
        rest = json.loads(found[REST]) if found.get(REST) else {}
        check_found((None, row), root, known, found, columns, rest)


def check_found(
    value: Any, shape: Shape, known: Shape, row: dict[str, Any] | None, columns: tuple[Column, ...], rest: Any
) -> None:
    """Every field of a struct is in its column, or else in the rest."""
    used: set[int] = set()
    for one, field, cut_field in zip(value, shape.fields, known.fields, strict=True):
        column = column_for(field.name, cut_field.shape, columns, used)
        if one is None:
            continue
        if column is None:
            expected = plain(one, field.shape)
            assert expected in (None, {}, []) or only_nulls(expected) or rest[field.name] == expected
        elif cut_field.shape.kind == "json" and field.shape.kind != "json":
            assert row is not None and json.loads(row[column.name]) == plain(one, field.shape)
        elif field.shape.kind == "struct":
            assert row is not None
            inner = (rest or {}).get(field.name) or {}
            check_found(one, field.shape, cut_field.shape, row[column.name], column.children, inner)
        elif field.shape.kind not in ("list", "map"):
            assert row is not None and row[column.name] == (
                one.isoformat(timespec="microseconds") if field.shape.kind == "time" else one
            )
        else:
            assert row is not None and len(row[column.name]) == len(one)


def column_for(name: str, shape: Shape, columns: tuple[Column, ...], used: set[int]) -> Column | None:
    """The first column of a field's name and type that no other field has used."""
    for column in columns:
        if column.source == name and type_of_column(column) == type_of(shape) and column.id not in used:
            used.add(column.id)
            return column
    return None


def only_nulls(value: Any) -> bool:
    if isinstance(value, dict):
        return all(only_nulls(one) for one in value.values())
    return all(only_nulls(one) for one in value) if isinstance(value, list) else value is None
