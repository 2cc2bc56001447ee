"""K1 to K11: sequences of raw requests, answered by Apache Kafka and by Headwater field by field alike."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.differential import open as open_stories
from tests.differential.allowed import APART
from tests.differential.stories import STORIES
from tests.differential.telling import Verdict

OPEN = open_stories.read()


def test_what_is_open_is_a_story() -> None:
    """A story that is gone leaves the lists."""
    assert not {*OPEN, *APART} - STORIES.keys()
    assert not OPEN.keys() & APART.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_story(name: str, verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts[name]
    assert verdict.outcome.kafka.broken is None, "the story does not hold for Apache Kafka"
    assert verdict.outcome.kafka.said, "a story without an answer checks nothing"
    if name in APART:
        assert verdict.differences, "this story no longer goes another way: take it off the list"
        return
    if name in OPEN and verdict.differences:
        pytest.xfail(reason=OPEN[name])
    assert name not in OPEN, "this story no longer differs: take it off open.txt"
    assert not verdict.differences, "\n".join(verdict.differences)
