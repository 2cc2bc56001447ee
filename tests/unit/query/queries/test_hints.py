"""What is offered for a column that an engine does not know."""

import pytest

from headwater.query.queries.hints import hint_of
from headwater.state.commands.columns import Column

PROMISES = ("Q1",)
DUCKDB = 'Binder Error: Referenced column "{}" not found in FROM clause! Candidate bindings: "key", "value"'
SPARK = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column or function parameter with name `{}` cannot be resolved."


def _column(name: str, *children: Column) -> Column:
    return Column(1, name, name, "struct" if children else "string", "", children)


COLUMNS = (
    _column("key_data", _column("id")),
    _column("value_data", _column("amount"), _column("id"), _column("unit price"), _column("customer", _column("x"))),
    _column("decoding_error", _column("text")),
)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("amount", "did you mean value_data.amount?"),
        ("AMOUNT", "did you mean value_data.amount?"),
        ("amuont", "did you mean value_data.amount?"),
        ("id", "did you mean key_data.id or value_data.id?"),
        ("unit price", 'did you mean value_data."unit price"?'),
        ("text", ""),
        ("x", ""),
    ],
)
def test_fields_of_keys_and_values_are_offered(name: str, hint: str) -> None:
    assert hint_of(DUCKDB.format(name), COLUMNS) == hint
    assert hint_of(SPARK.format(name), COLUMNS) == hint
    assert hint_of(SPARK.format(f"orders`.`{name}"), COLUMNS) == hint
    assert hint_of(DUCKDB.format(name), ()) == hint_of(f"Conversion Error: {name}", COLUMNS) == ""
