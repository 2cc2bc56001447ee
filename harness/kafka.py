"""Apache Kafka, one node in KRaft mode: the reference with which Headwater is compared."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from harness.daemon import Daemon
from harness.jvm import AS_REFERENCE
from harness.ports import free_port
from harness.process import ServerFailed
from harness.tools import ROOT, TOOLS

LIBS = TOOLS / "kafka" / "libs"
CLASSES = ROOT / "build" / "classes"
"""Compiled programs of the benchmarks, which use Kafka's libraries."""
LOGGING = ROOT / "benchmarks" / "java" / "log4j2.properties"

# The options that kafka-run-class.sh of Kafka 4 gives every JVM, of the server and of the tools.
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
SMALL = ("-Xmx512M", "-Xms256M", *AS_REFERENCE)
"""Options of a server that tests ask. Benchmarks measure one with Kafka's own options."""
QUICK_GROUPS = """\
group.initial.rebalance.delay.ms=0
group.consumer.assignment.interval.ms=0
group.consumer.assignor.offload.enable=false
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
"""
"""Settings with which groups start and are assigned at once. With few internal partitions the first starts soon."""


def is_installed() -> bool:
    """Whether scripts/setup-tools has downloaded it."""
    return any(LIBS.glob("kafka-clients-*.jar"))


def java(heap: Sequence[str], main: str, *arguments: str, server: bool = False) -> list[str]:
    """The command line that runs a class of Apache Kafka's jars or of the benchmarks, as Kafka's scripts do."""
    return [
        "java",
        *heap,
        *JVM_OPTIONS,
        f"-Dlog4j2.configurationFile={LOGGING}",
        *(("-Dbench.log=INFO", "-Dbench.target=SYSTEM_OUT") if server else ()),
        "-Duser.language=en",
        "-cp",
        f"{LIBS}/*:{CLASSES}",
        main,
        *arguments,
    ]


class Kafka(Daemon):
    """One node with the settings of its distribution, and further ones."""

    name = "kafka"
    title = "Apache Kafka"
    ready_text = "Kafka Server started"

    # config/server.properties of the distribution, with the addresses and the directory of this run.
    SETTINGS: ClassVar[str] = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs={directory}
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

    def __init__(self, directory: Path, *, settings: str = "", heap: Sequence[str] = ("-Xmx1G", "-Xms1G")) -> None:
        super().__init__(directory)
        self._more = settings
        self._heap = tuple(heap)
        self._file = directory / "server.properties"
        self.controller = free_port()

    def prepare(self) -> None:
        own = self.SETTINGS.format(port=self.port, controller=self.controller, directory=self.directory / "data")
        self._file.write_text(own + self._more)
        cluster = uuid.uuid4().hex[:22]
        arguments = ["format", "--standalone", "-t", cluster, "-c", str(self._file)]
        command = java(("-Xmx256M", *AS_REFERENCE), "kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ServerFailed(f"kafka.tools.StorageTool failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return java(self._heap, "kafka.Kafka", str(self._file), server=True)


class SecuredKafka(Kafka):
    """One node with a further listener, for clients that use TLS and log in by SCRAM-SHA-512."""

    SECURED: ClassVar[str] = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={keystore}
"""

    def __init__(
        self,
        directory: Path,
        *,
        certificate: Path,
        key: Path,
        settings: str = "",
        heap: Sequence[str] = ("-Xmx1G", "-Xms1G"),
    ) -> None:
        super().__init__(directory, settings=settings, heap=heap)
        self._secured_port = free_port()
        self._keystore = directory / "broker.pem"
        self._pem = key.read_bytes() + certificate.read_bytes()
        self._more += self.SECURED.format(
            port=self.port, controller=self.controller, secured=self._secured_port, keystore=self._keystore
        )

    @property
    def secured(self) -> str:
        """The address of the listener with TLS."""
        return f"127.0.0.1:{self._secured_port}"

    def prepare(self) -> None:
        self._keystore.write_bytes(self._pem)
        super().prepare()
