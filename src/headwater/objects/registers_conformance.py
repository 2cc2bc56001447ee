"""The promises of `headwater.objects.registers`, one check each, for every store that can hold a ledger.

As in `headwater.objects.conformance`, a check takes a function that opens one more handle, and needs an empty store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from headwater.objects.registers import Held, Registers, Tag

OpenRegisters: TypeAlias = Callable[[], Awaitable[Registers]]
Check: TypeAlias = Callable[[OpenRegisters], Awaitable[None]]

PATIENCE_SECONDS = 60.0
WRITERS = 8
ROUNDS = 10
PATH = "ledger/v1/domain=1/slot/00000001"


def checks() -> Mapping[str, Check]:
    """All checks, by name."""
    return {check.__name__: check for check in _CHECKS}


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise AssertionError(f"{what}: {seen!r} instead of {wanted!r}")


async def _held(registers: Registers, path: str) -> Held:
    held = await registers.read(path)
    if held is None:
        raise AssertionError(f"{path} holds nothing")
    return held


@contextlib.asynccontextmanager
async def _handles(open_registers: OpenRegisters, count: int) -> AsyncIterator[list[Registers]]:
    handles: list[Registers] = []
    try:
        for _ in range(count):
            handles.append(await open_registers())
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield handles
    finally:
        for handle in handles:
            await handle.close()


async def a_register_holds_what_was_written(open_registers: OpenRegisters) -> None:
    """A register reads back on every handle, empty or larger than a slot of a ledger, until it is deleted."""
    async with _handles(open_registers, 2) as [one, other]:
        _expect(await other.read(PATH), None, "a register that nobody wrote")
        for i, data in enumerate((b"\0", bytes(range(256)) * 20_000)):
            path = f"{PATH}-{i}"
            tag = await one.create(path, data)
            _expect(await other.read(path), Held(data, tag or _never()), "what was created")
        await one.put(PATH, b"put")
        _expect((await _held(other, PATH)).data, b"put", "what was put")
        for _ in range(2):
            await other.delete(PATH)
            _expect(await one.read(PATH), None, "what was deleted")


async def a_register_is_created_once(open_registers: OpenRegisters) -> None:
    """A second creation is refused, on every handle, and changes nothing."""
    async with _handles(open_registers, 2) as handles:
        _expect(await handles[0].create(PATH, b"first") is None, False, "the first creation was refused")
        for handle in handles:
            _expect(await handle.create(PATH, b"second"), None, "a second creation")
            _expect((await _held(handle, PATH)).data, b"first", "what it holds")


async def a_register_is_replaced_by_who_has_seen_it(open_registers: OpenRegisters) -> None:
    """A tag is valid until the next write of any handle. A register that does not exist cannot be replaced."""
    async with _handles(open_registers, 2) as [one, other]:
        first = await one.create(PATH, b"1") or _never()
        second = await other.replace(PATH, b"2", (await _held(other, PATH)).tag) or _never()
        _expect(await one.replace(PATH, b"3", first), None, "a replacement under an old tag")
        _expect(await one.read(PATH), Held(b"2", second), "what it holds")
        await one.put(PATH, b"4")
        _expect(await other.replace(PATH, b"5", second), None, "a replacement after a put")
        _expect(await other.replace(f"{PATH}-none", b"6", second), None, "a replacement of nothing")
        _expect(await one.read(f"{PATH}-none"), None, "a register that was never created")


async def one_of_many_creates(open_registers: OpenRegisters) -> None:
    """Of several concurrent creations one succeeds, and its data is stored."""
    async with _handles(open_registers, WRITERS) as handles:
        for round_ in range(ROUNDS):
            path = f"{PATH}-{round_}"
            tags = await asyncio.gather(*(h.create(path, f"{round_} {i}".encode()) for i, h in enumerate(handles)))
            [winner] = [i for i, tag in enumerate(tags) if tag is not None]
            _expect(
                await handles[0].read(path), Held(f"{round_} {winner}".encode(), tags[winner] or _never()), "winner"
            )


async def one_of_many_replaces(open_registers: OpenRegisters) -> None:
    """Of several concurrent replacements of one content one succeeds, and its data is stored."""
    async with _handles(open_registers, WRITERS) as handles:
        tag = await handles[0].create(PATH, b"start") or _never()
        for round_ in range(ROUNDS):
            data = [f"{round_} {i}".encode() for i in range(WRITERS)]
            tags = await asyncio.gather(*(h.replace(PATH, d, tag) for h, d in zip(handles, data, strict=True)))
            [winner] = [i for i, found in enumerate(tags) if found is not None]
            tag = tags[winner] or _never()
            for handle in handles:
                _expect(await handle.read(PATH), Held(data[winner], tag), "the winner's data")


async def a_repeated_write_is_refused(open_registers: OpenRegisters) -> None:
    """After a lost reply a repetition of the write is refused, and a read shows the data."""
    async with _handles(open_registers, 1) as [registers]:
        first = await registers.create(PATH, b"mine") or _never()
        _expect(await registers.create(PATH, b"mine"), None, "the same creation again")
        second = await registers.replace(PATH, b"mine too", first) or _never()
        _expect(await registers.replace(PATH, b"mine too", first), None, "the same replacement again")
        _expect(await registers.read(PATH), Held(b"mine too", second), "what it holds")


async def tags_name_what_lies_below_a_prefix(open_registers: OpenRegisters) -> None:
    """A listing has every register below the prefix and no other. A write changes the tag of its register only."""
    async with _handles(open_registers, 2) as [one, other]:
        _expect(await one.tags("beat/"), {}, "tags below an empty prefix")
        for name in ("beat/1%2Fa", "beat/2", "other/3"):
            await one.put(name, name.encode())
        before = await other.tags("beat/")
        _expect(sorted(before), ["beat/1%2Fa", "beat/2"], "the registers below a prefix")
        await one.put("beat/2", b"again")
        after = await other.tags("beat/")
        _expect(after["beat/1%2Fa"] == before["beat/1%2Fa"], True, "the tag of what nobody wrote stayed")
        _expect(after["beat/2"] == before["beat/2"], False, "the tag of what was written stayed")


def _never() -> Tag:
    raise AssertionError("a write without a competitor was refused")


_CHECKS: list[Check] = [
    a_register_holds_what_was_written,
    a_register_is_created_once,
    a_register_is_replaced_by_who_has_seen_it,
    one_of_many_creates,
    one_of_many_replaces,
    a_repeated_write_is_refused,
    tags_name_what_lies_below_a_prefix,
]
