"""Errors as clients of the REST Proxy expect them: a JSON object with `error_code` and `message`.

The code is the status, or a number of five digits whose first three are the status. Some conditions have another status
than in the rest of the HTTP API: `kafka_errors` takes it from the table of errors (`gateway/problems.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from headwater.errors import HeadwaterError, row_of
from headwater.gateway.problems import (
    BAD_REQUEST,
    BAD_VALUE,
    CODE,
    ERRORS,
    NOT_ALLOWED,
    NOT_AUTHENTICATED,
    NOT_FOUND,
    OUTCOME_UNKNOWN,
    UNKNOWN_TOPIC,
    Body,
    Refusal,
    refusal_of,
)

RETRIABLE = 50003
"""The code of an error that may soon be gone."""
_OF_KIND = {NOT_AUTHENTICATED: 40101, NOT_ALLOWED: 40301}


class Told(msgspec.Struct, frozen=True):
    """An error."""

    error_code: int
    """The status, or a number of five digits whose first three are the status."""
    message: str
    """What is wrong."""


def told(refusal: Refusal) -> Told:
    """A refusal in the form of the REST Proxy. An unknown outcome is no reason to try again: there are no keys here."""
    kind = refusal.kind
    code = refusal.more.get(CODE) or _OF_KIND.get(kind)
    if not isinstance(code, int):
        code = RETRIABLE if kind.retry and kind.status >= 500 and kind is not OUTCOME_UNKNOWN else kind.status
    return Told(code, kind.title if kind is OUTCOME_UNKNOWN else refusal.detail or kind.title)


def body_of(refusal: Refusal, _: Mapping[bytes, bytes]) -> Body:
    """The style of refusals below the paths of the REST Proxy."""
    return Body(msgspec.json.encode(told(refusal)), "application/json")


def refused(message: str, code: int = BAD_VALUE) -> Refusal:
    """The refusal of a request that Kafka would refuse as invalid."""
    return Refusal(BAD_REQUEST, message, more={CODE: code})


def unknown_topic() -> Refusal:
    """The answer for a topic or a partition that does not exist, or that the caller may not describe."""
    return Refusal(NOT_FOUND, "This server does not host this topic-partition.", more={CODE: UNKNOWN_TOPIC})


@contextlib.contextmanager
def kafka_errors() -> Iterator[None]:
    """Give errors about a topic or the content of a request the status and the code that the REST Proxy gives them."""
    try:
        yield
    except Refusal as refusal:
        if refusal.kind is NOT_FOUND and CODE not in refusal.more:
            raise unknown_topic() from None
        raise
    except HeadwaterError as error:
        match row_of(ERRORS, error).rest:
            case 0:
                raise
            case code if code == UNKNOWN_TOPIC:
                raise unknown_topic() from None
            case code:
                raise refused(str(error), code) from error


def told_of(error: BaseException) -> Told:
    """An error that is told inside a stream of answers."""
    return told(refusal_of(error))
