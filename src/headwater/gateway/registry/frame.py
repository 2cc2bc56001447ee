"""What all calls of the schema registry share: who may see and change a subject, names, numbers and answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, TypeVar, cast

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from headwater.errors import SchemaReason, SchemaRefused
from headwater.gateway import rights
from headwater.gateway.description.document import BODY, REGISTRY
from headwater.gateway.problems import BAD_REQUEST, NOT_ALLOWED, Refusal
from headwater.gateway.registry.errors import MEDIA_TYPE
from headwater.gateway.services import Call, Services, TheCall
from headwater.replica.schema_errors import no_subject
from headwater.replica.schema_sources import LATEST
from headwater.replica.schemas import Registry
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.cluster.schemas import Schema, Version

T = TypeVar("T")
TAG = REGISTRY
"""The family of these calls in the OpenAPI document."""
MAX_VERSION = 2**31 - 1
MOST_SUBJECTS = 20_000
"""Subjects or versions of one answer."""
DEFAULT_CONTEXT = ":.:"
"""Clients may write it before the name of a subject. There is no other context."""
ANY_CONTEXT = ":*:"

SubjectName = Annotated[str, PathParameter(description="The name of the subject.")]
VersionText = Annotated[str, PathParameter(description='The number of the version, or "latest".')]
SchemaId = Annotated[int, PathParameter(description="The id of the schema.")]
Deleted = Annotated[bool, QueryParameter(description="Also what is deleted, and not permanently deleted.")]
DeletedOnly = Annotated[bool, QueryParameter(name="deletedOnly", description="Only what is deleted.")]
Permanent = Annotated[bool, QueryParameter(description="Remove for ever what is deleted already.")]
Normalize = Annotated[bool, QueryParameter(description="Whether to store and compare the normalized schema.")]
Format = Annotated[str, QueryParameter(name="format", description="`serialized` for Protobuf, `resolved` for Avro.")]
Offset = Annotated[int, QueryParameter(ge=0, description="How many items to pass over.")]
Limit = Annotated[int, QueryParameter(description="How many items to answer with at most. Negative: no limit.")]
Prefix = Annotated[str, QueryParameter(name="subjectPrefix", description="How the names of subjects begin.")]


@dataclass(frozen=True, slots=True)
class Frame:
    """A call to the registry, with its caller."""

    call: Call

    @property
    def services(self) -> Services:
        """What handlers work with."""
        return self.call.services

    @property
    def registry(self) -> Registry:
        """The registry."""
        return self.call.services.registry

    def sees(self, subject: str) -> bool:
        """Whether the caller may know that a subject exists."""
        return rights.may_see(self.call, subject)

    def reads(self, subject: str) -> bool:
        """Whether the caller may read the schemas of a subject."""
        return rights.may_read(self.call, subject)

    def need_sight(self, subject: str) -> None:
        """Raise unless the caller may know that a subject exists."""
        if not self.sees(subject):
            raise no_subject(subject)

    def need_read(self, subject: str) -> None:
        """Raise unless the caller may read the schemas of a subject."""
        self.need_sight(subject)
        if not self.reads(subject):
            raise self._denied("read", subject)

    def need_write(self, subject: str) -> None:
        """Raise unless the caller may change a subject."""
        self.need_sight(subject)
        if not rights.may_change(self.call, subject):
            raise self._denied("change", subject)

    def need_global(self, operation: Operation) -> None:
        """Raise unless the caller may look at, or change, the global settings."""
        self.call.check(operation, AclResource.CLUSTER)

    def _denied(self, what: str, subject: str) -> Refusal:
        return Refusal(NOT_ALLOWED, f"{self.call.caller.principal} may not {what} subject {subject!r}")

    def uses(self, schema_id: int, deleted: bool) -> list[tuple[str, Version]]:
        """The subjects and versions that have a schema, as far as the caller may see them."""
        found = self.registry.schemas.uses(schema_id)
        chosen = [(name, v) for name, v in found if (deleted or not v.deleted) and self.sees(name)]
        return sorted(chosen, key=lambda use: (use[0], use[1].version))

    def readable(self, schema: Schema | None) -> bool:
        """Whether the caller may read a schema, by any of its subjects."""
        return schema is not None and any(self.reads(name) for name, _ in self.registry.schemas.uses(schema.id))

    async def version(self, subject: str, text: str, deleted: bool) -> tuple[Version, Schema]:
        """A version that the caller may read. What is not known here is looked up in the ledger first."""
        self.need_read(subject)
        number = number_of(text)
        if number != LATEST:
            try:
                return self.registry.version(subject, number, deleted)
            except SchemaRefused:
                pass
        await self.services.catch_up()
        return self.registry.version(subject, number, deleted)


def plain(subject: str) -> str:
    """The name of a subject without the default context."""
    return subject.removeprefix(DEFAULT_CONTEXT)


def number_of(text: str) -> int:
    """The number of a version, or `LATEST`."""
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdigit() and len(text) <= len(str(MAX_VERSION)) and 0 < int(text) <= MAX_VERSION:
        return int(text)
    raise SchemaRefused(
        SchemaReason.BAD_VERSION,
        f"The specified version '{text[:100]}' is not a valid version id. "
        'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def part(found: Iterable[T], offset: int, limit: int, most: int = MOST_SUBJECTS) -> list[T]:
    """A part of a listing."""
    return list(islice(found, offset, offset + (min(limit, most) if limit >= 0 else most)))


def answer(value: T) -> Response[T]:
    """An answer in JSON, with the media type of the registry."""
    return cast(Response[T], Response(msgspec.json.encode(value), media_type=MEDIA_TYPE))


def taking(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Says in the OpenAPI document what the body of a call is, which the handler reads itself."""
    return {BODY: kind}


async def body_of(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """The body of a request. Clients send several media types, and fields that came later: both are ignored."""
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal(BAD_REQUEST, f"the body is not what the call takes: {error}") from error


def chosen(versions: Sequence[Version], deleted: bool, only: bool) -> list[Version]:
    """The versions that a caller asks for."""
    return [v for v in versions if (v.deleted if only else deleted or not v.deleted)]


async def provide_frame(call: TheCall) -> Frame:
    """The parameter `frame` of handlers."""
    return Frame(call)


TheFrame = NamedDependency[Frame]
"""The type of the parameter `frame` of handlers."""
