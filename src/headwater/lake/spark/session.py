"""One Spark session for as long as a compactor lives, and a new one when it is stuck or dead.

Only the DataFrame API is used, so a session may be local, on a cluster, or a Spark Connect client. PySpark keeps one
JVM and one session per Python process in class attributes, and never lets go of a JVM that died: here they are let go.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.config import Spark as SparkSettings
from headwater.errors import ConfigError, StoreUnavailable
from headwater.lake.spark.java import java_home

log = logging.getLogger("headwater.spark")

LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
PATIENCE_SECONDS = 10.0
"""How long a session that is told to end may take before it is made to."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "512m",
    # No data passes through the JVM: code that is compiled better never earns what compiling it takes.
    # And collecting garbage beside the work only takes a core from the workers.
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.worker.reuse": "true",
    "spark.speculation": "false",
    # And planning again at run time and compiling the plan only cost time.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_DEFAULTS: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Where all of Spark is in one process, nobody else needs to reach it."""


class SessionFailed(StoreUnavailable):
    """No Spark session could be had: nothing is lost, and the next attempt may succeed."""


class Sessions:
    """Makes sessions and gives out the present one."""

    def __init__(self, settings: SparkSettings, name: str = "headwater") -> None:
        self._settings = settings
        self._name = name
        self._session: Any = None
        self._starting = False
        self._closed = False
        self._lock = threading.Lock()
        self.started = 0

    def __repr__(self) -> str:
        return f"<Sessions on {self._settings.remote or self._settings.master}, {self.started} started>"

    def get(self) -> Any:
        """The session, started if there is none. Blocks for seconds the first time."""
        with self._lock:
            if self._session is None:
                self._starting = True
                try:
                    self._session = self._start()
                finally:
                    self._starting = False
                self.started += 1
            return self._session

    def replace(self, broken: Any) -> None:
        """Give up a session that failed; the next `get` starts another."""
        with self._lock:
            if self._session is broken:
                self._session = None
                self._end(broken)

    def abort(self) -> None:
        """Make whatever waits for the session fail now, from any thread, even if Spark reacts to nothing at all."""
        if self._settings.remote:
            session = self._session
            if session is not None:
                session.client._channel.close()
        elif self._starting or self._session is not None:
            _kill_gateway()

    def close(self) -> None:
        """End the session, also one that is just starting. There is none after it."""
        self._closed = True
        if self._starting:
            self.abort()
        with self._lock:
            session, self._session = self._session, None
            if session is not None:
                self._end(session)

    def _start(self) -> Any:
        if self._closed:
            raise SessionFailed("the Spark session was closed")
        _calm_py4j()
        try:
            session = self._connect() if self._settings.remote else self._launch()
        except ImportError as error:
            raise ConfigError(f"settling needs PySpark: {error}") from error
        except ConfigError:
            raise
        except Exception as error:
            if not self._settings.remote:
                drop_gateway()
            raise SessionFailed(f"no Spark session on {self!r}: {reason_of(error)}") from error
        log.info("a Spark session started", extra={"master": self._settings.remote or self._settings.master})
        return session

    def _connect(self) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(self._settings.remote).appName(self._name).create()
        # A server that is gone for longer is a failed job, which is repeated anyway.
        session.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=3_000)])
        for key, value in self._settings.conf.items():
            session.conf.set(key, value)
        return session

    def _launch(self) -> Any:
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = java_home()
        if self._settings.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master(self._settings.master).appName(self._name)
        for key, value in self.conf().items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        # It would print a trace whenever the JVM ends before it does.
        session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        return session

    def conf(self) -> dict[str, str]:
        """Spark's settings: ours, and over them those of the configuration."""
        local = LOCAL_DEFAULTS if self._settings.master.startswith("local") else {}
        chosen = {**DEFAULTS, **local, **self._settings.conf}
        quiet = f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"
        chosen[JAVA_OPTIONS] = f"{quiet} {chosen.get(JAVA_OPTIONS, '')}".strip()
        return chosen

    def _end(self, session: Any) -> None:
        if self._settings.remote:
            _disconnect(session)
        else:
            drop_gateway()


_PYTHON_TRACE = "Traceback (most recent call last):"


def reason_of(error: BaseException) -> str:
    """What an error of Spark says, without the traces of two languages: the executor's own words if it has some."""
    text = str(error).strip()
    _, traced, trace = text.rpartition(_PYTHON_TRACE)
    said = [line for line in trace.splitlines() if line and not line[0].isspace()] if traced else []
    return (said or text.splitlines() or [type(error).__name__])[0][:500]


def bounded(work: Callable[[], object], seconds: float) -> bool:
    """Do something that may never end; says whether it ended, well or not, within this time."""

    def attempt() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it is broken already, in whatever way
            log.info("a Spark session does not answer", extra={"reason": reason_of(error)})

    thread = threading.Thread(target=attempt, name="spark-attempt", daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


# --- Spark Connect -----------------------------------------------------------------------------------------


def _disconnect(session: Any) -> None:
    """End a session on its server if that answers, and in this process in any case."""
    client = session.client
    if not client.is_closed:
        bounded(client.release_session, PATIENCE_SECONDS)
    client._channel.close()
    if not bounded(session.stop, PATIENCE_SECONDS):
        log.warning("a Spark Connect session could not be stopped")


# --- a JVM of our own --------------------------------------------------------------------------------------


def _kill_gateway() -> None:
    """End the JVM at once; calls that wait for it fail."""
    from pyspark.core.context import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def drop_gateway() -> None:
    """End the JVM, and everything in this process that believes that there is one."""
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    with SparkContext._lock:
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if gateway is not None:
        _end_process(gateway.proc)
        gateway.close()
    if context is not None:
        context._jsc = None
        if getattr(context, "_accumulatorServer", None) is not None:
            context._accumulatorServer.shutdown()


def _end_process(process: subprocess.Popen[bytes] | None) -> None:
    """The JVM ends by itself, in good order, when its standard input does."""
    if process is None:
        return
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("a Spark driver's JVM did not end and is killed", extra={"pid": process.pid})
        process.kill()
        process.wait()


class _NotPy4j(logging.Filter):
    """Keeps off the root logger what Py4J writes there: traces of a lost JVM, which we report in our own words."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.module != "java_gateway"


_not_py4j = _NotPy4j()


def _calm_py4j() -> None:
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger().addFilter(_not_py4j)
