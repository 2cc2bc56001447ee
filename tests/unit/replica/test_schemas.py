"""The schema registry of several processes: races, levels, limits."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from harness.virtual import run
from headwater.errors import SchemaReason, SchemaRefused
from headwater.replica import schema_sources
from headwater.replica.schema_sources import Draft, Reference, Sources
from headwater.replica.schemas import Registry
from headwater.schemas.parsing import SchemaKind, Source, parse
from headwater.state.cluster import schemas
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.schemas import GLOBAL, SchemaMode
from tests.support.promise import promise
from tests.unit.replica.test_membership import World

PROMISES = ("T6",)


def avro(*fields: str) -> Draft:
    """A record whose fields have no defaults: a new field is not compatible."""
    made = [{"name": name, "type": "string"} for name in fields]
    return Draft("AVRO", json.dumps({"type": "record", "name": "R", "fields": made}))


async def registries() -> tuple[Registry, Registry]:
    """The registries of two processes of one cluster."""
    world = World()
    first, second = await world.process(1), await world.process(2)
    await second.cluster.barrier()
    return Registry(first.cluster), Registry(second.cluster)


def code(error: pytest.ExceptionInfo[SchemaRefused]) -> SchemaReason:
    return error.value.reason


@promise("T6")
def test_two_processes_register_at_once() -> None:
    """Of two schemas that are not compatible with each other one is refused, whoever looks first."""

    async def story() -> None:
        one, other = await registries()
        outcomes = await asyncio.gather(
            one.register("s", avro("a")), other.register("s", avro("b")), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, SchemaRefused)]
        assert [error.reason for error in refused] == [SchemaReason.INCOMPATIBLE]
        assert len(one.schemas.subjects["s"].versions) == 1

    run(story())


@promise("T6")
def test_the_same_schema_from_two_processes() -> None:
    """It has one id and one version."""

    async def story() -> None:
        one, other = await registries()
        made = await asyncio.gather(*(each.register("s", avro("a")) for each in (one, other, one, other)))
        assert {(version.version, schema.id) for version, schema in made} == {(1, 1)}
        found = await other.find("s", avro("a"))
        assert found is not None and found.version == 1

    run(story())


@promise("T6")
def test_a_mode_that_changes_meanwhile() -> None:
    """No registration slips through a change to read-only that another process has made."""

    async def story() -> None:
        one, other = await registries()
        await one.set_mode(GLOBAL, SchemaMode.READONLY)
        with pytest.raises(SchemaRefused) as error:
            await other.register("s", avro("a"))
        assert code(error) is SchemaReason.NOT_PERMITTED
        assert not one.schemas.subjects

    run(story())


@promise("T6")
def test_a_reference_that_is_deleted_meanwhile() -> None:
    """Either the deletion or the registration is refused."""

    async def story() -> None:
        one, other = await registries()
        await one.register("base", avro("a"))
        user = {"type": "record", "name": "U", "fields": [{"name": "r", "type": "R"}]}
        draft = Draft("AVRO", json.dumps(user), (Reference("R", "base", 1),))
        outcomes = await asyncio.gather(
            one.register("user", draft), other.delete_version("base", 1), return_exceptions=True
        )
        refused = [outcome.reason for outcome in outcomes if isinstance(outcome, SchemaRefused)]
        assert len(refused) == 1 and refused[0] in (SchemaReason.BAD_SCHEMA, SchemaReason.REFERENCED)

    run(story())


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema that is too large, and a registry that is full."""

    async def story() -> None:
        one, _ = await registries()
        monkeypatch.setattr(schemas, "MAX_CONTENT_BYTES", 50)
        with pytest.raises(SchemaRefused) as error:
            await one.register("s", avro("a"))
        assert code(error) is SchemaReason.TOO_LARGE
        monkeypatch.undo()
        monkeypatch.setattr(schemas, "MAX_SUBJECTS", 0)
        with pytest.raises(SchemaRefused) as error:
            await one.register("s", avro("a"))
        assert code(error) is SchemaReason.NOT_PERMITTED

    run(story())


@promise("T6")
def test_parsed_schemas_are_kept_within_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ones that were used last."""
    sources = Sources(ClusterState().schemas)
    parsed = parse(Source(SchemaKind.AVRO, '"int"'))
    guids = [uuid.UUID(int=i) for i in range(4)]
    monkeypatch.setattr(schema_sources, "CACHED_CHARACTERS", 30)
    for guid in guids[:3]:
        sources.keep(guid, 10, parsed)
    assert sources.kept(guids[0]) is parsed
    sources.keep(guids[3], 10, parsed)
    sources.keep(guids[3], 10, parsed)
    assert [sources.kept(guid) is parsed for guid in guids] == [True, False, True, True]
    sources.keep(guids[1], 31, parsed)
    assert sources.kept(guids[1]) is None


@promise("T6")
def test_references_are_resolved_in_depth() -> None:
    """Each text comes after those that it needs, once."""

    async def story() -> None:
        one, _ = await registries()

        async def put(subject: str, name: str, *needs: str) -> None:
            made = [{"name": f"f{i}", "type": need} for i, need in enumerate(needs)]
            text = json.dumps({"type": "record", "name": name, "fields": made})
            await one.register(subject, Draft("AVRO", text, tuple(Reference(need, f"s{need}") for need in needs)))

        await put("sA", "A")
        await put("sB", "B", "A")
        await put("sC", "C", "B", "A")
        _, schema = one.version("sC", -1)
        found = Sources(one.schemas).source_of(schema.content)
        assert [name for name, _ in found.references] == ["A", "B"]
        assert one.schemas.referrers("sA", 1) == [2, 3]

    run(story())
