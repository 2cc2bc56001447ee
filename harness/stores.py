"""The stores that a cluster's processes share: a ledger of some kind, and objects on a real S3 server."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

from harness.etcd import EtcdCluster
from harness.oxia import OxiaServer
from harness.process import STOP_SECONDS
from harness.s3 import S3Server

LEDGERS = ("sqlite", "journal", "etcd", "oxia", "bucket")
QUICK_FLUSHES = {"wal": {"cost": {"min_interval_ms": 5}}}
"""The profile for S3 gathers batches for 200 ms to save requests. Here requests cost nothing, and tests would wait."""


class Stores(AbstractContextManager["Stores"]):
    """Run until the block ends. With `sqlite`, `journal` and `bucket` there are no metadata servers."""

    def __init__(self, directory: Path, ledger: str, *, quick: bool = True) -> None:
        self.directory = directory
        self.ledger = ledger
        self._quick = quick
        self.s3 = S3Server(directory / "s3")
        self.metadata: Any = None
        """The `EtcdCluster` or `OxiaServer` of the ledger, if it needs one."""
        self._moved_to = ""
        self._running = ExitStack()

    def __enter__(self) -> Self:
        (self.directory / "s3").mkdir(parents=True, exist_ok=True)
        self._running.enter_context(self.s3)
        if self.ledger == "etcd":
            self.metadata = self._running.enter_context(EtcdCluster(self.directory / "etcd"))
        elif self.ledger == "oxia":
            self.metadata = self._running.enter_context(OxiaServer(self.directory / "oxia"))
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
        return f"{self.ledger}://{self.ledger_file.absolute()}"

    @property
    def is_local(self) -> bool:
        """Whether the ledger is in files that all processes lock."""
        return self.ledger in ("sqlite", "journal")

    @property
    def ledger_file(self) -> Path:
        """The file, or the directory, of a local ledger."""
        return self.directory / ("ledger.db" if self.ledger == "sqlite" else "journal")

    def end_metadata_node(self, node: int) -> None:
        """Stop a node of etcd with SIGTERM, and wait until it has ended."""
        process = self.metadata.processes[node]
        process.terminate()
        process.wait(timeout=STOP_SECONDS)
        self.metadata.processes[node] = None

    def move(self, ledger_url: str) -> None:
        """Use from now on a ledger that this object does not run."""
        self._moved_to = ledger_url

    @property
    def objects_url(self) -> str:
        return f"{self.s3.url}/objects"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment that a process needs besides the URLs."""
        return self.s3.environment

    def settings(self, text: str = "") -> dict[str, Any]:
        """The settings in the text, with these stores added."""
        given = tomllib.loads(text)
        tree = {**given, "ledger": self.ledger_url, "objects": self.objects_url}
        if self._quick:
            tree["wal"] = {**QUICK_FLUSHES["wal"], **given.get("wal", {})}
        return tree
