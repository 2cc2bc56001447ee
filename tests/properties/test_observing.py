"""Properties 33 and 35: fields of log lines, and bytes that an object store counts."""

from __future__ import annotations

import contextlib
import json
import logging
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import HeadwaterError, ObjectMissing, QueryFailed, StoreUnavailable
from headwater.objects import ObjectStore, wrapped
from headwater.objects.measuring import MeasuredStore
from headwater.objects.metrics import collect
from headwater.ops.logs import JsonFormatter
from headwater.query.asking import Engine, Question
from headwater.query.engines.contract import Answer, EngineTask
from headwater.query.holding import Holding
from headwater.query.queries import Queries
from headwater.settings.objects import StoreOptions
from headwater.settings.settings import Sql
from tests.support.flaky import FlakyStore
from tests.support.virtual_nodes import NodeWorld, topic

QUESTIONS = 120
SCHEMA = pa.schema([("n", pa.int64())])
standard = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
fields = st.dictionaries(
    st.from_regex(r"[a-z_]{1,10}", fullmatch=True).filter(lambda name: name not in standard | {"error"}),
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    max_size=4,
)


@given(fields, fields, st.text(max_size=30), st.booleans())
def test_a_log_line_has_all_fields(
    own: dict[str, object], process: dict[str, object], message: str, failed: bool
) -> None:
    """33: each line is one JSON object, with the fields of the caller and of the process, and the error if any."""
    record = logging.makeLogRecord({"name": "headwater.x", "levelno": 40, "levelname": "ERROR", "msg": message, **own})
    if failed:
        try:
            raise StoreUnavailable("the store is away")
        except HeadwaterError as error:
            record.exc_info = (type(error), error, error.__traceback__)
    line = JsonFormatter(**process).format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert {name: found[name] for name in own} == own
    assert {name: found[name] for name in process if name not in own} == {
        name: value for name, value in process.items() if name not in own
    }
    assert {"time", "level", "logger", "message"} <= found.keys() and ("error" in found) == failed


class Answered:
    """An answer of some batches, which may break off."""

    schema = SCHEMA
    percent = 0.0

    def __init__(self, batches: int, error: HeadwaterError | None) -> None:
        self._batches = batches
        self._error = error

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        for number in range(self._batches):
            yield pa.record_batch({"n": [number]}, schema=SCHEMA)
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        return None


class SomeEngine:
    """An engine that answers, fails at once, or fails in the middle."""

    engine = Engine.DUCKDB

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    async def run(self, task: EngineTask) -> Answer:
        fate = self._chance.random()
        if fate < 0.2:
            raise QueryFailed("a value cannot be cast")
        return Answered(self._chance.randint(0, 3), QueryFailed("division by zero") if fate < 0.4 else None)

    async def close(self) -> None:
        return None


def test_each_query_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """33: two lines with the query's id: the question, and how it ended, with the reason if it failed."""
    caplog.set_level("INFO", "headwater.sql")
    chance = random.Random(33)
    statements = ["SELECT value FROM t", "SELECT count(*) FROM t", "SELECT nothing FROM nowhere", "DROP TABLE t"]

    async def main() -> list[tuple[str, int, str]]:
        node = await NodeWorld().node()
        await topic(node)
        holding = Holding(node.domains)
        queries = Queries(node.domains, holding, Sql(), {Engine.DUCKDB: SomeEngine(chance)})
        asked = []
        for number in range(QUESTIONS):
            rows, error, asker = 0, "", f"User:u{number % 7}"
            question = Question(sql=chance.choice(statements), asker=asker, readable=lambda _: True)
            try:
                query = await queries.ask(question)
                if chance.random() < 0.2:
                    await query.cancel("it is enough")
                async for batch in query.batches():
                    rows += batch.num_rows
            except HeadwaterError as failure:
                error = str(failure)
            asked.append((asker, rows, error))
        await queries.close()
        await node.stop()
        return asked

    asked = run(main())
    lines = [json.loads(JsonFormatter(node=1).format(r)) for r in caplog.records if r.name == "headwater.sql"]
    begun = [line for line in lines if line["message"] == "a query was asked"]
    ended = [line for line in lines if line["message"] == "a query has ended"]
    assert len(begun) == len(ended) == QUESTIONS
    assert len({line["query"] for line in begun}) == QUESTIONS
    for first, last, (asker, rows, error) in zip(begun, ended, asked, strict=True):
        assert first["query"] == last["query"] and first["asker"] == last["asker"] == asker and first["sql"]
        assert (last["rows"], last["reason"]) == (rows, error)
        assert (last["phase"] == "done") == (not error) == (last["level"] == "info")
        assert {"engine", "seconds", "result_bytes", "files", "file_bytes", "hot_bytes"} <= last.keys()
    assert {line["phase"] for line in ended} == {"done", "failed", "cancelled"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an object store."""

    name: str
    path: str
    pieces: list[bytes]
    start: int
    length: int | None

    async def make(self, store: ObjectStore) -> int:
        """Make the call; returns how many bytes were stored or read."""
        if self.name == "put":
            await store.put(self.path, self.pieces)
        elif self.name == "create":
            return len(b"".join(self.pieces)) if await store.create(self.path, self.pieces) else 0
        elif self.name == "get":
            return len(await store.get(self.path, self.start, self.length))
        elif self.name == "size":
            await store.size(self.path)
        else:
            await store.delete(self.path)
        return len(b"".join(self.pieces)) if self.name == "put" else 0


calls = st.builds(
    Call,
    st.sampled_from(["put", "create", "get", "get", "size", "delete"]),
    st.sampled_from(["a", "b/c", "b/d"]),
    st.lists(st.binary(max_size=40), max_size=3),
    st.integers(0, 50),
    st.none() | st.integers(0, 60),
)


@settings(max_examples=150)
@given(st.lists(calls, max_size=12), st.lists(st.booleans(), max_size=12))
def test_bytes_that_are_counted_are_those_that_moved(made: list[Call], failing: list[bool]) -> None:
    """35: bytes that callers stored and read, by operation. Failed attempts and missing objects count nothing."""

    async def main() -> None:
        inner = FlakyStore([StoreUnavailable("down") if fails else None for fails in failing])
        store = wrapped(inner, StoreOptions(), VirtualClock(), SeededChance())
        assert isinstance(store, MeasuredStore)
        moved = dict.fromkeys(store.stats.operations(), 0)
        for call in made:
            with contextlib.suppress(StoreUnavailable, ObjectMissing):
                moved[call.name] += await call.make(store)
        found = {metric.name: metric for metric in collect(store)}["headwater_objects_bytes_total"]
        assert {labels["operation"]: value for labels, value in found.samples} == moved
        counted = {name: stats.calls for name, stats in store.stats.operations().items()}
        assert counted == {name: sum(call.name == name for call in made) for name in counted}

    run(main())
