"""What errors of Spark mean to a caller, in words without traces and without names that the caller did not write."""

from __future__ import annotations

from headwater.query.engines.contract import TaskFile, TaskTable
from headwater.query.engines.frames import Why
from headwater.query.engines.spark.worker import failure_of, said

TABLE = TaskTable("topic_0", "orders", [TaskFile("topics/orders/_data/a.parquet", 10, False)], [], [])
TRACE = "\n\tat org.apache.spark.Some.method(Some.scala:1)"


def test_errors_of_values() -> None:
    text = f"Job aborted: Task 0 failed 4 times: Exception: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012{TRACE}"
    found = failure_of(RuntimeError(text), [TABLE])
    assert found.why is Why.FAILED and found.message == "[DIVIDE_BY_ZERO] Division by zero."


def test_names_of_views_are_not_shown() -> None:
    found = failure_of(RuntimeError("[UNRESOLVED_COLUMN.X] No column `a` in `topic_0`.\n== SQL =="), [TABLE])
    assert found.message == "[UNRESOLVED_COLUMN.X] No column `a` in `orders`."


def test_a_missing_file_and_a_lack_of_memory() -> None:
    gone = failure_of(RuntimeError(f"[PATH_NOT_FOUND] Path does not exist: file:/x/{TABLE.files[0].path}."), [TABLE])
    assert gone.why is Why.GONE and TABLE.files[0].path in gone.message
    full = failure_of(RuntimeError("java.lang.OutOfMemoryError: Java heap space"), [TABLE])
    assert full.why is Why.TOO_MUCH and "needs more than it may have" in full.message
    assert failure_of(RuntimeError("[PATH_NOT_FOUND] Path does not exist: file:/y."), [TABLE]).why is Why.FAILED


def test_something_is_always_said() -> None:
    assert said("") == "Spark has failed" and said("\n plain words\n more") == " plain words"
    calling = "An error occurred while calling o12.getResult."
    assert said(f"{calling}\n: java.lang.RuntimeException: no{TRACE}") == "java.lang.RuntimeException: no"
    assert said(calling) == "Spark has failed"
