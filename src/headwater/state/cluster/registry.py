"""The part of the state for the schema registry."""

from __future__ import annotations

import uuid

import msgspec

from headwater.state.cluster.domain import ClusterDomain
from headwater.state.cluster.schemas import NO_SETTINGS, Schema, Subject
from headwater.state.commands.schemas import (
    DeleteSchemas,
    RegisterSchema,
    SchemaMode,
    SchemaSettings,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.machine import Part
from headwater.state.results import Done, Result


def _register(state: ClusterDomain, epoch: int, command: RegisterSchema) -> Result:
    return _rolled(state, state.schemas.register(command, state.date_ms), "schema+", command.subject)


def _delete(state: ClusterDomain, epoch: int, command: DeleteSchemas) -> Result:
    result = state.schemas.delete(command, state.date_ms)
    return _rolled(state, result, "schema-", command.subject, int(command.permanent))


def _set_settings(state: ClusterDomain, epoch: int, command: SetSchemaSettings) -> Result:
    return _rolled(state, state.schemas.set_settings(command), "schema settings", command.subject)


def _set_mode(state: ClusterDomain, epoch: int, command: SetSchemaMode) -> Result:
    return _rolled(state, state.schemas.set_mode(command), "schema mode", command.subject)


def _rolled(state: ClusterDomain, result: Result, *facts: object) -> Result:
    if isinstance(result, Done):
        state.roll(*facts, result.value, state.schemas.last_revision)
    return result


class RegistryImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The schema registry inside a checkpoint."""

    subjects: list[Subject]
    schemas: list[Schema]
    retired: list[tuple[int, uuid.UUID]]
    settings: SchemaSettings
    mode: SchemaMode | None
    revision: int
    last_revision: int
    last_id: int


def _pack(state: ClusterDomain) -> RegistryImage:
    own = state.schemas
    return RegistryImage(
        list(own.subjects.values()),
        list(own.schemas.values()),
        list(own.retired.items()),
        own.settings,
        own.mode,
        own.revision,
        own.last_revision,
        own.last_id,
    )


def _unpack(state: ClusterDomain, image: RegistryImage) -> None:
    own = state.schemas
    own.restore(image.subjects, image.schemas, image.retired)
    own.settings, own.mode, own.revision = image.settings, image.mode, image.revision
    own.last_revision, own.last_id = image.last_revision, image.last_id


PART: Part[ClusterDomain, RegistryImage] = Part(
    name="schemas",
    commands={
        RegisterSchema: _register,
        DeleteSchemas: _delete,
        SetSchemaSettings: _set_settings,
        SetSchemaMode: _set_mode,
    },
    format=1,
    image=RegistryImage,
    pack=_pack,
    unpack=_unpack,
    empty=lambda: RegistryImage([], [], [], NO_SETTINGS, None, 0, 0, 0),
)
