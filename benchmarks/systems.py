"""The two servers under test, each started as a process of its own on loopback and stopped by its id."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import msgspec
import psutil

ROOT = Path(__file__).resolve().parent.parent
JAVA_SOURCES = ROOT / "benchmarks" / "java"
KAFKA_LIBS = ROOT / ".tools" / "kafka" / "libs"
CLASSES = ROOT / ".tools" / "bench"
START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0

# What kafka-run-class.sh of Kafka 4 gives every JVM, server and tools alike.
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class BenchError(Exception):
    """A server or a client of the benchmark failed; the message says which and where its output is."""


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one server process in MB; PSS divides shared pages among those that share them."""

    pid: int
    name: str
    rss_mb: float
    pss_mb: float


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def busy_seconds() -> float:
    """CPU time that the whole machine has spent on something, what the hypervisor took included."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def java(heap: tuple[str, ...], main: str, *arguments: str, server: bool = False) -> list[str]:
    """The command line that runs a class of Apache Kafka's jars or of ours as Kafka's scripts would."""
    return [
        "java",
        *heap,
        *JVM_OPTIONS,
        f"-Dlog4j2.configurationFile={JAVA_SOURCES / 'log4j2.properties'}",
        *(("-Dbench.log=INFO", "-Dbench.target=SYSTEM_OUT") if server else ()),
        "-Duser.language=en",
        "-cp",
        f"{KAFKA_LIBS}/*:{CLASSES}",
        main,
        *arguments,
    ]


def compile_java() -> None:
    """Compiles our Java programs when a source is newer than its class."""
    if not any(KAFKA_LIBS.glob("kafka-clients-*.jar")):
        raise BenchError("Apache Kafka's jars are missing under .tools/kafka/libs: run scripts/setup-tools kafka")
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    classes = [CLASSES / f"{source.stem}.class" for source in sources]
    if all(
        made.exists() and made.stat().st_mtime > source.stat().st_mtime
        for made, source in zip(classes, sources, strict=True)
    ):
        return
    CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-d", str(CLASSES), "-cp", f"{KAFKA_LIBS}/*", *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"javac failed:\n{done.stderr}")


class System(ABC):
    """One server: a fresh data directory, a process tree, and an address that Kafka clients can use."""

    name: ClassVar[str]
    title: ClassVar[str]
    ready_text: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.output = directory.parent / f"{self.name}.out"
        self.log = directory.parent / f"{self.name}.log"
        self.port = free_port()
        self.startup_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        state = f"pid {self._process.pid}" if self._process else "stopped"
        return f"<{type(self).__name__} {self.bootstrap} {state}>"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @abstractmethod
    def prepare(self) -> None:
        """Makes ready what the server needs before its first start; not timed."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line of the server."""

    def start(self) -> None:
        """Starts the server on an empty data directory and waits until it says that it is ready."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.prepare()
        with self.output.open("wb") as output, self.log.open("wb") as log:
            began = time.monotonic()
            try:
                self._process = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=log,
                    cwd=ROOT,
                    start_new_session=True,  # a Ctrl-C reaches only us, and we stop the server
                )
            except OSError as error:
                raise BenchError(f"{self.title} cannot be started: {error}") from error
        while not self._ready():
            if self._process.poll() is not None:
                raise BenchError(f"{self.title} exited with {self._process.returncode}, {self.where()}")
            if time.monotonic() - began > START_TIMEOUT:
                raise BenchError(f"{self.title} was not ready after {START_TIMEOUT:.0f} s, {self.where()}")
            time.sleep(0.005)
        self.startup_seconds = time.monotonic() - began

    def stop(self) -> None:
        """SIGTERM, then a kill of whatever of the tree is left; the data directory goes too."""
        if self._process is None:
            return
        tree = self._processes()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for left in tree:
            # psutil compares creation times, so an id used again by a stranger is not touched.
            if left.is_running():
                left.kill()
        self._process = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def where(self) -> str:
        """Where to look when something went wrong."""
        return f"see {self.output} and {self.log}"

    def _ready(self) -> bool:
        return re.search(rf"\b{self.ready_text}\b", self.output.read_text(errors="replace")) is not None

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes()]

    def cpu_seconds(self) -> float:
        """User and system time of the tree so far; children that exited count through who waited for them."""
        total = 0.0
        for process in self._processes():
            with _gone_is_fine():
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def memory(self) -> list[ProcessMemory]:
        found = []
        for process in self._processes():
            with _gone_is_fine():
                info = process.memory_full_info()
                found.append(
                    ProcessMemory(pid=process.pid, name=process.name(), rss_mb=info.rss / 1e6, pss_mb=info.pss / 1e6)
                )
        return found

    def _processes(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            root = psutil.Process(self._process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """A process may exit between being listed and being asked."""
    try:
        yield
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        pass


class Headwater(System):
    name = "headwater"
    title = "Headwater"
    ready_text = "ready"

    def prepare(self) -> None:
        self._http_port = free_port()

    def command(self) -> list[str]:
        program = str(ROOT / ".venv" / "bin" / "headwater")
        addresses = ["--kafka", self.bootstrap, "--http", f"127.0.0.1:{self._http_port}"]
        return [program, "up", "--no-lake", "--data", str(self.directory / "data"), *addresses]


class Kafka(System):
    """Apache Kafka, one node in KRaft mode, with the settings its distribution ships."""

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

    def prepare(self) -> None:
        self._settings = self.directory / "server.properties"
        self._settings.write_text(
            self.SETTINGS.format(port=self.port, controller=free_port(), directory=self.directory / "data")
        )
        cluster = uuid.uuid4().hex[:22]
        arguments = ["format", "--standalone", "-t", cluster, "-c", str(self._settings)]
        done = subprocess.run(
            java(("-Xmx256M",), "kafka.tools.StorageTool", *arguments), capture_output=True, text=True
        )
        if done.returncode != 0:
            raise BenchError(f"kafka.tools.StorageTool failed:\n{done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return java(("-Xmx1G", "-Xms1G"), "kafka.Kafka", str(self._settings), server=True)


SYSTEMS: dict[str, type[System]] = {system.name: system for system in (Headwater, Kafka)}
