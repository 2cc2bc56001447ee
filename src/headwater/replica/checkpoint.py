"""Checkpoints: the state at one position, stored as an object, so that the ledger can be truncated.

An object is a header and the image of the state. The header is `HWTRCK3`, domain u32, position u64, ledger time u64,
the ledger's life (16 bytes), a CRC32C u32 of the image, and one of the header before it. The digit is the format
number. Two checkpoints are kept. The ledger is truncated through the older one, so nothing is lost if the newest is
damaged. If no checkpoint can be read and the ledger was never truncated, its records are applied from the first one.

The next checkpoint replaces a damaged one. Until there are two again, the ledger is not truncated further.

What the ledger no longer needs is deleted only if the newest checkpoint knows that too (`Pointer.time_ms`). So a ledger
that is lost, or that goes back, can be made again from a checkpoint and from objects that are all there.
"""

from __future__ import annotations

import contextlib
import gc
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from headwater.errors import Damaged, Halted, ObjectMissing, Truncated
from headwater.ledger.contract import Entry, Ledger, Pointer
from headwater.objects import ObjectStore
from headwater.state.machine import State
from headwater.state.records import FORMAT, Record, decode, other_format
from headwater.types import Domain, Position

_HEADER = struct.Struct(">7sIQQ16sI")
_CRC = struct.Struct(">I")
HEADER_BYTES = _HEADER.size + _CRC.size
_NAME = b"HWTRCK"
MAGIC = _NAME + b"%d" % FORMAT
READ_CHUNK = 1000
LOAD_ATTEMPTS = 10
SMALL_BYTES = 64 << 10
SMALL_RECORDS = 500
"""A checkpoint is small if it and the records that come to it have no more bytes, and those are no more."""


@dataclass(frozen=True, slots=True)
class BadCheckpoint:
    """A checkpoint that the ledger names and that cannot be read."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path} ({self.reason})"


class CheckpointHead(NamedTuple):
    """What a checkpoint says before its image."""

    domain: int
    position: int
    time_ms: int
    life: str
    image_crc: int


def directory_of(domain: Domain) -> str:
    """Where the checkpoints of a domain are."""
    return f"meta/v1/domain={domain}/checkpoint/"


def path_of(domain: Domain, position: Position, digest: int) -> str:
    """The path of a checkpoint. Two writers of the same position write the same bytes to the same path."""
    return f"{directory_of(domain)}{position:020d}-{digest:08x}.ckpt"


def encode_checkpoint(state: State) -> bytes:
    """A state as the bytes of an object."""
    image = state.image()
    life = bytes.fromhex(state.life).rjust(16, b"\0")
    head = _HEADER.pack(MAGIC, state.domain, state.position, state.clock_ms, life, crc32c(image))
    return head + _CRC.pack(crc32c(head)) + image


def head_of(data: bytes) -> CheckpointHead:
    """What the bytes of a checkpoint, or the first of them, say before the image. Raises `Damaged`."""
    if len(data) < HEADER_BYTES:
        raise Damaged(f"a checkpoint has only {len(data)} bytes")
    magic, domain, position, time_ms, life, image_crc = _HEADER.unpack_from(data)
    if magic != MAGIC or _CRC.unpack_from(data, _HEADER.size) != (crc32c(data[: _HEADER.size]),):
        raise Damaged("the object is damaged, or not a checkpoint")
    return CheckpointHead(domain, position, time_ms, life.hex() if any(life) else "", image_crc)


def decode_checkpoint(data: bytes, state: State, expected: Position | None = None) -> None:
    """Restore a state from an object's bytes. A state that is not of the expected position is not restored."""
    position, image = _checked(data, state.domain, expected)
    enabled = gc.isenabled()
    gc.disable()  # hundreds of thousands of new objects and no garbage: four times as fast
    try:
        state.restore(image)
    finally:
        if enabled:
            gc.enable()
    if state.position != position:
        raise Damaged(f"the image of a checkpoint is of position {state.position}, its header of {position}")


def _checked(data: bytes, own: Domain, expected: Position | None) -> tuple[Position, bytes]:
    """The position and the image of a checkpoint, after all checks that need no state."""
    if len(data) < HEADER_BYTES:
        raise Damaged(f"a checkpoint has only {len(data)} bytes")
    magic = data[: len(MAGIC)]
    if magic != MAGIC and magic.startswith(_NAME) and magic[len(_NAME) :].isdigit():
        sound = _CRC.unpack_from(data, _HEADER.size) == (crc32c(MAGIC + data[len(MAGIC) : _HEADER.size]),)
        if not sound:  # else the digit itself was damaged
            raise Halted(other_format("the checkpoint", int(magic[len(_NAME) :])))
    head, image = head_of(data), data[HEADER_BYTES:]
    if head.domain != own or crc32c(image) != head.image_crc:
        raise Damaged(f"the object is damaged, or not a checkpoint of domain {own}")
    if expected is not None and head.position != expected:
        raise Damaged(
            f"the object says that it is of position {head.position}, and the ledger that it is of {expected}"
        )
    return Position(head.position), image


async def load_state(ledger: Ledger, store: ObjectStore, state: State) -> list[BadCheckpoint]:
    """Restore the newest checkpoint that can be read, and return those that cannot.

    The state stays as it is if there is no checkpoint, or if none can be read and the ledger still has every record
    after the state's position.
    """
    start = state.position
    for _ in range(LOAD_ATTEMPTS):
        pointer = await ledger.pointer(state.domain)
        if pointer is None or pointer.position <= start:
            return []
        bad: list[BadCheckpoint] = []
        for position, path in [(pointer.position, pointer.path), *([pointer.older] if pointer.older else [])]:
            if position <= start:
                continue
            try:
                decode_checkpoint(await store.get(path), state, position)
                break
            except (ObjectMissing, Damaged) as error:
                bad.append(BadCheckpoint(path, str(error)))
        if not bad or await _has_all(ledger, state, pointer):
            return bad
        if await ledger.pointer(state.domain) == pointer:  # else another process has written a checkpoint meanwhile
            raise Damaged(
                f"domain {state.domain}: no checkpoint can be read, and the ledger no longer has all records that they "
                f"covered: {', '.join(map(str, bad))}. Nothing was changed. Put one of these objects back from a copy "
                "or an earlier version in the object store, or start from a backup"
            )
    raise Damaged(f"domain {state.domain}: each checkpoint was gone before it was read; start the process again")


async def still_bad(
    ledger: Ledger, store: ObjectStore, domain: Domain, found: Sequence[BadCheckpoint]
) -> list[BadCheckpoint]:
    """Those of some damaged checkpoints that the ledger still names and that still cannot be read."""
    pointer = await ledger.pointer(domain)
    named = [(pointer.position, pointer.path), *([pointer.older] if pointer.older else [])] if pointer else []
    bad = []
    for position, path in named:
        if any(one.path == path for one in found):
            try:
                _checked(await store.get(path), domain, position)
            except (ObjectMissing, Damaged) as error:
                bad.append(BadCheckpoint(path, str(error)))
    return bad


async def _has_all(ledger: Ledger, state: State, pointer: Pointer) -> bool:
    """Whether the ledger has every record after the state's position, as far as the newest checkpoint at least."""
    if await ledger.last(state.domain) < pointer.position:
        return False
    try:
        entries = await ledger.read(state.domain, state.position, 1)
    except Truncated:
        return False
    if state.position < pointer.position and not entries:
        return False
    return not ledger.dense or not entries or entries[0].position == state.position + 1


async def replay(ledger: Ledger, state: State) -> None:
    """Apply all records after the state's position."""
    while True:
        entries = await ledger.read(state.domain, state.position, READ_CHUNK)
        if not entries:
            return
        check_dense(ledger, state, entries)
        for entry in entries:
            state.apply(entry.position, record_of(state.domain, entry))


def record_of(domain: Domain, entry: Entry) -> Record:
    """The record of a ledger entry. An error names the entry."""
    try:
        return decode(entry.data)
    except Halted as error:
        raise Halted(f"record {entry.position} of domain {domain}: {error}") from error


def check_dense(ledger: Ledger, state: State, entries: Sequence[Entry]) -> None:
    """Halt if a record is missing. It can be noticed on ledgers whose positions are consecutive."""
    if not ledger.dense or not entries or entries[-1].position <= state.position:
        return
    first, last = entries[0].position, entries[-1].position
    if first > state.position + 1 or last - first + 1 != len(entries):
        raise Halted(
            f"domain {state.domain}: records are missing from the ledger between {state.position} and {last}; "
            "run `headwater doctor`"
        )


async def write_checkpoint(ledger: Ledger, store: ObjectStore, state: State) -> bool:
    """Bring a new state up to date, store it as the newest checkpoint, and truncate the ledger through the one before.

    A checkpoint that cannot be read is replaced, even if there are no new records. It does not become the older one,
    and the ledger is not truncated through it.

    Returns whether a checkpoint was written: there was a reason, and no other process was faster.
    """
    before = await ledger.pointer(state.domain)
    bad: set[str] = set()
    while True:
        bad.update(found.path for found in await load_state(ledger, store, state))
        try:
            await replay(ledger, state)
            break
        except Truncated:
            continue
    if state.position == 0:
        return False
    if before is not None and state.position <= before.position:
        if before.path in bad and state.position == before.position:
            await _store(store, before.path, encode_checkpoint(state))
            if await ledger.pointer(state.domain) != before:  # another process has removed the path from the ledger
                await store.delete(before.path)
            return True
        return False
    path = path_of(state.domain, state.position, state.digest)
    await _store(store, path, encode_checkpoint(state))
    while not await _point(ledger, state, path, before, bad):
        before = await ledger.pointer(state.domain)
        if before is not None and before.position >= state.position:
            # The pointer can no longer move to this object, but another process may have set it to the same path.
            if path not in (before.path, before.older[1] if before.older else ""):
                await store.delete(path)
            return False
    if before is not None:
        older = _older(before, bad)
        if older is not None:
            await ledger.truncate(state.domain, older[0])
        for gone in {before.path, *([before.older[1]] if before.older else [])}:
            if older is None or gone != older[1]:
                await store.delete(gone)
    return True


async def is_small(ledger: Ledger, store: ObjectStore, domain: Domain) -> bool:
    """Whether the next checkpoint is written so quickly that a process may do it beside its other work.

    The newest one is small, and so are the records since.
    """
    pointer = await ledger.pointer(domain)
    after, size = Position(0), 0
    if pointer is not None:
        with contextlib.suppress(ObjectMissing):
            size = await store.size(pointer.path)
        after = pointer.position
    try:
        records = await ledger.read(domain, after, SMALL_RECORDS + 1)
    except Truncated:
        return False
    return len(records) <= SMALL_RECORDS and size + sum(len(entry.data) for entry in records) <= SMALL_BYTES


async def _store(store: ObjectStore, path: str, data: bytes) -> None:
    await store.put(path, [data])
    if await store.get(path) != data:
        raise Damaged(f"{path} does not read back as it was written")


def _older(before: Pointer, bad: set[str]) -> tuple[Position, str] | None:
    """The checkpoint that is kept beside a new one: the newest of those before it that can be read."""
    if before.path not in bad:
        return before.position, before.path
    return before.older if before.older is not None and before.older[1] not in bad else None


async def _point(ledger: Ledger, state: State, path: str, before: Pointer | None, bad: set[str]) -> bool:
    older = _older(before, bad) if before else None
    expected = before.position if before else Position(0)
    return await ledger.set_pointer(state.domain, expected, Pointer(state.position, path, older, state.clock_ms))
