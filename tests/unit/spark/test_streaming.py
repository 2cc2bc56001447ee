"""The plan of a stream: where it begins and ends, what a restart does, and what is lost is told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import BadInput
from headwater.sdk import http as sdk_http
from headwater.spark.options import options_of
from headwater.spark.parts import Part
from headwater.spark.streaming import TopicStream
from tests.unit.sdk.test_http import Fake, Reply, fake, told


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_http, "FIRST_PAUSE", 0.001)


def topic(*stable: int, id: str = "t1") -> Reply:
    lines = [
        {"partition": i, "start": 0, "end": end + 5, "stable": end, "settled": 0, "bytes": 0}
        for i, end in enumerate(stable)
    ]
    return told(200, name="orders", id=id, created_ms=0, partitions=lines, configs={})


def parts(*ranges: tuple[int, int, int], kept: dict[int, int] | None = None) -> Reply:
    lines = [{"partition": number, "from_offset": first, "until_offset": end} for number, first, end in ranges]
    left = [{"partition": number, "kept": offset} for number, offset in (kept or {}).items()]
    return told(200, id="t1", version=0, partitions=left, parts=[{"bytes": 1, "ranges": lines}] if lines else [])


def stream(gateway: Fake, **options: str) -> TopicStream:
    own = options_of({"url": gateway.url, "topic": "orders", **options}, streaming=True)
    return TopicStream(own, pa.schema([("value", pa.binary())]))


def place(*offsets: int, id: str = "t1") -> dict[str, Any]:
    return {"topic": id, "offsets": {str(i): offset for i, offset in enumerate(offsets)}}


def test_a_stream_begins_with_what_retention_has_left() -> None:
    with fake(topic(9, 4), parts(kept={0: 3, 1: 0})) as gateway:
        assert stream(gateway).initialOffset() == place(3, 0)
    with fake(topic(9, 4)) as gateway:
        assert stream(gateway, startingOffsets='{"0": 5, "1": 70}').initialOffset() == place(5, 4)
    with fake(topic(9, 4)) as gateway, pytest.raises(BadInput, match="no partition 2: it has 0 to 1"):
        stream(gateway, startingOffsets='{"2": 5}').initialOffset()


def test_a_stream_from_the_end_has_an_empty_first_batch() -> None:
    """So its beginning is in the checkpoint, and a crash in that batch loses nothing."""
    with fake(topic(9), topic(12)) as gateway:
        first = stream(gateway, startingOffsets="latest")
        assert first.latestOffset() == place(9) and first.initialOffset() == place(9)
        again = stream(gateway, startingOffsets="latest")
        assert again.initialOffset() == place(12) and list(again.partitions(place(12), place(9))) == []
        assert again.latestOffset() == place(12), "and goes on from offset 9"
        assert again.partitions(place(9), place(9)) == []


def test_a_limit_goes_on_where_the_checkpoint_is() -> None:
    with fake(topic(100)) as gateway:
        found = stream(gateway, maxRowsPerBatch="7")
        assert found.partitions(place(10), place(10)) == [], "Spark tells where it goes on"
        assert found.latestOffset() == place(17) == found.latestOffset()
    with fake(topic(100), parts((0, 10, 17)), topic(100)) as gateway:
        found = stream(gateway, maxRowsPerBatch="7")
        [part] = found.partitions(place(10), place(17))
        assert isinstance(part, Part) and part.ranges == {0: (10, 17)} and part.kept == {0: 10}
        assert "kept=0%3A10" in gateway.asked[-1][0]
        assert found.latestOffset() == place(24)


def test_new_partitions_begin_at_their_start() -> None:
    with fake(topic(9, 4, 2), parts((1, 0, 4), (2, 0, 2))) as gateway:
        found = stream(gateway)
        [part] = found.partitions(place(9), place(9, 4, 2))
        assert isinstance(part, Part) and set(part.ranges) == {1, 2}
        assert "from_offsets=1%3A0%2C2%3A0" in gateway.asked[-1][0]
    with fake(topic(9, 4, 2)) as gateway:
        assert stream(gateway, partitions="1", startingOffsets="1").latestOffset() == {
            "topic": "t1",
            "offsets": {"1": 4},
        }


def test_a_topic_that_was_created_again() -> None:
    with fake(topic(2, id="t2")) as gateway:
        found = stream(gateway)
        found.partitions(place(9), place(9))
        with pytest.raises(BadInput, match=r"deleted and created again .* failOnDataLoss=false"):
            found.latestOffset()
        with pytest.raises(BadInput, match="while a batch was planned"):
            found.partitions(place(5), place(9))
    with fake(topic(2, id="t2"), topic(2, id="t2"), parts((0, 0, 2))) as gateway:
        found = stream(gateway, failOnDataLoss="false")
        found.partitions(place(9), place(9))
        assert found.latestOffset() == place(2, id="t2")
        [part] = found.partitions(place(9), place(2, id="t2"))
        assert isinstance(part, Part) and part.ranges == {0: (0, 2)} and not part.kept


def test_a_topic_that_became_shorter() -> None:
    """A cluster that was put back from a backup."""
    with fake(topic(5)) as gateway, pytest.raises(BadInput, match="ends before offset 9"):
        stream(gateway).partitions(place(3), place(9))
