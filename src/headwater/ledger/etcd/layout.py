"""The keys of a domain's ledger in etcd, and what one handle knows about them. This module makes no requests.

A record's key begins with its **hint**: a revision that the writer had seen. The record's position is the revision at
which the key was created. The page key is put from time to time. An append succeeds only if the page key was last put
at or before the append's hint. So the revisions at which the page key was put divide both orders in the same way: the
keys with hints in `[a, b)` are exactly the records with positions in `(a, b]`. Reading and truncating therefore use
ranges of keys. etcd itself can neither list nor delete keys by revision.
"""

from __future__ import annotations

import asyncio
import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.background import Supervised
from headwater.ledger.contract import Entry
from headwater.ledger.etcd.client import Pair
from headwater.types import Domain, Position


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits of pages in etcd, and of what a handle keeps in memory."""

    page_records: int = 1024
    page_bytes: int = 1 << 20
    """A handle that has seen this much in a page starts the next page."""
    boundaries: int = 512
    feed_records: int = 8192
    feed_bytes: int = 8 << 20
    """The most bytes of recent records that a handle keeps."""
    read_keys: int = 64
    """The number of keys in one answer. Even with records of the maximum size the client accepts the answer."""


class Keys:
    """The keys of one domain."""

    def __init__(self, prefix: str, domain: Domain) -> None:
        base = f"{prefix}/domain/{domain:08x}/".encode()
        self.pointer = base + b"pointer"
        self.head = base + b"head"
        """Every append puts this key, so its revision is the last position."""
        self.watched = base + b"log/"
        self.mark = base + b"log/mark"
        """Its value is the position through which records are truncated."""
        self.page = base + b"log/page"
        """Its value lists the boundaries before its own revision."""
        self.records = base + b"log/record/"
        self.records_end = after_prefix(self.records)
        self.watched_end = after_prefix(self.watched)

    def hinted(self, hint: int) -> bytes:
        """The first possible key of a record with this hint."""
        return self.records + b"%016x" % hint

    def record(self, hint: int, unique: bytes) -> bytes:
        return self.records + b"%016x-%b" % (hint, unique)


def after_prefix(prefix: bytes) -> bytes:
    """The first key behind all keys with a prefix. The last byte of the prefix must not be 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def pack(numbers: Sequence[int]) -> bytes:
    """Encode positions as the value of a key."""
    return struct.pack(f">{len(numbers)}Q", *numbers)


def unpack(value: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(value) // 8}Q", value)


class Pages:
    """The known boundaries between pages. Some may be missing."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self.known = False
        self.turned = 0
        """The newest boundary: the revision of the page key."""
        self.boundaries: list[int] = []
        self.records = 0
        self.bytes = 0

    def learn(self, pairs: Sequence[Pair]) -> None:
        """Take over the result of a read of the page key."""
        self.known = True
        for pair in pairs:
            if pair.modified > self.turned:
                self.turned = pair.modified
                self.boundaries = [*unpack(pair.value), pair.modified]
                self.records = self.bytes = 0

    def count(self, size: int) -> None:
        self.records += 1
        self.bytes += size

    @property
    def full(self) -> bool:
        return self.records >= self._sizes.page_records or self.bytes >= self._sizes.page_bytes

    def value(self, mark: int) -> bytes:
        """The next value of the page key: the boundaries that are still needed."""
        first = max(0, bisect_right(self.boundaries, mark) - 1)
        return pack(self.boundaries[first:][-self._sizes.boundaries :])

    def floor(self, position: int) -> int:
        """The last boundary at or before a position, or 0. Records after the position have no smaller hint."""
        at = bisect_right(self.boundaries, position)
        return self.boundaries[at - 1] if at else 0

    def next(self, boundary: int) -> int:
        """The next boundary, or 0 if there is none."""
        at = bisect_right(self.boundaries, boundary)
        return self.boundaries[at] if at < len(self.boundaries) else 0


class Feed:
    """All records in `(start, end]`, received by a watch. If there are too many, the oldest are dropped."""

    def __init__(self, start: int, sizes: Sizes) -> None:
        self._sizes = sizes
        self.start = start
        self.end = start
        self.seen = start
        """The revision that the watch has reached. The handle's own appends may be ahead of it."""
        self.bytes = 0
        self._positions: list[int] = []
        self._entries: list[Entry] = []

    def __repr__(self) -> str:
        return f"<Feed of {len(self._entries)} records in ({self.start}, {self.end}]>"

    def after(self, position: int, limit: int) -> list[Entry]:
        """The records after a position. Empty if some may be missing."""
        if position < self.start:
            return []
        at = bisect_right(self._positions, position)
        return self._entries[at : at + limit]

    def add(self, entries: Sequence[Entry], through: int) -> None:
        """Add all records up to a revision. Records that are known already are skipped."""
        for entry in entries:
            if entry.position > self.end:
                self._positions.append(entry.position)
                self._entries.append(entry)
                self.bytes += len(entry.data)
        self.end = max(self.end, through)
        while self.bytes > self._sizes.feed_bytes or len(self._entries) > self._sizes.feed_records:
            self._let_go(len(self._entries) // 2 + 1)

    def reset(self, at: int) -> None:
        """Start again at a revision, because records before it may be missing."""
        self.start = self.end = self.seen = at
        self.bytes = 0
        self._positions, self._entries = [], []

    def none_between(self, position: int, through: int) -> None:
        """Take note that there is no record in `(position, through]`."""
        if position < self.start <= through:
            self.start = position

    def truncate(self, mark: int) -> None:
        """Drop the records through a position."""
        self._let_go(bisect_right(self._positions, mark))

    def _let_go(self, count: int) -> None:
        if count:
            self.start = self._positions[count - 1]
            self.bytes -= sum(len(entry.data) for entry in self._entries[:count])
            del self._positions[:count], self._entries[:count]


class Log:
    """What one handle knows about one domain."""

    def __init__(self, prefix: str, domain: Domain, sizes: Sizes) -> None:
        self.domain = domain
        self.keys = Keys(prefix, domain)
        self.known = Position(0)
        """The largest known position of a record."""
        self.mark = 0
        self.pages = Pages(sizes)
        self.feed: Feed | None = None
        self.following: Supervised | None = None
        self.rest: tuple[int, list[Entry]] = (-1, [])
        """The records that the last read found beyond its limit, and the position before them, for the next read."""
        self.vain = 0
        """The number of reads in a row that waited for the watch in vain."""
        self.looking: asyncio.Task[Position] | None = None
        self.next_look: asyncio.Task[Position] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._awaiting_feed: list[tuple[int, asyncio.Future[None]]] = []

    def learn_mark(self, pairs: Sequence[Pair]) -> None:
        """Take over the result of a read of the mark."""
        for pair in pairs:
            [through] = unpack(pair.value)
            if through > self.mark:
                self.mark = through
                if self.feed is not None:
                    self.feed.truncate(through)

    def learn_position(self, position: int) -> None:
        """Take note of a record at this position, and wake the waiting callers."""
        if position > self.known:
            self.known = Position(position)
            self._waiting = _wake(self._waiting, position)

    def appended(self, before: int, position: int, record: bytes) -> None:
        """Take note of an own record. If the feed reaches `before`, the position of the record before, it takes it."""
        feed = self.feed
        if feed is None:
            self.pages.count(len(record))
        elif before <= feed.end < position:
            self.feed_on([Entry(Position(position), record)], position)
        self.learn_position(position)

    def feed_on(self, entries: Sequence[Entry], through: int) -> None:
        """Add records to the feed, and wake the waiting callers."""
        assert self.feed is not None
        for entry in entries:
            if entry.position > self.feed.end:
                self.pages.count(len(entry.data))
        self.feed.add(entries, through)
        if entries:
            self._awaiting_feed = _wake(self._awaiting_feed, entries[-1].position)
            self.learn_position(entries[-1].position)

    def reset_feed(self, at: int) -> None:
        """Restart the feed, which may have missed records, and wake the waiting callers, which then read."""
        assert self.feed is not None
        self.feed.reset(at)
        self._waiting = _wake(self._waiting, at)
        self._awaiting_feed = _wake(self._awaiting_feed, at)

    def news(self, after: int) -> asyncio.Future[None]:
        """A future that is done when there may be a record after a position."""
        return _wait(self._waiting, after)

    def fed(self, after: int) -> asyncio.Future[None]:
        """A future that is done when the feed may have a record after a position."""
        return _wait(self._awaiting_feed, after)

    def fail(self, error: Exception) -> None:
        """Fail all waiting callers."""
        for _, future in (*self._waiting, *self._awaiting_feed):
            if not future.done():
                future.set_exception(error)
        self._waiting, self._awaiting_feed = [], []


def _wait(waiting: list[tuple[int, asyncio.Future[None]]], after: int) -> asyncio.Future[None]:
    waiting[:] = [waiter for waiter in waiting if not waiter[1].done()]
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.append((after, future))
    return future


def _wake(waiting: list[tuple[int, asyncio.Future[None]]], position: int) -> list[tuple[int, asyncio.Future[None]]]:
    if not waiting:
        return waiting
    for after, future in waiting:
        if after < position and not future.done():
            future.set_result(None)
    return [waiter for waiter in waiting if not waiter[1].done()]
