"""O1: a process that the supervisor cannot start for now is tried again, and its health page says so."""

import asyncio
from pathlib import Path

import pytest

from harness.virtual import run
from headwater.app.supervisor import Child
from headwater.settings.settings import Settings


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
        self.stdout.feed_data(b"ready http=7\n")


@pytest.mark.parametrize("kind", [_Dead, _Held])
def test_a_process_that_dies_at_once(kind: type[_Dead], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again; the supervisor does not die with it, and does not wait for what it has started."""

    async def story() -> None:
        child, stop = Child("broker", "broker-1", Settings(), tmp_path), asyncio.Event()

        async def start(*_: object, **__: object) -> _Dead:
            if child.restarts == 2:
                stop.set()
            return kind()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
        await child.run(stop)
        assert child.restarts == 2 and child.report().error == "the process ended with exit code -9"
        assert child.http_port == (7 if kind is _Held else 0), "what it has said counts"

    run(story())
