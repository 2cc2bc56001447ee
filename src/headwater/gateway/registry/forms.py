"""Schemas as clients send them and get them."""

from __future__ import annotations

import msgspec

from headwater.replica.schema_errors import bad_schema
from headwater.replica.schema_sources import LATEST, Draft, Metadata, Reference, RuleSet, extra_of
from headwater.schemas.parsing import SchemaKind
from headwater.state.cluster.schemas import MAX_ID, Schema, Version


class GivenReference(msgspec.Struct, frozen=True):
    """A reference, as clients send and get it."""

    name: str
    """How the schema names it: a type of Avro, an imported file of Protobuf, a URL of JSON Schema."""
    subject: str
    """The subject that has it."""
    version: int = LATEST
    """The version of the subject; -1 for the newest one."""


class GivenSchema(msgspec.Struct, frozen=True, rename="camel"):
    """A schema to register, to look up or to compare."""

    schema: str | None = None
    """The text of the schema."""
    schema_type: str | None = None
    """AVRO, which is the default, PROTOBUF or JSON."""
    references: list[GivenReference] | None = None
    """What the schema refers to."""
    metadata: Metadata | None = None
    """What the schema says about itself, for clients."""
    rule_set: RuleSet | None = None
    """Rules that clients follow."""
    id: int | None = None
    """The id to register under, in mode IMPORT."""
    version: int | None = None
    """The version to register under."""


class ToldSchema(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A schema, as clients get it."""

    subject: str | None = None
    """The subject."""
    version: int | None = None
    """The version of the subject."""
    id: int | None = None
    """The id of the schema."""
    guid: str = ""
    """The GUID of the schema."""
    schema_type: str = ""
    """AVRO, PROTOBUF or JSON."""
    references: list[GivenReference] = []
    """What the schema refers to."""
    metadata: Metadata | None = None
    """What the schema says about itself, for clients."""
    rule_set: RuleSet | None = None
    """Rules that clients follow."""
    schema: str = ""
    """The text of the schema."""
    ts: int | None = None
    """When it was registered or deleted, in milliseconds since 1970."""
    deleted: bool = False
    """Whether the version is deleted."""
    max_id: int | None = None
    """With `fetchMaxId`, the greatest id of the registry."""


def draft_of(given: GivenSchema) -> Draft:
    """A schema that a client gives."""
    text = given.schema or ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad_schema(f"the schema is not valid Unicode: {error}") from error
    for what, number in (("id", given.id), ("version", given.version)):
        if number is not None and not -1 <= number <= MAX_ID:
            raise bad_schema(f"the {what} {number} is out of range")
    if not text.strip():
        raise bad_schema("Empty schema")
    return Draft(
        kind=given.schema_type or SchemaKind.AVRO,
        text=text,
        references=tuple(Reference(r.name, r.subject, r.version) for r in given.references or ()),
        metadata=given.metadata,
        rules=given.rule_set,
        id=max(given.id or 0, 0),
        version=max(given.version or 0, 0),
    )


def told(
    schema: Schema, subject: str | None = None, version: Version | None = None, *, text: str | None = None
) -> ToldSchema:
    """A schema, or a version of a subject. `text` replaces its own text."""
    content = schema.content
    extra = extra_of(content)
    return ToldSchema(
        subject=subject,
        version=version.version if version is not None else None,
        id=schema.id if version is not None else None,
        guid=str(schema.guid),
        schema_type=content.kind,
        references=[GivenReference(r.name, r.subject, r.version) for r in content.references],
        metadata=extra.metadata,
        rule_set=extra.rule_set,
        schema=content.text if text is None else text,
        ts=version.changed_ms if version is not None else schema.created_ms,
        deleted=version is not None and version.deleted,
    )
