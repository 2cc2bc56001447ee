"""What the options of `headwater sql` mean: how statements are asked, and how their results are printed."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from headwater.errors import ConfigError

_TAG = re.compile(r"\d{4}-\d\d-\d\dT\d\d")
_OFFSETS = re.compile(r"\d+:\d+(,\d+:\d+)*")


class SqlOutput(enum.StrEnum):
    """How a result is printed."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


BINARY = (SqlOutput.ARROW, SqlOutput.PARQUET)
"""Forms that are not for a terminal, and that hold one result."""


@dataclass(slots=True)
class Wish:
    """How statements are asked and shown. A shell changes it."""

    output: SqlOutput = SqlOutput.TABLE
    engine: str = "auto"
    as_of: dict[str, Any] | None = None
    timeout: float | None = None
    parameters: tuple[Any, ...] = ()
    expanded: bool = False
    timing: bool = False
    most: int | None = None
    """Characters of a cell of a table; None for all."""


def parse_as_of(text: str) -> dict[str, Any]:
    """`7` is a version, `2026-11-17T22` the tag of an hour, `0:17,1:4` offsets, `@MILLISECONDS` or ISO 8601 a time."""
    from datetime import UTC, datetime

    from headwater.sdk.asking import as_of_body

    if text.isascii() and text.isdigit():
        return as_of_body(int(text))
    if text.startswith("@") and text[1:].isascii() and text[1:].isdigit():
        return {"time": int(text[1:])}
    if _TAG.fullmatch(text):
        return as_of_body(text)
    if _OFFSETS.fullmatch(text):
        parts = (part.split(":") for part in text.split(","))
        return as_of_body({int(partition): int(offset) for partition, offset in parts})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is no state of a table: give a version, a tag such as 2026-11-17T22, offsets such as 0:17,1:4, "
            "@milliseconds or a time such as 2026-01-31T12:00Z"
        ) from None
    return as_of_body(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def parse_parameter(text: str) -> str | int | float | bool | None:
    """A parameter: a JSON number, boolean, null or string; anything else is text as it is."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    return value if value is None or isinstance(value, str | int | float) else text
