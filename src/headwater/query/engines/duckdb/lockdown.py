"""DuckDB's own gate: a connection that can read some exact files, and nothing else.

The statement has passed the gate of `query/gate` before, and the process has one of its own. This one must hold alone.
DuckDB's `allowed_paths` are also paths that may be written (`COPY … (USE_TMP_FILE false)`); that no statement writes is
the work of the other two gates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
}
"""What a database is opened with: no extension by itself, and no variable of a Python program as a table."""


def lock_down(connection: DuckDBPyConnection, paths: Sequence[str]) -> None:
    """Let a database read these files, by exact paths or URLs, and nothing else; nothing can change that afterwards.

    Views, credentials and limits must be set up before. What they need stays readable if it is in `paths`.
    """
    connection.execute("SET allowed_directories = []")
    connection.execute("SET allowed_paths = ?", [list(paths)])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
