"""Lists of one name with different elements: each goes where it belongs, and the others stay as they were."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.schemas.decoding import json_plain
from headwater.schemas.decoding.json_plain import Part, Shapes
from headwater.schemas.decoding.variants import FIRST, NEW, choice_of, chosen, widened
from headwater.schemas.shapes import BOOLEAN, DATE, DOUBLE, JSON, LONG, STRING, Field, Shape, decimal, list_of, struct

KNOWN = struct(
    Field("a", LONG),
    Field("a", list_of(STRING)),
    Field("a", list_of(LONG)),
    Field("s", list_of(struct(Field("in", list_of(DOUBLE)), Field("in", list_of(JSON))))),
    Field("n", list_of(list_of(BOOLEAN))),
    Field("d", list_of(DATE)),
)


def told(*values: Any) -> pa.Array:
    return pa.array(
        [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values], pa.binary()
    )


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        ({"a": 1}, {}),
        ({"a": []}, {}),
        ({"a": [None]}, {}),
        ({"a": ["x", None]}, {}),
        ({"a": [1, None]}, {("a",): 1}),
        ({"a": [1, "x"]}, {("a",): NEW}),
        ({"a": [True]}, {("a",): NEW}),
        ({"a": [2**70]}, {("a",): NEW}),
        ({"a": [1.5]}, {("a",): NEW}),
        ({"s": [{"in": [1]}, {"in": [0.5]}]}, {}),
        ({"s": [{"in": ["x"]}]}, {("s", None, "in"): 1}),
        ({"s": [{"in": ["x"]}, {"in": [1]}]}, {("s", None, "in"): NEW}),
        ({"s": [{"in": [2**60]}]}, {("s", None, "in"): 1}),
        ({"s": ["x"]}, {("s",): NEW}),
        ({"n": [[True], None]}, {}),
        ({"n": [[True], [1]]}, {("n",): NEW}),
        ({"d": ["2024-02-29"]}, {("d",): NEW}),
        ({"other": [1]}, {}),
        ([1], {}),
    ],
)
def test_the_list_that_takes_a_value(value: Any, choice: dict[Any, int]) -> None:
    assert choice_of(KNOWN, value) == frozenset(choice.items())


def test_huge_numbers_have_lists_of_decimals() -> None:
    known = struct(Field("a", list_of(decimal(38, 0))), Field("a", list_of(decimal(10, 2))))
    assert choice_of(known, {"a": [2**70]}) == FIRST


def test_a_choice_leaves_one_list_of_each_name() -> None:
    first = chosen(KNOWN, FIRST)
    assert [(field.name, field.shape.kind) for field in first.fields] == [
        *(("a", "long"), ("a", "list"), ("s", "list"), ("n", "list"), ("d", "list")),
    ]
    assert first.fields[1].shape == list_of(STRING)
    assert first.fields[2].shape == list_of(struct(Field("in", list_of(DOUBLE))))
    second = chosen(KNOWN, frozenset({(("a",), 1), (("s", None, "in"), NEW)}))
    assert second.fields[1].shape == list_of(LONG)
    assert second.fields[2].shape == list_of(struct())
    both = widened([frozenset({(("a",), 1)}), frozenset({(("n",), NEW)})])
    assert both == frozenset({(("a",), NEW), (("n",), NEW)})


def read(parts: list[Part], name: str = "a") -> dict[int, tuple[Shape, Any]]:
    """By row, the shape of a field and its value."""
    found: dict[int, tuple[Shape, Any]] = {}
    for part in parts:
        values = part.decoded.array.to_pylist()
        rows = range(len(values)) if part.rows is None else part.rows
        shape = next(field.shape for field in part.shape.fields if field.name == name)
        found |= {row: (shape, value and value[name]) for row, value in zip(rows, values, strict=True)}
    return found


def test_lists_of_another_type_leave_the_known_ones_as_they_are() -> None:
    shapes = Shapes(struct(Field("a", list_of(STRING))))
    values = [["x"], [1], [], None, [2, None], ["y"]]
    found = read(shapes.decode(told(*({"a": value} for value in values))))
    strings, longs = list_of(STRING), list_of(LONG)
    assert [found[row] for row in range(6)] == [
        *((strings, ["x"]), (longs, [1]), (strings, []), (strings, None), (longs, [2, None]), (strings, ["y"])),
    ]
    again = read(shapes.decode(told({"a": [3]}, {"a": ["z"]})))
    assert again == {0: (longs, [3]), 1: (strings, ["z"])}


def test_bad_payloads_keep_their_rows() -> None:
    [first, second] = Shapes(struct(Field("a", list_of(STRING)))).decode(
        told({"a": [1]}, b"{", {"a": ["x"]}, {"a": [2]})
    )
    assert (first.rows, second.rows) == ([1, 2], [0, 3])
    assert list(first.decoded.errors) == [0] and not second.decoded.errors


def test_payloads_that_fit_are_one_part() -> None:
    [part] = Shapes(struct(Field("a", list_of(STRING)))).decode(told({"a": ["x"]}, {"a": ["y"], "b": 1}))
    assert part.rows is None
    [part] = Shapes(None).decode(told({"a": ["x"]}, {"a": [1]}))
    assert part.shape == struct(Field("a", list_of(JSON)))


def test_the_number_of_shapes_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it lists with different elements are JSON text, but those that fit stay as they are."""
    monkeypatch.setattr(json_plain, "MAX_PARTS", 3)
    known = struct(*(Field(name, list_of(STRING)) for name in "abcd"))
    values = [{"a": ["x"]}, {"a": [1]}, {"b": [1]}, {"c": [True]}, {"d": [0.5], "a": ["y"]}]
    parts = Shapes(known).decode(told(*values))
    assert [part.rows for part in parts] == [[0], [1, 2, 3, 4]]
    assert parts[1].decoded.array[3].as_py()["a"] == ["y"] or parts[1].decoded.array[3].as_py()["a"] == ['"y"']
    assert not any(part.decoded.errors for part in parts)
