"""The state machine as a whole: everybody folds to the same state, from the start and from any checkpoint."""

import asyncio
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.virtual import SeededChance, VirtualClock, run
from headwater.errors import EpochLost, OutcomeUnknown, StoreUnavailable, Truncated
from headwater.ledger.memory import MemoryLedger
from headwater.objects.memory import MemoryStore
from headwater.replica.checkpoint import replay, write_checkpoint
from headwater.replica.replica import Replica
from headwater.state.cluster.state import ClusterState
from headwater.state.commands.base import Fence, SetLevel, TakeLease, Tick
from headwater.state.commands.cluster import (
    AddPartitions,
    AllocateProducers,
    AlterConfigs,
    AlterQuota,
    AlterResource,
    CreateTopic,
    DeleteTopic,
    TakeEpoch,
    TopicGone,
    TopicReady,
)
from headwater.state.commands.holds import HoldVersion, MoveHold, ReleaseVersions, TakeHold
from headwater.state.commands.links import (
    DropLink,
    LinkPhase,
    LinkSpec,
    NoteSourceEnds,
    PutLink,
    SetLinkTopic,
    SetMirror,
    SkipStreams,
)
from headwater.state.commands.schemas import (
    GLOBAL,
    DeleteSchemas,
    RegisterSchema,
    SchemaContent,
    SchemaMode,
    SchemaReference,
    SchemaSettings,
    Seen,
    SetSchemaMode,
    SetSchemaSettings,
)
from headwater.state.commands.streams import (
    AppendUnits,
    AppendWal,
    Chunk,
    ConfigureStreams,
    CreateStreams,
    DropStreams,
    ExpireProducers,
    ForgetObjects,
    MirrorIs,
    StartAt,
    StreamConfig,
    TrimStreams,
    Unit,
    UnitChunk,
)
from headwater.state.machine import LEVEL, LEVELS, State
from headwater.state.records import Command, Record, decode, encode
from headwater.state.streams.domain import HOUSEKEEPING
from headwater.state.streams.state import StreamsState
from headwater.types import Domain, Epoch, Position
from tests.support.faulty import FaultyLedger
from tests.support.promise import promise
from tests.support.scribe import START_MS, TOPIC
from tests.support.soak import examples

PROMISES = ("M1", "M2")

ONE = Domain(1)
EPOCHS = st.integers(1, 4)
STREAMS = st.integers(1, 4)
CONFIGS = st.builds(StreamConfig, st.booleans())
CLOCKS = st.integers(START_MS, START_MS + 200_000)

producers = st.tuples(st.sampled_from([-1, 7, 8]), st.integers(0, 1), st.integers(0, 6))
batches = st.tuples(st.integers(1, 50), st.integers(1, 3), st.integers(-1, 100) | CLOCKS)


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    made = draw(st.lists(batches, min_size=1, max_size=4))
    of = draw(st.just([]) | st.lists(producers, min_size=len(made), max_size=len(made)))
    return Chunk(draw(STREAMS), draw(st.integers(1, 300)), made, of)


@st.composite
def copied(draw: st.DrawFn) -> AppendUnits:
    """A unit of a link, at an offset of its source."""
    stream, made = draw(STREAMS), draw(st.lists(batches, min_size=1, max_size=2))
    unit = Unit(
        [MirrorIs(stream, draw(st.integers(1, 3))), StartAt(stream, draw(st.integers(0, 20)))],
        [UnitChunk(stream, draw(st.integers(1, 300)), made, [], b"")],
    )
    return AppendUnits(draw(st.integers(0, 30)), 1000, draw(CLOCKS), "z", [unit])


stream_commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(AppendWal, st.integers(0, 30), st.just(1000), CLOCKS, st.just("z"), st.lists(chunks(), max_size=3)),
    st.builds(AppendWal, st.integers(0, 30), st.just(1000), CLOCKS, st.just("z"), st.lists(chunks(), max_size=3)),
    st.builds(CreateStreams, st.just(TOPIC), st.integers(0, 2), st.lists(STREAMS, max_size=3).map(tuple), CONFIGS),
    st.builds(ConfigureStreams, st.lists(STREAMS, max_size=3).map(tuple), CONFIGS),
    st.builds(DropStreams, st.lists(STREAMS, max_size=2).map(tuple)),
    st.builds(TrimStreams, st.lists(st.tuples(STREAMS, st.integers(0, 12)), max_size=3)),
    st.builds(ExpireProducers, CLOCKS),
    st.builds(ForgetObjects, st.integers(1, 3), st.lists(st.tuples(EPOCHS, st.integers(0, 30)), max_size=5)),
    st.builds(TakeLease, st.just(HOUSEKEEPING) | st.just("x"), st.integers(1, 100_000)),
    st.builds(Fence, st.integers(3, 6)),
    st.just(Tick()),
    st.just(SetLevel(LEVEL, LEVELS[LEVEL])),
    copied(),
    st.builds(SetMirror, st.lists(STREAMS, max_size=2).map(tuple), st.integers(0, 4), st.booleans()),
    st.builds(
        SkipStreams,
        st.lists(st.tuples(STREAMS, st.integers(1, 3), st.integers(0, 12), st.integers(0, 20)), max_size=2),
    ),
    st.builds(TakeHold),
    st.builds(MoveHold, CLOCKS),
    st.builds(HoldVersion, st.just(TOPIC), st.integers(0, 2)),
    st.builds(ReleaseVersions, st.lists(st.tuples(st.just(TOPIC), st.integers(0, 2)), max_size=2)),
)
topics = st.sampled_from([TOPIC, *(type(TOPIC)(int=i) for i in range(1, 4))])
names = st.sampled_from(["a", "b"])
changes = st.dictionaries(names, st.sampled_from(["1", "2"]), max_size=2)
entities = st.sampled_from([(("user", "u"),), (("client-id", None), ("user", "u")), (("ip", None),)])
seen = st.builds(Seen, st.integers(0, 3), st.integers(0, 2))
subjects = st.sampled_from(["s", "t"])


@st.composite
def registered(draw: st.DrawFn) -> RegisterSchema:
    """A schema, of few, under a subject, of few; some refer to others, some have an id or a version of their own."""
    referred = st.builds(SchemaReference, names, subjects, st.integers(1, 2), st.integers(1, 3))
    references = draw(st.just(()) | st.tuples(referred))
    content = SchemaContent("AVRO", draw(st.sampled_from(["x", "y", "z"])), references, "")
    guid = uuid.uuid5(TOPIC, repr(content))
    own = st.just(0) | st.integers(1, 3)
    return RegisterSchema(draw(subjects), draw(seen), content, guid, draw(own), draw(own))


schema_commands: st.SearchStrategy[Command] = st.one_of(
    registered(),
    registered(),
    st.builds(DeleteSchemas, subjects, seen, st.lists(st.integers(1, 3), max_size=2).map(tuple), st.booleans()),
    st.builds(
        SetSchemaSettings,
        subjects | st.just(GLOBAL),
        seen,
        st.builds(SchemaSettings, st.sampled_from([None, "NONE"]), st.sampled_from([None, True])),
    ),
    st.builds(SetSchemaMode, subjects | st.just(GLOBAL), seen, st.sampled_from([None, *SchemaMode])),
)
cluster_commands: st.SearchStrategy[Command] = st.one_of(
    schema_commands,
    st.builds(CreateTopic, topics, names, st.integers(0, 3), st.just({"k": "v"}), st.just(ONE)),
    st.builds(AddPartitions, topics, st.integers(0, 6)),
    st.builds(TopicReady, topics, st.integers(0, 6)),
    st.builds(DeleteTopic, topics),
    st.builds(TopicGone, topics),
    st.builds(AlterConfigs, topics, st.just({"a": "b"}), st.just(("k",))),
    st.builds(AllocateProducers, st.integers(-1, 10)),
    st.builds(AlterResource, st.sampled_from([4, 32]), names, changes, st.lists(names, max_size=2).map(tuple)),
    st.builds(AlterQuota, entities, changes, st.lists(names, max_size=2).map(tuple)),
    st.builds(
        TakeEpoch,
        process=st.sampled_from(["p", "q", "r"]),
        node=st.integers(-1, 2),
        zone=st.just("z"),
        listeners=st.just(()),
        level=st.just(1),
        build=st.just("b"),
    ),
    st.builds(TakeLease, st.just("x"), st.integers(1, 100_000)),
    st.builds(Fence, st.integers(1, 6)),
    st.just(Tick()),
    st.just(SetLevel(LEVEL, LEVELS[LEVEL])),
    st.builds(
        PutLink,
        st.builds(
            LinkSpec,
            name=names,
            bootstrap=st.just(("h:1",)),
            security=st.just({}),
            topics=st.lists(names, max_size=2).map(tuple),
            patterns=st.just(()),
            groups=st.just(()),
            options=changes,
            paused=st.booleans(),
        ),
        st.integers(0, 4),
    ),
    st.builds(DropLink, names),
    st.builds(
        SetLinkTopic,
        topics,
        names,
        names,
        st.just(TOPIC),
        st.sampled_from(LinkPhase),
        st.just("why"),
        st.integers(0, 6),
    ),
    st.builds(
        NoteSourceEnds,
        topics,
        st.integers(0, 6),
        st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 9)), max_size=3),
    ),
)


def records(commands: st.SearchStrategy[Command], epochs: st.SearchStrategy[int]) -> st.SearchStrategy[list[bytes]]:
    """Records of several writers in any order, some of them late or twice."""
    one = st.builds(Record, epochs, st.integers(1, 25), CLOCKS, CLOCKS, st.lists(commands, min_size=1, max_size=3))
    return st.lists(one.map(encode), max_size=25)


KINDS: dict[str, tuple[Callable[[], State], st.SearchStrategy[list[bytes]]]] = {
    "streams": (lambda: StreamsState(ONE), records(stream_commands, EPOCHS)),
    "cluster": (ClusterState, records(cluster_commands, st.integers(0, 4))),
}


def fold(state: State, ledger: list[bytes]) -> State:
    for position in range(state.position + 1, len(ledger) + 1):
        state.apply(Position(position), decode(ledger[position - 1]))
    return state


def check_streams(state: State) -> None:
    """What must hold of any state, whatever the records were."""
    if not isinstance(state, StreamsState):
        return
    references: dict[object, int] = {}
    for stream in state.streams.values():
        assert 0 <= stream.log_start <= stream.next_offset
        end, size = None, 0
        for entry in stream.index:
            assert entry.start < entry.end
            assert end is None or entry.start == end, "no hole and no overlap"
            assert entry.cumulative_size - entry.length >= size
            end, size = entry.end, entry.cumulative_size
            references[entry.object] = references.get(entry.object, 0) + 1
        if end is None:
            assert stream.log_start == stream.next_offset
        else:
            assert end == stream.next_offset
            assert stream.index[0].start <= stream.log_start < stream.index[0].end
            assert size == stream.size
    assert all(hold.since_ms <= state.clock_ms and not state.is_fenced(epoch) for epoch, hold in state.held)
    counted = {o.id: o.references for o in state.objects if o.references}
    assert counted == references
    assert {o.id for o in state.objects if not o.references} == {object_id for object_id, _ in state.objects.dead()}


@promise("M1")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_replay_from_any_checkpoint_equals_replay_from_the_start(kind: str, data: st.DataObject) -> None:
    """Images are equal, and stay equal when more is applied; every invariant of the index holds on the way."""
    make, strategy = KINDS[kind]
    ledger = data.draw(strategy)
    whole = make()
    images = [whole.image()]
    for position, record in enumerate(ledger, 1):
        whole.apply(Position(position), decode(record))
        images.append(whole.image())
        check_streams(whole)
    cuts = range(len(images)) if len(images) < 8 else data.draw(st.sets(st.integers(0, len(ledger)), max_size=6))
    for cut in cuts:
        restored = make()
        restored.restore(images[cut])
        assert restored.image() == images[cut]
        fold(restored, ledger)
        assert restored.image() == images[-1]
        assert restored.digest == whole.digest


@promise("M1")
@settings(max_examples=examples(100), deadline=None)
@given(records(stream_commands, EPOCHS), st.integers(0, 3), st.data())
def test_repetitions_change_nothing(ledger: list[bytes], times: int, data: st.DataObject) -> None:
    """Repeating records of live epochs, at any later place, leaves streams and objects as they are."""
    once = fold(StreamsState(ONE), ledger)
    assert isinstance(once, StreamsState)
    repeated = list(ledger)
    for _ in range(times if ledger else 0):
        i = data.draw(st.integers(0, len(repeated) - 1))
        repeated.insert(data.draw(st.integers(i + 1, len(repeated))), repeated[i])
    again = fold(StreamsState(ONE), repeated)
    assert isinstance(again, StreamsState)
    heads = [(s.id, s.log_start, s.next_offset, s.index.pack()) for s in once.streams.values()]
    assert [(s.id, s.log_start, s.next_offset, s.index.pack()) for s in again.streams.values()] == heads
    assert again.objects.pack() == once.objects.pack()
    assert again.held.pack() == once.held.pack()
    assert again.digest == once.digest


# --- replicas over a bad way to the ledger ---------------------------------------------------------------

FAULTS = st.sampled_from(
    [
        (True, OutcomeUnknown("the reply was lost")),
        (False, OutcomeUnknown("lost on the way")),
        (False, StoreUnavailable("refused")),
    ]
)
steps = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, 2), stream_commands),
    st.tuples(st.just("submit"), st.integers(0, 2), stream_commands),
    st.tuples(st.just("fault"), st.integers(0, 2), FAULTS),
    st.tuples(st.just("wait"), st.floats(0, 0.5), st.none()),
    st.tuples(st.just("deaf"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("checkpoint"), st.none(), st.none()),
)


@promise("M1", "M2")
@settings(max_examples=examples(100), deadline=None)
@given(st.lists(steps, max_size=40))
def test_replicas_agree(plan: list[tuple[str, object, object]]) -> None:
    """Whatever is submitted where, whatever is lost, whenever the ledger is cut: one state for all."""
    run(_replicas_agree(plan))


async def _replicas_agree(plan: list[tuple[str, object, object]]) -> None:
    ledger, store = MemoryLedger(), MemoryStore()
    ways = [FaultyLedger(ledger) for _ in range(3)]
    replicas = [Replica(way, store, StreamsState(ONE), VirtualClock(), SeededChance(i)) for i, way in enumerate(ways)]
    for i, replica in enumerate(replicas):
        await replica.start()
        replica.join(Epoch(i + 1))
    next_epoch = 10
    calls = []
    for what, where, value in plan:
        if what == "submit":
            assert isinstance(where, int)
            if not replicas[where].epoch:
                replicas[where].join(Epoch(next_epoch))
                next_epoch += 1
            calls.append(replicas[where].enqueue([value]))  # type: ignore[list-item]
        elif what == "fault":
            ways[where].faults.append(value)  # type: ignore[index, arg-type]
        elif what == "deaf":
            ways[where].deaf = value  # type: ignore[index, assignment]
        elif what == "wait":
            await asyncio.sleep(where)  # type: ignore[arg-type]
        else:
            await write_checkpoint(ledger, store, StreamsState(ONE))
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, list | StoreUnavailable | EpochLost), outcome
    late = Replica(ledger, store, StreamsState(ONE), VirtualClock(), SeededChance(9))
    await late.start()
    check_streams(late.state)
    for replica in replicas:
        await replica.barrier()
        assert replica.state.image() == late.state.image()
    for replica in (*replicas, late):
        await replica.close()


@promise("M1")
@settings(max_examples=examples(60), deadline=None)
@given(records(stream_commands, EPOCHS), st.sets(st.integers(1, 25), max_size=6))
def test_a_cut_ledger_serves_a_late_replica(ledger: list[bytes], checkpoints: set[int]) -> None:
    """However often it was cut, who comes late has the state of those who saw every record."""

    async def told() -> None:
        store, kept = MemoryStore(), MemoryLedger()
        for position, record in enumerate(ledger, 1):
            await kept.append(ONE, record)
            if position in checkpoints:
                assert await write_checkpoint(kept, store, StreamsState(ONE))
        late = Replica(kept, store, StreamsState(ONE), VirtualClock(), SeededChance())
        await late.start()
        assert late.state.image() == fold(StreamsState(ONE), ledger).image()
        if len([c for c in checkpoints if c <= len(ledger)]) >= 2:
            with pytest.raises(Truncated):
                await replay(kept, StreamsState(ONE))
        await late.close()

    run(told())
