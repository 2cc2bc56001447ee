"""Requests to the leader of partitions of any topics: their batches as bytes, and the ends of leader epochs.

They are made once, over a given connection. Each partition may fail on its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.connection import Connection
from headwater.client.errors import KafkaError, ProtocolError, Throttled, check, kafka_error
from headwater.client.model import Fetched

FETCH, OFFSET_FOR_LEADER_EPOCH = 1, 23
CONSUMER = -1
"""The replica id of consumers."""
NO_SESSION, NO_SESSION_EPOCH = 0, -1
"""A fetch without a session; see `headwater.client.fetch_sessions`."""
LAST_WITH_NAMES = 12
"""The last version of Fetch in which topics have names instead of ids."""
UNDEFINED = -1
"""The epoch and the offset of an answer that names none."""

Place = tuple[str, int]
"""A topic's name, and a partition."""


@dataclass(frozen=True, slots=True)
class WantedBatches:
    """A partition to fetch, and from where."""

    topic: str
    topic_id: uuid.UUID | None
    """If all partitions of a request have one, a topic that was created anew is not taken for the old one."""
    partition: int
    offset: int
    leader_epoch: int = -1
    """The term of the leader that is asked. A leader of another term refuses. -1: any."""

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class WantedEpoch:
    """A partition, and a leader epoch whose end is wanted."""

    topic: str
    partition: int
    epoch: int
    leader_epoch: int = -1
    """As in `WantedBatches`."""


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of the largest epoch up to the wanted one. Both are `UNDEFINED` if the leader knows no such epoch."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much a fetch may bring, and how long it may take."""

    within_s: float
    """How long the broker may take, beside the time for which it waits for records."""
    max_wait_s: float
    """How long the broker waits for records if there are none."""
    max_bytes: int
    partition_bytes: int
    min_bytes: int = 1
    committed: bool = True
    """Records of open transactions are left out, and aborted ones are named."""


async def fetch_batches(
    connection: Connection, wanted: Sequence[WantedBatches], limits: FetchLimits
) -> dict[Place, Fetched | KafkaError]:
    """Batches of partitions, without a session. The first batch of the answer is whole, whatever its size.

    Raises `Throttled` if the broker makes the client wait.
    """
    version = fetch_version(connection, wanted)
    response = await ask_for_batches(connection, version, limits, wanted)
    check(getattr(response, "error_code", ErrorCode.none), f"fetch from {connection.address}")
    check_pace(response, connection)
    found = answers_of(response, version, {one.topic_id: one.topic for one in wanted})
    _check_places(found, (one.place for one in wanted), connection)
    return found


def fetch_version(connection: Connection, wanted: Iterable[WantedBatches]) -> int:
    """The version of a fetch: the newest one, unless a topic has no id."""
    version = connection.version(FETCH)
    return min(version, LAST_WITH_NAMES) if any(one.topic_id is None for one in wanted) else version


async def ask_for_batches(
    connection: Connection,
    version: int,
    limits: FetchLimits,
    wanted: Iterable[WantedBatches],
    forgotten: Iterable[WantedBatches] = (),
    session: tuple[int, int] = (NO_SESSION, NO_SESSION_EPOCH),
) -> Any:
    """One fetch. A session has an id and an epoch; partitions that it forgets are not answered any more."""
    return await connection.request(
        FETCH,
        within=limits.within_s + limits.max_wait_s,
        newest=version,
        replica_id=CONSUMER,
        max_wait=int(limits.max_wait_s * 1000),
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=int(limits.committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=_topics(wanted, limits.partition_bytes),
        forgotten_topics_data=_forgotten(forgotten),
    )


def check_pace(response: Any, connection: Connection) -> None:
    """Raise `Throttled` if a broker answered nothing because of a quota. It would not read requests for a while."""
    throttled = getattr(response, "throttle_time", None)
    if throttled and not response.responses:
        raise Throttled(f"{connection.address} throttles this client by a quota", throttled.total_seconds())


def answers_of(response: Any, version: int, names: Mapping[uuid.UUID | None, str]) -> dict[Place, Fetched | KafkaError]:
    """The answers for partitions. `names` has the topics' names by their ids."""
    found: dict[Place, Fetched | KafkaError] = {}
    for topic in response.responses:
        name = str(names.get(topic.topic_id) if version > LAST_WITH_NAMES else topic.topic)
        for answer in topic.partitions:
            found[name, answer.partition_index] = _fetched((name, answer.partition_index), answer)
    return found


def _topics(wanted: Iterable[WantedBatches], partition_bytes: int) -> list[dict[str, Any]]:
    topics: dict[tuple[str, uuid.UUID | None], list[dict[str, Any]]] = {}
    for one in wanted:
        entry = {
            "partition": one.partition,
            "current_leader_epoch": one.leader_epoch,
            "fetch_offset": one.offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": partition_bytes,
        }
        topics.setdefault((one.topic, one.topic_id), []).append(entry)
    return [{"topic": name, "topic_id": id, "partitions": entries} for (name, id), entries in topics.items()]


def _forgotten(wanted: Iterable[WantedBatches]) -> list[dict[str, Any]]:
    topics: dict[tuple[str, uuid.UUID | None], list[int]] = {}
    for one in wanted:
        topics.setdefault((one.topic, one.topic_id), []).append(one.partition)
    return [{"topic": name, "topic_id": id, "partitions": entries} for (name, id), entries in topics.items()]


def _fetched(place: Place, answer: Any) -> Fetched | KafkaError:
    if answer.error_code is not ErrorCode.none:
        return kafka_error(answer.error_code, place_name(place))
    aborted = tuple((one.producer_id, one.first_offset) for one in answer.aborted_transactions or ())
    log_start = getattr(answer, "log_start_offset", -1)
    return Fetched(answer.records or b"", answer.high_watermark, log_start, aborted, answer.last_stable_offset)


async def ends_of_epochs(
    connection: Connection, wanted: Sequence[WantedEpoch], *, within: float
) -> dict[Place, EpochEnd | KafkaError]:
    """Where leader epochs end in the logs of their leader."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for one in wanted:
        entry = {"partition": one.partition, "current_leader_epoch": one.leader_epoch, "leader_epoch": one.epoch}
        topics.setdefault(one.topic, []).append(entry)
    response = await connection.request(
        OFFSET_FOR_LEADER_EPOCH,
        within=within,
        replica_id=CONSUMER,
        topics=[{"topic": name, "partitions": entries} for name, entries in topics.items()],
    )
    found: dict[Place, EpochEnd | KafkaError] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            place = (topic.topic, answer.partition)
            failed = answer.error_code is not ErrorCode.none
            found[place] = (
                kafka_error(answer.error_code, place_name(place))
                if failed
                else EpochEnd(answer.leader_epoch, answer.end_offset)
            )
    _check_places(found, ((one.topic, one.partition) for one in wanted), connection)
    return found


def place_name(place: Place) -> str:
    """A partition in words."""
    return f"partition {place[1]} of topic {place[0]!r}"


def _check_places(found: dict[Place, Any], wanted: Iterable[Place], connection: Connection) -> None:
    if found.keys() != set(wanted):
        raise ProtocolError(f"the answer of {connection.address} has other partitions than the request")
