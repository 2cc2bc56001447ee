"""Transactions of both generations against a plain model, every command at every phase and twice."""

from __future__ import annotations

import uuid
from collections import deque
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headwater.state.commands.base import SetLevel, TakeLease, Tick
from headwater.state.commands.groups import ClaimShard, CommitOffsets, DropGroup, DropOffsets
from headwater.state.commands.streams import (
    AppendUnits,
    CreateStreams,
    DropStreams,
    ExpireProducers,
    Mode,
    StreamConfig,
    TrimStreams,
    Unit,
    UnitChunk,
)
from headwater.state.commands.tables import NewFile, Release, Reserve, SegmentRun, SettleRuns
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    ForgetTransactions,
    InitTransaction,
    JoinTransaction,
    StageOffsets,
)
from headwater.state.machine import LEVEL
from headwater.state.records import Command, decode
from headwater.state.results import Appended, Done, Judgement, Reason, Refused, Result, Transacted, Verdict
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.index import MARKER_BYTES
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import shard_of
from headwater.types import Domain, Position
from tests.support.scribe import FIRST_CHUNK, PREFIX, START_MS, Scribe
from tests.support.soak import examples
from tests.unit.state.streams.transactions_model import LAST, WORDS, Answer, Item, Log, Model, Place

PROMISES = ("K12", "M1")

BROKERS = (1, 2)
COMPACTOR = 9
IDS = ("a", "b", "c")
GROUPS = ("g", "h")
PLACES: list[Place] = [(uuid.UUID(int=70), 0), (uuid.UUID(int=70), 1), (uuid.UUID(int=71), 0)]
PLAIN = 900
"""The id of an idempotent producer without transactions."""
HOUR_MS = 3_600_000
LATE = 12
"""So many of the last requests may arrive again."""
Batch = tuple[int, int, tuple[int, int, int]]
"""Mode, records, and (producer id, epoch, first sequence)."""

ids = st.sampled_from(IDS)
brokers = st.sampled_from(BROKERS)
picks = st.integers(0, 11)
groups = st.sampled_from(GROUPS)
some_groups = st.lists(groups, max_size=2, unique=True).map(tuple)
offsets = st.dictionaries(st.sampled_from(PLACES), st.integers(0, 99), max_size=2)


class Transacting(RuleBasedStateMachine):
    """Sends commands through two brokers. Each rule tells the state and the model the same."""

    @initialize(epochs=st.tuples(*[st.sampled_from([0, LAST - 2, LAST - 1, LAST])] * len(IDS)))
    def begin(self, epochs: tuple[int, ...]) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.model = Model()
        self.now = self.model.now = START_MS
        self.last_stream, self.last_producer, self.sequence = 0, 1_000, 0
        self.seen: dict[str, list[tuple[int, int]]] = {name: [] for name in IDS}
        """Producer ids and epochs that a client of an id had at some time, oldest first."""
        self.stable: dict[int, int] = {}
        self.claims: dict[str, tuple[int, int]] = {}
        self.reserved: dict[int, tuple[int, int, int, int]] = {}
        self.sent: deque[tuple[str, Any] | tuple[int, list[Batch]]] = deque(maxlen=LATE)
        """The last requests: of an id, or batches for a stream."""
        for broker in (*BROKERS, COMPACTOR):
            self.do(broker, SetLevel(LEVEL, "x"))
        for _ in range(3):
            self.create()
        for group in GROUPS:
            self.claim(group, BROKERS[0])
        lease = self.do(COMPACTOR, TakeLease(COMPACTION, 1 << 40))
        assert isinstance(lease, Done)
        self.lease = lease.value
        for name, epoch in zip(IDS, epochs, strict=True):
            self.told(name, self.init_command(name, (-1, -1)), 1)
            self.state.transactions.get(name).epoch = self.model.ids[name].epoch = epoch  # type: ignore[union-attr]
            self.seen[name].append((self.model.ids[name].producer, epoch))
        self.base = self.state.image()
        self.scribe.records.clear()

    # --- telling both ----------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    def do(self, broker: int, command: Command) -> Result:
        self.now += 10
        self.model.now = self.now
        return self.scribe.do(broker, command, self.now)

    def fresh(self) -> int:
        self.last_producer += 1 << 32
        return self.last_producer

    def told(self, name: str, command: Any, broker: int) -> Answer:
        """Send a transactional command and compare the answer with the model's."""
        self.sent.append((name, command))
        result = self.do(broker, command)
        assert isinstance(result, Transacted), result
        answer = result.judgement, result.producer, result.epoch
        model = self.model
        if isinstance(command, InitTransaction):
            wanted = model.init(command)
        elif isinstance(command, JoinTransaction):
            wanted = model.join(command)
        elif isinstance(command, StageOffsets):
            wanted = model.stage(command, self.claims[command.group] == (broker, command.claim))
        elif isinstance(command, EndTransaction):
            wanted = model.end(command)
        else:
            wanted = model.abort(command)
        assert answer == wanted, f"{command} of {name}: {result.judgement.name}, not {wanted}"
        if answer[0] is Judgement.DONE and answer[1:] not in self.seen[name]:
            self.seen[name].append(answer[1:])
        return answer

    def who(self, name: str, pick: int) -> tuple[int, int]:
        """Mostly what is current, else what was, or what another id has. What is current may have to be asked for."""
        if pick < 8:
            if name not in self.model.ids:
                self.told(name, self.init_command(name, (-1, -1)), BROKERS[0])
            found = self.model.ids[name]
            return found.producer, found.epoch
        every = [pair for pairs in self.seen.values() for pair in pairs]
        known = self.seen[name] if pick < 10 else every
        return known[-1 - pick % len(known)] if known else (77, 0)

    def current(self, name: str) -> tuple[int, int] | None:
        found = self.model.ids.get(name)
        return (found.producer, found.epoch) if found is not None else None

    # --- transactions ----------------------------------------------------------------------------------

    def init_command(self, name: str, expected: tuple[int, int]) -> InitTransaction:
        return InitTransaction(name, 60_000, self.fresh(), *expected)

    @rule(name=ids, broker=brokers, pick=picks, expects=st.booleans())
    def init(self, name: str, broker: int, pick: int, expects: bool) -> None:
        command = self.init_command(name, self.who(name, pick) if expects else (-1, -1))
        known = name in self.model.ids
        first = self.told(name, command, broker)
        again = self.told(
            name, self.init_command(name, (command.expected_producer, command.expected_epoch)), 3 - broker
        )
        if expects and known:
            assert again == first, "an init that names its epoch can be repeated"
        elif first[0] is again[0] is Judgement.DONE and not expects:
            assert again != first, "one that does not takes over"

    @rule(name=ids, broker=brokers, pick=picks, count=st.integers(0, 3), of=some_groups, gone=st.integers(0, 15))
    def join(self, name: str, broker: int, pick: int, count: int, of: tuple[str, ...], gone: int) -> None:
        streams = tuple(self.model.logs)[:count] + ((9_999,) if not gone else ())
        command = JoinTransaction(name, *self.who(name, pick), streams, of)
        assert self.told(name, command, broker) == self.told(name, command, 3 - broker)

    @rule(name=ids, pick=picks, group=groups, joins=st.booleans(), offsets=offsets, stale=st.integers(0, 9))
    def stage(self, name: str, pick: int, group: str, joins: bool, offsets: dict[Place, int], stale: int) -> None:
        holder, number = self.claims[group]
        entered = [(topic.bytes, partition, offset, -1, "") for (topic, partition), offset in offsets.items()]
        command = StageOffsets(number - (not stale), group, name, *self.who(name, pick), joins, entered)
        first = self.told(name, command, holder)
        self.claim(group, 3 - holder)
        if stale:
            moved = StageOffsets(self.claims[group][1], group, name, command.producer, command.epoch, joins, entered)
            assert self.told(name, moved, 3 - holder) == first, "also through the next coordinator"

    @rule(name=ids, broker=brokers, pick=picks, commit=st.booleans(), bump=st.booleans())
    def end(self, name: str, broker: int, pick: int, commit: bool, bump: bool) -> None:
        command = EndTransaction(name, *self.who(name, pick), commit, bump, self.fresh())
        first = self.told(name, command, broker)
        lengths = {stream: len(log.items) for stream, log in self.model.logs.items()}
        again = EndTransaction(name, command.producer, command.epoch, commit, bump, self.fresh())
        assert self.told(name, again, 3 - broker) == first, "an end can be repeated"
        assert lengths == {stream: len(log.items) for stream, log in self.model.logs.items()}, "and does nothing then"

    @rule(name=ids, broker=brokers, pick=picks, behind=st.integers(0, 3))
    def time_out(self, name: str, broker: int, pick: int, behind: int) -> None:
        found = self.model.ids.get(name)
        number = (found.number if found is not None else 0) - max(0, behind - 1)
        command = AbortTransaction(name, number, *self.who(name, pick), self.fresh())
        first = self.told(name, command, broker)
        again = self.told(name, command, 3 - broker)
        assert again == first or (first[0] is Judgement.DONE and again[0] is not Judgement.DONE), "one transaction each"

    @rule(
        name=ids,
        broker=brokers,
        places=st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True),
        count=st.integers(1, 3),
        offsets=offsets,
        outcome=st.sampled_from(["commit", "abort", "time out", "open"]),
        bump=st.booleans(),
        late=st.booleans(),
    )
    def transact(
        self,
        name: str,
        broker: int,
        places: list[int],
        count: int,
        offsets: dict[Place, int],
        outcome: str,
        bump: bool,
        late: bool,
    ) -> None:
        """A transaction in the right order. If one was open, it goes on. It may stay open."""
        for place in places:
            self.produce(name, broker, 0, 0, place, Mode.JOINS, [count], False)
        if late:
            self.meet_the_past(name, broker)
        if offsets:
            self.stage(name, 0, GROUPS[0], True, offsets, 1)
        if outcome == "time out":
            self.time_out(name, broker, 0, 0)
        elif outcome != "open":
            self.end(name, broker, 0, outcome == "commit", bump)

    def meet_the_past(self, name: str, broker: int) -> None:
        """Requests that an earlier producer or transaction of the id sent reach the one that is open."""
        for whose, what in list(self.sent):
            if whose == name and isinstance(what, EndTransaction | JoinTransaction):
                self.send_again(whose, what, broker)
        self.time_out(name, broker, 0, behind=2)
        for producer, epoch in self.seen[name][-3:-1]:
            self.told(name, self.init_command(name, (producer, epoch)), broker)
            self.told(name, EndTransaction(name, producer, epoch, broker == 1, True, self.fresh()), broker)

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, LATE - 1), broker=brokers)
    def arrive_late(self, pick: int, broker: int) -> None:
        """One of the last requests arrives again, by another way."""
        self.send_again(*self.sent[-1 - pick % len(self.sent)], broker)

    def send_again(self, whose: str | int, what: Any, broker: int) -> None:
        """Send a request a second time: batches for a stream, or a command of an id."""
        if isinstance(whose, int):
            self.append(broker, whose, what)
        else:  # a broker brings a fresh producer id of its own
            renewed = msgspec.structs.replace(what, fresh=self.fresh()) if hasattr(what, "fresh") else what
            self.told(whose, renewed, broker)

    @rule(age=st.sampled_from([0, 100, HOUR_MS, HOUR_MS]))
    def forget(self, age: int) -> None:
        result = self.do(1, ForgetTransactions(self.now - age))
        assert result == Done(self.model.forget(self.now - 10 - age))
        assert self.do(2, ForgetTransactions(self.now - age - 10)) == Done(0)

    # --- records ---------------------------------------------------------------------------------------

    def sequence_of(self, stream: int, pid: int, epoch: int, pick: int, count: int) -> tuple[int, int]:
        """The next sequence and a count, or those of an earlier batch, or a gap."""
        log = self.model.logs.get(stream)
        known = log.known.get(pid) if log is not None else None
        if known is None or known.epoch != epoch:
            return (5 if pick == 11 else 0), count
        if pick in (8, 9):
            first, last, _ = known.batches[pick % len(known.batches)]
            return first, last - first + 1
        return known.batches[-1][1] + 1 + 3 * (pick == 11), count

    def append(self, broker: int, stream: int, batches: list[Batch]) -> list[Any]:
        """Append batches of (mode, count, producer) and compare the verdicts."""
        self.sent.append((stream, batches))
        self.sequence += 1
        made = [(50, count, self.now % 1_000 + i) for i, (_, count, _) in enumerate(batches)]
        chunk = UnitChunk(stream, FIRST_CHUNK, made, [who for *_, who in batches], bytes(mode for mode, *_ in batches))
        size = FIRST_CHUNK + len(made) * (50 + PREFIX)
        result = self.do(broker, AppendUnits(self.sequence, size, START_MS, "z", [Unit([], [chunk])]))
        assert isinstance(result, Appended), result
        [found] = result.chunks
        stamped = self.now if self.appends_time(stream) else None
        wanted = [
            self.model.take(stream, mode, who, count, stamped if stamped is not None else stamp)
            for (mode, count, who), (_, _, stamp) in zip(batches, made, strict=True)
        ]
        verdicts = found.verdicts
        if verdicts is None:
            verdicts = []
            offset = found.first_offset
            for _, count, _ in batches:
                verdicts.append((Verdict.ACCEPTED, offset))
                offset += count
        assert [(WORDS[verdict], at) for verdict, at in verdicts] == wanted
        return wanted

    def appends_time(self, stream: int) -> bool:
        return stream % 3 == 0

    @rule(
        name=ids,
        broker=brokers,
        pick=picks,
        at=picks,
        place=st.integers(0, 3),
        mode=st.sampled_from([Mode.JOINED, Mode.JOINS, Mode.JOINS, Mode.PLAIN]),
        counts=st.lists(st.integers(1, 3), min_size=1, max_size=3),
        beside=st.booleans(),
    )
    def produce(
        self, name: str, broker: int, pick: int, at: int, place: int, mode: Mode, counts: list[int], beside: bool
    ) -> None:
        """Batches of a transactional producer, perhaps with one of a plain producer between them."""
        pid, epoch = self.who(name, pick)
        streams = [*self.model.logs, 9_999]
        stream = streams[place % len(streams)]
        first, count = self.sequence_of(stream, pid, epoch, at, counts[0])
        batches = [(int(mode), count, (pid, epoch, first))]
        for more in counts[1:]:
            first, count = first + count, more
            batches.append((int(mode), count, (pid, epoch, first)))
        if beside:
            batches.insert(1, (int(Mode.PLAIN), 1, (-1, -1, -1)))
        told = self.append(broker, stream, batches)
        transactional = [pair for pair in zip(batches, told, strict=True) if pair[0][2][0] >= 0]
        again = self.append(3 - broker, stream, [batch for batch, _ in transactional])
        for (_, before), after in zip(transactional, again, strict=True):
            assert after == (("duplicate", before[1]) if before[0] == "accepted" else before), "a batch can be repeated"

    @rule(broker=brokers, place=st.integers(0, 3), at=picks, count=st.integers(1, 3), idempotent=st.booleans())
    def produce_plainly(self, broker: int, place: int, at: int, count: int, idempotent: bool) -> None:
        streams = list(self.model.logs) or [9_999]
        stream = streams[place % len(streams)]
        first, count = self.sequence_of(stream, PLAIN, 0, at, count)
        who = (PLAIN, 0, first) if idempotent else (-1, -1, -1)
        self.append(broker, stream, [(int(Mode.PLAIN), count, who)])

    @rule(age=st.sampled_from([0, 100, HOUR_MS]))
    def expire(self, age: int) -> None:
        before = self.now - age
        assert self.do(1, ExpireProducers(before)) == Done(self.model.expire(before))

    # --- streams ---------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.logs) < 3)
    @rule()
    def create(self) -> None:
        self.last_stream += 1
        name = self.last_stream
        topic = uuid.UUID(int=100 + name)
        self.do(1, CreateStreams(topic, 0, (name,), StreamConfig(self.appends_time(name))))
        self.model.logs[name] = Log()

    @rule(place=st.integers(0, 19))
    def drop(self, place: int) -> None:
        if place < len(self.model.logs):
            name = list(self.model.logs)[place]
            self.do(1, DropStreams((name,)))
            self.model.drop(name)
            self.stable.pop(name, None)
            self.reserved = {number: found for number, found in self.reserved.items() if found[1] != name}

    @rule(place=st.integers(0, 2), part=st.integers(0, 8))
    def trim(self, place: int, part: int) -> None:
        if place < len(self.model.logs):
            name, log = list(self.model.logs.items())[place]
            start = log.start + (len(log.items) - log.start) * part // 7
            self.do(1, TrimStreams([(name, start)]))
            self.model.trim(name, start)

    @rule(place=st.integers(0, 2), count=st.integers(1, 3), broker=brokers)
    def reserve(self, place: int, count: int, broker: int) -> None:
        if place < len(self.model.logs) and len(self.reserved) < 3:
            name, log = list(self.model.logs.items())[place]
            result = self.do(broker, Reserve(uuid.UUID(int=100 + name), [(name, count)], HOUR_MS))
            assert isinstance(result, Done), result
            self.reserved[result.value] = (broker, name, len(log.items), count)
            log.items += [Item("reserved") for _ in range(count)]

    @rule(pick=picks)
    def release(self, pick: int) -> None:
        if self.reserved:
            number = list(self.reserved)[pick % len(self.reserved)]
            owner, name, start, count = self.reserved.pop(number)
            assert self.do(owner, Release(number)) == Done()
            log = self.model.logs[name]
            log.items[start : start + count] = [Item("gap") for _ in range(count)]
            log.advance()

    @rule(place=st.integers(0, 2), most=st.integers(1, 6), parts=st.integers(1, 2), beyond=st.booleans())
    def settle(self, place: int, most: int, parts: int, beyond: bool) -> None:
        """Settle what lies below the stable offset without what was aborted, or try to settle more."""
        if place >= len(self.model.logs):
            return
        name, log = list(self.model.logs.items())[place]
        stream = self.state.streams[name]
        stable = self.model.stable(name)
        entries = []
        for i in range(stream.index.find(log.settled), len(stream.index)):
            entry = stream.index[i]
            if not entry.unsettled or len(entries) == most or (entry.end > stable and not beyond):
                break
            entries.append(entry)
        if not entries:
            return
        cuts = [entries] if parts == 1 or len(entries) == 1 else [entries[:1], entries[1:]]
        runs, newest, files, start = [], [], [], log.settled
        for cut in cuts:
            end = cut[-1].end
            left = [i for i in range(start, end) if i >= stable or self.model.visible(name, i)]
            newest.append(max((log.items[i].stamp for i in left), default=-1))
            runs.append(SegmentRun(name, start, end, len(files) if left else -1, 0, 1 if left else 0))
            if left:
                files.append(NewFile(f"f{self.now}-{start}", 10, len(left), 1, 0, 0, start, end, 0, 9, 0, 7))
            start = end
        command = SettleRuns(self.lease, uuid.UUID(int=100 + name), f"root-{name}", files, runs, newest)
        result = self.do(COMPACTOR, command)
        if start > stable:
            assert isinstance(result, Refused) and result.reason is Reason.STALE
        else:
            assert isinstance(result, Done), result
            log.settled = start
            log.advance()

    # --- groups ----------------------------------------------------------------------------------------

    @rule(group=groups, broker=brokers)
    def claim(self, group: str, broker: int) -> None:
        result = self.do(broker, ClaimShard(shard_of(group)))
        assert isinstance(result, Done)
        self.claims[group] = broker, result.value

    @rule(group=groups, offsets=offsets)
    def commit_plainly(self, group: str, offsets: dict[Place, int]) -> None:
        holder, number = self.claims[group]
        entered = [(topic.bytes, partition, offset, -1, "") for (topic, partition), offset in offsets.items()]
        assert self.do(holder, CommitOffsets(number, group, entered)) == Done()
        self.model.committed.setdefault(group, {}).update(offsets)
        self.model.withdraw(group, list(offsets))

    @rule(group=groups, places=st.lists(st.sampled_from(PLACES), max_size=2, unique=True))
    def drop_offsets(self, group: str, places: list[Place]) -> None:
        holder, number = self.claims[group]
        known = self.model.committed.get(group, {})
        gone = sum(known.pop(place, None) is not None for place in places)
        result = self.do(holder, DropOffsets(number, group, [(topic.bytes, p) for topic, p in places]))
        assert result == Done(gone)
        self.model.withdraw(group, places)

    @rule(group=groups, rarely=st.integers(0, 3))
    def drop_group(self, group: str, rarely: int) -> None:
        if not rarely:
            holder, number = self.claims[group]
            result = self.do(holder, DropGroup(number, group))
            assert (result == Done()) == self.model.drop_group(group)

    # --- time and checkpoints --------------------------------------------------------------------------

    @rule(ms=st.integers(1, HOUR_MS))
    def wait(self, ms: int) -> None:
        self.now += ms
        for broker in (*BROKERS, COMPACTOR):
            self.do(broker, Tick())

    @rule()
    def restart(self) -> None:
        """Go on from a checkpoint."""
        restored = StreamsState(Domain(1))
        restored.restore(self.state.image())
        self.scribe.state = restored

    def teardown(self) -> None:
        """Replay equals the state, in which checkpoints were restored on the way."""
        if hasattr(self, "base"):
            replayed = StreamsState(Domain(1))
            replayed.restore(self.base)
            for record in self.scribe.records:
                replayed.apply(Position(replayed.position + 1), decode(record))
            assert (replayed.image(), replayed.digest) == (self.state.image(), self.state.digest)

    # --- what must hold --------------------------------------------------------------------------------

    @invariant()
    def ids_agree(self) -> None:
        transactions, model = self.state.transactions, self.model
        assert {found.id for found in transactions} == model.ids.keys()
        for name, wanted in model.ids.items():
            found = transactions.get(name)
            assert found is not None and transactions.of_producer(wanted.producer) is found
            assert (found.producer, found.epoch, found.number) == (wanted.producer, wanted.epoch, wanted.number)
            assert found.phase.name.lower() == wanted.phase
            assert list(found.streams) == wanted.streams
            staged = {group: {at: o.offset for at, o in places.items()} for group, places in found.groups.items()}
            assert staged == wanted.groups
            assert 0 <= found.epoch <= LAST
        opened = {name for name, found in model.ids.items() if found.phase == "open"}
        assert {found.id for found in transactions.opened()} == opened
        for group in GROUPS:
            by_group = {name for name, found in model.ids.items() if group in found.groups}
            assert {found.id for found in transactions.staging(group)} == by_group
            for place in PLACES:
                staged_now = any(place in found.groups.get(group, {}) for found in model.ids.values())
                assert transactions.is_staged(group, *place) == staged_now

    @invariant()
    def offsets_agree(self) -> None:
        assert {group.name for group in self.state.groups} == self.model.committed.keys()
        for group in self.state.groups:
            found = {(topic, p): at.offset for topic, places in group.offsets.items() for p, at in places.items()}
            assert found == self.model.committed[group.name]
            assert group.count == len(found)

    @invariant()
    def streams_agree(self) -> None:
        assert self.state.streams.keys() == self.model.logs.keys()
        for name, log in self.model.logs.items():
            stream = self.state.streams[name]
            assert (stream.log_start, stream.next_offset, stream.end) == (log.start, len(log.items), log.end)
            assert stream.settled == log.settled
            assert stream.running == self.model.running(name)
            assert list(stream.running.values()) == sorted(stream.running.values())
            assert stream.stable == self.model.stable(name)
            assert stream.stable >= self.stable.get(name, 0), "a stable offset never falls"
            self.stable[name] = stream.stable
            self.entries_agree(name, log)
            self.readers_agree(name, log)

    def entries_agree(self, name: int, log: Log) -> None:
        """Entries are dense, markers are where they should be, and running maxima leave markers out."""
        stream = self.state.streams[name]
        at, size, running = None, 0, None
        for entry in stream.index:
            assert at is None or entry.start == at
            assert entry.cumulative_size - entry.length >= size
            at, size = entry.end, entry.cumulative_size
            items = log.items[entry.start : entry.end]
            if entry.marker:
                [item] = items
                wanted = ("marker", entry.producer, entry.producer_epoch, entry.commits)
                assert (item.kind, item.producer, item.epoch, item.commit) == wanted
                assert entry.length == MARKER_BYTES and not entry.in_wal and not entry.settled
                counted = -1
            else:
                counted = entry.max_timestamp
                if entry.in_wal:
                    assert {item.kind for item in items} == {"data"}
                    assert counted == max(item.stamp for item in items)
                elif entry.file:
                    left = [i for i in range(max(entry.start, log.start), entry.end) if self.model.visible(name, i)]
                    assert counted >= max((log.items[i].stamp for i in left), default=-1)
            running = counted if running is None else max(running, counted)
            assert entry.running_max_timestamp == running
        assert (at, size) == (len(log.items), stream.size) if at is not None else log.start == len(log.items)
        marked = {at for at, item in enumerate(log.items) if item.kind == "marker" and at >= log.settled}
        assert {entry.start for entry in stream.index if entry.marker} == marked

    def readers_agree(self, name: int, log: Log) -> None:
        """A reader of committed records sees what was committed, from wherever it reads."""
        stream, stable = self.state.streams[name], self.model.stable(name)
        begin = max(log.start, log.settled)
        for offset in range(begin, stable):
            for bound in (offset + 1, (offset + stable + 1) // 2, stable):
                found = [(a.producer, a.first, a.marker) for a in stream.aborted.between(offset, bound)]
                assert found == [a for a in log.aborted if a[2] >= offset and a[1] < bound]
            hidden = {i for pid, first, marker in found for i in range(first, marker) if log.items[i].producer == pid}
            for i in range(offset, stable):
                if log.items[i].kind == "data":
                    assert (i not in hidden) == self.model.visible(name, i)

    @invariant()
    def checkpoints_agree(self) -> None:
        image = self.state.image()
        restored = StreamsState(Domain(1))
        restored.restore(image)
        assert restored.image() == image


Transacting.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
test_transactions_are_as_the_model = Transacting.TestCase
