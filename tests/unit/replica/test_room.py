"""A lack of room is logged once, remembered, and forgotten once writes succeed for a while."""

import asyncio

import pytest

from harness.virtual import VirtualClock, run
from headwater.errors import StoreFull, StoreUnavailable
from headwater.replica.room import LEDGER, OBJECTS, SURE_SECONDS, Room

PROMISES = ("L1",)


def test_room(caplog: pytest.LogCaptureFixture) -> None:
    run(full_and_empty())
    said = [record.message for record in caplog.records]
    assert said == ["there is no room: nothing can be written", "there is room again"]


async def full_and_empty() -> None:
    room = Room(VirtualClock())
    room.failed(LEDGER, StoreUnavailable("slow"))
    assert not room.missing()
    for _ in range(3):
        room.failed(OBJECTS, StoreFull("no space left"))
    assert room.missing() == {OBJECTS: "no space left"} and room.refused == 3
    room.worked(LEDGER)
    room.worked(OBJECTS)
    assert room.missing(), "a small write may succeed on a full disk"
    await asyncio.sleep(SURE_SECONDS)  # virtual time
    room.worked(OBJECTS)
    assert not room.missing()
