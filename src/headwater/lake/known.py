"""Schemas that records name, as far as a registry was asked for them: for compactors and for those who read rows.

What the registry answered is kept for a while, up to limits. A registry that does not answer is left alone for some
seconds, so that nobody waits for its time-outs one by one.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence

from headwater.background import each
from headwater.clock import Clock
from headwater.lake.registries import Registry, RegistryUnavailable
from headwater.schemas.typing import SUBJECT, KnownSchema

log = logging.getLogger("headwater.schemas")
KEPT_SCHEMAS = 10_000
KEPT_PER_TOPIC = 1_000
"""Schemas that are known, of all topics and of one topic. Others are fetched again when records name them."""
KEPT_CHARACTERS = 64 << 20
"""The length of all texts that are kept."""
ABSENT_SECONDS = 30.0
"""How long a schema that the registry does not have is not asked for again."""
NEWEST_SECONDS = 5.0
"""How long the newest version of a subject is believed to be the newest."""
RETRY_SECONDS = 5.0
"""How long a registry that did not answer is not asked again."""


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
        self._clock = clock
        self._absent_seconds = absent_seconds
        self._newest_seconds = newest_seconds
        self._known: OrderedDict[str, tuple[KnownSchema | None, float]] = OrderedDict()
        """By name, with the time of the answer. None: the registry has no such schema."""
        self._characters = 0
        self._named: dict[uuid.UUID, OrderedDict[str, None]] = {}
        """By topic, the names that its records had lately."""
        self._asked_again = 0.0
        self.unreachable = ""
        """Why the registry does not answer; empty if it does, or was not asked."""

    def __repr__(self) -> str:
        return f"<KnownSchemas, {len(self._known)} schemas, {self.unreachable or 'registry reachable'}>"

    @property
    def resting(self) -> bool:
        """Whether the registry did not answer a moment ago, and is not asked now."""
        return bool(self.unreachable) and self._clock.monotonic() < self._asked_again

    def of(self, topic: uuid.UUID) -> tuple[tuple[KnownSchema, ...], tuple[str, ...]]:
        """The schemas that records of a topic named lately, and the names that are no schemas."""
        answers = {name: self._known[name][0] for name in self._named.get(topic, ()) if name in self._known}
        known = tuple(schema for schema in answers.values() if schema is not None)
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
        await self.learn(topic, [name for name in names if not self._is_fresh(name)])

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
        return await self._fetched(names) is not None

    async def find(self, name: str) -> KnownSchema | None:
        """A schema by its name; None if there is none. Raises `RegistryUnavailable`."""
        if self._is_fresh(name):
            return self._known[name][0]
        found = await self._fetched([name])
        if found is None:
            raise RegistryUnavailable(self.unreachable)
        return found[0]

    def _is_fresh(self, name: str) -> bool:
        """Whether what is known of a name still holds."""
        schema, at = self._known.get(name, (None, float("-inf")))
        age = self._clock.monotonic() - at
        if schema is None:
            return age < self._absent_seconds
        return not name.startswith(SUBJECT) or age < self._newest_seconds

    async def _fetched(self, names: Sequence[str]) -> list[KnownSchema | None] | None:
        """What the registry answers; None if it does not."""
        if self.resting:
            return None
        try:
            async with asyncio.timeout(self._wait_seconds):
                found = await each(self._asked, names)
        except (RegistryUnavailable, TimeoutError) as error:
            reason = str(error) or f"it takes longer than {self._wait_seconds} s"
            if not self.unreachable:
                log.warning("a schema registry cannot be asked", extra={"reason": reason})
            self.unreachable = reason
            self._asked_again = self._clock.monotonic() + RETRY_SECONDS
            return None
        self.unreachable = ""
        return found

    async def _asked(self, name: str) -> KnownSchema | None:
        """Ask for one schema, and keep the answer, also if others take too long."""
        schema = await self._registry.schema(name)
        self._characters += _size(schema) - _size(self._known.get(name, (None, 0.0))[0])
        self._known[name] = (schema, self._clock.monotonic())
        self._known.move_to_end(name)
        while len(self._known) > KEPT_SCHEMAS or self._characters > KEPT_CHARACTERS:
            _, (gone, _) = self._known.popitem(last=False)
            self._characters -= _size(gone)
        return schema


def _size(schema: KnownSchema | None) -> int:
    """The length of the texts of a schema."""
    return len(schema.text) + sum(len(text) for _, text in schema.references) if schema is not None else 0
