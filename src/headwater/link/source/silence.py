"""Partitions whose log goes on at the source, which sends nothing of it.

Mostly a fetch was full before it came to the partition. But compaction may have removed the newest records of a log:
Kafka before 4.0 then answers without records, at an offset before the end, until the next record comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.client.fetching import Place
from headwater.client.model import Config

FIRST = 4
"""Fetches without records after which a partition is asked for alone. After that it is whenever they have doubled."""
ALONE = 3
"""How often a partition that is asked for alone must have no records."""
AT_ONCE = 4
"""Partitions that are asked for alone after one fetch. Each brings as much as it may, and the others wait meanwhile."""


@dataclass(slots=True)
class _Silence:
    position: int
    fetches: int = 0
    due: int = FIRST
    """The fetch after which the partition is asked for alone."""
    alone: int = 0


class Silences:
    """How often partitions were asked in vain, each at one position."""

    def __init__(self) -> None:
        self._all: dict[Place, _Silence] = {}

    def __repr__(self) -> str:
        return f"<Silences of {len(self._all)} partitions>"

    def note(self, place: Place, position: int) -> bool:
        """A fetch had nothing; returns whether to ask for the partition alone. If not now, then after the next one."""
        silence = self._all.get(place)
        if silence is None or silence.position != position:
            silence = self._all[place] = _Silence(position)
        silence.fetches += 1
        return silence.fetches >= silence.due

    def asked(self, place: Place) -> None:
        """The partition is asked for alone now."""
        silence = self._all[place]
        silence.due = 2 * silence.fetches

    def was_alone(self, place: Place, position: int) -> bool:
        """There was nothing although the partition was asked for alone; returns whether that was often enough.

        It was not if the partition was left meanwhile.
        """
        silence = self._all.get(place)
        if silence is None or silence.position != position:
            return False
        silence.alone += 1
        return silence.alone >= ALONE

    def end(self, place: Place) -> None:
        """A partition has records, has reached its end, or is read no more."""
        self._all.pop(place, None)


def is_compacted(configs: Iterable[Config]) -> bool:
    """Whether a topic is compacted."""
    return any(config.name == "cleanup.policy" and "compact" in (config.value or "") for config in configs)


def keeps_newest_only(configs: Sequence[Config]) -> bool:
    """Whether a topic is compacted, and no part of it is in a remote store."""
    remote = any("remote" in config.name and (config.value or "").lower() == "true" for config in configs)
    return is_compacted(configs) and not remote
