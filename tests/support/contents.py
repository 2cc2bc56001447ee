"""What is in a directory, to the byte."""

from __future__ import annotations

import hashlib
from pathlib import Path


def contents(directory: Path) -> dict[str, tuple[int, str]]:
    """By name, the mode of everything in a directory, and the hash of every file."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in sorted(directory.rglob("*"))
    }
