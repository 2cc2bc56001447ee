"""A process that the supervisor cannot start for now is tried again, and its health page says so."""

import asyncio
import errno
from pathlib import Path
from typing import NoReturn

import pytest

from harness.virtual import run
from headwater.app.health import Health, PartHealth
from headwater.app.up import portions
from headwater.app.up.portions import broker_settings, gateway_settings, lacks_java
from headwater.app.up.supervisor import Child, ClusterHealth, Supervisor
from headwater.errors import ConfigError, MissingExtra
from headwater.settings.settings import HttpSecurity, Lake, Security, Settings, Spark

PROMISES = ("O4",)


def test_a_process_that_cannot_be_started_for_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        child, stop = Child("broker", "broker-1", Settings(), tmp_path), asyncio.Event()

        async def start() -> None:
            if child.restarts == 2:
                stop.set()
            raise BlockingIOError(11, "no more processes")

        child._start = start  # type: ignore[method-assign]
        await child.run(stop)
        report = child.report()
        assert (report.name, report.state, report.restarts) == ("broker-1", "restarting", 2)
        assert report.error == "the process cannot be started: [Errno 11] no more processes"

    run(story())
    assert "a process cannot be started" in caplog.text


class _Dead:
    """A process that was killed before the supervisor could write to it, as uvloop shows it."""

    returncode = -9

    def __init__(self) -> None:
        self.stdin, self.stdout = self, asyncio.StreamReader()
        self.stdout.feed_eof()

    def write(self, data: bytes) -> None:
        raise RuntimeError("unable to perform operation on <WriteUnixTransport closed=True>; the handler is closed")

    async def wait(self) -> int:
        return self.returncode


class _Held(_Dead):
    """A process that was killed, whose output another program holds open."""

    def __init__(self) -> None:
        super().__init__()
        self.stdout = asyncio.StreamReader()
        self.stdout.feed_data(b"ready node=1 kafka=plain:90,tls:91 http=7\n")


@pytest.mark.parametrize("kind", [_Dead, _Held])
def test_a_process_that_dies_at_once(kind: type[_Dead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again; the supervisor does not die with it, and does not wait for what it has started."""

    async def story() -> None:
        settings = Settings(kafka="plain=[::1]:0,tls=127.0.0.1:91")
        child, stop = Child("broker", "broker-1", settings, tmp_path), asyncio.Event()

        async def start(*_: object, **__: object) -> _Dead:
            if child.restarts == 2:
                stop.set()
            return kind()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        await child.run(stop)
        assert child.restarts == 2 and child.report().error == "the process ended with exit code -9"
        assert child.http_port == (7 if kind is _Held else 0), "what it has said counts"
        assert child.kafka == f"plain=[::1]:{90 if kind is _Held else 0},tls=127.0.0.1:91"

    run(story())


def test_the_settings_of_a_gateway(tmp_path: Path) -> None:
    """Its API has the certificate; the pages of brokers have none."""
    http = HttpSecurity(certificate="c.pem", key="k.pem", authentication="basic")
    settings = Settings(data=str(tmp_path), zones="a,b", brokers=2, security=Security(http=http))
    own = gateway_settings(settings)
    assert (own.http, own.zone, own.security.http) == ("127.0.0.1:0", "a", http)
    for broker in broker_settings(settings):
        assert broker.security.http == HttpSecurity(authentication="basic")


def test_a_gateway_that_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting is wrong, or its port is taken: `headwater up` ends and says so."""

    class Refusing(_Dead):
        returncode = 1

    async def start(*_: object, **__: object) -> Refusing:
        return Refusing()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    child = Child("gateway", "gateway", Settings(), tmp_path)
    with pytest.raises(ConfigError, match="gateway cannot start"):
        run(child.run(asyncio.Event()))


def test_parts_of_a_process_and_why_they_fail_are_shown(tmp_path: Path) -> None:
    """The port of a child is nobody's to know, so what its page says must be on that of the supervisor."""
    part = PartHealth("old/topics", "unhealthy", "payments: there is no such topic", 5)

    async def story() -> ClusterHealth:
        supervisor = Supervisor(Settings(data=str(tmp_path / "data")))
        healths = [Health("healthy"), *(Health("degraded", components=[part]) for _ in supervisor.children[1:])]
        return supervisor._judged([health.page() for health in healths])

    found = asyncio.run(story())
    assert found.status == "degraded" and set(found.parts) == {"compactor", "gateway"}
    assert found.parts["gateway"] == [part]


def test_kernels_that_cannot_be_compiled_end_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def spent(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", spent)

    async def story() -> bool:
        supervisor, stop = Supervisor(Settings(data=str(tmp_path / "data"))), asyncio.Event()
        compiling = asyncio.ensure_future(supervisor._compile(stop))
        for _ in range(3):
            await asyncio.sleep(0)
        waits = not compiling.done()
        stop.set()
        await compiling
        return waits

    assert asyncio.run(story())


@pytest.mark.parametrize(
    ("lake", "missing"),
    [
        (Lake(), True),
        (Lake(enabled=False), False),
        (Lake(spark=Spark(remote="sc://127.0.0.1:1")), False),
    ],
)
def test_java_is_missed_before_a_topic_waits_for_it(monkeypatch: pytest.MonkeyPatch, lake: Lake, missing: bool) -> None:
    """Where settling needs one on this machine."""

    def without() -> NoReturn:
        raise MissingExtra("Spark needs Java 17 or 21")

    monkeypatch.setattr(portions, "find_java", without)
    assert lacks_java(Settings(lake=lake)) is missing
    monkeypatch.setattr(portions, "find_java", lambda: Path("/usr/bin/java"))
    assert not lacks_java(Settings(lake=lake))
