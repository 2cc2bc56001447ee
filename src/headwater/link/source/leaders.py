"""Leaders of the source's partitions, and what became of a topic that is not there any more."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from kio.schema.errors import ErrorCode

from headwater.background import each
from headwater.client.client import Client
from headwater.client.errors import Unreachable, kafka_error
from headwater.client.fetching import Place, place_name
from headwater.client.model import Broker, Topic
from headwater.client.routing import topic_of
from headwater.errors import ClientError, HeadwaterError, Retriable
from headwater.link.source.errors import SourceDeleted, SourceRecreated, SourceRefuses

GONE = frozenset({ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition, ErrorCode.inconsistent_topic_id})
"""Errors of a broker that does not know the topic, or knows another one of the same name."""
ASK_SECONDS = 2.0
"""How long a broker may take to say what it knows of a topic."""


@dataclass(frozen=True, slots=True)
class Linked:
    """A partition of the topic that was linked."""

    topic: str
    topic_id: uuid.UUID | None
    """None: the source has no ids of topics. Then only the number of partitions shows that a topic is another one."""
    partition: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    def is_in(self, topic: Topic) -> bool:
        """Whether this is a partition of a topic."""
        same = self.topic_id is None or topic.id is None or self.topic_id == topic.id
        return same and self.partition < len(topic.partitions)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, and the number of its term; -1 if the source has none."""

    broker: Broker
    epoch: int


class NotLinked(Unreachable):
    """A broker shows no topic of the name, another one, or fewer partitions. It may be gone, or the broker behind."""


class Leaders:
    """What is known of the leaders. It is asked for anew when a partition fails."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topics: dict[str, Topic] = {}

    def __repr__(self) -> str:
        return f"<Leaders of {len(self._topics)} topics>"

    def forget(self, topic: str) -> None:
        """Ask for the leaders of a topic anew before they are needed again."""
        self._topics.pop(topic, None)

    async def load(self, wanted: Iterable[Linked]) -> dict[str, ClientError]:
        """Load topics that are not known with these partitions; returns errors of those that a broker does not show."""
        unknown = {
            one.topic for one in wanted if one.topic not in self._topics or not one.is_in(self._topics[one.topic])
        }
        failed: dict[str, ClientError] = {}
        for answer in await self._client.load_metadata(sorted(unknown)) if unknown else ():
            if answer.error_code is not ErrorCode.none:
                failed[answer.name] = kafka_error(answer.error_code, f"topic {answer.name!r}")
                continue
            try:
                self._topics[answer.name] = topic_of(answer)
            except Unreachable as error:
                failed[answer.name] = error
        return failed

    def of(self, linked: Linked) -> Leader:
        """The leader of a partition. Raises `Unreachable` if there is none, or if the topic is not the linked one."""
        topic = self._topics.get(linked.topic)
        if topic is None or not linked.is_in(topic):
            raise NotLinked(f"a broker of the source shows another topic {linked.topic!r}, or fewer of its partitions")
        partition = topic.partitions[linked.partition]
        for broker in self._client.brokers:
            if broker.node == partition.leader:
                return Leader(broker, partition.leader_epoch)
        raise Unreachable(f"{place_name(linked.place)} has no leader now")

    async def judged(self, topic: str, errors: Mapping[Linked, ClientError]) -> dict[Place, HeadwaterError]:
        """What errors of partitions of a topic mean, if they may mean that the linked topic is gone.

        A broker that has just started, or that is cut off, may know old things. So all brokers are asked, and one that
        has the linked topic decides that it is there. A broker that does not answer in time has no say.
        """
        self.forget(topic)
        answers = [one for one in await each(partial(self._known, topic), self._client.brokers) if one is not None]
        refused = [code for code in answers if isinstance(code, ErrorCode) and code not in GONE]
        if refused:
            error = as_retriable(kafka_error(refused[0], f"topic {topic!r}"))
            return {linked.place: error for linked in errors}
        known = [one for one in answers if isinstance(one, Topic)]
        if not answers:
            return {linked.place: as_retriable(error) for linked, error in errors.items()}
        return {linked.place: _meaning(linked, known) or as_retriable(error) for linked, error in errors.items()}

    async def _known(self, topic: str, broker: Broker) -> Topic | ErrorCode | None:
        """What a broker knows of a topic; None if it does not answer."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                connection = await self._client.connection_to(broker.host, broker.port)
                [answer] = await self._client.load_metadata([topic], asked=connection)
            return topic_of(answer) if answer.error_code is ErrorCode.none else ErrorCode(answer.error_code)
        except (Retriable, TimeoutError):
            return None


def _meaning(linked: Linked, known: Sequence[Topic]) -> HeadwaterError | None:
    """What became of a linked topic, by what brokers know of its name; None if it is there."""
    if any(linked.is_in(topic) for topic in known):
        return None
    if not known:
        return SourceDeleted(f"the source has no topic {linked.topic!r} any more")
    if linked.topic_id is not None and all(topic.id == linked.topic_id for topic in known):
        return None  # a new partition that no broker knows yet
    return SourceRecreated(
        f"the source's topic {linked.topic!r} was deleted and created anew; its records are another history"
    )


def as_retriable(error: ClientError) -> HeadwaterError:
    """An error of the source as one that is retried: rights, certificates and settings may be mended."""
    return error if isinstance(error, Retriable) else SourceRefuses(str(error))
