"""Names of fields in formats that do not take every name."""

from __future__ import annotations

import re


def plain_name(name: str) -> str:
    """A name of letters, digits and underscores only."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
