"""Produce, versions 3 to 13: check, hand to the writers, answer when every partition is decided.

The call itself only checks and enqueues, in the order of arrival, so that the requests of one connection share a
flush. Only a topic that is not known here yet has to wait for the metadata first.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker, TopicView
from headwater.broker.faults import OF_VERDICT, code_of
from headwater.broker.registry import Answer, Request, Values, api
from headwater.errors import HeadwaterError
from headwater.log.batch import check_batch
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
def _accepted(version: int) -> Callable[[Sequence[int]], bytes]:
    """The answer of a partition whose batch was taken: most of all that a broker says while it is written to."""
    partition = item_type(item_type(response_type(KEY, version), "responses"), "partition_responses")
    return template(partition, {}, ACCEPTED_FIELDS[: 4 if version >= LOG_START_SINCE else 3])


class _Produce:
    """One request until its last partition is decided. Partitions are numbered over all topics."""

    __slots__ = (
        "_accepted",
        "_answers",
        "_indexes",
        "_silent",
        "_timer",
        "_topics",
        "_undecided",
        "_with_start",
        "done",
    )

    def __init__(self, version: int, topics: list[tuple[Any, int]], indexes: list[int], silent: bool) -> None:
        self._accepted = _accepted(version)
        self._with_start = version >= LOG_START_SINCE
        self._topics = topics
        self._indexes = indexes
        self._silent = silent
        self._answers: list[Values | bytes | None] = [None] * len(indexes)
        self._undecided = len(indexes)
        self._timer: asyncio.TimerHandle | None = None
        self.done: asyncio.Future[Values | None] = asyncio.get_running_loop().create_future()
        if not self._undecided:
            self.done.set_result(self._values())

    def limit(self, seconds: float) -> None:
        """After the client's own time limit, answer whatever is decided."""
        if not self.done.done():
            self._timer = asyncio.get_running_loop().call_later(seconds, self._finish)

    def accepted(self, number: int, offset: int, log_start: int, append_ms: int) -> None:
        """See `Caller`."""
        index = self._indexes[number]
        numbers = (index, offset, append_ms, log_start) if self._with_start else (index, offset, append_ms)
        self._answer(number, self._accepted(numbers))

    def decided(self, number: int, outcome: Outcome | HeadwaterError) -> None:
        """See `Caller`."""
        if isinstance(outcome, HeadwaterError):
            self.refuse(number, code_of(outcome), str(outcome))
        elif outcome.verdict is Verdict.DUPLICATE:
            self.accepted(number, outcome.offset, outcome.log_start, outcome.append_ms)
        else:
            self.refuse(number, OF_VERDICT[outcome.verdict], log_start_offset=outcome.log_start)

    def refuse(self, number: int, code: ErrorCode, message: str | None = None, log_start_offset: int = -1) -> None:
        """A partition that takes nothing."""
        refusal = {
            "index": self._indexes[number],
            "error_code": code,
            "error_message": message,
            "base_offset": -1,
            "log_append_time": -1,
            "log_start_offset": log_start_offset,
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
        if not self.done.done():
            self.done.set_result(self._values())

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


@api(KEY, 3, 13)
def produce(broker: Broker, request: Request) -> Answer:
    """See the module's note."""
    views = _views(broker, request)
    if None not in views:
        return _begin(broker, request, views)
    return _after_metadata(broker, request)


def _views(broker: Broker, request: Request) -> list[TopicView | ErrorCode | None]:
    """Each topic's view, why it takes nothing from this client, or `None` if it is not known here."""
    by_id = request.version >= 13
    views: list[TopicView | ErrorCode | None] = []
    for topic in request.body.topic_data:
        view = broker.by_id(topic.topic_id) if by_id else broker.by_name(topic.name)
        name = topic.name if not by_id else view.topic.name if view is not None else None
        if name is not None and not broker.may(request, Operation.WRITE, ResourceKind.TOPIC, name):
            views.append(ErrorCode.topic_authorization_failed)
        else:
            views.append(view)
    return views


async def _after_metadata(broker: Broker, request: Request) -> Values | None:
    try:
        await broker.cluster.barrier()
    except HeadwaterError:
        pass  # the topics stay unknown here, which is an error that clients retry
    return await _begin(broker, request, _views(broker, request))


def _begin(
    broker: Broker, request: Request, views: list[TopicView | ErrorCode | None]
) -> asyncio.Future[Values | None]:
    body = request.body
    by_id = request.version >= 13
    topics = [(t.topic_id if by_id else t.name, len(t.partition_data)) for t in body.topic_data]
    indexes = [p.index for t in body.topic_data for p in t.partition_data]
    state = _Produce(request.version, topics, indexes, silent=not body.acks)
    refusal = _refusal(broker, request)
    unknown = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    now = broker.clock.wall_ms()
    number = 0
    for topic, view in zip(body.topic_data, views, strict=True):
        for data in topic.partition_data:
            if refusal is not None:
                state.refuse(number, refusal)
            elif view is None:
                state.refuse(number, unknown)
            elif isinstance(view, ErrorCode):
                state.refuse(number, view)
            else:
                _append(broker, view, data, now, state, number)
            number += 1
    if body.acks:
        state.limit(max(body.timeout.total_seconds(), 0.001))
    return state.done


def _refusal(broker: Broker, request: Request) -> ErrorCode | None:
    body = request.body
    if body.acks not in ACKS:
        return ErrorCode.invalid_required_acks
    transaction = body.transactional_id
    if transaction is not None and not broker.may(request, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transaction):
        return ErrorCode.transactional_id_authorization_failed
    if transaction is not None:
        return ErrorCode.invalid_txn_state
    if not broker.membership.in_contact:
        return ErrorCode.not_leader_or_follower
    return None


def _append(broker: Broker, view: TopicView, data: Any, now: int, state: _Produce, number: int) -> None:
    stream = view.stream_id(data.index)
    if stream is None:
        state.refuse(number, ErrorCode.unknown_topic_or_partition)
        return
    try:
        batch = check_batch(data.records or b"", view.rules, now)
    except HeadwaterError as error:
        state.refuse(number, code_of(error), str(error))
        return
    stats = broker.stats
    stats.produced_bytes += len(batch.data)
    stats.produced_records += batch.offsets
    view.writer.append(Part(stream, batch, state, number))
