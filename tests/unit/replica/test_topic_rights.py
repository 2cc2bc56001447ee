"""The rights that configs of a topic need: what a config makes the server do later."""

from __future__ import annotations

import pytest

from headwater.configs.topics import DLQ_TOPIC, KEY_SCHEMA, VALUE_SCHEMA
from headwater.replica.topic_rights import needs_of, topic_of

PROMISES = ("S2",)

LETTERS = [f"{DLQ_TOPIC} needs the right to READ topic 't'", f"{DLQ_TOPIC} needs the right to WRITE topic 'x'"]


@pytest.mark.parametrize(
    ("before", "after", "needs"),
    [
        ({}, {"retention.ms": "1", VALUE_SCHEMA: "auto", KEY_SCHEMA: "json"}, []),
        ({}, {DLQ_TOPIC: "x"}, LETTERS),
        ({DLQ_TOPIC: "y"}, {DLQ_TOPIC: "x"}, LETTERS),
        ({DLQ_TOPIC: "x"}, {DLQ_TOPIC: "x", "retention.ms": "1"}, []),
        ({DLQ_TOPIC: "x"}, {DLQ_TOPIC: ""}, []),
        ({DLQ_TOPIC: "x", VALUE_SCHEMA: "auto"}, {}, []),
        ({DLQ_TOPIC: "x"}, {DLQ_TOPIC: "x", VALUE_SCHEMA: "json"}, LETTERS),
        ({DLQ_TOPIC: "x", KEY_SCHEMA: "json"}, {DLQ_TOPIC: "x"}, LETTERS),
        ({}, {VALUE_SCHEMA: "subject:a-value"}, [f"{VALUE_SCHEMA} needs the right to READ or WRITE topic 'a'"]),
        ({}, {KEY_SCHEMA: "subject:a"}, [f"{KEY_SCHEMA} needs the right to DESCRIBE the cluster"]),
        ({VALUE_SCHEMA: "subject:a-value"}, {VALUE_SCHEMA: "subject:a-value"}, []),
        ({KEY_SCHEMA: "subject:a-value"}, {VALUE_SCHEMA: "subject:a-value"},
         [f"{VALUE_SCHEMA} needs the right to READ or WRITE topic 'a'"]),
    ],
)  # fmt: skip
def test_needs(before: dict[str, str], after: dict[str, str], needs: list[str]) -> None:
    assert [str(need) for need in needs_of("t", after, before)] == needs


def test_topics_of_subjects() -> None:
    assert [topic_of(name) for name in ("a-value", "a-key", "a", "-value", "a-value-key")] == [
        "a",
        "a",
        "",
        "",
        "a-value",
    ]
