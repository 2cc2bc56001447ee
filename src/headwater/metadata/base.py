"""What every domain's state has: who may write, what time it is, who holds which lease, a digest.

`apply` is pure and the same everywhere: it reads nothing but the state and the record. Subclasses add the
commands of their kind of domain.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import msgspec

from headwater.errors import Halted
from headwater.metadata.commands import Check, Command, Fence, Record, SetLevel, TakeLease, Tick
from headwater.metadata.results import Done, Reason, Refused, Result
from headwater.types import Domain, Position

LEVEL = 1
"""The newest feature level this code knows. The state's level, not the code, selects behaviour."""

MAX_CLOCK_LEAD_MS = 60_000
"""A clock that runs further ahead than this of the second largest one is not believed."""

DIGESTS_KEPT = 256
MAX_LEASES = 10_000
MAX_LEASE_NAME = 400


class EpochSet:
    """A set of integers kept as ranges: epochs are all fenced in the end, so the ranges grow together."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Sequence[tuple[int, int]] = ()) -> None:
        self._starts = [start for start, _ in ranges]
        self._ends = [end for _, end in ranges]

    def __len__(self) -> int:
        return sum(end - start for start, end in self.ranges())

    def __bool__(self) -> bool:
        return bool(self._starts)

    def __contains__(self, epoch: int) -> bool:
        i = bisect_right(self._starts, epoch) - 1
        return i >= 0 and epoch < self._ends[i]

    def add(self, epoch: int) -> None:
        if epoch in self:
            return
        i = bisect_right(self._starts, epoch)
        joins_left = i > 0 and self._ends[i - 1] == epoch
        joins_right = i < len(self._starts) and self._starts[i] == epoch + 1
        if joins_left and joins_right:
            self._ends[i - 1] = self._ends.pop(i)
            del self._starts[i]
        elif joins_left:
            self._ends[i - 1] = epoch + 1
        elif joins_right:
            self._starts[i] = epoch
        else:
            self._starts.insert(i, epoch)
            self._ends.insert(i, epoch + 1)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Half-open ranges, rising."""
        return zip(self._starts, self._ends, strict=True)


class Lease(msgspec.Struct, frozen=True, array_like=True):
    """Who does a job that only one process does at a time. The number rises with every new holder."""

    holder: int
    number: int
    expires_ms: int


class BaseImage(msgspec.Struct, array_like=True):
    """The common part of a checkpoint."""

    level: int
    position: int
    clock_ms: int
    digest: int
    writers: list[tuple[int, int, int]]
    fenced: list[tuple[int, int]]
    leases: dict[str, Lease]
    last_lease: int


class State:
    """The fold of one domain's ledger up to `position`."""

    COMMANDS: ClassVar[dict[type, Callable[[Any, int, Any], Result]]] = {}

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.level = LEVEL
        self.position = Position(0)
        self.clock_ms = 0
        self.digest = 0
        self._digests: list[tuple[int, int]] = [(0, 0)] * DIGESTS_KEPT
        self._writers: dict[int, tuple[int, int]] = {}
        self._fenced = EpochSet()
        self._leases: dict[str, Lease] = {}
        self._last_lease = 0

    # --- reading ---------------------------------------------------------------------------------

    def is_fenced(self, epoch: int) -> bool:
        """Whether a fence of this epoch stands in this domain."""
        return epoch in self._fenced

    def fenced_epochs(self) -> Iterator[int]:
        """All fenced epochs, rising."""
        for start, end in self._fenced.ranges():
            yield from range(start, end)

    def writers(self) -> list[int]:
        """Epochs that have written here and are not fenced."""
        return list(self._writers)

    @property
    def writer_count(self) -> int:
        """How many epochs that are not fenced have written here."""
        return len(self._writers)

    def counter(self, epoch: int) -> int:
        """The newest counter of an epoch that took effect here."""
        mark = self._writers.get(epoch)
        return mark[0] if mark else 0

    def lease(self, name: str) -> Lease | None:
        """A lease whose holder is not fenced; it may have run out."""
        return self._leases.get(name)

    def leases(self) -> dict[str, Lease]:
        """All leases by name; some may have run out."""
        return dict(self._leases)

    # --- applying ----------------------------------------------------------------------------------

    def apply(self, position: Position, record: Record) -> list[Result] | None:
        """Fold one record. `None` if it is the repetition of one that took effect before."""
        if position <= self.position:
            raise Halted(f"record {position} of domain {self.domain} came after {self.position}")
        epoch = record.epoch
        results: list[Result]
        if self.is_fenced(epoch) or (not epoch and not self._open_to_all(record)):
            results = [Refused(Reason.FENCED)] * len(record.commands)
        else:
            if epoch:
                if record.counter <= self.counter(epoch):
                    self.position = position
                    return None
                self._note_writer(epoch, record.counter, record.clock_ms)
            commands = self.COMMANDS
            results = []
            for command in record.commands:
                run = commands.get(type(command))
                if run is None:
                    raise Halted(f"{type(command).__name__} does not belong into domain {self.domain}")
                results.append(run(self, epoch, command))
        self.position = position
        self._digests[position % DIGESTS_KEPT] = (position, self.digest)
        return results

    def _open_to_all(self, record: Record) -> bool:
        """Whether a record may be written by a process without an epoch."""
        return False

    def _note_writer(self, epoch: int, counter: int, clock_ms: int) -> None:
        """Move the domain's time: to the largest clock, but not far beyond the second largest."""
        self._writers[epoch] = (counter, clock_ms)
        if clock_ms <= self.clock_ms:
            return
        if len(self._writers) == 1:
            self.clock_ms = clock_ms
            return
        largest = second = 0
        for _, clock in self._writers.values():
            if clock >= largest:
                largest, second = clock, largest
            elif clock > second:
                second = clock
        self.clock_ms = max(self.clock_ms, min(largest, second + MAX_CLOCK_LEAD_MS))

    def _roll(self, *facts: object) -> None:
        """Fold facts about a cold command's effect into the digest."""
        self.digest = zlib.crc32(repr(facts).encode(), self.digest)

    def _tick(self, epoch: int, command: Tick) -> Result:
        return Done()

    def _fence(self, epoch: int, command: Fence) -> Result:
        if command.epoch < 1:
            return Refused(Reason.INVALID, "epoch 0 cannot be fenced")
        self._fenced.add(command.epoch)
        self._writers.pop(command.epoch, None)
        for name in [n for n, lease in self._leases.items() if lease.holder == command.epoch]:
            del self._leases[name]
        self._roll("fence", command.epoch)
        return Done()

    def _check(self, epoch: int, command: Check) -> Result:
        position, digest = self._digests[command.position % DIGESTS_KEPT]
        if position == command.position and digest != command.digest:
            raise Halted(
                f"domain {self.domain}: at position {position} this replica's digest is {digest}, "
                f"that of epoch {epoch} is {command.digest}; one of them holds a wrong state"
            )
        return Done()

    def _take_lease(self, epoch: int, command: TakeLease) -> Result:
        if not epoch or command.duration_ms < 1 or not 0 < len(command.name) <= MAX_LEASE_NAME:
            return Refused(Reason.INVALID, "a lease needs a holder, a name and a duration")
        held = self._leases.get(command.name)
        if held is None and len(self._leases) >= MAX_LEASES:
            return Refused(Reason.INVALID, f"there are {MAX_LEASES} leases already")
        if held is not None and held.holder != epoch and held.expires_ms > self.clock_ms:
            return Refused(Reason.LEASED, f"epoch {held.holder} holds {command.name}")
        if held is None or held.holder != epoch:
            self._last_lease += 1
            number = self._last_lease
        else:
            number = held.number
        self._leases[command.name] = Lease(epoch, number, self.clock_ms + command.duration_ms)
        self._roll("lease", command.name, epoch, number)
        return Done(number)

    def _set_level(self, epoch: int, command: SetLevel) -> Result:
        if command.level > LEVEL:
            raise Halted(f"the cluster's feature level is {command.level}, this process knows {LEVEL}: upgrade it")
        self.level = max(self.level, command.level)
        return Done(self.level)

    def _holds(self, epoch: int, name: str, number: int) -> bool:
        """Whether a command's lease is the current one."""
        held = self._leases.get(name)
        return held is not None and held.holder == epoch and held.number == number

    # --- checkpoints -------------------------------------------------------------------------------

    def _base_image(self) -> BaseImage:
        return BaseImage(
            level=self.level,
            position=self.position,
            clock_ms=self.clock_ms,
            digest=self.digest,
            writers=[(epoch, counter, clock) for epoch, (counter, clock) in self._writers.items()],
            fenced=list(self._fenced.ranges()),
            leases=dict(self._leases),
            last_lease=self._last_lease,
        )

    def _restore_base(self, image: BaseImage) -> None:
        if image.level > LEVEL:
            raise Halted(f"a checkpoint of feature level {image.level}; this process knows {LEVEL}: upgrade it")
        self.level = image.level
        self.position = Position(image.position)
        self.clock_ms = image.clock_ms
        self.digest = image.digest
        self._digests[self.position % DIGESTS_KEPT] = (self.position, self.digest)
        self._writers = {epoch: (counter, clock) for epoch, counter, clock in image.writers}
        self._fenced = EpochSet(image.fenced)
        self._leases = dict(image.leases)
        self._last_lease = image.last_lease

    def image(self) -> bytes:
        """The whole state as bytes. Equal states give equal bytes."""
        raise NotImplementedError

    def restore(self, image: bytes) -> None:
        """Become the state that `image` was taken of."""
        raise NotImplementedError


COMMON_COMMANDS: dict[type[Command], Callable[[Any, int, Any], Result]] = {
    Tick: State._tick,
    Fence: State._fence,
    Check: State._check,
    TakeLease: State._take_lease,
    SetLevel: State._set_level,
}
