"""Configs of brokers, groups and subscriptions, and client quotas, in the state of domain 0."""

import re
import uuid

import pytest

from headwater.configs import client_metrics
from headwater.configs import groups as group_configs
from headwater.errors import BadInput, ConfigError
from headwater.state.cluster.resources import ConfigResource
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.cluster import AlterQuota, AlterResource, CreateTopic, DeleteTopic, TakeEpoch
from headwater.state.results import Done
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import Scribe

PROMISES = ("K7", "K14")

GROUP = ConfigResource.GROUP


def written() -> tuple[Scribe, ClusterState]:
    state = ClusterState()
    scribe = Scribe(state)
    scribe.write(0, TakeEpoch("1/a", 1, "z", (), 1, "b"))
    return scribe, state


@promise("K7", "K14")
def test_set_removed_and_kept() -> None:
    """What has nothing set is not there; a checkpoint holds it all."""
    ledger, state = written()
    assert ledger.do(1, AlterResource(GROUP, "g", {"a": "1", "b": "2"}, ())) == Done()
    assert ledger.do(1, AlterResource(GROUP, "g", {"b": "3"}, ("a",))) == Done()
    assert ledger.do(1, AlterResource(GROUP, "h", {"a": "1"}, ())) == Done()
    assert ledger.do(1, AlterResource(GROUP, "h", {}, ("a",))) == Done()
    assert state.resources.of(GROUP, "g") == {"b": "3"}
    assert state.resources.of(ConfigResource.BROKER, "g") == {}
    assert state.resources.names(GROUP) == ["g"]
    whom = (("client-id", None), ("user", "ann"))
    assert ledger.do(1, AlterQuota(whom, {"producer_byte_rate": "1e3"}, ())) == Done()
    assert ledger.do(1, AlterQuota((("user", "bob"),), {"x": "1"}, ())) == Done()
    assert ledger.do(1, AlterQuota((("user", "bob"),), {}, ("x",))) == Done()
    assert state.resources.quotas == {whom: {"producer_byte_rate": "1e3"}}
    other = ClusterState()
    other.restore(state.image())
    assert other.image() == state.image()
    assert other.resources.of(GROUP, "g") == {"b": "3"}
    assert other.resources.quotas == state.resources.quotas


@promise("K7")
def test_names_that_are_alike() -> None:
    """Known as long as a topic has one of them."""
    ledger, state = written()
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    ledger.do(1, CreateTopic(first, "a.b", 1, {}, Domain(1)))
    assert state.alike == {"a_b": "a.b"}
    ledger.do(1, CreateTopic(second, "a_b", 1, {}, Domain(1)))
    ledger.do(1, DeleteTopic(first))
    assert state.alike == {"a_b": "a_b"}
    restored = ClusterState()
    restored.restore(state.image())
    assert restored.alike == state.alike
    ledger.do(1, DeleteTopic(second))
    assert state.alike == {}


@promise("K7")
@pytest.mark.parametrize("name", group_configs.KEYS)
def test_defaults_of_groups_are_valid(name: str) -> None:
    key = group_configs.KEYS[name]
    assert group_configs.checked(name, key.default) == key.default
    assert key.doc.endswith(".")


@promise("K7")
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("no.such", "1", "Unknown group config name: no.such"),
        ("consumer.session.timeout.ms", "x", "Invalid value x for configuration consumer.session.timeout.ms: Not a"),
        ("consumer.session.timeout.ms", "5", "consumer.session.timeout.ms must be greater than or equal to group."),
        ("consumer.heartbeat.interval.ms", "60000", "must be less than or equal to group.consumer.max.heartbeat."),
        ("share.auto.offset.reset", "by_duration:P", "The value must be either 'earliest', 'latest' or of the"),
        ("share.auto.offset.reset", "by_duration:PT", "The value must be either"),
        ("share.isolation.level", "none", "String must be one of"),
    ],
)
def test_refused_for_groups(name: str, value: str, text: str) -> None:
    """In the words that Kafka's tools show."""
    with pytest.raises(ConfigError, match=re.escape(text)):
        group_configs.checked(name, value)


@promise("K7")
def test_accepted_for_groups() -> None:
    assert group_configs.checked("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S") == "by_duration:P1DT2H3M4.5S"
    assert group_configs.value({}, "consumer.session.timeout.ms") == 45_000
    assert group_configs.value({"consumer.session.timeout.ms": "50000"}, "consumer.session.timeout.ms") == 50_000
    group_configs.check_together({})
    with pytest.raises(ConfigError, match=r"consumer.session.timeout.ms must be greater than consumer.heartbeat"):
        group_configs.check_together({"consumer.heartbeat.interval.ms": "45000"})


@promise("K14")
def test_subscriptions_to_metrics() -> None:
    """Checked as in Kafka."""
    assert client_metrics.checked("interval.ms", " 100 ") == "100"
    assert client_metrics.checked("metrics", "*") == "*"
    assert client_metrics.checked("match", "client_id=a.*, client_software_name=b") == (
        "client_id=a.*, client_software_name=b"
    )
    assert set(client_metrics.patterns("client_id=a.*, client_software_name=b")) == {
        "client_id",
        "client_software_name",
    }
    for interval in ("99", "3600001"):
        with pytest.raises(BadInput, match="interval must be between"):
            client_metrics.checked("interval.ms", interval)
    for match in ("nope=a", "client_id", "client_id=", "client_id=[", "client_id=a=b"):
        with pytest.raises(ConfigError, match="Illegal client matching pattern"):
            client_metrics.checked("match", match)
    with pytest.raises(BadInput, match="Unknown client metrics configuration: x"):
        client_metrics.checked("x", "1")
