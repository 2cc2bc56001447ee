"""Which files a table no longer keeps by its own retention: a plain decision over the state, without I/O.

Only whole files are retired, once their newest record is too old. The log has a retention of its own: a file that is
retired from the table stays in the store as long as the log needs it.
"""

from __future__ import annotations

from headwater.state.streams.tables import DataFile, TopicTable

LAST_MS = 253_402_300_799_999
"""The end of the year 9999. Timestamps after it, or before 1970, do not count as an age."""
FILES_AT_ONCE = 5_000
"""The files have to fit into one ledger record."""


def newest_ms(file: DataFile) -> int:
    """The time that decides a file's age: its newest timestamp, or its creation time if that is not valid."""
    return file.max_timestamp if 0 <= file.max_timestamp <= LAST_MS else file.created_ms


def outdated(table: TopicTable, retention_ms: int, now_ms: int) -> list[DataFile]:
    """The live files whose records are all older than the retention, oldest first; as many as fit one command."""
    if retention_ms < 0:
        return []
    found = [file for file in table.live() if newest_ms(file) < now_ms - retention_ms]
    return sorted(found, key=lambda file: file.number)[:FILES_AT_ONCE]
