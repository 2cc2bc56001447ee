"""Typed columns, by compactors in virtual time: decoded when settled, back-filled, after crashes too."""

from __future__ import annotations

import asyncio
import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyarrow import parquet

from harness.virtual import run
from headwater.app.compactor import health_of
from headwater.app.node import Node
from headwater.configs.topics import TopicConfig
from headwater.errors import RegistryUnavailable
from headwater.lake.backfill import undecoded
from headwater.lake.decoding import Decoding
from headwater.lake.described import TypedTotals, typed_of
from headwater.lake.metrics import collect
from headwater.lake.registries import BuiltIn
from headwater.replica.schema_sources import Draft
from headwater.replica.schemas import Registry
from headwater.schemas.columns import LIMITS
from headwater.schemas.typing import KnownSchema
from headwater.state.cluster.domain import Topic
from headwater.state.commands.columns import WantDecoded
from headwater.state.commands.streams import TrimStreams
from tests.support.batches import Rec, batch
from tests.support.lake import ONE, Fate, LakeWorld, files_left, log_rows
from tests.support.promise import promise
from tests.support.virtual_nodes import sent, topic

PROMISES = ("T7",)


async def produce(node: Node, made: Topic, *values: bytes | None) -> None:
    """One batch of these values in every partition."""
    for stream in made.streams:
        await sent(node, stream, batch([Rec(value) for value in values]))
    await asyncio.sleep(0.01)


def told(*records: Any) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


async def rows_of(world: LakeWorld, node: Node, made: Topic, columns: Sequence[str]) -> list[dict[str, Any]]:
    """These columns of the table's files, in the order of the log; null where a file lacks one."""
    await node.domains[ONE].barrier()
    table = node.domains[ONE].state.tables[made.id]
    found: list[dict[str, Any]] = []
    for file in table.live():
        data = parquet.read_table(io.BytesIO(await world.store.get(f"{table.root}/{file.name}")))
        for row in data.to_pylist():
            found.append({name: row.get(name) for name in ("partition", "offset", *columns)})
    found.sort(key=lambda row: (row["partition"], row["offset"]))
    return [{name: row[name] for name in columns} for row in found]


async def values_of(world: LakeWorld, node: Node, made: Topic) -> list[Any]:
    return [row["value_data"] for row in await rows_of(world, node, made, ["value_data"])]


@promise("T7")
def test_json_is_decoded_when_it_settles(tmp_path: Path) -> None:
    """Fields become columns, later ones are added, what is not JSON keeps its bytes and says why."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, headwater_value_schema="json")
        compaction = await world.compaction()
        await produce(node, made, *told({"a": 1}, {"a": 2, "b": "x"}), b"{bad", None)
        await compaction.round()
        found = await rows_of(world, node, made, ["value", "value_data", "decode_error"])
        assert [row["value_data"] for row in found] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}, None, None]
        assert [bool(row["decode_error"]) for row in found] == [False, False, True, False]
        assert found[2]["value"] == b"{bad"
        await produce(node, made, *told({"a": "text", "c": [1.5]}, [1]))
        await compaction.finish()
        values = await values_of(world, node, made)
        assert values[4]["a__string"] == "text" and values[4]["c"] == [1.5] and values[4]["a"] is None
        state = node.domains[ONE].state
        typed = state.typed[made.id]
        names = [column.name for column in typed.columns.newest]
        assert names[:2] == ["decode_error", "value_data"]
        assert sum(typing.failures for typing in typed.files.values()) == compaction.compactor.undecodable_rows == 2
        assert not undecoded(state, state.tables[made.id])
        totals = typed_of(state, state.tables[made.id], TopicConfig.of({"headwater.value.schema": "json"}, {}))
        assert totals == TypedTotals(7, typed.columns.version, 0, 2)
        assert typed_of(state, None, TopicConfig.of({}, {})) is None
        measured = collect(compaction.cluster, compaction.domains, compaction.compactor, compaction.following, 0)
        values_by_name = {metric.name: [value for _, value in metric.samples] for metric in measured}
        assert values_by_name["headwater_table_rows_not_decodable"] == [2]
        assert values_by_name["headwater_table_files_not_decoded"] == [0]
        assert values_by_name["headwater_schema_registry_unreachable"] == [0]
        assert [row[4] for row in await log_rows(node, made)][:3] == [b'{"a": 1}', b'{"a": 2, "b": "x"}', b"{bad"]
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_fields_without_a_column_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is beyond the limits is in one column. The log names it, and the table says so."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, headwater_value_schema="json")
        compaction = await world.compaction()
        await produce(node, made, *told({f"f{number}": number for number in range(LIMITS.columns + 5)}))
        await compaction.round()
        state = node.domains[ONE].state
        totals = typed_of(state, state.tables[made.id], TopicConfig.of({"headwater.value.schema": "json"}, {}))
        assert totals is not None and totals.rest
        [row] = await rows_of(world, node, made, ["_rest"])
        [line] = [record for record in caplog.records if "_rest" in record.message]
        assert line.__dict__["fields"][-1] == f"value_data.f{LIMITS.columns + 4}" and "f2004" in row["_rest"]
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_schemas_that_are_switched_on_fill_the_past(tmp_path: Path) -> None:
    """Settled files are decoded in the background, the newest first; consumers get the same bytes."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction(merge_files=100)
        for number in range(5):
            await produce(node, made, *told({"n": number}))
            await compaction.round()
        assert not node.domains[ONE].state.typed[made.id].columns.newest
        before = await log_rows(node, made)
        await node.broker.topics.alter(made, {"headwater.value.schema": "json"}, [])
        await compaction.round()
        filled = [number for number, value in enumerate(await values_of(world, node, made)) if value is not None]
        assert filled == [3, 4]  # two slots, the newest files
        await compaction.finish()
        assert await values_of(world, node, made) == [{"n": number} for number in range(5)]
        assert compaction.compactor.rewritten_files == 5
        assert await log_rows(node, made) == before
        stored, known = files_left(world, node)
        assert stored == known
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_what_the_log_has_left_is_filled_too(tmp_path: Path) -> None:
    """Rows that only the table has any more get their columns."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        compaction = await world.compaction(merge_files=100)
        for number in range(3):
            await produce(node, made, *told({"n": number}))
            await compaction.round()
        [stream] = made.streams
        await node.domains[ONE].submit([TrimStreams([(stream, 2)])])
        state = node.domains[ONE].state
        assert sorted(file.references for file in state.tables[made.id].live()) == [0, 0, 1]
        await node.broker.topics.alter(made, {"headwater.value.schema": "json"}, [])
        await compaction.finish()
        assert await values_of(world, node, made) == [{"n": number} for number in range(3)]
        assert [row[4] for row in await log_rows(node, made)] == told({"n": 2})
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7")
def test_merges_keep_typed_columns(tmp_path: Path) -> None:
    """A merge of files with different columns has all of them."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node, headwater_value_schema="json", headwater_table_flatten="true")
        compaction = await world.compaction(merge_files=3)
        for number in range(6):
            await produce(node, made, *told({"n": number, f"f{number}": {"x": number}, "offset": -number}))
            await compaction.round()
        await compaction.finish()
        assert compaction.compactor.merged_files >= 3
        found = await rows_of(world, node, made, ["n", "f1", "f5", "value_offset"])
        assert [row["n"] for row in found] == list(range(6))
        assert [row["value_offset"] for row in found] == [-number for number in range(6)]
        assert (found[1]["f1"], found[5]["f5"], found[0]["f1"]) == ({"x": 1}, {"x": 5}, None)
        await compaction.close()
        await node.stop()

    run(story())


POINT = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "long"}]}
NAMED = {**POINT, "fields": [*POINT["fields"], {"name": "label", "type": ["null", "string"], "default": None}]}


def encoded(schema: dict[str, Any], number: int, value: dict[str, Any]) -> bytes:
    """A value as Confluent's serializers write it."""
    sink = io.BytesIO(struct.pack(">bI", 0, number))
    sink.seek(5)
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    return sink.getvalue()


@promise("T6", "T7")
def test_schemas_of_the_registry(tmp_path: Path) -> None:
    """Avro by prefix, a second version, an id that is registered later, values without an id."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        registry = Registry(node.domains.cluster)
        _, first = await registry.register("t-value", Draft("AVRO", json.dumps(POINT)))
        made = await topic(node, headwater_value_schema="auto")
        compaction = await world.compaction(merge_files=100)
        later = first.id + 1
        await produce(node, made, encoded(POINT, first.id, {"x": 1}), encoded(NAMED, later, {"x": 2}), b"?", None)
        await compaction.finish(2)
        found = await rows_of(world, node, made, ["value_data", "decode_error"])
        assert [row["value_data"] for row in found] == [{"x": 1}, None, None, None]
        assert [row["decode_error"] for row in found] == [
            None,
            f"unknown-schema: value: the registry has no schema with the id {later}",
            "no-schema: value: neither a prefix nor a header names a schema",
            None,
        ]
        _, second = await registry.register("t-value", Draft("AVRO", json.dumps(NAMED)))
        assert second.id == later
        await asyncio.sleep(60)
        await produce(node, made, encoded(NAMED, later, {"x": 3, "label": "c"}))
        await node.domains[ONE].submit([WantDecoded(made.id, False)])
        await compaction.finish()
        values = await values_of(world, node, made)
        assert values[:2] == [{"x": 1, "label": None}, {"x": 2, "label": None}]
        assert values[4] == {"x": 3, "label": "c"}
        await node.broker.topics.alter(made, {"headwater.value.schema": "subject:t-value"}, [])
        await produce(node, made, encoded(NAMED, 0, {"x": 4, "label": "d"})[5:])
        await compaction.finish()
        assert (await values_of(world, node, made))[5] == {"x": 4, "label": "d"}
        assert len(await log_rows(node, made)) == 6
        await compaction.close()
        await node.stop()

    run(story())


class Away:
    """A registry that does not answer for now."""

    def __init__(self, inner: BuiltIn) -> None:
        self.inner = inner
        self.away = True

    async def schema(self, name: str) -> KnownSchema | None:
        if self.away:
            raise RegistryUnavailable("it is away")
        return await self.inner.schema(name)


@promise("T6")
def test_a_registry_that_cannot_be_asked(tmp_path: Path) -> None:
    """Rows settle without values, no failure is told, and they are decoded when the registry is back."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        _, known = await Registry(node.domains.cluster).register("t-value", Draft("AVRO", json.dumps(POINT)))
        made = await topic(node, headwater_value_schema="auto")
        compaction = await world.compaction(merge_files=100)
        away = Away(BuiltIn(node.domains.cluster))
        compaction.compactor.decoding = Decoding(away, compaction.domains.clock)
        await produce(node, made, encoded(POINT, known.id, {"x": 1}))
        await compaction.finish(2)
        assert await rows_of(world, node, made, ["value_data", "decode_error"]) == [
            {"value_data": None, "decode_error": None}
        ]
        assert compaction.compactor.decoding.unreachable == "it is away"
        health = health_of(compaction.background, compaction.compactor, compaction.following, in_contact=True)
        assert health.reason == "the schema registry cannot be asked: it is away"
        away.away = False
        await asyncio.sleep(60)
        await compaction.finish()
        assert await values_of(world, node, made) == [{"x": 1}]
        assert compaction.compactor.decoding.unreachable == ""
        await compaction.close()
        await node.stop()

    run(story())


@promise("T7", "L3")
@pytest.mark.parametrize("writes", range(1, 12))
@pytest.mark.parametrize("after", [False, True])
def test_a_compactor_that_dies(tmp_path: Path, writes: int, after: bool) -> None:
    """A death at any write, also between the columns and the files, leaves a table that the next one mends."""

    async def story() -> None:
        world = LakeWorld(tmp_path / "objects")
        node = await world.node()
        made = await topic(node)
        first = await world.compaction(merge_files=100)
        for number in range(2):
            await produce(node, made, *told({"n": number}))
            await first.round()
        await first.close()
        await node.broker.topics.alter(made, {"headwater.value.schema": "json"}, [])
        await produce(node, made, *told({"n": 2, "m": "x"}))
        doomed = await world.compaction(Fate(writes, after=after), merge_files=100)
        await doomed.fate.outlived(doomed.round())
        await doomed.abandon()
        await asyncio.sleep(60)
        last = await world.compaction(merge_files=100)
        await last.finish()
        assert [value["n"] for value in await values_of(world, node, made)] == [0, 1, 2]
        assert len(await log_rows(node, made)) == 3
        stored, known = files_left(world, node)
        assert stored == known
        await last.close()
        await node.stop()

    run(story())
