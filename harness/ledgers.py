"""All ledger backends that have a server, behind one small contract, so that one fault test runs over all of them.

A backend is added with an entry in `SERVERS`. Tests reach it through a proxy, with which they disturb the network.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

from harness import etcd, oxia, s3
from harness.proxy import Proxy


class LedgerServer(Protocol):
    """A running store of ledgers. Entering the block starts it, leaving it ends it."""

    proxy: Proxy
    """The proxy to which `url` leads."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def url(self) -> str:
        """The URL of an unused namespace, through the proxy."""

    def direct(self, url: str) -> str:
        """The URL of the same namespace, without the proxy."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that a process needs besides the URL."""

    def stop(self) -> None:
        """Begin an outage: kill the server."""

    def start(self) -> None:
        """End the outage. All acknowledged records must still exist."""

    lands_late: bool
    """Whether an append that arrives late is committed even if other appends came in between."""

    def forget_history(self) -> None:
        """Drop now what the backend keeps only for a while. Does nothing if there is nothing of that kind."""


class EtcdServer(AbstractContextManager["EtcdServer"]):
    """One member, through a proxy. See `LedgerServer`."""

    lands_late = True

    def __init__(self, directory: Path) -> None:
        self.cluster = etcd.EtcdCluster(directory, nodes=1)
        self.proxy = Proxy(self.cluster.client_ports[0])

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__()
        self.cluster.__exit__()

    def url(self) -> str:
        return f"etcd://{self.proxy.address}/{uuid.uuid4()}"

    def direct(self, url: str) -> str:
        return url.replace(self.proxy.address, self.cluster.endpoints[0])

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def stop(self) -> None:
        self.cluster.kill(0)

    def start(self) -> None:
        self.cluster.start(0)

    def forget_history(self) -> None:
        """Compact up to the current revision."""
        now = self.cluster.ask(0, "kv/range", {"key": "AA=="})["header"]["revision"]
        self.cluster.ask(0, "kv/compaction", {"revision": now})


class OxiaAlone(AbstractContextManager["OxiaAlone"]):
    """A standalone server, through a proxy. It announces the address that clients use, so they all use the proxy."""

    lands_late = True

    def __init__(self, directory: Path) -> None:
        self.server = oxia.OxiaServer(directory)
        self.proxy = Proxy(self.server.port)

    def __enter__(self) -> Self:
        self.server.__enter__()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__()
        self.server.__exit__()

    def url(self) -> str:
        return f"oxia://{self.proxy.address}/default?prefix={uuid.uuid4()}"

    def direct(self, url: str) -> str:
        return url.replace(self.proxy.address, self.server.address)

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def stop(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def forget_history(self) -> None:
        """Nothing to drop: notifications are about the newest key only."""


class BucketServer(AbstractContextManager["BucketServer"]):
    """A ledger in a bucket, without another server. See `LedgerServer`."""

    lands_late = False

    def __init__(self, directory: Path) -> None:
        self.server = s3.S3Server(directory)
        self.proxy = Proxy(self.server.port)

    def __enter__(self) -> Self:
        self.server.__enter__()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.__exit__()
        self.server.__exit__()

    def url(self) -> str:
        return f"{self.server.url}/{uuid.uuid4()}?endpoint=http://{self.proxy.address}"

    def direct(self, url: str) -> str:
        return f"{url.partition('?')[0]}?endpoint={self.server.endpoint}"

    @property
    def environment(self) -> Mapping[str, str]:
        return self.server.environment

    def stop(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    def forget_history(self) -> None:
        """Nothing to drop: a ring keeps all records that are not truncated."""


SERVERS: dict[str, tuple[Path, Callable[[Path], LedgerServer]]] = {
    "etcd": (etcd.PROGRAM, EtcdServer),
    "oxia": (oxia.PROGRAM, OxiaAlone),
    "bucket": (s3.PROGRAM, BucketServer),
}
"""By name: the program that must be installed, and a function that creates the server in a directory."""
