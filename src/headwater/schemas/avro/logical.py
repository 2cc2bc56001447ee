"""Logical types of Avro: whether one is valid for its type. Readers ignore a logical type that is not."""

from __future__ import annotations

import math
from typing import Any

MAX_PRECISION = 10_000
"""The most digits of a decimal. No reader has so many."""

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
