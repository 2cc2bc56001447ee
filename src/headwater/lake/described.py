"""A topic's table in numbers, as the state has them: for the command line and the HTTP API alike. Nothing is asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

import msgspec

from headwater.configs.topics import TopicConfig
from headwater.lake.planning import lag_ms
from headwater.schemas.columns import REST
from headwater.state.commands.columns import walk
from headwater.state.streams.domain import COMPACTION
from headwater.state.streams.state import StreamsState
from headwater.state.streams.stored.typed import TypedTable
from headwater.state.streams.stream import Stream
from headwater.state.streams.tables import TopicTable


class Waiting(msgspec.Struct, frozen=True):
    """What is not in a table yet."""

    pending_records: int
    """Offsets that can be settled now."""
    held_records: int
    """Offsets that open transactions hold back."""
    held_by: list[str]
    """The transactional ids of these transactions, the oldest transaction first."""


class Totals(msgspec.Struct, frozen=True):
    """The newest version of a table."""

    rows: int
    files: int
    bytes: int
    version: int


def waiting_of(state: StreamsState, streams: Iterable[Stream]) -> Waiting:
    """What is not in the table of these streams yet."""
    known = list(streams)
    pending, held = sum(s.stable - s.settled for s in known), sum(s.end - s.stable for s in known)
    return Waiting(pending, held, held_by(state, known))


def held_by(state: StreamsState, streams: Iterable[Stream]) -> list[str]:
    """The transactional ids whose open transactions hold records of streams back, the oldest transaction first."""
    producers = {producer for stream in streams for producer in stream.running}
    if not producers:
        return []
    return [one.id for one in state.transactions.opened() if one.producer in producers]


def totals_of(table: TopicTable | None) -> Totals:
    """The numbers of a table, which may not exist yet."""
    live = list(table.live()) if table else []
    version = table.last_sequence if table else 0
    return Totals(sum(f.rows for f in live), len(live), sum(f.size for f in live), version)


class TypedTotals(msgspec.Struct, frozen=True):
    """The typed columns of a table."""

    typed_columns: int
    """Their number, with those inside others."""
    columns_version: int
    """How often columns were added."""
    files_not_decoded: int
    """Files of the newest version whose rows are not decoded, or are to be decoded again."""
    rows_not_decodable: int
    """Rows of the newest version whose key or value could not be decoded: see `decode_error`."""
    rest: bool = False
    """Whether some fields have no column of their own: they are in `_rest`. The compactor's log names them."""


def typed_of(state: StreamsState, table: TopicTable | None, config: TopicConfig) -> TypedTotals | None:
    """The typed columns of a topic; None if it has no schemas and its table has no such columns."""
    topic = table.topic if table is not None else None
    known = state.typed.get(topic, TypedTable()) if topic is not None else TypedTable()
    if not config.typed and not known.columns.newest:
        return None
    live = list(table.live()) if table is not None else []
    waiting = sum(1 for _ in known.undecoded(live)) if config.typed else 0
    failed = sum(known.files[file.number].failures for file in live if file.number in known.files)
    columns = known.columns.newest
    rest = any(column.name == REST for column in columns)
    return TypedTotals(sum(1 for _ in walk(columns)), known.columns.version, waiting, failed, rest)


def freshness_ms(state: StreamsState, table: TopicTable | None, streams: Sequence[Stream], now_ms: int) -> int:
    """How far a table and its followers are behind the log at a ledger time."""
    lags = [follower_lag_ms(table, follower, now_ms) for follower in table.followers] if table else []
    return max([*lags, lag_ms(state, streams, now_ms)])


def follower_lag_ms(table: TopicTable, name: str, now_ms: int) -> int:
    """The age of the oldest change of a table that a follower has not committed; 0 if it has all."""
    follower = table.followers.get(name)
    missing = table.entries_after(follower.cursor if follower is not None else 0)
    waiting = table.journal if missing is None else missing
    return max(0, now_ms - waiting[0].ledger_ms) if waiting else 0


def behind(table: TopicTable, wanted: Iterable[str]) -> list[str]:
    """The followers that have not reached the table's version: those that follow it, and those that should."""
    cursors = {follower: known.cursor for follower, known in table.followers.items()}
    return [name for name in dict.fromkeys([*cursors, *wanted]) if cursors.get(name, 0) < table.last_sequence]


def compactor_words(state: StreamsState, topic: uuid.UUID) -> str:
    """What the compactor of a topic does, if there is one.

    Only the ledger is asked. So a compactor that died counts as running until it is fenced or its lease has expired.
    """
    lease = state.lease(COMPACTION)
    if lease is None or lease.expires_ms <= state.clock_ms:
        return "no compactor is running: start one with `headwater compactor`"
    running = f"a compactor is running (epoch {lease.holder})"
    others = {s.topic for s in state.streams.values() if s.settled < s.stable and s.topic != topic}
    if others:
        waiting = f"{len(others)} other topics wait" if len(others) > 1 else "another topic waits"
        return f"{running} and busy: {waiting} for it too"
    return f"{running}, but has not come that far: its machine may be busy; its log and /health name other reasons"
