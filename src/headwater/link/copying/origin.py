"""The source of one link, as the link describes it: where it is, how to log in, which topics and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from headwater.client.references import Allowed, read_references
from headwater.clock import Chance, Clock
from headwater.errors import HeadwaterError
from headwater.link.copying.feed import Place
from headwater.link.copying.link import Committed, Origin
from headwater.link.copying.topics import NO_ID, Found, Present
from headwater.link.source.errors import SourceRefuses
from headwater.link.source.selection import Names, SourceTopic
from headwater.link.source.source import Answer, Group, Source, Want, open_source
from headwater.settings.links import Links
from headwater.state.cluster.links import Link
from headwater.state.commands.links import LinkSpec
from headwater.threads import Offload, inline

CONFIGS = "configs"
"""The option with which topics here get configs of the source's topics."""


def connector(
    settings: Links, environment: Mapping[str, str], clock: Clock, chance: Chance, offload: Offload = inline
) -> Callable[[Link], Origin]:
    """Makes the sources of links. Secrets are read from files and the environment for every connection."""

    allowed = Allowed(settings.secret_directories, settings.secret_variables)

    def connect(link: Link) -> Origin:
        secrets = partial(read_references, link.spec.security, environment, allowed)
        source = open_source(
            ",".join(link.spec.bootstrap), secrets, settings, clock=clock, chance=chance, offload=offload
        )
        return KafkaOrigin(source, link.spec)

    return connect


class KafkaOrigin:
    """A Kafka cluster, or what speaks its protocol, as the source of one link."""

    def __init__(self, source: Source, spec: LinkSpec) -> None:
        self._source = source
        self._spec = spec
        self._groups = Names((), spec.groups)

    def __repr__(self) -> str:
        return f"<KafkaOrigin of {self._spec.name!r} at {','.join(self._spec.bootstrap)}>"

    @property
    def throttled_s(self) -> float:
        """See `Origin`."""
        return self._source.throttled_s

    async def discover(self, also: Sequence[str]) -> Present:
        """See `Origin`."""
        found = await self._source.discover(Names((*self._spec.topics, *also), self._spec.patterns))
        topics = [await self._found(topic) for topic in found.topics]
        return Present(topics, {name: why for name, why in found.missing.items() if name in self._spec.topics})

    async def _found(self, topic: SourceTopic) -> Found:
        found = Found(topic.name, topic.id or NO_ID, topic.partitions)
        if self._spec.options.get(CONFIGS) != "true":
            return found
        try:
            own = await self._source.configs(topic.name)
        except SourceRefuses as error:
            return replace(found, flaw=str(error))
        return replace(found, configs={one.name: one.value for one in own if one.value is not None})

    async def group_offsets(self, topics: Sequence[str]) -> Committed:
        """See `Origin`. A group that the source refuses to show holds up no other."""
        wanted = frozenset(topics)
        found, refused = dict[str, dict[Place, int]](), dict[str, str]()
        for group in await self._source.groups(self._groups):
            try:
                found[group] = await self._source.group_offsets(group, wanted)
            except SourceRefuses as error:
                refused[group] = str(error)
        return Committed(found, refused)

    async def by_leader(self, wants: Sequence[Want]) -> tuple[list[Group], dict[Place, HeadwaterError]]:
        """See `Fetches`."""
        return await self._source.by_leader(wants)

    async def fetch(self, group: Group) -> Mapping[Place, Answer]:
        """See `Fetches`."""
        return await self._source.fetch(group)

    def doubt(self, topic: str) -> None:
        """See `Origin`. Leaders are asked for anew, and with them the id of the topic."""
        self._source.forget(topic)

    def leave(self, place: Place) -> None:
        """See `Fetches`."""
        self._source.leave(place)

    async def close(self) -> None:
        """See `Origin`."""
        await self._source.close()
