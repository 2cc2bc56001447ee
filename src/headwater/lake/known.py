"""Schemas that records name, as far as a registry was asked for them: for compactors and for those who read rows."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Container, Iterable

from headwater.background import each
from headwater.clock import Clock
from headwater.errors import RegistryUnavailable
from headwater.lake.answers import Answers
from headwater.lake.registries import Registry
from headwater.schemas.typing import SUBJECT, KnownSchema

KEPT_PER_TOPIC = 1_000
"""Schemas of one topic that are known. Others are fetched again when records name them."""
ABSENT_SECONDS = 30.0
"""How long a schema that the registry does not have is not asked for again."""
NEWEST_SECONDS = 5.0
"""How long the newest version of a subject is believed to be the newest."""


class KnownSchemas:
    """The schemas of a registry that were asked for lately, and which topic's records named them."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        absent_seconds: float = ABSENT_SECONDS,
        newest_seconds: float = NEWEST_SECONDS,
        wait_seconds: float | None = None,
    ) -> None:
        """`wait_seconds` is how long a caller waits for all the schemas that it wants. None: as long as it takes."""
        self._wait_seconds = wait_seconds
        self._registry = registry
        self._absent_seconds = absent_seconds
        self._newest_seconds = newest_seconds
        self._answers = Answers(clock)
        """By name. None: the registry has no such schema."""
        self._named: dict[uuid.UUID, OrderedDict[str, None]] = {}
        """By topic, the names that its records had lately."""

    def __repr__(self) -> str:
        return f"<KnownSchemas by {self._answers!r}>"

    @property
    def unreachable(self) -> str:
        """Why the registry does not answer; empty if it does, or was not asked."""
        return self._answers.unreachable

    @property
    def resting(self) -> bool:
        """Whether the registry did not answer a moment ago, and is not asked now."""
        return self._answers.resting

    def of(self, topic: uuid.UUID) -> tuple[tuple[KnownSchema, ...], tuple[str, ...]]:
        """The schemas that records of a topic named lately, and the names that are no schemas."""
        kept = {name: self._answers.get(name) for name in self._named.get(topic, ())}
        answers = {name: found.answer for name, found in kept.items() if found is not None}
        known = tuple(schema for schema in answers.values() if isinstance(schema, KnownSchema))
        return known, tuple(name for name, schema in answers.items() if schema is None)

    def forget(self, kept: Container[uuid.UUID]) -> None:
        """Forget what records of all but these topics named."""
        for gone in [topic for topic in self._named if topic not in kept]:
            del self._named[gone]

    async def refresh(self, topic: uuid.UUID, sources: Iterable[str]) -> None:
        """Ask again for what may have changed: the newest version of a subject, schemas that were not there.

        `sources` are where the topic's schemas come from.
        """
        pinned = [source for source in sources if source.startswith(SUBJECT)]
        names = dict.fromkeys([*pinned, *self._named.get(topic, ())])
        await self.learn(topic, [name for name in names if self._answers.fresh(name) is None])

    async def learn(self, topic: uuid.UUID, wanted: Iterable[str]) -> bool:
        """Ask for the schemas that records of a topic name. Returns whether the registry answered."""
        names = list(wanted)
        if not names:
            return True
        own = self._named.setdefault(topic, OrderedDict())
        for name in names:
            own[name] = None
            own.move_to_end(name)
        while len(own) > KEPT_PER_TOPIC:
            own.popitem(last=False)
        try:
            with self._answers.asking():
                await self._ask(names)
        except RegistryUnavailable:
            return False
        return True

    async def _ask(self, names: Iterable[str]) -> None:
        """Ask for schemas. Answers are kept, also if others take too long."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await each(self._learn, names)
        except TimeoutError:
            raise RegistryUnavailable(f"it takes longer than {self._wait_seconds} s") from None

    async def _learn(self, name: str) -> None:
        schema = await self._registry.schema(name)
        seconds = self._newest_seconds if name.startswith(SUBJECT) else float("inf")
        self._answers.keep(name, schema, seconds if schema is not None else self._absent_seconds)
