"""Ledgers in etcd: one create-only key per record, ordered by revision, so that writers never contend.

`ledger/etcd/layout.py` explains the keys. An append is one transaction: it puts the record, and the head key whose
revision is the last position. A replica receives records with their data by a watch. `read` answers from the records
that the watch has brought, if none can be missing among them, and asks etcd for the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from headwater.background import Background, Duty, OnDeath, spawn
from headwater.clock import Chance, SystemChance
from headwater.errors import ConfigError, Halted, OutcomeUnknown, Retriable, StoreFull, StoreUnavailable, Truncated
from headwater.ledger.contract import MAX_RECORD_BYTES, Beat, Entry, Pointer
from headwater.ledger.etcd.client import Changes, Compacted, Compare, Delete, EtcdClient, Found, Get, Pair, Put
from headwater.ledger.etcd.layout import Feed, Log, Sizes, after_prefix, pack
from headwater.types import Domain, Position

APPEND_ATTEMPTS = 8
READ_ATTEMPTS = 5
TRUNCATE_ATTEMPTS = 10
MAX_BEATS = 10_000
FEED_SECONDS = 0.1
"""How long a read waits until the watch brings a record that is known to exist. Then the read asks etcd."""
STALE_READS = 20
"""The number of reads in a row that may wait in vain before the watch is started again."""
RETRY_SECONDS = 0.05
RETRY_LIMIT_SECONDS = 1.0
COMPACT_BEATS = 600
"""The number of beats (five minutes by default) between two compactions. Each reaches the time of the one before."""

WATCH = Duty("etcd-watch", OnDeath.RESTART, "receives a domain's records from etcd")
_log = logging.getLogger(__name__)


class EtcdLedger:
    """See `headwater.ledger.contract.Ledger`."""

    dense = False

    def __init__(
        self,
        client: EtcdClient,
        prefix: str,
        chance: Chance,
        *,
        compacts: bool = True,
        sizes: Sizes | None = None,
        background: Background | None = None,
    ) -> None:
        self._background = background or Background()
        self._client = client
        self._prefix = prefix
        self._chance = chance
        self._compacts = compacts
        self._sizes = sizes or Sizes()
        self._writer = b"%016x" % (chance.uuid().int >> 64)
        self._appends = 0
        self._revision = 0
        """The largest revision that etcd has returned."""
        self._logs: dict[Domain, Log] = {}
        self._beats = 0
        self._compact_next = 0
        self._closed = False

    @classmethod
    def from_url(
        cls, url: str, environment: Mapping[str, str] = os.environ, background: Background | None = None
    ) -> EtcdLedger:
        """`etcd://host:port,host:port/prefix?tls=true&ca=FILE&cert=FILE&key=FILE`"""
        from headwater.ledger.etcd.transport import EtcdGrpc, Servers

        parts = urlsplit(url)
        members = tuple(filter(None, parts.netloc.split(",")))
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = options.keys() - {"tls", "ca", "cert", "key", "user", "password_file", "compact"}
        if not members or "@" in parts.netloc or any(":" not in member for member in members):
            raise ConfigError(f"{_bare(url)!r} is not of the form etcd://host:port,host:port/prefix")
        if unknown:
            raise ConfigError(f"{_bare(url)!r}: unknown options {', '.join(sorted(unknown))}")
        user, password = _credentials(options, environment)
        servers = Servers(
            members,
            tls=_flag(options, "tls", default=bool(options.get("ca") or options.get("cert"))),
            ca=options.get("ca", ""),
            certificate=options.get("cert", ""),
            key=options.get("key", ""),
            user=user,
            password=password,
        )
        chance = SystemChance()
        prefix = unquote(parts.path).strip("/") or "headwater"
        compacts = _flag(options, "compact", default=True)
        return cls(EtcdGrpc(servers, chance), prefix, chance, compacts=compacts, background=background)

    def __repr__(self) -> str:
        return f"<EtcdLedger {self._prefix} on {self._client!r}>"

    def _domain(self, domain: Domain) -> Log:
        if self._closed:
            raise StoreUnavailable(f"{self!r} is closed")
        log = self._logs.get(domain)
        if log is None:
            log = self._logs[domain] = Log(self._prefix, domain, self._sizes)
        return log

    def _saw(self, revision: int) -> None:
        self._revision = max(self._revision, revision)

    # --- appending -----------------------------------------------------------------------------------

    async def append(self, domain: Domain, record: bytes) -> Position:
        if len(record) > MAX_RECORD_BYTES:
            raise ValueError(f"a ledger record has {len(record)} bytes; the limit is {MAX_RECORD_BYTES}")
        log = self._domain(domain)
        keys, pages = log.keys, log.pages
        for _ in range(APPEND_ATTEMPTS):
            hint = max(self._revision, pages.turned)
            self._appends += 1
            key = keys.record(hint, b"%b-%x" % (self._writer, self._appends))
            writes: list[Get | Put | Delete] = [Get(keys.head), Put(key, record), Put(keys.head, b"")]
            turning = pages.full
            if turning:
                condition = Compare(keys.page, "modified", "=", pages.turned)
                boundaries = pages.value(log.mark)
                writes.append(Put(keys.page, boundaries))
            else:
                condition = Compare(keys.page, "modified", "<", hint + 1)
            try:
                done = await self._client.transact(
                    [condition, Compare(key, "created", "=", 0)], writes, [Get(keys.page), Get(key)]
                )
            except StoreFull as full:
                return await self._though_full(log, key, full)
            self._saw(done.revision)
            if not done.succeeded:  # the page key was put after the hint, or the same request arrived twice
                page, own = done.found
                pages.learn(page.pairs)
                if own.pairs:
                    log.learn_position(own.pairs[0].created)
                    return Position(own.pairs[0].created)
                continue
            if done.revision <= hint:
                raise Halted(
                    f"etcd's revision went back from {hint} to {done.revision}: was etcd restored from a backup?"
                )
            if turning:
                pages.learn([Pair(keys.page, boundaries, done.revision, done.revision)])
            log.appended(_modified(done.found[0]), done.revision, record)
            return Position(done.revision)
        raise StoreUnavailable(f"domain {domain}: other processes start pages faster than this process can append")

    async def _though_full(self, log: Log, key: bytes, full: StoreFull) -> Position:
        """Check whether a refused record exists: etcd stores the first one beyond its quota, but reports an error."""
        try:
            found = await self._client.get(Get(key))
        except StoreUnavailable as error:
            raise OutcomeUnknown(f"{full}, and it is not known whether the record is stored: {error}") from error
        if not found.pairs:
            raise full
        position = found.pairs[0].created
        log.learn_position(position)
        return Position(position)

    # --- reading -------------------------------------------------------------------------------------

    async def read(self, domain: Domain, after: Position, limit: int) -> list[Entry]:
        log = self._domain(domain)
        if log.mark > after:
            raise _truncated(log, after)
        entries = await self._fed(log, after, limit)
        if entries:
            return entries
        at, rest = log.rest
        log.rest = (-1, [])
        found = rest if at == after else []
        more = True
        while more and len(found) < limit:
            entries, more = await self._load(log, found[-1].position if found else after)
            found = found + entries
        if len(found) > limit:
            log.rest = (found[limit - 1].position, found[limit:])
        return found[:limit]

    async def _fed(self, log: Log, after: int, limit: int) -> list[Entry]:
        """The records that the watch has brought. Waits a moment for the watch if a record is known to exist."""
        feed = log.feed
        if feed is None:
            return []
        entries = feed.after(after, limit)
        if entries or after < feed.start or log.known <= after:
            return entries
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FEED_SECONDS):
                await log.fed(after)
            log.vain = 0
            return feed.after(after, limit)
        log.vain += 1
        if log.vain >= STALE_READS:
            log.vain = 0
            self._follow(log)
        return []

    async def _load(self, log: Log, after: int) -> tuple[list[Entry], bool]:
        """Some of the records after a position, and whether there may be more."""
        for _ in range(READ_ATTEMPTS):
            try:
                entries, upper, now = await self._scan(log, after)
            except Compacted:
                continue
            if entries:
                log.learn_position(entries[-1].position)
            elif log.feed is not None:
                log.feed.none_between(after, now)
            return entries, bool(upper)
        raise StoreUnavailable(f"domain {log.domain}: etcd's history is compacted faster than this process can read it")

    async def _scan(self, log: Log, after: int) -> tuple[list[Entry], int, int]:
        """Read the first page with records after a position.

        Returns these records, the end of the page (0 for the last page), and the revision of the read.
        """
        keys, pages, limit = log.keys, log.pages, self._sizes.read_keys
        if not pages.known:
            pages.learn((await self._client.get(Get(keys.page))).pairs)
        lower = pages.floor(after)
        while True:
            begin, end = keys.hinted(lower), _hinted(log, pages.next(lower))
            seen = await self._client.transact((), [Get(keys.mark), Get(keys.page), Get(begin, end, limit)])
            mark, page, found = seen.found
            self._saw(seen.revision)
            log.learn_mark(mark.pairs)
            pages.learn(page.pairs)
            if log.mark > after:
                raise _truncated(log, after)
            upper = pages.next(lower)
            end = _hinted(log, upper)
            pairs = [pair for pair in found.pairs if pair.key < end]
            while found.more and len(pairs) and found.pairs[-1].key < end:
                begin = found.pairs[-1].key + b"\0"
                found = await self._client.get(Get(begin, end, limit, seen.revision))
                pairs += found.pairs
            entries = [Entry(Position(pair.created), pair.value) for pair in pairs if pair.created > after]
            if entries or not upper:
                entries.sort(key=lambda entry: entry.position)
                return entries, upper, seen.revision
            lower = upper

    async def last(self, domain: Domain) -> Position:
        """Calls that arrive during a request share the next request."""
        log = self._domain(domain)
        if log.next_look is None:
            log.next_look = spawn(self._look(log, log.looking), f"etcd-last-{domain}")
        return await asyncio.shield(log.next_look)

    async def _look(self, log: Log, before: asyncio.Task[Position] | None) -> Position:
        if before is not None and not before.done():
            await asyncio.wait([before])
        log.looking, log.next_look = log.next_look, None
        found = await self._client.get(Get(log.keys.head))
        self._saw(found.revision)
        position = _modified(found)
        log.learn_position(position)
        return Position(position)

    # --- watching ------------------------------------------------------------------------------------

    async def watch(self, domain: Domain, after: Position) -> Position:
        log = self._domain(domain)
        if log.feed is None:
            log.feed = Feed(after, self._sizes)
            self._follow(log)
        if log.known <= after and after >= log.feed.start:
            await log.news(after)
        return Position(max(log.known, after + 1))

    def _follow(self, log: Log) -> None:
        if log.following is not None:
            log.following.cancel()
        log.following = self._background.run(WATCH, functools.partial(self._run_feed, log), log.domain)

    async def _run_feed(self, log: Log) -> None:
        """Watch for ever. A new watch continues where the last ended, or starts now if that history is compacted."""
        assert log.feed is not None
        pause = RETRY_SECONDS
        while True:
            try:
                watch = self._client.watch(log.keys.watched, log.keys.watched_end, log.feed.seen + 1)
                async with contextlib.aclosing(watch):  # type: ignore[type-var]
                    async for changes in watch:
                        self._take(log, changes)
                        pause = RETRY_SECONDS
            except Compacted:
                with contextlib.suppress(Retriable):
                    found = await self._client.get(Get(log.keys.head))
                    self._saw(found.revision)
                    log.reset_feed(found.revision)
                    continue
            except Retriable as error:
                _log.info("the watch of domain %d is started again: %s", log.domain, error)
            await asyncio.sleep(pause * (0.5 + self._chance.fraction()))
            pause = min(pause * 2, RETRY_LIMIT_SECONDS)

    def _take(self, log: Log, changes: Changes) -> None:
        keys, feed = log.keys, log.feed
        assert feed is not None
        entries: list[Entry] = []
        for pair in changes.pairs:
            if pair.key == keys.page:
                log.pages.learn([pair])
            elif pair.key == keys.mark:
                log.learn_mark([pair])
            else:
                entries.append(Entry(Position(pair.created), pair.value))
        seen = changes.pairs[-1].modified
        self._saw(seen)
        log.feed_on(entries, seen)
        feed.seen = seen  # set last: if taking the changes fails, the next watch starts with them

    # --- truncation and history ------------------------------------------------------------------------

    async def truncate(self, domain: Domain, through: Position) -> None:
        """Move the mark and delete whole pages before it, in one transaction. The mark hides the rest of a page."""
        log = self._domain(domain)
        keys = log.keys
        for _ in range(TRUNCATE_ATTEMPTS):
            seen = await self._client.transact((), [Get(keys.head), Get(keys.mark), Get(keys.page)])
            head, mark, page = seen.found
            self._saw(seen.revision)
            log.learn_mark(mark.pairs)
            log.pages.learn(page.pairs)
            wanted = min(through, _modified(head))
            if wanted <= log.mark:
                return
            boundary = log.pages.floor(wanted)
            steps: list[Get | Put | Delete] = [Put(keys.mark, pack([wanted]))]
            if boundary:
                steps.append(Delete(keys.records, keys.hinted(boundary)))
            before = _modified(mark)
            done = await self._client.transact([Compare(keys.mark, "modified", "=", before)], steps)
            if done.succeeded:
                self._saw(done.revision)
                log.learn_mark([Pair(keys.mark, pack([wanted]), 0, done.revision)])
                await self._compact(before)
                return
        raise StoreUnavailable(f"domain {domain}: other processes truncate it at the same time")

    async def _compact(self, revision: int) -> None:
        """Compact etcd's history before a revision. A replica whose watch was behind it continues by reading."""
        if not self._compacts or not revision:
            return
        try:
            await self._client.compact(revision)
        except OutcomeUnknown as error:
            _log.info("etcd's history may not be compacted yet: %s", error)
        except Retriable as error:
            _log.warning("etcd's history is not compacted: %s", error)

    # --- the pointer -----------------------------------------------------------------------------------

    async def pointer(self, domain: Domain) -> Pointer | None:
        log = self._domain(domain)
        return _pointer(await self._client.get(Get(log.keys.pointer)))

    async def set_pointer(self, domain: Domain, expected: Position, pointer: Pointer) -> bool:
        key = self._domain(domain).keys.pointer
        found = await self._client.get(Get(key))
        now = _pointer(found)
        current = now.position if now else 0
        if current != expected or pointer.position <= current:
            return False
        put = Put(key, msgspec.msgpack.encode(pointer))
        done = await self._client.transact([Compare(key, "modified", "=", _modified(found))], [put])
        self._saw(done.revision)
        return done.succeeded

    # --- beats -----------------------------------------------------------------------------------------

    def _beat_key(self, process: str) -> bytes:
        if self._closed:
            raise StoreUnavailable(f"{self!r} is closed")
        return f"{self._prefix}/beat/{process}".encode()

    async def beat(self, process: str) -> None:
        """Put the key of the process. The revision of the put is the count."""
        revision = await self._client.put(Put(self._beat_key(process), b""))
        self._saw(revision)
        self._beats += 1
        if self._beats % COMPACT_BEATS == 0:
            until, self._compact_next = self._compact_next, revision
            await self._compact(until)

    async def beats(self) -> list[Beat]:
        start = self._beat_key("")
        found = await self._client.get(Get(start, after_prefix(start), MAX_BEATS))
        return [Beat(pair.key[len(start) :].decode(), pair.modified) for pair in found.pairs]

    async def forget_beat(self, process: str) -> None:
        await self._client.transact((), [Delete(self._beat_key(process))])

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for log in self._logs.values():
            if log.following is not None:
                await log.following.stop()
        for log in self._logs.values():
            log.fail(StoreUnavailable(f"{self!r} is closed"))
        await self._client.close()


def _modified(found: Found) -> int:
    return found.pairs[0].modified if found.pairs else 0


def _pointer(found: Found) -> Pointer | None:
    return msgspec.msgpack.decode(found.pairs[0].value, type=Pointer) if found.pairs else None


def _hinted(log: Log, boundary: int) -> bytes:
    return log.keys.hinted(boundary) if boundary else log.keys.records_end


def _truncated(log: Log, after: int) -> Truncated:
    return Truncated(f"domain {log.domain} is truncated through {log.mark}, so it cannot be read after {after}")


# --- the URL -----------------------------------------------------------------------------------------


def _bare(url: str) -> str:
    """A URL without parts that may be secret."""
    scheme, _, rest = url.partition("?")[0].partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name, "true" if default else "false")
    if value not in ("true", "false"):
        raise ConfigError(f"etcd option {name}={value!r}; use true or false")
    return value == "true"


def _credentials(options: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, str]:
    """User and password from the URL and a password file, or from the variables of `etcdctl`: ETCDCTL_USER (`name` or
    `name:password`) and ETCDCTL_PASSWORD."""
    user, _, password = environment.get("ETCDCTL_USER", "").partition(":")
    user = options.get("user", user)
    password = environment.get("ETCDCTL_PASSWORD", password)
    if path := options.get("password_file"):
        try:
            with open(path, encoding="utf-8") as file:
                password = file.read().strip()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if user and not password:
        raise ConfigError("etcd: the user has no password; set ETCDCTL_PASSWORD or password_file")
    return user, password
