"""Results as tables for people. Values can come from anybody, so what would move the cursor is shown as an escape."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.gateway.results.cells import texts_of
from headwater.ops.visible import visible, width_of

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 1_000
"""Rows that decide how wide the columns are."""
NULL = "NULL"


def lines_of(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, expanded: bool = False, most: int | None = None
) -> Iterator[str]:
    """The lines of a result. Cells are cut at `most` characters. `expanded`: a line for each cell."""
    names = [visible(name) for name in schema.names]
    count = 0
    if expanded:
        margin = max((width_of(name) for name in names), default=0)
        for batch in batches:
            for row in _rows(batch, most):
                count += 1
                yield f"-[ row {count} ]-"
                yield from (f"{_left(name, margin)} | {cell}" for name, cell in zip(names, row, strict=True))
    else:
        rows = (row for batch in batches for row in _rows(batch, most))
        for line in _table(names, [is_number(field.type) for field in schema], rows):
            count += 1
            yield line
        count -= 2
    yield f"({count} row{'' if count == 1 else 's'})"


def is_number(kind: pa.DataType) -> bool:
    """Whether the cells of a column are numbers, which are shown on the right."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _table(names: list[str], numbers: list[bool], rows: Iterator[list[str]]) -> Iterator[str]:
    """The line of names, the line below it, and the rows."""
    first = list(itertools.islice(rows, SAMPLE_ROWS))
    widths = [max([width_of(name), *(width_of(row[i]) for row in first)]) for i, name in enumerate(names)]
    yield " | ".join(_left(name, width) for name, width in zip(names, widths, strict=True)).rstrip()
    yield "-+-".join("-" * width for width in widths)
    for group in (first, rows):
        for row in group:
            cells = zip(row, widths, numbers, strict=True)
            yield " | ".join(_right(t, w) if number else _left(t, w) for t, w, number in cells).rstrip()


def _rows(batch: pa.RecordBatch, most: int | None) -> Iterator[list[str]]:
    columns = [[_cell(text, most) for text in texts_of(column)] for column in batch.columns]
    for row in zip(*columns, strict=True):
        yield list(row)


def _cell(text: str | None, most: int | None) -> str:
    if text is None:
        return NULL
    shown = visible(text if most is None else text[: most + 1])
    return shown if most is None or len(shown) <= most else f"{shown[: most - 1]}…"


def _left(text: str, width: int) -> str:
    return text + " " * (width - width_of(text))


def _right(text: str, width: int) -> str:
    return " " * (width - width_of(text)) + text
