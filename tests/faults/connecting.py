"""Kafka Connect, one worker in distributed mode, with the exactly-once source `java/LineSource.java`."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

from harness.jvm import SHORT_LIVED
from harness.kafka import LIBS, LOGGING
from harness.patience import eventually
from harness.ports import free_port
from harness.tools import ROOT
from tests.compat.common import tool, unavailable

CONNECTOR = "lines"
START_S = 120.0
WORKER = """\
bootstrap.servers={bootstrap}
group.id=connect
listeners=http://127.0.0.1:{port}
exactly.once.source.support=enabled
plugin.path={plugins}
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=3
status.storage.partitions=1
offset.flush.interval.ms=1000
session.timeout.ms=6000
heartbeat.interval.ms=1000
scheduled.rebalance.max.delay.ms=0
producer.transaction.timeout.ms=10000
"""


class Worker(AbstractContextManager["Worker"]):
    """The worker's process, which may be killed and started again."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._port = free_port()
        self._log = directory / "connect.log"
        self._process: subprocess.Popen[bytes] | None = None
        classes = tool("faults/java/LineSource.class").parent
        plugins = directory / "plugins" / "lines"
        services = plugins / "META-INF" / "services"
        services.mkdir(parents=True)
        (services / "org.apache.kafka.connect.source.SourceConnector").write_text("LineSource\n")
        for path in classes.glob("LineSource*.class"):
            shutil.copy(path, plugins)
        file = directory / "worker.properties"
        file.write_text(WORKER.format(bootstrap=bootstrap, port=self._port, plugins=plugins.parent))
        java = shutil.which("java") or unavailable("java", "install a JDK, 17 or later")
        logging = f"-Dlog4j2.configurationFile={LOGGING}"
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        self._command = [java, *SHORT_LIVED, "-Xmx384m", logging, "-cp", f"{LIBS}/*", main, str(file)]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the worker without waiting for it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def configure(self, **config: str) -> None:
        """Make the connector, or change it. The worker may still be starting."""
        body = {"connector.class": "LineSource", "tasks.max": "1", "exactly.once.support": "required", **config}

        def done() -> bool:
            try:
                self._ask("PUT", f"/connectors/{CONNECTOR}/config", body)
            except OSError:  # it does not listen yet, or its group has no leader yet
                return False
            return True

        eventually(done, f"the worker takes a connector: {self}", START_S, every=0.5)

    def state(self) -> str:
        """The state of the connector's task; empty if there is no answer."""
        try:
            tasks = self._ask("GET", f"/connectors/{CONNECTOR}/status")["tasks"]
        except OSError:
            return ""
        return tasks[0]["state"] if tasks else ""

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        assert self._process is not None
        assert self._process.poll() is None, f"the worker ended: {self}"
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.loads(answer.read())

    def __str__(self) -> str:
        return f"{self._log.name}: {self._log.read_text()[-2500:]}"
