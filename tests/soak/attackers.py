"""The attacks of `tests.soak.attacks`, each in a process of its own until it is ended: `attackers NAME KAFKA HTTP`."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable

from tests.faults.raw import FETCH, LIST_OFFSETS, METADATA, Closed, Raw, frame

CREATE_TOPICS, DESCRIBE_CONFIGS, TOPIC = 19, 32, 2
BIG, FULL = "big", "full"
"""Topics that the attacks use: one with many partitions, one with much data."""
AT_ONCE = 4
MILLION = 1_000_000


def repeated(kafka: int, data: bytes) -> None:
    """Send one request again and again, on a few connections. Refusals do not end it."""

    def work() -> None:
        while True:
            with contextlib.suppress(Closed, OSError), Raw(kafka) as raw:
                while True:
                    raw.send(data)
                    raw.receive()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one_topic_often(kafka: int, http: int) -> None:
    repeated(kafka, frame(METADATA, 9, topics=[{"name": BIG}] * 3_000))


def million_names(kafka: int, http: int) -> None:
    topics = [{"name": f"n{i}"} for i in range(MILLION)]
    repeated(kafka, frame(METADATA, 9, topics=topics, allow_auto_topic_creation=False))


def many_names(kafka: int, http: int) -> None:
    topics = [{"name": f"n{i}"} for i in range(49_000)]
    repeated(kafka, frame(METADATA, 9, topics=topics, allow_auto_topic_creation=False))


def many_configs(kafka: int, http: int) -> None:
    """The keys differ, so that each resource has to be answered on its own."""
    resources = [
        {"resource_type": TOPIC, "resource_name": BIG, "configuration_keys": [f"k{i}", "retention.ms"]}
        for i in range(15_000)
    ]
    repeated(kafka, frame(DESCRIBE_CONFIGS, 4, resources=resources))


def many_offsets(kafka: int, http: int) -> None:
    partitions = [{"partition_index": i % 10_000, "timestamp": -1} for i in range(40_000)]
    topics = [{"name": BIG, "partitions": partitions[at : at + 10_000]} for at in range(0, 40_000, 10_000)]
    repeated(kafka, frame(LIST_OFFSETS, 7, topics=topics))


def many_partitions(kafka: int, http: int) -> None:
    topics = [{"name": f"p{i}", "num_partitions": 10_000, "replication_factor": 1} for i in range(300)]
    repeated(kafka, frame(CREATE_TOPICS, 7, topics=topics, timeout=60_000))


def answers_unread(kafka: int, http: int) -> None:
    """Fetch much over many connections, and read nothing."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 55 << 20}
    data = frame(
        FETCH, 11, max_wait=0, min_bytes=1, max_bytes=55 << 20, session_epoch=-1,
        topics=[{"topic": FULL, "partitions": [wanted]}],
    )  # fmt: skip
    links: list[Raw] = []
    while True:
        for _ in range(64):
            with contextlib.suppress(Closed, OSError):
                raw = Raw(kafka)
                raw.send(data * 4)
                links.append(raw)
        time.sleep(1)  # the pace of the attack


def idle_connections(kafka: int, http: int) -> None:
    links = []
    while True:
        with contextlib.suppress(OSError):
            links.append(socket.create_connection(("127.0.0.1", kafka)))
        if len(links) % 100 == 0:
            time.sleep(0.05)  # the pace of the attack


def slow_http(kafka: int, http: int) -> None:
    """Hundreds of connections that never finish their requests, opened anew when they are closed."""
    links: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            link = socket.create_connection(("127.0.0.1", http))
            link.sendall(b"GET /metrics HTTP/1.1\r\n")
            links.append(link)
        while len(links) > 500:
            links.pop(0).close()
        time.sleep(0.01)  # the pace of the attack


ATTACKS: dict[str, Callable[[int, int], None]] = {
    attack.__name__: attack
    for attack in (
        one_topic_often,
        million_names,
        many_names,
        many_configs,
        many_offsets,
        many_partitions,
        answers_unread,
        idle_connections,
        slow_http,
    )
}

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
