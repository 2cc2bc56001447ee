"""Incremental fetch sessions (KIP-227): the broker keeps a consumer's partitions, so that it sends only changes."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.clock import Chance

FULL = 0
SESSIONLESS = -1
MAX_ID = (1 << 31) - 1

Key: TypeAlias = tuple[str | uuid.UUID, int]
"""Topic name or id, and partition."""


@dataclass(slots=True)
class Wanted:
    """One partition of a fetch."""

    topic: str | uuid.UUID
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    told: tuple[int, int, int] | None = None
    """High watermark, stable offset and log start of the last answer in this session."""


@dataclass(slots=True)
class FetchSession:
    """The partitions that one consumer fetches."""

    id: int
    epoch: int = 1
    wanted: dict[Key, Wanted] = field(default_factory=dict)


class FetchSessions:
    """The sessions of one broker. The least recently used ones are dropped first."""

    def __init__(self, limit: int, chance: Chance) -> None:
        self._limit = limit
        self._chance = chance
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, wanted: dict[Key, Wanted]) -> FetchSession:
        """A new session."""
        while True:
            session_id = 1 + int(self._chance.fraction() * (MAX_ID - 1))
            if session_id not in self._sessions:
                break
        while len(self._sessions) >= self._limit:
            self._sessions.popitem(last=False)
        session = self._sessions[session_id] = FetchSession(session_id, wanted=wanted)
        return session

    def get(self, session_id: int) -> FetchSession | None:
        session = self._sessions.get(session_id)
        if session is not None:
            self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)


def next_epoch(epoch: int) -> int:
    """Session epochs run from 1 to 2^31 - 1 and start over at 1."""
    return 1 if epoch >= MAX_ID else epoch + 1
