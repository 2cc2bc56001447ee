"""Schemas by their ids and GUIDs, and what the registry says about itself."""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec
from litestar import Response, get
from litestar.params import PathParameter, QueryParameter

from headwater.gateway.problems import TOO_LARGE, Refusal
from headwater.gateway.registry.forms import ToldSchema, told
from headwater.gateway.registry.frame import (
    ANY_CONTEXT,
    TAG,
    Deleted,
    Format,
    Frame,
    Limit,
    Offset,
    Prefix,
    SchemaId,
    TheFrame,
    answer,
    part,
    plain,
)
from headwater.replica.schema_errors import no_schema
from headwater.schemas.parsing import SchemaKind
from headwater.state.cluster.schemas import Schema, Subject, Version
from headwater.version import __version__

MOST_SCHEMAS = 1_000
"""Schemas of one answer."""
MOST_CHARACTERS = 32_000_000
"""Characters of the schemas of one answer."""
Guid = Annotated[str, PathParameter(description="The GUID of the schema.")]
LatestOnly = Annotated[bool, QueryParameter(name="latestOnly", description="Only the newest version of each subject.")]
MaxId = Annotated[bool, QueryParameter(name="fetchMaxId", description="Also the greatest id of the registry.")]


class SubjectVersion(msgspec.Struct, frozen=True):
    """A version of a subject."""

    subject: str
    """The name of the subject."""
    version: int
    """The number of the version."""


class ContextId(msgspec.Struct, frozen=True):
    """An id of a schema."""

    context: str
    """The context; it is always `.`, the default one."""
    id: int
    """The id."""


class ServerScope(msgspec.Struct, frozen=True):
    """What a registry belongs to."""

    path: list[str]
    """Always empty."""
    clusters: dict[str, str]
    """The ids of the clusters, by kind."""


class ServerLine(msgspec.Struct, frozen=True):
    """The cluster of a registry."""

    scope: ServerScope
    """What the registry belongs to."""
    id: str
    """Always empty."""


class BuildLine(msgspec.Struct, frozen=True, rename="camel"):
    """The version of a registry."""

    version: str
    """The version of the build."""
    commit_id: str
    """Always empty."""


@get("/schemas", operation_id="listSchemas", tags=[TAG])
async def list_schemas(
    frame: TheFrame,
    prefix: Prefix = "",
    deleted: Deleted = False,
    latest_only: LatestOnly = False,
    offset: Offset = 0,
    limit: Limit = -1,
) -> Response[list[ToldSchema]]:
    """The schemas of all subjects that the caller may read."""
    await frame.services.catch_up()
    schemas = frame.registry.schemas
    start = plain(prefix.removeprefix(ANY_CONTEXT))
    subjects = [schemas.subjects[name] for name in sorted(schemas.subjects) if name.startswith(start)]
    found = ((s, v) for s in subjects if frame.reads(s.name) for v in _versions(s, deleted, latest_only))
    rows = part(found, offset, limit, MOST_SCHEMAS)
    if sum(len(schemas.schemas[version.id].content.text) for _, version in rows) > MOST_CHARACTERS:
        raise Refusal(TOO_LARGE, f"the schemas have more than {MOST_CHARACTERS} characters: ask with a smaller limit")
    return answer([told(schemas.schemas[version.id], subject.name, version) for subject, version in rows])


def _versions(subject: Subject, deleted: bool, latest_only: bool) -> list[Version]:
    found = list(subject.versions.values()) if deleted else subject.live
    return found[-1:] if latest_only else found


@get("/schemas/types", operation_id="listSchemaTypes", tags=[TAG])
async def list_types() -> Response[list[SchemaKind]]:
    """The kinds of schemas that the registry knows."""
    return answer([SchemaKind.JSON, SchemaKind.PROTOBUF, SchemaKind.AVRO])


@get("/schemas/ids/{schema_id:int}", operation_id="describeSchema", tags=[TAG])
async def describe_schema(
    frame: TheFrame, schema_id: SchemaId, form: Format = "", fetch_max_id: MaxId = False
) -> Response[ToldSchema]:
    """A schema by its id. Deleted ones can be read, too."""
    schema = await _by_id(frame, schema_id)
    found = told(schema, text=await frame.registry.formatted(schema, form))
    if fetch_max_id:
        found = msgspec.structs.replace(found, max_id=frame.registry.schemas.last_id)
    return answer(found)


@get("/schemas/ids/{schema_id:int}/schema", operation_id="readSchema", tags=[TAG])
async def read_schema(frame: TheFrame, schema_id: SchemaId, form: Format = "") -> Response[str]:
    """The text of a schema alone."""
    schema = await _by_id(frame, schema_id)
    return Response(await frame.registry.formatted(schema, form), media_type="application/json")


@get("/schemas/ids/{schema_id:int}/subjects", operation_id="listSubjectsOfSchema", tags=[TAG])
async def list_users(
    frame: TheFrame, schema_id: SchemaId, deleted: Deleted = False, offset: Offset = 0, limit: Limit = -1
) -> Response[list[str]]:
    """The subjects that have a schema."""
    await frame.services.catch_up()
    await _by_id(frame, schema_id)
    return answer(part(dict.fromkeys(name for name, _ in frame.uses(schema_id, deleted)), offset, limit))


@get("/schemas/ids/{schema_id:int}/versions", operation_id="listVersionsOfSchema", tags=[TAG])
async def list_uses(
    frame: TheFrame, schema_id: SchemaId, deleted: Deleted = False, offset: Offset = 0, limit: Limit = -1
) -> Response[list[SubjectVersion]]:
    """The subjects and versions that have a schema."""
    await frame.services.catch_up()
    await _by_id(frame, schema_id)
    found = (SubjectVersion(name, version.version) for name, version in frame.uses(schema_id, deleted))
    return answer(part(found, offset, limit))


@get("/schemas/guids/{guid:str}", operation_id="describeSchemaByGuid", tags=[TAG])
async def describe_by_guid(frame: TheFrame, guid: Guid, form: Format = "") -> Response[ToldSchema]:
    """A schema by its GUID."""
    schema = await _by_guid(frame, guid)
    return answer(told(schema, text=await frame.registry.formatted(schema, form)))


@get("/schemas/guids/{guid:str}/ids", operation_id="listIdsOfGuid", tags=[TAG])
async def list_ids(frame: TheFrame, guid: Guid) -> Response[list[ContextId]]:
    """The ids of a schema."""
    schema = await _by_guid(frame, guid)
    ids = frame.registry.schemas.ids_of(schema.guid, schema.content.kind)
    return answer([ContextId(".", i) for i in ids])


@get("/contexts", operation_id="listContexts", tags=[TAG])
async def list_contexts() -> Response[list[str]]:
    """The contexts: there is the default one only."""
    return answer(["."])


@get("/v1/metadata/id", operation_id="describeRegistry", tags=[TAG])
async def describe_server(frame: TheFrame) -> Response[ServerLine]:
    """The cluster of the registry."""
    clusters = {"kafka-cluster": frame.services.state.cluster_id, "schema-registry-cluster": ""}
    return answer(ServerLine(ServerScope([], clusters), ""))


@get("/v1/metadata/version", operation_id="describeRegistryVersion", tags=[TAG])
async def describe_build() -> Response[BuildLine]:
    """The version of the registry."""
    return answer(BuildLine(__version__, ""))


async def _by_id(frame: Frame, schema_id: int) -> Schema:
    found = frame.registry.schemas.schemas.get(schema_id)
    if not frame.readable(found):
        await frame.services.catch_up()
        found = frame.registry.schemas.schemas.get(schema_id)
    if found is None or not frame.readable(found):
        raise no_schema(schema_id)
    return found


async def _by_guid(frame: Frame, text: str) -> Schema:
    try:
        guid = uuid.UUID(text)
    except ValueError:
        raise no_schema(text[:100]) from None
    found = frame.registry.schemas.by_guid(guid)
    if not frame.readable(found):
        await frame.services.catch_up()
        found = frame.registry.schemas.by_guid(guid)
    if found is None or not frame.readable(found):
        raise no_schema(text)
    return found


ROUTES = (
    list_schemas,
    list_types,
    describe_schema,
    read_schema,
    list_users,
    list_uses,
    describe_by_guid,
    list_ids,
    list_contexts,
    describe_server,
    describe_build,
)
