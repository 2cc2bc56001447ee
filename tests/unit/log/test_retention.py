"""Which records a topic no longer keeps, by time and by size."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headwater.configs.topics import TopicConfig
from headwater.log.retention import Cut, cut_of
from headwater.state.commands.streams import Chunk
from headwater.state.streams.index import SettledEntry
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stream import Stream
from headwater.types import Domain
from tests.support.promise import promise
from tests.support.scribe import FIRST_CHUNK, START_MS, Scribe

PROMISES = ("L6",)

A = 1


def log_of(entries: list[tuple[int, int]], arrived_ms: int = START_MS) -> tuple[StreamsState, Stream]:
    """A stream with entries of (length, timestamp), ten offsets each, which arrived at a ledger time."""
    state = StreamsState(Domain(1))
    scribe = Scribe(state)
    scribe.streams(A)
    for length, timestamp in entries:
        scribe.append(1, A, [(length - 4, 10, timestamp)], clock_ms=arrived_ms)
    return state, state.streams[A]


def start_of(log: tuple[StreamsState, Stream], keep: TopicConfig, now_ms: int) -> int:
    """Where a log should start, without a grace."""
    return cut_of(*log, keep, now_ms, 0).start


def config(**configs: str) -> TopicConfig:
    return TopicConfig.of({name.replace("_", "."): value for name, value in configs.items()}, {})


@promise("L6")
def test_by_time() -> None:
    """An entry goes when its youngest record, and everything before it, is older than `retention.ms`."""
    log = log_of([(100, START_MS + i * 1000) for i in range(5)])
    keep = config(retention_ms="1500")
    for now, start in ((0, 0), (1500, 0), (1501, 10), (2501, 20), (5500, 40), (5501, 50), (10**9, 50)):
        assert start_of(log, keep, START_MS + now) == start
    assert start_of(log, config(retention_ms="-1"), START_MS + 10**12) == 0
    assert start_of(log, config(retention_ms="0"), START_MS + 4000) == 40


@promise("L6")
def test_by_time_with_disordered_clocks() -> None:
    """A young record before an old one keeps both, since a log is cut from its start."""
    log = log_of([(100, 5000), (100, 100), (100, 9000), (100, 200)])
    keep = config(retention_ms="1000")
    assert start_of(log, keep, 6000) == 0
    assert start_of(log, keep, 6001) == 20
    assert start_of(log, keep, 10_001) == 40


@promise("L6", "T1")
def test_a_range_without_records_goes_with_the_records_behind_it() -> None:
    """An aborted transaction has no age. A consumer that stands in it must not find itself before the log."""
    log = log_of([(100, START_MS + i * 1000) for i in range(4)])
    stream = log[1]
    for place in (0, 2):
        old = stream.index[place]
        gone = SettledEntry(old.start, old.end, old.cumulative_size, -1, old.length, 0, 0, 0)
        stream.index.replace(place, place + 1, [gone])
    stream.index.restart_running_maximum(0)
    keep = config(retention_ms="1500")
    for now, start in ((2500, 0), (2501, 20), (4500, 20), (4501, 40)):
        assert start_of(log, keep, START_MS + now) == start
    log = log_of([(100, START_MS)])
    log[1].index.replace(0, 1, [SettledEntry(0, 10, 100, -1, 100, 0, 0, 0)])
    assert start_of(log, keep, START_MS + 10**9) == 0


@promise("L6")
def test_records_without_a_timestamp_are_as_old_as_their_object() -> None:
    """A timestamp of -1 is no reason to delete a record at once."""
    state = StreamsState(Domain(1))
    scribe = Scribe(state)
    scribe.streams(A)
    for written, timestamp in ((2000, -1), (4000, -1), (9000, 500)):
        command = scribe.wal(Chunk(A, FIRST_CHUNK, [(96, 10, timestamp)], []))
        scribe.do(1, msgspec.structs.replace(command, created_ms=written), 1)
    log = state, state.streams[A]
    keep = config(retention_ms="1000")
    for now, start in ((2500, 0), (3000, 0), (3001, 10), (5000, 10), (5001, 30)):
        assert start_of(log, keep, now) == start


@promise("L6", "K12")
def test_markers_are_as_old_as_their_transactions() -> None:
    """A log of a marker alone is not cut at once; records before one still go by their own time."""
    log = log_of([])
    log[1].close(7, 0, 2000, 2000, commit=True)
    keep = config(retention_ms="1000")
    for now, start in ((2500, 0), (3000, 0), (3001, 1)):
        assert start_of(log, keep, now) == start
    log = log_of([(100, 500)])
    log[1].close(7, 0, 2000, 2000, commit=False)
    for now, start in ((1500, 0), (1501, 10), (3000, 10), (3001, 11)):
        assert start_of(log, keep, now) == start


@promise("L6", "K12")
def test_records_of_an_open_transaction_stay() -> None:
    """By time and by size, up to the stable offset."""
    log = log_of([(100, 1000)] * 3)
    log[1].running[70] = 10
    for keep in (config(retention_ms="1000"), config(retention_ms="-1", retention_bytes="0")):
        assert start_of(log, keep, 10_000) == 10
    del log[1].running[70]
    assert start_of(log, config(retention_ms="1000"), 10_000) == 30


@promise("L6")
def test_by_size() -> None:
    """As in Kafka an entry goes only if what remains is still at least `retention.bytes`."""
    log = log_of([(100, START_MS)] * 5)
    for limit, start in ((500, 0), (401, 0), (400, 10), (399, 10), (200, 30), (1, 40), (0, 50), (10**9, 0), (-1, 0)):
        assert start_of(log, config(retention_bytes=str(limit), retention_ms="-1"), START_MS) == start


@promise("L6")
def test_both() -> None:
    """Whichever takes more."""
    log = log_of([(100, START_MS + i * 1000) for i in range(5)])
    assert start_of(log, config(retention_ms="1500", retention_bytes="200"), START_MS) == 30
    assert start_of(log, config(retention_ms="1500", retention_bytes="400"), START_MS + 5500) == 40


@promise("L6", "L7")
def test_compacted_only() -> None:
    """Such a topic keeps its log; `compact,delete` does not."""
    log = log_of([(100, 0)] * 5)
    assert start_of(log, config(cleanup_policy="compact"), START_MS) == 0
    assert start_of(log, config(cleanup_policy=""), START_MS) == 0
    assert start_of(log, config(cleanup_policy="compact,delete"), START_MS) == 50


@promise("L6")
def test_records_that_are_old_when_they_arrive_stay_for_a_while() -> None:
    """For the grace, or for the retention time if that is shorter. A log of others is cut without one."""
    day, hour = 86_400_000, 3_600_000
    state, stream = log_of([(100, START_MS - 9 * day), (100, START_MS - 8 * day), (100, START_MS)])
    week = config(retention_ms=str(7 * day))

    def cut(keep: TopicConfig, ms: int) -> Cut:
        state.clock_ms = START_MS + ms
        return cut_of(state, stream, keep, START_MS + ms, hour)

    assert cut(week, 0) == cut(week, hour - 1) == Cut(0, spared=True)
    assert cut(week, hour) == Cut(20)
    assert cut(week, 7 * day) == Cut(20)
    assert cut(week, 7 * day + 1) == Cut(30)
    state, stream = log_of([(100, START_MS - day), (100, START_MS)])
    minute = config(retention_ms="60000")
    assert cut(minute, 59_999) == Cut(0, spared=True)
    assert cut(minute, 60_000) == Cut(10), "the grace is not longer than the retention"
    assert cut(minute, 60_001) == Cut(20)
    state, stream = log_of([(100, START_MS)], START_MS + 5_000)
    assert cut(minute, 60_001) == Cut(0), "it was not too old when it arrived"
    assert cut(minute, 65_000) == Cut(10)


@promise("L6")
def test_an_empty_stream() -> None:
    assert start_of(log_of([]), config(retention_ms="0", retention_bytes="0"), START_MS) == 0


@promise("L6")
@given(
    st.lists(st.tuples(st.integers(5, 300), st.integers(0, 100)), max_size=12),
    st.integers(-1, 120),
    st.integers(-1, 2000),
    st.integers(0, 200),
)
def test_against_a_plain_list(entries: list[tuple[int, int]], ms: int, size: int, now: int) -> None:
    log = log_of(entries)
    start = 0
    for i in range(len(entries)):
        gone = entries[: i + 1]
        too_old = ms >= 0 and max(t for _, t in gone) < now - ms
        too_large = size >= 0 and sum(length for length, _ in entries[i + 1 :]) >= size
        if too_old or too_large:
            start = (i + 1) * 10
    assert start_of(log, config(retention_ms=str(ms), retention_bytes=str(size)), now) == start
