"""Typed columns in SQL, with real workers: settled rows, rows of the WAL, older versions, kinds of schemas."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import QueryFailed
from headwater.query.asking import AsOf
from headwater.replica.schema_sources import Draft
from headwater.replica.schemas import Registry
from tests.support.asking import ONE, QueryWorld, query_world
from tests.unit.schemas.test_typer import LINE, POINT, PROTO, avro, framed

PROMISES = ("T7",)


def told(*records: Any) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def test_typed_queries(tmp_path: Path) -> None:
    """One gateway. The worker has given up its rights before it decodes."""

    async def main() -> None:
        async with query_world(tmp_path, workers=1) as world:
            await _json(world)
            await _flattened(world)
            await _schemas(world)
            await _before_settling(world)

    asyncio.run(main())


async def _settled(world: QueryWorld) -> None:
    """Settle, and let the gateway see it."""
    for _ in range(3):
        await world.settle()
    await world.core.domains[ONE].barrier()


async def _json(world: QueryWorld) -> None:
    await world.topic("t", headwater_value_schema="json")
    await world.write("t", told({"user": "ann", "n": 1, "at": {"x": 1}}))
    values = "SELECT offset, value_data FROM t ORDER BY 1"
    with pytest.raises(QueryFailed, match="value_data"):
        await world.rows(values)  # the first settled file brings the columns
    await _settled(world)
    first = world.table("t").last_sequence
    ann = {"user": "ann", "n": 1, "at": {"x": 1}}
    assert await world.rows(values) == [(0, ann)]
    await world.write("t", [*told({"user": "bob", "tags": ["a"]}), b"{bad"])
    bob = {"user": "bob", "n": None, "at": None}
    assert await world.rows(values) == [(0, ann), (1, bob), (2, None)]
    assert await world.rows("SELECT count(*) FROM t WHERE decode_error IS NOT NULL") == [(1,)]
    await _settled(world)
    wide = [{**ann, "tags": None}, {**bob, "tags": ["a"]}, None]
    assert await world.rows(values) == list(enumerate(wide))
    await world.write("t", told({"user": "cy", "at": {"x": 7, "y": 1.5}, "tags": []}))
    nested = (
        "SELECT value_data.at.x, t.value_data.tags[1], value_data['user'] FROM t "
        "WHERE value_data.user > 'b' ORDER BY offset"
    )
    assert await world.rows(nested) == [(None, "a", "bob"), (7, None, "cy")]
    assert await world.rows("SELECT count(*) FROM (SELECT * FROM t) WHERE value_data IS NULL") == [(1,)]
    columns = dict(await world.rows("DESCRIBE t"))
    assert list(columns)[-2:] == ["decode_error", "value_data"]
    assert columns["value_data"] == 'STRUCT("user" VARCHAR, "n" BIGINT, "at" STRUCT("x" BIGINT), "tags" VARCHAR[])'
    query = await world.ask("SELECT * FROM t LIMIT 0")
    assert query.schema.names == list(columns)
    await query.cancel("seen")
    then = AsOf(version=first)
    assert await world.rows(values, as_of=then) == [(0, ann)]
    assert dict(await world.rows("DESCRIBE t", as_of=then))["value_data"].endswith('STRUCT("x" BIGINT))')


async def _flattened(world: QueryWorld) -> None:
    await world.topic("flat.topic", headwater_value_schema="json", headwater_table_flatten="true")
    await world.write("flat.topic", told({"user": "ann", "offset": 5, "deep": {"a b": 1}}))
    await _settled(world)
    await world.write("flat.topic", told({"user": "bob", "deep": {"a b": 2}}))
    found = await world.rows("SELECT flat.topic.user, value_offset, flat.topic.deep FROM flat.topic ORDER BY offset")
    assert [(user, number, list(deep.values())) for user, number, deep in found] == [
        ("ann", 5, [1]),
        ("bob", None, [2]),
    ]


async def _schemas(world: QueryWorld) -> None:
    """The schema of the second record is of another subject. That of Protobuf is compiled by the gateway."""
    registry = Registry(world.core.cluster)
    _, point = await registry.register("s-value", Draft("AVRO", json.dumps(POINT)))
    _, line = await registry.register("lines", Draft("AVRO", json.dumps(LINE)))
    _, proto = await registry.register("p-value", Draft("PROTOBUF", PROTO))
    await world.topic("s", headwater_value_schema="auto")
    await world.topic("p", headwater_value_schema="auto")
    points, lines = framed(point.id, avro(POINT, {"x": 1})), framed(line.id, avro(LINE, {"x": "a", "y": 2}))
    message = framed(proto.id, b"\x00\x08\x05")
    for settled in (True, False):
        await world.write("s", [points, lines, framed(999, b"\x02")])
        await world.write("p", [message])
        if settled:
            await _settled(world)
    values = [{"x": 1, "x__string": None, "y": None}, {"x": None, "x__string": "a", "y": 2}, None]
    assert [value for (value,) in await world.rows("SELECT value_data FROM s ORDER BY offset")] == [*values, *values]
    assert await world.rows("SELECT offset, value_data.n FROM p ORDER BY 1") == [(0, 5), (1, 5)]


async def _before_settling(world: QueryWorld) -> None:
    """The columns of a topic's schemas exist from the first query on, and those of a newer schema at once."""
    registry = Registry(world.core.cluster)
    first = {"type": "record", "name": "P", "fields": [{"name": "amount", "type": "long"}]}
    note = {"name": "note", "type": ["null", "string"], "default": None}
    second = {**first, "fields": [*first["fields"], note]}
    _, one = await registry.register("early-value", Draft("AVRO", json.dumps(first)))
    for name, source in (("early", "auto"), ("pinned", "subject:early-value")):
        await world.topic(name, headwater_value_schema=source)
        assert await world.rows(f"SELECT value_data.amount FROM {name}") == []
        assert dict(await world.rows(f"DESCRIBE {name}"))["value_data"] == 'STRUCT("amount" BIGINT)'
        with pytest.raises(QueryFailed, match=r"did you mean value_data\.amount\?"):
            await world.rows(f"SELECT amount FROM {name}")
    row = framed(one.id, avro(first, {"amount": 1}))
    await world.write("early", [row])
    assert await world.rows("SELECT value_data FROM early") == [({"amount": 1},)]
    await _settled(world)
    _, two = await registry.register("early-value", Draft("AVRO", json.dumps(second)))
    notes = "SELECT value_data.amount, value_data.note FROM early ORDER BY offset"
    assert await world.rows(notes) == [(1, None)]
    await world.write("early", [row, framed(two.id, avro(second, {"amount": 2, "note": "x"}))])
    for _ in range(2):
        assert await world.rows(notes) == [(1, None), (1, None), (2, "x")]
        await _settled(world)
