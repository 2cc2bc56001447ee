"""Fetch sessions (KIP-227): a broker remembers the partitions of a client, and both sides send only what has changed.

Without a session every fetch names all partitions, and every answer too, also if nothing has happened in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from headwater.client.connection import Connection
from headwater.client.errors import KafkaError, ProtocolError, Throttled, check
from headwater.client.fetching import (
    LAST_WITH_NAMES,
    NO_SESSION,
    FetchLimits,
    Place,
    WantedBatches,
    answers_of,
    ask_for_batches,
    check_pace,
    fetch_batches,
    fetch_version,
)
from headwater.client.model import Fetched

FULL = 0
"""The epoch of a fetch that begins a session."""
MAX_EPOCH = (1 << 31) - 1
TRIES = 2
"""A session that the broker does not know any more is begun anew, once in a fetch."""

_LOST = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


class FetchSession:
    """The session of one client at one broker, over any number of connections.

    A broker without sessions, or without room for another one, gets full fetches.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._with_ids = False
        self._named: dict[Place, WantedBatches] = {}
        """What the broker remembers."""
        self._told: dict[Place, Fetched] = {}
        """What it said last of each partition, without records."""
        self._busy = False

    def __repr__(self) -> str:
        return f"<FetchSession {self._id} at epoch {self._epoch}, {len(self._named)} partitions>"

    async def fetch(
        self, connection: Connection, wanted: Sequence[WantedBatches], limits: FetchLimits
    ) -> dict[Place, Fetched | KafkaError]:
        """Batches of partitions, as `fetch_batches` gives them.

        A fetch beside another one has no session. After a failure the next one begins a new session, which ends the
        one before.
        """
        if self._busy:
            return await fetch_batches(connection, wanted, limits)
        self._busy = True
        try:
            return await self._fetch(connection, wanted, limits)
        except Throttled:
            raise
        except BaseException:
            self._restart()
            raise
        finally:
            self._busy = False

    async def _fetch(
        self, connection: Connection, wanted: Sequence[WantedBatches], limits: FetchLimits
    ) -> dict[Place, Fetched | KafkaError]:
        version = fetch_version(connection, wanted)
        now = {one.place: one for one in wanted}
        for _ in range(TRIES):
            if self._is_other(now, with_ids=version > LAST_WITH_NAMES):
                self._restart()
            full = self._epoch == FULL
            changed = [one for place, one in now.items() if self._named.get(place) != one]
            gone = [one for place, one in self._named.items() if place not in now]
            session = (self._id, self._epoch)
            response = await ask_for_batches(connection, version, limits, changed, gone, session)
            code = getattr(response, "error_code", ErrorCode.none)
            if code in _LOST and not full:
                self._restart()
                continue
            check(code, f"fetch from {connection.address}")
            self._advance(now, response, with_ids=version > LAST_WITH_NAMES)
            check_pace(response, connection)
            found = self._found(now, answers_of(response, version, {one.topic_id: one.topic for one in wanted}))
            if found is not None:
                return found
            self._restart()
            if full:
                break
        raise ProtocolError(f"the answer of {connection.address} has other partitions than the request")

    def _is_other(self, now: Mapping[Place, WantedBatches], *, with_ids: bool) -> bool:
        """Whether a topic has got another id, or ids are used no more: a session is about the same topics always."""
        if self._with_ids != with_ids:
            return True
        named = self._named
        return any(place in named and named[place].topic_id != one.topic_id for place, one in now.items())

    def _restart(self) -> None:
        """Begin a new session with the next fetch. It names the old one, which the broker then drops."""
        self._epoch = FULL
        self._named, self._told = {}, {}

    def _advance(self, now: dict[Place, WantedBatches], response: Any, *, with_ids: bool) -> None:
        """Note what the broker remembers now."""
        id = getattr(response, "session_id", NO_SESSION)
        if id == NO_SESSION or (self._epoch != FULL and id != self._id):
            self._restart()
            self._id = NO_SESSION
        else:
            self._id, self._named, self._with_ids = id, now, with_ids
            self._epoch = 1 if self._epoch == MAX_EPOCH else self._epoch + 1

    def _found(
        self, now: Mapping[Place, WantedBatches], answers: dict[Place, Fetched | KafkaError]
    ) -> dict[Place, Fetched | KafkaError] | None:
        """The answer for each partition; None if there are others, or one is missing that was never told."""
        if not answers.keys() <= now.keys():
            return None
        told = {place: one for place, one in self._told.items() if place in now}
        for place, answer in answers.items():
            told.pop(place, None)
            if isinstance(answer, Fetched):
                told[place] = replace(answer, data=b"", aborted=())
        if not now.keys() <= answers.keys() | told.keys():
            return None
        self._told = told if self._id != NO_SESSION else {}
        return {place: answers[place] if place in answers else told[place] for place in now}
