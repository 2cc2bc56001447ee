"""Which schemas a task carries, so that rows of the WAL can be decoded."""

from __future__ import annotations

import json
import uuid

import pytest

from harness.virtual import run
from headwater.query.queries import typings
from headwater.query.queries.typings import Typings, shown
from headwater.replica.schema_sources import Draft
from headwater.replica.schemas import Registry
from headwater.schemas.codecs import codec_of
from headwater.schemas.typing import Typing
from headwater.state.cluster.domain import Topic
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import SetLevel
from headwater.state.commands.columns import Column
from headwater.state.machine import LEVELS, TYPED_LEVEL
from headwater.state.streams.stored.typed import NO_COLUMNS, Columns, ColumnsVersion
from headwater.threads import inline
from tests.support.protobuf import compile_in_process
from tests.unit.replica.test_membership import World

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


def avro(*fields: str) -> Draft:
    made = [{"name": name, "type": "string", "default": ""} for name in fields]
    return Draft("AVRO", json.dumps({"type": "record", "name": "R", "fields": made}))


def topic(value: str) -> Topic:
    return Topic(uuid.UUID(int=1), "t", 1, {"headwater.value.schema": value}, [1], 1, False, 0)


def test_columns_of_a_version() -> None:
    """A version of the table has the columns of its time."""
    told = {
        version: [child.name for column in shown(COLUMNS, version) for child in column.children]
        for version in (3, 4, 8)
    }
    assert told == {3: [], 4: ["a"], 8: ["a", "b"]}
    assert shown(COLUMNS, None) == COLUMNS.newest and shown(COLUMNS, 3) == () == shown(NO_COLUMNS, None)


def test_schemas_of_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_in_process(monkeypatch)

    async def story() -> None:
        process = await World().process(1)
        for replica in (process.cluster, process.domain):
            await replica.submit([SetLevel(TYPED_LEVEL, LEVELS[TYPED_LEVEL])])
        registry, state = Registry(process.cluster), process.cluster.state
        for subject, draft in (
            ("other", avro("z")),
            ("t-value", avro("a")),
            ("t-value", avro("a", "b")),
            ("pinned", avro("p")),
            ("proto", Draft("PROTOBUF", 'syntax = "proto3"; package p; message M { int64 n = 1; }')),
        ):
            await registry.register(subject, draft)
        found = await of(state, "auto")
        assert [int(one.names[0]) for one in found.schemas] == [3, 2, 5, 4, 1]
        assert found.columns == COLUMNS.newest and found.last_id == 103 and found.version == 2 and found.cut_off
        assert all(uuid.UUID(one.names[1]) == state.schemas.schemas[int(one.names[0])].guid for one in found.schemas)
        [proto] = [one for one in found.schemas if one.kind == "PROTOBUF"]
        monkeypatch.setattr("headwater.schemas.protobuf.compiling.compiled", None)  # nothing is compiled again
        assert codec_of(proto, (0,)).record == "M"
        assert (await of(state, "subject:pinned")).schemas[0].names[:2] == ("4", "subject:pinned")
        assert [int(one.names[0]) for one in (await of(state, "subject:absent")).schemas] == [3, 2, 5, 4, 1]
        assert (await of(state, "json")).schemas == ()
        assert (await of(state, "auto", built_in=False)).schemas == ()
        assert await Typings(inline).of(state, topic("none"), COLUMNS) is None
        assert await Typings(inline).of(state, topic("json"), NO_COLUMNS) is None
        monkeypatch.setattr(typings, "MAX_SCHEMAS", 2)
        assert [int(one.names[0]) for one in (await of(state, "auto")).schemas] == [3, 2]
        monkeypatch.setattr(typings, "MAX_CHARACTERS", len(avro("a", "b").text) + 5)
        assert [int(one.names[0]) for one in (await of(state, "auto")).schemas] == [3]

    async def of(state: ClusterState, value: str, *, built_in: bool = True) -> Typing:
        found = await kept[built_in].of(state, topic(value), COLUMNS)
        assert found is not None
        return found

    kept = {built_in: Typings(inline, built_in=built_in) for built_in in (True, False)}
    run(story())
