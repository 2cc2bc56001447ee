"""One Spark session for as long as a compactor lives, and a new one when it is stuck or dead.

Only the DataFrame API is used, so a session may be local, on a cluster, or a Spark Connect client.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Any

from headwater.config import Spark as SparkSettings
from headwater.errors import ConfigError
from headwater.lake.spark.java import java_home

log = logging.getLogger("headwater.spark")

DEFAULTS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.python.worker.reuse": "true",
    "spark.speculation": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Sessions:
    """Makes sessions and gives out the present one."""

    def __init__(self, settings: SparkSettings, name: str = "headwater") -> None:
        self._settings = settings
        self._name = name
        self._session: Any = None
        self._lock = threading.Lock()
        self.started = 0

    def __repr__(self) -> str:
        return f"<Sessions on {self._settings.remote or self._settings.master}, {self.started} started>"

    def get(self) -> Any:
        """The session, started if there is none. Blocks for seconds the first time."""
        with self._lock:
            if self._session is None:
                self._session = self._start()
                self.started += 1
            return self._session

    def replace(self, broken: Any) -> None:
        """Give up a session that failed; the next `get` starts another."""
        with self._lock:
            if self._session is broken:
                self._session = None
        _stop(broken)

    def close(self) -> None:
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            _stop(session)

    def _start(self) -> Any:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        try:
            from pyspark.sql import SparkSession
        except ImportError as error:
            raise ConfigError(f"settling needs PySpark: {error}") from error
        if self._settings.remote:
            return SparkSession.builder.remote(self._settings.remote).appName(self._name).create()
        os.environ["JAVA_HOME"] = java_home()
        builder = SparkSession.builder.master(self._settings.master).appName(self._name)
        for key, value in {**DEFAULTS, **self._settings.conf}.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        return session


def _stop(session: Any) -> None:
    try:
        session.stop()
    except Exception as error:  # noqa: BLE001 - it is broken already, in whatever way
        log.warning("a Spark session could not be stopped", extra={"reason": str(error)})
