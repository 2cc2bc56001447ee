"""The state machine of a domain: what the states of all domains share.

That is: writers and fences, times, leases, the feature level, and the digest.

`apply` is pure: it reads nothing but the state and the record. A state consists of parts. Each part has its commands,
its image inside checkpoints, and hooks. A subclass of `State` lists its parts.

The level of the state, not the code, decides which parts take commands and enter images. So builds with different
levels fold the same ledger to the same bytes until the level is raised.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import msgspec

from headwater.errors import Halted
from headwater.state.clocks import Clocks, ClocksImage
from headwater.state.commands.base import Accept, Check, Fence, SetLevel, TakeLease, Tick
from headwater.state.records import FORMAT, Command, Record, other_format
from headwater.state.results import Done, Reason, Refused, Result
from headwater.types import Domain, Position
from headwater.version import __version__

LEVELS: Mapping[int, str] = {1: "0.1.0"}
"""The feature levels that this build knows, each with the first build that knew it."""

LOWEST = min(LEVELS)
"""The feature level of a new cluster."""

LEVEL = max(LEVELS)
"""The newest feature level that this build knows."""

UPGRADE = "run `headwater cluster upgrade`"
"""What an operator does to raise the level."""

DIGESTS_KEPT = 256
MAX_LEASES = 10_000
LIVES_KEPT = 100
MAX_LEASE_NAME = 400


class EpochSet:
    """A set of epochs, stored as ranges. All epochs are fenced in the end, so neighbouring ranges merge."""

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

    def extend(self, end: int) -> None:
        """Add all epochs before one."""
        starts, ends = [1], [max(end, 1)]
        for start, stop in self.ranges():
            if start <= ends[0]:
                ends[0] = max(ends[0], stop)
            else:
                starts.append(start)
                ends.append(stop)
        if ends[0] > 1:
            self._starts, self._ends = starts, ends

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Half-open ranges in ascending order."""
        return zip(self._starts, self._ends, strict=True)


class Lease(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The right of one process to do a job. `holder` is its epoch; `number` rises with every new holder."""

    holder: int
    number: int
    expires_ms: int


class BaseImage(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the checkpoints of all domains share."""

    position: int
    clocks: ClocksImage
    digest: int
    fenced: list[tuple[int, int]]
    leases: dict[str, Lease]
    last_lease: int
    lives: list[str]


class _Preamble(msgspec.Struct, frozen=True, array_like=True):
    """The fields that every build can read of every checkpoint. They name the build that reads the rest."""

    format: int
    level: int
    build: str


class _Image(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A checkpoint: the preamble, the common part, and (name, format, image) of each part."""

    format: int
    level: int
    build: str
    base: BaseImage
    parts: list[tuple[str, int, msgspec.Raw]]


_preamble_decoder = msgspec.msgpack.Decoder(_Preamble)
_image_decoder = msgspec.msgpack.Decoder(_Image)


_S = TypeVar("_S", bound="State")
_I = TypeVar("_I", bound=msgspec.Struct)
Judge: TypeAlias = Callable[[Any, int, Any], Result]
"""Takes the state, the writer's epoch and a command. Changes the state and returns the result."""


def _nothing(*_: object) -> None:
    """The default hook: does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Generic[_S, _I]):
    """One capability of a state. Hooks run in the order in which the state lists its parts."""

    name: str
    commands: Mapping[type, Judge]
    """The judges by command. A part may replace the judge of a common command, such as `Fence`."""
    format: int
    """The format number of the image. A change of the image needs a new number."""
    image: type[_I]
    pack: Callable[[_S], _I]
    unpack: Callable[[_S, _I], None]
    empty: Callable[[], _I]
    """The image of a new state."""
    level: int = LOWEST
    """The lowest level at which the part takes commands and enters images."""
    later: Mapping[type, int] = field(default_factory=dict)
    """Commands that came after the part, with the lowest level at which it takes them."""
    fenced: Callable[[_S, int], None] = _nothing
    """Called after an epoch was fenced."""
    leased: Callable[[_S, str], None] = _nothing
    """Called after a lease was taken or extended."""
    accepted: Callable[[_S, Accept], None] = _nothing
    """Called after the loss of the ledger's end was accepted."""
    dropped: Callable[[_S, Sequence[int]], None] = _nothing
    """Called before streams are dropped."""


class State:
    """The fold of one domain's ledger up to `position`."""

    PARTS: ClassVar[tuple[Part[Any, Any], ...]] = ()

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.level = LOWEST
        self.build = LEVELS[LOWEST]
        """The first build that knows the level."""
        self.position = Position(0)
        self.clocks = Clocks()
        self.clock_ms = 0
        """The ledger time, see `headwater.state.clocks`."""
        self.digest = 0
        self._digests: list[tuple[int, int]] = [(0, 0)] * DIGESTS_KEPT
        self._fenced = EpochSet()
        self._leases: dict[str, Lease] = {}
        self._last_lease = 0
        self.lives: list[str] = []
        """The names that the ledger took when it went on without its lost end (`Accept`), the newest last."""
        self._judges = self._judges_now()

    def parts(self) -> list[Part[Any, Any]]:
        """The parts that are active at the current level."""
        return [part for part in self.PARTS if part.level <= self.level]

    def _judges_now(self) -> dict[type, Judge]:
        """The judge of each command at the current level."""
        judges = dict(COMMON)
        for part in self.PARTS:
            for command, judge in part.commands.items():
                needed = part.later.get(command, part.level)
                judges[command] = judge if needed <= self.level else _above_level(needed)
        return judges

    # --- reading ---------------------------------------------------------------------------------

    def is_fenced(self, epoch: int) -> bool:
        """Whether this epoch is fenced in this domain."""
        return epoch in self._fenced

    def fenced_epochs(self) -> Iterator[int]:
        """All fenced epochs in ascending order."""
        for start, end in self._fenced.ranges():
            yield from range(start, end)

    def writers(self) -> list[int]:
        """Epochs that have written to this domain and are not fenced."""
        return list(self.clocks)

    @property
    def shared(self) -> bool:
        """Whether more than one process has ever written to this domain."""
        return len(self.clocks) > 1 or bool(self._fenced)

    @property
    def writer_count(self) -> int:
        """The number of epochs that have written to this domain and are not fenced."""
        return len(self.clocks)

    def counter(self, epoch: int) -> int:
        """The counter of the epoch's newest applied record."""
        writer = self.clocks.get(epoch)
        return writer.counter if writer is not None else 0

    @property
    def life(self) -> str:
        """The ledger's present name for itself: 32 hexadecimal digits; empty if it has never lost its end."""
        return self.lives[-1] if self.lives else ""

    @property
    def date_ms(self) -> int:
        """What records and versions get as their time, see `headwater.state.clocks`."""
        return self.clocks.date_ms

    def lease(self, name: str) -> Lease | None:
        """A lease whose holder is not fenced. The lease may have expired."""
        return self._leases.get(name)

    def leases(self) -> dict[str, Lease]:
        """All leases by name. Some may have expired."""
        return dict(self._leases)

    def now_ms(self, wall_ms: int) -> int:
        """The ledger time at a moment of a wall clock. Nothing that cannot be undone may rest on it."""
        return max(self.clock_ms, wall_ms - self.clocks.lead_ms)

    # --- applying ----------------------------------------------------------------------------------

    def apply(self, position: Position, record: Record) -> list[Result] | None:
        """Apply one record. Returns `None` if the record is a repetition of one that was applied before."""
        if position <= self.position:
            raise Halted(f"domain {self.domain}: record {position} arrived after record {self.position}")
        epoch = record.epoch
        results: list[Result]
        if self.is_fenced(epoch) or (not epoch and not self._open_to_all(record)):
            results = [Refused(Reason.FENCED)] * len(record.commands)
        else:
            if epoch:
                if record.counter <= self.counter(epoch):
                    self.position = position
                    return None
                self.clock_ms = self.clocks.note(epoch, record.counter, record.clock_ms, record.steady_ms)
            results = []
            for command in record.commands:
                judge = self._judges.get(type(command))
                if judge is None:
                    raise Halted(f"{type(command).__name__} is not a command of domain {self.domain}")
                results.append(judge(self, epoch, command))
                if type(command) is Fence and self.is_fenced(epoch):  # its writer fenced itself: it writes no more
                    results += [Refused(Reason.FENCED)] * (len(record.commands) - len(results))
                    break
        self.position = position
        self._digests[position % DIGESTS_KEPT] = (position, self.digest)
        return results

    def _open_to_all(self, record: Record) -> bool:
        """Whether a record may be written by a process without an epoch."""
        return all(isinstance(command, Accept) for command in record.commands)

    def heard_ms(self, epoch: int) -> int:
        """The wall clock of the last record of an epoch, or -1 if there is none."""
        writer = self.clocks.get(epoch)
        return writer.clock_ms if writer is not None else -1

    def roll(self, *facts: object) -> None:
        """Fold facts about a command's effect into the digest. Hot commands update the digest directly."""
        self.digest = zlib.crc32(repr(facts).encode(), self.digest)

    def holds(self, epoch: int, name: str, number: int) -> bool:
        """Whether this epoch holds the lease under this number."""
        held = self._leases.get(name)
        return held is not None and held.holder == epoch and held.number == number

    def _tick(self, epoch: int, command: Tick) -> Result:
        return Done()

    def fence(self, epoch: int, command: Fence) -> Result:
        """Fence an epoch: records that it appends to this domain from now on are refused."""
        if command.epoch < 1:
            return Refused(Reason.INVALID, "epoch 0 cannot be fenced")
        self._fenced.add(command.epoch)
        self.clocks.drop(command.epoch)
        for name in [n for n, lease in self._leases.items() if lease.holder == command.epoch]:
            del self._leases[name]
        self.roll("fence", command.epoch)
        for part in self.parts():
            part.fenced(self, command.epoch)
        return Done()

    def _check(self, epoch: int, command: Check) -> Result:
        position, digest = self._digests[command.position % DIGESTS_KEPT]
        if position == command.position and digest != command.digest:
            raise Halted(
                f"domain {self.domain}: at position {position} this replica's digest is {digest}, "
                f"that of epoch {epoch} is {command.digest}; one of them has a wrong state"
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
        self.roll("lease", command.name, epoch, number)
        for part in self.parts():
            part.leased(self, command.name)
        return Done(number)

    def set_level(self, epoch: int, command: SetLevel) -> Result:
        """Raise the level. A build that does not know the level halts."""
        if command.level > LEVEL:
            raise Halted(needs_build(command.level, command.build))
        if command.level > self.level:
            self.level, self.build = command.level, command.build
            self._judges = self._judges_now()
            self.roll("level", command.level, command.build)
        return Done(self.level)

    def accept(self, epoch: int, command: Accept) -> Result:
        """Go on without the lost end of the ledger: fence all epochs, and let every part skip numbers."""
        if not command.life or command.epoch < 1 or command.producer < 1 or command.skip < 0:
            return Refused(Reason.INVALID, "a life needs a name, and numbers to begin with")
        if command.life in self.lives:
            return Done()
        for writer in self.writers():
            self.fence(epoch, Fence(writer))
        self._fenced.extend(command.epoch)
        self.lives.append(command.life)
        del self.lives[:-LIVES_KEPT]
        for part in self.parts():
            part.accepted(self, command)
        self.roll("accept", command.life)
        return Done()

    # --- checkpoints -------------------------------------------------------------------------------

    def image(self) -> bytes:
        """The whole state as bytes. Equal states give equal bytes."""
        base = BaseImage(
            position=self.position,
            clocks=self.clocks.image(),
            digest=self.digest,
            fenced=list(self._fenced.ranges()),
            leases=dict(self._leases),
            last_lease=self._last_lease,
            lives=list(self.lives),
        )
        parts = [(part.name, part.format, part.pack(self)) for part in self.parts()]
        return msgspec.msgpack.encode((FORMAT, self.level, self.build, base, parts))

    def restore(self, image: bytes) -> None:
        """Replace this state by that of an image."""
        try:
            preamble = _preamble_decoder.decode(image)
            if preamble.format != FORMAT:
                raise Halted(other_format("a checkpoint", preamble.format))
            if preamble.level > LEVEL:
                raise Halted(needs_build(preamble.level, preamble.build))
            decoded = _image_decoder.decode(image)
            parts = {name: (number, content) for name, number, content in decoded.parts}
            self._restore_base(decoded)
            for part in self.PARTS:
                part.unpack(self, self._image_of(part, parts) if part.level <= self.level else part.empty())
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Halted(f"a checkpoint is of a newer build ({error}); use the build that wrote it") from error
        if parts:
            raise Halted(f"a checkpoint has the part {min(parts)!r}, which this build does not know")
        self.changed()

    def changed(self) -> None:
        """Called after the whole state was restored. Subclasses notify their listeners."""

    def _image_of(self, part: Part[Any, Any], parts: dict[str, tuple[int, msgspec.Raw]]) -> Any:
        if part.name not in parts:
            raise Halted(f"a checkpoint of level {self.level} lacks the part {part.name!r}")
        number, content = parts.pop(part.name)
        if number != part.format:
            raise Halted(f"a checkpoint has the part {part.name!r} in format {number}, this build reads {part.format}")
        return msgspec.msgpack.decode(content, type=part.image)

    def _restore_base(self, image: _Image) -> None:
        self.level, self.build = image.level, image.build
        self._judges = self._judges_now()
        base = image.base
        self.position = Position(base.position)
        self.clocks.restore(base.clocks)
        self.clock_ms = self.clocks.time_ms
        self.digest = base.digest
        self._digests[self.position % DIGESTS_KEPT] = (self.position, self.digest)
        self._fenced = EpochSet(base.fenced)
        self._leases = dict(base.leases)
        self._last_lease = base.last_lease
        self.lives = list(base.lives)


def needs_build(level: int, build: str) -> str:
    """The error for a level that this build does not know."""
    return (
        f"the cluster is at level {level}, which Headwater {build} and later know; this is Headwater {__version__}, "
        f"which knows level {LEVEL}. Start Headwater {build} or later instead"
    )


def _above_level(needed: int) -> Judge:
    def refuse(state: State, epoch: int, command: Command) -> Result:
        return Refused(
            Reason.INVALID,
            f"{type(command).__name__} needs level {needed}, the cluster is at {state.level}: {UPGRADE}",
        )

    return refuse


COMMON: Mapping[type, Judge] = {
    Tick: State._tick,
    Fence: State.fence,
    Check: State._check,
    TakeLease: State._take_lease,
    SetLevel: State.set_level,
    Accept: State.accept,
}
"""The commands that every domain takes."""
