"""A dead-letter topic is never its own, and has none itself."""

from __future__ import annotations

import uuid

import pytest

from headwater.configs.topics import DLQ_TOPIC, TABLE_FLATTEN, VALUE_SCHEMA
from headwater.errors import ConfigError
from headwater.replica.topic_rules import check_choices
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import CreateTopic
from headwater.state.results import Done
from headwater.types import Domain
from tests.support.scribe import Scribe
from tests.unit.state.cluster.test_state import take

PROMISES = ("T7",)


def cluster(**targets: str) -> ClusterState:
    """A cluster with topics, each with the dead-letter topic that it names."""
    state = ClusterState()
    scribe = Scribe(state)
    take(scribe, "1/first", 1)
    for name, target in targets.items():
        configs = {DLQ_TOPIC: target} if target else {}
        assert isinstance(scribe.do(1, CreateTopic(uuid.uuid4(), name, 1, configs, Domain(1))), Done)
    return state


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("a", "a", "its own dead-letter topic"),
        ("a", "missing", "there is no such topic; create it first"),
        ("new", "new", "its own dead-letter topic"),
        ("a", "b", "it has one itself"),
        ("c", "a", "it is that of another topic"),
        ("c", "missing", "it is that of another topic"),
    ],
)
def test_circles_and_chains_are_refused(name: str, target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_choices(cluster(a="", b="c", c=""), name, {DLQ_TOPIC: target}, {})


def test_what_is_allowed() -> None:
    state = cluster(a="", b="c", c="", d="d")
    for name, target in (("a", "c"), ("new", "c"), ("a", ""), ("c", "")):
        check_choices(state, name, {DLQ_TOPIC: target}, {})
    check_choices(state, "d", {DLQ_TOPIC: "d", "retention.ms": "5"}, {DLQ_TOPIC: "d"})  # it was so before
    check_choices(state, "d", {DLQ_TOPIC: "gone", "retention.ms": "5"}, {DLQ_TOPIC: "gone"})


def test_flat_columns_need_a_schema() -> None:
    state, flat, typed = cluster(), {TABLE_FLATTEN: "true"}, {VALUE_SCHEMA: "json"}
    with pytest.raises(ConfigError, match=f"set {VALUE_SCHEMA}, too"):
        check_choices(state, "a", flat, {})
    check_choices(state, "a", flat | typed, {})
    check_choices(state, "a", {TABLE_FLATTEN: "false"}, {})
    check_choices(state, "a", flat | {"retention.ms": "5"}, flat)  # it was so before
