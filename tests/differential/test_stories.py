"""K1 to K11: sequences of raw requests, answered by Apache Kafka and by Headwater field by field alike."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
from kio.schema.errors import ErrorCode

from headwater.wire.build import build
from headwater.wire.messages import response_type
from tests.differential import open as open_stories
from tests.differential.allowed import APART
from tests.differential.compare import wavering
from tests.differential.stories import STORIES
from tests.differential.story import Said, Transcript
from tests.differential.telling import Verdict

OPEN = open_stories.read()


def test_what_is_open_is_a_story() -> None:
    """A story that is gone leaves the lists."""
    assert not {*OPEN, *APART} - STORIES.keys()
    assert not OPEN.keys() & APART.keys()


def test_answers_of_ours_that_waver_are_seen() -> None:
    """A story is told again for the sake of Apache Kafka only; names and ids that are made up anew do not count."""

    def told(prefix: str, code: ErrorCode, member: str) -> Transcript:
        answer = build(response_type(12, 4), error_code=code)
        group = build(response_type(11, 9), member_id=member, protocol_name=f"{prefix}-p")
        return Transcript(prefix, [Said("heartbeat {}", answer), Said("join_group {}", group)])

    calm = [told(f"story-{i}", ErrorCode.none, f"member-{uuid.uuid4()}") for i in range(3)]
    assert wavering(calm) == [] and wavering(calm[:1]) == []
    [line] = wavering([told("story-9", ErrorCode.illegal_generation, f"member-{uuid.uuid4()}"), *calm])
    assert "error_code" in line and "illegal_generation" in line
    [line] = wavering([Transcript("story-0", calm[0].said[:1], "it broke"), calm[0]])
    assert "it broke" in line


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_story(name: str, verdicts: Mapping[str, Verdict]) -> None:
    verdict = verdicts[name]
    assert verdict.outcome.kafka.broken is None, "the story does not hold for Apache Kafka"
    assert verdict.outcome.kafka.said, "a story without an answer checks nothing"
    assert not verdict.wavering, "\n".join(["our own answers waver:", *verdict.wavering])
    if name in APART:
        assert verdict.differences, "this story no longer goes another way: take it off the list"
        return
    if name in OPEN and verdict.differences:
        pytest.xfail(reason=OPEN[name])
    assert name not in OPEN, "this story no longer differs: take it off open.txt"
    assert not verdict.differences, "\n".join(verdict.differences)
