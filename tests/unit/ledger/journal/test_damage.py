"""Bytes of a small journal are damaged in turn: the same state, or a refusal that changes nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from crc32c import crc32c

from harness.virtual import SeededChance
from headwater.errors import LedgerWentBack
from headwater.ledger.contract import Image, Pointer
from headwater.ledger.journal import frames
from headwater.ledger.journal.images import Place
from headwater.ledger.journal.opening import open_journal
from headwater.ledger.journal.page import Page
from headwater.ledger.journal.reader import Reader, name_of
from headwater.types import Position
from tests.support.journals import FILE_BYTES, MemoryDisk, state_of, writer_of
from tests.support.promise import promise
from tests.support.soak import WHOLE

PROMISES = ("M1",)

State = dict[int, tuple[object, ...]]
LAST = 3
"""How many frames at the end are cut off at every place."""


class Journal:
    """A journal of three files, with the state after each frame."""

    def __init__(self) -> None:
        chance = SeededChance(1)
        self.disk = MemoryDisk()
        opened = open_journal(self.disk, 0, chance, FILE_BYTES)
        reader, page = opened
        writer = writer_of(self.disk, opened, chance)
        self.states: dict[int, State] = {0: state_of(reader)}
        self.places: list[tuple[str, int, int]] = []
        """File, begin and end of each frame that is not a seal."""
        for i in range(14):
            before = page.end()
            if i == 5:
                writer.truncate(1, 1)
            elif i == 9:
                writer.set_pointer(1, 0, Pointer(Position(2), "checkpoint"))
            else:
                writer.append(i % 2, (b"%d HWJF" % i) * (1 + 500 * (i % 4)))
            end = page.end()
            begin = before.end if end.file == before.file else frames.PAGE
            self.places.append((name_of(end.file), begin, end.end))
            self.states[end.number] = state_of(reader)
        self.number = page.synced()
        assert len(self.disk.files) >= 3

    @property
    def state(self) -> State:
        return self.states[self.number]

    def copied(self) -> dict[str, bytearray]:
        return {name: bytearray(data) for name, data in self.disk.files.items()}


@pytest.fixture(scope="module")
def journal() -> Journal:
    return Journal()


def opened(files: dict[str, bytearray], marked: int) -> tuple[Reader, Page] | None:
    """The journal in some files; None if it is refused, which must not change them."""
    before = {name: bytes(data) for name, data in files.items()}
    try:
        return open_journal(MemoryDisk(files), marked, SeededChance(2), FILE_BYTES)
    except LedgerWentBack:
        assert {name: bytes(data) for name, data in files.items()} == before
        return None


def bytes_to_damage(journal: Journal) -> Iterator[tuple[str, int]]:
    """Bytes of headers, records, echoes and zeros; with HEADWATER_TEST_SOAK all of them."""
    if WHOLE:
        yield from ((name, at) for name, data in journal.disk.files.items() for at in range(len(data)))
        return
    chosen = random.Random(3)
    for name, data in journal.disk.files.items():
        used = [at for at, byte in enumerate(data) if byte]
        yield from ((name, at) for at in (chosen.sample(used, 300) if len(used) > 300 else used))
        yield from ((name, at) for page in range(0, len(data), frames.PAGE) for at in range(page, page + 64, 9))


@promise("M1")
@pytest.mark.timeout(3_000 if WHOLE else 120)
def test_one_byte(journal: Journal) -> None:
    """Nothing is lost by it: a successor repeats what a frame said. Only the last frame, and headers, are refused."""
    same = refused = 0
    for name, at in bytes_to_damage(journal):
        files = journal.copied()
        files[name][at] ^= 0x40
        found = opened(files, journal.number)
        if found is None:
            last, begin, _ = journal.places[-1]
            assert at < frames.PAGE or (name == last and at >= begin), f"{name} at {at}"
            refused += 1
        else:
            assert state_of(found[0]) == journal.state, f"{name} at {at}"
            same += 1
    assert same > 10 * refused > 0


@promise("M1")
def test_a_page(journal: Journal) -> None:
    """A page that is lost costs no more than a byte of it."""
    for name, data in journal.disk.files.items():
        for page in range(frames.PAGE, len(data), frames.PAGE):
            files = journal.copied()
            files[name][page : page + frames.PAGE] = bytes(frames.PAGE)
            found = opened(files, journal.number)
            last, begin, _ = journal.places[-1]
            if found is None:
                assert (name == last and page >= begin) or pages_of_neighbours(journal, name, page)
            else:
                assert state_of(found[0]) == journal.state


def pages_of_neighbours(journal: Journal, name: str, page: int) -> bool:
    """Whether a page has a part of a frame and of what its successor repeats of it: both are long."""
    return any(
        file == name and begin <= page < end and end - begin > frames.PAGE for file, begin, end in journal.places
    )


@promise("M1")
def test_the_end_is_cut_off(journal: Journal) -> None:
    """Somewhere in the last frames: refused if a mark knows of them, else the state after some whole frame."""
    for name, begin, end in journal.places[-LAST:]:
        for at in [*range(begin, begin + 200, 3), *range(begin + 200, end, 397)]:
            files = journal.copied()
            size = len(files[name])
            files[name][at:] = bytes(size - at)
            known = opened({file: bytearray(data) for file, data in files.items()}, journal.number)
            assert known is None or state_of(known[0]) == journal.state, "nothing but zeros was cut off"
            found = opened(files, 0)
            if found is not None:
                assert state_of(found[0]) in journal.states.values()
                assert found[0].number >= journal.number - LAST


@promise("M1")
def test_a_file_is_missing(journal: Journal) -> None:
    names = sorted(journal.disk.files)
    for name in names:
        files = journal.copied()
        del files[name]
        found = opened(files, journal.number)
        assert (found is None) == (name <= journal.places[-1][0]), name
    assert opened({}, journal.number) is None


@promise("M1")
def test_files_of_another_journal(journal: Journal) -> None:
    other = MemoryDisk()
    chance = SeededChance(9)
    writer = writer_of(other, open_journal(other, 0, chance, FILE_BYTES), chance)
    for _ in range(20):
        writer.append(1, b"x" * 5_000)
    files = journal.copied()
    last = journal.places[-1][0]
    files[last] = bytearray(other.files[last])
    assert opened(files, journal.number) is None


@promise("M1")
def test_a_byte_of_an_image() -> None:
    """It costs the image alone, or the last frame if nobody knows that it was synced."""
    chance, disk, places, states = SeededChance(1), MemoryDisk(), dict[int, Place](), dict[int, State]()
    opened_first = open_journal(disk, 0, chance, FILE_BYTES)
    reader, page = opened_first
    writer = writer_of(disk, opened_first, chance)
    for sequence in range(1, 5):
        body = bytes([sequence]) * 3_000
        image = Image(7, sequence, [body, crc32c(body).to_bytes(4, "big")], 3_004, crc32c(body))
        writer.append(1, b"record %d" % sequence, [image])
        place = reader.images.get(1, 7, sequence)
        assert place is not None
        places[sequence], states[sequence] = place, state_of(reader)
    for sequence, place in places.items():
        for at in range(place.at, place.at + place.size, 211):
            files = {name: bytearray(data) for name, data in disk.files.items()}
            files[name_of(place.file)][at] ^= 1
            told, untold = (
                opened({**files}, page.synced()),
                opened({name: bytearray(d) for name, d in files.items()}, 0),
            )
            assert told is not None and untold is not None
            assert state_of(told[0]) == states[4] and damaged(told[0], places) == [sequence]
            last = sequence == 4
            assert state_of(untold[0]) == states[3 if last else 4]
            assert damaged(untold[0], places) == ([] if last else [sequence])
            assert (untold[0].images.get(1, 7, 4) is None) == last


def damaged(reader: Reader, places: dict[int, Place]) -> list[int]:
    """The images that a reader has and that are not as they were written."""
    found = []
    for sequence, place in places.items():
        if reader.images.get(1, 7, sequence) == place:
            data = reader.image(place, 0, None)
            if int.from_bytes(data[-4:], "big") != crc32c(data[:-4]):
                found.append(sequence)
    return found
