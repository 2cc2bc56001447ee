"""Compactors die by `kill -9` while one record in a hundred cannot be decoded; each is a dead letter once.

The topic is written and settled without schemas at first, so that the past is decoded too. After the kills half of the
bad records get their schema, and are decoded again over HTTP, among more kills. Then they have their columns, the
others have their reason, and there are no more letters.

python -m tests.soak.letters --kills 60 --seed 1
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import struct
import urllib.request
from collections import Counter
from typing import Any

import confluent_kafka
import psutil

from harness.patience import eventually
from headwater.clock import SystemClock
from tests.faults.lake_running import FRESHNESS, SETTINGS, LakeRunning, Writer, kill_compactors, many_moments
from tests.soak.common import Verdict, progress, workplace

PROMISES = ("T7",)

TOPIC, LETTERS, PARTITIONS = "orders", "failed", 3
BAD_IN = 100
"""One record in so many is bad."""
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}
REFUND = {"type": "record", "name": "Refund", "fields": [{"name": "refunded", "type": "long"}]}
PATIENCE_SECONDS = 900.0
UNHURRIED = SETTINGS.replace("[lake]\n", "[lake]\nniceness = 0\n")
"""Settling does not step back behind the writer: kills are waited for."""


class BadWriter(Writer):
    """Writes Avro, and one record in a hundred that is bad: of a schema that comes later, or garbage."""

    def _send(self, topic: str, partition: int) -> None:
        number = self._sent
        value = struct.pack(">bI", 0, 1) + _varint(number)
        if number % (2 * BAD_IN) == 7:
            value = struct.pack(">bI", 0, 2) + _varint(number)
        elif number % (2 * BAD_IN) == BAD_IN + 7:
            value = b"garbage %d" % number
        self._sent += 1
        self._producer.produce(topic, value, b"%d" % number, partition, on_delivery=self._noted(topic, b"", value))


def _varint(number: int) -> bytes:
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(out) + bytes([rest])


def call(server: LakeRunning, method: str, path: str, body: object = None) -> Any:
    """The answer of the gateway."""
    data = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(
        server.gateway_url + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def letters(server: LakeRunning) -> Counter[tuple[int, int]]:
    """Where the records of all letters are, by their headers."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, "group.id": "unused"})
    found: Counter[tuple[int, int]] = Counter()
    try:
        _, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(LETTERS, 0), timeout=30)
        consumer.assign([confluent_kafka.TopicPartition(LETTERS, 0, 0)])
        while found.total() < end:
            for message in consumer.consume(1_000, timeout=1):
                assert message.error() is None, message.error()
                said = dict(message.headers() or [])
                partition, offset = said["headwater.dlq.partition"], said["headwater.dlq.offset"]
                assert partition is not None and offset is not None
                found[int(partition), int(offset)] += 1
    finally:
        consumer.close()
    return found


def failed(server: LakeRunning) -> int:
    """Rows of the table that could not be decoded."""
    return sum(int(one["rows"]) for one in call(server, "GET", "/v1/dlq")["items"] if one["topic"] == TOPIC)


def filled(server: LakeRunning, column: str) -> int:
    """Rows of the table that have a value in a column."""
    answer = call(server, "POST", "/v1/sql", {"sql": f"SELECT count(value_data.{column}) FROM {TOPIC}"})
    return int(answer["rows"][0][0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    verdict = Verdict(f"dead letters, with {options.kills} kills of a compactor")
    chance = random.Random(options.seed)
    with workplace("letters") as directory, LakeRunning(directory, settings=UNHURRIED) as server, progress() as bars:
        server.create(LETTERS, 1, **FRESHNESS)
        server.create(TOPIC, PARTITIONS, **{**FRESHNESS, "headwater.dlq.topic": LETTERS})
        call(server, "POST", f"/subjects/{TOPIC}-value/versions", {"schema": json.dumps(ORDER)})
        bar = bars.add_task("kills", total=options.kills, now="")
        with BadWriter(server.bootstrap, (TOPIC,), PARTITIONS, each=20) as writer:

            def told(moment: str) -> None:
                bars.update(bar, advance=1, now=f"{moment}, {writer.count:,} records")

            third = options.kills // 3
            kill_compactors(server, writer, many_moments(third, chance), chance, told)
            call(server, "PATCH", f"/v1/topics/{TOPIC}/configs", {"set": {"headwater.value.schema": "auto"}})
            kill_compactors(server, writer, many_moments(third, chance), chance, told)
            writer.stop()
            rows = writer.acks[TOPIC]
            late = {(row[0], row[1]) for row in rows if row[3] is not None and row[3][:5] == b"\0\0\0\0\2"}
            garbage = {(row[0], row[1]) for row in rows if row[3] is not None and row[3][:1] == b"g"}
            bars.update(bar, now="waiting for the letters")
            server.settle(TOPIC)
            eventually(lambda: letters(server).total() >= len(late | garbage), "all letters", PATIENCE_SECONDS, 1)
            once = letters(server)
            verdict.fact("records", len(rows))
            verdict.floor("records that cannot be decoded", len(late | garbage), 10)
            verdict.rule("letters that are missing, or of no bad record", len(set(once) ^ (late | garbage)), 0)
            verdict.rule("letters that are there twice", once.total() - len(once), 0)
            verdict.rule("rows that could be decoded, and have no column", _difference(server, rows, late | garbage), 0)

            call(server, "POST", "/subjects/refunds/versions", {"schema": json.dumps(REFUND)})
            answer = call(server, "POST", f"/v1/dlq/{TOPIC}/replay", {})
            verdict.floor("files that are decoded again", answer["files"], 1)
        kill_starts(server, options.kills - 2 * third, chance, told)
        bars.update(bar, now="waiting for the columns")
        eventually(lambda: failed(server) == len(garbage), "the schema is used", PATIENCE_SECONDS, 1)
        again = letters(server)
        verdict.rule("rows of the new schema without a column", len(late) - filled(server, "refunded"), 0)
        verdict.rule("letters that came again", again.total() - once.total(), 0)
        server.doctor()
    verdict.leave()


def kill_starts(server: LakeRunning, kills: int, chance: random.Random, told: Any) -> None:
    """Kill compactors a while after their starts. Nobody writes meanwhile."""
    last = 0
    for _ in range(kills):
        victim = server.compactor(other_than=last)
        seconds = chance.random() * 12
        eventually(functools.partial(_is_older, victim, seconds), "a compactor works", 60)
        victim.kill()
        last = victim.pid
        told("replay")
    server.compactor(other_than=last)


def _is_older(process: psutil.Process, seconds: float) -> bool:
    began: float = process.create_time()
    return SystemClock().wall_ms() / 1000 - began >= seconds


def _difference(server: LakeRunning, rows: list[Any], bad: set[tuple[int, int]]) -> int:
    """How many rows that can be decoded are not, or the other way round, once all files are decoded."""
    good = len(rows) - len(bad)
    eventually(lambda: filled(server, "number") >= good, "the past is decoded", PATIENCE_SECONDS, 2)
    return abs(filled(server, "number") - good)


if __name__ == "__main__":
    main()
