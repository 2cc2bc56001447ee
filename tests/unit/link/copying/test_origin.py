"""The source of a link as the link describes it: what one group or one topic lacks holds up no other."""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from headwater.client.errors import Unreachable
from headwater.client.model import Config, ConfigSource, GroupListing
from headwater.errors import Retriable
from headwater.link.copying.origin import KafkaOrigin
from headwater.state.commands.links import LinkSpec
from tests.support.source_clusters import ModelCluster

SPEC = LinkSpec("old", ("h:1",), {}, ("t", "u", "gone"), (), ("app-.*",), {"configs": "true"}, False)


@pytest.fixture
def cluster() -> ModelCluster:
    made = ModelCluster(2)
    for name in ("t", "u"):
        made.create(name)
    made.groups = [GroupListing(f"app-{i}", "Empty", "Consumer", "consumer") for i in range(3)]
    made.offsets = {f"app-{i}": {("t", 0): i, ("other", 0): 9} for i in range(3)}
    made.configs = [Config("retention.ms", "5", ConfigSource.TOPIC, False, None)]
    return made


def test_a_group_without_rights_holds_up_no_other(cluster: ModelCluster) -> None:
    cluster.refused["app-1"] = ErrorCode.group_authorization_failed
    found = asyncio.run(KafkaOrigin(cluster.source(), SPEC).group_offsets(["t"]))
    assert found.offsets == {"app-0": {("t", 0): 0}, "app-2": {("t", 0): 2}}
    assert list(found.refused) == ["app-1"] and "app-1" in found.refused["app-1"]


def test_a_coordinator_that_is_away_is_asked_again(cluster: ModelCluster) -> None:
    """It may be back soon: nothing of the answers so far counts as the whole."""
    cluster.refused["app-1"] = ErrorCode.coordinator_not_available
    with pytest.raises(Retriable):
        asyncio.run(KafkaOrigin(cluster.source(), SPEC).group_offsets(["t"]))


def test_a_topic_whose_configs_are_not_told_is_copied_without(cluster: ModelCluster) -> None:
    cluster.refused["u"] = ErrorCode.topic_authorization_failed
    present = asyncio.run(KafkaOrigin(cluster.source(), SPEC).discover(["t"]))
    t, u = present.topics
    assert (t.name, t.configs, t.flaw) == ("t", {"retention.ms": "5"}, "")
    assert (u.name, u.configs) == ("u", None) and u.flaw
    assert list(present.missing) == ["gone"]


def test_a_source_that_is_away(cluster: ModelCluster) -> None:
    for broker in cluster.brokers.values():
        broker.failure = Unreachable("away")
    with pytest.raises(Unreachable):
        asyncio.run(KafkaOrigin(cluster.source(), SPEC).discover([]))
