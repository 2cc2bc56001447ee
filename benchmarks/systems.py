"""The servers under test, and what their processes use of the machine."""

from __future__ import annotations

import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec
import psutil

from benchmarks.plan import KAFKA, LAKE, LOG, TITLES
from harness import kafka
from harness.headwater import Headwater
from harness.kafka import Kafka
from harness.pages import metric_of
from harness.process import ServerFailed
from harness.tools import ROOT
from headwater.app.up.portions import broker_settings
from headwater.settings.settings import Lake, Settings

BROKER, COMPACTOR, GATEWAY, SUPERVISOR = PARTS = ("broker", "compactor", "gateway", "supervisor")
MODE_WORDS = 4
"""The command is among the first words of a command line: `python -m headwater broker …`."""
JAVA_SOURCES = ROOT / "benchmarks" / "java"
LOOK_SECONDS = 0.005
"""How often a server that starts is looked at, which is how exact the time is that it takes."""


class BenchError(Exception):
    """A server or a client of the benchmark failed; the message says which and where its output is."""


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one server process in MB; PSS divides shared pages among those that share them."""

    pid: int
    name: str
    rss_mb: float
    pss_mb: float


def busy_seconds() -> float:
    """CPU time that the whole machine has spent on something, what the hypervisor took included."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def stolen_seconds() -> float:
    """CPU time that the hypervisor took from this machine."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


def compile_java() -> None:
    """Compiles our Java programs when a source is newer than its class."""
    if not kafka.is_installed():
        raise BenchError("Apache Kafka's jars are missing under .tools/kafka/libs: run scripts/setup-tools kafka")
    sources = sorted(JAVA_SOURCES.glob("*.java"))
    classes = [kafka.CLASSES / f"{source.stem}.class" for source in sources]
    if all(
        made.exists() and made.stat().st_mtime > source.stat().st_mtime
        for made, source in zip(classes, sources, strict=True)
    ):
        return
    kafka.CLASSES.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-d", str(kafka.CLASSES), "-cp", f"{kafka.LIBS}/*", *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"javac failed:\n{done.stderr}")


class Measured(ABC):
    """A program whose process tree is measured."""

    @property
    @abstractmethod
    def process(self) -> subprocess.Popen[Any] | None:
        """The root of the tree; None before it is started."""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None else None

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time of the tree so far. A child that exited counts for the process that waited for it."""
        return cpu_of(self._processes())

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
        if self.pid is None:
            return []
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def cpu_of(processes: Iterable[psutil.Process]) -> float:
    """User and system time of processes, and of their children that exited."""
    total = 0.0
    for process in processes:
        with _gone_is_fine():
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """A process may exit between being listed and being asked."""
    try:
        yield
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        pass


class System(Measured):
    """One server under test: a fresh data directory, a process tree, and an address that Kafka clients can use."""

    name: ClassVar[str]
    settles: ClassVar[bool] = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.startup_seconds = 0.0
        self.server = self._make()

    @abstractmethod
    def _make(self) -> Headwater | Kafka: ...

    def __repr__(self) -> str:
        state = f"pid {self.pid}" if self.pid else "stopped"
        return f"<{type(self).__name__} {self.bootstrap} {state}>"

    @property
    def title(self) -> str:
        return TITLES[self.name]

    @property
    def process(self) -> subprocess.Popen[Any] | None:
        return self.server.process

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    def cpu_parts(self) -> dict[str, float]:
        """CPU seconds so far, by part of the server."""
        return {BROKER: self.cpu_seconds()}

    def check(self) -> None:
        """Raise an error if a process of the server has ended since it was started."""
        if not self.alive():
            raise BenchError(f"{self.title} has ended, see {self.server.log}")

    def unsettled(self) -> bool:
        """Whether there is work left over from the load before."""
        return False

    def __enter__(self) -> Self:
        shutil.rmtree(self.directory, ignore_errors=True)
        try:
            self.server.start(LOOK_SECONDS)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            if isinstance(error, ServerFailed):
                raise BenchError(f"{self.title}: {error}") from error
            raise
        self.startup_seconds = time.monotonic() - self.server.launched
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.server.__exit__(kind, error, trace)
        except ServerFailed as failed:
            raise BenchError(f"{self.title}: {failed}") from failed
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


class HeadwaterLogSystem(System):
    """`headwater up --no-lake --no-gateway`, with the default settings in all else."""

    name = LOG
    server: Headwater

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._children: dict[str, int] = {}

    def _make(self) -> Headwater:
        # Its log is beside its data, which is deleted when it stops.
        logs = self.directory.with_name(f"{self.directory.name}-logs")
        return Headwater(logs, data=self.directory, lake=self.settles, detached=True)

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            settings = msgspec.json.decode((self.directory / "run" / "broker-1.json").read_bytes(), type=Settings)
            if changed := differing(settings, lake=self.settles):
                raise BenchError(f"{self.title} does not run with default settings: {', '.join(changed)}")
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def cpu_parts(self) -> dict[str, float]:
        trees = self._trees()
        parts = {part: cpu_of([root, *_descendants(root)]) for part, root in trees.items() if part != SUPERVISOR}
        return {**parts, SUPERVISOR: cpu_of([trees[SUPERVISOR]] if SUPERVISOR in trees else [])}

    def check(self) -> None:
        """The supervisor would start a broker or a compactor again: figures of such a turn are of no use."""
        super().check()
        found = {part: process.pid for part, process in self._trees().items()}
        if ended := [part for part, pid in self._children.items() if found.get(part) != pid]:
            raise BenchError(f"{self.title}: the {' and the '.join(ended)} ended, see {self.server.log}")
        self._children = found

    def _trees(self) -> dict[str, psutil.Process]:
        """The roots of the parts."""
        assert self.pid is not None
        try:
            root = psutil.Process(self.pid)
            return {SUPERVISOR: root, **parts_of(root.children())}
        except psutil.NoSuchProcess:
            raise BenchError(f"{self.title} has ended, see {self.server.log}") from None


class HeadwaterSystem(HeadwaterLogSystem):
    """`headwater up` with the default settings: topics settle into tables."""

    name = LAKE
    settles = True

    def unsettled(self) -> bool:
        """Whether WAL bytes are not settled, or a follower has not committed what is."""
        try:
            page = self.server.page("/metrics")[1]
        except OSError as error:
            raise BenchError(f"{self.title} does not show its metrics: {error}") from error
        if "headwater_settled_files_total" not in page:
            return True  # the compactor does not answer yet
        return any(metric_of(page, name) > 0 for name in ("headwater_settle_backlog_bytes", "headwater_follower_lag"))


class KafkaSystem(System):
    name = KAFKA
    more_settings: ClassVar[str] = ""

    def _make(self) -> Kafka:
        return Kafka(self.directory, settings=self.more_settings)


SYSTEMS: dict[str, type[System]] = {
    system.name: system for system in (KafkaSystem, HeadwaterLogSystem, HeadwaterSystem)
}


def parts_of(children: Iterable[psutil.Process]) -> dict[str, psutil.Process]:
    """The children of a supervisor by what they are: its command line says which command a process runs."""
    found: dict[str, psutil.Process] = {}
    for child in children:
        with _gone_is_fine():
            words = child.cmdline()
            for part in (BROKER, COMPACTOR, GATEWAY):
                if part in words[:MODE_WORDS]:
                    found[part] = child
    return found


def _descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def differing(settings: Settings, *, lake: bool) -> list[str]:
    """Settings of a broker that are neither the default ones of `headwater up` nor addresses of this run."""
    default = broker_settings(Settings(lake=Lake(enabled=lake)))[0]
    same = msgspec.structs.replace(
        settings,
        data=default.data,
        kafka=default.kafka,
        gateway=msgspec.structs.replace(settings.gateway, http=default.gateway.http, url=default.gateway.url),
    )
    ours, theirs = msgspec.to_builtins(same), msgspec.to_builtins(default)
    return [f"{name} is {ours[name]!r}" for name in ours if ours[name] != theirs[name]]
