"""What only the etcd ledger has to show: lost members, its quota, its history, its pages, who may get in."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.etcd import PROGRAM, EtcdCluster
from harness.ports import free_port
from harness.process import environment
from harness.tools import ROOT, needs
from headwater.clock import SystemChance
from headwater.errors import ConfigError, OutcomeUnknown, Retriable, StoreFull, StoreUnavailable
from headwater.ledger import open_ledger
from headwater.ledger.contract import MAX_RECORD_BYTES, Entry
from headwater.ledger.etcd.client import Put
from headwater.ledger.etcd.layout import Sizes
from headwater.ledger.etcd.ledger import EtcdLedger
from headwater.ledger.etcd.transport import EtcdGrpc, Servers
from headwater.types import Domain, Position
from tests.support.certificates import issue
from tests.support.ledger_writer import payload, told
from tests.support.promise import promise

PROMISES = ("M1", "M6")

ONE = Domain(1)
START = Position(0)
SECONDS = 100.0


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await story()

    asyncio.run(bounded())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    """Three members that a test may harm."""
    needs("etcd: run `make tools`", PROGRAM.exists())
    with EtcdCluster(tmp_path / "etcd") as made:
        yield made


@pytest.fixture
def single(tmp_path: Path) -> Callable[..., EtcdCluster]:
    """Makes one member with options."""
    needs("etcd: run `make tools`", PROGRAM.exists())
    return lambda *options: EtcdCluster(tmp_path / "etcd", nodes=1, options=options)


def writer(url: str, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.ledger_writer", url, name, str(count)]
    own = {**environment(), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=own)


async def read_all(ledger: EtcdLedger, after: Position = START, limit: int = 256) -> list[Entry]:
    found: list[Entry] = []
    while page := await ledger.read(ONE, found[-1].position if found else after, limit):
        found += page
    return found


# --- members -----------------------------------------------------------------------------------------


@promise("M6")
def test_losing_the_leader(cluster: EtcdCluster) -> None:
    """The leader is killed, its successor paused, while three processes append; nothing that was told is lost."""
    url, names, count = cluster.url("leader"), ("a", "b", "c"), 400
    with ExitStack() as stack:
        writers = [stack.enter_context(writer(url, name, count)) for name in names]
        for process in writers:
            stack.callback(process.kill)
        outputs = [_lines(process, 100) for process in writers]
        first = cluster.leader()
        cluster.kill(first)
        for i, process in enumerate(writers):
            outputs[i] += _lines(process, 100)
        cluster.start(first)
        second = cluster.leader()
        cluster.pause(second)
        for i, process in enumerate(writers):
            outputs[i] += _lines(process, 100)
        cluster.resume(second)
        for i, process in enumerate(writers):
            assert process.stdout is not None
            outputs[i] += process.stdout.read()
    stood = {name: told(output) for name, output in zip(names, outputs, strict=True)}

    async def story() -> None:
        ledger = EtcdLedger.from_url(url)
        entries = await read_all(ledger)
        found = {entry.position: entry.data for entry in entries}
        assert [entry.position for entry in entries] == sorted(found)
        for name in names:
            assert list(stood[name].values()) == list(range(count))
            assert list(stood[name]) == sorted(stood[name])
            for position, number in stood[name].items():
                assert found[Position(position)] == payload(name, number)
        assert {*found.values()} == {payload(name, number) for name in names for number in range(count)}
        await ledger.close()

    run(story)


def _lines(process: subprocess.Popen[str], count: int) -> str:
    assert process.stdout is not None
    return "".join(process.stdout.readline() for _ in range(count))


@promise("M6")
def test_a_member_that_lost_its_cluster_is_left(cluster: EtcdCluster) -> None:
    """With one member of three nothing is appended for certain; when they are back everything goes on."""

    async def story() -> None:
        ledger = EtcdLedger.from_url(cluster.url("minority"))
        first = await ledger.append(ONE, b"first")
        left = cluster.leader()
        others = [node for node in range(3) if node != left]
        for node in others:
            cluster.kill(node)
        with pytest.raises(Retriable):
            await ledger.append(ONE, b"alone")
        with pytest.raises(Retriable):
            await ledger.last(ONE)
        for node in others:
            cluster.spawn(node)
        await asyncio.to_thread(cluster.wait_healthy)
        while True:
            try:
                position = await ledger.append(ONE, b"second")
                break
            except Retriable:
                await asyncio.sleep(0.05)
        entries = await read_all(ledger)
        assert (entries[0], entries[-1]) == (Entry(first, b"first"), Entry(position, b"second"))
        assert [entry.data for entry in entries[1:-1]] in ([], [b"alone"])
        await ledger.close()

    run(story)


class First(SystemChance):
    """Chooses the first member."""

    def fraction(self) -> float:
        return 0.0


@promise("M6")
def test_a_stopped_member_is_left_for_one_that_is_not_connected(cluster: EtcdCluster) -> None:
    """A stopped member keeps its connection; members that were restarted have none, and are used all the same."""

    async def story() -> None:
        client = EtcdGrpc(Servers(tuple(cluster.endpoints)), First())
        await client.put(Put(b"a", b""))
        for node in (1, 2):
            cluster.kill(node)
            await asyncio.to_thread(cluster.start, node)
        await client.put(Put(b"a", b""))  # the client is still with the first
        cluster.pause(0)
        await asyncio.to_thread(cluster.wait_healthy, [1, 2])
        try:
            with pytest.raises(OutcomeUnknown, match=cluster.endpoints[0]):
                await client.transact((), [Put(b"a", b"1")])
            assert (await client.transact((), [Put(b"a", b"2")])).succeeded
        finally:
            cluster.resume(0)
        await client.close()

    run(story)


@promise("M6")
def test_a_beat_goes_to_another_member_at_once(cluster: EtcdCluster) -> None:
    """One call puts the key though the member it asks first has stopped."""

    async def story() -> None:
        client = EtcdGrpc(Servers(tuple(cluster.endpoints)), First())
        before = await client.put(Put(b"a", b""))
        cluster.pause(0)
        await asyncio.to_thread(cluster.wait_healthy, [1, 2])
        try:
            assert await client.put(Put(b"a", b"")) > before
        finally:
            cluster.resume(0)
        await client.close()

    run(story)


# --- pages -------------------------------------------------------------------------------------------


@promise("M1")
def test_pages_divide_the_ledger(etcd_cluster: EtcdCluster) -> None:
    """Many writers that turn pages all the time, readers that begin anywhere, truncation by whole pages."""
    sizes = Sizes(page_records=10, boundaries=6, read_keys=4)

    def opened() -> EtcdLedger:
        chance = SystemChance()
        return EtcdLedger(EtcdGrpc(Servers(tuple(etcd_cluster.endpoints)), chance), prefix, chance, sizes=sizes)

    prefix = f"pages/{SystemChance().uuid()}"

    async def story() -> None:
        writers, reader = [opened() for _ in range(4)], opened()
        wanted: dict[int, bytes] = {}

        async def write(number: int, ledger: EtcdLedger) -> None:
            for i in range(60):
                wanted[await ledger.append(ONE, payload(str(number), i))] = payload(str(number), i)

        await asyncio.gather(*(write(number, ledger) for number, ledger in enumerate(writers)))
        expected = [Entry(Position(position), data) for position, data in sorted(wanted.items())]
        assert await read_all(reader) == expected
        for at in range(0, len(expected), 37):
            fresh = opened()
            assert await read_all(fresh, expected[at].position, 11) == expected[at + 1 :]
            await fresh.close()
        cut = expected[150]
        await reader.truncate(ONE, cut.position)
        assert await read_all(reader, cut.position) == expected[151:]
        keys = etcd_cluster.ask(0, "kv/range", _prefix_of(f"{prefix}/domain/00000001/log/record/"))
        assert 89 <= int(keys["count"]) <= 89 + 60, "whole pages are gone"
        for ledger in (*writers, reader):
            await ledger.close()

    run(story)


def _prefix_of(prefix: str) -> dict[str, object]:
    key = prefix.encode()
    end = key[:-1] + bytes([key[-1] + 1])
    return {"key": base64.b64encode(key).decode(), "range_end": base64.b64encode(end).decode(), "count_only": True}


@promise("M1")
def test_many_large_records(etcd_cluster: EtcdCluster) -> None:
    """Records of the largest size fit into etcd's default request size, and many of them into its answers."""

    async def story() -> None:
        url = etcd_cluster.url(f"large/{SystemChance().uuid()}")
        ledger, other = EtcdLedger.from_url(url), EtcdLedger.from_url(url)
        waiting = asyncio.create_task(other.watch(ONE, START))
        written = []
        for i in range(12):
            data = bytes([i]) * MAX_RECORD_BYTES
            written.append(Entry(await ledger.append(ONE, data), data))
        await waiting
        assert await read_all(ledger) == written
        assert await read_all(other) == written
        await ledger.truncate(ONE, written[-1].position)
        await ledger.close()
        await other.close()

    run(story)


# --- history and quota -------------------------------------------------------------------------------


@promise("M1")
def test_history_is_compacted(single: Callable[..., EtcdCluster]) -> None:
    """Truncation has etcd forget what was before the truncation before, so that its file does not grow for ever."""

    async def story() -> None:
        with single() as etcd:
            ledger = EtcdLedger.from_url(etcd.url("compacted"))
            kept = EtcdLedger.from_url(f"{etcd.url('kept')}?compact=false")
            for one in (kept, ledger):
                for _ in range(3):
                    last = START
                    for i in range(5):
                        last = await one.append(ONE, payload("x", i))
                    await one.truncate(ONE, last)
                assert _remembers(etcd, 2) == (one is kept)
            await ledger.close()
            await kept.close()

    run(story)


def _remembers(etcd: EtcdCluster, revision: int) -> bool:
    """Whether etcd can still tell how things were."""
    return etcd._ask(0, "kv/range", {"key": "AA==", "revision": str(revision)}) is not None


@promise("M1")
def test_a_full_etcd(single: Callable[..., EtcdCluster]) -> None:
    """Beyond its quota etcd takes no more; the error says so and what to do; reading goes on."""

    async def story() -> None:
        with single("--quota-backend-bytes", str(4 << 20)) as etcd:
            ledger = EtcdLedger.from_url(etcd.url("full"))
            written: list[Entry] = []
            data = b"." * 500_000
            # etcd measures what its backend has committed, ten times a second: a quick writer gets further.
            with pytest.raises(StoreFull, match="alarm disarm"):
                for _ in range(200):
                    written.append(Entry(await ledger.append(ONE, data), data))
            assert 2 <= len(written) < 200
            with pytest.raises(StoreFull):
                await ledger.append(ONE, b"small")
            assert await read_all(ledger) == written
            assert await ledger.last(ONE) == written[-1].position
            await ledger.close()

    run(story)


# --- getting in --------------------------------------------------------------------------------------


@promise("M1")
def test_users(single: Callable[..., EtcdCluster], tmp_path: Path) -> None:
    """Name and password come from a file or the environment; an old token is renewed; others are refused."""
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")

    async def story() -> None:
        with single("--auth-token-ttl", "1") as etcd:
            for path, body in (
                ("auth/user/add", {"name": "root", "password": "open sesame"}),
                ("auth/user/grant", {"user": "root", "role": "root"}),
                ("auth/enable", {}),
            ):
                etcd.ask(0, path, body)
            url = etcd.url("users")
            from_file = EtcdLedger.from_url(f"{url}?user=root&password_file={secret}")
            from_variables = EtcdLedger.from_url(url, {"ETCDCTL_USER": "root", "ETCDCTL_PASSWORD": "open sesame"})
            positions = [await from_file.append(ONE, b"one"), await from_variables.append(ONE, b"two")]
            from_file._client._token = "long.gone"  # type: ignore[attr-defined]
            positions.append(await from_file.append(ONE, b"three"))
            assert positions == sorted(positions)
            waiting = asyncio.create_task(from_variables.watch(ONE, positions[-1]))
            positions.append(await from_file.append(ONE, b"four"))
            assert await waiting >= positions[-1]
            for wrong in ({}, {"ETCDCTL_USER": "root:closed"}):
                refused = EtcdLedger.from_url(url, wrong)
                with pytest.raises(StoreUnavailable) as raised:
                    await refused.append(ONE, b"no")
                assert "closed" not in str(raised.value) and "sesame" not in repr(refused._client)
                await refused.close()
            assert [entry.position for entry in await read_all(from_variables)] == positions
            await from_file.close()
            await from_variables.close()

    run(story)


@promise("M1")
def test_tls(single: Callable[..., EtcdCluster], tmp_path: Path) -> None:
    """Members that speak TLS and want a certificate of ours; nobody gets in without one."""
    authority = issue(tmp_path, "authority")
    server, client = issue(tmp_path, "server", authority), issue(tmp_path, "client", authority)

    async def story() -> None:
        port = free_port()
        etcd = single(
            "--cert-file", str(server.certificate), "--key-file", str(server.key),
            "--client-cert-auth", "--trusted-ca-file", str(authority.certificate),
        )  # fmt: skip
        etcd.more_client_urls = (f"https://127.0.0.1:{port}",)
        with etcd:
            url = f"etcd://127.0.0.1:{port}/tls?ca={authority.certificate}"
            ledger = EtcdLedger.from_url(f"{url}&tls=true&cert={client.certificate}&key={client.key}")
            position = await ledger.append(ONE, b"sealed")
            assert await read_all(ledger) == [Entry(position, b"sealed")]
            for wrong in (f"{url}&tls=true", f"etcd://127.0.0.1:{port}/tls"):
                other = EtcdLedger.from_url(wrong)
                with pytest.raises(Retriable):
                    await other.append(ONE, b"open")
                await other.close()
            assert await ledger.last(ONE) == position
            await ledger.close()

    run(story)


@promise("M1")
def test_urls(tmp_path: Path) -> None:
    """A URL that cannot be meant is a mistake that says so, without the secrets in it."""
    assert repr(open_ledger("etcd://a:1,b:2/some/prefix")) == "<EtcdLedger some/prefix on <EtcdGrpc a:1,b:2>>"
    for url in (
        "etcd://",
        "etcd:///prefix",
        "etcd://host/prefix",
        "etcd://root:sesame@host:2379/prefix",
        "etcd://host:2379/prefix?colour=blue",
        "etcd://host:2379/prefix?password=sesame",
        "etcd://host:2379/prefix?tls=perhaps",
        "etcd://host:2379/prefix?user=root",
        f"etcd://host:2379/prefix?user=root&password_file={tmp_path}/none",
    ):
        with pytest.raises(ConfigError) as raised:
            EtcdLedger.from_url(url, {})
        assert "sesame" not in str(raised.value)

    async def story() -> None:
        ledger = EtcdLedger.from_url(f"etcd://127.0.0.1:1/x?ca={tmp_path}/none.pem", {})
        with pytest.raises(ConfigError, match=r"none\.pem"):
            await ledger.append(ONE, b"x")
        closed = EtcdLedger.from_url("etcd://127.0.0.1:1/x", {})
        with pytest.raises(StoreUnavailable, match="no etcd member"):
            await closed.append(ONE, b"x")
        await closed.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await closed.append(ONE, b"x")

    run(story)
