"""Follows the frames of a journal: what a writer must know, and what may be shown.

A frame is *known* once it was read. What it says is *shown* once a sync has covered it.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headwater.errors import ConfigError, Damaged, LedgerWentBack, Truncated
from headwater.ledger.contract import Entry, Pointer
from headwater.ledger.journal import frames
from headwater.ledger.journal.disk import Disk
from headwater.ledger.journal.frames import MAX_FRAME, PAGE, DomainOrigin, FileHead, Frame, Head, Kind, Origin, Row
from headwater.ledger.journal.images import Images, Place
from headwater.ledger.journal.page import Published
from headwater.state.records import other_format
from headwater.types import Domain, Position

FILE_BYTES = 64 << 20
_NEAR, _FAR, _FEW = 16 << 10, 256 << 10, 8
"""How many bytes are read at once: for a few frames, and for more of them."""
_RUN = 1 << 20
"""How many bytes are searched at once."""
_AT_BITS = 32


def name_of(file: int) -> str:
    """The name of a file of a journal."""
    return f"{file:016d}.j"


def files_of(disk: Disk) -> list[int]:
    """The numbers of all files that have the name of one."""
    return sorted(
        int(name[:16]) for name in disk.names() if len(name) == 18 and name.endswith(".j") and name[:16].isdigit()
    )


def read_head(disk: Disk, file: int) -> FileHead | None:
    """The header of a file; None if it is not sound, or of another file."""
    try:
        head = frames.decode_file_head(disk.read(name_of(file), 0, frames.MAX_FILE_HEAD))
    except frames.OtherFormat as error:
        raise ConfigError(other_format(f"the journal file {name_of(file)}", error.found)) from error
    return head if head is not None and head.file == file else None


@dataclass(slots=True)
class Shown:
    """What may be shown of a domain."""

    last: int = 0
    truncated: int = 0
    pointer: Pointer | None = None
    first: int = 1
    """The position of the first place."""
    places: array[int] = field(default_factory=lambda: array("Q"))
    """Where records are: file and offset."""


class _Unshown(NamedTuple):
    """What a frame has changed in a domain."""

    number: int
    domain: int
    now: DomainOrigin
    at: int | None
    """Where its record is."""
    file: int
    images: tuple[Row, ...]


class Reader:
    """One process's way through the files. The caller lets one thread at a time use it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.journal = b""
        self.file: FileHead | None = None
        """The file of the newest frame that is known."""
        self.at = 0
        """Where the next frame of that file begins."""
        self.sealed = False
        self.number = 0
        """The newest frame that is known."""
        self.newest_synced = 0
        """The newest number that a frame says to be synced."""
        self.repaired = 0
        """Frames that were read from the echo of their successor."""
        self.echo = b""
        """What the next frame repeats."""
        self.known: dict[int, DomainOrigin] = {}
        self._shown: dict[int, Shown] = {}
        self._unshown: deque[_Unshown] = deque()
        self.images = Images()
        """Where the images are that may be read."""
        self.heads: dict[int, FileHead] = {}
        self._buffer = (0, 0, b"")
        self._step = _FAR
        self._newest: int | None = None

    def __repr__(self) -> str:
        return f"<Reader at {self.number}, file {self.file.file if self.file else None} at {self.at}>"

    # --- beginning -----------------------------------------------------------------------------------

    def begin(self, newest: int | None = None) -> None:
        """Go to the beginning of the oldest file. Older ones behind a gap were deleted, or `check_beginning` raises.

        Files above `newest` are left out: a process may have begun one, and died before it was published.
        """
        files = [file for file in files_of(self._disk) if newest is None or file <= newest]
        found = {file: head for file in files if (head := read_head(self._disk, file)) is not None}
        if not found:
            raise LedgerWentBack("the journal has files, and no file header is sound")
        oldest = max(found)
        while oldest - 1 in found:
            oldest -= 1
        found = {file: head for file, head in found.items() if file >= oldest}
        self.heads = found
        self.number = self.newest_synced = 0
        self.enter(found[min(found)], checked=False)
        self._shown = {
            domain: Shown(of.last, of.truncated, of.pointer, of.last + 1) for domain, of in self.known.items()
        }
        self._unshown.clear()
        self.images = Images()

    def begin_anywhere(self) -> bool:
        """Go to the oldest file that has a sound header, whatever is missing behind it; whether there is one."""
        files = files_of(self._disk)
        found = {file: head for file in files if (head := read_head(self._disk, file)) is not None}
        if not found:
            return False
        newest = min(found)
        while newest + 1 in found:
            newest += 1
        self.begin(newest)
        return True

    def check_beginning(self) -> None:
        """Raise if files are missing that had records which are needed. Everything must be known."""
        oldest = self.heads[min(self.heads)]
        for domain, of in oldest.origin.domains.items():
            known = self.known[domain]
            if of.last > known.truncated:
                raise LedgerWentBack(
                    f"records {known.truncated + 1} to {of.last} of domain {domain} are missing: the journal begins "
                    f"with its file {name_of(oldest.file)}"
                )

    def enter(self, head: FileHead, *, checked: bool = True) -> None:
        if checked and head.journal != self.journal:
            raise LedgerWentBack(f"the journal's file {name_of(head.file)} is of another journal")
        if checked:  # what a damaged frame at the end of the file before may have said
            for domain, of in head.origin.domains.items():
                if self.known.get(domain) != of:
                    self._unshown.append(_Unshown(head.first - 1, domain, of, None, 0, ()))
        self.heads[head.file] = head
        self.journal = head.journal
        self.file, self.at, self.sealed, self.echo = head, head.size, False, b""
        self.number = head.first - 1
        self.known = dict(head.origin.domains)

    # --- following -----------------------------------------------------------------------------------

    def reach(self, end: Published) -> None:
        """Go to a published end. Raises if the journal does not have it."""
        self.follow(end.number, end.file)
        assert self.file is not None
        if self.file.file < end.file:
            self.next()
        if (self.number, self.file.file, self.at) != (end.number, end.file, end.end):
            raise Damaged(f"the journal does not have its published end, {end}: {self}")

    def follow(self, until: int, newest: int | None = None) -> None:
        """Read all frames up to a number, in files up to `newest`. Raises if one of them is not there."""
        self._newest = newest
        self._drop_buffer()
        self._step = _NEAR if until - self.number < _FEW else _FAR
        while self.number < until:
            frame = self.next()
            if frame is None:
                raise Damaged(
                    f"frame {self.number + 1} of the journal is damaged, file {self.file and name_of(self.file.file)} "
                    f"at {self.at}"
                )
            self.take(frame)

    def next(self) -> Frame | None:
        """The next frame; None if it is not sound, and cannot be repaired. May go on to the next file."""
        while True:
            assert self.file is not None
            following = self.heads.get(self.file.file + 1)
            ends = following is not None and following.first == self.number + 1  # it was cut here, or is sealed
            if not ends and not self.sealed:
                frame = self._frame(self.at) or self._from_echo(self.at)
                if frame is not None:
                    return frame
                if following is None or following.first != self.number + 2 or not self._explains(following):
                    return None
                self.number += 1  # a damaged seal: the header of the next file repeats all that it may have said
            elif following is None:
                following = self._look_for_next()
                if following is None:
                    return None
                if following.first != self.number + 1:  # this reader was far behind, and files are gone
                    self.begin(self._newest)
                    continue
            assert following is not None
            if following.origin.file != self.file.file or following.origin.salt != self.file.salt:
                raise LedgerWentBack(f"the journal's file {name_of(following.file)} does not follow its predecessor")
            self.enter(following)

    def _drop_buffer(self) -> None:
        """Forget what was read behind the published end. It may have been overwritten since."""
        self._buffer = (0, 0, b"")

    def _look_for_next(self) -> FileHead | None:
        assert self.file is not None
        try:
            return read_head(self._disk, self.file.file + 1)
        except FileNotFoundError:
            later = [file for file in files_of(self._disk) if file > self.file.file]
            return read_head(self._disk, later[0]) if later else None

    def _explains(self, following: FileHead) -> bool:
        """Whether nothing is lost if the next file begins after one frame that cannot be read."""
        last = {domain: of.last for domain, of in self.known.items()}
        return last == {domain: of.last for domain, of in following.origin.domains.items()}

    def _frame(self, at: int) -> Frame | None:
        """The frame at a place, if it is sound and the next one."""
        assert self.file is not None
        file, begin, data = self._buffer
        if file == self.file.file and begin <= at < begin + len(data):
            found = self._decode(data, at - begin, at)
            if found is not None:
                return found
        data = self._disk.read(name_of(self.file.file), at, self._step)
        head = frames.decode_head(self.file.salt, data)
        if head is not None and head.told_bytes > len(data):
            data = self._disk.read(name_of(self.file.file), at, head.told_bytes)
        if head is not None and head.images:
            self._step = _NEAR  # the next frame is not near
        self._buffer = (self.file.file, at, data)
        return self._decode(data, 0, at)

    def _decode(self, data: bytes, offset: int, at: int) -> Frame | None:
        assert self.file is not None
        head = frames.decode_head(self.file.salt, data, offset)
        if head is None or head.number != self.number + 1:
            return None
        record = frames.record_in(head, data, offset)
        if record is None:
            return None
        return Frame(head, record, at, data[offset : offset + head.own_bytes] + record)

    def _from_echo(self, at: int) -> Frame | None:
        """The frame at a place, from what its successor repeats of it."""
        assert self.file is not None
        for after, head, data in self.ahead(at + PAGE, at + MAX_FRAME):
            if head.number == self.number + 2:
                echo = frames.echo_in(head, data)
                frame = echoed(self.file.salt, echo, at) if echo else None
                if frame is not None and frame.head.number == self.number + 1 and at + frame.head.size == after:
                    self.repaired += 1
                    return frame
        return None

    def ahead(self, at: int, end: int) -> Iterator[tuple[int, Head, bytes]]:
        """Sound headers behind a place, with the bytes of their frames."""
        assert self.file is not None
        name, step = name_of(self.file.file), _RUN
        end = min(end, self._disk.size(name))
        for begin in range(at, end, step):
            data = self._disk.read(name, begin, min(step, end - begin))
            for offset in range(0, len(data), PAGE):
                head = frames.decode_head(self.file.salt, data, offset)
                if head is not None:
                    yield begin + offset, head, self._disk.read(name, begin + offset, head.told_bytes)

    def is_blank(self, at: int) -> bool:
        """Whether the file has nothing but zeros from a place on."""
        assert self.file is not None
        name = name_of(self.file.file)
        end = self._disk.size(name)
        return not any(self._disk.read(name, begin, _RUN).strip(b"\0") for begin in range(at, end, _RUN))

    # --- knowing and showing -------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """Go on behind a frame, the next one."""
        assert self.file is not None
        head = frame.head
        self.number, self.at, self.echo = head.number, frame.at + head.size, frame.echo
        self.newest_synced = max(self.newest_synced, head.synced)
        if head.kind is Kind.SEAL:
            self.sealed = True
            return
        before = self.known.get(head.domain) or DomainOrigin(0, 0, None)
        if head.position != before.last + (head.kind is Kind.RECORD):
            raise Damaged(f"frame {head.number} of the journal has position {head.position}, after {before.last}")
        now = self.known[head.domain] = _changed(before, frame)
        at = frame.at if head.kind is Kind.RECORD else None
        self._unshown.append(_Unshown(self.number, head.domain, now, at, self.file.file, head.images))

    def show(self, synced: int) -> None:
        """Show everything that is synced."""
        while self._unshown and self._unshown[0].number <= synced:
            _, domain, now, at, file, images = self._unshown.popleft()
            shown = self._shown.setdefault(domain, Shown())
            if at is not None:
                shown.places.append(file << _AT_BITS | at)
                for row in images:
                    place = Place(file, at + row.offset, row.size, row.crc)
                    self.images.add(domain, row.epoch, row.sequence, place)
            gone = max(0, min(len(shown.places), now.truncated + 1 - shown.first))
            if gone:
                del shown.places[:gone]
                shown.first += gone
                self._forget_files()
            shown.last, shown.truncated, shown.pointer = now.last, now.truncated, now.pointer

    def shown(self, domain: int) -> Shown:
        """What may be shown of a domain."""
        return self._shown.get(domain) or Shown()

    def origin(self) -> dict[int, DomainOrigin]:
        """What a file says whose first frame comes next."""
        return dict(self.known)

    def unneeded(self, synced: int, freed: int = 0) -> list[int]:
        """Files at the beginning without a record that is needed. Their successor is synced.

        Those above `freed` have no image either.
        """
        assert self.file is not None
        found: list[int] = []
        for file in sorted(self.heads)[:-1]:
            after = self.heads.get(file + 1)
            if after is None or file >= self.file.file or after.first > synced:
                break
            if file > freed and self.images.in_file(file):
                break
            if any(of.last > self.shown(domain).truncated for domain, of in after.origin.domains.items()):
                break
            found.append(file)
        return found

    def _forget_files(self) -> None:
        """Close files without a record that is needed, and forget those that some process has deleted."""
        needed = [shown.places[0] >> _AT_BITS for shown in self._shown.values() if shown.places]
        assert self.file is not None
        oldest = min([self.file.file, *needed])
        for file in [file for file in self.heads if file < oldest]:
            self._disk.forget(name_of(file))
        self.forget_deleted(min([oldest, *files_of(self._disk)[:1]]))

    def forget_deleted(self, oldest: int) -> None:
        """Forget the files below a number."""
        for file in [file for file in self.heads if file < oldest]:
            del self.heads[file]
        self.images.forget(oldest)

    # --- reading -------------------------------------------------------------------------------------

    def entries(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        """Up to `limit` records after a position."""
        shown = self.shown(domain)
        if after < shown.truncated:
            raise Truncated(
                f"domain {domain} is truncated through {shown.truncated}, so it cannot be read after {after}"
            )
        begin = max(0, after + 1 - shown.first)
        places = shown.places[begin : begin + limit]
        try:
            found = list(self._records(places))
        except FileNotFoundError:  # another process has truncated it meanwhile
            raise Truncated(f"domain {domain} was truncated past {after}") from None
        return [Entry(Position(shown.first + begin + i), record) for i, record in enumerate(found)]

    def _records(self, places: array[int]) -> Iterator[bytes]:
        """The records at some places. Those that lie together are read together."""
        file, begin, data = 0, 0, b""
        for i, place in enumerate(places):
            at = place & (1 << _AT_BITS) - 1
            if place >> _AT_BITS != file or not begin <= at < begin + len(data):
                file, begin = place >> _AT_BITS, at
                ends = [p & (1 << _AT_BITS) - 1 for p in places[i + 1 :] if p >> _AT_BITS == file]
                data = self._disk.read(name_of(file), at, min(max([at, *ends]) - at + _NEAR, _RUN))
            yield self._record(file, at, data, at - begin)

    def _record(self, file: int, at: int, data: bytes, offset: int) -> bytes:
        salt = self.heads[file].salt
        head = frames.decode_head(salt, data, offset)
        if head is not None:
            if offset + head.own_bytes + head.record_bytes > len(data):
                data, offset = self._disk.read(name_of(file), at, head.own_bytes + head.record_bytes), 0
            record = frames.record_in(head, data, offset)
            if record is not None:
                return record
        record = self._repeated(file, at)
        if record is None:
            raise Damaged(f"a frame of the journal is damaged, file {name_of(file)} at {at}")
        self.repaired += 1
        return record

    def image(self, place: Place, start: int, length: int | None) -> bytes:
        """An image, or a range of it. Raises `FileNotFoundError` if its file is gone. Any thread may call this."""
        end = place.size if length is None else min(place.size, start + length)
        return self._disk.read_once(name_of(place.file), place.at + start, max(0, end - start))

    def _repeated(self, file: int, at: int) -> bytes | None:
        """The record of a frame that was sound, from the echo of its successor."""
        name, salt = name_of(file), self.heads[file].salt
        end = min(at + MAX_FRAME, self._disk.size(name))
        for begin in range(at + PAGE, end, PAGE):
            head = frames.decode_head(salt, self._disk.read(name, begin, PAGE))
            if head is not None:
                echo = frames.echo_in(head, self._disk.read(name, begin, head.told_bytes))
                frame = echoed(salt, echo, at) if echo else None
                return frame.record if frame is not None and at + frame.head.size == begin else None
        return None


def echoed(salt: int, echo: bytes, at: int) -> Frame | None:
    """The frame that an echo repeats."""
    head = frames.decode_head(salt, echo)
    record = frames.record_in(head, echo) if head is not None else None
    return Frame(head, record, at, echo, repaired=True) if head is not None and record is not None else None


def _changed(now: DomainOrigin, frame: Frame) -> DomainOrigin:
    """A domain after a frame."""
    match frame.head.kind:
        case Kind.RECORD:
            return DomainOrigin(frame.head.position, now.truncated, now.pointer)
        case Kind.TRUNCATION:
            [through] = frames.THROUGH.unpack(frame.record)
            return DomainOrigin(now.last, max(now.truncated, through), now.pointer)
        case Kind.POINTER:
            return DomainOrigin(now.last, now.truncated, msgspec.msgpack.decode(frame.record, type=Pointer))
        case _:
            return now


def origin_of(reader: Reader) -> Origin:
    """What the file after the reader's one says about it."""
    assert reader.file is not None
    return Origin(reader.file.file, reader.file.salt, reader.origin())
