"""Logical types of Avro: whether one is valid for its type, and its values as JSON.

Readers ignore a logical type that is not valid for its type.
"""

from __future__ import annotations

import datetime
import math
import uuid
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from headwater.errors import BadValue

MAX_PRECISION = 10_000
"""The most digits of a decimal. No reader has so many."""

MAX_DECIMAL_BYTES = 4_200
"""The most bytes of a decimal: enough for all digits. Writing a number takes time that grows with their square."""

_UNITS = {"millis": 1_000_000, "micros": 1_000, "nanos": 1}
_EPOCH = datetime.date(1970, 1, 1)
_START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_PLAIN = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "timestamp-nanos": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
    "local-timestamp-nanos": "long",
}


def is_valid(tree: dict[str, Any]) -> bool:
    """Whether the `logicalType` of a resolved type is one that the specification has for this type."""
    kind: str = tree["type"]
    logical = tree.get("logicalType")
    if not isinstance(logical, str):
        return False
    size: int = tree["size"] if kind == "fixed" else 0
    if logical in _PLAIN:
        return _PLAIN[logical] == kind
    if logical == "uuid":
        return kind == "string" or size == 16
    if logical == "duration":
        return size == 12
    return logical == "decimal" and _is_decimal(kind, size, tree.get("precision"), tree.get("scale", 0))


def _is_decimal(kind: str, size: int, precision: object, scale: object) -> bool:
    if not isinstance(precision, int) or not isinstance(scale, int) or isinstance(precision, bool):
        return False
    if not 0 < precision <= MAX_PRECISION or isinstance(scale, bool) or not 0 <= scale <= precision:
        return False
    if kind == "fixed":
        return size > 0 and precision <= math.floor(math.log10(2) * (8 * size - 1))
    return kind == "bytes"


def from_json(value: Any, tree: dict[str, Any], place: str) -> Any:
    """The plain value of a JSON value of a logical type: a number for a date, bytes for a decimal and so on.

    What is no text of the logical type is left as it is: a number is a date too.
    """
    logical = tree["logicalType"]
    if logical == "decimal":
        return _unscaled(value, tree, place)
    if not isinstance(value, str) or logical == "duration":
        return value
    try:
        if logical == "uuid":
            found = uuid.UUID(value)
            return found.bytes if tree["type"] == "fixed" else str(found)
        if logical == "date":
            return datetime.date.fromisoformat(value).toordinal() - _EPOCH.toordinal()
        unit = _UNITS[logical.rpartition("-")[2]]
        if logical.startswith("time-"):
            time = datetime.time.fromisoformat(value)
            if time.tzinfo is not None:
                raise ValueError("it has a time zone")
            seconds = (time.hour * 60 + time.minute) * 60 + time.second
            return (seconds * 1_000_000_000 + time.microsecond * 1_000) // unit
        moment = datetime.datetime.fromisoformat(value)
        local = logical.startswith("local-")
        if (moment.tzinfo is None) != local:
            raise ValueError("it has a time zone" if local else "it has no time zone")
        since = moment.replace(tzinfo=datetime.UTC) - _START if local else moment - _START
        return (since // datetime.timedelta(microseconds=1)) * 1_000 // unit
    except ValueError as error:
        raise BadValue(f"The value at {place or 'the top'} is no {logical}: {error}") from None


def to_json(value: Any, tree: dict[str, Any]) -> Any:
    """The JSON value of a plain value of a logical type. What no calendar has stays a number."""
    logical = tree["logicalType"]
    if logical == "decimal":
        if len(value) > MAX_DECIMAL_BYTES:
            raise BadValue(f"A decimal has {len(value):,} bytes: at most {MAX_DECIMAL_BYTES:,} are read")
        number = int.from_bytes(value.encode("latin-1"), "big", signed=True)
        return format(Decimal(number).scaleb(-tree.get("scale", 0), Context(prec=MAX_PRECISION * 3)), "f")
    if logical == "uuid":
        return str(uuid.UUID(bytes=value.encode("latin-1"))) if tree["type"] == "fixed" else value
    try:
        if logical == "date":
            return datetime.date.fromordinal(value + _EPOCH.toordinal()).isoformat()
        if logical == "duration" or logical.endswith("nanos"):
            return value
        since = datetime.timedelta(microseconds=value * _UNITS[logical.rpartition("-")[2]] // 1_000)
        if logical.startswith("time-"):
            return (_START + since).time().isoformat() if since < datetime.timedelta(days=1) and value >= 0 else value
        moment = _START + since
        return (moment.replace(tzinfo=None) if logical.startswith("local-") else moment).isoformat()
    except (ValueError, OverflowError):
        return value


def _unscaled(value: Any, tree: dict[str, Any], place: str) -> Any:
    """The bytes of a decimal."""
    where = f"The value at {place or 'the top'}"
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadValue(f"{where} is no decimal")
    if isinstance(value, str) and len(value) > 2 * MAX_PRECISION:
        raise BadValue(f"{where} is too long for a decimal")
    try:
        number = Decimal(value if isinstance(value, int) else str(value))
    except InvalidOperation:
        raise BadValue(f"{where} is no decimal") from None
    if not number.is_finite() or abs(number.adjusted()) > MAX_PRECISION:
        raise BadValue(f"{where} is no decimal with {tree['precision']} digits")
    scaled = number.scaleb(tree.get("scale", 0), Context(prec=MAX_PRECISION * 4))
    if scaled != scaled.to_integral_value():
        raise BadValue(f"{where} has more than {tree.get('scale', 0)} digits after the point")
    whole = int(scaled)
    if abs(whole) >= 10 ** tree["precision"]:
        raise BadValue(f"{where} has more than {tree['precision']} digits")
    size = tree["size"] if tree["type"] == "fixed" else (whole if whole >= 0 else ~whole).bit_length() // 8 + 1
    return whole.to_bytes(size, "big", signed=True)
