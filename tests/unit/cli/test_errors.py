"""Exit codes: one meaning each, whether the ledger, a broker or the registry says it."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from headwater import errors as e
from headwater.cli.errors import DUTY, INPUT, LEDGER, REFUSED, STORAGE, TABLE, exit_code
from headwater.client.errors import kafka_error
from headwater.errors import SchemaReason, SchemaRefused
from tests.support.promise import promise


@promise("H3")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (e.Exists("there is a topic 'a'"), INPUT),
        (kafka_error(ErrorCode.topic_already_exists, "topic 'a'"), INPUT),
        (e.NotFound("there is no topic 'a'"), REFUSED),
        (kafka_error(ErrorCode.unknown_topic_or_partition, "topic 'a'"), REFUSED),
        (kafka_error(ErrorCode.group_id_not_found, "group 'a'"), REFUSED),
        (SchemaRefused(SchemaReason.NO_SUBJECT, "Subject 'a' not found."), REFUSED),
        (SchemaRefused(SchemaReason.NO_VERSION, "Version 7 not found."), REFUSED),
        (SchemaRefused(SchemaReason.BAD_SCHEMA, "Invalid schema"), INPUT),
        (e.StoreUnavailable("away"), STORAGE),
        (kafka_error(ErrorCode.kafka_storage_error, "topic 'a'"), STORAGE),
        (kafka_error(ErrorCode.invalid_config, "topic 'a'"), INPUT),
        (kafka_error(ErrorCode.policy_violation, "topic 'a'"), INPUT),
        (kafka_error(ErrorCode.cluster_authorization_failed, "users"), REFUSED),
        (e.ForeignCommit("another writer"), TABLE),
        (e.Halted("a newer level"), LEDGER),
    ],
)
def test_one_meaning_each(error: e.HeadwaterError, code: int) -> None:
    assert exit_code(error) == code


@promise("M1")
def test_a_duty_that_met_a_ledger_that_went_back() -> None:
    """What counts is why the duty died."""
    failure = e.DutyFailed("the duty append-1 died")
    assert exit_code(failure) == DUTY
    failure.__cause__ = e.LedgerWentBack("position 7 again")
    assert exit_code(failure) == LEDGER


@pytest.mark.parametrize(
    ("what", "message", "text"),
    [
        ("topic 'a'", "Topic 'a' already exists.", "Topic 'a' already exists"),
        ("group 'a'", "Group a not found.", "Group a not found"),
        (
            "topic 'a b'",
            "Topic name is invalid: 'a b' contains a space",
            "Topic name is invalid: 'a b' contains a space",
        ),
        ("topic 'a'", "Unknown topic config name: nonsense", "topic 'a': Unknown topic config name: nonsense"),
        ("topic 'a'", "The topic a-b is there.", "topic 'a': The topic a-b is there"),
        ("users", "refused", "users: refused"),
    ],
)
def test_a_name_is_said_once(what: str, message: str, text: str) -> None:
    said = str(kafka_error(ErrorCode.policy_violation, what, message))
    assert said == f"{text} (POLICY_VIOLATION)"
