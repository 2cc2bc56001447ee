"""Why a table is not up to date yet, in words for users: no compactor, a busy one, or open transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cli.table_common import replica_of, table_of

if TYPE_CHECKING:
    from headwater.app.session import LedgerSession

NAMED = 3
"""At most this many transactional ids are named; others are counted."""


def compactor_of(found: LedgerSession, name: str) -> str:
    """What the compactor of a topic does, if there is one."""
    from headwater.lake.described import compactor_words

    return compactor_words(replica_of(found, name).state, found.topic(name).id)


def transactions_of(found: LedgerSession, name: str) -> list[str]:
    """The transactional ids whose open transactions hold records of a topic back, the oldest transaction first."""
    from headwater.lake.described import held_by

    return held_by(replica_of(found, name).state, table_of(found, name)[1])


def held_words(count: int, ids: list[str]) -> str:
    """So many records are held back, and by which transactional ids."""
    records = f"{count} records are" if count > 1 else "1 record is"
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return f"{records} held back by open transactions of {', '.join(ids[:NAMED])}{more}"


def late_words(found: LedgerSession, name: str, missing: int, behind: list[str], timeout: float) -> str:
    """Settling is late by so many records or, if there are none, because these followers are behind; and why."""
    what = f"{missing} records wait" if missing > 1 else "1 record waits" if missing else ""
    what = what or f"the log is settled, but {' and '.join(behind)} cannot show it yet"
    words = f"settling of {name} is late: {what} after {timeout:g} s; {compactor_of(found, name)}"
    _, streams = table_of(found, name)
    held, ids = sum(s.end - s.stable for s in streams), transactions_of(found, name)
    return f"{words}; besides, {held_words(held, ids)}" if held else words
