"""Where the compactor gets schemas from: the registry of this cluster, or another one."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from headwater.replica.replica import Replica
from headwater.replica.schema_sources import LATEST, Sources
from headwater.schemas.typing import SUBJECT, KnownSchema
from headwater.state.cluster.schemas import Schema, Version
from headwater.state.cluster.state import ClusterState


class Registry(Protocol):
    """Schemas by the names that records and topics have for them."""

    async def schema(self, name: str) -> KnownSchema | None:
        """The schema with an id, with a GUID, or the newest one of `subject:NAME`. None if there is none.

        Raises `RegistryUnavailable`.
        """


def names_of(name: str, number: int) -> tuple[str, ...]:
    """How a schema is named that was asked for by a name, and has an id. 0: the id is not known."""
    return (name, str(number)) if number and name != str(number) else (name,)


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: KnownSchema


class Subjects(Registry, Protocol):
    """Schemas by subjects too, for those that write records."""

    async def version(self, subject: str, number: int = LATEST) -> Registered | None:
        """A version of a subject, or its newest one. None if there is none. Raises `RegistryUnavailable`."""

    async def uses(self, schema_id: int) -> list[tuple[str, int]]:
        """The subjects and versions that have a schema, without deleted ones. Raises `RegistryUnavailable`."""


class BuiltIn:
    """The registry of this cluster, as its state has it."""

    def __init__(self, cluster: Replica[ClusterState]) -> None:
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"<BuiltIn {self._cluster.state.schemas!r}>"

    async def schema(self, name: str) -> KnownSchema | None:
        found = self._find(name)
        if found is None:
            await self._cluster.barrier()  # it may have been registered lately
            found = self._find(name)
        return self._known(found, name) if found is not None else None

    async def version(self, subject: str, number: int = LATEST) -> Registered | None:
        found = self._version(subject, number)
        if found is None or number == LATEST:
            await self._cluster.barrier()
            found = self._version(subject, number)
        if found is None:
            return None
        schema = self._cluster.state.schemas.schemas[found.id]
        return Registered(subject, found.version, found.id, self._known(schema, str(found.id)))

    async def uses(self, schema_id: int) -> list[tuple[str, int]]:
        schemas = self._cluster.state.schemas
        if schema_id not in schemas.schemas:
            await self._cluster.barrier()
        return [(name, version.version) for name, version in schemas.uses(schema_id) if not version.deleted]

    def _known(self, schema: Schema, name: str) -> KnownSchema:
        source = Sources(self._cluster.state.schemas).source_of(schema.content)
        return KnownSchema(names_of(name, schema.id), source.kind.value, source.text, source.references)

    def _version(self, subject: str, number: int) -> Version | None:
        own = self._cluster.state.schemas.subjects.get(subject)
        live = own.live if own is not None else []
        return next((one for one in reversed(live) if number in (LATEST, one.version)), None)

    def _find(self, name: str) -> Schema | None:
        schemas = self._cluster.state.schemas
        if name.startswith(SUBJECT):
            subject = schemas.subjects.get(name.removeprefix(SUBJECT))
            live = subject.live if subject is not None else []
            return schemas.schemas[live[-1].id] if live else None
        if name.isdecimal():
            return schemas.schemas.get(int(name))
        return schemas.by_guid(uuid.UUID(name))
