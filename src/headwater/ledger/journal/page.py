"""What the processes of a journal share in memory: the file `page`, which all of them map.

It tells how far frames are published and synced, whether a sync has failed, and who is alive. It counts on the boot
that made it only: afterwards the frames themselves say what is there.

    0     8+16+16  `HWTRJP`, format number as a digit, zero; boot; id of the journal
    40    8        everything up to this number was synced when the page was made
    48    1        whether a sync has failed
    64    32       published: CRC32C of the rest, zero, number, file, end of the frame in it
    128   32       the same; the two are written in turn
    512   8 each   64 slots: the newest number that a process has synced
    4096  128 each 256 beats: length of the name, name; at 120 the count

A process writes to its own slot only, and to what is published under the lock, so plain stores are enough.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from crc32c import crc32c

from headwater.errors import Halted, Overloaded
from headwater.ledger.contract import Beat
from headwater.ledger.journal.disk import Disk

_HEAD = struct.Struct("<8s16s16sQB")
_MAGIC = b"HWTRJP1\0"
_BROKEN_AT = 48
_PUBLISHED = struct.Struct("<IIQQQ")
_PLACES = (64, 128)
_SLOTS_AT = 512
_NUMBER = struct.Struct("<Q")
SLOTS = 64
_BEATS_AT, _BEAT_BYTES, _COUNT_AT = 4096, 128, 120
BEATS = 256
MAX_NAME = _COUNT_AT - 1
SIZE = _BEATS_AT + BEATS * _BEAT_BYTES


@dataclass(frozen=True, slots=True)
class Published:
    """The end of the journal, synced or not."""

    number: int
    file: int
    end: int


class Page:
    """One process's view of the page."""

    def __init__(self, disk: Disk, data: memoryview) -> None:
        self._disk = disk
        self._data = data
        self._slot = -1
        self._beat_places: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Page at {self.published}, synced {self.synced()}>"

    # --- life ----------------------------------------------------------------------------------------

    @classmethod
    def attach(cls, disk: Disk, journal: bytes) -> Page | None:
        """The page that others have made, if it tells of this journal and this boot."""
        data = disk.page(SIZE)
        if data is None:
            return None
        magic, boot, owner, _, _ = _HEAD.unpack_from(data)
        page = cls(disk, data)
        return page if (magic, boot, owner) == (_MAGIC, disk.boot(), journal) and page.published else None

    @classmethod
    def make(cls, disk: Disk, journal: bytes, published: Published) -> Page:
        """A new page, for a journal that is synced up to what is published. Processes with the old one end."""
        old = disk.page(SIZE)
        if old is not None:
            old[_BROKEN_AT] = 1
        data = bytearray(SIZE)
        _HEAD.pack_into(data, 0, _MAGIC, disk.boot(), journal, published.number, 0)
        _put(memoryview(data), published)
        disk.new_page(bytes(data))
        made = disk.page(SIZE)
        assert made is not None
        return cls(disk, made)

    def claim(self) -> None:
        """Take a slot for this process."""
        for slot in range(SLOTS):
            if self._disk.claim(slot):
                self._slot = slot
                self.has_synced(self.synced())
                return
        raise Overloaded(f"{SLOTS} processes use the journal; no more can")

    def check(self) -> None:
        """Raise if a sync has failed, or another page has taken the place of this one."""
        if self._data[_BROKEN_AT]:
            raise Halted("a sync of the journal failed, or it was opened anew: all processes that use it must end")

    def check_place(self) -> None:
        """Raise if the page is no longer that of the directory. Call this under the lock."""
        self.check()
        if not self._disk.same_page():
            raise Halted("the journal's directory was replaced: all processes that use it must end")

    def break_all(self) -> None:
        """A sync has failed: nobody may go on."""
        self._data[_BROKEN_AT] = 1

    @property
    def broken(self) -> bool:
        return bool(self._data[_BROKEN_AT])

    # --- the end -------------------------------------------------------------------------------------

    @property
    def published(self) -> Published | None:
        """The newest end that is whole. A process that was killed while it published has published nothing."""
        found = [one for one in (_get(self._data, at) for at in _PLACES) if one is not None]
        return max(found, key=lambda one: one.number, default=None)

    def end(self) -> Published:
        """The newest end."""
        found = self.published
        if found is None:
            raise Halted("the journal's page is damaged: all processes that use it must end")
        return found

    def publish(self, published: Published) -> None:
        """Tell where the next frame goes. Call this under the lock."""
        _put(self._data, published)

    def synced(self) -> int:
        """The newest number that is known to be synced."""
        numbers = struct.unpack_from(f"<{SLOTS}Q", self._data, _SLOTS_AT)
        [at_first] = _NUMBER.unpack_from(self._data, 40)
        return int(max(at_first, *numbers))

    def has_synced(self, number: int) -> None:
        """This process has synced everything up to a number."""
        at = _SLOTS_AT + self._slot * _NUMBER.size
        if number > _NUMBER.unpack_from(self._data, at)[0]:
            _NUMBER.pack_into(self._data, at, number)

    # --- beats ---------------------------------------------------------------------------------------

    def beat(self, process: str) -> bool:
        """Count up the beat of a process that has a place; whether it has one."""
        name = process.encode()
        at = self._beat_places.get(process, -1)
        if at < 0 or self._name(at) != name:
            at = next((place for place in _beats() if self._name(place) == name), -1)
        if at < 0:
            return False
        self._beat_places[process] = at
        [count] = _NUMBER.unpack_from(self._data, at + _COUNT_AT)
        _NUMBER.pack_into(self._data, at + _COUNT_AT, count + 1)
        return True

    def begin_beat(self, process: str) -> None:
        """The first beat of a process. Call this under the lock."""
        name = process.encode()
        if not 0 < len(name) <= MAX_NAME:
            raise ValueError(f"the name of a process has {len(name)} bytes; the limit is {MAX_NAME}")
        if self.beat(process):
            return
        at = next((place for place in _beats() if not self._data[place]), -1)
        if at < 0:
            raise Overloaded(f"{BEATS} processes show beats; no more can")
        _NUMBER.pack_into(self._data, at + _COUNT_AT, 1)
        self._data[at + 1 : at + 1 + len(name)] = name
        self._data[at] = len(name)

    def beats(self) -> list[Beat]:
        """The beats of all processes."""
        found = []
        for at in _beats():
            if self._data[at]:
                [count] = _NUMBER.unpack_from(self._data, at + _COUNT_AT)
                found.append(Beat(self._name(at).decode(), count))
        return found

    def forget_beat(self, process: str) -> None:
        """Remove a beat. Call this under the lock."""
        name = process.encode()
        for at in _beats():
            if self._name(at) == name:
                self._data[at] = 0

    def _name(self, at: int) -> bytes:
        return bytes(self._data[at + 1 : at + 1 + self._data[at]])


def _beats() -> range:
    return range(_BEATS_AT, SIZE, _BEAT_BYTES)


def _put(data: memoryview, published: Published) -> None:
    body = _PUBLISHED.pack(0, 0, published.number, published.file, published.end)
    first, second = (_get(data, at) for at in _PLACES)
    stale = first is None or (second is not None and first.number <= second.number)
    data[(at := _PLACES[0] if stale else _PLACES[1]) : at + len(body)] = (
        crc32c(body[4:]).to_bytes(4, "little") + body[4:]
    )


def _get(data: memoryview, at: int) -> Published | None:
    crc, _, number, file, end = _PUBLISHED.unpack_from(data, at)
    body = bytes(data[at + 4 : at + _PUBLISHED.size])
    return Published(number, file, end) if file and crc32c(body) == crc else None
