"""The promises of `headwater.objects.store`, one check each, for every backend and every wrapper of one.

A check takes a function that opens one more handle on the same store. It raises `AssertionError` if a promise is
broken. Every check needs an empty store of its own. The module needs only the package, so that a backend outside this
repository can run it too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from headwater.errors import ConfigError, ObjectMissing
from headwater.objects.store import ObjectStore

OpenStore: TypeAlias = Callable[[], Awaitable[ObjectStore]]
Check: TypeAlias = Callable[[OpenStore], Awaitable[None]]

PATIENCE_SECONDS = 60.0
"""Time limit of a check, far above what any backend needs. Only a call that hangs reaches it."""
PATH = "wal/v1/zone=local/domain=1/date=2026/01/31/0000000001-000000000002.wo"
BAD_PATHS = ("", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b")
BYTES = bytes(range(256)) * 40
ODD_NAMES = (
    "a b", "a+b", "a%20b", "%2F", "%", "a?b=c", "a#b", "a&b=c", "a=b", "a:b", "a;b", "a,b", "a@b", "a!b", "a$b", "a'b",
    'a"b', "(a)", "[a]", "{a}", "<a>", "a|b", "a^b", "a`b", "~a", "a*b", ".a", "a.", "...", "_a", "-a", "ä",
    "日本", "e\u0301", "🙂",
)  # fmt: skip


def checks() -> Mapping[str, Check]:
    """All checks, by name."""
    return {check.__name__: check for check in _CHECKS}


# --- tools -------------------------------------------------------------------------------------------


def _expect(seen: object, wanted: object, what: str) -> None:
    if seen != wanted:
        raise AssertionError(f"{what}: {_short(seen)} instead of {_short(wanted)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


async def _fails(call: Awaitable[object], kind: type[Exception], what: str) -> None:
    try:
        await call
    except kind:
        return
    raise AssertionError(f"{what}: no {kind.__name__} was raised")


@contextlib.asynccontextmanager
async def _handles(open_store: OpenStore, count: int) -> AsyncIterator[list[ObjectStore]]:
    stores: list[ObjectStore] = []
    try:
        for _ in range(count):
            stores.append(await open_store())
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield stores
    finally:
        for store in stores:
            await store.close()


async def _listing(store: ObjectStore, prefix: str) -> dict[str, int]:
    found: dict[str, int] = {}
    async for info in store.scan(prefix):
        if info.path in found:
            raise AssertionError(f"{info.path} is listed twice")
        found[info.path] = info.size
    return found


# --- one object --------------------------------------------------------------------------------------


async def what_is_put_is_got(open_store: OpenStore) -> None:
    """An object reads back whole, from pieces of every kind, on every handle, under the path of a WAL object."""
    async with _handles(open_store, 2) as [store, other]:
        await store.put(PATH, [BYTES[:10], bytearray(BYTES[10:300]), memoryview(BYTES)[300:], b""])
        for handle in (store, other):
            _expect(await handle.get(PATH), BYTES, "an object")
            _expect(await handle.size(PATH), len(BYTES), "its size")
            _expect(type(await handle.get(PATH)), bytes, "what an object's bytes are")


async def an_empty_object_is_one(open_store: OpenStore) -> None:
    """No pieces, or only empty ones, make an object of no bytes."""
    async with _handles(open_store, 1) as [store]:
        await store.put("empty/none", [])
        await store.put("empty/blank", [b"", b""])
        for path in ("empty/none", "empty/blank"):
            _expect(await store.get(path), b"", path)
            _expect(await store.get(path, 3, 5), b"", f"a range of {path}")
            _expect(await store.size(path), 0, f"the size of {path}")
        _expect(await _listing(store, "empty/"), {"empty/none": 0, "empty/blank": 0}, "the listing")


async def ranges_are_cut_at_the_end(open_store: OpenStore) -> None:
    """Any start and length give the bytes that exist in that range."""
    async with _handles(open_store, 1) as [store]:
        await store.put(PATH, [BYTES])
        size = len(BYTES)
        for start in (0, 1, 255, size - 1, size, size + 1, size * 2):
            _expect(await store.get(PATH, start), BYTES[start:], f"from {start}")
            for length in (0, 1, 300, size, size * 2):
                _expect(await store.get(PATH, start, length), BYTES[start : start + length], f"{length} from {start}")


async def a_large_object_in_many_pieces(open_store: OpenStore) -> None:
    """An object of thousands of pieces, with more bytes than fit into one system call or request, reads back whole."""
    async with _handles(open_store, 1) as [store]:
        pieces = [bytes([i % 251]) * (1 + i * 37 % 9000) for i in range(5000)]
        whole = b"".join(pieces)
        await store.put("large", pieces)
        _expect(await store.size("large"), len(whole), "the size of a large object")
        got = await store.get("large")
        _expect(got == whole, True, "whether a large object came back as it was")
        _expect(await store.get("large", 10_000_000, 5000), whole[10_000_000:10_005_000], "a range of it")


async def what_is_missing_is_reported(open_store: OpenStore) -> None:
    """`get` and `size` raise `ObjectMissing`, also for a name that other paths begin with."""
    async with _handles(open_store, 1) as [store]:
        for _ in range(2):
            for path in ("nothing", "deep/down/nothing"):
                await _fails(store.get(path), ObjectMissing, f"get {path}")
                await _fails(store.get(path, 1, 2), ObjectMissing, f"get a range of {path}")
                await _fails(store.size(path), ObjectMissing, f"size of {path}")
            await store.put("deep/up", [b"x"])


async def deleting_is_idempotent(open_store: OpenStore) -> None:
    """A deleted object is gone on every handle, deleting it again succeeds, its neighbours stay."""
    async with _handles(open_store, 2) as [store, other]:
        await store.put("a/one", [b"1"])
        await store.put("a/two", [b"2"])
        for _ in range(2):
            await store.delete("a/one")
        await store.delete("never/there")
        for handle in (store, other):
            await _fails(handle.get("a/one"), ObjectMissing, "get of what was deleted")
            _expect(await _listing(handle, ""), {"a/two": 1}, "what is left")
        await other.put("a/one", [b"again"])
        _expect(await store.get("a/one"), b"again", "an object put again")


async def names_hold_any_character(open_store: OpenStore) -> None:
    """Characters that are special in URLs or shells are ordinary characters of a path."""
    async with _handles(open_store, 2) as [store, other]:
        for i, name in enumerate(ODD_NAMES):
            data = [bytes([i])]
            await store.put(f"odd/{name}", data)
            _expect(await other.get(f"odd/{name}"), data[0], f"the object {name!r}")
            _expect(await other.create(f"odd/{name}", [b"other"]), False, f"whether {name!r} can be created again")
            _expect(await other.create(f"new/{name}/{name}", data), True, f"whether {name!r} can be created")
        wanted = {f"odd/{name}": 1 for name in ODD_NAMES}
        _expect(await _listing(other, "odd/"), wanted, "the listing")
        for name in ODD_NAMES:
            await other.delete(f"odd/{name}")
        _expect(await _listing(store, "odd/"), {}, "what is left")
        _expect(await store.get(f"new/{ODD_NAMES[0]}/{ODD_NAMES[0]}"), bytes([0]), "an object below an odd name")


async def paths_stay_inside(open_store: OpenStore) -> None:
    """A path that is empty, absolute, or leads out of the store is refused by every call."""
    async with _handles(open_store, 1) as [store]:
        for path in BAD_PATHS:
            await _fails(store.put(path, [b"x"]), ConfigError, f"put {path!r}")
            await _fails(store.create(path, [b"x"]), ConfigError, f"create {path!r}")
            await _fails(store.get(path), ConfigError, f"get {path!r}")
            await _fails(store.get(path, 1, 1), ConfigError, f"get a range of {path!r}")
            await _fails(store.get_many([path]), ConfigError, f"get_many {path!r}")
            await _fails(store.size(path), ConfigError, f"size {path!r}")
            await _fails(store.delete(path), ConfigError, f"delete {path!r}")
        _expect(await _listing(store, ""), {}, "what bad paths left behind")


# --- many objects ------------------------------------------------------------------------------------


async def several_at_once(open_store: OpenStore) -> None:
    """`get_many` answers in the order asked, with `None` for what is missing."""
    async with _handles(open_store, 1) as [store]:
        for i in range(20):
            await store.put(f"many/{i}", [bytes([i]) * i])
        wanted = ["many/3", "many/none", "many/19", "many/0", "none", "many/3"]
        _expect(
            await store.get_many(wanted), [bytes([3]) * 3, None, bytes([19]) * 19, b"", None, bytes([3]) * 3], "some"
        )
        _expect(await store.get_many([]), [], "none")
        everything = await store.get_many([f"many/{i}" for i in range(20)])
        _expect(everything, [bytes([i]) * i for i in range(20)], "all")


async def listings_are_complete(open_store: OpenStore) -> None:
    """A listing has every object below the prefix, at any depth, with its size, and no other."""
    async with _handles(open_store, 2) as [store, other]:
        _expect(await _listing(store, ""), {}, "the listing of an empty store")
        _expect(await _listing(store, "a/"), {}, "the listing of nothing")
        sizes = {f"a/{i}/{j}/x.wo": i * j for i in range(6) for j in range(6)} | {"a/top": 1, "ab/c": 2, "b": 3}
        for path, size in sizes.items():
            await store.put(path, [bytes(size)])
        for handle in (store, other):
            for prefix in ("", "a/", "a/3/", "a/3/5/", "ab/", "none/"):
                wanted = {path: size for path, size in sizes.items() if path.startswith(prefix)}
                _expect(await _listing(handle, prefix), wanted, f"the listing of {prefix!r}")


async def a_listing_of_more_than_a_page(open_store: OpenStore) -> None:
    """A listing longer than one answer of the store has every object once."""
    async with _handles(open_store, 1) as [store]:
        paths = [f"page/{i % 3}/{i:05}" for i in range(1_100)]
        for at in range(0, len(paths), 50):
            await asyncio.gather(*(store.put(path, []) for path in paths[at : at + 50]))
        _expect(await _listing(store, "page/"), dict.fromkeys(paths, 0), "the listing")
        below = {path: 0 for path in paths if path.startswith("page/2/")}
        _expect(await _listing(store, "page/2/"), below, "a part of it")


async def a_listing_while_objects_go(open_store: OpenStore) -> None:
    """Objects can be deleted while a listing that names them continues."""
    async with _handles(open_store, 1) as [store]:
        for i in range(50):
            await store.put(f"go/{i % 5}/{i}", [b"x"])
        seen = []
        async for info in store.scan("go/"):
            seen.append(info.path)
            await store.delete(info.path)
        _expect(len(seen), 50, "how many were listed")
        _expect(await _listing(store, ""), {}, "what is left")


async def puts_at_once(open_store: OpenStore) -> None:
    """Many objects put at the same time over several handles and directories are all there, each whole."""
    async with _handles(open_store, 3) as stores:
        wanted = {f"at-once/{i % 90}/{i}": bytes([i % 256]) * (i * 131 % 50_000) for i in range(270)}
        await asyncio.gather(*(stores[i % 3].put(path, [wanted[path]]) for i, path in enumerate(wanted)))
        got = await stores[0].get_many(list(wanted))
        for (path, data), found in zip(wanted.items(), got, strict=True):
            _expect(found == data, True, f"whether {path} is there and whole")
        _expect(await _listing(stores[1], "at-once/"), {p: len(d) for p, d in wanted.items()}, "the listing")


async def an_object_is_whole_or_not_there(open_store: OpenStore) -> None:
    """A reader of a path that is put again and again sees nothing or the bytes of one put, never a mixture."""
    async with _handles(open_store, 2) as [store, other]:
        versions = [bytes([i]) * 300_000 for i in range(12)]
        done = asyncio.Event()

        async def write() -> None:
            try:
                for version in versions:
                    await store.put("whole", [version[:100_000], version[100_000:]])
            finally:
                done.set()

        writing = asyncio.create_task(write())
        while not done.is_set():
            [found] = await other.get_many(["whole"])
            if found is not None and found not in versions:
                raise AssertionError(f"read {len(found)} bytes that were never put")
            await asyncio.sleep(0)
        await writing
        _expect(await other.get("whole") == versions[-1], True, "whether the last put stands")


# --- create-only -------------------------------------------------------------------------------------


async def what_is_created_stays(open_store: OpenStore) -> None:
    """The bytes of the first `create` are visible on every handle; later ones return `False` and change nothing."""
    async with _handles(open_store, 2) as [store, other]:
        _expect(await store.create(PATH, [BYTES[:10], bytearray(BYTES[10:300]), memoryview(BYTES)[300:]]), True, "new")
        _expect(await store.create("empty", []), True, "an object of no bytes")
        await store.put("put", [b"first"])
        for handle in (store, other):
            for path in (PATH, "empty", "put"):
                _expect(await handle.create(path, [b"other"]), False, f"create {path} again")
            _expect(await handle.create(PATH, [BYTES[::-1]]), False, "other bytes of the same size")
            _expect(await handle.get(PATH), BYTES, "an object created")
            _expect(await handle.get("empty"), b"", "an empty one")
            _expect(await handle.get("put"), b"first", "one that was put")
            _expect(await _listing(handle, ""), {PATH: len(BYTES), "empty": 0, "put": 5}, "the listing")


async def of_many_creators_one_wins(open_store: OpenStore) -> None:
    """Of several creators on several handles one gets `True`, and all readers see its bytes."""
    async with _handles(open_store, 4) as stores:
        for i in range(20):
            path = f"race/{i}"
            sent = [bytes([n]) * (1000 + n % 3) for n in range(12)]
            told = await asyncio.gather(*(stores[n % 4].create(path, [sent[n]]) for n in range(12)))
            _expect(sum(told), 1, "how many creators were told that they stored it")
            for store in stores:
                _expect(await store.get(path), sent[told.index(True)], "the winner's bytes")


async def a_deleted_path_can_be_created(open_store: OpenStore) -> None:
    """After a `delete` the path is free, once."""
    async with _handles(open_store, 2) as [store, other]:
        for text in (b"one", b"two", b"three"):
            _expect(await store.create("again", [text]), True, f"create {text!r}")
            _expect(await other.create("again", [b"late"]), False, "create what is there")
            _expect(await other.get("again"), text, "what was created")
            await other.delete("again")
        await _fails(store.get("again"), ObjectMissing, "get of what was deleted")


async def what_is_created_is_whole_or_not_there(open_store: OpenStore) -> None:
    """A reader sees nothing or the whole object while it is created, and the whole once `create` has returned."""
    async with _handles(open_store, 2) as [store, other]:
        for i in range(12):
            path, data = f"whole/{i}", bytes([i]) * 300_000
            creating = asyncio.create_task(store.create(path, [data[:100_000], data[100_000:]]))
            while not creating.done():
                [found] = await other.get_many([path])
                if found is not None and found != data:
                    raise AssertionError(f"read {len(found)} of {len(data)} bytes of an object")
                await asyncio.sleep(0)
            _expect(await creating, True, "whether it was created")
            _expect(await other.get(path) == data, True, "whether it is there")


# --- life --------------------------------------------------------------------------------------------


async def closing_is_idempotent(open_store: OpenStore) -> None:
    """A handle can be closed twice, before and after its first use; other handles still work."""
    async with _handles(open_store, 3) as [unused, used, other]:
        await used.put("a", [b"x"])
        for store in (unused, used):
            await store.close()
            await store.close()
        _expect(await other.get("a"), b"x", "an object whose writer is closed")


_CHECKS: list[Check] = [
    what_is_put_is_got,
    an_empty_object_is_one,
    ranges_are_cut_at_the_end,
    a_large_object_in_many_pieces,
    what_is_missing_is_reported,
    deleting_is_idempotent,
    names_hold_any_character,
    paths_stay_inside,
    several_at_once,
    listings_are_complete,
    a_listing_of_more_than_a_page,
    a_listing_while_objects_go,
    puts_at_once,
    an_object_is_whole_or_not_there,
    what_is_created_stays,
    of_many_creators_one_wins,
    a_deleted_path_can_be_created,
    what_is_created_is_whole_or_not_there,
    closing_is_idempotent,
]
