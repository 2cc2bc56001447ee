"""Merging of shapes into columns: what is added, under which names, within which limits."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.log.segment.schema import segment_schema
from headwater.schemas.columns import LIMITS, LOG_COLUMNS, REST, Limits, count, merged, root_of
from headwater.schemas.names import folded
from headwater.schemas.shapes import (
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    JSON,
    LONG,
    NULL,
    STRING,
    TIME,
    TIMESTAMPTZ,
    UUID,
    Field,
    Shape,
    decimal,
    list_of,
    map_of,
    struct,
)
from headwater.state.commands import columns as commands
from headwater.state.commands.columns import Column
from tests.support.shapes import any_struct

LITTLE = Limits(columns=12, depth=3, name_bytes=40, doc_bytes=20)


def grown(*values: Shape, limits: Limits = LIMITS, flatten: bool = False) -> tuple[Column, ...]:
    """The columns after values of these shapes, one after the other."""
    columns: tuple[Column, ...] = ()
    last = 0
    for value in values:
        columns, last = merged(columns, last, root_of(None, value, flatten=flatten), limits)
    return columns


def drawn(columns: Iterable[Column], indent: str = "") -> Iterator[str]:
    """Columns as lines of names and kinds."""
    for column in columns:
        yield f"{indent}{column.name} {column.kind}"
        yield from drawn(column.children, indent + " ")


def all_of(columns: Iterable[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        yield from all_of(column.children)


def of_value(*values: Shape, limits: Limits = LIMITS) -> list[str]:
    """The columns inside `value_data`."""
    found = grown(*(struct(*value.fields) for value in values), limits=limits)
    return list(drawn(next(column.children for column in found if column.name == "value_data")))


def test_ids_begin_at_100_and_a_parent_comes_before_its_children() -> None:
    columns = grown(struct(Field("a", list_of(LONG)), Field("b", map_of(STRING))))
    assert [column.id for column in all_of(columns)] == list(range(100, 107))
    assert list(drawn(columns)) == [
        *("decode_error string", "value_data struct", " a list", "  element long"),
        *(" b map", "  key string", "  value string"),
    ]


def test_a_column_is_wide_from_the_start() -> None:
    shape = struct(Field("i", INT), Field("f", FLOAT), Field("u", UUID), Field("t", TIME), Field("z", TIMESTAMPTZ))
    assert of_value(shape) == ["i long", "f double", "u string", "t string", "z timestamptz"]
    wide = struct(Field("i", LONG), Field("f", DOUBLE), Field("u", STRING))
    assert of_value(shape, wide) == of_value(shape)


def test_another_type_is_another_column_beside_the_first() -> None:
    types = [LONG, STRING, decimal(10, 2), list_of(LONG), list_of(STRING), map_of(struct(Field("y", LONG))), STRING]
    assert of_value(*(struct(Field("x", one)) for one in types)) == [
        *("x long", "x__string string", "x__decimal_10_2 decimal(10,2)", "x__list_long list", " element long"),
        *("x__list_string list", " element string", "x__map_struct map", " key string", " value struct", "  y long"),
    ]


def test_structs_take_each_others_fields_also_inside_lists_and_maps() -> None:
    one, two = struct(Field("a", LONG)), struct(Field("b", STRING))
    shapes = [struct(Field("s", x), Field("l", list_of(x)), Field("m", map_of(x))) for x in (one, two)]
    assert of_value(*shapes) == [
        *("s struct", " a long", " b string", "l list", " element struct", "  a long", "  b string"),
        *("m map", " key string", " value struct", "  a long", "  b string"),
    ]


def test_a_dropped_field_stays_and_a_renamed_one_is_new() -> None:
    assert of_value(struct(Field("old", LONG)), struct(Field("new", LONG))) == ["old long", "new long"]


def test_what_is_always_null_has_no_column_and_takes_any_later() -> None:
    unknown = struct(Field("n", NULL), Field("l", list_of(NULL)), Field("s", struct(Field("x", NULL))))
    assert list(drawn(grown(unknown))) == ["decode_error string"]
    known = struct(Field("n", STRING), Field("l", list_of(LONG)), Field("s", struct(Field("x", BOOLEAN))))
    assert of_value(known, unknown) == ["n string", "l list", " element long", "s struct", " x boolean"]


def test_two_fields_of_one_name_have_two_columns_at_once() -> None:
    mixed = struct(Field("x", LONG), Field("x", STRING))
    assert of_value(mixed, mixed) == ["x long", "x__string string"]
    same = struct(Field("x", INT), Field("x", LONG))
    assert of_value(same, same) == ["x long", "x__long long"]
    unknown = struct(Field("x", list_of(NULL)), Field("x", list_of(LONG)))
    assert of_value(unknown, unknown) == ["x list", " element long"]


def test_names_that_engines_cannot_tell_apart_get_a_number_and_say_their_field() -> None:
    columns = grown(struct(*(Field(name, LONG, "Said.") for name in ("a.b", "A_b", "a b", "", "x"))))
    children = columns[1].children
    assert [(column.name, column.source) for column in children] == [
        *(("a_b", "a.b"), ("A_b__2", "A_b"), ("a_b__3", "a b"), ("_", ""), ("x", "x")),
    ]
    assert [column.doc for column in children] == [
        *("Said. Field 'a.b'.", "Said. Field 'A_b'.", "Said. Field 'a b'.", "Said. Field ''.", "Said."),
    ]


def test_a_field_may_be_named_as_a_column_of_another_type() -> None:
    first = struct(Field("x", LONG), Field("x__string", LONG))
    assert of_value(first, struct(Field("x", STRING))) == ["x long", "x__string long", "x__string__2 string"]


def test_a_value_that_is_no_struct_is_a_column_itself() -> None:
    assert list(drawn(grown(STRING, list_of(LONG), struct(Field("a", LONG))))) == [
        *("decode_error string", "value_data string", "value_data__list_long list", " element long"),
        *("value_data__struct struct", " a long"),
    ]


def test_a_flattened_value_has_its_fields_at_the_top() -> None:
    fields = [Field(name, LONG) for name in ("price", "Offset", "key_data", "value_offset", "_file", "_rest")]
    columns = grown(struct(*fields), struct(Field("price", STRING)), STRING, flatten=True)
    assert list(drawn(columns)) == [
        *("decode_error string", "price long", "value_Offset long", "value_key_data long", "value_offset__2 long"),
        *("value__file long", "value__rest long", "price__string string", "value_data string"),
    ]
    assert columns[2].doc == "Field 'Offset'."
    names = [folded(column.name) for column in columns]
    assert len(set(names)) == len(names) and not set(names) & set(segment_schema().names)


def test_the_columns_of_the_log_are_known_by_name() -> None:
    assert list(LOG_COLUMNS) == segment_schema().names


def test_record_types_may_be_apart() -> None:
    columns, last = merged((), 0, root_of(LONG, struct(Field("a", LONG)), record="Order"))
    columns, _ = merged(columns, last, root_of(LONG, struct(Field("a", STRING)), record="Refund"))
    assert list(drawn(columns)) == [
        *("decode_error string", "key_data long", "value_data struct"),
        *(" Order struct", "  a long", " Refund struct", "  a string"),
    ]


def test_what_is_too_deep_is_json_in_its_place() -> None:
    deep = struct(Field("a", struct(Field("b", struct(Field("c", LONG))), Field("l", list_of(LONG)))))
    assert of_value(deep, limits=LITTLE) == ["a struct", " b json", " l json"]


@pytest.mark.parametrize(("depth", "expected"), [(2, ["a json"]), (3, ["a struct", " b json"]), (9, ["a struct"])])
def test_the_depth_counts_columns_of_the_table_as_the_first_level(depth: int, expected: list[str]) -> None:
    deep = struct(Field("a", struct(Field("b", list_of(LONG)))))
    assert of_value(deep, limits=Limits(depth=depth))[: len(expected)] == expected


def test_lists_and_maps_in_each_other_are_limited_too() -> None:
    deep = struct(Field("a", list_of(struct(Field("b", map_of(list_of(LONG)))))))
    assert of_value(deep, limits=Limits(repeats=2)) == [
        *("a list", " element struct", "  b map", "   key string", "   value json"),
    ]
    lists = LONG
    for _ in range(30):
        lists = list_of(lists)
    assert depth_of(grown(struct(Field("a", lists)))) == 2 + LIMITS.repeats


def test_beyond_the_number_of_columns_there_is_one_for_the_rest() -> None:
    wide = struct(*(Field(f"f{at}", LONG) for at in range(30)))
    columns = grown(wide, limits=LITTLE)
    assert count(columns) == 12
    assert columns[-1].name == REST and columns[-1].kind == "json" and "limits" in columns[-1].doc
    assert grown(wide, wide, struct(Field("g", LONG)), limits=LITTLE) == columns


def test_no_column_is_left_half_made() -> None:
    nested = struct(Field("a", list_of(map_of(struct(Field("b", LONG))))), Field("c", LONG))
    columns = grown(nested, limits=Limits(columns=6))
    assert list(drawn(columns)) == ["decode_error string", "value_data struct", " c long", "_rest json"]
    assert [column.id for column in all_of(columns)] == [100, 101, 102, 103]


def test_a_name_that_is_too_long_goes_to_the_rest() -> None:
    columns = grown(struct(Field("n" * 256, LONG), Field("ü" * 127, LONG), Field("half \ud800", LONG)))
    assert list(drawn(columns)) == ["decode_error string", "value_data struct", f" {'ü' * 127} long", "_rest json"]


def test_a_comment_is_cut_and_on_one_line() -> None:
    columns = grown(struct(Field("a", LONG, "Über\n zwei\tZeilen, " + "lang " * 9)), limits=LITTLE)
    assert columns[1].children[0].doc == "Über zwei Zeilen, l" and len(columns[1].children[0].doc.encode()) == 20


def test_values_keep_their_kinds() -> None:
    kinds = struct(*(Field(shape.kind, shape) for shape in (BOOLEAN, BINARY, JSON, decimal(38, 0), decimal(39, 0))))
    assert [column.kind for column in grown(kinds)[1].children] == [
        *("boolean", "binary", "json", "decimal(38,0)", "string"),
    ]


@given(st.integers(0, 1 << 64))
def test_merging_only_ever_adds(seed: int) -> None:
    """Every step is deterministic and idempotent, keeps all that was there, and uses no id twice."""
    dice = random.Random(seed)
    values = [any_struct(dice, depth=4) for _ in range(5)]
    limits, flatten = dice.choice([LIMITS, LITTLE]), dice.random() < 0.5
    columns: tuple[Column, ...] = ()
    last = 99
    for value in values:
        root = root_of(None, value, flatten=flatten)
        before, before_last = columns, last
        columns, last = merged(columns, last, root, limits)
        assert (columns, last) == merged(before, before_last, root, limits)
        again, again_last = merged(columns, last, root, limits)
        assert again is columns and again_last == last
        check_kept(before, columns, before_last)
        assert commands.grown(before, commands.additions(before, columns)) == columns
        assert commands.up_to(columns, before_last) == before
        ids = [column.id for column in all_of(columns)]
        assert len(set(ids)) == len(ids) and max(ids) == last and count(columns) == len(ids) <= limits.columns
    for level in levels(columns):
        assert len({folded(column.name) for column in level}) == len(level)
        assert all(len(column.name.encode()) <= limits.name_bytes for column in level)
    assert depth_of(columns) <= limits.depth


def check_kept(before: tuple[Column, ...], after: tuple[Column, ...], last: int) -> None:
    """All columns are where they were, and what is new has new ids."""
    for old, new in zip(before, after, strict=False):
        assert (old.id, old.name, old.source, old.kind, old.doc) == (new.id, new.name, new.source, new.kind, new.doc)
        check_kept(old.children, new.children, last)
    assert len(after) >= len(before) and all(column.id > last for column in all_of(after[len(before) :]))


def levels(columns: tuple[Column, ...]) -> Iterator[tuple[Column, ...]]:
    yield columns
    for column in columns:
        yield from levels(column.children)


def depth_of(columns: tuple[Column, ...]) -> int:
    return 1 + max((depth_of(column.children) for column in columns), default=-1)
