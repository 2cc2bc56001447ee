"""Which records a topic no longer keeps, by time and by size."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.configs.topics import TopicConfig
from headwater.log.retention import new_log_start
from headwater.state.streams.index import SettledEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import START_MS, Scribe

PROMISES = ("L6",)

A = 1


def stream_of(entries: list[tuple[int, int]]) -> Stream:
    """A stream with entries of (length, timestamp), ten offsets each."""
    scribe = Scribe(StreamsState(Domain(1)))
    scribe.streams(A)
    for length, timestamp in entries:
        scribe.append(1, A, [(length - 4, 10, timestamp)])
    assert isinstance(scribe.state, StreamsState)
    return scribe.state.streams[A]


def config(**configs: str) -> TopicConfig:
    return TopicConfig.of({name.replace("_", "."): value for name, value in configs.items()}, {})


@promise("L6")
def test_by_time() -> None:
    """An entry goes when its youngest record, and everything before it, is older than `retention.ms`."""
    stream = stream_of([(100, START_MS + i * 1000) for i in range(5)])
    keep = config(retention_ms="1500")
    for now, start in ((0, 0), (1500, 0), (1501, 10), (2501, 20), (5500, 40), (5501, 50), (10**9, 50)):
        assert new_log_start(stream, keep, START_MS + now) == start
    assert new_log_start(stream, config(retention_ms="-1"), START_MS + 10**12) == 0
    assert new_log_start(stream, config(retention_ms="0"), START_MS + 4000) == 40


@promise("L6")
def test_by_time_with_disordered_clocks() -> None:
    """A young record before an old one keeps both, since a log is cut from its start."""
    stream = stream_of([(100, 5000), (100, 100), (100, 9000), (100, 200)])
    keep = config(retention_ms="1000")
    assert new_log_start(stream, keep, 6000) == 0
    assert new_log_start(stream, keep, 6001) == 20
    assert new_log_start(stream, keep, 10_001) == 40


@promise("L6", "T1")
def test_a_range_without_records_goes_with_the_records_behind_it() -> None:
    """An aborted transaction has no age. A consumer that stands in it must not find itself before the log."""
    stream = stream_of([(100, START_MS + i * 1000) for i in range(4)])
    for place in (0, 2):
        old = stream.index[place]
        gone = SettledEntry(old.start, old.end, old.cumulative_size, -1, old.length, 0, 0, 0)
        stream.index.replace(place, place + 1, [gone])
    stream.index.restart_running_maximum(0)
    keep = config(retention_ms="1500")
    for now, start in ((2500, 0), (2501, 20), (4500, 20), (4501, 40)):
        assert new_log_start(stream, keep, START_MS + now) == start
    stream = stream_of([(100, START_MS)])
    stream.index.replace(0, 1, [SettledEntry(0, 10, 100, -1, 100, 0, 0, 0)])
    assert new_log_start(stream, keep, START_MS + 10**9) == 0


@promise("L6")
def test_records_without_a_timestamp_are_as_old_as_their_object() -> None:
    """A timestamp of -1 is no reason to delete a record at once."""
    stream = stream_of([(100, -1), (100, -1), (100, 500)])
    keep = config(retention_ms="1000")
    written = {0: 2000, 10: 4000, 20: 9000}
    for now, start in ((2500, 0), (3000, 0), (3001, 10), (5000, 10), (5001, 30)):
        assert new_log_start(stream, keep, now, lambda entry: written[entry.start]) == start


@promise("L6", "K12")
def test_markers_are_as_old_as_their_transactions() -> None:
    """A log of a marker alone is not cut at once; records before one still go by their own time."""
    stream = stream_of([])
    stream.close(7, 0, 2000, commit=True)
    keep = config(retention_ms="1000")
    for now, start in ((2500, 0), (3000, 0), (3001, 1)):
        assert new_log_start(stream, keep, now) == start
    stream = stream_of([(100, 500)])
    stream.close(7, 0, 2000, commit=False)
    for now, start in ((1500, 0), (1501, 10), (3000, 10), (3001, 11)):
        assert new_log_start(stream, keep, now) == start


@promise("L6", "K12")
def test_records_of_an_open_transaction_stay() -> None:
    """By time and by size, up to the stable offset."""
    stream = stream_of([(100, 1000)] * 3)
    stream.running[70] = 10
    for keep in (config(retention_ms="1000"), config(retention_ms="-1", retention_bytes="0")):
        assert new_log_start(stream, keep, 10_000) == 10
    del stream.running[70]
    assert new_log_start(stream, config(retention_ms="1000"), 10_000) == 30


@promise("L6")
def test_by_size() -> None:
    """As in Kafka an entry goes only if what remains is still at least `retention.bytes`."""
    stream = stream_of([(100, START_MS)] * 5)
    for limit, start in ((500, 0), (401, 0), (400, 10), (399, 10), (200, 30), (1, 40), (0, 50), (10**9, 0), (-1, 0)):
        assert new_log_start(stream, config(retention_bytes=str(limit), retention_ms="-1"), START_MS) == start


@promise("L6")
def test_both() -> None:
    """Whichever takes more."""
    stream = stream_of([(100, START_MS + i * 1000) for i in range(5)])
    assert new_log_start(stream, config(retention_ms="1500", retention_bytes="200"), START_MS) == 30
    assert new_log_start(stream, config(retention_ms="1500", retention_bytes="400"), START_MS + 5500) == 40


@promise("L6", "L7")
def test_compacted_only() -> None:
    """Such a topic keeps its log; `compact,delete` does not."""
    stream = stream_of([(100, 0)] * 5)
    assert new_log_start(stream, config(cleanup_policy="compact"), START_MS) == 0
    assert new_log_start(stream, config(cleanup_policy=""), START_MS) == 0
    assert new_log_start(stream, config(cleanup_policy="compact,delete"), START_MS) == 50


@promise("L6")
def test_an_empty_stream() -> None:
    assert new_log_start(stream_of([]), config(retention_ms="0", retention_bytes="0"), START_MS) == 0


@promise("L6")
@given(
    st.lists(st.tuples(st.integers(5, 300), st.integers(0, 100)), max_size=12),
    st.integers(-1, 120),
    st.integers(-1, 2000),
    st.integers(0, 200),
)
def test_against_a_plain_list(entries: list[tuple[int, int]], ms: int, size: int, now: int) -> None:
    stream = stream_of(entries)
    start = 0
    for i in range(len(entries)):
        gone = entries[: i + 1]
        too_old = ms >= 0 and max(t for _, t in gone) < now - ms
        too_large = size >= 0 and sum(length for length, _ in entries[i + 1 :]) >= size
        if too_old or too_large:
            start = (i + 1) * 10
    assert new_log_start(stream, config(retention_ms=str(ms), retention_bytes=str(size)), now) == start
