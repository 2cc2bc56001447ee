"""Subjects and their versions: registering, looking up, listing, deleting."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, delete, get, post
from litestar.params import QueryParameter

from headwater.gateway.registry.forms import GivenSchema, ToldSchema, draft_of, told
from headwater.gateway.registry.frame import (
    ANY_CONTEXT,
    TAG,
    Deleted,
    DeletedOnly,
    Format,
    Frame,
    Limit,
    Normalize,
    Offset,
    Permanent,
    Prefix,
    SubjectName,
    TheFrame,
    VersionText,
    answer,
    body_of,
    chosen,
    number_of,
    part,
    plain,
    taking,
)
from headwater.replica.schema_errors import no_schema
from headwater.replica.schema_sources import Draft, extra_of, no_reference
from headwater.state.cluster.access import Operation
from headwater.state.commands.schemas import SchemaContent

Keys = Annotated[list[str] | None, QueryParameter(name="key", description="Names of properties of the metadata.")]
Values = Annotated[list[str] | None, QueryParameter(name="value", description="Their values, in the same order.")]
AsNegative = Annotated[
    bool, QueryParameter(name="deletedAsNegative", description="Deleted versions as negative numbers.")
]


@get("/subjects", operation_id="listSubjects", tags=[TAG])
async def list_subjects(
    frame: TheFrame,
    prefix: Prefix = ANY_CONTEXT,
    deleted: Deleted = False,
    deleted_only: DeletedOnly = False,
    offset: Offset = 0,
    limit: Limit = -1,
) -> Response[list[str]]:
    """The names of all subjects that the caller may see."""
    await frame.services.catch_up()
    start = plain(prefix.removeprefix(ANY_CONTEXT))
    found = [
        subject.name
        for subject in frame.registry.schemas.subjects.values()
        if subject.name.startswith(start)
        and _listed(bool(subject.live), bool(subject.versions), deleted, deleted_only)
        and frame.sees(subject.name)
    ]
    return answer(part(sorted(found), offset, limit))


def _listed(live: bool, known: bool, deleted: bool, only: bool) -> bool:
    if only:
        return known and not live
    return known if deleted else live


@post("/subjects/{subject:str}", operation_id="lookUpSchema", tags=[TAG], status_code=200, opt=taking(GivenSchema))
async def look_up(
    request: Request[Any, Any, Any],
    frame: TheFrame,
    subject: SubjectName,
    normalize: Normalize = False,
    deleted: Deleted = False,
    form: Format = "",
) -> Response[ToldSchema]:
    """The version of a subject that has a schema."""
    name = plain(subject)
    draft = await read_draft(request, frame)
    frame.need_read(name)
    await frame.services.catch_up()
    found = await frame.registry.find(name, draft, normalize, deleted)
    if found is None:
        raise no_schema()
    schema = frame.registry.schemas.schemas[found.id]
    return answer(told(schema, name, found, text=await frame.registry.formatted(schema, form)))


@delete("/subjects/{subject:str}", operation_id="deleteSubject", tags=[TAG], status_code=200)
async def delete_subject(frame: TheFrame, subject: SubjectName, permanent: Permanent = False) -> Response[list[int]]:
    """Delete all versions of a subject. The answer has their numbers."""
    name = plain(subject)
    frame.need_write(name)
    return answer(await frame.registry.delete_subject(name, permanent))


@get("/subjects/{subject:str}/versions", operation_id="listSubjectVersions", tags=[TAG])
async def list_versions(
    frame: TheFrame,
    subject: SubjectName,
    deleted: Deleted = False,
    deleted_only: DeletedOnly = False,
    deleted_as_negative: AsNegative = False,
    offset: Offset = 0,
    limit: Limit = -1,
) -> Response[list[int]]:
    """The numbers of the versions of a subject."""
    name = plain(subject)
    frame.need_sight(name)
    await frame.services.catch_up()
    found = frame.registry.subject(name, deleted or deleted_only or deleted_as_negative)
    versions = chosen(list(found.versions.values()), deleted or deleted_as_negative, deleted_only)
    numbers = [-v.version if v.deleted and deleted_as_negative else v.version for v in versions]
    return answer(part(numbers, offset, limit))


@post(
    "/subjects/{subject:str}/versions",
    operation_id="registerSchema",
    tags=[TAG],
    status_code=200,
    opt=taking(GivenSchema),
)
async def register(
    request: Request[Any, Any, Any],
    frame: TheFrame,
    subject: SubjectName,
    normalize: Normalize = False,
    form: Format = "",
) -> Response[ToldSchema]:
    """Register a schema under a subject. The answer has its id.

    A caller who chooses the id, in mode IMPORT, needs the right to ALTER the cluster, too: ids are of all subjects.
    The text is in the answer only if the client asks for a form of it. Some clients keep the text of this answer and
    read it later in the form in which they sent it.
    """
    name = plain(subject)
    draft = await read_draft(request, frame)
    frame.need_write(name)
    if draft.id:
        frame.need_global(Operation.ALTER)
    version, schema = await frame.registry.register(name, draft, normalize)
    text = await frame.registry.formatted(schema, form) if form else ""
    return answer(told(schema, None, version, text=text))


@get("/subjects/{subject:str}/versions/{version:str}", operation_id="describeSubjectVersion", tags=[TAG])
async def describe_version(
    frame: TheFrame, subject: SubjectName, version: VersionText, deleted: Deleted = False, form: Format = ""
) -> Response[ToldSchema]:
    """A version of a subject, with its schema."""
    name = plain(subject)
    found, schema = await frame.version(name, version, deleted)
    return answer(told(schema, name, found, text=await frame.registry.formatted(schema, form)))


@get("/subjects/{subject:str}/versions/{version:str}/schema", operation_id="readSubjectVersion", tags=[TAG])
async def read_version(
    frame: TheFrame, subject: SubjectName, version: VersionText, deleted: Deleted = False, form: Format = ""
) -> Response[str]:
    """The text of the schema of a version alone."""
    _, schema = await frame.version(plain(subject), version, deleted)
    return Response(await frame.registry.formatted(schema, form), media_type="application/json")


@get("/subjects/{subject:str}/versions/{version:str}/referencedby", operation_id="listReferrers", tags=[TAG])
async def list_referrers(
    frame: TheFrame,
    subject: SubjectName,
    version: VersionText,
    deleted: Deleted = False,
    offset: Offset = 0,
    limit: Limit = -1,
) -> Response[list[int]]:
    """The ids of the schemas that refer to a version."""
    name = plain(subject)
    await frame.services.catch_up()
    found, _ = await frame.version(name, version, deleted=True)
    ids = frame.registry.schemas.referrers(name, found.version, deleted)
    return answer(part((i for i in ids if frame.uses(i, deleted=True)), offset, limit))


@delete(
    "/subjects/{subject:str}/versions/{version:str}", operation_id="deleteSubjectVersion", tags=[TAG], status_code=200
)
async def delete_version(
    frame: TheFrame, subject: SubjectName, version: VersionText, permanent: Permanent = False
) -> Response[int]:
    """Delete a version of a subject. The answer is its number."""
    name = plain(subject)
    frame.need_write(name)
    return answer(await frame.registry.delete_version(name, number_of(version), permanent))


@get("/subjects/{subject:str}/metadata", operation_id="findByMetadata", tags=[TAG])
async def find_by_metadata(
    frame: TheFrame,
    subject: SubjectName,
    key: Keys = None,
    value: Values = None,
    deleted: Deleted = False,
    form: Format = "",
) -> Response[ToldSchema]:
    """The newest version of a subject whose metadata has some properties."""
    name = plain(subject)
    frame.need_read(name)
    await frame.services.catch_up()
    wanted = dict(zip(key or (), value or (), strict=False))
    for version in reversed(frame.registry.subject(name, deleted).versions.values()):
        schema = frame.registry.schemas.schemas[version.id]
        if (deleted or not version.deleted) and wanted.items() <= _properties(schema.content).items():
            return answer(told(schema, name, version, text=await frame.registry.formatted(schema, form)))
    raise no_schema()


def _properties(content: SchemaContent) -> dict[str, str]:
    """The properties in the metadata of a schema."""
    metadata = extra_of(content).metadata
    return metadata.properties or {} if metadata is not None else {}


async def read_draft(request: Request[Any, Any, Any], frame: Frame) -> Draft:
    """The schema of a request. It may refer to what the caller may read."""
    draft = draft_of(await body_of(request, GivenSchema))
    for reference in draft.references:
        if not frame.reads(reference.subject):
            raise no_reference(draft.kind, reference)
    return draft


ROUTES = (
    list_subjects,
    look_up,
    delete_subject,
    list_versions,
    register,
    describe_version,
    read_version,
    list_referrers,
    delete_version,
    find_by_metadata,
)
