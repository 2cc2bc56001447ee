"""Objects that a native thread puts into a local directory, and what happens when it cannot."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.errors import StoreUnavailable
from headwater.native import rows
from headwater.objects import scratch
from headwater.objects.local import THREADS as THREADS_OF_THE_STORE
from headwater.objects.local import LocalStore
from headwater.objects.native_puts import HANDLES, THREADS, NativePuts
from tests.support.files import modes_below, open_handles, temporary_files, umask_of
from tests.support.promise import promise

PROMISES = ("M7",)

pytestmark = pytest.mark.usefixtures("natively")

FILES = 64
ONE = [b"one", b"", b"object"]


def on_a_store(tmp_path: Path, work: Callable[[LocalStore], Awaitable[None]]) -> None:
    """Run with a store that knows the directory `in/`, so that all further puts there are native ones."""

    async def run() -> None:
        store = LocalStore(tmp_path / "objects")
        await store.put("in/first", ONE)
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(run())
    assert not temporary_files(tmp_path / "objects")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What became of native puts; None for those that were not even begun."""
    told: list[int | None] = []
    begin = NativePuts.begin

    def watched(puts: NativePuts, target: str, directory: str, pieces: list[bytes], mode: int) -> object:
        future = begin(puts, target, directory, pieces, mode)
        if future is None:
            told.append(None)
        else:
            future.add_done_callback(lambda done: told.append(done.result()[rows.RESULT]))
        return future

    monkeypatch.setattr(NativePuts, "begin", watched)
    return told


@promise("M7")
def test_bytes_arrive(tmp_path: Path, results: list[int | None]) -> None:
    """Whole, counted, and over an older object too."""
    pieces = [bytes([i]) * (i * 1_000) for i in range(100)]

    async def work(store: LocalStore) -> None:
        before = store.stats.put.bytes
        await store.put("in/object", ONE)
        await store.put("in/object", pieces)
        assert await store.get("in/object") == b"".join(pieces)
        assert (store.stats.put.calls, store.stats.put.errors) == (3, 0)
        assert store.stats.put.bytes - before == len(b"".join(ONE)) + len(b"".join(pieces))

    on_a_store(tmp_path, work)
    assert results == [rows.DONE, rows.DONE]


@promise("S3")
@pytest.mark.parametrize("umask", [0, 0o077])
def test_the_mode_is_the_one_asked_for(tmp_path: Path, results: list[int | None], umask: int) -> None:
    """With any umask, for the checkpoints and for all others."""

    async def run() -> None:
        store = LocalStore(tmp_path, 0o640)
        for prefix in ("meta/a", "wal/a"):
            for name in ("by-python", "natively"):
                await store.put(f"{prefix}/{name}", ONE)
        await store.close()

    with umask_of(umask):
        asyncio.run(run())
    assert results == [rows.DONE, rows.DONE]
    assert modes_below(tmp_path / "meta") == {0o700, 0o600}
    assert modes_below(tmp_path / "wal") == {0o750, 0o640}
    assert modes_below(tmp_path / ".tmp") == {0o750}


@promise("M7")
def test_what_is_not_done_natively(tmp_path: Path, results: list[int | None]) -> None:
    """Views, nothing at all, very many pieces, and what comes while other puts are under way."""
    many = [b"%d" % i for i in range(rows.IOV_MAX + 1)]

    async def work(store: LocalStore) -> None:
        await store.put("in/view", [memoryview(b"view")])
        await store.put("in/nothing", [])
        await store.put("in/many", many)
        await asyncio.gather(*(store.put(f"in/{i}", [b"%d" % i]) for i in range(10)))
        assert await store.get("in/view") == b"view"
        assert await store.get("in/nothing") == b""
        assert await store.get("in/many") == b"".join(many)
        assert [await store.get(f"in/{i}") for i in range(10)] == [b"%d" % i for i in range(10)]

    on_a_store(tmp_path, work)
    assert results.count(rows.DONE) == THREADS
    assert results.count(None) == 3 + 10 - THREADS


@promise("M7")
def test_a_put_that_fails_is_repeated_by_the_store(tmp_path: Path, results: list[int | None]) -> None:
    """The store finds out what is wrong, or that nothing is wrong any more."""

    async def work(store: LocalStore) -> None:
        objects = tmp_path / "objects"
        (objects / "in" / "first").unlink()
        (objects / "in").rmdir()
        with pytest.raises(StoreUnavailable):
            await store.put("in/second", ONE)
        await store.put("in/second", ONE)
        os.mkdir(objects / "in" / "taken")
        with pytest.raises(StoreUnavailable):
            await store.put("in/taken", ONE)
        await store.put("in/second", ONE)
        assert await store.get("in/second") == b"".join(ONE)
        assert store.stats.put.errors == 2

    on_a_store(tmp_path, work)
    assert results == [None, rows.FAILED, rows.DONE]


@promise("M7", "L1")
def test_a_directory_that_cannot_be_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that an object is stored whose name may be lost in a crash."""
    monkeypatch.setattr(NativePuts, "_handle", lambda *_: 1 << 20)

    async def work(store: LocalStore) -> None:
        with pytest.raises(StoreUnavailable, match="synced"):
            await store.put("in/second", ONE)
        assert store.stats.put.errors == 1

    on_a_store(tmp_path, work)


@promise("M7", "L1")
def test_a_directory_that_was_removed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is there is synced, not the one that was, in both ways of putting."""
    synced: list[str] = []
    handle_of = NativePuts._handle

    def watched(puts: NativePuts, directory: str) -> int | None:
        handle = handle_of(puts, directory)
        assert handle is not None
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        return handle

    fsync = os.fsync

    def watched_fsync(handle: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(NativePuts, "_handle", watched)
    inside = tmp_path / "objects" / "in"

    async def work(store: LocalStore) -> None:
        await store.put("in/second", ONE)
        shutil.rmtree(inside)
        inside.mkdir()
        monkeypatch.setattr(os, "fsync", watched_fsync)
        for pieces in ([b"natively"], [memoryview(b"by Python")]):
            for _ in range(2 * THREADS_OF_THE_STORE):
                await store.put("in/third", pieces)

    on_a_store(tmp_path, work)
    assert set(synced) == {str(inside)}
    assert len(synced) == 1 + 4 * THREADS_OF_THE_STORE


@promise("M7")
def test_many_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: list[int | None]) -> None:
    """Handles are bounded, and closed in the end; temporary files move on to new directories."""
    monkeypatch.setattr(scratch, "FILES_PER_DIRECTORY", FILES)
    open_before = open_handles()

    async def work(store: LocalStore) -> None:
        for i in range(2 * HANDLES):
            for name in ("first", "second"):
                await store.put(f"in/{i}/{name}", ONE)
        assert open_handles() < open_before + HANDLES + 4 * HANDLES
        for i in range(4 * FILES):
            await store.put(f"in/object-{i % 7}", [b"%d" % i])

    on_a_store(tmp_path, work)
    assert results.count(None) >= 4, "puts that were left to the store, which made new directories"
    assert results.count(rows.DONE) > 4 * FILES
    assert rows.FAILED not in results
    assert open_handles() == open_before
