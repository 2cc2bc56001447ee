"""Tables for people: widths, numbers, nulls, and values that a terminal must not obey."""

from __future__ import annotations

import pyarrow as pa

from headwater.cli.sql.tables import SAMPLE_ROWS, lines_of
from headwater.ops.visible import visible


def test_a_table() -> None:
    batch = pa.record_batch({"user": ["ann", None, "日本"], "n": [1, 200, None]})
    assert list(lines_of(batch.schema, [batch])) == [
        "user | n",
        "-----+-----",
        "ann  |    1",
        "NULL |  200",
        "日本 | NULL",
        "(3 rows)",
    ]
    assert list(lines_of(batch.schema, []))[-1] == "(0 rows)" and len(list(lines_of(batch.schema, []))) == 3
    assert list(lines_of(batch.schema, [batch.slice(0, 1)]))[-1] == "(1 row)"


def test_a_line_for_each_cell() -> None:
    batch = pa.record_batch({"a": ["x", "y"], "long": [1, 2]})
    assert list(lines_of(batch.schema, [batch], expanded=True)) == [
        "-[ row 1 ]-", "a    | x", "long | 1", "-[ row 2 ]-", "a    | y", "long | 2", "(2 rows)",
    ]  # fmt: skip


def test_values_cannot_move_the_cursor() -> None:
    assert visible("a\n\t\x1b[2J\x9b\u202e日") == "a\\n\\t\\x1b[2J\\x9b\\u202e日"
    batch = pa.record_batch({"\x1bname": ["\x1b]0;title\x07"]})
    text = "\n".join(lines_of(batch.schema, [batch]))
    assert "\x1b" not in text and "\x07" not in text and "\\x1bname" in text


def test_long_cells_are_cut_where_that_is_asked_for() -> None:
    batch = pa.record_batch({"a": ["x" * 50]})
    assert "x" * 50 in "\n".join(lines_of(batch.schema, [batch]))
    assert list(lines_of(batch.schema, [batch], most=10))[2] == "x" * 9 + "…"


def test_rows_behind_the_sample_keep_the_widths() -> None:
    many = pa.record_batch({"a": ["x"] * SAMPLE_ROWS})
    late = pa.record_batch({"a": ["longer"]})
    found = list(lines_of(many.schema, [many, late]))
    assert found[1] == "-" and found[-2] == "longer" and found[-1] == f"({SAMPLE_ROWS + 1} rows)"
