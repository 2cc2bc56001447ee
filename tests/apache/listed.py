"""The list of tests that are left out (`tests/open.txt`), the sample of `make test-full`, and the judgement by both."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import headwater.broker.handlers  # noqa: F401  registers the APIs
from headwater.broker.registry import APIS
from tests.apache.classes import classes, simple
from tests.apache.running import Outcome
from tests.support import open as open_list

SAMPLE = Path(__file__).parent / "sample.txt"
"""A fixed sample, a test a line: some of every class, the quickest first."""
WHOLE_CLASS = ".*"
ABSENT = ("no controllers", "no replicas", "no plug-ins", "no insides of Kafka")
"""How reasons begin that are no fault: nodes that only control, copies that can be moved, lost or counted, classes of
Java that run in a broker, and objects and files of a broker that the test opens."""


SOMETIMES = "sometimes"
"""How the reason begins of a test that passes if a time of Headwater's happens to fit."""


def sample() -> list[str]:
    return SAMPLE.read_text().split()


def whole_classes() -> dict[str, str]:
    """The classes that are not run at all, each with the API that is not served."""
    found = {name.removesuffix(WHOLE_CLASS): why for name, why in open_list.tests().items()}
    return {name: why for name, why in found.items() if "." not in name}


def left_out() -> dict[str, str]:
    """The single tests that are left out, each with the reason."""
    return {name: why for name, why in open_list.tests().items() if not name.endswith(WHOLE_CLASS)}


def running_classes() -> list[str]:
    """The classes that are run, with their packages."""
    return [name for name in classes() if simple(name) not in whole_classes()]


def misplaced_classes() -> list[str]:
    """Classes that may not be left out as a whole: there is no such class, or no API is named that is not served."""
    there = {simple(name) for name in classes()}
    served = {api.name for api in APIS.values()}
    named = {name: re.search(r"(\w+) is not served", why) for name, why in whole_classes().items()}
    return [name for name, api in named.items() if name not in there or api is None or api[1] in served]


def undecided() -> list[str]:
    """The tests that may pass and may fail."""
    return [name for name, why in left_out().items() if why.startswith(SOMETIMES)]


def unanswerable() -> list[str]:
    """The tests that only Kafka itself can pass, because they need what Headwater does not have by design."""
    return [name for name, why in left_out().items() if why.startswith(ABSENT)]


def surprises(outcome: Outcome, listed: Mapping[str, str]) -> dict[str, str]:
    """The tests that ended in another way than the list says, each with what to do or what failed."""
    found: dict[str, str] = {}
    for name, error in outcome.ended.items():
        if error and name not in listed:
            found[name] = error
        elif not error and not listed.get(name, SOMETIMES).startswith(SOMETIMES):
            found[name] = "passes now: take it off tests/open.txt"
    return found


def chosen(outcome: Outcome, seconds: float, without: Container[str] = ()) -> list[str]:
    """A sample that takes these seconds: the quickest test of each class, then the second of each, and so on."""
    times: dict[str, list[tuple[float, str]]] = {}
    for name, spent in outcome.seconds.items():
        if name not in without:
            times.setdefault(name.partition(".")[0], []).append((spent, name))
    ranked = [(rank, spent, name) for of in times.values() for rank, (spent, name) in enumerate(sorted(of))]
    names: list[str] = []
    for _, spent, name in sorted(ranked):
        if spent <= seconds:
            names.append(name)
            seconds -= spent
    return sorted(names)


def write_sample(names: Iterable[str]) -> None:
    SAMPLE.write_text("".join(f"{name}\n" for name in names))
