"""A local directory's calls are counted too."""

import asyncio
from pathlib import Path

import pytest

from headwater.errors import ObjectMissing, StoreUnavailable
from headwater.objects.local import LocalStore
from headwater.objects.metrics import collect
from tests.support.promise import promise

PROMISES = ("M7",)


@promise("M7")
def test_counts(tmp_path: Path) -> None:
    """Calls, bytes and failures; that there is no such object is no failure."""

    async def work() -> None:
        store = LocalStore(tmp_path)
        (tmp_path / "file").write_bytes(b"")
        await store.put("a", [b"12", b"345"])
        assert await store.create("b", [b"1"]) and not await store.create("b", [b"234"])
        assert await store.get("a", 1, 2) == b"23"
        assert await store.get_many(["a", "none"]) == [b"12345", None]
        with pytest.raises(ObjectMissing):
            await store.size("none")
        with pytest.raises(StoreUnavailable):
            await store.put("file/below", [b"x"])
        await store.close()
        counted = store.stats.operations()
        assert {name: (c.calls, c.bytes, c.errors) for name, c in counted.items()} == {
            "put": (2, 5, 1),
            "create": (2, 1, 0),
            "get": (3, 7, 0),
            "size": (1, 0, 0),
            "delete": (0, 0, 0),
            "scan": (0, 0, 0),
        }
        assert all(sum(c.buckets) == c.calls for c in counted.values())
        assert {metric.name for metric in collect(store)} >= {"headwater_objects_calls_total"}

    asyncio.run(work())
