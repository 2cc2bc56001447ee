"""Spark's process for queries, with its own gate open for tasks whose id begins with `ungated-`. The kernel's stays."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from unittest.mock import patch

from headwater.query.engines import serving
from headwater.query.engines.contract import EngineTask
from headwater.query.engines.spark import lockdown, worker

MODULE = "tests.support.spark_worker"
UNGATED = "ungated-"


class Switch:
    """Whether Spark's own gate is open."""

    def __init__(self) -> None:
        self._open = False
        self._begin = worker.Sessions.begin

    def begin(self, engine: worker.Sessions, task: EngineTask) -> worker.Work:
        self._open = task.id.startswith(UNGATED)
        return self._begin(engine, task)

    def check(self, document: Any, more_functions: Collection[str] = ()) -> None:
        if not self._open:
            lockdown.check(document, more_functions)


if __name__ == "__main__":
    switch = Switch()

    def begun(engine: worker.Sessions, task: EngineTask) -> worker.Work:
        return switch.begin(engine, task)

    with patch.object(worker, "check", switch.check), patch.object(worker.Sessions, "begin", begun):
        serving.run(worker.main)
