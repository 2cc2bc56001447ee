"""MirrorMaker 2: its source connector in a standalone Kafka Connect worker, from Apache Kafka into Headwater.

The worker has the settings that its distribution ships, and copies bytes as they are. Every run is a connector of its
own.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import psutil

from benchmarks.systems import BenchError
from harness.daemon import Daemon
from harness.kafka import JVM_OPTIONS, LOGGING
from harness.tools import TOOLS

LIBS = TOOLS / "mirror" / "libs"
SOURCE, TARGET = "old", "new"
"""The names of the clusters. A topic's copy is called `old.TOPIC`."""
HEARTBEATS, CHECKPOINTS = "heartbeats", "checkpoints"
"""Its other connectors."""


class MirrorMaker(Daemon):
    """A standalone worker that copies topics of one cluster into another."""

    name = "mirror"
    title = "MirrorMaker"
    ready_text = "Kafka Connect started"

    SETTINGS = """\
bootstrap.servers={target}
key.converter=org.apache.kafka.connect.converters.ByteArrayConverter
value.converter=org.apache.kafka.connect.converters.ByteArrayConverter
header.converter=org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename={directory}/offsets
offset.flush.interval.ms=10000
listeners=http://127.0.0.1:{port}
plugin.discovery=only_scan
"""

    def __init__(self, directory: Path, source: str, target: str) -> None:
        super().__init__(directory)
        self._source = source
        self._target = target

    def prepare(self) -> None:
        if not any(LIBS.glob("connect-mirror-*.jar")):
            raise BenchError("MirrorMaker is missing under .tools/mirror/libs: run scripts/setup-tools mirror")
        settings = self.SETTINGS.format(target=self._target, directory=self.directory, port=self.port)
        (self.directory / "worker.properties").write_text(settings)

    def command(self) -> list[str]:
        logging = f"-Dlog4j2.configurationFile={LOGGING}"
        options = ("-Xms256M", "-Xmx2G", *JVM_OPTIONS, logging, "-Dbench.log=INFO", "-Dbench.target=SYSTEM_OUT")
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        return ["java", *options, "-cp", f"{LIBS}/*", main, str(self.directory / "worker.properties")]

    def worker(self) -> psutil.Process:
        """The process that copies."""
        assert self.process is not None
        return psutil.Process(self.process.pid)

    def mirror(self, topic: str, *, tasks: int = 1, committed: bool = False) -> str:
        """Begin to copy a topic; returns the name of the copy. With `committed`, aborted records are left out."""
        config = {
            "tasks.max": str(tasks),
            "topics": topic,
            "sync.topic.acls.enabled": "false",
            **({"consumer.isolation.level": "read_committed"} if committed else {}),
        }
        self._connect(topic, "MirrorSourceConnector", config)
        return f"{SOURCE}.{topic}"

    def heartbeats(self) -> None:
        """Begin to send heartbeats."""
        self._connect(HEARTBEATS, "MirrorHeartbeatConnector", {"emit.heartbeats.interval.seconds": "1"})

    def checkpoints(self, group: str) -> None:
        """Begin to translate the offsets of a group, and to commit them at the target."""
        config = {
            "tasks.max": "1",
            "groups": group,
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
        }
        self._connect(CHECKPOINTS, "MirrorCheckpointConnector", config)

    def _connect(self, name: str, kind: str, more: dict[str, str]) -> None:
        own = ("offset-syncs", HEARTBEATS, CHECKPOINTS)
        factors = ("replication.factor", *(f"{one}.topic.replication.factor" for one in own))
        config = {
            "connector.class": f"org.apache.kafka.connect.mirror.{kind}",
            "source.cluster.alias": SOURCE,
            "target.cluster.alias": TARGET,
            "source.cluster.bootstrap.servers": self._source,
            "target.cluster.bootstrap.servers": self._target,
            **dict.fromkeys(factors, "1"),
            **more,
        }
        self._call("PUT", f"/connectors/{name}/config", config)

    def forget(self, name: str) -> None:
        """Copy a topic no more, or end another connector."""
        self._call("DELETE", f"/connectors/{name}")

    def _call(self, method: str, path: str, body: object = None) -> None:
        data = msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.bootstrap}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90):
                return
        except (urllib.error.URLError, TimeoutError) as error:
            raise BenchError(f"{method} {path} of MirrorMaker: {error}, {self.where()}") from error
