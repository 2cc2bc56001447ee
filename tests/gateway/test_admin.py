"""Administration over HTTP of a real cluster with users and rules, and the commands of its page."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from harness.patience import eventually
from harness.ports import free_port
from tests.compat.common import unavailable
from tests.support.running import Running

PROMISES = ("H2",)

PAGE = Path(__file__).parents[2] / "docs/administration.md"
ADMIN, PASSWORD = "admin", "first"
BLOCK = re.compile(r"^    (curl .*)$", re.MULTILINE)
TIMEOUT = 30


class Secured(Running):
    """A broker and a gateway with users and rules."""

    def curl(self, *arguments: str, user: str = f"{ADMIN}:{PASSWORD}") -> tuple[int, Any]:
        """Status and JSON of an answer."""
        curl = shutil.which("curl") or unavailable("curl", "install it")
        command = [curl, "-sS", "--user", user, "-w", "\n%{http_code}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body) if body else None

    def call(self, method: str, path: str, body: object = None, user: str = f"{ADMIN}:{PASSWORD}") -> tuple[int, Any]:
        """The same, by method and path."""
        more = [] if body is None else ["--json", json.dumps(body)]
        return self.curl("-X", method, *more, f"{self.gateway_url}/v1{path}", user=user)

    def client(self, user: str, password: str) -> dict[str, Any]:
        """The configuration of a Kafka client."""
        return {
            "bootstrap.servers": self.options[self.options.index("--kafka") + 1].partition("=")[2],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("administered")
    settings = """
[security]
acls = true
super_users = "User:admin"
[security.listeners.SASL_PLAINTEXT]
mechanisms = "SCRAM-SHA-512"
[security.http]
authentication = "basic"
"""
    up = Secured(directory, gateway=True, settings=settings, kafka=f"SASL_PLAINTEXT=127.0.0.1:{free_port()}")
    up.prepare()
    (directory / "password").write_text(PASSWORD)
    up.cli("user", "add", ADMIN, "--config", str(up.config), "--new-password-file", str(directory / "password"))
    with up:
        yield up


def test_a_kafka_client_sees_what_was_done_over_http(server: Secured) -> None:
    """A topic, a config, a user, a rule and an offset: each counts at once for Kafka's clients, and the other way."""
    new = {"name": "seen", "partitions": 2, "configs": {"retention.ms": "60000"}}
    assert server.call("POST", "/topics", new)[0] == 201
    assert server.call("POST", "/topics/seen/partitions", {"partitions": 3})[0] == 200
    assert server.call("PATCH", "/topics/seen/configs", {"set": {"max.message.bytes": "5000"}})[0] == 200
    admin = AdminClient(server.client(ADMIN, PASSWORD))
    assert len(admin.list_topics("seen", timeout=TIMEOUT).topics["seen"].partitions) == 3
    [configs] = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "seen")]).values()
    found = configs.result(timeout=TIMEOUT)
    assert (found["retention.ms"].value, found["max.message.bytes"].value) == ("60000", "5000")

    assert server.call("PUT", "/users/ann", {"password": "wonder"})[0] == 201
    ann = AdminClient(server.client("ann", "wonder"))
    assert "seen" not in ann.list_topics(timeout=TIMEOUT).topics
    rule = {"resource": "TOPIC", "name": "seen", "principal": "User:ann", "operation": "READ"}
    assert server.call("POST", "/rules", {"rules": [rule]}) == (200, {"added": 1})
    assert "seen" in ann.list_topics(timeout=TIMEOUT).topics
    assert server.call("GET", "/topics/seen", user="ann:wonder")[0] == 200
    assert server.call("DELETE", "/topics/seen", user="ann:wonder")[0] == 403
    assert server.call("GET", "/cluster", user="ann:wonder")[0] == 403

    producer = confluent_kafka.Producer(server.client(ADMIN, PASSWORD))
    for number in range(10):
        producer.produce("seen", str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT) == 0
    reset = {"topic": "seen", "to": "offset", "offset": 4, "partitions": [0]}
    assert server.call("POST", "/groups/watchers/reset", reset)[0] == 200
    consumer = confluent_kafka.Consumer({**server.client(ADMIN, PASSWORD), "group.id": "watchers"})
    try:
        consumer.subscribe(["seen"])
        first = consumer.poll(60)
        assert first is not None and (first.offset(), first.value()) == (4, b"4")
        _, told = server.call("GET", "/groups/watchers")
        assert (told["kind"], len(told["members"])) == ("classic", 1)
        assert told["members"][0]["assigned"] == [{"topic": "seen", "partitions": [0, 1, 2]}]
        assert server.call("POST", "/groups/watchers/reset", reset)[0] == 409
        consumer.commit(first, asynchronous=False)
        _, offsets = server.call("GET", "/groups/watchers/offsets")
        assert [(line["partition"], line["offset"], line["lag"]) for line in offsets["items"]] == [(0, 5, 5)]
    finally:
        consumer.close()
    assert server.call("DELETE", "/groups/watchers")[0] == 409

    trim = {"partitions": [{"partition": 0, "before": 7}]}
    assert server.call("POST", "/topics/seen/trim", trim)[0] == 200
    assert server.call("DELETE", "/rules?principal=User:ann")[1]["deleted"][0]["name"] == "seen"
    eventually(lambda: "seen" not in ann.list_topics(timeout=TIMEOUT).topics, "the rule is gone for clients")
    assert server.call("DELETE", "/users/ann")[0] == 204
    assert server.call("GET", "/topics", user="ann:wonder")[0] == 401
    assert server.call("DELETE", "/topics/seen")[0] == 204
    assert "seen" not in admin.list_topics(timeout=TIMEOUT).topics
    _, cluster = server.call("GET", "/cluster")
    assert [line["node"] for line in cluster["brokers"]] == [1] and cluster["health"] == "healthy"


def test_an_open_transaction_is_aborted(server: Secured) -> None:
    assert server.call("POST", "/topics", {"name": "paid"})[0] == 201
    producer = confluent_kafka.Producer({**server.client(ADMIN, PASSWORD), "transactional.id": "pay"})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    producer.produce("paid", b"value")
    assert producer.flush(TIMEOUT) == 0
    status, told = server.call("GET", "/transactions/pay")
    assert (status, told["state"], told["partitions"]) == (200, "Ongoing", [{"topic": "paid", "partition": 0}])
    assert server.call("POST", "/transactions/pay/abort")[1]["state"] == "CompleteAbort"
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(TIMEOUT)


def test_the_commands_of_the_page(server: Secured) -> None:
    """Every line with `curl` of the page succeeds, in the order of the page."""
    commands = BLOCK.findall(PAGE.read_text())
    assert len(commands) > 25
    for command in commands:
        words = [word.replace("$API", f"{server.gateway_url}/v1") for word in shlex.split(command)[1:]]
        status, told = server.curl(*words)
        assert 200 <= status < 300, (command, status, told)
