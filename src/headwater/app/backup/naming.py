"""Which objects a state needs: a plain decision over the state, without I/O.

Objects that nothing refers to are left out, also if the state still knows them: they are about to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.ledger.contract import Pointer
from headwater.log.wal import format as wal
from headwater.state.streams.state import StreamsState
from headwater.state.streams.tables import TopicTable


def checkpoints(pointer: Pointer | None) -> list[str]:
    """The checkpoints of a domain, oldest first."""
    if pointer is None:
        return []
    return [*([pointer.older[1]] if pointer.older else []), pointer.path]


def wal_objects(state: StreamsState) -> Iterator[str]:
    """The WAL objects with records of the log."""
    for known in state.objects:
        if known.references:
            yield wal.path_of(known.zone, state.domain, known.created_ms, known.id)


def tables(state: StreamsState) -> list[TopicTable]:
    """The tables of topics that exist."""
    return [table for table in state.tables.values() if not table.dropped]


def segments(state: StreamsState) -> Iterator[str]:
    """The segments that the log or a version of a table shows."""
    for table in tables(state):
        ripe = {file.number for file in table.ripe()}
        for file in table.files.values():
            if file.number not in ripe:
                yield f"{table.root}/{file.name}"
