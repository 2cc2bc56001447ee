"""How a request names the schema by which a key or a value is encoded."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from headwater.errors import BadInput
from headwater.replica.schema_sources import LATEST
from headwater.state.cluster.schemas import MAX_ID, MAX_NAME

BY_ID = "id:"
"""Begins the text of an id, where a text may also be a subject."""
SchemaId = Annotated[int, msgspec.Meta(ge=1, le=MAX_ID)]
SubjectText = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]


class SchemaBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schema: by its id, or by its subject."""

    id: SchemaId | None = None
    """The id of the schema."""
    subject: SubjectText | None = None
    """The subject, instead of an id."""
    version: SchemaId | None = None
    """The version of the subject. Without one the newest."""
    message: SubjectText | None = None
    """The full name of a message of a Protobuf schema. Without one the first."""


SchemaName: TypeAlias = SchemaId | SubjectText | SchemaBody
"""An id; the name of a subject, or `id:N`; or an object."""


class Choice(msgspec.Struct, frozen=True):
    """A schema that was named. It has an id or a subject."""

    id: int = 0
    subject: str = ""
    version: int = LATEST
    message: str = ""

    def __str__(self) -> str:
        if self.id:
            return f"schema {self.id}"
        return f"subject {self.subject!r}" + (f", version {self.version}" if self.version != LATEST else "")


def choice_of(field: str, given: SchemaName) -> Choice:
    """The schema that a field names. Raises `BadInput`."""
    if isinstance(given, str):
        number = given.removeprefix(BY_ID)
        if number == given:
            if not 0 < len(given) <= MAX_NAME:
                raise BadInput(f"`{field}` has no name of a subject, or a longer one than {MAX_NAME} characters")
            return Choice(subject=given)
        if not (number.isascii() and number.isdigit() and len(number) <= 10 and 0 < int(number) <= MAX_ID):
            raise BadInput(f"`{field}`: {number[:20]!r} is not the id of a schema")
        return Choice(id=int(number))
    if isinstance(given, int):
        return Choice(id=given)
    if (given.id is None) is (given.subject is None):
        raise BadInput(f"`{field}` names an id or a subject, and not both")
    if given.id is not None and given.version is not None:
        raise BadInput(f"`{field}` has a version, which only a subject has")
    return Choice(given.id or 0, given.subject or "", given.version or LATEST, given.message or "")
