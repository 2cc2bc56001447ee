"""One check for each promise of `headwater.ledger.contract`, for every backend and every wrapper of one.

A check takes a function that opens another handle on the same store. It raises `AssertionError` if a promise is broken.
Every check needs an empty store of its own. `checks` returns the checks for a backend; data of a volatile backend need
not outlive its handles. The module needs nothing but the package, so that backends in other repositories can run it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias, cast

from crc32c import crc32c

from headwater.errors import Truncated
from headwater.ledger.contract import MAX_RECORD_BYTES, Carrier, Entry, Image, Ledger, Pointer
from headwater.types import Domain, Position

OpenLedger: TypeAlias = Callable[[], Awaitable[Ledger]]
Check: TypeAlias = Callable[[OpenLedger], Awaitable[None]]

PATIENCE_SECONDS = 30.0
"""Far longer than any backend takes. Only a call that hangs reaches it."""
START = Position(0)
ONE, TWO = Domain(1), Domain(2)
PAGE = 7


def checks(*, volatile: bool = False, carries: bool = False) -> Mapping[str, Check]:
    """The checks for a backend, by name."""
    found = [*_CHECKS, *([] if volatile else _DURABLE), *(_CARRYING if carries else [])]
    return {check.__name__: check for check in found}


# --- tools -------------------------------------------------------------------------------------------


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise AssertionError(f"{what}: {_short(seen)} instead of {_short(wanted)}")


def _ensure(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


@contextlib.asynccontextmanager
async def _handles(open_ledger: OpenLedger, count: int) -> AsyncIterator[list[Ledger]]:
    ledgers: list[Ledger] = []
    try:
        for _ in range(count):
            ledgers.append(await open_ledger())
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield ledgers
    finally:
        for ledger in ledgers:
            await ledger.close()


async def _append_all(ledger: Ledger, domain: Domain, records: Sequence[bytes]) -> list[Entry]:
    return [Entry(await ledger.append(domain, data), data) for data in records]


async def _read_all(ledger: Ledger, domain: Domain, after: Position = START, limit: int = PAGE) -> list[Entry]:
    found: list[Entry] = []
    while True:
        page = await ledger.read(domain, after, limit)
        _ensure(len(page) <= limit, f"a read of at most {limit} records gave {len(page)}")
        if not page:
            return found
        found += page
        after = page[-1].position


def _numbered(count: int, name: str = "record") -> list[bytes]:
    return [f"{name} {i}".encode() for i in range(count)]


async def _is_truncated(ledger: Ledger, domain: Domain, after: Position) -> bool:
    try:
        await ledger.read(domain, after, PAGE)
    except Truncated:
        return True
    return False


# --- order -------------------------------------------------------------------------------------------


async def an_empty_ledger_has_nothing(open_ledger: OpenLedger) -> None:
    """`last` is 0, `read` is empty, there is no pointer and no beat."""
    async with _handles(open_ledger, 1) as [ledger]:
        _expect(await ledger.last(ONE), 0, "last of an empty ledger")
        _expect(await ledger.read(ONE, START, PAGE), [], "records of an empty ledger")
        _expect(await ledger.pointer(ONE), None, "pointer of an empty ledger")
        _expect(await ledger.beats(), [], "beats of an empty store")


async def positions_rise(open_ledger: OpenLedger) -> None:
    """Each append has a higher position than the one before. Positions of a `dense` backend are 1, 2, 3 and so on."""
    async with _handles(open_ledger, 2) as ledgers:
        positions: list[int] = []
        for i, data in enumerate(_numbered(30)):
            positions.append(await ledgers[i % 2].append(ONE, data))
        _ensure(positions[0] > 0, f"the first position is {positions[0]}; 0 is before the first")
        _expect(positions, sorted(set(positions)), "positions in the order of the appends")
        if all(ledger.dense for ledger in ledgers):
            _expect(positions, list(range(1, 31)), "positions of a dense ledger")


async def an_append_is_visible_to_every_later_last(open_ledger: OpenLedger) -> None:
    """`last` on another handle, started after an append returned, returns at least its position."""
    async with _handles(open_ledger, 3) as [writer, *others]:
        for data in _numbered(20):
            position = await writer.append(ONE, data)
            for seen in await asyncio.gather(*(other.last(ONE) for other in others)):
                _ensure(seen >= position, f"last answers {seen} after {position} was appended")
        for other in others:
            _expect([e.data for e in await _read_all(other, ONE)], _numbered(20), "records on another handle")


async def reads_are_in_order_and_without_holes(open_ledger: OpenLedger) -> None:
    """From any position and with any limit, a read returns the next records and no others."""
    async with _handles(open_ledger, 2) as [writer, reader]:
        written = await _append_all(writer, ONE, _numbered(25))
        _expect(await _read_all(reader, ONE), written, "all records")
        for i, entry in enumerate(written):
            for limit in (1, 3, 100):
                following = written[i + 1 : i + 1 + limit]
                _expect(await reader.read(ONE, entry.position, limit), following, f"{limit} after {entry.position}")
        _expect(await reader.last(ONE), written[-1].position, "last")


async def many_writers_lose_nothing(open_ledger: OpenLedger) -> None:
    """All handles see one sequence, with every record at the position that its `append` returned."""
    async with _handles(open_ledger, 4) as ledgers:
        wanted: dict[int, bytes] = {}

        async def write(ledger: Ledger, name: str) -> None:
            for entry in await _append_all(ledger, ONE, _numbered(15, name)):
                _ensure(entry.position not in wanted, f"position {entry.position} was assigned twice")
                wanted[entry.position] = entry.data

        await asyncio.gather(*(write(ledger, f"{i}.{j}") for i, ledger in enumerate(ledgers) for j in range(3)))
        for ledger in ledgers:
            found = await _read_all(ledger, ONE)
            _expect([(e.position, e.data) for e in found], sorted(wanted.items()), "the sequence")


async def a_reader_beside_writers_sees_no_hole(open_ledger: OpenLedger) -> None:
    """While others append, no record appears later before a record that a reader has read."""
    async with _handles(open_ledger, 4) as [reader, *writers]:
        writing = asyncio.gather(*(_append_all(w, ONE, _numbered(40, str(i))) for i, w in enumerate(writers)))
        seen: list[Entry] = []
        while len(seen) < 120:
            after = seen[-1].position if seen else START
            reach = await reader.watch(ONE, after)
            _ensure(reach > after, f"watch after {after} answers {reach}")
            seen += await reader.read(ONE, after, PAGE)
        written = [entry for entries in await writing for entry in entries]
        _expect(seen, sorted(written, key=lambda e: e.position), "what the reader followed")


async def domains_are_independent(open_ledger: OpenLedger) -> None:
    """Records, truncation and pointers of one domain do not show in another."""
    async with _handles(open_ledger, 1) as [ledger]:
        first = await _append_all(ledger, ONE, _numbered(5, "one"))
        _expect(await ledger.last(TWO), 0, "last of the other domain")
        second = await _append_all(ledger, TWO, _numbered(3, "two"))
        await ledger.truncate(ONE, first[2].position)
        await ledger.set_pointer(ONE, START, Pointer(first[2].position, "somewhere"))
        _expect(await _read_all(ledger, TWO), second, "records of the other domain")
        _expect(await ledger.pointer(TWO), None, "pointer of the other domain")
        _expect(await _read_all(ledger, ONE, first[2].position), first[3:], "records of the truncated domain")
        if ledger.dense:
            _expect(second[0].position, 1, "the first position of the other domain")


# --- sizes -------------------------------------------------------------------------------------------


async def records_of_every_size(open_ledger: OpenLedger) -> None:
    """0 bytes to `MAX_RECORD_BYTES` come back as they were; one byte more is refused and changes nothing."""
    async with _handles(open_ledger, 2) as [writer, reader]:
        every_byte = bytes(range(256))
        records = [b"", b"\0", every_byte, every_byte * (MAX_RECORD_BYTES // 256)]
        written = await _append_all(writer, ONE, records)
        try:
            await writer.append(ONE, bytes(MAX_RECORD_BYTES + 1))
        except ValueError:
            pass
        else:
            raise AssertionError("a record beyond the limit was accepted")
        _expect(await reader.last(ONE), written[-1].position, "last")
        _expect(await _read_all(reader, ONE), written, "records of every size")


# --- truncation --------------------------------------------------------------------------------------


async def truncation_is_idempotent(open_ledger: OpenLedger) -> None:
    """Truncated records are gone for every handle. To truncate again, or less, changes nothing."""
    async with _handles(open_ledger, 2) as [ledger, other]:
        written = await _append_all(ledger, ONE, _numbered(10))
        for through in (written[5], written[5], written[2]):
            await ledger.truncate(ONE, through.position)
            for handle in (ledger, other):
                _expect(await _read_all(handle, ONE, written[5].position), written[6:], "what is left")
                for gone in (START, written[4].position):
                    _ensure(await _is_truncated(handle, ONE, gone), f"a read after {gone} did not raise Truncated")
                _expect(await handle.last(ONE), written[-1].position, "last")


async def truncated_positions_are_never_used_again(open_ledger: OpenLedger) -> None:
    """After all records are truncated, or more than there are, `last` stays the same and positions rise."""
    async with _handles(open_ledger, 2) as [ledger, other]:
        last = START
        for beyond in (0, 1000):
            written = await _append_all(ledger, ONE, _numbered(5))
            _ensure(written[0].position > last, f"position {written[0].position} was used before")
            last = written[-1].position
            await ledger.truncate(ONE, Position(last + beyond))
            for handle in (ledger, other):
                _expect(await handle.last(ONE), last, "last of a ledger that was truncated whole")
                _expect(await handle.read(ONE, last, PAGE), [], "what is left of it")
                _ensure(await _is_truncated(handle, ONE, START), "a read from the start did not raise Truncated")
        after = await other.append(ONE, b"new")
        _ensure(after > last, f"position {after} after {last}")
        if other.dense:
            _expect(after, last + 1, "the position after a truncation")
        _expect(await ledger.read(ONE, last, PAGE), [Entry(after, b"new")], "the record after a truncation")


# --- watching ----------------------------------------------------------------------------------------


async def watch_returns_at_once_if_there_is_something(open_ledger: OpenLedger) -> None:
    """`watch` returns on a handle that has seen no append, and as often as it is called."""
    async with _handles(open_ledger, 2) as [writer, watcher]:
        written = await _append_all(writer, ONE, _numbered(40))
        for after in (START, written[0].position, START, written[-2].position):
            reach = await watcher.watch(ONE, after)
            _ensure(reach > after, f"watch after {after} answers {reach}")


async def watch_wakes_for_another_handle(open_ledger: OpenLedger) -> None:
    """A waiting watcher is woken by an append of its own handle and of another handle."""
    async with _handles(open_ledger, 2) as [one, other]:
        after = START
        for writer in (other, one, other):
            waiting = [asyncio.create_task(handle.watch(ONE, after)) for handle in (one, other, one)]
            await asyncio.sleep(0)
            position = await writer.append(ONE, b"news")
            for reach in await asyncio.gather(*waiting):
                _ensure(reach > after, f"watch after {after} answers {reach}")
            after = position


async def watch_can_be_given_up(open_ledger: OpenLedger) -> None:
    """A watch that is cancelled does not affect the next one."""
    async with _handles(open_ledger, 2) as [watcher, writer]:
        for _ in range(3):
            task = asyncio.create_task(watcher.watch(ONE, START))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            _ensure(task.cancelled(), "a cancelled watch went on")
        again = asyncio.create_task(watcher.watch(ONE, START))
        await asyncio.sleep(0)
        await writer.append(ONE, b"news")
        _ensure(await again > START, "the watch after a cancelled one")


# --- the pointer -------------------------------------------------------------------------------------


async def the_pointer_only_rises(open_ledger: OpenLedger) -> None:
    """The pointer is replaced only by a caller that names the current one, and only by one with a higher position."""
    async with _handles(open_ledger, 2) as [ledger, other]:
        first = Pointer(Position(5), "five")
        second = Pointer(Position(9), "nine", (Position(5), "five"))
        refused = [(Position(3), first), (START, Pointer(START, "zero"))]
        for expected, pointer in refused:
            _expect(await ledger.set_pointer(ONE, expected, pointer), False, f"{pointer} over nothing")
        _expect(await ledger.set_pointer(ONE, START, first), True, "the first pointer")
        _expect(await other.pointer(ONE), first, "the pointer on another handle")
        for expected, pointer in (
            (START, second),
            (Position(4), second),
            (first.position, first),
            (first.position, Pointer(Position(4), "back")),
        ):
            _expect(await other.set_pointer(ONE, expected, pointer), False, f"{pointer} over {expected}")
            _expect(await ledger.pointer(ONE), first, "the pointer after a refusal")
        _expect(await other.set_pointer(ONE, first.position, second), True, "the second pointer")
        _expect(await ledger.pointer(ONE), second, "the pointer with an older one")


async def one_of_many_moves_the_pointer(open_ledger: OpenLedger) -> None:
    """Of all callers that race to replace a pointer, one wins, and its pointer is stored."""
    async with _handles(open_ledger, 4) as ledgers:
        expected = START
        for round_ in range(1, 6):
            pointers = [Pointer(Position(round_ * 10 + i), f"{round_}.{i}") for i in range(len(ledgers))]
            won = await asyncio.gather(
                *(ledger.set_pointer(ONE, expected, p) for ledger, p in zip(ledgers, pointers, strict=True))
            )
            _expect(sum(won), 1, "winners of a race")
            for ledger in ledgers:
                _expect(await ledger.pointer(ONE), pointers[won.index(True)], "the winner's pointer")
            expected = pointers[won.index(True)].position


# --- beats -------------------------------------------------------------------------------------------


async def beats_count_up(open_ledger: OpenLedger) -> None:
    """The count of a process rises with its beats, is visible on every handle, and disappears when it is forgotten."""
    async with _handles(open_ledger, 2) as [ledger, other]:
        last = 0
        for _ in range(3):
            await ledger.beat("a")
            [beat] = await other.beats()
            _expect(beat.process, "a", "the process that beats")
            _ensure(beat.count > last, f"a count of {beat.count} after {last}")
            last = beat.count
        await asyncio.gather(other.beat("b"), ledger.beat("c"))
        _expect({beat.process for beat in await ledger.beats()}, {"a", "b", "c"}, "all that beat")
        await other.forget_beat("a")
        await other.forget_beat("a")
        await other.forget_beat("nobody")
        left = await ledger.beats()
        _expect({beat.process for beat in left}, {"b", "c"}, "all but the forgotten one")
        _expect(await ledger.last(ONE), 0, "a beat is in no ledger: last")


# --- life --------------------------------------------------------------------------------------------


async def closing_is_idempotent(open_ledger: OpenLedger) -> None:
    """A handle can be closed twice, whether it was used or not. The other handles still work."""
    async with _handles(open_ledger, 3) as [unused, used, other]:
        await used.append(ONE, b"before")
        for ledger in (unused, used):
            await ledger.close()
            await ledger.close()
        await other.append(ONE, b"after")
        _expect([e.data for e in await _read_all(other, ONE)], [b"before", b"after"], "records of a handle that lives")


async def everything_outlives_its_handles(open_ledger: OpenLedger) -> None:
    """Records, truncation, pointer and positions are there when the store is opened again."""
    async with _handles(open_ledger, 1) as [ledger]:
        written = await _append_all(ledger, ONE, _numbered(10))
        whole = await _append_all(ledger, TWO, _numbered(4))
        await ledger.truncate(ONE, written[3].position)
        await ledger.truncate(TWO, whole[-1].position)
        pointer = Pointer(written[3].position, "somewhere", (written[1].position, "before"))
        await ledger.set_pointer(ONE, START, pointer)
    async with _handles(open_ledger, 1) as [ledger]:
        _expect(await _read_all(ledger, ONE, written[3].position), written[4:], "records after opening again")
        _ensure(await _is_truncated(ledger, ONE, START), "the truncation was forgotten")
        _expect(await ledger.pointer(ONE), pointer, "the pointer after opening again")
        _expect(await ledger.last(TWO), whole[-1].position, "last of a domain that was truncated whole")
        _ensure(await ledger.append(TWO, b"new") > whole[-1].position, "a position was used again")
        _ensure(await ledger.append(ONE, b"new") > written[-1].position, "a position was used again")


# --- images ------------------------------------------------------------------------------------------

IMAGE_BYTES = 900_000
EPOCH = 7


def _image(sequence: int, size: int) -> Image:
    body = (b"%d " % sequence * size)[: size - 4]
    return Image(EPOCH, sequence, [body[:5], body[5:], crc32c(body).to_bytes(4, "big")], size, crc32c(body))


def _bytes(image: Image) -> bytes:
    return b"".join(image.pieces)


def _carrier(ledger: Ledger) -> Carrier:
    _ensure(bool(getattr(ledger, "carries", False)), "the ledger does not carry images")
    return cast("Carrier", ledger)


async def an_image_is_there_with_its_record(open_ledger: OpenLedger) -> None:
    """Every handle that reads a record can read its images, whole and in part, and no others."""
    async with _handles(open_ledger, 3) as ledgers:
        carriers = [_carrier(ledger) for ledger in ledgers]
        small, large = _image(1, 100), _image(1 << 60, IMAGE_BYTES)
        await carriers[0].append(TWO, b"other", [_image(2, 50)])
        position = await carriers[0].append(ONE, b"record", [small, large])
        for carrier in carriers:
            _expect(await carrier.read(ONE, START, PAGE), [Entry(position, b"record")], "records with images")
            for image in (small, large):
                data = _bytes(image)
                _expect(await carrier.image(ONE, EPOCH, image.sequence), data, "an image")
                _expect(await carrier.image(ONE, EPOCH, image.sequence, 20, 30), data[20:50], "a range of an image")
                _expect(await carrier.image(ONE, EPOCH, image.sequence, 90, 1 << 40), data[90:], "an image's end")
            for domain, epoch, sequence in ((ONE, EPOCH, 2), (ONE, EPOCH, 4), (ONE, EPOCH + 1, 1), (TWO, EPOCH, 1)):
                _expect(await carrier.image(domain, epoch, sequence), None, "an image that was not written")


async def images_stay_until_they_are_freed(open_ledger: OpenLedger) -> None:
    """A truncation leaves images alone. What is freed is gone for all handles, and later images are not."""
    async with _handles(open_ledger, 2) as ledgers:
        writer, other = map(_carrier, ledgers)
        images = [_image(sequence, IMAGE_BYTES) for sequence in range(1, 13)]
        for image in images:
            last = await writer.append(ONE, b"record", [image])
        await writer.truncate(ONE, last)
        _expect(await other.last(ONE), last, "the last position")
        carried = sorted(await other.images(), key=lambda found: found.sequence)
        _expect([found.sequence for found in carried], [image.sequence for image in images], "the images")
        _expect({(f.domain, f.epoch, f.size) for f in carried}, {(ONE, EPOCH, IMAGE_BYTES)}, "where the images are")
        newest = carried[-1].file
        await writer.free(newest - 1)
        for carrier in (other, writer):
            for image, found in zip(images, carried, strict=True):
                data = _bytes(image) if found.file == newest else None
                _expect(await carrier.image(ONE, EPOCH, image.sequence), data, f"image {image.sequence}")
        again = await open_ledger()
        try:
            left = [f.sequence for f in carried if f.file == newest]
            _expect(sorted(f.sequence for f in await _carrier(again).images()), left, "the images for a new handle")
        finally:
            await again.close()


_CHECKS: list[Check] = [
    an_empty_ledger_has_nothing,
    positions_rise,
    an_append_is_visible_to_every_later_last,
    reads_are_in_order_and_without_holes,
    many_writers_lose_nothing,
    a_reader_beside_writers_sees_no_hole,
    domains_are_independent,
    records_of_every_size,
    truncation_is_idempotent,
    truncated_positions_are_never_used_again,
    watch_returns_at_once_if_there_is_something,
    watch_wakes_for_another_handle,
    watch_can_be_given_up,
    the_pointer_only_rises,
    one_of_many_moves_the_pointer,
    beats_count_up,
    closing_is_idempotent,
]
_DURABLE: list[Check] = [everything_outlives_its_handles]
_CARRYING: list[Check] = [an_image_is_there_with_its_record, images_stay_until_they_are_freed]
