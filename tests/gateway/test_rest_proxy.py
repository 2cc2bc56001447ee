"""Scripts written for Confluent's REST Proxy, with another host: the commands of its first steps, the requests of its
OpenAPI document, and a client that sends records and reads receipts on one connection at the same time."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.gateway.consuming import consumed
from tests.support.running import Running

DOCS = Path(__file__).resolve().parents[2] / "docs" / "guides" / "rest-proxy.md"
HOST = "http://localhost:8082"
"""Where the published commands look for the REST Proxy."""
PUBLISHED: list[dict[str, Any]] = [
    {
        "partition_id": 1,
        "headers": [{"name": "Header-1", "value": "SGVhZGVyLTE="}, {"name": "Header-2", "value": "SGVhZGVyLTI="}],
        "key": {"type": "BINARY", "data": "Zm9vYmFy"},
        "value": {"type": "JSON", "data": {"foo": "bar"}},
        "timestamp": "2021-02-05T19:14:42Z",
    },
    {"value": {"type": "STRING", "data": "My message"}},
    {"key": {"data": 1000}, "value": {"data": "foobar"}},
    {"key": {"data": 1000}},
]
"""Records of Confluent's OpenAPI document that need no schema."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("rest-proxy"), gateway=True) as running:
        yield running


def run(server: Running, command: str) -> list[dict[str, Any]]:
    """The JSON objects that a published command prints, with the host changed."""
    words = [word.replace(HOST, server.gateway_url) for word in shlex.split(command)]
    done = subprocess.run([*words, "--silent", "--fail-with-body"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    found, at = [], 0
    while at < len(done.stdout):
        one, at = json.JSONDecoder().raw_decode(done.stdout, at)
        found.append(one)
        at += len(done.stdout[at:]) - len(done.stdout[at:].lstrip())
    return found


def test_the_first_steps(server: Running) -> None:
    [clusters] = run(server, f"curl {HOST}/v3/clusters")
    id = clusters["data"][0]["cluster_id"]
    [brokers] = run(server, f"curl {HOST}/v3/clusters/{id}/brokers")
    assert [f"{one['host']}:{one['port']}" for one in brokers["data"]] == server.bootstrap.split(",")
    json_type = '-H "Content-Type:application/json"'
    [made] = run(
        server, f"""curl -X POST {json_type} -d '{{"topic_name":"jsontest"}}' {HOST}/v3/clusters/{id}/topics"""
    )
    assert made["kind"] == "KafkaTopic"
    assert "jsontest" in AdminClient({"bootstrap.servers": server.bootstrap}).list_topics(timeout=30).topics
    [listing] = run(server, f"curl {HOST}/v3/clusters/{id}/topics")
    assert made in listing["data"]
    produce = f'curl -X POST -H "Content-Type: application/json" {HOST}/v3/clusters/{id}/topics/jsontest/records -d '
    [receipt] = run(server, produce + """'{"value":{"type":"JSON","data":{"name":"testUser"}}}'""")
    assert receipt["error_code"] == 200 and receipt["offset"] == 0 and receipt["cluster_id"] == id
    assert receipt["value"] == {"type": "JSON", "size": 19} and "key" not in receipt
    two = run(server, produce + """'{"value":{"type":"JSON","data":"ONE"}} {"value":{"type":"JSON","data":"TWO"}}'""")
    assert [one["error_code"] for one in two] == [200, 200]
    everything = [
        message.value()
        for partition in range(made["partitions_count"])
        for message in consumed(server, "jsontest", partition, sum(
            one["partition_id"] == partition for one in [receipt, *two]
        ))
    ]  # fmt: skip
    assert sorted(everything) == [b'"ONE"', b'"TWO"', b'{"name":"testUser"}']


def test_records_of_the_published_document(server: Running) -> None:
    [clusters] = run(server, f"curl {HOST}/kafka/v3/clusters")
    for_ever = [{"name": "retention.ms", "value": "-1"}]  # the first record is of the year 2021
    topic = shlex.quote(json.dumps({"topic_name": "topic-1", "partitions_count": 2, "configs": for_ever}))
    topics = f"{HOST}/kafka/v3/clusters/{clusters['data'][0]['cluster_id']}/topics"
    run(server, f'curl -X POST -H "Content-Type: application/json" -d {topic} {topics}')
    body = shlex.quote("".join(json.dumps(record) for record in PUBLISHED))
    url = f"{HOST}/kafka/v3/clusters/lkc-vo9pz/topics/topic-1/records"
    chunked = '-H "Transfer-Encoding: chunked" -H "Content-Type: application/json"'
    receipts = run(server, f"curl -X POST {chunked} {url} --data {body}")
    assert [one["error_code"] for one in receipts] == [200] * 4
    assert {one["cluster_id"] for one in receipts} == {"lkc-vo9pz"}
    assert receipts[0]["timestamp"] == "2021-02-05T19:14:42Z" and receipts[0]["partition_id"] == 1
    found = {}
    for partition in (0, 1):
        count = sum(one["partition_id"] == partition for one in receipts)
        for message in consumed(server, "topic-1", partition, count):
            found[partition, message.offset()] = message
    first, second, third, fourth = [found[one["partition_id"], one["offset"]] for one in receipts]
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"foobar", b'{"foo":"bar"}', 1_612_552_482_000)
    assert first.headers() == [("Header-1", b"Header-1"), ("Header-2", b"Header-2")]
    assert (second.key(), second.value()) == (None, b"My message")
    assert (third.key(), third.value()) == (b"1000", b'"foobar"')
    assert (fourth.key(), fourth.value()) == (b"1000", None)


def test_receipts_while_the_client_goes_on_sending(server: Running) -> None:
    """As Confluent's example in Python does it: a generator as the body, and a thread that reads the same socket."""
    server.create("topic_1", 1)
    records: Queue[bytes | None] = Queue()
    connection = http.client.HTTPConnection(server.gateway, timeout=60)
    connection.connect()
    path = "/v3/clusters/EV-5o5e3SViiGP0hpgKn1g/topics/topic_1/records"
    headers = {"Content-Type": "application/json", "Accept": "application/json"}

    def send() -> None:
        connection.request("POST", path, body=iter(records.get, None), headers=headers, encode_chunked=True)

    sending = threading.Thread(target=send)
    sending.start()
    offsets = []
    answer: http.client.HTTPResponse | None = None
    for number in range(20):
        key, value = {"type": "STRING", "data": f"key_{number}"}, {"type": "STRING", "data": f"value_{number}"}
        records.put(json.dumps({"value": value, "key": key}).encode())
        if answer is None:
            answer = http.client.HTTPResponse(connection.sock)
            answer.begin()
            assert answer.status == 200
        line = json.loads(answer.readline())  # the next record is sent after that
        assert line["error_code"] == 200 and line["key"] == {"type": "STRING", "size": len(f"key_{number}")}
        offsets.append(line["offset"])
    records.put(None)
    assert answer is not None and answer.readline() == b""
    sending.join()
    connection.close()
    assert offsets == list(range(20))
    assert [m.value() for m in consumed(server, "topic_1", 0, 20)] == [b"value_%d" % n for n in range(20)]


def test_groups_have_lag(server: Running) -> None:
    """A consumer of Kafka commits; the REST Proxy's paths show its lag."""
    server.create("lagging", 1)
    [clusters] = run(server, f"curl {HOST}/v3/clusters")
    base = f"{HOST}/v3/clusters/{clusters['data'][0]['cluster_id']}"
    record = """'{"value":{"type":"STRING","data":"a"}}'"""
    json_type = '-H "Content-Type: application/json"'
    for _ in range(3):
        run(server, f"curl -X POST {json_type} {base}/topics/lagging/records -d {record}")
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("lagging", 0, 1)], asynchronous=False)
    consumer.close()
    [summary] = run(server, f"curl {base}/consumer-groups/readers/lag-summary")
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_topic_name"]) == (2, 2, "lagging")


def test_the_command_of_the_docs(server: Running) -> None:
    server.create("orders", 1)
    [command] = re.findall(r"^    (curl .*?)\n\n", DOCS.read_text(), re.M | re.S)
    [receipt] = run(server, command.replace("http://127.0.0.1:8081", HOST).replace("\\\n", " "))
    assert receipt["error_code"] == 200 and receipt["value"] == {"type": "JSON", "size": 12}
