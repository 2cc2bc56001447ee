"""Schemas as they are given by callers, and as they are stored: references resolved, parsed, compared.

Nothing here changes the registry. `replica/schemas.py` does.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from headwater.errors import BadSchema, SchemaRefused
from headwater.replica.schema_errors import bad_schema, invalid_schema
from headwater.schemas.identity import guid
from headwater.schemas.parsing import AvroModel, Parsed, ProtobufModel, SchemaKind, Source, parse
from headwater.schemas.protobuf.model import serialized
from headwater.state.cluster.schemas import Schemas, Version
from headwater.state.commands.schemas import SchemaContent, SchemaReference

LATEST = -1
"""Stands for the newest version of a subject."""
CACHED_CHARACTERS = 8_000_000
"""The limit of the texts whose parsed schemas are kept."""
CACHED_SCHEMAS = 1_000


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as a caller gives it."""

    name: str
    subject: str
    version: int = LATEST


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a schema says about itself, for clients."""

    tags: dict[str, list[str]] | None = None
    """Tags of fields, by their paths."""
    properties: dict[str, str] | None = None
    """Properties by name."""
    sensitive: list[str] | None = None
    """Names of properties that are secret."""


class SchemaRule(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A rule that clients follow when they write or read records. The registry only keeps it."""

    name: str | None = None
    """The name of the rule."""
    doc: str | None = None
    """What it is for."""
    kind: str | None = None
    """TRANSFORM or CONDITION."""
    mode: str | None = None
    """When clients follow it: WRITE, READ, UPGRADE and so on."""
    type: str | None = None
    """Its language, such as CEL."""
    tags: list[str] | None = None
    """Tags of the fields that it is about."""
    params: dict[str, str] | None = None
    """Its parameters."""
    expr: str | None = None
    """The rule itself."""
    on_success: str | None = None
    """What clients do if it holds."""
    on_failure: str | None = None
    """What clients do if it does not hold."""
    disabled: bool = False
    """Whether clients ignore it."""


class RuleSet(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The rules of a schema."""

    migration_rules: list[SchemaRule] | None = None
    """Rules for readers of older and newer versions."""
    domain_rules: list[SchemaRule] | None = None
    """Rules for values."""
    encoding_rules: list[SchemaRule] | None = None
    """Rules for encoded values."""
    enable_at: str | None = None
    """When they are followed."""


class Extra(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a schema has for clients beside its text."""

    metadata: Metadata | None = None
    rule_set: RuleSet | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A schema as a caller gives it."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Metadata | None = None
    """None if the caller says nothing about it."""
    rules: RuleSet | None = None
    """None if the caller says nothing about them."""
    id: int = 0
    """The id to register under, in mode IMPORT. 0: none is given."""
    version: int = 0
    """The version to register under. 0: none is given."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A draft that was found to be valid, as it would be stored."""

    content: SchemaContent
    guid: uuid.UUID
    parsed: Parsed


def no_reference(kind: str, reference: Reference) -> SchemaRefused:
    """The error for a reference to what does not exist, or what the caller may not see."""
    what = f'subject "{reference.subject}" and version {reference.version}'
    return invalid_schema(kind, f"No schema reference found for {what}")


class Sources:
    """Parses schemas of a registry. Parsed ones are kept for a while."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._kept: OrderedDict[uuid.UUID, tuple[int, Parsed]] = OrderedDict()
        self._characters = 0

    def __repr__(self) -> str:
        return f"<Sources, {len(self._kept)} parsed>"

    def kept(self, guid: uuid.UUID) -> Parsed | None:
        """A stored schema, if it was parsed lately."""
        found = self._kept.get(guid)
        if found is None:
            return None
        self._kept.move_to_end(guid)
        return found[1]

    def keep(self, guid: uuid.UUID, size: int, parsed: Parsed) -> None:
        """Keep a parsed schema. `size` is the length of its text."""
        if guid in self._kept or size > CACHED_CHARACTERS:
            return
        self._kept[guid] = (size, parsed)
        self._characters += size
        while self._characters > CACHED_CHARACTERS or len(self._kept) > CACHED_SCHEMAS:
            _, (gone, _) = self._kept.popitem(last=False)
            self._characters -= gone

    def source_of(self, content: SchemaContent) -> Source:
        """A stored schema with the texts of all that it refers to."""
        return Source(SchemaKind(content.kind), content.text, self._texts(content.references))

    def resolved(self, draft: Draft) -> tuple[SchemaReference, ...]:
        """The references of a draft. Raises if one names no version, or one that is deleted."""
        found = []
        for reference in draft.references:
            version = self._version(draft.kind, reference)
            found.append(SchemaReference(reference.name, reference.subject, version.version, version.id))
        return tuple(found)

    def _version(self, kind: str, reference: Reference) -> Version:
        subject = self._schemas.subjects.get(reference.subject)
        live = subject.live if subject is not None else []
        if reference.version == LATEST and live:
            return live[-1]
        for version in live:
            if version.version == reference.version:
                return version
        raise no_reference(kind, reference)

    def _texts(self, references: Iterable[SchemaReference]) -> tuple[tuple[str, str], ...]:
        """Name and text of all that is referred to, in depth: each after those that it needs itself."""
        texts: dict[str, str] = {}
        seen: set[tuple[str, int]] = set()
        path = [iter(references)]
        names: list[SchemaReference] = []
        while path:
            reference = next(path[-1], None)
            if reference is None:
                path.pop()
                if names:
                    done = names.pop()
                    texts[done.name] = self._schemas.schemas[done.id].content.text
                continue
            if (reference.name, reference.id) in seen:
                continue
            seen.add((reference.name, reference.id))
            names.append(reference)
            path.append(iter(self._schemas.schemas[reference.id].content.references))
        return tuple(texts.items())

    def request_of(self, draft: Draft) -> tuple[Source, tuple[SchemaReference, ...]]:
        """What `ready_of` needs to parse a draft. Raises if the draft is not valid by itself."""
        if draft.kind not in SchemaKind.__members__:
            raise bad_schema(f"Invalid schema type {draft.kind}: it is one of {', '.join(SchemaKind.__members__)}")
        references = self.resolved(draft)
        return Source(SchemaKind(draft.kind), draft.text, self._texts(references)), references

    def extra_for(self, draft: Draft, before: SchemaContent | None) -> str:
        """What a draft has beside its text. What it says nothing about is as in the version before.

        Empty metadata and an empty set of rules are none: the same request, sent twice, has one id.
        """
        former = extra_of(before) if before is not None else Extra()
        metadata = draft.metadata if draft.metadata is not None else former.metadata
        rules = draft.rules if draft.rules is not None else former.rule_set
        both = Extra(metadata if has_any(metadata) else None, rules if has_any(rules) else None)
        return msgspec.json.encode(both, order="sorted").decode() if both != Extra() else ""


def has_any(part: Metadata | RuleSet | None) -> bool:
    """Whether metadata or a set of rules says anything."""
    return part is not None and any(getattr(part, name) for name in part.__struct_fields__)


def ready_of(source: Source, references: tuple[SchemaReference, ...], extra: str, normalize: bool) -> Ready:
    """Parse a schema that is about to be registered or looked up. Raises a `SchemaRefused` with the flaw."""
    try:
        parsed = parse(source)
    except BadSchema as error:
        raise invalid_schema(source.kind.value, error) from error
    text = parsed.normalized if normalize else parsed.canonical
    content = SchemaContent(source.kind.value, text, references, extra)
    return Ready(content, guid_of(content), parsed)


def guid_of(content: SchemaContent) -> uuid.UUID:
    """The GUID of a schema as it is stored."""
    plain = msgspec.json.decode(content.extra) if content.extra else {}
    references = [(reference.name, reference.subject, reference.version) for reference in content.references]
    return guid(content.text, references, plain.get("metadata"), plain.get("ruleSet"))


def extra_of(content: SchemaContent) -> Extra:
    """What a stored schema has beside its text."""
    return msgspec.json.decode(content.extra, type=Extra) if content.extra else Extra()


def formatted(parsed: Parsed, text: str, form: str) -> str:
    """The text of a schema in the form that a client asks for. Forms that its kind does not have change nothing."""
    if form == "serialized" and isinstance(parsed.model, ProtobufModel):
        return serialized(parsed.model)
    if form == "resolved" and isinstance(parsed.model, AvroModel):
        return msgspec.json.encode(parsed.model.tree).decode()
    return text


def parse_stored(source: Source) -> Parsed:
    """Parse a schema that was registered before. Rules that became stricter since do not count."""
    return parse(source, strict=False)
