"""Keys and values by schemas: the JSON values of a request become bytes, each with the id of its schema in front.

All schemas that a request names are found first. Then all values are encoded, without waiting. A value that does not
fit is told with its place, and nothing of the request is appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from headwater.background import each
from headwater.configs.topics import TopicConfig
from headwater.errors import BadSchema, BadValue, RegistryUnavailable
from headwater.gateway import rights
from headwater.gateway.problems import TOO_LARGE, UNAVAILABLE, UNPROCESSABLE, Kind, Refusal
from headwater.gateway.records.bodies import Entry
from headwater.gateway.records.choosing import Choice
from headwater.gateway.services import Call
from headwater.schemas.encoding import TooMuchWork
from headwater.schemas.payloads import Usable, Writing, takes_prefix
from headwater.schemas.typing import SUBJECT
from headwater.state.cluster.domain import Topic

MAX_SCHEMAS = 100
"""Different schemas that one request names."""
MAX_TOLD = 100
"""Values of a refused request that are named one by one."""
MAX_ENCODED = 64 << 20
"""Bytes that the values of one request may become: defaults of a schema may add much to small ones."""
DOES_NOT_FIT = Kind(
    "does-not-fit", 422, "A value does not fit its schema",
    "A key or a value of the request cannot be encoded by the schema that the request names for it. `detail` and "
    "`errors` say which record, and where in its value the flaw is. Nothing was appended.",
)  # fmt: skip


class Flaw(msgspec.Struct, frozen=True):
    """A key or a value that cannot be encoded."""

    record: int
    """The number of the record in the request, from 0 on."""
    field: str
    """`key` or `value`."""
    reason: str
    """What does not fit, and where."""


Writings = Mapping[tuple[str, Choice], Writing]
"""By field and choice, what encodes."""


class Encoding:
    """Encodes records for one topic and one caller."""

    def __init__(self, call: Call, topic: Topic) -> None:
        config = TopicConfig.of(topic.configs, call.services.state.resources.common)
        self._call = call
        self._schemas = call.services.schemas
        self._sources = {"key": config.key_schema, "value": config.value_schema}

    def __repr__(self) -> str:
        return f"<Encoding by {self._schemas!r}>"

    async def encoded(self, entries: Sequence[Entry]) -> list[Entry]:
        """Records whose keys and values are bytes. Raises a refusal if something does not fit."""
        choices = choices_of(entries)
        if not choices:
            return list(entries)
        if len(choices) > MAX_SCHEMAS:
            raise Refusal(UNPROCESSABLE, f"the request names {len(choices)} schemas; the limit is {MAX_SCHEMAS}")
        found = await each(lambda one: self.writing(*one), choices)
        # A schema may demand much of a small value, so this is for a thread, whatever the size.
        made, flaws = await self._call.services.offload(encode_all, entries, dict(zip(choices, found, strict=True)))
        if flaws:
            first = flaws[0]
            more = {"errors": flaws[:MAX_TOLD]}
            raise Refusal(DOES_NOT_FIT, f"records[{first.record}].{first.field}: {first.reason}", more=more)
        return made

    async def writing(self, field: str, choice: Choice) -> Writing:
        """What encodes by a schema that a request names. Raises a refusal if the caller cannot use it."""
        self.check_prefix(field)
        try:
            schema = await self._found(choice)
            if schema is None:
                raise Refusal(UNPROCESSABLE, f"`{field}_schema`: there is no {choice}")
            return await self._schemas.writing(schema, choice.message)
        except (BadSchema, BadValue) as error:
            raise Refusal(UNPROCESSABLE, f"`{field}_schema`: {choice} cannot be used: {error}") from error
        except RegistryUnavailable as error:
            raise Refusal(UNAVAILABLE, f"the schema registry cannot be asked: {error}") from error

    def check_prefix(self, field: str) -> None:
        """Raise unless records of the topic may have the id of a schema in front of their keys or values."""
        if not takes_prefix(self._sources[field]):
            told = f"the topic has headwater.{field}.schema={self._sources[field]}: a {field} has no schema there"
            raise Refusal(UNPROCESSABLE, told)

    def may_use(self, field: str, subject: str) -> bool:
        """Whether the caller may encode by schemas of a subject. Those that the topic names itself are for all."""
        return self._sources[field] == SUBJECT + subject or rights.may_read(self._call, subject)

    async def _found(self, choice: Choice) -> Usable | None:
        if choice.subject:
            if not any(self.may_use(field, choice.subject) for field in self._sources):
                return None
            found = await self._schemas.version(choice.subject, choice.version)
            return found[1] if found is not None else None
        if self._call.services.settings.schema_registry.url:
            return await self._schemas.find(str(choice.id))  # it is another registry's business who may read it
        subjects = [subject for subject, _ in await self._schemas.uses(choice.id)]
        usable = any(self.may_use(field, subject) for field in self._sources for subject in subjects)
        return await self._schemas.find(str(choice.id)) if usable else None


def choices_of(entries: Iterable[Entry]) -> list[tuple[str, Choice]]:
    """The schemas that records name, each once, with the field."""
    found: dict[tuple[str, Choice], None] = {}
    for entry in entries:
        if entry.key_schema is not None:
            found["key", entry.key_schema] = None
        if entry.value_schema is not None:
            found["value", entry.value_schema] = None
    return list(found)


def encode_all(entries: Sequence[Entry], writings: Writings) -> tuple[list[Entry], list[Flaw]]:
    """Records whose keys and values are bytes, and what does not fit. Nothing here waits; a thread may run it."""
    made: list[Entry] = []
    flaws: list[Flaw] = []
    size = 0
    for number, entry in enumerate(entries):
        if len(flaws) >= MAX_TOLD:
            break
        parts: dict[str, bytes | None] = {"key": entry.key, "value": entry.value}
        for field, choice in (("key", entry.key_schema), ("value", entry.value_schema)):
            if choice is None:
                continue
            try:
                parts[field] = encode(writings[field, choice], parts[field] or b"")
            except BadValue as error:
                flaws.append(Flaw(number, field, str(error)))
                if isinstance(error, TooMuchWork):
                    return made, flaws  # no other value of the request takes as much
        size += sum(len(part or b"") for part in parts.values())
        if size > MAX_ENCODED:
            raise Refusal(TOO_LARGE, f"the records have more than {MAX_ENCODED} bytes by their schemas")
        changed = {**parts, "key_schema": None, "value_schema": None}
        made.append(msgspec.structs.replace(entry, **changed))
    return made, flaws


def encode(writing: Writing, text: bytes) -> bytes:
    """The bytes of the JSON value of a text. Raises `BadValue`."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(f"the value is no JSON: {error}") from None
    return writing.encode(value)
