"""Apache Kafka's own tests of requests and of clients pass on Headwater, but for those on the list.

`make test-full` runs a sample, `make soak` all of them; `python -m tests.apache` runs some by hand.
"""

from __future__ import annotations

import pytest

from tests.apache.listed import left_out, misplaced_classes, running_classes, sample, surprises, unanswerable
from tests.apache.running import Outcome, run
from tests.support.soak import WHOLE

PROMISES = ("K1", "K2", "K7", "K8", "K9", "K10", "K11", "K12")
pytestmark = pytest.mark.long
ONE_IN = 10
"""Of so many tests one may be left out for what could be otherwise."""
ONE_IN_ALL = 5
"""Of so many tests one may be left out for any reason."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What came of the tests of this run. Those that surprise run again: they have limits of time."""
    directory = tmp_path_factory.mktemp("apache")
    first = run(directory / "first", running_classes(), () if WHOLE else sample())
    if not (again := surprises(first, left_out())):
        return first
    return first.updated(run(directory / "again", running_classes(), again))


@pytest.mark.timeout(7200 if WHOLE else 900)
def test_tests_end_as_the_list_says(outcome: Outcome) -> None:
    wanted = set(outcome.there if WHOLE else sample())
    assert wanted, "nothing was run"
    assert not (lost := wanted - outcome.ended.keys()), f"these did not run: {sorted(lost)}"
    found = surprises(outcome, left_out())
    assert not found, "\n\n".join(f"{name}: {what}" for name, what in sorted(found.items()))


@pytest.mark.timeout(900)
def test_the_list_names_tests_that_there_are_and_few_of_them(outcome: Outcome) -> None:
    there = set(outcome.there)
    assert not (gone := left_out().keys() - there), f"there are no such tests: {sorted(gone)}"
    assert all(left_out().values()), "a test without a reason"
    assert (len(left_out()) - len(unanswerable())) * ONE_IN <= len(there)
    assert len(left_out()) * ONE_IN_ALL <= len(there)


def test_whole_classes_are_left_out_for_an_api_that_is_not_served() -> None:
    assert not misplaced_classes()
