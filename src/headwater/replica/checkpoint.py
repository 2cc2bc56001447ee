"""Checkpoints: the state at one position, stored as an object, so that the ledger can be truncated.

An object is `HWTRCK3`, domain u32, position u64, a CRC32C u32 of the image, and the image. The digit is the format
number. Two checkpoints are kept. The ledger is truncated through the older one, so nothing is lost if the newest is
damaged.
"""

from __future__ import annotations

import contextlib
import gc
import struct
from collections.abc import Sequence

from crc32c import crc32c

from headwater.errors import Damaged, Halted, ObjectMissing, Truncated
from headwater.ledger.contract import Entry, Ledger, Pointer
from headwater.objects import ObjectStore
from headwater.state.machine import State
from headwater.state.records import FORMAT, Record, decode, other_format
from headwater.types import Domain, Position

_HEADER = struct.Struct(">7sIQI")
_NAME = b"HWTRCK"
MAGIC = _NAME + b"%d" % FORMAT
READ_CHUNK = 1000
LOAD_ATTEMPTS = 10


def path_of(domain: Domain, position: Position, digest: int) -> str:
    """The path of a checkpoint. Two writers of the same position write the same bytes to the same path."""
    return f"meta/v1/domain={domain}/checkpoint/{position:020d}-{digest:08x}.ckpt"


def encode_checkpoint(state: State) -> bytes:
    """A state as the bytes of an object."""
    image = state.image()
    return _HEADER.pack(MAGIC, state.domain, state.position, crc32c(image)) + image


def decode_checkpoint(data: bytes, state: State) -> None:
    """Restore a state from an object's bytes."""
    if len(data) < _HEADER.size:
        raise Damaged(f"a checkpoint has only {len(data)} bytes")
    magic, domain, position, crc = _HEADER.unpack_from(data)
    image = data[_HEADER.size :]
    if magic != MAGIC and magic.startswith(_NAME) and magic[len(_NAME) :].isdigit():
        raise Halted(other_format("the checkpoint", int(magic[len(_NAME) :])))
    if magic != MAGIC or domain != state.domain or crc32c(image) != crc:
        raise Damaged(f"the object is damaged, or not a checkpoint of domain {state.domain}")
    enabled = gc.isenabled()
    gc.disable()  # hundreds of thousands of new objects and no garbage: four times as fast
    try:
        state.restore(image)
    finally:
        if enabled:
            gc.enable()
    if state.position != position:
        raise Damaged(f"the image of a checkpoint is of position {state.position}, its header of {position}")


async def load_state(ledger: Ledger, store: ObjectStore, state: State) -> None:
    """Restore the newest checkpoint that can be read. Without a checkpoint the state stays as it is."""
    for _ in range(LOAD_ATTEMPTS):
        pointer = await ledger.pointer(state.domain)
        if pointer is None or pointer.position <= state.position:
            return
        candidates = [(pointer.position, pointer.path), *([pointer.older] if pointer.older else [])]
        for position, path in candidates:
            if position <= state.position:
                continue
            with contextlib.suppress(ObjectMissing, Damaged):
                decode_checkpoint(await store.get(path), state)
                return
    raise Damaged(f"domain {state.domain}: no checkpoint can be read; run `headwater doctor`")


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

    Returns whether a checkpoint was written: there were new records, and no other process was faster.
    """
    before = await ledger.pointer(state.domain)
    while True:
        await load_state(ledger, store, state)
        try:
            await replay(ledger, state)
            break
        except Truncated:
            continue
    if state.position == 0 or (before is not None and state.position <= before.position):
        return False
    data = encode_checkpoint(state)
    path = path_of(state.domain, state.position, state.digest)
    await store.put(path, [data])
    if await store.get(path) != data:
        raise Damaged(f"{path} does not read back as it was written")
    while not await _point(ledger, state, path, before):
        before = await ledger.pointer(state.domain)
        if before is not None and before.position >= state.position:
            # The pointer can no longer move to this object, but another process may have set it to the same path.
            if path not in (before.path, before.older[1] if before.older else ""):
                await store.delete(path)
            return False
    if before is not None:
        await ledger.truncate(state.domain, before.position)
        if before.older is not None:
            await store.delete(before.older[1])
    return True


async def _point(ledger: Ledger, state: State, path: str, before: Pointer | None) -> bool:
    older = (before.position, before.path) if before else None
    expected = before.position if before else Position(0)
    return await ledger.set_pointer(state.domain, expected, Pointer(state.position, path, older))
