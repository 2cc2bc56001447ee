"""What the schema registry refuses, in the words of Confluent's registry."""

from __future__ import annotations

from headwater.errors import SchemaReason, SchemaRefused


def no_subject(subject: str) -> SchemaRefused:
    """The error for a subject that does not exist, or that the caller may not see."""
    return SchemaRefused(SchemaReason.NO_SUBJECT, f"Subject '{subject}' not found.")


def no_version(version: int | str) -> SchemaRefused:
    """The error for a version that does not exist."""
    return SchemaRefused(SchemaReason.NO_VERSION, f"Version {version} not found.")


def no_schema(what: object = "") -> SchemaRefused:
    """The error for a schema that does not exist, or that the caller may not see."""
    return SchemaRefused(SchemaReason.NO_SCHEMA, f"Schema {what} not found" if what else "Schema not found")


def bad_schema(message: str) -> SchemaRefused:
    """The error for a schema that is not valid."""
    return SchemaRefused(SchemaReason.BAD_SCHEMA, message)


def invalid_schema(kind: str, details: object) -> SchemaRefused:
    """The error for a schema whose text or references are not valid."""
    return bad_schema(f"Invalid schema of type {kind}, details: {details}")


def still_referenced(subject: str, version: int) -> SchemaRefused:
    """The error for the deletion of a version that a schema refers to."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return SchemaRefused(SchemaReason.REFERENCED, f"One or more references exist to the schema {key}.")


def not_permitted(message: str) -> SchemaRefused:
    """The error for a change that the mode or a limit does not allow."""
    return SchemaRefused(SchemaReason.NOT_PERMITTED, message)
