"""AddPartitionsToTxn, versions 0 to 5, AddOffsetsToTxn, 0 to 4, EndTxn, 0 to 5.

No broker holds anything of a transaction in memory. A request becomes one command, which `apply` judges. So any broker
serves any transactional id, and a repeated request gets the answer of the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import coordinator_code_of
from headwater.broker.registry import api
from headwater.broker.request import Request, Values
from headwater.broker.transactions import codes
from headwater.errors import HeadwaterError
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.commands.transactions import JoinTransaction
from headwater.state.results import Judgement, Transacted
from headwater.state.streams.stored.groups import MAX_NAME

KNOWS_FENCED = 2
"""From this version on clients of these APIs know PRODUCER_FENCED."""
BATCHED = 4
"""From this version on AddPartitionsToTxn has several transactions. Only brokers send it."""
BUMPS = 5
"""From this version on EndTxn moves on to the next epoch."""


def _may_write(broker: Broker, request: Request, id: str) -> bool:
    return broker.may(request, Operation.WRITE, AclResource.TRANSACTIONAL_ID, id)


# --- partitions ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Addition:
    """Partitions that join one transaction."""

    id: str
    producer: int
    epoch: int
    verify_only: bool
    topics: Sequence[Any]
    errors: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)
    """What is wrong with partitions. One such partition keeps all others out."""
    streams: dict[tuple[str, int], int] = field(default_factory=dict)
    whole: ErrorCode | None = None
    """The error of all partitions."""

    @property
    def joins(self) -> bool:
        return self.whole is None and not self.errors and not self.verify_only

    def command(self) -> JoinTransaction:
        return JoinTransaction(self.id, self.producer, self.epoch, tuple(dict.fromkeys(self.streams.values())), ())

    def results(self) -> list[Values]:
        """The answer, partition by partition."""
        return [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": self._code(topic.name, index)}
                    for index in topic.partitions
                ],
            }
            for topic in self.topics
        ]

    def _code(self, topic: str, index: int) -> ErrorCode:
        if self.whole is not None:
            return self.whole
        return self.errors.get((topic, index), ErrorCode.operation_not_attempted if self.errors else ErrorCode.none)


@api(24, 0, 5)
async def add_partitions_to_txn(broker: Broker, request: Request) -> Values:
    """Partitions join transactions, or it is only checked that they have. One bad partition keeps out all others."""
    batched = request.version >= BATCHED
    if batched and not broker.may(request, Operation.CLUSTER_ACTION, AclResource.CLUSTER):
        return {"error_code": ErrorCode.cluster_authorization_failed, "results_by_transaction": []}
    additions = list(_additions(request))
    failure = await _look_for_topics(broker, additions)
    work = broker.turns.work()
    for addition in additions:
        await work.did()
        if not addition.id:
            addition.whole = ErrorCode.invalid_request
        elif not batched and not _may_write(broker, request, addition.id):
            addition.whole = ErrorCode.transactional_id_authorization_failed
        else:
            async for topic in work.over(addition.topics):
                _find(broker, request, addition, topic)
    try:
        if failure is not None:
            raise failure
        await _join(broker, request, additions)
    except HeadwaterError as error:
        for addition in additions:
            if addition.whole is None and not addition.errors:
                addition.whole = coordinator_code_of(error)
    if not batched:
        return {"results_by_topic_v3_and_below": additions[0].results()}
    return {
        "error_code": ErrorCode.none,
        "results_by_transaction": [
            {"transactional_id": addition.id, "topic_results": addition.results()} for addition in additions
        ],
    }


def _additions(request: Request) -> Iterator[_Addition]:
    body = request.body
    if request.version < BATCHED:
        yield _Addition(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            False,
            body.v3_and_below_topics,
        )
        return
    for of_one in body.transactions:
        yield _Addition(
            of_one.transactional_id, of_one.producer_id, of_one.producer_epoch, of_one.verify_only, of_one.topics
        )


async def _look_for_topics(broker: Broker, additions: Sequence[_Addition]) -> HeadwaterError | None:
    """Catch up with the cluster if a partition is not known here. Returns the error, if any."""
    for addition in additions:
        for topic in addition.topics:
            view = broker.by_name(topic.name)
            if view is None or any(view.stream_id(index) is None for index in topic.partitions):
                return await broker.read_cluster()
    return None


def _find(broker: Broker, request: Request, addition: _Addition, topic: Any) -> None:
    """Enter the streams of a topic, or what is wrong with its partitions."""
    view = broker.by_name(topic.name)
    from_client = request.version < BATCHED
    internal = view is not None and view.empty
    forbidden = internal or not broker.may(request, Operation.WRITE, AclResource.TOPIC, topic.name)
    for index in topic.partitions:
        stream = view.stream_id(index) if view is not None and not internal else None
        if from_client and forbidden:
            addition.errors[topic.name, index] = ErrorCode.topic_authorization_failed
        elif stream is None or view is None or view.replica is not broker.transactions.replica:
            addition.errors[topic.name, index] = ErrorCode.unknown_topic_or_partition
        else:
            addition.streams[topic.name, index] = stream


async def _join(broker: Broker, request: Request, additions: Sequence[_Addition]) -> None:
    broker.check_contact()
    joining = [addition for addition in additions if addition.joins]
    results = await broker.transactions.submit_all([addition.command() for addition in joining])
    if any(addition.verify_only for addition in additions):
        await broker.transactions.replica.barrier()
    for addition, result in zip(joining, results, strict=True):
        addition.whole = codes.code_of(result.judgement, knows_fenced=request.version >= KNOWS_FENCED)
    for addition in additions:
        if addition.verify_only and addition.whole is None and not addition.errors:
            _verify(broker, addition)


def _verify(broker: Broker, addition: _Addition) -> None:
    found = broker.transactions.replica.state.transactions.get(addition.id)
    if found is None or found.producer != addition.producer:
        addition.whole = codes.code_of(Judgement.UNKNOWN_PRODUCER)
    elif found.epoch != addition.epoch:
        addition.whole = codes.code_of(Judgement.FENCED)
    else:
        missing = {place for place, stream in addition.streams.items() if stream not in found.streams}
        known = {place: ErrorCode.none for place in addition.streams}
        addition.errors = known | dict.fromkeys(missing, codes.code_of(Judgement.NOT_JOINED))


# --- groups ----------------------------------------------------------------------------------------------


@api(25, 0, 4)
async def add_offsets_to_txn(broker: Broker, request: Request) -> Values:
    """A group joins a transaction. TxnOffsetCommit can stage its offsets then."""
    return {"error_code": await _add_offsets(broker, request)}


async def _add_offsets(broker: Broker, request: Request) -> ErrorCode:
    body = request.body
    if not _may_write(broker, request, body.transactional_id):
        return ErrorCode.transactional_id_authorization_failed
    if not broker.may(request, Operation.READ, AclResource.GROUP, body.group_id):
        return ErrorCode.group_authorization_failed
    if not body.transactional_id:
        return ErrorCode.invalid_request
    if len(body.group_id) > MAX_NAME:
        return ErrorCode.invalid_group_id
    command = JoinTransaction(body.transactional_id, body.producer_id, body.producer_epoch, (), (body.group_id,))
    try:
        broker.check_contact()
        result = await broker.transactions.submit(command)
    except HeadwaterError as error:
        return coordinator_code_of(error)
    return codes.code_of(result.judgement, knows_fenced=request.version >= KNOWS_FENCED)


# --- end ---------------------------------------------------------------------------------------------------


@api(26, 0, 5)
async def end_txn(broker: Broker, request: Request) -> Values:
    """Commit or abort. When it is answered, readers can see the result."""
    body, version = request.body, request.version
    code, result = ErrorCode.none, Transacted(Judgement.UNKNOWN_PRODUCER)
    if not _may_write(broker, request, body.transactional_id):
        code = ErrorCode.transactional_id_authorization_failed
    elif not body.transactional_id:
        code = ErrorCode.invalid_request
    else:
        try:
            broker.check_contact()
            result = await broker.transactions.end(
                body.transactional_id,
                body.producer_id,
                body.producer_epoch,
                commit=body.committed,
                bump=version >= BUMPS,
            )
            code = codes.code_of(result.judgement, knows_fenced=version >= KNOWS_FENCED)
        except HeadwaterError as error:
            code = coordinator_code_of(error)
    return {"error_code": code, "producer_id": result.producer, "producer_epoch": result.epoch}
