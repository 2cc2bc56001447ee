"""Errors in the form of the REST Proxy."""

from __future__ import annotations

import pytest

from headwater.errors import BadInput, ConfigError, Exists, NotFound, NotReady, OutcomeUnknown, Overloaded
from headwater.gateway.problems import NOT_FOUND, OUTCOME_UNKNOWN, TOO_MANY, Refusal
from headwater.gateway.v3.errors import kafka_errors, told_of, unknown_topic


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotReady("x"), 50003),
        (Overloaded("x"), 429),
        (OutcomeUnknown("x"), OUTCOME_UNKNOWN.status),
        (Refusal(TOO_MANY, "x"), 429),
        (Refusal(NOT_FOUND, "x"), 404),
        (unknown_topic(), 40403),
        (ValueError("a secret"), 500),
    ],
)
def test_codes(error: Exception, code: int) -> None:
    told = told_of(error)
    assert told.error_code == code and told.message and "secret" not in told.message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFound("x"), 40403),
        (Refusal(NOT_FOUND, "x"), 40403),
        (Exists("x"), 40002),
        (ConfigError("x"), 40002),
        (BadInput("x"), 40002),
    ],
)
def test_errors_about_topics_and_requests(error: Exception, code: int) -> None:
    with pytest.raises(Refusal) as refusal, kafka_errors():
        raise error
    assert told_of(refusal.value).error_code == code
