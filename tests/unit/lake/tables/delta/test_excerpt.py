"""A Delta log up to a journal sequence can be read, and shows nothing after it."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from headwater.errors import ObjectMissing
from headwater.lake.tables.delta.excerpt import Excerpt, excerpt
from headwater.lake.tables.delta.table import DeltaFollower
from headwater.objects.memory import MemoryStore
from tests.unit.lake.tables.delta.making import REF, ROOT, Journal, newest

_T = TypeVar("_T")
HINT = f"{ROOT}/_delta_log/_last_checkpoint"


def run(work: Awaitable[_T]) -> _T:
    async def awaited() -> _T:
        return await work

    return asyncio.run(awaited())


def followed(store: MemoryStore, journal: Journal, count: int, keep_versions: int = 50) -> None:
    """So many settles, each of which is a version."""
    follower = DeltaFollower(store, keep_versions=keep_versions)
    for _ in range(count):
        journal.settle()
        after = run(follower.standing(REF, "")).cursor
        run(follower.commit(REF, "", journal.batch(after)))


def copied(store: MemoryStore, part: Excerpt) -> dict[str, bytes]:
    found = {path: store.objects[path] for path in part.paths}
    return found | dict([part.hint] if part.hint is not None else [])


@pytest.mark.parametrize("upto", [1, 9, 10, 11, 12, 20, 23])
def test_an_older_version(upto: int) -> None:
    """Before, at and after checkpoints. The copy's own follower goes on from there."""
    store, journal = MemoryStore(), Journal()
    followed(store, journal, 23)
    found = copied(store, run(excerpt(store, REF, upto)))
    assert newest(found) == (upto, journal.shown[upto])
    copy = MemoryStore()
    copy.objects.update(found)
    follower = DeltaFollower(copy)
    assert run(follower.standing(REF, "")).cursor == upto
    run(follower.commit(REF, "", journal.batch(upto)))
    assert newest(copy.objects) == (23, journal.shown[23])


def test_the_hint_never_names_what_is_left_out() -> None:
    store, journal = MemoryStore(), Journal()
    followed(store, journal, 23)
    assert store.objects[HINT]
    assert run(excerpt(store, REF, 15)).hint is None
    assert run(excerpt(store, REF, 23)).hint == (HINT, store.objects[HINT])
    store.objects[HINT] = b"not a hint"
    assert run(excerpt(store, REF, 23)).hint is None


def test_a_version_that_is_gone() -> None:
    """The log was shortened meanwhile: a newer ledger is needed."""
    store, journal = MemoryStore(), Journal()
    followed(store, journal, 23, keep_versions=2)
    with pytest.raises(ObjectMissing, match="_delta_log"):
        run(excerpt(store, REF, 5))
    assert newest(copied(store, run(excerpt(store, REF, 23)))) == (23, journal.shown[23])


def test_a_table_that_does_not_exist() -> None:
    assert run(excerpt(MemoryStore(), REF, 5)) == Excerpt((), None)
    assert run(excerpt(MemoryStore(), REF, 0)) == Excerpt((), None)
