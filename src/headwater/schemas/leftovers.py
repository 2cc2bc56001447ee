"""Natural values as JSON text: what is too deep for columns, and what finds no column.

| value | in JSON |
|---|---|
| binary | base64 |
| decimal, date, time, timestamp | a string; a timestamp in ISO 8601, that of UTC with `Z` |
| NaN, infinities | the strings `NaN`, `Infinity`, `-Infinity` |
| json | the value itself |
| map | an object |
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headwater.schemas.columns import FLAT, VALUE
from headwater.schemas.plans import Left
from headwater.schemas.shapes import Shape, digits

if TYPE_CHECKING:
    import pyarrow as pa


def texts(array: pa.Array, shape: Shape) -> list[str | None]:
    """The JSON text of each value of a natural array."""
    return [None if value is None else _dumped(value) for value in values(array, shape)]


def left_texts(array: pa.StructArray, left: Sequence[Left]) -> list[str | None]:
    """The JSON text of those parts of each root value that have no column; None for values without any."""
    return [None if value is None else _dumped(_unflattened(value)) for value in _left_struct(array, left)]


def values(array: pa.Array, shape: Shape) -> list[object]:
    """The values of a natural array as JSON has them. Of fields with one name the one with a value counts."""
    match shape.kind:
        case "struct":
            return _structs(array, shape)
        case "list":
            inner = values(array.values, shape.fields[0].shape)
            return [None if span is None else inner[span] for span in _spans(array)]
        case "map":
            keys, inner = array.keys.to_pylist(), values(array.items, shape.fields[1].shape)
            return [None if s is None else dict(zip(keys[s], inner[s], strict=True)) for s in _spans(array)]
        case kind:
            plain = _PLAIN.get("decimal" if digits(kind) else kind)
            found: list[object] = _moments(array, kind) if kind in _MOMENTS else array.to_pylist()
            return found if plain is None else [None if value is None else plain(value) for value in found]


def _structs(array: pa.StructArray, shape: Shape) -> list[object]:
    rows: list[dict[str, object]] = [{} for _ in range(len(array))]
    for at, field in enumerate(shape.fields):
        for row, value in zip(rows, values(array.field(at), field.shape), strict=True):
            if value is not None or field.name not in row:
                row[field.name] = value
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _unflattened(value: dict[str, object]) -> dict[str, object]:
    """The parts with their paths. Fields of a flattened value are in `value_data`, as they are in other tables."""
    flat = {name.removeprefix(FLAT): part for name, part in value.items() if name.startswith(FLAT)}
    if not flat:
        return value
    return {**{name: part for name, part in value.items() if not name.startswith(FLAT)}, VALUE: flat}


def _left(array: pa.Array, left: Left) -> list[object]:
    """The parts of one field that have no column."""
    if not left.parts:
        return values(array, left.shape)
    if left.shape.kind == "struct":
        return [*_left_struct(array, left.parts)]
    [part] = left.parts
    if left.shape.kind == "list":
        inner = _left(array.values, part)
        return [None if s is None or not any(map(_is_some, inner[s])) else inner[s] for s in _spans(array)]
    keys, inner = array.keys.to_pylist(), _left(array.items, part)
    return [
        {key: value for key, value in zip(keys[s], inner[s], strict=True) if value is not None} or None if s else None
        for s in _spans(array)
    ]


def _left_struct(array: pa.StructArray, left: Sequence[Left]) -> Sequence[dict[str, object] | None]:
    rows: list[dict[str, object]] = [{} for _ in range(len(array))]
    for part in left:
        inner = array.field(part.at)
        if inner.null_count == len(inner):
            continue
        for row, value in zip(rows, _left(inner, part), strict=True):
            if value is not None:
                row[part.name] = value
    valid = array.is_valid().to_pylist()
    return [row if row and known else None for row, known in zip(rows, valid, strict=True)]


def _spans(array: pa.Array) -> list[slice | None]:
    """Where the values of each list are in the array of all values."""
    places = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [slice(places[at], places[at + 1]) if valid[at] else None for at in range(len(array))]


def _is_some(value: object) -> bool:
    return value is not None


def _dumped(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Half of a surrogate pair is a character of JSON, and none of UTF-8.
    return text if _is_text(text) else json.dumps(value, separators=(",", ":"), allow_nan=False)


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _moments(array: pa.Array, kind: str) -> list[object]:
    """Dates and times in ISO 8601. Arrow writes them, because Python ends with the year 9999."""
    import pyarrow as pa

    plain = array.cast(pa.timestamp("us")) if kind == "timestamptz" else array
    found: list[str | None] = plain.cast(pa.string()).to_pylist()
    end = "Z" if kind == "timestamptz" else ""
    return [None if text is None else text.replace(" ", "T") + end for text in found]


def _number(value: float) -> object:
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_constant=str, parse_float=lambda digits: _number(float(digits)))
    except (ValueError, RecursionError):
        return text


_MOMENTS = frozenset({"date", "time", "timestamp", "timestamptz"})
_PLAIN: dict[str, Callable[..., object]] = {
    "float": _number,
    "double": _number,
    "decimal": lambda value: format(value, "f"),
    "binary": lambda value: base64.b64encode(value).decode(),
    "json": _parsed,
}
