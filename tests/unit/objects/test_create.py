"""Create-only puts: what a crash or a lost reply makes of them."""

import asyncio
import errno
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import obstore
import obstore.store
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError

from headwater.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from headwater.objects.local import TEMPORARY, LocalStore
from headwater.objects.remote import RemoteStore
from tests.support.files import temporary_files
from tests.support.promise import promise

PROMISES = ("M7",)


def watch(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the store's threads ask of the operating system, in order, with the file or directory it was for."""
    made: list[tuple[str, str]] = []

    def wrapped(name: str) -> Any:
        inner = getattr(os, name)

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            if threading.current_thread().name.startswith("objects"):
                made.append((name, os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)))
            return inner(first, *rest, **options)

        return call

    for name in ("writev", "fsync", "link", "unlink", "rename"):
        monkeypatch.setattr(os, name, wrapped(name))
    return made


def on(root: Path, work: Any) -> None:
    """Run a test's work over a local store."""

    async def inside() -> None:
        store = LocalStore(root)
        await work(store)
        await store.close()

    asyncio.run(inside())


@promise("M7")
def test_local_data_then_name_then_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data is on the disk before it has its name, and the name before `create` returns, also for the loser."""

    async def work(store: LocalStore) -> None:
        await store.put("log/first", [b"x"])
        made = watch(monkeypatch)
        assert await store.create("log/object", [b"x"])
        temporary = made[0][1]
        wanted = [("writev", temporary), ("link", temporary), ("unlink", temporary), ("fsync", str(tmp_path / "log"))]
        assert made == wanted
        assert Path(temporary).parent.parent == tmp_path / TEMPORARY
        made.clear()
        assert not await store.create("log/object", [b"y"])
        assert made[-1] == ("fsync", str(tmp_path / "log"))
        assert temporary_files(tmp_path) == []

    on(tmp_path, work)


@promise("M7")
@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        ("writev", errno.ENOSPC, StoreFull),
        ("writev", errno.EIO, StoreUnavailable),
        ("link", errno.EPERM, StoreUnavailable),
        ("link", errno.ENOENT, StoreUnavailable),
    ],
)
def test_local_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: type[Exception]
) -> None:
    """A create that failed before the object had its name leaves neither object nor temporary file."""

    async def work(store: LocalStore) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(code))
            with pytest.raises(kind):
                await store.create("a/object", [b"data"])
        assert temporary_files(tmp_path) == []
        assert [info.path async for info in store.scan("")] == []
        assert await store.create("a/object", [b"data"])

    on(tmp_path, work)


def failing(code: int) -> Any:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


@promise("M7")
def test_local_a_directory_that_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the object has its name, a failure means that nobody knows."""

    async def work(store: LocalStore) -> None:
        assert await store.create("a/first", [b"data"])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing(errno.EIO))
            with pytest.raises(OutcomeUnknown):
                await store.create("a/object", [b"data"])
        assert not await store.create("a/object", [b"other"])

    on(tmp_path, work)


@promise("M7")
def test_local_a_directory_that_was_removed(tmp_path: Path) -> None:
    """A directory that somebody removed is made again by the next try."""

    async def work(store: LocalStore) -> None:
        assert await store.create("a/object", [b"data"])
        await store.delete("a/object")
        (tmp_path / "a").rmdir()
        with pytest.raises(StoreUnavailable):
            await store.create("a/object", [b"data"])
        assert await store.create("a/object", [b"data"])

    on(tmp_path, work)


class Library:
    """Stands in for obstore's `put_async`: stores or not, and then answers something else."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, stores: bool, answer: Exception) -> None:
        self._inner = obstore.put_async
        self._stores = stores
        self._answer = answer
        monkeypatch.setattr(obstore, "put_async", self)

    async def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self._stores:
            await self._inner(*arguments, **options)
        raise self._answer


def remote() -> RemoteStore:
    return RemoteStore(obstore.store.MemoryStore(), "memory://")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@promise("M7")
def test_remote_exists_after_a_lost_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library tries again by itself; the object it then finds is our own."""

    async def work() -> None:
        store = remote()
        Library(monkeypatch, stores=True, answer=AlreadyExistsError("exists"))
        assert await store.create("a", [b"da", b"ta"])
        assert await store.get("a") == b"data"

    run(work())


@promise("M7")
def test_remote_exists_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other bytes, of the same size or not, are somebody else's."""

    async def work() -> None:
        store = remote()
        await store.put("a", [b"data"])
        for other in (b"DATA", b"more data", b""):
            assert not await store.create("a", [other])
        Library(monkeypatch, stores=False, answer=AlreadyExistsError("exists"))
        with pytest.raises(OutcomeUnknown):
            await store.create("b", [b"said to exist, and does not"])

    run(work())


@promise("M7")
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (PermissionDeniedError("no"), StoreUnavailable),
        (GenericError("timed out"), OutcomeUnknown),
        (OSError("broken pipe"), OutcomeUnknown),
    ],
)
def test_remote_answers(monkeypatch: pytest.MonkeyPatch, answer: Exception, kind: type[Exception]) -> None:
    """A refusal is certain, anything else is not."""

    async def work() -> None:
        store = remote()
        Library(monkeypatch, stores=False, answer=answer)
        with pytest.raises(kind):
            await store.create("a", [b"data"])

    run(work())
