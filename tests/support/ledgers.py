"""Every ledger backend that tests can start, behind one small contract, so that one fault test runs over all of them.

A backend joins by an entry in `SERVERS`. Tests reach it through a proxy, so that they can make the way to it bad.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, Self

from tests.support import etcd, oxia, s3
from tests.support.proxy import Proxy


class LedgerServer(Protocol):
    """A running store of ledgers. Entering the block starts it, leaving it ends it."""

    proxy: Proxy
    """In front of what `url` leads to."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def url(self) -> str:
        """A namespace that nobody has used, through the proxy."""

    def direct(self, url: str) -> str:
        """The same namespace, past the proxy."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs besides the URL."""

    def stop(self) -> None:
        """An outage: the server ends at once."""

    def start(self) -> None:
        """The outage is over; what was acknowledged is still there."""

    lands_late: bool
    """Whether an append that arrives late still stands if others came between."""

    def forget_history(self) -> None:
        """Whatever the backend keeps only for a while goes now; nothing where it keeps nothing of that kind."""


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
        """Compact through the present revision."""
        now = self.cluster.ask(0, "kv/range", {"key": "AA=="})["header"]["revision"]
        self.cluster.ask(0, "kv/compaction", {"revision": now})


class OxiaAlone(AbstractContextManager["OxiaAlone"]):
    """A standalone server, through a proxy: it names itself as clients call it, so all they do goes that way."""

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
        """Nothing: notices are of the newest key only."""


class BucketServer(AbstractContextManager["BucketServer"]):
    """A ledger in a bucket alone. See `LedgerServer`."""

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
        """A ring keeps what is not truncated."""


SERVERS: dict[str, tuple[Path, Callable[[Path], LedgerServer]]] = {
    "etcd": (etcd.PROGRAM, EtcdServer),
    "oxia": (oxia.PROGRAM, OxiaAlone),
    "bucket": (s3.PROGRAM, BucketServer),
}
"""By name: the program that has to be there, and how to make one in a directory."""
