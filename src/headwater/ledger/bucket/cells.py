"""Values in a bucket that change by compare-and-set: the ring's shape, truncation marks, pointers; and wishes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import msgspec

from headwater.errors import ConfigError, Halted, OutcomeUnknown, StoreUnavailable
from headwater.ledger.contract import Pointer
from headwater.objects.registers import Held, Registers

SETTLE_ATTEMPTS = 8
RING_PATH = "ledger/v1/ring"
VERSION = 1

V = TypeVar("V")


class Ring(msgspec.Struct, frozen=True):
    """The shape of a ledger's rings. The first process writes it, once."""

    version: int
    slots: int
    name: str
    """The name of the change that wrote the ring. By it a process recognises its own change after a lost reply."""
    secret: str
    """Random. Processes prove to each other that they know it."""


class Mark(msgspec.Struct, frozen=True):
    """The position through which a domain is truncated."""

    position: int
    name: str


class Wish(msgspec.Struct, frozen=True):
    """A request to let a writer go first that has lost to others for a while."""

    writer: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{2})+$")]
    end: int
    """The newest slot that the writer knew."""
    name: str


class PointerValue(msgspec.Struct, frozen=True):
    """A checkpoint's pointer, and the name of the change that set it."""

    pointer: Pointer
    name: str


@dataclass(frozen=True, slots=True)
class Cell(Generic[V]):
    """A register with a typed value."""

    registers: Registers
    path: str
    type: type[V]

    async def read(self) -> tuple[V | None, Held | None]:
        """The value, and what `swap` needs to replace it."""
        held = await self.registers.read(self.path)
        if held is None:
            return None, None
        try:
            return msgspec.json.decode(held.data, type=self.type), held
        except msgspec.MsgspecError as error:
            raise Halted(f"{self.path} cannot be read: {error}") from error

    async def put(self, value: V) -> None:
        """Replace the value without a condition."""
        await self.registers.put(self.path, msgspec.json.encode(value))

    async def swap(self, before: Held | None, value: V) -> bool:
        """Replace the value that was read. No other process may ever write an equal value.

        After a lost reply the value is read back. Sending it again does no harm: the store refuses it if the value has
        changed since.
        """
        data = msgspec.json.encode(value)
        for _ in range(SETTLE_ATTEMPTS):
            try:
                if before is None:
                    tag = await self.registers.create(self.path, data)
                else:
                    tag = await self.registers.replace(self.path, data, before.tag)
                if tag is not None:
                    return True
            except OutcomeUnknown:
                pass
            now = await self.registers.read(self.path)
            if now is not None and now.data == data:
                return True
            if (now and now.tag) != (before and before.tag):
                return False
        raise OutcomeUnknown(f"{self.path}: the store neither accepted nor refused a change")


async def open_ring(registers: Registers, slots: int, name: str, secret: str) -> Ring:
    """The shape of the rings in a bucket. It is created with `slots` places if there is none yet."""
    cell = Cell(registers, RING_PATH, Ring)
    for attempt in range(SETTLE_ATTEMPTS):
        ring, held = await cell.read()
        if ring is not None:
            if ring.version != VERSION:
                raise ConfigError(f"the ledger's format is {ring.version}; this version of Headwater reads {VERSION}")
            return ring
        with contextlib.suppress(OutcomeUnknown):
            await _check_conditions(registers, f"{name}-{attempt}")
            await cell.swap(held, Ring(VERSION, slots, name, secret))
    raise StoreUnavailable(f"{RING_PATH} could not be written")


async def _check_conditions(registers: Registers, name: str) -> None:
    """Check that the store honours conditional PUTs. A store that ignores them would lose records silently."""
    path = f"ledger/v1/probe/{name}"
    first = await registers.create(path, b"1")
    if first is not None:
        second = await registers.create(path, b"2")
        replaced = await registers.replace(path, b"3", first)
        again = await registers.replace(path, b"4", first)
        await registers.delete(path)
        if second is not None or again is not None:
            raise ConfigError("this object store ignores the conditions of conditional PUTs; it cannot hold a ledger")
        if replaced is None:
            raise StoreUnavailable("the object store refused a conditional PUT whose condition held")
