"""Leaders of the source's partitions, and what became of a topic that is not there any more."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from headwater.client.client import Client
from headwater.client.errors import ClientError, Unreachable, kafka_error
from headwater.client.fetching import Place, place_name
from headwater.client.model import Broker, Topic
from headwater.client.routing import topic_of
from headwater.errors import HeadwaterError, Retriable
from headwater.link.source.errors import SourceDeleted, SourceRecreated, SourceRefuses

GONE = frozenset({ErrorCode.unknown_topic_id, ErrorCode.unknown_topic_or_partition, ErrorCode.inconsistent_topic_id})
"""Errors of a broker that does not know the topic, or knows another one of the same name."""


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

    async def judged(self, linked: Linked, error: ClientError) -> HeadwaterError:
        """What an error of a broker means, if it may mean that the linked topic is gone.

        A broker that has just started, or that is cut off, may know old things. So all brokers are asked, and one that
        has the linked topic decides that it is there.
        """
        self.forget(linked.topic)
        known: list[Topic] = []
        answered = False
        for broker in self._client.brokers:
            try:
                connection = await self._client.connection_to(broker.host, broker.port)
                [answer] = await self._client.load_metadata([linked.topic], asked=connection)
                if answer.error_code is ErrorCode.none:
                    known.append(topic_of(answer))
                elif answer.error_code not in GONE:
                    return as_retriable(kafka_error(answer.error_code, f"topic {linked.topic!r}"))
            except Retriable:
                continue
            answered = True
        if not answered or any(linked.is_in(topic) for topic in known):
            return as_retriable(error)
        if not known:
            return SourceDeleted(f"the source has no topic {linked.topic!r} any more")
        if linked.topic_id is not None and all(topic.id == linked.topic_id for topic in known):
            return as_retriable(error)  # a new partition that no broker knows yet
        return SourceRecreated(
            f"the source's topic {linked.topic!r} was deleted and created anew; its records are another history"
        )


def as_retriable(error: ClientError) -> HeadwaterError:
    """An error of the source as one that is retried: rights, certificates and settings may be mended."""
    return error if isinstance(error, Retriable) else SourceRefuses(str(error))
