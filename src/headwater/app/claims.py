"""Who runs a cluster in a data directory. A second `headwater up`, or a second broker of one node, is refused.

A claim is a lock on a file in `run/` (`flock`), so it ends with its process, however that ends. The file says who holds
the lock; without the lock, what it says means nothing. A supervisor claims the directory and the nodes of its brokers,
a broker without a supervisor its own node. Processes without a claim share the directory with all others.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from headwater import modes
from headwater.errors import ConfigError

UP = "up"
"""The claim of a supervisor."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim says about the process that holds it."""

    command: str
    process: int
    host: str
    kafka: str
    http: str
    gateway: str = ""

    def text(self) -> str:
        """A few words that name the process."""
        ports = {"kafka": self.kafka, "http": self.http, "gateway": self.gateway}
        shown = ", ".join(f"{name} {address}" for name, address in ports.items() if address)
        return f"`headwater {self.command}`, process {self.process} on {self.host} ({shown})"


def this_process(command: str, kafka: str, http: str, gateway: str = "") -> Owner:
    """This process as an owner."""
    process, host = os.getpid(), socket.gethostname()
    return Owner(command=command, process=process, host=host, kafka=kafka, http=http, gateway=gateway)


class Claims:
    """The claims of this process."""

    def __init__(self, handles: Sequence[int]) -> None:
        self._handles = handles

    def __repr__(self) -> str:
        return f"<Claims, {len(self._handles)} files>"

    def say(self, owner: Owner) -> None:
        """Tell others about this process. Nobody needs it to be safe, so a full disk does no harm."""
        data = msgspec.json.encode(owner)
        for handle in self._handles:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, os.pwrite(handle, data, 0))


@contextlib.contextmanager
def claimed(directory: str, owner: Owner, nodes: Sequence[int], *, whole: bool) -> Iterator[Claims]:
    """Claim nodes of a data directory and, with `whole`, that no other supervisor runs there. Refused at once."""
    data = Path(directory).absolute()
    run = data / "run"
    try:
        _make(run)
        with contextlib.ExitStack() as stack:
            handles = []
            for name in [*([UP] if whole else []), *(f"node-{node}" for node in nodes)]:
                handle = os.open(run / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, modes.PRIVATE)
                stack.callback(os.close, handle)
                _lock(handle, name, data)
                handles.append(handle)
            claims = Claims(handles)
            claims.say(owner)
            held = stack.pop_all()
    except OSError as error:
        raise ConfigError(f"cannot use the data directory: {error}") from error
    with held:
        yield claims


def owner_of(data: Path) -> Owner | None:
    """The supervisor that runs a cluster in a data directory; None if none does. Nothing is created."""
    try:
        with (data / "run" / f"{UP}.lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return msgspec.json.decode(file.read(1 << 16), type=Owner)
    except (OSError, msgspec.MsgspecError):
        return None
    return None


def _make(run: Path) -> None:
    run.parent.parent.mkdir(parents=True, exist_ok=True)
    modes.make_directory(run.parent, modes.PRIVATE_DIRECTORY)
    modes.make_directory(run, modes.PRIVATE_DIRECTORY)


def _lock(handle: int, name: str, data: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _holder(handle)
        if name == UP:
            to_do = "stop it first, or give this cluster a directory of its own with --data"
            raise ConfigError(f"the data directory {data} is in use by {holder}: {to_do}") from None
        number = name.removeprefix("node-")
        to_do = "stop it first, or give this broker another number with --node"
        raise ConfigError(f"node {number} of the data directory {data} is run by {holder}: {to_do}") from None


def _holder(handle: int) -> str:
    try:
        return msgspec.json.decode(os.pread(handle, 1 << 16, 0), type=Owner).text()
    except (OSError, msgspec.MsgspecError):
        return "another process"
