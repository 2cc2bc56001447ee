"""One seed of the simulated journal: processes append, truncate and point, they and the machine die, all is audited."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from harness.virtual import SeededChance
from headwater.errors import Halted, LedgerWentBack, OutcomeUnknown, StoreFull, StoreUnavailable, Truncated
from headwater.ledger.contract import Image, Pointer
from headwater.ledger.journal.opening import open_journal
from headwater.ledger.journal.page import Page
from headwater.ledger.journal.reader import Reader
from headwater.ledger.journal.writer import Writer
from headwater.types import Domain, Position
from tests.simulation.journal.disk import File, Machine, Process, SimulatedDisk

DOMAINS = (Domain(0), Domain(1))
FILE_BYTES = 64 << 10
LONG = 9_000
ROUNDS = 12
TURNS = 300
LAST_TURNS = 200_000
EPOCH = 1
STEPS = ["append", "truncate", "free", "point", "read", "mark", "spare"]
WEIGHTS = [60, 6, 3, 4, 20, 6, 4]


class Violation(AssertionError):
    """A promise was broken."""


@dataclass
class Domains:
    """What one domain must have."""

    told: dict[int, bytes] = field(default_factory=dict)
    """Records by position that an append has returned, or that a reader has seen."""
    truncated: int = 0
    """The newest position through which a truncation has returned."""
    asked: int = 0
    """The newest position through which a truncation was asked for."""
    pointer: int = 0
    pointers: set[int] = field(default_factory=set)


@dataclass
class Outcome:
    """What became of a seed."""

    problem: str | None
    acknowledged: int
    crashes: int
    refused: int
    log: list[str]


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"journal {seed}")
        self.machine = Machine(
            self.random.getrandbits(32),
            failing=self.random.choice([0.0, 0.0, 0.004, 0.02]),
            full=self.random.choice([0.0, 0.0, 0.3]),
        )
        self.domains = {domain: Domains() for domain in DOMAINS}
        self.carries = self.random.random() < 0.5
        """Whether records have images: a file with some stays until they are freed."""
        self.tried: dict[bytes, list[tuple[int, bytes]]] = {}
        """The images of each record that was tried, by sequence."""
        self.carried: dict[tuple[Domain, int], tuple[int, bytes]] = {}
        """Images whose record was acknowledged, with their file."""
        self.freed = 0
        """Images in files up to this one are not needed."""
        self.chance = SeededChance(self.random.getrandbits(32))
        self.marked = 0
        self.acknowledged = self.crashes = self.refused = 0
        self.log: list[str] = []
        self._names = self._sequences = 0

    # --- what processes do ---------------------------------------------------------------------------

    def work(self, disk: SimulatedDisk, count: int) -> None:
        """A process of the cluster."""
        try:
            reader, page = open_journal(disk, self.marked, self.chance, FILE_BYTES)
            writer = Writer(disk, page, reader, self.chance, threading.Lock(), FILE_BYTES)
            for _ in range(count):
                self.step(writer, reader, page)
        except (Halted, StoreUnavailable, StoreFull) as error:
            if isinstance(error, LedgerWentBack):
                raise
            self.log.append(f"a process ended: {error}")

    def step(self, writer: Writer, reader: Reader, page: Page) -> None:
        domain = self.random.choice(DOMAINS)
        known = self.domains[domain]
        try:
            match self.random.choices(STEPS, WEIGHTS)[0]:
                case "append":
                    self.append(domain, writer, reader)
                case "free":
                    newest = max((image.file for image in reader.images), default=1)
                    self.freed = max(self.freed, self.random.randrange(newest))
                    writer.free(self.freed)
                case "truncate":
                    through = self.random.randrange(max(known.told, default=0) + 1)
                    known.asked = max(known.asked, through)
                    writer.truncate(domain, through)
                    known.truncated = max(known.truncated, through)
                case "point":
                    expected = known.pointer if self.random.random() < 0.8 else self.random.randrange(5)
                    position = Position(expected + self.random.randrange(1, 4))
                    known.pointers.add(position)
                    if writer.set_pointer(domain, expected, Pointer(position, f"checkpoint {position}")):
                        known.pointer = max(known.pointer, position)
                case "read":
                    self.read(domain, reader, page)
                case "mark":
                    self.marked = max(self.marked, page.synced())
                case _:
                    writer.make_spare()
        except (OutcomeUnknown, StoreFull) as error:
            self.log.append(f"not told: {error}")

    def append(self, domain: Domain, writer: Writer, reader: Reader) -> None:
        self._names += 1
        size = self.random.choice([20, 300, 3_000, LONG])
        record = (f"{self._names} ".encode() + b"HWJF" * size)[: self.random.randrange(20, size + 1)]
        images = []
        for _ in range(self.random.choice([0, 0, 1, 2]) if self.carries else 0):
            self._sequences += 1
            images.append((self._sequences, self.random.randbytes(self.random.choice([10, 5_000, LONG]))))
        self.tried[record] = [(sequence, whole(body)) for sequence, body in images]
        position = writer.append(domain, record, [image_of(sequence, body) for sequence, body in images])
        for sequence, data in self.tried[record]:
            place = reader.images.get(domain, EPOCH, sequence)
            if place is None:
                ensure(self.freed > 0, f"domain {domain}: image {sequence} is not there after its append")
            else:
                self.carried[domain, sequence] = place.file, data
        self.tell(domain, position, record)
        self.acknowledged += 1

    def read(self, domain: Domain, reader: Reader, page: Page) -> None:
        page.check()
        synced = page.synced()
        reader.follow(synced, page.end().file)
        reader.show(synced)
        shown = reader.shown(domain)
        told = self.domains[domain].told
        after = self.random.randrange(shown.last + 1)
        try:
            for entry in reader.entries(domain, Position(after), 20):
                self.tell(domain, entry.position, entry.data)
                self.look(domain, reader, entry.data)
        except Truncated:
            ensure(after < self.domains[domain].asked, f"domain {domain} after {after} is truncated, and nobody asked")
        ensure(shown.last <= max([*told, self._names]), "positions from nowhere")

    def tell(self, domain: Domain, position: int, record: bytes) -> None:
        """Somebody knows now that a record is at a position."""
        before = self.domains[domain].told.setdefault(position, record)
        ensure(before == record, f"domain {domain}, position {position}: {short(record)} and {short(before)}")
        ensure(record in self.tried, f"domain {domain}, position {position}: {short(record)} was never appended")

    def look(self, domain: Domain, reader: Reader, record: bytes) -> None:
        """The images of a record can be read, as long as it is not truncated and nobody has freed them."""
        for sequence, data in self.tried[record]:
            self.has_image(domain, reader, sequence, data, 0)

    def has_image(self, domain: Domain, reader: Reader, sequence: int, data: bytes, file: int) -> None:
        place = reader.images.get(domain, EPOCH, sequence)
        try:
            found = reader.image(place, 0, None) if place is not None else None
        except FileNotFoundError:
            found = None
        if found is None and place is not None:
            file = place.file
        ensure(
            found == data or (found is None and file <= self.freed), f"domain {domain}: image {sequence} is not there"
        )

    def audit(self, disk: SimulatedDisk) -> None:
        """Everything that anybody was told of is there."""
        told = {domain: (dict(of.told), of.truncated, of.pointer) for domain, of in self.domains.items()}
        reader, page = open_journal(disk, self.marked, self.chance, FILE_BYTES)
        ensure(page.synced() >= self.marked, f"synced {page.synced()}, and a mark says {self.marked}")
        for domain, (records, truncated, pointer) in told.items():
            known, shown = self.domains[domain], reader.shown(domain)
            ensure(
                shown.last >= max(records, default=0),
                f"domain {domain} ends at {shown.last}: {max(records, default=0)}",
            )
            ensure(truncated <= shown.truncated, f"domain {domain} is truncated through {shown.truncated}: {truncated}")
            ensure(shown.truncated <= known.asked, f"domain {domain} is truncated through {shown.truncated}, unasked")
            at = shown.pointer.position if shown.pointer is not None else 0
            ensure(
                pointer <= at and at in {0, *known.pointers}, f"domain {domain}: pointer {at}, and {pointer} was set"
            )
            entries = reader.entries(domain, Position(shown.truncated), 1_000_000)
            positions = [entry.position for entry in entries]
            ensure(positions == list(range(shown.truncated + 1, shown.last + 1)), f"domain {domain} has {positions}")
            for entry in entries:
                self.tell(domain, entry.position, entry.data)
                for sequence, data in self.tried[entry.data]:
                    place = reader.images.get(domain, EPOCH, sequence)
                    there = place is not None and reader.image(place, 0, None) == data
                    ensure(there, f"domain {domain}: image {sequence} is not there, and its record is")
            ensure(len({entry.data for entry in entries}) == len(entries), f"domain {domain} has a record twice")

        for (domain, sequence), (file, data) in self.carried.items():
            self.has_image(domain, reader, sequence, data, file)

    # --- what happens to them ------------------------------------------------------------------------

    def whole(self) -> None:
        """Rounds of work, each ended by some death, then an audit."""
        for _ in range(ROUNDS):
            for _ in range(self.random.randrange(1, 4)):
                count = self.random.randrange(1, 25)
                Process(self.machine, lambda disk, count=count: self.work(disk, count))  # type: ignore[misc]
            seen = list(self.machine.processes)
            for _ in range(self.random.randrange(1, 4)):
                self.machine.run(self.random.randrange(1, TURNS))
                self.hurt()
            self.settled(seen)
            if self.random.random() < 0.5:
                self.machine.lose_power()
                self.crashes += 1
                self.log.append("power was lost")
            if self.random.random() < 0.4:
                self.alone(self.audit)
        self.machine.failing = self.machine.full = 0.0
        self.alone(self.audit)
        self.roll_back()

    def hurt(self) -> None:
        """Kill a process, or stop it for a while."""
        alive = [process for process in self.machine.processes if not process.ended]
        if not alive:
            return
        victim = self.random.choice(alive)
        if self.random.random() < 0.5:
            victim.kill()
            self.machine.settle()
            self.log.append("a process was killed")
        else:
            victim.paused = self.machine.turns + self.random.randrange(2 * TURNS)

    def settled(self, seen: list[Process]) -> None:
        """Let processes end, or kill them; whoever found a problem tells."""
        if self.random.random() < 0.4:
            for _ in range(LAST_TURNS):
                if not any(not process.ended for process in self.machine.processes):
                    break
                self.machine.run(1)
        for process in self.machine.processes:
            process.kill()
        self.machine.settle()
        for process in seen:
            if process.error is not None:
                raise process.error

    def alone(self, work: Callable[[SimulatedDisk], None]) -> None:
        """One process, which must end well unless the disk is full or fails."""
        for _ in range(50):
            process = Process(self.machine, work)
            self.machine.finish()
            if process.error is None:
                return
            full = isinstance(process.error, StoreFull | StoreUnavailable)
            if not (full and (self.machine.full or self.machine.failing)):
                raise process.error

    def roll_back(self) -> None:
        """An older copy of all files is put back: it is refused and left alone if a mark knows more."""
        copy = {name: bytes(file.seen) for name, file in self.machine.files.items()}
        at = self.marked
        self.alone(lambda disk: self.work(disk, 12))
        self.machine.lose_power()
        self.machine.files = {name: rolled(data) for name, data in copy.items()}
        process = Process(self.machine, lambda disk: opened(disk, self.marked))
        self.machine.finish()
        if self.marked == at:
            return
        if isinstance(process.error, LedgerWentBack):
            self.refused += 1
            same = {name: bytes(file.seen) for name, file in self.machine.files.items()} == copy
            ensure(same, "a journal that was refused has changed")
        elif process.error is not None:
            raise process.error


def opened(disk: SimulatedDisk, marked: int) -> None:
    _, page = open_journal(disk, marked, SeededChance(1), FILE_BYTES)
    ensure(page.synced() >= marked, f"a journal that ends at {page.synced()} was opened; a mark says {marked}")


def rolled(data: bytes) -> File:
    file = File(len(data))
    file.seen[:] = file.stored[:] = data
    return file


def whole(body: bytes) -> bytes:
    """An image: some bytes, and their CRC."""
    return body + crc32c(body).to_bytes(4, "big")


def image_of(sequence: int, body: bytes) -> Image:
    data = whole(body)
    return Image(EPOCH, sequence, [data[:5], data[5:]], len(data), crc32c(body))


def ensure(holds: bool, what: str) -> None:
    if not holds:
        raise Violation(what)


def short(record: bytes) -> str:
    return f"{record[:20]!r} of {len(record)} bytes"


def simulate(seed: int) -> Outcome:
    """Run a seed."""
    run = Run(seed)
    problem = None
    try:
        run.whole()
    except Exception as error:  # noqa: BLE001 - any error is a finding
        problem = f"{type(error).__name__}: {error}"
        run.log.append(problem)
    finally:
        for process in run.machine.processes:
            process.kill()
        run.machine.settle()
    return Outcome(problem, run.acknowledged, run.crashes, run.refused, run.log)
