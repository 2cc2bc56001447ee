"""What a domain with transactions should be, kept in the plainest way: every offset of every stream as one item.

The model remembers to which transaction a record belongs and how that ended. So it needs no epochs to know what a
reader of committed records may see.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from headwater.state.commands.streams import Mode
from headwater.state.commands.transactions import (
    AbortTransaction,
    EndTransaction,
    InitTransaction,
    JoinTransaction,
    StageOffsets,
)
from headwater.state.results import Judgement, Verdict

LAST = 32_766
Key = int
"""The number of a transaction, counted over all ids."""
Place = tuple[uuid.UUID, int]
Answer = tuple[Judgement, int, int]


@dataclass
class Item:
    """One offset of a stream."""

    kind: str
    """data, marker, reserved or gap"""
    producer: int = -1
    key: Key | None = None
    stamp: int = -1
    epoch: int = -1
    commit: bool = False


@dataclass
class Id:
    """A transactional id."""

    producer: int
    epoch: int
    former: int = -1
    """The producer id before the current one."""
    asked: int = -1
    """The epoch before the last bump, unless another producer took over since."""
    number: int = 0
    key: Key = 0
    phase: str = "empty"
    by: str = ""
    """client, bump or broker"""
    changed: int = 0
    streams: list[int] = field(default_factory=list)
    groups: dict[str, dict[Place, int]] = field(default_factory=dict)

    @property
    def before(self) -> tuple[int, int]:
        """Producer id and epoch before the last bump."""
        return (self.producer, self.epoch - 1) if self.epoch else (self.former, LAST)

    def bump(self, fresh: int) -> None:
        if self.epoch == LAST:
            self.former, self.producer, self.epoch = self.producer, fresh, 0
        else:
            self.epoch += 1


@dataclass
class Known:
    """What a stream knows of a producer."""

    epoch: int
    batches: list[tuple[int, int, int]]
    """(first sequence, last sequence, offset)"""
    ms: int


@dataclass
class Log:
    """A stream."""

    items: list[Item] = field(default_factory=list)
    start: int = 0
    settled: int = 0
    known: dict[int, Known] = field(default_factory=dict)
    expired: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """(producer, first offset, marker) of every abort with records, ever."""

    @property
    def end(self) -> int:
        return next((at for at, item in enumerate(self.items) if item.kind == "reserved"), len(self.items))

    def advance(self) -> None:
        while self.settled < len(self.items) and self.items[self.settled].kind == "gap":
            self.settled += 1


class Model:
    """All of it."""

    def __init__(self) -> None:
        self.ids: dict[str, Id] = {}
        self.logs: dict[int, Log] = {}
        self.committed: dict[str, dict[Place, int]] = {}
        """By group. A group without offsets may exist."""
        self.outcomes: dict[Key, bool] = {}
        """How transactions ended."""
        self.transactions = 0
        self.now = 0

    # --- what should be seen ---------------------------------------------------------------------------

    def of_producer(self, producer: int) -> Id | None:
        return next((found for found in self.ids.values() if found.producer == producer), None)

    def running(self, stream: int) -> dict[int, int]:
        """First offsets by producer of what is open."""
        found: dict[int, int] = {}
        for at, item in enumerate(self.logs[stream].items):
            if item.key is not None and item.key not in self.outcomes:
                found.setdefault(item.producer, at)
        return found

    def stable(self, stream: int) -> int:
        log = self.logs[stream]
        return max(log.start, min([log.end, *self.running(stream).values()]))

    def visible(self, stream: int, at: int) -> bool:
        """Whether a reader of committed records gets the record at an offset below the stable one."""
        item = self.logs[stream].items[at]
        return item.kind == "data" and (item.key is None or self.outcomes[item.key])

    # --- transactions ----------------------------------------------------------------------------------

    def init(self, command: InitTransaction) -> Answer:
        found = self.ids.get(command.id)
        if found is None:
            self.ids[command.id] = Id(command.fresh, 0, changed=self.now)
            return Judgement.DONE, command.fresh, 0
        expected = command.expected_producer, command.expected_epoch
        if expected != (-1, -1) and expected != (found.producer, found.epoch):
            if found.phase != "open" and found.asked >= 0 and expected == found.before and expected[1] == found.asked:
                return Judgement.DONE, found.producer, found.epoch
            return Judgement.FENCED, -1, -1
        if found.phase == "open":
            self._finish(command.id, commit=False, epoch=found.epoch + 1)
        found.asked = found.epoch if expected != (-1, -1) else -1
        found.bump(command.fresh)
        found.phase, found.by, found.changed = "empty", "", self.now
        return Judgement.DONE, found.producer, found.epoch

    def _judged(self, name: str, producer: int, epoch: int) -> Id | Answer:
        found = self.ids.get(name)
        if found is None or found.producer != producer:
            return Judgement.UNKNOWN_PRODUCER, -1, -1
        return found if found.epoch == epoch else (Judgement.FENCED, -1, -1)

    def _begin(self, found: Id) -> None:
        found.changed = self.now
        if found.phase != "open":
            found.number += 1
            self.transactions += 1
            found.key = self.transactions
            found.phase, found.by = "open", ""

    def join(self, command: JoinTransaction) -> Answer:
        found = self._judged(command.id, command.producer, command.epoch)
        if isinstance(found, tuple):
            return found
        if not set(command.streams) <= self.logs.keys():
            return Judgement.NO_STREAM, -1, -1
        self._begin(found)
        found.streams += [stream for stream in command.streams if stream not in found.streams]
        for group in command.groups:
            found.groups.setdefault(group, {})
        return Judgement.DONE, found.producer, found.epoch

    def stage(self, command: StageOffsets, holds: bool) -> Answer:
        if not holds:
            return Judgement.STALE_CLAIM, -1, -1
        found = self._judged(command.id, command.producer, command.epoch)
        if isinstance(found, tuple):
            return found
        if command.group not in found.groups and not command.joins:
            return Judgement.NOT_JOINED, -1, -1
        self._begin(found)
        self.committed.setdefault(command.group, {})
        staged = found.groups.setdefault(command.group, {})
        for topic, partition, offset, _, _ in command.offsets:
            staged[uuid.UUID(bytes=topic), partition] = offset
        return Judgement.DONE, found.producer, found.epoch

    def end(self, command: EndTransaction) -> Answer:
        found = self.ids.get(command.id)
        if found is None:
            return Judgement.UNKNOWN_PRODUCER, -1, -1
        named = command.producer, command.epoch
        wanted = "committed" if command.commit else "aborted"
        if named == (found.producer, found.epoch):
            if found.phase != "open" and not command.bump:
                same = found.phase == wanted
                return (Judgement.DONE, *named) if same else (Judgement.INVALID_STATE, -1, -1)
            if found.phase != "open" and command.commit:
                return Judgement.INVALID_STATE, -1, -1
            self._finish(command.id, commit=command.commit, epoch=found.epoch + command.bump)
            found.by = "bump" if command.bump else "client"
            if command.bump:
                found.asked = found.epoch
                found.bump(command.fresh)
            return Judgement.DONE, found.producer, found.epoch
        if named == found.before and found.by == "bump":
            if not command.bump:
                return Judgement.FENCED, -1, -1
            same = found.phase == wanted
            return (Judgement.DONE, found.producer, found.epoch) if same else (Judgement.INVALID_STATE, -1, -1)
        if named == found.before and found.by == "broker":
            aborts = command.bump and not command.commit
            return (Judgement.DONE, found.producer, found.epoch) if aborts else (Judgement.FENCED, -1, -1)
        return (Judgement.FENCED if command.producer == found.producer else Judgement.UNKNOWN_PRODUCER), -1, -1

    def abort(self, command: AbortTransaction) -> Answer:
        found = self._judged(command.id, command.producer, command.epoch)
        if isinstance(found, tuple):
            return found
        if found.phase != "open" or found.number != command.number:
            return Judgement.INVALID_STATE, -1, -1
        self._finish(command.id, commit=False, epoch=found.epoch + 1)
        found.by, found.asked = "broker", found.epoch
        found.bump(command.fresh)
        return Judgement.DONE, found.producer, found.epoch

    def _finish(self, name: str, *, commit: bool, epoch: int) -> None:
        found = self.ids[name]
        key = found.key
        if found.phase == "open":
            self.outcomes[key] = commit
        for stream in found.streams:
            log = self.logs[stream]
            first = next((at for at, item in enumerate(log.items) if item.key == key), None)
            if first is not None and not commit:
                log.aborted.append((found.producer, first, len(log.items)))
            log.items.append(Item("marker", found.producer, epoch=epoch, commit=commit))
            if found.producer in log.known:
                log.known[found.producer].ms = self.now
        if commit:
            for group, staged in found.groups.items():
                if staged:
                    self.committed.setdefault(group, {}).update(staged)
        found.phase, found.changed = ("committed" if commit else "aborted"), self.now
        found.streams, found.groups = [], {}

    def forget(self, before: int) -> int:
        gone = [name for name, found in self.ids.items() if found.phase != "open" and found.changed < before]
        for name in gone:
            del self.ids[name]
        return len(gone)

    # --- records ---------------------------------------------------------------------------------------

    def take(self, stream: int, mode: int, producer: tuple[int, int, int], count: int, stamp: int) -> tuple[str, int]:
        """Judge a batch: a word and an offset."""
        log = self.logs.get(stream)
        if log is None:
            return "no stream", -1
        pid, epoch, first = producer
        key: Key | None = None
        owner: Id | None = None
        if mode != Mode.PLAIN:
            owner = self.of_producer(pid)
            if owner is None:
                replaced = any(found.former == pid for found in self.ids.values())
                return ("stale" if replaced else "no transaction"), 0
            if owner.epoch != epoch:
                return "stale", 0
            if stream not in owner.streams and mode == Mode.JOINED:
                return "not joined", 0
        elif pid in self.running(stream):
            return "in transaction", 0
        if pid >= 0:
            refused = self._sequence(log, pid, epoch, first, count)
            if refused is not None:
                return refused
        if owner is not None:
            self._begin(owner)
            if stream not in owner.streams:
                owner.streams.append(stream)
            key = owner.key
        at = len(log.items)
        log.items += [Item("data", pid, key, stamp) for _ in range(count)]
        return "accepted", at

    def _sequence(self, log: Log, pid: int, epoch: int, first: int, count: int) -> tuple[str, int] | None:
        known, at = log.known.get(pid), len(log.items)
        last = first + count - 1
        if known is not None and epoch < known.epoch:
            return "stale", 0
        if known is not None and epoch == known.epoch:
            for batch in known.batches:
                if batch[:2] == (first, last):
                    return "duplicate", batch[2]
            if first != known.batches[-1][1] + 1:
                return "out of order", 0
            known.batches = [*known.batches[-4:], (first, last, at)]
            known.ms = self.now
            return None
        if first and not (known is None and log.expired.get(pid) == epoch):
            return "out of order", 0
        log.known[pid] = Known(epoch, [(first, last, at)], self.now)
        log.expired.pop(pid, None)
        return None

    def expire(self, before: int) -> int:
        count = 0
        for stream, log in self.logs.items():
            running = self.running(stream)
            gone = [pid for pid, known in log.known.items() if known.ms < before and pid not in running]
            for pid in gone:
                log.expired[pid] = log.known.pop(pid).epoch
            count += len(gone)
        return count

    def drop(self, stream: int) -> None:
        self.logs.pop(stream, None)
        for found in self.ids.values():
            if stream in found.streams:
                found.streams.remove(stream)

    def trim(self, stream: int, start: int) -> None:
        log = self.logs[stream]
        if log.start < start <= log.end:
            log.start, log.settled = start, max(log.settled, start)
            log.advance()

    # --- groups ----------------------------------------------------------------------------------------

    def withdraw(self, group: str, places: list[Place]) -> None:
        for found in self.ids.values():
            for place in places:
                found.groups.get(group, {}).pop(place, None)

    def drop_group(self, group: str) -> bool:
        if self.committed.pop(group, None) is None:
            return False
        for found in self.ids.values():
            found.groups.pop(group, None)
        return True


WORDS = {
    Verdict.ACCEPTED: "accepted",
    Verdict.DUPLICATE: "duplicate",
    Verdict.OUT_OF_ORDER: "out of order",
    Verdict.MOVED: "out of order",
    Verdict.STALE_PRODUCER: "stale",
    Verdict.NO_STREAM: "no stream",
    Verdict.NO_TRANSACTION: "no transaction",
    Verdict.NOT_JOINED: "not joined",
    Verdict.IN_TRANSACTION: "in transaction",
}
