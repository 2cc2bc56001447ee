"""A real gateway as a child of `headwater up`: it answers, and is started again when it dies."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from harness.patience import eventually
from harness.ports import free_port
from harness.process import Process
from tests.support.running import Running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("gateway"), gateway=True) as running:
        yield running


def get(server: Running, path: str, url: str = "") -> tuple[int, Any]:
    """Status and JSON of an answer; 0 while no gateway listens."""
    try:
        with urllib.request.urlopen((url or server.gateway_url) + path, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, None


def test_what_kafka_clients_write_is_seen_at_once(server: Running) -> None:
    server.create("orders", 3)
    status, told = get(server, "/v1/topics/orders")
    assert status == 200 and [line["end"] for line in told["partitions"]] == [0, 0, 0]
    status, told = get(server, "/v1/topics/missing")
    assert status == 404 and told["type"] == "/problems/not-found"


def test_a_gateway_is_no_broker(server: Running) -> None:
    """It has an epoch, but Kafka's clients are not sent to it."""
    assert server.nodes() == [1]
    told = server.cli("cluster", "describe", "--config", str(server.config), "--output", "json")
    assert [line["node"] for line in told["brokers"]] == [1]
    eventually(lambda: len(_others(server)) == 1, "the gateway is the only other process")
    assert f"gateway {server.gateway}" in server.said.read_text()
    health = json.loads(server.page("/health")[1])
    assert health["components"] == {"broker-1": "healthy", "gateway": "healthy"}
    assert get(server, "/v1")[0] == 200
    assert server.metric("headwater_gateway_connections_total") > 0
    assert 'headwater_query_workers{process="gateway",engine="duckdb",state="idle"}' in server.page("/metrics")[1]


def test_another_gateway(server: Running) -> None:
    """A cluster has any number of them. One that is stopped leaves the cluster before it ends."""
    address = f"127.0.0.1:{free_port()}"
    options = ["--http", "127.0.0.1:0", "--gateway-http", address]
    log = server.directory / "second.log"
    second = Process("gateway", server.config, log, server.variables, options=options, said=log.with_suffix(".out"))
    second.launch()
    try:
        second.wait_until_ready()
        assert get(server, "/v1", f"http://{address}") == get(server, "/v1")
        eventually(lambda: len(_others(server)) == 2, "both gateways are members")
        assert second.metric("headwater_gateway_requests_total") > 0
        assert second.stop() == 0
    finally:
        second.kill()
    eventually(lambda: len(_others(server)) == 1, "the second one has left")


def _others(server: Running) -> list[Any]:
    """The processes that are no brokers."""
    told = server.cli("cluster", "describe", "--config", str(server.config), "--output", "json")
    return list(told["processes"])


def test_a_gateway_that_dies_is_started_again(server: Running) -> None:
    server.gateway_process().kill()
    eventually(lambda: get(server, "/v1/health")[0] == 200, "a new gateway answers")
    eventually(lambda: json.loads(server.page("/health")[1])["status"] == "healthy", "all processes are healthy")
    assert get(server, "/v1")[1]["cluster_id"]
