"""What `apply` promises about transactions, one test a promise. Histories are in `test_transactions_histories`."""

import uuid

import pytest

from headwater.state.commands.base import SetLevel, TakeLease
from headwater.state.commands.groups import ClaimShard, CommitOffsets, DropGroup
from headwater.state.commands.streams import AppendUnits, DropStreams, Mode, TrimStreams, Unit, UnitChunk
from headwater.state.commands.tables import NewFile, SegmentRun, SettleRuns
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
from headwater.state.streams import offsets, transactions
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.groups import MAX_NAME, shard_of
from headwater.state.streams.stored.transactions import LAST_EPOCH, MAX_ID, Ended, Phase, Transaction
from headwater.state.streams.stream import Stream
from headwater.types import Domain, Position
from tests.support.scribe import FIRST_CHUNK, PREFIX, START_MS, TOPIC, Scribe

PROMISES = ("K12",)

A, B = 1, 2
ID = "orders"
GROUP = "g"
PLACE = uuid.UUID(int=70)
ONE, TWO = 1, 2
"""Epochs of two brokers."""
FRESH = 5_000
"""The producer id that is taken when epochs are used up."""


class Story:
    """Two streams, a group, and a transactional id with producer id 100 and epoch 0."""

    def __init__(self, epoch: int = 0) -> None:
        self.scribe = Scribe(StreamsState(Domain(1)))
        self.do(SetLevel(LEVEL, "x"))
        self.scribe.streams(A, B)
        self.claim = self.do(ClaimShard(shard_of(GROUP)))
        self.sequence = 0
        assert self.init(fresh=100) == (Judgement.DONE, 100, 0)
        self.id.epoch = epoch
        self.pid, self.epoch = 100, epoch

    @property
    def state(self) -> StreamsState:
        assert isinstance(self.scribe.state, StreamsState)
        return self.scribe.state

    @property
    def id(self) -> Transaction:
        found = self.state.transactions.get(ID)
        assert found is not None
        return found

    def stream(self, name: int = A) -> Stream:
        return self.state.streams[name]

    def do(self, command: Command, broker: int = ONE) -> Result:
        return self.scribe.do(broker, command)

    def told(self, command: Command, broker: int = ONE) -> tuple[Judgement, int, int]:
        result = self.do(command, broker)
        assert isinstance(result, Transacted), result
        return result.judgement, result.producer, result.epoch

    def init(
        self, expected: tuple[int, int] = (-1, -1), fresh: int = FRESH, id: str = ID
    ) -> tuple[Judgement, int, int]:
        return self.told(InitTransaction(id, 1_000, fresh, *expected))

    def join(self, *streams: int, groups: tuple[str, ...] = (), epoch: int | None = None) -> Judgement:
        at = self.epoch if epoch is None else epoch
        return self.told(JoinTransaction(ID, self.pid, at, streams, groups))[0]

    def stage(self, *placed: tuple[int, int], joins: bool = True, group: str = GROUP) -> Judgement:
        assert isinstance(self.claim, Done)
        entered = [(PLACE.bytes, partition, offset, -1, "") for partition, offset in placed]
        return self.told(StageOffsets(self.claim.value, group, ID, self.pid, self.epoch, joins, entered))[0]

    def commit_plainly(self, *placed: tuple[int, int]) -> Result:
        assert isinstance(self.claim, Done)
        entered = [(PLACE.bytes, partition, offset, -1, "") for partition, offset in placed]
        return self.do(CommitOffsets(self.claim.value, GROUP, entered))

    def committed(self) -> dict[int, int] | None:
        group = self.state.groups.get(GROUP)
        return None if group is None else {p: at.offset for p, at in group.offsets.get(PLACE, {}).items()}

    def send(
        self, stream: int = A, *, first: int = 0, count: int = 1, mode: Mode = Mode.JOINS, epoch: int | None = None
    ) -> Verdict:
        self.sequence += 1
        who = (self.pid, self.epoch if epoch is None else epoch, first)
        chunk = UnitChunk(stream, FIRST_CHUNK, [(50, count, 7)], [who], bytes([mode]))
        size = FIRST_CHUNK + 50 + PREFIX
        result = self.do(AppendUnits(self.sequence, size, START_MS, "z", [Unit([], [chunk])]))
        assert isinstance(result, Appended)
        verdicts = result.chunks[0].verdicts
        return verdicts[0][0] if verdicts else Verdict.ACCEPTED

    def end(
        self, commit: bool = True, bump: bool = True, epoch: int | None = None, fresh: int = FRESH, broker: int = ONE
    ) -> tuple[Judgement, int, int]:
        at = self.epoch if epoch is None else epoch
        return self.told(EndTransaction(ID, self.pid, at, commit, bump, fresh), broker)

    def markers(self, name: int = A) -> list[tuple[int, int, int, bool]]:
        """(offset, producer, epoch, committed)"""
        return [(e.start, e.producer, e.producer_epoch, e.commits) for e in self.stream(name).index if e.marker]


@pytest.fixture
def story() -> Story:
    return Story()


# --- init ------------------------------------------------------------------------------------------------


def test_init_judges_before_anything_ends(story: Story) -> None:
    """A producer that expects another epoch is fenced, and the transaction of its successor stays open."""
    story.send()
    before = story.stream().index.pack()
    for expected in ((100, 5), (99, 0), (100, LAST_EPOCH)):
        assert story.init(expected)[0] is Judgement.FENCED
    assert story.id.open and story.stream().index.pack() == before


def test_init_ends_an_open_transaction_and_gives_the_next_epoch_at_once(story: Story) -> None:
    story.send()
    assert story.init() == (Judgement.DONE, 100, 1)
    assert story.markers() == [(1, 100, 1, False)]
    assert (story.id.phase, story.id.ended, story.stream().stable) == (Phase.EMPTY, Ended.NOT, 2)
    assert story.send(first=1) is Verdict.STALE_PRODUCER


def test_a_repeated_init_that_names_its_epoch_gets_the_same_answer(story: Story) -> None:
    assert story.init((100, 0)) == (Judgement.DONE, 100, 1)
    assert story.init((100, 0)) == (Judgement.DONE, 100, 1)
    assert story.init() == (Judgement.DONE, 100, 2)
    assert story.init((100, 0))[0] is story.init((100, 1))[0] is Judgement.FENCED


def test_a_repeated_init_does_not_get_through_an_open_transaction(story: Story) -> None:
    assert story.init((100, 0)) == (Judgement.DONE, 100, 1)
    story.epoch = 1
    story.send()
    assert story.init((100, 0))[0] is Judgement.FENCED
    assert story.id.open


@pytest.mark.parametrize("id", ["", "x" * (MAX_ID + 1)])
def test_an_id_has_a_length(story: Story, id: str) -> None:
    result = story.do(InitTransaction(id, 1_000, 1, -1, -1))
    assert isinstance(result, Refused) and result.reason is Reason.INVALID


@pytest.mark.parametrize("command", [
    InitTransaction(ID, 0, 1, -1, -1), InitTransaction(ID, 1, 1, -1, 5), InitTransaction(ID, 1, 1, 5, -1),
])  # fmt: skip
def test_an_init_without_sense_changes_nothing(story: Story, command: InitTransaction) -> None:
    result = story.do(command)
    assert isinstance(result, Refused) and result.reason is Reason.INVALID
    assert (story.id.producer, story.id.epoch) == (100, 0)


# --- the end ---------------------------------------------------------------------------------------------


def test_one_command_ends_everything(story: Story) -> None:
    """Every stream gets its marker in join order, staged offsets count, and the epoch moves on."""
    story.send(B)
    story.send(A)
    story.stage((0, 42))
    assert story.committed() == {}
    assert (story.stream().stable, story.stream(B).stable) == (0, 0)
    assert story.end() == (Judgement.DONE, 100, 1)
    assert story.markers(A) == story.markers(B) == [(1, 100, 1, True)]
    assert (story.stream().stable, story.stream(B).stable, story.committed()) == (2, 2, {0: 42})
    assert not story.stream().running and not len(story.stream().aborted)


def test_a_stream_that_joined_without_records_gets_a_marker_too(story: Story) -> None:
    story.join(A)
    story.end(commit=False)
    assert story.markers() == [(0, 100, 1, False)]
    assert not len(story.stream().aborted), "but there is nothing to leave out"


def test_a_repeated_end_neither_ends_the_next_transaction_nor_bumps_twice(story: Story) -> None:
    story.send()
    assert story.end() == story.end(broker=TWO) == (Judgement.DONE, 100, 1)
    assert len(story.markers()) == 1
    story.epoch = 1
    story.send()
    assert story.end(epoch=0)[0] is Judgement.FENCED
    assert story.id.open and story.id.epoch == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_of_the_first_generation_repeats_its_outcome(story: Story, commit: bool) -> None:
    story.join(A)
    story.send(mode=Mode.JOINED)
    assert story.end(commit, bump=False) == story.end(commit, bump=False) == (Judgement.DONE, 100, 0)
    assert story.end(not commit, bump=False)[0] is Judgement.INVALID_STATE
    assert story.markers() == [(1, 100, 0, commit)]


def test_an_end_with_the_other_outcome_is_refused(story: Story) -> None:
    story.send()
    story.end()
    assert story.end(commit=False)[0] is Judgement.INVALID_STATE
    assert story.end(bump=False)[0] is Judgement.FENCED


def test_without_a_transaction_an_abort_only_bumps_and_a_commit_is_refused(story: Story) -> None:
    assert story.end()[0] is Judgement.INVALID_STATE
    assert story.end(commit=False) == story.end(commit=False) == (Judgement.DONE, 100, 1)
    assert story.stream().next_offset == 0


def test_who_is_unknown_who_is_fenced(story: Story) -> None:
    """The id and its producer id are judged first, then the epoch."""
    for producer, epoch, judgement in ((99, 0, Judgement.UNKNOWN_PRODUCER), (100, 3, Judgement.FENCED)):
        assert story.told(EndTransaction(ID, producer, epoch, True, True, FRESH))[0] is judgement
        assert story.told(JoinTransaction(ID, producer, epoch, (A,), ()))[0] is judgement
        assert story.told(AbortTransaction(ID, 0, producer, epoch, FRESH))[0] is judgement
    assert story.told(EndTransaction("nobody", 100, 0, True, True, FRESH))[0] is Judgement.UNKNOWN_PRODUCER


# --- time-outs -------------------------------------------------------------------------------------------


def test_a_late_time_out_does_not_end_the_next_transaction(story: Story) -> None:
    """The first generation uses its epoch again; the number tells the transactions apart."""
    story.join(A)
    late = AbortTransaction(ID, story.id.number, 100, 0, FRESH)
    story.end(bump=False)
    story.join(A)
    assert story.told(late)[0] is Judgement.INVALID_STATE
    assert story.id.open
    assert story.told(AbortTransaction(ID, story.id.number, 100, 0, FRESH)) == (Judgement.DONE, 100, 1)


def test_after_a_time_out_an_abort_is_a_repetition_and_a_commit_is_fenced(story: Story) -> None:
    story.send()
    story.told(AbortTransaction(ID, 1, 100, 0, FRESH))
    assert story.end(commit=True)[0] is Judgement.FENCED
    assert story.end(commit=False) == (Judgement.DONE, 100, 1)
    assert story.end(commit=False, bump=False)[0] is Judgement.FENCED
    assert len(story.markers()) == 1


def test_after_a_time_out_its_producer_may_go_on_unless_another_took_over(story: Story) -> None:
    story.send()
    story.told(AbortTransaction(ID, 1, 100, 0, FRESH))
    assert story.init((100, 0)) == story.init((100, 0)) == (Judgement.DONE, 100, 1)
    assert story.init((100, 1)) == (Judgement.DONE, 100, 2), "it goes on"
    story.epoch = 2
    story.send()
    story.told(AbortTransaction(ID, 2, 100, 2, FRESH))
    assert story.init() == (Judgement.DONE, 100, 4)
    assert story.init((100, 2))[0] is Judgement.FENCED


# --- used up epochs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["end", "abort", "init", "expecting init"])
def test_a_fresh_producer_id_follows_the_last_epoch(how: str) -> None:
    story = Story(LAST_EPOCH)
    story.send()
    wanted = (Judgement.DONE, FRESH, 0)
    if how == "end":
        assert story.end() == story.end(fresh=6_000) == wanted
    elif how == "abort":
        assert story.told(AbortTransaction(ID, 1, 100, LAST_EPOCH, FRESH)) == wanted
        assert story.end(commit=False, fresh=6_000) == wanted
    elif how == "init":
        assert story.init() == wanted
    else:
        assert story.init((100, LAST_EPOCH)) == story.init((100, LAST_EPOCH), fresh=6_000) == wanted
    assert story.markers() == [(1, 100, LAST_EPOCH + 1, how == "end")]
    assert story.send(first=1) is Verdict.STALE_PRODUCER
    story.pid, story.epoch = FRESH, 0
    assert story.send() is Verdict.ACCEPTED


def test_a_producer_id_that_was_replaced_is_fenced_until_the_next_one_is() -> None:
    """Java's producer can abort and go on when it is fenced, but not if its producer id is unknown."""
    story = Story(LAST_EPOCH)
    story.end(commit=False)
    assert story.send(mode=Mode.JOINS) is story.send(B, epoch=0) is Verdict.STALE_PRODUCER
    assert story.state.transactions.of_producer(100) is None
    restored = StreamsState(Domain(1))
    restored.restore(story.state.image())
    story.scribe.state = restored
    assert story.send() is Verdict.STALE_PRODUCER
    story.id.epoch = LAST_EPOCH
    story.told(EndTransaction(ID, FRESH, LAST_EPOCH, False, True, FRESH + 1))
    assert story.send() is Verdict.NO_TRANSACTION
    story.pid = FRESH
    assert story.send() is Verdict.STALE_PRODUCER
    assert story.do(ForgetTransactions(START_MS + 1)) == Done(1)
    assert story.send() is Verdict.NO_TRANSACTION


def test_the_last_epoch_does_not_end_without_a_fresh_producer_id() -> None:
    story = Story(LAST_EPOCH)
    story.send()
    for command in (
        EndTransaction(ID, 100, LAST_EPOCH, True, True, -1),
        AbortTransaction(ID, 1, 100, LAST_EPOCH, -1),
    ):
        assert story.do(command) == Transacted(Judgement.NEEDS_ID)
    assert story.id.open
    assert story.end(bump=False, fresh=-1) == (Judgement.DONE, 100, LAST_EPOCH)


# --- batches ---------------------------------------------------------------------------------------------


def test_a_zombie_is_refused_in_a_stream_it_never_wrote_to(story: Story) -> None:
    story.send(A)
    story.init()
    assert story.send(B) is Verdict.STALE_PRODUCER
    assert story.stream(B).next_offset == 0


def test_a_batch_joins_only_if_it_is_accepted(story: Story) -> None:
    assert story.send(first=9) is Verdict.OUT_OF_ORDER
    assert not story.id.open and not story.stream().running
    assert story.send() is Verdict.ACCEPTED
    assert story.id.open and list(story.id.streams) == [A]


def test_a_batch_of_the_first_generation_must_have_joined(story: Story) -> None:
    assert story.send(mode=Mode.JOINED) is Verdict.NOT_JOINED
    story.join(B)
    assert story.send(mode=Mode.JOINED) is Verdict.NOT_JOINED
    story.join(A)
    assert story.send(mode=Mode.JOINED) is Verdict.ACCEPTED


def test_a_plain_batch_inside_a_transaction_is_refused(story: Story) -> None:
    story.send(A)
    assert story.send(A, first=1, mode=Mode.PLAIN) is Verdict.IN_TRANSACTION
    assert story.send(B, mode=Mode.PLAIN) is Verdict.ACCEPTED


def test_a_batch_that_comes_after_its_end_joins_nothing(story: Story) -> None:
    story.send()
    story.end()
    assert story.send(first=1, epoch=0) is Verdict.STALE_PRODUCER
    assert not story.id.open


# --- staged offsets --------------------------------------------------------------------------------------


def test_staged_offsets_are_dropped_by_an_abort(story: Story) -> None:
    story.stage((0, 5))
    assert story.state.transactions.is_staged(GROUP, PLACE, 0)
    story.end(commit=False)
    assert story.committed() == {}
    assert not story.state.transactions.is_staged(GROUP, PLACE, 0)


def test_a_group_must_have_joined_in_the_first_generation(story: Story) -> None:
    assert story.stage((0, 5), joins=False) is Judgement.NOT_JOINED
    story.join(groups=(GROUP,))
    assert story.stage((0, 5), joins=False) is Judgement.DONE


def test_only_the_groups_coordinator_stages(story: Story) -> None:
    story.do(ClaimShard(shard_of(GROUP)), TWO)
    assert story.stage((0, 5)) is Judgement.STALE_CLAIM


def test_a_plain_commit_that_comes_later_wins(story: Story) -> None:
    story.stage((0, 5), (1, 6))
    story.commit_plainly((0, 9))
    assert not story.state.transactions.is_staged(GROUP, PLACE, 0)
    story.end()
    assert story.committed() == {0: 9, 1: 6}


def test_a_dropped_group_loses_what_is_staged(story: Story) -> None:
    story.stage((0, 5))
    assert isinstance(story.claim, Done)
    assert story.do(DropGroup(story.claim.value, GROUP)) == Done()
    assert story.end()[0] is Judgement.DONE
    assert story.committed() is None


def test_staged_offsets_count_against_the_limit(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a commit cannot fail. What is staged or committed again does not count twice."""
    monkeypatch.setattr(offsets, "MAX_OFFSETS", 2)
    assert story.stage((0, 5), (1, 6)) is story.stage((0, 5), (1, 7)) is Judgement.DONE
    assert story.stage((2, 7)) is Judgement.FULL
    assert isinstance(story.commit_plainly((2, 7)), Refused)
    story.end()
    assert story.committed() == {0: 5, 1: 7}


def test_a_group_that_only_joined_is_not_made(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if there are as many groups as there may be."""
    monkeypatch.setattr(offsets, "MAX_GROUPS", 0)
    story.join(groups=(GROUP,))
    assert story.stage((0, 5)) is Judgement.FULL
    assert story.end()[0] is Judgement.DONE
    assert story.committed() is None


# --- limits, and what is gone ----------------------------------------------------------------------------


def test_limits(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_IDS", 1)
    monkeypatch.setattr(transactions, "MAX_STREAMS", 1)
    monkeypatch.setattr("headwater.state.streams.stored.transactions.MAX_STREAMS", 1)
    monkeypatch.setattr(transactions, "MAX_STAGED_GROUPS", 1)
    assert story.init(id="another")[0] is Judgement.FULL
    assert story.join(A, B) is story.join(groups=("g", "h")) is Judgement.FULL
    assert story.join(groups=("x" * (MAX_NAME + 1),)) is Judgement.FULL
    assert not story.id.open
    assert story.join(A, groups=("h",)) is Judgement.DONE
    assert story.stage((0, 1)) is Judgement.FULL
    assert story.send(B) is Verdict.NOT_JOINED
    assert story.send(A) is Verdict.ACCEPTED


def test_all_open_transactions_share_a_limit(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends, is dropped or is gone makes room again."""
    monkeypatch.setattr(transactions, "MAX_JOINED", 3)
    monkeypatch.setattr("headwater.state.streams.stored.transactions.MAX_JOINED", 3)
    story.init(id="another", fresh=200)
    others = JoinTransaction("another", 200, 0, (B,), ("h",))
    assert story.told(others)[0] is story.told(others)[0] is story.join(A) is Judgement.DONE
    assert story.state.transactions.joined == 3
    assert story.join(A, B) is story.join(groups=("i",)) is story.stage((0, 1)) is Judgement.FULL
    assert story.send(B) is Verdict.NOT_JOINED
    assert story.send(A) is Verdict.ACCEPTED
    story.do(DropStreams((B,)))
    assert story.stage((0, 1)) is story.stage((0, 2)) is Judgement.DONE
    assert isinstance(story.claim, Done)
    story.do(DropGroup(story.claim.value, GROUP))
    assert story.state.transactions.joined == 2
    story.end()
    story.told(EndTransaction("another", 200, 0, True, False, -1))
    assert story.state.transactions.joined == 0


def test_a_stream_that_is_gone_is_skipped(story: Story) -> None:
    story.send(A)
    story.send(B)
    story.do(DropStreams((A,)))
    assert list(story.id.streams) == [B]
    assert story.end()[0] is Judgement.DONE
    assert story.markers(B) == [(1, 100, 1, True)]
    assert story.told(JoinTransaction(ID, 100, 1, (A,), ()))[0] is Judgement.NO_STREAM


def test_ids_that_are_not_used_are_forgotten(story: Story) -> None:
    story.init(id="idle", fresh=200)
    story.send()
    assert story.do(ForgetTransactions(START_MS + 1)) == Done(1)
    assert story.state.transactions.get("idle") is None and story.id.open


def test_deleting_records_may_cut_into_an_open_transaction(story: Story) -> None:
    story.send(count=3)
    story.do(TrimStreams([(A, 2)]))
    assert story.stream().stable == 2
    story.end(commit=False)
    assert story.stream().stable == 4
    assert [(a.first, a.marker) for a in story.stream().aborted.between(2, 4)] == [(0, 3)]


# --- settling --------------------------------------------------------------------------------------------


def settle(story: Story, end: int, newest: int = -1, rows: int = 0, start: int = 0) -> Result:
    lease = story.do(TakeLease(COMPACTION, 1_000))
    assert isinstance(lease, Done)
    files = [NewFile(f"f{start}", 10, rows, 1, 0, 0, start, end, 0, 9, 0, 7)] if rows else []
    run = SegmentRun(A, start, end, 0 if rows else -1, 0, 1 if rows else 0)
    return story.do(SettleRuns(lease.value, TOPIC, "root", files, [run], [newest]))


def test_settling_stops_at_the_stable_offset_and_forgets_aborts(story: Story) -> None:
    story.send(count=2)
    refused = settle(story, 2, 7, rows=2)
    assert isinstance(refused, Refused) and refused.reason is Reason.STALE
    story.end(commit=False)
    assert len(story.stream().aborted) == 1
    assert isinstance(settle(story, 3), Done)
    assert story.stream().settled == 3 and not len(story.stream().aborted)
    assert story.stream().max_timestamp == -1, "the aborted records' time no longer counts"


def test_settling_keeps_the_index_small(story: Story) -> None:
    """Committed and aborted transactions, ten for every settle: entries are left for segments, not for transactions."""
    offset, left = 0, []
    for number in range(100):
        story.send()
        _, _, story.epoch = story.end(commit=number % 5 != 4)
        if number % 10 == 9:
            assert len(story.stream().index) <= 20 + number // 10, "an entry for each batch and each marker"
            end = story.stream().stable
            assert isinstance(settle(story, end, 7, rows=8, start=offset), Done)
            offset = end
            left.append(len(story.stream().index))
    assert left == list(range(1, 11)), "one entry for each settled run"
    assert not len(story.stream().aborted) and not story.stream().running
    assert len(story.state.transactions) == 1


@pytest.mark.parametrize("newest", [8, -2])
def test_a_settle_does_not_invent_a_time(story: Story, newest: int) -> None:
    story.send()
    story.end()
    result = settle(story, 2, newest, rows=1)
    assert isinstance(result, Refused) and result.reason is Reason.INVALID


# --- checkpoints -----------------------------------------------------------------------------------------


def test_a_checkpoint_has_open_aborted_and_staged_transactions(story: Story) -> None:
    """And whoever starts from it judges as those who saw every record."""
    story.send()
    story.end(commit=False)
    story.epoch = 1
    story.send(A)
    story.stage((0, 42))
    story.init(id="other", fresh=200)
    restored = StreamsState(Domain(1))
    restored.restore(story.state.image())
    assert restored.image() == story.state.image()
    assert restored.transactions.joined == story.state.transactions.joined == 2
    cut = len(story.scribe.records)
    assert story.end() == (Judgement.DONE, 100, 2)
    for record in story.scribe.records[cut:]:
        restored.apply(Position(restored.position + 1), decode(record))
    assert restored.image() == story.state.image()
    assert restored.streams[A].stable == 4 and len(restored.streams[A].aborted) == 1
    whole = StreamsState(Domain(1))
    for record in story.scribe.records:
        whole.apply(Position(whole.position + 1), decode(record))
    assert (whole.image(), whole.digest) == (restored.image(), restored.digest)


def test_a_new_id_needs_a_fresh_producer_id(story: Story) -> None:
    assert story.do(InitTransaction("new", 1_000, -1, -1, -1)) == Transacted(Judgement.NEEDS_ID)
    assert story.state.transactions.get("new") is None
    assert story.do(InitTransaction(ID, 1_000, -1, -1, -1)) == Transacted(Judgement.DONE, 100, 1)
