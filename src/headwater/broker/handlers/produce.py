"""Produce, versions 3 to 13: check, hand to the writers, answer when every partition is decided.

The call itself only checks and enqueues, in the order of arrival, so that the requests of one connection share a
flush. Only a topic that is not known here yet has to wait for the metadata first.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker, TopicView
from headwater.broker.faults import OF_VERDICT, code_of
from headwater.broker.produce_request import (
    TOPIC_IDS_SINCE,
    Partition,
    ProduceRequest,
    of_body,
    read_frame,
    without_repetition,
)
from headwater.broker.registry import Answer, Pending, Request, Values, api
from headwater.errors import HeadwaterError
from headwater.log.batch import UNREAD, InvalidRecord, InvalidTimestamp, RecordErrors
from headwater.log.parts import Outcome, Part
from headwater.metadata.access import Operation, ResourceKind
from headwater.metadata.results import Verdict
from headwater.wire.encode import item_type, template
from headwater.wire.messages import response_type

ACKS = (-1, 0, 1)
KEY = 0
LOG_START_SINCE = 5
ACCEPTED_FIELDS = ("index", "base_offset", "log_append_time", "log_start_offset")


@functools.cache
def _accepted(version: int) -> Callable[..., bytes]:
    """The answer of a partition whose batch was taken: most of all that a broker says while it is written to."""
    partition = item_type(item_type(response_type(KEY, version), "responses"), "partition_responses")
    return template(partition, {}, ACCEPTED_FIELDS[: 4 if version >= LOG_START_SINCE else 3])


class _Produce:
    """One request until its last partition is decided. Partitions are numbered over all topics."""

    __slots__ = (
        "_accepted",
        "_answers",
        "_indexes",
        "_pace",
        "_silent",
        "_timer",
        "_topics",
        "_undecided",
        "_with_start",
        "answer",
    )

    def __init__(
        self, broker: Broker, version: int, topics: list[tuple[Any, int]], indexes: list[int], silent: bool
    ) -> None:
        gauge, clock = broker.pace.publish, broker.clock
        self._pace = (gauge, gauge.begin(clock.monotonic()), clock)
        self._accepted = _accepted(version)
        self._with_start = version >= LOG_START_SINCE
        self._topics = topics
        self._indexes = indexes
        self._silent = silent
        self._answers: list[Values | bytes | None] = [None] * len(indexes)
        self._undecided = len(indexes)
        self._timer: asyncio.TimerHandle | None = None
        self.answer = Pending()
        if not self._undecided:
            self._finish()

    def limit(self, seconds: float) -> None:
        """After the client's own time limit, answer whatever is decided."""
        if not self.answer.known:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._finish)

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
            self.refuse(number, OF_VERDICT[outcome.verdict], log_start_offset=outcome.log_start)

    def refuse(
        self,
        number: int,
        code: ErrorCode,
        message: str | None = None,
        log_start_offset: int = -1,
        records: RecordErrors = (),
    ) -> None:
        """A partition that takes nothing."""
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
        """A partition's answer. The last one completes the request."""
        if self._answers[number] is not None:
            return
        self._answers[number] = answer
        self._undecided -= 1
        if not self._undecided:
            self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.answer.known:
            gauge, number, clock = self._pace
            gauge.end(number, clock.monotonic())
            self.answer.answer(self._values())

    def _values(self) -> Values | None:
        """The answer; with acks=0 there is none, but the request counts as under way until it is decided."""
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


@api(KEY, 3, 13, read=read_frame)
def produce(broker: Broker, request: Request) -> Answer:
    """See the module's note."""
    version, body = request.version, request.body
    wanted = without_repetition(body if isinstance(body, ProduceRequest) else of_body(version, body))
    views = _views(broker, request, wanted)
    if None not in views:
        return _begin(broker, request, wanted, views)
    wanted.batches.keep()
    return _after_metadata(broker, request, wanted)


def _views(broker: Broker, request: Request, wanted: ProduceRequest) -> list[TopicView | ErrorCode | None]:
    """Each topic's view, why it takes nothing from this client, or `None` if it is not known here."""
    by_id = request.version >= TOPIC_IDS_SINCE
    find: Callable[[Any], TopicView | None] = broker.by_id if by_id else broker.by_name
    views: list[TopicView | ErrorCode | None] = [find(topic) for topic, _ in wanted.topics]
    if broker.guard.enforced:
        for i, (topic, _) in enumerate(wanted.topics):
            view = views[i]
            name = topic if not by_id else view.topic.name if isinstance(view, TopicView) else None
            if isinstance(name, str) and not broker.may(request, Operation.WRITE, ResourceKind.TOPIC, name):
                views[i] = ErrorCode.topic_authorization_failed
    return views


async def _after_metadata(broker: Broker, request: Request, wanted: ProduceRequest) -> Values | None:
    try:
        await broker.cluster.barrier()
    except HeadwaterError:
        pass  # the topics stay unknown here, which is an error that clients retry
    return await _begin(broker, request, wanted, _views(broker, request, wanted))


def _begin(
    broker: Broker, request: Request, wanted: ProduceRequest, views: list[TopicView | ErrorCode | None]
) -> Pending:
    version = request.version
    topics = [(topic, len(partitions)) for topic, partitions in wanted.topics]
    indexes = [partition[0] for _, partitions in wanted.topics for partition in partitions]
    state = _Produce(broker, version, topics, indexes, silent=not wanted.acks)
    refusal = _refusal(broker, request, wanted)
    unknown = ErrorCode.unknown_topic_id if version >= TOPIC_IDS_SINCE else ErrorCode.unknown_topic_or_partition
    number = 0
    for (_, partitions), view in zip(wanted.topics, views, strict=True):
        if refusal is None and isinstance(view, TopicView):
            _append(broker, request, view, wanted, partitions, state, number)
        else:
            code = refusal or (view if isinstance(view, ErrorCode) else unknown)
            for i in range(len(partitions)):
                state.refuse(number + i, code)
        number += len(partitions)
    if wanted.acks:
        state.limit(max(wanted.timeout_ms / 1000, 0.001))
    return state.answer


def _refusal(broker: Broker, request: Request, wanted: ProduceRequest) -> ErrorCode | None:
    transaction = wanted.transaction
    if transaction is None and wanted.transactional:
        return ErrorCode.transactional_id_authorization_failed
    if transaction is not None and not broker.may(request, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transaction):
        return ErrorCode.transactional_id_authorization_failed
    if wanted.acks not in ACKS:
        return ErrorCode.invalid_required_acks
    if transaction is not None:
        return ErrorCode.invalid_txn_state
    if not broker.membership.in_contact:
        return ErrorCode.not_leader_or_follower
    return None


def _refuse_batch(state: _Produce, number: int, view: TopicView, stream_id: int, error: HeadwaterError) -> None:
    """A batch that fails its checks. Once its records were looked at, the answer tells where the log begins."""
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
    """Check what came for the partitions of one topic, and hand it to the topic's writer.

    A producer that waits for no answer cannot be told to go elsewhere, so its records are always taken.
    """
    now, rules, check = broker.clock.wall_ms(), view.rules, wanted.batches.check
    strict = broker.settings.routing.enforce_owner and wanted.acks != 0
    parts: list[Part] = []
    size = records = 0
    for number, partition in enumerate(partitions, first):
        stream = view.stream_id(partition[0])
        if stream is None:
            state.refuse(number, ErrorCode.unknown_topic_or_partition)
            continue
        if strict and broker.turns_away(request, stream):
            state.refuse(number, ErrorCode.not_leader_or_follower)
            continue
        try:
            batch = check(partition, rules, now)
        except HeadwaterError as error:
            _refuse_batch(state, number, view, stream, error)
            continue
        size += len(batch.data)
        records += batch.offsets
        parts.append(Part(stream, batch, state, number))
    if view.target is None and not broker.recompression.waiting:
        view.writer.append_all(parts)
    else:
        for part in parts:
            broker.recompression.append(view.writer, part, view.target)
    broker.stats.produced_bytes += size
    broker.stats.produced_records += records
