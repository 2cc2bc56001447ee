"""What Spark is started with, and what its errors say."""

import threading

import pytest

from headwater.lake.spark.jobs import JobFailed, Jobs
from headwater.lake.spark.session import JAVA_OPTIONS, LOG_CONFIG, SessionFailed, Sessions, bounded, reason_of
from headwater.settings.settings import Spark
from tests.support.promise import promise

PROMISES = ("T12",)

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


@promise("T12")
def test_reason() -> None:
    """An executor's own words, else the first line, else what it is."""
    assert reason_of(RuntimeError(TRACE)) == "ValueError: no luck"
    assert reason_of(RuntimeError("first\n\tat org.apache")) == "first"
    assert reason_of(RuntimeError()) == "RuntimeError"


@promise("T12")
def test_settings_are_laid_over_ours() -> None:
    """A configuration wins, but Java options are added to those that keep Spark quiet."""
    conf = Sessions(Spark(conf={"spark.task.maxFailures": "9", JAVA_OPTIONS: "-Dx=y"})).conf()
    assert conf["spark.task.maxFailures"] == "9"
    assert conf[JAVA_OPTIONS] == f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()} -Dx=y"
    assert LOG_CONFIG.exists()


@promise("T12")
def test_only_a_local_spark_keeps_to_itself() -> None:
    """Executors elsewhere must reach the driver."""
    assert Sessions(Spark()).conf()["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in Sessions(Spark(master="spark://there:7077")).conf()


@promise("T12")
def test_closed_for_good() -> None:
    """Nothing starts after the end."""
    sessions = Sessions(Spark(remote="sc://127.0.0.1:1"))
    sessions.close()
    with pytest.raises(SessionFailed, match="closed"):
        sessions.get()
    with pytest.raises(JobFailed, match="closed"):
        Jobs(sessions, 60).run("late", [])
    Jobs(sessions, 60).warm_up(2)


@promise("T12")
def test_bounded() -> None:
    """What ends, well or badly, has ended; what does not is left behind."""
    gate = threading.Event()
    assert bounded(lambda: None, 60)
    assert bounded(lambda: 1 // 0, 60)
    assert not bounded(gate.wait, 0)
    gate.set()
