"""Errors of calls to brokers: the kinds of `headwater.errors`, refined by what Kafka answers."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from headwater.errors import BadInput, ClientError, NotReady, OutcomeUnknown, QuotaExceeded, Retriable


class Unreachable(NotReady, ClientError):
    """There is no connection, or the partition has no leader. Nothing was sent."""


class AnswerLost(ClientError, OutcomeUnknown):
    """A request was sent, but the connection ended or the time limit passed before its answer came.

    For servers and commands it is a `ClientError` first: the request may have been a read, or a refused log-in.
    """


class Throttled(QuotaExceeded, ClientError):
    """A broker answers nothing for some time, because the client used more than its quota."""


class NotTrusted(ClientError):
    """TLS failed: one side does not accept the certificate of the other."""


class Undelivered(ClientError):
    """A producer gave a record up. Unless the message says otherwise, it may be in the log."""


class UnsupportedApi(ClientError):
    """The broker does not support an API, or only in versions that this client does not support."""


class ProtocolError(ClientError):
    """A broker sent an invalid answer. It may not be a Kafka broker."""


class KafkaError(ClientError):
    """A broker answered with an error code."""

    def __init__(self, code: ErrorCode, what: str, message: str | None = None) -> None:
        """`what` is a kind and a quoted name. It is left out where the words of the broker have the name."""
        words = (message or describe(code)).rstrip(".")
        name = what.partition("'")[2].rpartition("'")[0]
        told = bool(name) and (f"'{name}'" in words or f" {name} " in f" {words} ")
        super().__init__(f"{words if told else f'{what}: {words}'} ({code.name.upper()})")
        self.code = code


class RetriableKafkaError(Retriable, KafkaError):
    """An error code that Kafka calls retriable."""


class RefusedByKafka(BadInput, KafkaError):
    """A broker does not accept a name or a value. Correct it."""


_REFUSALS = frozenset(
    {
        ErrorCode.invalid_topic_exception,
        ErrorCode.invalid_config,
        ErrorCode.invalid_partitions,
        ErrorCode.invalid_replication_factor,
        ErrorCode.invalid_replica_assignment,
    }
)

_WORDS = {
    ErrorCode.unknown_topic_or_partition: "there is no such topic or partition",
    ErrorCode.unknown_topic_id: "the topic was deleted, or created anew, meanwhile",
    ErrorCode.topic_already_exists: "the topic exists already",
    ErrorCode.leader_not_available: "the partition has no leader now",
    ErrorCode.not_leader_or_follower: "the broker does not lead the partition now",
    ErrorCode.offset_out_of_range: "the offset lies outside the log",
    ErrorCode.message_too_large: "the batch is larger than the topic allows (max.message.bytes)",
    ErrorCode.request_timed_out: "the broker did not finish in time",
    ErrorCode.kafka_storage_error: "the broker cannot reach its storage",
    ErrorCode.group_id_not_found: "there is no such group",
    ErrorCode.non_empty_group: "the group has members",
    ErrorCode.unknown_member_id: "the group has members, who alone may commit its offsets",
    ErrorCode.group_subscribed_to_topic: "the group's members read that topic",
    ErrorCode.invalid_topic_exception: "that is not a valid topic name",
    ErrorCode.transactional_id_not_found: "there is no such transactional id",
    ErrorCode.producer_fenced: "another producer has started under the id meanwhile, or the transaction has ended",
    ErrorCode.transactional_id_authorization_failed: "the user may not use the transactional id",
}


def describe(code: ErrorCode) -> str:
    """An error code in words."""
    return _WORDS.get(code) or code.name.replace("_", " ")


def kafka_error(code: ErrorCode, what: str, message: str | None = None) -> KafkaError:
    """The error of a code, of the kind that tells the caller what to do."""
    if code in _REFUSALS:
        return RefusedByKafka(code, what, message)
    return (RetriableKafkaError if code.retriable else KafkaError)(code, what, message)


def check(code: ErrorCode, what: str, message: str | None = None) -> None:
    """Raise an error unless the code is 0."""
    if code is not ErrorCode.none:
        raise kafka_error(code, what, message)
