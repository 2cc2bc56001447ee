"""Workers that collect the same tests share the work: one begins at the first file, the next one at the last.

A module that is imported for the first time is rewritten for its assertions and compiled, which takes more than half of
all the time of collecting. The result is stored. So two workers of a fresh clone meet in the middle, and each loads
what the other one has stored.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


class Collecting:
    """The order in which a worker collects. The tests that it collected are in the same order in each."""

    def __init__(self, worker: str) -> None:
        self._backwards = int(worker.removeprefix("gw")) % 2 == 1

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if self._backwards and isinstance(collector, pytest.Directory):
            report.result.reverse()
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Before an order is drawn."""
        items.sort(key=lambda item: item.nodeid.partition("::")[0])
        return (yield)
