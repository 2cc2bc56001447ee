"""Thirty steps of evolution in a real Headwater, and odd names and limits; DuckDB and pyiceberg read all."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.engines.evolving import (
    SETTINGS,
    Evolution,
    by_duckdb,
    by_pyiceberg,
    check_odd,
    check_version,
    consumer_of,
    create,
    snapshots,
    wait_for,
)
from tests.faults.lake_running import LakeRunning
from tests.support.evolving.odd import odd_topics

PROMISES = ("T6", "T7")

# pyiceberg's HTTP sessions leave their sockets to the garbage collector.
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
SEED = 7
ODD = ("odd.names", "wide")
"""The odd topics of `make test-full`; the soak has all of them."""
READERS = {"DuckDB": by_duckdb, "pyiceberg": by_pyiceberg}


def test_thirty_steps_and_odd_names(tmp_path: Path) -> None:
    """At every version both engines show what the formats' own libraries read; a consumer gets all bytes."""
    with LakeRunning(tmp_path, settings=SETTINGS.format(merge_files=5)) as server:
        evolution = Evolution(server, SEED, group=10)
        producer = Producer({"bootstrap.servers": server.bootstrap})
        odd = [one for one in odd_topics() if one.topic in ODD]
        for one in odd:
            more = {"headwater.table.flatten": "true"} if one.flatten else {}
            create(server, one.topic, "json", **more)
            for payload in one.payloads:
                producer.produce(one.topic, payload, partition=0)
        assert producer.flush(60) == 0
        with consumer_of(server, [topic.name for topic in evolution.topics]) as consumed:
            evolution.run()
            got = consumed(sum(len(topic.sent) for topic in evolution.topics))
        for one in odd:
            wait_for(server, one.topic, len(one.payloads))
        roots = {name: table.root for name, table in server.look().tables.items()}
        for topic in evolution.topics:
            assert got[topic.name] == topic.sent
            place = server.place(topic.name, roots[topic.name])
            for name, read in READERS.items():
                rows = [check_version(name, read(place, version), topic) for version in snapshots(place)]
                assert {*rows} == {*topic.versions}
        for one in odd:
            place = server.place(one.topic, roots[one.topic])
            for name, read in READERS.items():
                check_odd(name, read(place, snapshots(place)[-1]), one)
