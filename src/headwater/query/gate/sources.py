"""The caller's text as DuckDB can read it, so that DuckDB says what the caller has written.

Little is changed, and only what Headwater's SQL means otherwise than DuckDB's. A parameter gets its name. The column
`offset` and names of several parts get quotes. An arrow of JSON gets brackets around its operands. What pins a table to
a moment is blanked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from headwater.query.gate.dialects import extent_of
from headwater.query.gate.statement import parameter_name

_Change = tuple[int, int, str]
"""Where a part begins, the place behind it, and what is there instead."""
_MOMENTS = (exp.Version, exp.HistoricalData)
_ARROWS = (exp.JSONExtract, exp.JSONExtractScalar)
_OFFSET = "offset"


def source_of(sql: str, places: Sequence[int], tree: exp.Expr) -> str:
    """A text that DuckDB reads. `tree` is that of `sql`, as it was parsed, and `places` are those of its parameters."""
    changes = [(place, place + 1, f"${parameter_name(i)}") for i, place in enumerate(places)]
    for node in tree.walk():
        changes += _changes(node, sql)
    found: list[str] = []
    at = 0
    for start, behind, text in sorted(changes):
        if start >= at:
            found += sql[at:start], text
            at = behind
    return "".join([*found, sql[at:]])


def _changes(node: exp.Expr, sql: str) -> Iterator[_Change]:
    extent = extent_of(node)
    if extent is not None and isinstance(node, _ARROWS):
        yield extent[0], extent[0], "("
        yield extent[1], extent[1], ")"
    elif extent is not None and isinstance(node, _MOMENTS):
        yield *extent, "".join(char if char == "\n" else " " for char in sql[slice(*extent)])
    elif isinstance(node, exp.Identifier) and not node.quoted and node.name.lower() == _OFFSET:
        start = node.meta.get("start")
        if start is not None and sql[start : start + len(_OFFSET)].lower() == _OFFSET:
            yield start, start + len(_OFFSET), f'"{node.name}"'
    elif isinstance(node, exp.Table) and len(node.parts) > 1:
        places = [place for part in node.parts for place in (part.meta.get("start"), part.meta.get("end"))]
        known = [int(place) for place in places if place is not None]
        if len(known) == len(places):
            name = ".".join(str(part.name) for part in node.parts).replace('"', '""')
            yield min(known), max(known) + 1, f'"{name}"'
