"""Which texts of typed columns repeat: those get a dictionary in the file.

A dictionary of texts that repeat makes a file smaller and a GROUP BY faster. One of texts that do not is built and then
given up, which takes longer than to write them. Some rows of the first row group tell which they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

SAMPLE_ROWS = 8_192
FEW = 256
"""Texts of which so few are seen count as repeating: nothing is lost by a small dictionary."""
REPEATING = 0.85
"""Texts repeat if at most this share of those in the sample is distinct: about 30,000 distinct ones in all."""


def repeating(batches: Sequence[pa.RecordBatch], typed: Sequence[pa.Field]) -> list[str]:
    """The paths in the file of the typed texts that repeat. Without rows these are all texts."""
    return [path for field in typed for path, values in _texts(_sample(batches, field), field.name) if _repeat(values)]


def _sample(batches: Sequence[pa.RecordBatch], field: pa.Field) -> pa.Array:
    """Values of a column, evenly over the rows."""
    import numpy as np
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    step = max(1, rows // SAMPLE_ROWS)
    taken = [batch.column(field.name).take(pa.array(np.arange(0, batch.num_rows, step))) for batch in batches]
    return pa.concat_arrays(taken) if taken else pa.nulls(0, field.type)


def _texts(values: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    """The texts inside values, with their paths."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_string(kind):
        yield path, values
    elif pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            yield from _texts(values.field(at), f"{path}.{kind.field(at).name}")
    elif pa.types.is_map(kind):
        yield from _texts(values.keys, f"{path}.key_value.key")
        yield from _texts(values.items, f"{path}.key_value.value")
    elif pa.types.is_list(kind):
        yield from _texts(values.values, f"{path}.list.element")


def _repeat(values: pa.Array) -> bool:
    from pyarrow import compute

    seen = values.slice(0, 2 * SAMPLE_ROWS)
    present: int = len(seen) - seen.null_count
    distinct: int = compute.count_distinct(seen, mode="only_valid").as_py()
    return distinct <= max(FEW, REPEATING * present)
