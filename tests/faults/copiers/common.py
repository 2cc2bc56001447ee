"""The copier of `tests/faults/copying.py` in Python: the loop, over a client's consumer and transactional producer."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

POLL_S = 0.2
MOST_RECORDS = 100
SESSION_MS = 6_000
HEARTBEAT_MS = 1_000
LINGER_MS = 5


@dataclass(frozen=True, slots=True)
class Job:
    """The arguments of a copier."""

    id: str
    group: str
    source: str
    target: str
    partitions: int
    spoil_every: int
    timeout_ms: int
    bootstrap: str

    @staticmethod
    def of(arguments: Sequence[str]) -> Job:
        id_, group, source, target, partitions, spoil_every, timeout_ms, bootstrap = arguments
        return Job(id_, group, source, target, int(partitions), int(spoil_every), int(timeout_ms), bootstrap)


@dataclass(frozen=True, slots=True)
class Read:
    """A record of the source."""

    partition: int
    offset: int
    key: bytes
    value: bytes


class Copying(Protocol):
    """A consumer and a transactional producer of one client. All calls may raise `Failed`."""

    def poll(self) -> Sequence[Read]:
        """Some records, or none after a while."""
        ...

    def has_partitions(self) -> bool: ...

    def begin(self) -> None: ...

    def send(self, partition: int, key: bytes, value: bytes) -> None: ...

    def stage(self, ends: Mapping[int, int]) -> None:
        """Send offsets of the source as part of the transaction."""
        ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def renew(self) -> None:
        """Make a new producer, which ends what the old one left open."""
        ...

    def rewind(self) -> None:
        """Go back to the committed position of every partition."""
        ...

    def close(self) -> None: ...


class Failed(Exception):
    """A call of the client failed. The transaction has to be aborted."""


class Lost(Failed):
    """A call of the client does not end. Only a new producer helps."""


class Limited:
    """Calls of a client that may never end, each on a thread that is left behind after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._thread = ThreadPoolExecutor(1)

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Raises `Lost` for a call that does not end."""
        under_way = self._thread.submit(call, *arguments)
        try:
            under_way.result(self._seconds)
        except TimeoutError:
            if under_way.done():
                raise
            self._thread = ThreadPoolExecutor(1)
            raise Lost(f"{call.__name__} did not end in {self._seconds:g} s") from None


def say(event: str, *more: object) -> None:
    print(event, *(str(word).replace("\n", " ") for word in more), flush=True)


def stop_at_the_end_of_input() -> threading.Event:
    """An event that is set when the input ends."""
    ended = threading.Event()

    def read() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


def copy(job: Job, client: Copying) -> None:
    """Copy until the input of this process ends."""
    stopping = stop_at_the_end_of_input()
    number, ready = 0, False
    while not stopping.is_set():
        try:
            records = client.poll()
        except Failed as error:
            say("undone", error)
            continue
        if not ready and client.has_partitions():
            ready = True
            say("ready")
        if records:
            number += 1
            _transact(job, client, records, spoiled=number % job.spoil_every == 0)
    client.close()
    sys.stdout.flush()
    os._exit(0)  # threads of a client must not delay the end


def _transact(job: Job, client: Copying, records: Sequence[Read], *, spoiled: bool) -> None:
    """One transaction with these records. A spoiled one is aborted on purpose."""
    mark = b"!" if spoiled else b""
    try:
        client.begin()
        for record in records:
            client.send(int(record.key) % job.partitions, record.key, mark + record.value)
        client.stage({record.partition: record.offset + 1 for record in records})
        if not spoiled:
            client.commit()
            say("committed", len(records))
            return
        client.abort()
        say("spoiled", len(records))
    except Failed as error:
        _recover(client, error)
    _rewind(client)


def _recover(client: Copying, error: Failed) -> None:
    if isinstance(error, Lost):
        say("renewed", error)
    else:
        try:
            client.abort()
            say("undone", error)
            return
        except Failed as fatal:
            say("renewed", error, "then", fatal)
    while True:
        try:
            client.renew()
            return
        except Failed as again:
            say("renewed", again)


def _rewind(client: Copying) -> None:
    while True:
        try:
            client.rewind()
            return
        except Failed as error:
            say("undone", error)
