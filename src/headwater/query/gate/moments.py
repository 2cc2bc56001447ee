"""Time travel in a statement: `AT (VERSION => 3)` of DuckDB, `VERSION AS OF 3` of Spark, and their kin.

A version is a number, the tag of an hour (`'2026-11-17T22'`), or offsets by partition (`'0:1200,1:980'`: rows before
them). A time without a zone is in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from sqlglot import exp

from headwater.errors import StatementRefused
from headwater.query.asking import AsOf
from headwater.query.gate.parsing import place_of

_OFFSETS = re.compile(r"\d{1,9}:\d{1,19}(?:,\d{1,9}:\d{1,19})*")
_NUMBER = re.compile(r"\d{1,18}")
_TAG = re.compile(r"\d{4}-\d\d-\d\dT\d\d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = ("VERSION", "TIMESTAMP")


def moment_of(table: exp.Table) -> AsOf | None:
    """The moment that a table is pinned to in the statement; None if it is not."""
    when, version = table.args.get("when"), table.args.get("version")
    if when is None and version is None:
        return None
    found: exp.Expr
    if isinstance(when, exp.HistoricalData) and version is None:
        found, kind, plain = when, when.args.get("kind"), when.this == "AT"
    elif isinstance(version, exp.Version) and when is None:
        found, kind, plain = version, version.this, version.args.get("kind") == "AS OF"
    else:
        raise StatementRefused(f"a table is pinned once{place_of(table)}")
    if not plain or kind not in _KINDS:
        raise StatementRefused(f"tables are pinned by VERSION or TIMESTAMP, to one moment{place_of(table)}")
    value = found.args.get("expression")
    return _version(value, table) if kind == "VERSION" else _time(value, table)


def _version(value: exp.Expr | None, table: exp.Table) -> AsOf:
    text = _text(value)
    if text is not None and _NUMBER.fullmatch(text):
        return AsOf(version=int(text))
    if text is not None and _TAG.fullmatch(text):
        return AsOf(tag=text)
    if text is not None and _OFFSETS.fullmatch(text):
        pairs = [pair.split(":") for pair in text.split(",")]
        offsets = {int(partition): int(offset) for partition, offset in pairs}
        if len(offsets) == len(pairs):
            return AsOf(offsets=offsets)
    raise StatementRefused(
        "a version is a number, an hour's tag such as '2026-11-17T22', or offsets by partition such as "
        f"'0:1200,1:980'{place_of(table)}"
    )


def _time(value: exp.Expr | None, table: exp.Table) -> AsOf:
    if isinstance(value, exp.Cast) and value.to.this in exp.DataType.TEMPORAL_TYPES:
        value = value.this
    text = _text(value) if isinstance(value, exp.Literal) and value.is_string else None
    try:
        when = datetime.fromisoformat(text or "")
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        micros = (when - _EPOCH) // (_EPOCH.resolution)
    except (ValueError, OverflowError) as error:
        raise StatementRefused(
            f"a time is written as '2026-11-17 22:00:00', in UTC or with a zone{place_of(table)}"
        ) from error
    return AsOf(at_ms=micros // 1000)


def _text(value: exp.Expr | None) -> str | None:
    return str(value.this) if isinstance(value, exp.Literal) else None
