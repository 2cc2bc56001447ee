"""One Spark session for as long as a compactor lives, and a new one when it is stuck or dead.

Only the DataFrame API is used, so a session may be local, on a cluster, or a Spark Connect client. PySpark keeps one
JVM and one session per Python process in class attributes, even if the JVM has died. This module clears them.
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

from headwater.errors import ConfigError, StoreUnavailable
from headwater.extras import missing
from headwater.lake.spark.archive import with_archive
from headwater.lake.spark.java import java_home
from headwater.priority import read_when_idle
from headwater.settings.settings import Spark as SparkSettings

log = logging.getLogger("headwater.spark")

LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
PATIENCE_SECONDS = 10.0
"""How long a session may take to end after it was asked to. Then it is ended by force."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "512m",
    # No data passes through the JVM: better compiled code would not save the time that compiling it takes,
    # and a concurrent garbage collector would only take a core from the workers.
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.worker.reuse": "true",
    "spark.speculation": "false",
    # Planning again at run time and compiling the plan would only cost time.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_DEFAULTS: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""With all of Spark in one process, no other machine needs to reach it."""


class SessionFailed(StoreUnavailable):
    """No Spark session could be started. Nothing is lost, and the next attempt may succeed."""


class Sessions:
    """Starts sessions and returns the current one."""

    def __init__(
        self,
        settings: SparkSettings,
        name: str = "headwater",
        *,
        idle: bool = False,
        end_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`idle`: a JVM on this machine, and its workers, read and write only while no others do.

        `end_seconds` is how long a JVM may take to end.
        """
        self._settings = settings
        self._master = settings.chosen_master
        self._name = name
        self._idle = idle
        self._end_seconds = end_seconds
        self._session: Any = None
        self._starting = False
        self._closed = False
        self._lock = threading.Lock()
        self.started = 0

    def __repr__(self) -> str:
        return f"<Sessions on {self._settings.remote or self._master}, {self.started} started>"

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
        """Drop a session that failed. The next `get` starts another."""
        with self._lock:
            if self._session is broken:
                self._session = None
                self._end(broken)

    def abort(self) -> None:
        """Make every call that waits for the session fail now. May be called from any thread, even if Spark hangs."""
        if self._settings.remote:
            session = self._session
            if session is not None:
                session.client._channel.close()
        elif self._starting or self._session is not None:
            _kill_gateway()

    def close(self) -> None:
        """End the session, even one that is being started. No further session is started."""
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
            raise missing(error) or ConfigError(f"Spark cannot be used: {error}") from error
        except ConfigError:
            raise
        except Exception as error:
            if not self._settings.remote:
                drop_gateway()
            raise SessionFailed(f"no Spark session on {self!r}: {reason_of(error)}") from error
        log.info("a Spark session started", extra={"master": self._settings.remote or self._master})
        return session

    def _connect(self) -> Any:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession.builder.remote(self._settings.remote).appName(self._name).create()
        # If the server is away for longer, the job fails, and is repeated anyway.
        session.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=3_000)])
        for key, value in self._settings.conf.items():
            session.conf.set(key, value)
        return session

    def _launch(self) -> Any:
        from pyspark.sql import SparkSession

        if self._idle and self._master.startswith("local"):
            read_when_idle()  # the JVM and its workers inherit it; this thread only waits for them
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ["JAVA_HOME"] = home = java_home()
        if self._master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master(self._master).appName(self._name)
        conf = self.conf()
        conf[JAVA_OPTIONS] = with_archive(conf[JAVA_OPTIONS], home)
        for key, value in conf.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        # It would print a trace whenever the JVM ends before this process does.
        session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        return session

    def conf(self) -> dict[str, str]:
        """Spark's settings: the defaults of this module, overridden by the configuration."""
        local = LOCAL_DEFAULTS if self._master.startswith("local") else {}
        chosen = {**DEFAULTS, **local, **self._settings.conf}
        quiet = f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"
        chosen[JAVA_OPTIONS] = f"{quiet} {chosen.get(JAVA_OPTIONS, '')}".strip()
        return chosen

    def _end(self, session: Any) -> None:
        if self._settings.remote:
            _disconnect(session)
        else:
            drop_gateway(self._end_seconds)


_PYTHON_TRACE = "Traceback (most recent call last):"


def reason_of(error: BaseException) -> str:
    """The message of a Spark error without the traces of Python and Java; the executor's own message if it has one."""
    text = str(error).strip()
    _, traced, trace = text.rpartition(_PYTHON_TRACE)
    said = [line for line in trace.splitlines() if line and not line[0].isspace()] if traced else []
    return (said or text.splitlines() or [type(error).__name__])[0][:500]


def bounded(work: Callable[[], object], seconds: float) -> bool:
    """Run `work`, which may never end; returns whether it ended, well or not, within this time."""

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


# --- a local JVM -------------------------------------------------------------------------------------------


def _kill_gateway() -> None:
    """End the JVM at once; calls that wait for it fail."""
    from pyspark.core.context import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def drop_gateway(seconds: float = PATIENCE_SECONDS) -> None:
    """End the JVM within this time, and clear PySpark's references to it in this process."""
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    with SparkContext._lock:
        context, gateway = SparkContext._active_spark_context, SparkContext._gateway
        SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if gateway is not None:
        _end_process(gateway.proc, seconds)
        gateway.close()
    if context is not None:
        context._jsc = None
        if getattr(context, "_accumulatorServer", None) is not None:
            context._accumulatorServer.shutdown()


def _end_process(process: subprocess.Popen[bytes] | None, seconds: float) -> None:
    """End the JVM. It ends by itself when its standard input is closed; if not, it is killed."""
    if process is None:
        return
    with contextlib.suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        log.warning("a Spark driver's JVM did not end and is killed", extra={"pid": process.pid})
        process.kill()
        process.wait()


class _NotPy4j(logging.Filter):
    """Drops the records that Py4J writes to the root logger: traces of a lost JVM, which this module reports itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.module != "java_gateway"


_not_py4j = _NotPy4j()


def _calm_py4j() -> None:
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger().addFilter(_not_py4j)
