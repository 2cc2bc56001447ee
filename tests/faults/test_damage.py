"""A flipped bit and a deleted object, met by librdkafka at its defaults, a compactor, pages and commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from harness.headwater import QUICK_LAKE, Headwater
from harness.patience import eventually
from harness.process import headwater
from headwater.log.wal import format as wal
from tests.faults.raw import Raw, fresh

PROMISES = ("L10",)

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]
SETTINGS = f"{QUICK_LAKE}freshness_ms = 300\n"
PER_OBJECT, OBJECTS = 10, 6
TOTAL = PER_OBJECT * OBJECTS
FLIPPED, DELETED = 1, 4
"""The objects of the topic `hurt` that are damaged."""


def value(offset: int) -> bytes:
    return b"record %d." % offset


def consumed(bootstrap: str, start: int, wanted: int) -> dict[int, bytes]:
    """What a consumer with librdkafka's defaults gets from an offset on."""
    got: dict[int, bytes] = {}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition("hurt", 0, start)])

    def look() -> bool:
        for message in consumer.consume(100, 0.2):
            if message.error() is None:
                got[message.offset()] = message.value()
        return len(got) >= wanted

    eventually(look, f"{wanted} records from offset {start}")
    look()  # nothing comes from beyond the damage
    consumer.close()
    return got


def test_damage_is_named_and_kept_to_its_range(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Headwater(tmp_path / "before", data=data) as server:
        for topic in ("hurt", "whole"):
            server.create(topic, 1)
        with Raw(server.port) as raw:
            for first in range(0, TOTAL, PER_OBJECT):
                for topic in ("hurt", "whole"):
                    batch = fresh([value(first + i) for i in range(PER_OBJECT)])
                    assert raw.produce(topic, batch).base_offset == first
    paths = sorted((data / "objects" / wal.ROOT).rglob(f"*{wal.SUFFIX}"))[::2]
    assert len(paths) == OBJECTS
    flipped = bytearray(paths[FLIPPED].read_bytes())
    flipped[flipped.index(value(15))] ^= 1
    paths[FLIPPED].write_bytes(flipped)
    paths[DELETED].unlink()

    with Headwater(tmp_path / "after", data=data, lake=True, settings=SETTINGS) as server:
        for start, end in ((0, 10), (20, 40), (50, 60)):
            got = consumed(server.bootstrap, start, end - start)
            assert got == {offset: value(offset) for offset in range(start, end)}
        with Raw(server.port) as raw:
            for offset in (12, 45):
                assert raw.fetch("hurt", offset).error_code.value == KafkaError.KAFKA_STORAGE_ERROR
        ranges = [(10, 19, paths[FLIPPED].name), (40, 49, paths[DELETED].name)]

        def named(lines: list[dict[str, object]]) -> list[tuple[object, object, str]]:
            return [(x["first_offset"], x["last_offset"], str(x["object"]).rsplit("/", 1)[-1]) for x in lines]

        health = json.loads(server.page("/health")[1])
        assert health["status"] == "degraded"
        assert named(health["damage"]["broker-1"]) == ranges
        described = server.cli("topic", "describe", "hurt", "--bootstrap", server.bootstrap, "--output", "json")
        assert named(described["damage"]) == ranges

        def cli(*words: str) -> str:
            ended = headwater(*words, "--bootstrap", server.bootstrap)
            assert ended.returncode == 0, ended.stderr
            return ended.stdout

        cli("group", "reset", "stuck", "--topic", "hurt", "--to", "10")
        waits = cli("group", "describe", "stuck")
        assert "the group waits in hurt-0 at offset 10: the records up to 19 cannot be read" in waits
        assert "headwater group reset stuck --topic hurt --partition 0 --to 20" in waits
        assert "stuck" in cli("topic", "describe", "hurt") and "to do: " in cli("topic", "describe", "hurt")
        cli("group", "reset", "stuck", "--topic", "hurt", "--to", "20")
        assert "waits" not in cli("group", "describe", "stuck")
        assert "consumers wait at records that cannot be read" in server.log.read_text()
        metrics = server.page("/metrics")[1]
        for _, last, name in ranges:
            assert [x for x in metrics.splitlines() if "damaged_offsets{" in x and name in x and f'"{last}"' in x]
        assert server.log.read_text().count("stored records cannot be read") >= len(ranges)

        rows = f"headwater_settled_rows_total {TOTAL + PER_OBJECT}"
        eventually(
            lambda: rows in server.page("/metrics")[1], "one topic settles, the other up to the damage", 120, every=0.25
        )
        health = json.loads(server.page("/health")[1])
        assert named(health["damage"]["compactor"]) == ranges[:1]
        ended = headwater("doctor", "--config", str(server.config), "--deep")
        assert ended.returncode == 6
        for first, last, name in ranges:
            assert any(name in x and f"hurt-0, offsets {first} to {last}:" in x for x in ended.stdout.splitlines())
        assert ended.stderr.startswith("read "), "progress"
