"""Appending records as one unit: all of them, over all partitions of a topic, or none.

The calls of several families append through `Appending`. It makes batches as Kafka's producers do, gives them to the
writer that brokers use too, and waits for the verdict.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from headwater.background import spawn
from headwater.configs.topics import TopicConfig
from headwater.errors import BadInput, HeadwaterError, NotReady, OutcomeUnknown, Overloaded
from headwater.gateway.problems import CONFLICT, NOT_FOUND, TOO_LARGE, UNPROCESSABLE, Kind, Refusal
from headwater.gateway.records.bodies import Entry, Wish
from headwater.gateway.records.once import has_room, keyless_of, known, partitions_of
from headwater.gateway.records.placing import batches_of, places
from headwater.gateway.services import Services
from headwater.log.batch import Batch
from headwater.log.write.making import Demands
from headwater.log.write.part import Together
from headwater.log.write.writer import MAX_BATCHES_PER_OBJECT, Writer
from headwater.replica.links import mirrored
from headwater.replica.replica import Replica
from headwater.state.cluster.domain import Topic
from headwater.state.commands.streams import AnyCondition, EndIs, Once, Present, VersionIs
from headwater.state.results import Placed, UnitResult, UnitVerdict
from headwater.state.streams.conditions import MAX_CONDITIONS
from headwater.state.streams.index import NO_TIMESTAMP
from headwater.state.streams.state import StreamsState
from headwater.threads import inline
from headwater.types import Domain

LARGE = 32 << 10
"""Requests with more bytes are decoded and encoded in a thread."""
MANY = 100
"""Requests with more records, too."""
KEYED_PARTITIONS = 256
"""Partitions of one request with a key. Where the records of each are is kept for a day, in every process."""
PATIENCE_SECONDS = 0.1
"""How long a request waits before it begins to notice that its client leaves. Most are answered before."""
KEYS_FULL = Kind(
    "keys-full", 503, "There is no room for another idempotency key",
    "The caller, or all callers together, have used as many keys within 24 hours as the cluster keeps. No key is "
    "forgotten early. Nothing was appended. Try again later, or put more records into each request.", retry=True,
)  # fmt: skip


class PartitionRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the records of one partition are. They follow each other without a gap."""

    partition: int
    """The number of the partition."""
    first_offset: int
    """The offset of the first record of the request in this partition."""
    last_offset: int
    """The offset of the last one."""
    timestamp: int | None = None
    """The time of the append in milliseconds since 1970, if the topic uses log-append time."""


class RecordPlace(msgspec.Struct, frozen=True):
    """Where a record is."""

    partition: int
    """The number of the partition."""
    offset: int
    """The offset of the record."""


class Appended(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the records of a request are."""

    partitions: list[PartitionRange]
    """Each partition that got records, by number."""
    records: list[RecordPlace] | None = None
    """Each record, in the order of the request. Missing with `Prefer: return=minimal`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Records that are in the log."""

    answer: Appended
    repeated: bool
    """Whether they were appended by an earlier request with the same key."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A unit before it is judged."""

    placed: list[int]
    batches: list[tuple[int, Batch]]


class Appending:
    """Appends records of one topic."""

    def __init__(self, services: Services, topic: Topic) -> None:
        self._services = services
        self._topic = topic
        settings = services.settings
        config = TopicConfig.of(topic.configs, services.state.resources.common)
        opened = settings.limits.opened_batch_bytes
        self._demands = Demands.of(topic.ready, config, opened)
        self._writer: Writer = services.writers.of(topic.domain, config.profile or settings.default_profile)
        self._replica: Replica[StreamsState] = services.domains[Domain(topic.domain)]

    def __repr__(self) -> str:
        return f"<Appending to {self._topic.name!r}>"

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._demands.partitions

    async def check(self) -> None:
        """Raise unless the cluster takes units and this process can append now. Nothing waits for room."""
        self._services.check_contact()
        if self._services.writers.budget.exceeded:
            raise Overloaded("the gateway has too many bytes under way (limits.broker_inflight_bytes)")

    async def append(
        self,
        wish: Wish,
        key: Once | None = None,
        *,
        brief: bool = False,
        gone: Callable[[], Awaitable[object]] | None = None,
    ) -> Outcome:
        """Append records as one unit.

        `key` makes it happen once. `brief` leaves out the places of single records. `gone` returns when the client has
        left: a unit that waits is dropped then.
        """
        keyless = keyless_of(key) if key is not None else int(self._services.chance.fraction() * self.partitions)
        repeated = await self._repeated(wish, key, brief)
        if repeated is not None:
            return repeated
        try:
            made = await self._make(wish.entries, keyless)
            conditions = self._conditions(wish, made.placed)
        except HeadwaterError:
            # What the topic demands may have changed since the key was used. The first answer stays true.
            if key is not None:
                await self._replica.barrier()
                repeated = await self._repeated(wish, key, brief)
                if repeated is not None:
                    return repeated
            raise
        self._check_size(made, key)
        streams = self._topic.streams
        batches = [(streams[partition], batch) for partition, batch in made.batches]
        judged = await self._judged(batches, [*([key] if key is not None else []), *conditions], gone)
        if judged.verdict is UnitVerdict.ACCEPTED:
            return Outcome(self._answer(made.placed, judged.placed, brief), repeated=False)
        if judged.verdict is UnitVerdict.REPEATED:
            return await self._again(wish, keyless, judged.placed, judged.note, brief)
        raise self._refusal(judged, [*([key] if key is not None else []), *conditions])

    async def repeated(self, key: Once) -> Outcome | None:
        """The first answer under a key, for a request that cannot be carried out any more; None if it is the first.

        It has no places of single records: the bytes of their keys, which chose partitions, are not known.
        """
        await self._replica.barrier()
        return await self._repeated(Wish([]), key, brief=True)

    # --- before ----------------------------------------------------------------------------------------

    async def _repeated(self, wish: Wish, key: Once | None, brief: bool) -> Outcome | None:
        """The first answer under a key, if this process knows it."""
        kept = known(self._replica.state, key) if key is not None else None
        if kept is None or key is None:
            return None
        if kept.body != key.body:
            raise _another_body()
        return await self._again(wish, keyless_of(key), kept.placed, kept.note, brief)

    async def _make(self, entries: list[Entry], keyless: int) -> _Made:
        now_ms = self._services.clock.wall_ms()
        size = sum([len(entry.value or b"") + len(entry.key or b"") for entry in entries])
        run = self._services.offload if size > LARGE or len(entries) > MANY else inline
        return await run(_make, entries, keyless, self._demands, now_ms)

    def _check_size(self, made: _Made, key: Once | None) -> None:
        """Raise if a unit would not fit into one record of the ledger, or would take too much room there for a day."""
        if len(made.batches) > MAX_BATCHES_PER_OBJECT:
            told = f"the records make {len(made.batches)} batches; the limit is {MAX_BATCHES_PER_OBJECT}"
            raise Refusal(TOO_LARGE, told)
        partitions = len(set(made.placed))
        if key is not None and partitions > KEYED_PARTITIONS:
            told = f"the records are of {partitions} partitions; the limit with a key is {KEYED_PARTITIONS}"
            raise Refusal(TOO_LARGE, told)
        if key is not None and not has_room(self._replica.state, key, partitions, self._services.settings.limits):
            raise _keys_full()

    def _conditions(self, wish: Wish, placed: list[int]) -> list[AnyCondition]:
        """What must hold. A unit without a wish is one whole all the same."""
        expected = dict(wish.expected_offsets)
        if wish.expected_offset is not None:
            if expected:
                raise BadInput("`expected_offset` and `expected_offsets` exclude each other")
            if len(set(placed)) > 1:
                raise Refusal(UNPROCESSABLE, "the records are of several partitions: use `expected_offsets`")
            expected = {placed[0]: wish.expected_offset}
        if len(expected) + 2 > MAX_CONDITIONS:
            raise BadInput(f"a request can expect the offsets of {MAX_CONDITIONS - 2} partitions")
        conditions: list[AnyCondition] = []
        for partition, offset in sorted(expected.items()):
            if partition >= self.partitions:
                raise BadInput(
                    f"`expected_offsets`: there is no partition {partition}; the topic has {self.partitions}"
                )
            conditions.append(EndIs(self._topic.streams[partition], offset))
        if wish.expected_version is not None:
            conditions.append(VersionIs(self._topic.id, wish.expected_version))
        return conditions or [Present()]

    # --- the verdict -----------------------------------------------------------------------------------

    async def _judged(
        self,
        batches: list[tuple[int, Batch]],
        conditions: list[AnyCondition],
        gone: Callable[[], Awaitable[object]] | None,
    ) -> UnitResult:
        """The result of a unit. Raises the error of one that has none.

        After `gateway.append_ms`, or when the client has left, the unit is dropped if that is still possible.
        """
        decided: asyncio.Future[UnitResult | HeadwaterError] = asyncio.get_running_loop().create_future()

        def settle(outcome: UnitResult | HeadwaterError) -> None:
            if not decided.done():
                decided.set_result(outcome)

        unit = Together(batches, conditions, settle)
        self._writer.append_unit(unit)
        try:
            await self._wait(decided, gone)
        finally:
            withdrawn = not decided.done() and self._writer.withdraw_unit(unit)
        if withdrawn:
            raise NotReady("the stores did not take the records in time; nothing was appended")
        if not decided.done():
            raise OutcomeUnknown("the records may have been appended; repeat the request with the same Idempotency-Key")
        outcome = decided.result()
        if isinstance(outcome, HeadwaterError):
            raise outcome
        return outcome

    async def _wait(
        self, decided: asyncio.Future[UnitResult | HeadwaterError], gone: Callable[[], Awaitable[object]] | None
    ) -> None:
        limit = self._services.own.append_ms / 1000
        await asyncio.wait([decided], timeout=min(limit, PATIENCE_SECONDS))
        if decided.done() or limit <= PATIENCE_SECONDS:
            return
        leaving = spawn(_until(gone), "client") if gone is not None else None
        awaited: list[asyncio.Future[Any]] = [decided] if leaving is None else [decided, leaving]
        try:
            await asyncio.wait(awaited, timeout=limit - PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if leaving is not None:
                leaving.cancel()

    def _refusal(self, judged: UnitResult, conditions: list[AnyCondition]) -> HeadwaterError:
        if judged.verdict is UnitVerdict.MIRRORED:
            return mirrored(self._services.state, self._topic)
        if judged.verdict is UnitVerdict.MISMATCH:
            return _another_body()
        if judged.verdict is UnitVerdict.FULL:
            return _keys_full()
        if judged.verdict is UnitVerdict.NO_STREAM:
            return Refusal(NOT_FOUND, f"there is no topic {self._topic.name!r} any more")
        partition_of = {stream: partition for partition, stream in enumerate(self._topic.streams)}
        told: dict[str, object] = {}
        lines = []
        for condition, present in zip(conditions, judged.present, strict=True):
            if isinstance(condition, EndIs):
                partition = partition_of[condition.stream]
                lines.append({"partition": partition, "expected": condition.offset, "present": present})
            elif isinstance(condition, VersionIs):
                told["version"] = {"expected": condition.version, "present": present}
        if lines:
            told["partitions"] = lines
        detail = "; ".join(_conflict(conditions[at], judged.present[at], partition_of) for at in judged.failed)
        return Refusal(CONFLICT, detail, more=told)

    # --- the answer ------------------------------------------------------------------------------------

    async def _again(self, wish: Wish, keyless: int, placed: list[Placed], note: bytes, brief: bool) -> Outcome:
        """The first answer, from what the state kept. The records are placed as they were then."""
        run = self._services.offload if len(wish.entries) > MANY else inline
        then = await run(places, wish.entries, partitions_of(note), keyless)
        wanted = Counter(self._topic.streams[partition] for partition in then)
        for one in placed:
            wanted[one.stream] -= one.offsets
        # With a newer schema keys may have other bytes, and so other partitions, than they had then.
        return Outcome(self._answer(then, placed, brief or any(wanted.values())), repeated=True)

    def _answer(self, placed: list[int], found: list[Placed], brief: bool) -> Appended:
        partition_of = {stream: partition for partition, stream in enumerate(self._topic.streams)}
        ranges = sorted(
            (
                PartitionRange(
                    partition_of[one.stream],
                    one.first_offset,
                    one.first_offset + one.offsets - 1,
                    one.append_ms if one.append_ms != NO_TIMESTAMP else None,
                )
                for one in found
            ),
            key=lambda one: one.partition,
        )
        if brief:
            return Appended(ranges)
        following = {one.partition: one.first_offset for one in ranges}
        records = []
        for partition in placed:
            records.append(RecordPlace(partition, following[partition]))
            following[partition] += 1
        return Appended(ranges, records)


def _make(entries: list[Entry], keyless: int, demands: Demands, now_ms: int) -> _Made:
    placed = places(entries, demands.partitions, keyless)
    return _Made(placed, batches_of(entries, placed, demands, now_ms))


async def _until(gone: Callable[[], Awaitable[object]]) -> None:
    await gone()


def _keys_full() -> Refusal:
    return Refusal(KEYS_FULL, headers=(("Retry-After", "60"),))


def _conflict(condition: AnyCondition, present: int, partition_of: dict[int, int]) -> str:
    if isinstance(condition, EndIs):
        partition = partition_of[condition.stream]
        return f"partition {partition} ends at {present}, not at {condition.offset}"
    assert isinstance(condition, VersionIs)
    return f"the table has version {present}, not {condition.version}"


def _another_body() -> Refusal:
    return Refusal(UNPROCESSABLE, "the Idempotency-Key was used with another request; nothing was appended")
