"""Produce, versions 3 to 13: check, hand to the writers, answer when every partition is decided.

The call itself only checks and enqueues, in the order of arrival, so that the requests of one connection share a
flush. Only a topic that is not known here yet has to wait for the metadata first.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.core import Broker, TopicView
from headwater.broker.faults import OF_VERDICT, code_of
from headwater.broker.registry import Answer, Request, Values, api
from headwater.errors import HeadwaterError
from headwater.log.batch import check_batch
from headwater.log.parts import Outcome, Part
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
    """One request until its last partition is decided."""

    __slots__ = ("_accepted", "_answers", "_silent", "_timer", "_topics", "_undecided", "_with_start", "done")

    def __init__(self, version: int, topics: list[tuple[Any, list[int]]], silent: bool) -> None:
        self._accepted = _accepted(version)
        self._with_start = version >= LOG_START_SINCE
        self._topics = topics
        self._silent = silent
        self._answers: dict[tuple[int, int], Values | bytes] = {}
        self._undecided = sum(len(partitions) for _, partitions in topics)
        self._timer: asyncio.TimerHandle | None = None
        self.done: asyncio.Future[Values | None] = asyncio.get_running_loop().create_future()
        if not self._undecided:
            self.done.set_result(self._values())

    def limit(self, seconds: float) -> None:
        """After the client's own time limit, answer whatever is decided."""
        if not self.done.done():
            self._timer = asyncio.get_running_loop().call_later(seconds, self._finish)

    def decide(self, topic: int, partition: int, outcome: Outcome | HeadwaterError) -> None:
        """A partition's outcome, from the writer."""
        if isinstance(outcome, HeadwaterError):
            self.refuse(topic, partition, code_of(outcome), str(outcome))
        elif outcome.verdict is Verdict.ACCEPTED or outcome.verdict is Verdict.DUPLICATE:
            numbers = (self._topics[topic][1][partition], outcome.offset, outcome.append_ms, outcome.log_start)
            self._answer((topic, partition), self._accepted(numbers if self._with_start else numbers[:3]))
        else:
            self.refuse(topic, partition, OF_VERDICT[outcome.verdict], log_start_offset=outcome.log_start)

    def refuse(
        self, topic: int, partition: int, code: ErrorCode, message: str | None = None, log_start_offset: int = -1
    ) -> None:
        """A partition that takes nothing."""
        refusal = {
            "index": self._topics[topic][1][partition],
            "error_code": code,
            "error_message": message,
            "base_offset": -1,
            "log_append_time": -1,
            "log_start_offset": log_start_offset,
        }
        self._answer((topic, partition), refusal)

    def _answer(self, key: tuple[int, int], answer: Values | bytes) -> None:
        """A partition's answer. The last one completes the request."""
        if key in self._answers:
            return
        self._answers[key] = answer
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
        timed_out = {"error_code": ErrorCode.request_timed_out, "base_offset": -1, "log_start_offset": -1}
        return {
            "responses": [
                {
                    "name": topic if isinstance(topic, str) else "",
                    "topic_id": None if isinstance(topic, str) else topic,
                    "partition_responses": [
                        self._answers.get((i, j), {**timed_out, "index": index}) for j, index in enumerate(partitions)
                    ],
                }
                for i, (topic, partitions) in enumerate(self._topics)
            ]
        }


@api(KEY, 3, 13)
def produce(broker: Broker, request: Request) -> Answer:
    """See the module's note."""
    body = request.body
    by_id = request.version >= 13
    views = [broker.by_id(t.topic_id) if by_id else broker.by_name(t.name) for t in body.topic_data]
    if all(views):
        return _begin(broker, request, views)
    return _after_metadata(broker, request)


async def _after_metadata(broker: Broker, request: Request) -> Values | None:
    try:
        await broker.cluster.barrier()
    except HeadwaterError:
        pass  # the topics stay unknown here, which is an error that clients retry
    by_id = request.version >= 13
    views = [broker.by_id(t.topic_id) if by_id else broker.by_name(t.name) for t in request.body.topic_data]
    return await _begin(broker, request, views)


def _begin(broker: Broker, request: Request, views: list[TopicView | None]) -> asyncio.Future[Values | None]:
    body = request.body
    by_id = request.version >= 13
    topics = [(t.topic_id if by_id else t.name, [p.index for p in t.partition_data]) for t in body.topic_data]
    state = _Produce(request.version, topics, silent=not body.acks)
    refusal = _refusal(broker, body)
    unknown = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
    now = broker.clock.wall_ms()
    for i, (topic, view) in enumerate(zip(body.topic_data, views, strict=True)):
        for j, data in enumerate(topic.partition_data):
            if refusal is not None:
                state.refuse(i, j, refusal)
            elif view is None:
                state.refuse(i, j, unknown)
            else:
                _append(broker, view, data, now, state, i, j)
    if body.acks:
        state.limit(max(body.timeout.total_seconds(), 0.001))
    return state.done


def _refusal(broker: Broker, body: Any) -> ErrorCode | None:
    if body.acks not in ACKS:
        return ErrorCode.invalid_required_acks
    if body.transactional_id is not None:
        return ErrorCode.invalid_txn_state
    if not broker.membership.in_contact:
        return ErrorCode.not_leader_or_follower
    return None


def _append(broker: Broker, view: TopicView, data: Any, now: int, state: _Produce, topic: int, partition: int) -> None:
    stream = view.stream_id(data.index)
    if stream is None:
        state.refuse(topic, partition, ErrorCode.unknown_topic_or_partition)
        return
    try:
        batch = check_batch(data.records or b"", view.rules, now)
    except HeadwaterError as error:
        state.refuse(topic, partition, code_of(error), str(error))
        return
    broker.stats.produced_bytes += len(batch.data)
    broker.stats.produced_records += batch.offsets
    view.writer.append(Part(stream, batch, partial(state.decide, topic, partition)))
