"""The client of a source cluster: topics, committed batches by leader, and group offsets.

A call is one attempt, or a few within seconds; a link decides when to try again. Fetches have connections of their own,
because a broker answers the requests of a connection one after another, and a fetch may wait for records.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from kio.schema.errors import ErrorCode

from headwater.background import each
from headwater.client.client import Client, ClientSettings
from headwater.client.connection import Connection
from headwater.client.errors import KafkaError, Throttled, UnsupportedApi
from headwater.client.fetch_sessions import FetchSession
from headwater.client.fetching import (
    UNDEFINED,
    EpochEnd,
    FetchLimits,
    Place,
    WantedBatches,
    WantedEpoch,
    ends_of_epochs,
    fetch_batches,
    place_name,
)
from headwater.client.model import EARLIEST, LATEST, Broker, Config, ConfigSource, Fetched
from headwater.client.security import ClientSecurity
from headwater.clock import Chance, Clock
from headwater.errors import ClientError, ConfigError, HeadwaterError, NotAllowed, Retriable
from headwater.link.source.epochs import Epochs
from headwater.link.source.errors import SourceDamaged, SourceOvertaken, SourceRefuses, SourceStops, SourceTruncated
from headwater.link.source.leaders import GONE, Leaders, Linked, NotLinked, as_retriable
from headwater.link.source.pieces import NO_EPOCH, Piece, must_open, pieces
from headwater.link.source.selection import Discovery, Names, discovered
from headwater.link.source.silence import AT_ONCE, Silences, is_compacted, keeps_newest_only
from headwater.settings.links import Links
from headwater.threads import Offload, inline

RETRY_SECONDS = 2.0
"""How long a question is repeated, such as after a leader has moved."""
ATTEMPTS = 4
JUDGE_SECONDS = 5.0
"""How long the partitions of a fetch wait for what became of one that failed. Then that one is retried."""
MAX_PARTITIONS = 10_000
"""Partitions of one fetch. Those of a leader with more are in several groups."""
MAX_SESSIONS = 1_000
"""Fetch sessions, one for each broker that is known."""


@dataclass(frozen=True, slots=True)
class Want:
    """A partition of a linked topic, and the position to read from."""

    topic: str
    topic_id: uuid.UUID | None
    """The id of the topic that was linked; None if the source has no ids."""
    partition: int
    position: int
    epoch: int = NO_EPOCH
    """The leader epoch of what was copied before the position, if the caller knows it."""
    epoch_end: int = -1
    """Up to where this epoch is known to hold; -1: up to the position."""

    @property
    def known(self) -> int:
        """The offset up to which the source must have the epoch."""
        return self.epoch_end if self.epoch != NO_EPOCH and self.epoch_end >= 0 else self.position

    @property
    def linked(self) -> Linked:
        return Linked(self.topic, self.topic_id, self.partition)

    @property
    def place(self) -> Place:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Group:
    """Partitions that have one leader, as far as is known. `Source.by_leader` makes groups for `Source.fetch`."""

    broker: Broker
    terms: dict[Want, int]
    """For each partition the number of the leader's term; -1 if the source has none."""
    max_bytes: int | None = None
    """How much a fetch may bring; None: as much as the settings say."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a fetch found in a partition."""

    position: int
    """The position that was asked for."""
    pieces: list[Piece]
    """Batches and gaps from the position on; none if there is nothing new."""
    end: int
    """Where readers of committed records stop now."""
    high_watermark: int
    log_start: int


Answer = Found | HeadwaterError
"""A `SourceStops` ends the link of the topic; every other error is retried."""


def open_source(
    bootstrap: str,
    secrets: Callable[[], ClientSecurity],
    settings: Links,
    *,
    clock: Clock,
    chance: Chance,
    client_id: str = "headwater-link",
    offload: Offload = inline,
) -> Source:
    """A source by the addresses of some of its brokers. Nothing is connected yet.

    Every connection asks for `secrets` anew. Raises `ConfigError` if they cannot be had now; later that is retried.
    `offload` opens batches.
    """
    secrets()

    def again() -> ClientSecurity:
        try:
            return secrets()
        except (ConfigError, NotAllowed) as error:
            raise SourceRefuses(str(error)) from error

    own = ClientSettings(
        connect_s=settings.connect_ms / 1000,
        request_s=settings.request_ms / 1000,
        retry_s=RETRY_SECONDS,
        attempts=ATTEMPTS,
        secrets=again,
    )
    made = [Client(bootstrap, client_id=client_id, settings=own, clock=clock, chance=chance) for _ in range(2)]
    return Source(made[0], made[1], settings, offload)


class Source:
    """A source cluster. It remembers leaders, and under which of their terms it read what."""

    def __init__(self, asking: Client, fetching: Client, settings: Links, offload: Offload = inline) -> None:
        self._asking = asking
        self._fetching = fetching
        self._settings = settings
        self._offload = offload
        self._leaders = Leaders(asking)
        self._epochs: dict[Place, Epochs] = {}
        self._read_under: dict[Place, int] = {}
        """The last term of a leader under which a partition was read."""
        self._sessions: dict[tuple[str, int], FetchSession] = {}
        self._silences = Silences()
        self.throttled_s = 0.0
        """How long this client has waited because of quotas of the source."""

    def __repr__(self) -> str:
        return f"<Source, {len(self._read_under)} partitions read, {self._leaders!r}>"

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(self._asking.close(), self._fetching.close())

    # --- topics --------------------------------------------------------------------------------------

    async def discover(self, selection: Names) -> Discovery:
        """The topics that a link takes, with their ids and numbers of partitions."""

        async def attempt() -> Discovery:
            names = None if selection.patterns else list(selection.names)
            return discovered(await self._asking.load_metadata(names), selection)

        with _retriable():
            return await self._asking.retrying(attempt)

    async def configs(self, topic: str) -> list[Config]:
        """The configs that are set for a topic itself."""
        with _retriable():
            found = await self._asking.describe_configs(topic)
        return [config for config in found if config.source is ConfigSource.TOPIC]

    async def starts(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The first offsets that partitions still have."""
        with _retriable():
            return await self._offsets(topic, partitions, EARLIEST)

    async def ends(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Where readers of committed records stop."""
        with _retriable():
            return await self._offsets(topic, partitions, LATEST, committed=True)

    async def _offsets(
        self, topic: str, partitions: Iterable[int], which: int, *, committed: bool = False
    ) -> dict[int, int]:
        self._asking.forget(topic)
        found = await self._asking.list_offsets(topic, dict.fromkeys(partitions, which), committed=committed)
        return {partition: one.offset for partition, one in found.items()}

    # --- groups --------------------------------------------------------------------------------------

    async def groups(self, selection: Names) -> list[str]:
        """The groups of consumers that a link takes, by name."""
        with _retriable():
            found = await self._asking.list_groups()
        kinds = ("", "classic", "consumer")
        consumers = [g.name for g in found if g.kind.lower() in kinds and g.protocol_type in ("", "consumer")]
        return [name for name in consumers if selection.has(name)]

    async def group_offsets(self, group: str, topics: Collection[str]) -> dict[Place, int]:
        """The committed offsets of a group in some topics."""
        with _retriable():
            found = await self._asking.committed_offsets(group)
        return {place: offset for place, offset in found.items() if place[0] in topics}

    # --- reading -------------------------------------------------------------------------------------

    def forget(self, topic: str) -> None:
        """Look for the leaders of a topic anew before it is read again."""
        self._leaders.forget(topic)

    def leave(self, place: Place) -> None:
        """A partition is not read any more."""
        self._epochs.pop(place, None)
        self._read_under.pop(place, None)
        self._silences.end(place)

    async def by_leader(self, wants: Sequence[Want]) -> tuple[list[Group], dict[Place, HeadwaterError]]:
        """Partitions in groups, each to be given to `fetch`; and the errors of those that have no leader now.

        Raises `Retriable` if the source does not answer.
        """
        with _retriable():
            failed = await self._leaders.load([want.linked for want in wants])
        groups: dict[Broker, list[tuple[Want, int]]] = {}
        doubts: dict[Want, ClientError] = {}
        for want in wants:
            try:
                if want.topic in failed:
                    raise failed[want.topic]
                leader = self._leaders.of(want.linked)
                groups.setdefault(leader.broker, []).append((want, leader.epoch))
            except ClientError as error:
                doubts[want] = error
        parts = [
            Group(broker, dict(members[at : at + MAX_PARTITIONS]))
            for broker, members in groups.items()
            for at in range(0, len(members), MAX_PARTITIONS)
        ]
        return parts, await self._judged(doubts)

    async def fetch(self, group: Group) -> dict[Place, Answer]:
        """Committed batches of partitions; waits for records if there are none.

        Raises `Retriable` if the leader does not answer.
        """
        try:
            with _retriable():
                connection = await self._fetching.connection_to(group.broker.host, group.broker.port)
                answers = await self._diverged(connection, group)
                wants = [want for want in group.terms if want.place not in answers]
                fetched = await self._batches(connection, wants, group) if wants else {}
        except Retriable:
            for want in group.terms:
                self.forget(want.topic)
            raise
        doubts: dict[Want, ClientError] = {}
        for want in wants:
            found = fetched[want.place]
            if isinstance(found, KafkaError):
                doubts[want] = found
            else:
                answers[want.place] = await self._read(want, group.terms[want], found)
        silent = [want for want in wants if self._is_silent(want, answers.get(want.place))]
        for want in silent[:AT_ONCE]:
            with suppress(ClientError):  # what the fetch has brought counts; the next one meets the failure
                answers[want.place] = await self._asked_alone(connection, want, group.terms[want])
        answers.update(await self._judged(doubts))
        return answers

    async def _batches(
        self, connection: Connection, wants: Sequence[Want], group: Group
    ) -> dict[Place, Fetched | KafkaError]:
        """Ask a leader for batches. A quota of the source is waited for; it is no failure."""
        where = (group.broker.host, group.broker.port)
        if where not in self._sessions and len(self._sessions) >= MAX_SESSIONS:
            self._sessions.clear()
        session = self._sessions.setdefault(where, FetchSession())
        asked = [_wanted(want, group.terms[want]) for want in wants]
        limits = self._limits if group.max_bytes is None else replace(self._limits, max_bytes=group.max_bytes)
        left = self._settings.request_ms / 1000
        while True:
            try:
                return await session.fetch(connection, asked, limits)
            except Throttled as throttled:
                if throttled.seconds > left:
                    raise
                left -= throttled.seconds
                self.throttled_s += throttled.seconds
                await asyncio.sleep(throttled.seconds)

    @property
    def _limits(self) -> FetchLimits:
        own = self._settings
        return FetchLimits(own.request_ms / 1000, own.fetch_wait_ms / 1000, own.fetch_total_bytes, own.fetch_bytes)

    async def _read(self, want: Want, term: int, fetched: Fetched) -> Answer:
        offload = self._offload if must_open(fetched, want.position) else inline
        try:
            found = await offload(pieces, fetched, want.position, self._settings.opened_bytes)
        except (SourceStops, SourceDamaged) as error:
            return error
        self._read_under[want.place] = term
        epochs = self._epochs.setdefault(want.place, Epochs())
        for piece in found:
            epochs.note(piece.start, piece.next, piece.epoch)
        end = fetched.stable if fetched.stable >= 0 else fetched.high_watermark
        return Found(want.position, found, end, fetched.high_watermark, fetched.log_start)

    # --- ends without records ------------------------------------------------------------------------

    def _is_silent(self, want: Want, answer: Answer | None) -> bool:
        """Whether the source has said often enough that its log goes on, and sent nothing, to ask in another way."""
        if not isinstance(answer, Found) or answer.pieces or answer.end <= want.position:
            self._silences.end(want.place)
            return False
        return self._silences.note(want.place, want.position)

    async def _asked_alone(self, connection: Connection, want: Want, term: int) -> Answer:
        """Ask for one partition alone: the first batch of an answer is whole, so no limit leaves it out.

        If there is still nothing, time after time, and the topic is compacted, then compaction has removed the newest
        records: a gap up to the end. An empty answer of another topic proves nothing: Kafka also gives one if a remote
        store is slow. The gap has no epoch: a term in which the source wrote nothing is known to its leader alone.
        """
        self._silences.asked(want.place)
        fetched = (await fetch_batches(connection, [_wanted(want, term)], self._limits))[want.place]
        if isinstance(fetched, KafkaError):
            return as_retriable(fetched)
        answer = await self._read(want, term, fetched)
        if not isinstance(answer, Found) or answer.pieces or answer.end <= want.position:
            return answer
        if not self._silences.was_alone(want.place, want.position):
            return answer
        try:
            if not keeps_newest_only(await self._asking.describe_configs(want.topic)):
                return answer
        except ClientError:  # a right is missing: the copy goes on with the next record
            return answer
        self._silences.end(want.place)
        return replace(answer, pieces=[Piece(want.position, answer.end, None, NO_EPOCH)])

    # --- doubts --------------------------------------------------------------------------------------

    async def _diverged(self, connection: Connection, group: Group) -> dict[Place, Answer]:
        """The partitions whose leader changed and no longer has what was read before, or cannot say."""
        asked: dict[Want, WantedEpoch] = {}
        for want, term in group.terms.items():
            epoch = want.epoch if want.epoch != NO_EPOCH else self._epoch_at(want)
            if NO_EPOCH not in (epoch, term) and self._read_under.get(want.place) != term:
                asked[want] = WantedEpoch(want.topic, want.partition, epoch, term)
        if not asked:
            return {}
        try:
            ends = await ends_of_epochs(connection, list(asked.values()), within=self._settings.request_ms / 1000)
        except UnsupportedApi:
            return {}
        answers: dict[Place, Answer] = {}
        doubts: dict[Want, ClientError] = {}
        for want, question in asked.items():
            end = ends[want.place]
            if isinstance(end, KafkaError):
                doubts[want] = end
            elif (error := _truncated(want, end)) is not None:
                answers[want.place] = error
            elif end.epoch < question.epoch and (unlike := await self._unlike(want, question.epoch)) is not None:
                answers[want.place] = unlike
        answers.update(await self._judged(doubts))
        return answers

    async def _unlike(self, want: Want, epoch: int) -> HeadwaterError | None:
        """What it means that a leader's log is long enough, but has nothing of the epoch of what was copied.

        An unclean leader has other records at these offsets. Only of a compacted topic may an epoch have gone.
        """
        try:
            if is_compacted(await self._asking.describe_configs(want.topic)):
                return None
        except ClientError as error:
            if isinstance(error, Retriable):
                return error
        return SourceTruncated(
            f"the leader of {place_name(want.place)} has nothing of leader epoch {epoch}, under which the last records "
            f"before offset {want.known} were copied: it has other records there",
            UNDEFINED,
        )

    def _epoch_at(self, want: Want) -> int:
        epochs = self._epochs.get(want.place)
        return NO_EPOCH if epochs is None else epochs.at(want.position)

    async def _judged(self, doubts: dict[Want, ClientError]) -> dict[Place, HeadwaterError]:
        """What the errors of partitions mean. An error whose meaning is not known in time is retried."""
        judged = {want.place: as_retriable(error) for want, error in doubts.items()}
        topics: dict[str, dict[Want, ClientError]] = {}
        for want, error in doubts.items():
            topics.setdefault(want.topic, {})[want] = error

        async def judge(topic: str) -> None:
            self.forget(topic)
            try:
                judged.update(await self._meanings(topic, topics[topic]))
            except ClientError as failure:
                judged.update({want.place: as_retriable(failure) for want in topics[topic]})

        with suppress(TimeoutError):
            async with asyncio.timeout(JUDGE_SECONDS):
                await each(judge, topics, cancel=True)
        return judged

    async def _meanings(self, topic: str, errors: Mapping[Want, ClientError]) -> dict[Place, HeadwaterError]:
        """What errors of a topic's partitions mean, as far as it takes a question to know."""
        codes = {want: error.code if isinstance(error, KafkaError) else None for want, error in errors.items()}
        gone = {w.linked: error for w, error in errors.items() if isinstance(error, NotLinked) or codes[w] in GONE}
        outside = [want for want, code in codes.items() if code is ErrorCode.offset_out_of_range]
        found = await self._leaders.judged(topic, gone) if gone else {}
        if outside:
            found.update(await self._out_of_range(topic, outside))
        return found

    async def _out_of_range(self, topic: str, wants: Sequence[Want]) -> dict[Place, HeadwaterError]:
        """Why partitions do not have the positions that they were asked for. What they have again is not named."""
        partitions = [want.partition for want in wants]
        starts, ends = await self._offsets(topic, partitions, EARLIEST), await self._offsets(topic, partitions, LATEST)
        found: dict[Place, HeadwaterError] = {}
        for want in wants:
            first, last, where = starts[want.partition], ends[want.partition], place_name(want.place)
            if want.position < first:
                found[want.place] = SourceOvertaken(
                    f"{where} of the source begins at offset {first}; records from {want.position} on were removed "
                    "before they were copied",
                    first,
                )
            elif want.position > last:
                found[want.place] = SourceTruncated(
                    f"{where} of the source ends at offset {last}, but was copied up to {want.position}", last
                )
        return found


def _wanted(want: Want, term: int) -> WantedBatches:
    return WantedBatches(want.topic, want.topic_id, want.partition, want.position, term)


@contextmanager
def _retriable() -> Iterator[None]:
    """Errors of calls to the source become retriable ones."""
    try:
        yield
    except ClientError as error:
        if isinstance(error, Retriable):
            raise
        raise as_retriable(error) from error


def _truncated(want: Want, end: EpochEnd) -> SourceTruncated | None:
    """Whether a leader has another history than the one that was copied."""
    where = place_name(want.place)
    if UNDEFINED in (end.epoch, end.offset):
        return SourceTruncated(f"the leader of {where} does not know what was copied up to {want.position}", UNDEFINED)
    if end.offset < want.known:
        return SourceTruncated(
            f"the leader of {where} has other records from offset {end.offset} on; it was copied up to {want.position}",
            end.offset,
        )
    return None
