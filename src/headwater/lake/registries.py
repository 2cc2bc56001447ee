"""Where the compactor gets schemas from: the registry of this cluster, or another one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

from headwater.errors import Retriable
from headwater.replica.replica import Replica
from headwater.schemas.typing import SUBJECT, KnownSchema
from headwater.state.cluster.schemas import Schema, Schemas
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.schemas import SchemaReference


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
        texts: dict[str, str] = {}
        _gather(schemas, found.content.references, texts)
        return KnownSchema((name,), found.content.kind, found.content.text, tuple(texts.items()))

    def _find(self, name: str) -> Schema | None:
        schemas = self._cluster.state.schemas
        if name.startswith(SUBJECT):
            subject = schemas.subjects.get(name.removeprefix(SUBJECT))
            live = subject.live if subject is not None else []
            return schemas.schemas[live[-1].id] if live else None
        if name.isdecimal():
            return schemas.schemas.get(int(name))
        return schemas.by_guid(uuid.UUID(name))


def _gather(schemas: Schemas, references: Iterable[SchemaReference], texts: dict[str, str]) -> None:
    """Add the texts of all that is referred to by name, each behind those that it needs itself."""
    for reference in references:
        if reference.name not in texts:
            content = schemas.schemas[reference.id].content
            _gather(schemas, content.references, texts)
            texts[reference.name] = content.text
