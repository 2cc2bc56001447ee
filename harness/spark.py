"""Spark in its own processes: a standalone cluster and a Spark Connect server, from the installed PySpark."""

import collections
import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import psutil
import pyspark

from harness.jvm import OF_SPARK, SHORT_LIVED
from headwater.lake.spark.archive import with_archive
from headwater.lake.spark.java import java_home

HOME = Path(pyspark.__file__).parent
START_SECONDS = 120
STOP_SECONDS = 30
NOTHING_MORE: Mapping[str, str] = MappingProxyType({})
ON_LOOPBACK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join(SHORT_LIVED),
}
"""Settings of a session on such a cluster."""
EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkDaemon:
    """A process of Spark. A line of its log shows that it is ready."""

    def __init__(self, directory: Path, ready: str, *command: str, more: Mapping[str, str] = NOTHING_MORE) -> None:
        home = java_home()
        environment = os.environ | {
            **more,
            "JAVA_HOME": home,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": with_archive(" ".join(SHORT_LIVED), home),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._ready = re.compile(ready)
        self._found: re.Match[str] | None = None
        self._event = threading.Event()
        self._last: collections.deque[str] = collections.deque(maxlen=30)
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, cwd=directory
        )
        self._reader = threading.Thread(target=self._read, name="spark-daemon-log", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._last.append(line)
            if self._found is None:
                self._found = self._ready.search(line)
                if self._found:
                    self._event.set()
        self._event.set()

    def ready(self) -> str:
        """Wait for the line of the log that shows readiness; returns the address or port in it."""
        self._event.wait(START_SECONDS)
        assert self._found, "".join(self._last)
        return self._found[1]

    def children(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.pid).children(recursive=True)
        return found

    def stop(self) -> None:
        """End the process and its descendants, by their ids."""
        children = self.children()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@contextlib.contextmanager
def standalone(
    directory: Path, environment: Mapping[str, str] = NOTHING_MORE, *, workers: int = 2
) -> Iterator[tuple[str, list[SparkDaemon]]]:
    """A master and its workers, each with one core and this environment: the address of the master, the workers."""
    spark_class = str(HOME / "bin" / "spark-class")
    listen = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as stack:

        def daemon(ready: str, name: str, *arguments: str) -> SparkDaemon:
            command = (spark_class, f"org.apache.spark.deploy.{name}", *listen, *arguments)
            process = SparkDaemon(directory, ready, *command, more=environment)
            stack.callback(process.stop)
            return process

        address = daemon(r"Starting Spark master at (\S+)", "master.Master").ready()
        size = ("--cores", "1", "--memory", "512m")
        started = [
            daemon(
                r"Successfully registered with master (\S+)",
                "worker.Worker",
                *size,
                "--work-dir",
                str(directory / f"worker-{i}"),
                address,
            )
            for i in range(workers)
        ]
        for worker in started:
            worker.ready()
        yield address, started


def connect_server(directory: Path, port: int = 0) -> SparkDaemon:
    """A Spark Connect server on this port of the loopback address. With 0, its log names the port."""
    command = [str(HOME / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        **OF_SPARK,
        "spark.ui.enabled": "false",
        "spark.log.level": "INFO",
    }
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return SparkDaemon(
        directory, r"Spark Connect server started at: \S*:(\d+)", *command, "--master", "local[2]", "--name", "connect"
    )


def executor_of(pid: int) -> psutil.Process:
    """The executor that a Python worker works for."""
    [found] = [parent for parent in psutil.Process(pid).parents() if EXECUTOR in " ".join(parent.cmdline())]
    return found
