"""Cells of a result: what a value of an Arrow column looks like in JSON, and as text.

Bytes are text where they are UTF-8. Other bytes are in base64, with a mark. In an object they have a field of their
own, whose name ends in `_base64`, as in records. In a list there is no name to change, so they are `{"base64": "…"}`.
Times are those of ISO 8601. Decimal numbers keep their digits. NaN and infinite numbers are null in JSON, which has
none.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

MARK = "base64"
SUFFIX = f"_{MARK}"
JSON = msgspec.json.Encoder(decimal_format="number")
"""Encodes cells and rows."""


class Odd(msgspec.Struct, frozen=True):
    """Bytes that are not text, in base64. In a list they are shown like this; in an object their field is renamed."""

    base64: str


def unique(names: Sequence[str]) -> list[str]:
    """Names of columns, each once: a second `a` becomes `a_2`."""
    found: list[str] = []
    taken = set(names)
    seen: set[str] = set()
    for name in names:
        own, number = name, 2
        while own in seen or (own != name and own in taken):
            own, number = f"{name}_{number}", number + 1
        seen.add(own)
        found.append(own)
    return found


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """The rows of a batch, as values that `JSON` encodes."""
    return list(zip(*(values_of(column) for column in batch.columns), strict=True)) if batch.num_columns else []


def objects_of(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of a batch as objects, by names that are unique."""
    made = [dict(zip(names, row, strict=True)) for row in rows_of(batch)]
    odd = [name for name, kind in zip(names, batch.schema.types, strict=True) if is_bytes(kind)]
    return [_renamed(row) for row in made] if odd else made


def texts_of(column: pa.Array) -> list[str | None]:
    """The cells of a column as text, for people and for CSV; None for null. Bytes that are not text have a mark."""
    return [None if value is None else text_of(value) for value in values_of(column)]


def text_of(value: Any) -> str:
    """A value of `values_of` as text. What has parts is JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Odd):
        return f"{MARK}:{value.base64}"
    if isinstance(value, float):
        return repr(value)
    encoded = JSON.encode(value).decode()
    return encoded[1:-1] if encoded.startswith('"') else encoded  # a time, a date, an interval, a UUID


def values_of(column: pa.Array) -> list[Any]:
    """The cells of a column, as values that `JSON` encodes."""
    import pyarrow as pa

    known = column.cast(_known(column.type), safe=False) if _known(column.type) != column.type else column
    if is_bytes(known.type):
        try:
            texts: list[Any] = known.cast(pa.string()).to_pylist()
        except pa.ArrowInvalid:
            return [_bytes(value) for value in known.to_pylist()]
        return texts
    try:
        values: list[Any] = known.to_pylist()
    except (ValueError, OverflowError, pa.ArrowInvalid):  # a time that Python does not have
        far: list[Any] = known.cast(pa.string()).to_pylist()
        return far
    plain = _plainer(known.type)
    return values if plain is None else [None if value is None else plain(value) for value in values]


def is_bytes(kind: pa.DataType) -> bool:
    """Whether the cells of a column are bytes."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _known(kind: pa.DataType) -> pa.DataType:
    """The type in which Python has the values of a type: microseconds instead of nanoseconds, no dictionaries."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind):
        return _known(kind.value_type)
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_string_view(kind):
        return pa.string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_known(field.type)) for field in kind.fields])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_known(kind.value_type)))
    return kind


def _plainer(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What makes values of a type plain; None if they are."""
    import pyarrow as pa

    types = pa.types
    if is_bytes(kind):
        return _bytes
    if types.is_struct(kind):
        parts = {field.name: made for field in kind.fields if (made := _plainer(field.type)) is not None}
        return _struct(parts) if parts else None
    if types.is_map(kind):
        return _map(_plainer(kind.key_type), _plainer(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        item = _plainer(kind.value_type)
        return None if item is None else _list(item)
    if types.is_interval(kind):
        return _interval
    return None


def _bytes(value: bytes | None) -> str | Odd | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Odd(b64encode(value).decode())


def _struct(parts: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def plain(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return _renamed({name: parts[name](one) if name in parts else one for name, one in value.items()})

    return plain


def _list(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def plain(value: Iterable[Any] | None) -> list[Any] | None:
        return None if value is None else [item(one) for one in value]

    return plain


def _map(key: Callable[[Any], Any] | None, item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """A map with keys of text is an object, any other one a list of pairs."""

    def plain(value: list[tuple[Any, Any]] | None) -> Any:
        if value is None:
            return None
        pairs = [(key(k) if key else k, item(v) if item else v) for k, v in value]
        named = all(isinstance(k, str) for k, _ in pairs) and len({k for k, _ in pairs}) == len(pairs)
        return _renamed(dict(pairs)) if named else [list(pair) for pair in pairs]

    return plain


def _interval(value: Any) -> str | None:
    """Months, days and the rest, as ISO 8601 has them."""
    if value is None:
        return None
    months, days, nanoseconds = value
    seconds = f"{nanoseconds / 1e9:.9f}".rstrip("0").rstrip(".")
    return f"P{months}M{days}DT{seconds}S"


def _renamed(value: dict[str, Any]) -> dict[str, Any]:
    """An object whose fields that are not text have their mark in the name, unless there is such a field."""
    if not any(isinstance(one, Odd) for one in value.values()):
        return value
    found: dict[str, Any] = {}
    for name, one in value.items():
        if isinstance(one, Odd) and name + SUFFIX not in value:
            found[name + SUFFIX] = one.base64
        else:
            found[name] = one
    return found
