"""The part of the state for transactions: who may write under a transactional id, and how a transaction ends.

A transaction is judged here and nowhere else; no broker keeps anything of it in memory. Its end is one command: every
stream of the transaction gets its marker, staged offsets become committed ones, and the epoch moves on. Repeated
requests are told apart by the state alone, so any broker repeats an answer that was lost.

Every judge looks at the same things in the same order: the id and its producer id, the epoch, the phase.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    ForgetTransactions,
    InitTransaction,
    JoinTransaction,
    StageOffsets,
)
from headwater.state.machine import Part
from headwater.state.results import Done, Judgement, Reason, Refused, Result, Transacted
from headwater.state.streams import offsets
from headwater.state.streams.aborted import Aborted
from headwater.state.streams.domain import I64_MAX, StreamsDomain
from headwater.state.streams.stored.groups import MAX_NAME
from headwater.state.streams.stored.transactions import (
    LAST_EPOCH,
    MAX_ID,
    MAX_IDS,
    MAX_JOINED,
    MAX_STAGED_GROUPS,
    MAX_STREAMS,
    NOBODY,
    Ended,
    Ending,
    Phase,
    StagedOffset,
    Transaction,
    Transactions,
)


def init(state: StreamsDomain, epoch: int, command: InitTransaction) -> Result:
    """See `InitTransaction`. What the client expects is judged before anything ends."""
    if not 0 < len(command.id) <= MAX_ID:
        return Refused(Reason.INVALID, f"a transactional id has 1 to {MAX_ID} characters")
    if command.timeout_ms < 1:
        return Refused(Reason.INVALID, f"a transaction cannot last {command.timeout_ms} ms")
    if (command.expected_producer < 0) != (command.expected_epoch < 0):
        return Refused(Reason.INVALID, "a producer id is expected without an epoch, or an epoch without a producer id")
    found = state.transactions.get(command.id)
    last_epoch = NOBODY
    if found is not None and command.expected_producer >= 0:
        last_epoch = found.epoch
        known = (found.producer, found.epoch) == (command.expected_producer, command.expected_epoch)
        if not known:
            return _repeated_init(found, command)
    if _lacks_id(found, command.fresh):
        return Transacted(Judgement.NEEDS_ID)
    if found is None:
        return _first_init(state, command)
    if found.open:
        _tell(state, epoch, Ending.FENCED)
        _close(state, found, commit=False, ended=Ended.BY_BROKER, bump=True)
    state.transactions.bump(found, command.fresh)
    found.last_epoch, found.timeout_ms = last_epoch, command.timeout_ms
    state.transactions.close(found, Phase.EMPTY, Ended.NOT, state.clock_ms)
    return _done(state, "init", found)


def _first_init(state: StreamsDomain, command: InitTransaction) -> Result:
    if len(state.transactions) >= MAX_IDS:
        return Transacted(Judgement.FULL, detail=f"there are {MAX_IDS} transactional ids already")
    found = Transaction(
        id=command.id,
        number=0,
        producer=command.fresh,
        epoch=0,
        previous_producer=NOBODY,
        last_epoch=NOBODY,
        timeout_ms=command.timeout_ms,
        phase=Phase.EMPTY,
        ended=Ended.NOT,
        changed_ms=state.clock_ms,
        opened_ms=state.clock_ms,
        streams={},
        groups={},
    )
    state.transactions.put(found)
    return _done(state, "init", found)


def _repeated_init(found: Transaction, command: InitTransaction) -> Result:
    """The client expects an epoch that is not current.

    It lost the answer to its last bump, or a broker aborted its transaction, or it is fenced.
    """
    rolled_over = found.epoch == 0 and found.previous_producer == command.expected_producer
    producer = found.previous_producer if rolled_over else found.producer
    if found.open or (producer, found.last_epoch) != (command.expected_producer, command.expected_epoch):
        return Transacted(Judgement.FENCED)
    return Transacted(Judgement.DONE, found.producer, found.epoch)


def join(state: StreamsDomain, epoch: int, command: JoinTransaction) -> Result:
    """See `JoinTransaction`."""
    found = _current(state, command.id, command.producer, command.epoch)
    if isinstance(found, Transacted):
        return found
    if any(stream not in state.streams for stream in command.streams):
        return Transacted(Judgement.NO_STREAM)
    if any(state.streams[stream].mirror.on for stream in command.streams):
        return Transacted(Judgement.MIRRORED)
    streams, groups = len(found.streams.keys() | command.streams), len(found.groups.keys() | command.groups)
    flaw = _lacks_room(state, found, streams, groups)
    if flaw:
        return Transacted(Judgement.FULL, detail=flaw)
    if any(len(group) > MAX_NAME for group in command.groups):
        return Transacted(Judgement.FULL, detail=f"a group's name has {MAX_NAME} characters at most")
    state.transactions.open(found, state.clock_ms)
    state.transactions.join_streams(found, command.streams)
    for group in command.groups:
        state.transactions.join_group(found, group)
    return _done(state, "join", found, command.streams, command.groups)


def _lacks_room(state: StreamsDomain, found: Transaction, streams: int, groups: int) -> str:
    """Why a transaction cannot have so many streams and groups; empty if it can."""
    if streams > MAX_STREAMS:
        return f"a transaction has {MAX_STREAMS} partitions at most"
    if groups > MAX_STAGED_GROUPS:
        return f"a transaction has {MAX_STAGED_GROUPS} groups at most"
    more = streams + groups - len(found.streams) - len(found.groups)
    if more and state.transactions.joined + more > MAX_JOINED:
        return f"the open transactions have {MAX_JOINED} partitions and groups at most"
    return ""


def stage(state: StreamsDomain, epoch: int, command: StageOffsets) -> Result:
    """See `StageOffsets`."""
    if not state.groups.holds(epoch, command.group, command.claim):
        return Transacted(Judgement.STALE_CLAIM)
    found = _current(state, command.id, command.producer, command.epoch)
    if isinstance(found, Transacted):
        return found
    joined = found.open and command.group in found.groups
    if not joined and not command.joins:
        return Transacted(Judgement.NOT_JOINED)
    flaw = _lacks_room(state, found, len(found.streams), len(found.groups) + (not joined))
    flaw = flaw or offsets.flaw_of(state, command.group, command.offsets)
    if flaw:
        return Transacted(Judgement.FULL, detail=flaw)
    state.transactions.open(found, state.clock_ms)
    offsets.group_named(state, command.group)
    staged = state.transactions.join_group(found, command.group)
    for topic, partition, offset, leader_epoch, metadata in command.offsets:
        place = uuid.UUID(bytes=topic), partition
        staged.pop(place, None)
        staged[place] = StagedOffset(offset, leader_epoch, metadata)
    return _done(state, "stage", found, command.group, command.offsets)


def end(state: StreamsDomain, epoch: int, command: EndTransaction) -> Result:
    """See `EndTransaction`."""
    found = state.transactions.get(command.id)
    if found is None:
        return Transacted(Judgement.UNKNOWN_PRODUCER)
    if (command.producer, command.epoch) == (found.producer, found.epoch):
        return _end_current(state, epoch, found, command)
    bumped = found.ended in (Ended.BY_CLIENT_WITH_BUMP, Ended.BY_BROKER)
    before = (found.producer, found.epoch - 1) if found.epoch else (found.previous_producer, LAST_EPOCH)
    if bumped and (command.producer, command.epoch) == before:
        return _repeated_end(found, command)
    return Transacted(Judgement.FENCED if command.producer == found.producer else Judgement.UNKNOWN_PRODUCER)


def _end_current(state: StreamsDomain, epoch: int, found: Transaction, command: EndTransaction) -> Result:
    outcome = Phase.COMMITTED if command.commit else Phase.ABORTED
    if not found.open:
        if not command.bump and found.phase is outcome:
            return Transacted(Judgement.DONE, found.producer, found.epoch)
        if not command.bump or command.commit:
            return Transacted(Judgement.INVALID_STATE)
    if command.bump and _lacks_id(found, command.fresh):
        return Transacted(Judgement.NEEDS_ID)
    if found.open:
        _tell(state, epoch, Ending.COMMITTED if command.commit else Ending.ABORTED)
    ended = Ended.BY_CLIENT_WITH_BUMP if command.bump else Ended.BY_CLIENT
    _close(state, found, commit=command.commit, ended=ended, bump=command.bump)
    if command.bump:
        found.last_epoch = found.epoch
        state.transactions.bump(found, command.fresh)
    return _done(state, "end", found)


def _repeated_end(found: Transaction, command: EndTransaction) -> Result:
    """The epoch is the one before the last end. The answer to that end was lost, or a broker came first."""
    same = found.phase is (Phase.COMMITTED if command.commit else Phase.ABORTED)
    if found.ended is Ended.BY_BROKER and (command.commit or not command.bump):
        return Transacted(Judgement.FENCED)
    if same and command.bump:
        return Transacted(Judgement.DONE, found.producer, found.epoch)
    return Transacted(Judgement.INVALID_STATE if command.bump else Judgement.FENCED)


def abort(state: StreamsDomain, epoch: int, command: AbortTransaction) -> Result:
    """See `AbortTransaction`."""
    found = _current(state, command.id, command.producer, command.epoch)
    if isinstance(found, Transacted):
        return found
    if not found.open or found.number != command.number:
        return Transacted(Judgement.INVALID_STATE)
    if _lacks_id(found, command.fresh):
        return Transacted(Judgement.NEEDS_ID)
    _tell(state, epoch, Ending.TIMED_OUT)
    _close(state, found, commit=False, ended=Ended.BY_BROKER, bump=True)
    found.last_epoch = found.epoch  # as in Kafka, its producer may go on unless another one takes over
    state.transactions.bump(found, command.fresh)
    return _done(state, "abort", found)


def forget(state: StreamsDomain, epoch: int, command: ForgetTransactions) -> Result:
    """See `ForgetTransactions`. Returns how many ids were forgotten."""
    gone = [found for found in state.transactions if not found.open and found.changed_ms < command.before_ms]
    for found in gone:
        state.transactions.forget(found)
    state.roll("txn-", len(gone))
    return Done(len(gone))


def _lacks_id(found: Transaction | None, fresh: int) -> bool:
    """Whether the next epoch needs a fresh producer id, and there is none."""
    return (found is None or found.epoch >= LAST_EPOCH) and not 0 <= fresh <= I64_MAX


def _current(state: StreamsDomain, id: str, producer: int, epoch: int) -> Transaction | Transacted:
    """The transactional id, if producer id and epoch are current."""
    found = state.transactions.get(id)
    if found is None or found.producer != producer:
        return Transacted(Judgement.UNKNOWN_PRODUCER)
    return found if found.epoch == epoch else Transacted(Judgement.FENCED)


def _close(state: StreamsDomain, found: Transaction, *, commit: bool, ended: Ended, bump: bool) -> None:
    """End a transaction: a marker in every stream that is still there, and staged offsets if it is committed."""
    marker_epoch = min(found.epoch + 1, LAST_EPOCH + 1) if bump else found.epoch
    for name in found.streams:
        stream = state.streams.get(name)
        if stream is not None:
            stream.close(found.producer, marker_epoch, state.clock_ms, state.date_ms, commit=commit)
            state.roll("marker", name, stream.next_offset)
            state.moved(name)
    if commit:
        for group, staged in found.groups.items():
            if staged:  # a group that only joined need not exist
                entered = [(*place, at.offset, at.leader_epoch, at.metadata) for place, at in staged.items()]
                offsets.commit(state, group, entered)
    state.transactions.close(found, Phase.COMMITTED if commit else Phase.ABORTED, ended, state.clock_ms)


def _tell(state: StreamsDomain, epoch: int, ending: Ending) -> None:
    if state.on_end is not None:
        state.on_end(epoch, ending)


def _done(state: StreamsDomain, what: str, found: Transaction, *facts: object) -> Transacted:
    state.roll(what, found.id, found.number, found.producer, found.epoch, int(found.phase), *facts)
    return Transacted(Judgement.DONE, found.producer, found.epoch)


# --- hooks and image -----------------------------------------------------------------------------------


def _leave(state: StreamsDomain, names: Sequence[int]) -> None:
    """Take streams that are about to be dropped out of the open transactions."""
    state.transactions.leave(names)


class TransactionImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A transactional id inside a checkpoint. Staged offsets are (topic, partition, offset, leader epoch, metadata)."""

    id: str
    number: int
    producer: int
    epoch: int
    previous_producer: int
    last_epoch: int
    timeout_ms: int
    phase: Phase
    ended: Ended
    changed_ms: int
    opened_ms: int
    streams: list[int]
    groups: list[tuple[str, list[offsets.Offset]]]


class TransactionsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The transactions of a domain inside a checkpoint."""

    ids: list[TransactionImage]
    opened: list[str]
    """The ids with open transactions, in the order in which these were opened."""
    running: list[tuple[int, list[tuple[int, int]]]]
    """Per stream: (producer, first offset) of its open transactions."""
    aborted: list[tuple[int, bytes]]


def _pack(state: StreamsDomain) -> TransactionsImage:
    streams = state.streams.values()
    return TransactionsImage(
        ids=[_pack_id(found) for found in state.transactions],
        opened=[found.id for found in state.transactions.opened()],
        running=[(stream.id, list(stream.running.items())) for stream in streams if stream.running],
        aborted=[(stream.id, stream.aborted.pack()) for stream in streams if len(stream.aborted)],
    )


def _pack_id(found: Transaction) -> TransactionImage:
    groups = [
        (name, [(topic.bytes, p, at.offset, at.leader_epoch, at.metadata) for (topic, p), at in staged.items()])
        for name, staged in found.groups.items()
    ]
    values = msgspec.structs.asdict(found)
    return TransactionImage(**{**values, "streams": list(found.streams), "groups": groups})


def _unpack(state: StreamsDomain, image: TransactionsImage) -> None:
    ids = {found.id: _unpack_id(found) for found in image.ids}
    state.transactions = Transactions(ids.values(), [ids[name] for name in image.opened])
    for name, running in image.running:
        state.streams[name].running = dict(running)
    for name, aborted in image.aborted:
        state.streams[name].aborted = Aborted(aborted)


def _unpack_id(image: TransactionImage) -> Transaction:
    groups = {
        name: {
            (uuid.UUID(bytes=topic), p): StagedOffset(offset, leader, text) for topic, p, offset, leader, text in staged
        }
        for name, staged in image.groups
    }
    values = msgspec.structs.asdict(image)
    return Transaction(**{**values, "streams": dict.fromkeys(image.streams), "groups": groups})


PART: Part[StreamsDomain, TransactionsImage] = Part(
    name="transactions",
    commands={
        InitTransaction: init,
        JoinTransaction: join,
        StageOffsets: stage,
        EndTransaction: end,
        AbortTransaction: abort,
        ForgetTransactions: forget,
    },
    format=1,
    image=TransactionsImage,
    pack=_pack,
    unpack=_unpack,
    empty=lambda: TransactionsImage([], [], [], []),
    dropped=_leave,
)
