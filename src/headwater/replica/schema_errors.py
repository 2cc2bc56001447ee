"""What the schema registry refuses, by the numbers that clients of Confluent's registry know."""

from __future__ import annotations

import enum

from headwater.errors import BadInput


class RegistryCode(enum.IntEnum):
    """Why a request was refused. The first three digits are the status over HTTP."""

    NO_SUBJECT = 40401
    NO_VERSION = 40402
    NO_SCHEMA = 40403
    SUBJECT_DELETED = 40404
    """It is deleted already; `permanent` removes it."""
    SUBJECT_NOT_DELETED = 40405
    """It must be deleted before it is deleted permanently."""
    VERSION_DELETED = 40406
    VERSION_NOT_DELETED = 40407
    NO_COMPATIBILITY = 40408
    """The subject has no compatibility level of its own."""
    NO_MODE = 40409
    """The subject has no mode of its own."""
    INCOMPATIBLE = 40901
    BAD_SCHEMA = 42201
    BAD_VERSION = 42202
    BAD_COMPATIBILITY = 42203
    BAD_MODE = 42204
    NOT_PERMITTED = 42205
    """The mode of the subject, or a limit, does not allow it."""
    REFERENCED = 42206
    """Other schemas refer to it."""
    BAD_SUBJECT = 42208
    TOO_LARGE = 42209


class RegistryError(BadInput):
    """The schema registry refused a request. Nothing was changed."""

    def __init__(self, code: RegistryCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def no_subject(subject: str) -> RegistryError:
    """The error for a subject that does not exist, or that the caller may not see."""
    return RegistryError(RegistryCode.NO_SUBJECT, f"Subject '{subject}' not found.")


def no_version(version: int | str) -> RegistryError:
    """The error for a version that does not exist."""
    return RegistryError(RegistryCode.NO_VERSION, f"Version {version} not found.")


def no_schema(what: object = "") -> RegistryError:
    """The error for a schema that does not exist, or that the caller may not see."""
    return RegistryError(RegistryCode.NO_SCHEMA, f"Schema {what} not found" if what else "Schema not found")


def bad_schema(message: str) -> RegistryError:
    """The error for a schema that is not valid."""
    return RegistryError(RegistryCode.BAD_SCHEMA, message)


def not_permitted(message: str) -> RegistryError:
    """The error for a change that the mode or a limit does not allow."""
    return RegistryError(RegistryCode.NOT_PERMITTED, message)
