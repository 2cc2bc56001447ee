"""Produce, versions 3 to 13: check batches, pass them to the writers, answer when every partition is decided.

The call itself only checks and enqueues batches, in the order of arrival, so that the requests of one connection share
a flush. Only a request for a topic that is unknown here waits for the metadata first.

Batches of transactions are judged when their record is applied, as all others are. From version 12 on they make their
partition a part of the transaction themselves; clients of earlier versions do so by AddPartitionsToTxn.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.background import spawn
from headwater.broker.broker import Broker, TopicView
from headwater.broker.errors import OF_VERDICT, code_of
from headwater.broker.groups.shares import caller_of
from headwater.broker.handlers.data.produce_request import (
    TOPIC_IDS_SINCE,
    Partition,
    ProduceRequest,
    of_body,
    read_frame,
    without_repetition,
)
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Answer, Pending, Request, Values
from headwater.errors import HeadwaterError, InvalidRecord, InvalidTimestamp, Mirrored, RecordErrors
from headwater.log.batch import UNREAD, unchecked
from headwater.log.write.opening import Wanted, Work
from headwater.log.write.part import Outcome, Part
from headwater.replica.internal_topics import topic_by_id, topic_by_name
from headwater.replica.links import mirrored
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.results import Verdict
from headwater.wire.encode import item_type, template
from headwater.wire.messages import response_type

ACKS = (-1, 0, 1)
KEY = 0
LOG_START_SINCE = 5
ABORTABLE_SINCE = 11
"""Clients of this version know the error after which a transaction can only be aborted."""
JOINS_SINCE = 12
NO_MEMBERS = frozenset({Verdict.STALE_PRODUCER, Verdict.NO_TRANSACTION, Verdict.NOT_JOINED})
"""Verdicts on batches that are no part of a transaction. Answers do not tell them the start of the log, as in Kafka."""
ACCEPTED_FIELDS = ("index", "base_offset", "log_append_time", "log_start_offset")


@functools.cache
def _accepted(version: int) -> Callable[..., bytes]:
    """The encoder of the answer for an accepted batch: by far the most frequent answer of a busy broker."""
    partition = item_type(item_type(response_type(KEY, version), "responses"), "partition_responses")
    return template(partition, {}, ACCEPTED_FIELDS[: 4 if version >= LOG_START_SINCE else 3])


class _Produce(Pending):
    """One request until its last partition is decided. Partitions are numbered over all topics."""

    __slots__ = (
        "_abortable",
        "_accepted",
        "_answers",
        "_broker",
        "_indexes",
        "_pace",
        "_parts",
        "_silent",
        "_timer",
        "_topics",
        "_transactional",
        "_undecided",
        "_with_start",
    )

    def __init__(self, broker: Broker, version: int, wanted: ProduceRequest) -> None:
        super().__init__()
        gauge, clock = broker.pace.publish, broker.clock
        self._pace = (gauge, gauge.begin(clock.monotonic()), clock)
        self._accepted = _accepted(version)
        self._with_start = version >= LOG_START_SINCE
        self._abortable = version >= ABORTABLE_SINCE
        self._topics = [(topic, len(partitions)) for topic, partitions in wanted.topics]
        self._indexes = [partition[0] for _, partitions in wanted.topics for partition in partitions]
        self._silent = not wanted.acks
        self._transactional = bool(wanted.producers)
        self._answers: list[Values | bytes | None] = [None] * len(self._indexes)
        self._undecided = len(self._indexes)
        self._broker = broker
        self._parts: list[Part] = []
        self._timer: asyncio.TimerHandle | None = None
        if not self._undecided:
            self._finish()
        elif wanted.acks:
            seconds = max(wanted.timeout_ms / 1000, 0.001)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def passed_on(self, parts: list[Part], size: int) -> None:
        """Note batches that are in the write path now, which counts their bytes."""
        self._parts += parts
        self.moved += size

    def lost(self) -> None:
        """See `Pending`. The batches are written all the same: no client was told that they were given up."""
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        """After the client's own time limit, answer with the outcomes so far.

        The client takes what it was not told for undone. So a batch that no object contains yet is dropped.
        """
        for part in self._parts:
            if self._answers[part.number] is None:
                self._broker.withdraw(part)
        self._finish()

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        """See `Caller`."""
        index = self._indexes[number]
        if self._with_start:
            self._answer(number, self._accepted(index, offset, append_ms, log_start))
        else:
            self._answer(number, self._accepted(index, offset, append_ms))

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        """See `Caller`."""
        if isinstance(outcome, HeadwaterError):
            self.refuse(number, code_of(outcome), str(outcome))
        elif outcome.verdict is Verdict.DUPLICATE:
            self.accepted(number, outcome.offset, outcome.log_start, outcome.append_ms)
        else:
            code, message = OF_VERDICT[outcome.verdict], None
            if outcome.verdict is Verdict.NOT_JOINED:
                message = "The partition was not added to the transaction."
                code = code if self._abortable else ErrorCode.invalid_txn_state
            elif outcome.verdict is Verdict.MIRRORED:
                message = str(self._mirrored(number))
            told = not self._transactional or outcome.verdict not in NO_MEMBERS
            self.refuse(number, code, message, outcome.log_start if told else -1)

    def _mirrored(self, number: int) -> Mirrored:
        """The error for a partition that only a link writes to."""
        state = self._broker.cluster.state
        for topic, count in self._topics:
            if number < count:
                if isinstance(topic, str):
                    return mirrored(state, topic_by_name(state, topic))
                return mirrored(state, topic_by_id(state, topic))
            number -= count
        raise IndexError(number)

    def refuse(
        self,
        number: int,
        code: ErrorCode,
        message: str | None = None,
        log_start_offset: int = -1,
        records: RecordErrors = (),
    ) -> None:
        """Answer a partition with an error."""
        refusal = {
            "index": self._indexes[number],
            "error_code": code,
            "error_message": message,
            "base_offset": -1,
            "log_append_time": -1,
            "log_start_offset": log_start_offset,
            "record_errors": [
                {"batch_index": index, "batch_index_error_message": message} for index, message in records
            ],
        }
        self._answer(number, refusal)

    def _answer(self, number: int, answer: Values | bytes) -> None:
        """Set the answer of a partition. The last one completes the request."""
        if self._answers[number] is not None:
            return
        self._answers[number] = answer
        self._undecided -= 1
        if not self._undecided:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.known:
            self._parts = []
            gauge, number, clock = self._pace
            gauge.end(number, clock.monotonic())
            self.answer(self._response())

    def _response(self) -> Values | None:
        """The answer. With acks=0 there is none, but the request counts as under way until it is decided."""
        if self._silent:
            return None
        answers: list[Values | bytes] = [
            {"index": index, "error_code": ErrorCode.request_timed_out, "base_offset": -1, "log_start_offset": -1}
            if answer is None
            else answer
            for index, answer in zip(self._indexes, self._answers, strict=True)
        ]
        responses, first = [], 0
        for topic, count in self._topics:
            named = isinstance(topic, str)
            responses.append(
                {
                    "name": topic if named else "",
                    "topic_id": None if named else topic,
                    "partition_responses": answers[first : first + count],
                }
            )
            first += count
        return {"responses": responses}


@api(KEY, 3, 13, RequestKind.APPEND, read=read_frame)
def produce(broker: Broker, request: Request) -> Answer:
    """See the docstring of the module."""
    version, body = request.version, request.body
    wanted = without_repetition(body if isinstance(body, ProduceRequest) else of_body(version, body))
    views = _views(broker, request, wanted)
    state = _Produce(broker, version, wanted)
    if None not in views and request.connection not in broker.deferred:
        _begin(broker, request, wanted, views, state)
    else:
        _defer(broker, request, wanted, state)
    return state


def _defer(broker: Broker, request: Request, wanted: ProduceRequest, state: _Produce) -> None:
    """Let a request wait for the metadata, and later requests of its connection behind it, so that none overtakes."""
    connection = request.connection
    state.moved = wanted.batches.keep(wanted.topics)
    broker.budget.take(state.moved)
    work = _after_metadata(broker, request, wanted, state, state.moved, broker.deferred.get(connection))
    task = broker.deferred[connection] = spawn(work, "produce")

    def done(_: asyncio.Task[None]) -> None:
        if broker.deferred.get(connection) is task:
            del broker.deferred[connection]

    task.add_done_callback(done)


def _views(broker: Broker, request: Request, wanted: ProduceRequest) -> list[TopicView | ErrorCode | None]:
    """For each topic its view, the error for this client, or `None` if it is unknown here."""
    by_id = request.version >= TOPIC_IDS_SINCE
    find: Callable[[Any], TopicView | None] = broker.by_id if by_id else broker.by_name
    views: list[TopicView | ErrorCode | None] = [find(topic) for topic, _ in wanted.topics]
    if broker.guard.enforced:
        for i, (topic, _) in enumerate(wanted.topics):
            view = views[i]
            name = topic if not by_id else view.topic.name if isinstance(view, TopicView) else None
            if isinstance(name, str) and not broker.may(request, Operation.WRITE, AclResource.TOPIC, name):
                views[i] = ErrorCode.topic_authorization_failed
    return views


async def _after_metadata(
    broker: Broker,
    request: Request,
    wanted: ProduceRequest,
    state: _Produce,
    size: int,
    before: asyncio.Task[None] | None,
) -> None:
    """Go on with a request once the metadata is up to date. Until then it counts here, even without a connection."""
    try:
        if before is not None:
            await asyncio.wait([before])
        if None in _views(broker, request, wanted):
            await broker.cluster.barrier()
    except HeadwaterError:
        pass  # the topics stay unknown here, which is an error that clients retry
    finally:
        broker.budget.give(size)
    if not state.known:
        _begin(broker, request, wanted, _views(broker, request, wanted), state)


def _begin(
    broker: Broker,
    request: Request,
    wanted: ProduceRequest,
    views: list[TopicView | ErrorCode | None],
    state: _Produce,
) -> None:
    version = request.version
    refusal, message = _refusal(broker, request, wanted)
    unknown = ErrorCode.unknown_topic_id if version >= TOPIC_IDS_SINCE else ErrorCode.unknown_topic_or_partition
    number = 0
    for (_, partitions), view in zip(wanted.topics, views, strict=True):
        flaw = refusal
        if flaw is None and wanted.producers and isinstance(view, TopicView):
            flaw = _transaction_flaw(view, wanted)
        if flaw is None and isinstance(view, TopicView):
            _append(broker, request, view, wanted, partitions, state, number)
        else:
            code = flaw or (view if isinstance(view, ErrorCode) else unknown)
            for i in range(len(partitions)):
                state.refuse(number + i, code, message)
        number += len(partitions)


def _refusal(broker: Broker, request: Request, wanted: ProduceRequest) -> tuple[ErrorCode | None, str | None]:
    """The error for the whole request, and a message if there is one. As in Kafka, only batches of transactions need a
    transactional id."""
    id = wanted.transaction
    if wanted.producers and (id is None or not broker.may(request, Operation.WRITE, AclResource.TRANSACTIONAL_ID, id)):
        return ErrorCode.transactional_id_authorization_failed, None
    if sum(producer >= 0 for producer, _ in wanted.producers) > 1:
        return ErrorCode.invalid_producer_id_mapping, "The transactional batches are of more than one producer."
    if wanted.acks not in ACKS:
        return ErrorCode.invalid_required_acks, None
    if not broker.membership.in_contact:
        return ErrorCode.not_leader_or_follower, None
    return None, None


def _transaction_flaw(view: TopicView, wanted: ProduceRequest) -> ErrorCode | None:
    """Why the batches of a request cannot be part of its transaction, as far as is known here.

    The command that appends them does not name the transactional id, so it is compared here.
    """
    state = view.replica.state
    if not wanted.transaction:
        return ErrorCode.invalid_request
    for producer, _ in wanted.producers:
        known = state.transactions.of_producer(producer)
        if known is not None and known.id != wanted.transaction:
            return ErrorCode.invalid_producer_id_mapping
    return None


def _refuse_batch(state: _Produce, number: int, view: TopicView, stream_id: int, error: HeadwaterError) -> None:
    """Refuse a batch that fails its checks. If its records were checked, the answer has the start of the log."""
    stream = view.replica.state.streams.get(stream_id)
    log_start = -1 if stream is None or isinstance(error, UNREAD) else stream.log_start
    records = error.records if isinstance(error, InvalidRecord | InvalidTimestamp) else ()
    state.refuse(number, code_of(error), str(error), log_start, records)


def _append(
    broker: Broker,
    request: Request,
    view: TopicView,
    wanted: ProduceRequest,
    partitions: list[Partition],
    state: _Produce,
    first: int,
) -> None:
    """Check the batches for the partitions of one topic, and pass them to the writer of the topic.

    A batch that has to be opened may wait for a thread. The batches of one request are of different streams, so the
    others do not wait for it.

    A producer that waits for no answer cannot be sent to another broker, so its records are always accepted.
    """
    if view.empty:
        for number in range(first, first + len(partitions)):
            state.refuse(number, ErrorCode.invalid_topic_exception, "Cannot append to an internal topic.")
        return
    now, rules, target, quick = broker.clock.wall_ms(), view.rules, view.target, wanted.batches.quick
    strict = broker.settings.routing.enforce_owner and wanted.acks != 0
    direct = target is None and not broker.opening.busy(request.connection)
    joins = request.version >= JOINS_SINCE
    parts: list[Part] = []
    others: list[Wanted] = []
    size = records = opened = 0
    for number, partition in enumerate(partitions, first):
        stream = view.stream_id(partition[0])
        if stream is None:
            state.refuse(number, ErrorCode.unknown_topic_or_partition)
            continue
        if strict and broker.turns_away(request, stream):
            state.refuse(number, ErrorCode.not_leader_or_follower)
            continue
        batch = quick(partition, rules, now)
        if batch is not None and direct:
            size += len(batch.data)
            records += batch.offsets
            parts.append(Part(stream, batch, state, number, joins))
            continue
        work = Work(rules if batch is None else None, now, target)
        part = Part(stream, batch or unchecked(wanted.batches.data(partition)), state, number, joins)
        opened += len(part.batch.data)
        refuse = functools.partial(_refuse_batch, state, number, view, stream)
        others.append(Wanted(part, work, view.writer, refuse))
    state.passed_on(parts + [other.part for other in others], size + opened)
    view.writer.append_all(parts)
    if others:
        caller = caller_of(request.connection.principal, request.connection.host)
        for other in others:
            broker.opening.append(request.connection, other, caller)
    broker.stats.produced_bytes += size
    broker.stats.produced_records += records
