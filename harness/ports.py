"""Free TCP ports of the loopback address."""

from __future__ import annotations

import os
import random
import socket

PORTS = range(20_000, 32_000)
"""These are below the ports that the kernel gives to clients, so no client takes one while its server is down."""


_given: set[int] = set()
"""Ports that this process was given. Their servers may not listen yet, so they are not given again."""


def _own() -> range:
    """The ports of this process: workers of a test run share the machine, and each has its own part."""
    worker, workers = os.environ.get("PYTEST_XDIST_WORKER", ""), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = len(PORTS) // workers
    start = PORTS.start + share * (int(worker.removeprefix("gw")) if worker else 0)
    return range(start, start + share)


def free_port() -> int:
    """A port that no process listens on right now."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` consecutive ports that no process listens on right now."""
    own = _own()
    for _ in range(1_000):
        first = random.SystemRandom().randrange(own.start, own.stop - count)
        wanted = range(first, first + count)
        if _given.isdisjoint(wanted) and all(map(_is_free, wanted)):
            _given.update(wanted)
            return first
    raise OSError(f"no {count} consecutive free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
