"""Opens a journal: finds its end after a crash, and makes the page that processes share.

On the boot of a sound page, what is published counts. Otherwise the frames say: N is the first number whose frame is
not sound, S the newest number that a mark or a sound frame says was synced. If N is above S, the journal ends before N,
and the next frame goes into a new file unless there are only zeros behind. Otherwise frames are damaged that somebody
may have been told of: the journal is left as it is.
"""

from __future__ import annotations

from headwater.clock import Chance
from headwater.errors import Damaged, LedgerWentBack, StoreUnavailable
from headwater.ledger.journal import frames
from headwater.ledger.journal.disk import Disk, SyncFailed
from headwater.ledger.journal.frames import FileHead, Origin, Row
from headwater.ledger.journal.page import SLOTS, Page, Published
from headwater.ledger.journal.reader import FILE_BYTES, Reader, files_of, name_of, origin_of


def open_journal(disk: Disk, marked: int, chance: Chance, file_bytes: int = FILE_BYTES) -> tuple[Reader, Page]:
    """Open a journal, or begin one. `marked` is the newest number that marks say was synced."""
    with disk.locked():
        if not has_begun(disk):
            if marked:
                raise LedgerWentBack(f"the journal is empty, and it had frame {marked}")
            reader, page = _begun(disk, chance, file_bytes)
        else:
            reader, page = _opened(disk, marked, chance, file_bytes)
        page.claim()
        reader.show(page.synced())
        return reader, page


def find_end(disk: Disk, marked: int) -> tuple[Reader, bool]:
    """A reader at the end of a journal that no process uses, and whether what is behind it must be cut off.

    Raises `LedgerWentBack` if frames are missing or damaged that were synced. Changes nothing. A synced frame counts
    although its images are damaged: what they hold is a damaged range.
    """
    reader = Reader(disk)
    reader.begin()
    file, carried = 0, list[tuple[int, int, tuple[Row, ...]]]()
    while (frame := reader.next()) is not None:
        reader.take(frame)
        assert reader.file is not None
        if reader.file.file > file:
            file, carried = reader.file.file, []
        if frame.head.images:
            carried.append((frame.head.number, frame.at, frame.head.images))
    assert reader.file is not None
    synced = max(marked, reader.newest_synced, reader.file.first - 1)
    blank = reader.sealed or reader.is_blank(reader.at)
    if not blank:
        synced = max(
            [synced, *(head.synced for _, head, _ in reader.ahead(reader.at, disk.size(name_of(reader.file.file))))]
        )
    following = reader.heads.get(reader.file.file + 1)
    if following is not None:
        synced = max(synced, following.first - 1)  # a file is begun only when its predecessor is synced
    if synced > reader.number:
        raise LedgerWentBack(
            f"the journal ends with frame {reader.number}, file {name_of(reader.file.file)} at {reader.at}, and frame "
            f"{synced} was synced"
        )
    reader.check_beginning()
    for number, at, images in carried:
        if number > synced and not _has_images(disk, name_of(file), at, images):
            return _before(disk, number, file), True
    return reader, not blank


def _has_images(disk: Disk, name: str, at: int, images: tuple[Row, ...]) -> bool:
    """Whether the images of a frame are on the disk as they were written."""
    return all(frames.is_image(row, disk.read(name, at + row.offset, row.size)) for row in images)


def _before(disk: Disk, number: int, file: int) -> Reader:
    """A reader before a frame, in the frame's file."""
    reader = Reader(disk)
    reader.begin()
    reader.follow(number - 1)
    if reader.file is not None and reader.file.file < file:
        reader.next()
    return reader


def has_begun(disk: Disk) -> bool:
    """Whether there is more than a first file that a crash has left without a header."""
    files = files_of(disk)
    return bool(files) and (files != [1] or bool(disk.read(name_of(1), 0, frames.PAGE).strip(b"\0")))


def cut_where_unsound(disk: Disk, chance: Chance, file_bytes: int) -> None:
    """End a journal that has gone back where it is no longer sound. Files that cannot be used are kept aside."""
    with disk.locked():
        if disk.claimed(SLOTS):
            raise StoreUnavailable("a process uses the journal")
        reader = Reader(disk)
        if has_begun(disk) and reader.begin_anywhere():
            while (frame := reader.next()) is not None:
                reader.take(frame)
            assert reader.file is not None
            for file in [file for file in files_of(disk) if file > reader.file.file]:
                disk.put_aside(name_of(file))
            head = new_head(reader.journal, reader.file.file + 1, reader.number + 1, origin_of(reader), chance)
            begin_file(disk, head, file_bytes)
            _sync(disk, head.file, reader.journal, Published(reader.number, reader.file.file, reader.at))
        else:
            for file in files_of(disk):
                disk.put_aside(name_of(file))
        disk.drop_page()


def _begun(disk: Disk, chance: Chance, file_bytes: int) -> tuple[Reader, Page]:
    """A new journal."""
    head = begin_file(disk, new_head(chance.uuid().bytes, 1, 1, Origin(0, 0, {}), chance), file_bytes)
    reader = Reader(disk)
    reader.begin()
    published = Published(0, 1, head.size)
    _sync(disk, 1, head.journal, published)
    return reader, Page.make(disk, head.journal, published)


def _opened(disk: Disk, marked: int, chance: Chance, file_bytes: int) -> tuple[Reader, Page]:
    """A journal that has frames, or may have them."""
    reader = Reader(disk)
    reader.begin()
    page = Page.attach(disk, reader.journal)
    if page is not None and not page.broken:
        _follow(reader, page, marked)
        return reader, page
    if page is not None:  # the memory may hold what the disk lacks, and only what was synced is trusted
        _follow(reader, page, marked)
        cut = True
    else:
        reader, cut = find_end(disk, marked)
    assert reader.file is not None
    file, found = reader.file.file, Published(reader.number, reader.file.file, reader.at)
    if cut:
        file += 1
        begun = begin_file(
            disk, new_head(reader.journal, file, reader.number + 1, origin_of(reader), chance), file_bytes
        )
    _sync(disk, file, reader.journal, found)
    if cut:
        reader.enter(begun)
    return reader, Page.make(disk, reader.journal, Published(reader.number, file, reader.at))


def _follow(reader: Reader, page: Page, marked: int) -> None:
    """Go to the end that a page tells of; of a broken one, to what was synced."""
    end = page.end()
    try:
        reader.begin(end.file)
        if page.broken:
            reader.follow(page.synced(), end.file)
        else:
            reader.reach(end)
    except Damaged as error:
        raise LedgerWentBack(f"the journal lacks frames that it had: {error}") from error
    synced = max(marked, page.synced())
    if synced > reader.number:
        raise LedgerWentBack(f"the journal ends with frame {reader.number}, and frame {synced} was synced")
    reader.check_beginning()


def _sync(disk: Disk, file: int, journal: bytes, found: Published) -> None:
    """Sync a file before anything counts on it.

    After a failure the next process trusts what this one has found: it was read after the start of the machine.
    """
    try:
        disk.sync_name(name_of(file))
    except SyncFailed as error:
        Page.make(disk, journal, found).break_all()
        raise StoreUnavailable(f"the journal cannot be opened: a sync failed: {error}") from error


def new_head(journal: bytes, file: int, first: int, origin: Origin, chance: Chance) -> FileHead:
    """The header of a new life of a file."""
    return frames.sized(FileHead(journal, file, int.from_bytes(chance.uuid().bytes[:8], "big"), first, 0, origin))


def begin_file(disk: Disk, head: FileHead, file_bytes: int) -> FileHead:
    """Write a file's header over whatever a crash has left there. It is not synced."""
    make_spare(disk, head.file, file_bytes)
    disk.write(name_of(head.file), 0, [frames.encode_file_head(head)])
    return head


def make_spare(disk: Disk, file: int, file_bytes: int) -> None:
    """Make a file that is used next, unless it is there."""
    try:
        if disk.size(name_of(file)) >= file_bytes:
            return
        disk.remove(name_of(file))  # a crash has left it half made
    except FileNotFoundError:
        pass
    disk.create(name_of(file), file_bytes)
