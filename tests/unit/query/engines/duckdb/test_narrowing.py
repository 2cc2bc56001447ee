"""Fields that a statement names are read, and no others; whatever may use more gets everything."""

import duckdb
import pytest

from headwater.query.engines.duckdb.narrowing import anchored, narrowed
from headwater.query.engines.duckdb.reading import check_reading
from headwater.state.commands.columns import Column


def _column(name: str, *children: Column, kind: str = "") -> Column:
    return Column(1, name, name, kind or ("struct" if children else "long"), "", children)


TYPED = (
    _column("decode_error", kind="string"),
    _column(
        "value_data",
        _column("user"),
        _column("At", _column("x"), _column("y"), _column("value_data")),
        _column("tags", _column("element", _column("x")), kind="list"),
    ),
)


def _shown(column: Column) -> str:
    inner = ", ".join(map(_shown, column.children))
    return f"{column.name}({inner})" if inner else column.name


WHOLE = "value_data(user, At(x, y, value_data), tags(element(x)))"


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT value_data.user, count(*) FROM v GROUP BY 1", "value_data(user)"),
        ("SELECT 1 FROM v AS t WHERE t.value_data.at.Y = 1 AND v.value_data.user = 1", "value_data(user, At(y))"),
        ("SELECT value_data.at.x, value_data.at FROM v", "value_data(At(x, y, value_data))"),
        ("SELECT sum(VALUE_DATA.tags[1].x) FROM v", "value_data(tags(element(x)))"),
        ("SELECT value_data.tags.element FROM v", "value_data(tags(element(x)))"),
        ("WITH w AS (SELECT value_data.user AS u FROM v) SELECT u FROM w", "value_data(user)"),
        ("SELECT a.value_data.user FROM v a JOIN v b USING (partition)", "value_data(user)"),
        ("SELECT count(*) FROM v", WHOLE),
        ("SELECT value_data.at.value_data FROM v", WHOLE),
        ("SELECT value_data.missing, value_data.user FROM v", WHOLE),
        ("SELECT value_data.user, * FROM v", WHOLE),
        ("SELECT value_data.user, v.* FROM v", WHOLE),
        ("SELECT value_data.user, COLUMNS('v.*') FROM v", WHOLE),
        ("FROM v WHERE value_data.user = 1", WHOLE),
        ("SELECT value_data.user FROM v WHERE value_data IS NULL", WHOLE),
        ("SELECT value_data.user, (SELECT max(to_json(t)) FROM v AS t) FROM v", WHOLE),
        ("SELECT value_data.user, v FROM v", WHOLE),
        ("SELECT value_data.user, c FROM v AS t(a, b, c)", WHOLE),
        ("SELECT a.value_data.user FROM v a JOIN v b USING (value_data)", WHOLE),
        ("SELECT v.value_data.user FROM v NATURAL JOIN v AS b", WHOLE),
        ("SELECT value_data.user, #1 FROM v", WHOLE),
        ("SELECT value_data.user FROM v UNPIVOT (a FOR n IN (partition))", WHOLE),
        ("SELECT list_transform([1], lambda value_data: value_data + 1), value_data.user FROM v", WHOLE),
        ("SELECT value_data['user'], struct_extract(value_data, 'user') FROM v", WHOLE),
    ],
)
def test_narrowed(sql: str, wanted: str) -> None:
    with duckdb.connect() as connection:
        error, value = narrowed(TYPED, check_reading(connection, sql, ["v"]))
    assert (_shown(error), _shown(value)) == ("decode_error", wanted)


def test_the_first_field_of_each_struct_stays() -> None:
    """Files of all versions have it, and DuckDB reads no struct of which a file has no field."""
    column = _column(
        "c",
        _column("a", _column("map", _column("key"), _column("value"), kind="map"), _column("z")),
        _column("b", _column("x"), _column("y", _column("p"), _column("q"))),
        _column("d"),
    )
    part = _column("c", _column("b", _column("y", _column("q"))))
    assert _shown(anchored(column, part)) == "c(a(map(key, value)), b(x, y(p, q)))"
    assert anchored(column, column) == column and _shown(anchored(column, None)) == "c(a(map(key, value)))"
