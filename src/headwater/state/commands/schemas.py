"""Commands of the schema registry.

The state does not understand schemas. The process that registers one parses it, and checks that it is compatible with
the versions before. Then it names what it has seen: the revision of the subject, and that of the global settings. If
one of them is no longer current, `apply` refuses the command, and the process looks again.
"""

from __future__ import annotations

import enum
import uuid
from typing import TypeAlias

from headwater.state.commands.base import Command, Fields

GLOBAL = ""
"""Stands for the global settings where a command takes a subject."""


class SchemaMode(enum.StrEnum):
    """What may be changed in a subject, or in all subjects."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    """Globally: no subject may be changed, whatever its own mode is."""
    IMPORT = "IMPORT"
    """Schemas are registered with the ids and versions that they have elsewhere."""


class SchemaReference(Fields, frozen=True):
    """A version of a subject that a schema refers to."""

    name: str
    """How the text of the schema names it."""
    subject: str
    version: int
    id: int
    """The id of the schema that this version has."""


class SchemaContent(Fields, frozen=True):
    """What a schema says. Equal contents have equal GUIDs."""

    kind: str
    """AVRO, PROTOBUF or JSON."""
    text: str
    references: tuple[SchemaReference, ...]
    extra: str
    """Metadata and rules as JSON text, for clients; empty if there are none."""


class SchemaSettings(Fields, frozen=True):
    """The settings of a subject, or the global ones. None: not set."""

    compatibility: str | None
    normalize: bool | None


class Seen(Fields, frozen=True):
    """What the caller has seen."""

    subject: int
    """The revision of the subject. 0: nothing is known of it."""
    all: int
    """The revision of the global settings."""


class RegisterSchema(Command, frozen=True, tag="schema+"):
    """Add a version to a subject. Returns the id of the schema.

    If the subject has the schema already, nothing changes. If it has it as a deleted version, that one goes away. A
    schema that another subject has keeps its id. References must be versions that are not deleted.
    """

    subject: str
    seen: Seen
    content: SchemaContent
    guid: uuid.UUID
    """Says which contents are equal."""
    id: int
    """The id to register under. 0: the id of this content, or the next free one."""
    version: int
    """The version to register under. 0: the next one."""


class DeleteSchemas(Command, frozen=True, tag="schema-"):
    """Delete versions of a subject, all or none. Refused while other schemas refer to them.

    A deleted version can still be read by its id. A permanent deletion takes versions that are deleted already, and
    removes them. A subject whose last version is removed loses its settings and its mode.
    """

    subject: str
    seen: Seen
    versions: tuple[int, ...]
    permanent: bool


class SetSchemaSettings(Command, frozen=True, tag="schema settings"):
    """Replace the settings of a subject, or the global ones."""

    subject: str
    """`GLOBAL` for the global settings."""
    seen: Seen
    settings: SchemaSettings


class SetSchemaMode(Command, frozen=True, tag="schema mode"):
    """Set the mode of a subject, or the global one. None: not set."""

    subject: str
    """`GLOBAL` for the global mode."""
    seen: Seen
    mode: SchemaMode | None


SchemasCommand: TypeAlias = RegisterSchema | DeleteSchemas | SetSchemaSettings | SetSchemaMode
