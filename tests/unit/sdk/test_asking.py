"""SQL from Python: results in all kinds, parameters, and failures in words. The answers are written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import headwater
from headwater.errors import BadInput, NotFound, QueryCancelled, QueryFailed, QueryLimit, StatementRefused
from headwater.query.asking import AsOf
from headwater.sdk.asking import body_of
from headwater.sdk.connection import Connection
from headwater.settings.settings import Gateway, Settings
from tests.support.gateways import gateway, listening
from tests.support.queries import NOTED, NOTES, REASON, WrittenAnswers, answering

ROWS = pa.record_batch({"user": ["ann", "bob"], "orders": [3, None]})
MANY = pa.record_batch({"n": list(range(20_000))})


def with_answers(story: Callable[[Connection, WrittenAnswers], None]) -> None:
    """Run a story with a connection to a gateway with written answers."""

    def tell(url: str, written: WrittenAnswers) -> None:
        with headwater.connect(url, timeout=1) as cluster:
            story(cluster, written)

    answering(tell)


def test_results() -> None:
    def story(cluster: Connection, written: WrittenAnswers) -> None:
        written.write("s", ROWS, ROWS).write(NOTED, ROWS)
        with cluster.sql("s", parameters=[1, b"\xff", None], as_of={0: 7}, timeout=9) as result:
            assert (result.query_id, result.engine, result.reason) == ("q0", "duckdb", REASON)
            assert result.versions == {"orders": 3} and result.schema == ROWS.schema
            assert result.rows() == [("ann", 3), ("bob", None)] * 2
            assert result.arrow() == pa.Table.from_batches([ROWS, ROWS])
            assert result.pandas()["user"].tolist() == ["ann", "bob"] * 2
            assert sum(one.num_rows for one in result.batches()) == 4
        [question] = written.questions
        assert question.parameters == (1, b"\xff", None) and question.as_of == AsOf(offsets={0: 7})
        assert question.limits is not None and question.limits.seconds == 9
        with cluster.sql(NOTED) as noted:
            assert not result.notes and noted.notes == " ".join(NOTES)
        with cluster.sql("s") as once:
            assert next(iter(once.batches())).num_rows == 2
            with pytest.raises(BadInput, match="read once"):
                once.arrow()

    with_answers(story)


def test_polars() -> None:
    def story(cluster: Connection, written: WrittenAnswers) -> None:
        written.write("s", ROWS, ROWS)
        with cluster.sql("s") as result:
            assert result.polars().rows() == [("ann", 3), ("bob", None)] * 2

    with_answers(story)


def test_failures() -> None:
    def story(cluster: Connection, written: WrittenAnswers) -> None:
        with pytest.raises(StatementRefused, match="no answer"):
            cluster.sql("unknown")
        for error in (QueryFailed("no number"), QueryLimit("more than 10 rows")):
            written.write("s", ROWS, error=error)
            with pytest.raises(type(error), match=str(error)):
                cluster.sql("s")
        written.write("late", *[MANY] * 5, error=QueryLimit("more than 100,000 rows"))
        result = cluster.sql("late")
        with pytest.raises(QueryFailed, match="more than 100,000 rows"):
            result.arrow()
        written.write("held", *[MANY] * 2, held=True)
        result = cluster.sql("held")
        batches = result.batches()
        next(batches)
        result.cancel()
        with pytest.raises(QueryCancelled):
            list(batches)
        result.close()

    with_answers(story)


def test_a_gateway_without_sql() -> None:
    async def main() -> None:
        async with gateway(Settings(gateway=Gateway(http="127.0.0.1:0"))) as world, listening(world) as server:

            def tell() -> None:
                with headwater.connect(server.url) as cluster, pytest.raises(NotFound, match="answers no SQL"):
                    cluster.sql("SELECT 1")

            await asyncio.to_thread(tell)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("as_of", "body"),
    [
        (7, {"version": 7}),
        (datetime(2026, 1, 31, 12, tzinfo=UTC), {"time": 1_769_860_800_000}),
        ("2026-11-17T22", {"tag": "2026-11-17T22"}),
        ({0: 17, 3: 4}, {"offsets": {"0": 17, "3": 4}}),
    ],
)
def test_states_of_tables(as_of: Any, body: dict[str, Any]) -> None:
    assert body_of("s", as_of=as_of)["as_of"] == body


def test_bad_questions() -> None:
    for call, words in (
        (lambda: body_of(" "), "statement is missing"),
        (lambda: body_of("s", "abc"), "list of values"),
        (lambda: body_of("s", [object()]), "a parameter is text"),  # type: ignore[list-item]
        (lambda: body_of("s", timeout=0), "above 0"),
        (lambda: body_of("s", as_of=True), "`as_of` is True"),
    ):
        with pytest.raises(BadInput, match=words):
            call()
