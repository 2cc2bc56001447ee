"""The object store's conformance suite over every backend, and what a crash would find in a local directory."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from headwater.errors import ConfigError, StoreFull, StoreUnavailable
from headwater.objects import ObjectStore, open_store
from headwater.objects.conformance import checks
from headwater.objects.local import HANDLES_PER_THREAD, TEMPORARY, THREADS, LocalStore
from headwater.objects.memory import MemoryStore
from headwater.objects.remote import RemoteStore
from tests.support.files import open_handles, temporary_files
from tests.support.promise import promise

PROMISES = ("M7",)

Opener = Callable[[], Awaitable[ObjectStore]]


def shared(store: ObjectStore) -> Opener:
    async def open_one() -> ObjectStore:
        return store

    return open_one


def local(directory: Path) -> Opener:
    async def open_one() -> ObjectStore:
        return LocalStore(directory / "objects")

    return open_one


def remote_local(directory: Path) -> Opener:
    async def open_one() -> ObjectStore:
        inside = obstore.store.LocalStore(directory, mkdir=True)
        return RemoteStore(inside, directory.as_uri())

    return open_one


BACKENDS: dict[str, Callable[[Path], Opener]] = {
    "local": local,
    "memory": lambda directory: shared(MemoryStore()),
    "remote-local": remote_local,
    "remote-memory": lambda directory: shared(RemoteStore(obstore.store.MemoryStore(), "memory://")),
}


def run(work: Awaitable[None]) -> None:
    async def awaited() -> None:
        await work

    asyncio.run(awaited())


@promise("M7")
@pytest.mark.parametrize("name", checks())
@pytest.mark.parametrize("backend", BACKENDS)
def test_backend(backend: str, name: str, tmp_path: Path) -> None:
    run(checks()[name](BACKENDS[backend](tmp_path)))


@promise("M7")
@pytest.mark.parametrize("name", checks())
@pytest.mark.usefixtures("natively")
def test_local_natively(name: str, tmp_path: Path) -> None:
    """A local directory whose objects are put by a native thread."""
    run(checks()[name](local(tmp_path)))


@promise("M7")
def test_the_suite_finds_what_is_broken() -> None:
    """A store that shows an object before it is whole does not pass."""

    class Torn(MemoryStore):
        async def put(self, path: str, pieces: Any) -> None:
            self.objects[path] = b"".join(pieces[:1])
            await asyncio.sleep(0)
            await super().put(path, pieces)

    with pytest.raises(AssertionError):
        run(checks()["an_object_is_whole_or_not_there"](shared(Torn())))


async def _stored(store: ObjectStore) -> None:
    await store.put("x", [b"y"])
    await store.close()


@promise("M7")
def test_urls(tmp_path: Path) -> None:
    """A store is named by a URL; anything else is a mistake that says so."""
    for url in (f"file://{tmp_path}/a%20b", "memory://"):
        run(_stored(open_store(url)))
    assert (tmp_path / "a b" / "x").read_bytes() == b"y"
    for url in ("file://host/path", "file:relative", "ftp://x", "nothing", ""):
        with pytest.raises(ConfigError):
            open_store(url)


# --- the local directory ---------------------------------------------------------------------------------


class Calls:
    """What the store asked of the operating system, in order, by path."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        self._paths: dict[int, str] = {}
        self._lock = threading.Lock()
        for name in ("open", "writev", "fsync", "close", "rename", "mkdir"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            path = self._paths.get(arguments[0], "?") if isinstance(arguments[0], int) else str(arguments[0])
            result = inner(*arguments, **options)
            with self._lock:
                if name == "open":
                    self._paths[result] = path
                    synced = " dsync" if arguments[1] & os.O_DSYNC == os.O_DSYNC else ""
                    self.made.append((name + synced, path))
                else:
                    self.made.append((name, path))
            return result

        return call


@promise("M7", "L1")
def test_local_data_then_name_then_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data is on the disk before it has its name, and the name before `put` returns."""

    async def work() -> None:
        store = LocalStore(tmp_path / "objects")
        await store.put("deep/down/first", [b"x"])
        await store.close()
        await asyncio.get_running_loop().shutdown_default_executor()

    calls = Calls(monkeypatch)
    asyncio.run(work())
    root = tmp_path / "objects"
    made = [(name, path) for name, path in calls.made if path.startswith(str(tmp_path))]
    temporary = next(path for name, path in made if name == "open dsync")
    assert Path(temporary).parent.parent == root / TEMPORARY
    order = [
        ("mkdir", str(root / "deep")),
        ("fsync", str(root)),
        ("mkdir", str(root / "deep" / "down")),
        ("fsync", str(root / "deep")),
        ("open dsync", temporary),
        ("writev", temporary),
        ("close", temporary),
        ("rename", temporary),
        ("fsync", str(root / "deep" / "down")),
    ]
    assert [call for call in made if call in order][-len(order) :] == order


@promise("M7", "L1")
def test_local_syncs_the_right_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each put syncs its own directory, however many others come and go while it does."""
    directories = HANDLES_PER_THREAD * THREADS * 2
    synced: set[str] = set()
    others_done = threading.Event()
    inner = os.fsync

    def fsync(handle: int) -> None:
        if os.readlink(f"/proc/self/fd/{handle}") == str(tmp_path / "0"):
            assert others_done.wait(30)
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        inner(handle)

    async def work() -> None:
        store = LocalStore(tmp_path)
        for i in range(directories):
            await store.put(f"{i}/first", [b"x"])
        monkeypatch.setattr(os, "fsync", fsync)
        slow = asyncio.ensure_future(store.put("0/second", [b"x"]))
        await asyncio.gather(*(store.put(f"{i}/second", [b"x"]) for i in range(1, directories)))
        others_done.set()
        await slow
        await store.close()

    asyncio.run(work())
    assert synced == {str(tmp_path / str(i)) for i in range(directories)}


@promise("M7")
def test_local_leaves_nothing_open(tmp_path: Path) -> None:
    """A closed store holds no handles."""

    async def work() -> None:
        store = LocalStore(tmp_path)
        await asyncio.gather(*(store.put(f"{i}/x", [b"x"]) for i in range(HANDLES_PER_THREAD * 8)))
        await store.close()

    async def loops() -> int:
        return open_handles()

    before = asyncio.run(loops())
    asyncio.run(work())
    assert asyncio.run(loops()) == before


@promise("M7")
@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        ("writev", errno.ENOSPC, StoreFull),
        ("writev", errno.EDQUOT, StoreFull),
        ("writev", errno.EIO, StoreUnavailable),
        ("rename", errno.EACCES, StoreUnavailable),
        ("close", errno.EIO, StoreUnavailable),
    ],
)
def test_local_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, kind: type[Exception]
) -> None:
    """A put that failed leaves no object, no temporary file, and the next one succeeds."""
    failing = threading.Event()
    inner = getattr(os, call)

    def fail(*arguments: Any, **options: Any) -> Any:
        if failing.is_set() and threading.current_thread().name.startswith("objects"):
            failing.clear()
            if call == "close":
                inner(*arguments)
            raise OSError(code, os.strerror(code))
        return inner(*arguments, **options)

    async def work() -> None:
        store = LocalStore(tmp_path)
        await store.put("a/before", [b"x"])
        monkeypatch.setattr(os, call, fail)
        failing.set()
        with pytest.raises(kind):
            await store.put("a/object", [b"data"])
        assert temporary_files(tmp_path) == []
        assert [info.path async for info in store.scan("")] == ["a/before"]
        await store.put("a/object", [b"data"])
        assert await store.get("a/object") == b"data"
        assert temporary_files(tmp_path) == []
        await store.close()

    asyncio.run(work())


@promise("M7")
def test_local_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operating system that takes only a few bytes at a time gets all of them in the end."""
    inner = os.writev
    monkeypatch.setattr(os, "writev", lambda handle, pieces: inner(handle, [bytes(pieces[0])[:3]]))

    async def work() -> None:
        store = LocalStore(tmp_path)
        await store.put("x", [b"0123456789", b"", b"abc", b"de"])
        assert await store.get("x") == b"0123456789abcde"
        await store.close()

    asyncio.run(asyncio.wait_for(work(), 20))


@promise("M7")
def test_local_hides_what_is_not_finished(tmp_path: Path) -> None:
    """What a crash left under the temporary directory is no object."""

    async def work() -> None:
        store = LocalStore(tmp_path)
        (tmp_path / TEMPORARY / "1234-0").write_bytes(b"half")
        await store.put("x", [b"y"])
        assert [info.path async for info in store.scan("")] == ["x"]
        await store.close()

    asyncio.run(work())


@promise("M7")
def test_local_needs_a_directory(tmp_path: Path) -> None:
    """A root that cannot be one is reported when the store is opened."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailable):
        LocalStore(tmp_path / "file" / "below")


@promise("M7")
def test_remote_errors_are_ours(tmp_path: Path) -> None:
    """Whatever the library raises becomes an error that says what to do."""
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"a file where a directory should be")
    inside = obstore.store.LocalStore(tmp_path)
    store = RemoteStore(inside, tmp_path.as_uri())

    async def work() -> None:
        with pytest.raises(StoreUnavailable):
            await store.put("blocked/x", [b"y"])

    asyncio.run(work())
