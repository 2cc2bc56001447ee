"""Which files a table no longer keeps, by its own retention: a plain decision over the state, without I/O.

Only whole files leave, once their newest record is too old. The log's own retention is another matter: a file that is
retired from the table stays as long as the log reads it.
"""

from __future__ import annotations

from headwater.metadata.tables import DataFile, TopicTable

LAST_MS = 253_402_300_799_999
"""The end of the year 9999. What claims to be later, or before 1970, has no age that counts."""
FILES_AT_ONCE = 5_000
"""They have to fit one ledger record."""


def newest_ms(file: DataFile) -> int:
    """The time by which a file's age is judged: its newest record's, or when it was made if that cannot be."""
    return file.max_timestamp if 0 <= file.max_timestamp <= LAST_MS else file.created_ms


def outdated(table: TopicTable, retention_ms: int, now_ms: int) -> list[DataFile]:
    """The live files whose records are all older than that, oldest first; as many as fit one command."""
    if retention_ms < 0:
        return []
    found = [file for file in table.live() if newest_ms(file) < now_ms - retention_ms]
    return sorted(found, key=lambda file: file.number)[:FILES_AT_ONCE]
