"""Which schemas a reader of rows gets, and how it asks for those that it lacks."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from harness.virtual import VirtualClock, run
from headwater.errors import RegistryUnavailable, Retriable
from headwater.lake.answers import RETRY_SECONDS
from headwater.lake.known import KnownSchemas
from headwater.query import typings
from headwater.query.typings import RowTyping, TopicTyping, Typings, schemas_of, shown
from headwater.replica.schema_sources import Draft
from headwater.replica.schemas import Registry
from headwater.schemas.codecs import codec_of
from headwater.schemas.typing import KnownSchema
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.columns import Column
from headwater.state.streams.stored.typed import NO_COLUMNS, Columns, ColumnsVersion
from headwater.threads import inline
from tests.support.promise import promise
from tests.support.protobuf import compile_in_process
from tests.unit.query.test_typed import columns_of
from tests.unit.replica.test_membership import World
from tests.unit.schemas.test_typer import POINT, avro, framed, known, rows

ERROR = Column(100, "decode_error", "decode_error", "string", "", ())
VALUE = Column(
    101,
    "value_data",
    "value_data",
    "struct",
    "",
    tuple(Column(102 + i, n, n, "long", "", ()) for i, n in enumerate("ab")),
)
COLUMNS = Columns((ERROR, VALUE), (ColumnsVersion(102, 3), ColumnsVersion(103, 7)))
PROTO = 'syntax = "proto3"; package p; message M { int64 n = 1; }'


class Registered:
    """An external registry."""

    def __init__(self, *schemas: KnownSchema) -> None:
        self.schemas = {name: schema for schema in schemas for name in schema.names}
        self.asked: list[str] = []
        self.away = False

    async def schema(self, name: str) -> KnownSchema | None:
        self.asked.append(name)
        if self.away:
            raise RegistryUnavailable("it is away")
        return self.schemas.get(name)


def topic(value: str) -> Topic:
    return Topic(uuid.UUID(int=1), "t", 1, {"headwater.value.schema": value}, [1], 1, False, 0)


def names(found: TopicTyping) -> list[str]:
    return [schema.names[0] for schema in found.typing.schemas]


def with_cluster(story: Callable[[ClusterState, Registry, Typings], Coroutine[Any, Any, None]]) -> None:
    """With the state of a cluster, its own registry, and what decodes by that."""

    async def main() -> None:
        process = await World().process(1)
        process.cluster.state.topics[uuid.UUID(int=1)] = topic("auto")
        own = Typings(schemas_of(process.cluster, VirtualClock()), inline)
        await story(process.cluster.state, Registry(process.cluster), own)

    run(main())


async def asked(own: Typings, cluster: ClusterState, value: str, columns: Columns = COLUMNS) -> TopicTyping:
    found = await own.of(cluster, topic(value), columns)
    assert found is not None
    return found


def test_columns_of_a_version() -> None:
    """A version of the table has the columns of its time."""
    told = {
        version: [child.name for column in shown(COLUMNS, version) for child in column.children]
        for version in (3, 4, 8)
    }
    assert told == {3: [], 4: ["a"], 8: ["a", "b"]}
    assert shown(COLUMNS, None) == COLUMNS.newest and shown(COLUMNS, 3) == () == shown(NO_COLUMNS, None)


def test_schemas_of_the_clusters_own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that rows have named, and the newest one of a pinned subject."""
    compile_in_process(monkeypatch)

    async def story(cluster: ClusterState, registry: Registry, own: Typings) -> None:
        _, one = await registry.register("pinned", Draft("AVRO", json.dumps(POINT)))
        _, proto = await registry.register("proto", Draft("PROTOBUF", PROTO))
        found = await asked(own, cluster, "auto")
        assert found.typing.columns == COLUMNS.newest and found.typing.last_id == 103 and found.typing.version == 2
        assert names(found) == [] and not found.typing.cut_off
        await found.learn([str(one.id), str(proto.guid), "999"])
        assert sorted(names(found)) == sorted([str(one.id), str(proto.guid)]) and found.typing.absent == ("999",)
        assert not found.typing.cut_off and not found.notes
        [compiled] = [schema for schema in found.typing.schemas if schema.kind == "PROTOBUF"]
        monkeypatch.setattr("headwater.schemas.protobuf.compiling.compiled", None)  # nothing is compiled again
        assert codec_of(compiled, (0,)).record == "M"
        assert sorted(names(await asked(own, cluster, "auto"))) == sorted(names(found))
        assert "subject:pinned" in names(await asked(own, cluster, "subject:pinned"))
        assert (await asked(own, cluster, "json")).typing.schemas == ()
        assert await own.of(cluster, topic("none"), COLUMNS) is None
        assert await own.of(cluster, topic("json"), NO_COLUMNS) is None

    with_cluster(story)


@promise("T7")
def test_a_registry_that_does_not_answer() -> None:
    """Values are null, a note says why, and nobody waits again at once."""

    async def story(cluster: ClusterState, registry: Registry, own: Typings) -> None:
        other = Registered(known("5"))
        external = Typings(KnownSchemas(other, VirtualClock()), inline)
        other.away = True
        found = await asked(external, cluster, "auto")
        for _ in range(2):
            await found.learn(["5"])
        assert other.asked == ["5"] and found.typing.cut_off
        assert list(found.notes) == [
            "Some values of records of topic 't' that are not settled may be null: the schema registry does not answer."
        ]
        again = await asked(external, cluster, "auto")
        assert again.typing.cut_off and again.notes == found.notes and len(other.asked) == 1
        await asyncio.sleep(RETRY_SECONDS)
        other.away = False
        later = await asked(external, cluster, "auto")
        assert names(later) == ["5"] and not later.typing.cut_off and not later.notes

    with_cluster(story)


@promise("T7")
def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader gets the schemas that were named last, as many as there is room for; the others are told."""
    compile_in_process(monkeypatch)

    async def story(cluster: ClusterState, registry: Registry, own: Typings) -> None:
        flawed = KnownSchema(("7",), "PROTOBUF", "no schema", ())
        other = Registered(*(known(str(number)) for number in range(5)), flawed)
        external = Typings(KnownSchemas(other, VirtualClock()), inline)
        monkeypatch.setattr(typings, "MAX_SCHEMAS", 3)
        found = await asked(external, cluster, "auto")
        await found.learn(["0", "1", "2"])
        assert names(found) == ["0", "1", "2"] and not found.notes
        await found.learn(["3"])
        assert names(found) == ["1", "2", "3"] and not found.notes and not found.typing.cut_off
        await found.learn(["0", "1", "2", "3", "4"])
        assert names(found) == ["2", "3", "4"] and found.typing.cut_off
        assert "too many for one query" in " ".join(found.notes)
        monkeypatch.setattr(typings, "MAX_CHARACTERS", 2 * len(known("1").text))
        assert names(await asked(external, cluster, "auto")) == ["3", "4"]
        flawed_only = await asked(external, cluster, "auto")
        await flawed_only.learn(["7"])
        assert "7" not in names(flawed_only) and "cannot be used" in " ".join(flawed_only.notes)

    with_cluster(story)


def test_compiled_schemas_are_kept_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    async def offload(work: Any, source: Any) -> bytes:
        made.append(source.text)
        if source.text == "slow":
            raise Retriable("it takes too long")
        return b"12345"

    async def main() -> None:
        own = Typings(KnownSchemas(Registered(), VirtualClock()), offload)  # type: ignore[arg-type]
        schemas = [KnownSchema((text,), "PROTOBUF", text, ()) for text in ("a", "b", "slow", "c")]
        monkeypatch.setattr(typings, "MAX_COMPILED", 3)
        assert [one.text for one in await own.usable(schemas)] == ["c", "b"] and made == ["c", "slow", "b"]
        assert [one.text for one in await own.usable(schemas)] == ["c", "b", "a"] and made[3:] == ["slow", "a"]
        monkeypatch.setattr(typings, "KEPT_BYTES", 10)
        made.clear()
        await own.usable([KnownSchema(("d",), "PROTOBUF", "d", ())])
        assert "2 compiled" in repr(own)

    run(main())


@promise("T7")
def test_rows_of_a_scan() -> None:
    """Schemas are asked for when rows name them. What cannot be had costs these rows only."""

    async def story(cluster: ClusterState, registry: Registry, own: Typings) -> None:
        columns, last = columns_of([framed(1, avro(POINT, {"x": 1}))], "auto", known("1"))
        other = Registered(known("1"), known("2"))
        external = Typings(KnownSchemas(other, VirtualClock()), inline)
        found = await asked(external, cluster, "auto", Columns(columns, (ColumnsVersion(last, 1),)))
        typing = RowTyping(found, inline)

        async def values(*numbers: int) -> list[Any]:
            batch = await typing.typed(rows([framed(number, avro(POINT, {"x": number})) for number in numbers]))
            return [(row["value_data"] or {}).get("x", row["decode_error"]) for row in batch.to_pylist()]

        assert await values(1, 2, 1) == [1, 2, 1] and await values(2) == [2]
        assert other.asked == ["1", "2"] and not found.notes
        assert "the registry has no schema with the id 9" in (await values(9))[0]
        other.away = True
        given, lacking = await values(1, 3)
        assert given == 1 and "no-answer: " in lacking and len(found.notes) == 1
        assert await values(2) == [2]

    with_cluster(story)
