"""Where the compactor gets schemas from: the registry of this cluster, or another one."""

from __future__ import annotations

import uuid
from typing import Protocol

from headwater.errors import Retriable
from headwater.replica.replica import Replica
from headwater.replica.schema_sources import Sources
from headwater.schemas.typing import SUBJECT, KnownSchema
from headwater.state.cluster.schemas import Schema
from headwater.state.cluster.state import ClusterState


class RegistryUnavailable(Retriable):
    """A schema registry does not answer, or refuses the caller. Records are settled without typed values meanwhile."""


class Registry(Protocol):
    """Schemas by the names that records and topics have for them."""

    async def schema(self, name: str) -> KnownSchema | None:
        """The schema with an id, with a GUID, or the newest one of `subject:NAME`. None if there is none.

        Raises `RegistryUnavailable`.
        """


class BuiltIn:
    """The registry of this cluster, as its state has it."""

    def __init__(self, cluster: Replica[ClusterState]) -> None:
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"<BuiltIn {self._cluster.state.schemas!r}>"

    async def schema(self, name: str) -> KnownSchema | None:
        schemas = self._cluster.state.schemas
        found = self._find(name)
        if found is None:
            await self._cluster.barrier()  # it may have been registered lately
            found = self._find(name)
        if found is None:
            return None
        source = Sources(schemas).source_of(found.content)
        return KnownSchema((name,), source.kind.value, source.text, source.references)

    def _find(self, name: str) -> Schema | None:
        schemas = self._cluster.state.schemas
        if name.startswith(SUBJECT):
            subject = schemas.subjects.get(name.removeprefix(SUBJECT))
            live = subject.live if subject is not None else []
            return schemas.schemas[live[-1].id] if live else None
        if name.isdecimal():
            return schemas.schemas.get(int(name))
        return schemas.by_guid(uuid.UUID(name))
