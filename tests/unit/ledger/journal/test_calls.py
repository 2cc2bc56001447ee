"""What an append asks of the operating system."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from headwater.ledger.contract import Image
from headwater.ledger.journal.ledger import JournalLedger
from headwater.types import Domain
from tests.support.promise import promise

PROMISES = ("M1",)

APPENDS = 1_000
FILE_BYTES = 4 << 20


@promise("M1")
def test_one_write_and_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file costs a sync and a name when it is made, and one of each when it begins."""
    calls = Counter[str]()

    def counted(module: Any, name: str) -> None:
        right: Callable[..., Any] = getattr(module, name)

        def count(*arguments: Any, **named: Any) -> Any:
            calls[name] += 1
            return right(*arguments, **named)

        monkeypatch.setattr(module, name, count)

    async def append() -> None:
        ledger = JournalLedger(tmp_path / "journal", file_bytes=FILE_BYTES)
        try:
            for module, name in [(os, n) for n in ("pwritev", "pwrite", "fdatasync", "fsync", "rename", "unlink")]:
                counted(module, name)
            counted(fcntl, "flock")
            for sequence in range(APPENDS):
                body = b"%d" % sequence * 3_000
                crc = crc32c(body)
                image = Image(1, sequence, [body, crc.to_bytes(4, "big")], len(body) + 4, crc)
                await ledger.append(Domain(1), b"record %d" % sequence, [image])
        finally:
            monkeypatch.undo()
            await ledger.close()

    asyncio.run(append())
    files = len(list((tmp_path / "journal").glob("*.j")))
    begun = files - 2  # the first one, and the spare
    assert files > 3
    assert calls["pwritev"] == APPENDS + begun, "a seal ends each file"
    assert calls["fdatasync"] == APPENDS, "that of a file's end takes the place of the first frame's own"
    assert calls["fsync"] == 2 * (files - 1) + 2 * begun, "files are made ahead, and synced with their name twice"
    assert calls["flock"] == 2 * APPENDS + 2 * (files - 1), "a spare is made under the lock"
    assert not calls["pwrite"] and not calls["rename"] and not calls["unlink"]
