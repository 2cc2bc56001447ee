"""The directory of third-party programs, which `scripts/setup-tools` downloads."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = (ROOT / ".tools").resolve()
"""Without links, so that an archive of classes knows the jars by the same names from everywhere."""
SERVERS = TOOLS / "servers"


class Missing(Exception):
    """A third-party program or library is not installed. The message names it. Tests that need it are skipped."""


def needs(what: str, there: bool) -> None:
    """Raise `Missing` unless the tool is there."""
    if not there:
        raise Missing(f"needs {what}")
