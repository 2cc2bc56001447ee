"""A caller with some topics, and short ways to ask the gate."""

from __future__ import annotations

import pytest

from headwater.errors import StatementRefused
from headwater.query.asking import PRESENT, AsOf, Engine
from headwater.query.gate.checking import check
from headwater.query.gate.statement import Statement, Topics

READABLE = ["Clicks", "headwater.topics.dotted", "my.topic", "my.topic-1", "orders", "topics.twice", "twice"]
"""The topics of the caller. There is also `salaries`, which it may not read."""
ENGINES = [Engine.DUCKDB, Engine.SPARK]


def topics(names: list[str] | None = None) -> Topics:
    mine = READABLE if names is None else names
    return Topics(has=mine.__contains__, names=lambda: mine)


def checked(sql: str, engine: Engine = Engine.DUCKDB, as_of: AsOf = PRESENT) -> Statement:
    return check(sql, engine, topics(), as_of)


def refusal(sql: str, engine: Engine = Engine.DUCKDB) -> str:
    """Why a statement is refused."""
    with pytest.raises(StatementRefused) as caught:
        checked(sql, engine)
    return str(caught.value)
