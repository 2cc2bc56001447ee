"""Which topics a link takes."""

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater.errors import ConfigError
from headwater.link.source import selection
from headwater.link.source.selection import Discovery, Names, SourceTopic, discovered

ID = uuid.UUID(int=7)


def answer(name: str, partitions: int = 1, *, internal: bool = False, error: ErrorCode = ErrorCode.none) -> Any:
    described = [
        SimpleNamespace(partition_index=i, leader_id=1, replica_nodes=(1,), isr_nodes=(1,)) for i in range(partitions)
    ]
    return SimpleNamespace(name=name, topic_id=ID, is_internal=internal, error_code=error, partitions=described)


def test_patterns_match_whole_names() -> None:
    names = Names(["exact"], ["orders-.*", "a|b"])
    assert [n for n in ("exact", "exactly", "orders-1", "my-orders-1", "a", "ab") if names.has(n)] == [
        "exact",
        "orders-1",
        "a",
    ]
    assert not Names().has("x") and not Names(["x"]).matches("x")


@pytest.mark.parametrize("pattern", ["(", "a{1001}", "x" * 5_000, "\\C"])
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is not a regular expression: ") as refused:
        Names(patterns=["fine", pattern])
    assert "Subscribed" not in str(refused.value) and len(str(refused.value)) < 300


def test_topics_by_name_and_pattern() -> None:
    """Named ones that are not there are told with the reason. Internal ones are not taken."""
    answers = [
        answer("named", 3),
        answer("matched-2"),
        answer("matched-1", 2),
        answer("other"),
        answer("matched-hidden", error=ErrorCode.topic_authorization_failed),
        answer("hidden", error=ErrorCode.topic_authorization_failed),
        answer("__consumer_offsets", internal=True),
        answer("__transaction_state", internal=True),
    ]
    found = discovered(answers, Names(["named", "gone", "hidden", "__consumer_offsets"], ["matched.*", "__.*"]))
    assert found.topics == (
        SourceTopic("matched-1", ID, 2),
        SourceTopic("matched-2", ID, 1),
        SourceTopic("named", ID, 3),
    )
    assert found.missing == {
        "gone": "there is no such topic",
        "hidden": "topic authorization failed (TOPIC_AUTHORIZATION_FAILED)",
        "__consumer_offsets": "it is an internal topic of the source, which is not copied",
    }
    assert discovered([], Names()) == Discovery(())


def test_too_many_topics_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_TOPICS", 2)
    assert len(discovered([answer("a"), answer("b")], Names(patterns=[".*"])).topics) == 2
    with pytest.raises(ConfigError, match="selects 3 topics; the limit is 2"):
        discovered([answer("a"), answer("b"), answer("c")], Names(patterns=[".*"]))
