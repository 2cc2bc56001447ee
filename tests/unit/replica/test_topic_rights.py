"""The rights that configs of a topic need: what a config makes the server do later."""

from __future__ import annotations

import pytest

from headwater.configs.changes import Change
from headwater.configs.topics import DLQ_SETTER, DLQ_TOPIC, KEY_SCHEMA, VALUE_SCHEMA
from headwater.errors import NotReady
from headwater.replica.topic_rights import check_setter, needs_of, shown, topic_of, with_setter
from headwater.state.cluster.access import Operation
from tests.support.rules import guarded, rule

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


BOB, EVE = "127.0.0.1 User:bob", "127.0.0.1 User:eve"


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, Change({"retention.ms": "1"}), {"retention.ms": "1"}),
        ({}, Change({DLQ_TOPIC: "x"}), {DLQ_TOPIC: "x", DLQ_SETTER: EVE}),
        ({DLQ_TOPIC: "x", DLQ_SETTER: BOB}, Change({"retention.ms": "1"}),
         {DLQ_TOPIC: "x", DLQ_SETTER: BOB, "retention.ms": "1"}),
        ({DLQ_TOPIC: "x", DLQ_SETTER: BOB}, Change({DLQ_TOPIC: "x"}, [DLQ_SETTER]), {DLQ_TOPIC: "x", DLQ_SETTER: BOB}),
        ({DLQ_TOPIC: "x", DLQ_SETTER: BOB}, Change({DLQ_TOPIC: "y"}), {DLQ_TOPIC: "y", DLQ_SETTER: EVE}),
        ({DLQ_TOPIC: "x", DLQ_SETTER: BOB}, Change({VALUE_SCHEMA: "json"}),
         {DLQ_TOPIC: "x", DLQ_SETTER: EVE, VALUE_SCHEMA: "json"}),
        ({DLQ_TOPIC: "x", DLQ_SETTER: BOB}, Change({}, [DLQ_TOPIC]), {}),
        ({DLQ_TOPIC: "x", DLQ_SETTER: BOB}, Change({}, [DLQ_TOPIC, DLQ_SETTER]), {}),
        ({DLQ_TOPIC: "x"}, Change({"retention.ms": "1"}), {DLQ_TOPIC: "x", "retention.ms": "1"}),
    ],
)  # fmt: skip
def test_who_sets_a_dead_letter_topic_is_stored(before: dict[str, str], change: Change, after: dict[str, str]) -> None:
    stored = with_setter(change, before, "User:eve", "127.0.0.1")
    assert stored.after(before) == after
    assert DLQ_SETTER not in shown(after)


def test_the_rights_of_who_set_it_are_asked_again() -> None:
    configs = {DLQ_TOPIC: "x", DLQ_SETTER: EVE}
    both = (rule("User:eve", Operation.READ, "t"), rule("User:eve", Operation.WRITE, "x"))
    check_setter(guarded(*both).may, "t", configs)
    check_setter(guarded(super_users="User:eve").may, "t", configs)
    check_setter(guarded().may, "t", {DLQ_TOPIC: "x"})
    for one in both:
        with pytest.raises(NotReady, match="User:eve has set the dead-letter topic, and has lost a right"):
            check_setter(guarded(one).may, "t", configs)
