"""Compiled kernels and Spark's archive of classes: made once for an installation.

A server does not wait for them: plain Python checks records until they are there. `headwater up` makes them once it is
ready, in a process of the lowest priority. A stamp says which sources were compiled; it is beside the Java of Spark, in
the Python environment. Where that is read-only, each process compiles what it needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from headwater.errors import HeadwaterError

log = logging.getLogger("headwater.kernels")
PACKAGE = Path(__file__).resolve().parents[1]
ARGUMENTS = ("-m", "headwater", "compile", "--idle")
"""What Python is started with to make all of it at the lowest priority."""
SECONDS = 1_800.0
"""How long a server waits for that before it compiles what it needs by itself."""
_MARK = b"headwater.native.compiling"


def is_made() -> bool:
    """Whether this installation has its compiled kernels."""
    try:
        return _stamp().read_text() == _hash()
    except OSError:
        return False


def make() -> str:
    """Compile the kernels, and write the archive of Spark's classes; returns why there is no archive, if there is none.

    Of several processes that call this, one does it, and the others wait for it.
    """
    with _alone():
        if is_made():
            return ""
        _compile()
        reason = _archive()
        with contextlib.suppress(OSError):
            _stamp().write_text(_hash())
        return reason


def wait_until_made() -> None:
    """Wait until the kernels are compiled, by a process of the lowest priority. Blocks; call it from a thread.

    That process ends with this one, however this one ends: its input, to which nothing is written, is then closed.
    """
    if is_made():
        return
    try:
        with subprocess.Popen(
            [sys.executable, *ARGUMENTS, "--supervised"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        ) as process:  # fmt: skip
            process.wait(SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("kernels are compiled in this process", extra={"reason": str(error)})


def end_with_input() -> None:
    """End this process and those that it has started as soon as its standard input ends: its supervisor has ended."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="input", daemon=True).start()


def _compile() -> None:
    from headwater.log.kernels import switch
    from headwater.log.segment import encode, write
    from headwater.schemas.decoding.warming import compile_decoders

    switch.compile_kernels()
    write.compile_kernels()
    encode.compile_encoder()
    compile_decoders()


def _archive() -> str:
    """Write the archive of the classes of Spark unless it is there; returns why that failed."""
    try:
        from headwater.lake.spark.archive import archive_path
        from headwater.lake.spark.java import java_home
        from headwater.lake.spark.jobs import write_archive

        if archive_path(java_home()).exists() or write_archive():
            return ""
    except (HeadwaterError, OSError, ImportError) as error:
        return str(error)
    return "Spark does not start"


def _stamp() -> Path:
    """The file that says what was compiled. Several copies of the sources may share an environment."""
    place = hashlib.blake2b(str(PACKAGE).encode(), digest_size=6).hexdigest()
    return Path(sys.prefix) / "share" / "headwater" / f"compiled-{place}"


def _hash() -> str:
    """A hash of what numba looks at: this Python, and the time and the size of each source with kernels."""
    found = [sys.version]
    for path in sorted(PACKAGE.rglob("*.py")):
        if _MARK in path.read_bytes():
            state = path.stat()
            found.append(f"{path} {state.st_mtime_ns} {state.st_size}")
    return hashlib.blake2b("\n".join(found).encode(), digest_size=16).hexdigest()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of this installation, where there can be one."""
    path = _stamp().with_suffix(".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
