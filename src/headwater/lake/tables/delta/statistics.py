"""What the Delta log says of a file's values, so that engines skip files: `stats`, a text of JSON. No I/O.

Bounds arrive in Iceberg's binary form. Delta has none of binary and boolean columns. Times have milliseconds there.
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from headwater.state.commands.columns import Column
from headwater.state.commands.tables import Bounds
from headwater.state.streams.tables import DataFile
from headwater.types import LAST_MS

_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days


class Place(msgspec.Struct, frozen=True):
    """Where a column is in `stats`."""

    way: tuple[str, ...]
    """The names that lead to it."""
    kind: str


Places = Mapping[int, Place]
"""By the id of the column."""


def places_of(columns: Sequence[Column]) -> dict[int, Place]:
    """The places of columns and of the fields of structs."""
    found: dict[int, Place] = {}
    waiting: list[tuple[tuple[str, ...], Column]] = [((), column) for column in columns]
    while waiting:
        above, column = waiting.pop()
        way = (*above, column.name)
        if column.kind == "struct":
            waiting.extend((way, child) for child in column.children)
        elif not column.children:
            found[column.id] = Place(way, column.kind)
    return found


def statistics(file: DataFile, bounds: Sequence[Bounds] = (), places: Places | None = None) -> str:
    """Row count, counts of nulls and bounds."""
    lowest: dict[str, object] = {}
    highest: dict[str, object] = {}
    if file.rows:
        lowest = {"partition": file.first_partition, "offset": file.first_offset, "timestamp_ms": file.min_timestamp}
        highest = {"partition": file.last_partition, "offset": file.last_offset, "timestamp_ms": file.max_timestamp}
        if not file.timestamp_nulls and 0 <= file.min_timestamp <= file.max_timestamp <= LAST_MS:
            lowest["timestamp"], highest["timestamp"] = _iso(file.min_timestamp), _iso(file.max_timestamp)
    nulls: dict[str, object] = {"partition": 0, "offset": 0, "timestamp_ms": 0, "timestamp": file.timestamp_nulls}
    for one in bounds:
        place = (places or {}).get(one.column)
        if place is None:
            continue  # the key, which is binary
        _put(nulls, place.way, one.nulls)
        low, high = _shown(place.kind, one.lower, upper=False), _shown(place.kind, one.upper, upper=True)
        if low is not None:
            _put(lowest, place.way, low)
        if high is not None:
            _put(highest, place.way, high)
    facts = {"numRecords": file.rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return msgspec.json.encode(facts).decode()


def _put(into: dict[str, object], way: Sequence[str], value: object) -> None:
    for name in way[:-1]:
        inner = into.setdefault(name, {})
        assert isinstance(inner, dict), f"{name} is a struct"
        into = inner
    into[way[-1]] = value


def _shown(kind: str, bound: bytes | None, *, upper: bool) -> object:
    """A bound as JSON has it; None if Delta has no bounds of such values."""
    if bound is None:
        return None
    if kind == "long":
        return struct.unpack("<q", bound)[0]
    if kind == "double":
        number = struct.unpack("<d", bound)[0]
        return number if abs(number) != float("inf") else None
    if kind in ("string", "json"):
        return bound.decode()
    if kind.startswith("decimal"):
        scale = int(kind.removesuffix(")").rpartition(",")[2])
        digits = int.from_bytes(bound, "big", signed=True)
        return msgspec.Raw(format(decimal.Decimal(digits).scaleb(-scale, _CONTEXT), "f").encode())
    if kind == "date":
        days = struct.unpack("<i", bound)[0]
        return (_EPOCH + timedelta(days=days)).isoformat() if _FIRST_DAY <= days <= _LAST_DAY else None
    if kind == "timestamptz":
        micros = struct.unpack("<q", bound)[0]
        ms = -(-micros // 1000) if upper else micros // 1000
        return _iso(ms) if 0 <= ms <= LAST_MS else None
    return None


_CONTEXT = decimal.Context(prec=50)


def _iso(ms: int) -> str:
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}000Z"
