"""Data with a schema, in the words of the REST Proxy: which schema it is, and the bytes that it becomes.

The schema is in the subject that the record names, or in the one of its strategy. It is found by its id or its version,
or is the newest one; or the record brings it along, and it is registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from headwater.background import each
from headwater.errors import BadSchema, BadValue, HeadwaterError, RegistryUnavailable, SchemaReason, SchemaRefused
from headwater.gateway import rights
from headwater.gateway.problems import CODE, UNAVAILABLE, UNPROCESSABLE, Refusal
from headwater.gateway.records.encoding import MAX_ENCODED, Encoding, encode
from headwater.gateway.services import Call
from headwater.gateway.v3.errors import Told, told_of
from headwater.gateway.v3.record_forms import DataReceipt, Form, Wanted, flawed, wrong
from headwater.replica.schema_sources import LATEST, Draft
from headwater.schemas.parsing import SchemaKind
from headwater.schemas.payloads import Usable, Writing, record_name
from headwater.state.cluster.domain import Topic

TYPES = {SchemaKind.AVRO: "AVRO", SchemaKind.JSON: "JSONSCHEMA", SchemaKind.PROTOBUF: "PROTOBUF"}
KINDS = {name: kind for kind, name in TYPES.items()}
RECORD_NAME, TOPIC_RECORD_NAME = "RECORD_NAME", "TOPIC_RECORD_NAME"
BAD_SCHEMA, NOT_SERIALIZED = 42205, 42207
"""Codes of the REST Proxy: a schema that is not valid; no schema, or one that cannot be registered."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The schema of data."""

    writing: Writing
    subject: str
    version: int


Found = Mapping[tuple[str, Wanted], Resolved | Told | None]
"""By field and what data says. None: it has no schema, and is JSON."""


class DataSchemas:
    """Encodes the data of records for one topic and one caller."""

    def __init__(self, call: Call, topic: Topic) -> None:
        self._call = call
        self._topic = topic
        self._schemas = call.services.schemas
        self._encoding = Encoding(call, topic)

    def __repr__(self) -> str:
        return f"<DataSchemas for {self._topic.name!r}>"

    async def encoded(self, forms: list[Form]) -> list[Form | Told]:
        """Records whose keys and values are bytes, or what is wrong with them."""
        wanted = dict.fromkeys(
            (field, one)
            for form in forms
            for field, one in (("key", form.key_schema), ("value", form.value_schema))
            if one is not None
        )
        if not wanted:
            return list(forms)
        found = dict(zip(wanted, await each(lambda one: self._tried(*one), wanted), strict=True))
        return await self._call.services.offload(_all_encoded, forms, found)

    async def _tried(self, field: str, wanted: Wanted) -> Resolved | Told | None:
        try:
            return await self._resolved(field, wanted)
        except HeadwaterError as error:
            return told_of(error)

    async def _resolved(self, field: str, wanted: Wanted) -> Resolved | None:
        try:
            self._encoding.check_prefix(field)
        except Refusal:
            if wanted.certain:
                raise
            return None
        try:
            subject, version, schema = await self._schema(field, wanted)
            if wanted.type and TYPES[schema.kind] != wanted.type:
                raise flawed(f"the {field} has the type {wanted.type}, and its schema is {TYPES[schema.kind]}.")
            return Resolved(await self._schemas.writing(schema), subject, version)
        except _Missing as error:
            if not wanted.certain:
                return None
            raise _unusable(str(error)) from error
        except SchemaRefused as error:
            if error.reason is SchemaReason.BAD_SCHEMA:
                raise _unusable(f"Invalid schema: {error}", BAD_SCHEMA) from error
            raise _unusable(str(error)) from error
        except (BadSchema, BadValue) as error:
            raise _unusable(f"Invalid schema: {error}", BAD_SCHEMA) from error
        except RegistryUnavailable as error:
            raise Refusal(UNAVAILABLE, f"the schema registry cannot be asked: {error}") from error

    async def _schema(self, field: str, wanted: Wanted) -> tuple[str, int, Usable]:
        """The subject, the version and the schema of data."""
        if wanted.text:
            return await self._given(field, wanted)
        if wanted.id:
            schema = await self._schemas.find(str(wanted.id))
            uses = await self._schemas.uses(wanted.id) if schema is not None else []
            if schema is None or not any(self._encoding.may_use(field, name) for name, _ in uses):
                raise _Missing(f"there is no schema {wanted.id}")
            subject = self._subject(field, wanted, record_name(schema.parsed))
            versions = [version for name, version in uses if name == subject]
            if not versions:
                raise _Missing(f"the schema {wanted.id} is no version of the subject {subject!r}")
            return subject, max(versions), schema
        if wanted.strategy in (RECORD_NAME, TOPIC_RECORD_NAME) and not wanted.subject:
            raise flawed(f"Cannot use subject_name_strategy={wanted.strategy} without schema_id or schema.")
        subject = self._subject(field, wanted, "")
        found = None
        if self._encoding.may_use(field, subject):
            found = await self._schemas.version(subject, wanted.version or LATEST)
        if found is None:
            what = f"has no version {wanted.version}" if wanted.version else "does not exist"
            raise _Missing(f"the subject {subject!r} {what}")
        return subject, found[0].version, found[1]

    async def _given(self, field: str, wanted: Wanted) -> tuple[str, int, Usable]:
        """A schema that a record brings along. It is registered if its subject does not have it."""
        services = self._call.services
        if services.settings.schema_registry.url:
            raise flawed("the schemas of this cluster are in another registry: register the schema there first.")
        draft = Draft(KINDS[wanted.type].value, wanted.text)
        name = ""
        if wanted.strategy in (RECORD_NAME, TOPIC_RECORD_NAME):
            name = record_name(await services.registry.parsed_draft(draft))
        subject = self._subject(field, wanted, name)
        if not self._encoding.may_use(field, subject):
            raise _Missing(f"the subject {subject!r} does not exist")
        try:
            version = await services.registry.find(subject, draft)
        except SchemaRefused as error:
            if error.reason is not SchemaReason.NO_SUBJECT:
                raise
            version = None
        if version is None:
            if not rights.may_change(self._call, subject):
                raise _Missing(f"the schema is no version of the subject {subject!r}, and may not be registered")
            version, _ = await services.registry.register(subject, draft)
        schema = services.registry.schemas.schemas[version.id]
        return subject, version.version, Usable(await services.registry.parsed(schema), schema.id)

    def _subject(self, field: str, wanted: Wanted, record: str) -> str:
        if wanted.subject:
            return wanted.subject
        if wanted.strategy not in (RECORD_NAME, TOPIC_RECORD_NAME):
            return f"{self._topic.name}-{field}"
        if not record:
            raise flawed(f"subject_name_strategy={wanted.strategy} needs a schema with a name.")
        return record if wanted.strategy == RECORD_NAME else f"{self._topic.name}-{record}"


class _Missing(HeadwaterError):
    """There is no such schema for the caller."""


def _unusable(message: str, code: int = NOT_SERIALIZED) -> Refusal:
    return Refusal(UNPROCESSABLE, f"Error serializing message. {message}", more={CODE: code})


def _all_encoded(forms: list[Form], found: Found) -> list[Form | Told]:
    """Nothing here waits; a thread may run it."""
    made: list[Form | Told] = []
    size = 0
    for form in forms:
        one = _encoded(form, found) if size <= MAX_ENCODED else wrong("the records before it are too large together.")
        size += len(one.entry.key or b"") + len(one.entry.value or b"") if isinstance(one, Form) else 0
        made.append(one)
    return made


def _encoded(form: Form, found: Found) -> Form | Told:
    made = form
    for field, wanted in (("key", form.key_schema), ("value", form.value_schema)):
        schema = found[field, wanted] if wanted is not None else None
        if isinstance(schema, Told):
            return schema
        if schema is None:
            continue
        text: bytes = getattr(form.entry, field)
        try:
            data = encode(schema.writing, text)
        except BadValue as error:
            return wrong(f"the {field} does not fit its schema. {error}")
        own = schema.writing.schema
        receipt = DataReceipt(TYPES[own.kind], len(data), schema.subject, own.id or 0, schema.version)
        entry = msgspec.structs.replace(made.entry, **{field: data})
        made = msgspec.structs.replace(made, entry=entry, **{f"{field}_told": receipt})
    return made
