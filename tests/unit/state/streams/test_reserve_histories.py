"""Whatever comes between a reservation and its end, index, heads and tables stay sound, and replay agrees."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.app.doctor.examining import check_references, check_reservations, check_stream
from headwater.app.doctor.report import Report
from headwater.app.doctor.tables import check_tables
from headwater.lake.planning import pending
from headwater.state.commands.base import Fence, TakeLease, Tick
from headwater.state.commands.streams import DropStreams, TrimStreams
from headwater.state.commands.tables import Fill, NewFile, Release, Reserve, SegmentRun, Settle
from headwater.state.records import decode
from headwater.state.results import Done, Refused, Result
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Position
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC, Scribe

PROMISES = ("L8", "M1")

STREAMS = (1, 2, 3)
LIMIT = 1_000
ROOT = "tables/t"

numbers = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("append"), numbers, numbers),
    st.tuples(st.just("append"), numbers, numbers),
    st.tuples(st.just("reserve"), numbers, numbers),
    st.tuples(st.just("fill"), numbers, numbers),
    st.tuples(st.just("fill"), numbers, numbers),
    st.tuples(st.just("release"), numbers, numbers),
    st.tuples(st.just("settle"), numbers, numbers),
    st.tuples(st.just("trim"), numbers, numbers),
    st.tuples(st.just("wait"), numbers, numbers),
    st.tuples(st.sampled_from(["fence", "drop"]), numbers, numbers),
)


class History:
    """Takes numbers for choices, so that most of what it does fits the state."""

    def __init__(self) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.scribe.streams(*STREAMS)
        self.now = START_MS
        self.loader = 10
        self.files = 0
        self.ends: dict[int, int] = {}
        self.given: dict[int, int] = {}

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    def file(self, rows: int, groups: int) -> NewFile:
        self.files += 1
        return NewFile(f"_data/{self.files}", 100 * self.files, rows, groups, 0, 2, 0, 99, 1, 1_000, 0, 7)

    def append(self, a: int, b: int) -> None:
        stream = STREAMS[a % 3]
        if stream in self.state.streams:
            first = self.scribe.append(1, stream, [(50 + a, b + 1, a * b)], clock_ms=self.now).first_offset
            assert first == self.given.get(stream, 0), "no offset is given twice, and none is left out"

    def reserve(self, a: int, b: int) -> Result:
        parts = [(s, 1 + (a + s) % 4) for s in STREAMS if b >> (s - 1) & 1]
        return self.scribe.do(self.loader, Reserve(TOPIC, parts, LIMIT), self.now)

    def fill(self, a: int, b: int) -> Result | None:
        if not self.state.reservations:
            return None
        found = list(self.state.reservations.values())[a % len(self.state.reservations)]
        runs = []
        for name, start, end in found.parts:
            middle = start + (end - start) * b // 7
            for first, last in ((start, middle), (middle, end)):
                if first < last:
                    runs.append(SegmentRun(name, first, last, 0, len(runs), 1))
        file = self.file(sum(run.end - run.start for run in runs), len(runs))
        times = [(a * b + i) % 900 for i in range(len(runs))]
        late, was_owner = found.expired(self.now), found.owner == self.loader
        result = self.scribe.do(self.loader, Fill(found.number, ROOT, [file], runs, times), self.now)
        assert isinstance(result, Refused) or (was_owner and not late)
        return result

    def release(self, a: int, b: int) -> Result | None:
        if not self.state.reservations:
            return None
        number = list(self.state.reservations)[a % len(self.state.reservations)]
        return self.scribe.do(self.loader if b % 2 else 1, Release(number), self.now)

    def settle(self, a: int, b: int) -> Result | None:
        runs = []
        for name, stream in self.state.streams.items():
            entries = list(pending(self.state, stream))[: 1 + b % 3]
            if entries and a >> (name - 1) & 1:
                runs.append(SegmentRun(name, max(entries[0].start, stream.settled), entries[-1].end, 0, len(runs), 1))
        lease = self.scribe.do(20, TakeLease(COMPACTION, 1 << 40), self.now)
        assert isinstance(lease, Done)
        if not runs:
            return None
        file = self.file(sum(run.end - run.start for run in runs), len(runs))
        result = self.scribe.do(20, Settle(lease.value, TOPIC, ROOT, [file], runs), self.now)
        table = self.state.tables.get(TOPIC)
        assert isinstance(result, Done) or (table is not None and table.dropped), result
        return result

    def trim(self, a: int, b: int) -> Result | None:
        stream = self.state.streams.get(STREAMS[a % 3])
        if stream is None:
            return None
        start = stream.log_start + (stream.next_offset - stream.log_start) * b // 7
        return self.scribe.do(1, TrimStreams([(int(stream.id), start)]), self.now)

    def wait(self, a: int, b: int) -> Result:
        self.now += a * b * 40
        return self.scribe.do(1, Tick(), self.now)

    def fence(self, a: int, b: int) -> Result | None:
        if a:
            return None
        self.loader += 1
        return self.scribe.do(1, Fence(self.loader - 1), self.now)

    def drop(self, a: int, b: int) -> Result | None:
        return self.scribe.do(1, DropStreams((STREAMS[b % 3],)), self.now) if a == 0 else None

    def check(self) -> None:
        report, state = Report(), self.state
        for name, stream in state.streams.items():
            check_stream(stream, report)
            assert stream.log_start <= stream.end <= stream.next_offset
            assert stream.settled <= stream.end
            assert stream.end >= self.ends.get(name, 0), "what was told never goes back"
            assert stream.next_offset >= self.given.get(name, 0)
            self.ends[name], self.given[name] = stream.end, stream.next_offset
        check_references(state, report)
        check_reservations(state, report)
        check_tables(state, report)
        assert report.findings == []
        table = state.tables.get(TOPIC)
        ends = dict(end for entry in table.journal for end in entry.ends) if table is not None else {}
        for stream in state.streams.values():
            told = ends.get(stream.partition, 0)
            assert told <= stream.settled
            assert not any(e.file and told < e.end <= stream.settled for e in stream.index), "the journal tells of it"


@promise("L8", "M1")
@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40), st.integers(0, 60))
def test_any_order(plan: list[tuple[str, int, int]], cut: int) -> None:
    history = History()
    images = [history.state.image()]
    for what, a, b in plan:
        act: Callable[[int, int], object] = getattr(history, what)
        act(a, b)
        history.check()
        images.append(history.state.image())
    image = images[min(cut, len(images) - 1)]
    for start in (None, image):
        again = StreamsState(Domain(1))
        if start is not None:
            again.restore(start)
        for position in range(again.position, len(history.scribe.records)):
            again.apply(Position(position + 1), decode(history.scribe.records[position]))
        assert again.image() == images[-1]
        assert again.digest == history.state.digest
