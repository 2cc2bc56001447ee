"""Which topics and groups of a source a link takes: by name, or by pattern."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.errors import describe
from headwater.client.routing import topic_of
from headwater.coordination.common import GroupError
from headwater.coordination.regex import compiled
from headwater.errors import ConfigError

MAX_TOPICS = 10_000
"""Topics of one link. A link that selects more is refused."""


class Names:
    """Names, and regular expressions in RE2's syntax that match whole names."""

    def __init__(self, names: Iterable[str] = (), patterns: Iterable[str] = ()) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.patterns = tuple(dict.fromkeys(patterns))
        self._compiled = []
        for pattern in self.patterns:
            try:
                self._compiled.append(compiled(pattern))
            except GroupError as error:
                reason = error.message.rpartition(" is not a valid regular expression: ")[2]
                raise ConfigError(f"the pattern {pattern[:64]!r} is not a regular expression: {reason}") from None
        self._named = frozenset(self.names)

    def __repr__(self) -> str:
        return f"<Names {', '.join(self.names)} and patterns {', '.join(self.patterns)}>"

    def has(self, name: str) -> bool:
        """Whether a name is one of them."""
        return name in self._named or self.matches(name)

    def matches(self, name: str) -> bool:
        """Whether a pattern matches a name."""
        return any(pattern.fullmatch(name) is not None for pattern in self._compiled)


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic of the source that a link takes."""

    name: str
    id: uuid.UUID | None
    """None: the source has no ids of topics (before Kafka 2.8)."""
    partitions: int


@dataclass(frozen=True, slots=True)
class Discovery:
    """The topics that a link takes, by name, and why some of the named ones are not there."""

    topics: tuple[SourceTopic, ...]
    missing: dict[str, str] = field(default_factory=dict)


def discovered(answers: Sequence[Any], selection: Names) -> Discovery:
    """The selected topics of a Metadata response. Kafka's internal topics are never taken.

    Topics that a pattern matches and that cannot be read now are left out. They are found later.
    """
    topics: list[SourceTopic] = []
    missing = dict.fromkeys(selection.names, "there is no such topic")
    for answer in answers:
        name = answer.name
        named = name in missing
        if name is None or not (named or selection.matches(name)):
            continue
        if answer.error_code is not ErrorCode.none:
            if named:
                missing[name] = f"{describe(answer.error_code)} ({answer.error_code.name.upper()})"
            continue
        topic = topic_of(answer)
        if topic.internal:
            if named:
                missing[name] = "it is an internal topic of the source, which is not copied"
            continue
        missing.pop(name, None)
        topics.append(SourceTopic(name, topic.id, len(topic.partitions)))
    if len(topics) > MAX_TOPICS:
        raise ConfigError(f"the link selects {len(topics)} topics; the limit is {MAX_TOPICS}. Choose narrower patterns")
    return Discovery(tuple(sorted(topics, key=lambda topic: topic.name)), missing)
