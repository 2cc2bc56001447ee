"""Completion: topics where tables are named, else columns, topics and keywords."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.cli.sql.completing import (
    COMMANDS,
    KNOWN_SECONDS,
    KnownColumns,
    KnownTopics,
    candidates,
    quoted,
    with_fields,
)
from headwater.errors import NotReady
from tests.support.secured import MovingClock

TOPICS = ["orders", "order-lines", "payments", "select"]
COLUMNS = ["offset", "value"]


@pytest.mark.parametrize(
    ("before", "word", "found"),
    [
        ("SELECT * FROM or", "or", ["orders", '"order-lines"']),
        ("select * from ", "", ["orders", '"order-lines"', "payments", '"select"']),
        ("SELECT * FROM a JOIN pay", "pay", ["payments"]),
        ('SELECT * FROM "ord', '"ord', ["orders", '"order-lines"']),
        ("SELECT off", "off", ["offset", "OFFSET"]),
        ("SELECT v", "v", ["value", "VALUES", "VERSION"]),
        ("sel", "sel", ['"select"', "SELECT"]),
        ("SELECT ", "", []),
        ("\\", "\\", list(COMMANDS)),
        ("\\ti", "\\ti", ["\\timing"]),
        ("\\d pay", "pay", ["payments"]),
        ("SELECT \\d", "\\d", []),
    ],
)
def test_candidates(before: str, word: str, found: list[str]) -> None:
    assert candidates(before, TOPICS, COLUMNS) == (word, found)


def test_names_that_need_quotes() -> None:
    assert [quoted(name) for name in ("orders", "a.b", "9", "from")] == ["orders", '"a.b"', '"9"', '"from"']


def test_topics_are_known_for_a_moment() -> None:
    """A gateway that does not answer changes nothing."""
    clock, answers = MovingClock(), [["a"], None, ["a", "b"]]
    asked: list[int] = []

    def look() -> list[str]:
        asked.append(1)
        found = answers.pop(0)
        if found is None:
            raise NotReady("away")
        return found

    known = KnownTopics(look, clock)
    assert known.names() == known.names() == ["a"] and len(asked) == 1
    clock.moved += KNOWN_SECONDS
    assert known.names() == ["a"] and len(asked) == 2
    clock.moved += KNOWN_SECONDS
    assert known.names() == ["a", "b"]


def test_columns_of_the_topics_of_a_statement() -> None:
    """Fields of structs are known, too. A gateway that does not answer changes nothing."""
    schema = pa.schema(
        [("offset", pa.int64()), ("value_data", pa.struct([("user", pa.string()), ("a b", pa.int64())]))]
    )
    clock, asked = MovingClock(), list[str]()

    def look(topic: str) -> list[str]:
        asked.append(topic)
        if len(asked) > 1:
            raise NotReady("away")
        return with_fields(schema)

    known = KnownColumns(look, clock)
    expected = ["offset", "value_data", "value_data.user", 'value_data."a b"']
    statement = 'SELECT value_data.u FROM "order-lines"'
    assert known.names(statement, TOPICS) == known.names(statement, TOPICS) == expected and asked == ["order-lines"]
    clock.moved += KNOWN_SECONDS
    assert known.names(statement, TOPICS) == expected and len(asked) == 2
    assert candidates("SELECT value_data.u", TOPICS, expected)[1] == ["value_data.user"]
