"""What the server says of itself and of its SQL. The schemas are exactly those of the protocol: Go's driver panics on
others."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from headwater.query.gate.parsing import MAX_TEXT
from headwater.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

_TEXT, _BOOL, _LONG, _BITS, _LIST, _MAP = range(6)
"""The members of the union, in their order."""
NULLS_LAST = 3
CASE_INSENSITIVE = 1
MAX_NAME = 249
"""Characters of a topic's name."""

_FALSE = (500, 501, 502, 524, 527, 536, 537, 556, 563, 565, 566, 572, 573, 574, 575, 576)
"""Creating and dropping, updates, procedures, transactions, batches, savepoints, named parameters, locators."""
_TRUE = (506, 515, 516, 518, 520, 521, 523, 532, 539)
"""All tables are selectable; aliases, expressions in ORDER BY, LIKE with ESCAPE, correlated subqueries."""
_UNLIMITED = (541, 542, 543, 544, 545, 546, 547, 548, 549, 550, 551, 552, 553, 554, 555, 558, 560, 561)
"""Limits that are not known, 0."""
_BITMASKS = {
    522: 3,
    525: 3,
    526: 1,
    533: 0,
    534: 0,
    528: 2,
    535: 0,
    538: 15,
    540: 3,
    564: 1,
    567: 2,
    568: 2,
    569: 2,
    570: 0,
    571: 0,
}
"""GROUP BY, grammar, subqueries, unions; result sets are read forwards only."""
_LISTS: dict[int, list[str]] = {
    508: ["ASOF", "EXCLUDE", "FILTER", "ILIKE", "PIVOT", "QUALIFY", "REPLACE", "UNPIVOT"],
    509: ["ABS", "CEILING", "EXP", "FLOOR", "LOG", "MOD", "POWER", "ROUND", "SIGN", "SQRT"],
    510: ["CONCAT", "LCASE", "LEFT", "LENGTH", "LTRIM", "REPLACE", "RIGHT", "RTRIM", "SUBSTRING", "UCASE"],
    511: [],
    512: ["CURDATE", "HOUR", "MINUTE", "MONTH", "QUARTER", "SECOND", "WEEK", "YEAR"],
}


def infos() -> dict[int, tuple[int, Any]]:
    """By number, the member of the union and the value."""
    import pyarrow as pa

    found: dict[int, tuple[int, Any]] = {
        0: (_TEXT, "Headwater"),
        1: (_TEXT, __version__),
        2: (_TEXT, pa.__version__),
        3: (_BOOL, True),
        4: (_BOOL, True),
        5: (_BOOL, False),
        8: (_BITS, 0),
        9: (_BOOL, True),
        10: (_BOOL, False),
        11: (_BOOL, False),
        100: (_BITS, 0),
        101: (_BITS, 0),
        503: (_LONG, CASE_INSENSITIVE),
        504: (_TEXT, '"'),
        505: (_LONG, CASE_INSENSITIVE),
        507: (_LONG, NULLS_LAST),
        513: (_TEXT, "\\"),
        514: (_TEXT, ""),
        517: (_MAP, []),
        519: (_BOOL, False),
        529: (_TEXT, "schema"),
        530: (_TEXT, "procedure"),
        531: (_TEXT, "catalog"),
        557: (_LONG, MAX_TEXT),
        559: (_LONG, MAX_NAME),
        562: (_LONG, 0),
    }
    found |= dict.fromkeys(_FALSE, (_BOOL, False))
    found |= dict.fromkeys(_TRUE, (_BOOL, True))
    found |= dict.fromkeys(_UNLIMITED, (_LONG, 0))
    found |= {number: (_BITS, bits) for number, bits in _BITMASKS.items()}
    found |= {number: (_LIST, words) for number, words in _LISTS.items()}
    return dict(sorted(found.items()))


@functools.cache
def info_schema() -> pa.Schema:
    """The schema of the answer to `CommandGetSqlInfo`."""
    import pyarrow as pa

    members = [
        pa.field("string_value", pa.string(), nullable=False),
        pa.field("bool_value", pa.bool_(), nullable=False),
        pa.field("bigint_value", pa.int64(), nullable=False),
        pa.field("int32_bitmask", pa.int32(), nullable=False),
        pa.field("string_list", pa.list_(pa.string()), nullable=False),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32())), nullable=False),
    ]
    return pa.schema(
        [
            pa.field("info_name", pa.uint32(), nullable=False),
            pa.field("value", pa.dense_union(members), nullable=False),
        ]
    )


def info_table(wanted: Collection[int]) -> pa.Table:
    """The infos with some numbers; all if none is named. Numbers that are not known are left out."""
    import pyarrow as pa

    rows = [(number, *told) for number, told in infos().items() if not wanted or number in wanted]
    kind = info_schema().field("value").type
    children: list[list[Any]] = [[] for _ in range(kind.num_fields)]
    places = []
    for _, member, value in rows:
        places.append(len(children[member]))
        children[member].append(value)
    codes = pa.array([member for _, member, _ in rows], pa.int8())
    at = pa.array(places, pa.int32())
    values = pa.Array.from_buffers(
        kind,
        len(rows),
        [None, codes.buffers()[1], at.buffers()[1]],
        children=[pa.array(own, kind.field(i).type) for i, own in enumerate(children)],
    )
    return pa.Table.from_arrays([pa.array([row[0] for row in rows], pa.uint32()), values], schema=info_schema())


@functools.cache
def type_schema() -> pa.Schema:
    """The schema of the answer to `CommandGetXdbcTypeInfo`."""
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("type_name", pa.string(), nullable=False),
            pa.field("data_type", pa.int32(), nullable=False),
            pa.field("column_size", pa.int32()),
            pa.field("literal_prefix", pa.string()),
            pa.field("literal_suffix", pa.string()),
            pa.field("create_params", pa.list_(pa.field("item", pa.string(), nullable=False))),
            pa.field("nullable", pa.int32(), nullable=False),
            pa.field("case_sensitive", pa.bool_(), nullable=False),
            pa.field("searchable", pa.int32(), nullable=False),
            pa.field("unsigned_attribute", pa.bool_()),
            pa.field("fixed_prec_scale", pa.bool_(), nullable=False),
            pa.field("auto_increment", pa.bool_()),
            pa.field("local_type_name", pa.string()),
            pa.field("minimum_scale", pa.int32()),
            pa.field("maximum_scale", pa.int32()),
            pa.field("sql_data_type", pa.int32(), nullable=False),
            pa.field("datetime_subcode", pa.int32()),
            pa.field("num_prec_radix", pa.int32()),
            pa.field("interval_precision", pa.int32()),
        ]
    )


_TYPES: tuple[tuple[str, int, int | None, bool, int | None], ...] = (
    ("TINYINT", -6, 3, False, None),
    ("BIGINT", -5, 19, False, None),
    ("BLOB", -3, None, True, None),
    ("BOOLEAN", -7, 1, False, None),
    ("DECIMAL", 3, 38, False, None),
    ("INTEGER", 4, 10, False, None),
    ("SMALLINT", 5, 5, False, None),
    ("FLOAT", 6, 24, False, None),
    ("DOUBLE", 8, 53, False, None),
    ("VARCHAR", 12, None, True, None),
    ("DATE", 91, 10, True, 1),
    ("TIME", 92, 15, True, 2),
    ("TIMESTAMP", 93, 26, True, 3),
)
"""Name, JDBC's number, size, whether literals have quotes, and the subcode of dates and times."""
_DATETIME = 9
_NUMBERS = (-6, -5, 3, 4, 5, 6, 8)
_BINARY_RADIX = (6, 8)


def type_table(wanted: int | None) -> pa.Table:
    """The types of SQL, or the one with JDBC's number."""
    import pyarrow as pa

    rows = []
    for name, number, size, quoted, subcode in sorted(_TYPES, key=lambda line: (line[1], line[0])):
        if wanted is not None and wanted != number:
            continue
        is_number = number in _NUMBERS
        rows.append(
            {
                "type_name": name,
                "data_type": number,
                "column_size": size,
                "literal_prefix": "'" if quoted else None,
                "literal_suffix": "'" if quoted else None,
                "nullable": 1,
                "case_sensitive": name == "VARCHAR",
                "searchable": 3,
                "unsigned_attribute": False if is_number else None,
                "fixed_prec_scale": False,
                "auto_increment": False if is_number else None,
                "local_type_name": name,
                "sql_data_type": _DATETIME if subcode else number,
                "datetime_subcode": subcode,
                "num_prec_radix": (2 if number in _BINARY_RADIX else 10) if is_number else None,
            }
        )
    return pa.Table.from_pylist(rows, schema=type_schema())
