"""Network helpers for tests that start servers."""

import socket


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
