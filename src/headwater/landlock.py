"""Takes rights away from this process, for good: the Landlock of Linux, by its system calls.

After `confine` the process reads some directories, writes to others, and connects to some TCP ports. Everything else is
refused by the kernel, whatever runs in the process. What is open already stays open. Threads and processes that are
started later inherit it; nobody can take it back.

A kernel before 7.0 confines the calling thread only. So `confine` is called while there is no other thread, and says so
if there is one.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import site
import stat
import sys
import sysconfig
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("headwater.landlock")

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls. They are the same on all machines."""
_VERSION_FLAG, _TSYNC_FLAG = 1 << 0, 1 << 3
_RULE_PATH, _RULE_PORT = 1, 2
_NO_NEW_PRIVILEGES = 38
_CONNECT_TCP, _BIND_TCP = 1 << 1, 1 << 0
_SCOPES = 0b11
"""Abstract Unix sockets of others, and signals to others."""

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_RIGHTS = (1 << 13) - 1
_SINCE = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
"""Rights that newer kernels know, by the version of the interface."""
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a single file can have; the others are those of directories."""
_READING = READ_FILE | READ_DIR
_WRITING = _READING | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR | REFER

SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/dev/urandom",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/stat",
    "/proc/self/status",
    "/proc/self/statm",
    "/proc/self/cgroup",
    "/sys/fs/cgroup",
    "/sys/devices/system/cpu",
)
"""What programs read of a Linux system: libraries, names of hosts, certificates, zones, what the machine has."""


PROGRAMS = ("/bin", "/usr/bin", "/lib", "/lib64", "/usr/lib", "/usr/lib64")
"""Where programs of a system are, and what starts them: for processes that start others, such as Spark's Java."""


@dataclass(frozen=True, slots=True)
class Confined:
    """What `confine` has achieved."""

    version: int
    """Of the kernel's interface; 0 if it has none."""
    files: bool
    ports: bool
    """Whether TCP connections are limited. From version 4 on."""
    other_threads: int
    """Threads that keep all their rights."""

    @property
    def whole(self) -> bool:
        """Whether all that was asked for is in force, in all threads."""
        return self.files and self.ports and not self.other_threads


def version() -> int:
    """The version of Landlock that this kernel has; 0 if it has none or does not let this process use it."""
    if sys.platform != "linux":
        return 0
    found = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    return max(0, found)


def libraries() -> list[str]:
    """What a Python program needs to read to import and to load libraries, beside `SYSTEM`."""
    known = sysconfig.get_paths()
    places = {known[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {*site.getsitepackages(), os.path.join(sys.prefix, "lib"), os.path.join(sys.base_prefix, "lib")}
    places.add(str(Path(__file__).parent))
    return sorted(place for place in places if os.path.exists(place))


def java(home: str) -> list[str]:
    """What Java reads and runs: its home, and the settings of a distribution that it may lead to."""
    return [home, os.path.realpath(home), *(str(path) for path in Path("/etc").glob("java*"))]


def confine(
    read: Sequence[str], write: Sequence[str], ports: Collection[int] | None = None, run: Sequence[str] = ()
) -> Confined:
    """Let this process read and write these files and directories only, and connect to these TCP ports only.

    `write` implies reading, and so does `run`, for programs that may be started. Without `ports` connections are not
    limited. Paths that do not exist are left out. Where the kernel has no Landlock nothing changes; the log says so.
    Raises `OSError` if the kernel has it and refuses.
    """
    known = version()
    if not known:
        log.warning("this kernel has no Landlock: a process for queries is kept to its files by its engine only")
        return Confined(0, False, ports is None, 0)
    fs = _FIRST_RIGHTS | sum(right for since, right in _SINCE.items() if known >= since)
    net = _CONNECT_TCP | _BIND_TCP if known >= 4 and ports is not None else 0
    rules = _created(fs, net, _SCOPES if known >= 6 else 0, known)
    try:
        for path in read:
            _allow_path(rules, path, _READING & fs)
        for path in write:
            _allow_path(rules, path, _WRITING & fs)
        for path in run:
            _allow_path(rules, path, (_READING | EXECUTE) & fs)
        _allow_path(rules, "/dev/null", (READ_FILE | WRITE_FILE) & fs)
        for port in ports or () if net else ():
            _add(rules, _RULE_PORT, _Port(_CONNECT_TCP, port), f"port {port}")
        others = 0 if known >= 8 else _other_threads()
        if ctypes.CDLL(None, use_errno=True).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs was refused")
        flags = _TSYNC_FLAG if known >= 8 else 0
        if _call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint32(flags)) < 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self was refused")
    finally:
        os.close(rules)
    done = Confined(known, True, ports is None or bool(net), others)
    if not done.ports:
        log.warning("the Landlock of this kernel (version %d) does not limit TCP connections", known)
    if others:
        log.warning("%d threads were started before Landlock: they keep their rights", others)
    return done


# --- system calls ------------------------------------------------------------------------------------------


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Port(ctypes.Structure):
    _fields_ = (("access", ctypes.c_uint64), ("port", ctypes.c_uint64))


def _created(fs: int, net: int, scoped: int, known: int) -> int:
    """A file descriptor of a set of rules. Older kernels know a shorter structure."""
    attributes = _Ruleset(fs, net, scoped)
    size = 8 if known < 4 else 16 if known < 6 else 24
    found = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))
    if found < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset was refused")
    return found


def _allow_path(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        _add(rules, _RULE_PATH, _Beneath(access, descriptor), path)
    finally:
        os.close(descriptor)


def _add(rules: int, kind: int, rule: ctypes.Structure, what: str) -> None:
    if _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(kind), ctypes.byref(rule), ctypes.c_uint32(0)) < 0:
        raise OSError(ctypes.get_errno(), f"landlock_add_rule was refused for {what}")


def _call(number: int, *arguments: object) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return int(library.syscall(ctypes.c_long(number), *arguments))


def _other_threads() -> int:
    """How many threads there are beside this one."""
    try:
        return sum(1 for _ in _tasks()) - 1
    except OSError:
        return 0


def _tasks() -> Iterable[Path]:
    return Path("/proc/self/task").iterdir()
