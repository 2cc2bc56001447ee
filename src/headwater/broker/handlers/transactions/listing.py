"""ListTransactions, versions 0 to 2, and DescribeTransactions, version 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.broker.broker import Broker
from headwater.broker.errors import coordinator_code_of
from headwater.broker.registry import RequestKind, api
from headwater.broker.request import Request, Values
from headwater.coordination.common import GroupError
from headwater.coordination.regex import compiled
from headwater.errors import HeadwaterError
from headwater.replica.internal_topics import topic_by_id
from headwater.state.cluster.access import AclResource, Operation
from headwater.state.streams.stored.transactions import STATES, Phase, Transaction

NEVER = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead")
"""Kafka's other states. A filter may name them; no transaction has them here."""
NO_TIME = -1


def _started_ms(found: Transaction) -> int:
    """When the open or last transaction began. There is none after a producer has started."""
    return NO_TIME if found.phase is Phase.EMPTY else found.opened_ms


@api(66, 0, 2, RequestKind.READ)
async def list_transactions(broker: Broker, request: Request) -> Values:
    """The transactional ids that this broker watches. Clients ask every broker."""
    body = request.body
    unknown = [name for name in dict.fromkeys(body.state_filters) if name not in (*STATES.values(), *NEVER)]
    try:
        matches = _pattern(getattr(body, "transactional_id_pattern", None))
        broker.check_contact()
        found = await broker.transactions.listed()
    except GroupError as error:
        return {"error_code": ErrorCode[error.code], "transaction_states": []}
    except HeadwaterError as error:
        return {"error_code": coordinator_code_of(error), "transaction_states": []}
    duration = getattr(body, "duration_filter", -1)
    began_before = broker.transactions.replica.state.clock_ms - duration if duration >= 0 else None
    states, producers = set(body.state_filters), set(body.producer_id_filters)
    told = []
    async for one in broker.turns.work().over(found):
        if (
            (not states or STATES[one.phase] in states)
            and (not producers or one.producer in producers)
            and (began_before is None or _started_ms(one) < began_before)
            and matches(one.id)
            and broker.may(request, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, one.id)
        ):
            state = STATES[one.phase]
            told.append({"transactional_id": one.id, "producer_id": one.producer, "transaction_state": state})
    return {"error_code": ErrorCode.none, "unknown_state_filters": unknown, "transaction_states": told}


def _pattern(regex: str | None) -> Callable[[str], bool]:
    if not regex:
        return lambda _: True
    pattern = compiled(regex)
    return lambda id: pattern.fullmatch(id) is not None


@api(65, 0, 0, RequestKind.READ)
async def describe_transactions(broker: Broker, request: Request) -> Values:
    """Transactional ids with the partitions of their open transactions. Any broker answers."""
    failure: HeadwaterError | None = None
    try:
        broker.check_contact()
        await broker.transactions.replica.barrier()
    except HeadwaterError as error:
        failure = error
    ids = broker.turns.work().over(dict.fromkeys(request.body.transactional_ids))
    return {"transaction_states": [_described(broker, request, id, failure) async for id in ids]}


def _described(broker: Broker, request: Request, id: str, failure: HeadwaterError | None) -> Values:
    found = broker.transactions.replica.state.transactions.get(id)
    code = ErrorCode.none
    if not broker.may(request, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, id):
        code = ErrorCode.transactional_id_authorization_failed
    elif failure is not None:
        code = coordinator_code_of(failure)
    elif not id:
        code = ErrorCode.invalid_request
    elif found is None:
        code = ErrorCode.transactional_id_not_found
    if found is None or code is not ErrorCode.none:
        return {"error_code": code, "transactional_id": id, "transaction_start_time": 0, "topics": []}
    return {
        "error_code": code,
        "transactional_id": id,
        "transaction_state": STATES[found.phase],
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": _started_ms(found),
        "producer_id": found.producer,
        "producer_epoch": found.epoch,
        "topics": _topics(broker, request, found),
    }


def _topics(broker: Broker, request: Request, found: Transaction) -> list[dict[str, Any]]:
    """The partitions of an open transaction, without topics that the caller may not know of."""
    partitions: dict[str, list[int]] = {}
    for name in found.streams:
        stream = broker.transactions.replica.state.streams.get(name)
        topic = topic_by_id(broker.cluster.state, stream.topic) if stream is not None else None
        if stream is not None and topic is not None:
            partitions.setdefault(topic.name, []).append(stream.partition)
    shown = broker.visible(request, Operation.DESCRIBE, AclResource.TOPIC, partitions)
    return [{"topic": name, "partitions": sorted(partitions[name])} for name in shown]
