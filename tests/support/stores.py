"""The stores that a cluster's processes share: a ledger of some kind, and objects on a real S3 server."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from tests.support.s3 import PROGRAM as S3_PROGRAM
from tests.support.s3 import S3Server
from tests.support.serving import ROOT, STOP_SECONDS, free_ports, needs

VARIABLE = "HEADWATER_TEST_CLUSTER"
"""Makes tests that start a Headwater of their own start it on these stores: sqlite, etcd, oxia or bucket."""
LEDGERS = ("sqlite", "etcd", "oxia", "bucket")
ETCD_NODES = 3
QUICK_FLUSHES = {"wal": {"cost": {"min_interval_ms": 5}}}
"""The profile for S3 gathers for 200 ms to save requests; here nobody pays for them, and everybody waits."""


def wanted() -> str | None:
    """The kind of ledger that the environment asks for; `None` for an embedded Headwater."""
    kind = os.environ.get(VARIABLE)
    if kind is not None and kind not in LEDGERS:
        raise ValueError(f"{VARIABLE} is {kind!r}; known are {', '.join(LEDGERS)}")
    return kind


class Stores(AbstractContextManager["Stores"]):
    """Runs until the block ends. With `sqlite` and `bucket` there are no metadata servers."""

    def __init__(self, directory: Path, ledger: str, *, quick: bool = True) -> None:
        self.directory = directory
        self.ledger = ledger
        self._quick = quick
        needs("an S3 server (scripts/setup-tools)", S3_PROGRAM.exists())
        self.s3 = S3Server(directory / "s3")
        self.s3.port = free_ports(1)
        self.metadata: Any = None
        """The `EtcdCluster` or `OxiaServer` of the ledger, if it needs one."""
        self._moved_to = ""
        self._running = ExitStack()

    def __enter__(self) -> Self:
        (self.directory / "s3").mkdir(parents=True, exist_ok=True)
        self._running.enter_context(self.s3)
        if self.ledger == "etcd":
            self.metadata = self._running.enter_context(etcd_servers(self.directory / "etcd"))
        elif self.ledger == "oxia":
            self.metadata = self._running.enter_context(oxia_server(self.directory / "oxia"))
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def ledger_url(self) -> str:
        if self._moved_to:
            return self._moved_to
        if self.metadata is not None:
            return str(self.metadata.url("headwater"))
        if self.ledger == "bucket":
            return f"{self.s3.url}/ledger"
        return f"sqlite://{self.directory.absolute()}/ledger.db"

    def end_metadata_node(self, node: int) -> None:
        """Ask a node of etcd to leave, and wait until it has."""
        process = self.metadata.processes[node]
        process.terminate()
        process.wait(timeout=STOP_SECONDS)
        self.metadata.processes[node] = None

    def move(self, ledger_url: str) -> None:
        """Use a ledger that somebody else keeps from now on."""
        self._moved_to = ledger_url

    @property
    def objects_url(self) -> str:
        return f"{self.s3.url}/objects"

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs beside the URLs."""
        return self.s3.environment

    def settings(self, text: str = "") -> dict[str, Any]:
        """A file's settings with these stores in them."""
        given = tomllib.loads(text)
        tree = {**given, "ledger": self.ledger_url, "objects": self.objects_url}
        if self._quick:
            tree["wal"] = {**QUICK_FLUSHES["wal"], **given.get("wal", {})}
        return tree


def etcd_servers(directory: Path, nodes: int = ETCD_NODES) -> AbstractContextManager[Any]:
    """Nodes of etcd on ports that stay theirs while they are down."""
    needs("etcd (scripts/setup-tools)", (ROOT / ".tools/servers/etcd").exists())
    from tests.support.etcd import EtcdCluster

    cluster = EtcdCluster(directory, nodes)
    first = free_ports(2 * nodes)
    cluster.client_ports = list(range(first, first + nodes))
    cluster.peer_ports = list(range(first + nodes, first + 2 * nodes))
    return cluster


def oxia_server(directory: Path) -> AbstractContextManager[Any]:
    """An Oxia on a port that stays its own while it is down."""
    needs("Oxia (scripts/setup-tools)", (ROOT / ".tools/servers/oxia").exists())
    from tests.support.oxia import OxiaServer

    server = OxiaServer(directory)
    server.port = free_ports(1)
    return server
