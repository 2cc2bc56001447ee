"""Zone-aware metadata returns only brokers of the client's zone when a zone is set, and all of them otherwise.

So it is where zones are kept apart. By default the list of brokers has the others too, for the sake of coordinators,
and what is of the client's zone alone are the brokers that it is led to.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from harness.patience import eventually
from tests.faults.raw import METADATA, Raw
from tests.support.promise import promise
from tests.support.running import Running

PROMISES = ("I6",)

BROKERS = 3
ZONES = {"a": {1, 3}, "b": {2}}
DESCRIBE_CLUSTER, DESCRIBE_PARTITIONS = 60, 75
PARTITIONS = 24
VERSIONS = (1, 4, 7, 9, 12, 13)
SETTINGS = 'zones = "a, b"\n[routing]\ntell_other_zones = false\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("i6"), brokers=BROKERS, settings=SETTINGS) as running:
        running.create("t", PARTITIONS)
        yield running


def told(port: int, client_id: str) -> tuple[dict[int, str], set[int]]:
    """The brokers with their zones, and the leaders; every version of every API that tells them must agree."""
    answers = []
    with Raw(port, client_id) as raw:
        for version in VERSIONS:
            answer = raw.ask(METADATA, version, topics=[{"name": "t"} | ({"topic_id": None} if version >= 10 else {})])
            [topic] = answer.topics
            leaders = {p.leader_id for p in topic.partitions}
            brokers = {b.node_id: b.rack for b in answer.brokers}
            assert answer.controller_id in brokers
            assert leaders <= brokers.keys(), "a leader that the client cannot reach"
            assert len(topic.partitions) == PARTITIONS
            answers.append((brokers, leaders))
        described = raw.ask(DESCRIBE_CLUSTER, 1, endpoint_type=1, include_cluster_authorized_operations=False)
        pages = raw.ask(DESCRIBE_PARTITIONS, 0, topics=[{"name": "t"}], response_partition_limit=2000, cursor=None)
    assert described.controller_id in {b.broker_id for b in described.brokers}
    leaders = {p.leader_id for p in pages.topics[0].partitions}
    answers.append(({b.broker_id: b.rack for b in described.brokers}, leaders))
    assert all(answer == answers[0] for answer in answers)
    return answers[0]


def nodes(server: Running, node: int, client_id: str) -> set[int]:
    """The brokers that one of them tells of at this moment."""
    with Raw(server.port + node - 1, client_id) as raw:
        return {b.node_id for b in raw.ask(METADATA, 9, topics=[]).brokers}


@promise("I6")
@pytest.mark.parametrize("zone", ZONES)
def test_a_client_with_a_zone_sees_that_zone_only(server: Running, zone: str) -> None:
    """Whichever broker it asks, also one of another zone."""
    for node in range(BROKERS):
        brokers, leaders = told(server.port + node, f"zone_id={zone},app=i6")
        assert brokers == dict.fromkeys(ZONES[zone], zone)
        assert leaders == ZONES[zone]


@promise("I6")
@pytest.mark.parametrize("client_id", ["", "i6", "zone_id=", "zone_id=elsewhere", "app=i6,zone=a"])
def test_other_clients_see_everybody(server: Running, client_id: str) -> None:
    """No zone, or none that has a broker."""
    brokers, leaders = told(server.port + 1, client_id)
    assert brokers == {node: zone for zone, nodes in ZONES.items() for node in nodes}
    assert leaders == set(brokers)


@promise("I6", "M2")
def test_a_zone_without_brokers_falls_back_and_comes_back(server: Running) -> None:
    """While a zone's brokers do not answer, its clients are sent elsewhere."""
    silent = [server.broker(node) for node in ZONES["b"]]
    for process in silent:
        process.send_signal(signal.SIGSTOP)
    try:
        eventually(lambda: nodes(server, 1, "zone_id=b") == ZONES["a"], "zone b is empty")
        with Raw(server.port, "zone_id=b") as raw:
            assert raw.ask(METADATA, 9, topics=[{"name": "t"}]).topics[0].error_code is ErrorCode.none
    finally:
        for process in silent:
            process.send_signal(signal.SIGCONT)
    for node in range(1, BROKERS + 1):
        eventually(lambda node=node: nodes(server, node, "zone_id=b") == ZONES["b"], "zone b is back")  # type: ignore[misc]
